"""Facts for a draft domain, for the owner's eyes only: kinds guessed from text, distinct values, extremes."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sfumato.engine.dialect import NUMBER
from sfumato.engine.port import Column, Kind, Profile
from sfumato.engine.sources import quoted

_WHOLE = "-?(0|[1-9][0-9]{0,17})"  # leading zeros are a code, not a number
_BOOLEAN = "true|false|True|False|TRUE|FALSE"


def profiles(cursor: Any, relation: str, columns: tuple[Column, ...], distinct_limit: int) -> tuple[Profile, ...]:  # noqa: ANN401
    """One profile a column.

    A text column that only holds whole numbers is profiled as integers, and so on, since CSV knows text
    only; a real column that only holds whole numbers as integers.  Extremes are of finite values.
    """
    return tuple(_profile(cursor, relation, column, distinct_limit) for column in columns)


def _profile(cursor: Any, relation: str, column: Column, distinct_limit: int) -> Profile:  # noqa: ANN401
    name = '"' + column.name.replace('"', '""') + '"'
    kind = _guessed(cursor, relation, column, name)
    present = f"{name} IS NOT NULL"
    match kind:
        case Kind.INTEGER:
            value = f"CAST({name} AS HUGEINT)"
        case Kind.REAL:
            value = f"CAST({name} AS DOUBLE)"
            present += f" AND NOT isnan({value})"
        case Kind.BOOLEAN:
            value = f"CAST({name} AS BOOLEAN)"
        case _:
            value = f"CAST({name} AS VARCHAR)"
    extreme = f"isfinite({value})" if kind is Kind.REAL else "true"
    rows, held, distinct, low, high = cursor.sql(
        f"SELECT COUNT(*), COUNT(*) FILTER ({present}), COUNT(DISTINCT {value}) FILTER ({present}), "
        f"MIN({value}) FILTER ({present} AND {extreme}), MAX({value}) FILTER ({present} AND {extreme}) FROM {relation}"
    ).fetchall()[0]
    values = None
    if distinct <= distinct_limit:
        found = cursor.sql(f"SELECT DISTINCT {value} AS x FROM {relation} WHERE {present} ORDER BY x").fetchall()
        values = tuple(value for (value,) in found)
    return Profile(replace(column, kind=kind), distinct, rows - held, low, high, values)


def _guessed(cursor: Any, relation: str, column: Column, name: str) -> Kind:  # noqa: ANN401
    if column.kind is Kind.REAL:
        value = f"CAST({name} AS DOUBLE)"
        tests = [f"isnan({value}) OR (floor({value}) = {value} AND abs({value}) < 9007199254740992)"]
        kinds = [Kind.INTEGER]
    elif column.kind is Kind.TEXT and not column.type.startswith("DATE"):
        tests = [f"regexp_full_match(CAST({name} AS VARCHAR), {quoted(text)})" for text in (_WHOLE, _BOOLEAN, NUMBER)]
        kinds = [Kind.INTEGER, Kind.BOOLEAN, Kind.REAL]
        tests[2] += f" AND NOT regexp_full_match(CAST({name} AS VARCHAR), '[+-]?0[0-9].*')"
    else:
        return column.kind
    held = cursor.sql(f"SELECT {', '.join(f'bool_and({test})' for test in tests)} FROM {relation}").fetchall()[0]
    return next((kind for kind, holds in zip(kinds, held, strict=True) if holds), column.kind)
