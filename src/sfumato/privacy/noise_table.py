"""Exact draws from random words, in integer arithmetic only: noise over the integers, coins, uniform integers.

They serve the mechanisms of this package and the clients of local privacy.  Probabilities exp(-x) of rational x are
represented by enclosures: pairs of integers ``(low, high)`` with ``low <= 2^bits * exp(-x) <= high``.  So every
decision based on them is exact.  No floating point and no library function is between the target distribution and the
samplers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.errors import InputError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.noise import exp_enclosure, exp_sequence, first_number

EnclosureEnds = NDArray[np.uint64]

COARSE_BITS = 31  # two factors of at most 2^31 multiply within 64 bits
_DIGIT = 8
_LOWEST = np.uint64((1 << _DIGIT) - 1)
_NOTHING_LEFT = 22  # 2^31 exp(-22) is below one
_FULL_TABLE = 1 << 15  # largest table of all multiples that fits the second-level cache
_AGAIN = 4  # uses of a unit from which that table is worth its tenth of a millisecond


def exp_enclosures(multiples: NDArray[np.int64], unit: Fraction) -> tuple[EnclosureEnds, EnclosureEnds]:
    """Return enclosures of ``2^31 * exp(-unit * m)`` for an array of integers m >= 0, vectorized.

    exp(-unit m) is the product over the base-256 digits of m of exp(-unit 256^i digit), each looked up in a small
    table; products of 31-bit numbers are exact in 64 bits and are rounded outward.  From an exponent of 22 on, 2^31
    exp(-22) < 1, so (0, 1) encloses the rest, and larger m need no further digits. A unit that is used repeatedly, as
    in loops, gets a table of all these products, if they are few.
    """
    return _multiples(unit).enclosures(multiples)


class _Multiples:
    """The tables of one unit.

    Attributes:
        last: the first multiple whose exponent is 22 or more (2^63 - 1 at most).
    """

    def __init__(self, unit: Fraction) -> None:
        self.last = min(-(-_NOTHING_LEFT * unit.denominator // unit.numerator), (1 << 63) - 1)
        digits = -(-self.last.bit_length() // _DIGIT)
        self._tables = tuple(_digit_table(unit * (1 << _DIGIT * place)) for place in range(digits))
        self._calls = 0
        self._full_table: tuple[EnclosureEnds, EnclosureEnds] | None = None

    def enclosures(self, multiples: NDArray[np.int64]) -> tuple[EnclosureEnds, EnclosureEnds]:
        """See :func:`exp_enclosures`."""
        if self._full_table is None and self.last < _FULL_TABLE:
            self._calls += 1
            if self._calls == _AGAIN:
                self._full_table = self._products(np.arange(self.last + 1))
        if self._full_table is None:
            return self._products(np.minimum(multiples, self.last))
        low, high = self._full_table
        return low.take(multiples, mode="clip"), high.take(multiples, mode="clip")

    def _products(self, multiples: NDArray[np.int64]) -> tuple[EnclosureEnds, EnclosureEnds]:
        left = multiples.view(np.uint64)  # the caller's array: reduced to its leading digits in place
        bits = np.uint64(COARSE_BITS)
        up = np.uint64((1 << COARSE_BITS) - 1)
        low, high = (table[left & _LOWEST] for table in self._tables[0])
        for lows, highs in self._tables[1:]:
            left >>= np.uint64(_DIGIT)
            digit = left & _LOWEST
            low = low * lows[digit] >> bits
            high = (high * highs[digit] + up) >> bits
        return low, high


@cached(lambda _, made: 20_000 + 16 * (made.last if made.last < _FULL_TABLE else 0))
def _multiples(unit: Fraction) -> _Multiples:
    return _Multiples(unit)


def _digit_table(unit: Fraction) -> tuple[EnclosureEnds, EnclosureEnds]:
    fine = 2 * COARSE_BITS
    pairs = exp_sequence(Fraction(0), step=unit, count=1 << _DIGIT, bits=fine)
    low = np.array([low >> (fine - COARSE_BITS) for low, _ in pairs], dtype=np.uint64)
    high = np.array([-(-high >> (fine - COARSE_BITS)) for _, high in pairs], dtype=np.uint64)
    return low, high


Enclosure = Callable[[int], tuple[int, int]]

WORD = 64
_GUIDE_BITS = 16
_GUARD = 68  # extra binary digits of enclosures, for products with M < 2^64
_CELL_BITS = 9  # cells are at most 1/256 of the scale wide
_LN2 = Fraction(6932, 10000)  # above ln 2


@dataclass(frozen=True)
class Exponent:
    """A function g(k) = (linear k + quadratic k^2) / denominator for integers k >= 0.

    The coefficients are integers; none is negative, and not both are zero.
    """

    linear: int
    quadratic: int
    denominator: int

    def __call__(self, k: int) -> Fraction:
        """Return the value of g at k."""
        return Fraction(self.scaled(k), self.denominator)

    def scaled(self, k: int) -> int:
        """Return the value of g at k, times the denominator."""
        return (self.linear + self.quadratic * k) * k


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """The words of one target distribution; see the module for the meaning of each number."""

    exponent: Exponent
    word_bits: int
    shift: int  # B = 2^shift
    half: int  # C: the table holds cells -C .. C - 1
    stride: int  # L
    multiplier: int  # M
    edges: NDArray[np.uint64]  # (2C + 1,): first word of each cell, and the first word that no cell owns outright
    guide: NDArray[np.int32]  # cell index by the leading bits of the word; -1 if these do not decide
    accept_below: NDArray[np.uint64]  # (2C + 1,): a test word below this keeps any integer of the cell

    @classmethod
    def build(cls, exponent: Exponent, scale: int, *, word_bits: int = WORD) -> NoiseTable:
        """Build the table of exp(-exponent(k)), which takes 5 to 100 milliseconds, so mechanisms cache it.

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
            accept_below=_accept_below(exponent, width, half) if shift else np.zeros(0, dtype=np.uint64),
        )

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """Draw independent numbers from exactly the target, shape ``(count,)``."""
        values, failed = self.trials(count, entropy)
        while failed.size:
            fresh, again = self.trials(failed.size, entropy)
            values[failed] = fresh
            failed = failed[again]
        return values

    def trials(self, count: int, entropy: Entropy) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return one trial each: values, and the positions whose trial failed."""
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
            cell = self.resolve_word(int(words[position]) - int(self.edges[-1]), entropy)
            if cell is None:
                failed.add(position)
            else:
                cells[position] = cell
        if self.shift:
            failed.update(self._spread(cells, index, entropy))
        return cells, np.fromiter(failed, dtype=np.intp, count=len(failed))

    def resolve_word(self, spare: int, entropy: Entropy) -> int | None:
        """Return the cell of a word that no cell owns outright (a tie or a tail), or None: the trial failed."""
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
        """Return true with probability (a(cell) - less) / 2^halvings."""
        exponent = self.exponent(_nearest(cell, 1 << self.shift))
        extra = _GUARD + abs(halvings)

        def enclosure(bits: int) -> tuple[int, int]:
            low, high = exp_enclosure(exponent, bits + extra)
            taken = less << (bits + extra)
            cut = extra + halvings
            return (self.multiplier * low - taken) >> cut, -(-(self.multiplier * high - taken) >> cut)

        return decide(enclosure, entropy)

    def _spread(self, cells: NDArray[np.int64], index: NDArray[np.int32], entropy: Entropy) -> list[int]:
        """Turn cells into integers in place; return the rejected positions."""
        offsets = (entropy.words(cells.size) >> np.uint64(WORD - self.shift)).view(np.int64)
        tests = entropy.words(cells.size)
        slow = (tests >= self.accept_below[index]).nonzero()[0]
        near = [_nearest(cell, 1 << self.shift) for cell in cells[slow].tolist()]
        cells <<= self.shift
        cells += offsets
        far = np.abs(cells[slow]).tolist()
        drawn = tests[slow].tolist()
        return [
            position
            for position, outer, inner, test in zip(slow.tolist(), far, near, drawn, strict=True)
            if not self._accepts(outer, inner, test, entropy)
        ]

    def _accepts(self, far: int, near: int, test: int, entropy: Entropy) -> bool:
        """Return true with probability exp(-x), x = g(far) - g(near).

        The bounds 1 - x <= exp(-x) <= 1 - x + x^2 / 2 decide most cases.
        """
        below, excess = self.exponent.denominator, self.exponent.scaled(far) - self.exponent.scaled(near)
        line = ((below - excess) << WORD) // below
        if test < line:
            return True
        if test > line + 1 + (excess * excess << WORD - 1) // (below * below):
            return False
        return decide(partial(exp_enclosure, Fraction(excess, below)), entropy, first=test)


@cached()  # keys are integers, which hash fast: a loop looks its table up for every draw
def shared_table(linear: int, quadratic: int, denominator: int, width: int) -> NoiseTable:
    """Return the table of exp(-(linear k + quadratic k^2) / denominator); many draws share it."""
    return NoiseTable.build(Exponent(linear, quadratic, denominator), width)


def _nearest(cell: int, width: int) -> int:
    """Return the distance to zero of the integer of the cell that is nearest to zero."""
    return cell * width if cell >= 0 else -(cell + 1) * width + 1


def _cell_weights(exponent: Exponent, nearest: int, width: int, half: int, bits: int) -> list[tuple[int, int]]:
    """Return enclosures for the cells of one side, from the middle outward."""
    first, second, third = (exponent(i * width + nearest) for i in range(3))
    return exp_sequence(first, step=second - first, curvature=third - 2 * second + first, count=half, bits=bits)


def _guide(edges: NDArray[np.uint64], word_bits: int) -> NDArray[np.int32]:
    """Return, for each value of the leading bits, the cell that has all such words, or -1."""
    guide_bits = min(_GUIDE_BITS, word_bits)
    firsts = np.arange(1 << guide_bits, dtype=np.uint64) << np.uint64(word_bits - guide_bits)
    lasts = firsts + np.uint64((1 << (word_bits - guide_bits)) - 1)
    low = np.searchsorted(edges, firsts, side="right") - 1
    high = np.searchsorted(edges, lasts, side="right") - 1
    decided = (low == high) & (low < edges.size - 1)
    return np.where(decided, low, -1).astype(np.int32)


def _accept_below(exponent: Exponent, width: int, half: int) -> NDArray[np.uint64]:
    """Return 2^64 (1 - x), rounded down, with x the largest excess g(far end) - g(near end) of a cell; 1 - x < exp(-x).

    The value is zero beyond the table.
    """
    accept_below = np.zeros(2 * half + 1, dtype=np.uint64)
    below = exponent.denominator
    for nearest, start, outward in ((0, half, 1), (1, half - 1, -1)):
        for cell in range(half):
            near = cell * width + nearest
            left = below - exponent.scaled(near + width - 1) + exponent.scaled(near)
            accept_below[start + outward * cell] = min((1 << WORD) - 1, max(0, (left << WORD) // below))
    return accept_below


def uniform_below(bound: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw independent uniform integers in ``0 .. bound - 1``, shape ``(count,)``.

    Words are cut to the bits of ``bound - 1``.  Words that reach ``bound`` (less than half of them) are drawn again, so
    no value is favored.

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
    """Draw one uniform integer in ``0 .. bound - 1``, faster than :func:`uniform_below`, for a bound in 1 .. 2^64."""
    shift = WORD - (bound - 1).bit_length()
    while (drawn := int(entropy.words(1)[0]) >> shift) >= bound:
        pass
    return drawn


def decide(enclosure: Enclosure, entropy: Entropy, *, first: int | None = None) -> bool:
    """Toss one coin whose probability p is known only by enclosures: compare a uniform real number U with p.

    U is drawn digit by digit.  Its first ``bits`` digits put it into an interval of length 2^-bits.  As soon as that
    interval lies on one side of ``enclosure(bits)``, U < p is decided for every continuation.  Otherwise 64 more digits
    are drawn.  The answer is that of infinite precision, so the probability is exactly p.  A round fails to decide with
    probability about 2^-62, so the loop ends.

    Args:
        enclosure: for a number of bits, integers ``low <= 2^bits p <= high``.
        entropy: source of the digits.
        first: the first 64 digits, if the caller has already drawn them.
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
