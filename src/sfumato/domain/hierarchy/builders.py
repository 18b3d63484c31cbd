"""Ways to build a hierarchy: flat, intervals, order, prefix, dates, mapping.  Tables: ``Hierarchy.read``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from enum import StrEnum
from itertools import pairwise

from sfumato.domain.attribute import Attribute, Categorical, Date, Dated, Integer, Timestamp
from sfumato.domain.calendar import Grain, calendar_map, maps
from sfumato.domain.hierarchy.levels import TOP, Hierarchy
from sfumato.errors import DomainError


class DateLevel(StrEnum):
    """Calendar levels above the day, finest first."""

    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    DECADE = "decade"

    def label(self, day: date) -> str:
        """Return the name of the period of a day.

        >>> [level.label(date(987, 6, 5)) for level in DateLevel]
        ['0987-06', '0987-Q2', '0987', '0980s']
        """
        if self is DateLevel.DECADE:
            return f"{day.year // 10 * 10:04}s"
        grain = Grain(self.value)
        return grain.label(grain.of(day))


def flat(attribute: str, values: Sequence[str]) -> Hierarchy:
    """Return a hierarchy of two levels: the values, and the top.

    >>> flat("gender", ["F", "M"]).rows()
    [['F', '*'], ['M', '*']]
    """
    return Hierarchy.from_rows(attribute, [[value, TOP] for value in values])


def intervals(attribute: str, minimum: int, maximum: int, *, widths: Sequence[int]) -> Hierarchy:
    """Return whole numbers in intervals of growing width, cut at multiples of the width.

    The loss of an interval is (width - 1) / (maximum - minimum), not clipped to the range of the data, so that an
    interval at the edge has the same loss as any other.

    Args:
        attribute: name of the attribute.
        minimum: smallest value.
        maximum: largest value, inclusive.
        widths: each divides the next, so that the levels nest.

    Raises:
        DomainError: an empty range, or widths that do not nest.

    >>> intervals("age", 17, 90, widths=(5, 10, 20)).levels[1].labels[:2]
    ('15..19', '20..24')
    """
    if minimum > maximum:
        raise DomainError(f"the intervals of {attribute!r} have minimum above maximum", culprit=(minimum, maximum))
    if any(width < 1 for width in widths) or any(upper % lower for lower, upper in pairwise(widths)):
        raise DomainError(
            f"each interval width of {attribute!r} must divide the next, or the levels do not nest", culprit=widths
        )
    return _intervals(attribute, range(minimum, maximum + 1), widths, lambda first, last: f"{first}..{last}")


def order(attribute: str, values: Sequence[str], *, fanout: int) -> Hierarchy:
    """Return ordered values, ``fanout`` neighbors per cell at each level, until one cell is left.

    >>> order("grade", list("abcde"), fanout=2).levels[1].labels
    ('a..b', 'c..d', 'e')

    Raises:
        DomainError: a fanout below two.
    """
    if fanout < 2:  # noqa: PLR2004
        raise DomainError(f"the fanout of {attribute!r} must be at least 2", culprit=fanout)
    rows = [[value] for value in values]
    size = fanout
    while size < len(values):
        for index, row in enumerate(rows):
            first, last = index // size * size, min(index // size * size + size, len(values)) - 1
            row.append(values[first] if first == last else f"{values[first]}..{values[last]}")
        size *= fanout
    return Hierarchy.from_rows(attribute, [[*row, TOP] for row in rows])


def prefix(attribute: str, values: Sequence[str], *, masked: Sequence[int]) -> Hierarchy:
    """Return a hierarchy of codes such as postal codes, with more and more trailing characters masked by ``*``.

    Args:
        attribute: name of the attribute.
        values: codes; shorter codes are padded on the right with blanks for masking.
        masked: increasing numbers of characters to mask, one per level.

    >>> prefix("zip", ["81667", "81675"], masked=(2, 4)).rows()[0]
    ['81667', '816**', '8****', '*']

    Raises:
        DomainError: ``masked`` does not increase.
    """
    if any(low >= high for low, high in pairwise((0, *masked))):
        raise DomainError(f"the masked lengths of {attribute!r} must rise", culprit=masked)
    length = max(map(len, values), default=0)
    rows = []
    for value in values:
        padded = value.ljust(length)
        rows.append([value, *(padded[: max(length - n, 0)] + "*" * min(n, length) for n in masked), TOP])
    return Hierarchy.from_rows(attribute, rows)


def dates(attribute: str, values: Sequence[str], *, levels: Sequence[DateLevel]) -> Hierarchy:
    """Return ISO dates by month, quarter, year and decade (any of them, finest first).

    >>> dates("birth", ["1999-12-31"], levels=[DateLevel.QUARTER, DateLevel.YEAR]).rows()
    [['1999-12-31', '1999-Q4', '1999', '*']]

    Raises:
        DomainError: a value is no ISO date, or the levels are not in order.
    """
    if list(levels) != [level for level in DateLevel if level in levels]:
        raise DomainError(f"the date levels of {attribute!r} must go from fine to coarse", culprit=levels)
    rows = []
    for value in values:
        try:
            day = date.fromisoformat(value)
        except ValueError:
            raise DomainError(f"{value!r}, declared for {attribute!r}, is no ISO date", culprit=value) from None
        rows.append([value, *(level.label(day) for level in levels), TOP])
    return Hierarchy.from_rows(attribute, rows)


def mapping(attribute: str, steps: Sequence[Mapping[str, str]]) -> Hierarchy:
    """Return a hierarchy from steps, each a map from the labels of a level to cells of the next; the top is added.

    >>> mapping("pet", [{"cat": "mammal", "dog": "mammal", "newt": "newt"}]).rows()[1]
    ['dog', 'mammal', '*']

    Raises:
        DomainError: no step, or a step misses a label.
    """
    if not steps:
        raise DomainError(f"the hierarchy of {attribute!r} is empty", culprit=attribute)
    rows = []
    for value in steps[0]:
        row = [value]
        for number, step in enumerate(steps):
            if row[-1] not in step:
                raise DomainError(
                    f"step {number + 1} of the hierarchy of {attribute!r} misses {row[-1]!r}", culprit=row
                )
            row.append(step[row[-1]])
        rows.append([*row, TOP])
    return Hierarchy.from_rows(attribute, rows)


def draft(attribute: Attribute) -> Hierarchy:
    """Return a first hierarchy from the declared domain alone, for its owner to edit.

    Whole numbers go in intervals of 5, 10, 20, ... up to half the range, bins in pairs of neighbors, dates by the
    calendar; categories are flat.  Labels name declared values only: if the domain ends at 99, the last interval of
    width 40 is labeled 80..99.
    """
    if isinstance(attribute, Integer) and attribute.edges is None:
        span = attribute.maximum - attribute.minimum + 1
        widths = [width for exponent in range(40) if (width := 5 << exponent) * 2 <= span]

        def label(first: int, last: int) -> str:
            low, high = max(first, attribute.minimum), min(last, attribute.maximum)
            return str(low) if low == high else f"{low}..{high}"

        return _intervals(attribute.name, range(attribute.minimum, attribute.maximum + 1), widths, label)
    labels = attribute.labels()[: attribute.declared]
    if isinstance(attribute, Date | Timestamp):
        return _calendar(attribute)
    if isinstance(attribute, Categorical):
        return flat(attribute.name, labels)
    return order(attribute.name, labels, fanout=2)


def _calendar(attribute: Dated) -> Hierarchy:
    """Return the longer periods that consist of whole periods of a date, without weeks, which months cut."""
    grains = [grain for grain in (Grain.DAY, Grain.MONTH, Grain.QUARTER, Grain.YEAR) if grain is not attribute.by]
    longer = [calendar_map(grain, attribute.by, *attribute.periods) for grain in grains if grain in maps(attribute.by)]
    useful = [each for each in longer if len(each.labels) > 1]
    if not useful:
        return order(attribute.name, attribute.labels()[: attribute.declared], fanout=2)
    columns = [[each.labels[cell] for cell in each.cells] for each in useful]
    labels = attribute.labels()[: attribute.declared]
    rows = [[*row, TOP] for row in zip(labels, *columns, strict=True)]
    return Hierarchy.from_rows(attribute.name, rows, names=[each.name for each in useful])


def _intervals(attribute: str, values: range, widths: Sequence[int], label: Callable[[int, int], str]) -> Hierarchy:
    """Return intervals of growing width, each labeled by its first and last number."""
    starts = ((value, [(value // width * width, width) for width in widths]) for value in values)
    rows = [[str(value), *(label(start, start + width - 1) for start, width in each), TOP] for value, each in starts]
    span = max(len(values) - 1, 1)
    return Hierarchy.from_rows(attribute, rows).with_losses(
        [0.0, *(min((width - 1) / span, 1.0) for width in widths), 1.0]
    )
