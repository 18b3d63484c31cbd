"""Columns of published tables for labs: read through the engine, from CSV, Parquet or a database."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Domain, Integer, Unit, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import InputError, TableError
from sfumato.evaluate.rows import open_rows

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
