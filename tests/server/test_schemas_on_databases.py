"""Schemas over HTTP whose tables lie in a real database: asked as files are, by people who know no login."""

from __future__ import annotations

import csv
import secrets

import pytest
import sqlalchemy as sa
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import Server, with_source_passwords
from tests.services import require

from sfumato.app.cli.options import database
from sfumato.app.http_client import ServerError
from sfumato_server.registry import Scope

JOINED = "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex"
CHAPTERS = "SELECT chapter, COUNT(*) AS n FROM diagnoses JOIN icd USING (code) GROUP BY chapter ORDER BY n"


def fill(url: sa.URL, folder) -> None:
    """The tables of a folder, with keys and numbers as whole numbers."""
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for file in sorted(folder.glob("*.csv")):
            with file.open(newline="") as stream:
                names, *rows = csv.reader(stream)
            types = ["INTEGER" if cell.isdigit() else "VARCHAR(20)" for cell in rows[0]]
            columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
            connection.exec_driver_sql(f"CREATE TABLE {file.stem} ({columns})")
            marks = ", ".join(["%s"] * len(names))
            held = [tuple(int(cell) if cell.isdigit() else cell for cell in row) for row in rows]
            connection.exec_driver_sql(f"INSERT INTO {file.stem} VALUES ({marks})", held)  # noqa: S608


@pytest.fixture(scope="module", params=["SFUMATO_TEST_POSTGRES", "SFUMATO_TEST_MARIADB"])
def tables(request: pytest.FixtureRequest, tmp_path_factory):
    """The address of a database of its own that holds the hospital."""
    server = sa.make_url(require(request.param))
    server = server.set(drivername="mysql+pymysql" if server.drivername == "mysql" else "postgresql+psycopg")
    name = f"served_{secrets.token_hex(6)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        own = server.set(database=name)
        fill(own, write_hospital(tmp_path_factory.mktemp("rows")))
        yield own
    finally:
        force = " WITH (FORCE)" if server.drivername.startswith("postgresql") else ""
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{force}")


@pytest.fixture(scope="module")
def served(tables: sa.URL, tmp_path_factory):
    """Return a server with the registered schema, and the given address."""
    folder = tmp_path_factory.mktemp("served")
    plain, passwords = with_source_passwords(tables, folder)
    more = ("--source-passwords", str(passwords))
    started = Server(database(str(folder / "s.ledger")), workers=1, more=more).start()
    try:
        with started.client("stew", Scope.STEWARD) as steward:
            steward.register("hospital", source=plain, domain=SCHEMA, limit="1e6")
        yield started, plain
    finally:
        started.stop()


def test_statements_over_several_tables_are_answered_and_repeats_are_free(served) -> None:
    """The loss is so large that there is no noise, but for once in e^1000."""
    started, plain = served
    with started.client("ana") as client:
        found = client.ask("hospital", JOINED, epsilon="1e4")
        assert {row["key"][0]: row["values"][0]["estimate"] for row in found.rows} == {"F": 400.0, "M": 400.0}
        again = client.ask("hospital", JOINED, epsilon="1e4")
        assert (again.rows, "nothing" in again.cost) == (found.rows, True)
        least, most = client.ask("hospital", CHAPTERS, epsilon="1e4").rows
        assert [(row["key"][0], row["values"][0]["estimate"]) for row in (least, most)] == [
            ("lung", 400.0),
            ("heart", 800.0),
        ]
        told = f"{client.dataset('hospital')} {client.datasets()}"
    assert plain.partition("://")[2] not in told, "analysts are told nothing of the login, or of the place"
    assert "@" not in told


def test_what_mixes_people_is_refused_uncharged(served) -> None:
    started, _ = served
    with started.client("bob") as client:
        before = client.budget("hospital")
        with pytest.raises(ServerError, match="key"):
            client.ask(
                "hospital", "SELECT COUNT(*) FROM visits JOIN patients ON visits.cost = patients.region", epsilon="1"
            )
        with pytest.raises(ServerError, match="no table 'beds'"):
            client.ask("hospital", "SELECT COUNT(*) FROM beds", epsilon="1")
        assert client.budget("hospital") == before


def test_a_table_that_the_database_lacks_is_named(served) -> None:
    started, plain = served
    more = {**SCHEMA, "schema": "inn", "tables": {**SCHEMA["tables"], "beds": SCHEMA["tables"]["visits"]}}
    with started.client("stew", Scope.STEWARD) as steward, pytest.raises(ServerError, match="beds"):
        steward.register("inn", source=plain, domain=more, limit="1")


def test_tables_are_read_again_where_the_database_ended_the_connection(served, tables: sa.URL) -> None:
    """After a restart of the database, earlier questions stay free and new statements are answered."""
    started, _ = served
    with started.client("cleo") as client:
        asked = client.ask("hospital", JOINED, epsilon="1e4")
        with sa.create_engine(tables, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool).connect() as connection:
            if tables.drivername.startswith("postgresql"):
                ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> "
                connection.exec_driver_sql(f"{ended} pg_backend_pid()", (tables.database,))
            else:
                own = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar()
                listed = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s"
                for (number,) in connection.exec_driver_sql(listed, (tables.database,)).fetchall():
                    if number != own:
                        connection.exec_driver_sql(f"KILL {number}")
        assert client.ask("hospital", JOINED, epsilon="1e4").rows == asked.rows
        text = "SELECT region, COUNT(*) FROM patients GROUP BY region"
        found = client.ask("hospital", text, epsilon="1e4")
        assert [row["values"][0]["estimate"] for row in found.rows] == [100.0] * 4
