"""Finite fields of prime-power size, and the designs made of them: projective geometry, and local hashing.

A hashed value is written in digits of base ``buckets``, a prime power, and mapped to ``sum a_i v_i`` in GF(buckets) for
coefficients ``a`` drawn uniformly with the report.  Two different values collide with probability exactly
1 / buckets, not by assumption, which is all that the analysis of BLH and OLH (Wang, Blocki, Li, Jha 2017) asks of a
hash family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.local.randomizers.integer_table import below
from sfumato.local.randomizers.randomizer import InputCodes, ReportArray, Tally, check, count_outputs, derive
from sfumato.local.randomizers.two_valued import Design
from sfumato.privacy.entropy import Entropy

LARGEST = 1 << 10
"""Elements of a field: its tables have the square of that, and no method here needs a larger one."""

LARGEST_GEOMETRY = 1 << 24
"""Entries of the table of a projective geometry; above it other methods serve."""

LONGEST_VECTOR = 24
"""Coordinates of a projective point; more points than that are never tabulated."""

LARGEST_LOOKUP = 1 << 23
"""Entries of the table of all hashes of all values; above it hashes are computed digit by digit."""

LARGEST_DOMAIN = 1 << 56
"""Values that can be hashed; their numbers stay within 64-bit arithmetic."""

LARGEST_TALLY = 1 << 22
"""Reports that are counted one by one; above it the counts of supported values are kept."""


@dataclass(frozen=True)
class Projective(Design):
    """Values and reports are points of a projective space over GF(order); orthogonal ones support each other.

    Feldman, Nelson, Nguyen, Talwar 2022 ("Private frequency estimation via projective geometry").  Any two
    hyperplanes meet in equally many points, so the variance is near that of subset selection at log2(outputs) bits.
    """

    inputs: int
    order: int
    dimension: int

    kind: ClassVar[str] = "projective"

    def __post_init__(self) -> None:
        check(self.order in prime_powers() and 1 < self.dimension <= LONGEST_VECTOR, self)
        outputs, inside, both = (points(self.order, self.dimension - less) for less in range(3))
        check(1 < self.inputs <= outputs and self.inputs * outputs <= LARGEST_GEOMETRY, self)
        pair_support = Fraction(both, inside), Fraction(inside - both, outputs - inside)
        self._numbered(outputs, Fraction(inside, outputs), pair_support)

    def pick(self, codes: InputCodes, inside: NDArray[np.bool_], entropy: Entropy) -> ReportArray:
        """A uniform report on the wanted side of each value."""
        members = points(self.order, self.dimension - 1)
        limits = np.where(inside, np.uint32(members), np.uint32(self.outputs - members))
        place = below(entropy, limits, codes.size).astype(np.intp)
        place += codes.astype(np.intp) * self.outputs
        place += np.where(inside, 0, members)
        return self._ordered.take(place)

    def support(self, tally: Tally) -> Tally:
        """Number of reports that support each value."""
        counts: Tally = self._incidence @ tally
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        return self._incidence

    @cached_property
    def _incidence(self) -> NDArray[np.bool_]:
        arithmetic = finite_field(self.order)
        vectors = _points(self.order, self.dimension)  # (outputs, dimension)
        products = np.zeros((self.inputs, self.outputs), dtype=np.uint16)
        for axis in range(self.dimension):
            terms = arithmetic.multiply[vectors[: self.inputs, axis][:, None], vectors[:, axis][None, :]]
            products = arithmetic.add[products, terms]
        orthogonal: NDArray[np.bool_] = products == 0
        return orthogonal

    @cached_property
    def _ordered(self) -> ReportArray:
        """Reports of every value, those that support it first; flat ``(inputs * outputs,)``."""
        order = np.argsort(~self._incidence, axis=1, kind="stable")
        return order.astype(self.layout.dtype).ravel()


@dataclass(frozen=True)
class Hashed(Design):
    """Report ``coefficients * buckets + bucket``; it supports the values that the coefficients hash to the bucket."""

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
        """A uniform report on the wanted side of each value."""
        function = below(entropy, self.functions, codes.size)
        shift = below(entropy, self.buckets - 1, codes.size).astype(np.uint16) + np.uint16(1)
        shift[inside] = 0
        bucket = self._sum.take(self.hash(codes, function).astype(np.uint32) * np.uint32(self.buckets) + shift)
        dtype = self.layout.dtype
        report: ReportArray = function.astype(dtype, copy=False) * dtype.type(self.buckets)
        report += bucket.astype(dtype, copy=False)
        return report

    def hash(self, codes: InputCodes, function: InputCodes) -> NDArray[np.uint16]:
        """Buckets of values under hash functions, broadcast against each other."""
        if self._lookup is not None:
            return self._lookup.take(codes.astype(np.intp) * self.functions + function.astype(np.intp))
        return self._digitwise(codes, function)

    def tally(self, reports: ReportArray) -> Tally:
        """Counts that add up over disjoint reports."""
        if self.outputs <= LARGEST_TALLY:
            return count_outputs(reports, self.outputs)
        return self.supporting(reports, np.arange(self.inputs))

    def support(self, tally: Tally) -> Tally:
        """Number of reports that support each value."""
        if self.outputs > LARGEST_TALLY:
            return tally
        reports = np.flatnonzero(tally)
        return self.supporting(reports, np.arange(self.inputs), tally[reports])

    def supporting(self, reports: NDArray[Any], candidates: InputCodes, weights: Tally | None = None) -> Tally:
        """Number (or total weight) of reports that support each candidate; ``(candidates,)``."""
        function, bucket = np.divmod(reports, reports.dtype.type(self.buckets))
        counts = np.empty(candidates.size, dtype=np.int64)
        for index, candidate in enumerate(candidates):
            hit = self.hash(np.asarray(candidate), function) == bucket
            counts[index] = np.count_nonzero(hit) if weights is None else weights[hit].sum()
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        if self.outputs > LARGEST_TALLY:
            raise SizeError(f"{self.outputs} reports are too many to enumerate")
        function, bucket = np.divmod(np.arange(self.outputs), self.buckets)
        met: NDArray[np.bool_] = self.hash(np.arange(self.inputs)[:, None], function[None, :]) == bucket
        return met

    @property
    def _field(self) -> Field:
        return finite_field(self.buckets)

    @cached_property
    def _sum(self) -> NDArray[np.uint16]:
        return self._field.add.ravel()

    @cached_property
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


@dataclass(frozen=True, eq=False)
class Field:
    """Addition and multiplication of GF(size); elements are 0 .. size-1, tables ``(size, size)``."""

    size: int
    add: NDArray[np.uint16]
    multiply: NDArray[np.uint16]


def prime_of(size: int) -> int | None:
    """The prime whose power ``size`` is, or None.

    >>> prime_of(27), prime_of(12)
    (3, None)
    """
    prime = next((p for p in range(2, size + 1) if size % p == 0), None)
    rest = size
    while prime and rest % prime == 0:
        rest //= prime
    return prime if rest == 1 else None


@cache
def prime_powers() -> tuple[int, ...]:
    """All field sizes up to :data:`LARGEST`, increasing."""
    return tuple(size for size in range(2, LARGEST + 1) if prime_of(size))


@cache
def finite_field(size: int) -> Field:
    """GF(size) as polynomials over its prime modulo the first irreducible one.

    >>> int(finite_field(4).multiply[2, 3])
    1
    """
    prime = prime_of(size)
    assert prime is not None
    degree = 1
    while prime**degree < size:
        degree += 1
    numbers = np.arange(size)
    digits = np.stack([numbers // prime**place % prime for place in range(degree)])  # (degree, size)
    place_values = prime ** np.arange(degree)
    add = np.tensordot(place_values, (digits[:, :, None] + digits[:, None, :]) % prime, axes=1)
    lower = next(lower for lower in product(range(prime), repeat=degree) if _irreducible((*lower, 1), prime))
    return Field(size, add.astype(np.uint16), _products(digits, np.array(lower), prime).astype(np.uint16))


def _irreducible(polynomial: Sequence[int], prime: int) -> bool:
    """Whether no monic polynomial of at most half the degree divides this monic one; lowest coefficient first."""
    degree = len(polynomial) - 1
    return not any(
        _divides((*lower, 1), polynomial, prime)
        for half in range(1, degree // 2 + 1)
        for lower in product(range(prime), repeat=half)
    )


def _divides(divisor: Sequence[int], polynomial: Sequence[int], prime: int) -> bool:
    rest = list(polynomial)
    for top in range(len(polynomial) - 1, len(divisor) - 2, -1):
        factor = rest[top]
        for place, coefficient in enumerate(reversed(divisor)):
            rest[top - place] = (rest[top - place] - factor * coefficient) % prime
    return not any(rest)


def _products(digits: NDArray[np.int64], lower: NDArray[np.int64], prime: int) -> NDArray[np.int64]:
    """All products modulo the monic polynomial with the given lower coefficients."""
    degree, size = digits.shape
    wide = np.zeros((2 * degree - 1, size, size), dtype=np.int64)
    for i in range(degree):
        for j in range(degree):
            wide[i + j] += digits[i][:, None] * digits[j][None, :]
    for top in range(2 * degree - 2, degree - 1, -1):
        for place in range(degree):
            wide[top - degree + place] -= lower[place] * wide[top]
    reduced: NDArray[np.int64] = np.tensordot(prime ** np.arange(degree), wide[:degree] % prime, axes=1)
    return reduced


def points(order: int, dimension: int) -> int:
    """Number of points of the projective space of a vector space over GF(order); none of dimension zero.

    >>> points(2, 3), points(5, 0)
    (7, 0)
    """
    count: int = (order**dimension - 1) // (order - 1)
    return count


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
