"""UCI Adult as the published anonymisation experiments count it: rows without ``?``, as tuples and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato import data
from sfumato.anonymize.builders import flat, intervals, mapping
from sfumato.anonymize.hierarchy import Hierarchy
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.space import Intervals
from sfumato.errors import TableError

AGES = (17, 90)
EDUCATION = (1, 16)
UNKNOWN = ("?", "(other)")  # as the file and the census write it
MARITAL = {
    "Never-married": "Never-married",
    "Married-civ-spouse": "Married",
    "Married-AF-spouse": "Married",
    "Divorced": "Leave",
    "Separated": "Leave",
    "Widowed": "Alone",
    "Married-spouse-absent": "Alone",
}


STAND_IN = (
    "UCI Adult could not be fetched, so every figure below is of the bundled synthetic census. The published figures"
    " that these notes name, and the last digits of the tables, come out on the real file only: name it with --data."
)


def available(path: Path | None) -> tuple[pa.Table, tuple[str, ...]]:
    """Rows that lack no value, and what to say about them first.

    They are of the file that is named, or else of UCI Adult as it is fetched, or else, where it cannot be, of the
    bundled synthetic census.

    Raises:
        TableError: a file was named and cannot be read.
    """
    if path is not None:
        return complete_rows(data.adult(path)), ()
    try:
        return complete_rows(data.adult()), ()
    except TableError:
        return complete_rows(data.census()), (STAND_IN,)


def complete_rows(table: pa.Table) -> pa.Table:
    """The rows that lack no value: 30 162 of the training file."""
    kept = np.ones(len(table), dtype=bool)
    for column in table.columns:
        if pa.types.is_string(column.type):
            kept &= np.array([value not in UNKNOWN for value in column.to_pylist()])
    return table.filter(pa.array(kept))


def tuples(rows: pa.Table, labels: Mapping[str, Sequence[str]]) -> Microdata:
    """Rows counted over the named columns, coded by these labels."""
    columns = []
    for name, known in labels.items():
        place = {label: code for code, label in enumerate(known)}
        columns.append([place[str(value)] for value in rows[name].to_pylist()])
    codes, counts = np.unique(np.array(columns).T, axis=0, return_counts=True)
    return Microdata(quasi=tuple(labels), codes=codes, counts=counts)


def published_hierarchies(rows: pa.Table) -> tuple[Hierarchy, ...]:
    """Age, gender, race and marital status with the levels of the published experiment."""
    return (
        intervals("age", *AGES, widths=(5, 10, 20)),
        flat("gender", sorted(set(rows["gender"].to_pylist()))),
        flat("race", sorted(set(rows["race"].to_pylist()))),
        mapping("marital_status", [MARITAL]),
    )


def numbers(minimum: int, maximum: int) -> Intervals:
    """Free intervals of whole numbers."""
    values = range(minimum, maximum + 1)
    return Intervals(tuple(map(str, values)), np.array(values, dtype=np.float64), float(maximum - minimum))


def coded(values: Sequence[str]) -> Intervals:
    """Categories by integer code, in this order."""
    return Intervals(tuple(values), np.arange(len(values), dtype=np.float64), float(len(values) - 1))
