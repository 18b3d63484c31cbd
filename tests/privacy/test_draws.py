"""Draws and sums of noise against the exact probabilities: the complete sampler, not only its table.

Each test compares 400 000 draws with probabilities from enclosures of exp that are independent of the sampler. One
fails by chance with probability below 2e-10 (6.4 standard deviations of the variance, or p < 1e-10 of a chi-square),
all together below 3e-9. With a tenth less variance the ratio is off by more than 20 standard deviations, so the chance
to miss it is below 1e-12. Another test shows that the same draws reject a ninth more variance.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from sfumato.privacy.entropy import OsEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace

COUNT = 400_000
BINS = 40
IN_A_TAIL = 500  # draws that are expected beyond the last bin, on either side
FALSE_ALARM = 1e-10
NOISES = {
    "Laplace 1/2": DiscreteLaplace(Fraction(1, 2)),
    "Laplace 3": DiscreteLaplace(3),
    "Laplace 100/3": DiscreteLaplace(Fraction(100, 3)),
    "Gaussian 1/2": DiscreteGaussian(Fraction(1, 2)),
    "Gaussian 9": DiscreteGaussian(9),
    "Gaussian 1000/3": DiscreteGaussian(Fraction(1000, 3)),
}


def wider(noise, by: Fraction):
    """The noise of the same kind with about ``by`` times the variance."""
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.sigma_squared * by)
    return DiscreteLaplace(noise.scale * Fraction(math.sqrt(by)).limit_denominator(1000))


def variance(noise) -> float:
    """The exact variance, term by term."""
    return 2 * math.fsum(k * k * float(noise.enclose_pmf(k)[0]) for k in range(1, reach(noise)))


def fourth_moment(noise) -> float:
    return 2 * math.fsum(k**4 * float(noise.enclose_pmf(k)[0]) for k in range(1, reach(noise)))


def reach(noise) -> int:
    return 40 * math.isqrt(int(noise.variance) + 1) + 40


def pvalue(draws, noise) -> float:
    """Return the p-value of a chi-square over some forty bins of integers and one of both tails, with thousands
    expected in each.

    Of rare integers one more than expected is no chi-square: a bin of .05 made a test in a thousand fail by chance.
    """
    most = next(k for k in range(1, reach(noise)) if COUNT * float(noise.upper_tail(k)) < IN_A_TAIL) - 1
    inner = np.array([float(noise.enclose_pmf(k)[0]) for k in range(-most + 1, most)]) * COUNT
    seen = np.bincount(np.clip(draws, -most, most) + most, minlength=2 * most + 1)
    starts = np.arange(0, inner.size, -(-inner.size // BINS))
    expected = [*np.add.reduceat(inner, starts), COUNT - math.fsum(inner)]
    return float(chisquare([*np.add.reduceat(seen[1:-1], starts), seen[0] + seen[-1]], expected).pvalue)


@pytest.mark.parametrize("name", NOISES)
def test_draws_have_the_exact_distribution_and_reject_a_ninth_more_variance(name) -> None:
    noise = NOISES[name]
    draws = noise.draw(COUNT, OsEntropy())
    assert pvalue(draws, noise) > FALSE_ALARM
    assert pvalue(draws, wider(noise, Fraction(10, 9))) < FALSE_ALARM


@pytest.mark.parametrize("name", NOISES)
def test_added_noise_has_the_stated_variance_and_not_a_tenth_less(name) -> None:
    noise = NOISES[name]
    counts = np.arange(COUNT, dtype=np.int64).reshape(100, -1)
    drawn = noise.add(counts, OsEntropy()) - counts
    assert drawn.shape == counts.shape
    exact = variance(noise)
    deviation = math.sqrt((fourth_moment(noise) - exact**2) / COUNT)
    assert noise.variance == pytest.approx(exact, rel=1e-9)
    assert abs(float((drawn.astype(float) ** 2).mean()) - exact) < 6.4 * deviation
    assert exact / 10 > 20 * deviation, "a tenth less would be seen"
