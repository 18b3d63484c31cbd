"""Designs whose reports are numbers: direct response, projective geometry, Hadamard."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.field import field, prime_powers
from sfumato.local.randomizer import Codes, Counts, Layout, Reports, count_outputs
from sfumato.local.sampling import below, smallest
from sfumato.privacy.entropy import Entropy

LARGEST_GEOMETRY = 1 << 24
"""Entries of the table of a projective geometry; above it other methods serve."""

LONGEST_VECTOR = 24
"""Coordinates of a projective point; more points than that are never tabulated."""


@dataclass(frozen=True)
class Direct:
    """Report a value itself: generalised (k-ary) randomised response (Warner 1965, Kairouz et al. 2014)."""

    inputs: int

    def __post_init__(self) -> None:
        check(self.inputs > 1, self)

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return self.inputs

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(1, self.inputs)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        return Fraction(0), Fraction(1, self.inputs - 1)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(smallest(self.inputs))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.inputs

    def pick(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """A uniform report on the wanted side of each value."""
        dtype = self.layout.dtype
        true = codes.astype(dtype, copy=False)
        other = below(entropy, self.inputs - 1, codes.size).astype(dtype, copy=False)
        other += other >= true  # skip the true value
        np.copyto(other, true, where=inside)
        return other

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return _all_below(reports, self.inputs)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return count_outputs(reports, self.inputs)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return tally

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        return np.eye(self.inputs, dtype=np.bool_)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "direct", "inputs": self.inputs}


@dataclass(frozen=True)
class Projective:
    """Values and reports are points of a projective space over GF(order); orthogonal ones support each other.

    Feldman, Nelson, Nguyen, Talwar 2022 ("Private frequency estimation via projective geometry").  Any two
    hyperplanes meet in equally many points, so the variance is near that of subset selection at log2(outputs) bits.
    """

    inputs: int
    order: int
    dimension: int

    def __post_init__(self) -> None:
        sound = self.order in prime_powers() and 1 < self.dimension <= LONGEST_VECTOR
        check(sound and 1 < self.inputs <= self.outputs and self.inputs * self.outputs <= LARGEST_GEOMETRY, self)

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return points(self.order, self.dimension)

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(points(self.order, self.dimension - 1), self.outputs)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        inside, both = points(self.order, self.dimension - 1), points(self.order, self.dimension - 2)
        return Fraction(both, inside), Fraction(inside - both, self.outputs - inside)

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
        members = points(self.order, self.dimension - 1)
        limits = np.where(inside, np.uint32(members), np.uint32(self.outputs - members))
        place = below(entropy, limits, codes.size).astype(np.intp)
        place += codes.astype(np.intp) * self.outputs
        place += np.where(inside, 0, members)
        return self._ordered.take(place)

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return _all_below(reports, self.outputs)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return count_outputs(reports, self.outputs)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        counts: Counts = self._incidence @ tally
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        return self._incidence

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "projective", "inputs": self.inputs, "order": self.order, "dimension": self.dimension}

    @cached_property
    def _incidence(self) -> NDArray[np.bool_]:
        arithmetic = field(self.order)
        vectors = _points(self.order, self.dimension)  # (outputs, dimension)
        products = np.zeros((self.inputs, self.outputs), dtype=np.uint16)
        for axis in range(self.dimension):
            terms = arithmetic.multiply[vectors[: self.inputs, axis][:, None], vectors[:, axis][None, :]]
            products = arithmetic.add[products, terms]
        orthogonal: NDArray[np.bool_] = products == 0
        return orthogonal

    @cached_property
    def _ordered(self) -> Reports:
        """Reports of every value, those that support it first; flat ``(inputs * outputs,)``."""
        order = np.argsort(~self._incidence, axis=1, kind="stable")
        return order.astype(self.layout.dtype).ravel()


@dataclass(frozen=True)
class Hadamard:
    """Rows of a Hadamard matrix: a report supports a value where the parity of ``report & (value + 1)`` is even.

    Hadamard response for high privacy (Acharya, Sun, Zhang 2019).
    """

    inputs: int

    def __post_init__(self) -> None:
        check(self.inputs > 1, self)

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return 1 << self.inputs.bit_length()

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(1, 2)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        return Fraction(1, 2), Fraction(1, 2)

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
        dtype = self.layout.dtype
        report = below(entropy, self.outputs, codes.size).astype(dtype)
        row = (codes.astype(np.uint64) + np.uint64(1)).astype(dtype)
        even = (np.bitwise_count(report & row) & 1) == 0
        lowest = row & (~row + dtype.type(1))  # flipping one bit of the row flips the parity: a bijection of the halves
        report ^= np.where(even == inside, dtype.type(0), lowest)
        return report

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return _all_below(reports, self.outputs)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return count_outputs(reports, self.outputs)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        counts: Counts = (int(tally.sum()) + transform(tally)[1 : self.inputs + 1]) // 2
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        rows = np.arange(1, self.inputs + 1)[:, None]
        even: NDArray[np.bool_] = (np.bitwise_count(rows & np.arange(self.outputs)[None, :]) & 1) == 0
        return even

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "hadamard", "inputs": self.inputs}


def check(sound: bool, design: object) -> None:  # noqa: FBT001 -- an assertion that stays
    """Refuse parameters that make no design: specs come from outside.

    Raises:
        InputError: says so.
    """
    if not sound:
        raise InputError("the parameters of a randomizer's design contradict each other", culprit=design)


def points(order: int, dimension: int) -> int:
    """Number of points of the projective space of a vector space over GF(order); none of dimension zero.

    >>> points(2, 3), points(5, 0)
    (7, 0)
    """
    count: int = (order**dimension - 1) // (order - 1)
    return count


def transform(vector: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fast Walsh-Hadamard transform of a vector whose length is a power of two.

    >>> transform(np.array([1, 2, 3, 4])).tolist()
    [10, -2, -4, 0]
    """
    result = vector.copy()
    half = 1
    while half < result.size:
        pairs = result.reshape(-1, 2, half)
        result = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return result


def _points(order: int, dimension: int) -> NDArray[np.int64]:
    """Canonical representatives: vectors whose first nonzero coordinate is one."""
    blocks = []
    for leading in range(dimension):
        free = dimension - leading - 1
        rest = np.arange(order**free)
        digits = (
            np.stack([rest // order**place % order for place in range(free)], axis=1) if free else rest[:, None][:, :0]
        )
        head = np.zeros((rest.size, leading + 1), dtype=np.int64)
        head[:, leading] = 1
        blocks.append(np.concatenate([head, digits], axis=1))
    return np.concatenate(blocks)


def _all_below(reports: Reports, bound: int) -> bool:
    return reports.size == 0 or int(reports.max()) < bound
