"""Local hashing with all linear maps over a finite field, and the fast transform for its estimates.

A value is written in digits of base ``buckets``, a prime power.  Its hash is ``sum a_i v_i`` in GF(buckets), with
coefficients ``a`` drawn uniformly per report.  Two different values collide with probability exactly 1 / buckets, by
construction.  The analysis of BLH and OLH (Wang, Blocki, Li, Jha 2017) needs no other property.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.local.randomizers.finite_field import GaloisField, finite_field, prime_powers
from sfumato.local.randomizers.integer_table import below
from sfumato.local.randomizers.randomizer import (
    InputCodes,
    OracleMethod,
    RealArray,
    ReportArray,
    Tally,
    check,
    count_outputs,
    derive,
    exp_below,
)
from sfumato.local.randomizers.two_valued import SupportDesign, TwoValued, least_variance
from sfumato.privacy.entropy import Entropy

LARGEST_LOOKUP = 1 << 23
"""Largest number of entries of the table of all hashes of all values.  Larger hashes are computed digit by digit."""

LARGEST_DOMAIN = 1 << 56
"""Largest number of values that can be hashed in 64-bit arithmetic."""

LARGEST_TALLY = 1 << 22
"""Largest number of distinct reports that are counted one by one.  Above it, the counts of supported values are
stored.
"""

_LARGEST_TOTAL = 1 << 34
"""Largest weight for which one floating-point transform gives exact integers; see :func:`_transformed`."""

_LIMB_BITS = 12  # counters of a full tally are split into parts of this many bits to stay within that weight
_BLOCK = 64  # digits are transformed together while their block of the matrix has at most this many rows


@dataclass(frozen=True)
class LocalHash(SupportDesign):
    """A hash family: report ``coefficients * buckets + bucket`` supports the values hashed to the bucket."""

    inputs: int
    buckets: int

    digits: int = field(init=False, repr=False, compare=False)
    functions: int = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        check(self.buckets in prime_powers() and 1 < self.inputs <= LARGEST_DOMAIN, self)
        digits = 1
        while self.buckets**digits < self.inputs:
            digits += 1
        functions = self.buckets**digits
        outputs, chance = functions * self.buckets, Fraction(1, self.buckets)
        check(outputs < 1 << 63, self)
        self._numbered(outputs, chance, (chance, chance))
        derive(self, digits=digits, functions=functions)
        derive(self, tally_size=outputs if outputs <= LARGEST_TALLY else self.inputs)

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """Draw a uniform report on the chosen side of each value."""
        function = below(entropy, self.functions, codes.size)
        shift = below(entropy, self.buckets - 1, codes.size).astype(np.uint16) + np.uint16(1)
        shift[inside] = 0
        bucket = self._field.add.take(self.hash(codes, function).astype(np.uint32) * np.uint32(self.buckets) + shift)
        dtype = self.layout.dtype
        report: ReportArray = function.astype(dtype, copy=False) * dtype.type(self.buckets)
        report += bucket.astype(dtype, copy=False)
        return report

    def hash(self, codes: InputCodes, function: InputCodes) -> NDArray[np.uint16]:
        """Return the buckets of values under hash functions; arguments broadcast."""
        if self._lookup is not None:
            return self._lookup.take(codes.astype(np.intp) * self.functions + function.astype(np.intp))
        return self._digitwise(codes, function)

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        if self.outputs <= LARGEST_TALLY:
            return count_outputs(reports, self.outputs)
        function, bucket = np.divmod(reports.astype(np.int64), self.buckets)
        return _counted_pairs(self._field, (self.digits, self.inputs), function, bucket)

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        return tally if self.outputs > LARGEST_TALLY else self.total(tally.reshape(self.functions, self.buckets))

    def total(self, weights: Tally) -> Tally:
        """Return the total weight of functions and buckets that support each value, from ``(functions, buckets)``.

        The result equals the direct sum over the supporting functions and buckets, in time close to one pass over the
        weights.
        """
        if int(weights.sum()) > _LARGEST_TOTAL:
            low = self.total(weights & ((1 << _LIMB_BITS) - 1))
            return low + (self.total(weights >> _LIMB_BITS) << _LIMB_BITS)
        return _transformed(self._field, _folded(self._field, self.digits, weights), int(weights[0, 0]))[: self.inputs]

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        if self.outputs > LARGEST_TALLY:
            raise SizeError(f"{self.outputs} reports are too many to enumerate")
        function, bucket = np.divmod(np.arange(self.outputs), self.buckets)
        met: NDArray[np.bool_] = self.hash(np.arange(self.inputs)[:, None], function[None, :]) == bucket
        return met

    @property
    def _field(self) -> GaloisField:
        return finite_field(self.buckets)

    @cached_property  # uncached, OLH on a million of 1,000 values takes 2.5 times the CPU
    def _lookup(self) -> NDArray[np.uint16] | None:
        if self.inputs * self.functions > LARGEST_LOOKUP:
            return None
        return self._digitwise(np.arange(self.inputs)[:, None], np.arange(self.functions)[None, :]).ravel()

    def _digitwise(self, codes: InputCodes, function: InputCodes) -> NDArray[np.uint16]:
        base = np.uint64(self.buckets)
        code, coefficient = codes.astype(np.uint64), function.astype(np.uint64)
        total = np.zeros(np.broadcast_shapes(code.shape, coefficient.shape), dtype=np.uint16)
        for _ in range(self.digits):
            term = self._field.multiply[coefficient % base, code % base]
            total = self._field.add[total, term]
            code, coefficient = code // base, coefficient // base
        return total


def _counted_pairs(arithmetic: GaloisField, values: tuple[int, int], function: Tally, bucket: Tally) -> Tally:
    """Count the pairs of function and bucket that support each value, without a table of all pairs.

    ``values`` has the number of digits and the number of values.
    """
    digits, inputs = values
    size = arithmetic.size
    below_top = size ** (digits - 1)
    tops = -(-inputs // below_top)
    if digits == 1 or tops > size // 4:
        counts, always = _sorted_into_directions(arithmetic, digits, function, bucket)
        return _transformed(arithmetic, counts, always)[:inputs]
    # few leading digits: for each of them, count the pairs of numbers with one digit less
    top, rest = np.divmod(function, below_top)
    parts = []
    for digit in range(tops):
        moved = arithmetic.add[bucket, arithmetic.negative[arithmetic.multiply[top, digit]]].astype(np.int64)
        fewer = digits - 1, min(below_top, inputs - digit * below_top)
        parts.append(_counted_pairs(arithmetic, fewer, rest, moved))
    return np.concatenate(parts)


def _transformed(arithmetic: GaloisField, counts: RealArray, always: int) -> Tally:
    """Sum the weight that supports each number, by a Fourier transform over its digits.

    With a character psi of GF(size), pairs (a, b) of weight w support the value v by

        sum w [<a, v> = b] = 1/size sum_c sum w psi(c (<a, v> - b)),

    so every multiple c of a pair is at the position ``c a`` of one spectrum.  Multiples of a pair support the same
    values.  ``counts``, ``(directions, size)``, has their sum for the multiple whose leading digit of ``a`` is one.
    Directions are numbered in the order of such ``a``.  ``always`` is the weight of the pair of zeros.

    A matrix product of inner length B has an error below B units of rounding, relative to the sum of absolute values.
    That sum is at most the total weight times ``size``, which is divided out.  All lengths together are below 2^12, and
    a unit is 2^-52 for complex numbers.  At :data:`_LARGEST_TOTAL` the error is below 2^-4, so rounding is exact.
    """
    size = arithmetic.size
    digits = 1
    while (size**digits - 1) // (size - 1) < len(counts):
        digits += 1
    characters = arithmetic.characters
    waves = counts @ characters.conj()
    spectrum = np.zeros(size**digits, dtype=waves.dtype)
    for first, factor, places in _multiples_of_directions(arithmetic, digits):
        spectrum[places] = waves[first : first + len(places), factor]
    left = digits
    while left:
        merged = 1
        while merged < left and size ** (merged + 1) <= _BLOCK:
            merged += 1
        block = characters
        for _ in range(merged - 1):
            block = np.kron(block, characters)
        # the transformed leading digits become the last, so that the final order equals the first
        spectrum = (spectrum.reshape(len(block), -1).T @ block).ravel()
        left -= merged
    totals: Tally = np.rint((spectrum.real + counts.sum()) / size).astype(np.int64)
    return totals + always


def _folded(arithmetic: GaloisField, digits: int, weights: Tally) -> RealArray:
    """Sum a table of weights, ``(functions, size)``, by direction."""
    counts = np.zeros(((arithmetic.size**digits - 1) // (arithmetic.size - 1), arithmetic.size))
    for first, factor, places in _multiples_of_directions(arithmetic, digits):
        counts[first : first + len(places)] += weights[places][:, arithmetic.multiply[factor]]
    return counts


def _sorted_into_directions(
    arithmetic: GaloisField, digits: int, function: Tally, bucket: Tally
) -> tuple[RealArray, int]:
    """Count pairs by direction, and pairs of zeros."""
    size = arithmetic.size
    lower = (digits + 1) // 2  # tables of half the digits suffice for all
    multiples = _multiples(arithmetic, lower)
    high, low = np.divmod(function, size**lower)
    leading, shift = (
        np.where(high > 0, above.take(high), beneath.take(low))
        for above, beneath in zip(_leading(size, digits - lower, lower), _leading(size, lower, 0), strict=True)
    )
    inverse = arithmetic.inverse
    row = inverse.take(leading) * multiples.shape[1]
    direction = multiples.take(row + high) * size**lower + multiples.take(row + low) + shift
    turned = arithmetic.multiply[inverse].take(leading * size + bucket)
    inside = function > 0
    cells = (size**digits - 1) // (size - 1) * size
    counts = np.bincount(direction[inside] * size + turned[inside], minlength=cells).astype(np.float64)
    return counts.reshape(-1, size), int(np.count_nonzero(bucket[~inside] == 0))


def _multiples_of_directions(arithmetic: GaloisField, digits: int) -> Iterator[tuple[int, int, Tally]]:
    """Yield the first of some consecutive directions, a factor, and the numbers of their multiples by it."""
    multiples = _multiples(arithmetic, digits - 1)
    for position in range(digits):
        start = arithmetic.size**position
        for factor in range(1, arithmetic.size):
            yield (start - 1) // (arithmetic.size - 1), factor, factor * start + multiples[factor, :start]


def _multiples(arithmetic: GaloisField, digits: int) -> Tally:
    """Multiply every factor by every number of the given number of digits in GF(size): ``(size, size**digits)``."""
    size, factors = arithmetic.size, arithmetic.multiply.astype(np.int64)
    table = np.zeros((size, 1), dtype=np.int64)
    for place in range(digits):
        table = (factors[:, :, None] * size**place + table[:, None, :]).reshape(size, -1)
    return table


def _leading(size: int, digits: int, place: int) -> tuple[Tally, Tally]:
    """Return the leading digit of every number of ``digits`` digits, and the distance to its direction's number.

    The digits are ``place`` places above the lowest.
    """
    digit, shift = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    for position in range(digits):
        one, count = size ** (place + position), size**position
        digit.append(np.repeat(np.arange(1, size), count))
        shift.append(np.full((size - 1) * count, (one - 1) // (size - 1) - one))
    return np.concatenate(digit), np.concatenate(shift)


def hash_designs(size: int, epsilon: Fraction) -> list[LocalHash]:
    """Return local hashing with the two prime powers around e^epsilon + 1, the best number of buckets for rare
    values.
    """
    ideal = float(exp_below(epsilon)) + 1
    powers = prime_powers()
    smaller = max((power for power in powers if power <= ideal), default=powers[0])
    larger = min((power for power in powers if power >= ideal), default=powers[-1])
    return [LocalHash(size, buckets) for buckets in sorted({smaller, larger})]


BLH = OracleMethod("blh", lambda size, epsilon: TwoValued.within(LocalHash(size, 2), epsilon))
OLH = OracleMethod(
    "olh", lambda size, epsilon: least_variance(hash_designs(size, epsilon), epsilon), automatic=lambda _: True
)
