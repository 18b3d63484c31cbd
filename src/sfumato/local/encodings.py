"""Unary coins over something else than all values: hashed cells (count-mean sketch), or a run of buckets (dBitFlip)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.local.bits import Coins, Unary, flips, pack, unpack
from sfumato.local.bounds import DENOMINATOR
from sfumato.local.designs import check
from sfumato.local.hashing import LARGEST_TALLY, Hashed
from sfumato.local.randomizer import LARGEST_TABLE, Codes, Counts, Layout, Reports, to_bytes
from sfumato.local.sampling import below, coins, smallest
from sfumato.privacy.entropy import Entropy


@dataclass(frozen=True)
class CountMeanSketch:
    """CMS (Apple Differential Privacy Team 2017): hash to ``width`` cells, then symmetric unary encoding.

    The report is the number of the hash function, then the packed bits.  All linear maps over GF(width) are the
    hash family, in place of 65 536 public ones, so that estimates are unbiased for every value.
    """

    inputs: int
    width: int
    coins: Coins

    def __post_init__(self) -> None:
        check(self.inputs > 1 and self.tally_size <= LARGEST_TALLY, self)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), self._head.itemsize + -(-self.width // 8))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self._hashed.functions * self.width

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        return self.coins.one / DENOMINATOR

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        return (self.coins.one + (self.width - 1) * self.coins.zero) / (self.width * DENOMINATOR)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return self.coins.ratio

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        functions = self._hashed.functions
        if self.inputs * functions << self.width > LARGEST_TABLE:
            raise SizeError(f"{functions} times 2^{self.width} reports are too many to enumerate")
        cells = [[share / functions for share in row] for row in Unary(self.width, self.coins).rows()]
        hashed = self._hashed.hash(np.arange(self.inputs)[:, None], np.arange(functions)[None, :])
        return [[share for cell in row for share in cells[cell]] for row in hashed.tolist()]

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        function = below(entropy, self._hashed.functions, codes.size)
        cell = self._hashed.hash(codes, function)
        return headed(function.astype(self._head), Unary(self.width, self.coins).draw(cell, entropy))

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        function, bits = self._split(reports)
        known = function.size == 0 or int(function.max()) < self._hashed.functions
        return known and Unary(self.width, self.coins).possible(bits)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        function, bits = self._split(reports)
        cells = [
            np.bincount(function[column], minlength=self._hashed.functions) for column in unpack(bits, self.width).T
        ]
        return np.stack(cells, axis=1).astype(np.int64, copy=False).ravel()

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        functions = np.arange(self._hashed.functions)
        cells = self._hashed.hash(np.arange(self.inputs)[:, None], functions[None, :])
        counts: Counts = tally[functions * self.width + cells].sum(axis=1)
        return counts

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "sketch", "inputs": self.inputs, "width": self.width, "coins": self.coins.describe()}

    @cached_property
    def _hashed(self) -> Hashed:
        return Hashed(self.inputs, self.width)

    @property
    def _head(self) -> np.dtype[np.unsignedinteger[Any]]:
        return smallest(self._hashed.functions)

    def _split(self, reports: Reports) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        return split(reports, self._head)


@dataclass(frozen=True)
class BucketRun:
    """dBitFlip (Ding, Kulkarni, Yekhanin 2017): bits about ``run`` of the buckets only.

    The published method draws a random set of buckets; here it is a random cyclic run, named by its first bucket,
    which leaves the variance of every bucket the same and costs fewer bytes.
    """

    inputs: int
    run: int
    coins: Coins

    def __post_init__(self) -> None:
        check(0 < self.run <= self.inputs, self)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), smallest(self.inputs).itemsize + -(-self.run // 8))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.inputs

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        return self.run * self.coins.one / (self.inputs * DENOMINATOR)

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        return self.run * self.coins.zero / (self.inputs * DENOMINATOR)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        one, zero = self.coins.one, self.coins.zero
        moved = max(Fraction(one, zero), Fraction(DENOMINATOR - zero, DENOMINATOR - one))
        return self.coins.ratio if self.run > 1 else moved

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        if self.inputs**2 << self.run > LARGEST_TABLE:
            raise SizeError(f"{self.inputs} times 2^{self.run} reports are too many to enumerate")
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

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        start = below(entropy, self.inputs, codes.size).astype(smallest(self.inputs))
        offset = (codes.astype(np.int64) - start) % self.inputs
        bits = flips(entropy, (codes.size, self.run), self.coins.zero)
        covered = np.flatnonzero(offset < self.run)
        bits[covered, offset[covered]] = coins(entropy, covered.size, self.coins.one)
        return headed(start, pack(bits))

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        start, bits = split(reports, smallest(self.inputs))
        spare = self.run % 8
        return (start.size == 0 or int(start.max()) < self.inputs) and (
            spare == 0 or not np.any(bits[:, -1] >> np.uint8(spare))
        )

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        start, bits = split(reports, smallest(self.inputs))
        counts = np.zeros(self.inputs, dtype=np.int64)
        for place, column in enumerate(unpack(bits, self.run).T):
            counts += np.roll(np.bincount(start[column], minlength=self.inputs), place)
        return counts

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return tally

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "run", "inputs": self.inputs, "run": self.run, "coins": self.coins.describe()}


def headed(head: NDArray[Any], body: Reports) -> Reports:
    """Bytes of ``head``, little-endian, followed by those of ``body``; ``(n, bytes)``."""
    return np.concatenate([to_bytes(head), to_bytes(body)], axis=1)


def split(reports: Reports, head: np.dtype[np.unsignedinteger[Any]]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Undo :func:`headed`: the heads ``(n,)`` and the remaining bytes ``(n, bytes)``."""
    packed = reports.astype(np.uint8, copy=False)
    heads = np.ascontiguousarray(packed[:, : head.itemsize]).view(head.newbyteorder("<"))[:, 0]
    return heads, packed[:, head.itemsize :]
