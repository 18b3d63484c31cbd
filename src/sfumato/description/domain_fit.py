"""Drafts of domains from tables, and counts of the declared values in a table.

A draft states exact facts about people (extremes, categories), so it is marked as a draft, and releases refuse it.  A
column of numbers with a few codes among them ("N") is drafted as numbers.  The codes, and numbers out of range, are in
one cell of undeclared values.  A column that neither a list of values nor a range can describe is omitted and named.

Cells of numbers are narrower if there are more rows.  A number that many rows share (no gain, no income) has a cell of
its own, because rows are drawn evenly from a cell, and a wide cell would invent other numbers.  Such a real number is a
point.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

from sfumato.description.findings import RARE, DescriptionFinding, drafted_facts, drafted_record, grouped
from sfumato.description.sensitive_columns import (
    FindingKind,
    crowded,
    detail_of,
    measured_text,
    people_of,
    sensitive_kind,
)
from sfumato.description.written_values import (
    codes_hint,
    codes_note,
    codes_of_table,
    date_body,
    date_hint,
    one_spelling,
    spellings_hint,
    with_codes,
)
from sfumato.domain import Attribute, Categorical, CsvFormat, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.attribute import EXTRA
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Column, ColumnKind, Counts, Profile, ProtectedTable
from sfumato.errors import TableError, pluralize

MOST_VALUES = 200  # values of a categorical attribute, or of an integer one without bins
BINS = 32
_LARGEST = 1e307  # edges around larger numbers would overflow

Tiles = tuple[int | float, ...]


@dataclass(frozen=True)
class Draft:
    """A domain marked as a draft, the omitted columns with reasons, and hints about columns to check.

    ``dates`` are columns of dates, in the form of a domain document, without their first and last day.  These days are
    facts about people, so the owner writes them, and the domain lacks the dates until then.  ``order`` has the columns
    of both.  ``texts`` are codes for missing values in some column.  ``findings`` are about columns that look
    sensitive, and about the facts of the table in the draft.
    """

    domain: Domain
    left_out: dict[str, str]
    hints: dict[str, str]
    dates: dict[str, dict[str, Any]]
    order: tuple[str, ...]
    texts: tuple[str | int | float, ...] = ()
    findings: tuple[DescriptionFinding, ...] = ()

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the owner: findings by kind, other columns, and hints."""
        named = {column for finding in self.findings if finding.left_out for column in finding.columns}
        left_out = [f"Left out {name}: {why}." for name, why in self.left_out.items() if name not in named]
        hints = [f"Look at {name}: {hint}." for name, hint in self.hints.items()]
        codes = [codes_note(self.texts)] if self.texts else []
        return (*codes, *(f"{finding}." for finding in self.findings), *left_out, *hints)

    def document(self) -> dict[str, Any]:
        """Return the document to edit: the domain's document with the dates in their places."""
        document = self.domain.describe()
        shared = document.get("missing", [])
        bodies = document["attributes"] | {
            name: {key: value for key, value in body.items() if key != "missing" or value != shared}
            for name, body in self.dates.items()
        }
        return document | {"attributes": {name: bodies[name] for name in self.order}}


def draft_domain(table: ProtectedTable, csv: CsvFormat | None = None) -> Draft:
    """Draft the domain of a table from its content.

    If several rows share a value of a column that seems to name people, the unit is all rows of one such value.  Its
    bound keeps all rows of 99 % of the people.  Otherwise the unit is one row.

    Args:
        table: the table to describe.
        csv: the form of its file, which becomes part of the domain.

    Raises:
        TableError: no column can be described.
    """
    return draft_profiles(table.profile(MOST_VALUES), csv)


def draft_profiles(profiles: Sequence[Profile], csv: CsvFormat | None = None) -> Draft:
    """Draft the domain of a table from the profiles of its columns; see :func:`draft_domain`.

    Raises:
        TableError: no column can be described.
    """
    attributes, left_out, hints, dates, order = [], {}, {}, {}, []
    sensitive: list[tuple[FindingKind, str, str]] = []
    people, texts = people_of(profiles), codes_of_table(profiles)
    for profile in profiles:
        if people is not None and profile.column.name == people.column:
            left_out[people.column] = (
                f"its values seem to be people, so the draft offers it as the unit: {people}; the draft keeps "
                f"{pluralize(people.at_99, 'row')} of each person, and leaves further rows out"
            )
            continue
        if profile.distinct and (body := date_body(profile, texts)) is not None:
            dates[profile.column.name] = body
            hints[profile.column.name] = date_hint(profile)
            order.append(profile.column.name)
            continue
        if (identifies := sensitive_kind(profile)) is not None:
            kind, reason = identifies
            sensitive.append((kind, profile.column.name, detail_of(kind, reason)))
            left_out[profile.column.name] = reason
            continue
        drafted = _attribute(profile)
        if isinstance(drafted, str):
            left_out[profile.column.name] = drafted
        else:
            order.append(profile.column.name)
            attributes.append(with_codes(drafted, profile, texts))
            if hint := _hint(attributes[-1], profile):
                hints[profile.column.name] = hint
    hints |= _renamed([profile.column for profile in profiles if profile.column.name in order], hints)
    if not attributes:
        _refuse_nothing(dates, columns=len(profiles))
    unit = Unit() if people is None else Unit(people.column, rows=people.at_99)
    domain = Domain(tuple(attributes), unit=unit, draft=True, csv=csv)
    stated = drafted_facts(domain, profiles, people)
    domain = replace(domain, drafted=drafted_record(domain, stated))
    findings = (*grouped(sensitive, left_out=True), *stated)
    return Draft(domain, left_out, hints, dates, tuple(order), texts, findings)


def _refuse_nothing(dates: Mapping[str, object], *, columns: int) -> NoReturn:
    if dates:
        raise TableError(
            f"all columns are dates ({', '.join(dates)}), and a draft does not read their first and last day off "
            "the table: write the domain by hand"
        )
    if columns == 1:
        raise TableError(
            "the table has one column, with neither few enough values nor a range; check the delimiter of its file, "
            "or write the domain by hand"
        )
    raise TableError("no column has few enough values, or a range, to be drafted; write the domain by hand")


def _hint(attribute: Attribute, profile: Profile) -> str | None:
    """Return the most important hint about a drafted column."""
    hints = (spellings_hint(attribute), codes_hint(profile), _crowd_hint(profile), measured_text(profile))
    return next(filter(None, hints), None)


def _crowd_hint(profile: Profile) -> str | None:
    """Return the hint about a column that is named like an identifier and has many rows per value."""
    if not crowded(profile):
        return None
    return (
        f"named like an identifier, but {profile.repeats[-1][0]:,} of {profile.held:,} rows have one value: if its "
        "values are people, make it the unit"
    )


def _renamed(columns: Sequence[Column], hints: Mapping[str, str]) -> dict[str, str]:
    """Return hints about columns whose header is not their name, each before the other hint of the column."""
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
            return _integer(profile, low, high, nullable=nullable)
        case ColumnKind.REAL, float(low), float(high):
            return _real(profile, low, high, nullable=nullable)
        case ColumnKind.REAL, _, _:
            return "no finite number"
        case ((ColumnKind.TEXT | ColumnKind.BOOLEAN), _, _) if profile.values is not None:
            listed = [value for value in profile.values if value not in EXTRA]  # without labels of all columns
            values, spellings = one_spelling(listed)
            if not values:
                return "no values but labels of missing and other ones"
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
            return (
                measured_text(profile)
                or f"text with {profile.distinct:,} different values: list those that are public, or leave it out"
            )
        case _ if column.type.upper().startswith(("TIME", "DATETIME", "INTERVAL")):
            return f"{column.type.lower()} is neither a list nor a number: draft from a column of years, days or hours"
        case _:
            return f"no mapping for the type {column.type}"


def _natural(value: object) -> list[tuple[bool, int, str]]:
    """Return a sort key that orders digits within codes as numbers: V9 before V10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", str(value))
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def _integer(profile: Profile, low: int, high: int, *, nullable: bool) -> Integer | str:
    edges = None
    if wide := high - low >= MOST_VALUES:
        width = round(rounded_up((high - low + 1) / BINS))
        low, high = low // width * width, high // width * width + width - 1
    if max(abs(low), abs(high)) >= 1 << 53:
        return "whole numbers of 2^53 and more: leave it out, or declare it as categories"
    if wide:
        grid = list(range(low, high + 1, width))
        alone = {edge for value in _frequent(profile) for edge in (value, value + 1)}
        edges = tuple(
            sorted({int(edge) for edge in (*_edges(grid, width, profile.tiles), *alone) if low <= edge <= high})
        )
    return Integer(
        name=profile.column.name, minimum=low, maximum=high, edges=edges, unknown=Unknown.CLAMP, nullable=nullable
    )


def _real(profile: Profile, low: float, high: float, *, nullable: bool) -> Real | str:
    if max(abs(low), abs(high)) > _LARGEST:
        return "numbers beyond 1e307: list those that are codes under missing, or declare a range"
    width = rounded_up(max(high - low, abs(low) * 1e-6, 1e-9) / BINS)
    first, last = math.floor(low / width), math.floor(high / width) + 1
    grid = [step * width for step in range(first, last + 1)]
    edges = tuple(sorted({float(f"{edge:.12g}") for edge in _edges(grid, width, profile.tiles)}))
    points = tuple(sorted(float(value) for value in _frequent(profile)))
    return Real(name=profile.column.name, edges=edges, points=points, unknown=Unknown.CLAMP, nullable=nullable)


def _edges(grid: Sequence[float], width: float, tiles: Tiles) -> list[float]:
    """Return round numbers between the tiles, and the numbers of the grid that are at least its width from them."""
    between = []
    for low, high in pairwise(sorted(set(tiles))):
        step = _round_within(high - low)
        between.append(math.floor(high / step) * step)
    sparse = [edge for edge in grid[1:-1] if all(abs(edge - other) >= width for other in between)]
    return [grid[0], *between, *sparse, grid[-1]]


def _frequent(profile: Profile) -> set[float]:
    """Return the numbers that fill at least one tile of the rows, and that many rows have."""
    full = Counter(low for low, high in pairwise(profile.tiles) if low == high)
    return {number for number, parts in full.items() if parts * profile.held >= RARE * len(profile.tiles)}


def _round_within(width: float) -> float:
    """Return the largest 1, 2 or 5 times a power of ten that is not above ``width``."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (5, 2, 1, 0.5) if step * power <= width * (1 + 1e-9))


def rounded_up(width: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is not below ``width``."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= width * (1 - 1e-9))


_ALL = 1 << 40  # more rows than any unit has
_FIRST_COLUMNS, _MOST_COLUMNS = 10, 100  # columns to encode together
_MOST_CODES = 100_000_000  # codes of these columns together


@dataclass(frozen=True)
class AttributeFit:
    """The numbers of rows whose value of ``attribute`` is declared, missing, or undeclared.

    ``clamped`` counts undeclared values that are moved to a bound.  ``dropped`` counts rows that are dropped because
    their value is missing or undeclared.
    """

    attribute: str
    declared: int
    missing: int
    unknown: int
    clamped: int
    dropped: int


@dataclass(frozen=True)
class DroppedRows:
    """The rows of a table beyond the bound on rows per unit.

    The bound drops ``dropped`` of all ``rows`` rows; they belong to ``units`` units.  ``without_id`` further rows have
    no unit, and are always dropped.
    """

    rows: int
    dropped: int
    units: int
    without_id: int


def dropped_rows(table: ProtectedTable, domain: Domain) -> DroppedRows | None:
    """Count the rows that the bound of the domain's unit drops, exactly; None if every row is a unit.

    Rows that the domain drops for their values are not counted.

    Raises:
        TableError: the table lacks a column.
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

    Attributes are encoded a few at a time, so that the codes of a long or wide table need not fit into memory together.

    Raises:
        TableError: the table lacks a column.
    """
    attributes = list(_loose(domain))
    sealed: list[Exact[Counts]] = []
    width = _FIRST_COLUMNS
    while attributes:
        some, attributes = Domain(tuple(attributes[:width])), attributes[width:]
        encoded = table.encode(some)  # includes the rows that the unit's bound drops
        sealed += encoded.marginals([(name,) for name in some.names])
        rows = max(1, int(reveal(sealed[-1]).sum()))
        width = min(_MOST_COLUMNS, max(_FIRST_COLUMNS, _MOST_CODES // rows))
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
    """Count the rows whose value is beyond the bounds and is moved to the nearest bound."""
    if attribute.unknown is not Unknown.CLAMP:
        return 0

    def rows(unknown: Unknown) -> int:
        alone = Domain((replace(attribute, nullable=True, unknown=unknown),))
        return int(reveal(table.encode(alone).marginals([()])[0])[0])

    return rows(Unknown.CLAMP) - rows(Unknown.DROP)


def _loose(domain: Domain) -> Domain:
    """Return the domain with cells for missing and undeclared values, so that it drops no row for its values."""
    attributes = tuple(replace(attribute, nullable=True, unknown=Unknown.CATEGORY) for attribute in domain)
    return Domain(attributes, unit=domain.unit.bounded(rows=domain.unit.rows, per=()))


# --- two versions of a domain -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DomainChanges:
    """The differences between two versions of a domain, and their effect on releases under the old one.

    Attributes:
        changes: sentences, one for each attribute that differs, the unit and the hierarchies.
        meaning: sentences about past releases and stored answers.
    """

    changes: tuple[str, ...]
    meaning: tuple[str, ...]


def domain_changes(old: Domain, new: Domain) -> DomainChanges:
    """Compare two versions of a domain.

    >>> from sfumato.domain import Categorical, Domain, Unknown
    >>> sex = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
    >>> domain_changes(Domain((sex,)), Domain((replace(sex, values=("F", "M", "X")),))).changes
    ("sex: values adds 'X'",)
    """
    before = {attribute.name: attribute.describe() for attribute in old}
    after = {attribute.name: attribute.describe() for attribute in new}
    changes = [f"{name}: left out" for name in before if name not in after]
    changes += [f"{name}: added" for name in after if name not in before]
    for name, body in after.items():
        changes += [f"{name}: {part}" for part in _changed_parts(before.get(name, body), body)]
    if not changes and list(before) != list(after):
        changes.append("the attributes stand in another order")
    if old.unit != new.unit:
        changes.append(f"unit: {old.unit} becomes {new.unit}")
    if old.hierarchies != new.hierarchies:
        changes.append("hierarchies: changed")
    return DomainChanges(tuple(changes), _meaning(old, new))


def _changed_parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the parts of an attribute that differ."""
    parts = []
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key), after.get(key)
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list):
            added = [repr(value) for value in other if value not in one]
            removed = [repr(value) for value in one if value not in other]
            words = [f"adds {', '.join(added)}"] if added else []
            words += [f"loses {', '.join(removed)}"] if removed else []
            parts.append(f"{key} {' and '.join(words) or 'changes its order'}")
        else:
            parts.append(f"{key} {one} becomes {other}")
    return parts


def _meaning(old: Domain, new: Domain) -> tuple[str, ...]:
    if old.hash == new.hash:
        return ("Releases rest on the same description: an equal question is answered from the ledger, at no cost.",)
    meaning = [
        "Past releases stay as they are, and rest on the old description; what they cost stays spent.",
        "The ledger takes the new one for another description: an equal question is charged again.",
    ]
    if old.unit.column != new.unit.column:
        meaning.append("Losses were stated for another unit, so that a ledger of the old one refuses the new one.")
    elif old.unit != new.unit:
        meaning.append("The bounds of the unit differ, so that the same noise protects another number of rows.")
    if new.accepted_by is None:
        meaning.append("The new one is not accepted: releases refuse a draft, and a file that was edited afterwards.")
    return tuple(meaning)
