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

AGES = (17, 90)
EDUCATION = (1, 16)
MARITAL = {
    "Never-married": "Never-married",
    "Married-civ-spouse": "Married",
    "Married-AF-spouse": "Married",
    "Divorced": "Leave",
    "Separated": "Leave",
    "Widowed": "Alone",
    "Married-spouse-absent": "Alone",
}


def complete_rows(path: Path | None) -> pa.Table:
    """The 30 162 rows of the training file that lack no value.

    Raises:
        TableError: the file cannot be read or fetched.
    """
    table = data.adult(path)
    kept = np.ones(len(table), dtype=bool)
    for column in table.columns:
        if pa.types.is_string(column.type):
            kept &= np.array([value != "?" for value in column.to_pylist()])
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
