"""Discrete Gaussian noise under zCDP, with exact draws of few numbers.

Many numbers are drawn by :mod:`sfumato.privacy.noise_table`, few by rejection from discrete Laplace noise. The number
of tries is independent of the accepted number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.errors import SizeError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.laplace import LaplaceDigits
from sfumato.privacy.loss import Number, Rho
from sfumato.privacy.noise import LARGEST_WIDTH, Noise, as_sensitivity, checked_width, exp_enclosure, exp_sequence
from sfumato.privacy.noise_table import NoiseTable, decide, shared_table

_BITS = 192  # bits of enclosures of probabilities
_SUMMED_VARIANCE = 1 << 24  # up to here probabilities are summed term by term
_SMOOTH_VARIANCE = 100  # from here the variance is sigma^2 to double precision: exp(-2 pi^2 100) is negligible


@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """Noise on the integers: k has probability proportional to exp(-k^2 / (2 variance)).

    ``variance`` is the parameter sigma^2.  Neighbors: the caller's; the loss holds for every pair of integer vectors
    whose squared L2 distance is at most the squared sensitivity.  Loss: rho = squared sensitivity / (2 sigma^2),
    exactly.  Source: Canonne, Kamath and Steinke 2020, Theorem 4 (one integer) and the additivity of rho over
    coordinates; sampled exactly.

    Args:
        variance: sigma^2, exact, greater than zero, at most 2^100.

    Raises:
        LossError: the variance is not a finite number in that range.

    >>> DiscreteGaussian(8).loss(4)
    Rho('0.25')
    >>> DiscreteGaussian.for_loss(Rho("0.5"), 1).sigma_squared
    Fraction(1, 1)
    >>> DiscreteGaussian(100).quantile("0.95")
    20
    """

    name = "discrete Gaussian"
    loss_type = Rho
    sensitivity_norm = "l2_squared"
    few = 32
    sigma_squared: Fraction

    def __init__(self, variance: Number) -> None:
        object.__setattr__(self, "sigma_squared", checked_width(LARGEST_WIDTH**2, variance, "variance"))

    @classmethod
    def for_loss(cls, loss: Rho, squared_sensitivity: int) -> DiscreteGaussian:
        """Return the noise whose loss is exactly ``loss`` at a squared L2 sensitivity of ``squared_sensitivity``.

        Raises:
            LossError: the sensitivity is not a positive integer, or the variance is out of range.
        """
        return cls(as_sensitivity(squared_sensitivity) / (2 * loss.value))

    def loss(self, squared_sensitivity: int) -> Rho:
        """Return the loss of one noisy vector, given the largest squared L2 distance between neighbors.

        Raises:
            LossError: the sensitivity is not a positive integer.
        """
        return Rho(as_sensitivity(squared_sensitivity) / (2 * self.sigma_squared))

    @property
    def parameters(self) -> tuple[Fraction]:
        """The parameter sigma^2."""
        return (self.sigma_squared,)

    def log_likelihood(self, noise: NDArray[np.float64]) -> float:
        """Return the log-probability of independent noise, up to a constant for each number."""
        return -float((noise**2).sum()) / (2 * float(self.sigma_squared))

    @cached_property
    def variance(self) -> float:
        """The variance of the noise: at most sigma^2 (Canonne, Kamath and Steinke 2020, Corollary 9)."""
        sigma_squared = float(self.sigma_squared)
        if sigma_squared > _SMOOTH_VARIANCE:
            return sigma_squared
        weights = [math.exp(-k * k / (2 * sigma_squared)) for k in range(1, 40 + int(40 * math.sqrt(sigma_squared)))]
        return 2 * math.fsum(k * k * w for k, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights))

    def pmf(self, k: int) -> float:
        """Return the probability of the integer ``k``, to double precision."""
        sigma_squared = float(self.sigma_squared)
        if sigma_squared > _SMOOTH_VARIANCE:
            total = math.sqrt(2 * math.pi * sigma_squared)
        else:
            total = float(Fraction(_tails(self.sigma_squared).total_low, 1 << _BITS))
        return math.exp(-k * k / (2 * sigma_squared)) / total

    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Return fractions around the probability of ``k``, about 2^-170 apart.

        Raises:
            SizeError: sigma^2 is above 2^24, so that the normalizing sum would be long.
        """
        if self.sigma_squared > _SUMMED_VARIANCE:
            raise SizeError(
                f"the exact probability sums some {16 * math.isqrt(int(self.sigma_squared))} terms; "
                "use pmf for variances above 2^24",
                culprit=self.sigma_squared,
            )
        tails = _tails(self.sigma_squared)
        low, high = exp_enclosure(k * k / (2 * self.sigma_squared), _BITS)
        return Fraction(low, tails.total_high), Fraction(high, tails.total_low)

    def upper_tail(self, k: int) -> Fraction:
        """Return P(noise >= k) for k >= 1, rounded upward.

        Up to sigma^2 = 2^24 the terms are summed between integer bounds, so that the excess is below 2^-170.

        Above, it is Q((k - 1/2) / sigma) with Q the normal tail.  This is an upper bound: on the unit intervals around
        integers beyond sigma the density is convex (its integral is at least its middle).  Within sigma it is concave
        (apply the same to P(|noise| < k)).  The normalizing sum differs from sigma sqrt(2 pi) by exp(-2 pi^2 sigma^2).
        Its excess is below (k / sigma)^4 / sigma^2 relatively; a relative 2^-36 is added for the floating-point erfc.
        """
        if self.sigma_squared <= _SUMMED_VARIANCE:
            return _tails(self.sigma_squared).upper(k)
        standard = float(k - Fraction(1, 2)) / math.sqrt(float(self.sigma_squared))
        if standard < 37:  # noqa: PLR2004 - erfc underflows soon after
            return Fraction(math.erfc(standard / math.sqrt(2)) / 2) * (1 + Fraction(1, 1 << 36))
        exponent = (k - Fraction(1, 2)) ** 2 / (2 * self.sigma_squared)
        bits = 2 * int(exponent) + 64
        return Fraction(exp_enclosure(exponent, bits)[1], 1 << bits)

    def _table(self) -> NoiseTable:
        squared = self.sigma_squared
        return shared_table(0, squared.denominator, 2 * squared.numerator, math.isqrt(int(squared)))

    def _single(self) -> GaussianTries:
        return _tries(self.sigma_squared.numerator, self.sigma_squared.denominator)


class _Tails:
    """Sums of exp(-j^2 / (2 sigma^2)) from above, times 2^_BITS, and the normalizing sum from both sides."""

    def __init__(self, sigma_squared: Fraction) -> None:
        self._rate = 1 / (2 * sigma_squared)
        count = math.isqrt(int(2 * sigma_squared * _BITS)) + 2
        weights = exp_sequence(Fraction(0), step=self._rate, curvature=2 * self._rate, count=count, bits=_BITS)
        highs = [high for _, high in weights]
        sums = list(accumulate(reversed(highs), initial=self._beyond(count)))
        self._sums = sums[::-1]  # _sums[k] bounds the sum over j >= k
        self.total_low = sum(low for low, _ in weights[1:]) * 2 + weights[0][0]
        self.total_high = self._sums[1] * 2 + highs[0]

    def _beyond(self, k: int) -> int:
        """Return a bound on the sum over j >= k: its terms halve at least every L = ceil(ln 2 sigma^2 / k) steps."""
        exponent = k * k * self._rate
        return 2 * math.ceil(Fraction(6932, 10000) / (2 * k * self._rate)) * exp_enclosure(exponent, _BITS)[1]

    def upper(self, k: int) -> Fraction:
        if k < len(self._sums):
            return Fraction(self._sums[k], self.total_low)
        exponent = k * k * self._rate
        bits = 2 * int(exponent) + 64
        steps = 2 * math.ceil(Fraction(6932, 10000) / (2 * k * self._rate))
        return Fraction(steps * exp_enclosure(exponent, bits)[1], 1 << bits)


@cached()
def _tails(sigma_squared: Fraction) -> _Tails:
    return _Tails(sigma_squared)


@dataclass(frozen=True, eq=False)
class GaussianTries:
    """Draws of the integer k with probability proportional to exp(-k^2 / (2 sigma^2)), by rejection.

    With t = floor(sigma) + 1, an integer k of discrete Laplace noise of scale t is accepted with probability exp(-(|k|
    - sigma^2 / t)^2 / (2 sigma^2)).  The product of both is exp(-k^2 / (2 sigma^2)) times a constant.  On average,
    fewer than two tries are needed.

    Source:  Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy, Algorithm 3.
    """

    sigma_squared: Fraction
    scale: int  # t
    proposals: LaplaceDigits

    @classmethod
    def of(cls, sigma_squared: Fraction, scale: int) -> GaussianTries:
        """Return the tries for a variance, with t = ``scale``.

        The choice floor(sigma) + 1 needs the fewest tries; any choice gives exact draws.
        """
        return cls(sigma_squared, scale, LaplaceDigits.of(Fraction(scale)))

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent numbers, shape ``(count,)``."""
        noise = np.empty(count, dtype=np.int64)
        missing = np.arange(count)
        while missing.size:
            proposed = self.proposals.draw(missing.size, entropy)
            words = entropy.words(missing.size)
            accepted = np.array(
                [self.keeps(k, word, entropy) for k, word in zip(proposed.tolist(), words.tolist(), strict=True)],
                dtype=np.bool_,
            )
            noise[missing[accepted]] = proposed[accepted]
            missing = missing[~accepted]
        return noise

    def keeps(self, k: int, word: int, entropy: Entropy) -> bool:
        """Decide whether to accept a proposal; ``word`` holds the first digits of its coin."""
        return decide(partial(exp_enclosure, self.excess(k)), entropy, first=word)

    def excess(self, k: int) -> Fraction:
        """Return (|k| - sigma^2 / t)^2 / (2 sigma^2)."""
        top, below = self.sigma_squared.numerator, self.sigma_squared.denominator
        return Fraction((abs(k) * self.scale * below - top) ** 2, 2 * top * below * self.scale**2)


@cached()
def _tries(numerator: int, denominator: int) -> GaussianTries:
    squared = Fraction(numerator, denominator)
    return GaussianTries.of(squared, math.isqrt(int(squared)) + 1)
