"""The contract of a mechanism that adds integer noise, and the exact arithmetic of its probabilities.

Each mechanism is one file: see :mod:`noise_kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, LossError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, Number, Rho, exact, plain

SensitivityNorm: TypeAlias = Literal["l1", "l2_squared", "one_number"]
"""A sensitivity bounds the L1 distance of two vectors, their squared L2 distance, or the change of a single number."""

LARGEST_WIDTH = 1 << 50  # the noise then stays below 2^62, except in one draw of exp(4096)
_LARGEST = 1 << 62


class NoiseSource(Protocol):
    """A source of noise of one distribution: a table for many numbers, or digits for few."""

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent numbers, shape ``(count,)``."""
        ...


class Noise(ABC):
    """The contract of a mechanism: integer noise, symmetric around zero, and its loss.

    A subclass is a frozen dataclass in a file of its own.  It is listed in :data:`sfumato.privacy.noise_kinds.NOISES`,
    from which audits and the choice for one number take it.  Releases, and the tables that they store, have only the
    noise of :data:`sfumato.privacy.noise_kinds.NOISE_OF`.

    Attributes:
        name: the name of the noise in stored files and reports; it never changes.
        loss_type: the measure of its loss.
        sensitivity_norm: the distance of two neighbors that a sensitivity bounds.
        few: the largest number of draws that :meth:`_single` makes; :meth:`_table` makes more.
    """

    name: ClassVar[str]
    loss_type: ClassVar[type[Epsilon | Rho]]
    sensitivity_norm: ClassVar[SensitivityNorm]
    few: ClassVar[int]

    @classmethod
    @abstractmethod
    def for_loss(cls, loss: Any, sensitivity: int, /) -> Self:  # noqa: ANN401 -- of `loss_type`
        """Return the noise whose loss is exactly ``loss``, for neighbors at most ``sensitivity`` apart.

        Raises:
            LossError: the sensitivity is not a positive integer, or the noise would be too wide to draw.
        """

    @abstractmethod
    def loss(self, sensitivity: int, /) -> Epsilon | Rho:
        """Return the loss of one release, for neighbors at most ``sensitivity`` apart.

        Raises:
            LossError: the sensitivity is not a positive integer, or the noise has no loss for it.
        """

    @property
    @abstractmethod
    def parameters(self) -> tuple[Fraction | int, ...]:
        """The exact numbers that reconstruct this noise, in the order of the constructor."""

    def to_json(self) -> list[str]:
        """Return the name and the parameters; :func:`sfumato.privacy.noise_kinds.noise_from_json` reads them."""
        return [self.name, *(plain(Fraction(number)) for number in self.parameters)]

    @abstractmethod
    def log_likelihood(self, noise: NDArray[np.float64]) -> float:
        """Return the log-probability of independent noise, up to a term that depends on its shape alone."""

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``, exactly distributed.

        The method depends on ``count`` alone, so that the same words give the same noise, in any state.
        """
        source = self._table() if count > self.few else self._single()
        return source.draw(count, entropy)

    def add(self, counts: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """Return ``counts`` plus independent noise, of the same shape, int64.

        Raises:
            InputError: not an int64 array, or a number beyond 2^62, so that a sum could overflow.
        """
        if counts.dtype != np.int64:
            raise InputError(f"noise is added to int64 counts, not to {counts.dtype}", culprit=str(counts.dtype))
        # one test instead of two: shifted up by the limit, numbers that are too small become huge as unsigned
        if counts.size and (counts + _LARGEST).view(np.uint64).max() > 2 * _LARGEST:
            raise InputError("counts beyond 2^62 could overflow with noise; use a coarser unit")
        return counts + self.draw(counts.size, entropy).reshape(counts.shape)

    def quantile(self, probability: Number) -> int:
        """Return the smallest k with P(|noise| <= k) >= ``probability``.

        A Gaussian above sigma^2 = 2^24 may give one more.

        Raises:
            LossError: the probability is not strictly between 0 and 1.
        """
        covered = exact(probability, name="probability")
        if not 0 < covered < 1:
            raise LossError(f"a probability lies strictly between 0 and 1, not {probability}", culprit=probability)
        beyond = 1 - covered
        return first_number(lambda k: 2 * self.upper_tail(k) <= beyond, near=self._about(beyond)) - 1

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of the noise on one integer."""

    @abstractmethod
    def pmf(self, k: int) -> float:
        """Return the probability of the integer ``k``, to double precision."""

    @abstractmethod
    def enclose_pmf(self, k: int) -> tuple[Fraction, Fraction]:
        """Return fractions around the probability of ``k``, less than 2^-170 apart."""

    @abstractmethod
    def upper_tail(self, k: int) -> Fraction:
        """Return P(noise >= k) for k >= 1, rounded upward."""

    def _about(self, beyond: Fraction) -> int:
        """Return the start of a search for the smallest k >= 1 with P(|noise| >= k) <= ``beyond``."""
        del beyond  # the search starts at one and doubles its steps
        return 1

    @abstractmethod
    def _table(self) -> NoiseSource:
        """Return the source of more than :attr:`few` numbers."""

    @abstractmethod
    def _single(self) -> NoiseSource:
        """Return the source of at most :attr:`few` numbers."""


def as_sensitivity(value: int) -> Fraction:
    """Return a sensitivity of integers as a fraction.

    Raises:
        LossError: the value is not a positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise LossError(f"a sensitivity is a positive integer, not {value!r}", culprit=value)
    return Fraction(int(value))


def checked_width(most: int, value: Number, name: str) -> Fraction:
    """Return an exact width that integers of 64 bits can carry.

    Raises:
        LossError: the value is not a finite number greater than zero and at most ``most``.
    """
    number = exact(value, name=name)
    if not 0 < number <= most:
        power = f"2^{most.bit_length() - 1}"
        raise LossError(f"{name} must be greater than zero and at most {power}, not {value}", culprit=value)
    return number


def exp_enclosure(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers around ``2^bits * exp(-exponent)``, at most a few apart.

    The exponent is halved k times until it is below 2^-8.  The alternating series is summed in fixed point with w bits.
    Term i is at most 4 units too small (its two divisions and the rounded exponent lose 3, the loss of term i-1 shrinks
    by 256).  The omitted terms are below one unit, so the sum of i terms is within 4i + 1 units.  Both ends are then
    squared k times, rounded outward.

    Args:
        exponent: at least zero.
        bits: binary digits after the point, at least one.

    >>> low, high = exp_enclosure(Fraction(1), 20)
    >>> low / 2**20, high / 2**20
    (0.36787891387939453, 0.36787986755371094)
    """
    numerator, denominator = exponent.numerator, exponent.denominator
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator >= bits * denominator:  # exp(-bits) < 2^-bits
        return 0, 1
    halvings = max(0, numerator.bit_length() - denominator.bit_length() + 1 + 8)
    width = bits + halvings + bits.bit_length() + 8
    reduced = (numerator << width) // (denominator << halvings)
    term = total = 1 << width
    terms = 0
    while term:
        terms += 1
        term = ((term * reduced) >> width) // terms
        total += -term if terms % 2 else term
    low, high = total - 4 * terms - 1, total + 4 * terms + 1
    for _ in range(halvings):
        low = low * low >> width
        high = -(-high * high >> width)
    return low >> (width - bits), min(1 << bits, -(-high >> (width - bits)))


def exp_sequence(
    first: Fraction, *, step: Fraction, curvature: Fraction = Fraction(0), count: int, bits: int
) -> list[tuple[int, int]]:
    """Return enclosures of ``2^bits * exp(-(first + i step + i (i - 1) / 2 curvature))`` for i = 0 .. count - 1.

    Two interval products per entry replace a series: the ratio of neighbors is itself geometric.
    """
    low, high = exp_enclosure(first, bits)
    ratio_low, ratio_high = exp_enclosure(step, bits)
    change_low, change_high = exp_enclosure(curvature, bits)
    sequence = []
    for _ in range(count):
        sequence.append((low, high))
        low = low * ratio_low >> bits
        high = -(-high * ratio_high >> bits)
        if curvature:
            ratio_low = ratio_low * change_low >> bits
            ratio_high = -(-ratio_high * change_high >> bits)
    return sequence


def first_number(condition: Callable[[int], bool], *, near: int = 1) -> int:
    """Return the smallest n >= 1 for which a monotone condition holds.

    The search begins at ``near`` and widens.  Two evaluations suffice if ``near`` is the result.
    """
    step, low, high = 1, 0, max(1, near)
    if condition(high):
        while high - step >= 1 and condition(high - step):
            high, step = high - step, 2 * step
        low = max(0, high - step)
    else:
        while True:
            low, high, step = high, high + step, 2 * step
            if condition(high):
                break
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if condition(middle) else (middle, high)
    return high
