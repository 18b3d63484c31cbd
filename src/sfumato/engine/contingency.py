"""Which contingency tables to tally so that many marginals come out of one pass.

Adding a row to a table costs about the same whether the table has 3 attributes or 6, so one table over
the union of several cliques is tallied in their place, as long as it fits the processor's caches.  The
cliques are then sums over axes of these covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engine.port import Counts
from sfumato.errors import SizeError

if TYPE_CHECKING:
    import pyarrow as pa

_Clique = tuple[int, ...]

COVER_CELLS = 1 << 15  # measured: larger covers are fewer, but each batch finds them cold in the caches
TOTAL_CELLS = 1 << 27  # 1 GiB of counters, and as much again for what is returned
_WINDOW = 4096  # cliques looked at when a cover grows: planning must cost less than tallying


@dataclass(frozen=True)
class CoverPlan:
    """Covers to tally, and how each clique is read off one of them.

    Attributes:
        shape: cells of every attribute of the domain.
        cliques: wanted marginals, as positions in ``shape``.
        covers: increasing positions; the tables that are tallied.
        source: for each clique, the index of the cover that contains it.
    """

    shape: tuple[int, ...]
    cliques: tuple[_Clique, ...]
    covers: tuple[_Clique, ...]
    source: tuple[int, ...]

    def cells(self, cover: int) -> int:
        """Number of cells of a cover."""
        return math.prod(self.shape[axis] for axis in self.covers[cover])

    def project(self, tables: Sequence[Counts]) -> tuple[Counts, ...]:
        """The marginals, flat in C order in the order of ``cliques``, from one flat table a cover."""
        return tuple(
            marginal(tables[index], self.covers[index], clique, self.shape)
            for clique, index in zip(self.cliques, self.source, strict=True)
        )


def marginal(table: Counts, cover: _Clique, clique: _Clique, shape: Sequence[int]) -> Counts:
    """Sum a flat table over ``cover`` to the axes of ``clique``, in the clique's own order."""
    cube = table.reshape([shape[axis] for axis in cover])
    summed = cube.sum(axis=tuple(place for place, axis in enumerate(cover) if axis not in clique))
    kept = [axis for axis in cover if axis in clique]
    return np.ascontiguousarray(summed.transpose([kept.index(axis) for axis in clique])).reshape(-1)


def plan_covers(cliques: Iterable[_Clique], shape: Sequence[int], *, cover_cells: int = COVER_CELLS) -> CoverPlan:
    """Choose covers for ``cliques`` over attributes of ``shape`` cells.

    Args:
        cliques: wanted marginals, as positions in ``shape``.
        shape: cells of every attribute.
        cover_cells: cells of a cover, at most, unless a clique alone has more.

    Raises:
        SizeError: the marginals themselves need more than ``TOTAL_CELLS`` counters.

    >>> plan_covers([(0, 1), (1, 2), (2, 0)], (2, 3, 4)).covers
    ((0, 1, 2),)
    """
    wanted = tuple(cliques)
    shape = tuple(shape)
    total = sum(math.prod(shape[axis] for axis in clique) for clique in wanted)
    if total > TOTAL_CELLS:
        raise SizeError(
            f"these marginals have {total:,} cells, more than the {TOTAL_CELLS:,} that are counted at once; "
            "ask for fewer or smaller ones",
            culprit=wanted,
        )
    limit = cover_cells
    while True:
        covers = _covers({frozenset(clique) for clique in wanted}, shape, limit)
        if limit <= 1 or sum(math.prod(shape[axis] for axis in cover) for cover in covers) <= TOTAL_CELLS:
            break
        limit //= 4
    return CoverPlan(shape, wanted, covers, _sources(wanted, covers))


def _covers(cliques: set[frozenset[int]], shape: tuple[int, ...], limit: int) -> tuple[_Clique, ...]:
    """Grow the largest uncovered clique by the attribute that covers most others, until nothing fits."""
    order = sorted(cliques, key=lambda clique: (-math.prod(shape[axis] for axis in clique), sorted(clique)))
    member = np.zeros((len(order), len(shape)), dtype=np.int16)  # (cliques, attributes)
    for row, clique in enumerate(order):
        member[row, list(clique)] = 1
    sizes = np.asarray(shape, dtype=np.float64)
    covers = []
    while len(member):
        inside = member[0].astype(bool)
        while True:
            near = member[:_WINDOW]
            outside = near[near[:, ~inside].sum(axis=1) == 1]  # cliques that one more attribute completes
            gain = np.where(inside, 0, outside.sum(axis=0))
            gain[sizes * sizes[inside].prod() > limit] = 0
            if not gain.any():
                break
            inside[np.lexsort((sizes, -gain))[0]] = True
        covers.append(tuple(int(axis) for axis in np.flatnonzero(inside)))
        member = member[member[:, ~inside].any(axis=1)]
    return tuple(sorted(covers))


def _sources(cliques: tuple[_Clique, ...], covers: tuple[_Clique, ...]) -> tuple[int, ...]:
    """The smallest cover that contains each clique; covers are few enough to look at all."""
    member = [frozenset(cover) for cover in covers]
    by_axis: dict[int, set[int]] = {}
    for index, cover in enumerate(covers):
        for axis in cover:
            by_axis.setdefault(axis, set()).add(index)
    found = []
    for clique in cliques:
        candidates = set.intersection(*(by_axis[axis] for axis in clique)) if clique else set(range(len(covers)))
        found.append(min(candidates, key=lambda index: len(member[index])))
    return tuple(found)


_Codes = NDArray[np.unsignedinteger]

_UNUSED = np.empty(0, dtype=np.uint8)
_SLICE = 1 << 15  # rows at a time, so that their keys stay in the second-level cache


class CoverCounts:
    """Running counts of the covers of a plan; tallies of disjoint rows add up."""

    def __init__(self, plan: CoverPlan) -> None:
        self._plan = plan
        self._used = sorted({axis for cover in plan.covers for axis in cover})
        # Keys fit 32 bits (``plan.TOTAL_CELLS``), which multiply twice as fast; indexing wants them wide again.
        self._wide = np.empty((len(plan.shape), _SLICE), dtype=np.int32)
        self._keys = np.empty((max(map(len, plan.covers), default=0), _SLICE), dtype=np.int32)
        self._index = np.empty(_SLICE, dtype=np.intp)
        self.tables: list[Counts] = [np.zeros(plan.cells(cover), dtype=np.int64) for cover in range(len(plan.covers))]

    def add(self, columns: Sequence[_Codes], rows: int) -> None:
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
        columns: list[_Codes] = [_UNUSED] * len(self._plan.shape)
        for place, axis in enumerate(axes):
            columns[axis] = batch.column(place).to_numpy()
        self.add(columns, batch.num_rows)

    def _add(self, columns: Sequence[_Codes], rows: int) -> None:
        for axis in self._used:
            self._wide[axis, :rows] = columns[axis]
        previous: _Clique = ()
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


def _shared(left: _Clique, right: _Clique) -> int:
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
