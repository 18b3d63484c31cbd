"""Views whose rows know more of their unit: the days since the row before, and what its rows elsewhere come to; and
what is declared of the cells of a computed attribute; and views that keep a number of rows of each unit.

All are unit-local, as :mod:`sfumato.domain.view` asks: what they add to a row of a unit, and which rows of a unit they
keep, depends on that unit's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real, null_code
from sfumato.domain.calendar import Grain
from sfumato.domain.expression import whole_number
from sfumato.domain.view import AnyRow, OverSource, PerUnit, RowCount, Taken, UnitSum
from sfumato.errors import QueryError


@dataclass(frozen=True)
class WithGap(OverSource):
    """A private view with one more attribute: the days since the row before, of the same unit, by a date.

    Rows stand in the order of the date, then of the keys, then of everything else that they hold, so that rows which
    the order does not tell apart are equal.  It is missing in the first row, and where there is no date.

    Attributes:
        source: private.
        name: of the new attribute.
        date: an attribute whose cells are days.
        low: what a smaller number is moved to.
        high: what a larger number is moved to.
    """

    name: str
    date: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not self.source.private:
            raise QueryError("a public row belongs to no unit whose row before it follows", culprit=self)
        if self.name in self.source.names:
            raise QueryError(f"there are two columns called {self.name!r}", culprit=self.name)
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
        """Those of its source, and the new one."""
        return (*self.source.attributes, self.added)


@dataclass(frozen=True)
class WithFacts(OverSource):
    """A private view beside what is computed of its unit's rows elsewhere.

    Of a unit without rows there numbers of rows and sums are 0 (or the nearest bound), no row meets any condition, and
    values that would be taken from a row are missing.

    Attributes:
        source: private.
        facts: one row a unit, without keys.
    """

    facts: PerUnit

    def __post_init__(self) -> None:
        if not self.source.private or self.facts.by:
            raise QueryError("what is computed of a unit stands beside rows of units", culprit=self)
        if set(self.source.names) & set(self.facts.names):
            raise QueryError("two columns have one name", culprit=self)

    def of_no_rows(self, place: int) -> tuple[int, float | None]:
        """Code and number of a fact, by its place, of a unit without rows."""
        attribute, (_, value) = self.facts.attributes[place], self.facts.values[place]
        match value:
            case Taken():
                code = null_code(attribute)
                assert code is not None
                return code, None
            case RowCount() | AnyRow():
                return 0, 0
            case UnitSum():
                assert isinstance(attribute, Integer | Real)
                number = min(max(0, attribute.minimum), attribute.maximum)
                plain = isinstance(attribute, Integer) and attribute.edges is None
                return int(number - attribute.minimum) if plain else 0, number
        raise TypeError(value)  # the tree is closed

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of its source, and the facts."""
        return (*self.source.attributes, *self.facts.attributes)


@dataclass(frozen=True)
class Declared(OverSource):
    """A view whose last attribute, which was computed, has the cells that are declared of it.

    Where unknown values are dropped, rows whose value lies in no cell are left out, as of any other attribute.

    Attributes:
        source: the view.
        declared: its last attribute from here on.
    """

    declared: Integer | Real | Categorical

    def __post_init__(self) -> None:
        before, after = self.source.attributes[-1], self.declared
        if type(before) is not type(after) or before.name != after.name:
            raise QueryError(f"{after.name!r} is declared otherwise than it is computed", culprit=self)
        if isinstance(before, Categorical) and isinstance(after, Categorical) and before.values != after.values:
            raise QueryError(f"{after.name!r} has other values than are computed", culprit=self)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of its source, the last as declared."""
        return (*self.source.attributes[:-1], self.declared)


@dataclass(frozen=True)
class AtMost(OverSource):
    """A private view with at most some rows of each unit, chosen by an order that looks at one unit alone.

    Attributes:
        source: private.
        rows: the most rows of one unit.
    """

    rows: int

    def __post_init__(self) -> None:
        if not self.source.private:
            raise QueryError("only rows of units are kept by their number", culprit=self)
        if type(self.rows) is not int or self.rows < 1:
            raise QueryError(f"of a unit at least one row is kept, not {self.rows}", culprit=self)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of its source."""
        return self.source.attributes
