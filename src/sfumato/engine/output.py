"""Files that are complete or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sfumato.errors import InputError, TableError

SUFFIXES = (".csv", ".parquet")
BATCH_ROWS = 1 << 17


@contextmanager
def complete(out: Path) -> Iterator[Path]:
    """Where to write first: what stands there takes the place of ``out`` at the end, and vanishes on failure.

    Raises:
        InputError: the name does not say which format, or its directory does not exist.
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
    """Write batches as they come.

    Raises:
        TableError: a column is of a type that such a file does not hold.
    """
    try:
        with complete(out) as part, _writer(part, schema) as file:
            for batch in batches:
                file.write_batch(batch)
    except pa.ArrowNotImplementedError:
        message = f"a column is of a type that {out.suffix} does not hold; store it as text, or leave it out"
        raise TableError(message, culprit=schema) from None


def read_labels(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The text columns ``names`` of a written file, in batches."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, read_dictionary=list(names)) as file:
            yield from file.iter_batches(columns=list(names), batch_size=BATCH_ROWS)
        return
    from pyarrow import csv

    options = csv.ConvertOptions(
        include_columns=list(names), column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    lines = csv.ParseOptions(newlines_in_values=True)  # a column that is kept may hold any text
    with csv.open_csv(path, parse_options=lines, convert_options=options) as reader:
        yield from reader


def _writer(path: Path, schema: pa.Schema) -> Any:  # noqa: ANN401 - Arrow's writers share no type
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        return pa_csv.CSVWriter(path, schema)
    # Text is read back as text, however it was encoded here.  Finding the least and the greatest label of a few costs
    # a third of the writing, and no reader skips anything by them in rows of random order.
    counted = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(path, schema, store_schema=False, write_statistics=counted)
