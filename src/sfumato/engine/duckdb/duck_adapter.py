"""Files and frames, which DuckDB reads, and the adapter that opens them."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sfumato.domain import CsvFormat
from sfumato.domain.table_schema import SchemaTable
from sfumato.engine.adapter import EngineAdapter, ServedPlaces
from sfumato.engine.csv_file import CsvFile, csv_file
from sfumato.engine.duckdb.duck_session import DIALECT
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import (
    CSV_SUFFIXES,
    PARQUET_SUFFIXES,
    Stamps,
    literal_path,
    name_columns,
    quoted,
    stamps,
    table_files,
)
from sfumato.errors import InputError, TableError

if TYPE_CHECKING:
    from sfumato.engine.adapter import JoinEngine


class DuckAdapter(EngineAdapter):
    """DuckDB: files, and frames in memory.  It claims all sources that no other engine claims."""

    folder = "a folder"
    joinable_sources = "from files and frames"

    def claims(self, source: object) -> bool:
        """Return whether a source is no URL."""
        return not (isinstance(source, str) and "://" in source)

    def open(self, source: object, csv: CsvFormat | None, *, empty: bool) -> ProtectedTable:
        """See :class:`EngineAdapter`."""
        from sfumato.engine.duckdb.duck_table import DuckTable

        if isinstance(source, str) and not source.strip():
            raise InputError("name a table: a file, a URL or a frame", culprit=source)
        return DuckTable.open(
            file_source(source, csv) if isinstance(source, str) else frame_source(source), empty=empty
        )

    def place(self, table: SchemaTable, source: str) -> Path:
        """Return the only file or folder of a table in a folder of several."""
        try:
            return _in_folder(table, Path(source))
        except OSError as error:
            raise TableError(f"cannot read {source[:200]!r}: {error.strerror}", culprit=source) from None

    def join(self, tables: Mapping[str, ProtectedTable]) -> JoinEngine | None:
        """See :class:`EngineAdapter`."""
        from sfumato.engine.duckdb.duck_join import DuckJoin
        from sfumato.engine.duckdb.duck_table import DuckTable

        own = {name: table for name, table in tables.items() if isinstance(table, DuckTable)}
        return DuckJoin(own) if len(own) == len(tables) else None

    def path(self, source: str) -> str:
        """Return the address, which is a path."""
        return source

    def is_several(self, source: str) -> bool:
        """Return whether a path is a folder, unless the names in it show that it is one table in parts."""
        try:
            return Path(source).is_dir() and not any(_in_parts(each.name) for each in Path(source).iterdir())
        except OSError:  # for example, the name is too long; opening the file reports it
            return False

    def allowed(self, source: str, places: ServedPlaces) -> bool:
        """Return whether all files lie in named folders."""
        return places.hold(source)

    def open_copy(self, place: Path, title: str, csv: CsvFormat, *, empty: bool) -> ProtectedTable:
        """Open one Parquet file."""
        from sfumato.engine.duckdb.duck_table import DuckTable

        del title
        return DuckTable.open(ParquetFiles(literal_path(place), csv), empty=empty)


def _in_parts(name: str) -> bool:
    """Return whether a name in a folder shows that the folder is one table in parts, as clusters write them."""
    return name.startswith("part-") or "=" in name or name == "_SUCCESS"


def _in_folder(table: SchemaTable, folder: Path) -> Path:
    if folder.is_file():
        raise TableError(
            f"{folder} is a file; a schema is of several tables: name their folder, or the URL of their database",
            culprit=folder,
        )
    if not folder.is_dir():
        raise TableError(f"there is no folder {folder}", culprit=folder)
    parts = folder / table.name  # a folder of Parquet files
    found_files = [*table_files(folder, table.name), *([parts] if parts.exists() else [])]
    if len(found_files) != 1:
        names = " and ".join(file.name for file in found_files)
        raise TableError(
            f"{folder} has {names}: leave one"
            if names
            else f"{folder} has no file {table.name}.csv or {table.name}.parquet",
            culprit=table.name,
        )
    return found_files[0]


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files that match a pattern.

    The ``format`` is the notation of numbers in text that came from a CSV file.  The ``headers`` are the headers of all
    columns by their names; they are empty if every header is a name.
    """

    pattern: str
    format: CsvFormat | None = None
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        """The pattern."""
        return self.pattern

    @property
    def form(self) -> str:
        """The format ``parquet``; a Parquet file itself states the rest."""
        return "parquet"

    def relation(self, connection: Any) -> str:  # noqa: ANN401, ARG002 - part of the protocol
        """Return a ``read_parquet`` without columns made from directory names."""
        read = f"read_parquet({quoted(self.pattern)}, hive_partitioning=false)"
        if not self.headers:
            return read
        names = ", ".join(DIALECT.name(name) for name in self.headers)
        return f"(SELECT * FROM {read} AS positions({names})) AS renamed"  # noqa: S608 - every name in it is quoted

    def stamps(self) -> Stamps:
        """Return the stamps of every file that currently matches."""
        return stamps(self.pattern)


@dataclass(frozen=True, eq=False)
class Frame:
    """An Arrow table in memory."""

    table: pa.Table
    title: str
    format: CsvFormat | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """The empty text, because it has no bytes of a file."""
        return ""

    def relation(self, connection: Any) -> str:  # noqa: ANN401 - a duckdb connection, imported lazily
        """Return a view of the table, without copying it."""
        connection.register("sfumato_frame", self.table)
        return "sfumato_frame"

    def stamps(self) -> Stamps:
        """Return no stamps, because only this process writes to the table."""
        return ()


def file_source(path: str | Path, csv: CsvFormat | None = None) -> CsvFile | ParquetFiles:
    """Return the source at a path: a CSV or Parquet file, a directory of Parquet files, or a pattern of them.

    Raises:
        TableError: nothing is there, it cannot be read, or its content does not match its name.
        InputError: the name does not reveal the format.
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
    """Return the Parquet files that match a pattern.

    Raises:
        TableError: no file matches, or the first is not Parquet.
    """
    import pyarrow.parquet as pq

    first = min(glob.glob(pattern, recursive=True), default=None)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if first is None:
        raise TableError(f"no file matches {pattern}", culprit=pattern)
    try:
        names = pq.read_schema(first).names
    except (pa.ArrowInvalid, OSError):
        raise TableError(f"{first} is not a Parquet file", culprit=pattern) from None
    headers = name_columns(names)
    return ParquetFiles(pattern, headers=headers if list(headers) != names else {})


def frame_source(frame: object) -> Frame:
    """Return a frame of any library, a DuckDB relation or an Arrow dataset as an Arrow table; it is not changed.

    Raises:
        InputError: not a frame.
        TableError: a column that Arrow cannot hold, such as one of mixed types.
    """
    library = type(frame).__module__.partition(".")[0]
    title = f"the {library} frame"
    headers: dict[str, str] = {}
    try:
        if (library, type(frame).__name__) == ("pandas", "DataFrame"):
            frame, headers = _with_unique_names(_with_index(frame))
            frame = _with_texts_of_spans(frame)
        table = _arrow_table(frame, library)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise TableError(f"{title} has {_mixed_columns(frame)}", culprit=frame) from None
    except Exception as error:  # noqa: BLE001 - whatever another library raises may quote the table
        raise TableError(f"{title} cannot be read: {type(error).__name__}", culprit=frame) from None
    if table is not None and not table.num_columns:
        raise TableError(f"{title} has no columns", culprit=frame)
    if table is None:
        raise InputError(
            f"cannot read a table from {type(frame).__name__}; give a path, a URL, or a pandas, polars or Arrow frame",
            culprit=frame,
        )
    headers = headers or name_columns(table.column_names)
    return Frame(table.rename_columns(list(headers)), title, headers=headers)


def _mixed_columns(frame: Any) -> str:  # noqa: ANN401  (a frame of any library)
    """Return words for the columns with mixed types, which Arrow cannot hold, and a remedy."""
    mixed = []
    for name in getattr(frame, "columns", ()):
        try:
            pa.array(frame[name], from_pandas=True)
        except Exception:  # noqa: BLE001 - whatever another library raises may quote the table
            mixed.append(str(name))
    if not mixed:
        return "a column that mixes types"
    named = ", ".join(map(repr, mixed[:3]))  # the first few
    return f"a column that mixes types: {named}; make it text or numbers, such as frame[{mixed[0]!r}].astype('string')"


def _with_index(frame: Any) -> Any:  # noqa: ANN401  (a pandas frame)
    """Return a pandas frame with its named row labels as first columns; labels without a name are omitted."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    if not named:
        return frame
    labeled = frame.copy(deep=False)
    for place, name in enumerate(named):
        labeled.insert(place, name, frame.index.get_level_values(name))
    return labeled


def _with_unique_names(frame: Any) -> tuple[Any, dict[str, str]]:  # noqa: ANN401  (a pandas frame)
    """Return a pandas frame whose columns have unique names, without copying values, and the header of each name."""
    import pandas as pd

    blank = pd.isna(frame.columns) if frame.columns.nlevels == 1 else [False] * len(frame.columns)
    texts = ["" if each else str(name) for name, each in zip(frame.columns, blank, strict=True)]
    headers = name_columns(texts)
    if list(headers) == [str(name) for name in frame.columns]:
        return frame, headers
    renamed = frame.copy(deep=False)
    renamed.columns = list(headers)
    return renamed, headers


def _with_texts_of_spans(frame: Any) -> Any:  # noqa: ANN401  (a pandas frame)
    """Return a pandas frame whose periods and intervals are their texts, because Arrow has no type for them."""
    import pandas as pd

    spans = [
        name
        for name, kind in frame.dtypes.items()
        if isinstance(
            kind.categories.dtype if isinstance(kind, pd.CategoricalDtype) else kind, (pd.PeriodDtype, pd.IntervalDtype)
        )
    ]
    return frame.astype(dict.fromkeys(spans, "string")) if spans else frame


def _arrow_table(frame: Any, library: str) -> pa.Table | None:  # noqa: ANN401  (a frame of any library)
    """Return a frame as an Arrow table, by the common interface of frame libraries; None for any other value."""
    name = type(frame).__name__
    if (library, name) == ("polars", "LazyFrame"):
        frame = frame.collect()
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if library == "pyarrow" and hasattr(frame, "to_table"):  # a dataset of files
        return frame.to_table()
    if library.endswith("duckdb") and name == "DuckDBPyRelation":
        return frame.to_arrow_table()
    if (library, name) in (("narwhals", "DataFrame"), ("narwhals", "LazyFrame")):
        return _arrow_table(native := frame.to_native(), type(native).__module__.partition(".")[0])
    if (library, name) == ("pandas", "DataFrame"):
        return pa.Table.from_pandas(frame, preserve_index=False)
    stream = getattr(frame, "__arrow_c_stream__", None)
    return None if stream is None or name == "Series" else pa.table(frame)
