from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import InputError, LossError
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato.privacy.noise import exp_enclosure, first_number

scales = st.fractions(Fraction(1, 50), 200, max_denominator=1000)
NOTHING = Fraction(1, 1 << 150)


@given(scales, st.integers(1, 20))
def test_loss_and_noise_are_inverse(scale, sensitivity):
    loss = DiscreteLaplace(scale).loss(sensitivity)
    assert loss == Epsilon(sensitivity / scale)
    assert DiscreteLaplace.for_loss(loss, sensitivity) == DiscreteLaplace(scale)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(25, 2)])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_no_output_tells_neighbours_apart_by_more_than_epsilon(scale, sensitivity):
    """Every ratio of probabilities is at most e^epsilon, some reach it; 30 % less noise would exceed it."""
    noise = DiscreteLaplace(scale)
    low, high = exp_enclosure(noise.loss(sensitivity).value, 200)
    least, most = Fraction(low, 1 << 200), Fraction(high, 1 << 200)
    ratios = []
    for k in range(-30, 31):
        for moved in range(1, sensitivity + 1):
            here, there = noise.enclose_pmf(k), noise.enclose_pmf(k + moved)
            assert there[1] >= here[0] * least - NOTHING
            ratios.append(there[0] / here[1])
    assert min(ratios) <= most + NOTHING
    less = DiscreteLaplace(scale * Fraction(7, 10))
    assert min(less.enclose_pmf(k + sensitivity)[1] / less.enclose_pmf(k)[0] for k in range(3)) < least


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(25, 2)])
def test_probabilities_sum_to_one_and_agree(scale):
    noise = DiscreteLaplace(scale)
    span = int(60 * scale) + 60
    pairs = [noise.enclose_pmf(k) for k in range(-span, span + 1)]
    # the rest outside the span is below exp(-60)
    assert 1 - Fraction(1, 10**25) < sum(low for low, _ in pairs) <= 1
    assert all(noise.pmf(k) == pytest.approx(float(noise.enclose_pmf(k)[0]), rel=1e-12) for k in range(-20, 21))
    variance = sum(k * k * low for k, (low, _) in zip(range(-span, span + 1), pairs, strict=True))
    assert noise.variance == pytest.approx(float(variance), rel=1e-12)
    for k in (1, 2, 7):
        tail = sum(low for low, _ in pairs[span + k :])
        assert 0 <= noise.upper_tail(k) - tail < Fraction(1, 10**20)


@given(scales, st.fractions(Fraction(1, 1000), Fraction(9999, 10000), max_denominator=10**4))
def test_quantile_is_the_smallest_that_covers(scale, probability):
    noise = DiscreteLaplace(scale)
    k = noise.quantile(probability)
    assert 1 - 2 * noise.upper_tail(k + 1) >= probability
    if k > 0:
        assert 1 - 2 * noise.upper_tail(k) < probability


@given(st.integers(1, 5000), st.integers(-3, 10_000))
def test_the_first_number_is_found_from_wherever_one_begins(first, near):
    assert first_number(lambda n: n >= first, near=near) == first


@given(st.fractions(Fraction(1, 50), 1 << 40, max_denominator=1 << 20), st.sampled_from(["0.5", "0.95", "0.999999"]))
def test_a_quantile_takes_few_looks_at_the_tail(scale, probability):
    """A question at a loss that is new asks for two; from 1 on it would be about two a binary digit."""
    looks = []

    class Counted(DiscreteLaplace):
        def upper_tail(self, k):
            looks.append(k)
            return super().upper_tail(k)

    assert Counted(scale).quantile(probability) == DiscreteLaplace(scale).quantile(probability)
    assert len(looks) <= 4


def test_quantiles_rise_and_match_the_continuous_ones_at_large_scale():
    noise = DiscreteLaplace(10**6)
    # P(|noise| <= k) = 1 - exp(-k / scale) in the limit: 2.303, 2.996, 4.605, 6.908 scales
    wanted = {"0.9": 2.302585, "0.95": 2.995732, "0.99": 4.605170, "0.999": 6.907755}
    found = [noise.quantile(p) for p in wanted]
    assert found == pytest.approx([1e6 * number for number in wanted.values()], abs=2)
    assert all(a < b for a, b in pairwise(found))


@pytest.mark.parametrize("bad", [0, -1, "nan", float("inf"), None, True, "2e15", "x"])
def test_scales_out_of_range_are_refused(bad):
    with pytest.raises(LossError):
        DiscreteLaplace(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "1"])
def test_sensitivities_are_positive_integers(bad):
    with pytest.raises(LossError):
        DiscreteLaplace(1).loss(bad)
    with pytest.raises(LossError):
        DiscreteLaplace.for_loss(Epsilon(1), bad)


@pytest.mark.parametrize("bad", [0, 1, "1.5", -1])
def test_quantile_refuses_what_is_no_probability(bad):
    with pytest.raises(LossError):
        DiscreteLaplace(1).quantile(bad)


def test_add_keeps_shape_and_leaves_the_counts_alone():
    counts = np.arange(6, dtype=np.int64).reshape(2, 3)
    noisy = DiscreteLaplace("0.01").add(counts, OsEntropy())
    assert noisy.shape == (2, 3)
    assert noisy.dtype == np.int64
    assert (noisy == counts).all()  # at a scale of 1/100 noise is zero but for one draw in 1e43
    assert (counts == np.arange(6).reshape(2, 3)).all()


def test_add_draws_one_noise_a_cell():
    noisy = DiscreteLaplace(50).add(np.zeros(20_000, dtype=np.int64), SimulatedEntropy(1))
    halves = noisy[:10_000], noisy[10_000:]
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.1
    assert noisy.var() == pytest.approx(DiscreteLaplace(50).variance, rel=0.2)


@pytest.mark.parametrize(
    "counts", [np.zeros(2), np.zeros(2, dtype=np.int32), np.array([1 << 62, (1 << 62) + 1]), np.array([-(1 << 63)])]
)
def test_add_refuses_what_could_overflow(counts):
    with pytest.raises(InputError):
        DiscreteLaplace(1).add(counts, OsEntropy())


def test_add_of_nothing_is_nothing():
    assert DiscreteLaplace(1).add(np.zeros(0, dtype=np.int64), OsEntropy()).size == 0
