"""Local hashing over finite fields: the hash family is all linear maps, so collisions are exact, not assumed.

A value is written in digits of base ``buckets``, a prime power, and hashed to ``sum a_i v_i`` in GF(buckets) for
coefficients ``a`` drawn uniformly with the report.  Two different values collide with probability exactly
1 / buckets, which is all that the analysis of BLH and OLH (Wang, Blocki, Li, Jha 2017) asks of a hash family.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.local.designs import check
from sfumato.local.field import Field, field, prime_powers
from sfumato.local.randomizer import Codes, Counts, Layout, Reports, count_outputs
from sfumato.local.sampling import below, smallest
from sfumato.privacy.entropy import Entropy

LARGEST_LOOKUP = 1 << 23
"""Entries of the table of all hashes of all values; above it hashes are computed digit by digit."""

LARGEST_DOMAIN = 1 << 56
"""Values that can be hashed; their numbers stay within 64-bit arithmetic."""

LARGEST_TALLY = 1 << 22
"""Reports that are counted one by one; above it the counts of supported values are kept."""


@dataclass(frozen=True)
class Hashed:
    """Report ``coefficients * buckets + bucket``; it supports the values that the coefficients hash to the bucket."""

    inputs: int
    buckets: int

    def __post_init__(self) -> None:
        sound = self.buckets in prime_powers() and 1 < self.inputs <= LARGEST_DOMAIN
        check(sound and self.outputs < 1 << 63, self)

    @property
    def digits(self) -> int:
        """Digits of a value in base ``buckets``."""
        count, reach = 1, self.buckets
        while reach < self.inputs:
            count, reach = count + 1, reach * self.buckets
        return count

    @property
    def functions(self) -> int:
        """Size of the hash family."""
        count: int = self.buckets**self.digits
        return count

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return self.functions * self.buckets

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(1, self.buckets)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        return Fraction(1, self.buckets), Fraction(1, self.buckets)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(smallest(self.outputs))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.outputs if self.outputs <= LARGEST_TALLY else self.inputs

    def pick(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """A uniform report on the wanted side of each value."""
        function = below(entropy, self.functions, codes.size)
        shift = below(entropy, self.buckets - 1, codes.size).astype(np.uint16) + np.uint16(1)
        shift[inside] = 0
        bucket = self._sum.take(self.hash(codes, function).astype(np.uint32) * np.uint32(self.buckets) + shift)
        dtype = self.layout.dtype
        report: Reports = function.astype(dtype, copy=False) * dtype.type(self.buckets)
        report += bucket.astype(dtype, copy=False)
        return report

    def hash(self, codes: Codes, function: Codes) -> NDArray[np.uint16]:
        """Buckets of values under hash functions, broadcast against each other."""
        if self._lookup is not None:
            return self._lookup.take(codes.astype(np.intp) * self.functions + function.astype(np.intp))
        return self._digitwise(codes, function)

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return reports.size == 0 or int(reports.max()) < self.outputs

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        if self.outputs <= LARGEST_TALLY:
            return count_outputs(reports, self.outputs)
        return self.supporting(reports, np.arange(self.inputs))

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        if self.outputs > LARGEST_TALLY:
            return tally
        reports = np.flatnonzero(tally)
        return self.supporting(reports, np.arange(self.inputs), tally[reports])

    def supporting(self, reports: NDArray[Any], candidates: Codes, weights: Counts | None = None) -> Counts:
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

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "hashed", "inputs": self.inputs, "buckets": self.buckets}

    @property
    def _field(self) -> Field:
        return field(self.buckets)

    @cached_property
    def _sum(self) -> NDArray[np.uint16]:
        return self._field.add.ravel()

    @cached_property
    def _lookup(self) -> NDArray[np.uint16] | None:
        if self.inputs * self.functions > LARGEST_LOOKUP:
            return None
        return self._digitwise(np.arange(self.inputs)[:, None], np.arange(self.functions)[None, :]).ravel()

    def _digitwise(self, codes: Codes, function: Codes) -> NDArray[np.uint16]:
        base = np.uint64(self.buckets)
        code, coefficient = codes.astype(np.uint64), function.astype(np.uint64)
        total = np.zeros(np.broadcast_shapes(code.shape, coefficient.shape), dtype=np.uint16)
        for _ in range(self.digits):
            term = self._field.multiply[coefficient % base, code % base]
            total = self._field.add[total, term]
            code, coefficient = code // base, coefficient // base
        return total
