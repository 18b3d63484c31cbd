"""Which contingency tables to tally so that many marginals come out of one pass.

Adding a row to a table costs about the same whether the table has 3 attributes or 6, so one table over
the union of several cliques is tallied in their place, as long as it fits the processor's caches.  The
cliques are then sums over axes of these covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError

Counts = NDArray[np.int64]
Clique = tuple[int, ...]

COVER_CELLS = 1 << 15  # measured: larger covers are fewer, but each batch finds them cold in the caches
TOTAL_CELLS = 1 << 27  # 1 GiB of counters, and as much again for what is returned
_WINDOW = 4096  # cliques looked at when a cover grows: planning must cost less than tallying


@dataclass(frozen=True)
class Plan:
    """Covers to tally, and how each clique is read off one of them.

    Attributes:
        shape: cells of every attribute of the domain.
        cliques: wanted marginals, as positions in ``shape``.
        covers: increasing positions; the tables that are tallied.
        source: for each clique, the index of the cover that contains it.
    """

    shape: tuple[int, ...]
    cliques: tuple[Clique, ...]
    covers: tuple[Clique, ...]
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


def marginal(table: Counts, cover: Clique, clique: Clique, shape: Sequence[int]) -> Counts:
    """Sum a flat table over ``cover`` to the axes of ``clique``, in the clique's own order."""
    cube = table.reshape([shape[axis] for axis in cover])
    summed = cube.sum(axis=tuple(place for place, axis in enumerate(cover) if axis not in clique))
    kept = [axis for axis in cover if axis in clique]
    return np.ascontiguousarray(summed.transpose([kept.index(axis) for axis in clique])).reshape(-1)


def plan(cliques: Iterable[Clique], shape: Sequence[int], *, cover_cells: int = COVER_CELLS) -> Plan:
    """Choose covers for ``cliques`` over attributes of ``shape`` cells.

    Args:
        cliques: wanted marginals, as positions in ``shape``.
        shape: cells of every attribute.
        cover_cells: cells of a cover, at most, unless a clique alone has more.

    Raises:
        SizeError: the marginals themselves need more than ``TOTAL_CELLS`` counters.

    >>> plan([(0, 1), (1, 2), (2, 0)], (2, 3, 4)).covers
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
    return Plan(shape, wanted, covers, _sources(wanted, covers))


def _covers(cliques: set[frozenset[int]], shape: tuple[int, ...], limit: int) -> tuple[Clique, ...]:
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


def _sources(cliques: tuple[Clique, ...], covers: tuple[Clique, ...]) -> tuple[int, ...]:
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
