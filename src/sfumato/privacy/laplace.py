"""Discrete Laplace noise: integers, pure epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from sfumato.privacy.enclosure import exp_enclosure
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, Number
from sfumato.privacy.noise import Integers, add_noise, as_scale, as_sensitivity, smallest_covering
from sfumato.privacy.table import Exponent, Table

_BITS = 256


@dataclass(frozen=True)
class DiscreteLaplace:
    """The integer k with probability proportional to exp(-|k| / scale).

    Neighbours: the caller's; the loss holds for every pair of integer vectors whose L1 distance is at
    most the sensitivity.  Loss: epsilon = sensitivity / scale, exactly, because the ratio of two
    probabilities is exp((|k - x'| - |k - x|) / scale).  Source: Ghosh, Roughgarden and Sundararajan 2009
    (the geometric mechanism); sampled exactly, see :mod:`sfumato.privacy.table`.

    Args:
        scale: exact, greater than zero, at most 2^50.

    Raises:
        LossError: the scale is not a finite number in that range.

    >>> DiscreteLaplace(10).loss(1)
    Epsilon('0.1')
    >>> DiscreteLaplace.for_loss(Epsilon("0.5"), 2).scale
    Fraction(4, 1)
    """

    scale: Fraction

    def __init__(self, scale: Number) -> None:
        object.__setattr__(self, "scale", as_scale(scale))

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

    def draw(self, count: int, entropy: Entropy) -> Integers:
        """Independent noise, shape ``(count,)``, exactly distributed."""
        return _table(self.scale).draw(count, entropy)

    def add(self, counts: Integers, entropy: Entropy) -> Integers:
        """``counts`` plus independent noise, of the same shape, int64.

        Raises:
            InputError: not an int64 array, or a number beyond 2^62, so that a sum could overflow.
        """
        return add_noise(counts, self.draw(counts.size, entropy))

    @property
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
        low, high = exp_enclosure(1 / self.scale, _BITS)
        weight_low, weight_high = exp_enclosure(abs(k) / self.scale, _BITS)
        one = 1 << _BITS
        return (
            Fraction((one - high) * weight_low, (one + high) << _BITS),
            Fraction((one - low) * weight_high, (one + low) << _BITS),
        )

    def upper_tail(self, k: int) -> Fraction:
        """P(noise >= k) for k >= 1, rounded upward by less than 2^-250: q^k / (1 + q)."""
        _, high = exp_enclosure(k / self.scale, _BITS)
        low, _ = exp_enclosure(1 / self.scale, _BITS)
        return Fraction(high, (1 << _BITS) + low)

    def quantile(self, probability: Number) -> int:
        """The smallest k with P(|noise| <= k) >= ``probability``, exact.

        Raises:
            LossError: the probability is not strictly between 0 and 1.

        >>> DiscreteLaplace(1).quantile("0.95")
        3
        """
        return smallest_covering(probability, self.upper_tail)


@lru_cache(maxsize=64)
def _table(scale: Fraction) -> Table:
    return Table.build(Exponent(scale.denominator, 0, scale.numerator), int(scale))
