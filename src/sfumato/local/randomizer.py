"""What every local randomizer is: a finite channel with an exact integer probability table."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.entropy import Entropy

Codes: TypeAlias = NDArray[np.integer[Any]]
Reports: TypeAlias = NDArray[np.unsignedinteger[Any]]
Counts: TypeAlias = NDArray[np.int64]

LARGEST_TABLE = 1 << 16
"""Entries of a probability table that is written out for enumeration."""


@dataclass(frozen=True)
class Layout:
    """The form of one report, the same whatever the value: one unsigned integer, or ``width`` bytes."""

    dtype: np.dtype[np.unsignedinteger[Any]]
    width: int = 1

    def empty(self, size: int) -> Reports:
        """An array for so many reports: ``(size,)``, or ``(size, width)`` bytes."""
        return np.empty(size if self.width == 1 else (size, self.width), dtype=self.dtype)

    def fits(self, reports: NDArray[Any]) -> bool:
        """Whether an array has the type and shape of reports."""
        shape = () if self.width == 1 else (self.width,)
        return reports.dtype == self.dtype and reports.shape[1:] == shape and reports.ndim == len(shape) + 1


class Randomizer(Protocol):
    """A finite channel from input codes ``0 .. inputs - 1`` to reports."""

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        ...

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        ...

    @property
    def tally_size(self) -> int:
        """Length of the vector that :meth:`tally` returns."""
        ...

    def ratio(self) -> Fraction:
        """The exact largest P(report | one input) / P(report | another): ``e^epsilon``."""
        ...

    def rows(self) -> list[list[Fraction]]:
        """P(report | input) written out, ``inputs`` rows; every row sums to one.

        Raises:
            SizeError: the table would have more than :data:`LARGEST_TABLE` entries.
        """
        ...

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise valid codes ``(n,)`` to reports ``(n,)`` or ``(n, width)``."""
        ...

    def possible(self, reports: Reports) -> bool:
        """Whether every report can come out of this channel."""
        ...

    def tally(self, reports: Reports) -> Counts:
        """The statistic that estimates are made of; tallies of disjoint reports add up."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain JSON from which :func:`sfumato.local.parsing.parse_randomizer` makes an equal randomizer."""
        ...


class FrequencyOracle(Randomizer, Protocol):
    """A randomizer whose reports *support* some inputs, "pure" in the sense of Wang et al. 2017.

    A report supports its own input with probability ``truth``, and any other input with probability ``lie``.
    """

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        ...

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        ...

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each input, ``(inputs,)``."""
        ...


def count_outputs(reports: Reports, outputs: int) -> Counts:
    """How often each output occurs; shape ``(outputs,)``."""
    return np.bincount(reports, minlength=outputs).astype(np.int64, copy=False)


def to_bytes(reports: Reports) -> Reports:
    """Reports as little-endian bytes, ``(n, bytes)``."""
    packed = np.ascontiguousarray(reports).astype(reports.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    return packed.reshape(len(reports), reports.dtype.itemsize * (reports.shape[1] if reports.ndim > 1 else 1))


def from_bytes(packed: Reports, layout: Layout) -> Reports:
    """Undo :func:`to_bytes`."""
    reports = np.ascontiguousarray(packed).view(layout.dtype.newbyteorder("<")).astype(layout.dtype, copy=False)
    return reports.reshape(-1) if layout.width == 1 else reports


def variance(oracle: FrequencyOracle, frequency: float) -> float:
    """Exact variance of one report's estimate of a value with this share of the population (Wang et al. 2017, eq. 2).

    The estimate from n reports has this divided by n.
    """
    truth, lie = oracle.truth, oracle.lie
    return (frequency * truth * (1 - truth) + (1 - frequency) * lie * (1 - lie)) / (truth - lie) ** 2
