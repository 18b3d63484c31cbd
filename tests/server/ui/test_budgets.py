"""Budgets in words: what is left, and what a refusal leaves to do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sfumato.ledger import Account
from sfumato.privacy.loss import NOTHING, Epsilon, EpsilonDelta, Loss, Rho
from sfumato_server.ui.budgets import Accounts, gauge, largest_loss, left_words, refusal_words

BOTH = EpsilonDelta(2, "1e-9")
FREE = Account(None, NOTHING)


@pytest.mark.parametrize("spent", ["0", "0.001", "0.5", "1", "1.9", "1.9999", "2"])
def test_the_largest_loss_fits_and_a_larger_one_does_not(spent):
    account = Account(BOTH, NOTHING if spent == "0" else EpsilonDelta(spent, "1e-9").charge)
    loss = largest_loss(account)
    if spent == "2":
        assert (loss, gauge(account).most) == (None, "")
        return
    assert isinstance(loss, EpsilonDelta)
    assert spent != "0" or loss == BOTH
    assert account.admits(loss.charge)
    assert not account.admits(EpsilonDelta(loss.epsilon * Fraction(102, 100), loss.delta).charge)
    assert Fraction(gauge(account).most) == loss.epsilon


@pytest.mark.parametrize(
    ("limit", "spent", "words"),
    [
        (Epsilon(3), NOTHING, "100 % left of epsilon 3"),
        (Epsilon(3), Epsilon("2.999").charge, "less than 0.1 % left of epsilon 3 (epsilon 0.001)"),
        (Epsilon(3), Epsilon("0.001").charge, "99.9 % left of epsilon 3 (epsilon 2.999)"),
        (Rho(1), Rho("0.25").charge, "75 % left of rho 1"),
        (BOTH, BOTH.charge, "nothing left of epsilon 2, delta 1e-9"),
    ],
)
def test_what_is_left_is_never_rounded_up(limit, spent, words):
    assert left_words(Account(limit, spent)) == words


def of(limit: Loss, spent: str) -> Account:
    return Account(limit, NOTHING if spent == "0" else Epsilon(spent).charge)


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        (Accounts(of(Epsilon(9), "0"), of(Epsilon(1), "0.5"), None), "at most epsilon 0.5, or ask a steward"),
        (Accounts(of(Epsilon(9), "1"), of(Epsilon(1), "1"), None), "earlier questions for free, or ask a steward"),
        (Accounts(of(Epsilon(9), "1"), FREE, of(Epsilon(1), "1")), "for free, or wait for the next month."),
        (Accounts(of(Epsilon(9), "9"), FREE, None), "for free. New questions are refused for ever"),
        (Accounts(of(Epsilon(9), "8.5"), FREE, None), "at most epsilon 0.5."),
        (Accounts(of(Epsilon(9), "8.5"), FREE, of(Epsilon(9), "8.5")), "at most epsilon 0.5, or wait"),
    ],
)
def test_a_refusal_names_the_budget_and_what_to_do(accounts, words):
    said = refusal_words(Epsilon("0.75"), accounts)
    assert said is not None
    assert words in said
    assert (
        refusal_words(Epsilon("0.75"), replace(accounts, dataset=of(Epsilon(99), "0"), own=FREE, months=None)) is None
    )
