"""Few draws of exact integer noise at any scale, without the table of :mod:`sfumato.privacy.sampler`.

A table takes milliseconds to build, which is worth it for some hundred draws; a single question wants one or two at a
scale that nobody asked for before.  Here noise is made of binary digits and of coins, each of which compares a random
word with integer enclosures of its probability, so that what comes out has exactly the distribution that is stated.
How many words a draw takes does not depend on what is drawn, but for ties, of probability about 2^-60, and for tries of
the Gaussian, whose number is independent of the number that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.entropy import Entropy
from sfumato.privacy.sampler import WORD, EnclosureEnds, decide, exp_enclosure

_BEYOND = 45  # exp(-45) < 2^-64
_BY_ONE = 64  # words up to which Python's integers are faster than arrays
_GUARD = 80  # a digit's ratio is squared at most 57 times, and each squaring doubles the width of its enclosure


@dataclass(frozen=True, eq=False)
class LaplaceDigits:
    """The integer k with probability proportional to exp(-|k| / scale), as the difference of two geometric numbers.

    A geometric number with ratio q = exp(-1 / scale) has independent binary digits: the i-th is one with probability
    r / (1 + r), r = q^(2^i).  What lies beyond the last digit, a multiple of 2^digits, is geometric with a ratio
    below 2^-64.  The difference of two such numbers is k with probability (1 - q) / (1 + q) q^|k|.

    Source: Marsaglia 1971, Random variables with independent binary digits (the digits); Ghosh, Roughgarden and
    Sundararajan 2009 (the two-sided geometric distribution).

    Attributes:
        rate: 1 / scale.
        digits: how many there are.
        low: words below it decide for a one, shape ``(digits + 1,)``; the last is for one more multiple.
        high: words from it on decide against; those between are ties, which further words settle.
    """

    rate: Fraction
    digits: int
    low: EnclosureEnds
    high: EnclosureEnds

    @classmethod
    def of(cls, scale: Fraction) -> LaplaceDigits:
        """The digits of a scale, in some ten microseconds."""
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
        """Independent draws, shape ``(count,)``."""
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
        drawn: NDArray[np.int64] = numbers[0] - numbers[1]
        return drawn

    def _by_one(self, words: list[int], entropy: Entropy) -> NDArray[np.int64]:
        """The draws of few words, one after the other: the same as of all at once, where an array step costs most."""
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
        """Of each digit its place, what it is worth, low and high."""
        lows, highs = self.low.tolist(), self.high.tolist()
        return [(place, 1 << place, *ends) for place, ends in enumerate(zip(lows, highs, strict=True))]

    def coin(self, digit: int, bits: int) -> tuple[int, int]:
        """An enclosure of the probability that a digit is one, or that there is one more multiple of 2^digits."""
        low, high = exp_enclosure(self.rate * (1 << digit), bits + 1)
        return (low >> 1, -(-high >> 1)) if digit == self.digits else _odds(low, high, bits=bits + 1, cut=1)


def _odds(low: int, high: int, *, bits: int, cut: int) -> tuple[int, int]:
    """An enclosure of r / (1 + r) with ``bits - cut`` binary digits, from one of r with ``bits``."""
    one, kept = 1 << bits, bits - cut
    return (low << kept) // (one + low), -((-high << kept) // (one + high))


@dataclass(frozen=True, eq=False)
class GaussianTries:
    """The integer k with probability proportional to exp(-k^2 / (2 sigma^2)), by rejection.

    With t = floor(sigma) + 1, an integer k of discrete Laplace noise of scale t is kept with probability
    exp(-(|k| - sigma^2 / t)^2 / (2 sigma^2)): the product of both is exp(-k^2 / (2 sigma^2)) times a constant.
    Fewer than two tries are needed in the mean.

    Source: Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy, Algorithm 3.
    """

    sigma_squared: Fraction
    scale: int  # t
    proposals: LaplaceDigits

    @classmethod
    def of(cls, sigma_squared: Fraction, scale: int) -> GaussianTries:
        """The tries of a variance, with t = ``scale``: floor(sigma) + 1 wastes least, any gives exact draws."""
        return cls(sigma_squared, scale, LaplaceDigits.of(Fraction(scale)))

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Independent draws, shape ``(count,)``."""
        drawn = np.empty(count, dtype=np.int64)
        left = np.arange(count)
        while left.size:
            proposed = self.proposals.draw(left.size, entropy)
            words = entropy.words(left.size)
            kept = np.array(
                [self.keeps(k, word, entropy) for k, word in zip(proposed.tolist(), words.tolist(), strict=True)],
                dtype=np.bool_,
            )
            drawn[left[kept]] = proposed[kept]
            left = left[~kept]
        return drawn

    def keeps(self, k: int, word: int, entropy: Entropy) -> bool:
        """Whether a proposal is kept; ``word`` holds the first digits of its coin."""
        return decide(partial(exp_enclosure, self.excess(k)), entropy, first=word)

    def excess(self, k: int) -> Fraction:
        """(|k| - sigma^2 / t)^2 / (2 sigma^2)."""
        top, below = self.sigma_squared.numerator, self.sigma_squared.denominator
        return Fraction((abs(k) * self.scale * below - top) ** 2, 2 * top * below * self.scale**2)
