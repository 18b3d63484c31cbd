"""What the SQL of an engine calls things: the only place where engines may spell the same thing differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sfumato.engine.port import Column, ColumnKind


def numeral(decimal: str, thousands: str) -> str:
    """The pattern of numbers that every engine reads as the same finite double: no words, nothing near overflow.

    >>> import re
    >>> bool(re.fullmatch(numeral(",", "."), "1.234,5")), bool(re.fullmatch(numeral(".", ""), " 39"))
    (True, False)
    """
    whole, point = "[0-9]{1,200}", f"[{decimal}]"
    if thousands:
        whole = f"[0-9]{{1,3}}([{thousands}][0-9]{{3}}){{1,60}}|{whole}"
    plain = f"({whole})({point}[0-9]{{0,200}})?|{point}[0-9]{{1,200}}"
    scientific = f"([0-9]{{1,8}}({point}[0-9]{{0,20}})?|{point}[0-9]{{1,20}})[eE][+-]?[0-2]?[0-9]{{1,2}}"
    return f"[+-]?({plain}|{scientific})"


NUMBER = numeral(".", "")
LONGEST_ID = 256
"""Characters of an id, at most: a longer one goes by its digest, as not all engines compare long texts whole."""


class Dialect(Protocol):
    """How one engine writes identifiers, literals and the few functions that an encoding needs."""

    @property
    def whole_ids(self) -> frozenset[str]:
        """Types of columns whose values it looks up and adds up as they are, rather than as text."""
        ...

    def day(self, column: Column) -> str | None:
        """A column of dates as numbers of days, as Python counts them, NULL where there is none within years of four
        digits; None where the engine's dates are read as text.
        """
        ...

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """How many values an integer column has, all of which are within bounds; None where it counts them as any."""
        ...

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Something to shuffle rows of ``columns`` by, another for another salt; not for privacy."""
        ...

    def kept(self, relation: str, condition: str) -> str:
        """What stands after FROM for the rows of a relation that meet a condition on columns computed there."""
        ...

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        ...

    def string(self, value: str) -> str:
        """A text literal."""
        ...

    def text(self, expression: str) -> str:
        """The expression as text, compared byte by byte: no collation, no padding."""
        ...

    def telling(self, column: Column) -> str:
        """A column as text that differs wherever its values do, in the engine's own spelling."""
        ...

    def exact(self, column: Column) -> str:
        """A column of any type as text that differs if its values do, in whatever spelling is cheap."""
        ...

    def timestamp(self, column: Column) -> str:
        """A column of time stamps as text of ISO 8601; with its distance to UTC where it holds moments."""
        ...

    def computed_once(self, select: str) -> str:
        """A subquery that the engine does not write into each place where a column of it is named."""
        ...

    def double(self, expression: str) -> str:
        """The expression as a 64-bit float, correctly rounded."""
        ...

    def decimal(self, name: str) -> str:
        """A decimal column as a double, by way of text, as engines convert it directly with an error.

        A number beyond all doubles is infinite.  A number that is too small for a double is 0.
        """
        ...

    def integer(self, expression: str) -> str:
        """A whole double, or any integer, as a signed 64-bit integer."""
        ...

    def code(self, expression: str, cells: int) -> str:
        """The expression in the smallest type that holds ``0 .. cells - 1``."""
        ...

    def matches(self, expression: str, pattern: str) -> str:
        """Whether the whole text matches a regular expression."""
        ...

    def is_nan(self, expression: str) -> str:
        """Whether a double is not a number."""
        ...

    def digest(self, expression: str) -> str:
        """MD5 of a text in lower-case hexadecimal digits; SHA-256 where the engine has no MD5."""
        ...

    def sha256(self, expression: str) -> str:
        """SHA-256 of a text in lower-case hexadecimal digits."""
        ...

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from a digest."""
        ...

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """The code of a text, or NULL."""
        ...


def number(dialect: Dialect, column: Column) -> str:
    """A column as a double; NULL where it is missing or not a number."""
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
    """A column of text whose numbers are written without thousands and with a decimal point."""
    text = dialect.text(dialect.name(column.name))
    if column.thousands:
        text = f"REPLACE({text}, {dialect.string(column.thousands)}, '')"
    return text if column.decimal == "." else f"REPLACE({text}, {dialect.string(column.decimal)}, '.')"


def missing(dialect: Dialect, column: Column) -> str:
    """Whether a column is NULL or, for real numbers, NaN."""
    name = dialect.name(column.name)
    if column.kind is ColumnKind.REAL:
        return f"({name} IS NULL OR {dialect.is_nan(as_double(dialect, column))})"
    return f"({name} IS NULL)"


def identity(dialect: Dialect, column: Column) -> str:
    """An id of a unit as a text that only equal ids share, of at most ``LONGEST_ID`` characters.

    What is longer becomes its SHA-256, filled up to that length, which no other id has.
    """
    text = dialect.telling(column)
    digest = dialect.text(f"RPAD({dialect.sha256(text)}, {LONGEST_ID}, '-')")
    return f"CASE WHEN CHAR_LENGTH({text}) < {LONGEST_ID} THEN {text} ELSE {digest} END"


def canonical_text(dialect: Dialect, column: Column) -> str:
    """A column as text in one spelling on every engine; whole reals are spelled as integers, others are NULL."""
    if column.kind is not ColumnKind.REAL:
        return dialect.text(dialect.name(column.name))
    value = number(dialect, column)
    whole = f"ABS({value}) < 9007199254740992 AND FLOOR({value}) = {value}"
    return f"CASE WHEN {whole} THEN {dialect.text(dialect.integer(value))} END"


def as_double(dialect: Dialect, column: Column) -> str:
    """Return a real column as a double, infinite or 0 if its number is beyond the range of doubles."""
    name = dialect.name(column.name)
    decimal = column.type.upper().startswith(("DECIMAL", "NUMERIC"))
    return dialect.decimal(name) if decimal else dialect.double(name)


def smallest_bits(cells: int) -> int:
    """Bits of the smallest integer that holds ``0 .. cells - 1``: unsigned of 8, 16 or 32, else signed of 64."""
    return next((bits for bits in (8, 16, 32) if cells <= 1 << bits), 64)
