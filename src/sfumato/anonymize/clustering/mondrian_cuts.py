"""Mondrian: cut the space of the quasi-identifiers in two repeatedly, while both sides stay safe.

The source is LeFevre, DeWitt, Ramakrishnan 2006.  A cutter is a plain function that returns the next cut of a region.
The variants differ only in their cutter.

For large tables, greedy cuts of all regions of one depth are made at once, with the same result.  A region is then a
run in one list of tuples.  A cut divides its run in two, the low side first.  For each attribute, the tuples are sorted
within their regions, and running extremes of their positions give the boxes on both sides of every cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.clustering.space import Partition, Space
from sfumato.domain.hierarchy.levels import Integers, Reals


@dataclass(frozen=True, eq=False)
class Region:
    """A part of the space: tuples, and the number of their rows in this part."""

    tuples: Integers
    rows: Integers

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.rows.sum())

    def divide(self, left: NDArray[np.bool_]) -> tuple[Region, Region]:
        """Divide the region into the tuples marked by ``left``, and the others."""
        return Region(self.tuples[left], self.rows[left]), Region(self.tuples[~left], self.rows[~left])


Halves = tuple[Region, Region]


@dataclass(frozen=True)
class Rule:
    """A rule for regions that may be published: at least ``least`` rows, and the optional condition ``also``."""

    least: int
    also: Callable[[Region], bool] | None = None

    def allows(self, region: Region) -> bool:
        """Return whether the region may be published."""
        return region.size >= self.least and (self.also is None or self.also(region))


Cutter = Callable[[Space, Region, Rule], Halves | None]


def partition(space: Space, *, cutter: Cutter, rule: Rule) -> Partition:
    """Cut until no region can be cut.  The whole table must satisfy the rule.

    Args:
        space: the points.
        cutter: returns the next cut of a region, or None.
        rule: decides which regions may be published; it holds on both sides of every cut.
    """
    return Partition.from_groups([(region.tuples, region.rows) for region in regions(space, cutter=cutter, rule=rule)])


def regions(space: Space, *, cutter: Cutter, rule: Rule) -> list[Region]:
    """Return the final regions, from low to high."""
    pending = [Region(np.arange(len(space.counts)), space.counts)]
    done = []
    while pending:
        region = pending.pop()
        halves = cutter(space, region, rule) if region.size >= 2 * rule.least else None
        if halves is None:
            done.append(region)
        else:
            pending.extend(reversed(halves))
    return done


def in_order(space: Space, region: Region, rule: Rule) -> Halves | None:
    """Cut strictly at the median of the first quasi-identifier that allows it.  Values up to the median go left."""
    for attribute in range(space.points.shape[1]):
        ranks, before = _cuts(space, region, attribute)
        cut = int(np.searchsorted(before, (region.size + 1) // 2))  # the value of the lower middle row
        if (halves := _divided(space, region, rule, attribute=attribute, ranks=ranks[cut : cut + 1])) is not None:
            return halves
    return None


def strict(space: Space, region: Region, rule: Rule) -> Halves | None:
    """Cut strictly at the median of the widest quasi-identifier that allows it.  Values below the median go left."""
    for attribute in _widest_first(space, region):
        ranks, before = _cuts(space, region, attribute)
        cut = int(np.searchsorted(before, region.size // 2, side="right"))  # the value of the upper middle row
        if (halves := _divided(space, region, rule, attribute=attribute, ranks=ranks[:cut][-1:])) is not None:
            return halves
    return None


def balanced(space: Space, region: Region, rule: Rule) -> Halves | None:
    """Cut strictly at the safe value closest to the median, along the widest quasi-identifier that allows it."""
    for attribute in _widest_first(space, region):
        ranks, before = _large(_cuts(space, region, attribute), region, rule)
        near = np.argsort(np.abs(before - region.size / 2), kind="stable")
        if (halves := _divided(space, region, rule, attribute=attribute, ranks=ranks[near])) is not None:
            return halves
    return None


def relaxed(space: Space, region: Region, rule: Rule) -> Halves | None:
    """Cut the rows in halves along the widest quasi-identifier.  Rows of one value may go to both sides.

    Rows of the median value are split in the order of the other attributes, rising or falling, whichever loses less.
    """
    points = space.points[region.tuples]
    for attribute in _widest_first(space, region):
        values = points[:, attribute]
        if values.min() == values.max():
            continue
        orders = (np.lexsort([*points.T, values]), np.lexsort([*-points.T, values]))
        halves = min((_split(region, order) for order in orders), key=lambda both: _loss(space, both))
        if rule.allows(halves[0]) and rule.allows(halves[1]):
            return halves
    return None


def greedy(space: Space, region: Region, rule: Rule) -> Halves | None:
    """Cut strictly at the value with the least loss (normalized certainty penalty), along any quasi-identifier."""
    cuts = [_large(_cuts(space, region, attribute), region, rule) for attribute in range(space.points.shape[1])]
    losses = np.concatenate([_losses(space, region, attribute, cut) for attribute, cut in enumerate(cuts)])
    attributes = np.repeat(np.arange(len(cuts)), [len(ranks) for ranks, _ in cuts])
    ranks = np.concatenate([ranks for ranks, _ in cuts])
    for best in losses.argsort(kind="stable").tolist():
        cut = ranks[best : best + 1]
        if (halves := _divided(space, region, rule, attribute=int(attributes[best]), ranks=cut)) is not None:
            return halves
    return None


def _divided(space: Space, region: Region, rule: Rule, *, attribute: int, ranks: Integers) -> Halves | None:
    """Return the two sides of the first cut that the rule allows."""
    for rank in ranks.tolist():
        halves = region.divide(space.points[region.tuples, attribute] <= rank)
        if rule.allows(halves[0]) and rule.allows(halves[1]):
            return halves
    return None


def _split(region: Region, order: Integers) -> Halves:
    """Return the first and the second half of the rows, in the given order of the tuples."""
    tuples, rows = region.tuples[order], region.rows[order]
    left = np.clip(region.size // 2 - (np.cumsum(rows) - rows), 0, rows)
    return _nonempty(tuples, left), _nonempty(tuples, rows - left)


def _loss(space: Space, halves: Halves) -> float:
    boxes = ((half.size, space.points[half.tuples]) for half in halves)
    return sum(size * float(space.cost(points.min(axis=0), points.max(axis=0))) for size, points in boxes)


def _widest_first(space: Space, region: Region) -> Sequence[int]:
    points = space.points[region.tuples]
    widths = space.cells(points.min(axis=0), points.max(axis=0))
    order: list[int] = np.argsort(-widths, kind="stable").tolist()
    return order


def _cuts(space: Space, region: Region, attribute: int) -> tuple[Integers, Integers]:
    """Return the ranks after which the region may be cut, ascending, and the number of rows up to each."""
    ranks, places = np.unique(space.points[region.tuples, attribute], return_inverse=True)
    before = np.bincount(places, weights=region.rows).cumsum().astype(np.int64)[:-1]
    allowed = space.scales[attribute].cuts(space.codes[attribute][ranks])
    return ranks[:-1][allowed], before[allowed]


def _large(cuts: tuple[Integers, Integers], region: Region, rule: Rule) -> tuple[Integers, Integers]:
    """Return the cuts with enough rows on both sides."""
    ranks, before = cuts
    large = (before >= rule.least) & (region.size - before >= rule.least)
    return ranks[large], before[large]


def _losses(space: Space, region: Region, attribute: int, cuts: tuple[Integers, Integers]) -> Reals:
    """Return the loss of both sides for each cut."""
    ranks, before = cuts
    if not len(ranks):
        return np.zeros(0)
    points = space.points[region.tuples]
    points = points[points[:, attribute].argsort(kind="stable")]
    at = points[:, attribute].searchsorted(ranks, side="right")
    ends = np.concatenate([points, -points], axis=1)  # the minima of both are the two ends of a box
    sides = np.concatenate([np.minimum.accumulate(ends)[at - 1], np.minimum.accumulate(ends[::-1])[-1 - at]])
    width = points.shape[1]
    costs = space.cost(sides[:, :width], -sides[:, width:])  # per row: left sides, right sides
    return np.asarray(before * costs[: len(at)] + (region.size - before) * costs[len(at) :])


def _nonempty(tuples: Integers, rows: Integers) -> Region:
    return Region(tuples[rows > 0], rows[rows > 0])


CHUNK = 1 << 15  # tuples processed together, or one region if it has more


def greedy_partition(space: Space, *, least: int) -> Partition:
    """Cut at the least loss until no region can be cut into two of at least ``least`` rows.

    Args:
        space: the points.
        least: minimum rows of a region; a table with fewer rows is one region.
    """
    tuples = np.arange(len(space.counts))
    bounds = np.array([0, len(tuples)])
    final = np.zeros(1, dtype=bool)  # regions without a further cut
    levels = [scale.levels_from_top(codes) for scale, codes in zip(space.scales, space.codes, strict=True)]
    while True:
        rows = np.add.reduceat(space.counts[tuples], bounds[:-1])
        sizes = np.diff(bounds)
        open_ = np.flatnonzero(~final & (rows >= 2 * least) & (sizes > 1))
        if not len(open_):
            break
        middles: Integers = np.zeros(len(final), dtype=np.int64)
        ends = np.cumsum(sizes[open_])
        for some in np.split(open_, np.unique(np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]), CHUNK)))):
            if len(some):
                places = np.repeat(bounds[some], sizes[some]) + _numbered_runs(sizes[some])
                cut = _cut(space, levels, tuples[places], sizes[some], least)
                tuples[places], middles[some] = cut
        final = middles == 0
        final = np.repeat(final, np.where(final, 1, 2))
        bounds = np.union1d(bounds, (bounds[:-1] + middles)[middles > 0])
    return Partition(tuples, np.repeat(np.arange(len(final)), np.diff(bounds)), space.counts[tuples])


@dataclass(frozen=True, eq=False)
class _Regions:
    """Tuples in regions, sorted within their regions by each attribute.

    For each attribute, ``orders`` has the tuples in sorted order, ``ranks`` the sorted ranks, and ``places`` the
    position of each tuple in this order.  Region ``region[p]`` has the positions from ``first[p]`` to ``last[p]``.
    """

    region: Integers
    first: Integers
    last: Integers
    orders: list[Integers]
    ranks: list[Integers]
    places: list[NDArray[np.int32]]  # short integers take half of the time
    largest: int  # tuples of the largest region

    @classmethod
    def sort(cls, space: Space, points: Integers, sizes: Integers) -> _Regions:
        """Sort points, shape ``(quasi, tuples)``, that lie in regions of the given sizes."""
        region, ends = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes)
        orders = [np.argsort(region * size + column) for column, size in zip(points, space.sizes.tolist(), strict=True)]
        places = [np.empty(len(region), dtype=np.int32) for _ in orders]
        for place, order in zip(places, orders, strict=True):
            place[order] = np.arange(len(region), dtype=np.int32)
        ranks = [column[order] for column, order in zip(points, orders, strict=True)]
        first, last = np.repeat(ends - sizes, sizes), np.repeat(ends - 1, sizes)
        return cls(region, first, last, orders, ranks, places, int(sizes.max()))

    def boxes(self, attribute: int, sorted_by: int, after: Integers) -> tuple[Integers, Integers]:
        """Return the least and greatest ranks of an attribute on both sides of cuts, each of shape ``(2, cuts)``.

        Args:
            attribute: the attribute of the ranks.
            sorted_by: the attribute that is cut.
            after: positions in its order; the low side of each cut ends there.
        """
        ranks, first, last = self.ranks[attribute], self.first[after], self.last[after]
        if attribute == sorted_by:
            return ranks[np.stack([first, after + 1])], ranks[np.stack([after, last])]
        place = self.places[attribute][self.orders[sorted_by]]
        opposite = (self.first + self.last).astype(np.int32) - place  # positions in the falling order
        both, end = np.stack([place, opposite]), len(place) - 1
        before = self._running_maxima(both).take(after, axis=1)
        beyond = end - self._running_maxima(end - both[:, ::-1]).take(end - 1 - after, axis=1)
        low = np.stack([first + last - before[1], beyond[0]])
        high = np.stack([before[0], first + last - beyond[1]])
        return ranks[low], ranks[high]

    def _running_maxima(self, places: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the greatest of the places up to each position of its region, along the last axis.

        Every place in a region is beyond all places in earlier ones, so a maximum may also run over earlier regions.
        Doubling the length of the run is faster than ``np.maximum.accumulate``, which compares one by one.
        """
        length = 1
        while length < self.largest:
            longer = places.copy()
            np.maximum(longer[:, length:], places[:, :-length], out=longer[:, length:])
            places, length = longer, 2 * length
        return places


def _cut(
    space: Space, levels: list[Integers], tuples: Integers, sizes: Integers, least: int
) -> tuple[Integers, Integers]:
    """Cut regions.  Return their tuples, low sides first, and the size of each low side (0: not cut)."""
    regions = len(sizes)
    points: Integers = np.stack([column[tuples] for column in space.points.T])  # (quasi, tuples), each in one piece
    held = _Regions.sort(space, points, sizes)
    region, counts = held.region, space.counts[tuples]
    total = np.bincount(region, weights=counts, minlength=regions).astype(np.int64)
    best = np.full(regions, np.inf)
    attribute, rank = np.zeros(regions, dtype=np.int64), np.zeros(regions, dtype=np.int64)
    for number, cells in enumerate(levels):
        here = held.ranks[number]
        after = _allowed(here, region, sizes, cells)
        before = np.cumsum(counts[held.orders[number]])[after] - (np.cumsum(total) - total)[region[after]]
        large = (before >= least) & (total[region[after]] - before >= least)
        after, before = after[large], before[large]
        if not len(after):
            continue
        sides = np.stack([before, total[region[after]] - before])
        costs = [space.pairs(other, *held.boxes(other, number, after)) for other in range(len(points))]
        losses = (sides * space.total(np.stack(costs))).sum(axis=0)
        first = np.flatnonzero(np.diff(region[after], prepend=-1))
        lowest = np.minimum.reduceat(losses, first)
        ties = losses == np.repeat(lowest, np.diff(first, append=len(losses)))
        each, at = np.unique(region[after][ties], return_index=True)
        better = lowest < best[each]
        each, at = each[better], np.flatnonzero(ties)[at[better]]
        best[each], attribute[each], rank[each] = lowest[better], number, here[after[at]]
    cut_rank = np.where(np.isfinite(best), rank, -1)  # a region without a cut stays unchanged: all is on its high side
    low = points[attribute[region], np.arange(len(region))] <= cut_rank[region]
    order = np.lexsort((~low, region))
    return tuples[order], np.bincount(region, weights=low, minlength=regions).astype(np.int64)


def _allowed(ranks: Integers, region: Integers, sizes: Integers, cells: Integers) -> Integers:
    """Return the positions after which a region may be cut: between cells of its level."""
    ends = np.cumsum(sizes)
    first, last = ranks[ends - sizes], ranks[ends - 1]
    apart: NDArray[np.bool_] = cells[:, first] != cells[:, last]  # (levels, regions), from the top
    here = cells[apart.argmax(axis=0)[region], ranks]
    return np.flatnonzero((region[1:] == region[:-1]) & (here[1:] != here[:-1]))


def _numbered_runs(sizes: Integers) -> Integers:
    """Return the numbers 0, 1, 2, ... up to each of the sizes, one run after the other."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
