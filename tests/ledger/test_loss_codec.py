from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.ledger.account import (
    GRID,
    MOST,
    Account,
    charge_from,
    charge_text,
    limit_units,
    loss_from,
    loss_text,
    on_grid,
    spent_units,
)
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, EpsilonDelta, Rho

positive = st.fractions(min_value=Fraction(1, 10**15), max_value=10**9, max_denominator=10**15)
deltas = st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(1, 10), max_denominator=10**12)
losses = st.builds(Epsilon, positive) | st.builds(Rho, positive) | st.builds(EpsilonDelta, positive, deltas)


@given(losses)
def test_a_loss_survives_its_text(loss):
    assert loss_from(loss_text(loss)) == loss


@given(st.none() | positive, positive, deltas)
def test_a_charge_survives_its_text(epsilon, rho, delta):
    charge = Charge(epsilon, rho, delta)
    assert charge_from(*charge_text(charge)) == charge


@given(positive, positive)
def test_the_second_belt_lets_through_whatever_fits(limit, amount):
    for ceiling, charge in (
        (Epsilon(limit), Charge(amount, amount**2 / 2, Fraction(0))),
        (Rho(limit), Charge(None, amount, Fraction(0))),
    ):
        if ceiling.admits(NOTHING, charge):
            assert spent_units(ceiling, charge)[0] <= limit_units(ceiling)[0]
        if amount >= limit + Fraction(2, 10**12) and limit < MOST // 10**12 - 1:
            assert spent_units(ceiling, charge)[0] > limit_units(ceiling)[0]


@settings(max_examples=20, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 100), max_value=10, max_denominator=1000),
    st.integers(3, 9),
    st.fractions(min_value=0, max_value=1, max_denominator=50),
)
def test_the_second_belt_lets_through_whatever_fits_an_approximate_limit(epsilon, digits, share):
    limit = EpsilonDelta(epsilon, Fraction(1, 10**digits))
    charge = Charge(None, Account(limit, NOTHING).left, Fraction(0))
    delta = limit.delta * share
    for spent in (charge, Charge(None, charge.rho / 3, delta)):
        if limit.admits(NOTHING, spent):
            assert all(a <= b for a, b in zip(spent_units(limit, spent), limit_units(limit), strict=True))


def test_what_is_left_fits_and_a_little_more_does_not():
    spent = Epsilon("0.3").charge
    account = Account(Epsilon(1), spent)
    assert account.left == Fraction(7, 10)
    assert account.admits(Epsilon(account.left).charge)
    assert not account.admits(Epsilon(account.left + Fraction(1, 10**30)).charge)


def test_what_is_left_under_an_approximate_limit_fits():
    limit = EpsilonDelta(1, "1e-6")
    for spent in (NOTHING, Charge(None, Fraction(1, 1000), Fraction(1, 10**8))):
        account = Account(limit, spent)
        assert account.left > 0
        assert account.admits(Charge(None, account.left, Fraction(0)))
        assert not account.admits(Charge(None, account.left * Fraction(101, 100), Fraction(0)))


def test_delta_that_is_spent_leaves_rho_as_it_is_and_admits_no_more_delta():
    account = Account(EpsilonDelta(1, "1e-6"), Charge(None, Fraction(0), Fraction(1, 10**8)))
    assert account.left == EpsilonDelta(1, "1e-6").as_rho().value
    assert not account.admits(Charge(None, Fraction(1, 1000), Fraction(1, 10**12)))


@given(st.none() | positive, positive, deltas)
def test_what_is_counted_is_no_less_and_hardly_more(epsilon, rho, delta):
    exact = Charge(epsilon, rho, delta)
    found = on_grid(exact)
    pairs = zip(parts(exact), parts(found), strict=True)
    assert all(0 <= after - before < Fraction(1, 10**18) for before, after in pairs)
    assert all(GRID % part.denominator == 0 for part in parts(found))
    assert on_grid(found) == found


def parts(charge):
    return [part for part in (charge.epsilon, charge.rho, charge.delta) if part is not None]


@given(st.integers(1, 10**18), st.integers(1, 100))
def test_decimals_of_18_places_and_their_shares_are_counted_exactly(places, share):
    charge = Charge(Fraction(places, 10**18 * share), Fraction(0), Fraction(places, 10**18))
    assert on_grid(charge) == charge


def test_accounts_never_grow_long_whatever_is_charged():
    account = Account(Epsilon(1), NOTHING)
    for number in range(200):
        account = account.charged(Epsilon(Fraction(1, 10**27 + 2 * number + 7)).charge)
    assert all(GRID % part.denominator == 0 for part in parts(account.spent))
    assert account.spent.epsilon >= 200 * Fraction(1, 10**27 + 407)


def test_an_account_speaks_in_the_measure_of_its_limit():
    assert str(Account(None, NOTHING)) == "no cap"
    assert str(Account(Epsilon(1), Epsilon("0.25").charge)) == "epsilon = 0.75 left of epsilon = 1"
    assert str(Account(Rho(1), Rho("0.25").charge)) == "rho = 0.75 left of rho = 1"
    # never more than there is, and with the digits that people compare
    spent = Account(Epsilon(5), Epsilon("64/75").charge)
    assert str(spent) == "epsilon = 4.14666 (311/75) left of epsilon = 5"
    both = Account(EpsilonDelta(9, "1e-6"), Charge(None, Fraction(1, 2), Fraction(1, 10**8)))
    assert str(both).startswith("rho = 0.78656093898 left of rho = 1.28656093898 and delta = 0 left of 1e-08")
    assert str(both).endswith("as epsilon = 9, delta = 1e-06 is kept")
