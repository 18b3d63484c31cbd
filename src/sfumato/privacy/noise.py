"""Integer noise with its loss: discrete Laplace under pure epsilon, discrete Gaussian under zCDP.

Both are sampled exactly (many at a time by :mod:`sfumato.privacy.sampler`, few by
:mod:`sfumato.privacy.single_draws`), know their exact tails, and are added so that no sum overflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.errors import InputError, LossError, SizeError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, Number, Rho, exact
from sfumato.privacy.sampler import Exponent, NoiseTable, exp_enclosure, exp_sequence, first_number
from sfumato.privacy.single_draws import GaussianTries, LaplaceDigits

_LARGEST_WIDTH = 1 << 50  # the noise then stays below 2^62 but for one draw in exp(4096)
_LARGEST = 1 << 62
_LAPLACE_BITS, _GAUSSIAN_BITS = 256, 192
_SUMMED_VARIANCE = 1 << 24  # up to here probabilities are summed term by term
_SMOOTH_VARIANCE = 100  # from here the variance is sigma^2 to double precision: exp(-2 pi^2 100) is nothing


class IntegerNoise(ABC):
    """Noise on integers, symmetric around zero: how it is drawn and added, and how far it reaches."""

    few: ClassVar[int]  # up to so many draws a new scale is not worth a table

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Independent noise, shape ``(count,)``, exactly distributed.

        How it is drawn depends on ``count`` alone, so that the same words give the same noise, whatever came before.
        """
        source = self._table() if count > self.few else self._single()
        return source.draw(count, entropy)

    def add(self, counts: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """``counts`` plus independent noise, of the same shape, int64.

        Raises:
            InputError: not an int64 array, or a number beyond 2^62, so that a sum could overflow.
        """
        if counts.dtype != np.int64:
            raise InputError(f"noise is added to int64 counts, not to {counts.dtype}", culprit=str(counts.dtype))
        # one look in place of two: moved up by the largest, numbers that are too small are huge without a sign
        if counts.size and (counts + _LARGEST).view(np.uint64).max() > 2 * _LARGEST:
            raise InputError("counts beyond 2^62 could overflow with noise; use a coarser unit")
        return counts + self.draw(counts.size, entropy).reshape(counts.shape)

    def quantile(self, probability: Number) -> int:
        """The smallest k with P(|noise| <= k) >= ``probability``; of a Gaussian above sigma^2 = 2^24 possibly one more.

        Raises:
            LossError: the probability is not strictly between 0 and 1.

        >>> DiscreteLaplace(1).quantile("0.95"), DiscreteGaussian(100).quantile("0.95")
        (3, 20)
        """
        wanted = exact(probability, name="probability")
        if not 0 < wanted < 1:
            raise LossError(f"a probability lies strictly between 0 and 1, not {probability}", culprit=probability)
        beyond = 1 - wanted
        return first_number(lambda k: 2 * self.upper_tail(k) <= beyond, near=self._about(beyond)) - 1

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the noise on one integer."""

    @abstractmethod
    def pmf(self, k: int) -> float:
        """Probability of the integer ``k``, to double precision."""

    @abstractmethod
    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Fractions around the probability of ``k``, less than 2^-170 apart."""

    @abstractmethod
    def upper_tail(self, k: int) -> Fraction:
        """P(noise >= k) for k >= 1, rounded upward."""

    @abstractmethod
    def _about(self, beyond: Fraction) -> int:
        """About the smallest k >= 1 with P(|noise| >= k) <= ``beyond``: where to begin to look for it."""

    @abstractmethod
    def _table(self) -> NoiseTable:
        """The table that many draws are looked up in."""

    @abstractmethod
    def _single(self) -> LaplaceDigits | GaussianTries:
        """What few draws are made by."""


@dataclass(frozen=True)
class DiscreteLaplace(IntegerNoise):
    """The integer k with probability proportional to exp(-|k| / scale).

    Neighbours: the caller's; the loss holds for every pair of integer vectors whose L1 distance is at
    most the sensitivity.  Loss: epsilon = sensitivity / scale, exactly, because the ratio of two
    probabilities is exp((|k - x'| - |k - x|) / scale).  Source: Ghosh, Roughgarden and Sundararajan 2009
    (the geometric mechanism); sampled exactly.

    Args:
        scale: exact, greater than zero, at most 2^50.

    Raises:
        LossError: the scale is not a finite number in that range.

    >>> DiscreteLaplace(10).loss(1)
    Epsilon('0.1')
    >>> DiscreteLaplace.for_loss(Epsilon("0.5"), 2).scale
    Fraction(4, 1)
    """

    few = 256
    scale: Fraction

    def __init__(self, scale: Number) -> None:
        object.__setattr__(self, "scale", _up_to(_LARGEST_WIDTH, scale, "scale"))

    @classmethod
    def for_loss(cls, loss: Epsilon, sensitivity: int) -> DiscreteLaplace:
        """The noise that costs exactly ``loss`` at an L1 sensitivity of ``sensitivity``.

        Raises:
            LossError: the sensitivity is not a positive integer, or the scale is out of range.
        """
        return cls(as_sensitivity(sensitivity) / loss.value)

    def loss(self, sensitivity: int) -> Epsilon:
        """What one noisy vector costs, given the largest L1 distance between neighbours.

        Raises:
            LossError: the sensitivity is not a positive integer.
        """
        return Epsilon(as_sensitivity(sensitivity) / self.scale)

    @cached_property
    def variance(self) -> float:
        """Variance, 2 q / (1 - q)^2 with q = exp(-1 / scale)."""
        inverse = float(1 / self.scale)
        return 2 * math.exp(-inverse) / math.expm1(-inverse) ** 2

    def pmf(self, k: int) -> float:
        """Probability of the integer ``k``, to double precision."""
        inverse = float(1 / self.scale)
        return math.tanh(inverse / 2) * math.exp(-abs(k) * inverse)

    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Fractions around the probability of ``k``, about 2^-250 apart."""
        low, high = exp_enclosure(1 / self.scale, _LAPLACE_BITS)
        weight_low, weight_high = exp_enclosure(abs(k) / self.scale, _LAPLACE_BITS)
        one = 1 << _LAPLACE_BITS
        return (
            Fraction((one - high) * weight_low, (one + high) << _LAPLACE_BITS),
            Fraction((one - low) * weight_high, (one + low) << _LAPLACE_BITS),
        )

    def upper_tail(self, k: int) -> Fraction:
        """P(noise >= k) for k >= 1, rounded upward by less than 2^-250: q^k / (1 + q)."""
        _, high = exp_enclosure(k / self.scale, _LAPLACE_BITS)
        low, _ = exp_enclosure(1 / self.scale, _LAPLACE_BITS)
        return Fraction(high, (1 << _LAPLACE_BITS) + low)

    def _about(self, beyond: Fraction) -> int:
        scale = float(self.scale)
        both = float(beyond) * (1 + math.exp(-1 / scale)) / 2
        return math.ceil(-scale * math.log(both)) if 0 < both < 1 else 1

    def _table(self) -> NoiseTable:
        return _table(self.scale.denominator, 0, self.scale.numerator, int(self.scale))

    def _single(self) -> LaplaceDigits:
        return _digits(self.scale.numerator, self.scale.denominator)


@dataclass(frozen=True)
class DiscreteGaussian(IntegerNoise):
    """The integer k with probability proportional to exp(-k^2 / (2 variance)).

    ``variance`` is the parameter sigma^2.  Neighbours: the caller's; the loss holds for every pair of
    integer vectors whose squared L2 distance is at most the squared sensitivity.  Loss:
    rho = squared sensitivity / (2 sigma^2), exactly.  Source: Canonne, Kamath and Steinke 2020, Theorem 4
    (one integer) and the additivity of rho over coordinates; sampled exactly.

    Args:
        variance: sigma^2, exact, greater than zero, at most 2^100.

    Raises:
        LossError: the variance is not a finite number in that range.

    >>> DiscreteGaussian(8).loss(4)
    Rho('0.25')
    >>> DiscreteGaussian.for_loss(Rho("0.5"), 1).sigma_squared
    Fraction(1, 1)
    """

    few = 32
    sigma_squared: Fraction

    def __init__(self, variance: Number) -> None:
        object.__setattr__(self, "sigma_squared", _up_to(_LARGEST_WIDTH**2, variance, "variance"))

    @classmethod
    def for_loss(cls, loss: Rho, squared_sensitivity: int) -> DiscreteGaussian:
        """The noise that costs exactly ``loss`` at a squared L2 sensitivity of ``squared_sensitivity``.

        Raises:
            LossError: the sensitivity is not a positive integer, or the variance is out of range.
        """
        return cls(as_sensitivity(squared_sensitivity) / (2 * loss.value))

    def loss(self, squared_sensitivity: int) -> Rho:
        """What one noisy vector costs, given the largest squared L2 distance between neighbours.

        Raises:
            LossError: the sensitivity is not a positive integer.
        """
        return Rho(as_sensitivity(squared_sensitivity) / (2 * self.sigma_squared))

    @cached_property
    def variance(self) -> float:
        """Variance of the noise: at most sigma^2 (Canonne, Kamath and Steinke 2020, Corollary 9)."""
        sigma_squared = float(self.sigma_squared)
        if sigma_squared > _SMOOTH_VARIANCE:
            return sigma_squared
        weights = [math.exp(-k * k / (2 * sigma_squared)) for k in range(1, 40 + int(40 * math.sqrt(sigma_squared)))]
        return 2 * math.fsum(k * k * w for k, w in enumerate(weights, 1)) / (1 + 2 * math.fsum(weights))

    def pmf(self, k: int) -> float:
        """Probability of the integer ``k``, to double precision."""
        sigma_squared = float(self.sigma_squared)
        if sigma_squared > _SMOOTH_VARIANCE:
            total = math.sqrt(2 * math.pi * sigma_squared)
        else:
            total = float(Fraction(_tails(self.sigma_squared).total_low, 1 << _GAUSSIAN_BITS))
        return math.exp(-k * k / (2 * sigma_squared)) / total

    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Fractions around the probability of ``k``, about 2^-170 apart.

        Raises:
            SizeError: sigma^2 is above 2^24, so that the normalising sum would be long.
        """
        if self.sigma_squared > _SUMMED_VARIANCE:
            raise SizeError(
                f"the exact probability sums some {16 * math.isqrt(int(self.sigma_squared))} terms; "
                "use pmf for variances above 2^24",
                culprit=self.sigma_squared,
            )
        tails = _tails(self.sigma_squared)
        low, high = exp_enclosure(k * k / (2 * self.sigma_squared), _GAUSSIAN_BITS)
        return Fraction(low, tails.total_high), Fraction(high, tails.total_low)

    def upper_tail(self, k: int) -> Fraction:
        """P(noise >= k) for k >= 1, rounded upward.

        Up to sigma^2 = 2^24 the terms are summed between integer bounds, so that the excess is below 2^-170.
        Above, it is Q((k - 1/2) / sigma) with Q the normal tail: an upper bound, because on the unit intervals
        around integers beyond sigma the density is convex (its integral is at least its middle), within
        sigma it is concave (apply the same to P(|noise| < k)), and the normalising sum differs from
        sigma sqrt(2 pi) by exp(-2 pi^2 sigma^2).  Its excess is below (k / sigma)^4 / sigma^2 relatively; a
        relative 2^-36 is added for the floating-point erfc.
        """
        if self.sigma_squared <= _SUMMED_VARIANCE:
            return _tails(self.sigma_squared).upper(k)
        standard = float(k - Fraction(1, 2)) / math.sqrt(float(self.sigma_squared))
        if standard < 37:  # noqa: PLR2004 - erfc underflows soon after
            return Fraction(math.erfc(standard / math.sqrt(2)) / 2) * (1 + Fraction(1, 1 << 36))
        exponent = (k - Fraction(1, 2)) ** 2 / (2 * self.sigma_squared)
        bits = 2 * int(exponent) + 64
        return Fraction(exp_enclosure(exponent, bits)[1], 1 << bits)

    def _about(self, beyond: Fraction) -> int:
        del beyond  # sums from above are found by halving as fast
        return 1

    def _table(self) -> NoiseTable:
        squared = self.sigma_squared
        return _table(0, squared.denominator, 2 * squared.numerator, math.isqrt(int(squared)))

    def _single(self) -> GaussianTries:
        return _tries(self.sigma_squared.numerator, self.sigma_squared.denominator)


class _Tails:
    """Sums of exp(-j^2 / (2 sigma^2)) from above, times 2^_GAUSSIAN_BITS, and the normalising sum from both sides."""

    def __init__(self, sigma_squared: Fraction) -> None:
        self._rate = 1 / (2 * sigma_squared)
        count = math.isqrt(int(2 * sigma_squared * _GAUSSIAN_BITS)) + 2
        weights = exp_sequence(Fraction(0), step=self._rate, curvature=2 * self._rate, count=count, bits=_GAUSSIAN_BITS)
        highs = [high for _, high in weights]
        sums = list(accumulate(reversed(highs), initial=self._beyond(count)))
        self._sums = sums[::-1]  # _sums[k] bounds the sum over j >= k
        self.total_low = sum(low for low, _ in weights[1:]) * 2 + weights[0][0]
        self.total_high = self._sums[1] * 2 + highs[0]

    def _beyond(self, k: int) -> int:
        """A bound on the sum over j >= k: its terms halve at least every L = ceil(ln 2 sigma^2 / k) steps."""
        exponent = k * k * self._rate
        return 2 * math.ceil(Fraction(6932, 10000) / (2 * k * self._rate)) * exp_enclosure(exponent, _GAUSSIAN_BITS)[1]

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


@cached()  # by whole numbers, which hash in no time: a loop looks its table up for every draw
def _table(linear: int, quadratic: int, denominator: int, width: int) -> NoiseTable:
    return NoiseTable.build(Exponent(linear, quadratic, denominator), width)


@cached()
def _digits(numerator: int, denominator: int) -> LaplaceDigits:
    return LaplaceDigits.of(Fraction(numerator, denominator))


@cached()
def _tries(numerator: int, denominator: int) -> GaussianTries:
    squared = Fraction(numerator, denominator)
    return GaussianTries.of(squared, math.isqrt(int(squared)) + 1)


def as_sensitivity(value: int) -> Fraction:
    """A sensitivity of integers, as a fraction.

    Raises:
        LossError: not a positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise LossError(f"a sensitivity is a positive integer, not {value!r}", culprit=value)
    return Fraction(int(value))


def _up_to(most: int, value: Number, name: str) -> Fraction:
    """An exact width that integers of 64 bits can carry."""
    number = exact(value, name=name)
    if not 0 < number <= most:
        power = f"2^{most.bit_length() - 1}"
        raise LossError(f"{name} must be greater than zero and at most {power}, not {value}", culprit=value)
    return number
