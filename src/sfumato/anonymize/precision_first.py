"""Classes of a hierarchy's cells, the finest first: a start for local search where attributes have hierarchies.

Full-domain recodings are taken in order of their loss.  At each, the rows that still need a class get one wherever k
of them share a cell; the others wait for a coarser recoding.
"""

from __future__ import annotations

import itertools

import numpy as np

from sfumato.anonymize.clusters import Clusters
from sfumato.anonymize.packing import group, pack
from sfumato.anonymize.space import HierarchyCells, Space

NODES = 10_000  # recodings that are tried at most


def found(clusters: Clusters) -> None:
    """Make classes of cells that hold k rows in need; nothing where an attribute has no hierarchy.

    Rows of no such cell still need a class afterwards.
    """
    space = clusters.space
    scales = [scale for scale in space.scales if isinstance(scale, HierarchyCells)]
    if len(scales) < len(space.scales):
        return
    cells = [
        [level.cells[codes][points] for level in scale.hierarchy.levels]
        for scale, codes, points in zip(scales, space.codes, space.points.T, strict=True)
    ]
    losses = _losses(space, scales)
    vectors = itertools.islice(itertools.product(*(range(len(levels)) for levels in cells)), NODES)

    def lost(vector: tuple[int, ...]) -> float:
        return sum(loss[level] for loss, level in zip(losses, vector, strict=True))

    for vector in sorted(vectors, key=lost):
        waiting = np.flatnonzero(clusters.need)
        columns = [levels[level][waiting] for levels, level in zip(cells, vector, strict=True)]
        grouping = group(pack(columns, [int(column.max(initial=0)) + 1 for column in columns]))
        rows = grouping.sums(clusters.need[waiting])
        for number in np.flatnonzero(rows >= clusters.k):
            members = waiting[grouping.classes == number]
            clusters.add(clusters.cluster({int(each): int(clusters.need[each]) for each in members}))
            clusters.need[members] = 0


def _losses(space: Space, scales: list[HierarchyCells]) -> list[list[float]]:
    """Loss of each level of each attribute over all rows."""
    return [
        [float(space.counts @ level.losses[level.cells[codes]][points]) for level in scale.hierarchy.levels]
        for scale, codes, points in zip(scales, space.codes, space.points.T, strict=True)
    ]
