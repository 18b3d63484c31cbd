"""Views of tables of PostgreSQL and MariaDB keep the rows that views of files keep, and hold what these hold."""

# ruff: noqa: S608 - statements are put together here

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.engine.test_views import HOSPITAL, LOOSE, ROW_NUMBERS, VIEWS, bounds, by_unit
from tests.hospital import TYPES, Rows, database, derived_schema, frames
from tests.query.test_drawn_statements import answers, drawn
from tests.query.test_table_statements import STATEMENTS, exact, read
from tests.services import require

import sfumato as sf
from sfumato.anonymize import KAnonymity
from sfumato.domain.table_schema import parse_schema
from sfumato.domain.view import BoundedView
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import JoinedTables, open_tables
from sfumato.errors import InputError, TableError
from sfumato.privacy.loss import Epsilon
from sfumato.vault.schema_vault import open_schema

_OF: dict[pa.DataType, Any] = {
    pa.int64(): sa.BigInteger,
    pa.string(): sa.String(20),
    pa.date32(): sa.Date,
    pa.float64(): sa.Double,
}
SEED = 7


def url_of(variable: str) -> sa.URL:
    url = sa.make_url(require(variable))
    return url.set(drivername="mysql+pymysql" if url.drivername == "mysql" else "postgresql+psycopg")


def fill(url: sa.URL, rows: Rows) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    described = sa.MetaData()
    tables = {
        name: sa.Table(name, described, *(sa.Column(column, _OF[kind]) for column, kind in types.items()))
        for name, types in TYPES.items()
    }
    with engine.begin() as connection:
        described.create_all(connection)
        for name, table in tables.items():
            dated = [column for column, kind in TYPES[name].items() if kind == pa.date32()]
            held = [row | {column: date.fromisoformat(row[column]) for column in dated} for row in rows[name]]
            connection.execute(table.insert(), held)


@pytest.fixture(scope="module", params=["SFUMATO_TEST_POSTGRES", "SFUMATO_TEST_MARIADB"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own that holds the hospital."""
    server = url_of(request.param)
    name = f"hospital_{secrets.token_hex(6)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        own = server.set(database=name)
        fill(own, database(SEED))
        plain = own.set(drivername=own.drivername.partition("+")[0])
        yield plain.render_as_string(hide_password=False)
    finally:
        force = " WITH (FORCE)" if server.drivername.startswith("postgresql") else ""
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{force}")


@pytest.fixture(scope="module")
def tables(address: str) -> JoinedTables:
    return open_tables(HOSPITAL, address)


@pytest.fixture(scope="module")
def files() -> JoinedTables:
    return open_tables(HOSPITAL, frames(database(SEED)))


@pytest.mark.parametrize("name", VIEWS)
def test_the_same_rows_are_kept_as_of_files(name: str, tables: JoinedTables, files: JoinedTables) -> None:
    for unit in (LOOSE, bounds(name)):
        assert by_unit(tables, VIEWS[name], unit) == by_unit(files, VIEWS[name], unit)


def test_the_statements_of_the_design_are_counted_as_of_files(tables: JoinedTables, files: JoinedTables) -> None:
    told = 0
    for number, text, unit, *_ in STATEMENTS:
        found, expected = (exact(each, read(text, unit)) for each in (tables, files))
        np.testing.assert_array_equal(found, expected, err_msg=f"{number}: {text}")
        told += bool(expected.any())
    assert told > 0.9 * len(STATEMENTS)  # nearly all are about rows that are there


@pytest.mark.parametrize("value", ROW_NUMBERS)
def test_functions_of_a_row_have_the_same_values_as_of_files(
    value: str, tables: JoinedTables, files: JoinedTables
) -> None:
    text = f"SELECT SUM({value}) FROM visits"
    ours, expected = (exact(each, read(text, None)) for each in (tables, files))
    assert expected.any()
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_drawn_statements_are_counted_as_of_files(part: int, address: str) -> None:
    """That no unit moves them further than claimed is tested on files; the answers here equal those."""
    asked, _ = drawn(1000 + part, 60)
    one, other = (open_tables(derived_schema(), place) for place in (address, frames(database(SEED))))
    told = 0
    for text, each in asked:
        found, expected = answers(one, each), answers(other, each)
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(left, right, err_msg=text)
            told += bool(np.any(right))
    assert told >= 30  # most statements are about rows that are there


def test_views_come_and_go_without_filling_the_session(tables: JoinedTables) -> None:
    names = set()
    for rows in range(1, 6):
        encoded = tables.encode(BoundedView(VIEWS["one table"], LOOSE.bounded(rows=rows, per=())))
        assert int(reveal(encoded.marginals([()])[0])[0]) > 0
        names.add(encoded.store.relation)  # type: ignore[attr-defined]
        del encoded
    assert len(names) == 5


def test_a_statement_is_answered_alike(address: str, tmp_path: Path) -> None:
    ledgers = [f"sqlite:///{tmp_path / name}.ledger" for name in ("one", "two")]
    places: list[object] = [address, frames(database(SEED))]
    vaults = [
        open_schema(place, schema=HOSPITAL, ledger=ledger, limit=Epsilon(10**6), create=True)
        for place, ledger in zip(places, ledgers, strict=True)
    ]
    text = "SELECT region, SUM(cost * 2) AS spent FROM visits JOIN patients USING (patient_id) GROUP BY region"
    one, other = (sf.query.sql(vault, text, loss=Epsilon(10**5)) for vault in vaults)
    assert one.keys == other.keys
    sums = [np.array([row[0].estimate for row in answer.values]) for answer in (one, other)]
    assert np.abs(sums[0] - sums[1]).max() < 5  # noise of scale 12000 / 100000


def test_a_view_is_anonymised_and_read_again(address: str, tmp_path: Path) -> None:
    vault = open_schema(
        address, schema=HOSPITAL, ledger=f"sqlite:///{tmp_path / 'a.ledger'}", limit=Epsilon(1), create=True
    )
    view = sf.query.view(vault, "SELECT * FROM visits JOIN patients USING (patient_id)")
    for k in (2, 3):  # twice, as what a release looks codes up in is gone with it
        release = sf.anonymize.mondrian(view, quasi=["sex", "region", "kind"], criteria=[KAnonymity(k)])
        assert len(release.rows) > 0


def test_the_schema_names_the_tables(address: str) -> None:
    with pytest.raises(InputError, match="leave"):
        open_tables(HOSPITAL, f"{address}?table=visits")


def test_a_table_that_is_not_there_is_named(address: str) -> None:
    with pytest.raises(TableError, match="there is no table"):
        open_tables(HOSPITAL, f"{address.rpartition('/')[0]}/sfumato")


def test_ids_in_text_with_decimals_in_one_table_are_refused(address: str) -> None:
    made = sa.create_engine(
        sa.make_url(address).set(drivername="mysql+pymysql" if "mysql" in address else "postgresql+psycopg"),
        poolclass=sa.NullPool,
    )
    body = {"unit": "id", "rows": 1, "attributes": {"x": {"type": "integer", "minimum": 0, "maximum": 1}}}
    body["attributes"]["x"]["unknown"] = "drop"  # type: ignore[index]
    schema = parse_schema(
        {"sfumato": 2, "schema": "s", "unit": {"id": "person"}, "tables": {"one_id": body, "other_id": body}}
    )
    with made.begin() as connection:
        for name, ids in (("one_id", ["7", "8"]), ("other_id", ["7", "9.0"])):
            table = sa.Table(name, sa.MetaData(), sa.Column("id", sa.String(20)), sa.Column("x", sa.BigInteger))
            table.create(connection)
            connection.execute(table.insert(), [{"id": each, "x": 1} for each in ids])
    open_tables(schema, address)
    with made.begin() as connection:
        connection.exec_driver_sql("UPDATE other_id SET id = '7.0' WHERE id = '7'")
    with pytest.raises(TableError, match="at its end that"):
        open_tables(schema, address)
