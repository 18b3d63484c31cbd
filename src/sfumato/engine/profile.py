"""Facts for a draft domain, only for the owner: kinds guessed from text, distinct values, extremes."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.domain.raw_values import Code, DateFormat, guess_formats, named_like_dates, swapped
from sfumato.engine.dialect import DAYS, MOMENTS, NUMBER, Dialect, number, numeral, plain
from sfumato.engine.port import TILES, Column, ColumnKind, DateProfile, Profile

_Query = Callable[[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class DeclaredKeys:
    """The keys of a table in the catalog of a database: its own key, and columns that hold keys of other tables."""

    key: str | None
    links: tuple[tuple[str, str], ...] = ()


_INTEGER = "-?(0|[1-9][0-9]{0,17})"  # leading zeros are a code, not a number
_WHOLE_REAL = "[+-]?(0|[1-9][0-9]{0,14})([.]0*)?"  # the form of whole numbers next to missing values in many programs
_CODE = "[+-]?0[0-9].*"
_DAYS_ONLY = f"{DAYS}([T ]00:00(:00([.]0{{1,9}})?)?)?"  # some programs write days as time stamps
_MOSTLY = 0.9  # smallest share of dates in a column of dates
_SAMPLE = 1000  # distinct texts to detect date formats and kinds
_SERIALS = (10_000, 73_109)  # days of spreadsheets from 1927 to 2100
_LEAST_DAYS = 10  # days that prove a column of dates without a matching name
_COMPACT = (19_000_101, 21_001_231)  # days as numbers of eight digits
_COUNTRIES = frozenset(("country", "countries", "iso", "iso2", "nation", "nationality", "land", "pais", "pays"))
_FIRST_ROWS = 200  # rows that rule out most kinds of a column
_REPEATED = 4  # from this average of rows per number, numbers are counted before they are sorted
_FEW_CODES = 10  # distinct texts in a column of numbers
_TRUE = "true|True|TRUE"
_BOOLEAN = f"{_TRUE}|false|False|FALSE"


@dataclass(frozen=True)
class Profiler:
    """A profiler of columns of ``relation``, which reads them with ``query``."""

    query: _Query
    dialect: Dialect
    relation: str

    def profile(self, column: Column, distinct_limit: int) -> Profile:
        """Profile one column without the codes for missing values."""
        codes: tuple[Code, ...] = self._text_codes(column)
        profile = self._without(column, codes).profile_values(column, distinct_limit)
        numbers = self._number_codes(column, profile)
        if numbers:
            profile = self._without(column, codes, numbers).profile_values(column, distinct_limit)
        return replace(profile, codes=(*numbers, *codes))

    def _without(self, column: Column, texts: Sequence[Code], numbers: Sequence[Code] = ()) -> Profiler:
        """Return a profiler of the column in which codes are NULL."""
        name = self.dialect.name(column.name)
        conditions = [self._among(column, texts)] if texts else []
        if numbers:
            conditions.append(f"{number(self.dialect, column)} IN ({', '.join(map(str, numbers))})")
        if not conditions:
            return self
        cleaned = f"CASE WHEN {' OR '.join(conditions)} THEN NULL ELSE {name} END"
        return replace(self, relation=f"(SELECT {cleaned} AS {name} FROM {self.relation}) AS cleaned_rows")

    def _among(self, column: Column, codes: Sequence[Code]) -> str:
        text = self.dialect.text(self.dialect.name(column.name))
        known = f"{text} IN ({', '.join(self.dialect.string(str(code)) for code in codes)})"
        if "" not in codes:
            return f"({known})"
        starts = " OR ".join(f"{text} LIKE {self.dialect.string(blank + '%')}" for blank in _BLANKS)
        return f"({known} OR (({starts}) AND {self.dialect.matches(text, _BLANK)}))"

    def _text_codes(self, column: Column) -> tuple[str, ...]:
        """Return the texts of a column that mean missing values, unless all of its values are such texts."""
        if column.kind is not ColumnKind.TEXT:
            return ()
        text = self.dialect.text(self.dialect.name(column.name))
        codes = f"SELECT {text} AS x FROM {self.relation} WHERE {self._among(column, TEXT_CODES)}"
        counts = Counter[str]()
        for code, times in self.query(f"SELECT x, COUNT(*) FROM ({codes}) AS listed GROUP BY x"):
            counts[code if code in TEXT_CODES else ""] += int(times)
        if not counts:
            return ()
        signs = f"COUNT(CASE WHEN {text} = '+' THEN 1 END)"
        ((held, positive),) = self.query(f"SELECT COUNT({text}), {signs} FROM {self.relation}")
        if counts.total() >= held:
            return ()
        namibia = counts["NA"] and self._has_countries(column)
        values = {"-"} if positive else set()
        values |= {"NA"} if namibia else set()
        return tuple(code for code in TEXT_CODES if counts[code] and code not in values)

    def _has_countries(self, column: Column) -> bool:
        """Return whether a column has country codes, which include NA for Namibia."""
        if _COUNTRIES.isdisjoint(re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", column.name.lower())):
            return False
        text = self.dialect.text(self.dialect.name(column.name))
        two = self.dialect.matches(text, "[A-Z]{2}")
        ((held, countries),) = self.query(
            f"SELECT COUNT({text}), COUNT(CASE WHEN {two} THEN 1 END) FROM {self.relation}"
        )
        return bool(held == countries)

    def _number_codes(self, column: Column, profile: Profile) -> tuple[int | float, ...]:
        """Return the numbers of a column that mean missing values."""
        if not (isinstance(profile.minimum, int | float) and isinstance(profile.maximum, int | float)):
            return ()
        if profile.column.kind is ColumnKind.BOOLEAN or not any(map(_is_code, (profile.minimum, profile.maximum))):
            return ()
        value = number(self.dialect, column)
        values = f"SELECT {value} AS x FROM {self.relation}"
        frequencies = f"SELECT x, COUNT(*) AS n FROM ({values}) AS found WHERE x IS NOT NULL GROUP BY x ORDER BY x"
        ends = [
            [(float(x), int(n)) for x, n in self.query(f"{frequencies} {order} LIMIT {_MOST_CODES + 2}")]
            for order in ("ASC", "DESC")
        ]
        return outlying_codes(*ends, rows=profile.held)

    def profile_values(self, column: Column, distinct_limit: int) -> Profile:
        """Profile one column with all of its values.

        A text column with whole numbers only is profiled as integers, and so on, because CSV has text only.  A real
        column with whole numbers only is profiled as integers.  Extremes are of finite values.
        """
        kind, value = self._read(column)
        finite = f"ABS({value}) <= 1.7976931348623157e308" if kind is ColumnKind.REAL else "1 = 1"
        ((rows, held, distinct, low, high),) = self.query(
            f"SELECT COUNT(*), COUNT({value}), COUNT(DISTINCT {value}), MIN(CASE WHEN {finite} THEN {value} END), "
            f"MAX(CASE WHEN {finite} THEN {value} END) FROM {self.relation}"
        )
        values, counts = self._values(value, kind) if distinct <= distinct_limit else (None, ())
        missing = rows - held
        low, high = _typed(low, kind), _typed(high, kind)
        profile = Profile(replace(column, kind=kind), held, distinct, missing, low, high, values, counts=counts)
        wide = isinstance(low, int | float) and isinstance(high, int | float) and high - low >= distinct_limit
        if kind in (ColumnKind.INTEGER, ColumnKind.TEXT) and may_name_people(column.name, held, distinct):
            profile = replace(profile, repeats=self._repeats(value))
        if kind in (ColumnKind.INTEGER, ColumnKind.REAL) and (dates := self._dates_in_numbers(column, profile)):
            return replace(profile, dates=dates)
        if kind is ColumnKind.REAL or (kind is ColumnKind.INTEGER and wide):
            tiles = self._tiles(value, kind, finite, repeated=_REPEATED * distinct < held)
            return replace(profile, tiles=tiles)
        if kind is ColumnKind.TEXT and column.kind is ColumnKind.TEXT and (dates := self._dates(column)) is not None:
            return replace(profile, dates=dates)
        if values is None and kind is ColumnKind.TEXT and column.kind is ColumnKind.TEXT:
            return replace(profile, numbers=self._numbers(column, missing), sample=tuple(self._distinct_texts(column)))
        return profile

    def _dates_in_numbers(self, column: Column, profile: Profile) -> DateProfile | None:
        """Return the dates of a column of numbers: serials of a spreadsheet, if its name suggests dates, or eight
        digits.

        Many different numbers of eight digits are dates under any name, because few such numbers are days.
        """
        low, high = profile.minimum, profile.maximum
        named = named_like_dates(column.name)
        if not (isinstance(low, int | float) and isinstance(high, int | float)):
            return None
        if not named and profile.distinct < _LEAST_DAYS:
            return None
        if named and _SERIALS[0] <= low and high <= _SERIALS[1]:
            kind = ColumnKind.DATE if profile.column.kind is ColumnKind.INTEGER else ColumnKind.TIMESTAMP
            return DateProfile(kind, 0, ("excel",))
        if _COMPACT[0] <= low and high <= _COMPACT[1] and profile.column.kind is ColumnKind.INTEGER:
            texts = self._distinct_texts(column)
            if all(DateFormat("%Y%m%d").read(text.partition(".")[0]) for text in texts):
                return DateProfile(ColumnKind.DATE, 0, ("%Y%m%d",))
        return None

    def _values(self, value: str, kind: ColumnKind) -> tuple[tuple[object, ...], tuple[int, ...]]:
        """Return the distinct values in order, and the rows of each."""
        inner = f"SELECT {value} AS x FROM {self.relation}"
        rows = self.query(f"SELECT x, COUNT(*) FROM ({inner}) AS listed WHERE x IS NOT NULL GROUP BY x ORDER BY x")
        return tuple(_typed(each, kind) for each, _ in rows), tuple(int(times) for _, times in rows)

    def _distinct_texts(self, column: Column) -> list[str]:
        text = self.dialect.text(self.dialect.name(column.name))
        distinct = f"SELECT DISTINCT {text} AS x FROM {self.relation}"
        return [x for (x,) in self.query(f"SELECT x FROM ({distinct}) AS found WHERE x IS NOT NULL LIMIT {_SAMPLE}")]

    def _dates(self, column: Column) -> DateProfile | None:
        """Return the dates of a text column that mostly holds them, in ISO 8601 or another format."""
        guessed = guess_formats(self._distinct_texts(column), _MOSTLY, MOMENTS)
        if guessed is None:
            return None
        formats = guessed.formats
        text = self.dialect.text(self.dialect.name(column.name))
        twins = [(each, other) for each in formats if (other := swapped(each))]
        tests = [
            self.dialect.matches(text, MOMENTS),
            self.dialect.matches(text, _DAYS_ONLY),
            " OR ".join(self.dialect.matches(text, DateFormat(each).pattern) for each in formats) or "1 = 0",
        ]
        for one, other in twins:  # days above 12 distinguish a day from a month
            only = [self.dialect.matches(text, DateFormat(each).pattern) for each in (one, other)]
            tests.append(f"{only[0]} AND NOT {only[1]}")
        counts = ", ".join(f"COUNT(CASE WHEN {test} THEN 1 END)" for test in tests)
        ((held, moments, days, written, *certain),) = self.query(f"SELECT COUNT({text}), {counts} FROM {self.relation}")
        if moments + written <= _MOSTLY * held:
            return None
        kind = ColumnKind.TIMESTAMP if guessed.has_time or days < moments else ColumnKind.DATE
        ambiguous = tuple(one for (one, _), times in zip(twins, certain, strict=True) if not times)
        return DateProfile(kind, max(held - moments - written, 0), formats, ambiguous)

    def _numbers(self, column: Column, missing: int) -> Profile | None:
        """Return the numbers of a text column that holds only a few distinct other texts."""
        text, value = self.dialect.text(self.dialect.name(column.name)), number(self.dialect, column)
        known = self.dialect.matches(text, numeral(column.decimal, column.thousands))
        condition = f"{known} AND NOT {self.dialect.matches(text, _CODE)}"
        ((held, others, distinct, low, high, fractions),) = self.query(
            f"SELECT COUNT({value}), COUNT(DISTINCT CASE WHEN NOT ({condition}) THEN {text} END), "
            f"COUNT(DISTINCT {value}), MIN({value}), MAX({value}), "
            f"COUNT(CASE WHEN NOT ({_is_integer(value)}) THEN 1 END) FROM {self.relation}"
        )
        if others > _FEW_CODES or not distinct:
            return None
        kind = ColumnKind.REAL if fractions else ColumnKind.INTEGER
        tiles = self._tiles(value, kind, "1 = 1", repeated=_REPEATED * distinct < held)
        low, high = _typed(low, kind), _typed(high, kind)
        return Profile(replace(column, kind=kind), held, distinct, missing, low, high, None, tiles=tiles)

    def _tiles(self, value: str, kind: ColumnKind, finite: str, *, repeated: bool) -> tuple[int | float, ...]:
        """Return the smallest number of each of TILES parts of equally many rows.

        If numbers are ``repeated``, the different ones are sorted with their rows, which are fewer than all rows.
        """
        values = f"SELECT {value} AS x FROM {self.relation} WHERE {value} IS NOT NULL AND {finite}"
        if repeated:
            starts = self._tile_starts(values)
        else:
            tiles = f"SELECT x, NTILE({TILES}) OVER (ORDER BY x) AS tile FROM ({values}) AS found"
            starts = [x for (x,) in self.query(f"SELECT MIN(x) FROM ({tiles}) AS tiled GROUP BY tile ORDER BY tile")]
        return tuple(int(least) if kind is ColumnKind.INTEGER else float(least) for least in starts)

    def _tile_starts(self, values: str) -> list[Any]:
        ((rows,),) = self.query(f"SELECT COUNT(*) FROM ({values}) AS found")
        size, longer = divmod(int(rows), TILES)
        starts = [tile * size + min(tile, longer) for tile in range(min(TILES, int(rows)))]
        upto = "SUM(n) OVER (ORDER BY x ROWS UNBOUNDED PRECEDING)"
        frequencies = f"SELECT x, COUNT(*) AS n FROM ({values}) AS found GROUP BY x"
        summed = f"SELECT x, n, {upto} AS upto FROM ({frequencies}) AS counted"
        begins = " OR ".join(f"(upto - n <= {start} AND upto > {start})" for start in starts)
        steps = self.query(f"SELECT x, n, upto FROM ({summed}) AS summed WHERE {begins} ORDER BY x")
        return [x for x, n, upto in steps for start in starts if upto - n <= start < upto]

    def _repeats(self, value: str) -> tuple[tuple[int, int], ...]:
        rows = f"SELECT COUNT(*) AS n FROM {self.relation} WHERE {value} IS NOT NULL GROUP BY {value}"
        repeats = self.query(f"SELECT n, COUNT(*) FROM ({rows}) AS rows_of GROUP BY n ORDER BY n")
        return tuple((int(each), int(values)) for each, values in repeats)

    def _read(self, column: Column) -> tuple[ColumnKind, str]:
        """Return the apparent kind of a column, and its values as that kind."""
        name = self.dialect.name(column.name)
        text = self.dialect.text(name)
        match column.kind:
            case ColumnKind.REAL:
                value = number(self.dialect, column)
                integer = self._first_reading(
                    {(ColumnKind.INTEGER, self.dialect.integer(value)): (value, _is_integer(value))}
                )
                return integer or (ColumnKind.REAL, value)
            case ColumnKind.BOOLEAN:
                return ColumnKind.BOOLEAN, _boolean(name, name)
            case ColumnKind.TIMESTAMP:
                return ColumnKind.TIMESTAMP, self.dialect.timestamp(column)
            case ColumnKind.TEXT:
                return self._first_reading(self._readings(column)) or (ColumnKind.TEXT, text)
            case _:
                return column.kind, name if column.kind is ColumnKind.INTEGER else text

    def _readings(self, column: Column) -> dict[tuple[ColumnKind, str], tuple[str, str]]:
        """Return the kinds that text may hold, the value as each, and the test for each."""
        name = self.dialect.name(column.name)
        text, value, plain_text = self.dialect.text(name), number(self.dialect, column), plain(self.dialect, column)
        known = f"{value} IS NOT NULL AND " if plain_text != text else ""

        def matches(pattern: str) -> str:
            return known + self.dialect.matches(plain_text, pattern)

        true, boolean = self.dialect.matches(text, _TRUE), self.dialect.matches(text, _BOOLEAN)
        return {
            (ColumnKind.INTEGER, self.dialect.integer(plain_text)): (text, matches(_INTEGER)),
            (ColumnKind.INTEGER, self.dialect.integer(value)): (text, matches(_WHOLE_REAL)),
            (ColumnKind.BOOLEAN, _boolean(true, name)): (text, boolean),
            (ColumnKind.REAL, value): (text, f"{matches(NUMBER)} AND NOT {self.dialect.matches(text, _CODE)}"),
            (ColumnKind.DATE, text): (text, self.dialect.matches(text, _DAYS_ONLY)),
            (ColumnKind.TIMESTAMP, text): (text, self.dialect.matches(text, MOMENTS)),
        }

    def _first_reading(
        self, readings: Mapping[tuple[ColumnKind, str], tuple[str, str]]
    ) -> tuple[ColumnKind, str] | None:
        """Return the first reading whose test holds for every present value; None if there is none.

        Readings that the first rows rule out are not tested on the others.
        """
        tests = {
            reading: f"MIN(CASE WHEN {value} IS NULL THEN NULL WHEN {test} THEN 1 ELSE 0 END)"
            for reading, (value, test) in readings.items()
        }
        some = f"(SELECT * FROM {self.relation} LIMIT {_FIRST_ROWS}) AS first_rows"
        (held,) = self.query(f"SELECT {', '.join(tests.values())} FROM {some}")
        for reading, first in zip(tests, held, strict=True):
            if first != 0 and self.query(f"SELECT {tests[reading]} FROM {self.relation}")[0][0] == 1:
                return reading
        return None


_TEXTS = 500


def distinct_statement(column: str, relation: str, dialect: Dialect, among: Sequence[str]) -> str:
    """Return a statement for at most 500 distinct values of a quoted column as text, or for the values in ``among``."""
    text = dialect.text(column)
    chosen = f" AND {text} IN ({', '.join(map(dialect.string, among))})" if among else ""
    distinct = f"SELECT DISTINCT {text} AS x FROM {relation} WHERE {column} IS NOT NULL{chosen}"
    return f"SELECT x FROM ({distinct}) AS found LIMIT {_TEXTS}"


TEXT_CODES = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "Inf", "-Inf", "inf", "-inf", "?", "-", ".")
"""Texts that stand for a missing value."""
_BLANK = "[ \t]*"
_BLANKS = (" ", "\t")
_MOST_CODES = 8
_LEAST_SHARE = 0.001  # smallest share of rows with a number that is a code


def _is_code(value: float) -> bool:
    """Return whether surveys use a number for missing values: -1 to -9, or nines, eights or sevens such as 999 or 98.

    >>> [_is_code(value) for value in (-9, 99, 97, 999.9, -1, 95, 12)]
    [True, True, True, True, True, False, False]
    """
    digits = f"{abs(value):.12g}".replace(".", "")
    if value < 0 and len(digits) == 1:
        return True
    return re.fullmatch("9*[6-9]|8+|7+", digits) is not None


def outlying_codes(
    least: Sequence[tuple[float, int]], greatest: Sequence[tuple[float, int]], *, rows: int
) -> tuple[int | float, ...]:
    """Return the numbers that mean missing values: far outside the rest, and shared by many rows.

    Args:
        least: the smallest distinct numbers in increasing order, with their rows.
        greatest: the greatest in decreasing order.
        rows: the rows with a number.

    >>> outlying_codes([(-9, 5), (0, 9), (1, 9)], [(999, 5), (60, 9), (59, 9)], rows=100)
    (-9, 999)
    >>> outlying_codes([(0, 5), (1, 9), (2, 9)], [(99, 5), (98, 9), (97, 9)], rows=100)
    ()
    """
    codes: list[float] = []
    for ends, sign in ((least, 1), (greatest, -1)):
        other = [value for value, _ in (greatest if sign == 1 else least) if value not in codes]
        for size in range(min(_MOST_CODES, len(ends) - 2), 0, -1):
            tail, edge = ends[:size], ends[size][0]
            if not all(_is_code(value) and times >= max(2, _LEAST_SHARE * rows) for value, times in tail):
                continue
            spread = abs(other[0] - edge) if other else 0.0
            gap = abs(edge - tail[-1][0])
            below_zero = sign == 1 and tail[-1][0] < 0 <= edge and gap > 1
            if (gap > max(spread, 1) and not _is_of_scale(tail[-1][0], edge, other)) or below_zero:
                codes += [value for value, _ in tail]
                break
    return tuple(int(value) if value == int(value) else value for value in sorted(codes))


def _is_of_scale(code: float, edge: float, other: Sequence[float]) -> bool:
    """Return whether a code of one digit may belong to the rest, which has negative numbers, such as time zones."""
    return 0 < code < 10 and min(edge, *other) < 0  # noqa: PLR2004 - of one digit


_PEOPLE = ("patient", "person", "people", "customer", "client", "user", "member", "subject", "student", "employee",
           "citizen", "household", "family", "pupil", "child", "donor", "voter", "worker", "player",
           "passenger", "borrower", "tenant", "applicant", "participant", "respondent", "resident",
           "account", "policyholder", "kunde", "schueler", "schüler", "haushalt", "mitarbeiter", "versicherte",
           "bewohner", "mitglied", "teilnehmer", "nutzer", "proband", "befragte", "cliente", "paciente",
           "alumno")  # fmt: skip
_MARKS = ("id", "ids", "uid", "guid", "uuid", "nr", "nbr", "no", "num", "number", "key", "serialno", "caseid", "ssn",
          "mrn", "pid", "idno")  # fmt: skip
_LEAST_PEOPLE = 10
_ROWS_OF_ONE = 100  # largest average of rows per person


def named_like_people(name: str) -> int:
    """Return how much the name of a column resembles an id: 2 for people, 1 for any id, 0 for none.

    >>> [named_like_people(name) for name in ("patient_nbr", "encounter_id", "userId", "age", "number_of_visits")]
    [2, 1, 2, 0, 0]
    """
    words = [word.lower() for word in re.split(r"[^a-zA-Z0-9]+|(?<=[a-z])(?=[A-Z])", name) if word]
    joined = "".join(words)
    if not words:
        return 0
    marked = words[-1] in _MARKS or words[0] == "id"
    of_people = any(joined.startswith(word) or word in words for word in _PEOPLE)
    if of_people and (marked or joined in _PEOPLE or joined.endswith(("id", "nr", "nbr", "no", "nummer", "kennung"))):
        return 2
    return 2 if joined in ("ssn", "mrn", "pid") else int(marked)


def may_name_people(name: str, held: int, distinct: int) -> bool:
    """Return whether a column has many values that repeat little, so that they may name people."""
    return distinct > _LEAST_PEOPLE and held <= _ROWS_OF_ONE * distinct and named_like_people(name) > 0


def _boolean(true: str, name: str) -> str:
    return f"CASE WHEN {true} THEN 1 WHEN {name} IS NOT NULL THEN 0 END"  # not every engine has MIN of booleans


def _is_integer(value: str) -> str:
    return f"ABS({value}) < 9007199254740992 AND FLOOR({value}) = {value}"


def _typed(value: Any, kind: ColumnKind) -> object:  # noqa: ANN401 - what a database driver returned
    if value is None:
        return None
    types: dict[ColumnKind, Callable[[Any], object]] = {
        ColumnKind.BOOLEAN: bool,
        ColumnKind.INTEGER: int,
        ColumnKind.REAL: float,
    }
    return types[kind](value) if kind in types else value
