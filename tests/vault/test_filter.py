from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import BudgetError
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, EpsilonDelta, Rho, total
from sfumato.vault.mechanisms import PrivacyFilter

PARTS_OF_ONE = st.fractions(Fraction(1, 1000), Fraction(2, 3), max_denominator=10**6)
PARTS = st.lists(st.fractions(Fraction(1, 1000), 2), min_size=1, max_size=8)


@given(PARTS, st.fractions(Fraction(1, 100), 4))
def test_a_privacy_filter_never_gives_more_than_it_holds_and_refusals_take_nothing(parts, held) -> None:
    for measure in (Epsilon, Rho):
        privacy_filter = PrivacyFilter(measure(held).charge)
        given_out = NOTHING
        for part in parts:
            charge = measure(part).charge
            try:
                privacy_filter.spend(charge)
            except BudgetError:
                assert privacy_filter.spent == given_out
            else:
                given_out += charge
        spent = given_out.epsilon if measure is Epsilon else given_out.rho
        assert spent <= held
        assert privacy_filter.spent == given_out


def test_ten_tenths_are_one() -> None:
    privacy_filter = PrivacyFilter(Epsilon(1).charge)
    for _ in range(10):
        privacy_filter.spend(Epsilon(0.1).charge)
    with pytest.raises(BudgetError):
        privacy_filter.spend(Epsilon("1e-30").charge)


def test_a_pure_privacy_filter_gives_nothing_that_is_not_pure() -> None:
    with pytest.raises(BudgetError):
        PrivacyFilter(Epsilon(5).charge).spend(Rho("0.001").charge)


def test_a_pure_event_fits_a_concentrated_privacy_filter() -> None:
    privacy_filter = PrivacyFilter(Rho("0.5").charge)
    privacy_filter.spend(Epsilon(1).charge)
    assert privacy_filter.spent.rho == Fraction(1, 2)


def test_a_delta_binds() -> None:
    privacy_filter = PrivacyFilter(Charge(None, Fraction(1), Fraction(1, 10**9)))
    privacy_filter.spend(Charge(Fraction(1), Fraction(1, 2), Fraction(1, 10**9)))
    with pytest.raises(BudgetError):
        privacy_filter.spend(Charge(Fraction(1, 10), Fraction(1, 200), Fraction(1, 10**12)))


def test_an_approximate_loss_is_reserved_as_the_rho_that_it_admits() -> None:
    loss = EpsilonDelta(1, "1e-9")
    privacy_filter = PrivacyFilter(loss.charge)
    privacy_filter.spend((loss.as_rho() / 2).charge)
    privacy_filter.spend((loss.as_rho() / 2).charge)
    assert total([loss.charge]).rho == privacy_filter.spent.rho


def test_less_rho_than_epsilon_implies_binds_as_well() -> None:
    choice = Charge(Fraction(1), Fraction(1, 8), Fraction(0))  # an exponential mechanism: bounded range
    PrivacyFilter(choice).spend(choice)
    with pytest.raises(BudgetError):
        PrivacyFilter(choice).spend(Epsilon(1).charge)  # pure epsilon alone costs a rho of 1/2


def test_two_threads_do_not_both_spend_what_is_left() -> None:
    """The second begins while the first is adding up, and has to wait for it."""
    quarter = Epsilon("0.25").charge
    privacy_filter = PrivacyFilter(quarter)
    outcomes: list[str] = []

    def spend(charge: Charge) -> None:
        try:
            privacy_filter.spend(charge)
            outcomes.append("spent")
        except BudgetError:
            outcomes.append("refused")

    second = threading.Thread(target=spend, args=(quarter,))

    class Overtaken(Fraction):
        armed = False

        @property
        def numerator(self) -> int:
            if Overtaken.armed:
                Overtaken.armed = False
                second.start()
                second.join(0.3)
            return 1

    slow = replace(quarter, epsilon=Overtaken(1, 4))
    Overtaken.armed = True
    spend(slow)
    second.join()
    assert sorted(outcomes) == ["refused", "spent"]


@given(st.lists(st.tuples(PARTS_OF_ONE, st.booleans()), min_size=1, max_size=12))
def test_parts_of_any_denominator_are_added_up_as_fractions_are(parts) -> None:
    """Refusals between them, by another measure too, do not change the sum."""
    privacy_filter = PrivacyFilter(Charge(Fraction(1), Fraction(1, 8), Fraction(0)))
    epsilon = rho = Fraction(0)
    for part, pure in parts:
        charge = Charge(part, part**2 / (2 if pure else 8), Fraction(0))
        fits = epsilon + part <= 1 and rho + charge.rho <= Fraction(1, 8)
        try:
            privacy_filter.spend(charge)
        except BudgetError:
            assert not fits
        else:
            assert fits
            epsilon, rho = epsilon + part, rho + charge.rho
    assert (privacy_filter.spent.epsilon or 0, privacy_filter.spent.rho) == (epsilon, rho)
