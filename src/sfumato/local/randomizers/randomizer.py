"""The interface of local randomizers: finite channels with exact integer probability tables, and proofs.

A privacy loss never depends on floating-point numbers: ``e^epsilon`` is enclosed by integers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, LossError, SizeError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number, exact, plain
from sfumato.privacy.noise import exp_enclosure

DENOMINATOR = 1 << 64
"""Common denominator of every probability of a randomizer."""

CEILING = Fraction(32)
"""Largest epsilon of a randomizer.  At epsilon = 32 a report is false once in 10^13, which protects no value.  Above
it, the rarest outcome has too few of the 2^64 steps for six digits.
"""

FLOOR = Fraction(1, 10**9)
"""Smallest epsilon of a randomizer.  At this epsilon, 10^18 reports still estimate nothing."""

_CHUNK_BITS = 1 << 21  # report bits drawn at a time: their words fit the second-level cache
_LONGEST_CHUNK = 1 << 15

_BITS = 384
_DECIMALS = 10**12
_DIGITS = 20


def claimed(epsilon: Number) -> Fraction:
    """Return the epsilon that a local spec claims, as an exact fraction.

    Raises:
        LossError: epsilon is not a finite number from 1e-9 to 32; :data:`FLOOR` and :data:`CEILING` give the reasons.

    >>> claimed(0.5)
    Fraction(1, 2)
    """
    value = exact(epsilon, name="epsilon")
    if value <= 0:
        raise LossError(f"epsilon must be greater than zero, not {str(epsilon)[:_DIGITS]}", culprit=epsilon)
    if value < FLOOR:
        raise LossError(
            f"epsilon must be at least {plain(FLOOR)}, not {str(epsilon)[:_DIGITS]}: a smaller one leaves only noise",
            culprit=epsilon,
        )
    if value > CEILING:
        raise LossError(
            f"epsilon must be at most {CEILING}, not {str(epsilon)[:_DIGITS]}: "
            "above that a local report is the value itself",
            culprit=epsilon,
        )
    return value


def exp_below(epsilon: Fraction) -> Fraction:
    """Return a lower bound on ``e^epsilon`` as a fraction, correct to about 100 digits.

    >>> float(exp_below(Fraction(1)))
    2.718281828459045
    """
    _, high = exp_enclosure(epsilon, _BITS)
    return Fraction(1 << _BITS, high)


def proven(ratio: Fraction) -> Fraction:
    """Return the least twelve-decimal epsilon with a proof in integers of ``ratio <= e^epsilon``.

    >>> proven(Fraction(3)), proven(Fraction(1))
    (Fraction(1098612288669, 1000000000000), Fraction(0, 1))
    """
    if ratio <= 1:
        return Fraction(0)
    guess = math.log1p(float(ratio - 1)) if ratio < 2 else math.log(ratio.numerator) - math.log(ratio.denominator)  # noqa: PLR2004
    steps = max(0, math.floor(guess * _DECIMALS) - 1)
    while exp_below(Fraction(steps, _DECIMALS)) < ratio:
        steps += 1
    return Fraction(steps, _DECIMALS)


InputCodes: TypeAlias = NDArray[np.integer[Any]]
ReportArray: TypeAlias = NDArray[np.unsignedinteger[Any]]
Tally: TypeAlias = NDArray[np.int64]
RealArray: TypeAlias = NDArray[np.float64]

Numerator = NewType("Numerator", int)
"""A probability over 2^64.  In documents it is a decimal string, because JSON readers round large integers."""

LARGEST_TABLE = 1 << 16
"""Largest number of entries of a probability table that is enumerated."""


@dataclass(frozen=True)
class Layout:
    """The form of one report, independent of its value: one unsigned integer, or ``width`` bytes."""

    dtype: np.dtype[np.unsignedinteger[Any]]
    width: int = 1

    @property
    def size(self) -> int:
        """The bytes of one report."""
        return self.dtype.itemsize * self.width

    def empty(self, size: int) -> ReportArray:
        """Return an empty array for ``size`` reports: ``(size,)``, or ``(size, width)`` bytes."""
        return np.empty(size if self.width == 1 else (size, self.width), dtype=self.dtype)

    def fits(self, reports: NDArray[Any]) -> bool:
        """Return whether an array has the type and shape of reports."""
        shape = () if self.width == 1 else (self.width,)
        return reports.dtype == self.dtype and reports.shape[1:] == shape and reports.ndim == len(shape) + 1


def derive(value: object, **attributes: object) -> None:
    """Set attributes of a frozen value that are derived from its fields, in its ``__post_init__``."""
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)


class Randomizer(ABC):
    """A finite channel from input codes to reports.

    Attributes:
        kind: its name in documents.
        inputs: number of input codes, which are ``0 .. inputs - 1``.
        layout: the form of one report.
        tally_size: length of a tally.
    """

    kind: ClassVar[str]
    inputs: int
    layout: Layout
    tally_size: int

    @property
    def chunk_size(self) -> int:
        """The reports to draw at a time: enough to amortize the calls, and few enough for the caches."""
        return min(_LONGEST_CHUNK, max(1, _CHUNK_BITS // (8 * self.layout.width)))

    @abstractmethod
    def ratio(self) -> Fraction:
        """Return the exact largest P(report | one input) / P(report | another): ``e^epsilon``."""

    @abstractmethod
    def rows(self) -> list[list[Fraction]]:
        """Return P(report | input) in ``inputs`` rows; every row sums to one.

        Raises:
            SizeError: the table would have more than :data:`LARGEST_TABLE` entries.
        """

    @abstractmethod
    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize valid codes ``(n,)`` to reports ``(n,)`` or ``(n, width)``."""

    @abstractmethod
    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report is possible in this channel."""

    @abstractmethod
    def tally(self, reports: ReportArray) -> Tally:
        """Return the statistic for estimates; tallies of disjoint reports add up."""


class FrequencyOracle(Randomizer):
    """A randomizer whose reports *support* some inputs, "pure" in the sense of Wang et al. 2017.

    Attributes:
        p: P(report supports the value it was made from).
        q: P(report supports another given value).
    """

    p: float
    q: float

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each input, ``(inputs,)``."""
        return tally

    def variance(self, frequency: float) -> float:
        """Return the exact variance of one report's estimate of a value with this population share.

        The variance of the estimate from n reports is this divided by n (Wang et al. 2017, equation 2).
        """
        p, q = self.p, self.q
        return (frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)) / (p - q) ** 2


@dataclass(frozen=True)
class OracleMethod:
    """A published method to report one of a closed set of values.  It is defined at the end of its randomizer's file.

    Attributes:
        name: in specs, commands and documents; it never changes.
        best: makes the randomizer for a number of values and an epsilon, as accurate as the epsilon allows; a memoized
            method also takes the smaller epsilon of a single report.
        memoized: true if answers are stored, so that there is an instantaneous epsilon.
        automatic: whether AUTO may choose it for a number of values; its reports fit eight bytes.
        audited: makes a smaller variant for audits, if the reports of the best one hardly ever repeat.
    """

    name: str
    best: Callable[..., FrequencyOracle]
    memoized: bool = False
    automatic: Callable[[int], bool] = lambda _: False
    audited: Callable[[int, Fraction], FrequencyOracle] | None = None


def check(sound: bool, randomizer: object) -> None:  # noqa: FBT001 -- an assertion that stays
    """Refuse parameters that define no randomizer, because specs come from outside.

    Raises:
        InputError: the parameters contradict each other.
    """
    if not sound:
        raise InputError("the parameters of a randomizer contradict each other", culprit=randomizer)


def check_enumerable(inputs: int, outputs: int) -> None:
    """Refuse to enumerate a table of more than :data:`LARGEST_TABLE` entries.

    Raises:
        SizeError: the table is too large.
    """
    if inputs * outputs > LARGEST_TABLE:
        raise SizeError("the probability table of this randomizer is too large to enumerate", culprit=(inputs, outputs))


def count_outputs(reports: ReportArray, outputs: int) -> Tally:
    """Count how often each output occurs; shape ``(outputs,)``."""
    return np.bincount(reports, minlength=outputs).astype(np.int64, copy=False)


def all_below(reports: ReportArray, bound: int) -> bool:
    """Return whether every report is a number below a bound."""
    return reports.size == 0 or int(reports.max()) < bound


def to_bytes(reports: ReportArray) -> ReportArray:
    """Return reports as little-endian bytes, ``(n, bytes)``."""
    packed = np.ascontiguousarray(reports).astype(reports.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    return packed.reshape(len(reports), reports.dtype.itemsize * (reports.shape[1] if reports.ndim > 1 else 1))


def from_bytes(packed: ReportArray, layout: Layout) -> ReportArray:
    """Undo :func:`to_bytes`."""
    reports = np.ascontiguousarray(packed).view(layout.dtype.newbyteorder("<")).astype(layout.dtype, copy=False)
    return reports.reshape(-1) if layout.width == 1 else reports
