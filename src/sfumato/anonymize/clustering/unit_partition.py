"""Classes with a minimum number of different units, from methods that group rows.

Each unit has a home at one of its tuples.  A method that divides homes into classes of k gives classes of at least k
units, because each unit has one home.  The rows of a tuple are assigned to classes at random when they are written.  So
a tuple may be split over several classes only if each of its rows is the only row of its unit.  Any other tuple goes to
one class as a whole.  Then classes with too few units join others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.anonymize.clustering.space import Group, Partition, Space
from sfumato.domain.hierarchy.levels import Integers

CHUNK = 1 << 20  # boxes compared at once


@dataclass(frozen=True, eq=False)
class Homes:
    """The home tuple of each unit, and the tuples that may be split over several classes.

    The unit ``units[i]`` has rows of ``tuples[i]``; pairs are distinct and sorted by tuple.  ``weights`` is the number
    of units at home at each tuple.  ``dealable`` marks the tuples whose units have no other row.
    """

    tuples: Integers
    units: Integers
    weights: Integers
    dealable: Integers

    @classmethod
    def from_pairs(cls, tuples: Integers, units: Integers, counts: Integers, sole: Integers) -> Homes:
        """Assign each unit a home at the first of its tuples.

        Args:
            tuples: tuple of each pair of a tuple and a unit with rows of it.
            units: unit of each pair, numbered from 0.
            counts: rows of each tuple.
            sole: true for units with a single row in the whole table.
        """
        pairs = np.unique(np.stack([tuples, units], axis=1), axis=0)
        tuples, units = pairs[:, 0], pairs[:, 1]
        _, first = np.unique(units, return_index=True)
        weights = np.bincount(tuples[first], minlength=len(counts))
        alone = np.bincount(tuples[sole[units]], minlength=len(counts))
        return cls(tuples, units, weights, alone == counts)


def partition_units(space: Space, homes: Homes, *, k: int, divide: Callable[[Space], Partition]) -> Partition:
    """Return classes of at least k different units.

    Args:
        space: the points; at least k units have rows of them.
        homes: of the units of these rows.
        k: minimum units of a class.
        divide: forms classes whose ``counts`` sum to at least k.
    """
    at_home = np.flatnonzero(homes.weights)
    divided = divide(space.part(at_home, homes.weights[at_home]))
    tuples, classes, rows = _with_whole_tuples(space, homes, at_home[divided.tuples], divided)
    tuples, classes, rows = _with_the_homeless(space, homes, tuples, classes, rows)
    numbers = _joined(space, homes, Partition.from_groups(_groups(tuples, classes, rows)), k)
    return Partition.from_groups(_groups(tuples, numbers[np.unique(classes, return_inverse=True)[1]], rows))


def _with_whole_tuples(
    space: Space, homes: Homes, tuples: Integers, divided: Partition
) -> tuple[Integers, Integers, Integers]:
    """Return the parts of all classes, with only dealable tuples split: tuples, classes and rows."""
    dealt = homes.dealable[tuples]
    order = np.lexsort((-divided.rows, tuples))  # the largest part of a tuple first
    _, first = np.unique(tuples[order], return_index=True)
    largest = np.zeros(len(tuples), dtype=bool)
    largest[order[first]] = True
    listed = dealt | largest
    return tuples[listed], divided.classes[listed], np.where(dealt, divided.rows, space.counts[tuples])[listed]


def _with_the_homeless(
    space: Space, homes: Homes, tuples: Integers, classes: Integers, rows: Integers
) -> tuple[Integers, Integers, Integers]:
    """Add the tuples that are no unit's home, each to the class that it costs least."""
    homeless = np.flatnonzero(homes.weights == 0)
    present, numbers = np.unique(classes, return_inverse=True)
    low, high = Partition.from_groups(_groups(tuples, classes, rows)).boxes(space)
    sizes = np.bincount(numbers, weights=rows)
    before = sizes * space.cost(low, high)
    chosen = []
    for some in np.array_split(homeless, max(len(homeless) * len(present) // CHUNK, 1)):
        points = space.points[some][:, None]  # (tuples, 1, quasi)
        costs = space.cost(np.minimum(points, low), np.maximum(points, high))
        added = (sizes + space.counts[some][:, None]) * costs - before
        chosen.append(present[added.argmin(axis=1)])
    return (
        np.concatenate([tuples, homeless]),
        np.concatenate([classes, *chosen]),
        np.concatenate([rows, space.counts[homeless]]),
    )


def _groups(tuples: Integers, classes: Integers, rows: Integers) -> list[Group]:
    """Return the tuples and rows of each class, in order of its number."""
    order = np.argsort(classes, kind="stable")
    ends = np.flatnonzero(np.diff(classes[order])) + 1
    return list(zip(np.split(tuples[order], ends), np.split(rows[order], ends), strict=True))


def _joined(space: Space, homes: Homes, partition: Partition, k: int) -> Integers:
    """Return the new class of each class, after classes of fewer than k units joined the cheapest others."""
    units, dealt = _units_of(homes, partition)
    low, high = partition.boxes(space)
    sizes = partition.counts().astype(np.float64)
    alive = np.ones(partition.size, dtype=bool)
    becomes = np.arange(partition.size)
    waiting = [number for number in range(partition.size) if len(units[number]) + dealt[number] < k]
    while waiting:
        small = waiting.pop()
        if not alive[small] or len(units[small]) + dealt[small] >= k:
            continue
        costs = space.cost(np.minimum(low[small], low), np.maximum(high[small], high))
        added = (sizes + sizes[small]) * costs - sizes * space.cost(low, high)
        added[~alive] = np.inf
        added[small] = np.inf
        other = int(added.argmin())
        low[other], high[other] = np.minimum(low[small], low[other]), np.maximum(high[small], high[other])
        sizes[other] += sizes[small]
        units[other] |= units[small]
        dealt[other] += dealt[small]
        alive[small] = False
        becomes[becomes == small] = other
        waiting.append(other)
    return becomes


def _units_of(homes: Homes, partition: Partition) -> tuple[list[set[int]], list[int]]:
    """Return the units of whole tuples in each class, and the number of its other units."""
    once = np.bincount(partition.tuples)[partition.tuples] == 1
    units: list[set[int]] = [set() for _ in range(partition.size)]
    start = np.searchsorted(homes.tuples, partition.tuples)
    end = np.searchsorted(homes.tuples, partition.tuples, side="right")
    for number, first, last in zip(partition.classes[once].tolist(), start[once], end[once], strict=True):
        units[number].update(homes.units[first:last].tolist())
    dealt = np.bincount(partition.classes[~once], weights=partition.rows[~once], minlength=partition.size)
    return units, dealt.astype(np.int64).tolist()
