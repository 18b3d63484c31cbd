"""Mondrian's greedy cuts of all regions of one depth at once: the same regions as one by one, for large tables.

A region is a run of one list of tuples; a cut divides its run in two, the low side first.  For each attribute the
tuples are put in order within their regions, and running extremes give the boxes on both sides of every cut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.clustering.space import Partition, Space
from sfumato.domain.hierarchy.levels import Integers, Reals

CHUNK = 1 << 18  # tuples that are looked at together, or one region if it has more


def greedy_partition(space: Space, *, least: int) -> Partition:
    """Cut where least loss is left, until no region can be cut into two of at least ``least`` rows.

    Args:
        space: the points.
        least: rows of a region; if the table has fewer it is one region.
    """
    tuples = np.arange(len(space.counts))
    bounds = np.array([0, len(tuples)])
    whole = np.zeros(1, dtype=bool)  # regions that nothing cuts
    levels = [scale.levels_from_top(codes) for scale, codes in zip(space.scales, space.codes, strict=True)]
    while True:
        rows = np.add.reduceat(space.counts[tuples], bounds[:-1])
        sizes = np.diff(bounds)
        open_ = np.flatnonzero(~whole & (rows >= 2 * least) & (sizes > 1))
        if not len(open_):
            break
        middles: Integers = np.zeros(len(whole), dtype=np.int64)
        ends = np.cumsum(sizes[open_])
        for some in np.split(open_, np.unique(np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]), CHUNK)))):
            if len(some):
                places = np.repeat(bounds[some], sizes[some]) + _counted(sizes[some])
                cut = _cut(space, levels, tuples[places], sizes[some], least)
                tuples[places], middles[some] = cut
        whole = middles == 0
        whole = np.repeat(whole, np.where(whole, 1, 2))
        bounds = np.union1d(bounds, (bounds[:-1] + middles)[middles > 0])
    return Partition(tuples, np.repeat(np.arange(len(whole)), np.diff(bounds)), space.counts[tuples])


def _cut(
    space: Space, levels: list[Integers], tuples: Integers, sizes: Integers, least: int
) -> tuple[Integers, Integers]:
    """The tuples of these regions, each in two sides, and how many are on its low side; 0 where nothing cuts it."""
    regions = len(sizes)
    region = np.repeat(np.arange(regions), sizes)
    points: Integers = np.stack([column[tuples] for column in space.points.T])  # (quasi, tuples), each in one piece
    counts = space.counts[tuples]
    total = np.bincount(region, weights=counts, minlength=regions).astype(np.int64)
    best = np.full(regions, np.inf)
    attribute, rank = np.zeros(regions, dtype=np.int64), np.zeros(regions, dtype=np.int64)
    for number, cells in enumerate(levels):
        order = np.argsort(region * int(space.sizes[number]) + points[number])
        here = points[number][order]
        after = _allowed(here, region, sizes, cells)
        before = np.cumsum(counts[order])[after] - (np.cumsum(total) - total)[region[after]]
        large = (before >= least) & (total[region[after]] - before >= least)
        after, before = after[large], before[large]
        if not len(after):
            continue
        sides = np.stack([before, total[region[after]] - before])
        losses = (sides * _costs(space, points[:, order], region, after)).sum(axis=0)
        first = np.flatnonzero(np.diff(region[after], prepend=-1))
        lowest = np.minimum.reduceat(losses, first)
        ties = losses == np.repeat(lowest, np.diff(first, append=len(losses)))
        each, at = np.unique(region[after][ties], return_index=True)
        better = lowest < best[each]
        each, at = each[better], np.flatnonzero(ties)[at[better]]
        best[each], attribute[each], rank[each] = lowest[better], number, here[after[at]]
    low = np.isfinite(best)[region] & (points[attribute[region], np.arange(len(region))] <= rank[region])
    # a region that nothing cuts stays as it is: all of it is on its high side
    order = np.lexsort((~low, region))
    return tuples[order], np.bincount(region, weights=low, minlength=regions).astype(np.int64)


def _allowed(ranks: Integers, region: Integers, sizes: Integers, cells: Integers) -> Integers:
    """Places after which a region may be cut: between ranks, and between cells where the region first has several."""
    ends = np.cumsum(sizes)
    first, last = ranks[ends - sizes], ranks[ends - 1]
    apart: NDArray[np.bool_] = cells[:, first] != cells[:, last]  # (levels, regions), from the top
    level = apart.argmax(axis=0)[region[:-1]]
    between = (region[1:] == region[:-1]) & (ranks[1:] != ranks[:-1])
    return np.flatnonzero(between & (cells[level, ranks[:-1]] != cells[level, ranks[1:]]))


def _costs(space: Space, points: Integers, region: Integers, after: Integers) -> Reals:
    """Cost of a row on both sides of each cut, shape ``(2, cuts)``; ``points`` are in order within their regions."""
    lows: Integers = np.empty((2, len(after), len(points)), dtype=np.int64)
    highs = np.empty_like(lows)
    at = region[after]
    last = int(region[-1])
    for number, (column, size) in enumerate(zip(points, space.sizes.tolist(), strict=True)):
        # extremes run on from region to region, but each begins beyond all of those before
        up, down = region * size, (last - region) * size
        highs[0, :, number] = np.maximum.accumulate(column + up)[after] - at * size
        lows[0, :, number] = at * size - np.maximum.accumulate(up - column)[after]
        back = np.maximum.accumulate((column + down)[::-1])[::-1][after + 1]
        highs[1, :, number] = back - (last - at) * size
        back = np.maximum.accumulate((down - column)[::-1])[::-1][after + 1]
        lows[1, :, number] = (last - at) * size - back
    return space.cost(lows, highs)


def _counted(sizes: Integers) -> Integers:
    """0, 1, 2, ... for each of these."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
