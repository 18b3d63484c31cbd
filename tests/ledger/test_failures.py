"""The ledger's errors if its database is missing, locked, read-only, broken or of another kind."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from tests.ledger.asking import TENTH, ask, behind_its_back, spent_epsilon, unfreeze
from tests.services import require

from sfumato.errors import InputError, LedgerError, NoLedgerError
from sfumato.ledger import database, open_ledger, store
from sfumato.privacy.loss import Epsilon

ONE = Epsilon(1)
ADDRESSES = [
    "sqlite:///people.ledger",
    "sqlite:////folder/my people.ledger",
    "sqlite:///file:people.ledger?mode=ro&uri=true",
    "postgresql://ann:p%40ss%2Fword@[::1]:5432/people?options=-csearch_path%3Dx&sslmode=disable",
    "postgresql+psycopg://ann@localhost/people",
    "postgresql:///people?host=/tmp/run&user=ann",
    "postgresql://localhost",
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def address(file):
    return f"sqlite:///{file}"


def opened(address, limit=ONE):
    return open_ledger(address, dataset="people", limit=limit, create=True)


def test_a_ledger_that_must_exist_is_not_made(file, address):
    with pytest.raises(LedgerError, match=r"there is no ledger at .*people\.ledger"):
        opened(address, limit=None)
    assert not file.exists()


def test_an_empty_file_is_no_ledger_yet(file, address):
    file.touch()
    with pytest.raises(LedgerError, match="there is no ledger"):
        opened(address, limit=None)
    with opened(address) as ledger:
        assert ask(ledger).charged


def test_a_missing_folder(tmp_path):
    with pytest.raises(LedgerError, match="cannot be opened; check that its folder exists"):
        opened(f"sqlite:///{tmp_path}/nowhere/people.ledger")


def test_a_file_that_is_no_database(file, address):
    file.write_bytes(b"name,age\nann,30\n" * 100)
    before = file.read_bytes()
    with pytest.raises(NoLedgerError, match="is not a ledger but some other file"):
        opened(address)
    assert file.read_bytes() == before


def test_a_database_that_is_no_ledger(file, address):
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE people (name TEXT)")
    before = file.read_bytes()
    with pytest.raises(NoLedgerError, match="is a database but not a ledger"):
        opened(address)
    assert file.read_bytes() == before


def test_a_corrupted_ledger(file, address):
    with opened(address) as ledger:
        for number in range(50):
            ask(ledger, number, None)
    pages = bytearray(file.read_bytes())
    pages[4096:] = bytes(len(pages) - 4096)
    file.write_bytes(pages)
    with pytest.raises(LedgerError, match="is corrupted; restore it"):
        opened(address)


def test_a_locked_ledger(file, address, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.database.PATIENCE", 0.05)
    with opened(address) as ledger, closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="is locked by another program"):
            ask(ledger)
        other.execute("ROLLBACK")
        assert ask(ledger).charged


def test_a_read_only_ledger_can_be_read_but_not_charged(file, address):
    with opened(address) as ledger:
        ask(ledger)
    with opened(f"sqlite:///file:{file}?mode=ro&uri=true", limit=None) as ledger:
        with pytest.raises(LedgerError, match="is read-only"):
            ask(ledger, 1)
        assert ledger.verify()
        assert len(list(ledger.journal())) == 1


def test_a_ledger_of_a_newer_version(file, address):
    opened(address).close()
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE ledger_version SET version_num = '9999'")
    with pytest.raises(LedgerError, match="written by another version of Sfumato"):
        opened(address)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/x", "oracle://"])
def test_an_address_that_is_none(url):
    with pytest.raises(InputError, match=r"sqlite:///FILE or postgresql://"):
        opened(url)


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_is_read_as_other_programs_read_it(url):
    found, other = database.Address.parse(url), make_url(url)
    port = None if found.port is None else int(found.port)
    assert found.backend == other.get_backend_name()
    assert (found.user, found.password, found.host, port, found.database) == (
        other.username,
        other.password,
        other.host,
        other.port,
        other.database,
    )
    assert dict(found.query) == dict(other.query)
    assert other.password is None or other.password not in str(found)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hid@den@localhost/people",
        "postgresql://ann:hidden@localhost:port/people",
        "postgresql://ann:hidden@[::1/people",
        "postgresql:/ann:hidden@localhost/people",
        "mysql://ann:hidden@localhost/people",
        "postgresql://ann:hidden@localhost/people?no_such_setting=1",
    ],
)
def test_an_address_that_is_refused_is_not_quoted_with_its_password(url):
    with pytest.raises(InputError) as refused:
        opened(url)
    assert "hid" not in f"{refused.value} {refused.value.culprit}"
    assert "den" not in str(refused.value)


@pytest.mark.parametrize(
    "setting", ["autocommit=1", "row_factory=dict", "context=x", "conninfo=host%3Da", "nothing=1", "host=a&host=b"]
)
def test_an_address_sets_nothing_but_what_a_connection_has_and_once(setting):
    with pytest.raises(InputError, match="is no setting of a connection, or stands there twice"):
        opened(f"postgresql://ann@127.0.0.1:1/people?{setting}")


@pytest.mark.parametrize("name", [b"\xff.ledger", b"100%.ledger", b"a#b'c\"?.ledger", b"/people.ledger"])
def test_a_file_is_opened_under_whatever_name_the_system_gives(name, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    with opened("sqlite:///" + path.replace("%", "%25").replace("?", "%3F")) as ledger:
        assert ask(ledger).charged
    assert Path(path).exists()
    if name.startswith(b"/"):
        with opened(f"sqlite:////{path}") as ledger:
            assert not ask(ledger).charged


def test_a_name_that_no_file_has_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="no file may have"):
        opened(f"sqlite:///{tmp_path}/a\0b.ledger")
    with pytest.raises(NoLedgerError, match="is a folder; name a file in it"):
        opened(f"sqlite:///{tmp_path}")
    assert not list(tmp_path.iterdir())


def test_a_server_that_cannot_be_reached():
    with pytest.raises(LedgerError, match=r"postgresql://ann:\*\*\*@127\.0\.0\.1:1/x cannot be reached"):
        opened("postgresql://ann:secret@127.0.0.1:1/x")


def test_a_database_that_does_not_exist():
    server = make_url(require("SFUMATO_TEST_POSTGRES"))
    with pytest.raises(LedgerError, match=r"cannot be reached; check .* database"):
        opened(server.set(database="nowhere").render_as_string(hide_password=False))


def test_a_wrong_password():
    server = make_url(require("SFUMATO_TEST_POSTGRES"))
    with pytest.raises(LedgerError, match=r"cannot be reached; check .* password") as caught:
        opened(server.set(password=server.password[::-1]).render_as_string(hide_password=False))
    assert server.password[::-1] not in str(caught.value)


def test_a_connection_that_is_cut_charges_nothing_and_is_replaced(postgres, monkeypatch):
    writing = store.Store.writing

    @contextmanager
    def cut(place):
        with writing(place) as driver:
            driver.rows("SELECT pg_terminate_backend(pg_backend_pid())")
            yield driver

    with opened(postgres) as ledger:
        ask(ledger)
        with monkeypatch.context() as patched:
            patched.setattr(store.Store, "writing", cut)
            with pytest.raises(LedgerError, match="lost its connection; ask again"):
                ask(ledger, 1)
        assert spent_epsilon(ledger) == TENTH.epsilon
        assert not ask(ledger).charged
        assert ask(ledger, 1).charged


def test_a_connection_closed_at_checkout_raises_a_message_and_frees_its_slot(postgres, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 1)
    with opened(postgres) as ledger:
        for _ in range(store.KEPT + store.MORE + 1):
            ledger.remaining()
            with monkeypatch.context() as closing_it:
                closing_it.setattr(database.Postgresql, "answers", lambda _, connection: connection.close() or True)
                with pytest.raises(LedgerError, match="lost its connection"):
                    ledger.remaining()
        assert ask(ledger).charged


def test_a_process_that_vanishes_in_a_transaction_does_not_keep_the_others_waiting(postgres, monkeypatch):
    """Its connection stays open and silent, and locks the dataset's row until the database ends it."""
    monkeypatch.setattr(database, "SILENCE", 1)
    monkeypatch.setattr(database, "PATIENCE", 5)
    with opened(postgres) as ledger, closing(store.Store(postgres)) as vanished:

        def vanish():
            with vanished.writing() as connection:
                connection.rows("SELECT 1 FROM ledger_dataset FOR UPDATE")
                assert ask(ledger).charged
                connection.rows("SELECT 1")

        with pytest.raises(LedgerError, match="lost its connection"):
            vanish()
        assert spent_epsilon(ledger) == TENTH.epsilon


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_entry SET details = 'no JSON'",
        "UPDATE ledger_entry SET question = '[]'",
        "UPDATE ledger_entry SET kind = 'gift'",
        "UPDATE ledger_entry SET stated = '7'",
    ],
)
def test_rows_edited_by_others_are_reported_in_a_message(address, change) -> None:
    with closing(open_ledger(address, dataset="people", limit=ONE, create=True)) as ledger:
        ask(ledger)
    unfreeze(address)
    behind_its_back(address, change)
    with closing(open_ledger(address, dataset="people", limit=ONE)) as ledger:
        with pytest.raises(LedgerError, match="that cannot be read, so it was changed or damaged"):  # noqa: PT012
            list(ledger.journal())
            ask(ledger, 1)
        assert spent_epsilon(ledger) == TENTH.epsilon


def test_an_edited_secret_is_reported_as_damaged(address) -> None:
    with closing(open_ledger(address, dataset="people", limit=ONE, create=True)) as ledger:
        ask(ledger)
    unfreeze(address)
    behind_its_back(address, "UPDATE ledger_dataset SET secret = 'zz'")
    with closing(open_ledger(address, dataset="people", limit=ONE)) as ledger:
        for look in (ledger.remaining, lambda: ask(ledger, 1)):
            with pytest.raises(LedgerError, match="that cannot be read, so it was changed or damaged"):
                look()


def test_edited_owners_are_reported_as_damaged(address) -> None:
    with closing(open_ledger(address, dataset="people", limit=ONE, create=True)) as ledger:
        ask(ledger)
    unfreeze(address)
    behind_its_back(address, """UPDATE ledger_entry SET details = 'no JSON "owners":{'""")
    with (
        closing(open_ledger(address, dataset="people", limit=ONE)) as ledger,
        pytest.raises(LedgerError, match="holds an entry that cannot be read"),
    ):
        ledger.recorded_owners()
