"""A 128-bit name of a multiset of encoded rows that does not depend on their order.

Each row is hashed, the hashes are summed.  It tells changed tables apart; it is no cryptographic
commitment.  It is read off the protected data: it belongs in the ledger's keys and never in a release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_LANES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)  # odd constants without structure, one a 64-bit lane
_WORD = 1 << 63


class Fingerprint:
    """Sum of row hashes; the same rows in any order and any batches give the same digest."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._rows = 0
        self._sums = [0, 0]

    def add(self, codes: Sequence[NDArray[np.integer]], values: Sequence[Words]) -> None:
        """Take in a batch: one array of codes an attribute, then any further words that tell rows apart."""
        words = [*self._packed(codes), *values]
        self._rows += len(codes[0])
        for lane, seed in enumerate(_LANES):
            mixed = np.full(len(codes[0]), seed, dtype=np.uint64)
            for word in words:
                mixed = _mix(mixed ^ word) + np.uint64(seed)
            self._sums[lane] = (self._sums[lane] + int(_mix(mixed).sum(dtype=np.uint64))) % (1 << 64)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in a batch of codes, one column an attribute, and of doubles and integers after them."""
        arrays = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        codes, more = arrays[: len(self._shape)], arrays[len(self._shape) :]
        self.add(codes, [words_of(array) if array.dtype == np.float64 else array.astype(np.uint64) for array in more])

    def state(self) -> bytes:
        """The sums so far, for :meth:`merge` in another process."""
        return b"".join(number.to_bytes(8, "little") for number in (self._rows, *self._sums))

    def merge(self, state: bytes) -> None:
        """Add the sums of another fingerprint."""
        rows, *sums = (int.from_bytes(state[place : place + 8], "little") for place in (0, 8, 16))
        self._rows += rows
        self._sums = [(mine + other) % (1 << 64) for mine, other in zip(self._sums, sums, strict=True)]

    def digest(self, key: str) -> str:
        """Hexadecimal SHA-256 of the sums under ``key``."""
        return hashlib.sha256(f"{key} {self._rows} {self._sums[0]} {self._sums[1]}".encode()).hexdigest()

    def _packed(self, codes: Sequence[NDArray[np.integer]]) -> list[Words]:
        """Mixed-radix words, as many attributes in each as fit 63 bits."""
        words: list[Words] = []
        cells = 1
        for code, size in zip(codes, self._shape, strict=True):
            if not words or cells * size > _WORD:
                words.append(code.astype(np.uint64))
                cells = size
            else:
                words[-1] = words[-1] * np.uint64(size) + code.astype(np.uint64)
                cells *= size
        return words


def words_of(values: NDArray[np.float64]) -> Words:
    """Bits of doubles, all NaN alike, both zeros alike."""
    clean = np.where(np.isnan(values), np.nan, values + 0.0)
    return clean.view(np.uint64)


def _mix(words: Words) -> Words:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
