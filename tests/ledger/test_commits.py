"""A database that fails when a transaction begins or is to be made durable: nothing is free, nothing paid twice."""

from __future__ import annotations

import itertools
import os
import resource
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
from tests.ledger.asking import ROW, TENTH, ask, question, release, spent_epsilon
from tests.ledger.commits import Wire, failing
from tests.ledger.racing_processes import outcome

from sfumato.errors import LedgerError
from sfumato.ledger import database, open_ledger, transaction
from sfumato.ledger.store import KEPT, MORE, Store
from sfumato.privacy.loss import Epsilon

ASKERS = 8


def opened(address):
    return open_ledger(address, dataset="people", limit=Epsilon(1), create=True)


@pytest.fixture
def wire(postgres):
    with closing(Wire(postgres)) as made:
        yield made


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("RAISE EXCEPTION 'full'", "failed .*; nothing was written"),
        ("RAISE EXCEPTION 'no' USING ERRCODE = '23514'", "refused an entry"),
        (
            "PERFORM pg_terminate_backend(pg_backend_pid())",
            "lost its connection; ask again, which is never charged twice",
        ),
    ],
)
def test_a_commit_that_is_not_made_charges_nothing(postgres, how, said):
    with opened(postgres) as ledger:
        ask(ledger)
        head = ledger.verify()
        with failing(postgres, how), pytest.raises(LedgerError, match=said) as caught:
            ask(ledger, 1)
        assert "full" not in str(caught.value)
        assert (ledger.verify(), spent_epsilon(ledger)) == (head, TENTH.epsilon)
        assert ask(ledger, 1).charged
        assert spent_epsilon(ledger) == 2 * TENTH.epsilon


def test_a_commit_that_is_not_made_fails_all_who_wait_for_it(postgres):
    with opened(postgres) as ledger:
        how = "PERFORM pg_terminate_backend(pg_backend_pid())"
        with failing(postgres, how), ThreadPoolExecutor(ASKERS) as pool:
            outcomes = list(pool.map(lambda number: outcome(lambda: ask(ledger, number)), range(ASKERS)))
        assert {type(each) for each in outcomes} == {LedgerError}
        assert spent_epsilon(ledger) == 0
        assert all(ask(ledger, number).charged for number in range(ASKERS))
        ledger.verify()


def test_where_no_lock_on_the_release_can_be_had_nothing_is_charged(wire):
    """The lock has a connection of its own, and the database takes no further ones."""
    with opened(wire.url) as ledger:
        head = ledger.verify()
        wire.close()
        with pytest.raises(LedgerError, match="cannot be reached"):
            release(ledger, question(), TENTH, pytest.fail, statement="pure", unit=ROW)
        assert ledger.verify() == head


def test_a_commit_whose_news_is_lost_is_not_paid_twice(wire):
    with opened(wire.url) as ledger:
        ask(ledger)
        wire.breaks = lambda: True
        with pytest.raises(LedgerError, match="lost its connection; ask again, which is never charged twice"):
            ask(ledger, 1, retry_key="once")
        wire.breaks = lambda: False
        assert spent_epsilon(ledger) == 2 * TENTH.epsilon
        again = ask(ledger, 1, retry_key="once")
        assert not again.charged
        assert again.answer is None
        assert spent_epsilon(ledger) == 2 * TENTH.epsilon
        ledger.verify()


def test_an_answer_whose_storing_is_not_heard_of_is_not_handed_out_and_stands(wire):
    """The reservation's commit is confirmed and the answer's is not. A repeated request gets the stored answer."""
    with opened(wire.url) as ledger:
        computed = []

        def compute():
            computed.append(os.urandom(16))
            wire.breaks = lambda: not wire.broken
            return computed[-1]

        def asked():
            return release(ledger, question(), TENTH, compute, statement="pure", unit=ROW)

        with pytest.raises(LedgerError, match="lost its connection"):
            asked()
        assert wire.broken == 1
        found = asked()
        assert (found.answer, found.charged, len(computed)) == (computed[0], False, 1)
        assert spent_epsilon(ledger) == TENTH.epsilon
        ledger.verify()


def test_commits_whose_news_is_lost_again_and_again(wire):
    """Many ask at once until they are answered, and every third commit is not heard of."""
    cost, questions = Epsilon("0.01").charge, 40

    def answered(number):
        for _ in range(100):
            found = outcome(lambda: numbered(number))
            if not isinstance(found, LedgerError):
                return found.answer
        raise AssertionError("never answered")

    def numbered(number):
        return release(
            ledger, question(number), cost, lambda: os.urandom(16), statement="pure", unit=ROW, analyst="ann"
        )

    with opened(wire.url) as ledger:
        commits = itertools.count()
        wire.breaks = lambda: next(commits) % 3 == 2
        with ThreadPoolExecutor(ASKERS) as pool:
            first = list(pool.map(answered, [*range(questions), *range(questions)]))
        wire.breaks = lambda: False
        assert wire.broken
        assert first[:questions] == first[questions:]
        assert first[:questions] == [answered(number) for number in range(questions)]
        assert spent_epsilon(ledger) == ledger.remaining("ann").spent.epsilon == questions * cost.epsilon
        assert len(list(ledger.journal())) == questions
        ledger.verify()


def test_connections_that_were_cut_while_nobody_used_them_are_replaced(wire):
    with opened(wire.url) as ledger:
        for number in range(3):
            wire.cut()
            assert ask(ledger, number).charged
        assert spent_epsilon(ledger) == 3 * TENTH.epsilon


def test_a_server_that_is_away_when_a_transaction_begins(wire, postgres):
    with opened(wire.url) as ledger:
        ask(ledger)
        wire.close()
        wire.cut()
        with pytest.raises(LedgerError, match="cannot be reached"):
            ask(ledger, 1)
    with opened(postgres) as ledger:
        assert spent_epsilon(ledger) == TENTH.epsilon
        ledger.verify()


def test_all_connections_in_use_is_said(postgres, monkeypatch):
    with opened(postgres) as ledger, closing(Store(postgres)) as store, ExitStack() as held:
        monkeypatch.setattr(database, "PATIENCE", 0.05)
        for _ in range(KEPT + MORE):
            held.enter_context(store.reading())
        for call in (lambda: ask(ledger), ledger.remaining):
            with pytest.raises(LedgerError, match="has all its connections in use; try again later"):
                call()
        held.close()
        assert ask(ledger).charged


@contextmanager
def no_room(file):
    """No file may grow beyond what the ledger's log has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_charges_nothing_and_harms_nothing(tmp_path, monkeypatch):
    """SQLite writes its log when it commits."""
    file = tmp_path / "people.ledger"
    with opened(f"sqlite:///{file}") as ledger:
        monkeypatch.setattr("sfumato.ledger.store.CHECKPOINT_AFTER", float("inf"))
        with closing(sqlite3.connect(file)) as other:  # the log is as large as what it holds
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ask(ledger)
        head = ledger.verify()
        with no_room(tmp_path / "people.ledger-wal"):
            for _ in range(2):
                with pytest.raises(LedgerError, match="disk"):
                    ask(ledger, 1)
            assert (ledger.verify(), spent_epsilon(ledger)) == (head, TENTH.epsilon)
        assert ask(ledger, 1).charged
        assert spent_epsilon(ledger) == 2 * TENTH.epsilon
    with opened(f"sqlite:///{file}") as ledger:
        ledger.verify()
        assert not ask(ledger, 1).charged


def test_entries_have_the_time_at_which_their_turn_came(tmp_path, monkeypatch):
    """Whoever waited for the dataset is later than who held it, so that times rise with numbers."""
    done, rows, now = [], database.Driver.rows, transaction.now

    def looked(driver, statement, values=None):
        found = rows(driver, statement, values)
        done.extend(["locked"] if statement == transaction.LOCK_DATASET else [])
        return found

    monkeypatch.setattr(database.Driver, "rows", looked)
    monkeypatch.setattr(transaction, "now", lambda: done.append("timed") or now())
    with opened(f"sqlite:///{tmp_path}/a.ledger") as ledger:
        done.clear()
        ask(ledger)
        ask(ledger, 1)
        assert done == ["locked", "timed"] * 2
        times = [entry.time for entry in ledger.journal()]
    assert len(times) == 2
    assert times == sorted(times)


def test_releases_are_looked_up_by_their_keys_however_long_the_journal(tmp_path):
    """SQLite would rather read all entries of a dataset in their order, at a cost that grows with the journal."""
    address = f"sqlite:///{tmp_path}/a.ledger"
    with opened(address) as ledger:
        ask(ledger)
    values = {"of_dataset": "people", "of_kind": "repeat", "of_key": "", "of_analyst": ""}
    with closing(Store(address)) as store, store.reading() as driver:
        statement = f"EXPLAIN QUERY PLAN {transaction.FIND_ENTRIES}"
        steps = [row[-1] for row in driver.rows(statement, values)]
    assert "SEARCH entry USING INDEX ledger_shown (dataset=? AND key=?)" in steps
