"""Finite fields of prime-power size, and the support design from projective geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.errors import InputError
from sfumato.local.randomizers.integer_table import below, smallest
from sfumato.local.randomizers.randomizer import InputCodes, OracleMethod, ReportArray, Tally, check
from sfumato.local.randomizers.two_valued import SupportDesign, TwoValued, least_variance
from sfumato.privacy.entropy import Entropy

LARGEST = 1 << 10
"""Largest number of elements of a field. Its tables have the square of that, and no method here needs a larger one."""

LARGEST_GEOMETRY = 1 << 24
"""Largest number of entries of the table of a projective geometry. Larger domains use other methods."""

_SMALLEST_DIMENSION = 2
LONGEST_VECTOR = 24
"""Largest number of coordinates of a projective point. More points than that are never tabulated."""


@dataclass(frozen=True)
class ProjectiveGeometry(SupportDesign):
    """A design from the points of a projective space over GF(order). Orthogonal points support each other.

    The source is Feldman, Nelson, Nguyen, Talwar 2022 ("Private frequency estimation via projective geometry"). Any two
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
        """Draw a uniform report on the chosen side of each value."""
        members = points(self.order, self.dimension - 1)
        which = inside.view(np.uint8)
        sides = np.array([self.outputs - members, members], dtype=smallest(self.outputs + 1))
        place = below(entropy, sides.take(which), codes.size).astype(np.uint32)
        place += codes.astype(np.uint32) * np.uint32(self.outputs)
        place += np.array([members, 0], dtype=np.uint32).take(which)
        return self._supporters_first.take(place)

    def support(self, tally: Tally) -> Tally:
        """Return the number of reports that support each value."""
        counts: Tally = self.incidence() @ tally
        return counts

    def incidence(self) -> NDArray[np.bool_]:
        """Return which reports support which values, ``(inputs, outputs)``."""
        arithmetic = finite_field(self.order)
        vectors = _points(self.order, self.dimension)  # (outputs, dimension)
        products = np.zeros((self.inputs, self.outputs), dtype=np.uint16)
        for axis in range(self.dimension):
            terms = arithmetic.multiply[vectors[: self.inputs, axis][:, None], vectors[:, axis][None, :]]
            products = arithmetic.add[products, terms]
        orthogonal: NDArray[np.bool_] = products == 0
        return orthogonal

    @cached_property  # uncached, randomizing a million of 3,000 values takes 1.6 times the CPU
    def _supporters_first(self) -> ReportArray:
        """The reports of every value, supporting reports first; flat ``(inputs * outputs,)``."""
        order = np.argsort(~self.incidence(), axis=1, kind="stable")
        return order.astype(self.layout.dtype).ravel()


@dataclass(frozen=True, eq=False)
class GaloisField:
    """The addition and multiplication of GF(size); elements are 0 .. size-1, tables ``(size, size)``."""

    size: int
    add: NDArray[np.uint16]
    multiply: NDArray[np.uint16]

    @property
    def negative(self) -> NDArray[np.intp]:
        """The negative of each element, ``(size,)``."""
        negative: NDArray[np.intp] = np.argmin(self.add, axis=1)
        return negative

    @property
    def inverse(self) -> NDArray[np.intp]:
        """The inverse of each element, ``(size,)``; zero for zero."""
        inverse: NDArray[np.intp] = np.argmax(self.multiply == 1, axis=1)
        return inverse

    @property
    def characters(self) -> NDArray[Any]:
        """The values ``psi(x y)`` of one additive, nonconstant character psi, ``(size, size)``.

        The value is the lowest digit of ``x y`` in base p as a root of unity; it is real if p is 2. Every row and
        column sums to zero, except the row and the column of zero.
        """
        prime = prime_of(self.size) or self.size
        digit = self.multiply % prime
        return 1.0 - 2.0 * digit if prime == 2 else np.exp(2j * np.pi / prime * np.arange(prime))[digit]  # noqa: PLR2004


def prime_of(size: int) -> int | None:
    """Return the prime whose power ``size`` is, or None.

    >>> prime_of(27), prime_of(12)
    (3, None)
    """
    prime = next((p for p in range(2, size + 1) if size % p == 0), None)
    rest = size
    while prime and rest % prime == 0:
        rest //= prime
    return prime if rest == 1 else None


@cache  # uncached, the spec of a frequency of 40 values takes 2.9 times the CPU
def prime_powers() -> tuple[int, ...]:
    """Return all field sizes up to :data:`LARGEST`, in ascending order."""
    return tuple(size for size in range(2, LARGEST + 1) if prime_of(size))


@cached()  # uncached, OLH on a million of 1,000 values at epsilon 5.5 takes 1.4 times the CPU
def finite_field(size: int) -> GaloisField:
    """Return GF(size): polynomials over its prime modulo the first irreducible one.

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
    return GaloisField(size, add.astype(np.uint16), _products(digits, np.array(lower), prime).astype(np.uint16))


def _irreducible(polynomial: Sequence[int], prime: int) -> bool:
    """Return whether a monic polynomial is irreducible: no polynomial of at most half its degree divides it."""
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
    """Return all products modulo the monic polynomial with the given lower coefficients."""
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
    """Return the number of points of the projective space of a vector space over GF(order); zero for dimension zero.

    >>> points(2, 3), points(5, 0)
    (7, 0)
    """
    count: int = (order**dimension - 1) // (order - 1)
    return count


def _points(order: int, dimension: int) -> NDArray[np.int64]:
    """Return canonical representatives: vectors whose first nonzero coordinate is one."""
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


def geometries(size: int) -> list[ProjectiveGeometry]:
    """Return every projective geometry with at least ``size`` points whose table is small enough, one per field."""
    designs = []
    for order in prime_powers():
        dimension = _SMALLEST_DIMENSION
        while points(order, dimension) < size:
            dimension += 1
        if points(order, dimension) * size <= LARGEST_GEOMETRY:
            designs.append(ProjectiveGeometry(size, order, dimension))
    return designs


def _projective(size: int, epsilon: Fraction) -> TwoValued:
    designs = geometries(size)
    if not designs:
        raise InputError(f"projective geometry serves domains far below {size} values: use hr or olh", culprit=size)
    return least_variance(designs, epsilon)


PGR = OracleMethod("pgr", _projective, automatic=lambda size: bool(geometries(size)))
