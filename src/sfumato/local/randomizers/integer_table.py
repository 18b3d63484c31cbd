"""Exact draws from integer probability tables, the randomizers given by a full table, and counts of packed bits.

A draw compares a uniform 64-bit word with integer numerators over 2^64.  Only the leading bits of a word are drawn at
first.  The few undecided draws get the other bits, which changes no probability.  Mean, square wave, graded and optimal
mechanisms are full tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    InputCodes,
    Layout,
    Numerator,
    Randomizer,
    ReportArray,
    Tally,
    all_below,
    count_outputs,
    derive,
    exp_below,
)
from sfumato.privacy.entropy import Entropy

Unsigned = NDArray[np.unsignedinteger]

_GUIDE_ENTRIES = 1 << 20  # entries of a guide table: it should fit the second-level cache
_LOW_BITS = 48
_LOW_MASK = (1 << _LOW_BITS) - 1
_COMPARED = 8  # bounds up to which comparison is faster than multiplication
_CHUNK_BYTES = 1 << 19  # the working set of one reduction of bits fits the second-level cache


def smallest(outcomes: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned type with at least the given number of values.

    >>> smallest(256), smallest(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype(np.min_scalar_type(max(outcomes - 1, 0)))


def leading(entropy: Entropy, size: int, dtype: type[np.unsignedinteger]) -> Unsigned:
    """Draw ``size`` uniform integers of the given width, packed without waste from 64-bit words."""
    per_word = 8 // np.dtype(dtype).itemsize
    return entropy.words(-(-size // per_word)).view(dtype)[:size]


def coins(entropy: Entropy, size: int, numerator: int) -> NDArray[np.bool_]:
    """Draw independent coins, true with probability ``numerator`` / 2^64; shape ``(size,)``."""
    if numerator >= DENOMINATOR:
        return np.ones(size, dtype=np.bool_)
    first = numerator >> _LOW_BITS
    word = leading(entropy, size, np.uint16)
    heads: NDArray[np.bool_] = word < np.uint16(first)
    ties = np.flatnonzero(word == np.uint16(first))
    if ties.size:
        heads[ties] = (entropy.words(ties.size) >> np.uint64(64 - _LOW_BITS)) < np.uint64(numerator & _LOW_MASK)
    return heads


def below(entropy: Entropy, bounds: int | Unsigned, size: int) -> Unsigned:
    """Draw uniform integers in ``[0, bounds)``; ``bounds`` is one number up to 2^63, or one per draw below 2^31.

    Multiplication with rejection (Lemire 2019, Algorithm 5) gives every integer exactly the same probability.  An array
    of bounds of at most 16 bits takes 16 random bits per draw.
    """
    if isinstance(bounds, int):
        if bounds & (bounds - 1) == 0 and bounds <= 1 << 16:
            return leading(entropy, size, np.uint16) & np.uint16(bounds - 1)
        if bounds >= 1 << 31:
            return _below_wide(entropy, bounds, size)
        if bounds <= _COMPARED:
            return _below_few(entropy, bounds, size)
        return _multiply_and_reject(entropy, np.full(1, bounds, dtype=np.uint32), size, narrow=bounds <= 1 << 8)
    return _multiply_and_reject(entropy, bounds.astype(np.uint32, copy=False), size, narrow=bounds.itemsize < 4)  # noqa: PLR2004


def _below_few(entropy: Entropy, bound: int, size: int) -> Unsigned:
    """Draw integers below a small bound by comparison of words, which takes a third of the time."""
    firsts, rejected = _words_of(bound)
    words = leading(entropy, size, np.uint16)
    drawn, again = _compared(words, firsts), np.flatnonzero(_any_of(words, rejected))
    while again.size:
        words = leading(entropy, again.size, np.uint16)
        drawn[again] = _compared(words, firsts)
        again = again[_any_of(words, rejected)]
    return drawn


def _compared(words: Unsigned, firsts: NDArray[np.uint16]) -> Unsigned:
    """Count how many elements of ``firsts`` each word reaches."""
    reached = np.zeros(words.size, dtype=np.uint8)
    for first in firsts:
        reached += (words >= first).view(np.uint8)
    return reached


def _any_of(words: Unsigned, some: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Return whether each word is among a few words."""
    matches = np.zeros(words.size, dtype=np.bool_)
    for one in some:
        matches |= words == one
    return matches


def _words_of(bound: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the first 16-bit word of each positive integer, and the words that Lemire's product rejects."""
    products = np.arange(1 << 16, dtype=np.uint64) * np.uint64(bound)
    firsts = np.searchsorted(products >> np.uint64(16), np.arange(1, bound)).astype(np.uint16)
    low = products.astype(np.uint16)
    return firsts, np.flatnonzero(low < (1 << 16) % bound).astype(np.uint16)


def _multiply_and_reject(entropy: Entropy, limits: NDArray[np.uint32], size: int, *, narrow: bool) -> Unsigned:
    part, wide, bits = (np.uint16, np.uint32, 16) if narrow else (np.uint32, np.uint64, 32)
    product: Unsigned = leading(entropy, size, part).astype(wide)
    product *= limits
    low: Unsigned = product.astype(part)
    drawn: Unsigned = (product >> wide(bits)).astype(part)
    suspects = np.flatnonzero(low < limits)  # only these can be in the rejected part
    while suspects.size:
        mine = limits if limits.size == 1 else limits[suspects]
        uneven = (1 << bits) % mine.astype(np.int64)
        low = product[suspects].astype(part)
        again = suspects[low < uneven]
        product[again] = np.multiply(
            leading(entropy, again.size, part), limits if limits.size == 1 else limits[again], dtype=wide
        )
        drawn[again] = product[again] >> wide(bits)
        suspects = again
    return drawn


def _below_wide(entropy: Entropy, bound: int, size: int) -> Unsigned:
    """Draw words of the bit length of ``bound``, and redraw words that reach it."""
    shift = np.uint64(64 - (bound - 1).bit_length())
    drawn = entropy.words(size) >> shift
    again = np.flatnonzero(drawn >= np.uint64(bound))
    while again.size:
        drawn[again] = entropy.words(again.size) >> shift
        again = again[drawn[again] >= np.uint64(bound)]
    return drawn


class Sampler:
    """A sampler of the outputs of an integer table, row by row.

    Args:
        rows: numerators over 2^64, ``(inputs, outputs)``; every row sums to exactly 2^64.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self._outputs = len(rows[0])
        bits = _GUIDE_ENTRIES // (2 * len(rows))
        self._bits = min(16, max(4, bits.bit_length()))
        ends = np.empty((len(rows), self._outputs), dtype=np.uint64)
        for index, row in enumerate(rows):
            total = 0
            for output, numerator in enumerate(row):
                total += numerator
                ends[index, output] = min(total, DENOMINATOR) - 1  # the last word of this output
            assert total == DENOMINATOR
        self._ends = ends.ravel()
        self._row_bits = np.uint64((len(rows) - 1).bit_length())
        numbers = np.repeat(np.arange(len(rows), dtype=np.uint64), self._outputs)
        self._keys = self._keyed(numbers, self._ends)
        self._unsure = np.iinfo(smallest(self._outputs + 1)).max
        self._guide = self._guided(ends)

    def draw(self, codes: NDArray[np.integer], entropy: Entropy) -> Unsigned:
        """Draw one output per code; shape ``(len(codes),)``, in the smallest type that holds an output."""
        word = leading(entropy, codes.size, np.uint16)
        place = codes.astype(np.uint32) << np.uint32(self._bits)
        place |= word >> np.uint16(16 - self._bits)
        drawn = self._guide.take(place)
        unsure = np.flatnonzero(drawn == self._unsure)
        if unsure.size:
            low = entropy.words(unsure.size) >> np.uint64(64 - _LOW_BITS)
            words = (word[unsure].astype(np.uint64) << np.uint64(_LOW_BITS)) | low
            drawn[unsure] = self._search(codes[unsure].astype(np.uint64), words)
        return drawn

    def _search(self, rows: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the first output of each row whose last word is not below ``words``."""
        place = np.searchsorted(self._keys, self._keyed(rows, words))
        while np.any(behind := self._ends[place] < words):  # the bits outside the keys decide
            place += behind
        outputs: NDArray[np.int64] = place - rows.astype(np.int64) * self._outputs
        return outputs

    def _keyed(self, rows: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the number of a row above the leading bits of a word, so that all rows are searched as one."""
        return (rows << (np.uint64(64) - self._row_bits)) | (words >> self._row_bits)

    def _guided(self, ends: NDArray[np.uint64]) -> Unsigned:
        """Return, for every row and leading bits, the only possible output, or a mark that more bits are needed."""
        cells = np.arange(1 << self._bits, dtype=np.uint64) << np.uint64(64 - self._bits)
        last = cells + np.uint64((1 << (64 - self._bits)) - 1)
        guide = np.empty((len(ends), cells.size), dtype=smallest(self._outputs + 1))
        for index, row in enumerate(ends):
            first = np.searchsorted(row, cells, side="left")
            guide[index] = np.where(first == np.searchsorted(row, last, side="left"), first, self._unsure)
        return guide.ravel()


_FLOAT_BITS = 53


@dataclass(frozen=True)
class IntegerTable(Randomizer):
    """A randomizer given by P(output | input) as numerators over 2^64, ``(inputs, outputs)``."""

    numerators: tuple[tuple[Numerator, ...], ...] = field(metadata={"name": "rows"})
    outputs: int = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        width = len(self.numerators[0]) if self.numerators else 0
        if not width or any(len(row) != width for row in self.numerators):
            raise InputError("a probability table must be a rectangle with at least one entry", culprit=self)
        if any(min(row) <= 0 or sum(row) != DENOMINATOR for row in self.numerators):
            raise InputError("every row of a probability table must be positive and sum to 2^64", culprit=self)
        derive(self, inputs=len(self.numerators), outputs=width, tally_size=width, layout=Layout(smallest(width)))

    @classmethod
    def rounded(cls, probabilities: NDArray[np.float64], limit: Fraction) -> IntegerTable:
        """Round ``probabilities`` to integers whose likelihood ratios are at most ``limit``.

        The floating-point table moves toward the mean of its rows until the limit holds, because this shrinks every
        ratio.  Every entry must be positive.

        Raises:
            InputError: the table is further from ``limit`` than one part in a thousand.
        """
        centre = probabilities.mean(axis=0)
        for exponent in range(_FLOAT_BITS - 1, 9, -3):
            blend = 2.0**-exponent
            table = cls.nearest((1 - blend) * probabilities + blend * centre)
            if table.ratio() <= limit:
                return table
        raise InputError("the probability table is further from its epsilon than rounding can explain")

    @classmethod
    def nearest(cls, probabilities: NDArray[np.float64]) -> IntegerTable:
        """Round positive rows that sum to one to integers, without a limit on their likelihood ratios."""
        return cls(tuple(_integers(row) for row in probabilities))

    @classmethod
    def windows(cls, inputs: int, outputs: int, epsilon: Fraction) -> IntegerTable:
        """Return a table in which input ``i`` favors outputs ``i .. i + outputs - inputs`` by ``e^epsilon`` over all
        others.
        """
        return cls(tuple(_window(i, outputs - inputs + 1, outputs, exp_below(epsilon)) for i in range(inputs)))

    @cached_property  # uncached, the spec of a mean takes 1.08 times the CPU
    def probabilities(self) -> NDArray[np.float64]:
        """The table as floats, for estimation."""
        return np.array([[float(Fraction(n, DENOMINATOR)) for n in row] for row in self.numerators])

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        worst = (1, 1)
        for column in zip(*self.numerators, strict=True):
            high, low = max(column), min(column)
            if high * worst[1] > worst[0] * low:
                worst = high, low
        return Fraction(*worst)

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        return [[Fraction(numerator, DENOMINATOR) for numerator in row] for row in self.numerators]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return self._sampler.draw(codes, entropy).astype(self.layout.dtype, copy=False)

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        return all_below(reports, self.outputs)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        return count_outputs(reports, self.outputs)

    @cached_property  # uncached, randomizing a million values to 256 bins takes 1.7 times the CPU
    def _sampler(self) -> Sampler:
        return Sampler(self.numerators)


def _integers(row: NDArray[np.float64]) -> tuple[Numerator, ...]:
    numerators = [max(1, int(p * float(DENOMINATOR))) for p in row.tolist()]  # a power of two, so the product is exact
    numerators[int(np.argmax(row))] += DENOMINATOR - sum(numerators)
    return tuple(map(Numerator, numerators))


def _window(start: int, length: int, outputs: int, limit: Fraction) -> tuple[Numerator, ...]:
    """Return the integer row nearest to the window whose largest entry is at most ``limit`` times its smallest."""
    low = int(DENOMINATOR / (length * limit + outputs - length))
    while True:
        high, spare = divmod(DENOMINATOR - (outputs - length) * low, length)
        if high + (spare > 0) <= limit * low:
            break
        low += 1
    row = [high if start <= output < start + length else low for output in range(outputs)]
    for place in range(start, start + spare):
        row[place] += 1
    return tuple(map(Numerator, row))


def column_counts(packed: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count, for each bit, the rows of ``packed`` ``(rows, bytes)`` that have it set; shape ``(8 * bytes,)``.

    Bits are little-endian within a byte, as from ``numpy.packbits(..., bitorder="little")``.  Rows are added bitwise,
    64 columns per word, by a tree of full adders (Harley and Seal).  A word costs five logical operations instead of 64
    additions.

    >>> column_counts(np.array([[0b101], [0b100]], dtype=np.uint8)).tolist()
    [1, 0, 2, 0, 0, 0, 0, 0]
    """
    rows, width = packed.shape
    group = math.lcm(width, 8) // width  # this number of reports fills whole words
    counts = np.zeros(8 * width, dtype=np.int64)
    grouped = rows - rows % group
    words = np.ascontiguousarray(packed[:grouped]).reshape(-1).view(np.uint64).reshape(-1, width * group // 8)
    step = max(1, _CHUNK_BYTES // (width * group))
    for start in range(0, len(words), step):
        columns = _added_bits(words[start : start + step])
        counts += columns.reshape(group, -1).sum(axis=0)
    return counts + _bit_counts(packed[grouped:])


def _bit_counts(packed: NDArray[np.uint8]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.unpackbits(packed, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return counts


def _added_bits(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Count the columns of ``(rows, words)``: three rows become a sum and a carry of the next weight."""
    counts = np.zeros(64 * words.shape[1], dtype=np.int64)
    weight = 1
    rows = words
    while len(rows):
        carries = []
        while len(rows) > 2:  # noqa: PLR2004
            third = len(rows) // 3
            a, b, c = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third]
            half = a ^ b
            carries.append((a & b) | (half & c))
            half ^= c
            rows = np.concatenate([half, rows[3 * third :]]) if len(rows) % 3 else half
        counts += weight * _bit_counts(np.ascontiguousarray(rows).view(np.uint8))
        rows = np.concatenate(carries) if carries else words[:0]
        weight *= 2
    return counts
