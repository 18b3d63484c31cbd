"""The derived parts of a schema: columns of a table, and facts about each unit.

A derived column is computed from a row and from other rows of the same unit, so it depends on that unit alone.  A fact
about a unit is computed from all its rows in another table, before a bound drops any.  With ``unknown: clamp``, numbers
are clamped to the declared bounds.  With ``nullable: true``, missing values have a cell of their own.

With ``unknown: drop``, rows beyond the bounds, and rows without a required value, are in no view of the table.  This
holds whether or not a statement names the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer
from sfumato.domain.calendar import Grain
from sfumato.domain.document import expect_at, mapping_at, only_at, text_at
from sfumato.domain.raw_values import Unknown
from sfumato.errors import DomainError


@dataclass(frozen=True)
class BetweenDates:
    """The days from one date of a row to another; negative if the other is earlier, unless ``minimum`` is higher."""

    start: str
    end: str
    minimum: int | None
    maximum: int | None


@dataclass(frozen=True)
class SincePrevious:
    """The days since the previous row of the same unit by a date; missing in the first row and in rows without a date.

    Among rows of one date, the row with the smallest key comes first; the others are 0 days after it.
    """

    date: str
    minimum: int | None
    maximum: int | None


@dataclass(frozen=True)
class FirstCase:
    """The label of the first condition that a row meets; missing if it meets none and there is no other label."""

    cases: tuple[tuple[str, str], ...]
    otherwise: str | None


@dataclass(frozen=True)
class Derived:
    """A derived column.

    Attributes:
        name: its name in queries.
        what: its definition.
        nullable: true if it may be missing, in a cell of its own.
        edges: the starts of the cells of days; None: each number has a cell.
        unknown: the treatment of numbers beyond the bounds: clamp them, or drop their rows and rows without a value.
    """

    name: str
    what: BetweenDates | SincePrevious | FirstCase
    nullable: bool = False
    edges: tuple[int, ...] | None = None
    unknown: Unknown = Unknown.CLAMP

    def __post_init__(self) -> None:
        what = self.what
        if isinstance(what, FirstCase):
            lacking = what.otherwise is None
        else:
            lacking = isinstance(what, SincePrevious)
            if what.minimum is not None and what.maximum is not None and what.minimum > what.maximum:
                raise DomainError(f"{self.name} has minimum above maximum", culprit=self)
            self._check_edges(what)
        if isinstance(what, FirstCase) and self.drops and self.nullable:
            raise DomainError(
                f"{self.name} has nullable: true and unknown: drop; a row without a value cannot have a cell and be "
                "dropped",
                culprit=self,
            )
        if lacking and not self.nullable and not self.drops:
            why = (
                "the first row of a unit has none before it" if isinstance(what, SincePrevious) else "else is not said"
            )
            raise DomainError(f"{self.name} may be missing, as {why}: say nullable: true", culprit=self)

    def _check_edges(self, what: BetweenDates | SincePrevious) -> None:
        if self.edges is None:
            return
        if what.minimum is None or what.maximum is None:
            raise DomainError(f"{self.name} has edges, so it needs its minimum and maximum", culprit=self)
        Integer(  # refuses invalid edges
            name=self.name, minimum=what.minimum, maximum=what.maximum, edges=self.edges, unknown=self.unknown
        )

    @property
    def drops(self) -> bool:
        """True if the column drops rows."""
        return self.unknown is Unknown.DROP

    @property
    def dates(self) -> tuple[str, ...]:
        """The dates from which it is computed."""
        match self.what:
            case BetweenDates(start, end):
                return (start, end)
            case SincePrevious(date):
                return (date,)
            case _:
                return ()

    def check(self, table: str, attributes: Mapping[str, Attribute]) -> None:
        """Refuse the column if its dates do not fit the table.

        Raises:
            DomainError: a column is no attribute, is no date with cells of days, or may be missing although this column
                may not.
        """
        if self.name.casefold() in {name.casefold() for name in attributes}:
            raise DomainError(f"{table} has an attribute {self.name!r}; give the derived column another name")
        for name in self.dates:
            date = attributes.get(name)
            if not isinstance(date, Date) or date.by is not Grain.DAY:
                raise DomainError(
                    f"{table}.{self.name} counts days, so {name!r} is a date of the table whose cells are days",
                    culprit=self,
                )
            if (date.nullable or date.unknown.value == "category") and not self.nullable and not self.drops:
                raise DomainError(
                    f"{table}.{self.name} may be missing, as {name} may be: say nullable: true", culprit=self
                )

    def describe(self) -> dict[str, Any]:
        """Return the column in the form of the document."""
        rest: dict[str, Any] = {} if self.edges is None else {"edges": list(self.edges)}
        rest |= {"nullable": True} if self.nullable else {}
        unknown = {"unknown": self.unknown.value}
        match self.what:
            case BetweenDates(start, end):
                return {"days": [start, end], **_ends(self.what), **rest, **unknown}
            case SincePrevious(date):
                return {"days_since_previous": date, **_ends(self.what), **rest, **unknown}
            case FirstCase(cases, otherwise):
                listed = [{"when": when, "then": then} for when, then in cases]
                rest |= unknown if self.drops else {}
                return {"case": listed, **({} if otherwise is None else {"else": otherwise}), **rest}
        raise TypeError(self.what)


class FactOfUnit(StrEnum):
    """A number that is computed from all rows of a unit in a table."""

    COUNT = "count"
    ANY = "any"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class OfUnit:
    """A fact about each unit: an attribute of the table that lists the units.

    Attributes:
        name: name of the attribute.
        how: the computation.
        table: the table whose rows are used.
        column: the column of these rows; None for the rows themselves.
        by: the date that decides which rows are first or last; None: the column is that date.
        where: the condition on the rows, in the form of WHERE.
        minimum: lower bound, to which smaller numbers are clamped.
        maximum: upper bound, to which larger numbers are clamped.
    """

    name: str
    how: FactOfUnit
    table: str
    column: str | None = None
    by: str | None = None
    where: str | None = None
    minimum: Fraction | None = None
    maximum: Fraction | None = None

    def __post_init__(self) -> None:
        of_rows = self.how in (FactOfUnit.COUNT, FactOfUnit.ANY)
        if of_rows is not (self.column is None):
            expected = "a table" if of_rows else "table.column"
            raise self.wrong(f"{self.how.value} is of {expected}")
        if self.by is not None and self.how not in (FactOfUnit.FIRST, FactOfUnit.LAST):
            raise self.wrong("only first and last are by a date: remove the line by")
        summed = self.how is FactOfUnit.SUM
        if summed and (self.minimum is None or self.maximum is None):
            raise self.wrong("a sum says its minimum and maximum: write minimum: N and maximum: N")
        if not summed and (self.minimum is not None or (self.maximum is not None and self.how is not FactOfUnit.COUNT)):
            raise self.wrong("only a sum has minimum and maximum, and a count a maximum: remove the others")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise DomainError(f"of_unit.{self.name} has minimum above maximum", culprit=self)

    def wrong(self, words: str) -> DomainError:
        """Return the refusal of the fact, with its place in the document."""
        return DomainError(f"of_unit.{self.name}: {words}", culprit=self)

    def describe(self) -> dict[str, Any]:
        """Return the fact in the form of the document."""
        own: dict[str, Any] = {self.how.value: self.table if self.column is None else f"{self.table}.{self.column}"}
        own |= {} if self.by is None else {"by": self.by}
        own |= {} if self.where is None else {"where": self.where}
        return own | _ends(self)


def _ends(bounded: BetweenDates | SincePrevious | OfUnit) -> dict[str, int | float]:
    ends = {"minimum": bounded.minimum, "maximum": bounded.maximum}
    return {
        name: int(end) if Fraction(end).denominator == 1 else float(end)
        for name, end in ends.items()
        if end is not None
    }


# --- the document -----------------------------------------------------------------------------------------------------

_REST = {"minimum", "maximum", "edges", "nullable", "unknown"}


def read_derived(document: object, at: str) -> tuple[Derived, ...]:
    """Return the derived columns of a table in a document.

    Raises:
        DomainError: the document does not follow the format; the message names the place.
    """
    return tuple(
        _derived(text_at(name, at), mapping_at(body, f"{at}.{name}"), f"{at}.{name}")
        for name, body in mapping_at(document, at).items()
    )


def _derived(name: str, body: Mapping[Any, Any], at: str) -> Derived:
    kinds = [kind for kind in ("days", "days_since_previous", "case") if kind in body]
    if len(kinds) != 1:
        raise DomainError(
            f"the schema is wrong at {at}: give exactly one of days, days_since_previous and case", culprit=at
        )
    nullable = body.get("nullable", False)
    expect_at(nullable, bool, f"{at}.nullable", "true or false")
    if kinds == ["case"]:
        only_at(body, {"case", "else", "nullable", "unknown"}, at)
        if body.get("unknown", "drop") != "drop":
            raise DomainError(
                f"the schema is wrong at {at}.unknown: write drop to drop rows that meet no case, or leave unknown out",
                culprit=at,
            )
        unknown = Unknown.DROP if "unknown" in body else Unknown.CLAMP
        cases = FirstCase(_cases(body["case"], at), _label(body.get("else"), f"{at}.else"))
        return Derived(name, cases, nullable, unknown=unknown)
    only_at(body, {*kinds, *_REST}, at)
    if body.get("unknown", "clamp") not in ("clamp", "drop"):
        raise DomainError(
            f"the schema is wrong at {at}.unknown: write clamp to move a derived number to its nearest bound, or drop "
            "to leave out its row",
            culprit=at,
        )
    unknown = Unknown(body.get("unknown", "clamp"))
    for end in ("minimum", "maximum"):
        expect_at(body.get(end, 0), int, f"{at}.{end}", "a whole number")
    ends = body.get("minimum"), body.get("maximum")
    edges = _edges(body["edges"], f"{at}.edges") if "edges" in body else None
    if kinds == ["days"]:
        dates = body["days"]
        if not isinstance(dates, list) or len(dates) != 2:  # noqa: PLR2004
            raise DomainError(f"the schema is wrong at {at}.days: write two dates, the earlier first", culprit=at)
        start, end = (text_at(date, f"{at}.days") for date in dates)
        return Derived(name, BetweenDates(start, end, *ends), nullable, edges, unknown)
    return Derived(name, SincePrevious(text_at(body["days_since_previous"], at), *ends), nullable, edges, unknown)


def _edges(edges: object, at: str) -> tuple[int, ...]:
    expect_at(edges, list, at, "a list of whole numbers")
    assert isinstance(edges, list)
    for edge in edges:
        expect_at(edge, int, at, "a list of whole numbers")
    return tuple(edges)


def _cases(value: object, at: str) -> tuple[tuple[str, str], ...]:
    expect_at(value, list, f"{at}.case", "a list of when and then")
    assert isinstance(value, list)
    cases = []
    for each in value:
        body = mapping_at(each, f"{at}.case")
        only_at(body, {"when", "then"}, f"{at}.case", required={"when", "then"})
        label = _label(body["then"], f"{at}.then")
        assert label is not None
        cases.append((text_at(body["when"], f"{at}.when"), label))
    if not cases:
        raise DomainError(f"the schema is wrong at {at}.case: write at least one when and then", culprit=at)
    return tuple(cases)


def _label(label: object, at: str) -> str | None:
    if label is None and at.endswith(".else"):
        return None
    if isinstance(label, int) and not isinstance(label, bool):
        return str(label)
    return text_at(label, at)


def read_of_unit(document: object) -> tuple[OfUnit, ...]:
    """Return the facts about units in a document.

    Raises:
        DomainError: the document does not follow the format; the message names the place.
    """
    return tuple(
        _of_unit(text_at(name, "of_unit"), mapping_at(body, f"of_unit.{name}"))
        for name, body in mapping_at(document, "of_unit").items()
    )


def _of_unit(name: str, body: Mapping[Any, Any]) -> OfUnit:
    at = f"of_unit.{name}"
    kinds = [kind for kind in FactOfUnit if kind.value in body]
    if len(kinds) != 1:
        known = ", ".join(kind.value for kind in FactOfUnit)
        raise DomainError(f"the schema is wrong at {at}: one of {known} is said", culprit=at)
    how = kinds[0]
    only_at(body, {how.value, "by", "where", "minimum", "maximum"}, at)
    table, _, column = text_at(body[how.value], at).partition(".")
    ends = [_end(body[end], f"{at}.{end}") if end in body else None for end in ("minimum", "maximum")]
    by = text_at(body["by"], f"{at}.by") if "by" in body else None
    where = text_at(body["where"], f"{at}.where") if "where" in body else None
    return OfUnit(name, how, table, column or None, by, where, *ends)


def _end(end: object, at: str) -> Fraction:
    if isinstance(end, bool) or not isinstance(end, int | float):
        raise DomainError(f"the schema is wrong at {at}: write a number", culprit=end)
    try:
        return Fraction(str(end))
    except ValueError:
        raise DomainError(f"the schema is wrong at {at}: write a finite number", culprit=end) from None


_EXACT = 8  # up to here each number of rows is its own class; beyond, bounds grow by a quarter


def coded(attribute: Attribute, name: str, *, none: bool) -> Attribute:
    """Return an attribute with the cells of another, by their codes, and at the end a cell for "there is none".

    >>> from sfumato.domain import Real
    >>> coded(Real(name="dose", edges=(0.0, 1.0, 5.0), unknown=Unknown.CLAMP), "first.dose", none=True).labels()
    ('0', '1', '(missing)')
    """
    more = attribute.size - attribute.declared + none
    if isinstance(attribute, Categorical) or more > 2:  # noqa: PLR2004  (missing and other)
        labels = tuple(f"{code} {label}" for code, label in enumerate(attribute.labels()))
        return Categorical(name=name, values=(*labels, *(("none",) if none else ())), unknown=Unknown.DROP)
    return cells(name, attribute.declared, more)


def cells(name: str, declared: int, more: int) -> Attribute:
    """Return an attribute of ``declared`` cells in order, and up to two more; with three the cells have no order."""
    if more > 2:  # noqa: PLR2004  (missing and other)
        return Categorical(name=name, values=tuple(map(str, range(declared + more))), unknown=Unknown.DROP)
    integer = Integer(name=name, minimum=0, maximum=declared - 1, unknown=Unknown.CLAMP)
    return replace(integer, nullable=more > 0, unknown=Unknown.CATEGORY if more > 1 else Unknown.CLAMP)


def weight_classes(most: int) -> tuple[int, ...]:
    """Return the bounds of the classes of numbers of rows, in increasing order.

    All numbers above one bound, up to the next, are one class.  Its weight is that of its largest number, so that units
    with fewer rows have a smaller total weight.

    >>> weight_classes(14)
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
    """
    classes = [*range(1, min(most, _EXACT) + 1)]
    while classes[-1] < most:
        classes.append(min(classes[-1] + classes[-1] // 4, most))
    return tuple(classes)
