from fractions import Fraction

import pytest

from sfumato.privacy.conversion import epsilon_of
from sfumato.privacy.loss import Epsilon
from sfumato.privacy.pld import composed_epsilon

MIXED = [Epsilon("0.1")] * 40 + [Epsilon("0.05")] * 100 + [Epsilon("0.3")] * 7


def reference(losses, delta):
    from dp_accounting.pld import privacy_loss_distribution as distributions

    composed = None
    for loss in set(losses):
        one = distributions.from_discrete_laplace_mechanism(float(loss.value), value_discretization_interval=1e-4)
        many = one.self_compose(losses.count(loss))
        composed = many if composed is None else composed.compose(many)
    return composed.get_epsilon_for_delta(float(delta))


@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-10"])
@pytest.mark.parametrize("losses", [[Epsilon("0.1")] * 200, [Epsilon(1)], MIXED], ids=["equal", "one", "mixed"])
def test_it_agrees_with_dp_accounting(losses, delta):
    assert composed_epsilon(losses, Fraction(delta)) == pytest.approx(reference(losses, delta), rel=2e-3)


def test_a_thousand_counting_queries():
    """Basic composition gives 100, zCDP 20.6; 18.95 is the figure of *continuous* Laplace noise."""
    losses = [Epsilon("0.1")] * 1000
    found = composed_epsilon(losses, Fraction(1, 10**6))
    assert found == pytest.approx(19.344671, abs=1e-5)
    assert found < float(epsilon_of(Fraction(5), Fraction(1, 10**6))) < 100


def test_it_is_never_above_the_sum_and_rises_as_delta_falls():
    sums = float(sum(loss.value for loss in MIXED))
    figures = [composed_epsilon(MIXED, Fraction(1, 10**digits)) for digits in (1, 3, 6, 9, 12)]
    assert figures == sorted(figures)
    assert figures[-1] <= sums


def test_the_grid_errs_upward():
    """Splitting one group in two that differ by nothing much costs at most the grid."""
    equal = composed_epsilon([Epsilon("0.1")] * 100, Fraction(1, 10**6))
    nearly = composed_epsilon([Epsilon("0.1")] * 50 + [Epsilon("0.1000000001")] * 50, Fraction(1, 10**6))
    assert equal <= nearly <= equal * 1.001


def test_nothing_composes_to_nothing():
    assert composed_epsilon([], Fraction(1, 10**6)) == 0
    assert composed_epsilon([Epsilon("0.001")], Fraction(1, 10)) == 0
