import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import LossError, SizeError
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Rho

variances = st.fractions(Fraction(1, 50), 200, max_denominator=1000)


@given(variances, st.integers(1, 20))
def test_loss_and_noise_are_inverse(variance, squared):
    loss = DiscreteGaussian(variance).loss(squared)
    assert loss == Rho(squared / (2 * variance))
    assert DiscreteGaussian.for_loss(loss, squared) == DiscreteGaussian(variance)


def renyi(noise, moved, alpha):
    """Renyi divergence of order alpha between the noise and the noise moved by an integer, in 60 digits."""
    span = 12 * math.isqrt(int(noise.sigma_squared)) + 40
    masses = {k: noise.enclose_pmf(k) for k in range(-span, span + 1)}
    total = Fraction(0)
    for k in range(-span + moved, span + 1):
        total += masses[k][1] ** alpha / max(masses[k - moved][0], Fraction(1, 1 << 180)) ** (alpha - 1)
    return math.log(float(total)) / (alpha - 1)


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("moved", [1, 2])
@pytest.mark.parametrize("alpha", [2, 3])
def test_renyi_divergence_is_at_most_alpha_rho(variance, moved, alpha):
    """zCDP by summing over all outputs; equality holds at integers of alpha times the shift, so it is tight."""
    noise = DiscreteGaussian(variance)
    rho = float(noise.loss(moved**2).value)
    assert renyi(noise, moved, alpha) <= alpha * rho * (1 + 1e-12)
    assert renyi(noise, moved, alpha) == pytest.approx(alpha * rho, rel=1e-9)
    assert renyi(DiscreteGaussian(variance * Fraction(7, 10)), moved, alpha) > alpha * rho * 1.2


@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(3), Fraction(101), Fraction(400)])
def test_probabilities_sum_to_one_and_agree(variance):
    noise = DiscreteGaussian(variance)
    span = 12 * math.isqrt(int(variance)) + 20
    pairs = [noise.enclose_pmf(k) for k in range(-span, span + 1)]
    assert (
        1 - Fraction(1, 10**20)
        < sum(low for low, _ in pairs)
        <= 1
        <= sum(high for _, high in pairs) + Fraction(1, 10**20)
    )
    assert all(noise.pmf(k) == pytest.approx(float(noise.enclose_pmf(k)[0]), rel=1e-12) for k in range(-20, 21))
    exact = sum(k * k * low for k, (low, _) in zip(range(-span, span + 1), pairs, strict=True))
    assert noise.variance == pytest.approx(float(exact), rel=1e-12)
    for k in (1, 2, 7):
        tail = sum(low for low, _ in pairs[span + k :])
        assert 0 <= noise.upper_tail(k) - tail < Fraction(1, 10**20)


@given(variances, st.fractions(Fraction(1, 1000), Fraction(9999, 10000), max_denominator=10**4))
def test_quantile_is_the_smallest_that_covers(variance, probability):
    noise = DiscreteGaussian(variance)
    k = noise.quantile(probability)
    assert 1 - 2 * noise.upper_tail(k + 1) >= probability
    if k > 0:
        assert 1 - 2 * noise.upper_tail(k) < probability


@pytest.mark.parametrize("standard", [0.3, 0.9, 1.0, 1.1, 2.0, 5.0, 12.0])
def test_the_bound_on_long_tails_is_above_the_sum_and_close(standard):
    """Just above and just below the variance at which the sum gives way to the bound."""
    summed, bounded = DiscreteGaussian(1 << 24), DiscreteGaussian((1 << 24) + 1)
    k = round(standard * 4096)
    assert bounded.upper_tail(k) >= summed.upper_tail(k)  # more variance, longer tail
    assert float(bounded.upper_tail(k) / summed.upper_tail(k)) == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("k", [40 * 5000, 60 * 5000])
def test_the_furthest_tails_fall_and_never_vanish(k):
    noise = DiscreteGaussian(5000**2)
    assert 0 < noise.upper_tail(2 * k) < noise.upper_tail(k) < noise.upper_tail(k - 5000)
    small = DiscreteGaussian(4)
    assert 0 < small.upper_tail(200) < small.upper_tail(100) < small.upper_tail(32)


def test_quantile_of_a_wide_noise_is_that_of_the_normal():
    assert DiscreteGaussian(10**12).quantile("0.95") == pytest.approx(1.959964e6, rel=1e-6)


def test_exact_probabilities_of_a_wide_noise_are_refused():
    with pytest.raises(SizeError):
        DiscreteGaussian(10**12).enclose_pmf(0)


@pytest.mark.parametrize("bad", [0, -1, "nan", float("inf"), None, True, "2e30", "x"])
def test_variances_out_of_range_are_refused(bad):
    with pytest.raises(LossError):
        DiscreteGaussian(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "1"])
def test_sensitivities_are_positive_integers(bad):
    with pytest.raises(LossError):
        DiscreteGaussian(1).loss(bad)
    with pytest.raises(LossError):
        DiscreteGaussian.for_loss(Rho(1), bad)


def test_add_draws_one_noise_a_cell():
    counts = np.full((100, 200), 7, dtype=np.int64)
    noisy = DiscreteGaussian(2500).add(counts, SimulatedEntropy(1))
    assert noisy.shape == counts.shape
    assert noisy.mean() == pytest.approx(7, abs=3)
    assert noisy.var() == pytest.approx(2500, rel=0.2)
