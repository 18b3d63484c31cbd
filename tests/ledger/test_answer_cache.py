"""Charged and answered releases are returned without the lock, and no others."""

from __future__ import annotations

import pytest
from tests.ledger.asking import ROW, TENTH, ask, question, release

from sfumato import bounded_cache
from sfumato.errors import BudgetError, InputError, LedgerError
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Epsilon


@pytest.fixture
def answered(ledger):
    """Return a ledger in which ann asked one question twice under one retry key."""
    for _ in range(2):
        release(ledger, question(), TENTH, lambda: b"x", statement="pure", unit=ROW, analyst="ann", retry_key="r1")
    return ledger


@pytest.fixture
def locked(answered, url, monkeypatch):
    """Return the same ledger while another process holds the lock for longer than any timeout."""
    monkeypatch.setattr("sfumato.ledger.database.PATIENCE", 0.05)
    other = Store(url)
    with other.writing() as connection:
        connection.run("UPDATE ledger_dataset SET entries = entries")
        monkeypatch.setattr(Store, "writing", refuse)
        yield answered
    other.close()


def refuse(_store):
    raise LedgerError("locked")


def test_a_repeat_waits_for_no_lock(locked):
    for retry_key in (None, "r1"):
        receipt = ask(locked, analyst="ann", retry_key=retry_key)
        assert (receipt.answer, receipt.charged, receipt.charged_analyst) == (b"x", False, False)


@pytest.mark.parametrize(
    "other",
    [{"analyst": "bob"}, {"analyst": None}, {"analyst": "ann", "retry_key": "r2"}, {"number": 1, "analyst": "ann"}],
)
def test_what_differs_in_anything_goes_to_the_database(locked, other):
    with pytest.raises(LedgerError, match="locked"):
        ask(locked, **other)


def test_another_analyst_still_pays_from_their_own_cap(answered):
    answered.set_cap("bob", Epsilon("0.05"))
    with pytest.raises(BudgetError):
        ask(answered, analyst="bob")
    assert ask(answered, analyst="cyd").charged_analyst


def test_a_retry_key_that_is_remembered_serves_no_other_question(answered):
    with pytest.raises(InputError, match="another question"):
        ask(answered, 1, analyst="ann", retry_key="r1")
    assert ask(answered, 0, Epsilon("0.2").charge, analyst="ann").charged


def test_only_so_much_is_remembered(answered, monkeypatch):
    monkeypatch.setattr(bounded_cache, "MOST_BYTES", 5_000)
    for number in (1, 2, 3):
        release(answered, question(number), TENTH, lambda: b"y", statement="pure", unit=ROW)
        ask(answered, number)
    monkeypatch.setattr(Store, "writing", refuse)
    assert ask(answered, 3).answer == b"y", "it was asked last"
    with pytest.raises(LedgerError, match="locked"):
        ask(answered, analyst="ann")
