from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import LossError
from sfumato.privacy.accountant import CONVERTED, NOTHING, Charge, admits, charge_for, guarantee, spendable_delta, total
from sfumato.privacy.conversion import epsilon_of
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho

amounts = st.fractions(Fraction(1, 1000), 1, max_denominator=1000)
losses = st.one_of(st.builds(Epsilon, amounts), st.builds(Rho, amounts))
pure = st.builds(lambda value: charge_for(Epsilon(value)), amounts)
smooth = st.builds(charge_for, losses)
rough = st.builds(lambda rho, n: Charge(None, rho, Fraction(n, 10**10)), amounts, st.integers(0, 20))
LIMIT = EpsilonDelta(3, "1e-6")


@given(st.lists(st.one_of(smooth, rough), max_size=6), st.randoms())
def test_the_order_of_charges_does_not_matter(charges, random):
    shuffled = list(charges)
    random.shuffle(shuffled)
    assert total(shuffled) == total(charges)
    half = len(charges) // 2
    assert total(charges[:half]) + total(charges[half:]) == total(charges)
    assert total(charges) + NOTHING == total(charges)


@pytest.mark.parametrize(
    ("limit", "charges"),
    [(Epsilon(3), pure), (Rho(2), smooth), (LIMIT, st.one_of(smooth, rough))],
    ids=["epsilon", "rho", "epsilon and delta"],
)
def test_what_fits_still_fits_when_less_was_spent(limit, charges):
    @given(charges, charges, charges)
    def monotone(spent, more, charge):
        if admits(limit, spent + more, charge):
            assert admits(limit, spent, charge)
            assert admits(limit, spent, more)
            assert admits(limit, more, charge)

    monotone()


def spend(limit, charges):
    spent = NOTHING
    for charge in charges:
        if admits(limit, spent, charge):
            spent += charge
    return spent


@given(st.lists(pure, max_size=12), amounts)
def test_pure_epsilon_never_exceeds_its_limit(charges, most):
    spent = spend(Epsilon(most), charges)
    assert spent.epsilon <= most


@given(st.lists(smooth, max_size=12), amounts)
def test_rho_never_exceeds_its_limit(charges, most):
    assert spend(Rho(most), charges).rho <= most


@given(st.lists(st.one_of(smooth, rough), max_size=12))
def test_epsilon_delta_never_exceeds_its_limit_after_conversion(charges):
    spent = spend(LIMIT, charges)
    converted = LIMIT.delta * CONVERTED  # fixed in advance, so that choosing adaptively gains nothing
    assert spent.delta <= LIMIT.delta - converted
    assert spent.rho == 0 or epsilon_of(spent.rho, converted) <= LIMIT.epsilon


def test_a_limit_can_be_spent_to_the_last_unit():
    tenth = charge_for(Epsilon("0.1"))
    assert spend(Epsilon(1), [tenth] * 11).epsilon == 1
    assert not admits(Epsilon(1), total([tenth] * 10), charge_for(Epsilon("1e-100")))
    whole = charge_for(EpsilonDelta(1, "1e-9"))
    assert admits(EpsilonDelta(1, "1e-9"), NOTHING, whole)
    assert not admits(EpsilonDelta(1, "1e-9"), whole, charge_for(Rho("1e-9")))


def test_rho_composes_better_than_epsilon():
    thousand = total([charge_for(Epsilon("0.1"))] * 1000)
    assert thousand.epsilon == 100
    assert thousand.rho == 5
    assert guarantee(thousand, EpsilonDelta(100, "1e-6")) == "epsilon = 20.5583, delta = 1e-06"


@pytest.mark.parametrize(
    "charge", [charge_for(Rho(1)), charge_for(LIMIT), Charge(Fraction(1), Fraction(1), Fraction(1, 10))]
)
def test_a_pure_ledger_refuses_what_has_no_pure_loss(charge):
    with pytest.raises(LossError):
        admits(Epsilon(100), NOTHING, charge)


def test_a_rho_ledger_refuses_a_delta():
    with pytest.raises(LossError):
        admits(Rho(100), NOTHING, Charge(None, Fraction(1), Fraction(1, 10)))


def test_no_more_delta_is_spent_than_its_share():
    share = spendable_delta(LIMIT)
    assert admits(LIMIT, Charge(None, Fraction(0), share), charge_for(Rho("1e-9")))
    assert admits(LIMIT, NOTHING, Charge(None, Fraction(1, 100), share))
    assert not admits(LIMIT, NOTHING, Charge(None, Fraction(1, 100), share + Fraction(1, 10**30)))


@pytest.mark.parametrize("amounts", [(Fraction(-1), 0, 0), (None, Fraction(-1), 0), (None, 0, Fraction(-1))])
def test_nothing_is_refunded(amounts):
    with pytest.raises(LossError):
        Charge(*amounts)


@given(amounts)
def test_the_guarantee_shown_is_never_too_small(rho):
    shown = guarantee(Charge(None, rho, Fraction(0)), LIMIT)
    number = Fraction(shown.removeprefix("epsilon = ").split(",")[0])
    exact = epsilon_of(rho, LIMIT.delta * CONVERTED)
    assert exact <= number <= exact * (1 + Fraction(1, 10**5))


def test_guarantees_in_words():
    assert guarantee(NOTHING, Epsilon(1)) == "epsilon = 0"
    assert guarantee(charge_for(Epsilon("0.3")), Epsilon(1)) == "epsilon = 0.3"
    assert guarantee(charge_for(Rho("0.3")), Epsilon(1)) == "epsilon = infinite"
    assert guarantee(charge_for(Rho("0.3")), Rho(1)) == "rho = 0.3"
    assert guarantee(NOTHING, LIMIT) == "epsilon = 0, delta = 0"


def test_pure_losses_are_said_to_add_up_and_why_the_limit_counts_otherwise():
    four = total([charge_for(Epsilon("0.1"))] * 4)
    assert guarantee(four, EpsilonDelta(1, "1e-9")) == (
        "epsilon = 0.4, delta = 0 by adding up; of the limit rho = 0.02, which by itself would be "
        "epsilon = 1.16363, delta = 1e-09"
    )
