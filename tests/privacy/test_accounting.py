from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import LossError
from sfumato.privacy.conversion import CONVERTED, epsilon_of
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, EpsilonDelta, Rho, total

amounts = st.fractions(Fraction(1, 1000), 1, max_denominator=1000)
losses = st.one_of(st.builds(Epsilon, amounts), st.builds(Rho, amounts))
pure = st.builds(lambda value: Epsilon(value).charge, amounts)
smooth = losses.map(lambda loss: loss.charge)
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
        if limit.admits(spent + more, charge):
            assert limit.admits(spent, charge)
            assert limit.admits(spent, more)
            assert limit.admits(more, charge)

    monotone()


def spend(limit, charges):
    spent = NOTHING
    for charge in charges:
        if limit.admits(spent, charge):
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
    tenth = Epsilon("0.1").charge
    assert spend(Epsilon(1), [tenth] * 11).epsilon == 1
    assert not Epsilon(1).admits(total([tenth] * 10), Epsilon("1e-100").charge)
    whole = EpsilonDelta(1, "1e-9").charge
    assert EpsilonDelta(1, "1e-9").admits(NOTHING, whole)
    assert not EpsilonDelta(1, "1e-9").admits(whole, Rho("1e-9").charge)


def test_rho_composes_better_than_epsilon():
    thousand = total([Epsilon("0.1").charge] * 1000)
    assert thousand.epsilon == 100
    assert thousand.rho == 5
    assert EpsilonDelta(100, "1e-6").guarantee(thousand) == "epsilon = 20.5583, delta = 1e-06"


@pytest.mark.parametrize("charge", [Rho(1).charge, LIMIT.charge, Charge(Fraction(1), Fraction(1), Fraction(1, 10))])
def test_a_pure_ledger_refuses_what_has_no_pure_loss(charge):
    with pytest.raises(LossError):
        Epsilon(100).admits(NOTHING, charge)


def test_a_rho_ledger_refuses_a_delta():
    with pytest.raises(LossError):
        Rho(100).admits(NOTHING, Charge(None, Fraction(1), Fraction(1, 10)))


def test_no_more_delta_is_spent_than_its_share():
    share = LIMIT.spendable_delta
    assert LIMIT.admits(Charge(None, Fraction(0), share), Rho("1e-9").charge)
    assert LIMIT.admits(NOTHING, Charge(None, Fraction(1, 100), share))
    assert not LIMIT.admits(NOTHING, Charge(None, Fraction(1, 100), share + Fraction(1, 10**30)))


@pytest.mark.parametrize("amounts", [(Fraction(-1), 0, 0), (None, Fraction(-1), 0), (None, 0, Fraction(-1))])
def test_nothing_is_refunded(amounts):
    with pytest.raises(LossError):
        Charge(*amounts)


@given(amounts)
def test_the_guarantee_shown_is_never_too_small(rho):
    shown = LIMIT.guarantee(Charge(None, rho, Fraction(0)))
    number = Fraction(shown.removeprefix("epsilon = ").split(",")[0])
    exact = epsilon_of(rho, LIMIT.delta * CONVERTED)
    assert exact <= number <= exact * (1 + Fraction(1, 10**5))


def test_guarantees_in_words():
    assert Epsilon(1).guarantee(NOTHING) == "epsilon = 0"
    assert Epsilon(1).guarantee(Epsilon("0.3").charge) == "epsilon = 0.3"
    assert Epsilon(1).guarantee(Rho("0.3").charge) == "epsilon = infinite"
    assert Rho(1).guarantee(Rho("0.3").charge) == "rho = 0.3"
    assert LIMIT.guarantee(NOTHING) == "epsilon = 0, delta = 0"


def test_pure_losses_are_said_to_add_up_and_why_the_limit_counts_otherwise():
    four = total([Epsilon("0.1").charge] * 4)
    assert EpsilonDelta(1, "1e-9").guarantee(four) == (
        "epsilon = 0.4, delta = 0 by adding up; of the limit rho = 0.02, which by itself would be "
        "epsilon = 1.16363, delta = 1e-09"
    )
