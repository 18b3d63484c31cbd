"""Mondrian: cut the space of the quasi-identifiers in two, again and again, while both sides stay safe.

LeFevre, DeWitt, Ramakrishnan 2006.  A cutter is a plain function that finds the next cut of a region; the
variants differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.partition import Partition
from sfumato.anonymize.space import Space

Integers = NDArray[np.int64]
Losses = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Region:
    """Tuples of the table with how many of their rows are in the region."""

    tuples: Integers
    rows: Integers

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.rows.sum())

    def divide(self, left: NDArray[np.bool_]) -> tuple[Region, Region]:
        """The tuples where ``left`` holds, and the others."""
        return Region(self.tuples[left], self.rows[left]), Region(self.tuples[~left], self.rows[~left])


Halves = tuple[Region, Region]
Safe = Callable[[Region], bool]
Cutter = Callable[[Space, Region, Safe], Halves | None]


def partition(space: Space, *, cutter: Cutter, safe: Safe) -> Partition:
    """Cut until no region can be cut; the whole table has to be safe to begin with.

    Args:
        space: the points.
        cutter: finds the next cut of a region, or None.
        safe: whether a region may be published; both sides of every cut are.
    """
    return Partition.of([(region.tuples, region.rows) for region in regions(space, cutter=cutter, safe=safe)])


def regions(space: Space, *, cutter: Cutter, safe: Safe) -> list[Region]:
    """The regions that are left when nothing can be cut, from low to high."""
    work = [Region(np.arange(len(space.counts)), space.counts)]
    done = []
    while work:
        region = work.pop()
        halves = cutter(space, region, safe)
        if halves is None:
            done.append(region)
        else:
            work.extend(reversed(halves))
    return done


def in_order(space: Space, region: Region, safe: Safe) -> Halves | None:
    """Strict: at the median (left: values up to it) of the first quasi-identifier that allows it."""
    return _at_median(space, region, safe, attributes=range(space.points.shape[1]), beyond=0)


def strict(space: Space, region: Region, safe: Safe) -> Halves | None:
    """Strict: at the median (left: values below it) of the widest quasi-identifier that allows it."""
    return _at_median(space, region, safe, attributes=_widest_first(space, region), beyond=-1)


def balanced(space: Space, region: Region, safe: Safe) -> Halves | None:
    """Strict: between two values as near to the median as is safe, of the widest quasi-identifier that allows it."""
    for attribute in _widest_first(space, region):
        ranks, before = _cuts(space, region, attribute)
        for cut in np.argsort(np.abs(before - region.size / 2), kind="stable").tolist():
            halves = region.divide(space.points[region.tuples, attribute] <= ranks[cut])
            if safe(halves[0]) and safe(halves[1]):
                return halves
    return None


def relaxed(space: Space, region: Region, safe: Safe) -> Halves | None:
    """Relaxed: rows in halves along the widest quasi-identifier; rows of one value may go to both sides.

    Rows of the median value are split in the order of the other attributes, rising or falling, whichever
    loses less.
    """
    points = space.points[region.tuples]
    for attribute in _widest_first(space, region):
        values = points[:, attribute]
        if values.min() == values.max():
            continue
        orders = (np.lexsort([*points.T, values]), np.lexsort([*-points.T, values]))
        halves = min((_split(region, order) for order in orders), key=lambda both: _loss(space, both))
        if safe(halves[0]) and safe(halves[1]):
            return halves
    return None


def greedy(space: Space, region: Region, safe: Safe) -> Halves | None:
    """Strict: the safe cut of any quasi-identifier that leaves the least loss (normalised certainty penalty)."""
    found: list[tuple[float, int, int]] = []
    for attribute in range(space.points.shape[1]):
        ranks, _ = _cuts(space, region, attribute)
        if len(ranks):
            found.extend(
                (loss, attribute, rank) for loss, rank in zip(_losses(space, region, attribute), ranks, strict=True)
            )
    for _, attribute, rank in sorted(found):
        halves = region.divide(space.points[region.tuples, attribute] <= rank)
        if safe(halves[0]) and safe(halves[1]):
            return halves
    return None


def _at_median(space: Space, region: Region, safe: Safe, *, attributes: Sequence[int], beyond: int) -> Halves | None:
    """Cut after the value at the median (``beyond`` 0) or after the one before it (-1), where both sides are safe."""
    for attribute in attributes:
        ranks, before = _cuts(space, region, attribute)
        cut = int(np.searchsorted(before, (region.size + 1) // 2)) + beyond
        if 0 <= cut < len(ranks):
            halves = region.divide(space.points[region.tuples, attribute] <= ranks[cut])
            if safe(halves[0]) and safe(halves[1]):
                return halves
    return None


def _split(region: Region, order: Integers) -> Halves:
    """The first half of the rows in this order of the tuples, and the second."""
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
    """Ranks after which the region may be cut, ascending, and the rows up to each."""
    values = space.points[region.tuples, attribute]
    ranks, place = np.unique(values, return_inverse=True)
    before = np.cumsum(np.bincount(place, weights=region.rows)).astype(np.int64)[:-1]
    allowed = space.scales[attribute].cuts(space.codes[attribute][ranks])
    return ranks[:-1][allowed], before[allowed]


def _losses(space: Space, region: Region, attribute: int) -> list[float]:
    """Loss of both sides for each cut of ``_cuts``."""
    order = np.argsort(space.points[region.tuples, attribute], kind="stable")
    points, rows = space.points[region.tuples[order]], region.rows[order]
    left = np.cumsum(rows)[:-1] * space.cost(np.minimum.accumulate(points)[:-1], np.maximum.accumulate(points)[:-1])
    back = points[::-1]
    right = np.cumsum(rows[::-1])[:-1] * space.cost(np.minimum.accumulate(back)[:-1], np.maximum.accumulate(back)[:-1])
    ranks, _ = _cuts(space, region, attribute)
    at = np.searchsorted(points[:, attribute], ranks, side="right") - 1
    losses: list[float] = (left + right[::-1])[at].tolist()
    return losses


def _nonempty(tuples: Integers, rows: Integers) -> Region:
    return Region(tuples[rows > 0], rows[rows > 0])
