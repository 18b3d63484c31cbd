"""Facts for a draft domain, for the owner's eyes only: kinds guessed from text, distinct values, extremes."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.engine.dialect import NUMBER, Dialect, number
from sfumato.engine.port import TILES, Column, Kind, Profile

Query = Callable[[str], Sequence[Sequence[Any]]]

_WHOLE = "-?(0|[1-9][0-9]{0,17})"  # leading zeros are a code, not a number
_CODE = "[+-]?0[0-9].*"
_FEW_CODES = 10  # distinct texts in a column of numbers
_TRUE = "true|True|TRUE"
_BOOLEAN = f"{_TRUE}|false|False|FALSE"


@dataclass(frozen=True)
class Profiler:
    """Profiles columns of ``relation`` by what ``query`` answers."""

    query: Query
    dialect: Dialect
    relation: str

    def profile(self, column: Column, distinct_limit: int) -> Profile:
        """Profile one column.

        A text column that only holds whole numbers is profiled as integers, and so on, since CSV knows
        text only; a real column that only holds whole numbers as integers.  Extremes are of finite values.
        """
        kind = self._guessed(column)
        value = self._value(column, kind)
        finite = f"ABS({value}) <= 1.7976931348623157e308" if kind is Kind.REAL else "1 = 1"
        ((rows, held, distinct, low, high),) = self.query(
            f"SELECT COUNT(*), COUNT({value}), COUNT(DISTINCT {value}), MIN(CASE WHEN {finite} THEN {value} END), "
            f"MAX(CASE WHEN {finite} THEN {value} END) FROM {self.relation}"
        )
        values = None
        if distinct <= distinct_limit:
            inner = f"SELECT DISTINCT {value} AS x FROM {self.relation}"
            found = self.query(f"SELECT x FROM ({inner}) AS found WHERE x IS NOT NULL ORDER BY x")
            values = tuple(_typed(value, kind) for (value,) in found)
        missing = rows - held
        low, high = _typed(low, kind), _typed(high, kind)
        profile = Profile(replace(column, kind=kind), held, distinct, missing, low, high, values)
        wide = isinstance(low, int | float) and isinstance(high, int | float) and high - low >= distinct_limit
        if kind is Kind.REAL or (kind is Kind.INTEGER and wide):
            return replace(profile, tiles=self._tiles(value, kind, finite))
        if values is None and kind is Kind.TEXT and column.kind is Kind.TEXT:
            return replace(profile, numbers=self._numbers(column, missing))
        return profile

    def _numbers(self, column: Column, missing: int) -> Profile | None:
        """The numbers of a text column that holds only a few distinct texts beside them."""
        text, value = self.dialect.text(self.dialect.name(column.name)), number(self.dialect, column)
        spelled = f"{self.dialect.matches(text, NUMBER)} AND NOT {self.dialect.matches(text, _CODE)}"
        ((held, others, distinct, low, high, fractions),) = self.query(
            f"SELECT COUNT({value}), COUNT(DISTINCT CASE WHEN NOT ({spelled}) THEN {text} END), "
            f"COUNT(DISTINCT {value}), MIN({value}), MAX({value}), "
            f"COUNT(CASE WHEN NOT ({_whole(value)}) THEN 1 END) FROM {self.relation}"
        )
        if others > _FEW_CODES or not distinct:
            return None
        kind = Kind.REAL if fractions else Kind.INTEGER
        tiles = self._tiles(value, kind, "1 = 1")
        low, high = _typed(low, kind), _typed(high, kind)
        return Profile(replace(column, kind=kind), held, distinct, missing, low, high, None, tiles=tiles)

    def _tiles(self, value: str, kind: Kind, finite: str) -> tuple[int | float, ...]:
        values = f"SELECT {value} AS x FROM {self.relation} WHERE {value} IS NOT NULL AND {finite}"
        tiles = f"SELECT x, NTILE({TILES}) OVER (ORDER BY x) AS tile FROM ({values}) AS found"
        found = self.query(f"SELECT MIN(x) FROM ({tiles}) AS tiled GROUP BY tile ORDER BY tile")
        return tuple(int(least) if kind is Kind.INTEGER else float(least) for (least,) in found)

    def _value(self, column: Column, kind: Kind) -> str:
        name = self.dialect.name(column.name)
        text = self.dialect.text(name)
        match kind:
            case Kind.INTEGER:
                if column.kind is Kind.INTEGER:
                    return name
                return self.dialect.integer(text if column.kind is Kind.TEXT else number(self.dialect, column))
            case Kind.REAL:
                return number(self.dialect, column)
            case Kind.BOOLEAN:
                true = self.dialect.matches(text, _TRUE) if column.kind is Kind.TEXT else name
                return f"CASE WHEN {true} THEN 1 WHEN {name} IS NOT NULL THEN 0 END"  # booleans have no MIN everywhere
            case _:
                return text

    def _guessed(self, column: Column) -> Kind:
        if column.kind is Kind.REAL:
            value = number(self.dialect, column)
            tests = {Kind.INTEGER: (value, _whole(value))}
        elif column.kind is Kind.TEXT and not column.type.upper().startswith("DATE"):
            text = self.dialect.text(self.dialect.name(column.name))
            matches = {pattern: self.dialect.matches(text, pattern) for pattern in (_WHOLE, _BOOLEAN, NUMBER, _CODE)}
            tests = {
                Kind.INTEGER: (text, matches[_WHOLE]),
                Kind.BOOLEAN: (text, matches[_BOOLEAN]),
                Kind.REAL: (text, f"{matches[NUMBER]} AND NOT {matches[_CODE]}"),
            }
        else:
            return column.kind
        cases = (
            f"MIN(CASE WHEN {value} IS NULL THEN NULL WHEN {test} THEN 1 ELSE 0 END)" for value, test in tests.values()
        )
        (held,) = self.query(f"SELECT {', '.join(cases)} FROM {self.relation}")
        return next((kind for kind, holds in zip(tests, held, strict=True) if holds == 1), column.kind)


def _whole(value: str) -> str:
    return f"ABS({value}) < 9007199254740992 AND FLOOR({value}) = {value}"


def _typed(value: Any, kind: Kind) -> object:  # noqa: ANN401 - what a database driver returned
    if value is None:
        return None
    types: dict[Kind, Callable[[Any], object]] = {Kind.BOOLEAN: bool, Kind.INTEGER: int, Kind.REAL: float}
    return types[kind](value) if kind in types else value
