"""Growing a class from a seed by what costs least: the step that k-member and local search share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.clusters import Cluster, Clusters
from sfumato.anonymize.space import Space

Integers = NDArray[np.int64]
Losses = NDArray[np.float64]

CLOSE = 64  # nearest tuples that a class grows from
SPLITTING = 0.25  # share of trials that may divide the rows of a small tuple among classes
JOINABLE = 4  # a home of up to this many times k may become a mixed class


class Grower:
    """Places rows that need a class: in a new one, or in one that is there."""

    def __init__(self, clusters: Clusters, rng: np.random.Generator) -> None:
        self.clusters = clusters
        self.rng = rng
        self.near = nearest(clusters.space, CLOSE)

    def place(self, pending: list[int], *, noise: float) -> bool:
        """Give every row of the ``pending`` tuples a class; False where some cannot reach k rows.

        ``noise`` blurs the choice of the next box by up to this factor, so that repeated trials differ.
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
                self._found(grown[0])
            else:
                return False
        return True

    def _grow(self, seed: int, pending: list[int], noise: float) -> tuple[Cluster, float] | None:
        """A new class around a seed, and its loss for each row that needed one; None if it stays below k."""
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
            # float32 for a fast product; nobody needs more than k rows, so the sums are exact
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
            for index in np.flatnonzero(inside[best] & (need > 0)).tolist():
                taken = min(int(need[index]), k - size) if splits else int(need[index])
                if taken > 0:
                    parts[int(around[index])] = parts.get(int(around[index]), 0) + taken
                    size += taken
                    served += taken
                    need[index] -= taken
            lenders = np.flatnonzero(inside[best] & (spare > 0))
            for index in lenders[np.argsort(-spare[lenders])].tolist():
                lent = min(int(spare[index]), k - size)
                if lent <= 0:
                    break
                tuple_ = int(around[index])
                parts[tuple_] = parts.get(tuple_, 0) + lent
                spare[index] -= lent
                size += lent
        grown = clusters.cluster(parts)
        return grown, grown.loss / served

    def _best_join(self, seed: int) -> tuple[float, int | None, Cluster] | None:
        """The cheapest class nearby that could take all rows of a seed: added loss, its number (None: a home), it."""
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

    def _found(self, cluster: Cluster) -> None:
        clusters = self.clusters
        for tuple_, rows in cluster.parts.items():
            wanted = min(rows, int(clusters.need[tuple_]))
            clusters.need[tuple_] -= wanted
            clusters.home[tuple_] -= rows - wanted
        clusters.add(cluster)


def _inside(lows: Integers, highs: Integers, points: Integers) -> NDArray[np.bool_]:
    """Whether each box holds each point, shape ``(boxes, points)``; attribute by attribute in short integers."""
    result = np.ones((len(lows), len(points)), dtype=bool)
    for low, high, place in zip(lows.T, highs.T, points.T, strict=True):
        here = place.astype(np.int16)
        result &= here >= low.astype(np.int16)[:, None]
        result &= here <= high.astype(np.int16)[:, None]
    return result


def nearest(space: Space, number: int) -> Integers:
    """For every tuple the tuples (itself first) whose common box costs least, shape ``(tuples, number)``."""
    points = space.points
    number = min(number, len(points))
    result = np.empty((len(points), number), dtype=np.int64)
    for tuple_, point in enumerate(points):
        costs = space.cost(np.minimum(point, points), np.maximum(point, points))
        costs[tuple_] = -1.0
        closest = np.argpartition(costs, number - 1)[:number]
        result[tuple_] = closest[np.argsort(costs[closest], kind="stable")]
    return result
