"""The content of a raw table: a name of all its rows and columns, for the ledger's versions of the data.

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

from sfumato.engine.dialect import Dialect
from sfumato.engine.port import Column, ColumnKind

_FIXED = {ColumnKind.BOOLEAN, ColumnKind.INTEGER, ColumnKind.REAL, ColumnKind.DATE}  # without blanks in their text


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
