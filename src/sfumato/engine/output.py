"""Files that are complete or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sfumato.errors import InputError

SUFFIXES = (".csv", ".parquet")


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
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def write_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema, out: Path) -> None:
    """Write batches as they come."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter if out.suffix == ".parquet" else pa_csv.CSVWriter
    with complete(out) as part, writer(part, schema) as file:
        for batch in batches:
            file.write_batch(batch)
