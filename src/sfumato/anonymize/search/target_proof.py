"""Proof that no recoding loses less than a target, or one that does: boxes of level vectors, narrowed, then cut.

A target makes boxes narrow.  Of a box from ``low`` to ``high`` only what loses less than the target matters, so an
attribute goes no higher than what is left to lose allows; and where one attribute at its lowest level, with all others
at their highest, suppresses too many rows, that level is left out.  Each attribute raised leaves less to lose for the
others, and each lowered makes more rows fail, until the box is empty or both come to rest.

Rows fail if their class has too few, and then they fail in every vector below.  Nothing in a box loses less than its
rows generalised by ``low``, where those that fail in ``high`` are lost altogether.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from sfumato.anonymize.criteria.criterion import KAnonymity
from sfumato.anonymize.search.bucket_counts import BucketClasses, BucketCounts, GeneralisedTable, RolledTuples
from sfumato.anonymize.search.lattice import Lattice, Node, Vector
from sfumato.domain.hierarchy.levels import Reals

ROLLED_STEPS = 5  # levels that a box may rise before its tuples are rolled up again
ROLLED_TUPLES = 1 << 24  # kept with the open boxes; beyond, a box starts from the table again
PROMISING = 0.1  # of the rows allowed: a level that is expected to suppress fewer is not tried
NARROWED = 3  # rounds of narrowing a box at most


@dataclass(frozen=True)
class Proof:
    """Every vector of the lattice loses at least ``bound``; ``better`` loses less than the target, if one was met."""

    bound: float
    better: Node | None


@dataclass(frozen=True, eq=False)
class TargetBox:
    """What may lose less than the target: vectors between ``low`` and ``high``, and tuples at or below ``low``.

    ``failing`` rows fail in ``high``, ``lowered`` with one attribute at its lowest level and all others at their
    highest, as last counted, shape ``(attributes,)``.
    """

    low: Vector
    high: Vector
    rolled: RolledTuples
    failing: float
    lowered: Reals


class TargetProof:
    """Proves targets for one lattice, one after the other."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self.counted = 0  # vectors whose rows were counted, some of them again
        problem = lattice.problem
        self._table = GeneralisedTable(problem)
        self._allowed = problem.allowed - problem.data.excluded
        self._weight = float(sum(problem.weights))
        self._excluded = self._weight * problem.data.excluded
        self._losses: list[list[float]] = [losses.tolist() for losses in lattice.generalisation]

    @staticmethod
    def applies(lattice: Lattice) -> bool:
        """Whether a search may prune for the size of classes alone."""
        prunable = lattice.problem.prunable
        return bool(prunable) and all(isinstance(each, KAnonymity) for each in prunable)

    def prove(self, target: float, *, deadline: float) -> Proof:
        """Look for a vector that loses less than ``target``, until none is left or it is ``deadline``.

        Args:
            target: in cells, as losses of nodes are.
            deadline: of the monotonic clock.
        """
        bottom = self._table.bottom
        everything = TargetBox(
            bottom.vector, self.lattice.top, bottom, 0.0, np.full(len(bottom.vector), float(self._allowed))
        )
        waiting: list[tuple[float, int, TargetBox]] = []
        boxes, number, kept = [everything], 0, 0
        while True:
            for bound, found in self._narrowed(boxes, target):
                box = found if kept <= ROLLED_TUPLES else replace(found, rolled=bottom)
                kept += _own_tuples(box)
                number += 1
                heapq.heappush(waiting, (bound, number, box))
            if not waiting:
                return Proof(target, None)
            if monotonic() > deadline:
                return Proof(min(waiting[0][0], target), None)
            bound, _, box = heapq.heappop(waiting)
            kept -= _own_tuples(box)
            boxes = self._halves(box) if box.low < box.high else []
            if not boxes:
                node = self.lattice.evaluate(box.low)
                if node.feasible and node.loss < target:
                    return Proof(bound, node)

    def _halves(self, box: TargetBox) -> list[TargetBox]:
        """The box cut at the middle level of the attribute that then loses most."""
        low, high, rolled = box.low, box.high, box.rolled
        if sum(low) - sum(rolled.vector) >= ROLLED_STEPS:
            rolled = self._table.roll_up(rolled, low)
        middles = [(bottom + top) // 2 for bottom, top in zip(low, high, strict=True)]
        attribute = max(
            (attribute for attribute, level in enumerate(low) if level < high[attribute]),
            key=lambda attribute: (
                self._losses[attribute][middles[attribute] + 1] - self._losses[attribute][low[attribute]]
            ),
        )
        middle = middles[attribute]
        below = (*high[:attribute], middle, *high[attribute + 1 :])
        above = (*low[:attribute], middle + 1, *low[attribute + 1 :])
        return [replace(box, high=below, rolled=rolled), replace(box, low=above, rolled=rolled)]

    def _narrowed(self, boxes: Sequence[TargetBox], target: float) -> list[tuple[float, TargetBox]]:
        """The boxes that may hold something below the target, narrowed, with their bounds; all have the same tuples."""
        if not boxes:
            return []
        counts = BucketCounts(self._table, boxes[0].rolled, boxes[-1].high)
        narrowed = [self._narrow(box, counts, target) for box in boxes]
        self.counted += counts.counted
        return [each for each in narrowed if each is not None]

    def _narrow(self, box: TargetBox, counts: BucketCounts, target: float) -> tuple[float, TargetBox] | None:
        low, high = list(box.low), list(box.high)
        failing, lowered = box.failing, box.lowered.copy()
        bound = self._floor(low) + self._excluded
        for _ in range(NARROWED):
            self._lower(low, high, target - bound)
            classes = counts.classes(high)
            if bound >= target or classes.failing > self._allowed:
                return None
            lowered += classes.failing - failing
            failing = classes.failing
            bound = self._bound(low, counts, classes)
            raised = False
            steps = [(self._step(a, low[a]), a) for a in range(len(low)) if low[a] < high[a]]
            for _, attribute in sorted(steps, reverse=True):
                if bound >= target:
                    return None
                if lowered[attribute] < PROMISING * self._allowed:
                    continue
                levels = range(low[attribute], high[attribute])
                low[attribute], lowered[attribute] = self._least_level(attribute, levels, counts, classes)
                if low[attribute] > levels.start:
                    raised = True
                    bound = self._bound(low, counts, classes)
            if bound >= target:
                return None
            if not raised:
                break
        return bound, TargetBox(tuple(low), tuple(high), box.rolled, failing, lowered)

    def _bound(self, low: Sequence[int], counts: BucketCounts, classes: BucketClasses) -> float:
        """What all rows lose at least, generalised by ``low`` or suppressed as these classes are."""
        return self._floor(low) + self._excluded + counts.lost(classes, low, self._weight)

    def _floor(self, vector: Sequence[int]) -> float:
        return math.fsum(losses[level] for losses, level in zip(self._losses, vector, strict=True))

    def _step(self, attribute: int, level: int) -> float:
        """What one attribute loses more a level higher."""
        return self._losses[attribute][level + 1] - self._losses[attribute][level]

    def _least_level(
        self, attribute: int, levels: range, counts: BucketCounts, classes: BucketClasses
    ) -> tuple[int, float]:
        """The first level that suppresses few enough rows, else the one after them, and how many rows it does."""
        for level in levels:
            failing = counts.refined(classes, attribute, level)
            if failing <= self._allowed:
                return level, failing
        return levels.stop, float(self._allowed)

    def _lower(self, low: list[int], high: list[int], slack: float) -> None:
        """Lower ``high`` to what one attribute alone can lose beyond ``low``, below ``slack``."""
        for attribute, losses in enumerate(self._losses):
            while high[attribute] > low[attribute] and losses[high[attribute]] - losses[low[attribute]] >= slack:
                high[attribute] -= 1


def _own_tuples(box: TargetBox) -> int:
    """Tuples that a box keeps beside those of the table."""
    return len(box.rolled.members) if any(box.rolled.vector) else 0
