"""Several processes create one ledger at the same time, or die meanwhile: one ledger is created, and all get an
answer.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing, contextmanager

import pytest
from tests.processes import processes

from sfumato.errors import LedgerError, LimitError, MissingLedgerError
from sfumato.ledger import dataset_terms, open_ledger, schema
from sfumato.ledger import store as store_module
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Epsilon


def begin(url, limit="1"):
    return open_ledger(url, dataset="people", limit=Epsilon(limit), create=True)


@pytest.fixture
def held(tmp_path):
    """A file without tables that another process is in the middle of writing to, and its address."""
    file = tmp_path / "test.ledger"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other, f"sqlite:///{file}"


def test_who_comes_second_to_change_the_mode_of_the_log_tries_again(held, monkeypatch):
    other, url = held
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            other.execute("ROLLBACK")

    monkeypatch.setattr(store_module.time, "sleep", pause)
    with begin(url) as ledger:
        ledger.verify()
    assert len(pauses) == 3


def test_who_waits_for_too_long_is_told_so_and_leaves_no_tables(held, monkeypatch):
    other, url = held
    monkeypatch.setattr(store_module, "PATIENCE", 0)
    with pytest.raises(LedgerError, match="locked by another program"):
        begin(url)
    other.execute("ROLLBACK")
    assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


@pytest.mark.parametrize("times", [1, 2])
def test_who_waited_for_the_lock_finds_what_another_made(url, monkeypatch, times):
    """Another is faster before the tables are made (the first wait), or before the dataset is entered (the second)."""
    founding, waits = Store.founding, []

    @contextmanager
    def overtaken(self):
        waits.append(self)
        if len(waits) == times:
            begin(url).close()
        with founding(self) as connection:
            yield connection

    monkeypatch.setattr(Store, "founding", overtaken)
    with begin(url) as ledger:
        assert ledger.limit == Epsilon(1)
        ledger.verify()
    assert len(waits) > times


def test_who_begins_it_under_another_limit_later_is_refused(url, monkeypatch):
    enter, first = dataset_terms.insert_dataset, []

    def overtaken(connection, name, limit, unit):
        if not first:
            first.append(limit)
            enter(connection, name, Epsilon(2), unit)  # what the faster one had committed before this lock was given
        enter(connection, name, limit, unit)

    monkeypatch.setattr(dataset_terms, "insert_dataset", overtaken)
    with pytest.raises(LimitError, match="never changes"):
        begin(url)
    with open_ledger(url, dataset="people", limit=None) as ledger:
        assert ledger.limit == Epsilon(2)


def _die(*_args, **_terms):
    os.kill(os.getpid(), signal.SIGKILL)


def _die_within(connection):
    """Die after some tables were created."""
    for table in schema.JOURNAL_TABLES[:2]:
        connection.run(table)
    _die()


TABLES = {
    "sqlite": "SELECT name FROM sqlite_master",
    "postgresql": "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace",
}
POINTS = {
    "with an empty file": (Store, "_use_write_ahead_log"),
    "before any table": (Store, "founding"),
    "between tables": (store_module, "create_tables"),
    "before the dataset": (dataset_terms, "insert_dataset"),
}


def die_while_beginning(url, point):
    place, name = POINTS[point]
    setattr(place, name, _die_within if point == "between tables" else _die)
    begin(url)


@pytest.mark.parametrize("point", POINTS)
def test_who_dies_while_it_begins_a_ledger_leaves_none(url, point):
    if point == "with an empty file" and not url.startswith("sqlite"):
        pytest.skip("PostgreSQL has no such file")
    child = processes().Process(target=die_while_beginning, args=(url, point))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(MissingLedgerError):
        open_ledger(url, dataset="people", limit=Epsilon(1))
    if point != "before the dataset":
        with closing(Store(url)) as store, store.reading() as connection:
            assert connection.rows(TABLES[connection.database]) == []
    with begin(url) as ledger:
        ledger.verify()
