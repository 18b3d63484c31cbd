"""From a recoding to what the engine does with rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.partition import Partition
from sfumato.anonymize.recoding import FullDomain, Local, codes_as_saved
from sfumato.engine.port import Recode

Integers = NDArray[np.int64]


def of_full_domain(recoding: FullDomain, labels: Sequence[Sequence[str]]) -> Recode:
    """Level maps and kept classes, over a table whose codes have these labels."""
    saved = codes_as_saved(recoding, labels)
    return Recode(
        attributes=recoding.quasi,
        levels=tuple(cells[codes].astype(np.uint32) for cells, codes in zip(recoding.cells, saved, strict=True)),
        classes=recoding.kept.astype(np.uint32),
        labels=_table(
            recoding.quasi,
            [[names[cell] for cell in column] for names, column in zip(recoding.labels, recoding.kept.T, strict=True)],
        ),
    )


def of_partition(data: Microdata, partition: Partition, names: Sequence[Sequence[str]], sizes: Sequence[int]) -> Recode:
    """Every tuple as it is, with the classes that its rows are dealt to and how many go to each.

    Args:
        data: the table.
        partition: its rows, divided.
        names: what each class is published with, one label an attribute.
        sizes: number of codes of each attribute.
    """
    columns = list(zip(*names, strict=True))
    whole = bool(np.all(np.bincount(partition.tuples, minlength=len(data.counts)) <= 1))
    return Recode(
        attributes=data.quasi,
        levels=tuple(np.arange(size, dtype=np.uint32) for size in sizes),
        classes=data.codes[partition.tuples].astype(np.uint32),
        labels=_table(data.quasi, [[column[number] for number in partition.classes] for column in columns]),
        rows=None if whole else partition.rows,
    )


def for_new_rows(recoding: Local, data: Microdata, labels: Sequence[Sequence[str]]) -> tuple[Recode, Integers]:
    """Each tuple of another table goes to the smallest class whose box holds it; others to none.

    Returns the rewriting, and the class that each of its listed tuples goes to.
    """
    saved = codes_as_saved(recoding, labels)
    points = np.stack(
        [ranks[codes[column]] for ranks, codes, column in zip(recoding.ranks, saved, data.codes.T, strict=True)], axis=1
    )
    volume = np.prod(1.0 + recoding.high - recoding.low, axis=1)
    order = np.argsort(volume, kind="stable")
    chosen = np.full(len(points), -1)
    for number in order:
        inside = ((points >= recoding.low[number]) & (points <= recoding.high[number])).all(axis=1)
        chosen[inside & (chosen < 0)] = number
    held = np.flatnonzero(chosen >= 0)
    recode = Recode(
        attributes=data.quasi,
        levels=tuple(np.arange(len(here), dtype=np.uint32) for here in labels),
        classes=data.codes[held].astype(np.uint32),
        labels=_table(
            data.quasi,
            [[recoding.names[number][attribute] for number in chosen[held]] for attribute in range(len(data.quasi))],
        ),
    )
    return recode, chosen[held]


def _table(quasi: Sequence[str], columns: Sequence[Sequence[str]]) -> pa.Table:
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(quasi, columns, strict=True)})
