"""Raw columns in the form of a domain: without codes for missing values, and with dates of any format in ISO 8601."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sfumato.domain import Attribute, Categorical, Date, Timestamp
from sfumato.domain.raw_values import EXCEL_DAYS, MONTHS, DateFormat, DatePart
from sfumato.engine.dialect import MOMENTS, Dialect, canonical_text, number
from sfumato.engine.port import Column, ColumnKind

_TO_MARCH = 10  # months from March to the end of the year
_DAYS_OF_4_YEARS = 1461


def cleaned_relation(
    dialect: Dialect, attributes: Sequence[Attribute], columns: Mapping[str, Column], relation: str
) -> tuple[str, dict[str, Column]]:
    """Return a relation with the columns of a table, and with cleaned copies of columns that need it.

    Args:
        dialect: the dialect of the engine.
        attributes: the attributes of a domain.
        columns: the columns of the table.
        relation: the FROM clause.

    Returns:
        The new relation, and the column to read for each attribute.
    """
    read, copies = {}, []
    for place, attribute in enumerate(attributes):
        column = columns[attribute.name]
        cleaned = _cleaned(dialect, attribute, column)
        if cleaned is not None:
            name = f"sfumato_cleaned_{place}"
            copies.append(f"{cleaned[0]} AS {name}")
            column = replace(cleaned[1], name=name)
        read[attribute.name] = column
    if not copies:
        return relation, read
    return f"(SELECT source_rows.*, {', '.join(copies)} FROM {_named(relation)}) AS cleaned_rows", read


def _named(relation: str) -> str:
    """Return a FROM clause that gives a relation a new name."""
    return f"(SELECT * FROM {relation}) AS source_rows"


def _cleaned(dialect: Dialect, attribute: Attribute, column: Column) -> tuple[str, Column] | None:
    """Return a column with NULL for missing values, and dates in ISO 8601; None if it is read unchanged."""
    value = dialect.name(column.name)
    formatted = isinstance(attribute, Date | Timestamp) and attribute.formats and column.kind not in _DATES
    if not attribute.missing and not formatted:
        return None
    whens = [f"WHEN {condition} THEN NULL" for condition in _missing(dialect, attribute, column)]
    if not formatted:
        return (f"CASE {' '.join(whens)} ELSE {value} END", column) if whens else None
    assert isinstance(attribute, Date | Timestamp)
    text = canonical_text(dialect, column)
    for written in map(DateFormat, attribute.formats):
        clock = isinstance(attribute, Timestamp)
        if written.is_serial:
            serial = number(dialect, column)
            known = f"{serial} >= {EXCEL_DAYS[0]} AND {serial} < {EXCEL_DAYS[1] + 1}"
            whens.append(f"WHEN {known} THEN {_iso_of_serial(dialect, serial, clock=clock)}")
        else:
            iso = _iso(dialect, text, written, clock=clock)
            whens.append(f"WHEN {dialect.matches(text, written.pattern)} THEN {iso}")
    whens.append(f"WHEN {dialect.matches(text, MOMENTS)} THEN {text}")
    return f"CASE {' '.join(whens)} END", Column(column.name, ColumnKind.TEXT, "TEXT")


_DATES = (ColumnKind.DATE, ColumnKind.TIMESTAMP)


def _missing(dialect: Dialect, attribute: Attribute, column: Column) -> list[str]:
    """Return conditions that hold for the codes of missing values."""
    codes, conditions = attribute.missing, []
    numeric = not isinstance(attribute, Categorical | Date | Timestamp)
    numbers = [code for code in codes if not isinstance(code, str)]
    if numeric and numbers:
        listed = ", ".join(_double(code) for code in numbers)
        conditions.append(f"{number(dialect, column)} IN ({listed})")
    texts = [str(code) for code in codes if isinstance(code, str) or not numeric]
    if column.kind is ColumnKind.REAL and numeric:
        conditions += _infinite(dialect, column, texts)
    elif column.kind is ColumnKind.TIMESTAMP:
        conditions += _equal(dialect, dialect.timestamp(column), texts)
    elif column.kind is not ColumnKind.BOOLEAN and not (numeric and column.kind is ColumnKind.INTEGER):
        text = canonical_text(dialect, column)
        conditions += _equal(dialect, text, texts)
        if "" in texts:
            conditions.append(dialect.matches(text, "[ \t]*"))
    return conditions


def _double(code: float) -> str:
    text = repr(float(code))
    return text if "e" in text else f"{text}e0"


def _equal(dialect: Dialect, text: str, codes: Sequence[str]) -> list[str]:
    return [f"{text} IN ({', '.join(map(dialect.string, codes))})"] if codes else []


def _infinite(dialect: Dialect, column: Column, codes: Sequence[str]) -> list[str]:
    """Return the conditions for infinite numbers, which text codes such as ``-Inf`` name."""
    value, signs = number(dialect, column), {code.casefold().lstrip("+")[:4] for code in codes}
    above = [f"{value} > 1.7976931348623157e308"] if "inf" in {sign[:3] for sign in signs} else []
    return above + ([f"{value} < -1.7976931348623157e308"] if "-inf" in signs else [])


def _iso(dialect: Dialect, text: str, written: DateFormat, *, clock: bool) -> str:
    """Return the text of ISO 8601 for a text that matches a format.

    The positions of the parts depend on the lengths of the parts before them, so this is a tree of CASE.
    """

    def tree(parts: Sequence[tuple[str, DatePart | None]], start: int, places: Mapping[str, tuple[int, int]]) -> str:
        if not parts:
            return _joined(dialect, text, places, clock=clock)
        (name, field), rest = parts[0], parts[1:]
        if field is None:
            return tree(rest, start + len(name), places)
        if name == "z":
            return tree(rest, start, {**places, name: (start, 0)})
        *shorter, longest = field.patterns
        whens = "".join(
            f"WHEN {_ends(dialect, text, start + width, rest, field)} THEN "
            f"{tree(rest, start + width, {**places, name: (start, width)})} "
            for width in shorter
        )
        other = tree(rest, start + longest, {**places, name: (start, longest)})
        return f"CASE {whens}ELSE {other} END" if whens else other

    return tree(written.parts, 1, {})


def _ends(dialect: Dialect, text: str, start: int, rest: Sequence[tuple[str, DatePart | None]], field: DatePart) -> str:
    """Return the condition that a part of a text ends before a position."""
    if not rest:
        return f"CHAR_LENGTH({text}) < {start}"
    mark = f"SUBSTRING({text}, {start}, 1)"
    following, next_field = rest[0]
    if next_field is None:
        return f"{mark} = {dialect.string(following[0])}"
    return dialect.matches(mark, "[^0-9]" if field.digits else "[^A-Za-z]")


def _joined(dialect: Dialect, text: str, places: Mapping[str, tuple[int, int]], *, clock: bool) -> str:
    """Return the text of ISO 8601 from the positions of its parts."""

    def part(name: str, otherwise: str) -> str:
        if name not in places:
            return dialect.string(otherwise)
        start, width = places[name]
        written = f"SUBSTRING({text}, {start}, {width})"
        return written if width != 1 else f"CONCAT('0', {written})"

    year = part("Y", "")
    if "y" in places:
        short = part("y", "")
        of_1900s = f"SUBSTRING({short}, 1, 1) IN ('7', '8', '9') OR {short} = '69'"
        year = f"CASE WHEN {of_1900s} THEN CONCAT('19', {short}) ELSE CONCAT('20', {short}) END"
    month = part("m", "01")
    if word := {"b", "B"} & places.keys():
        start, _ = places[word.pop()]
        branches = " ".join(f"WHEN '{each[:3].upper()}' THEN '{place:02}'" for place, each in enumerate(MONTHS, 1))
        month = f"CASE UPPER(SUBSTRING({text}, {start}, 3)) {branches} END"
    listed = [year, "'-'", month, "'-'", part("d", "01")]
    if clock and places.keys() & {"H", "I"}:
        hour = part("H", "") if "H" in places else _hour_of_day(part("I", ""), part("p", ""))
        listed += ["'T'", hour, "':'", part("M", "00"), "':'", part("S", "00")]
        listed += [f"SUBSTRING({text}, {places['z'][0]})"] if "z" in places else []
    return f"CONCAT({', '.join(listed)})"


def _hour_of_day(hour: str, half: str) -> str:
    """Return the hour from 00 to 23 as text, from an hour of 01 to 12 and AM or PM."""
    branches = " ".join(f"WHEN '{each:02}' THEN '{each + 12}'" for each in range(1, 12))
    afternoon = f"CASE {hour} {branches} ELSE '12' END"
    return f"CASE WHEN UPPER({half}) = 'PM' THEN {afternoon} WHEN {hour} = '12' THEN '00' ELSE {hour} END"


def _iso_of_serial(dialect: Dialect, serial: str, *, clock: bool) -> str:
    """Return the text of ISO 8601 for a number of days of a spreadsheet.

    Every fourth year is a leap year from 1900-03-01 to 2100-02-28, and years are counted from March on.
    """
    days = f"(FLOOR({serial}) - {EXCEL_DAYS[0]})"
    years = f"FLOOR((4 * {days} + 3) / {_DAYS_OF_4_YEARS}e0)"
    day_of_year = f"({days} - FLOOR({_DAYS_OF_4_YEARS} * {years} / 4e0))"
    months = f"FLOOR((5 * {day_of_year} + 2) / 153e0)"
    later = f"CASE WHEN {months} >= {_TO_MARCH} THEN 1 ELSE 0 END"

    def two_digits(value: str) -> str:
        return f"SUBSTRING({dialect.text(dialect.integer(f'100 + {value}'))}, 2, 2)"

    year = dialect.text(dialect.integer(f"1900 + {years} + {later}"))
    month = two_digits(f"{months} + 3 - 12 * ({later})")
    day = two_digits(f"{day_of_year} - FLOOR((153 * {months} + 2) / 5e0) + 1")
    listed = [year, "'-'", month, "'-'", day]
    if clock:
        minutes = f"FLOOR(({serial} - FLOOR({serial})) * 1440 + 1e-6)"
        hours = f"FLOOR({minutes} / 60e0)"
        listed += ["'T'", two_digits(hours), "':'", two_digits(f"{minutes} - 60 * {hours}")]
    return f"CONCAT({', '.join(listed)})"
