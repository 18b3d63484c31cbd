"""Joins never give one unit more rows than the product of the declared numbers, for any tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.test_views import DIAGNOSES, DRUGS, LOOSE, VISITS, by_unit, opened, scan
from tests.hospital import database

from sfumato.domain import Unit
from sfumato.domain.table_schema import Schema, parse_schema
from sfumato.domain.unit_views import AtMost
from sfumato.domain.view import BoundedView, Join, Scan, View
from sfumato.engine.duckdb.duck_session import DuckSession
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import JoinedTables, open_tables
from sfumato.errors import QueryError

DECLARED = {"visits": 6, "drugs": 8, "diagnoses": 5, "drug_era": 4}
BY_UNIT = {
    "two tables": (DRUGS, DIAGNOSES),
    "one table twice": (VISITS, scan("visits", "w")),
    "without a key": (scan("drug_era"), VISITS),
    "rows of a join": (Join(DRUGS, VISITS, ((1, 0),)), DIAGNOSES),
}


def sizes(rows: dict[str, Counter[tuple[Any, ...]]]) -> dict[str, int]:
    return {unit: sum(held.values()) for unit, held in rows.items()}


def scanned(side: View) -> str:
    """The table that a side begins with."""
    return side.table.name if isinstance(side, Scan) else scanned(side.left)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sides", BY_UNIT.values(), ids=BY_UNIT)
def test_a_join_has_every_pair_of_the_rows_that_both_sides_keep(sides: tuple[View, View]) -> None:
    some = 0
    for seed in range(3):
        tables = opened(database(seed))
        left, right = (sizes(by_unit(tables, side, LOOSE)) for side in sides)
        declared = [
            min(DECLARED[t.name] for t in side.tables if t.name != "visits" or len(side.tables) == 1) for side in sides
        ]
        expected = {
            unit: min(left[unit], declared[0]) * min(right[unit], declared[1]) for unit in left.keys() & right.keys()
        }
        assert sizes(by_unit(tables, Join(*sides, ()), LOOSE)) == expected
        some += sum(left[unit] > declared[0] or right[unit] > declared[1] for unit in expected)
    assert some, "no unit had more rows than declared"


@pytest.mark.parametrize("name", ["visits", "drugs", "drug_era"])
def test_the_rows_that_are_kept_are_chosen_for_each_unit_alone(name: str) -> None:
    """A unit within its bound keeps all of its rows, and the rows of others move nothing."""
    rows = database(0)
    tables, view = opened(rows), scan(name)
    every, kept = by_unit(tables, view, LOOSE), by_unit(tables, AtMost(view, 3), LOOSE)
    assert {unit: sum(held.values()) for unit, held in kept.items()} == {
        unit: min(3, sum(held.values())) for unit, held in every.items()
    }
    assert all(held <= every[unit] for unit, held in kept.items())
    assert all(by_unit(tables, AtMost(view, most), LOOSE) == every for most in (60, 10_000))


def test_equal_rows_of_a_unit_are_kept_as_often_as_they_stand_there() -> None:
    tables = dict(database(0))
    tables["drug_era"] = [{"person_id": 1, "era": 3}] * 7 + [{"person_id": 2, "era": 5}] * 2
    kept = by_unit(opened(tables), AtMost(scan("drug_era"), 4), LOOSE)
    assert sizes(kept) == {"1": 4, "2": 2}


def test_a_table_keeps_the_same_rows_of_a_unit_wherever_a_statement_names_it() -> None:
    """In a self-join by a code, a selected row meets itself and the selected rows with the same code."""
    tables = opened(database(0))
    found = sizes(by_unit(tables, Join(DIAGNOSES, scan("diagnoses", "e"), ((2, 2),)), LOOSE))
    kept = by_unit(tables, AtMost(DIAGNOSES, 5), LOOSE)
    assert found == {unit: sum(n * n for n in held.values()) for unit, held in kept.items()}


# --- one unit with very many rows -------------------------------------------------------------------------------------

CLINIC = """
{"sfumato": 2, "schema": "clinic", "unit": {"id": "patient_id", "table": "patients"}, "tables": {
  "patients": {"key": "patient_id", "attributes": {"region": {"type": "integer", "minimum": 0, "maximum": 3,
    "unknown": "drop"}}},
  "visits": {"key": "visit_id", "unit": "patient_id", "rows": 3, "attributes": {"kind": {"type": "integer",
    "minimum": 0, "maximum": 9, "unknown": "drop"}}}}}
"""
OTHERS = 200
PEOPLE = Unit("patient_id", rows=10_000, schema="clinic")


def clinic() -> Schema:
    return parse_schema(json.loads(CLINIC))


def people(rows_of_one: int) -> dict[str, pa.Table]:
    """Return units with two rows each, and unit 0 with ``rows_of_one``."""
    who = [1 + place % OTHERS for place in range(2 * OTHERS)] + [0] * rows_of_one
    visits = {"visit_id": list(range(len(who))), "patient_id": who, "kind": [place % 10 for place in range(len(who))]}
    units = list(range(OTHERS + 1))
    return {"patients": pa.table({"patient_id": units, "region": [n % 4 for n in units]}), "visits": pa.table(visits)}


def joined(described: Schema, ways: int) -> View:
    scans = [Scan(described["visits"], f"v{n}", (f"v{n}.kind",)) for n in range(ways)]
    view: View = scans[0]
    for each in scans[1:]:
        view = Join(view, each, ())
    return view


class Watched:
    """A cursor of DuckDB that notes the rows of each join of a table that it makes, by DuckDB's own count."""

    def __init__(self, cursor: Any, made: list[int]) -> None:
        self._cursor = cursor
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str) -> Any:
        made, _, select = statement.partition(" AS ")
        if made.startswith("CREATE TABLE"):
            ((_, told),) = self._cursor.execute(f"EXPLAIN (ANALYZE, FORMAT json) {select}").fetchall()
            waiting = list(json.loads(told)["operator"])
            while waiting:
                node = waiting.pop()
                waiting += node.get("children", [])
                if "JOIN" in node["type"]:
                    self._made.append(node["intermediate_rows"])
        return self._cursor.execute(statement)


def joins_made(tables: JoinedTables, view: View, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that each join of DuckDB made while a view was encoded."""
    made: list[int] = []
    plain = DuckSession.cursor

    @contextmanager
    def watching(self: DuckSession, title: str) -> Iterator[Any]:
        with plain(self, title) as cursor:
            yield Watched(cursor, made)

    with monkeypatch.context() as patched:
        patched.setattr(DuckSession, "cursor", watching)
        reveal(tables.encode(BoundedView(view, PEOPLE)).marginals([()])[0])
    return made


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_four_thousand_rows_of_a_unit_make_no_more_than_three(ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    described = clinic()
    few, many = (open_tables(described, people(rows)) for rows in (3, 4000))
    view = joined(described, ways)
    made = [joins_made(tables, view, monkeypatch) for tables in (few, many)]
    assert len(made[0]) >= ways - 1
    assert made[0] == made[1]
    assert max(made[1]) == OTHERS * 2**ways + 3**ways
    counted = [sizes(by_unit(tables, view, PEOPLE)) for tables in (few, many)]
    assert counted[0] == counted[1]
    assert counted[1]["0"] == 3**ways


def test_a_join_that_could_make_too_many_rows_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """3^9 rows of one unit are refused even if no unit has three rows: the refusal reads no row."""
    described = clinic()
    tables = open_tables(described, people(1))
    for call in ("rows", "materialize", "materialize_joined", "encoded"):
        monkeypatch.setattr(f"sfumato.engine.duckdb.duck_join.DuckJoin.{call}", lambda *_: 1 / 0)
    with pytest.raises(QueryError, match="= 19,683 rows of one patient_id, more than 10,000"):
        tables.encode(BoundedView(joined(described, 9), PEOPLE))
