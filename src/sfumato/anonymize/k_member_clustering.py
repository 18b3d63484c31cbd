"""k-member clustering on weighted tuples (Byun et al. 2007), improved by local search.

Tuples with k rows or more stay whole and lend what they have beyond k.  A class grows by the box that adds
least loss for each row that it brings in, all rows inside the box together, until it has k rows.  Where all attributes
have hierarchies, cells that hold k rows become classes first, the finest ones first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfumato.anonymize import precision_first
from sfumato.anonymize.clusters import Clusters
from sfumato.anonymize.grower import Grower
from sfumato.anonymize.local_search import improve
from sfumato.anonymize.mondrian_cuts import Halves, Region, Rule, balanced, regions
from sfumato.anonymize.partition import Group, Partition
from sfumato.anonymize.space import Space

BLOCK = 2048  # larger tables are cut into blocks of at most so many tuples first


def partition(
    space: Space, *, k: int, effort: int, rng: np.random.Generator, watch: Callable[[str], None] | None = None
) -> Partition:
    """Classes of at least k rows with little loss: k-member, then local search.

    Args:
        space: the points; tables of more than ``BLOCK`` tuples are first cut into blocks by Mondrian, as the
            time grows with the square of the tuples.
        k: least rows of a class; at most the rows.
        effort: trials of the local search for each tuple with fewer than k rows.
        rng: source of the search's luck; no privacy depends on it.
        watch: told before each block which one it is and of how many.
    """

    def cut(space: Space, region: Region, rule: Rule) -> Halves | None:
        return balanced(space, region, rule) if len(region.tuples) > BLOCK else None

    blocks = regions(space, cutter=cut, rule=Rule(k))
    groups: list[Group] = []
    for number, block in enumerate(blocks, 1):
        if watch is not None:
            watch(f"block {number} of {len(blocks)}, {len(block.tuples)} distinct tuples")
        groups += _block(space, block, k, effort, rng)
    return Partition.of(groups)


def _block(space: Space, block: Region, k: int, effort: int, rng: np.random.Generator) -> list[Group]:
    clusters = Clusters(space.part(block.tuples, block.rows), k)
    precision_first.found(clusters)
    grower = Grower(clusters, rng)
    if not grower.place(np.flatnonzero(clusters.need).tolist(), noise=0.0):
        return [(block.tuples, block.rows)]
    clusters.settle()
    improve(grower, trials=effort * int(np.count_nonzero(block.rows < k)))
    return [(block.tuples[tuples], rows) for tuples, rows in clusters.groups()]
