import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfumato.errors import LossError
from sfumato.privacy.conversion import epsilon_of, rho_within
from sfumato.privacy.loss import EpsilonDelta

rhos = st.builds(lambda n, e: Fraction(n) * Fraction(10) ** e, st.integers(1, 999), st.integers(-8, 1))
deltas = st.builds(lambda n, e: Fraction(n) * Fraction(10) ** e, st.integers(1, 9), st.integers(-30, -2))
epsilons = st.builds(lambda n, e: Fraction(n) * Fraction(10) ** e, st.integers(1, 999), st.integers(-6, 0))


def best_by_search(rho: float, delta: float) -> float:
    """The same infimum over alpha, by a dense search in floating point."""

    def at(x):
        return (1 + x) * rho + math.log(x / (1 + x)) - math.log((1 + x) * delta) / x

    top = -math.log(delta)
    grid = [math.exp(-10 + i * (top + 10) / 4000) for i in range(4001)]
    return min(map(at, grid))


@pytest.mark.parametrize("rho", ["0.0001", "0.01", "0.5", "5", "200"])
@pytest.mark.parametrize("delta", ["1e-2", "1e-6", "1e-12"])
def test_epsilon_is_the_infimum_over_alpha(rho, delta):
    found = float(epsilon_of(Fraction(rho), Fraction(delta)))
    searched = max(0.0, best_by_search(float(rho), float(delta)))
    assert found <= searched * (1 + 1e-12)
    assert found == pytest.approx(searched, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("rho", ["0.001", "0.05", "0.5", "2"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-9"])
def test_epsilon_agrees_with_dp_accounting_from_above(rho, delta):
    """Never below the exact figure of the Gaussian, and close to the best Renyi figure."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event = GaussianDpEvent(math.sqrt(1 / (2 * float(rho))))
    ours = float(epsilon_of(Fraction(rho), Fraction(delta)))
    exact = PLDAccountant().compose(event).get_epsilon(float(delta))
    orders = [1 + math.exp(0.01 * i) for i in range(-300, 700)]
    renyi = RdpAccountant(orders).compose(event).get_epsilon(float(delta))
    assert ours >= exact
    assert renyi * (1 - 1e-3) <= ours <= renyi * (1 + 1e-9)


@given(rhos, deltas)
def test_round_trip_loses_twelve_digits_at_most(rho, delta):
    epsilon = epsilon_of(rho, delta)
    assume(epsilon > 0)
    back = rho_within(epsilon, delta)
    assert epsilon_of(back, delta) <= epsilon
    assert back >= rho * (1 - Fraction(2, 10**11))


@given(epsilons, deltas)
def test_rho_within_is_the_largest_of_twelve_digits(epsilon, delta):
    rho = rho_within(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    assert epsilon_of(rho * (1 + Fraction(3, 10**11)), delta) > epsilon
    assert len(Decimal(rho.numerator).normalize().as_tuple().digits) <= 14 or rho.denominator != 1


@given(rhos, deltas, st.fractions(1, 3, max_denominator=50))
def test_more_loss_never_converts_to_less(rho, delta, factor):
    slack = 1 + Fraction(1, 10**14)
    assert epsilon_of(rho, delta) <= epsilon_of(rho * factor, delta) * slack
    assert epsilon_of(rho, delta) * slack >= epsilon_of(rho, min(delta * factor, Fraction(1, 2)))


@given(rhos, deltas)
def test_the_bound_holds_at_every_alpha_in_sixty_digits(rho, delta):
    """Rounding is directed: the returned epsilon is no smaller than an independent evaluation at its best alpha."""
    epsilon = epsilon_of(rho, delta)
    assume(epsilon > 0)
    with localcontext() as context:
        context.prec = 60
        r = Decimal(rho.numerator) / Decimal(rho.denominator)
        d = Decimal(delta.numerator) / Decimal(delta.denominator)
        e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        # Newton on r x^2 + ln(1 + x) = ln(1 / d)
        x = (-d.ln() / r).sqrt()
        for _ in range(40):
            x -= (r * x * x + (1 + x).ln() + d.ln()) / (2 * r * x + 1 / (1 + x))
            if x <= 0:
                x = Decimal("1e-20")
        best = (1 + x) * r + (x / (1 + x)).ln() - ((1 + x) * d).ln() / x
        assert best <= e <= best * (1 + Decimal("2e-13")) + Decimal("1e-18")


def test_nothing_spent_is_nothing():
    assert epsilon_of(Fraction(0), Fraction(1, 10**6)) == 0


def test_extremes_stay_finite():
    assert epsilon_of(Fraction(10) ** 400, Fraction(1, 10**6)) >= Fraction(10) ** 400
    assert 0 < EpsilonDelta("1e-30", "1e-300").as_rho().value < Fraction(1, 10**30)
    with pytest.raises(LossError):
        EpsilonDelta("1e-149", "1e-300").as_rho()
    assert EpsilonDelta("1e150", "1e-6").as_rho().value <= Fraction(10) ** 150
    assert 0 < epsilon_of(Fraction(1), Fraction(1, 10**900)) < 100


def test_known_figures():
    # 1000 counting queries of epsilon 0.1: rho = 5; the closed form rho + 2 sqrt(rho ln(1/delta)) gives 21.6
    assert float(epsilon_of(Fraction(5), Fraction(1, 10**6))) == pytest.approx(20.5519488140413)
    assert 5 + 2 * math.sqrt(5 * math.log(1e6)) == pytest.approx(21.62, abs=0.01)
