"""Sixteen writers, one unit of budget, and mutants that the race must catch."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from tests.ledger.asking import TENTH, ask, behind_its_back, spent_epsilon
from tests.ledger.racing_processes import ask_once, outcome
from tests.processes import processes

from sfumato.errors import BudgetError
from sfumato.ledger import Ledger, open_ledger
from sfumato.ledger.database import Sqlite
from sfumato.ledger.store import Store, connections
from sfumato.privacy.loss import Epsilon

WRITERS = 16
NEARLY_ALL = Epsilon("0.9").charge


def open_people(url):
    return open_ledger(url, dataset="people", limit=Epsilon(1), create=True)


@pytest.fixture
def tenth_left(ledger):
    ask(ledger, 1000, NEARLY_ALL)
    return ledger


def race(ledgers, numbers):
    """Each asks its question when all are ready; returns how often each kind of outcome came."""
    barrier = threading.Barrier(len(ledgers))

    def run(ledger, number):
        barrier.wait()
        return type(outcome(lambda: ask(ledger, number))).__name__

    with ThreadPoolExecutor(len(ledgers)) as pool:
        return Counter(pool.map(run, ledgers, numbers))


def is_sound(ledger, outcomes):
    """Exactly one got the last tenth, the others were told so, and the journal agrees."""
    ledger.verify()
    return (
        outcomes == {"Reservation": 1, "BudgetError": WRITERS - 1}
        and spent_epsilon(ledger) == 1
        and len(list(ledger.journal())) == 2
    )


def test_threads_of_one_ledger_race_for_the_last_tenth(tenth_left):
    assert is_sound(tenth_left, race([tenth_left] * WRITERS, range(WRITERS)))


def test_sixteen_ledgers_race_for_the_last_tenth(url, tenth_left):
    with ExitStack() as stack:
        ledgers = [stack.enter_context(open_people(url)) for _ in range(WRITERS)]
        assert is_sound(tenth_left, race(ledgers, range(WRITERS)))


def test_sixteen_processes_race_for_the_last_tenth(url, tenth_left):
    assert is_sound(tenth_left, race_of_processes(url, range(WRITERS)))


def test_sixteen_processes_make_one_ledger_and_pay_once_for_one_question(url):
    assert race_of_processes(url, [7] * WRITERS) == {"Reservation": WRITERS}
    with open_people(url) as ledger:
        assert spent_epsilon(ledger) == TENTH.epsilon
        ledger.verify()


def race_of_processes(url, numbers):
    context = processes()
    barrier = context.Barrier(WRITERS)
    children, results = [], []
    for number in numbers:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=ask_once, args=(url, number, barrier, sender))
        child.start()
        sender.close()
        children.append(child)
        results.append(receiver)
    outcomes = Counter(receiver.recv() for receiver in results)
    for child, receiver in zip(children, results, strict=True):
        child.join()
        receiver.close()
    return outcomes


def test_a_journal_is_whole_at_every_moment_of_writing(url, ledger):
    over = threading.Event()

    def write():
        with open_people(url) as other:
            for number in itertools.count():
                ask(other, number, None)
                if over.is_set():
                    return

    with ThreadPoolExecutor(1) as pool:
        writing, heads = pool.submit(write), set()
        try:
            while len(heads) < 8 and not writing.done():
                heads.add(ledger.verify())
        finally:
            over.set()
        writing.result()


class CheckThenSpend(Ledger):
    """The mutant: looks at the budget, and then spends without looking again.

    All look before any spends, which is the schedule that a lock forbids.
    """

    everybody_looked = threading.Barrier(WRITERS)

    def reserve(self, event, **terms):
        if not self.limit.admits(self.remaining().spent, event.charge):
            raise BudgetError("refused")
        self.everybody_looked.wait()
        return super().reserve(event, **terms)


@pytest.fixture
def unlocked(url, tenth_left, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.reservation.refuse_unaffordable", lambda *_: None)
    with CheckThenSpend(url, dataset="people", limit=Epsilon(1)) as ledger:
        yield ledger


def drop_the_checks(url, monkeypatch):
    if not url.startswith("sqlite"):
        behind_its_back(url, "ALTER TABLE ledger_dataset DROP CONSTRAINT within_limit")
        return
    connect, ignore = Sqlite.connect, "PRAGMA ignore_check_constraints = ON"
    monkeypatch.setattr(Sqlite, "connect", lambda self: (connection := connect(self), connection.execute(ignore))[0])
    with closing(Store(url)) as store:
        shared = connections(store.address, store.file)
        shared.forget()
        shared.give_back()


def test_the_race_catches_a_mutant_without_lock_and_check(url, unlocked, monkeypatch):
    drop_the_checks(url, monkeypatch)
    outcomes = race([unlocked] * WRITERS, range(WRITERS))
    assert not is_sound(unlocked, outcomes)
    assert spent_epsilon(unlocked) > 1


def test_the_check_of_the_database_stops_a_mutant_without_lock(unlocked):
    assert race([unlocked] * WRITERS, range(WRITERS)) == {"Reservation": 1, "LedgerError": WRITERS - 1}
    assert spent_epsilon(unlocked) == 1
    unlocked.verify()


def test_a_reader_sees_one_state_however_long_it_reads(url, ledger):
    count = "SELECT COUNT(*) FROM ledger_entry"
    with closing(Store(url)) as store:
        with store.reading() as driver:
            before = driver.value(count)
            ask(ledger)
            assert driver.value(count) == before
        with store.reading() as driver:
            assert driver.value(count) == before + 1
