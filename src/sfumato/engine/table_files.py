"""Files of tables: their names in messages, the detection of changes, names of their content, and new files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from sfumato.errors import InputError, TableError

if TYPE_CHECKING:
    import pyarrow as pa


def redacted_source(source: object) -> str:
    """Return the address of a table without user, password and options; a path stays unchanged.

    If an unusual password hides the start of the host, only the scheme is returned.

    >>> redacted_source("postgresql://ann:secret@db.example/census?table=people&sslpassword=secret")
    'postgresql://db.example/census?table=people'
    >>> redacted_source("spark:people.parquet"), redacted_source("mysql://ann:what?@db/census?table=people")
    ('spark:people.parquet', 'mysql://...')
    """
    scheme, separator, rest = str(source).partition("://")
    if not separator:
        return str(source)
    login, _, place = rest.rpartition("@")
    if "?" in login:
        return f"{scheme}://..."
    place, _, options = place.partition("?")
    tables = parse_qs(options).get("table", ())
    return f"{scheme}://{place}" + "".join(f"?table={table}" for table in tables[:1])


CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
Stamps = tuple[tuple[str, int, int, int, int, int], ...]


def stamps(source: str) -> Stamps:
    """Return name, size, times and number of every file of a source; empty if it is not made of files on this machine.

    Equal stamps mean that no file was written, replaced, added or removed.
    """
    if "://" in source:
        return ()
    one = _stamp(source)
    if one is not None and stat.S_ISREG(one[0]):  # the most common case: a server checks it before every query
        return (one[1],)
    pattern = source if one is None else f"{literal_path(Path(source))}/*.parquet"
    every = map(_stamp, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    return tuple(sorted(each[1] for each in every if each is not None))


class Content:
    """The content of tables.

    Reading the bytes of files takes a tenth of the time of reading their rows.  So callers who know both names of a
    content compare the names of the files first.

    Attributes:
        files: a name of the bytes of all files and of their format; empty if tables are not made of files.
    """

    def __init__(self, name: Callable[[], str], *, files: str = "") -> None:
        """Take the function that names rows and columns; it may take long, and runs on demand."""
        self._name = name
        self.files = files

    @cached_property
    def name(self) -> str:
        """The name of all rows and columns.

        Raises:
            EngineError: a table was written since it was read.
        """
        return self._name()


def bytes_name(files: Iterable[str], form: str) -> str:
    """Name the bytes of files, in any order and under any names.

    Args:
        files: their paths.
        form: the format of the bytes.
    """
    digests = []
    for file in files:
        with Path(file).open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return hashlib.sha256(json.dumps([form, sorted(digests)]).encode()).hexdigest() if digests else ""


def table_name(file: Path) -> str:
    """Return the name of a table in a folder: its file without the ending, which may be in capitals.

    >>> table_name(Path("hospital/PATIENTS.CSV.GZ")), table_name(Path("notes.md"))
    ('PATIENTS', 'notes.md')
    """
    name = file.name
    endings = [each for each in (*CSV_SUFFIXES, *PARQUET_SUFFIXES) if name.lower().endswith(each)]
    return name[: -max(map(len, endings))] if endings else name


def table_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a table in a folder, by its name with an ending in small letters or capitals.

    Raises:
        TableError: the folder cannot be read.
    """
    try:
        listed = sorted(folder.iterdir())
    except OSError as error:
        raise TableError(f"{folder} cannot be read: {error.strerror}", culprit=folder) from None
    return [file for file in listed if file.name != name and table_name(file) == name and file.is_file()]


def name_columns(headers: Sequence[str]) -> dict[str, str]:
    """Return a unique name for each header of a table, in order, with the header.

    A non-blank header is the name at its first occurrence.  A blank header of the first column becomes ``row``, and
    another one ``column_`` with its position.  A repeated header gets a number.  Engines ignore case, so headers that
    differ in case only are equal.

    >>> name_columns(["", "x", "X", "", "x_2"])
    {'row': '', 'x': 'x', 'X_3': 'X', 'column_4': '', 'x_2': 'x_2'}
    """
    taken = {header.casefold() for header in headers}
    free = taken - {""}  # headers that no column uses as its name yet
    named: dict[str, str] = {}
    for position, header in enumerate(headers, 1):
        name = header or ("row" if position == 1 else f"column_{position}")
        if header.casefold() in free:
            free.remove(header.casefold())
        else:
            candidates = chain([name], (f"{name}_{number}" for number in count(2)))
            name = next(each for each in candidates if each.casefold() not in taken)
            taken.add(name.casefold())
        named[name] = header
    return named


def _stamp(name: str) -> tuple[int, tuple[str, int, int, int, int, int]] | None:
    """Return mode and stamp of a file; None if there is none, or it was just deleted."""
    try:
        status = os.stat(name)  # noqa: PTH116  (a Path takes longer to make than to look up)
    except (OSError, ValueError):
        return None
    return status.st_mode, (name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino)


def literal_path(path: Path) -> str:
    """Return a path in which no character is a wildcard."""
    return glob.escape(str(path))


def quoted(text: str) -> str:
    """Return a DuckDB text literal."""
    return "'" + text.replace("'", "''") + "'"


SUFFIXES = (".csv", ".parquet")
BATCH_ROWS = 1 << 17


@contextmanager
def complete(out: Path) -> Iterator[Path]:
    """Provide a temporary path, which replaces ``out`` at the end and is removed on failure.

    Raises:
        InputError: the name has no known format, or its directory does not exist.
    """
    if out.suffix not in SUFFIXES:
        raise InputError(f"cannot write {out.name}; its name should end in .csv or .parquet", culprit=out)
    if not out.parent.is_dir():
        raise InputError(f"there is no directory {out.parent} to write {out.name} to", culprit=out)
    part = out.with_name(f".{os.getpid()}-{out.name}")
    try:
        yield part
        part.replace(out)
    finally:
        discard(part)


def discard(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema, out: Path) -> None:
    """Write batches one by one.

    Raises:
        TableError: a column is of a type that such a file does not hold.
    """
    import pyarrow as pa

    try:
        with complete(out) as part, _writer(part, schema) as file:
            for batch in batches:
                file.write_batch(batch)
    except pa.ArrowNotImplementedError:
        message = f"a column is of a type that {out.suffix} does not hold; store it as text, or leave it out"
        raise TableError(message, culprit=schema) from None


BLOCK_BYTES = 1 << 23  # bytes of a block of a CSV file; larger blocks repeat fewer labels


def read_labels(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the text columns ``names`` of a written file, in batches."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, read_dictionary=list(names)) as file:
            yield from file.iter_batches(columns=list(names), batch_size=BATCH_ROWS)
        return
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(
        include_columns=list(names), column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    lines = csv.ParseOptions(newlines_in_values=True)  # a raw column may hold any text
    blocks = csv.ReadOptions(block_size=BLOCK_BYTES)
    with csv.open_csv(path, read_options=blocks, parse_options=lines, convert_options=options) as reader:
        yield from reader


def _writer(path: Path, schema: pa.Schema) -> Any:  # noqa: ANN401 - Arrow's writers share no type
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        return pa_csv.CSVWriter(path, schema)
    # Text is read back as text, in any encoding.  Finding the smallest and the largest label takes
    # a third of the writing, and no reader can skip rows of random order by them.
    plain = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(path, schema, store_schema=False, write_statistics=plain)
