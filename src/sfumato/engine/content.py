"""The content of a raw table: a name of all its rows and columns, for the ledger's versions of the data.

A :class:`Fingerprint` names encoded rows likewise.

Each row is hashed and the hashes are summed, so that the order of rows, files and batches makes no difference.  The
name tells changed tables apart; it is no cryptographic commitment.  It is read off the protected data, so it never
leaves the process but as a keyed digest.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.dialect import Dialect
from sfumato.engine.port import Column, ColumnKind

_FIXED = {ColumnKind.BOOLEAN, ColumnKind.INTEGER, ColumnKind.REAL, ColumnKind.DATE}  # without blanks in their text
_Words = NDArray[np.uint64]
_LANES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)  # odd constants without structure, one a 64-bit lane
_WORD = 1 << 63
_AT_ONCE = 1 << 14  # rows mixed at a time: what is mixed stays in the fast caches


class Fingerprint:
    """A 128-bit name of a multiset of encoded rows: the same rows in any order and any batches give the same digest.

    Each row is hashed, the hashes are summed.  It tells changed tables apart; it is no cryptographic commitment.  It is
    read off the protected data: it belongs in the ledger's keys and never in a release.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._rows = 0
        self._sums = [0, 0]

    def add(self, codes: Sequence[NDArray[np.integer]], values: Sequence[_Words]) -> None:
        """Take in a batch: one array of codes an attribute, then any further words that tell rows apart."""
        rows = len(codes[0])
        self._rows += rows
        for start in range(0, rows, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            words = [*self._packed([code[part] for code in codes]), *(value[part] for value in values)]
            for lane, seed in enumerate(_LANES):
                mixed = words[0] ^ np.uint64(seed)
                spare = np.empty_like(mixed)
                for word in words[1:]:
                    _mix(mixed, spare)
                    mixed += np.uint64(seed)
                    mixed ^= word
                _mix(mixed, spare)
                mixed += np.uint64(seed)
                _mix(mixed, spare)
                self._sums[lane] = (self._sums[lane] + int(mixed.sum(dtype=np.uint64))) % (1 << 64)

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

    def _packed(self, codes: Sequence[NDArray[np.integer]]) -> list[_Words]:
        """Mixed-radix words, as many attributes in each as fit 63 bits."""
        words: list[_Words] = []
        cells = 1
        for code, size in zip(codes, self._shape, strict=True):
            if not words or cells * size > _WORD:
                words.append(code.astype(np.uint64))
                cells = size
            else:
                words[-1] *= np.uint64(size)
                words[-1] += code.astype(np.uint64)
                cells *= size
        return words


def words_of(values: NDArray[np.float64]) -> _Words:
    """Bits of doubles, all NaN alike, both zeros alike."""
    clean = values + 0.0
    clean[np.isnan(clean)] = np.nan
    return clean.view(np.uint64)


def _mix(words: _Words, spare: _Words) -> None:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.

    Args:
        words: mixed in place.
        spare: of the same shape, overwritten.
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(words, np.uint64(shift), out=spare)
        np.bitwise_xor(words, spare, out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.right_shift(words, np.uint64(31), out=spare)
    np.bitwise_xor(words, spare, out=words)


def bytes_name(files: Iterable[str], form: str) -> str:
    """Name the bytes of files, in whatever order and under whatever names.

    Args:
        files: their paths.
        form: how the bytes are read.
    """
    digests = []
    for file in files:
        with Path(file).open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return _digest([form, sorted(digests)]) if digests else ""


def content_statement(
    relation: str, columns: Sequence[Column], dialect: Dialect, *, hashed: tuple[str, str, str] | None = None
) -> str:
    """Write the query for the number of rows and two sums of their hashes.

    Args:
        relation: what stands after FROM for the raw rows.
        columns: all columns of the table.
        dialect: of the engine.
        hashed: SQL of a hash with ``{}`` for a text, and of two integers from ``digest``, which is such a hash; those
            of the dialect without it.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    texts = [dialect.exact(column) for column in ordered if column.kind not in _FIXED]
    numbers = [dialect.exact(column) for column in ordered if column.kind in _FIXED]
    # all texts, then their lengths and all numbers: read from the end, no two rows are spelled alike
    lengths = [dialect.text(f"LENGTH({text})") for text in texts]
    parts = [*(f"COALESCE({text}, '')" for text in texts)]
    parts += [part for each in (*lengths, *numbers) for part in ("' '", f"COALESCE({each}, '')")]
    row = f"CONCAT({', '.join(parts)})"
    digest, first, second = hashed or (dialect.digest("{}"), *dialect.words("digest"))
    sums = ", ".join(f"SUM(CAST({word} AS DECIMAL(38, 0)))" for word in (first, second))
    return f"SELECT COUNT(*), {sums} FROM (SELECT {digest.format(row)} AS digest FROM {relation}) AS hashed"


def content_name(columns: Sequence[Column], found: Sequence[object]) -> str:
    """Name a table by its columns and the result of :func:`content_statement`, hexadecimal."""
    sums = [int(str(number or 0)) for number in found]
    return _digest([sorted(column.name for column in columns), sums])


def content_of_tables(contents: Mapping[str, str]) -> str:
    """Name several tables by a name of each, whatever their order; empty if one of them is."""
    return _digest(sorted(contents.items())) if all(contents.values()) else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
