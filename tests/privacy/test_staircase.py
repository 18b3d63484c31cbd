"""Staircase noise: exact ratios of neighbors, probabilities from a sum of its own, and draws that follow them."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from sfumato.errors import LossError
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato.privacy.noise_kinds import least_variance, noise_from_json
from sfumato.privacy.staircase import Staircase

NOTHING = Fraction(1, 1 << 200)
CASES = [("0.5", 1, 1), ("0.5", 10, 4), ("2", 7, 2), ("5", 10, 1), ("0.01", 3, 3), ("1/3", 6, 6)]


def falls(exponent: Fraction) -> Fraction:
    """exp(-exponent) to 70 digits, by another library than the sampler's."""
    with localcontext() as context:
        context.prec = 70
        return Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def weights(epsilon: Fraction, width: int, step: int, runs: int) -> list[Fraction]:
    """The weights of 0, 1, 2, ... as the definition says, run by run."""
    return [falls((g if i < step else g + 1) * epsilon) for g in range(runs) for i in range(width)]


@pytest.mark.parametrize(("epsilon", "width", "step"), CASES)
def test_no_output_tells_neighbors_apart_by_more_than_epsilon(epsilon, width, step):
    """Every ratio is at most e^epsilon, some reach it; a width 30 % too small would exceed it."""
    noise = Staircase(epsilon, width, step)
    assert noise.loss(width) == Epsilon(epsilon)
    least = falls(noise.epsilon)
    bounds = {k: noise.enclose_pmf(k) for k in range(-5 * width, 5 * width + 1)}
    moves = [(k, k + d) for k in range(-4 * width, 4 * width) for d in range(1, width + 1)]
    assert all(bounds[b][1] >= bounds[a][0] * least - NOTHING for a, b in moves)
    assert all(bounds[a][1] >= bounds[b][0] * least - NOTHING for a, b in moves)
    assert min(bounds[b][0] / bounds[a][1] for a, b in moves) <= least + NOTHING
    if width > 3:
        less = Staircase(epsilon, width * 7 // 10, min(step, width * 7 // 10))
        assert min(less.enclose_pmf(k + width)[1] / less.enclose_pmf(k)[0] for k in range(width)) < least
    louder = Staircase(noise.epsilon * Fraction(10, 7), width, step)
    assert min(louder.enclose_pmf(k + width)[1] / louder.enclose_pmf(k)[0] for k in range(width)) < least


@pytest.mark.parametrize(("epsilon", "width", "step"), [case for case in CASES if case[0] != "0.01"])
def test_probabilities_are_those_of_the_definition(epsilon, width, step):
    noise = Staircase(epsilon, width, step)
    ones = weights(noise.epsilon, width, step, runs=int(70 / noise.epsilon) + 1)
    whole = 2 * sum(ones) - ones[0]
    for k in (0, 1, step - 1, step, width - 1, width, 2 * width + step):
        low, high = noise.enclose_pmf(k)
        assert low - Fraction(1, 10**25) <= ones[k] / whole <= high + Fraction(1, 10**25)
        assert high - low < Fraction(1, 1 << 240)
        assert noise.pmf(-k) == pytest.approx(float(low), rel=1e-12)
    for k in (1, 2, step, width, width + 1, 3 * width):
        assert 0 <= noise.upper_tail(k) - sum(ones[k:]) / whole < Fraction(1, 10**25)
    variance = 2 * sum(k * k * weight for k, weight in enumerate(ones)) / whole
    assert noise.variance == pytest.approx(float(variance), rel=1e-10)
    k = noise.quantile("0.9")
    assert 2 * noise.upper_tail(k + 1) <= Fraction(1, 10) < 2 * noise.upper_tail(k)


def p_value(noise: Staircase, draws: np.ndarray) -> float:
    """Return the p-value of the fit of draws to the probabilities; tails with less than 20 expected draws are
    pooled.
    """
    reach = next(k for k in range(1, 10**6) if draws.size * float(noise.upper_tail(k)) < 20)
    cells = np.clip(draws, -reach, reach) + reach
    inner = [noise.pmf(k) for k in range(1 - reach, reach)]
    outer = float(noise.upper_tail(reach))
    expected = np.array([outer, *inner, outer])
    return chisquare(np.bincount(cells, minlength=2 * reach + 1), draws.size * expected / expected.sum()).pvalue


@pytest.mark.parametrize(("epsilon", "width", "step"), CASES[:4])
def test_draws_follow_the_probabilities_and_not_those_of_less_noise(epsilon, width, step):
    """The seed is fixed, so there is no false alarm; 30 % more epsilon is noise 23 % to 30 % smaller."""
    noise = Staircase(epsilon, width, step)
    draws = noise.draw(20_000, SimulatedEntropy(5))
    assert p_value(noise, draws) > 1e-4
    assert p_value(Staircase(noise.epsilon * Fraction(13, 10), width, step), draws) < 1e-10
    if width > step:
        assert p_value(Staircase(epsilon, width, step + 1), draws) < 1e-10


def test_the_noise_is_that_of_least_variance_for_one_wide_number():
    best = least_variance(Epsilon(2), 10)
    assert isinstance(best, Staircase)
    assert best.variance < 0.9 * DiscreteLaplace.for_loss(Epsilon(2), 10).variance
    assert best.variance == min(Staircase(2, 10, step).variance for step in range(1, 11))
    assert Staircase.for_loss(Epsilon(2), 1).variance == pytest.approx(DiscreteLaplace("0.5").variance)


def test_a_larger_change_costs_an_epsilon_for_each_begun_width():
    noise = Staircase("0.5", 10, 4)
    assert [noise.loss(moved).value for moved in (1, 10, 11, 30)] == [Fraction(n, 2) for n in (1, 1, 2, 3)]


@pytest.mark.parametrize(
    "bad", [(0, 2, 1), (-1, 2, 1), (1, 2, 0), (1, 2, 3), (1, "2.5", 1), (1, 0, 0), ("1e-9", 1 << 30, 1)]
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(LossError):
        Staircase(*bad)


def test_noise_is_added_to_counts():
    counts = np.arange(6, dtype=np.int64).reshape(2, 3) * 1000
    noisy = Staircase(20, 5, 1).add(counts, OsEntropy())
    assert noisy.shape == counts.shape
    assert np.abs(noisy - counts).max() < 30


def test_a_saved_table_with_staircase_noise_is_refused():
    """It is private for one number, and neighbors change several cells of a table."""
    with pytest.raises(LossError, match="no release adds noise called 'staircase'"):
        noise_from_json(Staircase(2, 10, 4).to_json())
