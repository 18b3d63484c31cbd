"""What DuckDB reads from: CSV and Parquet files, and frames in memory.

CSV is read without sniffing: comma (tab for .tsv), double quotes, UTF-8, a header, every column as text,
so "01" stays "01".  An empty field is missing, a quoted empty field is an empty text.
"""

from __future__ import annotations

import csv
import glob
import gzip
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sfumato.engine.address import shown
from sfumato.errors import InputError, TableError

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
Stamps = tuple[tuple[str, int, int, int, int, int], ...]
_HEADER = 1 << 20  # bytes of one line of a header, at most: a file without line ends is no CSV


class Source(Protocol):
    """Something that a DuckDB connection can read."""

    @property
    def title(self) -> str:
        """What messages call it."""
        ...

    def relation(self, connection: Any) -> str:  # noqa: ANN401 - a duckdb connection, imported lazily
        """What stands after FROM, on this connection."""
        ...

    def stamps(self) -> Stamps:
        """See :func:`stamps`."""
        ...


@dataclass(frozen=True)
class CsvFile:
    """One CSV file with its columns, read off the header."""

    path: Path
    columns: tuple[str, ...]

    @property
    def title(self) -> str:
        """The path."""
        return str(self.path)

    def relation(self, connection: Any) -> str:  # noqa: ANN401, ARG002 - part of the protocol
        """A ``read_csv`` that leaves nothing to guess."""
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in self.columns)
        return (
            f"read_csv({quoted(_literal_path(self.path))}, auto_detect=false, header=true, columns={{{columns}}}, "
            f"delim={quoted(delimiter(self.path))}, quote='\"', escape='\"', nullstr='', allow_quoted_nulls=false, "
            f"strict_mode=true, compression={quoted('gzip' if _is_gzip(self.path) else 'none')})"
        )

    def stamps(self) -> Stamps:
        """Of the one file."""
        return stamps(str(self.path))


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files that match a pattern."""

    pattern: str

    @property
    def title(self) -> str:
        """The pattern."""
        return self.pattern

    def relation(self, connection: Any) -> str:  # noqa: ANN401, ARG002 - part of the protocol
        """A ``read_parquet`` without columns made from directory names."""
        return f"read_parquet({quoted(self.pattern)}, hive_partitioning=false)"

    def stamps(self) -> Stamps:
        """Of every file that matches now."""
        return stamps(self.pattern)


@dataclass(frozen=True, eq=False)
class Frame:
    """An Arrow table in memory."""

    table: pa.Table
    title: str

    def relation(self, connection: Any) -> str:  # noqa: ANN401 - a duckdb connection, imported lazily
        """A view of the table, without copying it."""
        connection.register("sfumato_frame", self.table)
        return "sfumato_frame"

    def stamps(self) -> Stamps:
        """None: nobody else writes to it."""
        return ()


def file_source(path: str | Path) -> CsvFile | ParquetFiles:
    """The source at a path: a CSV or Parquet file, a directory of Parquet files, or a pattern of them.

    Raises:
        TableError: nothing is there, it cannot be read, or it is not what its name says.
        InputError: the name does not say what it is.
    """
    text, path = str(path), Path(path)
    try:
        if path.is_dir():
            if not any(path.glob("*.parquet")):
                raise TableError(f"{text} is a directory without .parquet files", culprit=path)
            return parquet_files(f"{_literal_path(path)}/*.parquet")
        if path.is_file():
            path.open("rb").close()
        elif glob.has_magic(text) and text.endswith(PARQUET_SUFFIXES):
            return parquet_files(text)
        else:
            raise TableError(f"there is no file {text}", culprit=path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is no path"
        raise TableError(f"cannot read {text[:200]!r}: {reason}", culprit=path) from None
    if text.lower().endswith(CSV_SUFFIXES):
        return CsvFile(path, csv_header(path))
    if text.lower().endswith(PARQUET_SUFFIXES):
        return parquet_files(_literal_path(path))
    known = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
    raise InputError(f"cannot tell what {text} is by its name; it should end in one of {known}", culprit=path)


def stamps(source: str) -> Stamps:
    """Name, size, times and number of every file of a source; nothing where it is not made of files on this machine.

    Equal stamps mean that no file was written, replaced, added or removed.
    """
    if "://" in source or source.startswith("spark:"):
        return ()
    one = _stamp(source)
    if one is not None and stat.S_ISREG(one[0]):  # the most usual: a server looks before every question
        return (one[1],)
    pattern = source if one is None else f"{_literal_path(Path(source))}/*.parquet"
    found = map(_stamp, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    return tuple(sorted(each[1] for each in found if each is not None))


def same_place(one: str, other: str) -> bool:
    """Whether two sources share a file, by whatever name, or are one table at one address.

    Addresses are compared by their text without user, password and options: aliases of a host are not seen through.
    """
    files = [{stamp[-2:] for stamp in stamps(each.removeprefix("spark:"))} for each in (one, other)]
    return bool(files[0] & files[1]) or (not any(files) and shown(one) == shown(other))


def parquet_files(pattern: str) -> ParquetFiles:
    """The Parquet files that match a pattern.

    Raises:
        TableError: no file matches, the first is not Parquet, or repeats a column.
    """
    import pyarrow.parquet as pq

    first = min(glob.glob(pattern, recursive=True), default=None)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if first is None:
        raise TableError(f"no file matches {pattern}", culprit=pattern)
    try:
        names = pq.read_schema(first).names
    except (pa.ArrowInvalid, OSError):
        raise TableError(f"{first} is not a Parquet file", culprit=pattern) from None
    _refuse_repeats(names, first)
    return ParquetFiles(pattern)


def csv_header(path: Path) -> tuple[str, ...]:
    """Column names of a CSV file.

    Raises:
        TableError: an empty file, one that is not text (or not gzip), or names that are empty.
    """
    opener = gzip.open if _is_gzip(path) else open
    try:
        with opener(path, "rb") as stream:
            lines = (
                line.decode("utf-8").removeprefix("\ufeff") for line in iter(lambda: stream.readline(_HEADER), b"")
            )
            header = next(csv.reader(lines, delimiter=delimiter(path), strict=True), None)
    except (UnicodeDecodeError, csv.Error):
        raise TableError(f"{path} is not CSV in UTF-8", culprit=path) from None
    except (OSError, EOFError):
        raise TableError(f"{path} is not a gzip file, or cannot be read", culprit=path) from None
    refuse_header(header or (), str(path))
    return tuple(header or ())


def refuse_header(names: Sequence[str], title: str) -> None:
    """Refuse a header of CSV without names, with nameless columns, or with one name twice.

    Raises:
        TableError: as said.
    """
    if not names:
        raise TableError(f"{title} is empty; it needs a header and at least one row", culprit=title)
    if any(not name or "\0" in name for name in names):
        raise TableError(f"{title} has a column without a name, or is not CSV", culprit=title)
    _refuse_repeats(names, title)


def frame_source(frame: object) -> Frame:
    """A pandas, polars or Arrow frame as an Arrow table; the frame itself is not touched.

    Raises:
        InputError: not a frame.
        TableError: a column that Arrow cannot hold, such as one of mixed types.
    """
    library = type(frame).__module__.partition(".")[0]
    title = f"the {library} frame"
    try:
        table = _arrow_table(frame, library)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise TableError(f"{title} has a column that mixes types", culprit=frame) from None
    except Exception as error:  # noqa: BLE001 - whatever another library raises may quote the table
        raise TableError(f"{title} cannot be read: {type(error).__name__}", culprit=frame) from None
    if table is None:
        raise InputError(
            f"cannot read a table from {type(frame).__name__}; give a path, a URL, or a pandas, polars or Arrow frame",
            culprit=frame,
        )
    _refuse_repeats(table.column_names, title)
    return Frame(table, title)


def _arrow_table(frame: Any, library: str) -> pa.Table | None:  # noqa: ANN401  (a frame of any library)
    """The frame as an Arrow table, by the interface that libraries of frames share; None where it is no frame."""
    name = type(frame).__name__
    if (library, name) == ("polars", "LazyFrame"):
        frame = frame.collect()
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if (library, name) == ("pandas", "DataFrame"):
        return pa.Table.from_pandas(frame, preserve_index=False)
    stream = getattr(frame, "__arrow_c_stream__", None)
    return None if stream is None or name == "Series" else pa.table(frame)


def _stamp(name: str) -> tuple[int, tuple[str, int, int, int, int, int]] | None:
    """Mode and stamp of what lies there; None where nothing does, or it has just gone."""
    try:
        found = Path(name).stat()
    except (OSError, ValueError):
        return None
    return found.st_mode, (name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)


def quoted(text: str) -> str:
    """A DuckDB text literal."""
    return "'" + text.replace("'", "''") + "'"


def _refuse_repeats(names: Sequence[str], title: str) -> None:
    """Engines tell columns apart without regard to case, so names that differ in case only are one name."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise TableError(f"{title} has two columns called {name!r}", culprit=name)
        seen.add(name.casefold())


def _literal_path(path: Path) -> str:
    """A path in which no character is a wildcard."""
    return glob.escape(str(path))


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def delimiter(path: str | Path) -> str:
    """What separates the fields of a CSV file of this name."""
    return "\t" if ".tsv" in Path(path).name.lower()[-7:] else ","
