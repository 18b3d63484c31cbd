"""Expressions over the cells of one row, with bounds from interval arithmetic.

No expression can fail.  Numbers have declared bounds, no column is a divisor, and a missing or undeclared operand makes
the result missing.  Whole numbers are exact; others are doubles, clamped to the bounds at the end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real
from sfumato.domain.calendar import Grain
from sfumato.domain.domain import Domain
from sfumato.domain.predicate import Predicate, named
from sfumato.domain.raw_values import Unknown
from sfumato.errors import QueryError

LATER_FIELD = {"later": True}  # a field added later: identities include it only if it is set
_MOST_CELLS = 1 << 16  # cells of a computed integer; with more values it has a single cell
_LARGEST_WHOLE = 1 << 53
_LARGEST_REAL = Fraction(10) ** 100


@dataclass(frozen=True)
class Interval:
    """The bounds of an expression, and flags for whole values and for missing values."""

    low: Fraction
    high: Fraction
    integer: bool
    nullable: bool

    def __post_init__(self) -> None:
        largest = max(abs(self.low), abs(self.high))
        if self.integer and largest >= _LARGEST_WHOLE:
            raise QueryError("this whole number could reach 2^53 or more; clamp its parts by LEAST and GREATEST")
        if largest > _LARGEST_REAL:
            raise QueryError("this number could exceed 10^100; clamp its parts by LEAST and GREATEST")


class Expression(ABC):
    """A number, or a label, of each row."""

    @abstractmethod
    def interval(self, domain: Domain) -> Interval:
        """Return the bounds of the expression.

        Raises:
            QueryError: the expression has no bounds, or names an attribute that the domain does not have.
        """


@dataclass(frozen=True)
class Field(Expression):
    """The number of an attribute."""

    name: str

    def interval(self, domain: Domain) -> Interval:
        """Return the declared bounds."""
        attribute = domain[self.name]
        if not isinstance(attribute, Integer | Real):
            held = "is categorical" if isinstance(attribute, Categorical) else "holds dates"
            raise QueryError(f"{self.name!r} {held}: it has no number to compute with", culprit=self)
        return Interval(
            Fraction(attribute.minimum),
            Fraction(attribute.maximum),
            isinstance(attribute, Integer),
            may_lack_value(attribute),
        )


@dataclass(frozen=True)
class Constant(Expression):
    """A literal number."""

    value: Fraction

    def interval(self, domain: Domain) -> Interval:
        """Return the number as both bounds."""
        del domain
        return Interval(self.value, self.value, self.value.denominator == 1, nullable=False)


class Operator(StrEnum):
    """An operator on two numbers."""

    PLUS = "+"
    MINUS = "-"
    TIMES = "*"


@dataclass(frozen=True)
class Arithmetic(Expression):
    """A sum, a difference or a product; a quotient by a literal is a product with its inverse."""

    how: Operator
    left: Expression
    right: Expression

    @property
    def divisor(self) -> int | None:
        """The integer divisor of the left operand; None if there is none."""
        by = self.right.value if self.how is Operator.TIMES and isinstance(self.right, Constant) else Fraction(0)
        return by.numerator * by.denominator if abs(by.numerator) == 1 < by.denominator else None

    def interval(self, domain: Domain) -> Interval:
        """Return the bounds by interval arithmetic."""
        a, b = self.left.interval(domain), self.right.interval(domain)
        integer, nullable = a.integer and b.integer, a.nullable or b.nullable
        match self.how:
            case Operator.PLUS:
                return Interval(a.low + b.low, a.high + b.high, integer, nullable)
            case Operator.MINUS:
                return Interval(a.low - b.high, a.high - b.low, integer, nullable)
            case _:
                ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
                return Interval(min(ends), max(ends), integer, nullable)


@dataclass(frozen=True)
class DaysBetween(Expression):
    """The number of days from one date to a later one; negative if that date is earlier."""

    later: str
    earlier: str

    def interval(self, domain: Domain) -> Interval:
        """Return the bounds from the declared first and last days."""
        ends = [domain[name] for name in (self.later, self.earlier)]
        for date in ends:
            if not isinstance(date, Date) or date.by is not Grain.DAY:
                raise QueryError(f"days are counted between dates whose cells are days, and {date.name!r} is none")
        later, earlier = (date for date in ends if isinstance(date, Date))
        return Interval(
            Fraction(later.first.toordinal() - earlier.last.toordinal()),
            Fraction(later.last.toordinal() - earlier.first.toordinal()),
            integer=True,
            nullable=may_lack_value(later) or may_lack_value(earlier),
        )


@dataclass(frozen=True)
class Clamp(Expression):
    """A number moved to the nearest bound.

    Attributes:
        value: the number.
        low: lower bound; None: no lower bound.
        high: upper bound; None: no upper bound.
        ignores_missing: true if a missing number becomes the only bound, as in LEAST and GREATEST; otherwise it stays
            missing.
    """

    value: Expression
    low: Fraction | None = None
    high: Fraction | None = None
    ignores_missing: bool = field(default=False, metadata=LATER_FIELD)

    def __post_init__(self) -> None:
        if self.ignores_missing and (self.low is None) == (self.high is None):
            raise QueryError("a missing number becomes the bound where there is one bound", culprit=self)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise QueryError("the lower bound of LEAST and GREATEST is above the upper bound", culprit=self)

    def interval(self, domain: Domain) -> Interval:
        """Return the bounds to which the expression is clamped."""
        inner = self.value.interval(domain)
        ends = [end for end in (self.low, self.high) if end is not None]
        integer = inner.integer and all(end.denominator == 1 for end in ends)
        reached = [
            self._moved(inner.low),
            self._moved(inner.high),
            *([self.replacement] if self.ignores_missing else []),
        ]
        return Interval(min(reached), max(reached), integer, inner.nullable and not self.ignores_missing)

    @property
    def replacement(self) -> Fraction:
        """The bound that replaces a missing number."""
        end = self.high if self.low is None else self.low
        assert end is not None
        return end

    def _moved(self, number: Fraction) -> Fraction:
        number = number if self.low is None else max(number, self.low)
        return number if self.high is None else min(number, self.high)


@dataclass(frozen=True)
class Cases(Expression):
    """The number of the first condition that is met; missing if none is met and there is no other number."""

    cases: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression | None = None

    def interval(self, domain: Domain) -> Interval:
        """Return an interval around the bounds of all cases."""
        for where, _ in self.cases:
            for name in named(where):
                domain.index(name)
        parts = [value.interval(domain) for _, value in self.cases]
        parts += [] if self.otherwise is None else [self.otherwise.interval(domain)]
        return Interval(
            min(part.low for part in parts),
            max(part.high for part in parts),
            all(part.integer for part in parts),
            self.otherwise is None or any(part.nullable for part in parts),
        )


class NumberFunction(StrEnum):
    """A function of one number; ROUND moves ties away from zero, and ROUND_EVEN to the even number."""

    ABS = "ABS"
    CEIL = "CEIL"
    FLOOR = "FLOOR"
    ROUND = "ROUND"
    ROUND_EVEN = "ROUND_EVEN"
    TRUNC = "TRUNC"

    def apply(self, number: Fraction) -> Fraction:
        """Return the function of a number, exactly."""
        match self:
            case NumberFunction.ABS:
                return abs(number)
            case NumberFunction.CEIL:
                return Fraction(math.ceil(number))
            case NumberFunction.FLOOR:
                return Fraction(math.floor(number))
            case NumberFunction.ROUND:
                nearest = math.floor(abs(number) + Fraction(1, 2))
                return Fraction(nearest if number >= 0 else -nearest)
            case NumberFunction.ROUND_EVEN:
                return Fraction(round(number))
            case NumberFunction.TRUNC:
                return Fraction(math.trunc(number))


@dataclass(frozen=True)
class Applied(Expression):
    """A function of a number; all functions but ABS make it whole."""

    function: NumberFunction
    value: Expression

    def interval(self, domain: Domain) -> Interval:
        """Return the bounds; rounding never changes the order of two numbers."""
        inner = self.value.interval(domain)
        ends = [self.function.apply(end) for end in (inner.low, inner.high)]
        if self.function is not NumberFunction.ABS:
            return Interval(min(ends), max(ends), integer=True, nullable=inner.nullable)
        low = Fraction(0) if inner.low <= 0 <= inner.high else min(ends)
        return Interval(low, max(ends), inner.integer, inner.nullable)


class PairFunction(StrEnum):
    """A function that returns one of two numbers, or NULL."""

    COALESCE = "COALESCE"
    GREATEST = "GREATEST"
    LEAST = "LEAST"
    NULLIF = "NULLIF"


@dataclass(frozen=True)
class AppliedToPair(Expression):
    """A choice between two numbers.

    LEAST and GREATEST ignore a missing number.  NULLIF is the left number, and missing if both are equal.
    """

    function: PairFunction
    left: Expression
    right: Expression

    def interval(self, domain: Domain) -> Interval:
        """Return an interval around the numbers that can be chosen."""
        a, b = self.left.interval(domain), self.right.interval(domain)
        integer, both = a.integer and b.integer, a.nullable and b.nullable
        single = ([a] if b.nullable else []) + ([b] if a.nullable else [])  # the result if the other is missing
        match self.function:
            case PairFunction.NULLIF:
                return Interval(a.low, a.high, integer, nullable=True)
            case PairFunction.COALESCE:
                low, high = (min(a.low, b.low), max(a.high, b.high)) if a.nullable else (a.low, a.high)
            case PairFunction.LEAST:
                low, high = min(a.low, b.low), max([min(a.high, b.high), *(each.high for each in single)])
            case PairFunction.GREATEST:
                low, high = min([max(a.low, b.low), *(each.low for each in single)]), max(a.high, b.high)
        return Interval(low, high, integer, both)


@dataclass(frozen=True)
class Labels(Expression):
    """The label of the first condition that is met; missing if none is met and there is no other label."""

    cases: tuple[tuple[Predicate, str], ...]
    otherwise: str | None = None

    def interval(self, domain: Domain) -> Interval:
        """Refuse: texts have no bounds."""
        del domain
        raise QueryError("texts are no numbers to compute with", culprit=self)

    @property
    def values(self) -> tuple[str, ...]:
        """The labels, each once."""
        rest = () if self.otherwise is None else (self.otherwise,)
        return tuple(dict.fromkeys([*(label for _, label in self.cases), *rest]))


def computed(name: str, value: Expression, domain: Domain) -> Attribute:
    """Return the attribute for an expression over ``domain``.

    Raises:
        QueryError: see :meth:`Expression.interval`.
    """
    if isinstance(value, Labels):
        for where, _ in value.cases:
            for each in named(where):
                domain.index(each)
        return Categorical(name=name, values=value.values, unknown=Unknown.DROP, nullable=value.otherwise is None)
    interval = value.interval(domain)
    if interval.integer:
        return whole_number(name, int(interval.low), int(interval.high), nullable=interval.nullable)
    return real_number(name, float(interval.low), float(interval.high), nullable=interval.nullable)


def whole_number(name: str, low: int, high: int, *, nullable: bool) -> Integer:
    """Return an attribute of integers within bounds, with one cell per number or, if they are many, one cell in all."""
    edges = (low,) if high - low >= _MOST_CELLS else None
    return Integer(name=name, minimum=low, maximum=high, edges=edges, unknown=Unknown.CLAMP, nullable=nullable)


def real_number(name: str, low: float, high: float, *, nullable: bool) -> Real:
    """Return an attribute of real numbers within bounds, with one cell."""
    return Real(name=name, edges=(low, high if high > low else low + 1), unknown=Unknown.CLAMP, nullable=nullable)


def may_lack_value(attribute: Attribute) -> bool:
    """Return whether rows may lack a known value of an attribute."""
    return attribute.nullable or attribute.unknown is Unknown.CATEGORY
