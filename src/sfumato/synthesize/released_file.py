"""A synthetic file by itself: rows, codebook, and the noisy tables that travel inside it.

Whoever holds a Parquet or Arrow file of a release, and neither its model nor its ledger, has all that intervals need:
the domain and the noisy tables stand in the file's metadata, bound to the codebook by a digest, as text, since other
programs refuse metadata that is none.  A digest finds damage, and a codebook that was changed by itself; whoever
changes all of it together makes the digest anew, which no file can tell.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, dump, parse
from sfumato.errors import InputError, SfumatoError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import (
    NoisyDistance,
    NoisyTable,
    digest_of,
    distances_payload,
    restore_distances,
    restore_tables,
    tables_payload,
)
from sfumato.model.row_sampling import CodeArray
from sfumato.strict_documents import read_yaml
from sfumato.synthesize import pair_bounds
from sfumato.synthesize.codebook.codebook import KEY, Codebook, CodebookFile, open_codebook
from sfumato.synthesize.codebook.codebook_entries import measured_tables
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.product import Model, codes_of, read_back
from sfumato.vault.interface import decode, encode

TABLES_KEY = b"sfumato.tables"

_DIGEST = 64  # hexadecimal digits before the content
_MOST_BYTES = 16 << 20  # of the text in a file: whoever reads the rows has to read it as well
_MOST_DECODED = 1 << 30
_MOST_CELLS = 1 << 26

_DAMAGED = (
    *(SfumatoError, binascii.Error, RecursionError, MemoryError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError),
)
"""What reading tables that somebody made up can fail with."""


def metadata(book: Codebook, model: Model, codes: CodeArray) -> dict[bytes, bytes]:
    """What Parquet and Arrow files keep: the codebook, and the noisy tables with their domain where they have room.

    Public: the tables were charged with the release, and their domain is that of its rows.
    """
    found = book.metadata()
    if not model.tables:
        return found
    distances = distances_payload(pair_bounds.of_rows(model, codes)) if isinstance(model, Graphical) else {}
    domain = model.domain
    columns = {
        each.name: digest_of(_counts(domain, each.name, read_back(each, codes[:, place])))
        for place, each in enumerate(domain)
    }
    payload = {"domain": dump(domain), "columns": columns, **tables_payload(model.tables), **distances}
    content = base64.b64encode(encode(payload))
    if len(content) + _DIGEST > _MOST_BYTES:
        return found
    return found | {TABLES_KEY: _digest(found[KEY], content) + content}


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a file as a model: what they count, for as many rows as the table has.

    ``distances`` say of pairs what the rows counted as they were written, ``columns`` what each column did: a digest,
    which files of earlier versions lack.
    """

    domain: Domain
    total: int
    file: CodebookFile
    distances: tuple[NoisyDistance, ...]
    columns: Mapping[str, str]

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Counts of a marginal, flat in C order, each row for as many of the table's as it stands for.

        Raises:
            SizeError: the marginal has too many cells.
            InputError: a column holds what its domain does not, or other counts than when it was written; or a pair
                with a distance does.
        """
        part = self.domain.project(attributes)
        if part.size > _MOST_CELLS:
            raise SizeError(
                f"the marginal of {', '.join(attributes)} has {part.size:,} cells; ask for fewer attributes"
            )
        table = self.file.rows(attributes)
        codes = [codes_of(self.domain[name], table[name]) for name in attributes]
        for name, found in zip(attributes, codes, strict=True):
            if self.columns.get(name) not in (None, digest_of(_counts(self.domain, name, found))):
                raise InputError(
                    f"{self.file.path}: its column {name} is not the one that it was written with: other values, or "
                    "other rows",
                    culprit=self.file.path,
                )
        counts = np.bincount(np.ravel_multi_index(codes, part.shape), minlength=part.size)
        known = next((each.rows for each in self.distances if each.attributes == attributes), "")
        if known and known != digest_of(counts):
            raise InputError(
                f"{self.file.path}: its rows are not those that it was written with, and how far "
                f"{' x '.join(attributes)} is from the table is known of these alone",
                culprit=self.file.path,
            )
        scaled: FloatArray = counts * (self.total / max(1, table.num_rows))
        return scaled


@dataclass(frozen=True, eq=False)
class SyntheticFile:
    """A released file with its noisy tables: what ``query.interval`` asks, without the saved model.

    Attributes:
        codebook: what the file says of itself.
        tables: that were measured for the release.
        distances: of pairs of its rows from the table, where they were measured.
        model: the rows of the file, in place of the model that they were drawn from.
    """

    codebook: Codebook
    tables: tuple[NoisyTable, ...]
    distances: tuple[NoisyDistance, ...]
    model: FileRows

    @cached_property
    def guarantee(self) -> str:
        """The promise that the file states."""
        return self.codebook.guarantee.text


def read_release(path: str | Path) -> SyntheticFile:
    """The release that a Parquet or Arrow file holds; nothing in the file is executed.

    Everything is what the file states: that its tables are those of the release only its ledger can confirm.

    Args:
        path: a file that ``sfumato synthesize`` or ``sfumato sample`` wrote.

    Raises:
        InputError: the file cannot be read, carries no noisy tables, or they, its codebook and its rows do not belong
            together.
    """
    file = open_codebook(path)
    text = file.metadata.get(TABLES_KEY)
    if text is None:
        why = (
            "too large to travel in it, taken out, or not kept by the version that wrote it; ask of the saved model"
            if file.book.measured
            else "its method measures other queries, or rows of a part of its model were drawn"
        )
        raise InputError(f"{path} carries no noisy tables: {why}", culprit=path)
    given, content = text[:_DIGEST], text[_DIGEST:]
    if given != _digest(file.metadata[KEY], content):
        raise InputError(
            f"{path}: its noisy tables and its codebook are not those that were written together", culprit=path
        )
    try:
        payload = decode(base64.b64decode(content, validate=True), most=_MOST_DECODED)
        domain = parse(read_yaml(payload["domain"]))
        tables, distances = restore_tables(domain, payload), restore_distances(domain, payload)
        columns = {str(name): str(digest) for name, digest in payload.get("columns", {}).items()}
    except _DAMAGED as error:
        raise InputError(f"{path}: its noisy tables are damaged, or of a later version", culprit=path) from error
    _refuse_others(path, file, domain, tables)
    return SyntheticFile(file.book, tables, distances, FileRows(domain, file.book.table_rows, file, distances, columns))


def _counts(domain: Domain, name: str, codes: CodeArray) -> NDArray[np.int64]:
    return np.bincount(codes, minlength=domain[name].size)


def _refuse_others(path: str | Path, file: CodebookFile, domain: Domain, tables: tuple[NoisyTable, ...]) -> None:
    """Refuse rows, a codebook and tables that say different things.

    Raises:
        InputError: they do.
    """
    book = file.book
    if measured_tables(tables) != book.measured:
        raise InputError(f"{path}: its codebook lists other tables, or other noise, than it carries", culprit=path)
    if not tuple(column.name for column in book.columns) == domain.names == file.columns:
        raise InputError(f"{path}: its columns are not those that its codebook and its tables are about", culprit=path)
    if book.rows != file.length:
        raise InputError(
            f"{path} has {file.length:,} rows, and the codebook in it is that of {book.rows:,}: it was changed since",
            culprit=path,
        )


def _digest(book: bytes, content: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(book).digest() + content).hexdigest().encode()
