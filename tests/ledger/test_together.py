"""Releases that are reserved together: one transaction, and each is charged, found or refused as if it were alone."""

from __future__ import annotations

import pytest
from tests.ledger.asking import ROW, TENTH, ask, question, spent_epsilon

from sfumato.errors import BudgetError, LedgerError, RetryKeyError
from sfumato.ledger import Kind
from sfumato.ledger.ledger import reserve_together
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Epsilon


def asked(ledger, number, charge=TENTH, **terms):
    return ledger.releasing(question(number), charge, statement="pure", unit=ROW, **terms)


def answered(releasing):
    with releasing as reserved:
        if reserved.answer is None:
            reserved.settle(b"late")
    return reserved.answered()


def outcome(releasing):
    try:
        return answered(releasing)
    except (BudgetError, LedgerError, RetryKeyError, ArithmeticError) as error:
        return error


@pytest.fixture
def begun(monkeypatch):
    """How many transactions that write are begun."""
    found, writing = [], Store.writing
    monkeypatch.setattr(Store, "writing", lambda store: found.append(1) or writing(store))
    return found


def test_charges_and_answers_of_all_are_one_transaction(ledger, begun):
    group = [asked(ledger, number, at_once=lambda number=number: bytes([number])) for number in range(8)]
    assert not ledger.remaining().spent.epsilon, "nothing is charged before"
    reserve_together(group)
    assert (len(begun), spent_epsilon(ledger)) == (1, 8 * TENTH.epsilon)
    assert not any(each.waits for each in group)
    assert [answered(each).answer for each in group] == [bytes([number]) for number in range(8)]
    assert len(begun) == 1
    ledger.verify()


def test_each_is_refused_or_served_alone(ledger):
    ask(ledger, 99, retry_key="mine")
    ask(ledger, 0, Epsilon("0.65").charge)
    group = [asked(ledger, number, at_once=lambda: b"x") for number in range(1, 5)]
    group.append(asked(ledger, 5, None, retry_key="mine"))
    reserve_together(group)
    kinds = [type(outcome(each)).__name__ for each in group]
    assert kinds == ["Answered"] * 2 + ["BudgetError"] * 2 + ["RetryKeyError"]
    assert float(spent_epsilon(ledger)) == 0.95
    ledger.verify()


def test_one_question_of_many_is_charged_and_computed_once(ledger):
    computed = []
    group = [asked(ledger, 1, at_once=lambda: computed.append(1) or b"seven") for _ in range(8)]
    reserve_together(group)
    found = [answered(each) for each in group]
    assert [each.charged for each in found] == [True] + [False] * 7
    assert {each.answer for each in found} == {b"seven"}
    assert (len(computed), spent_epsilon(ledger)) == (1, TENTH.epsilon)
    again = asked(ledger, 1, at_once=pytest.fail)
    reserve_together([again])  # which is remembered, and not looked up
    assert answered(again).answer == b"seven"


def test_what_cannot_be_computed_at_once_waits_and_is_computed_for_its_charge(ledger):
    group = [asked(ledger, 1, at_once=lambda: None), asked(ledger, 2, at_once=lambda: b"x"), asked(ledger, 1)]
    reserve_together(group)
    assert [each.waits for each in group] == [True, False, True]
    assert [answered(each).answer for each in group] == [b"late", b"x", b"late"]
    assert spent_epsilon(ledger) == 2 * TENTH.epsilon
    ledger.verify()


def test_what_raises_stays_charged_and_harms_no_other(ledger):
    def broken():
        raise ZeroDivisionError

    group = [asked(ledger, 1, at_once=lambda: b"x"), asked(ledger, 2, at_once=broken), asked(ledger, 3)]
    reserve_together(group)
    assert [type(outcome(each)).__name__ for each in group] == ["Answered", "ZeroDivisionError", "Answered"]
    assert spent_epsilon(ledger) == 3 * TENTH.epsilon
    assert [entry.kind for entry in ledger.journal()].count(Kind.FAILED) == 1
    ledger.verify()


def test_what_the_database_refuses_takes_no_other_with_it(ledger, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.reservation.afford", lambda *_: None)
    group = [asked(ledger, 1), asked(ledger, 2, Epsilon(5).charge), asked(ledger, 3)]
    reserve_together(group)
    assert [type(outcome(each)).__name__ for each in group] == ["Answered", "LedgerError", "Answered"]
    assert spent_epsilon(ledger) == 2 * TENTH.epsilon
    ledger.verify()


def test_of_a_commit_that_fails_nobody_gets_an_answer(ledger, monkeypatch):
    def fail(driver):
        raise LedgerError("the disk is full")

    group = [asked(ledger, number, at_once=lambda: b"x") for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr("sfumato.ledger.dbapi.Driver.commit", fail)
        reserve_together(group)
    assert {str(outcome(each)) for each in group} == {"the disk is full"}
    assert spent_epsilon(ledger) == 0
    assert list(ledger.journal()) == []
