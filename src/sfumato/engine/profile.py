"""Facts for a draft domain, for the owner's eyes only: kinds guessed from text, distinct values, extremes."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.engine.dialect import DAYS, MOMENTS, NUMBER, Dialect, number, numeral, plain
from sfumato.engine.port import TILES, Column, ColumnKind, DateProfile, Profile

_Query = Callable[[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class DeclaredKeys:
    """The keys of a table in the catalogue of a database: its own key, and columns that hold keys of other tables."""

    key: str | None
    links: tuple[tuple[str, str], ...] = ()


_INTEGER = "-?(0|[1-9][0-9]{0,17})"  # leading zeros are a code, not a number
_WHOLE_REAL = "[+-]?(0|[1-9][0-9]{0,14})([.]0*)?"  # as programs write whole numbers beside missing values
_CODE = "[+-]?0[0-9].*"
_DAYS_ONLY = f"{DAYS}([T ]00:00(:00([.]0{{1,9}})?)?)?"  # some programs write days as time stamps
_FOREIGN = (
    "[0-9]{1,2}[./ -]([0-9]{1,2}|[A-Za-z]{3,9})[./ -]([0-9]{4}|[0-9]{2})([ T].*)?|"
    "[0-9]{4}[./][0-9]{1,2}[./][0-9]{1,2}.*"
)
_MOSTLY = 0.9  # of a column of dates are dates
_FEW_CODES = 10  # distinct texts in a column of numbers
_TRUE = "true|True|TRUE"
_BOOLEAN = f"{_TRUE}|false|False|FALSE"


@dataclass(frozen=True)
class Profiler:
    """Profiles columns of ``relation`` by what ``query`` answers."""

    query: _Query
    dialect: Dialect
    relation: str

    def profile(self, column: Column, distinct_limit: int) -> Profile:
        """Profile one column.

        A text column that only holds whole numbers is profiled as integers, and so on, since CSV knows
        text only; a real column that only holds whole numbers as integers.  Extremes are of finite values.
        """
        kind, value = self._read(column)
        finite = f"ABS({value}) <= 1.7976931348623157e308" if kind is ColumnKind.REAL else "1 = 1"
        ((rows, held, distinct, low, high),) = self.query(
            f"SELECT COUNT(*), COUNT({value}), COUNT(DISTINCT {value}), MIN(CASE WHEN {finite} THEN {value} END), "
            f"MAX(CASE WHEN {finite} THEN {value} END) FROM {self.relation}"
        )
        values = None
        if distinct <= distinct_limit:
            inner = f"SELECT DISTINCT {value} AS x FROM {self.relation}"
            distinct_rows = self.query(f"SELECT x FROM ({inner}) AS found WHERE x IS NOT NULL ORDER BY x")
            values = tuple(_typed(number, kind) for (number,) in distinct_rows)
        missing = rows - held
        low, high = _typed(low, kind), _typed(high, kind)
        profile = Profile(replace(column, kind=kind), held, distinct, missing, low, high, values)
        wide = isinstance(low, int | float) and isinstance(high, int | float) and high - low >= distinct_limit
        if kind in (ColumnKind.INTEGER, ColumnKind.TEXT) and may_name_people(column.name, held, distinct):
            profile = replace(profile, repeats=self._repeats(value))
        if kind is ColumnKind.REAL or (kind is ColumnKind.INTEGER and wide):
            return replace(profile, tiles=self._tiles(value, kind, finite))
        if kind is ColumnKind.TEXT and column.kind is ColumnKind.TEXT and (dates := self._dates(column)) is not None:
            return replace(profile, dates=dates)
        if values is None and kind is ColumnKind.TEXT and column.kind is ColumnKind.TEXT:
            return replace(profile, numbers=self._numbers(column, missing))
        return profile

    def _dates(self, column: Column) -> DateProfile | None:
        """The dates of a text column that mostly holds them, among them some that are none, or in another form."""
        text = self.dialect.text(self.dialect.name(column.name))
        counts = ", ".join(
            f"COUNT(CASE WHEN {self.dialect.matches(text, pattern)} THEN 1 END)"
            for pattern in (MOMENTS, _DAYS_ONLY, _FOREIGN)
        )
        ((held, moments, days, foreign),) = self.query(f"SELECT COUNT({text}), {counts} FROM {self.relation}")
        if moments > _MOSTLY * held:
            return DateProfile(ColumnKind.DATE if days == moments else ColumnKind.TIMESTAMP, held - moments)
        return DateProfile(ColumnKind.TEXT, held - moments - foreign) if moments + foreign > _MOSTLY * held else None

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
        tiles = self._tiles(value, kind, "1 = 1")
        low, high = _typed(low, kind), _typed(high, kind)
        return Profile(replace(column, kind=kind), held, distinct, missing, low, high, None, tiles=tiles)

    def _tiles(self, value: str, kind: ColumnKind, finite: str) -> tuple[int | float, ...]:
        values = f"SELECT {value} AS x FROM {self.relation} WHERE {value} IS NOT NULL AND {finite}"
        tiles = f"SELECT x, NTILE({TILES}) OVER (ORDER BY x) AS tile FROM ({values}) AS found"
        tile_starts = self.query(f"SELECT MIN(x) FROM ({tiles}) AS tiled GROUP BY tile ORDER BY tile")
        return tuple(int(least) if kind is ColumnKind.INTEGER else float(least) for (least,) in tile_starts)

    def _repeats(self, value: str) -> tuple[tuple[int, int], ...]:
        rows = f"SELECT COUNT(*) AS n FROM {self.relation} WHERE {value} IS NOT NULL GROUP BY {value}"
        repeats = self.query(f"SELECT n, COUNT(*) FROM ({rows}) AS rows_of GROUP BY n ORDER BY n")
        return tuple((int(each), int(values)) for each, values in repeats)

    def _read(self, column: Column) -> tuple[ColumnKind, str]:
        """Return the kind that a column seems to hold, and its values as that kind."""
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
        """Return the first reading whose test holds for every value that is not missing; None if there is none."""
        cases = (
            f"MIN(CASE WHEN {value} IS NULL THEN NULL WHEN {test} THEN 1 ELSE 0 END)"
            for value, test in readings.values()
        )
        (held,) = self.query(f"SELECT {', '.join(cases)} FROM {self.relation}")
        return next((reading for reading, matches in zip(readings, held, strict=True) if matches == 1), None)


_PEOPLE = ("patient", "person", "people", "customer", "client", "user", "member", "subject", "student", "employee",
           "citizen", "household", "participant", "respondent", "resident", "account", "policyholder")  # fmt: skip
_MARKS = ("id", "ids", "uid", "guid", "uuid", "nr", "nbr", "no", "num", "number", "key", "serialno", "caseid", "ssn",
          "mrn", "pid", "idno")  # fmt: skip
_LEAST_PEOPLE = 10
_ROWS_OF_ONE = 100  # on average, at most, of what may be a person


def named_like_people(name: str) -> int:
    """Return how much the name of a column is like an id: 2 for people, 1 for any id, 0 for none.

    >>> [named_like_people(name) for name in ("patient_nbr", "encounter_id", "userId", "age", "number_of_visits")]
    [2, 1, 2, 0, 0]
    """
    words = [word.lower() for word in re.split(r"[^a-zA-Z0-9]+|(?<=[a-z])(?=[A-Z])", name) if word]
    joined = "".join(words)
    if not words:
        return 0
    marked = words[-1] in _MARKS or words[0] == "id"
    of_people = any(joined.startswith(word) or word in words for word in _PEOPLE)
    if of_people and (marked or joined in _PEOPLE or joined.endswith(("id", "nr", "nbr", "no"))):
        return 2
    return 2 if joined in ("ssn", "mrn", "pid") else int(marked)


def may_name_people(name: str, held: int, distinct: int) -> bool:
    """Return whether a column has many values that repeat little, so that they may name people."""
    return distinct > _LEAST_PEOPLE and held <= _ROWS_OF_ONE * distinct and named_like_people(name) > 0


def _boolean(true: str, name: str) -> str:
    return f"CASE WHEN {true} THEN 1 WHEN {name} IS NOT NULL THEN 0 END"  # booleans have no MIN everywhere


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
