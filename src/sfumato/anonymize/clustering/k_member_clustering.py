"""k-member clustering on weighted tuples (Byun et al. 2007), improved by local search.

Only multiplicities matter, so a class is a box with a number of rows of each tuple.  A tuple with at least k rows has a
*home*, a class of its own that loses nothing.  Rows beyond k may leave it to fill other classes.  A class grows until
it has k rows.  Each step takes the box that adds the least loss per row, and all rows inside that box.  If all
attributes have hierarchies, cells with at least k rows become classes first, the finest cells before coarser ones.

Then a large neighborhood search improves the classes (Shaw 1998; ruin and recreate, Schrimpf et al. 2000).  It
dissolves a few neighboring classes, forms them again by the same growth, and accepts the result if the loss does not
rise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.clustering.mondrian_cuts import Halves, Region, Rule, balanced, regions
from sfumato.anonymize.clustering.simultaneous_search import SearchOutcome, search
from sfumato.anonymize.clustering.space import Group, HierarchyCells, Partition, Space
from sfumato.anonymize.microdata import group, pack
from sfumato.domain.hierarchy.levels import Integers


@dataclass(frozen=True, eq=False)
class Cluster:
    """A class: its box and its number of rows of each tuple; ``cost`` is the loss of one row."""

    low: Integers
    high: Integers
    cost: float
    parts: dict[int, int]
    size: int

    @property
    def loss(self) -> float:
        """The loss summed over all rows."""
        return self.size * self.cost


class Clusters:
    """The homes and the classes of mixed tuples, with a log for undoing a trial."""

    def __init__(self, space: Space, k: int) -> None:
        self.space = space
        self.k = k
        self.home: Integers = np.where(space.counts >= k, space.counts, 0)  # rows of each tuple at home
        self.need: Integers = space.counts - self.home  # rows of each tuple without a class
        self.mixed: dict[int, Cluster] = {}
        self.holders: list[set[int]] = [set() for _ in space.counts]  # mixed classes that contain each tuple
        self.loss = 0.0
        self._next = 0
        self._added: list[int] = []
        self._dropped: list[tuple[int, Cluster]] = []

    def cluster(self, parts: dict[int, int]) -> Cluster:
        """Return the class of the given rows, in the smallest box."""
        points = self.space.points[list(parts)]
        low, high = points.min(axis=0), points.max(axis=0)
        return Cluster(low, high, float(self.space.cost(low, high)), parts, sum(parts.values()))

    def add(self, cluster: Cluster) -> None:
        """Add a class whose rows were already subtracted from home or need."""
        self._place(self._next, cluster)
        self._added.append(self._next)
        self._next += 1

    def drop(self, number: int) -> Cluster:
        """Remove a class and return it.  The caller places its rows."""
        cluster = self._remove(number)
        if number in self._added:
            self._added.remove(number)
        else:
            self._dropped.append((number, cluster))
        return cluster

    def free(self, numbers: Iterable[int]) -> None:
        """Dissolve classes.  Rows go home if their tuple has a home or reaches k rows; other rows need a class."""
        for number in numbers:
            for tuple_, rows in self.drop(number).parts.items():
                self.need[tuple_] += rows
                if self.home[tuple_] or self.need[tuple_] >= self.k:
                    self.home[tuple_] += self.need[tuple_]
                    self.need[tuple_] = 0

    def groups(self) -> list[Group]:
        """Return the tuples and rows of every class, homes first."""
        homes = [(np.array([tuple_]), self.home[tuple_ : tuple_ + 1]) for tuple_ in np.flatnonzero(self.home)]
        parts = (cluster.parts for cluster in self.mixed.values())
        return homes + [(np.array(list(part)), np.array(list(part.values()))) for part in parts]

    def commit(self) -> None:
        """Accept all changes since the last commit or rollback."""
        self._added.clear()
        self._dropped.clear()

    def roll_back(self) -> None:
        """Undo all changes since the last commit or rollback."""
        for number in self._added:
            self._remove(number)
        for number, cluster in self._dropped:
            self._place(number, cluster)
        self.commit()

    def _place(self, number: int, cluster: Cluster) -> None:
        self.mixed[number] = cluster
        self.loss += cluster.loss
        for tuple_ in cluster.parts:
            self.holders[tuple_].add(number)

    def _remove(self, number: int) -> Cluster:
        cluster = self.mixed.pop(number)
        self.loss -= cluster.loss
        for tuple_ in cluster.parts:
            self.holders[tuple_].discard(number)
        return cluster


NODES = 10_000  # largest number of recodings tried


def initial_clusters(clusters: Clusters) -> None:
    """Form classes from cells that contain k rows in need.  Do nothing if an attribute has no hierarchy.

    Rows outside such cells still need a class.
    """
    space = clusters.space
    scales = [scale for scale in space.scales if isinstance(scale, HierarchyCells)]
    if len(scales) < len(space.scales):
        return
    cells = [
        [level.cells[codes][points] for level in scale.hierarchy.levels]
        for scale, codes, points in zip(scales, space.codes, space.points.T, strict=True)
    ]
    losses = _level_losses(space, scales)
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


def _level_losses(space: Space, scales: list[HierarchyCells]) -> list[list[float]]:
    """Return the loss over all rows at each level of each attribute."""
    return [
        [float(space.counts @ level.losses[level.cells[codes]][points]) for level in scale.hierarchy.levels]
        for scale, codes, points in zip(scales, space.codes, space.points.T, strict=True)
    ]


CLOSE = 64  # number of nearest tuples considered by a growing class
SPLITTING = 0.25  # share of trials that may divide the rows of a small tuple among classes
JOINABLE = 4  # a home of up to this many times k may become a mixed class


class ClusterGrowth:
    """The growth step: rows in need form a new class or join an existing one."""

    def __init__(self, clusters: Clusters, rng: np.random.Generator) -> None:
        self.clusters = clusters
        self.rng = rng
        self.near = nearest_tuples(clusters.space, CLOSE)

    def place(self, pending: list[int], *, noise: float) -> bool:
        """Place every row of the ``pending`` tuples in a class.  Return False if some rows cannot reach k.

        ``noise`` perturbs the choice of the next box by up to this factor, so that repeated trials differ.
        """
        need = self.clusters.need
        for seed in self.rng.permutation(pending).tolist():
            if not need[seed]:
                continue
            grown = self._grow(seed, pending, noise)
            joined = self._best_join(seed)
            if joined is not None and (grown is None or joined[0] / need[seed] < grown[1]):
                self._join(seed, joined[1], joined[2])
            elif grown is not None:
                self._add_grown(grown[0])
            else:
                return False
        return True

    def _grow(self, seed: int, pending: list[int], noise: float) -> tuple[Cluster, float] | None:
        """Return a new class around a seed and its loss per row in need; None if it stays below k rows."""
        clusters, space, k = self.clusters, self.clusters.space, self.clusters.k
        waiting = [tuple_ for tuple_ in pending if clusters.need[tuple_]]
        around = np.union1d(self.near[seed], waiting if len(waiting) < CLOSE else [seed])
        points = space.points[around]
        need = clusters.need[around].copy()
        spare = np.maximum(clusters.home[around] - k, 0)
        low = high = space.points[seed]
        size, cost, parts = int(clusters.need[seed]), 0.0, {seed: int(clusters.need[seed])}
        served = size
        splits = noise > 0 and self.rng.random() < SPLITTING
        need[around == seed] = 0
        while size < k:
            lows, highs = np.minimum(low, points), np.maximum(high, points)
            inside = _inside(lows, highs, points)
            # float32 gives a fast product; counts are capped at k rows, so the sums are exact
            held = inside.astype(np.float32) @ np.stack([need, np.minimum(spare, k)], axis=1).astype(np.float32)
            needed, lent_out = held.astype(np.int64).T
            rows = needed + np.minimum(lent_out, np.maximum(k - size - needed, 0))
            if splits:
                rows = np.minimum(rows, k - size)
            costs = space.cost(lows, highs)
            score = np.where(rows > 0, ((size + rows) * costs - size * cost) / np.maximum(rows, 1), np.inf)
            if noise:
                score *= 1 + noise * self.rng.random(len(score))
            best = int(score.argmin())
            if not rows[best]:
                return None
            low, high, cost = lows[best], highs[best], float(costs[best])
            needy = np.flatnonzero(inside[best] & (need > 0))
            taken, size_taken = _take_rows(need, needy, k - size if splits else int(need.sum()))
            lenders = np.flatnonzero(inside[best] & (spare > 0))
            lent, size_lent = _take_rows(spare, lenders[np.argsort(-spare[lenders])], k - size - size_taken)
            for index, number in (*taken, *lent):
                parts[int(around[index])] = parts.get(int(around[index]), 0) + number
            size, served = size + size_taken + size_lent, served + size_taken
        grown = clusters.cluster(parts)
        return grown, grown.loss / served

    def _best_join(self, seed: int) -> tuple[float, int | None, Cluster] | None:
        """Return the cheapest nearby class for a seed's rows: added loss, number (None: a home), class."""
        clusters = self.clusters
        near = self.near[seed]
        numbers: list[int | None] = list(set().union(*(clusters.holders[tuple_] for tuple_ in near.tolist())))
        options = [clusters.mixed[number] for number in numbers if number is not None]
        homes = near[(clusters.home[near] > 0) & (clusters.home[near] < JOINABLE * clusters.k)]
        for tuple_ in homes.tolist():
            point, rows = clusters.space.points[tuple_], int(clusters.home[tuple_])
            options.append(Cluster(point, point, 0.0, {tuple_: rows}, rows))
            numbers.append(None)
        if not options:
            return None
        point, rows = clusters.space.points[seed], int(clusters.need[seed])
        lows = np.minimum(point, np.array([option.low for option in options]))
        highs = np.maximum(point, np.array([option.high for option in options]))
        sizes = np.array([option.size for option in options])
        losses = np.array([option.loss for option in options])
        added = (sizes + rows) * clusters.space.cost(lows, highs) - losses
        best = int(added.argmin())
        return float(added[best]), numbers[best], options[best]

    def _join(self, seed: int, number: int | None, cluster: Cluster) -> None:
        clusters = self.clusters
        if number is None:
            (tuple_,) = cluster.parts
            clusters.home[tuple_] = 0
        else:
            clusters.drop(number)
        parts = dict(cluster.parts)
        parts[seed] = parts.get(seed, 0) + int(clusters.need[seed])
        clusters.need[seed] = 0
        clusters.add(clusters.cluster(parts))

    def _add_grown(self, cluster: Cluster) -> None:
        clusters = self.clusters
        for tuple_, rows in cluster.parts.items():
            needed = min(rows, int(clusters.need[tuple_]))
            clusters.need[tuple_] -= needed
            clusters.home[tuple_] -= rows - needed
        clusters.add(cluster)


def _take_rows(available: Integers, places: Integers, most: int) -> tuple[list[tuple[int, int]], int]:
    """Remove up to ``most`` rows from places in order.  Return the rows per place, and their total."""
    taken, left = [], most
    for place in places.tolist():
        rows = min(int(available[place]), left)
        if rows <= 0:
            break
        available[place] -= rows
        taken.append((place, rows))
        left -= rows
    return taken, sum(rows for _, rows in taken)


def _inside(lows: Integers, highs: Integers, points: Integers) -> NDArray[np.bool_]:
    """Return which boxes contain which points, shape ``(boxes, points)``."""
    result = np.ones((len(lows), len(points)), dtype=bool)
    for low, high, place in zip(lows.T, highs.T, points.T, strict=True):
        here = place.astype(np.int16)
        result &= here >= low.astype(np.int16)[:, None]
        result &= here <= high.astype(np.int16)[:, None]
    return result


def nearest_tuples(space: Space, number: int) -> Integers:
    """Return, for each tuple, the tuples with the cheapest common box, itself first: shape ``(tuples, number)``."""
    points = space.points
    number = min(number, len(points))
    result = np.empty((len(points), number), dtype=np.int64)
    for tuple_, point in enumerate(points):
        costs = space.cost(np.minimum(point, points), np.maximum(point, points))
        costs[tuple_] = -1.0
        closest = np.argpartition(costs, number - 1)[:number]
        result[tuple_] = closest[np.argsort(costs[closest], kind="stable")]
    return result


MOST_DISSOLVED = 5
MOST_NOISE = 0.5


def improve(growth: ClusterGrowth, *, trials: int, deadline: float = math.inf) -> bool:
    """Try to lower the loss ``trials`` times, or until the ``deadline`` of the monotonic clock.

    The loss never rises.  The function returns True if the deadline ended it.
    """
    clusters, rng = growth.clusters, growth.rng
    for _ in range(trials):
        if not clusters.mixed:
            return False
        if monotonic() > deadline:
            return True
        home, need, loss = clusters.home.copy(), clusters.need.copy(), clusters.loss
        clusters.free(_neighbours(clusters, growth, int(rng.integers(1, MOST_DISSOLVED + 1))))
        placed = growth.place(np.flatnonzero(clusters.need).tolist(), noise=MOST_NOISE * float(rng.random()))
        if placed and clusters.loss <= loss:
            clusters.commit()
        else:
            clusters.roll_back()
            clusters.home, clusters.need, clusters.loss = home, need, loss
    return False


def _neighbours(clusters: Clusters, growth: ClusterGrowth, number: int) -> list[int]:
    """Return a random class and other classes with tuples close to one of its tuples."""
    first = list(clusters.mixed)[int(growth.rng.integers(len(clusters.mixed)))]
    tuples = list(clusters.mixed[first].parts)
    centre = tuples[int(growth.rng.integers(len(tuples)))]
    chosen = {first: None}
    for tuple_ in growth.near[centre].tolist():
        for holder in sorted(clusters.holders[tuple_]):
            if len(chosen) == number:
                return list(chosen)
            chosen[holder] = None
    return list(chosen)


SMALL = 2048  # tuples; larger tables are searched in many neighborhoods at once
BLOCK = 1 << 15  # tuples; still larger tables are first cut into blocks of at most this size


def k_member_partition(
    space: Space,
    *,
    k: int,
    effort: int,
    rng: np.random.Generator,
    seconds: float = math.inf,
    watch: Callable[[str], None] | None = None,
) -> Partition:
    """Form classes of at least k rows with little loss: k-member clustering, then local search.

    Args:
        space: the points.  Tables of more than ``SMALL`` tuples start from Mondrian's classes, and many neighborhoods
            are searched at once.  Mondrian first cuts tables of more than ``BLOCK`` tuples into blocks.
        k: minimum rows of a class; at most the rows of the table.
        effort: length of the local search; in a small table the number of trials per tuple with fewer than k rows.
        rng: random numbers of the search; privacy does not depend on them.
        seconds: time limit of the local search; blocks share the remaining time equally.
        watch: receives the number of each block, and the number of blocks, before the block starts.
    """

    def cut(space: Space, region: Region, rule: Rule) -> Halves | None:
        return balanced(space, region, rule) if len(region.tuples) > BLOCK else None

    blocks = regions(space, cutter=cut, rule=Rule(k))
    groups: list[Group] = []
    stopped = False
    ends = monotonic() + seconds
    for number, block in enumerate(blocks, 1):
        if watch is not None:
            watch(f"block {number} of {len(blocks)}, {len(block.tuples)} distinct tuples")
        now = monotonic()
        left = math.inf if math.isinf(ends) else max(ends - now, 0.0) / (len(blocks) - number + 1)
        part = space.part(block.tuples, block.rows)
        if len(block.tuples) > SMALL:
            new_groups, late = search(part, k=k, effort=effort, rng=rng, deadline=now + left)
        else:
            trials = effort * int(np.count_nonzero(block.rows < k))
            new_groups, late = _clustered(part, k=k, trials=trials, deadline=now + left, rng=rng)
        groups += [(block.tuples[tuples], rows) for tuples, rows in new_groups]
        stopped = stopped or late
    return replace(Partition.from_groups(groups), stopped=stopped)


def _clustered(space: Space, *, k: int, trials: int, deadline: float, rng: np.random.Generator) -> SearchOutcome:
    """Return k-member classes after a local search, or one class if the rows cannot be placed."""
    clusters = Clusters(space, k)
    initial_clusters(clusters)
    growth = ClusterGrowth(clusters, rng)
    if not growth.place(np.flatnonzero(clusters.need).tolist(), noise=0.0):
        return [(np.arange(len(space.counts)), space.counts)], False
    clusters.commit()
    stopped = improve(growth, trials=trials, deadline=deadline)
    return clusters.groups(), stopped
