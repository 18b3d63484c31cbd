"""Staircase noise under pure epsilon: the noise of least variance on one number that neighbors change by more than
one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import LossError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Number, exact
from sfumato.privacy.noise import LARGEST_WIDTH, Noise, as_sensitivity, checked_width, exp_enclosure
from sfumato.privacy.noise_table import decide, uniform_below

_BITS = 256  # bits of enclosures of probabilities


@dataclass(frozen=True)
class Staircase(Noise):
    """Noise whose probability falls in steps: by e^-epsilon from one run of ``width`` integers to the next.

    With q = e^-epsilon, |k| = g width + i and 0 <= i < width, the integer k has a probability proportional to q^g if i
    < step, and to q^(g + 1) otherwise.

    Neighbors: two vectors of integers that differ in one number, by at most ``width``; the unit is the caller's. Loss:
    pure epsilon, because |k| and |k + d| with d <= width have exponents g or g + 1 that differ by at most one: the
    exponent of m is floor((m + width - step) / width), which rises by one in every ``width`` integers. Vectors whose
    neighbors change several numbers need :class:`sfumato.privacy.laplace.DiscreteLaplace`. Source: Geng and Viswanath
    2014, The optimal mechanism in differential privacy (the discrete staircase).

    Args:
        epsilon: the loss, exact and greater than zero.
        width: the largest change of the number; width / epsilon is at most 2^50.
        step: the number of integers with the full probability of their run, from 1 to ``width``.

    Raises:
        LossError: a parameter is out of its range.

    >>> Staircase.for_loss(Epsilon(2), 10)
    Staircase(epsilon=Fraction(2, 1), width=10, step=4)
    >>> Staircase.for_loss(Epsilon(2), 10).variance < DiscreteLaplace.for_loss(Epsilon(2), 10).variance
    True
    """

    name = "staircase"
    loss_type = Epsilon
    sensitivity_norm = "one_number"
    few = 0
    epsilon: Fraction
    width: int
    step: int

    def __init__(self, epsilon: Number, width: Number, step: Number) -> None:
        rate, run, full = (exact(n, name=name) for n, name in ((epsilon, "epsilon"), (width, "width"), (step, "step")))
        if rate <= 0 or run.denominator != 1 or full.denominator != 1 or not 1 <= full <= run:
            raise LossError("staircase noise needs an epsilon above zero and integers 1 <= step <= width", culprit=step)
        checked_width(LARGEST_WIDTH, run / rate, "width / epsilon")
        object.__setattr__(self, "epsilon", rate)
        object.__setattr__(self, "width", int(run))
        object.__setattr__(self, "step", int(full))

    @classmethod
    def for_loss(cls, loss: Epsilon, sensitivity: int) -> Staircase:
        """Return the noise of ``loss`` with the step of least variance.

        Raises:
            LossError: the sensitivity is not a positive integer, or the noise would be too wide to draw.
        """
        width = int(as_sensitivity(sensitivity))
        least, most = 1, width
        while least < most:  # the variance falls and then rises with the step
            middle = (least + most) // 2
            if cls(loss.value, width, middle + 1).variance < cls(loss.value, width, middle).variance:
                least = middle + 1
            else:
                most = middle
        return cls(loss.value, width, least)

    def loss(self, sensitivity: int) -> Epsilon:
        """Return the loss of one noisy number: epsilon for each full or partial ``width`` of its largest change.

        Raises:
            LossError: the sensitivity is not a positive integer.
        """
        return Epsilon(self.epsilon * math.ceil(as_sensitivity(sensitivity) / self.width))

    @property
    def parameters(self) -> tuple[Fraction, int, int]:
        """The epsilon, the width and the step."""
        return self.epsilon, self.width, self.step

    def log_likelihood(self, noise: NDArray[np.float64]) -> float:
        """Return the log-probability of independent noise, up to a constant for each number."""
        return -float(self.epsilon) * float(((np.abs(noise) + self.width - self.step) // self.width).sum())

    @cached_property
    def variance(self) -> float:
        """The variance: the mean of (g width + i)^2 over runs g with geometric weights, and positions i in a run."""
        q, width, step = math.exp(-float(self.epsilon)), self.width, self.step
        full, low = _power_sums(step), tuple(a - b for a, b in zip(_power_sums(width), _power_sums(step), strict=True))
        count, first, second = (a + q * b for a, b in zip(full, low, strict=True))
        less = -math.expm1(-float(self.epsilon))  # 1 - q
        squares = count * width**2 * q * (1 + q) / less**2 + 2 * first * width * q / less + second
        return 2 * squares / (2 * step - 1 + q * (2 * (width - step) + 1))

    def pmf(self, k: int) -> float:
        """Return the probability of the integer ``k``, to double precision."""
        q = math.exp(-float(self.epsilon))
        highest = -math.expm1(-float(self.epsilon)) / (2 * self.step - 1 + q * (2 * (self.width - self.step) + 1))
        return highest * math.exp(-float(self.epsilon) * self._exponent(k))

    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Return fractions around the probability of ``k``, less than 2^-240 apart."""
        one = 1 << _BITS
        low, high = exp_enclosure(self.epsilon, _BITS)
        weight_low, weight_high = exp_enclosure(self.epsilon * self._exponent(k), _BITS)
        return (
            Fraction((one - high) * weight_low, self._total(high) << _BITS),
            Fraction((one - low) * weight_high, self._total(low) << _BITS),
        )

    def upper_tail(self, k: int) -> Fraction:
        """Return P(noise >= k) for k >= 1, rounded upward.

        The rest of the run of k has ``full`` integers of weight q^g and ``low`` integers of q^(g + 1); the runs after
        it weigh q^(g + 1) (step + q (width - step)) / (1 - q).
        """
        run, place = divmod(k, self.width)
        full, low = max(0, self.step - place), self.width - max(place, self.step)
        _, high = exp_enclosure(self.epsilon, _BITS)
        _, weight = exp_enclosure(self.epsilon * run, _BITS)
        q = Fraction(high, 1 << _BITS)
        # no coefficient is negative, so that the upper end of q gives the upper end
        rest = full + q * (low - full + self.step) + q**2 * (self.width - self.step - low)
        return rest * weight / self._total(exp_enclosure(self.epsilon, _BITS)[0])

    def _exponent(self, k: int) -> int:
        return (abs(k) + self.width - self.step) // self.width

    def _total(self, q: int) -> int:
        """Return 2 step - 1 + q (2 (width - step) + 1), times 2^_BITS: the weights of all integers times 1 - q."""
        return (2 * self.step - 1 << _BITS) + q * (2 * (self.width - self.step) + 1)

    def _table(self) -> _Draws:
        return _Draws(self)

    def _single(self) -> _Draws:
        return _Draws(self)


class _Draws:
    """Exact draws of staircase noise.

    Non-negative discrete Laplace noise is geometric: it is the run g.  A coin of probability step / (step + q (width -
    step)) picks the part of the run, and a uniform integer the position in the part.  A fair coin is the sign; zero
    with a minus is drawn again, so that zero is not counted twice.
    """

    def __init__(self, noise: Staircase) -> None:
        self._epsilon, self._width, self._step = noise.parameters
        self._runs = DiscreteLaplace(1 / noise.epsilon)

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent numbers, shape ``(count,)``."""
        noise = np.empty(count, dtype=np.int64)
        missing = np.arange(count)
        while missing.size:
            runs = self._runs.draw(missing.size, entropy)
            sizes = runs * self._width + self._places(missing.size, entropy)
            negative = (entropy.words(missing.size) & np.uint64(1)).astype(np.bool_)
            accepted = (runs >= 0) & ~(negative & (sizes == 0))
            noise[missing[accepted]] = np.where(negative, -sizes, sizes)[accepted]
            missing = missing[~accepted]
        return noise

    def _places(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        rest = self._width - self._step
        full = np.array([decide(self._full, entropy, first=word) for word in entropy.words(count).tolist()])
        places = uniform_below(self._step, count, entropy)
        return np.where(full, places, self._step + uniform_below(rest, count, entropy)) if rest else places

    def _full(self, bits: int) -> tuple[int, int]:
        """Return an enclosure of step / (step + q (width - step))."""
        low, high = exp_enclosure(self._epsilon, bits)
        one, rest = self._step << bits, self._width - self._step
        return (one << bits) // (one + rest * high), -((-one << bits) // (one + rest * low))


def _power_sums(below: int) -> tuple[int, int, int]:
    """Return the sums of 1, i and i^2 for 0 <= i < ``below``."""
    return below, below * (below - 1) // 2, (below - 1) * below * (2 * below - 1) // 6
