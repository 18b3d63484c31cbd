"""The SQL of an engine: its names and functions, and the conversion of dates to codes by integers and one pattern.

Only this module may differ between engines in SQL notation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sfumato.domain import Date, Dated, Grain
from sfumato.domain.calendar import DAY, HOUR, clock_changes
from sfumato.engine.port import Column, ColumnKind


def numeral(decimal: str, thousands: str) -> str:
    """Return a pattern of numbers that every engine reads as the same finite double: no words, nothing near overflow.

    >>> import re
    >>> bool(re.fullmatch(numeral(",", "."), "1.234,5")), bool(re.fullmatch(numeral(".", ""), " 39"))
    (True, False)
    """
    digits, point = "[0-9]{1,200}", f"[{decimal}]"
    if thousands:
        digits = f"[0-9]{{1,3}}([{thousands}][0-9]{{3}}){{1,60}}|{digits}"
    plain = f"({digits})({point}[0-9]{{0,200}})?|{point}[0-9]{{1,200}}"
    scientific = f"([0-9]{{1,8}}({point}[0-9]{{0,20}})?|{point}[0-9]{{1,20}})[eE][+-]?[0-2]?[0-9]{{1,2}}"
    return f"[+-]?({plain}|{scientific})"


NUMBER = numeral(".", "")
LONGEST_ID = 256
"""Characters of an id, at most: a longer one goes by its digest, as not all engines compare long texts whole."""


class Dialect(Protocol):
    """The SQL of one engine: identifiers, literals and the few functions that an encoding needs."""

    @property
    def whole_ids(self) -> frozenset[str]:
        """Types of columns whose values the engine looks up and adds up unchanged, rather than as text."""
        ...

    def day(self, column: Column) -> str | None:
        """Return a column of dates as numbers of days, in Python's numbering.

        NULL means no date within years of four digits.  The result is None if the engine's dates are read as text.
        """
        ...

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Return the number of values of a bounded integer column; None if the engine has no faster way."""
        ...

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Return a shuffle key for rows of ``columns``, which depends on the salt; not for privacy."""
        ...

    def filtered(self, relation: str, condition: str) -> str:
        """Return the FROM clause for the rows of a relation that meet a condition on columns computed there."""
        ...

    def name(self, identifier: str) -> str:
        """Return a quoted identifier."""
        ...

    def string(self, value: str) -> str:
        """Return a text literal."""
        ...

    def text(self, expression: str) -> str:
        """Return the expression as text, compared byte by byte: no collation, no padding."""
        ...

    def telling(self, column: Column) -> str:
        """Return a column as text that differs if its values do, in the engine's own notation."""
        ...

    def exact(self, column: Column) -> str:
        """Return a column of any type as text that differs if its values do, in any fast notation."""
        ...

    def timestamp(self, column: Column) -> str:
        """Return a column of time stamps as text of ISO 8601; with its UTC offset if it holds moments."""
        ...

    def computed_once(self, select: str) -> str:
        """Return a subquery that the engine does not copy to each use of its columns."""
        ...

    def double(self, expression: str) -> str:
        """Return the expression as a 64-bit float, correctly rounded."""
        ...

    def decimal(self, name: str) -> str:
        """Return a decimal column as a double, by way of text, because engines convert it directly with an error.

        A number beyond all doubles is infinite.  A number that is too small for a double is 0.
        """
        ...

    def integer(self, expression: str) -> str:
        """Return a whole double, or any integer, as a signed 64-bit integer."""
        ...

    def code(self, expression: str, cells: int) -> str:
        """Return the expression in the smallest type that holds ``0 .. cells - 1``."""
        ...

    def matches(self, expression: str, pattern: str) -> str:
        """Return whether the whole text matches a regular expression."""
        ...

    def is_nan(self, expression: str) -> str:
        """Return whether a double is not a number."""
        ...

    def digest(self, expression: str) -> str:
        """Return the MD5 of a text in lower-case hexadecimal digits; SHA-256 if the engine has no MD5."""
        ...

    def sha256(self, expression: str) -> str:
        """Return the SHA-256 of a text in lower-case hexadecimal digits."""
        ...

    def words(self, digest: str) -> tuple[str, str]:
        """Return two integers of 60 bits from a digest."""
        ...

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """Return the code of a text, or NULL."""
        ...


def number(dialect: Dialect, column: Column) -> str:
    """Return a column as a double; NULL if it is missing or not a number."""
    name = dialect.name(column.name)
    match column.kind:
        case ColumnKind.TEXT:
            text = dialect.text(name)
            known = dialect.matches(text, numeral(column.decimal, column.thousands))
            return f"CASE WHEN {known} THEN {dialect.double(plain(dialect, column))} END"
        case ColumnKind.REAL:
            value = as_double(dialect, column)
            return f"CASE WHEN NOT {dialect.is_nan(value)} THEN {value} END"
        case _:
            return dialect.double(name)


def plain(dialect: Dialect, column: Column) -> str:
    """Return a column of text with its numbers written without thousands separators and with a decimal point."""
    text = dialect.text(dialect.name(column.name))
    if column.thousands:
        text = f"REPLACE({text}, {dialect.string(column.thousands)}, '')"
    return text if column.decimal == "." else f"REPLACE({text}, {dialect.string(column.decimal)}, '.')"


def missing(dialect: Dialect, column: Column) -> str:
    """Return whether a column is NULL or, for real numbers, NaN."""
    name = dialect.name(column.name)
    if column.kind is ColumnKind.REAL:
        return f"({name} IS NULL OR {dialect.is_nan(as_double(dialect, column))})"
    return f"({name} IS NULL)"


def identity(dialect: Dialect, column: Column) -> str:
    """Return an id of a unit as a text that only equal ids share, of at most ``LONGEST_ID`` characters.

    A longer id becomes its SHA-256, filled up to that length, which no other id has.
    """
    text = dialect.telling(column)
    digest = dialect.text(f"RPAD({dialect.sha256(text)}, {LONGEST_ID}, '-')")
    return f"CASE WHEN CHAR_LENGTH({text}) < {LONGEST_ID} THEN {text} ELSE {digest} END"


def canonical_text(dialect: Dialect, column: Column) -> str:
    """Return a column as text, the same on every engine; integral reals are written as integers, others are NULL."""
    if column.kind is not ColumnKind.REAL:
        return dialect.text(dialect.name(column.name))
    value = number(dialect, column)
    is_integer = f"ABS({value}) < 9007199254740992 AND FLOOR({value}) = {value}"
    return f"CASE WHEN {is_integer} THEN {dialect.text(dialect.integer(value))} END"


def as_double(dialect: Dialect, column: Column) -> str:
    """Return a real column as a double, infinite or 0 if its number is beyond the range of doubles."""
    name = dialect.name(column.name)
    decimal = column.type.upper().startswith(("DECIMAL", "NUMERIC"))
    return dialect.decimal(name) if decimal else dialect.double(name)


def smallest_bits(cells: int) -> int:
    """Return the bits of the smallest integer for ``0 .. cells - 1``: unsigned of 8, 16 or 32, else signed of 64."""
    return next((bits for bits in (8, 16, 32) if cells <= 1 << bits), 64)


Named = tuple[str, str]  # an expression, and the column that it becomes


# --- dates ------------------------------------------------------------------------------------------------------------
#
# No engine's calendar is used: engines read dates differently (``2023-2-30``, ``infinity``, the year 0), know
# different time zones, and print one moment differently.  A date is a text of ISO 8601.  A pattern defines the valid
# days, and arithmetic defines their cells.
#
# - A date is ``2023-03-01``; a clock time after it is ignored.
# - A time stamp is ``2023-03-01 08:15``, with or without seconds and their parts, ``T`` or a blank between, or the date
#   alone for its midnight.  With ``Z`` or ``+01:00`` after it, or in a column of moments, it is a moment, and the
#   attribute's zone determines the clock time.  Otherwise it is a clock time.
# - Anything else is no date, and an undeclared value.

_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
DAYS = "([0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|" + _LEAP + ")"
"""The days of the Gregorian calendar, as ISO 8601 writes them."""
CLOCK = "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?)"
_AHEAD = "[+-]([01][0-9]|2[0-3])(:?[0-5][0-9](:[0-5][0-9])?)?"
MOMENTS = f"{DAYS}({CLOCK}(Z|{_AHEAD})?)?"
"""Time stamps."""


def read_date(dialect: Dialect, column: Column, attribute: Dated, place: int) -> list[Named]:
    """Return the columns that are computed from a raw column of dates.

    They are ``p``, the day packed in order, and for time stamps ``t``, its seconds, and ``o``, the UTC offset of the
    clock in seconds.  All are NULL if there is no such date.
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
    """Return the number of the day if the engine computes it from the date, and nothing else is needed."""
    if not isinstance(attribute, Date) or attribute.by not in (Grain.DAY, Grain.WEEK):
        return None
    return dialect.day(column) if column.kind is ColumnKind.DATE else None


def numbered_dates(dialect: Dialect, column: Column, attribute: Dated, place: int) -> list[list[Named]]:
    """Return the columns that follow in steps, at last ``n``, the day or the second of the zone's clock."""
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


def date_bounds(attribute: Dated) -> tuple[int, int]:
    """Return the first and last number of the declared cells, in the numbers of :func:`numbered_dates`."""
    return attribute.span(0)[0], attribute.span(attribute.declared - 1)[1] - 1


def date_cell(dialect: Dialect, attribute: Dated, place: int) -> str:
    """Return the code of a number within :func:`date_bounds`."""
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
    """Return year, month and day as one number: 32 for a month, so that the next steps divide it without remainder."""
    year, month, day = (dialect.integer(f"SUBSTRING({text}, {start}, {length})") for start, length in _PLACES)
    return f"{year} * 384 + {month} * 32 + {day} - 96"


_PLACES = ((1, 4), (6, 2), (9, 2))


def _days(packed: str) -> str:
    """Return the day in Python's numbering.  Years and months start in March, so that leap days come last."""

    def quotient(divisor: int) -> str:
        return f"FLOOR({packed} / {divisor}e0)"

    months = f"({quotient(32)} - 12 * {quotient(384)})"
    return (
        f"365 * {quotient(384)} + {quotient(4 * 384)} - {quotient(100 * 384)} + {quotient(400 * 384)} "
        f"+ FLOOR((153 * {months} + 2) / 5e0) + {packed} - 32 * {quotient(32)} - 306"
    )


def _seconds(dialect: Dialect, text: str) -> str:
    """Return the seconds since midnight; a date without time is its midnight."""
    hour, minute, second = (dialect.integer(f"SUBSTRING({text}, {start}, 2)") for start in (12, 15, 18))
    seconds = f"CASE WHEN SUBSTRING({text}, 17, 1) = ':' THEN {second} ELSE 0 END"
    return f"CASE WHEN CHAR_LENGTH({text}) > 10 THEN {hour} * {HOUR} + {minute} * 60 + {seconds} ELSE 0 END"


def _ahead(dialect: Dialect, text: str) -> str:
    """Return the clock's UTC offset in seconds; NULL if the text does not state them."""
    branches = [f"WHEN {dialect.matches(text, '.*Z')} THEN 0"]
    for written, places in (("+00:00:00", (2, 5, 8)), ("+00:00", (2, 5)), ("+0000", (2, 4)), ("+00", (2,))):
        mark, form = f"RIGHT({text}, {len(written)})", written.replace("+", "[+-]").replace("00", "[0-9]{2}")
        numbers = [dialect.integer(f"SUBSTRING({mark}, {start}, 2)") for start in places]
        total = " + ".join(f"{number} * {unit}" for number, unit in zip(numbers, (HOUR, 60, 1), strict=False))
        sign = f"CASE WHEN SUBSTRING({mark}, 1, 1) = '-' THEN -1 ELSE 1 END"
        ending = f".*:[0-9]{{2}}([.][0-9]{{1,9}})?{form}"
        branches.append(f"WHEN {dialect.matches(text, ending)} THEN ({total}) * {sign}")
    return f"CASE {' '.join(branches)} END"


def _stepwise(value: str, starts: list[int], values: list[int]) -> str:
    """Return the value of the last of ``starts`` that is at most ``value``, as a balanced tree of CASE.

    >>> _stepwise("v", [0, 10, 20], [7, 8, 9])
    'CASE WHEN v < 10 THEN 7 ELSE CASE WHEN v < 20 THEN 8 ELSE 9 END END'
    """

    def tree(first: int, last: int) -> str:
        if first == last:
            return str(values[first])
        middle = (first + last + 1) // 2
        return f"CASE WHEN {value} < {starts[middle]} THEN {tree(first, middle - 1)} ELSE {tree(middle, last)} END"

    return tree(0, len(starts) - 1)
