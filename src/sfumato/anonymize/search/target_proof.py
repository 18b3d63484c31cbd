"""Proof that no recoding loses less than a target, or a recoding that does.  Boxes of level vectors shrink, then split.

A target makes boxes small.  Only vectors that lose less than the target matter in a box from ``low`` to ``high``.  So
an attribute is no higher than the remaining loss allows.  If ``high`` suppresses too many rows, so does the whole box.

Such a vector rules out more than its box.  It is raised as far as it still suppresses too many rows.  Then every vector
below it is ruled out, in any box and for any target.  A box is dropped if its ``high`` is below such a vector.  The
lowest level of an attribute is dropped if that level, with all other attributes at their highest, is below such a
vector.  Each raised attribute leaves less loss for the others, and each lowered one rules out more.  This repeats until
the box is empty or unchanged.

Failing rows are counted in buckets of a hash, which is fast and never overestimates.  Classes that share a bucket look
like one larger class.  The prunable criteria hold for the union of two classes that satisfy them.  If suppression is
allowed, they hold for the union of one such class with any other.  So if a bucket fails, each of its classes fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.criterion import KAnonymity
from sfumato.anonymize.microdata import Keys, group
from sfumato.anonymize.search.lattice import Lattice, Node, Vector
from sfumato.domain.hierarchy.levels import Integers

BUCKETS = 8  # buckets per class, so that few classes share one
MOST_BITS = 18  # bits of the number of buckets; a larger table would not fit the cache


class BucketHashes:
    """Random bits for every leaf at every level.  The bucket of a class is the exclusive or of the bits of its
    cells.
    """

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        problem = lattice.problem
        sizes_alone = all(isinstance(each, KAnonymity) for each in lattice.prunable)
        self.least = max(each.least_rows for each in lattice.prunable) if sizes_alone else None  # in a class
        rng = np.random.default_rng(0)  # any seed is right: it decides which classes share a bucket
        self.leaves: list[list[Integers]] = [
            [rng.integers(0, 1 << MOST_BITS, size=level.size)[level.cells] for level in hierarchy.levels]
            for hierarchy in problem.hierarchies
        ]


class BucketCounts:
    """The counts of vectors above the vector of some classes.  ``move`` raises the vector.

    Args:
        hashes: of the lattice.
        vector: level vector of the classes.
        classes: their exact counts.
    """

    def __init__(self, hashes: BucketHashes, vector: Vector, classes: Classes) -> None:
        self._hashes = hashes
        self._classes = classes
        self._rows = classes.counts.astype(np.float64)
        self._sizes = self._rows if classes.units is None else classes.sizes.astype(np.float64)
        self._bits = min((BUCKETS * len(classes)).bit_length(), MOST_BITS)
        self._levels = list(vector)
        codes = hashes.lattice.problem.data.codes.take(classes.members, axis=0)  # (classes, attributes)
        self._columns = list(codes.T)
        self._keys = np.zeros(len(classes), dtype=np.int64)
        for leaves, column, level in zip(hashes.leaves, self._columns, vector, strict=True):
            self._keys ^= leaves[level].take(column)

    def too_many(self, attribute: int, level: int) -> bool:
        """Return whether too many rows fail if one attribute is raised to a level."""
        return self._too_many(self._raised(attribute, level))

    def move(self, attribute: int, level: int) -> None:
        """Raise one attribute for all later counts."""
        self._keys = self._raised(attribute, level)
        self._levels[attribute] = level

    def _raised(self, attribute: int, level: int) -> Integers:
        leaves = self._hashes.leaves[attribute]
        changes = leaves[self._levels[attribute]] ^ leaves[level]
        raised: Integers = self._keys ^ changes.take(self._columns[attribute])
        return raised

    def _too_many(self, keys: Integers) -> bool:
        buckets = keys & ((1 << self._bits) - 1)
        lattice, least = self._hashes.lattice, self._hashes.least
        if least is None:
            return lattice.hopeless(self._classes.merge(group(Keys(buckets, 1 << self._bits))))
        rows = sizes = np.bincount(buckets, weights=self._rows)
        if self._sizes is not self._rows:  # repeated counts of a unit hide failing rows
            sizes = np.bincount(buckets, weights=self._sizes)
        failing = rows[sizes < least].sum()
        return float(failing) + lattice.problem.data.excluded > lattice.problem.allowed


@dataclass(frozen=True)
class Proof:
    """A lower bound on the loss of every vector; ``better`` is a vector that loses less than the target, if one was
    seen.
    """

    bound: float
    better: Node | None


@dataclass(frozen=True)
class TargetBox:
    """A box of vectors between ``low`` and ``high`` that may lose less than the target."""

    low: Vector
    high: Vector
    penalty: float  # minimum loss added by suppression
    bound: float  # lower bound on the loss in the box


class RuledOut:
    """A set of vectors that suppress too many rows.  Every vector below one of them does, too.

    They are stored as bits, some hundred bytes each.  ``_reaching[attribute][level]`` has one bit for each vector at
    that level or higher.
    """

    def __init__(self, heights: Vector) -> None:
        self.vectors: list[Vector] = []
        self._reaching = [[0] * (height + 1) for height in heights]

    def add(self, vector: Vector) -> None:
        """Rule out every vector up to the given one."""
        bit = 1 << len(self.vectors)
        self.vectors.append(vector)
        for reaching, level in zip(self._reaching, vector, strict=True):
            for below in range(level + 1):
                reaching[below] |= bit

    def least_levels(self, low: Sequence[int], high: Sequence[int]) -> list[int] | None:
        """Return each attribute's lowest level that is not ruled out, with all others at ``high``; None if all levels
        are.
        """
        after = [-1]  # vectors that reach the last attributes of ``high``
        for reaching, level in zip(reversed(self._reaching), reversed(high), strict=True):
            after.append(after[-1] & reaching[level])
        if after.pop():
            return None
        levels, before = list(low), -1
        for attribute, reaching in enumerate(self._reaching):
            if others := before & after.pop():
                while others & reaching[levels[attribute]]:
                    levels[attribute] += 1  # at ``high`` no level remains
            before &= reaching[high[attribute]]
        return levels


class TargetProof:
    """Proofs of several targets for one lattice.  Vectors ruled out for one target stay ruled out."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        self.evaluated = 0  # vectors counted to raise other vectors
        self._ruled_out = RuledOut(lattice.top)
        self._losses: list[list[float]] = [losses.tolist() for losses in lattice.generalisation]
        self._hashes = BucketHashes(lattice)

    @staticmethod
    def applies(lattice: Lattice) -> bool:
        """Return whether a search may prune by any criterion."""
        return bool(lattice.prunable)

    def prove(self, target: float, *, deadline: float) -> Proof:
        """Search for a vector that loses less than ``target``, until none remains or ``deadline`` is reached.

        The lower half of a box is searched first, so that few boxes are open at a time.

        Args:
            target: in cells, like the losses of nodes.
            deadline: on the monotonic clock.
        """
        top = self.lattice.top
        waiting = [TargetBox((0,) * len(top), top, 0.0, 0.0)]
        while waiting:
            if monotonic() > deadline:
                return Proof(min(target, *(box.bound for box in waiting)), None)
            narrowed = self._narrowed(waiting.pop(), target)
            if isinstance(narrowed, Node):
                return Proof(0.0, narrowed)
            if narrowed is not None and narrowed.low < narrowed.high:
                waiting += self._halves(narrowed)
        return Proof(target, None)

    def _narrowed(self, box: TargetBox, target: float) -> TargetBox | Node | None:
        """Shrink a box to the vectors that may lose less than the target, or return a vector that does."""
        low, high, penalty = list(box.low), list(box.high), box.penalty
        while True:
            bound = self._floor(low) + penalty
            if bound >= target:
                return None
            self._lower(low, high, target - bound)
            least = self._ruled_out.least_levels(low, high)
            if least is None:
                return None
            if least != low:
                low = least
                continue
            node = self.lattice.evaluate(tuple(high))
            if node.hopeless:
                self._ruled_out.add(self._raised(node.vector))
                return None
            if node.feasible and node.loss < target:
                return node
            if node.penalty <= penalty:
                return TargetBox(tuple(low), tuple(high), penalty, bound)
            penalty = node.penalty

    def _halves(self, box: TargetBox) -> list[TargetBox]:
        """Cut the box at the middle level of the attribute with the largest loss at that cut."""
        low, high = box.low, box.high
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
        return [
            TargetBox(above, high, box.penalty, max(box.bound, self._floor(above) + box.penalty)),
            TargetBox(low, below, box.penalty, box.bound),
        ]

    def _raised(self, vector: Vector) -> Vector:
        """Raise a vector as far as it suppresses too many rows, first the attributes with the least loss."""
        lattice, losses = self.lattice, self._losses
        counts = BucketCounts(self._hashes, vector, lattice.classes(vector))
        levels = list(vector)
        for attribute in sorted(range(len(vector)), key=lambda each: losses[each][-1] - losses[each][vector[each]]):
            high = trial = lattice.top[attribute]
            while levels[attribute] < high:
                self.evaluated += 1
                if counts.too_many(attribute, trial):
                    counts.move(attribute, trial)
                    levels[attribute] = trial
                else:
                    high = trial - 1
                trial = (levels[attribute] + high + 1) // 2
        return tuple(levels)

    def _floor(self, vector: Sequence[int]) -> float:
        return math.fsum(losses[level] for losses, level in zip(self._losses, vector, strict=True))

    def _lower(self, low: list[int], high: list[int], slack: float) -> None:
        """Lower ``high`` until each attribute alone loses less than ``slack`` beyond ``low``."""
        for attribute, losses in enumerate(self._losses):
            while high[attribute] > low[attribute] and losses[high[attribute]] - losses[low[attribute]] >= slack:
                high[attribute] -= 1
