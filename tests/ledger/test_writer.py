"""One writer groups waiting commits, and each caller gets what is theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from tests.ledger.asking import TENTH, ask, spent_epsilon

from sfumato.ledger import open_ledger
from sfumato.ledger.store import Store
from sfumato.ledger.writer import Ticket
from sfumato.privacy.loss import Epsilon


class Gate:
    """Holds the first transaction, of one ticket, open until enough others wait in line behind it."""

    def __init__(self, monkeypatch, waiting, before=lambda _: None):
        self.groups = []  # how many tickets each transaction attempted
        self.held = threading.Event()
        asleep = []  # the first as well, until it is woken to write
        writing, sleep, attempt = Store.writing, Ticket.sleep, Ticket.attempt

        @contextmanager
        def held(store):
            self.held.set()
            while not self.groups and len(asleep) <= waiting:
                threading.Event().wait(0.001)
            self.groups.append(0)
            before(self.groups)
            with writing(store) as driver:
                yield driver

        def counted(ticket, transaction):
            self.groups[-1] += 1
            attempt(ticket, transaction)

        monkeypatch.setattr(Store, "writing", held)
        monkeypatch.setattr(Ticket, "attempt", counted)
        monkeypatch.setattr(Ticket, "sleep", lambda ticket: (asleep.append(ticket), sleep(ticket)))

    def run(self, calls):
        """Outcomes of all calls, each in a thread of its own, the first of them in the first transaction."""
        with ThreadPoolExecutor(len(calls)) as pool:
            first = pool.submit(calls[0])
            assert self.held.wait(60)
            return [outcome(future) for future in [first, *(pool.submit(call) for call in calls[1:])]]


def outcome(future):
    return future.exception() or future.result()


def test_those_who_wait_are_written_together(ledger, monkeypatch):
    gate = Gate(monkeypatch, waiting=7)
    receipts = gate.run([lambda number=number: ask(ledger, number, None) for number in range(8)])
    assert gate.groups == [1, 7]
    assert sorted(receipt.number for receipt in receipts) == list(range(1, 9))
    ledger.verify()


def test_in_one_group_each_is_refused_or_served_alone(ledger, monkeypatch):
    ask(ledger, 0, Epsilon("0.75").charge)
    gate = Gate(monkeypatch, waiting=7)
    outcomes = gate.run([lambda number=number: ask(ledger, number) for number in range(1, 9)])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BudgetError"] * 6 + ["Receipt"] * 2
    assert float(spent_epsilon(ledger)) == 0.95
    ledger.verify()


def test_the_same_question_twice_in_one_group_is_paid_once(ledger, monkeypatch):
    gate = Gate(monkeypatch, waiting=7)
    receipts = gate.run([lambda: ask(ledger, 1)] * 8)
    assert sum(receipt.charged for receipt in receipts) == 1
    assert {receipt.number for receipt in receipts} == {1}
    assert spent_epsilon(ledger) == TENTH.epsilon


def test_what_the_database_refuses_does_not_take_the_others_with_it(ledger, monkeypatch):
    gate = Gate(monkeypatch, waiting=3)
    monkeypatch.setattr("sfumato.ledger.reservation.afford", lambda *_: None)
    asks = [lambda number=number: ask(ledger, number) for number in range(3)]
    outcomes = gate.run([*asks, lambda: ask(ledger, 3, Epsilon(5).charge)])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LedgerError"] + ["Receipt"] * 3
    assert float(spent_epsilon(ledger)) == 0.3
    assert gate.groups == [1, 3, 1, 1, 1]
    ledger.verify()


def test_a_lock_that_is_not_given_is_waited_for_once_by_all(url, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.dbapi.PATIENCE", 1)
    monkeypatch.setattr("sfumato.ledger.dbapi.SILENCE", 600)
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
        with closing(Store(url)) as other, other.writing() as connection:
            if connection.database == "postgresql":  # SQLite locks everything when the transaction begins
                connection.rows("SELECT * FROM ledger_dataset FOR UPDATE")
            gate = Gate(monkeypatch, waiting=7)
            outcomes = gate.run([lambda number=number: ask(ledger, number) for number in range(8)])
        assert {str(outcome).partition(" is ")[2] for outcome in outcomes} == {
            "locked by another program; close it or try again later"
        }
        assert len(gate.groups) == 2, "the first, and all who waited behind it"
        assert ask(ledger, 0).charged
        ledger.verify()


def test_an_interrupted_writer_leaves_the_others_in_line(ledger, monkeypatch):
    def interrupt(groups):
        if len(groups) == 2:  # the three who wait
            raise KeyboardInterrupt

    gate = Gate(monkeypatch, waiting=3, before=interrupt)
    outcomes = gate.run([lambda number=number: ask(ledger, number) for number in range(4)])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["KeyboardInterrupt"] + ["Receipt"] * 3
    assert gate.groups == [1, 0, 2], "whoever is interrupted drops out"
    ledger.verify()
