"""One way in: a path, a URL or a frame becomes a table."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sfumato.domain import CsvFormat
from sfumato.engine.csv_file import CsvFile, csv_file
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import (
    CSV_SUFFIXES,
    PARQUET_SUFFIXES,
    Stamps,
    literal_path,
    quoted,
    refuse_repeats,
    shown,
    stamps,
)
from sfumato.errors import InputError, TableError

_DATABASES = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mariadb"}


def open_table(source: object, *, csv: CsvFormat | None = None, empty: bool = False) -> ProtectedTable:
    """Open a protected table where it lies; for its owner, as messages tell whether it has rows.

    Args:
        source: the path of a CSV (.csv, .tsv, also .gz) or Parquet file, a directory of Parquet files, a
            pattern of them; a pandas, polars or Arrow frame, which is never changed; a URL such as
            ``postgresql://user:password@host/database?table=people`` (also postgres, mysql, mariadb); ``spark:PATH`` of
            Parquet or CSV, ``spark:NAME`` of a table in Spark's catalogue, a Spark DataFrame; or a table that is open.
        csv: how a CSV file is written, as its domain says; without, as usual for its name.
        empty: whether it may be without rows, where it is one of several.

    Raises:
        InputError: the source is none of these.
        EngineError: the database does not answer, or gives no permission.
        TableError: it cannot be read, has no rows though it should, or has two columns of one name.
    """
    from sfumato.engine.duckdb.duck_table import DuckTable

    # a lazy frame is not asked whether it has the parts of a table: one of them is its schema, which takes long
    if not type(source).__module__.startswith("polars.") and isinstance(source, ProtectedTable):
        return source
    if type(source).__module__.startswith("pyspark.") and type(source).__name__ == "DataFrame":
        from sfumato.engine.spark.spark_table import SparkTable

        if type(source).__module__.startswith("pyspark.sql.connect"):
            raise InputError("a Spark Connect frame has no executors to tally on; give one of a classic session")
        return SparkTable(source, "the Spark frame", empty=empty)
    if isinstance(source, str) and not source.strip():
        raise InputError("name a table: a file, a URL or a frame", culprit=source)
    if not isinstance(source, str | Path):
        return DuckTable(frame_source(source), empty=empty)
    if str(source).startswith("spark:"):
        from sfumato.engine.spark.spark_table import spark_table

        return spark_table(str(source), csv, empty=empty)
    scheme, separator, place = str(source).partition("://")
    kind, colon, _ = str(source).partition(":")
    if kind in _DATABASES and colon and not separator:  # for a path it would be shown whole, with its password
        raise InputError(f"a database URL begins with {kind}://", culprit=kind)
    if scheme in _DATABASES and separator:
        from sfumato.engine.sql.sql_table import SqlTable

        return SqlTable(f"{_DATABASES[scheme]}://{place}", empty=empty)
    if separator:
        raise InputError(
            f"cannot open a table by a URL of scheme {scheme!r}; {', '.join(_DATABASES)} are known, and spark:PATH",
            culprit=shown(source),
        )
    return DuckTable(file_source(source, csv), empty=empty)


def same_place(one: str, other: str) -> bool:
    """Whether two sources share a file, by whatever name, or are one table at one address, however that is spelled.

    Users, passwords and options that lead nowhere make no difference; aliases of a host are not seen through.
    """
    files = [{stamp[-2:] for stamp in stamps(each.removeprefix("spark:"))} for each in (one, other)]
    if any(files):
        return bool(files[0] & files[1])
    if shown(one) == shown(other):
        return True
    schemes = {each.partition("://")[0] for each in (one, other) if "://" in each}
    if len(schemes) == 0 or not schemes <= set(_DATABASES) or not all("://" in each for each in (one, other)):
        return False
    from sfumato.engine.sql.addresses import place_of

    places = [place_of(each) for each in (one, other)]
    return places[0] is not None and places[0] == places[1]


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files that match a pattern; ``format`` says how numbers are spelled in text that came from a CSV file."""

    pattern: str
    format: CsvFormat | None = None

    @property
    def title(self) -> str:
        """The pattern."""
        return self.pattern

    @property
    def form(self) -> str:
        """Parquet says of itself how it is read."""
        return "parquet"

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
    format: CsvFormat | None = None

    @property
    def form(self) -> str:
        """None: it has no bytes of a file."""
        return ""

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
                raise TableError(
                    f"{text} is a directory without .parquet files; of a folder of several tables name the schema",
                    culprit=path,
                )
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
