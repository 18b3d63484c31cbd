"""A public column: its cells in order, and the treatment of all other values.

Every attribute numbers its cells 0 .. size-1.  The declared cells come first.  A ``nullable`` attribute then has one
cell for missing values.  With ``Unknown.CATEGORY`` the last cell is for undeclared values.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from sfumato.domain.calendar import DAY, HOUR, Grain, refuse_days, refuse_zone
from sfumato.domain.raw_values import Code, Unknown, refuse_formats, sorted_codes, sorted_spellings
from sfumato.errors import DomainError

Value: TypeAlias = str | int | float | bool | None

EXTRA = ("(missing)", "(other)")
"""Labels of the cells for missing and unknown values."""
_TREATMENTS = "Unknown.DROP, Unknown.CATEGORY or Unknown.CLAMP"


class Role(StrEnum):
    """The purpose of an attribute, which decides the pairs that synthesis measures."""

    TARGET = "target"  # the column to predict from the others
    WEIGHT = "weight"  # the people per row; synthesis keeps its sums by groups


class _DeclaredCells(ABC):
    """The common part of all attributes: the cells after the declared ones, and labels."""

    name: str
    unknown: Unknown
    nullable: bool
    role: Role | None
    missing: tuple[Code, ...]

    @property
    @abstractmethod
    def declared(self) -> int:
        """The number of declared cells, without the cells for missing and undeclared values."""

    @abstractmethod
    def _declared_label(self, code: int) -> str:
        """Return the label of a declared cell."""

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.declared + self.nullable + (self.unknown is Unknown.CATEGORY)

    def label(self, code: int) -> str:
        """Return the label of a cell."""
        if code < self.declared:
            return self._declared_label(code)
        return EXTRA[0] if self.nullable and code == self.declared else EXTRA[1]

    def labels(self) -> tuple[str, ...]:
        """Return the label of each cell, in the order of codes."""
        return tuple(map(self.label, range(self.size)))


@dataclass(frozen=True, kw_only=True)
class Categorical(_DeclaredCells):
    """Declared values in order, and ``spellings``: pairs of another text and the value that it means.

    >>> Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP).size
    2
    """

    name: str
    values: tuple[str | int | bool, ...]
    unknown: Unknown
    nullable: bool = False
    role: Role | None = None
    missing: tuple[Code, ...] = ()
    spellings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _refuse_no_option(self)
        if not self.values:
            raise DomainError(f"attribute {self.name!r} declares no values", culprit=self)
        if len({str(value) for value in self.values}) != len(self.values):
            raise DomainError(f"attribute {self.name!r} declares a value twice", culprit=self)
        if len({type(value) for value in self.values}) > 1:
            raise DomainError(f"attribute {self.name!r} mixes types of values; quote all or none", culprit=self)
        if self.unknown is Unknown.CLAMP:
            raise DomainError(f"attribute {self.name!r} is categorical and cannot clamp", culprit=self)
        if self.spellings:
            object.__setattr__(self, "spellings", sorted_spellings(self.name, self.spellings, self.values))

    def describe(self) -> dict[str, Any]:
        """Return the attribute in the form of a domain document."""
        also = {value: [text for text, of in self.spellings if of == value] for _, value in self.spellings}
        parts = {"spellings": also} if also else {}
        return {"type": "categorical", "values": list(self.values), **parts, **_rest(self)}

    @property
    def declared(self) -> int:
        """The number of declared cells, without the cells for missing and undeclared values."""
        return len(self.values)

    def code_of(self, value: object) -> int | None:
        """Return the code of a declared value, also in another notation such as 2.0; None for others."""
        if isinstance(value, bool) != isinstance(self.values[0], bool):
            return None
        return next((code for code, declared in enumerate(self.values) if declared == value), None)

    def _declared_label(self, code: int) -> str:
        return str(self.values[code])


@dataclass(frozen=True, kw_only=True)
class Integer(_DeclaredCells):
    """Whole numbers ``minimum .. maximum``, each its own cell, or grouped by inner ``edges``.

    ``edges`` are first values of bins: increasing, the first is ``minimum``, all at most ``maximum``.  With a public
    ``typical`` value the last bin is open: it holds all larger numbers, ``maximum`` is only its bound, and the typical
    value is the one drawn from it.

    >>> Integer(name="age", minimum=0, maximum=13, unknown=Unknown.CLAMP).size
    14
    >>> Integer(name="age", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.CLAMP).labels()
    ('0..17', '18..64', '65..99')
    """

    name: str
    minimum: int
    maximum: int
    unknown: Unknown
    edges: tuple[int, ...] | None = None
    nullable: bool = False
    typical: int | None = None
    role: Role | None = None
    missing: tuple[Code, ...] = ()

    def __post_init__(self) -> None:
        _refuse_no_option(self)
        if self.minimum > self.maximum:
            raise DomainError(f"attribute {self.name!r} has minimum above maximum", culprit=self)
        if max(abs(self.minimum), abs(self.maximum)) >= 1 << 53:
            raise DomainError(f"attribute {self.name!r} has a bound of 2^53 or more", culprit=self)
        if self.edges is not None and not (
            self.edges
            and all(isinstance(edge, int) for edge in self.edges)
            and self.edges[0] == self.minimum
            and self.edges[-1] <= self.maximum
            and list(self.edges) == sorted(set(self.edges))
        ):
            raise DomainError(
                f"the edges of {self.name!r} must be whole, increase from its minimum and stay within its maximum",
                culprit=self,
            )
        if self.typical is not None and (self.edges is None or type(self.typical) is not int):
            words = "is a whole number in its last bin, so it needs edges"
            raise DomainError(f"the typical value of {self.name!r} {words}", culprit=self)
        _refuse_untypical(self)

    def describe(self) -> dict[str, Any]:
        """Return the attribute in the form of a domain document."""
        edges = {} if self.edges is None else {"edges": list(self.edges)}
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return {"type": "integer", **bounds, **edges, **_opened(self), **_rest(self)}

    @property
    def declared(self) -> int:
        """The number of declared cells, without the cells for missing and undeclared values."""
        return self.maximum - self.minimum + 1 if self.edges is None else len(self.edges)

    def bounds(self, code: int) -> tuple[int, int]:
        """Return the first and last value of a declared cell, both inclusive."""
        if self.edges is None:
            return self.minimum + code, self.minimum + code
        last = self.maximum if code == len(self.edges) - 1 else self.edges[code + 1] - 1
        return self.edges[code], last

    def _declared_label(self, code: int) -> str:
        low, high = self.bounds(code)
        return str(low) if low == high else f"{low}..{high}"


@dataclass(frozen=True, kw_only=True)
class Real(_DeclaredCells):
    """Real numbers between the first and the last edge, one cell between neighboring edges.

    Cells are closed on the left; the last is closed on both sides.  With a public ``typical`` value the last cell is
    open, like the last bin of an :class:`Integer`.

    ``points`` are single numbers with a cell of their own, such as an income of 0.  A point splits its cell: ``edges``
    then contain the point and the next double (:func:`split_edges`).

    >>> Real(name="score", edges=(0.0, 0.5, 1.0), unknown=Unknown.CLAMP).labels()
    ('[0.0, 0.5)', '[0.5, 1.0]')
    >>> Real(name="income", edges=(0.0, 9e4), points=(0.0,), unknown=Unknown.CLAMP).labels()
    ('0.0', '(0.0, 90000.0]')
    """

    name: str
    edges: tuple[float, ...]
    unknown: Unknown
    nullable: bool = False
    typical: float | None = None
    role: Role | None = None
    missing: tuple[Code, ...] = ()
    points: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        increasing = len(self.edges) > 1 and list(self.edges) == sorted(set(self.edges))
        if not increasing or not all(map(math.isfinite, self.edges)):
            raise DomainError(f"attribute {self.name!r} needs at least two finite, increasing edges", culprit=self)
        if self.points:
            object.__setattr__(self, "points", tuple(point + 0.0 for point in self.points))  # -0.0 is 0.0
            object.__setattr__(self, "edges", split_edges(self.name, self.edges, self.points))
        _refuse_untypical(self)
        _refuse_no_option(self)

    def describe(self) -> dict[str, Any]:
        """Return the attribute in the form of a domain document."""
        points = {"points": list(self.points)} if self.points else {}
        edges = list(declared_edges(self.edges, self.points))
        return {"type": "real", "edges": edges, **points, **_opened(self), **_rest(self)}

    @property
    def minimum(self) -> float:
        """The declared lower bound."""
        return self.edges[0]

    @property
    def maximum(self) -> float:
        """The declared upper bound."""
        return self.edges[-2] if self.is_point(self.declared - 1) else self.edges[-1]

    @property
    def declared(self) -> int:
        """The number of declared cells, without the cells for missing and undeclared values."""
        return len(self.edges) - 1

    def is_point(self, code: int) -> bool:
        """Return whether a declared cell holds a single number."""
        return bool(self.points) and self.edges[code] in self.points

    def is_closed(self, code: int) -> bool:
        """Return whether a declared cell includes its upper bound."""
        return code == self.declared - 1 or self.is_point(code)

    def bounds(self, code: int) -> tuple[float, float]:
        """Return the lower and upper edge of a declared cell; for a point the number itself, twice."""
        return self.edges[code], self.edges[code] if self.is_point(code) else self.edges[code + 1]

    def beginning(self, code: int) -> str:
        """Return the beginning of a declared cell in words."""
        behind = code > 0 and self.is_point(code - 1) and not self.is_point(code)
        return f"above {self.edges[code - 1]}" if behind else str(self.edges[code])

    def joined_label(self, first: int, last: int) -> str:
        """Return the label of consecutive declared cells, joined into one."""
        begins, high = self.beginning(first), self.bounds(last)[1]
        if first == last and self.is_point(first):
            return begins
        opened = begins.replace("above ", "(") if begins.startswith("above") else f"[{begins}"
        return f"{opened}, {high}{']' if self.is_closed(last) else ')'}"

    def _declared_label(self, code: int) -> str:
        return self.joined_label(code, code)


def _next(number: float) -> float:
    return math.nextafter(number, math.inf)


def split_edges(name: str, edges: tuple[float, ...], points: tuple[float, ...]) -> tuple[float, ...]:
    """Return the edges with every point, and the next double after it; a point at the last edge adds one after that.

    Numbers of a table are doubles, so a point is the cell from the number up to the next double.  Edges that are split
    already stay unchanged.

    Raises:
        DomainError: points that do not increase, or lie beyond the edges.

    >>> split_edges("income", (0.0, 1.0), (0.0,))
    (0.0, 5e-324, 1.0)
    """
    declared = declared_edges(edges, points)
    within = declared and all(declared[0] <= point <= declared[-1] for point in points)  # NaN fails every comparison
    if not within or list(points) != sorted(set(points)):
        raise DomainError(
            f"the points of {name!r} must increase and lie between its first and its last edge", culprit=points
        )
    if len(declared) < 2 or points[-1] == sys.float_info.max:  # noqa: PLR2004
        raise DomainError(f"the edges of {name!r} leave no number beside its points", culprit=points)
    return tuple(sorted({*declared, *points, *map(_next, points)}))


def declared_edges(edges: tuple[float, ...], points: tuple[float, ...]) -> tuple[float, ...]:
    """Return the edges without the extra edges behind points.

    >>> declared_edges((0.0, 5e-324, 1.0), (0.0,))
    (0.0, 1.0)
    """
    behind = set(map(_next, points)) - set(points)
    return tuple(edge for edge in edges if edge not in behind)


class _Periods(_DeclaredCells):
    """A date or time stamp whose cells are periods of a grain, over the days ``first .. last``."""

    first: date
    last: date
    by: Grain

    @property
    @abstractmethod
    def periods(self) -> tuple[int, int]:
        """The numbers of the first and the last period of the grain."""

    @property
    def declared(self) -> int:
        """The number of declared cells, without the cells for missing and undeclared values."""
        first, last = self.periods
        return last - first + 1

    def _declared_label(self, code: int) -> str:
        return self.by.label(self.periods[0] + code)


@dataclass(frozen=True, kw_only=True)
class Date(_Periods):
    """Days ``first .. last``, one cell per day, week (of ISO 8601), month, quarter or year.

    The first and the last cell hold only the days from ``first`` and up to ``last``.

    >>> born = Date(name="born", first=date(2023, 12, 30), last=date(2024, 2, 1), by=Grain.MONTH, unknown=Unknown.DROP)
    >>> born.labels(), [str(day) for day in born.bounds(0)]
    (('2023-12', '2024-01', '2024-02'), ['2023-12-30', '2023-12-31'])
    """

    name: str
    first: date
    last: date
    by: Grain
    unknown: Unknown
    nullable: bool = False
    role: Role | None = None
    missing: tuple[Code, ...] = ()
    formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _refuse_no_calendar(self)
        if self.by is Grain.HOUR:
            raise DomainError(f"{self.name!r} is a date, which has no hours; make it a timestamp", culprit=self)

    def describe(self) -> dict[str, Any]:
        """Return the attribute in the form of a domain document."""
        return {"type": "date", **_period(self), **_rest(self)}

    @property
    def periods(self) -> tuple[int, int]:
        """The numbers of the first and the last period of the grain."""
        return self.by.of(self.first), self.by.of(self.last)

    def bounds(self, code: int) -> tuple[date, date]:
        """Return the first and last day of a declared cell, both inclusive."""
        period = self.periods[0] + code
        last = self.by.first_day(period + 1) - timedelta(days=1)
        return max(self.first, self.by.first_day(period)), min(self.last, last)

    def span(self, code: int) -> tuple[int, int]:
        """Return the first day of a declared cell, in Python's numbering, and the day after its last."""
        low, high = self.bounds(code)
        return low.toordinal(), high.toordinal() + 1


@dataclass(frozen=True, kw_only=True)
class Timestamp(_Periods):
    """Moments of the days ``first .. last`` on the clocks of a time zone, with one cell per hour, day or longer period.

    A day has 24 cells of hours despite clock changes.  A repeated hour is in one cell; a skipped hour is in no cell
    unless the table has it.

    >>> seen = Timestamp(name="seen", first=date(2026, 3, 29), last=date(2026, 3, 29), by=Grain.HOUR,
    ...                  zone="Europe/Zurich", unknown=Unknown.DROP)
    >>> seen.declared, seen.labels()[2], str(seen.bounds(2)[0])
    (24, '2026-03-29T02', '2026-03-29 02:00:00')
    """

    name: str
    first: date
    last: date
    by: Grain
    zone: str
    unknown: Unknown
    nullable: bool = False
    role: Role | None = None
    missing: tuple[Code, ...] = ()
    formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _refuse_no_calendar(self)
        refuse_zone(self.name, self.zone)

    def describe(self) -> dict[str, Any]:
        """Return the attribute in the form of a domain document."""
        return {"type": "timestamp", **_period(self), "zone": self.zone, **_rest(self)}

    @property
    def periods(self) -> tuple[int, int]:
        """The numbers of the first and the last period of the grain."""
        return self.by.of(self.first), self.by.of(self.last, 23)

    def bounds(self, code: int) -> tuple[datetime, datetime]:
        """Return the clock times at which a declared cell begins and the next cell begins."""
        low, high = (timedelta(days=second // DAY - 1, seconds=second % DAY) for second in self.span(code))
        return datetime.min + low, datetime.min + high  # noqa: DTZ901 - what clocks show has no zone

    def span(self, code: int) -> tuple[int, int]:
        """Return the span of a declared cell in clock seconds since the midnight of day 0."""
        period = self.periods[0] + code
        if self.by is Grain.HOUR:
            return period * HOUR, (period + 1) * HOUR
        low, high = self.by.first_day(period), self.by.first_day(period + 1)
        return max(self.first, low).toordinal() * DAY, min(self.last.toordinal() + 1, high.toordinal()) * DAY


Numeric: TypeAlias = Integer | Real
"""An attribute with numbers, which has sums, means and quantiles."""
Dated: TypeAlias = Date | Timestamp
"""An attribute with days or moments, which has an order and no sum."""
Attribute: TypeAlias = Categorical | Integer | Real | Date | Timestamp
"""The public description of one column: its values, and the cells that group them."""


def null_code(attribute: Attribute) -> int | None:
    """Return the code of the cell for missing values, or None if the attribute is not nullable."""
    return attribute.declared if attribute.nullable else None


def unknown_code(attribute: Attribute) -> int | None:
    """Return the code of the cell for undeclared values, or None if they are dropped or clamped."""
    return attribute.size - 1 if attribute.unknown is Unknown.CATEGORY else None


def _rest(attribute: Attribute) -> dict[str, Any]:
    role = {} if attribute.role is None else {"role": attribute.role.value}
    codes = {"missing": list(attribute.missing)} if attribute.missing else {}
    return {"nullable": attribute.nullable, "unknown": attribute.unknown.value, **role, **codes}


def _period(attribute: Dated) -> dict[str, Any]:
    formats = {"format": attribute.formats[0] if len(attribute.formats) == 1 else list(attribute.formats)}
    days = {"first": attribute.first.isoformat(), "last": attribute.last.isoformat(), "by": attribute.by.value}
    return days | (formats if attribute.formats else {})


def _opened(attribute: Integer | Real) -> dict[str, Any]:
    return {} if attribute.typical is None else {"typical": attribute.typical}


def _refuse_untypical(attribute: Integer | Real) -> None:
    """Refuse a typical value that is not in the last cell."""
    if attribute.typical is None:
        return
    low, high = attribute.bounds(attribute.declared - 1)
    if isinstance(attribute.typical, bool) or not low <= attribute.typical <= high:
        words = f"lies in its last cell, from {low} to {high}"
        raise DomainError(f"the typical value of {attribute.name!r} {words}", culprit=attribute)


def _refuse_no_calendar(attribute: Dated) -> None:
    """Refuse a date without a name, days, grain or role."""
    _refuse_no_option(attribute)
    refuse_days(attribute.name, attribute.first, attribute.last)
    if attribute.formats:
        refuse_formats(attribute.name, attribute.formats, zoned=isinstance(attribute, Timestamp))
    if not isinstance(attribute.by, Grain):
        raise DomainError(f"the cells of {attribute.name!r} are a Grain, such as Grain.MONTH", culprit=attribute)


def _refuse_no_option(attribute: Attribute) -> None:
    """Refuse an attribute with an invalid name, treatment of values, code or role, and sort its codes."""
    name = attribute.name
    if not isinstance(name, str):  # YAML reads some names as numbers or booleans
        raise DomainError(f"the name of an attribute is text: write {name} in quotes", culprit=name)
    if not name or name != name.strip():
        raise DomainError(f"an attribute needs a name without blanks around it, not {name!r}", culprit=name)
    if attribute.missing:
        declared = attribute.values if isinstance(attribute, Categorical) else ()
        object.__setattr__(attribute, "missing", sorted_codes(name, attribute.missing, declared))
    if not isinstance(attribute.unknown, Unknown):
        raise DomainError(f"the treatment of unknown values of {name!r} is {_TREATMENTS}", culprit=attribute)
    if attribute.role is not None and not isinstance(attribute.role, Role):
        raise DomainError(f"the role of {name!r} is Role.TARGET or Role.WEIGHT", culprit=attribute)
    if attribute.role is Role.WEIGHT and (not isinstance(attribute, Integer | Real) or attribute.minimum < 0):
        raise DomainError(f"{name!r} cannot be a weight; only a number from 0 can", culprit=attribute)
