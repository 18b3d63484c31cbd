"""The opening of tables from a path, a URL or a frame, and the table copies from which a server answers.

A copy is one Parquet file per table, with the described columns.  It has the same codes as its table.  DuckDB reads the
copy of a table of files or of a database.  A cluster writes the copy of its table as a directory of files, which all
executors must be able to read, and reads it back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sfumato.domain import CsvFormat
from sfumato.engine.adapter import EngineAdapter
from sfumato.engine.duckdb.duck_adapter import DuckAdapter
from sfumato.engine.port import ProtectedTable
from sfumato.engine.spark.spark_adapter import SparkAdapter
from sfumato.engine.sql.sql_adapter import SqlAdapter
from sfumato.engine.table_files import redacted_source, stamps
from sfumato.errors import InputError
from sfumato.extras import require

ADAPTERS: Final[tuple[EngineAdapter, ...]] = (SqlAdapter(), SparkAdapter(), DuckAdapter())
"""All engines.  The first that claims a source opens it."""

_CHUNK = 1 << 20  # bytes


def open_table(source: object, *, csv: CsvFormat | None = None, empty: bool = False) -> ProtectedTable:
    """Open a protected table in place; for its owner, because messages tell whether it has rows.

    Args:
        source: one of these: a path of a CSV (.csv, .tsv, .txt, also .gz) or Parquet file, a directory of Parquet
            files, or a pattern; a pandas, polars, Arrow or narwhals frame, a DuckDB relation or an Arrow dataset, which
            is never changed; a URL such as ``postgresql://user:password@host/database?table=people`` (also postgres,
            mysql, mariadb); ``spark:PATH`` of Parquet or CSV, ``spark:NAME`` of a table in Spark's catalog, or a Spark
            DataFrame; or a table that is open.  Named row labels of a pandas frame are columns.
        csv: the format of a CSV file, as in its domain.  Default: the usual format for its name.
        empty: true if it may have no rows, because it is described: one person may own all rows.

    Raises:
        InputError: the source is none of these, or its engine is not installed.
        EngineError: the database does not answer, or gives no permission.
        TableError: it cannot be read, has no rows although it must, or has two columns of one name.
    """
    # no structural check of a lazy frame, because it would compute its schema, which is slow
    if not type(source).__module__.startswith(("polars.", "narwhals.")) and isinstance(source, ProtectedTable):
        return source
    source = str(source) if isinstance(source, Path) else source
    adapter = adapter_of(source)
    require_engine(source)
    return adapter.open(source, csv, empty=empty)


def adapter_of(source: object) -> EngineAdapter:
    """Return the adapter of the engine that opens a source.

    Raises:
        InputError: no engine opens it.
    """
    if (adapter := _claiming(source)) is None:
        schemes = ", ".join(scheme for each in ADAPTERS for scheme in each.schemes)
        raise InputError(
            f"cannot open a table by a URL of scheme {str(source).partition('://')[0]!r}; {schemes} are known",
            culprit=redacted_source(source),
        )
    return adapter


def require_engine(source: object) -> None:
    """Refuse a source whose engine is not installed.

    Raises:
        InputError: no engine opens the source.
        MissingExtraError: a package is missing; the message has the command that installs it.
    """
    adapter = adapter_of(source)
    if (extra := adapter.extra_for(source)) is not None:
        require(extra, redacted_source(source) if isinstance(source, str) else "a frame", adapter.extras[extra])


def file_path(source: str) -> str | None:
    """Return the path of the files behind an address; None if it refers to a database."""
    adapter = _claiming(source)
    return None if adapter is None else adapter.path(source)


def same_place(one: str, other: str) -> bool:
    """Return whether two sources share a file, by any name, or are one table at one address, in any notation.

    Users, passwords and options that do not affect the place make no difference.  Aliases of a host are not resolved.
    """
    files = [{stamp[-2:] for stamp in stamps(file_path(each) or each)} for each in (one, other)]
    if any(files):
        return bool(files[0] & files[1])
    if redacted_source(one) == redacted_source(other):
        return True
    adapters = [_claiming(each) for each in (one, other)]
    if adapters[0] is None or adapters[0] is not adapters[1]:
        return False
    location = adapters[0].location(one)
    return location is not None and location == adapters[0].location(other)


def held_bytes() -> int:
    """Return the bytes of all tables that this process holds: in DuckDB, and in columns cached as arrays.

    Tables in a database or on a cluster take hardly any.
    """
    from sfumato.engine.arrays import KeptColumns
    from sfumato.engine.duckdb.duck_session import session_bytes

    return session_bytes() + KeptColumns.bytes_in_all()


def _claiming(source: object) -> EngineAdapter | None:
    return next((adapter for adapter in ADAPTERS if adapter.claims(source)), None)


@dataclass(frozen=True)
class TableCopy:
    """The copy of one table.

    Attributes:
        name: the name of the table, and of its file in the folder without the ending.
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
        """Return the copy from the result of :meth:`describe`."""
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
            folder: the folder of the copy.
            empty: true if it may have no rows.

        Raises:
            EngineError: the engine fails.
            TableError: it cannot be read.
        """
        place = folder / f"{self.name}.parquet"
        csv = CsvFormat(decimal=self.decimal, thousands=self.thousands)
        tables = (each.open_copy(place, f"the copy of {self.name}", csv, empty=empty) for each in ADAPTERS)
        return next(table for table in tables if table is not None)


def copy_table(
    table: ProtectedTable, name: str, folder: Path, *, attributes: Collection[str], ids: Collection[str]
) -> TableCopy:
    """Copy the described columns of a table to a folder, durably.

    Args:
        table: the table to copy.
        name: the name of the copy.
        folder: the folder of the copy.
        attributes: columns that are read as values.
        ids: columns whose values are only compared.

    Raises:
        TableError: the table cannot be read, or a column is of a type that Parquet does not hold.
        EngineError: the engine fails.
        OSError: the copy cannot be written.
    """
    table.write_columns(tuple(attributes), tuple(ids), folder / f"{name}.parquet")
    column = table.schema()[0]  # all columns of a table have the same notation of numbers
    return TableCopy(name, column.decimal, column.thousands, digests(folder, name, durably=True))


def digests(folder: Path, name: str, *, durably: bool = False) -> dict[str, str]:
    """Return the SHA-256 of each file of a copy, by its path in the folder.

    Args:
        folder: the folder of the copy.
        name: the name of the copy.
        durably: true to flush each file to disk before its digest is returned.

    Raises:
        OSError: a file cannot be read.
    """
    place = folder / f"{name}.parquet"
    files = sorted(each for each in place.rglob("*") if not each.is_dir()) if place.is_dir() else [place]
    digest_of_file = {}
    for file in files:
        with file.open("rb") as stream:
            if durably:
                os.fsync(stream.fileno())
            digest = hashlib.sha256()
            for part in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(part)
        digest_of_file[str(file.relative_to(folder))] = digest.hexdigest()
    return digest_of_file
