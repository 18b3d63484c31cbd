"""Views of several tables: rows, each of one unit, computed so that removing a unit removes exactly its rows.

A view is a closed tree.  Each node is *unit-local*: its rows of a unit depend on that unit's rows and on public tables
only.  Scans, filters, computed columns and groupings use one unit at a time.  Joins of private tables match rows of
equal owners.  Public tables never change.  So all trees are unit-local, and a bound on rows limits a unit.

Cells are defined in :mod:`sfumato.domain.attribute`.  Unmatched values of an outer join are missing, in their own cell.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real, Timestamp
from sfumato.domain.domain import Domain
from sfumato.domain.expression import LATER_FIELD, Expression, Field, Interval, computed, real_number, whole_number
from sfumato.domain.hierarchy import Hierarchy
from sfumato.domain.predicate import Predicate, named
from sfumato.domain.raw_values import Unknown
from sfumato.domain.table_schema import SchemaTable
from sfumato.domain.unit import GroupBound, Unit
from sfumato.errors import QueryError

LARGEST_SUM = 1 << 31  # steps of one row: the sum of 2^31 rows fits 64 bits on every engine


@dataclass(frozen=True)
class KeyColumn:
    """A column of keys for joins: its alias, and the table whose keys it holds."""

    alias: str
    column: str
    of: str


class View(ABC):
    """Rows of units, or rows without an owner if the view is public."""

    @property
    @abstractmethod
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the rows."""

    @property
    @abstractmethod
    def keys(self) -> tuple[KeyColumn, ...]:
        """The keys for joins."""

    @property
    @abstractmethod
    def private(self) -> bool:
        """True if each row belongs to a unit."""

    @property
    @abstractmethod
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the attributes."""

    @property
    def tables(self) -> frozenset[SchemaTable]:
        """The tables of the view, by their descriptions."""
        own: list[Any] = [getattr(self, each.name) for each in fields(self)] if is_dataclass(self) else []
        within = (each.tables for each in own if isinstance(each, View))
        return frozenset(each for each in own if isinstance(each, SchemaTable)).union(*within)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def domain(self) -> Domain:
        """The attributes as a domain, for conditions on them.

        Raises:
            QueryError: the view has no attributes.
        """
        if not self.attributes:
            raise QueryError("these tables declare no attribute; a view needs at least one", culprit=self)
        return Domain(self.attributes, hierarchies=self.hierarchies)


@dataclass(frozen=True)
class Scan(View):
    """The rows of a table that have an owner and that the description of the table does not drop.

    Attributes:
        table: the table of the schema.
        alias: name in the statement.
        called: names of its attributes in the view, in order.
    """

    table: SchemaTable
    alias: str
    called: tuple[str, ...]

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the table."""
        return tuple(replace(each, name=name) for each, name in zip(self.table.attributes, self.called, strict=True))

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        """The key of the table, and the keys of the tables that it refers to."""
        links = {link.column: link.table for link in self.table.links}
        return tuple(KeyColumn(self.alias, column, links.get(column, self.table.name)) for column in self.table.columns)

    @property
    def private(self) -> bool:
        """True if the table is private."""
        return not self.table.public

    @property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the table."""
        called = dict(zip((each.name for each in self.table.attributes), self.called, strict=True))
        return tuple(replace(each, attribute=called[each.attribute]) for each in self.table.hierarchies)


@dataclass(frozen=True)
class Join(View):
    """Matching rows of a private view and another view; rows of two private views match only for equal owners.

    Attributes:
        left: a private view.
        right: a private or public view.
        on: pairs of indices of equal keys of both views.
        outer: true to keep rows of ``left`` without a match, with missing values of ``right``.
    """

    left: View
    right: View
    on: tuple[tuple[int, int], ...]
    outer: bool = False

    def __post_init__(self) -> None:
        if not self.left.private:
            raise QueryError("start FROM with a private table, because a public row belongs to no unit", culprit=self)
        if not self.right.private and not self.on:
            raise QueryError("a public table is joined on a declared key", culprit=self)
        if set(self.left.names) & set(self.right.names):
            raise QueryError("two joined tables have an attribute of one name", culprit=self)
        for left, right in self.on:
            self.left.keys[left], self.right.keys[right]

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of both views; in an outer join the attributes of the right view may be missing."""
        right = self.right.attributes
        return (*self.left.attributes, *(replace(each, nullable=True) if self.outer else each for each in right))

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        """The keys of both views."""
        return (*self.left.keys, *self.right.keys)

    @property
    def private(self) -> bool:
        """True, because rows belong to the owner of the left row."""
        return True

    @property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of both views; in an outer join missing values of the right are cells of their own."""
        return (*self.left.hierarchies, *self.right.hierarchies)


@dataclass(frozen=True)
class OverSource(View):
    """A view of another view with the same keys, and with fewer rows or more attributes."""

    source: View

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source."""
        return self.source.attributes

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        """The keys of the source."""
        return self.source.keys

    @property
    def private(self) -> bool:
        """True if the source is private."""
        return self.source.private

    @property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the source."""
        return self.source.hierarchies


class OfOneRow(OverSource):
    """A view that makes at most one row from each row of its source, from that row alone."""


@dataclass(frozen=True)
class Filter(OfOneRow):
    """The rows that meet a condition on their own cells."""

    where: Predicate

    def __post_init__(self) -> None:
        for name in named(self.where):
            self.source.domain.index(name)


@dataclass(frozen=True)
class OfUnits(OverSource):
    """The rows that match rows of another view, or that match none (``without``).

    Rows of another private view match only for equal owners, in addition to any condition on keys.

    Attributes:
        without: true to keep the rows without a match instead of the matching rows.
        on: pairs of indices of equal keys of both views; a public view has at least one.
        apart: pairs of indices of different keys of both views.
    """

    units: View
    without: bool = False
    on: tuple[tuple[int, int], ...] = field(default=(), metadata=LATER_FIELD)
    apart: tuple[tuple[int, int], ...] = field(default=(), metadata=LATER_FIELD)

    def __post_init__(self) -> None:
        if not self.source.private or not (self.units.private or self.on):
            raise QueryError("only rows of units have a unit to compare", culprit=self)
        for one, other in (*self.on, *self.apart):
            self.source.keys[one], self.units.keys[other]


@dataclass(frozen=True)
class Computed(OfOneRow):
    """A view with one more attribute, computed from each row alone.

    Attributes:
        source: the view.
        name: name of the new attribute.
        value: its expression, which never fails; bounds of numbers follow by interval arithmetic.
    """

    name: str
    value: Expression

    def __post_init__(self) -> None:
        if self.name in self.source.names:
            raise QueryError(f"there are two columns named {self.name!r}", culprit=self.name)
        _ = self.attributes

    @cached_property
    def added(self) -> Attribute:
        """The new attribute."""
        return computed(self.name, self.value, self.source.domain)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source, and the new one."""
        return (*self.source.attributes, self.added)


class Pick(StrEnum):
    """The choice of one value among the rows of a unit."""

    LEAST = "least"
    GREATEST = "greatest"
    FIRST = "first"
    LAST = "last"


class UnitAggregate(ABC):
    """An aggregate of all rows of a unit."""

    @abstractmethod
    def attribute(self, name: str, source: View) -> Attribute:
        """Return the resulting attribute.

        Raises:
            QueryError: the view lacks the attribute that it is computed from.
        """


@dataclass(frozen=True)
class RowCount(UnitAggregate):
    """The number of rows, or of rows with ``of`` (an attribute, or the index of a key), clamped to ``maximum``."""

    maximum: int
    of: str | int | None = None

    def __post_init__(self) -> None:
        if type(self.maximum) is not int or not 1 <= self.maximum < LARGEST_SUM:
            raise QueryError("a number of rows of a unit is clamped to a whole number from 1 on", culprit=self.maximum)

    def attribute(self, name: str, source: View) -> Attribute:
        """Return a whole number from 0."""
        if isinstance(self.of, str):
            source.domain.index(self.of)
        elif self.of is not None:
            source.keys[self.of]
        return Integer(name=name, minimum=0, maximum=self.maximum, unknown=Unknown.CLAMP)


@dataclass(frozen=True)
class UnitSum(UnitAggregate):
    """The sum of an attribute of numbers, clamped to declared bounds.

    Real numbers are added in steps of 2^-20 of the larger bound, because sums of doubles depend on their order.

    Attributes:
        of: the attribute.
        low: lower bound of the sum.
        high: upper bound of the sum.
        missing: true if an empty sum is missing, as in SQL; otherwise it is 0, moved to the nearest bound.
        empty: the value of an empty sum, if it differs, because LEAST and GREATEST replace NULL.
    """

    of: str
    low: Fraction
    high: Fraction
    missing: bool = field(default=False, metadata=LATER_FIELD)
    empty: Fraction | None = field(default=None, metadata=LATER_FIELD)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise QueryError("the lower bound of a sum is above its upper bound", culprit=self)
        if self.empty is not None and not self.low <= self.empty <= self.high:
            raise QueryError("an empty sum must lie within the bounds of the sum", culprit=self)

    def attribute(self, name: str, source: View) -> Attribute:
        """Return a number within the bounds."""
        added = source.domain[self.of]
        if isinstance(added, Integer):
            if self.low.denominator != 1 or self.high.denominator != 1:
                raise QueryError(f"a sum of the whole numbers {self.of!r} has whole bounds", culprit=self)
            if max(abs(added.minimum), abs(added.maximum)) >= LARGEST_SUM:
                raise QueryError(f"{self.of!r} has bounds too large to be added up for a unit", culprit=self)
            return whole_number(name, int(self.low), int(self.high), nullable=self.missing)
        if not isinstance(added, Real):
            raise QueryError(f"{self.of!r} has no numbers to add up", culprit=self)
        Field(self.of).interval(source.domain)  # refuse a sum of many rows that could exceed a double
        Interval(self.low, self.high, integer=False, nullable=False)
        return real_number(name, float(self.low), float(self.high), nullable=self.missing)

    def step(self, source: View) -> float:
        """Return the step of a sum of reals: a power of two, so that doubles hold its multiples."""
        added = source.domain[self.of]
        assert isinstance(added, Real)
        largest = max(abs(added.minimum), abs(added.maximum))
        step = 2.0**-20
        while step * (LARGEST_SUM >> 1) < largest:
            step *= 2
        return step


@dataclass(frozen=True)
class Taken(UnitAggregate):
    """The least or greatest value of an attribute, or its value in the first or last row by a date.

    Among several rows of that date the smallest value is taken.  Without a row the value is missing.
    """

    which: Pick
    of: str
    by: str | None = None

    def attribute(self, name: str, source: View) -> Attribute:
        """Return the attribute of the source, with a cell for missing values."""
        taken = source.domain[self.of]
        by_date = self.which in (Pick.FIRST, Pick.LAST)
        if isinstance(taken, Categorical) and not by_date:
            raise QueryError(f"{self.of!r} has no order, so no least or greatest value", culprit=self)
        if by_date and not isinstance(source.domain[self.by or ""], Date | Timestamp):
            raise QueryError("rows are first or last by a date", culprit=self)
        unknown = Unknown.DROP if taken.unknown is Unknown.CATEGORY else taken.unknown
        return replace(taken, name=name, nullable=True, unknown=unknown)


@dataclass(frozen=True)
class PerUnit(View):
    """A view with one row per unit that has rows, or per unit and combination of some attributes' cells.

    Attributes:
        source: a private view.
        by: attributes of the source.
        values: names and aggregates.
    """

    source: View
    by: tuple[str, ...]
    values: tuple[tuple[str, UnitAggregate], ...]

    def __post_init__(self) -> None:
        if not self.source.private:
            raise QueryError("start FROM with a private table, because a public row belongs to no unit", culprit=self)
        names = [*self.by, *(name for name, _ in self.values)]
        if len(set(names)) != len(names):
            raise QueryError("two columns have the same name; rename one with AS", culprit=self)
        if not names:
            raise QueryError("compute at least one value per unit", culprit=self)
        _ = self.attributes

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The keys, then the values."""
        keys = tuple(self.source.domain[name] for name in self.by)
        return (*keys, *(value.attribute(name, self.source) for name, value in self.values))

    @property
    def keys(self) -> tuple[KeyColumn, ...]:
        """No keys but the unit."""
        return ()

    @property
    def private(self) -> bool:
        """True."""
        return True

    @property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the keys."""
        return tuple(each for each in self.source.hierarchies if each.attribute in self.by)


@dataclass(frozen=True)
class BoundedView:
    """A private view, and the bounds on the rows per unit.

    Attributes:
        view: a view whose rows all belong to units.
        unit: the unit with its bounds.
    """

    view: View
    unit: Unit

    def __post_init__(self) -> None:
        if not self.view.private:
            raise QueryError("start FROM with a private table, because a public row belongs to no unit", culprit=self)
        row_wise = self.view
        while isinstance(row_wise, OfOneRow):
            row_wise = row_wise.source
        if self.unit.column is None and not isinstance(row_wise, Scan):
            raise QueryError("a unit is one row here, so each row of a view is made of one row alone", culprit=self)

    @cached_property
    def domain(self) -> Domain:
        """The domain of the view for queries."""
        return replace(self.view.domain, unit=self.unit)

    @cached_property
    def canonical(self) -> str:
        """The view as JSON: equal views have equal JSON, in any notation."""
        return json.dumps(_described(self.view), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of view, bounds and cells, hexadecimal."""
        return hashlib.sha256(f"{self.domain.hash} {self.canonical}".encode()).hexdigest()


def one_row_bounds(unit: Unit, view: PerUnit) -> Unit:
    """Return the bounds of a view with one row per unit, or one per cell of its keys, which drop nothing."""
    if not view.by:
        return unit.bounded(rows=1, per=())
    cells = 1
    for name in view.by:
        cells *= view.source.domain[name].size
    return unit.bounded(rows=min(unit.rows, cells), per=(GroupBound(view.by, rows=1),))


def _described(part: Any) -> Any:  # noqa: ANN401 - JSON of any part of a tree
    """Return a part of a tree as JSON values, with a table's name and cells for the table."""
    if isinstance(part, SchemaTable):
        cells = {each.name: each.describe() for each in part.attributes}
        ties = {link.column: link.table for link in part.links}
        return {"table": part.name, "attributes": cells, "key": part.key, "unit": part.unit, "links": ties}
    if is_dataclass(part) and not isinstance(part, type):
        own = {each.name: getattr(part, each.name) for each in fields(part) if each.name != "alias"}
        unset = {each.name for each in fields(part) if each.metadata == LATER_FIELD and own[each.name] == each.default}
        named_parts = {name: _described(value) for name, value in own.items() if name not in unset}
        return {"is": type(part).__name__, **named_parts}
    match part:
        case Fraction():
            return str(part)
        case frozenset():
            return sorted(part)
        case tuple() | list():
            return [_described(each) for each in part]
        case StrEnum():
            return part.value
        case _:
            return part
