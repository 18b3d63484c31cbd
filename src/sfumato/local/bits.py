"""Unary randomizers: one independent coin a bit, ``one`` where the value stands and ``zero`` elsewhere.

Symmetric and optimised unary encoding, thresholded histograms, RAPPOR, count-mean sketch and dBitFlip differ
only in the two coins and in which positions are reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, SizeError
from sfumato.local.bounds import DENOMINATOR
from sfumato.local.counting import column_counts
from sfumato.local.randomizer import LARGEST_TABLE, Codes, Counts, Layout, Reports
from sfumato.local.sampling import coins, leading
from sfumato.privacy.entropy import Entropy


@dataclass(frozen=True)
class Coins:
    """The two coins of a bit, as numerators over 2^64: the chance of a 1 at the value, and elsewhere."""

    one: int
    zero: int

    def __post_init__(self) -> None:
        if not 0 < self.zero < self.one < DENOMINATOR:
            raise InputError("the coins of a unary randomizer must satisfy 0 < zero < one < 2^64", culprit=self)

    @property
    def ratio(self) -> Fraction:
        """Odds ratio of the coins: the likelihood ratio when the value moves from one bit to another."""
        return Fraction(self.one * (DENOMINATOR - self.zero), self.zero * (DENOMINATOR - self.one))

    def then(self, second: Coins) -> Coins:
        """The coins of ``second`` applied to the bits of this one, rounded away from each other's odds."""
        one = self.one * second.one + (DENOMINATOR - self.one) * second.zero
        zero = self.zero * second.one + (DENOMINATOR - self.zero) * second.zero
        return Coins(one // DENOMINATOR, -(-zero // DENOMINATOR))

    def describe(self) -> dict[str, str]:
        """Plain JSON."""
        return {"one": str(self.one), "zero": str(self.zero)}


@dataclass(frozen=True)
class Unary:
    """All ``inputs`` bits are reported, packed little-endian."""

    inputs: int
    coins: Coins

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), -(-self.inputs // 8))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.inputs

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        return self.coins.one / DENOMINATOR

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        return self.coins.zero / DENOMINATOR

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return self.coins.ratio

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        if self.inputs << self.inputs > LARGEST_TABLE:
            raise SizeError(f"2^{self.inputs} reports are too many to enumerate")
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

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        return pack(self.bits(codes, entropy))

    def bits(self, codes: Codes, entropy: Entropy) -> NDArray[np.bool_]:
        """The bits before packing, ``(n, inputs)``."""
        drawn = flips(entropy, (codes.size, self.inputs), self.coins.zero)
        drawn[np.arange(codes.size), codes] = coins(entropy, codes.size, self.coins.one)
        return drawn

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        spare = self.inputs % 8
        tail = reports.reshape(-1, self.layout.width)[:, -1]
        return spare == 0 or not np.any(tail >> np.uint8(spare))

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return column_counts(reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False))[: self.inputs]

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return tally

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "unary", "inputs": self.inputs, "coins": self.coins.describe()}


def flips(entropy: Entropy, shape: tuple[int, int], numerator: int) -> NDArray[np.bool_]:
    """Independent coins, true with probability ``numerator`` / 2^64: one random byte each, more where that ties."""
    size = shape[0] * shape[1]
    first = np.uint8(numerator >> 56)
    byte = leading(entropy, size, np.uint8)
    heads: NDArray[np.bool_] = byte < first
    ties = np.flatnonzero(byte == first)
    if ties.size:
        heads[ties] = (entropy.words(ties.size) >> np.uint64(8)) < np.uint64(numerator & ((1 << 56) - 1))
    return heads.reshape(shape)


def pack(bits: NDArray[np.bool_]) -> Reports:
    """Bits ``(n, m)`` as little-endian bytes, ``(n,)`` where they fit one byte and ``(n, bytes)`` otherwise."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    return packed[:, 0] if packed.shape[1] == 1 else packed


def unpack(reports: Reports, width: int) -> NDArray[np.bool_]:
    """The first ``width`` bits of packed reports, ``(n, width)``."""
    packed = np.atleast_2d(reports.T).T.astype(np.uint8, copy=False)
    return np.unpackbits(packed, axis=1, count=width, bitorder="little").astype(np.bool_)
