"""Values derived from children of children equal Python's computation, on every engine and in any order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.engine.test_related import SERVERS, filled, rows_of
from tests.nested_families import TOWN, Row, derived_rows, frames, nested, some_houses

from sfumato.engine.views.joined import open_tables

TWINS = Row((0,), (Row((2, 1), (Row((0,), (Row((0,)),)),)), Row((2, 1), (Row((2,)),)), Row((2, 1))))
HOUSES = [*some_houses(40, 3), Row((1,)), TWINS, Row((0,), (Row((1, 0), (Row((1,)),) * 9),) * 9)]
SHAPES = {
    "jobs": nested(),
    "more jobs than a house may have": nested(4, 4),
    "two before": nested(4, 4, memory=2),
    "one job": nested(3, 1),
    "tasks": nested(3, 3, 3),
    "many tasks": nested(4, 5, 5, tau=1),
}


def same_rows(opened, tables, houses) -> None:
    encoded, expected = opened.derive(tables), derived_rows(houses, tables)
    assert rows_of(encoded) == Counter(expected["head"])
    for table in tables.derived:
        assert rows_of(encoded.derived(table.name)) == Counter(expected[table.name]), table.name
        assert encoded.derived(table.name).domain == table.counted


@pytest.mark.parametrize("name", SHAPES)
def test_all_that_is_derived_is_what_python_makes_of_the_rows(name) -> None:
    same_rows(open_tables(TOWN, frames(HOUSES)), SHAPES[name], HOUSES)


def test_the_order_in_which_rows_stand_changes_nothing() -> None:
    versions = {
        open_tables(TOWN, frames(HOUSES, np.random.default_rng(seed))).derive(SHAPES["tasks"]).version
        for seed in range(4)
    }
    assert len(versions) == 1


def test_jobs_of_nobody_and_of_persons_that_are_not_kept_are_in_no_table() -> None:
    house = Row((0,), (Row((3, 0), (Row((0,)),)), Row((0, 0), (Row((1,)), Row((2,), (Row((0,)),))))))
    tables = frames([house])
    encoded = open_tables(TOWN, tables).derive(nested(1, 2))
    assert rows_of(encoded.derived("jobs.head")) == Counter({(0, 3, 0, 0, 0, 1, 0): 1})
    assert rows_of(encoded.derived("jobs.tail")).total() == 0
    others = {**tables, "houses": pa.table({"house": ["h8", "h9"], "large": ["no", "no"]})}
    encoded = open_tables(TOWN, others).derive(nested(2, 2))
    assert rows_of(encoded).total() == 2
    assert all(rows_of(encoded.derived(name)).total() == 0 for name in ("jobs.head", "jobs.tail"))


@pytest.mark.parametrize("server", SERVERS)
def test_databases_make_the_same_rows(server) -> None:
    with filled(server, frames(HOUSES)) as address:
        opened = open_tables(TOWN, address)
        for tables in (SHAPES["more jobs than a house may have"], SHAPES["two before"], SHAPES["tasks"]):
            same_rows(opened, tables, HOUSES)


NOBODY_BELOW = [Row((0,)), Row((1,))]


def test_tables_without_rows_are_like_any_other() -> None:
    """One person may have the only rows of a table; no error reveals whether they exist."""
    for houses in (NOBODY_BELOW, []):
        same_rows(open_tables(TOWN, frames(houses)), SHAPES["tasks"], houses)


@pytest.mark.parametrize("server", SERVERS)
def test_tables_of_databases_without_rows_are_like_any_other(server) -> None:
    for houses in (NOBODY_BELOW, []):
        with filled(server, frames(houses)) as address:
            same_rows(open_tables(TOWN, address), SHAPES["tasks"], houses)


@pytest.mark.slow
def test_spark_makes_the_same_rows(tmp_path: Path) -> None:
    cluster.session()
    for name, rows in frames(HOUSES).items():
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    opened = open_tables(TOWN, f"spark:{tmp_path}")
    same_rows(opened, SHAPES["two before"], HOUSES)
