"""The Hadamard count-mean sketch as a design: one bit about one coefficient of a hashed value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.local.designs import check
from sfumato.local.hashing import LARGEST_TALLY, Hashed
from sfumato.local.randomizer import Codes, Counts, Layout, Reports, count_outputs
from sfumato.local.sampling import below, smallest
from sfumato.privacy.entropy import Entropy


@dataclass(frozen=True)
class HadamardSketch:
    """HCMS (Apple Differential Privacy Team 2017): hash to ``width`` cells, report the sign of one coefficient.

    A report is ``(function * width + coefficient) * 2 + bit``.  The family is all linear maps over GF(width), in
    place of 65 536 public ones, so that estimates are unbiased for every value.  ``width`` is a power of two.
    """

    inputs: int
    width: int

    def __post_init__(self) -> None:
        check(self.width > 1 and self.width & (self.width - 1) == 0 and self.outputs <= LARGEST_TALLY, self)

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return self._hashed.functions * self.width * 2

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(1, 2)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        agree = Fraction(self.width + 1, 2 * self.width)  # same cell, or an even parity by chance
        return agree, 1 - agree

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(smallest(self.outputs))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.outputs

    def pick(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """A uniform report on the wanted side of each value."""
        place = below(entropy, self.outputs // 2, codes.size)
        function, coefficient = np.divmod(place, place.dtype.type(self.width))
        cell = self._hashed.hash(codes, function)
        even = (np.bitwise_count(cell & coefficient) & 1) == 0
        dtype = self.layout.dtype
        report: Reports = place.astype(dtype) * dtype.type(2)
        report += (even != inside).astype(dtype)
        return report

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return reports.size == 0 or int(reports.max()) < self.outputs

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return count_outputs(reports, self.outputs)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        counts = np.empty(self.inputs, dtype=np.int64)
        for value in range(self.inputs):
            counts[value] = tally[self._supports(np.asarray(value))].sum()
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        return self._supports(np.arange(self.inputs)[:, None])

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "hadamard_sketch", "inputs": self.inputs, "width": self.width}

    @cached_property
    def _hashed(self) -> Hashed:
        return Hashed(self.inputs, self.width)

    def _supports(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        place, bit = np.divmod(np.arange(self.outputs), 2)
        function, coefficient = np.divmod(place, self.width)
        cell = self._hashed.hash(values, function)
        met: NDArray[np.bool_] = (np.bitwise_count(cell & coefficient) & 1) == bit
        return met
