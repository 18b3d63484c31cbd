"""Copies of tables that are served instead of the tables: one Parquet file per table, with the described columns.

A copy encodes to what its table does.  DuckDB reads the copy of a table of files or of a database.  Spark writes the
copy of its table as a directory of files, which all executors must be able to read, and reads it back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sfumato.domain import CsvFormat
from sfumato.engine.open import ParquetFiles
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import literal_path

_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class TableCopy:
    """The copy of one table.

    Attributes:
        name: of the table, and of its file in the folder without the ending.
        decimal: the sign before decimals of numbers in its text.
        thousands: the sign between their thousands, or nothing.
        files: the SHA-256 of each file, by its path in the folder.
    """

    name: str
    decimal: str
    thousands: str
    files: dict[str, str]

    @classmethod
    def read(cls, document: dict[str, Any]) -> TableCopy:
        """Return the copy that :meth:`describe` describes."""
        return cls(**document)

    def describe(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return asdict(self)

    def is_whole(self, folder: Path) -> bool:
        """Return whether no file of the copy was changed, added or removed since it was made."""
        try:
            return digests(folder, self.name) == self.files
        except OSError:
            return False

    def open(self, folder: Path, *, empty: bool = False) -> ProtectedTable:
        """Open the copy as a table.

        Args:
            folder: which holds it.
            empty: whether it may be without rows.

        Raises:
            EngineError: the engine fails.
            TableError: it cannot be read.
        """
        place = folder / f"{self.name}.parquet"
        spelled = CsvFormat(decimal=self.decimal, thousands=self.thousands)
        if place.is_dir():  # which Spark alone writes
            from sfumato.engine.spark.spark_session import session
            from sfumato.engine.spark.spark_table import SparkTable

            frame = session().read.parquet(place.absolute().as_uri())
            return SparkTable(frame, f"the copy of {self.name}", csv=spelled, empty=empty)
        from sfumato.engine.duckdb.duck_table import DuckTable

        return DuckTable(ParquetFiles(literal_path(place), spelled), empty=empty)


def copy_table(
    table: ProtectedTable, name: str, folder: Path, *, attributes: Collection[str], ids: Collection[str]
) -> TableCopy:
    """Copy the described columns of a table to a folder, durably.

    Args:
        table: which is copied.
        name: of the copy.
        folder: where it is written.
        attributes: columns that are read as values.
        ids: columns whose values are told apart.

    Raises:
        TableError: the table cannot be read, or a column is of a type that Parquet does not hold.
        EngineError: the engine fails.
        OSError: the copy cannot be written.
    """
    table.write_columns(tuple(attributes), tuple(ids), folder / f"{name}.parquet")
    column = table.schema()[0]  # all columns of a table spell numbers alike
    return TableCopy(name, column.decimal, column.thousands, digests(folder, name, durably=True))


def digests(folder: Path, name: str, *, durably: bool = False) -> dict[str, str]:
    """Return the SHA-256 of each file of a copy, by its path in the folder.

    Args:
        folder: which holds the copy.
        name: of the copy.
        durably: whether to have the disk keep each file before its digest is returned.

    Raises:
        OSError: a file cannot be read.
    """
    place = folder / f"{name}.parquet"
    files = sorted(each for each in place.rglob("*") if not each.is_dir()) if place.is_dir() else [place]
    found = {}
    for file in files:
        with file.open("rb") as stream:
            if durably:
                os.fsync(stream.fileno())
            digest = hashlib.sha256()
            for part in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(part)
        found[str(file.relative_to(folder))] = digest.hexdigest()
    return found
