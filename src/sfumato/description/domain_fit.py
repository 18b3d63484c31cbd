"""Drafts of domains from tables, the risks of a domain, and the values of a table that it declares.

A draft states exact facts about people (extremes, categories), so it is marked as a draft, and releases refuse it.  A
column of numbers with a few codes among them ("N") is drafted as numbers.  The codes, and numbers out of range, are in
one cell of unknown values.  Columns that a list of values or a range cannot describe are left out, and named.

Cells of numbers are narrower if there are more rows.  A number that many rows share (no gain, no income) has a cell of
its own, because rows are drawn evenly from a cell, and a wide cell would invent other numbers.  Such a real number is a
point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sfumato.description.written_values import (
    codes_hint,
    codes_of_table,
    date_body,
    date_hint,
    one_spelling,
    spellings_hint,
    with_codes,
)
from sfumato.domain import Attribute, Categorical, CsvFormat, Dated, Domain, Integer, Real, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.port import Column, ColumnKind, Profile, ProtectedTable
from sfumato.engine.profile import named_like_people
from sfumato.errors import TableError

MOST_VALUES = 200  # of a categorical attribute, and of an integer one without bins
BINS = 32
_UNIQUE = 0.9  # share of rows with a number of their own
_FEW_ROWS = 20  # that anybody may have, however small the table is
_MOST_POINTS = 4  # points that a hint names
_LARGEST = 1e307  # from which on edges around the numbers are no numbers any more

Tiles = tuple[int | float, ...]


@dataclass(frozen=True)
class Draft:
    """A domain marked as a draft, the columns that it leaves out with reasons, and hints about columns to check.

    ``dates`` are columns of dates, in the form of a domain document, without their first and last day.  These days are
    facts about people, so the owner writes them, and the domain lacks the dates until then.  ``order`` are the columns
    of both.  ``texts`` stand for missing values in some column.
    """

    domain: Domain
    left_out: dict[str, str]
    hints: dict[str, str]
    dates: dict[str, dict[str, Any]]
    order: tuple[str, ...]
    texts: tuple[str | int | float, ...] = ()

    def document(self) -> dict[str, Any]:
        """The document to edit: that of the domain, with the dates in their places."""
        document = self.domain.describe()
        shared = document.get("missing", [])
        bodies = document["attributes"] | {
            name: {key: value for key, value in body.items() if key != "missing" or value != shared}
            for name, body in self.dates.items()
        }
        return document | {"attributes": {name: bodies[name] for name in self.order}}


@dataclass(frozen=True)
class People:
    """A column that seems to name people: its values, their rows, and how many rows one has at most and at 99 %."""

    column: str
    values: int
    rows: int
    most: int
    at_99: int

    def __str__(self) -> str:
        return (
            f"{self.column} has {self.values:,} values in {self.rows:,} rows, of one at most {self.most:,}, of 99 % of "
            f"them at most {self.at_99:,}"
        )


def draft_domain(table: ProtectedTable, csv: CsvFormat | None = None) -> Draft:
    """Draft the domain of a table from its content.

    The unit is all rows of one value of the column that seems to name people, if several rows have one value.  Its
    bound keeps all rows of 99 % of the people.  Otherwise the unit is one row.

    Args:
        table: the table to describe.
        csv: the form of its file, which the domain will state.

    Raises:
        TableError: no column can be described.
    """
    attributes, left_out, hints, dates, order = [], {}, {}, {}, []
    profiles = table.profile(MOST_VALUES)
    people, texts = people_of(profiles), codes_of_table(profiles)
    for profile in profiles:
        if people is not None and profile.column.name == people.column:
            left_out[people.column] = (
                f"its values seem to be people, so the draft offers it as the unit: {people}; the draft keeps "
                f"{people.at_99:,} rows of each, and whoever has more is cut to as many"
            )
            continue
        if profile.distinct and (body := date_body(profile, texts)) is not None:
            dates[profile.column.name] = body
            hints[profile.column.name] = date_hint(profile)
            order.append(profile.column.name)
            continue
        drafted = _row_number(profile) or _attribute(profile)
        if isinstance(drafted, str):
            left_out[profile.column.name] = drafted
        else:
            order.append(profile.column.name)
            attributes.append(with_codes(drafted, profile, texts))
            in_order = (spellings_hint(attributes[-1]), codes_hint(profile), _hint(profile))
            if hint := next(filter(None, in_order), None):
                hints[profile.column.name] = hint
    hints |= _renamed([profile.column for profile in profiles if profile.column.name in order], hints)
    if dates and not attributes:
        raise TableError(
            f"there is nothing but dates ({', '.join(dates)}), whose first and last day are not for a program to read "
            "off the table: write the domain by hand"
        )
    if not attributes:
        raise TableError("no column has few enough values, or a range, to be drafted; write the domain by hand")
    unit = Unit() if people is None else Unit(people.column, rows=people.at_99)
    domain = Domain(tuple(attributes), unit=unit, draft=True, csv=csv)
    return Draft(domain, left_out, hints, dates, tuple(order), texts)


def people_of(profiles: Sequence[Profile]) -> People | None:
    """Return the column that most seems to name people of several rows each; None if there is none."""
    candidates = [
        profile for profile in profiles if profile.repeats and profile.repeats[-1][0] > 1 and not _crowded(profile)
    ]
    if not candidates:
        return None
    best = max(candidates, key=lambda profile: (named_like_people(profile.column.name), profile.distinct))
    beyond, at_99 = best.distinct, 0
    for rows, values in best.repeats:
        if beyond > best.distinct / 100:
            at_99 = rows
        beyond -= values
    return People(best.column.name, best.distinct, best.held, best.repeats[-1][0], at_99)


def _crowded(profile: Profile) -> bool:
    """Return whether one value of an id that is not of people by its name has more rows than any person."""
    crowd = max(_FEW_ROWS, profile.held / 10)
    return bool(profile.repeats) and profile.repeats[-1][0] > crowd and named_like_people(profile.column.name) == 1


def risks(domain: Domain, table: ProtectedTable | None) -> tuple[str, ...]:
    """Return sentences about a description that its owner should check before accepting it.

    Args:
        domain: the description.
        table: the table that it describes, whose facts it may repeat; None to check names only.

    Raises:
        TableError: the table cannot be read.
    """
    warnings = [
        f"{name} sounds like an identifier, which belongs into no release"
        for name in domain.names
        if named_like_people(name)
    ]
    if table is None:
        return tuple(warnings)
    profiles = table.profile(MOST_VALUES)
    people = people_of(profiles)
    if domain.unit.column is None and people is not None:
        warnings.append(f"one row is the unit, so whoever has several rows is protected less than said: {people}")
    held = {profile.column.name: profile for profile in profiles}
    warnings += [warning for attribute in domain if (warning := _read_off(attribute, held.get(attribute.name)))]
    return tuple(warnings)


def _read_off(attribute: Attribute, profile: Profile | None) -> str | None:
    """Return the facts of the data that an attribute states."""
    if profile is None:
        return None
    if isinstance(attribute, Categorical):
        if profile.values is None or {str(value) for value in profile.values} != set(map(str, attribute.values)):
            return None
        return f"{attribute.name} declares just the values that the table has: declare all that are possible"
    if not isinstance(attribute, Integer | Real):
        return _days_read_off(attribute, profile)
    numbers = profile if profile.numbers is None else profile.numbers
    ends = {"minimum": (attribute.minimum, numbers.minimum), "maximum": (attribute.maximum, numbers.maximum)}
    equal = [name for name, (declared, in_table) in ends.items() if declared == in_table]
    if not equal:
        return None
    return f"{attribute.name} has the {' and the '.join(equal)} of the table: declare bounds that everybody knows"


def _days_read_off(attribute: Dated, profile: Profile) -> str | None:
    ends = {"first": (attribute.first, profile.minimum), "last": (attribute.last, profile.maximum)}
    equal = [name for name, (declared, in_table) in ends.items() if declared.isoformat() == str(in_table)[:10]]
    if not equal:
        return None
    return f"{attribute.name} has the {' and the '.join(equal)} day of the table: declare days that everybody knows"


_INDEXES = frozenset(("row", "rows", "index", "rownames", "row_names", "row.names", "row_number", "rownum", "rowid"))
_NAMELESS = frozenset(("unnamed: 0", "__index_level_0__"))  # as pandas calls an index without a name


def _row_number(profile: Profile) -> str | None:
    """Return why a column only tells rows apart; None if it does not, or may do more.

    A column without a name does so if every row has another value, and a column named like an index if the values
    count the rows from 0 or 1.
    """
    name = profile.column.name.casefold()
    nameless = profile.column.header == "" or name in _NAMELESS
    if profile.missing or profile.distinct != profile.held or not (nameless or name in _INDEXES):
        return None
    low, high = profile.minimum, profile.maximum
    if isinstance(low, int) and isinstance(high, int) and low in (0, 1) and high - low + 1 == profile.held:
        return "it numbers the rows" + (", and has no name in the table" if nameless else "")
    if nameless and profile.column.kind in (ColumnKind.INTEGER, ColumnKind.TEXT):
        return "it has no name in the table, and a value of its own in every row, as an index has"
    return None


def _renamed(columns: Sequence[Column], hints: Mapping[str, str]) -> dict[str, str]:
    """Return the hints of columns that the table names otherwise, each before the other hint of the column."""
    renamed = {}
    for column in columns:
        if column.header is not None and column.header != column.name:
            why = f"is the header of another column, {column.header!r}" if column.header else "is blank"
            note = f"its header {why}, so every command calls it {column.name}"
            renamed[column.name] = "; ".join((note, *filter(None, [hints.get(column.name)])))
    return renamed


def _attribute(profile: Profile) -> Attribute | str:
    column, nullable = profile.column, profile.missing > 0
    if not profile.distinct:
        return "no values at all"
    match column.kind, profile.minimum, profile.maximum:
        case ColumnKind.INTEGER, int(low), int(high):
            return _integer(column.name, low, high, profile.tiles, nullable=nullable)
        case ColumnKind.REAL, float(low), float(high):
            return _real(column.name, low, high, profile.tiles, nullable=nullable)
        case ColumnKind.REAL, _, _:
            return "no finite number"
        case ((ColumnKind.TEXT | ColumnKind.BOOLEAN), _, _) if profile.values is not None:
            values, spellings = one_spelling(profile.values)
            return Categorical(
                name=column.name,
                values=tuple(sorted(values, key=_natural)),
                spellings=spellings,
                unknown=Unknown.CATEGORY,
                nullable=nullable,
            )
        case ColumnKind.TEXT, _, _ if profile.numbers is not None:
            drafted = _attribute(profile.numbers)
            return drafted if isinstance(drafted, str) else replace(drafted, unknown=Unknown.CATEGORY)
        case ColumnKind.TEXT, _, _:
            return f"text with {profile.distinct:,} different values: list those that are public, or leave it out"
        case _ if column.type.upper().startswith(("TIME", "DATETIME", "INTERVAL")):
            return f"{column.type.lower()} is neither a list nor a number: draft from a column of years, days or hours"
        case _:
            return f"no mapping for the type {column.type}"


def _natural(value: object) -> list[tuple[bool, int, str]]:
    """Digits within codes as numbers: V9 before V10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", str(value))
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _hint(profile: Profile) -> str | None:
    """Return what the owner should check before accepting the column."""
    if profile.numbers is not None:
        return _hint(profile.numbers)
    if _crowded(profile):
        return (
            f"named like an identifier, but {profile.repeats[-1][0]:,} of {profile.held:,} rows have one value: if its "
            "values are people, it belongs into the unit"
        )
    if (
        profile.column.kind is ColumnKind.INTEGER
        and profile.held > MOST_VALUES
        and profile.distinct > _UNIQUE * profile.held
    ):
        return "nearly every row has a number of its own, as of an identifier, which belongs into no release"
    if profile.column.kind is ColumnKind.REAL and (frequent := sorted(_frequent(profile.tiles))):
        examples = ", ".join(f"{value}" for value in frequent[:_MOST_POINTS]) + (
            ", ..." if len(frequent) > _MOST_POINTS else ""
        )
        return (
            f"many rows share a number ({examples}), which the draft declares as a point: keep those that "
            "everybody knows to be common"
        )
    return None


def _integer(name: str, low: int, high: int, tiles: Tiles, *, nullable: bool) -> Integer | str:
    edges = None
    if wide := high - low >= MOST_VALUES:
        width = round(_round_width((high - low + 1) / BINS))
        low, high = low // width * width, high // width * width + width - 1
    if max(abs(low), abs(high)) >= 1 << 53:
        return "whole numbers of 2^53 and more: leave it out, or declare it as categories"
    if wide:
        grid = list(range(low, high + 1, width))
        alone = {edge for value in _frequent(tiles) for edge in (value, value + 1)}
        edges = tuple(sorted({int(edge) for edge in (*_edges(grid, width, tiles), *alone) if low <= edge <= high}))
    return Integer(name=name, minimum=low, maximum=high, edges=edges, unknown=Unknown.CLAMP, nullable=nullable)


def _real(name: str, low: float, high: float, tiles: Tiles, *, nullable: bool) -> Real | str:
    if max(abs(low), abs(high)) > _LARGEST:
        return "numbers beyond 1e307: make those that stand for none missing, or declare a range"
    width = _round_width(max(high - low, abs(low) * 1e-6, 1e-9) / BINS)
    first, last = math.floor(low / width), math.floor(high / width) + 1
    grid = [step * width for step in range(first, last + 1)]
    edges = tuple(sorted({float(f"{edge:.12g}") for edge in _edges(grid, width, tiles)}))
    points = tuple(sorted(float(value) for value in _frequent(tiles)))
    return Real(name=name, edges=edges, points=points, unknown=Unknown.CLAMP, nullable=nullable)


def _edges(grid: Sequence[float], width: float, tiles: Tiles) -> list[float]:
    """Return round numbers between the tiles, and numbers of the grid that have none of these within its width."""
    between = []
    for low, high in pairwise(sorted(set(tiles))):
        step = _round_within(high - low)
        between.append(math.floor(high / step) * step)
    sparse = [edge for edge in grid[1:-1] if all(abs(edge - other) >= width for other in between)]
    return [grid[0], *between, *sparse, grid[-1]]


def _frequent(tiles: Tiles) -> set[float]:
    return {low for low, high in pairwise(tiles) if low == high}


def _round_within(width: float) -> float:
    """The last 1, 2 or 5 times a power of ten that is not above ``width``."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (5, 2, 1, 0.5) if step * power <= width * (1 + 1e-9))


def _round_width(width: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= width * (1 - 1e-9))


_ALL = 1 << 40  # more rows than any unit has


@dataclass(frozen=True)
class AttributeFit:
    """Rows whose value of ``attribute`` is a declared one, missing, or neither, and what becomes of the others.

    ``clamped`` of the unknown ones are moved to a bound; ``dropped`` rows are left out for a missing or unknown value.
    """

    attribute: str
    declared: int
    missing: int
    unknown: int
    clamped: int
    dropped: int


@dataclass(frozen=True)
class DroppedRows:
    """The rows of a table beyond the bound on rows of a unit:  ``dropped`` of its ``rows``, of ``units`` of its units.

    ``without_id`` more rows have no unit, and are always left out.
    """

    rows: int
    dropped: int
    units: int
    without_id: int


def dropped_rows(table: ProtectedTable, domain: Domain) -> DroppedRows | None:
    """Count the rows that the bound of the domain's unit leaves out, exactly; None if every row is a unit.

    Rows that the domain drops for their values are not counted.

    Raises:
        TableError: the table has no such columns.
    """
    if domain.unit.column is None:
        return None
    encoded = table.encode(domain)
    remaining, dropped, units = (
        int(reveal(exact)[0]) for exact in (encoded.marginals([()])[0], encoded.dropped(_ALL), encoded.dropped(1))
    )
    loose = table.encode(_loose(domain))
    owned = int(reveal(loose.marginals([()])[0])[0]) + int(reveal(loose.dropped(_ALL))[0])
    return DroppedRows(remaining + dropped, dropped, units, int(reveal(loose.unbounded())) - owned)


def domain_fit(table: ProtectedTable, domain: Domain) -> tuple[AttributeFit, ...]:
    """Count the values of every attribute, over all rows, before the domain drops or clamps any.

    Raises:
        TableError: the table has no such columns.
    """
    everything = Domain(tuple(_loose(domain)))  # also the rows that the bound of the unit leaves out
    sealed = table.encode(everything).marginals([(name,) for name in domain.names])
    fits = []
    for attribute, exact in zip(domain, sealed, strict=True):
        counts = reveal(exact)
        declared = int(counts[: attribute.declared].sum())
        missing, unknown = int(counts[attribute.declared]), int(counts[-1])
        clamped = unknown and _clamped(table, attribute)
        groups = attribute.unknown is Unknown.CATEGORY
        dropped = 0 if groups else unknown - clamped + (0 if attribute.nullable else missing)
        fits.append(AttributeFit(attribute.name, declared, missing, unknown, clamped, dropped))
    return tuple(fits)


def _clamped(table: ProtectedTable, attribute: Attribute) -> int:
    """Rows with a value beyond the bounds that is moved to the nearest; the others that are unknown cannot be read."""
    if attribute.unknown is not Unknown.CLAMP:
        return 0

    def rows(unknown: Unknown) -> int:
        alone = Domain((replace(attribute, nullable=True, unknown=unknown),))
        return int(reveal(table.encode(alone).marginals([()])[0])[0])

    return rows(Unknown.CLAMP) - rows(Unknown.DROP)


def _loose(domain: Domain) -> Domain:
    """The domain with a cell for every value, so that it drops no row for one."""
    attributes = tuple(replace(attribute, nullable=True, unknown=Unknown.CATEGORY) for attribute in domain)
    return Domain(attributes, unit=domain.unit.bounded(rows=domain.unit.rows, per=()))
