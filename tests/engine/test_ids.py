"""Ids that are long, odd or badly spelled stay as many as they are, on every engine; so do keys and odd columns."""

# ruff: noqa: S608 - tests write SQL of names that they made up

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from tests.engine import cluster
from tests.services import require

from sfumato.domain import Categorical, Domain, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable, Recode

ODD = "a`b\"c'd%s:x.y"  # the quotes of every dialect, and what drivers take for a parameter
COLUMNS = ("long", "single", "blank", ODD, "key")
PEOPLE = 5
DOMAIN = (Categorical(name=ODD, values=("u", "v"), unknown=Unknown.DROP),)
TYPES = pa.schema(
    [("long", pa.string()), ("single", pa.float32()), ("blank", pa.string()), (ODD, pa.string()), ("key", pa.string())]
)
ROWS = [
    {
        "long": "\u00e9" * 3000 + str(index % PEOPLE),  # differs beyond what a sort looks at
        "single": 1234567.0 + index % PEOPLE,  # seven digits, but MariaDB shows six
        "blank": ("ann", "ann ", "Ann", "a\u0301nn", "\u00e1nn")[index % PEOPLE],
        ODD: "uv"[index % 2],
        "key": "y" * 3000 + str(index % 3),
    }
    for index in range(4 * PEOPLE)
]


def _arrow(folder: Path) -> Iterator[object]:
    yield pa.Table.from_pylist(ROWS, TYPES)


def _csv(folder: Path) -> Iterator[object]:
    import csv

    with (folder / "ids.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(ROWS)
    yield folder / "ids.csv"


def _spark(folder: Path) -> Iterator[object]:
    cluster.session()
    pq.write_table(pa.Table.from_pylist(ROWS, TYPES), folder / "ids.parquet")
    yield f"spark:{folder / 'ids.parquet'}"


def _database(variable: str) -> Callable[[Path], Iterator[object]]:
    def made(folder: Path) -> Iterator[object]:
        url = sa.make_url(require(variable))
        maria = url.drivername == "mysql"
        engine = sa.create_engine(
            url.set(drivername="mysql+pymysql" if maria else "postgresql+psycopg"), poolclass=sa.NullPool
        ).execution_options(no_parameters=True)
        quote, text, single = ("`", "LONGTEXT", "FLOAT") if maria else ('"', "TEXT", "REAL")
        name = f"ids_{secrets.token_hex(6)}"
        listed = ", ".join(
            f"{quote}{column.replace(quote, 2 * quote)}{quote} {single if column == 'single' else text}"
            for column in COLUMNS
        )
        values = ", ".join(
            "(" + ", ".join(str(v) if isinstance(v, float) else f"'{v}'" for v in row.values()) + ")" for row in ROWS
        )
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} ({listed}){' CHARACTER SET utf8mb4' if maria else ''}")
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES {values}")
        yield url.update_query_dict({"table": name}).render_as_string(hide_password=False)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE {name}")

    return made


SOURCES = {
    "arrow": _arrow,
    "csv": _csv,
    "postgres": _database("SFUMATO_TEST_POSTGRES"),
    "mariadb": _database("SFUMATO_TEST_MARIADB"),
    "spark": _spark,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name == "spark")) for name in SOURCES],
)
def table(request, tmp_path_factory) -> Iterator[ProtectedTable]:
    for source in SOURCES[request.param](tmp_path_factory.mktemp("ids")):
        yield open_table(source)


@pytest.mark.parametrize("column", ["long", "single", "blank"])
def test_ids_that_differ_anywhere_are_different_people(table, column):
    encoded = table.encode(Domain(DOMAIN, unit=Unit(column, rows=1)))
    assert reveal(encoded.marginals([()])[0]).tolist() == [PEOPLE]  # one row of each
    assert reveal(encoded.units(())).tolist() == [PEOPLE]


@pytest.mark.parametrize("unit", [Unit(), Unit("long", rows=2)], ids=str)
def test_keys_that_differ_at_their_end_are_different_keys(table, unit):
    found = reveal(table.encode(Domain(DOMAIN, unit=unit)).keys(("key",)))
    assert found["key"].to_pylist() == ["y" * 3000 + str(last) for last in range(3)]
    assert sum(found["units"].to_pylist()) == (len(ROWS) if unit.column is None else 2 * PEOPLE)


def test_a_column_may_have_any_name(table):
    encoded = table.encode(Domain(DOMAIN))
    half = len(ROWS) // 2
    assert [column.name for column in table.schema()] == list(COLUMNS)
    assert reveal(encoded.marginals([(ODD,)])[0]).tolist() == [half, half]
    assert reveal(encoded.keys((ODD,))).to_pylist() == [{ODD: "u", "units": half}, {ODD: "v", "units": half}]
    assert [profile.distinct for profile in table.profile(10) if profile.column.name == ODD] == [2]
    levels, classes = (np.arange(2, dtype=np.uint8),), np.array([[0], [1]], np.uint8)
    rows = reveal(encoded.recoded(Recode((ODD,), levels, classes, pa.table({ODD: ["U", "V"]})), ("key",)))
    assert sorted(rows.column_names) == sorted((ODD, "key"))
    assert sorted(rows[ODD].to_pylist()) == ["U"] * half + ["V"] * half
