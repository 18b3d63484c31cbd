"""A release computed in the transaction that charges: both or neither, and a failure is charged all the same."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction

import pytest
from tests.ledger.asking import ROW, TENTH, ask, behind_its_back, question, release, spent_epsilon
from tests.processes import processes

from sfumato.errors import BudgetError, LedgerError, UnitError
from sfumato.ledger import Kind, open_ledger
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Epsilon


def at_once(ledger, compute, number=0, **terms):
    """A release whose answer is computed with its charge, or not at all."""
    return release(ledger, question(number), TENTH, pytest.fail, at_once=compute, statement="pure", unit=ROW, **terms)


def kinds(ledger):
    ledger.verify()
    return [entry.kind for entry in ledger.journal()]


def transactions(monkeypatch):
    """How many transactions that write are begun from now on."""
    begun, writing = [], Store.writing
    monkeypatch.setattr(Store, "writing", lambda store: begun.append(1) or writing(store))
    return begun


def test_charge_and_answer_are_one_transaction(ledger, monkeypatch):
    begun = transactions(monkeypatch)
    found = at_once(ledger, lambda: b"seven", analyst="ann")
    assert (found.answer, found.charged, found.charged_analyst, len(begun)) == (b"seven", True, True, 1)
    assert (spent_epsilon(ledger), kinds(ledger)) == (TENTH.epsilon, [Kind.RELEASE])


def test_it_is_computed_once_for_whoever_asks(url, ledger):
    at_once(ledger, lambda: b"seven")
    with open_ledger(url, dataset="people", limit=None) as other:
        for asked in (ledger, other):
            found = at_once(asked, pytest.fail)
            assert (found.answer, found.charged) == (b"seven", False)
    assert (spent_epsilon(ledger), kinds(ledger)) == (TENTH.epsilon, [Kind.RELEASE])


def test_threads_that_ask_for_one_release_compute_it_once(ledger):
    computed, together = [], threading.Barrier(8)

    def asked(_):
        together.wait(60)
        return at_once(ledger, lambda: computed.append(1) or os.urandom(8)).answer

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(asked, range(8)))) == len(computed) == 1


def test_what_is_refused_is_not_computed(ledger):
    ledger.set_cap("ann", Epsilon("0.05"))
    before = ledger.verify()
    with pytest.raises(BudgetError):
        at_once(ledger, pytest.fail, analyst="ann")
    with pytest.raises(UnitError):
        at_once(ledger, pytest.fail, admission=no)
    assert (ledger.verify(), spent_epsilon(ledger)) == (before, 0)


def no(*_):
    raise UnitError("no")


def test_what_raises_after_it_drew_is_charged_each_time_and_never_answered(ledger):
    drawn = []

    def fail():
        drawn.append(1)
        raise ZeroDivisionError

    for times in range(1, 4):
        with pytest.raises(ZeroDivisionError):
            at_once(ledger, fail, drawn=lambda: bool(drawn))
        assert spent_epsilon(ledger) == Fraction(times, 10)
    assert (kinds(ledger), len(drawn)) == ([Kind.RELEASE, Kind.FAILED] * 3, 3)


def test_what_raises_before_it_draws_stays_charged_and_may_be_asked_again(ledger):
    with pytest.raises(ZeroDivisionError):
        at_once(ledger, lambda: 1 // 0, drawn=lambda: False)
    assert (spent_epsilon(ledger), kinds(ledger)) == (TENTH.epsilon, [Kind.RELEASE])
    found = release(ledger, question(), TENTH, lambda: b"seven", statement="pure", unit=ROW)
    assert (found.answer, found.charged, spent_epsilon(ledger)) == (b"seven", False, TENTH.epsilon)


def test_what_cannot_be_computed_at_once_is_computed_after_the_charge(ledger):
    seen = []

    def after():
        seen.append(spent_epsilon(ledger))
        return b"seven"

    found = release(ledger, question(), TENTH, after, at_once=lambda: None, statement="pure", unit=ROW)
    assert (found.answer, seen, kinds(ledger)) == (b"seven", [TENTH.epsilon], [Kind.RELEASE])


def test_a_pending_release_is_computed_for_its_charge_and_not_at_once(ledger):
    ask(ledger)
    found = release(ledger, question(), TENTH, lambda: b"seven", at_once=pytest.fail, statement="pure", unit=ROW)
    assert (found.answer, found.charged, spent_epsilon(ledger)) == (b"seven", False, TENTH.epsilon)


def test_an_interruption_leaves_neither_charge_nor_answer(ledger):
    def interrupted():
        raise KeyboardInterrupt

    before = ledger.verify()
    with pytest.raises(KeyboardInterrupt):
        at_once(ledger, interrupted, drawn=lambda: True)
    assert (ledger.verify(), spent_epsilon(ledger)) == (before, 0)
    assert at_once(ledger, lambda: b"seven").charged


def test_an_answer_that_is_not_committed_is_neither_charged_nor_handed_out(url, ledger):
    at_once(ledger, lambda: b"one")
    before = ledger.verify()
    behind_its_back(url, *REFUSING["sqlite" if url.startswith("sqlite") else "postgres"])
    computed = []
    with pytest.raises(LedgerError):
        at_once(ledger, lambda: computed.append(1) or b"two", 2)
    assert (computed, ledger.verify(), spent_epsilon(ledger)) == ([1], before, TENTH.epsilon)
    assert at_once(ledger, pytest.fail).answer == b"one"


REFUSING = {  # answers from now on
    "sqlite": ["CREATE TRIGGER full BEFORE INSERT ON ledger_answer BEGIN SELECT RAISE(ABORT, 'full'); END"],
    "postgres": ["ALTER TABLE ledger_answer ADD CONSTRAINT full_now CHECK (number < 2) NOT VALID"],
}


def test_one_that_fails_does_not_take_those_with_it_who_wait_for_the_same_commit(ledger):
    together = threading.Barrier(8)

    def asked(number):
        together.wait(60)
        with suppress(ZeroDivisionError):
            return at_once(ledger, (lambda: 1 // 0) if number == 3 else (lambda: b"%d" % number), number).answer
        return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(asked, range(8)))
    assert answers == [None if number == 3 else b"%d" % number for number in range(8)]
    assert (spent_epsilon(ledger), kinds(ledger).count(Kind.FAILED)) == (Fraction(8, 10), 1)


def die_while_computing(url):
    with open_ledger(url, dataset="people", limit=None) as ledger:
        at_once(ledger, lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_a_death_within_it_leaves_neither_charge_nor_answer_however_often(url, ledger):
    before = ledger.verify()
    for _ in range(2):
        child = processes().Process(target=die_while_computing, args=(url,))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    assert (ledger.verify(), spent_epsilon(ledger)) == (before, 0)
    found = at_once(ledger, lambda: b"seven")
    assert (found.answer, found.charged, spent_epsilon(ledger)) == (b"seven", True, TENTH.epsilon)
