"""Faults that only databases have: connections, permissions, snapshots, other writers."""

# ruff: noqa: S608 - tests write SQL of names that they made up

from __future__ import annotations

import secrets
import threading
import time
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.services import require

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import Recode
from sfumato.errors import EngineError, InputError, TableError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon
from sfumato.vault.measurables import Marginal
from sfumato.vault.value_measurables import Sum
from sfumato.vault.vault import Vault

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
        self.maria = not self.postgres and "MariaDB" in self.run("SELECT VERSION()")[0][0]  # or MySQL

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


UNREACHABLE = [
    ({"port": 1}, "no database server answers"),
    ({"host": "no.such.host.invalid"}, "no database server answers"),
    ({"password": "wrong-password"}, "user or password is wrong"),
    ({"username": "nobody"}, "user or password is wrong"),
    ({"database": "absent"}, "no database of that name"),
]


@pytest.mark.parametrize(("parts", "reason"), UNREACHABLE, ids=lambda case: next(iter(case)) if case else "")
def test_why_a_database_cannot_be_opened(database, parts, reason):
    message = refused(EngineError, lambda: open_table(database.at(database.name, **parts)))
    assert reason in message
    assert database.url.username not in message.replace("sfumato?", "").replace("/sfumato", "")
    for password in ("wrong-password", str(database.url.password)):
        assert password not in message


def test_odd_addresses_are_refused_without_their_password(database):
    good = database.at(database.name)
    for odd in (
        good.replace(f":{database.url.port}/", ":port/"),
        good.replace("@", "@@"),
        good.replace("?table=", "?tables="),
        f"{good}&table=two",
        f"{good}&no_such_option=1",
        good.replace(f":{database.url.port}/", ":99999/"),
    ):
        assert str(database.url.password) not in refused((EngineError, InputError), lambda odd=odd: open_table(odd))


def test_an_option_that_the_driver_does_not_know_is_named_without_its_value(database):
    said = refused(EngineError, lambda: open_table(f"{database.at(database.name)}&no_such_option=secret-value"))
    assert "the driver knows no option 'no_such_option'" in said
    assert "secret-value" not in said
    assert str(database.url.password) not in said


def test_bytes_that_are_kept_are_hexadecimal_or_refused_and_never_mangled(database):
    kind, value = ("BYTEA", r"'\x00ff'::bytea") if database.postgres else ("VARBINARY(9)", "x'00ff'")
    database.run(f"ALTER TABLE {database.name} ADD COLUMN raw {kind}", f"UPDATE {database.name} SET raw = {value}")
    encoded = open_table(database.at(database.name)).encode(DOMAIN)
    name = DOMAIN.names[0]
    levels = (np.zeros(DOMAIN[name].size, np.uint8),)
    recode = Recode((name,), levels, np.array([[0]], np.uint8), pa.table({name: ["any"]}))
    if database.postgres:
        assert set(reveal(encoded.recoded(recode, ("raw",)))["raw"].to_pylist()) == {r"\x00ff"}
    else:
        with pytest.raises(TableError, match="'raw' is of a binary type"):
            encoded.recoded(recode, ("raw",))


def test_the_short_name_of_postgresql_is_taken(database):
    if database.postgres:
        short = database.at(database.name).replace("postgresql://", "postgres://")
        assert count(open_table(short).encode(DOMAIN)) == 3


def test_a_server_of_another_kind_is_no_database_server():
    postgres, maria = (sa.make_url(require(variable)) for variable in DRIVERS)
    place = postgres.set(port=maria.port).update_query_dict({"table": "people"})
    refused(EngineError, lambda: open_table(place.render_as_string(hide_password=False)))


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


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(
        f"sqlite:///{tmp_path / 'people.ledger'}", dataset="people", limit=Epsilon(9), create=True
    ) as opened:
        yield opened


def kill(database, number):
    call = "SELECT pg_terminate_backend({})" if database.postgres else "KILL {}"
    database.run(call.format(number))


def test_a_lost_connection_is_said_and_charges_nothing_and_a_new_encoding_helps(database, ledger):
    table = open_table(database.at(database.name))
    encoded = table.encode(DOMAIN)
    vault = Vault(encoded, ledger, UNDECLARED)
    vault.measure([Marginal(("word",))], Epsilon(1))
    ((number,),) = encoded.store.session.rows(
        "SELECT pg_backend_pid()" if database.postgres else "SELECT CONNECTION_ID()"
    )
    kill(database, number)
    for ask in (
        lambda: vault.measure([Marginal(("word",))], Epsilon(2)),
        lambda: encoded.marginals([("word",)]),
        lambda: list(reveal(encoded.batches(("word",)))),
    ):
        assert "the connection to" in refused(EngineError, ask)
    assert len(list(ledger.journal())) == 1
    assert count(table.encode(DOMAIN)) == 3
    (again,) = Vault(table.encode(DOMAIN), ledger, UNDECLARED).measure([Marginal(("word",))], Epsilon(1))
    assert again.values.shape == (3,)
    assert len(list(ledger.journal())) == 1, "the same rows, the same question: the stored answer"


def running(database, words):
    """The connection that runs a statement that holds ``words``, as soon as there is one."""
    asked = (
        "SELECT pid, query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
        if database.postgres
        else "SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE INFO IS NOT NULL AND ID <> CONNECTION_ID()"
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for number, statement in database.run(asked):
            if words in statement:
                return number
    raise AssertionError("no such statement")


def test_a_connection_lost_in_the_middle_of_a_release_is_charged_once(database, ledger):
    many = ", ".join(["('a', 1)"] * 100_000)
    database.run(f"INSERT INTO {database.name} VALUES {many}")
    wide = Domain((*DOMAIN.attributes, Real(name="n", edges=(0.0, 5.0), unknown=Unknown.CATEGORY)))
    asked = [Sum("n", ("word",), unit=Fraction(1, divisor)) for divisor in range(1, 41)]  # a statement each
    vault = Vault(open_table(database.at(database.name)).encode(wide), ledger, UNDECLARED)
    assert vault.encoded.version
    found = []

    def asking():
        try:
            vault.measure(asked, Epsilon(1))
        except EngineError as error:
            found.append(str(error))

    thread = threading.Thread(target=asking)
    thread.start()
    kill(database, running(database, "SUM(fixed)"))
    thread.join()
    assert "what was charged stands" in found[0]
    (entry,) = ledger.journal()
    assert ledger.remaining().spent == Epsilon(1).charge, "the data were touched"
    again = Vault(open_table(database.at(database.name)).encode(wide), ledger, UNDECLARED).measure(asked, Epsilon(1))
    assert len(again) == len(asked)
    assert [each.number for each in ledger.journal()] == [entry.number]
    assert ledger.remaining().spent == Epsilon(1).charge


def test_a_statement_that_is_stopped_leaves_a_session_that_answers(database):
    encoded = open_table(database.at(database.name)).encode(DOMAIN)
    session = encoded.store.session
    if database.postgres:
        limit, more, nap = "SET statement_timeout = '50ms'", "SET statement_timeout = 0", "SELECT pg_sleep(60)"
    else:
        limited = "SET SESSION max_statement_time =" if database.maria else "SET SESSION max_execution_time ="
        limit, more = f"{limited} {0.05 if database.maria else 50}", f"{limited} 0"
        nap = f"SELECT COUNT(*) FROM {', '.join(f'{database.name} t{place}' for place in range(20))}"  # 3^20 rows
    session.run(limit)
    assert "stopped a statement" in refused(EngineError, lambda: session.rows(nap))
    session.run(more)  # so that a busy machine has its time
    assert count(encoded) == 3


def test_a_table_that_changes_its_columns_or_goes_is_said(database):
    table = open_table(database.at(database.name))
    encoded = table.encode(DOMAIN)
    database.run(f"ALTER TABLE {database.name} RENAME COLUMN word TO term")
    for ask in (lambda: table.encode(DOMAIN), lambda: encoded.keys(("word",)), lambda: table.values("word")):
        assert "other columns" in refused(EngineError, ask)
    assert count(encoded) == 3, "what was encoded can be counted still"
    database.run(f"ALTER TABLE {database.name} RENAME COLUMN term TO word")


def test_rewriting_does_not_compare_every_row_with_every_tuple_of_levels(database):
    names, sizes = tuple(f"n{place}" for place in range(5)), [40] * 5
    columns = ", ".join(f"{name} INTEGER" for name in names)
    rows = ", ".join(str((code, *[7] * 4)) for code in range(40))
    database.run(f"CREATE TABLE {database.name}_wide ({columns})", f"INSERT INTO {database.name}_wide VALUES {rows}")
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=39, unknown=Unknown.DROP) for name in names))
    levels = tuple(np.arange(size, dtype=np.uint8) // 20 for size in sizes)
    labels = pa.table({name: ["low", "high"] for name in names})
    recode = Recode(names, levels, np.array([[0] * 5, [1, 0, 0, 0, 0]], np.uint8), labels)
    address = database.at(f"{database.name}_wide")
    if not database.postgres:  # PostgreSQL joins by hash; these servers count what they mean to look at, and refuse
        most = "SET SESSION max_join_size = 100000000, sql_big_selects = 0"
        address = sa.make_url(address).update_query_dict({"init_command": most}).render_as_string(hide_password=False)
    try:
        found = reveal(open_table(address).encode(domain).recoded(recode, ()))
    finally:
        database.run(f"DROP TABLE {database.name}_wide")
    assert sorted(found["n0"].to_pylist()) == ["high"] * 20 + ["low"] * 20


def test_a_session_cannot_write(database):
    table = open_table(database.at(database.name))
    with table.session() as session:
        refused(EngineError, lambda: session.rows(f"DELETE FROM {database.name}"))
    assert database.run(f"SELECT COUNT(*) FROM {database.name}")[0][0] == 3


UNMAPPED = {
    True: ["TIMESTAMP", "TIMESTAMPTZ", "TIME", "INTERVAL", "BYTEA", "JSONB", "TEXT[]", "INT4RANGE", "POINT", "BIT(3)"],
    False: ["DATETIME", "TIMESTAMP", "TIME", "BLOB", "BINARY(3)", "BIT(3)", "POINT"],
}


@pytest.mark.parametrize("index", range(10))
def test_columns_without_a_mapping_are_refused(database, index):
    kinds = UNMAPPED[database.postgres]
    kind = kinds[index % len(kinds)]
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


def test_dates_that_no_calendar_has_are_unknown_and_written_as_they_are(database):
    kinds = (
        ["infinity", "-infinity", "0044-03-15 BC", "9999-12-31"] if database.postgres else ["0000-00-00", "2024-00-00"]
    )
    database.run(
        *([] if database.postgres else ["SET SESSION sql_mode = ''"]),
        f"ALTER TABLE {database.name} ADD COLUMN day DATE",
        *(f"INSERT INTO {database.name} (word, day) VALUES ('a', '{day}')" for day in kinds),
    )
    table = open_table(database.at(database.name))
    attribute = Categorical(name="day", values=("2024-01-01",), unknown=Unknown.CATEGORY, nullable=True)
    encoded = table.encode(Domain((attribute,)))
    assert reveal(encoded.marginals([("day",)])[0]).tolist() == [0, 3, len(kinds)]
    encoded = table.encode(DOMAIN)
    recode = Recode(("word",), (np.zeros(3, np.uint8),), np.array([[0]], np.uint8), pa.table({"word": ["any"]}))
    assert reveal(encoded.recoded(recode, ("day",))).num_rows == 3 + len(kinds)
    assert set(table.values("day").to_pylist()) == {None, *kinds}
    assert "0000-00-00" in [str(value) for value in table.profile(9)[2].values or ()] or database.postgres


def test_text_of_another_charset_or_padded_is_compared_by_its_characters(database):
    latin = "TEXT" if database.postgres else "VARCHAR(20) CHARACTER SET latin1"
    database.run(
        f"ALTER TABLE {database.name} ADD COLUMN spelled {latin}, ADD COLUMN padded CHAR(5)",
        f"UPDATE {database.name} SET spelled = '\u00c9', padded = 'a' WHERE n = 1",
        f"UPDATE {database.name} SET spelled = '\u00e9', padded = 'A' WHERE n = 2",
    )
    spelled = Categorical(name="spelled", values=("\u00e9", "e"), unknown=Unknown.CATEGORY, nullable=True)
    padded = Categorical(name="padded", values=("a", "a    "), unknown=Unknown.CATEGORY, nullable=True)
    encoded = open_table(database.at(database.name)).encode(Domain((spelled, padded)))
    tables = [reveal(exact).tolist() for exact in encoded.marginals([("spelled",), ("padded",)])]
    assert tables == [[1, 0, 1, 1], [1, 0, 1, 1]], "one missing, one unknown each"


def test_a_view_is_read_like_a_table(database):
    database.run(f"CREATE VIEW {database.name}_view AS SELECT word, n + 1 AS n FROM {database.name}")
    try:
        table = open_table(database.at(f"{database.name}_view"))
        assert count(table.encode(DOMAIN)) == 3
        assert table.values("n").to_pylist() == [2, 3, 4]
    finally:
        database.run(f"DROP VIEW {database.name}_view")


def test_numbers_that_vanish_when_divided_do_not_fail_a_question(database):
    table = f"{database.name}_tiny"
    values = ("5e-324", "1e-310", "1e-300", "2.5")
    double = "DOUBLE PRECISION"
    database.run(
        f"CREATE TABLE {table} (id INTEGER, x {double})",
        f"INSERT INTO {table} VALUES " + ", ".join(f"({place}, {value})" for place, value in enumerate(values)),
    )
    real = Real(name="x", edges=(0.0, 1.0, 10.0), unknown=Unknown.CLAMP)
    try:
        for unit in (Unit.row(), Unit("id", rows=1)):
            encoded = open_table(database.at(table)).encode(Domain((real,), unit=unit))
            assert count(encoded) == 4
            assert reveal(encoded.sums("x", (), unit=Fraction(1, 2))).tolist() == [5]
            assert reveal(encoded.sums("x", (), unit=Fraction(3))).tolist() == [1]
    finally:
        database.run(f"DROP TABLE {table}")


# per type: numbers, how many of them are in the cells [-10, 0), [0, 1) and [1, 10], and twice their clamped sum
EXTREMES = {
    "NUMERIC": (("1e1000", "-1e1000", "1e-1000", "-1e-1000", "1.8e308", "'NaN'", "2.5"), [1, 2, 3], 25),
    "DECIMAL(65, 30)": (("-" + "9" * 35 + ".5", "9" * 35, "1e-30", "2.5"), [1, 1, 2], 5),
    "DOUBLE PRECISION": (("1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "2.5"), [1, 1, 2], 5),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_a_number_beyond_the_range_of_doubles_is_clamped_and_fails_nothing(database, kind):
    if kind == "NUMERIC" and not database.postgres:
        pytest.skip("a decimal of MariaDB has at most 65 digits")
    table, (values, cells, total) = f"{database.name}_extreme", EXTREMES[kind]
    database.run(
        f"CREATE TABLE {table} (word VARCHAR(20), x {kind})",
        f"INSERT INTO {table} VALUES " + ", ".join(f"('a', {value})" for value in values),
    )
    numbers = Real(name="x", edges=(-10.0, 0.0, 1.0, 10.0), unknown=Unknown.CLAMP, nullable=True)
    category = Categorical(name="x", values=(5, 6), unknown=Unknown.CATEGORY, nullable=True)
    recode = Recode(("word",), (np.zeros(3, np.uint8),), np.array([[0]], np.uint8), pa.table({"word": ["any"]}))
    try:
        opened = open_table(database.at(table))
        encoded = opened.encode(Domain((numbers,)))
        missing = int("'NaN'" in values)
        assert reveal(encoded.marginals([("x",)])[0]).tolist() == [*cells, missing]
        assert reveal(encoded.sums("x", (), unit=Fraction(1, 2))).item() == total
        found = reveal(opened.encode(Domain((category,))).marginals([("x",)])[0])
        assert found.tolist() == [0, 0, missing, len(values) - missing]
        assert opened.profile(9)[1].held == len(values) - missing
        assert reveal(opened.encode(DOMAIN).recoded(recode, ("x",))).num_rows == len(values)
        assert len(opened.values("x")) == len(values)
    finally:
        database.run(f"DROP TABLE {table}")


def written_while_it_is_read(database, monkeypatch):
    """The table, which another connection writes once its content was named the first time."""
    table = open_table(database.at(database.name))
    content, written = type(table).content_in, []

    def write_then(self, session):
        found = content(self, session)
        if not written:
            written.append(database.run(f"INSERT INTO {database.name} VALUES ('a', 4)"))
        return found

    monkeypatch.setattr(type(table), "content_in", write_then)
    return table


def test_rows_and_their_content_are_of_one_state_of_the_table(database, monkeypatch):
    _, before = open_table(database.at(database.name)).encode_with_content(DOMAIN)
    table = written_while_it_is_read(database, monkeypatch)
    if not database.postgres:
        refused(EngineError, lambda: table.encode_with_content(DOMAIN))
        return
    encoded, content = table.encode_with_content(DOMAIN)
    assert (count(encoded), content.name) == (3, before.name)
    again, after = table.encode_with_content(DOMAIN)
    assert count(again) == 4
    assert after.name != before.name


def test_a_table_that_cannot_be_encoded_leaves_no_transaction_behind(database):
    table = open_table(database.at(database.name))
    database.run(f"ALTER TABLE {database.name} RENAME COLUMN n TO m")
    refused(EngineError, lambda: table.encode_with_content(DOMAIN))
    database.run(f"DROP TABLE {database.name}", f"CREATE TABLE {database.name} (word VARCHAR(20), n INTEGER)")
