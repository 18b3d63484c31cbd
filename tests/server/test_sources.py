"""Databases that tables are registered from: passwords stay out of the ledger, and its own database is never served."""

from __future__ import annotations

import secrets
from contextlib import closing

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from tests.app.test_cli import sfumato
from tests.server.serving import DOMAIN, Server, with_source_passwords, write_people
from tests.services import require

from sfumato.app.http_client import ServerError
from sfumato.errors import EngineError, InputError
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Scope
from sfumato_server.service import Service
from sfumato_server.sources import TablePlaces, has_password, is_own_database, read_passwords, with_password
from sfumato_server.stewards import draft_description

AGES = {**DOMAIN, "attributes": {"age": DOMAIN["attributes"]["age"]}}


@pytest.fixture
def passwords(tmp_path):
    """Writes a file of passwords."""

    def write(*lines, mode=0o600):
        file = tmp_path / "passwords"
        file.write_text("\n".join(lines), encoding="utf-8")
        file.chmod(mode)
        return file

    return write


@pytest.fixture(params=["SFUMATO_TEST_POSTGRES", "SFUMATO_TEST_MARIADB"])
def database(request):
    """A database of its own with a table of 500 ages, as its address with the password; it is dropped at the end."""
    server = make_url(require(request.param))
    kind = "mysql+pymysql" if server.drivername == "mysql" else "postgresql+psycopg"
    name = f"source_{secrets.token_hex(6)}"
    engine = sa.create_engine(server.set(drivername=kind), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    own = sa.create_engine(server.set(drivername=kind, database=name), poolclass=sa.NullPool)
    with own.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE folk (age int)")
        connection.exec_driver_sql(f"INSERT INTO folk VALUES {', '.join(f'({n % 90})' for n in range(500))}")  # noqa: S608
    yield server.set(database=name).update_query_dict({"table": "folk"})
    force = "" if kind.startswith("mysql") else " WITH (FORCE)"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name}{force}")


def everything(url):
    """Return the whole content of a server's database as text."""
    with closing(Service(url)) as service, service.store.reading() as driver:
        tables = driver.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        return " ".join(repr(driver.rows(f"SELECT * FROM {name}")) for (name,) in tables)  # noqa: S608


def test_a_table_is_registered_by_an_address_whose_password_lies_in_a_file(database, tmp_path):
    plain, file = with_source_passwords(database, tmp_path)
    url = f"sqlite:///{tmp_path}/s.ledger"
    assert database.password not in plain
    server = Server(url, workers=1, more=("--source-passwords", str(file))).start()
    try:
        steward = server.client("stew", Scope.STEWARD)
        assert "age" in steward.draft(plain)["domain"]["attributes"]
        steward.register("folk", source=plain, domain=AGES, limit="1e6")
        found = steward.ask("folk", "SELECT COUNT(*) FROM folk", epsilon="1e4")
        assert found.rows[0]["values"][0]["estimate"] == 500
        assert not steward.read_again("folk")["changed"]
        with pytest.raises(ServerError, match="holds no password"):
            steward.register("again", source=database.render_as_string(hide_password=False), domain=AGES, limit="1")
        with pytest.raises(ServerError, match="holds no password"):
            steward.draft(database.render_as_string(hide_password=False))
    finally:
        server.stop()
    kept = everything(url)
    assert "folk" in kept
    assert database.password not in kept
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each != file]
    assert all(database.password.encode() not in each.read_bytes() for each in files)


def test_without_a_password_in_the_file_the_database_does_not_answer(database, tmp_path, passwords):
    plain, _ = with_source_passwords(database, tmp_path)
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=("--source-passwords", str(passwords()))).start()
    try:
        with pytest.raises(ServerError) as refused:
            server.client("stew", Scope.STEWARD).register("folk", source=plain, domain=AGES, limit="1")
        assert refused.value.kind in {"data-unavailable", "table-unreadable"}, refused.value.kind
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("postgresql://db.example/census?table=people", False),
        ("postgresql://ann@db.example/census?table=people", False),
        ("postgresql://ann:@db.example/census?table=people", True),
        ("postgres://ann:pw@db.example/census?table=people", True),
        ("mariadb://ann:p%40w@db.example/census?table=people", True),
        ("postgresql://ann@db.example/census?table=people&password=pw", True),
        ("postgresql://ann@db.example/census?table=people&sslpassword=pw", True),
        ("postgresql://ann@db.example/census?table=people&oauth_client_secret=pw", True),
        ("mysql://ann@db.example/census?table=people&passwd=pw", True),
        ("spark:s3a://key:pw@bucket/people", True),
        ("spark:people.parquet", False),
        ("/srv/ann:pw@people.csv", False),
    ],
)
def test_a_password_is_found_in_every_part_of_an_address(source, holds):
    assert has_password(source) is holds
    if holds:
        with pytest.raises(RefusalError) as refused:
            TablePlaces().address(source)
        assert refused.value.kind == "password-in-address"
        assert "pw" not in str(refused.value.detail)


def test_a_line_of_the_file_is_found_as_clients_of_postgresql_find_it(passwords):
    file = passwords(
        "# what reads the census", "", "db.example:5432:census:ann:s3:cret".replace("3:", "3\\:"),
        "db.example:*:*:bob:p@ss/w%", "other.example:3306:census:ann:x\\\\y",
    )  # fmt: skip
    found = {
        "postgresql://ann@db.example/census?table=t": "postgresql://ann:s3%3Acret@db.example/census?table=t",
        "postgresql://ann@db.example:5432/census": "postgresql://ann:s3%3Acret@db.example:5432/census",
        "postgresql://ann@db.example:5433/census": "postgresql://ann@db.example:5433/census",
        "postgresql://ann@db.example/other": "postgresql://ann@db.example/other",
        "postgresql://bob@db.example:7/any": "postgresql://bob:p%40ss%2Fw%25@db.example:7/any",
        "mysql://ann@other.example/census": "mysql://ann:x%5Cy@other.example/census",
        "postgresql://db.example/census": "postgresql://db.example/census",
        "people.csv": "people.csv",
    }
    assert {source: with_password(source, file) for source in found} == found


@pytest.mark.parametrize(
    ("lines", "mode", "reason"),
    [
        (("db.example:5432:census:ann:pw",), 0o640, "others than its owner"),
        (("db.example:5432:census:ann",), 0o600, "line 1 of .* is not HOST"),
        (("# fine", "*:5432:census:ann:pw"), 0o600, "line 2 of .* of a named host"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_the_server_starts(passwords, tmp_path, lines, mode, reason):
    file = passwords(*lines, mode=mode)
    with pytest.raises(InputError, match=reason):
        read_passwords(file)
    done = sfumato("serve", "--create", "--source-passwords", str(file), cwd=tmp_path, code=2)
    assert "passwords" in done.stderr
    assert "pw" not in done.stderr
    assert not (tmp_path / "sfumato.ledger").exists()
    with pytest.raises(InputError, match="cannot read"):
        read_passwords(tmp_path / "none")


@pytest.fixture
def own(postgres, tmp_path):
    """A server's state over PostgreSQL, and the file with the password of its database."""
    plain, file = with_source_passwords(make_url(postgres), tmp_path)
    with closing(Service(postgres, create=True, places=TablePlaces(passwords=str(file)))) as service:
        yield service, make_url(plain), file


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "other.example&hostaddr"])
@pytest.mark.parametrize("table", ["service_key", "ledger_entry", "ledger_dataset"])
def test_the_database_of_the_ledger_is_never_served_by_any_name(own, host, table):
    service, plain, file = own
    host, _, more = host.partition("&")
    address = plain.set(host=host, query={"table": table})
    source = address.render_as_string() + (f"&{more}=127.0.0.1" if more else "")
    file.write_text(file.read_text().replace("127.0.0.1", host), encoding="utf-8")
    with pytest.raises(RefusalError, match="the server's own ledger") as refused:
        draft_description(source, service.places)
    assert refused.value.kind == "place-refused"
    with pytest.raises(RefusalError, match="the server's own ledger"):
        service.register("ours", source=source, domain=AGES, limit="1", more={})
    assert [each.name for each in service.registry.datasets()] == []


def test_all_tables_of_the_ledgers_database_at_once_are_not_drafted_either(own):
    service, plain, _ = own
    with pytest.raises(RefusalError, match="the server's own ledger"):
        draft_description(plain.set(query={}).render_as_string(), service.places)


def test_another_database_of_the_same_server_is_served(postgres):
    address = make_url(postgres).set(query={})
    other = address.set(database="postgres").update_query_dict({"table": "x"}).render_as_string(hide_password=False)
    assert not is_own_database(other, postgres)
    assert is_own_database(address.render_as_string(hide_password=False), postgres)
    assert not is_own_database(other, "sqlite:///s.ledger")
    assert not is_own_database("people.csv", postgres)
    with pytest.raises(EngineError, match="does not answer"):
        is_own_database("postgresql://u@127.0.0.1:1/x?table=people", postgres)


def test_a_ledger_in_a_file_is_no_table(tmp_path):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Service(url, create=True, places=TablePlaces((str(tmp_path),)))) as service:
        service.register("people", source=str(write_people(tmp_path / "p.parquet")), domain=DOMAIN, limit="9", more={})
        for source in (str(tmp_path / "s.ledger"), str(tmp_path / "s.ledger-wal"), url):
            with pytest.raises((RefusalError, InputError)):
                draft_description(source, service.places)
