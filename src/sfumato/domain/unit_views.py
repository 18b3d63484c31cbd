"""Views with values or bounds per unit: facts, gaps, bounded rows, and bounds on the rows that joins make.

All are unit-local, as :mod:`sfumato.domain.view` requires: the values added to a row of a unit, and the choice of a
unit's rows, depend on that unit's rows.

A join multiplies rows if a row of each side may meet several rows of the other.  Before such a join, each private side
keeps at most the rows per unit that the schema declares for the side's listed table.  The join then makes at most the
product of these public numbers per unit.  The factor of a public table is its largest number of rows with one key.

A join multiplies nothing if one side meets at most one row of the other.  It does so by a key that names one row, which
opening checks for private tables, or by the unit if the other side has one row of each.  Such a join has at most as
many rows of a unit as the side with the listed rows, so no side is cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real, null_code
from sfumato.domain.calendar import Grain
from sfumato.domain.domain import Domain
from sfumato.domain.expression import LATER_FIELD, real_number, whole_number
from sfumato.domain.hierarchy import Hierarchy
from sfumato.domain.predicate import Predicate, named
from sfumato.domain.raw_values import Unknown
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import Unit
from sfumato.domain.view import (
    Join,
    OfOneRow,
    OfUnits,
    OverSource,
    PerUnit,
    RowCount,
    Scan,
    UnitAggregate,
    UnitSum,
    View,
)
from sfumato.errors import DomainError, QueryError


@dataclass(frozen=True)
class RowTruth(UnitAggregate):
    """A truth value of all rows, by a condition.

    Attributes:
        where: the rows that make the condition true.
        false: the rows that make it false.  Without rows of either kind the value is missing, as in SQL.  None: it
            is false for all other rows.
    """

    where: Predicate
    false: Predicate | None = field(default=None, metadata=LATER_FIELD)

    def attribute(self, name: str, source: View) -> Attribute:
        """Return true, false or missing."""
        for each in named(self.where) | named(self.false):
            source.domain.index(each)
        return Categorical(name=name, values=(False, True), unknown=Unknown.DROP, nullable=self.false is not None)


@dataclass(frozen=True)
class AnyRow(RowTruth):
    """An aggregate that is true if the condition is true for any row."""


@dataclass(frozen=True)
class EveryRow(RowTruth):
    """An aggregate that is false if the condition is false for any row."""


@dataclass(frozen=True)
class WithGap(OverSource):
    """A private view with one more attribute: the days since the previous row of the same unit by a date.

    Rows are in the order of the date, then of the keys, then of all other values; rows that are equal in all of these
    are interchangeable.  The attribute is missing in the first row, and in rows without a date.

    Attributes:
        source: a private view.
        name: name of the new attribute.
        date: an attribute whose cells are days.
        low: lower bound, to which smaller numbers are clamped.
        high: upper bound, to which larger numbers are clamped.
    """

    name: str
    date: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not self.source.private:
            raise QueryError("a public row belongs to no unit whose row before it follows", culprit=self)
        if self.name in self.source.names:
            raise QueryError(f"there are two columns named {self.name!r}", culprit=self.name)
        date = self.source.domain[self.date]
        if not isinstance(date, Date) or date.by is not Grain.DAY:
            raise QueryError(f"days are counted between dates whose cells are days, and {self.date!r} is none")
        if self.low > self.high:
            raise QueryError(f"{self.name!r} has minimum above maximum", culprit=self)

    @cached_property
    def added(self) -> Integer:
        """The new attribute."""
        return whole_number(self.name, self.low, self.high, nullable=True)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source, and the new one."""
        return (*self.source.attributes, self.added)


@dataclass(frozen=True)
class WithFacts(OverSource):
    """A private view with facts that are computed from other rows of its units.

    For a unit without such rows, numbers of rows and sums are 0 (or the nearest bound), no row meets any condition, and
    values taken from a row are missing.

    Attributes:
        source: a private view.
        facts: a view with one row per unit, without keys.
    """

    facts: PerUnit

    def __post_init__(self) -> None:
        if not self.source.private or self.facts.by:
            raise QueryError("values per unit are added to rows of units only", culprit=self)
        if set(self.source.names) & set(self.facts.names):
            raise QueryError("two columns have one name", culprit=self)

    def of_no_rows(self, place: int) -> tuple[int, float | None]:
        """Return code and number of a fact, given its index, for a unit without rows."""
        attribute, (_, value) = self.facts.attributes[place], self.facts.values[place]
        absent = null_code(attribute)
        if absent is not None:
            return absent, None
        match value:
            case RowCount() | AnyRow():
                return 0, 0
            case UnitSum():
                assert isinstance(attribute, Integer | Real)
                number = min(max(0, attribute.minimum), attribute.maximum)
                assert value.empty is None  # a schema declares no other value
                plain = isinstance(attribute, Integer) and attribute.edges is None
                return int(number - attribute.minimum) if plain else 0, number
        raise TypeError(value)  # unreachable: no other aggregate exists

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source, and the facts."""
        return (*self.source.attributes, *self.facts.attributes)


@dataclass(frozen=True)
class Declared(OfOneRow):
    """A view whose last attribute was computed and has declared cells.

    If unknown values are dropped, rows whose value lies in no cell are dropped, as for any other attribute.

    Attributes:
        source: the view.
        declared: its last attribute with declared cells.
    """

    declared: Integer | Real | Categorical

    def __post_init__(self) -> None:
        before, after = self.source.attributes[-1], self.declared
        if type(before) is not type(after) or before.name != after.name:
            raise QueryError(f"{after.name!r} is declared differently from its computation", culprit=self)
        if isinstance(before, Categorical) and isinstance(after, Categorical) and before.values != after.values:
            raise QueryError(f"{after.name!r} declares values that its computation never has", culprit=self)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source, the last as declared."""
        return (*self.source.attributes[:-1], self.declared)


@dataclass(frozen=True)
class AtMost(OverSource):
    """A private view with at most ``rows`` rows of each unit, chosen by an order that depends on one unit alone.

    Attributes:
        source: private.
        rows: the most rows of one unit.
    """

    rows: int

    def __post_init__(self) -> None:
        if not self.source.private:
            raise QueryError("only rows of units can be limited by number", culprit=self)
        if type(self.rows) is not int or self.rows < 1:
            raise QueryError(f"at least one row per unit is kept, not {self.rows}", culprit=self)


@dataclass(frozen=True)
class Renamed(OfOneRow):
    """A view with other names for its attributes, in order."""

    called: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.called)) != len(self.called) or len(self.called) != len(self.source.names):
            raise QueryError("two columns have the same name; rename one with AS", culprit=self)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source under their new names."""
        return tuple(replace(each, name=name) for each, name in zip(self.source.attributes, self.called, strict=True))

    @property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the source."""
        called = dict(zip(self.source.names, self.called, strict=True))
        return tuple(replace(each, attribute=called[each.attribute]) for each in self.source.hierarchies)


class PublicAggregate(StrEnum):
    """An aggregate of all rows of a public view."""

    LEAST = "least"
    GREATEST = "greatest"
    MEAN = "mean"


@dataclass(frozen=True)
class WithPublicValue(OverSource):
    """A view with one more attribute, which is one number computed from a public view and the same in all rows.

    The public view is equal in neighboring databases, so a row still depends on its own unit alone.

    Attributes:
        source: the view.
        name: name of the new attribute.
        public: the public view.
        of: its attribute of numbers.
        how: the aggregate, which is missing if no row has a number.
    """

    name: str
    public: View
    of: str
    how: PublicAggregate

    def __post_init__(self) -> None:
        if self.public.private:
            raise QueryError("a SELECT inside an expression uses rows of other units", culprit=self)
        if self.name in self.source.names:
            raise QueryError(f"there are two columns named {self.name!r}", culprit=self.name)
        _ = self.added

    @cached_property
    def added(self) -> Integer | Real:
        """The new attribute."""
        of = self.public.domain[self.of]
        if not isinstance(of, Integer | Real):
            raise QueryError(f"{self.of!r} holds no numbers; of a public table ask MIN, MAX or AVG of numbers")
        if isinstance(of, Integer) and self.how is not PublicAggregate.MEAN:
            return whole_number(self.name, of.minimum, of.maximum, nullable=True)
        return real_number(self.name, float(of.minimum), float(of.maximum), nullable=True)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the source, and the new one."""
        return (*self.source.attributes, self.added)


LARGEST_JOIN = 10_000  # rows of one unit after a join: they take some milliseconds and a megabyte

Repeats = Mapping[tuple[str, str], int]
"""The most rows with one key, by the name of a public table and its column of keys."""


@dataclass(frozen=True)
class _Factor:
    """A number of rows of one unit; None: the schema is a draft that does not declare it."""

    rows: int | None
    of: str

    def __str__(self) -> str:
        return f"{self.rows} of {self.of}"


@dataclass(frozen=True)
class _Side:
    """A view whose joins are bounded, and the known bounds of the rows of one unit in it.

    Attributes:
        view: the view; before its joins it keeps the declared number of rows.
        most: the most rows in any table; None if that depends on the tables.
        factors: the declared maxima of rows, as a product.
        unique: indices of keys that have different values in all rows.
    """

    view: View
    most: int | None
    factors: tuple[_Factor, ...]
    unique: frozenset[int] = frozenset()

    @property
    def declared(self) -> int:
        """The declared maximum of rows.

        Raises:
            DomainError: the schema is a draft that does not declare it.
        """
        product = 1
        for factor in self.factors:
            if factor.rows is None:
                raise DomainError(f"{factor.of} still needs rows: a join multiplies them", culprit=factor.of)
            product *= factor.rows
        return product

    @property
    def named(self) -> str:
        """The tables whose rows are listed."""
        return " and ".join(dict.fromkeys(factor.of for factor in self.factors))

    def within_bounds(self) -> _Side:
        """Return the side with at most the declared rows of a unit."""
        if self.most is not None and self.most <= self.declared:
            return self
        return replace(self, view=AtMost(self.view, self.declared), most=self.declared)


def bounded_joins(view: View, schema: Schema, repeats: Repeats) -> View:
    """Return a view that keeps declared rows of each unit before each join that multiplies rows.

    Args:
        view: a view of the schema's tables.
        schema: declares the rows of a unit in each private table.
        repeats: the largest number of rows per key in public tables.

    Raises:
        QueryError: a join makes more than 10,000 rows of one unit; the message names the declared numbers.
        DomainError: the schema is a draft that does not declare a number that a join needs.
    """
    return _Joins(schema, repeats).bounded(view).view


@dataclass(frozen=True)
class _Joins:
    """The public facts that bound joins."""

    schema: Schema
    repeats: Repeats

    def bounded(self, view: View) -> _Side:
        match view:
            case Scan():
                return self._scan(view)
            case Join():
                return self._of_private(view) if view.right.private else self._of_public(view)
            case PerUnit():
                return self._per_unit(view)
            case OverSource():
                return self._over_source(view)
        raise TypeError(view)  # unreachable: no other view exists

    def _scan(self, view: Scan) -> _Side:
        table = view.table
        own = frozenset(place for place, key in enumerate(view.keys) if key.column == table.key)
        lists_units = table.name == self.schema.units
        rows, most = (1, 1) if lists_units else (table.rows, None)
        return _Side(view, most, (_Factor(rows, table.name),), own)

    def _over_source(self, view: OverSource) -> _Side:
        side = self.bounded(view.source)
        rebuilt = replace(view, source=side.view)
        match rebuilt:
            case AtMost(rows=rows):
                most = rows if side.most is None else min(rows, side.most)
                return replace(side, view=rebuilt, most=most, factors=(_Factor(most, side.named),))
            case OfUnits(units=units):
                rebuilt = replace(rebuilt, units=self.bounded(units).view)
            case WithFacts(facts=facts):
                per_unit = self._per_unit(facts).view
                assert isinstance(per_unit, PerUnit)
                rebuilt = replace(rebuilt, facts=per_unit)
        return replace(side, view=rebuilt)

    def _per_unit(self, view: PerUnit) -> _Side:
        side = self.bounded(view.source)
        rebuilt = replace(view, source=side.view)
        cells = math.prod(view.source.domain[name].size for name in view.by)
        most = cells if side.most is None else min(cells, side.most)
        fewer = any(factor.rows is None for factor in side.factors) or cells <= side.declared
        return _Side(rebuilt, most, (_Factor(most, f"groups of {side.named}"),) if fewer else side.factors)

    def _of_private(self, view: Join) -> _Side:
        left, right = self.bounded(view.left), self.bounded(view.right)
        before = len(view.left.keys)
        shifted = frozenset(before + place for place in right.unique)
        left_once = left.most == 1 or any(one in left.unique for one, _ in view.on)
        right_once = right.most == 1 or any(other in right.unique for _, other in view.on)
        if not left_once and not right_once:
            return self._multiplied(view, left.within_bounds(), right.within_bounds())
        rebuilt = replace(view, left=left.view, right=right.view)
        if right_once:
            return replace(left, view=rebuilt, unique=left.unique | (shifted if left_once else frozenset()))
        if view.outer and left.most != 1:  # each row of the right side, and each unmatched row of the left side
            both = f"{left.named} and {right.named}"
            most = None if left.most is None or right.most is None else left.most + right.most
            return _Side(rebuilt, most, (_Factor(left.declared + right.declared, both),), shifted)
        return replace(right, view=rebuilt, unique=shifted)

    def _of_public(self, view: Join) -> _Side:
        left, right = self.bounded(view.left), self.bounded(view.right)
        scan = view.right
        while isinstance(scan, OverSource):
            scan = scan.source
        assert isinstance(scan, Scan)
        met = min(self.repeats[scan.table.name, view.right.keys[other].column] for _, other in view.on)
        if met <= 1:
            return replace(left, view=replace(view, left=left.view, right=right.view))
        return self._multiplied(view, left.within_bounds(), _Side(right.view, met, (_Factor(met, scan.table.name),)))

    def _multiplied(self, view: Join, left: _Side, right: _Side) -> _Side:
        made = _Side(replace(view, left=left.view, right=right.view), None, (*left.factors, *right.factors))
        if made.declared > LARGEST_JOIN:
            words = " x ".join(map(str, made.factors))
            raise QueryError(
                f"these joins make up to {words} = {made.declared:,} rows of one {self.schema.id}, more than "
                f"{LARGEST_JOIN:,}; join on a key that names one row, or declare fewer rows of these tables",
                culprit=view,
            )
        return replace(made, most=made.declared)


# --- one table as a schema --------------------------------------------------------------------------------------------

TABLE = "table"
"""The name of the one table, whatever statements call it."""


@dataclass(frozen=True, kw_only=True)
class OneTableSchema(Schema):
    """A schema of one private table.  Its unit is the unit of the table's domain, which may be a row.

    Attributes:
        unit: the unit of the domain, with its bounds.
    """

    unit: Unit

    def __post_init__(self) -> None:
        """Check nothing, because the domain was checked."""

    def bounds(self, name: str) -> Unit:
        """Return the unit of the domain with its bounds."""
        del name
        return self.unit


def one_table_schema(domain: Domain) -> OneTableSchema:
    """Return the schema of a table with a domain.  If the unit is a row, its id is empty and names no column."""
    unit = domain.unit
    table = SchemaTable(
        name=TABLE,
        attributes=domain.attributes,
        unit=unit.column,
        rows=unit.rows,
        per=unit.per,
        hierarchies=domain.hierarchies,
        csv=domain.csv,
    )
    return OneTableSchema(name=TABLE, id=unit.column or "", tables=(table,), unit=unit)
