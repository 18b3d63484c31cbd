"""Which version of a table answers: the one that the steward confirmed, from every worker, or none."""

# ruff: noqa: S608 - statements are what is sent

from __future__ import annotations

import secrets
import shutil

import pytest
from pyarrow import parquet
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from tests.app.http.serving import DOMAIN, ROWS, Server, serving, write_people

from sfumato.app.client import ServerError
from sfumato.app.http.registry import Scope

COUNT = "SELECT COUNT(*) FROM people"
TRIES = 12  # enough to meet both workers


@pytest.fixture
def table(tmp_path):
    return write_people(tmp_path / "people.parquet")


@pytest.fixture
def server(tmp_path, table):
    with serving(f"sqlite:///{tmp_path}/s.ledger", table) as started:
        yield started


def problem(call) -> dict:
    with pytest.raises(ServerError) as refused:
        call()
    return refused.value.problem


def spent(server):
    with server.ledger("people") as ledger:
        return ledger.remaining().spent.epsilon


def doubled(table):
    found = parquet.read_table(table)
    from pyarrow import concat_tables

    parquet.write_table(concat_tables([found, found]), table)


def test_a_file_that_changed_is_refused_by_every_worker_until_a_steward_confirms_it(server, table):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    first = analyst.ask("people", COUNT, epsilon="1").rows
    for _ in range(TRIES):  # so that both workers have read the table
        assert analyst.ask("people", COUNT, epsilon="1").rows == first
    doubled(table)
    for _ in range(TRIES):
        found = problem(lambda: analyst.ask("people", COUNT, epsilon="1"))
        assert (found["type"], found["status"], found["charged"]) == ("/problems/table-changed", 409, False)
        assert "steward" in found["detail"]
    assert spent(server) == 1
    assert steward.read_again("people") == {"dataset": "people", "reading": 2, "changed": True}
    replies = [analyst.ask("people", COUNT, epsilon="1").rows for _ in range(TRIES)]
    assert all(rows == replies[0] for rows in replies)
    assert abs(replies[0][0]["values"][0]["estimate"] - 2 * ROWS) < 60
    assert spent(server) == 2


def test_a_file_that_is_gone_is_refused_and_one_that_comes_back_answers(server, table, tmp_path):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    first = analyst.ask("people", COUNT, epsilon="1").rows
    aside = tmp_path / "aside.parquet"
    shutil.move(table, aside)
    found = problem(lambda: analyst.ask("people", COUNT, epsilon="1"))
    assert (found["type"], found["status"], found["charged"]) == ("/problems/data-unavailable", 503, False)
    told = problem(lambda: steward.read_again("people"))
    assert (told["status"], told["charged"]) == (422, False)
    assert "there is no file" in told["detail"]
    shutil.copy(aside, table)  # the same content, written later
    for _ in range(TRIES):
        assert analyst.ask("people", COUNT, epsilon="1").rows == first
    assert spent(server) == 1


def test_a_restart_does_not_take_a_changed_file_for_the_confirmed_one(server, table):
    analyst = server.client("ana")
    analyst.ask("people", COUNT, epsilon="1")
    server.kill()
    doubled(table)
    server.start()
    assert problem(lambda: analyst.ask("people", COUNT, epsilon="1"))["type"] == "/problems/table-changed"
    assert spent(server) == 1


def test_a_table_of_a_database_is_of_one_version_too(tmp_path, postgres):
    address = make_url(postgres)
    engine = create_engine(address.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE folk AS SELECT 30 AS age FROM generate_series(1, 1000)"))
    source = address.update_query_dict({"table": "folk"}).render_as_string(hide_password=False)
    domain = {**DOMAIN, "attributes": {"age": DOMAIN["attributes"]["age"]}}
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=2).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        steward.register("people", source=source, domain=domain, limit="10")
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO folk SELECT 40 FROM generate_series(1, 2000)"))
        kinds, estimates = set(), set()
        for turn in range(TRIES):
            try:
                reply = analyst.ask("people", f"SELECT COUNT(*) FROM people WHERE age < {50 + turn}", epsilon="0.1")
                estimates.add(round(reply.rows[0]["values"][0]["estimate"], -3))
            except ServerError as error:
                kinds.add(error.kind)
        assert estimates <= {1000}
        assert kinds <= {"table-changed"}
        assert steward.read_again("people")["changed"]
        for turn in range(TRIES):
            statement = f"SELECT COUNT(*) FROM people WHERE age < {70 + turn}"
            estimate = analyst.ask("people", statement, epsilon="0.1").rows[0]["values"][0]["estimate"]
            assert abs(estimate - 3000) < 300
    finally:
        server.stop()
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE folk"))
        engine.dispose()


def test_a_table_is_read_again_where_its_connection_died_or_refused(tmp_path, postgres):
    address = make_url(postgres)
    engine = create_engine(address.set(drivername="postgresql+psycopg"))
    mark = secrets.token_hex(8)
    named = f"FROM pg_stat_activity WHERE application_name = '{mark}'"
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE folk AS SELECT 30 AS age FROM generate_series(1, 1000)"))
    place = address.update_query_dict({"table": "folk", "application_name": mark})
    domain = {**DOMAIN, "attributes": {"age": DOMAIN["attributes"]["age"]}}
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()

    def cut() -> int:
        with engine.begin() as connection:
            return len(connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) {named}")).all())

    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        source = place.render_as_string(hide_password=False)
        steward.register("people", source=source, domain=domain, limit="10")
        first = analyst.ask("people", COUNT, epsilon="1").rows
        assert cut() == 1
        assert analyst.ask("people", COUNT, epsilon="1").rows == first
        assert spent(server) == 1
        assert cut() == 1, "the stored answer too is of a table that was looked at"
        statement = f"{COUNT} WHERE age < 50"
        assert abs(analyst.ask("people", statement, epsilon="1").rows[0]["values"][0]["estimate"] - 1000) < 60
        assert spent(server) == 2
        assert cut() == 1
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE folk"))
        found = problem(lambda: analyst.ask("people", f"{COUNT} WHERE age < 60", epsilon="1"))
        assert (found["type"], found["status"], found["charged"]) == ("/problems/data-unavailable", 503, False)
        assert spent(server) == 2
    finally:
        server.stop()
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS folk"))
        engine.dispose()


def test_tables_of_a_schema_are_read_again_where_their_connection_died(tmp_path, postgres):
    """The loss is so large that there is no noise, but for once in e^1000."""
    address, mark = make_url(postgres), secrets.token_hex(8)
    engine = create_engine(address.set(drivername="postgresql+psycopg"))
    folk, trips = f"folk_{mark}", f"trips_{mark}"
    age = {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"}
    schema = {
        "sfumato": 2,
        "schema": "travels",
        "unit": {"id": "person", "table": folk},
        "tables": {
            folk: {"key": "person", "attributes": {"age": age}},
            trips: {"unit": "person", "rows": 2, "attributes": {"days": age}},
        },
    }
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {folk} AS SELECT n AS person, 30 AS age FROM generate_series(1, 100) n"))
        connection.execute(text(f"CREATE TABLE {trips} AS SELECT n AS person, 3 AS days FROM generate_series(1, 50) n"))
    source = address.update_query_dict({"application_name": mark}).render_as_string(hide_password=False)
    cut = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{mark}'"
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        steward.register("travels", source=source, domain=schema, limit="1e6")
        statement = f"SELECT COUNT(*) FROM {trips} JOIN {folk} USING (person)"
        for epsilon in ("1e4", "2e4"):
            assert analyst.ask("travels", statement, epsilon=epsilon).rows[0]["values"][0]["estimate"] == 50
            with engine.begin() as connection:
                assert connection.execute(text(cut)).all()
        assert "nothing" in analyst.ask("travels", statement, epsilon="2e4").cost
    finally:
        server.stop()
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE IF EXISTS {folk}, {trips}"))
        engine.dispose()


def test_a_column_whose_values_may_be_discovered_is_in_the_confirmed_version(tmp_path, table):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        towned(table, "Bonn")
        steward.register("people", source=str(table), domain=DOMAIN, limit="10,1e-3", discoverable=["town"])
        by_town = "SELECT town, COUNT(*) FROM people GROUP BY town"
        first = analyst.ask("people", by_town, epsilon="1", delta="1e-6").rows
        assert [row["key"] for row in first] == [["Bonn"]]
        assert steward.read_again("people")["changed"] is False
        towned(table, "Trier")
        assert problem(lambda: analyst.ask("people", COUNT, epsilon="1"))["type"] == "/problems/table-changed"
        assert steward.read_again("people")["changed"] is True
        second = analyst.ask("people", by_town, epsilon="1", delta="1e-6").rows
        assert [row["key"] for row in second] == [["Trier"]]
        found = problem(lambda: steward.register("again", source=str(table), domain=DOMAIN, limit="10"))
        assert found["type"] == "/problems/table-registered", "the same rows, whatever may be discovered of them"
    finally:
        server.stop()


def towned(table, town):
    """The same rows, all in one town, which the domain does not know."""
    found = parquet.read_table(table)
    found = found.drop_columns([name for name in ["town"] if name in found.column_names])
    parquet.write_table(found.append_column("town", [[town] * len(found)]), table)


def test_a_second_name_is_a_second_budget_only_when_confirmed(server, table, tmp_path):
    steward = server.client("stew", Scope.STEWARD)
    copy, link = tmp_path / "copy.parquet", tmp_path / "link.parquet"
    shutil.copy(table, copy)
    link.symlink_to(table)
    for name, source in [("again", table), ("copied", copy), ("linked", link)]:
        found = problem(lambda: steward.register(name, source=str(source), domain=DOMAIN, limit="10"))  # noqa: B023
        assert (found["type"], found["status"], found["charged"]) == ("/problems/table-registered", 409, False)
        assert "'people'" in found["detail"]
        assert "adds up" in found["detail"]
    assert [each["name"] for each in steward.datasets()] == ["people"]
    steward.register("again", source=str(table), domain=DOMAIN, limit="10", second_budget=True)
    assert [each["name"] for each in steward.datasets()] == ["again", "people"]


def test_a_steward_learns_why_a_table_cannot_be_registered(server, table, tmp_path):
    steward = server.client("stew", Scope.STEWARD)
    other = {**DOMAIN, "attributes": {"nobody": DOMAIN["attributes"]["age"]}}
    unreachable = "postgresql://u:geheim@127.0.0.1:1/x?table=people"
    cases = [
        ({"source": "/nosuch.csv", "domain": DOMAIN}, 422, "there is no file /nosuch.csv"),
        ({"source": str(tmp_path), "domain": other}, 422, "nobody"),
        ({"source": str(table), "domain": other}, 422, "nobody"),
        ({"source": str(table), "domain": DOMAIN, "discoverable": ["stadt"]}, 422, "no column 'stadt'"),
        ({"source": unreachable, "domain": DOMAIN}, 503, "127.0.0.1:1"),
    ]
    for terms, status, words in cases:
        found = problem(lambda: steward.register("new", limit="1", **terms))  # noqa: B023
        assert (found["status"], found["charged"]) == (status, False)
        assert words in found["detail"]
        assert "geheim" not in found["detail"]
    taken = problem(lambda: steward.register("people", source=str(table), domain=DOMAIN, limit="1"))
    assert (taken["type"], taken["status"]) == ("/problems/dataset-exists", 409)
