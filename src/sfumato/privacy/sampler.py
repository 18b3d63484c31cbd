"""Exact draws from random words, in integer arithmetic only: noise over the integers, coins, uniform integers.

For the mechanisms of this package and for the clients of local privacy.

Symmetric log-concave noise takes one look-up in a table (:class:`NoiseTable`) a draw.

The target gives the integer k a probability proportional to exp(-g(|k|)), where g is a rational,
convex, rising, at most quadratic polynomial with g(0) = 0: k / scale (discrete Laplace) or k^2 / (2 sigma^2)
(discrete Gaussian).

**Why the output distribution is exactly the target.**  The integers are cut into cells of B = 2^s
neighbours; cell c holds cB .. cB + B - 1, and n(c) is the distance of its nearest integer to zero (B = 1
for small scales).  Let a(c) = M exp(-g(n(c))) for a fixed integer M.  One *trial* draws a word of b
bits, uniform on 2^b values, and returns cell c with probability exactly a(c) / 2^b, or fails:

1. Each cell of the table owns ``floor(M low)`` words outright, where ``low`` is a lower enclosure of
   exp(-g(n(c))).  Such a word returns the cell.  Nearly all words are of this kind.
2. Each cell of the table owns two more words, its ties.  A tie returns the cell with probability
   (a(c) - words owned outright) / 2, which is in [0, 1] as enclosures are narrow (asserted when the table is
   built), decided exactly by :func:`decide`.
3. Cells beyond the table, on either side, have a(c) <= 1 and at least halve every L cells.  Each side
   owns 2L words: the word picks one of L positions, fair coins pick block j = 0, 1, .. with probability
   2^-(j+1), and the cell C + jL + position is returned with probability 2^j a(c) <= 1, decided
   exactly.  In total: 2L / 2^b * 1/L * 2^-(j+1) * 2^j a(c) = a(c) / 2^b.
4. Words nobody owns fail.

Within the cell, k is uniform among its B integers and kept with probability
exp(-(g(|k|) - g(n(c)))), decided exactly, otherwise the trial fails.  So a trial returns k with
probability M exp(-g(|k|)) / (B 2^b), the same multiple of the target for every k, and trials are repeated
until one returns: rejection sampling, whose output is the target itself.  Neither the normalising
constant nor a truncation of the tails enters.  Enclosures come from integers
(:mod:`sfumato.privacy.enclosure`), so no rounding error enters either.

The idea of exact integer noise is that of Canonne, Kamath and Steinke 2020 (The Discrete Gaussian for
Differential Privacy, Algorithms 1 to 3); looking words up in a table of the distribution and deciding
ties with further digits is Knuth and Yao 1976.  The time of a draw depends on the noise in rare cases
(about one draw in 2^50 at scales below 512, one in 300 above).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.privacy.enclosure import exp_enclosure, exp_sequence
from sfumato.privacy.entropy import Entropy

Enclosure = Callable[[int], tuple[int, int]]

WORD = 64
_GUIDE_BITS = 16
_GUARD = 68  # extra binary digits of enclosures, for products with M < 2^64
_CELL_BITS = 9  # cells are at most 1/256 of the scale wide
_LN2 = Fraction(6932, 10000)  # above ln 2


@dataclass(frozen=True)
class Exponent:
    """g(k) = (linear k + quadratic k^2) / denominator for k >= 0, in integers; none negative, not both zero."""

    linear: int
    quadratic: int
    denominator: int

    def __call__(self, k: int) -> Fraction:
        """The value of g at k."""
        return Fraction(self.scaled(k), self.denominator)

    def scaled(self, k: int) -> int:
        """The value of g at k, times the denominator."""
        return (self.linear + self.quadratic * k) * k


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """The words of one target distribution; see the module for what each number means."""

    exponent: Exponent
    word_bits: int
    shift: int  # B = 2^shift
    half: int  # C: the table holds cells -C .. C - 1
    stride: int  # L
    multiplier: int  # M
    edges: NDArray[np.uint64]  # (2C + 1,): first word of each cell, and the first word that no cell owns outright
    guide: NDArray[np.int32]  # cell index by the leading bits of the word; -1 where these do not decide
    keep: NDArray[np.uint64]  # (2C + 1,): a test word below this keeps any integer of the cell

    @classmethod
    def build(cls, exponent: Exponent, scale: int, *, word_bits: int = WORD) -> NoiseTable:
        """The table of exp(-exponent(k)); 5 to 100 milliseconds, so mechanisms cache it.

        Args:
            exponent: g.
            scale: a rough width of the distribution, for the size of cells; any value gives exact draws.
            word_bits: 64, or 16 in tests, which makes ties, tails and failures common.
        """
        shift = max(0, scale.bit_length() - _CELL_BITS)
        width = 1 << shift
        half = first_number(lambda c: exponent(c * width) >= word_bits * _LN2)
        stride = first_number(lambda steps: exponent((half + steps) * width) - exponent(half * width) >= _LN2)
        bits = word_bits + _GUARD
        left, right = (_cell_weights(exponent, nearest, width, half, bits) for nearest in (1, 0))
        weights = left[::-1] + right
        multiplier = (((1 << word_bits) - 4 * half - 4 * stride) << bits) // sum(high for _, high in weights)
        owned = [multiplier * low >> bits for low, _ in weights]
        assert multiplier * max(high - low for low, high in weights) <= 1 << bits, "two ties a cell suffice"
        edges = np.zeros(2 * half + 1, dtype=np.uint64)
        np.cumsum(np.array(owned, dtype=np.uint64), out=edges[1:])
        return cls(
            exponent=exponent,
            word_bits=word_bits,
            shift=shift,
            half=half,
            stride=stride,
            multiplier=multiplier,
            edges=edges,
            guide=_guide(edges, word_bits),
            keep=_keep(exponent, width, half) if shift else np.zeros(0, dtype=np.uint64),
        )

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Independent draws from exactly the target, shape ``(count,)``."""
        values, failed = self.trials(count, entropy)
        while failed.size:
            fresh, again = self.trials(failed.size, entropy)
            values[failed] = fresh
            failed = failed[again]
        return values

    def trials(self, count: int, entropy: Entropy) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """One trial each: values, and the positions whose trial failed."""
        words = entropy.words(count)
        if self.word_bits < WORD:
            words = words >> np.uint64(WORD - self.word_bits)
        index = self.guide[words >> np.uint64(max(0, self.word_bits - _GUIDE_BITS))]
        unsure = (index < 0).nonzero()[0]
        if unsure.size:
            index[unsure] = self.edges.searchsorted(words[unsure], side="right") - 1
        cells = index.astype(np.int64)
        cells -= self.half
        failed: set[int] = set()
        for position in unsure[index[unsure] == 2 * self.half].tolist():
            cell = self.settle(int(words[position]) - int(self.edges[-1]), entropy)
            if cell is None:
                failed.add(position)
            else:
                cells[position] = cell
        if self.shift:
            failed.update(self._spread(cells, index, entropy))
        return cells, np.fromiter(failed, dtype=np.intp, count=len(failed))

    def settle(self, spare: int, entropy: Entropy) -> int | None:
        """The cell of a word that no cell owns outright (a tie or a tail), or None: the trial failed."""
        if spare < 4 * self.half:
            index = spare // 2
            cell = index - self.half
            owned = int(self.edges[index + 1]) - int(self.edges[index])
            return cell if self._coin(cell, halvings=1, less=owned, entropy=entropy) else None
        spare -= 4 * self.half
        if spare >= 4 * self.stride:
            return None
        side, position = divmod(spare, 2 * self.stride)
        block = 0
        while int(entropy.words(1)[0]) & 1:
            block += 1
        outer = self.half + block * self.stride + position % self.stride
        cell = outer if side else -1 - outer
        return cell if self._coin(cell, halvings=-block, less=0, entropy=entropy) else None

    def _coin(self, cell: int, *, halvings: int, less: int, entropy: Entropy) -> bool:
        """True with probability (a(cell) - less) / 2^halvings."""
        exponent = self.exponent(_nearest(cell, 1 << self.shift))
        extra = _GUARD + abs(halvings)

        def enclosure(bits: int) -> tuple[int, int]:
            low, high = exp_enclosure(exponent, bits + extra)
            taken = less << (bits + extra)
            cut = extra + halvings
            return (self.multiplier * low - taken) >> cut, -(-(self.multiplier * high - taken) >> cut)

        return decide(enclosure, entropy)

    def _spread(self, cells: NDArray[np.int64], index: NDArray[np.int32], entropy: Entropy) -> list[int]:
        """Turn cells into integers in place; returns the positions that were not kept."""
        offsets = (entropy.words(cells.size) >> np.uint64(WORD - self.shift)).view(np.int64)
        tests = entropy.words(cells.size)
        slow = (tests >= self.keep[index]).nonzero()[0]
        near = [_nearest(cell, 1 << self.shift) for cell in cells[slow].tolist()]
        cells <<= self.shift
        cells += offsets
        far = np.abs(cells[slow]).tolist()
        drawn = tests[slow].tolist()
        return [
            position
            for position, outer, inner, test in zip(slow.tolist(), far, near, drawn, strict=True)
            if not self._kept(outer, inner, test, entropy)
        ]

    def _kept(self, far: int, near: int, test: int, entropy: Entropy) -> bool:
        """True with probability exp(-x), x = g(far) - g(near), by way of 1 - x <= exp(-x) <= 1 - x + x^2 / 2."""
        below, excess = self.exponent.denominator, self.exponent.scaled(far) - self.exponent.scaled(near)
        line = ((below - excess) << WORD) // below
        if test < line:
            return True
        if test > line + 1 + (excess * excess << WORD - 1) // (below * below):
            return False
        return decide(partial(exp_enclosure, Fraction(excess, below)), entropy, first=test)


def _nearest(cell: int, width: int) -> int:
    """Distance to zero of the integer of the cell that is nearest to zero."""
    return cell * width if cell >= 0 else -(cell + 1) * width + 1


def _cell_weights(exponent: Exponent, nearest: int, width: int, half: int, bits: int) -> list[tuple[int, int]]:
    """Enclosures for the cells of one side, from the middle outward."""
    first, second, third = (exponent(i * width + nearest) for i in range(3))
    return exp_sequence(first, step=second - first, curvature=third - 2 * second + first, count=half, bits=bits)


def _guide(edges: NDArray[np.uint64], word_bits: int) -> NDArray[np.int32]:
    """For each value of the leading bits the one cell that owns all such words, or -1."""
    guide_bits = min(_GUIDE_BITS, word_bits)
    firsts = np.arange(1 << guide_bits, dtype=np.uint64) << np.uint64(word_bits - guide_bits)
    lasts = firsts + np.uint64((1 << (word_bits - guide_bits)) - 1)
    low = np.searchsorted(edges, firsts, side="right") - 1
    high = np.searchsorted(edges, lasts, side="right") - 1
    decided = (low == high) & (low < edges.size - 1)
    return np.where(decided, low, -1).astype(np.int32)


def _keep(exponent: Exponent, width: int, half: int) -> NDArray[np.uint64]:
    """2^64 (1 - x), rounded down, with x the largest excess g(far end) - g(near end) of a cell; 1 - x < exp(-x).

    Zero beyond the table.
    """
    keep = np.zeros(2 * half + 1, dtype=np.uint64)
    below = exponent.denominator
    for nearest, start, outward in ((0, half, 1), (1, half - 1, -1)):
        for cell in range(half):
            near = cell * width + nearest
            left = below - exponent.scaled(near + width - 1) + exponent.scaled(near)
            keep[start + outward * cell] = min((1 << WORD) - 1, max(0, (left << WORD) // below))
    return keep


def first_number(holds: Callable[[int], bool]) -> int:
    """The smallest n >= 1 for which a monotone condition holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def uniform_below(bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent uniform integers in ``0 .. bound - 1``, shape ``(count,)``.

    Words are cut to the bits of ``bound - 1`` and drawn again where they reach ``bound`` (less than
    half of them), so no value is favoured.

    Raises:
        InputError: ``bound`` is not in 1 .. 2^63.
    """
    if not 1 <= bound <= 1 << 63:
        raise InputError(f"a uniform integer needs a bound from 1 to 2^63, not {bound}", culprit=bound)
    if bound == 1:
        return np.zeros(count, dtype=np.int64)
    shift = np.uint64(WORD - (bound - 1).bit_length())
    drawn = entropy.words(count) >> shift
    again = np.flatnonzero(drawn >= np.uint64(bound))
    while again.size:
        fresh = entropy.words(again.size) >> shift
        drawn[again] = fresh
        again = again[fresh >= np.uint64(bound)]
    return drawn.view(np.int64)


def one_below(bound: int, entropy: Entropy) -> int:
    """One uniform integer in ``0 .. bound - 1``, faster than :func:`uniform_below`, for a bound in 1 .. 2^64."""
    shift = WORD - (bound - 1).bit_length()
    while (drawn := int(entropy.words(1)[0]) >> shift) >= bound:
        pass
    return drawn


def decide(enclosure: Enclosure, entropy: Entropy, *, first: int | None = None) -> bool:
    """One coin whose probability p is only known by enclosures: whether a uniform real number U is below p.

    U is drawn digit by digit.  Its first ``bits`` digits put it into an interval of length 2^-bits; as
    soon as that interval lies on one side of ``enclosure(bits)``, U < p is decided for every continuation.
    Otherwise 64 more digits are drawn.  The answer is that of infinite precision, so the probability is
    exactly p; a round fails to decide with probability about 2^-62, so the loop ends.

    Args:
        enclosure: for a number of bits, integers ``low <= 2^bits p <= high``.
        entropy: source of the digits.
        first: the first 64 digits, where the caller has already drawn them.
    """
    drawn = int(entropy.words(1)[0]) if first is None else first
    bits = WORD
    while True:
        low, high = enclosure(bits)
        if drawn < low:
            return True
        if drawn >= high:
            return False
        drawn = drawn << WORD | int(entropy.words(1)[0])
        bits += WORD
