"""Published tables for labs: columns scaled to [-1, 1], and UCI Adult as the anonymisation experiments count it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato import data
from sfumato.anonymize.clustering.space import Intervals
from sfumato.anonymize.hierarchy.builders import flat, intervals, mapping
from sfumato.anonymize.hierarchy.levels import Hierarchy
from sfumato.anonymize.microdata import Microdata
from sfumato.domain import Attribute, Domain, Integer, Unit, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import InputError, TableError
from sfumato.evaluate.released import open_rows

Floats = NDArray[np.float64]
Bounds = tuple[int, int]

_CENSUS = "census.parquet"


def scaled(source: str | Path | None, columns: Mapping[str, Bounds | None]) -> Floats:
    """Whole-number columns of a published table, each scaled from its bounds to [-1, 1]; ``(rows, columns)``.

    Rows where one of them is missing, no whole number or out of bounds are left out.  Bounds that are not given are
    read off the data, which a release must not do, and a lab on published data may.

    Args:
        source: a file or the URL of a database table; the bundled census without.
        columns: names of the columns with their bounds, both inclusive.

    Raises:
        InputError: no source, and no census is bundled with this installation.
        TableError: the table cannot be read or lacks a column of whole numbers.
    """
    where = str(source) if source is not None else _bundled()
    found = {profile.column.name: profile for profile in open_table(where).profile(distinct_limit=1)}
    attributes: list[Attribute] = []
    for name, bounds in columns.items():
        if name not in found:
            raise TableError(f"the table has no column {name!r}", culprit=where)
        low, high = bounds or (found[name].minimum, found[name].maximum)
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            raise TableError(f"the column {name!r} does not hold numbers", culprit=where)
        attributes.append(Integer(name=name, minimum=int(low), maximum=int(high), unknown=Unknown.DROP))
    rows = open_rows(where, Domain(tuple(attributes), Unit.row()))
    ends = np.array(rows.domain.shape) - 1
    values: Floats = 2 * rows.codes / np.maximum(ends, 1) - 1
    return values


def _bundled() -> str:
    census = resources.files("sfumato.data").joinpath(_CENSUS)
    if not census.is_file():
        raise InputError("no census is bundled with this installation: name a table such as UCI Adult with --data")
    return str(census)


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
