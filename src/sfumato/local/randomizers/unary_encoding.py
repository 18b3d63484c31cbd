"""Methods for comparison: unary encoding and sketches, with a separate coin for every bit.

Symmetric and optimized unary encoding (SUE, OUE) and thresholded histograms (THE) differ only in two coins: ``one`` at
the value and ``zero`` elsewhere.  The count-mean sketches (CMS, HCMS) report hashed cells, and dBitFlip a run of
buckets.  At equal epsilon, the two-valued randomizers need less variance or fewer bytes, so ``auto`` never chooses one
of these methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.integer_table import below, coins, column_counts, leading, smallest
from sfumato.local.randomizers.local_hashing import LARGEST_TALLY, LocalHash
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
    derive,
    exp_below,
    to_bytes,
)
from sfumato.local.randomizers.two_valued import SupportDesign, TwoValued, least_variance
from sfumato.privacy.entropy import Entropy

_SHORT = 256  # bits of a short row
_BUCKETS_REPORTED = 8
_THRESHOLDS = 501


@dataclass(frozen=True)
class BitFlipProbabilities:
    """The two coins of a bit, as numerators over 2^64: the probability of a 1 at the value, and elsewhere."""

    one: Numerator
    zero: Numerator

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 0 < self.zero < self.one < DENOMINATOR:
            raise InputError("the coins of a unary randomizer must satisfy 0 < zero < one < 2^64", culprit=self)

    @property
    def ratio(self) -> Fraction:
        """The odds ratio of the coins: the likelihood ratio if the value moves from one bit to another."""
        return Fraction(self.one * (DENOMINATOR - self.zero), self.zero * (DENOMINATOR - self.one))

    def then(self, second: BitFlipProbabilities) -> BitFlipProbabilities:
        """Return the coins of both rounds together, these followed by ``second``, rounded toward smaller odds."""
        one = self.one * second.one + (DENOMINATOR - self.one) * second.zero
        zero = self.zero * second.one + (DENOMINATOR - self.zero) * second.zero
        return BitFlipProbabilities(Numerator(one // DENOMINATOR), Numerator(-(-zero // DENOMINATOR)))


@dataclass(frozen=True)
class Unary(FrequencyOracle):
    """A unary encoding that reports all ``inputs`` bits, packed little-endian."""

    inputs: int
    coins: BitFlipProbabilities

    kind: ClassVar[str] = "unary"

    def __post_init__(self) -> None:
        check(self.inputs > 0, self)
        derive(self, layout=Layout(np.dtype(np.uint8), -(-self.inputs // 8)), tally_size=self.inputs)
        derive(self, p=self.coins.one / DENOMINATOR, q=self.coins.zero / DENOMINATOR)

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return self.coins.ratio

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        check_enumerable(self.inputs, 1 << self.inputs)
        one, zero = Fraction(self.coins.one, DENOMINATOR), Fraction(self.coins.zero, DENOMINATOR)
        chances = [
            [one if position == value else zero for position in range(self.inputs)] for value in range(self.inputs)
        ]
        return [
            [
                prod((p if bit else 1 - p for p, bit in zip(row, bits, strict=True)), start=Fraction(1))
                for bits in product((0, 1), repeat=self.inputs)
            ]
            for row in chances
        ]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return pack(self.bits(codes, entropy))

    def bits(self, codes: InputCodes, entropy: Entropy) -> NDArray[np.bool_]:
        """Draw the bits before packing, ``(n, inputs)``."""
        drawn = flips(entropy, (codes.size, self.inputs), self.coins.zero)
        places = np.arange(0, drawn.size, self.inputs)
        places += codes
        drawn.reshape(-1)[places] = coins(entropy, codes.size, self.coins.one)
        return drawn

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        spare = self.inputs % 8
        tail = reports.reshape(-1, self.layout.width)[:, -1]
        return spare == 0 or not np.any(tail >> np.uint8(spare))

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return column_counts(reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False))[: self.inputs]


@dataclass(frozen=True)
class CountMeanSketch(FrequencyOracle):
    """CMS (Apple Differential Privacy Team 2017): a hash to ``width`` cells, then symmetric unary encoding.

    The report is the number of the hash function, then the packed bits.  The hash family is all linear maps over
    GF(width) instead of 65 536 public functions, so that estimates are unbiased for every value.
    """

    inputs: int
    width: int
    coins: BitFlipProbabilities
    _hashed: LocalHash = field(init=False, repr=False, compare=False)
    _cells: Unary = field(init=False, repr=False, compare=False)
    _head: np.dtype[np.unsignedinteger[Any]] = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "sketch"

    def __post_init__(self) -> None:
        hashed, cells = LocalHash(self.inputs, self.width), Unary(self.width, self.coins)
        head = smallest(hashed.functions)
        derive(self, _hashed=hashed, _cells=cells, _head=head, tally_size=hashed.functions * self.width)
        check(self.tally_size <= LARGEST_TALLY, self)
        one, zero = self.coins.one, self.coins.zero
        derive(self, layout=Layout(np.dtype(np.uint8), head.itemsize + -(-self.width // 8)))
        derive(self, p=cells.p, q=(one + (self.width - 1) * zero) / (self.width * DENOMINATOR))

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return self.coins.ratio

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        functions = self._hashed.functions
        check_enumerable(self.inputs, functions << self.width)
        cells = [[share / functions for share in row] for row in self._cells.rows()]
        hashed = self._hashed.hash(np.arange(self.inputs)[:, None], np.arange(functions)[None, :])
        return [[share for cell in row for share in cells[cell]] for row in hashed.tolist()]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        function = below(entropy, self._hashed.functions, codes.size)
        cell = self._hashed.hash(codes, function)
        return headed(function.astype(self._head), self._cells.draw(cell, entropy))

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        function, bits = split(reports, self._head)
        return all_below(function, self._hashed.functions) and self._cells.valid_reports(bits)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        function, bits = split(reports, self._head)
        cells = [
            np.bincount(function[column], minlength=self._hashed.functions) for column in unpack(bits, self.width).T
        ]
        return np.stack(cells, axis=1).astype(np.int64, copy=False).ravel()

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return self._hashed.total(tally.reshape(-1, self.width))


@dataclass(frozen=True)
class BucketRun(FrequencyOracle):
    """dBitFlip (Ding, Kulkarni, Yekhanin 2017): bits for ``run`` of the buckets only.

    The published method draws a random set of buckets.  Here it is a random cyclic run, identified by its first bucket.
    The variance of every bucket is the same, and a report has fewer bytes.
    """

    inputs: int
    run: int
    coins: BitFlipProbabilities
    _head: np.dtype[np.unsignedinteger[Any]] = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "run"

    def __post_init__(self) -> None:
        check(0 < self.run <= self.inputs, self)
        covered, head = self.run / (self.inputs * DENOMINATOR), smallest(self.inputs)
        derive(self, _head=head, layout=Layout(np.dtype(np.uint8), head.itemsize + -(-self.run // 8)))
        derive(self, tally_size=self.inputs, p=self.coins.one * covered, q=self.coins.zero * covered)

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        one, zero = self.coins.one, self.coins.zero
        moved = max(Fraction(one, zero), Fraction(DENOMINATOR - zero, DENOMINATOR - one))
        return self.coins.ratio if self.run > 1 else moved

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        check_enumerable(self.inputs, self.inputs << self.run)
        one, zero = Fraction(self.coins.one, DENOMINATOR), Fraction(self.coins.zero, DENOMINATOR)
        table = []
        for value in range(self.inputs):
            row = []
            for start in range(self.inputs):
                offset = (value - start) % self.inputs
                for bits in range(1 << self.run):
                    chance = Fraction(1, self.inputs)
                    for place in range(self.run):
                        heads = one if place == offset else zero
                        chance *= heads if bits >> place & 1 else 1 - heads
                    row.append(chance)
            table.append(row)
        return table

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        start = below(entropy, self.inputs, codes.size).astype(self._head)
        offset = (codes.astype(np.int64) - start) % self.inputs
        bits = flips(entropy, (codes.size, self.run), self.coins.zero)
        covered = np.flatnonzero(offset < self.run)
        bits[covered, offset[covered]] = coins(entropy, covered.size, self.coins.one)
        return headed(start, pack(bits))

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        start, bits = split(reports, self._head)
        spare = self.run % 8
        return all_below(start, self.inputs) and (spare == 0 or not np.any(bits[:, -1] >> np.uint8(spare)))

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        start, bits = split(reports, self._head)
        counts = np.zeros(self.inputs, dtype=np.int64)
        for place, column in enumerate(unpack(bits, self.run).T):
            counts += np.roll(np.bincount(start[column], minlength=self.inputs), place)
        return counts


@dataclass(frozen=True)
class HadamardSketch(SupportDesign):
    """HCMS (Apple Differential Privacy Team 2017): a hash to ``width`` cells, then the sign of one coefficient.

    A report is ``(function * width + coefficient) * 2 + bit``.  The hash family is all linear maps over GF(width)
    instead of 65 536 public functions, so that estimates are unbiased for every value.  ``width`` is a power of two.
    """

    inputs: int
    width: int
    _hashed: LocalHash = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "hadamard_sketch"

    def __post_init__(self) -> None:
        check(self.width > 1 and self.width & (self.width - 1) == 0, self)
        derive(self, _hashed=LocalHash(self.inputs, self.width))
        outputs = self._hashed.functions * self.width * 2
        check(outputs <= LARGEST_TALLY, self)
        agree = Fraction(self.width + 1, 2 * self.width)  # same cell, or an even parity by chance
        self._numbered(outputs, Fraction(1, 2), (agree, 1 - agree))

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        place = below(entropy, self.outputs // 2, codes.size)
        function, coefficient = np.divmod(place, place.dtype.type(self.width))
        cell = self._hashed.hash(codes, function)
        even = (np.bitwise_count(cell & coefficient) & 1) == 0
        dtype = self.layout.dtype
        report: ReportArray = place.astype(dtype) * dtype.type(2)
        report += (even != inside).astype(dtype)
        return report

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        even, odd = np.moveaxis(tally.reshape(-1, self.width, 2), 2, 0)
        cells = np.arange(self.width)
        parity = (np.bitwise_count(cells[:, None] & cells[None, :]) & 1).astype(np.int64)  # (coefficients, cells)
        return self._hashed.total(even @ (1 - parity) + odd @ parity)

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        return self._supports(np.arange(self.inputs)[:, None])

    def _supports(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        place, bit = np.divmod(np.arange(self.outputs), 2)
        function, coefficient = np.divmod(place, self.width)
        cell = self._hashed.hash(values, function)
        met: NDArray[np.bool_] = (np.bitwise_count(cell & coefficient) & 1) == bit
        return met


def flips(entropy: Entropy, shape: tuple[int, int], numerator: int) -> NDArray[np.bool_]:
    """Draw independent coins, true with probability ``numerator`` / 2^64, from one random byte each, more on a tie."""
    size = shape[0] * shape[1]
    first = np.uint8(numerator >> 56)
    byte = leading(entropy, size, np.uint8)
    heads: NDArray[np.bool_] = byte < first
    ties = np.flatnonzero(byte == first)
    if ties.size:
        heads[ties] = (entropy.words(ties.size) >> np.uint64(8)) < np.uint64(numerator & ((1 << 56) - 1))
    return heads.reshape(shape)


def pack(bits: NDArray[np.bool_]) -> ReportArray:
    """Pack bits ``(n, m)`` into little-endian bytes: ``(n,)`` if they fit one byte, else ``(n, bytes)``."""
    packed = _packed_rows(bits)
    return packed[:, 0] if packed.shape[1] == 1 else packed


def _packed_rows(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Pack short rows all at once, padded to whole bytes; packing row by row takes forty times as long."""
    rows, width = bits.shape
    spare = -width % 8
    if width > _SHORT:
        return np.packbits(bits, axis=1, bitorder="little")
    if spare:
        filled = np.zeros((rows, width + spare), dtype=np.bool_)
        filled[:, :width] = bits
        bits = filled
    return np.packbits(bits.reshape(-1), bitorder="little").reshape(rows, (width + spare) // 8)


def unpack(reports: ReportArray, width: int) -> NDArray[np.bool_]:
    """Unpack the first ``width`` bits of reports, ``(n, width)``."""
    packed = np.atleast_2d(reports.T).T.astype(np.uint8, copy=False)
    return np.unpackbits(packed, axis=1, count=width, bitorder="little").astype(np.bool_)


def headed(head: NDArray[Any], body: ReportArray) -> ReportArray:
    """Join the little-endian bytes of ``head`` and of ``body``; ``(n, bytes)``."""
    return np.concatenate([to_bytes(head), to_bytes(body)], axis=1)


def split(reports: ReportArray, head: np.dtype[np.unsignedinteger[Any]]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Undo :func:`headed`: the heads ``(n,)`` and the remaining bytes ``(n, bytes)``."""
    packed = reports.astype(np.uint8, copy=False)
    heads = np.ascontiguousarray(packed[:, : head.itemsize]).view(head.newbyteorder("<"))[:, 0]
    return heads, packed[:, head.itemsize :]


def symmetric(epsilon: Fraction) -> BitFlipProbabilities:
    """Return coins p and 1 - p with odds e^(epsilon / 2) each: symmetric unary encoding (basic RAPPOR)."""
    root = exp_below(epsilon / 2)
    one = int(DENOMINATOR * root / (1 + root))
    return BitFlipProbabilities(Numerator(one), Numerator(DENOMINATOR - one))


def _optimised(epsilon: Fraction) -> BitFlipProbabilities:
    """Return coins 1/2 and 1 / (e^epsilon + 1): optimized unary encoding (Wang et al. 2017)."""
    return BitFlipProbabilities(
        Numerator(DENOMINATOR // 2), Numerator(math.ceil(DENOMINATOR / (1 + exp_below(epsilon))))
    )


def _thresholded(epsilon: Fraction, size: int) -> BitFlipProbabilities:
    """Return the coins of a histogram with Laplace noise of scale 2 / epsilon, cut to bits at the best threshold.

    The bits alone reveal less than the noisy histogram, so integers usually prove a smaller epsilon than claimed.
    """
    half = float(epsilon) / 2
    thresholds = np.linspace(0.5, 1, _THRESHOLDS)
    ones, zeros = 1 - np.exp(half * (thresholds - 1)) / 2, np.exp(-half * thresholds) / 2
    spread = (ones * (1 - ones) + (size - 1) * zeros * (1 - zeros)) / (ones - zeros) ** 2
    best = int(np.argmin(spread))
    one, zero = (Fraction(float(chances[best])) * DENOMINATOR for chances in (ones, zeros))
    return BitFlipProbabilities(Numerator(int(one)), Numerator(math.ceil(zero)))


def _sketch(size: int, epsilon: Fraction) -> CountMeanSketch:
    widths = [1 << bits for bits in range(1, 5)]  # a larger width gains less than 3 %
    fitting = [width for width in widths if width * LocalHash(size, width).functions <= LARGEST_TALLY]
    sketches = [CountMeanSketch(size, width, symmetric(epsilon)) for width in fitting]
    return min(sketches, key=lambda sketch: sketch.variance(1 / size))


def _hadamard_sketch(size: int, epsilon: Fraction) -> TwoValued:
    widths = [1 << bits for bits in range(1, 6)]  # a larger width gains less than 2 %
    fitting = [width for width in widths if 2 * width * LocalHash(size, width).functions <= LARGEST_TALLY]
    return least_variance((HadamardSketch(size, width) for width in fitting), epsilon)


SUE = OracleMethod("sue", lambda size, epsilon: Unary(size, symmetric(epsilon)))
OUE = OracleMethod("oue", lambda size, epsilon: Unary(size, _optimised(epsilon)))
THE = OracleMethod("the", lambda size, epsilon: Unary(size, _thresholded(epsilon, size)))
CMS = OracleMethod("cms", _sketch, audited=lambda size, epsilon: CountMeanSketch(size, 4, symmetric(epsilon)))
HCMS = OracleMethod("hcms", _hadamard_sketch)
DBITFLIP = OracleMethod(
    "dbitflip", lambda size, epsilon: BucketRun(size, min(_BUCKETS_REPORTED, size), symmetric(epsilon))
)
