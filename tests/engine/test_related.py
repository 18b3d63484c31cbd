"""Heads and tails are what the design says, on every engine, in whatever order the rows stand."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.engine.test_views_on_databases import url_of
from tests.families import VILLAGE, Family, derived_rows, frames, related, some_families

from sfumato.domain.linked_domain import PLACES
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.errors import TableError

FAMILIES = [*some_families(60, 3), Family(1, ()), Family(0, ((2, 0),) * 9)]
OF: dict[pa.DataType, Any] = {pa.int64(): sa.BigInteger, pa.string(): sa.String(20)}
SHAPES = {
    "falling": related(4),
    "rising": related(8, falling=False),
    "in no order": related(6, order=None, falling=False),
    "two before": related(6, memory=2),
    "one child": related(1),
}


def rows_of(encoded) -> Counter:
    names = encoded.domain.names
    batches = reveal(encoded.batches(names))
    return Counter(row for batch in batches for row in zip(*(column.to_pylist() for column in batch), strict=True))


def same_rows(opened, tables, families) -> None:
    encoded = opened.derive(tables)
    head, tail = derived_rows(families, tables)
    assert rows_of(encoded) == Counter(head)
    for table in tables.derived:
        assert rows_of(encoded.derived(table.name)) == Counter(tail)
        assert encoded.derived(table.name).domain == table.counted


@pytest.mark.parametrize("name", SHAPES)
def test_head_and_tail_are_what_python_makes_of_the_rows(name) -> None:
    same_rows(open_tables(VILLAGE, frames(FAMILIES)), SHAPES[name], FAMILIES)


def test_the_order_in_which_rows_stand_changes_nothing() -> None:
    tables = SHAPES["two before"]
    versions = {
        open_tables(VILLAGE, frames(FAMILIES, np.random.default_rng(seed))).derive(tables).version for seed in range(4)
    }
    assert len(versions) == 1


def test_the_version_names_what_only_a_tail_holds() -> None:
    one, other = (
        [Family(0, ((3, 0), (2, 1), (1, last)))] for last in (0, 1)
    )  # heads are the same, the last child is not
    tables = related(3)
    found = [open_tables(VILLAGE, frames(families)).derive(tables) for families in (one, other)]
    assert rows_of(found[0]) == rows_of(found[1])
    assert found[0].version != found[1].version


def test_children_of_nobody_are_in_no_table() -> None:
    given = frames([Family(0, ((1, 1),))])
    orphans = frames([Family(0, ((1, 1),)), Family(1, ((3, 0), (2, 0)))])["persons"]
    tables = related(3)
    encoded = open_tables(VILLAGE, {"houses": given["houses"], "persons": orphans}).derive(tables)
    assert rows_of(encoded).total() == 1
    assert rows_of(encoded.derived("persons.tail")).total() == 0


def test_a_table_that_was_not_derived_is_none() -> None:
    with pytest.raises(TableError, match="derived"):
        open_tables(VILLAGE, frames(FAMILIES)).derive(related(1)).derived("persons.tail")


def test_later_places_are_one() -> None:
    assert PLACES == 4
    assert related(8).next_child(related(8).children[0]).domain["persons.place"].labels() == ("2", "3", "4", "5")


SERVERS = ["SFUMATO_TEST_POSTGRES", "SFUMATO_TEST_MARIADB"]


@pytest.fixture(params=SERVERS)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own that holds the families."""
    with filled(request.param, frames(FAMILIES)) as found:
        yield found


@contextmanager
def filled(variable: str, tables: Mapping[str, pa.Table]) -> Iterator[str]:
    """A database of its own, on the server that a variable names, that holds some tables."""
    server, name = url_of(variable), f"village_{secrets.token_hex(6)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        own = server.set(database=name)
        inside = sa.create_engine(own, poolclass=sa.NullPool)
        for table, rows in tables.items():
            kinds = [sa.Column(field.name, OF[field.type]) for field in rows.schema]
            described = sa.Table(table, sa.MetaData(), *kinds)
            with inside.begin() as connection:
                described.create(connection)
                if rows.num_rows:
                    connection.execute(described.insert(), rows.to_pylist())
        yield own.set(drivername=own.drivername.partition("+")[0]).render_as_string(hide_password=False)
    finally:
        force = " WITH (FORCE)" if server.drivername.startswith("postgresql") else ""
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{force}")


def test_databases_make_the_same_rows(address) -> None:
    opened = open_tables(VILLAGE, address)
    for tables in SHAPES.values():
        same_rows(opened, tables, FAMILIES)
