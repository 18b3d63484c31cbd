"""Adding encoded rows to many contingency tables at once: the inner loop of every engine in this process
and of every Spark executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.plan import Clique, Counts, Plan

Codes = NDArray[np.unsignedinteger]

_UNUSED = np.empty(0, dtype=np.uint8)
_SLICE = 1 << 15  # rows at a time, so that their keys stay in the second-level cache


class Tally:
    """Running counts of the covers of a plan; tallies of disjoint rows add up."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._used = sorted({axis for cover in plan.covers for axis in cover})
        # Keys fit 32 bits (``plan.TOTAL_CELLS``), which multiply twice as fast; indexing wants them wide again.
        self._wide = np.empty((len(plan.shape), _SLICE), dtype=np.int32)
        self._keys = np.empty((max(map(len, plan.covers), default=0), _SLICE), dtype=np.int32)
        self._index = np.empty(_SLICE, dtype=np.intp)
        self.tables: list[Counts] = [np.zeros(plan.cells(cover), dtype=np.int64) for cover in range(len(plan.covers))]

    def add(self, columns: Sequence[Codes], rows: int) -> None:
        """Count a batch of rows.

        Args:
            columns: one array of codes an attribute of the domain, each of shape ``(rows,)``; arrays of
                attributes that no cover uses are not looked at.
            rows: their number.
        """
        for start in range(0, rows, _SLICE):
            self._add([column[start : start + _SLICE] for column in columns], min(_SLICE, rows - start))

    def add_batch(self, batch: pa.RecordBatch, axes: Sequence[int]) -> None:
        """Count a batch that holds the codes of the attributes at ``axes``, all that the covers use."""
        columns: list[Codes] = [_UNUSED] * len(self._plan.shape)
        for place, axis in enumerate(axes):
            columns[axis] = batch.column(place).to_numpy()
        self.add(columns, batch.num_rows)

    def _add(self, columns: Sequence[Codes], rows: int) -> None:
        for axis in self._used:
            self._wide[axis, :rows] = columns[axis]
        previous: Clique = ()
        for table, cover in zip(self.tables, self._plan.covers, strict=True):
            if not cover:
                table[0] += rows
                continue
            # Covers are sorted, so neighbours share prefixes, whose mixed-radix keys are still there.
            for depth in range(_shared(previous, cover), len(cover)):
                axis = cover[depth]
                key = self._keys[depth, :rows]
                if depth == 0:
                    key[:] = self._wide[axis, :rows]
                else:
                    np.multiply(self._keys[depth - 1, :rows], self._plan.shape[axis], out=key)
                    key += self._wide[axis, :rows]
            self._index[:rows] = self._keys[len(cover) - 1, :rows]
            np.add.at(table, self._index[:rows], 1)  # in place: bincount would allocate a table
            previous = cover

    def merge(self, tables: Sequence[Counts]) -> None:
        """Add the tables of another tally of the same plan."""
        for mine, other in zip(self.tables, tables, strict=True):
            np.add(mine, other, out=mine)


def _shared(left: Clique, right: Clique) -> int:
    """Length of the common prefix."""
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


def totals(cells: NDArray[np.integer[Any]], size: int, weights: NDArray[np.integer[Any]] | None = None) -> Counts:
    """Sum of integer ``weights`` (ones without them) over the rows of each cell, exactly: shape ``(size,)``.

    >>> totals(np.array([0, 2, 2]), 3, np.array([5, 1, -7])).tolist()
    [5, 0, -6]
    """
    found = np.zeros(size, dtype=np.int64)
    for start in range(0, len(cells), _SLICE):
        rows = slice(start, start + _SLICE)
        # adding in place is fast for these two types only
        index = cells[rows].astype(np.intp, copy=False)
        np.add.at(found, index, 1 if weights is None else weights[rows].astype(np.int64, copy=False))
    return found
