"""The values of a column in a codebook, and the few lines that represent them for people.

Files and JSON have every value. The text of a line is not trusted, so a reader must escape it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfumato.domain.attribute import EXTRA

MOST_LINES = 40
FOLDED_TEXT = (
    f"With more than {MOST_LINES} values, neighboring numbers and days share a line, and so do the rarest values of a "
    "list. The line has the sum of their rows, and the error of each. `sfumato show FILE --json` lists all values."
)
_UNSEEN = re.compile(r"^ +| +$| {2,}")


@dataclass(frozen=True)
class ValueEntry:
    """A declared value, or consecutive values that are listed together.

    Attributes:
        label: label of the value.
        values: number of declared values that are listed together.
        rows: number of rows of the file.
        low, high: 95 % interval of the number of rows of the protected table; None: not measured.
        off_by: largest difference between the file's number, scaled to the table, and the table's, with 95 %
            confidence.
        group: position of its group among the column's groups; None: no group.
    """

    label: str
    values: int
    rows: int
    low: int | None
    high: int | None
    off_by: int | None
    group: int | None


@dataclass(frozen=True)
class GroupEntry:
    """Values that were measured as one in tables of several attributes.

    Attributes:
        label: labels of the first and the last value.
        values: number of values.
        rows: number of rows of the file.
        off_by: largest error of their sum, with 95 % confidence; None: the group was not measured after it was formed.
    """

    label: str
    values: int
    rows: int
    off_by: int | None


@dataclass(frozen=True)
class ColumnEntry:
    """An attribute in a codebook.

    Attributes:
        name: name of the column.
        kind: categorical, integer or real.
        size: number of declared values or bins, including missing and unknown values.
        cells: number of its cells in tables of several attributes; ``groups`` has the cells of several values.
        deviation: standard deviation of the noise on one measured count; None: it was not measured alone.
        worst: largest error of a listed value, with 95 % confidence for all values at once.
        values: values with their errors.
    """

    name: str
    kind: str
    size: int
    cells: int
    groups: tuple[GroupEntry, ...]
    deviation: float | None
    worst: int | None
    values: tuple[ValueEntry, ...]


@dataclass(frozen=True)
class ValueLine:
    """A line for a value, or for several.

    Attributes:
        label: label of the value, or labels of the first and the last.
        rows: number of rows of the file with any of the values.
        low, high: 95 % interval of the number of rows of the protected table; None for several values.
        off_by: largest error of the rows of the value, or of each of several; None: not measured.
        group: label of the group of all its values.
        several: whether the line has more than one listed value.
    """

    label: str
    rows: int
    low: int | None
    high: int | None
    off_by: int | None
    group: str
    several: bool

    @property
    def error(self) -> int | str | None:
        """The error ``off_by``, marked if it applies to each of several values."""
        return f"each {self.off_by:,}" if self.several and self.off_by is not None else self.off_by


def seen(label: str) -> str:
    """Return the label. Blanks that a reader would overlook are shown as open boxes, in quotes.

    >>> seen("a b"), seen(" a  b"), seen("")
    ('a b', '"␣a␣␣b"', '""')
    """
    visible = _UNSEEN.sub(lambda blanks: "\N{OPEN BOX}" * len(blanks[0]), label)
    return f'"{visible}"' if visible != label or not label else label


def value_lines(column: ColumnEntry) -> tuple[ValueLine, ...]:
    """Return the values of a column, folded to a readable number of lines."""
    if len(column.values) <= MOST_LINES:
        return tuple(_line(column, [value]) for value in column.values)
    fold = _rarest if column.kind == "categorical" else _neighbours
    return tuple(_line(column, values) for values in fold(column.values))


@dataclass(frozen=True)
class GroupLine:
    """A line for a group of values, or for several groups.

    Attributes:
        label: label of the group, or labels of the first and the last.
        values: number of their declared values.
        rows: number of rows of the file.
        error: largest error of the sum of a group, and whether it is for each group; None: not measured.
    """

    label: str
    values: int
    rows: int
    error: int | str | None


def group_lines(column: ColumnEntry) -> tuple[GroupLine, ...]:
    """Return the groups of a column on a few lines for people.

    Neighbors of numbers and days share a line. In a list, the groups with the fewest rows share one.
    """
    groups, listed = column.groups, column.kind == "categorical"
    if len(groups) <= MOST_LINES:
        return tuple(GroupLine(each.label, each.values, each.rows, each.off_by) for each in groups)
    if listed:
        by_rows = sorted(range(len(groups)), key=lambda place: -groups[place].rows)
        largest = sorted(by_rows[: MOST_LINES - 1])
        runs = [*([groups[place]] for place in largest), [groups[place] for place in sorted(by_rows[MOST_LINES - 1 :])]]
    else:
        width = -(-len(groups) // MOST_LINES)
        runs = [list(groups[start : start + width]) for start in range(0, len(groups), width)]
    return tuple(_group_line(run, listed=listed) for run in runs)


def _group_line(run: Sequence[GroupEntry], *, listed: bool) -> GroupLine:
    errors = [each.off_by for each in run if each.off_by is not None]
    worst = max(errors) if len(errors) == len(run) else None
    label, error = run[0].label, None if worst is None else f"each {worst:,}"
    if len(run) > 1:
        label = f"({len(run):,} other groups)" if listed else f"{len(run):,} groups, {label} and on to {run[-1].label}"
    values, rows = sum(each.values for each in run), sum(each.rows for each in run)
    return GroupLine(label, values, rows, worst if len(run) == 1 else error)


def _neighbours(values: Sequence[ValueEntry]) -> Iterator[Sequence[ValueEntry]]:
    """Yield runs of one length, then missing and unknown values separately."""
    extra_cells = sum(value.label in EXTRA for value in values[-len(EXTRA) :])
    declared = len(values) - extra_cells
    width = -(-declared // (MOST_LINES - extra_cells))
    for start, end in pairwise([*range(0, declared, width), declared]):
        yield values[start:end]
    for value in values[declared:]:
        yield [value]


def _rarest(values: Sequence[ValueEntry]) -> Iterator[Sequence[ValueEntry]]:
    """Yield the values with the most rows in the file, in their order, then all others together."""
    by_rows = sorted(range(len(values)), key=lambda place: -values[place].rows)
    largest = frozenset(by_rows[: MOST_LINES - 1])
    yield from ([value] for place, value in enumerate(values) if place in largest)
    yield [value for place, value in enumerate(values) if place not in largest]


def _line(column: ColumnEntry, values: Sequence[ValueEntry]) -> ValueLine:
    first, last, several = values[0], values[-1], len(values) > 1
    if not several:
        label = seen(first.label)
    elif column.kind == "categorical":
        label = f"({sum(value.values for value in values):,} others)"
    else:
        label = f"{first.label} to {last.label}"
    errors = [value.off_by for value in values]
    known = [error for error in errors if error is not None]
    groups = {value.group for value in values}
    group = next(iter(groups)) if len(groups) == 1 else None
    return ValueLine(
        label=label,
        rows=sum(value.rows for value in values),
        low=None if several else first.low,
        high=None if several else first.high,
        off_by=max(known) if known and len(known) == len(errors) else None,
        group=column.groups[group].label if group is not None and 0 <= group < len(column.groups) else "",
        several=several,
    )
