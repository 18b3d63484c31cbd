"""What DuckDB reads from, CSV and Parquet files and frames in memory, how it spells SQL, and what its types mean."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sfumato.domain import CsvFormat
from sfumato.engine.csv_file import CSV_SUFFIXES, CsvFile, csv_file
from sfumato.engine.dialect import smallest_bits
from sfumato.engine.port import Column, ColumnKind
from sfumato.engine.table_files import PARQUET_SUFFIXES, Stamps, literal_path, quoted, refuse_repeats, stamps
from sfumato.errors import InputError, TableError


class DuckSource(Protocol):
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


def file_source(path: str | Path, csv: CsvFormat | None = None) -> CsvFile | ParquetFiles:
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
            return parquet_files(f"{literal_path(path)}/*.parquet")
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
        return csv_file(path, csv)
    if text.lower().endswith(PARQUET_SUFFIXES):
        return parquet_files(literal_path(path))
    known = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
    raise InputError(f"cannot tell what {text} is by its name; it should end in one of {known}", culprit=path)


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
    refuse_repeats(names, first)
    return ParquetFiles(pattern)


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
    except TableError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever another library raises may quote the table
        raise TableError(f"{title} cannot be read: {type(error).__name__}", culprit=frame) from None
    if table is not None and not table.num_columns:
        raise TableError(f"{title} has no columns", culprit=frame)
    if table is None:
        raise InputError(
            f"cannot read a table from {type(frame).__name__}; give a path, a URL, or a pandas, polars or Arrow frame",
            culprit=frame,
        )
    refuse_repeats(table.column_names, title)
    return Frame(table, title)


def _arrow_table(frame: Any, library: str) -> pa.Table | None:  # noqa: ANN401  (a frame of any library)
    """The frame as an Arrow table, by the interface that libraries of frames share; None where it is no frame."""
    name = type(frame).__name__
    if (library, name) == ("polars", "LazyFrame"):
        frame = frame.collect()
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if (library, name) == ("pandas", "DataFrame"):
        refuse_repeats([str(each) for each in frame.columns], "the pandas frame")
        return pa.Table.from_pandas(frame, preserve_index=False)
    stream = getattr(frame, "__arrow_c_stream__", None)
    return None if stream is None or name == "Series" else pa.table(frame)


_KINDS = {
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID", "DATE", '"NULL"'), ColumnKind.TEXT),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ColumnKind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), ColumnKind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), ColumnKind.REAL),
    "BOOLEAN": ColumnKind.BOOLEAN,
}
_CODE_TYPES = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER"}


class DuckDialect:
    """DuckDB's SQL."""

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def string(self, value: str) -> str:
        """A text literal."""
        return quoted(value)

    def text(self, expression: str) -> str:
        """Text; its comparison is bytewise already."""
        return f"CAST({expression} AS VARCHAR)"

    def telling(self, column: Column) -> str:
        """Its text: numbers are spelled with all digits that they have."""
        return self.text(self.name(column.name))

    def double(self, expression: str) -> str:
        """A double."""
        return f"CAST({expression} AS DOUBLE)"

    def integer(self, expression: str) -> str:
        """A signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """The smallest unsigned integer."""
        return f"CAST({expression} AS {_CODE_TYPES[smallest_bits(cells)]})"

    def matches(self, expression: str, pattern: str) -> str:
        """RE2, whole text."""
        return f"regexp_full_match({expression}, {quoted(pattern)})"

    def is_nan(self, expression: str) -> str:
        """NaN test."""
        return f"isnan({expression})"

    def digest(self, expression: str) -> str:
        """MD5."""
        return f"md5({expression})"

    def sha256(self, expression: str) -> str:
        """SHA-256."""
        return f"sha256({expression})"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """The engine's own randomness."""
        del columns, salt
        return "RANDOM()"

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from an MD5."""
        first, second = (f"CAST('0x' || substr({digest}, {start}, 15) AS BIGINT)" for start in (1, 17))
        return first, second

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """A cast to an ENUM is a hash look-up; booleans have several spellings and take CASE."""
        if list(codes.values()) == list(range(len(codes))):
            return f"enum_code(TRY_CAST({expression} AS ENUM({', '.join(map(quoted, codes))})))"
        cases = " ".join(f"WHEN {quoted(text)} THEN {code}" for text, code in codes.items())
        return f"CASE {expression} {cases} END"


DIALECT = DuckDialect()


def column(name: str, kind: str) -> Column:
    """A column as DESCRIBE names its type."""
    return Column(
        name,
        _KINDS.get(kind.partition("(")[0], ColumnKind.OTHER) if not kind.endswith("[]") else ColumnKind.OTHER,
        kind,
    )
