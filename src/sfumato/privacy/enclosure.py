"""Enclosures of exp(-x) for rational x, in integer arithmetic only.

Every result is a pair of integers ``(low, high)`` with ``low <= 2^bits * exp(-x) <= high``, so that what is
decided with it is decided exactly.  No floating point and no library function stands between the
target distribution and the samplers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

EnclosureEnds = NDArray[np.uint64]

COARSE_BITS = 31  # two factors of at most 2^31 multiply within 64 bits
_DIGIT = 8
_LOWEST = np.uint64((1 << _DIGIT) - 1)
_NOTHING_LEFT = 22  # 2^31 exp(-22) is below one


def exp_enclosure(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers around ``2^bits * exp(-exponent)``, at most a few apart.

    The exponent is halved k times until it is below 2^-8.  The alternating series is summed in fixed point
    with w bits: term i is at most 4 units too small (its two divisions and the rounded exponent lose 3,
    the loss of term i-1 shrinks by 256), and what is left out is below one unit, so that the sum of
    i terms is within 4i + 1 units.  Both ends are then squared k times, rounded outward.

    Args:
        exponent: at least zero.
        bits: binary digits after the point, at least one.

    >>> low, high = exp_enclosure(Fraction(1), 20)
    >>> low / 2**20, high / 2**20
    (0.36787891387939453, 0.36787986755371094)
    """
    numerator, denominator = exponent.numerator, exponent.denominator
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator >= bits * denominator:  # exp(-bits) < 2^-bits
        return 0, 1
    halvings = max(0, numerator.bit_length() - denominator.bit_length() + 1 + 8)
    width = bits + halvings + bits.bit_length() + 8
    reduced = (numerator << width) // (denominator << halvings)
    term = total = 1 << width
    terms = 0
    while term:
        terms += 1
        term = ((term * reduced) >> width) // terms
        total += -term if terms % 2 else term
    low, high = total - 4 * terms - 1, total + 4 * terms + 1
    for _ in range(halvings):
        low = low * low >> width
        high = -(-high * high >> width)
    return low >> (width - bits), min(1 << bits, -(-high >> (width - bits)))


def exp_sequence(
    first: Fraction, *, step: Fraction, curvature: Fraction = Fraction(0), count: int, bits: int
) -> list[tuple[int, int]]:
    """Enclosures of ``2^bits * exp(-(first + i step + i (i - 1) / 2 curvature))`` for i = 0 .. count - 1.

    Two interval products an entry in place of one series: the ratio of neighbours is itself geometric.
    """
    low, high = exp_enclosure(first, bits)
    ratio_low, ratio_high = exp_enclosure(step, bits)
    change_low, change_high = exp_enclosure(curvature, bits)
    sequence = []
    for _ in range(count):
        sequence.append((low, high))
        low = low * ratio_low >> bits
        high = -(-high * ratio_high >> bits)
        if curvature:
            ratio_low = ratio_low * change_low >> bits
            ratio_high = -(-ratio_high * change_high >> bits)
    return sequence


def exp_enclosures(multiples: NDArray[np.int64], unit: Fraction) -> tuple[EnclosureEnds, EnclosureEnds]:
    """Enclosures of ``2^31 * exp(-unit * m)`` for an array of integers m >= 0, vectorised.

    exp(-unit m) is the product over the base-256 digits of m of exp(-unit 256^i digit), each looked
    up in a small table; products of 31-bit numbers are exact in 64 bits and are rounded outward.  From an
    exponent of 22 on, 2^31 exp(-22) < 1, so (0, 1) encloses what is left, and m need not be looked at further.
    """
    last, tables = _digit_tables(unit)
    left = np.minimum(multiples, last).view(np.uint64)
    bits = np.uint64(COARSE_BITS)
    up = np.uint64((1 << COARSE_BITS) - 1)
    low, high = (table[left & _LOWEST] for table in tables[0])
    for lows, highs in tables[1:]:
        left >>= np.uint64(_DIGIT)
        digit = left & _LOWEST
        low = low * lows[digit] >> bits
        high = (high * highs[digit] + up) >> bits
    return low, high


@lru_cache(maxsize=64)
def _digit_tables(unit: Fraction) -> tuple[np.int64, tuple[tuple[EnclosureEnds, EnclosureEnds], ...]]:
    """The first multiple whose exponent is 22 or more (2^63 - 1 at most), and a table for each of its digits."""
    last = min(-(-_NOTHING_LEFT * unit.denominator // unit.numerator), (1 << 63) - 1)
    digits = -(-last.bit_length() // _DIGIT)
    return np.int64(last), tuple(_digit_table(unit * (1 << _DIGIT * place)) for place in range(digits))


def _digit_table(unit: Fraction) -> tuple[EnclosureEnds, EnclosureEnds]:
    fine = 2 * COARSE_BITS
    pairs = exp_sequence(Fraction(0), step=unit, count=1 << _DIGIT, bits=fine)
    low = np.array([low >> (fine - COARSE_BITS) for low, _ in pairs], dtype=np.uint64)
    high = np.array([-(-high >> (fine - COARSE_BITS)) for _, high in pairs], dtype=np.uint64)
    return low, high
