"""Two-valued randomizers: a coin decides whether the report supports the true value, and a design draws the report.

Direct response, subset selection, projective geometry, Hadamard response and local hashing are all of this kind. A
report either supports a value or does not, and all reports on the same side are equally likely. Such a channel is
extremal (Kairouz, Oh, Viswanath 2016): its likelihood ratio takes two values only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import comb, prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.integer_table import Sampler, below, coins, column_counts, leading, smallest
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    FrequencyOracle,
    InputCodes,
    Layout,
    Numerator,
    OracleMethod,
    ReportArray,
    Tally,
    all_below,
    check,
    check_enumerable,
    count_outputs,
    derive,
    exp_below,
)
from sfumato.privacy.entropy import Entropy

_BLOCK = 16  # positions of one block, whose subsets are tabulated
_WORD = 64
_WORDS_AT_ONCE = 1 << 16
_SUBSETS_PER_CHUNK = 1 << 12  # subsets drawn at a time: their parts fit the second-level cache
_BITS = np.left_shift(1, np.arange(_BLOCK)).astype(np.uint16)


class SupportDesign(ABC):
    """A relation between reports and the values that they support, and a way to draw a report uniformly.

    Attributes:
        inputs: number of values.
        outputs: number of reports.
        share: share of all reports that support a given value.
        pair_support: P(another given value is supported | the true one is), and the same given that it is not.
        layout: the form of one report.
        tally_size: length of a tally.
    """

    kind: ClassVar[str]
    inputs: int
    outputs: int
    share: Fraction
    pair_support: tuple[Fraction, Fraction]
    layout: Layout
    tally_size: int

    @abstractmethod
    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report among the reports that support ``codes`` if ``inside``, otherwise among the others."""

    @abstractmethod
    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""

    @abstractmethod
    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report belongs to the design."""
        return all_below(reports, self.outputs)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return count_outputs(reports, self.outputs)

    def _numbered(self, outputs: int, share: Fraction, pair_support: tuple[Fraction, Fraction]) -> None:
        """Set the attributes of a design whose reports are the numbers below ``outputs``, each with its own counter."""
        derive(self, outputs=outputs, share=share, pair_support=pair_support)
        derive(self, layout=Layout(smallest(outputs)), tally_size=outputs)


@dataclass(frozen=True)
class TwoValued(FrequencyOracle):
    """A design and the probability that a report supports the true value, ``numerator`` / 2^64."""

    design: SupportDesign
    numerator: Numerator = field(metadata={"name": "truth"})

    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        design, p = self.design, Fraction(self.numerator, DENOMINATOR)
        if not design.share < p < 1:
            raise InputError(
                "a report must support its own value more often than by chance, and not always", culprit=self.numerator
            )
        inside, outside = design.pair_support
        derive(self, inputs=design.inputs, layout=design.layout, tally_size=design.tally_size)
        derive(self, p=self.numerator / DENOMINATOR, q=float(p * inside + (1 - p) * outside))

    @classmethod
    def within(cls, design: SupportDesign, epsilon: Fraction) -> TwoValued:
        """Return the randomizer with the largest p that integers prove to be ``epsilon``-LDP."""
        odds = exp_below(epsilon) * design.share / (1 - design.share)
        return cls(design, Numerator(int(DENOMINATOR * odds / (1 + odds))))

    @property
    def chunk_size(self) -> int:
        """The reports to draw at a time: more than usual if a report fits one word."""
        return _WORDS_AT_ONCE if self.layout.size <= _WORD // 8 else super().chunk_size

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        share = self.design.share
        inside = Fraction(self.numerator, DENOMINATOR) / share
        outside = Fraction(DENOMINATOR - self.numerator, DENOMINATOR) / (1 - share)
        return max(inside / outside, outside / inside)

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        check_enumerable(self.inputs, self.design.outputs)
        incidence = self.design.incidence()
        members = int(self.design.share * self.design.outputs)
        inside = Fraction(self.numerator, DENOMINATOR * members)
        outside = Fraction(DENOMINATOR - self.numerator, DENOMINATOR * (self.design.outputs - members))
        return [[inside if member else outside for member in row] for row in incidence.tolist()]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return self.design.pick(codes, coins(entropy, codes.size, self.numerator), entropy)

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        return self.design.valid_reports(reports)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return self.design.tally(reports)

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return self.design.support(tally)


@dataclass(frozen=True)
class DirectResponse(SupportDesign):
    """The design that reports the value itself: k-ary randomized response (Warner 1965, Kairouz et al. 2014)."""

    inputs: int

    kind: ClassVar[str] = "direct"

    def __post_init__(self) -> None:
        check(self.inputs > 1, self)
        self._numbered(self.inputs, Fraction(1, self.inputs), (Fraction(0), Fraction(1, self.inputs - 1)))

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        dtype = self.layout.dtype
        true = codes.astype(dtype, copy=False)
        other = below(entropy, self.inputs - 1, codes.size).astype(dtype, copy=False)
        other += other >= true  # skip the true value
        true = true ^ other
        true &= -inside.view(np.uint8).astype(dtype)  # all bits where inside, none elsewhere: avoids a branch
        other ^= true
        return other

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return tally

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        return np.eye(self.inputs, dtype=np.bool_)


@dataclass(frozen=True)
class Hadamard(SupportDesign):
    """Rows of a Hadamard matrix: a report supports a value if the parity of ``report & (value + 1)`` is even.

    The source is Hadamard response for high privacy (Acharya, Sun, Zhang 2019).
    """

    inputs: int

    kind: ClassVar[str] = "hadamard"

    def __post_init__(self) -> None:
        check(1 < self.inputs < 1 << 32, self)
        half = Fraction(1, 2)
        self._numbered(1 << self.inputs.bit_length(), half, (half, half))

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        dtype = self.layout.dtype
        report = below(entropy, self.outputs, codes.size).astype(dtype)
        row = (codes.astype(np.uint64) + np.uint64(1)).astype(dtype)
        even = (np.bitwise_count(report & row) & 1) == 0
        lowest = row & (~row + dtype.type(1))  # flipping one bit of the row maps the halves onto each other
        report ^= np.where(even == inside, dtype.type(0), lowest)
        return report

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        counts: Tally = (int(tally.sum()) + transform(tally)[1 : self.inputs + 1]) // 2
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        rows = np.arange(1, self.inputs + 1)[:, None]
        even: NDArray[np.bool_] = (np.bitwise_count(rows & np.arange(self.outputs)[None, :]) & 1) == 0
        return even


@dataclass(frozen=True)
class SubsetSelection(SupportDesign):
    """Subsets of ``size`` out of ``inputs`` values, as packed little-endian bits.

    They have the least variance of all randomizers at every epsilon (Ye and Barg 2018; Wang et al. 2016).
    """

    inputs: int
    size: int

    kind: ClassVar[str] = "subset"

    def __post_init__(self) -> None:
        check(0 < self.size < self.inputs, self)
        others = self.inputs - 1
        derive(self, outputs=comb(self.inputs, self.size), share=Fraction(self.size, self.inputs))
        derive(self, pair_support=(Fraction(self.size - 1, others), Fraction(self.size, others)))
        derive(self, layout=Layout(np.dtype(np.uint8), -(-self.inputs // 8)), tally_size=self.inputs)

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        if self.inputs > _WORD:
            return self._pick_sequentially(codes, inside, entropy)
        if self.inputs <= _BLOCK:
            return self._pick_short(codes, inside, entropy)
        word = self._others.draw(inside, entropy)  # bits of the values after the true one, then of the values before it
        word |= inside.astype(np.uint64) << np.uint64(self.inputs - 1)  # and last the bit of the true value
        after = codes.astype(np.uint64)
        after += np.uint64(1)
        turned = word << after  # a rotation puts every value at its position
        word >>= np.uint64(self.inputs) - after
        word |= turned
        if self.inputs < _WORD:
            word &= np.uint64((1 << self.inputs) - 1)
        packed = word.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
        return packed[:, 0] if self.layout.width == 1 else packed[:, : self.layout.width]

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        packed = reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False)
        word = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(self.layout.width)
        sizes = np.bitwise_count(packed if word is None else np.ascontiguousarray(packed).view(word))
        if word is None:
            sizes = sizes.sum(axis=1, dtype=np.int64)
        spare = self.inputs % 8
        return bool(np.all(sizes == self.size)) and (spare == 0 or not np.any(packed[:, -1] >> np.uint8(spare)))

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return column_counts(reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False))[: self.inputs]

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return tally

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        check_enumerable(self.inputs, self.outputs)
        incidence = np.zeros((self.inputs, self.outputs), dtype=np.bool_)
        for output, members in enumerate(combinations(range(self.inputs), self.size)):
            incidence[list(members), output] = True
        return incidence

    @cached_property  # uncached, randomizing a million of 40 values takes 1.1 times the CPU
    def _others(self) -> Subsets:
        """The subsets of the other values: of full size, or one smaller if the true value is included."""
        return Subsets(self.inputs - 1, (self.size, self.size - 1))

    @property
    def _short_others(self) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]:
        """The subsets of the other values by size, the first number of either size, and the number of such subsets."""
        others = self.inputs - 1
        sizes = (self.size, self.size - 1)
        starts = np.array([sum(comb(others, less) for less in range(size)) for size in sizes], dtype=np.uint16)
        return _by_size(others), starts, np.array([comb(others, size) for size in sizes], dtype=np.uint16)

    def _pick_short(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw the number of a subset of the other values; 16-bit words hold any of them."""
        subsets, starts, counts = self._short_others
        which = inside.view(np.uint8)
        place = starts.take(which)
        place += below(entropy, counts.take(which), codes.size)
        word = subsets.take(place)
        bit = _BITS.take(codes)
        word += word & (~bit + np.uint16(1))  # makes room at the true value's position: higher bits move up
        word |= bit * which
        packed = word.astype("<u2", copy=False).view(np.uint8).reshape(-1, 2)
        return packed[:, 0] if self.layout.width == 1 else packed

    def _pick_sequentially(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw by selection sampling (Fan, Muller, Rezucha 1962), position by position."""
        missing = self.size - inside.astype(np.int64)
        bits = np.zeros((codes.size, self.inputs), dtype=np.bool_)
        for position in range(self.inputs):
            true = codes == position
            others_left = (self.inputs - position - (codes > position)).astype(np.uint32)
            taken = below(entropy, others_left, codes.size) < missing
            taken &= ~true
            missing -= taken
            bits[:, position] = np.where(true, inside, taken)
        return np.packbits(bits, axis=1, bitorder="little")


class Subsets:
    """Uniform subsets of ``count <= 64`` positions, each with one of two sizes, as words.

    The sizes of the parts in blocks of 16 are drawn first, from their exact joint distribution. Then each block draws
    one of the tabulated subsets of its size.
    """

    def __init__(self, count: int, sizes: tuple[int, int]) -> None:
        lengths = [max(0, min(_BLOCK, count - start)) for start in range(0, _WORD, _BLOCK)]
        dealt = [_dealt(lengths, _compositions(lengths, size)) for size in sizes]
        width = 1 + 2 * max(len(split) for _, split in dealt)
        self._width = np.uint16(width)
        rows = [[*shares[:-1], *(0,) * (width - len(shares)), shares[-1]] for shares, _ in dealt]
        self._composition = Sampler(rows)
        parts = np.zeros((2, width, len(lengths)), dtype=np.intp)
        for which, (_, split) in enumerate(dealt):
            parts[which, : 2 * len(split)] = np.tile(split, (2, 1))
        counts = np.array([[comb(length, size) for size in range(_BLOCK + 1)] for length in lengths], dtype=np.uint32)
        starts = np.cumsum([0, *(comb(_BLOCK, size) for size in range(_BLOCK))]).astype(np.uint32)
        every = parts.reshape(-1, len(lengths))  # for both sizes
        self._counts = counts[np.arange(len(lengths)), every]
        self._starts = starts[every] << np.uint32(_BLOCK)
        self._uneven = ((1 << _BLOCK) % self._counts).astype(np.uint16)
        self._table = _by_size(_BLOCK).astype("<u2", copy=False)

    def draw(self, which: NDArray[np.bool_], entropy: Entropy) -> NDArray[np.uint64]:
        """Draw one subset per element, with the second size if ``which``."""
        composition = self._compositions(which.view(np.uint8), entropy)
        parts = np.empty((which.size, _WORD // _BLOCK), dtype="<u2")
        uneven = np.empty(parts.shape, dtype=np.bool_)
        for first in range(0, which.size, _SUBSETS_PER_CHUNK):
            piece = slice(first, first + _SUBSETS_PER_CHUNK)
            parts[piece], uneven[piece] = self._subsets(composition[piece], entropy)
        again = np.flatnonzero(uneven.view(np.uint32)[:, 0] != 0)
        while again.size:
            parts[again], uneven = self._subsets(composition[again], entropy)
            again = again[uneven.view(np.uint32)[:, 0] != 0]
        return parts.view("<u8").ravel().astype(np.uint64, copy=False)

    def _compositions(self, rows: NDArray[np.uint8], entropy: Entropy) -> NDArray[np.intp]:
        """Draw the number of each subset's split over the blocks."""
        rejected = self._width - np.uint16(1)
        drawn = self._composition.draw(rows, entropy).astype(np.uint16, copy=False)
        again = np.flatnonzero(drawn == rejected)
        while again.size:
            drawn[again] = self._composition.draw(rows[again], entropy)
            again = again[drawn[again] == rejected]
        return (drawn + rows * self._width).astype(np.intp)

    def _subsets(self, composition: NDArray[np.intp], entropy: Entropy) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """Draw a subset of each block, and mark draws to repeat so that all are equally likely, as in ``below``."""
        blocks = _WORD // _BLOCK
        place = leading(entropy, composition.size * blocks, np.uint16).astype(np.uint32).reshape(-1, blocks)
        place *= self._counts.take(composition, axis=0)
        place += self._starts.take(composition, axis=0)  # in the bits above the product
        uneven = place.astype(np.uint16) < self._uneven.take(composition, axis=0)
        place >>= np.uint32(_BLOCK)
        return self._table.take(place), uneven


def _dealt(lengths: list[int], split: list[tuple[int, ...]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return a sampler's row for the ways to split a size, and the ways in its order; each occurs twice.

    Whole steps of 2^-16 come first, then the rest of every share, so that 16 bits decide most draws. The unused
    remainder is last.
    """
    split = sorted(split, key=lambda parts: -prod(map(comb, lengths, parts)))
    weights = [prod(map(comb, lengths, parts)) for parts in split]
    numerators = [DENOMINATOR // sum(weights) * weight for weight in weights]
    step = DENOMINATOR >> _BLOCK
    steps = [numerator - numerator % step for numerator in numerators]
    rest = [numerator % step for numerator in numerators]
    return [*steps, *rest, DENOMINATOR - sum(numerators)], split


def _by_size(length: int) -> NDArray[np.uint16]:
    """Return the subsets of ``length`` positions as words: by size, then by their first positions."""
    masks = np.arange(1 << length, dtype=np.uint32)
    return masks[np.argsort(np.bitwise_count(masks), kind="stable")].astype(np.uint16)


def _compositions(lengths: list[int], size: int) -> list[tuple[int, ...]]:
    """Return all ways to split ``size`` over blocks of the given lengths."""
    if not lengths:
        return [()] if size == 0 else []
    return [
        (first, *rest)
        for first in range(min(lengths[0], size) + 1)
        for rest in _compositions(lengths[1:], size - first)
    ]


def transform(vector: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fast Walsh-Hadamard transform of a vector whose length is a power of two.

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


def least_variance(designs: Iterable[SupportDesign], epsilon: Fraction) -> TwoValued:
    """Return the randomizer of the design with the least variance for a value of average frequency."""
    candidates = (TwoValued.within(design, epsilon) for design in designs)
    return min(candidates, key=lambda candidate: candidate.variance(1 / candidate.inputs))


def _subset_sizes(size: int, epsilon: Fraction) -> list[int]:
    """Return the two sizes around size / (e^epsilon + 1), which enclose the best one (Ye and Barg 2018)."""
    ideal = int(size / (1 + exp_below(epsilon)))
    return sorted({min(max(part, 1), size - 1) for part in (ideal, ideal + 1)})


GRR = OracleMethod(
    "grr", lambda size, epsilon: TwoValued.within(DirectResponse(size), epsilon), automatic=lambda _: True
)
SS = OracleMethod(
    "ss",
    lambda size, epsilon: least_variance(
        (SubsetSelection(size, part) for part in _subset_sizes(size, epsilon)), epsilon
    ),
    automatic=lambda size: size <= _WORD,
)
HR = OracleMethod("hr", lambda size, epsilon: TwoValued.within(Hadamard(size), epsilon), automatic=lambda _: True)
