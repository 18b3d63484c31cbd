"""From dates and time stamps to codes, as SQL: whole numbers and one pattern, so that no engine's calendar is asked.

Engines read dates in ways of their own (``2023-2-30``, ``infinity``, the year 0), know other time zones, and print the
same moment differently.  Here a date is a text of ISO 8601, as every engine prints its own dates; a pattern says
which days there are, and arithmetic which cell they are in.

- A date is ``2023-03-01``, also with the time of a clock behind it, which is left out.
- A time stamp is ``2023-03-01 08:15``, with seconds and their parts or without, ``T`` or a blank between, or the
  date alone for its midnight.  With ``Z`` or ``+01:00`` behind it, or in a column of moments, it is a moment, and the
  attribute's zone says what clocks showed; without, it is what a clock showed.
- Anything else is no date, and an unknown value.
"""

from __future__ import annotations

from sfumato.domain import Date, Dated, Grain
from sfumato.domain.calendar import DAY, HOUR, clock_changes
from sfumato.engine.dialect import Dialect
from sfumato.engine.port import Column, ColumnKind

Named = tuple[str, str]  # an expression, and the column that it becomes

_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
DAYS = "([0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|" + _LEAP + ")"
"""The days of the Gregorian calendar, as ISO 8601 writes them."""
CLOCK = "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?)"
_AHEAD = "[+-]([01][0-9]|2[0-3])(:?[0-5][0-9](:[0-5][0-9])?)?"
MOMENTS = f"{DAYS}({CLOCK}(Z|{_AHEAD})?)?"
"""Time stamps."""


def read(dialect: Dialect, column: Column, attribute: Dated, place: int) -> list[Named]:
    """What is read off a raw column: ``p``, the day packed in order; of time stamps ``t``, its seconds, and ``o``, by
    how many of them the clock is ahead of UTC; all NULL where there is no such date.
    """
    number = _day(dialect, column, attribute)
    if number is not None:
        return [(number, f"n{place}")]
    text = dialect.timestamp(column) if column.kind is ColumnKind.TIMESTAMP else dialect.text(dialect.name(column.name))
    if isinstance(attribute, Date):
        known = dialect.matches(text, f"{DAYS}{CLOCK}?")
        return [(f"CASE WHEN {known} THEN {_packed(dialect, text)} END", f"p{place}")]
    known = dialect.matches(text, MOMENTS)
    return [
        (f"CASE WHEN {known} THEN {_packed(dialect, text)} END", f"p{place}"),
        (f"CASE WHEN {known} THEN {_seconds(dialect, text)} END", f"t{place}"),
        (f"CASE WHEN {known} THEN {_ahead(dialect, text)} END", f"o{place}"),
    ]


def _day(dialect: Dialect, column: Column, attribute: Dated) -> str | None:
    """The number of the day where the engine tells it of a date as it is, and nothing else is asked of it."""
    if not isinstance(attribute, Date) or attribute.by not in (Grain.DAY, Grain.WEEK):
        return None
    return dialect.day(column) if column.kind is ColumnKind.DATE else None


def numbered(dialect: Dialect, column: Column, attribute: Dated, place: int) -> list[list[Named]]:
    """What is computed of it, step by step: at last ``n``, the day or the second of the zone's clock."""
    if _day(dialect, column, attribute) is not None:
        return [[], []]
    days = _days(f"p{place}")
    if isinstance(attribute, Date):
        return [[(dialect.integer(days), f"n{place}")], []]
    moment = f"({days}) * {DAY} + t{place} - COALESCE(o{place}, 0)"
    changes = clock_changes(attribute.zone, attribute.first, attribute.last)
    clock = _stepwise(f"s{place}", [second for second, _ in changes], [ahead for _, ahead in changes])
    return [
        [(dialect.integer(moment), f"s{place}")],
        [(f"s{place} + CASE WHEN o{place} IS NULL THEN 0 ELSE {clock} END", f"n{place}")],
    ]


def bounds(attribute: Dated) -> tuple[int, int]:
    """First and last number of the declared cells, as :func:`numbered` has them."""
    return attribute.span(0)[0], attribute.span(attribute.declared - 1)[1] - 1


def cell(dialect: Dialect, attribute: Dated, place: int) -> str:
    """The code of what is within :func:`bounds`."""
    by, (first, _) = attribute.by, attribute.periods
    value, unit = f"n{place}", 1 if isinstance(attribute, Date) else DAY
    match by:
        case Grain.HOUR:
            period = dialect.integer(f"FLOOR({value} / {HOUR}e0)")
        case Grain.DAY:
            period = value if unit == 1 else dialect.integer(f"FLOOR({value} / {unit}e0)")
        case Grain.WEEK:
            period = dialect.integer(f"FLOOR(({value} - {unit}) / {7 * unit}e0)")  # day 1 is a Monday
        case _ if isinstance(attribute, Date):
            months = {Grain.MONTH: 1, Grain.QUARTER: 3, Grain.YEAR: 12}[by]  # packed from March on
            period = dialect.integer(f"FLOOR((p{place} + 64) / {32 * months}e0)")
        case _:
            starts = [attribute.span(code)[0] for code in range(attribute.declared)]
            return _stepwise(value, starts, list(range(attribute.declared)))
    return f"{period} - {first}"


def _packed(dialect: Dialect, text: str) -> str:
    """Year, month and day as one number: 32 for a month, so that the next steps divide it without remainder."""
    year, month, day = (dialect.integer(f"SUBSTRING({text}, {start}, {length})") for start, length in _PLACES)
    return f"{year} * 384 + {month} * 32 + {day} - 96"


_PLACES = ((1, 4), (6, 2), (9, 2))


def _days(packed: str) -> str:
    """The day as Python counts days.  Years and months are counted from March on, so that leap days come last."""

    def whole(divisor: int) -> str:
        return f"FLOOR({packed} / {divisor}e0)"

    months = f"({whole(32)} - 12 * {whole(384)})"
    return (
        f"365 * {whole(384)} + {whole(4 * 384)} - {whole(100 * 384)} + {whole(400 * 384)} "
        f"+ FLOOR((153 * {months} + 2) / 5e0) + {packed} - 32 * {whole(32)} - 306"
    )


def _seconds(dialect: Dialect, text: str) -> str:
    """Seconds since midnight; a date alone is its midnight."""
    hour, minute, second = (dialect.integer(f"SUBSTRING({text}, {start}, 2)") for start in (12, 15, 18))
    seconds = f"CASE WHEN SUBSTRING({text}, 17, 1) = ':' THEN {second} ELSE 0 END"
    return f"CASE WHEN CHAR_LENGTH({text}) > 10 THEN {hour} * {HOUR} + {minute} * 60 + {seconds} ELSE 0 END"


def _ahead(dialect: Dialect, text: str) -> str:
    """By how many seconds the clock is ahead of UTC; NULL where that is not said."""
    found = [f"WHEN {dialect.matches(text, '.*Z')} THEN 0"]
    for written, places in (("+00:00:00", (2, 5, 8)), ("+00:00", (2, 5)), ("+0000", (2, 4)), ("+00", (2,))):
        mark, form = f"RIGHT({text}, {len(written)})", written.replace("+", "[+-]").replace("00", "[0-9]{2}")
        numbers = [dialect.integer(f"SUBSTRING({mark}, {start}, 2)") for start in places]
        total = " + ".join(f"{number} * {unit}" for number, unit in zip(numbers, (HOUR, 60, 1), strict=False))
        sign = f"CASE WHEN SUBSTRING({mark}, 1, 1) = '-' THEN -1 ELSE 1 END"
        found.append(f"WHEN {dialect.matches(text, f'.*:[0-9]{{2}}([.][0-9]{{1,9}})?{form}')} THEN ({total}) * {sign}")
    return f"CASE {' '.join(found)} END"


def _stepwise(value: str, starts: list[int], found: list[int]) -> str:
    """What belongs to the last of ``starts`` that is at most ``value``, as a balanced tree of CASE.

    >>> _stepwise("v", [0, 10, 20], [7, 8, 9])
    'CASE WHEN v < 10 THEN 7 ELSE CASE WHEN v < 20 THEN 8 ELSE 9 END END'
    """

    def tree(first: int, last: int) -> str:
        if first == last:
            return str(found[first])
        middle = (first + last + 1) // 2
        return f"CASE WHEN {value} < {starts[middle]} THEN {tree(first, middle - 1)} ELSE {tree(middle, last)} END"

    return tree(0, len(starts) - 1)
