"""What only databases can do wrong: connections, permissions, snapshots, other writers."""

# ruff: noqa: S608 - tests write SQL of names that they made up

from __future__ import annotations

import secrets

import pytest
import sqlalchemy as sa
from tests.services import require

from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import EngineError, InputError, TableError

SECRET = "s3cr3t"  # noqa: S105 - a value of a table, not a password
DRIVERS = {"SFUMATO_TEST_POSTGRES": "postgresql+psycopg", "SFUMATO_TEST_MARIADB": "mysql+pymysql"}
DOMAIN = Domain((Categorical(name="word", values=("a", "b"), unknown=Unknown.CATEGORY),))


class Database:
    """A database with a table of three rows, and an owner's connection to it."""

    def __init__(self, variable: str) -> None:
        self.url = sa.make_url(require(variable))
        self.name = f"people_{secrets.token_hex(6)}"
        self.postgres = "POSTGRES" in variable
        self._engine = sa.create_engine(self.url.set(drivername=DRIVERS[variable]), poolclass=sa.NullPool)

    def run(self, *statements: str):
        with self._engine.begin() as connection:
            results = [connection.exec_driver_sql(statement) for statement in statements]
            return results[-1].fetchall() if results[-1].returns_rows else None

    def at(self, table: str, **parts: object) -> str:
        return self.url.set(**parts).update_query_dict({"table": table}).render_as_string(hide_password=False)


@pytest.fixture(params=DRIVERS)
def database(request):
    found = Database(request.param)
    found.run(
        f"CREATE TABLE {found.name} (word VARCHAR(20), n INTEGER)",
        f"INSERT INTO {found.name} VALUES ('a', 1), ('b', 2), ('{SECRET}', 3)",
    )
    yield found
    found.run(f"DROP TABLE {found.name}")


def refused(error, call):
    with pytest.raises(error) as refusal:
        call()
    message = str(refusal.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


def count(encoded):
    return reveal(encoded.marginals([()])[0]).item()


def test_tallies_of_one_encoding_come_from_one_snapshot(database):
    table = open_table(database.at(database.name))
    encoded = table.encode(DOMAIN)
    before = encoded.version
    database.run(f"INSERT INTO {database.name} VALUES ('a', 4)")
    assert count(encoded) == 3
    again = table.encode(DOMAIN)
    assert count(again) == 4
    assert again.version != before == encoded.version


def test_encoding_does_not_lock_the_table_out(database):
    encoded = open_table(database.at(database.name)).encode(DOMAIN)
    database.run(f"ALTER TABLE {database.name} ADD COLUMN more INTEGER")
    assert count(encoded) == 3


def test_two_encodings_stand_side_by_side(database):
    table = open_table(database.at(database.name))
    first, second = (
        table.encode(DOMAIN),
        table.encode(Domain((Integer(name="n", minimum=1, maximum=2, unknown=Unknown.DROP),))),
    )
    assert (count(first), count(second)) == (3, 2)


def test_a_table_named_like_ours_and_odd_names(database):
    quote = '"' if database.postgres else "`"
    name = f"o'd {database.name}"
    database.run(
        f"CREATE TABLE {quote}{name}{quote} ({quote}w''o{quote} VARCHAR(9))",
        f"INSERT INTO {quote}{name}{quote} VALUES ('\\\\')",
    )
    try:
        stored = "\\\\" if database.postgres else "\\"
        domain = Domain((Categorical(name="w''o", values=(stored,), unknown=Unknown.DROP),))
        assert count(open_table(database.at(name)).encode(domain)) == 1
    finally:
        database.run(f"DROP TABLE {quote}{name}{quote}")


def test_a_schema_may_be_named(database):
    (schema,) = database.run("SELECT current_schema()" if database.postgres else "SELECT DATABASE()")[0]
    assert count(open_table(database.at(f"{schema}.{database.name}")).encode(DOMAIN)) == 3


def test_what_is_not_there_is_refused(database):
    assert "there is no table" in refused(TableError, lambda: open_table(database.at("nowhere")))
    refused(InputError, lambda: open_table(database.url.render_as_string(hide_password=False)))
    refused(EngineError, lambda: open_table(database.at(database.name, port=1)))
    message = refused(EngineError, lambda: open_table(database.at(database.name, password="wrong-password")))  # noqa: S106
    assert "wrong-password" not in message
    assert str(database.url.password) not in message


def test_a_table_without_rows_is_refused(database):
    database.run(f"DELETE FROM {database.name}")
    assert "no rows" in refused(TableError, lambda: open_table(database.at(database.name)))


def test_missing_permission_is_named(database):
    role, word = f"r{secrets.token_hex(4)}", secrets.token_hex(8)
    call = lambda: open_table(database.at(database.name, username=role, password=word))  # noqa: E731
    if not database.postgres:  # where the tests' own user may not grant anything
        database.run(f"CREATE USER {role} IDENTIFIED BY '{word}'")
        try:
            assert "permission" in refused(EngineError, call)
        finally:
            database.run(f"DROP USER {role}")
        return
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD '{word}'")
    try:
        assert "permission" in refused(EngineError, call)
        database.run(f"GRANT SELECT ON {database.name} TO {role}")
        assert count(call().encode(DOMAIN)) == 3
    finally:
        database.run(f"REVOKE ALL ON {database.name} FROM {role}", f"DROP ROLE {role}")


def test_a_lost_connection_is_said_and_a_new_encoding_helps(database):
    table = open_table(database.at(database.name))
    encoded = table.encode(DOMAIN)
    ask, kill = (
        ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})")
        if database.postgres
        else ("SELECT CONNECTION_ID()", "KILL {}")
    )
    ((number,),) = encoded._store._session.rows(ask)
    database.run(kill.format(number))
    assert "connection" in refused(EngineError, lambda: encoded.marginals([("word",)]))
    assert count(table.encode(DOMAIN)) == 3


def test_a_session_cannot_write(database):
    table = open_table(database.at(database.name))
    with table.session() as session:
        refused(EngineError, lambda: session.rows(f"DELETE FROM {database.name}"))
    assert database.run(f"SELECT COUNT(*) FROM {database.name}")[0][0] == 3


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIME", "BYTEA"])
def test_columns_without_a_mapping_are_refused(database, kind):
    kind = "BLOB" if kind == "BYTEA" and not database.postgres else kind
    database.run(f"ALTER TABLE {database.name} ADD COLUMN odd {kind} NULL")
    table = open_table(database.at(database.name))
    odd = Domain((Categorical(name="odd", values=("a",), unknown=Unknown.CATEGORY),))
    assert "no mapping" in refused(TableError, lambda: table.encode(odd))
    refused(TableError, lambda: table.encode(Domain(DOMAIN.attributes, unit=Unit("odd", rows=1))))
    assert count(table.encode(DOMAIN)) == 3


def test_unsigned_integers_beyond_64_bits_of_sign(database):
    if database.postgres:
        kind, value = "NUMERIC(20)", 2**64 - 1
    else:
        kind, value = "BIGINT UNSIGNED", 2**64 - 1
    database.run(f"ALTER TABLE {database.name} ADD COLUMN big {kind}", f"UPDATE {database.name} SET big = {value}")
    encoded = open_table(database.at(database.name)).encode(
        Domain((Integer(name="big", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
    )
    assert reveal(encoded.marginals([("big",)])[0]).tolist() == [0] * 9 + [3]
