"""Finite fields of prime-power size as lookup tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 10
"""Tables have size^2 entries; no method here needs a larger field."""


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
def field(size: int) -> Field:
    """GF(size) as polynomials over its prime modulo the first irreducible one.

    >>> int(field(4).multiply[2, 3])
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
    for lower in product(range(prime), repeat=degree):
        multiply = _products(digits, np.array(lower), prime)
        if all(np.unique(row).size == size for row in multiply[1:]):  # no zero divisors: irreducible
            return Field(size, add.astype(np.uint16), multiply.astype(np.uint16))
    raise AssertionError  # an irreducible polynomial of every degree exists


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
