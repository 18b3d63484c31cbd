"""The calendar: the periods of days and hours, their names, and the clock changes of time zones.

Periods of a grain are numbered in order, so that the cells of a date are consecutive numbers.  Days are counted as in
Python: the first of January of the year 1 is day 1.  Seconds of a wall clock are counted from the midnight of that day.
Weeks follow ISO 8601: a week starts on Monday, and belongs to the year of its Thursday.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from sfumato.bounded_cache import cached
from sfumato.errors import DomainError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DAY = 86_400
HOUR = 3_600
_HOURS = 24
_LATEST = date(9998, 12, 31)  # the next year still ends within Python's dates


class Grain(StrEnum):
    """The grain of the cells of a date, finest first."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"

    def of(self, day: date, hour: int = 0) -> int:
        """Return the number of the period that holds an hour of a day.

        >>> Grain.MONTH.of(date(2024, 2, 29)) - Grain.MONTH.of(date(2023, 12, 31))
        2
        """
        match self:
            case Grain.HOUR:
                return day.toordinal() * _HOURS + hour
            case Grain.DAY:
                return day.toordinal()
            case Grain.WEEK:
                return (day.toordinal() - 1) // 7  # day 1 is a Monday
            case Grain.MONTH:
                return day.year * 12 + day.month - 1
            case Grain.QUARTER:
                return day.year * 4 + (day.month - 1) // 3
            case Grain.YEAR:
                return day.year

    def first_day(self, period: int) -> date:
        """Return the first day of a period, or the day of an hour."""
        match self:
            case Grain.HOUR:
                return date.fromordinal(period // _HOURS)
            case Grain.DAY:
                return date.fromordinal(period)
            case Grain.WEEK:
                return date.fromordinal(period * 7 + 1)
            case Grain.MONTH:
                return date(period // 12, period % 12 + 1, 1)
            case Grain.QUARTER:
                return date(period // 4, period % 4 * 3 + 1, 1)
            case Grain.YEAR:
                return date(period, 1, 1)

    def label(self, period: int) -> str:
        """Return the name of a period, in the form of ISO 8601 if there is one.

        >>> day = date(2021, 1, 1)
        >>> [grain.label(grain.of(day, 9)) for grain in Grain]
        ['2021-01-01T09', '2021-01-01', '2020-W53', '2021-01', '2021-Q1', '2021']
        """
        day = self.first_day(period)
        match self:
            case Grain.HOUR:
                return f"{day.isoformat()}T{period % _HOURS:02}"
            case Grain.DAY:
                return day.isoformat()
            case Grain.WEEK:
                year, week, _ = day.isocalendar()
                return f"{year:04}-W{week:02}"
            case Grain.MONTH:
                return f"{day.year:04}-{day.month:02}"
            case Grain.QUARTER:
                return f"{day.year:04}-Q{(day.month + 2) // 3}"
            case Grain.YEAR:
                return f"{day.year:04}"


_INSIDE: dict[Grain, tuple[Grain, ...]] = {  # the periods made of whole periods of a grain; weeks only fit ISO years
    Grain.HOUR: tuple(Grain),
    Grain.DAY: tuple(Grain)[1:],
    Grain.WEEK: (Grain.WEEK,),
    Grain.MONTH: (Grain.MONTH, Grain.QUARTER, Grain.YEAR),
    Grain.QUARTER: (Grain.QUARTER, Grain.YEAR),
    Grain.YEAR: (Grain.YEAR,),
}

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class _Part:
    """A part of a date for ``EXTRACT``: its name in SQL, its possible grains, its numbers, and a day's number."""

    sql: str
    of: tuple[Grain, ...]
    numbers: range
    number: Callable[[date, int], int]


_DAYS = (Grain.HOUR, Grain.DAY)
_PARTS: dict[str, _Part] = {
    "hour_of_day": _Part("HOUR", (Grain.HOUR,), range(24), lambda _day, hour: hour),
    "weekday": _Part("ISODOW", _DAYS, range(1, 8), lambda day, _hour: day.isoweekday()),
    "day_of_month": _Part("DAY", _DAYS, range(1, 32), lambda day, _hour: day.day),
    "day_of_year": _Part("DOY", _DAYS, range(1, 367), lambda day, _hour: day.timetuple().tm_yday),
    "week_of_year": _Part("WEEK", (*_DAYS, Grain.WEEK), range(1, 54), lambda day, _hour: day.isocalendar().week),
    "month_of_year": _Part("MONTH", (*_DAYS, Grain.MONTH), range(1, 13), lambda day, _hour: day.month),
    "quarter_of_year": _Part(
        "QUARTER", (*_DAYS, Grain.MONTH, Grain.QUARTER), range(1, 5), lambda day, _hour: (day.month + 2) // 3
    ),
    "isoyear": _Part("ISOYEAR", (*_DAYS, Grain.WEEK), range(1, MAXYEAR + 1), lambda day, _hour: day.isocalendar().year),
}
EXTRACTED = {part.sql: name for name, part in _PARTS.items()} | {"YEAR": "year"}
"""What ``EXTRACT`` calls the maps."""


@dataclass(frozen=True, eq=False)
class CalendarMap:
    """A public map of the periods of a grain: coarser periods, or a part of the date such as its weekday.

    Parts have the numbers of ``EXTRACT``; a period has the number of its first second.

    Attributes:
        name: such as ``month`` or ``weekday``.
        labels: one label per cell, in order.
        cells: the cell of each period, in order; shape ``(periods,)``.
        numbers: the number of each cell for comparisons, in increasing order.
        grain: the grain of the coarser periods; None for a part.
    """

    name: str
    labels: tuple[str, ...]
    cells: NDArray[np.int32]
    numbers: tuple[int, ...]
    grain: Grain | None

    @property
    def parts(self) -> Mapping[str, int]:
        """The numbers of a part by their labels, with and without a cell; empty for longer periods."""
        numbers = _PARTS[self.name].numbers if self.name in _PARTS else range(0)
        return {WEEKDAYS[number - 1] if self.name == "weekday" else str(number): number for number in numbers}


def maps(by: Grain) -> tuple[str, ...]:
    """Return the names of the maps of a grain's periods.

    >>> maps(Grain.WEEK), maps(Grain.QUARTER)
    (('week', 'week_of_year', 'isoyear'), ('quarter', 'year', 'quarter_of_year'))
    """
    return (*(grain.value for grain in _INSIDE[by]), *(name for name, part in _PARTS.items() if by in part.of))


def calendar_map(name: str, by: Grain, first: int, last: int) -> CalendarMap:
    """Return the map with this name for the periods ``first`` to ``last``.

    Raises:
        DomainError: the periods have no such map.

    >>> first, last = Grain.DAY.of(date(2023, 1, 30)), Grain.DAY.of(date(2023, 2, 2))
    >>> calendar_map("month", Grain.DAY, first, last).cells.tolist()
    [0, 0, 1, 1]
    """
    if name not in maps(by):
        raise DomainError(f"a date by {by} has no {name}; it has {', '.join(maps(by))}", culprit=name)
    import numpy as np  # imported here because most domains do not need it

    if name in _PARTS:
        values = _numbers(_PARTS[name].number, by, first, last)
        values_present, cells = np.unique(values, return_inverse=True)
        numbers = tuple(values_present.tolist())
        labels = tuple(WEEKDAYS[number - 1] if name == "weekday" else str(number) for number in numbers)
        return CalendarMap(name, labels, cells.astype(np.int32), numbers, None)
    grain = Grain(name)
    periods = _numbers(grain.of, by, first, last)
    every = range(int(periods[0]), int(periods[-1]) + 1)
    starts = tuple(
        period * HOUR if grain is Grain.HOUR else grain.first_day(period).toordinal() * DAY for period in every
    )
    labels = tuple(map(grain.label, every))
    return CalendarMap(grain.value, labels, (periods - every[0]).astype(np.int32), starts, grain)


def _numbers(number: Callable[[date, int], int], by: Grain, first: int, last: int) -> NDArray[np.int64]:
    """Return the number of each period, computed from its first day and, for hours, from its hour."""
    import numpy as np

    if by is not Grain.HOUR:
        return np.array([number(by.first_day(period), 0) for period in range(first, last + 1)], dtype=np.int64)
    days = range(first // _HOURS, last // _HOURS + 1)
    opening = np.array([[number(date.fromordinal(day), hour) for hour in (0, 1)] for day in days], dtype=np.int64)
    step = opening[0, 1] - opening[0, 0]  # one hour changes the number equally on all days, or never
    every: NDArray[np.int64] = (opening[:, :1] + step * np.arange(_HOURS)).reshape(-1)
    return every[first % _HOURS :][: last - first + 1]


def known_part(by: Grain, part: str) -> str:
    """Return the name of the map for ``EXTRACT(part FROM date)``.

    Raises:
        DomainError: there is no such part, or the grain does not determine it.
    """
    name = EXTRACTED.get(part.upper())
    if part.upper() in ("DOW", "DAYOFWEEK", "WEEKDAY"):
        raise DomainError(f"databases number the days from {part.upper()} differently; ask ISODOW, where Monday is 1")
    if name is None or name not in maps(by):
        known = ", ".join(sql for sql, each in EXTRACTED.items() if each in maps(by))
        raise DomainError(f"a date by {by} has no part {part.upper()}; it has {known}", culprit=part)
    return name


def known_period(part: str) -> Grain:
    """Return the longer period for ``DATE_TRUNC(part, date)``.

    Raises:
        DomainError: there is no such period.
    """
    try:
        return Grain(part.lower().removeprefix("iso"))
    except ValueError:
        raise DomainError(f"no period is called {part}; there are {', '.join(Grain)}", culprit=part) from None


def refuse_days(name: str, first: object, last: object) -> None:
    """Refuse values that are not the first and last day of an attribute.

    Raises:
        DomainError: no days, not in order, or beyond the year 9998.
    """
    if type(first) is not date or type(last) is not date:
        raise DomainError(f"the first and the last day of {name!r} are dates, such as 2023-01-31", culprit=name)
    if first > last:
        raise DomainError(f"attribute {name!r} has its first day after its last", culprit=name)
    if last > _LATEST:
        raise DomainError(f"the last day of {name!r} must be before the year 9999", culprit=name)


def refuse_zone(name: str, zone: object) -> None:
    """Refuse a text that is not the name of a time zone.

    Raises:
        DomainError: the IANA time zone database has no such name.
    """
    import zoneinfo

    try:
        if isinstance(zone, str) and zone and zoneinfo.ZoneInfo(zone):
            return
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    from difflib import get_close_matches

    near = get_close_matches(str(zone), sorted(zoneinfo.available_timezones()), n=1)
    hint = f"; did you mean {near[0]}?" if near else ", such as Europe/Zurich or UTC"
    raise DomainError(f"attribute {name!r} names no time zone of the IANA database{hint}", culprit=zone)


@cached(4_000)  # an encoding needs it twice, and ten years take 56 ms: 7 % of a command
def clock_changes(zone: str, first: date, last: date) -> tuple[tuple[int, int], ...]:
    """Return the clock changes of a zone: pairs of a second of UTC and the zone's offset from then on.

    The result covers the days from ``first`` to ``last`` and the days around them.  Seconds are counted from midnight
    of the year 1, day 0, as everywhere in this module.  The first pair applies to all earlier times.

    >>> [(second // DAY - date(2023, 1, 1).toordinal(), ahead) for second, ahead in
    ...  clock_changes("Europe/Zurich", date(2023, 1, 1), date(2023, 12, 31))]
    [(-2, 3600), (84, 7200), (301, 3600)]
    """
    import zoneinfo

    where = zoneinfo.ZoneInfo(zone)
    origin = datetime(1, 1, 1, tzinfo=UTC)

    def ahead(second: int) -> int:
        offset = (origin + timedelta(seconds=second - DAY)).astimezone(where).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())

    start, stop = max(first.toordinal() - 2, 2) * DAY, (last.toordinal() + 2) * DAY
    changes = [(start, ahead(start))]
    for second in range(start, stop, DAY // 2):
        low, high = second, second + DAY // 2
        if ahead(low) == ahead(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ahead(middle) == ahead(low) else (low, middle)
        changes.append((high, ahead(high)))
    return tuple(changes)
