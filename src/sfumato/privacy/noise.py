"""What the two integer noises share: checked parameters, addition that cannot overflow, exact quantiles."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, LossError
from sfumato.privacy.loss import Number, exact

Integers = NDArray[np.int64]

LARGEST_WIDTH = 1 << 50  # the noise then stays below 2^62 but for one draw in exp(4096)
_LARGEST = 1 << 62


def as_scale(value: Number) -> Fraction:
    """An exact scale that integers of 64 bits can carry.

    Raises:
        LossError: not a finite number above zero and at most 2^50.
    """
    scale = exact(value, name="scale")
    if not 0 < scale <= LARGEST_WIDTH:
        raise LossError(f"scale must be greater than zero and at most 2^50, not {value}", culprit=value)
    return scale


def as_variance(value: Number) -> Fraction:
    """An exact variance whose square root is at most 2^50.

    Raises:
        LossError: not a finite number above zero and at most 2^100.
    """
    variance = exact(value, name="variance")
    if not 0 < variance <= LARGEST_WIDTH**2:
        raise LossError(f"variance must be greater than zero and at most 2^100, not {value}", culprit=value)
    return variance


def as_sensitivity(value: int) -> Fraction:
    """A sensitivity of integers, as a fraction.

    Raises:
        LossError: not a positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise LossError(f"a sensitivity is a positive integer, not {value!r}", culprit=value)
    return Fraction(int(value))


def add_noise(counts: Integers, noise: Integers) -> Integers:
    """``counts + noise`` in int64, of the shape of ``counts``.

    Raises:
        InputError: ``counts`` is not int64, or holds numbers beyond 2^62.
    """
    if counts.dtype != np.int64:
        raise InputError(f"noise is added to int64 counts, not to {counts.dtype}", culprit=str(counts.dtype))
    if counts.size and (counts.max() > _LARGEST or counts.min() < -_LARGEST):
        raise InputError("counts beyond 2^62 could overflow with noise; use a coarser unit")
    return counts + noise.reshape(counts.shape)


def smallest_covering(probability: Number, upper_tail: Callable[[int], Fraction]) -> int:
    """The smallest k >= 0 with 2 P(noise >= k + 1) <= 1 - probability.

    Raises:
        LossError: the probability is not strictly between 0 and 1.
    """
    wanted = exact(probability, name="probability")
    if not 0 < wanted < 1:
        raise LossError(f"a probability lies strictly between 0 and 1, not {probability}", culprit=probability)
    return first_below((1 - wanted) / 2, upper_tail) - 1


def first_below(bound: Fraction, upper_tail: Callable[[int], Fraction]) -> int:
    """The smallest k >= 1 with ``upper_tail(k) <= bound``, for a bound above zero."""
    high = 1
    while upper_tail(high) > bound:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if upper_tail(middle) <= bound else (middle, high)
    return high
