from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.evaluate.audit.loss_bounds import Concentrated, Gaussian, PureOrApproximate, lower_bounds, measure_of
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho


def test_the_epsilon_bound_is_the_formula_of_two_clopper_pearson_bounds():
    """The bounds of Clopper and Pearson, by halving, from binomial tails that are added up term by term."""
    found = lower_bounds(PureOrApproximate(1.0, 0.01), np.array([300]), np.array([40]), 400, error=0.01)
    low = _clopper_pearson_low(300, 400, 0.005)
    high = 1 - _clopper_pearson_low(360, 400, 0.005)
    assert found[0] == pytest.approx(math.log((low - 0.01) / high))


def test_counts_at_the_ends():
    found = lower_bounds(PureOrApproximate(1.0, delta=0.0), np.array([0, 50, 50]), np.array([0, 0, 50]), 50, error=0.01)
    assert found[0] == -np.inf
    assert found[1] > 1.5
    assert found[2] < 0


def test_rho_of_two_coins_is_at_most_that_of_the_gaussian_they_come_from():
    from scipy.special import ndtr

    for mu in (0.3, 1.0, 2.0):
        thresholds = np.linspace(-3, 3, 61)
        found = Concentrated(mu**2 / 2).bound(ndtr(-thresholds + mu), ndtr(-thresholds))
        assert 0.3 * mu**2 < found.max() <= mu**2 / 2
        assert Gaussian(mu).bound(ndtr(-thresholds + mu), ndtr(-thresholds)) == pytest.approx(mu)


def test_what_is_measured_follows_from_the_claim():
    assert measure_of(Epsilon(2), None) == PureOrApproximate(2.0, delta=0.0)
    assert measure_of(EpsilonDelta(2, "0.5"), None) == PureOrApproximate(2.0, 0.5)
    assert measure_of(Rho(2), None) == Concentrated(2.0)
    assert measure_of(Rho(2), 1.5) == Gaussian(1.5)


def _clopper_pearson_low(successes: int, trials: int, error: float) -> float:
    """Return the probability of success at which this many successes or more have the probability ``error``."""
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        tail = sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(successes, trials + 1))
        low, high = (rate, high) if tail < error else (low, rate)
    return low
