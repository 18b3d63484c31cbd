"""Discrete Laplace noise under pure epsilon, with exact draws of few numbers.

Many numbers are drawn by :mod:`sfumato.privacy.noise_table`, whose table takes milliseconds to build.  A single query
needs one or two numbers at a new scale.  They are made of binary digits, each of which compares a random word with
integer enclosures of its probability, so that the distribution is exact.  The number of words does not depend on the
drawn number, except for ties, of probability about 2^-60.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, Number
from sfumato.privacy.noise import LARGEST_WIDTH, Noise, as_sensitivity, checked_width, exp_enclosure
from sfumato.privacy.noise_table import WORD, EnclosureEnds, NoiseTable, decide, shared_table

_BITS = 256  # bits of enclosures of probabilities
_BEYOND = 45  # exp(-45) < 2^-64
_BY_ONE = 64  # words up to which Python's integers are faster than arrays
_GUARD = 80  # a digit's ratio is squared at most 57 times, and each squaring doubles the width of its enclosure


@dataclass(frozen=True)
class DiscreteLaplace(Noise):
    """Noise on the integers: k has probability proportional to exp(-|k| / scale).

    Neighbors: the caller's; the loss holds for every pair of integer vectors whose L1 distance is at most the
    sensitivity.  Loss: epsilon = sensitivity / scale, exactly, because the ratio of two probabilities is exp((|k - x'|
    - |k - x|) / scale).  Source: Ghosh, Roughgarden and Sundararajan 2009 (the geometric mechanism); sampled exactly.

    Args:
        scale: exact, greater than zero, at most 2^50.

    Raises:
        LossError: the scale is not a finite number in that range.

    >>> DiscreteLaplace(10).loss(1)
    Epsilon('0.1')
    >>> DiscreteLaplace.for_loss(Epsilon("0.5"), 2).scale
    Fraction(4, 1)
    >>> DiscreteLaplace(1).quantile("0.95")
    3
    """

    name = "discrete Laplace"
    loss_type = Epsilon
    sensitivity_norm = "l1"
    few = 256
    scale: Fraction

    def __init__(self, scale: Number) -> None:
        object.__setattr__(self, "scale", checked_width(LARGEST_WIDTH, scale, "scale"))

    @classmethod
    def for_loss(cls, loss: Epsilon, sensitivity: int) -> DiscreteLaplace:
        """Return the noise whose loss is exactly ``loss`` at an L1 sensitivity of ``sensitivity``.

        Raises:
            LossError: the sensitivity is not a positive integer, or the scale is out of range.
        """
        return cls(as_sensitivity(sensitivity) / loss.value)

    def loss(self, sensitivity: int) -> Epsilon:
        """Return the loss of one noisy vector, given the largest L1 distance between neighbors.

        Raises:
            LossError: the sensitivity is not a positive integer.
        """
        return Epsilon(as_sensitivity(sensitivity) / self.scale)

    @property
    def parameters(self) -> tuple[Fraction]:
        """The scale."""
        return (self.scale,)

    def log_likelihood(self, noise: NDArray[np.float64]) -> float:
        """Return the log-probability of independent noise, up to a constant for each number."""
        return -float(np.abs(noise).sum()) / float(self.scale)

    @cached_property
    def variance(self) -> float:
        """The variance, 2 q / (1 - q)^2 with q = exp(-1 / scale)."""
        inverse = float(1 / self.scale)
        return 2 * math.exp(-inverse) / math.expm1(-inverse) ** 2

    def pmf(self, k: int) -> float:
        """Return the probability of the integer ``k``, to double precision."""
        inverse = float(1 / self.scale)
        return math.tanh(inverse / 2) * math.exp(-abs(k) * inverse)

    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Return fractions around the probability of ``k``, about 2^-250 apart."""
        low, high = exp_enclosure(1 / self.scale, _BITS)
        weight_low, weight_high = exp_enclosure(abs(k) / self.scale, _BITS)
        one = 1 << _BITS
        return (
            Fraction((one - high) * weight_low, (one + high) << _BITS),
            Fraction((one - low) * weight_high, (one + low) << _BITS),
        )

    def upper_tail(self, k: int) -> Fraction:
        """Return P(noise >= k) for k >= 1, rounded upward by less than 2^-250: q^k / (1 + q)."""
        _, high = exp_enclosure(k / self.scale, _BITS)
        low, _ = exp_enclosure(1 / self.scale, _BITS)
        return Fraction(high, (1 << _BITS) + low)

    def _about(self, beyond: Fraction) -> int:
        scale = float(self.scale)
        both = float(beyond) * (1 + math.exp(-1 / scale)) / 2
        return math.ceil(-scale * math.log(both)) if 0 < both < 1 else 1

    def _table(self) -> NoiseTable:
        return shared_table(self.scale.denominator, 0, self.scale.numerator, int(self.scale))

    def _single(self) -> LaplaceDigits:
        return _digits(self.scale.numerator, self.scale.denominator)


@dataclass(frozen=True, eq=False)
class LaplaceDigits:
    """Draws of discrete Laplace noise, as the difference of two geometric numbers.

    A geometric number with ratio q = exp(-1 / scale) has independent binary digits: the i-th is one with probability r
    / (1 + r), r = q^(2^i).  The part beyond the last digit, a multiple of 2^digits, is geometric with a ratio below
    2^-64.  The difference of two such numbers is k with probability (1 - q) / (1 + q) q^|k|.

    Source: Marsaglia 1971, Random variables with independent binary digits (the digits); Ghosh, Roughgarden and
    Sundararajan 2009 (the two-sided geometric distribution).

    Attributes:
        rate: 1 / scale.
        digits: the number of digits.
        low: words below it decide for a one, shape ``(digits + 1,)``; the last is for one more multiple.
        high: words from it on decide against; words between are ties, which further words settle.
    """

    rate: Fraction
    digits: int
    low: EnclosureEnds
    high: EnclosureEnds

    @classmethod
    def of(cls, scale: Fraction) -> LaplaceDigits:
        """Return the digits of a scale; this takes some ten microseconds."""
        digits = ((_BEYOND * scale.numerator - 1) // scale.denominator).bit_length()
        bits = WORD + _GUARD
        low, high = exp_enclosure(1 / scale, bits)
        ends = []
        for _ in range(digits):
            ends.append(_odds(low, high, bits=bits, cut=_GUARD))
            low, high = low * low >> bits, -(-high * high >> bits)
        ends.append((low >> _GUARD, -(-high >> _GUARD)))
        lows, highs = zip(*ends, strict=True)
        return cls(1 / scale, digits, np.array(lows, dtype=np.uint64), np.array(highs, dtype=np.uint64))

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent numbers, shape ``(count,)``."""
        words = entropy.words(2 * count * (self.digits + 1))
        if words.size <= _BY_ONE:
            return self._by_one(words.tolist(), entropy)
        words = words.reshape(2, count, self.digits + 1)
        ones = words < self.low
        ties = (words < self.high) & ~ones
        if ties.any():
            for place in zip(*(axis.tolist() for axis in ties.nonzero()), strict=True):
                ones[place] = decide(partial(self.coin, place[-1]), entropy, first=int(words[place]))
        numbers = ones @ (np.int64(1) << np.arange(self.digits + 1))
        for place in zip(*(axis.tolist() for axis in ones[..., -1].nonzero()), strict=True):
            while decide(partial(self.coin, self.digits), entropy):
                numbers[place] += 1 << self.digits
        noise: NDArray[np.int64] = numbers[0] - numbers[1]
        return noise

    def _by_one(self, words: list[int], entropy: Entropy) -> NDArray[np.int64]:
        """Draw from few words, one after the other: the same numbers as from arrays, in less time."""
        parts = [
            one if word < low or (word < high and decide(partial(self.coin, place), entropy, first=word)) else 0
            for word, (place, one, low, high) in zip(words, cycle(self._ends))
        ]
        numbers = []
        for start in range(0, len(parts), self.digits + 1):
            number = sum(parts[start : start + self.digits + 1])
            while number >> self.digits and decide(partial(self.coin, self.digits), entropy):
                number += 1 << self.digits
            numbers.append(number)
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        return np.array([one - other for one, other in pairs], dtype=np.int64)

    @cached_property
    def _ends(self) -> list[tuple[int, int, int, int]]:
        """Return the index, the value and both word ends of each digit."""
        lows, highs = self.low.tolist(), self.high.tolist()
        return [(place, 1 << place, *ends) for place, ends in enumerate(zip(lows, highs, strict=True))]

    def coin(self, digit: int, bits: int) -> tuple[int, int]:
        """Return an enclosure of the probability of a digit, or of one more multiple of 2^digits."""
        low, high = exp_enclosure(self.rate * (1 << digit), bits + 1)
        return (low >> 1, -(-high >> 1)) if digit == self.digits else _odds(low, high, bits=bits + 1, cut=1)


def _odds(low: int, high: int, *, bits: int, cut: int) -> tuple[int, int]:
    """Return an enclosure of r / (1 + r) with ``bits - cut`` binary digits, from an enclosure of r with ``bits``."""
    one, digits = 1 << bits, bits - cut
    return (low << digits) // (one + low), -((-high << digits) // (one + high))


@cached()
def _digits(numerator: int, denominator: int) -> LaplaceDigits:
    return LaplaceDigits.of(Fraction(numerator, denominator))
