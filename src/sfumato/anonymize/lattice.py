"""The lattice of level vectors: what each would suppress and lose, rolled up from finer vectors already counted."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from functools import cache
from operator import le

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.classes import Classes, finest
from sfumato.anonymize.criteria import safe
from sfumato.anonymize.packing import group, pack
from sfumato.anonymize.problem import Problem, Vector

Integers = NDArray[np.int64]
Losses = NDArray[np.float64]

CACHED_TUPLES = 4  # classes kept for roll-up, as a multiple of the distinct tuples of the table


@dataclass(frozen=True, eq=False)
class Node:
    """One level vector, counted.

    ``loss`` and ``penalty`` are in cells (weights times rows): ``loss`` is that of the whole table, ``penalty``
    the part that suppressed rows add to the loss of generalisation, counted with the prunable criteria only,
    so that it never rises towards the top.  ``hopeless``: every vector below fails as well; such a node is not
    worth the time to add up its losses, and they are infinite.
    """

    vector: Vector
    suppressed: int
    loss: float
    penalty: float
    feasible: bool
    hopeless: bool


class Lattice:
    """Evaluates level vectors of one problem, each at most once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.top: Vector = problem.heights  # generalises everything away
        self._nodes: dict[Vector, Node] = {}
        data = problem.data
        self._bottom = finest(data)
        self._known: dict[Vector, Classes] = {(0,) * len(data.quasi): self._bottom}
        self._by_size: list[tuple[int, Vector]] = [(len(self._bottom), (0,) * len(data.quasi))]
        self._budget = CACHED_TUPLES * max(len(self._bottom), 1)
        self._digit = cache(self._digits)
        self._weight = float(sum(problem.weights))
        self.generalisation: tuple[Losses, ...] = tuple(
            self._attribute_losses(attribute) for attribute in range(len(data.quasi))
        )
        self._prunes_all = problem.monotone

    @property
    def evaluated(self) -> int:
        """Number of level vectors counted so far."""
        return len(self._nodes)

    def floor(self, vector: Vector) -> float:
        """G(v): the loss of generalisation alone, as if no row were suppressed."""
        return float(sum(losses[level] for losses, level in zip(self.generalisation, vector, strict=True)))

    def evaluate(self, vector: Vector) -> Node:
        """Count the classes of a level vector and judge them."""
        if vector not in self._nodes:
            self._nodes[vector] = self._judge(vector)
        return self._nodes[vector]

    def kept(self, vector: Vector) -> tuple[Classes, NDArray[np.bool_]]:
        """The classes of a level vector, and which of them may be published."""
        classes = self._classes(vector)
        return classes, safe(self.problem.criteria, classes)

    def _judge(self, vector: Vector) -> Node:
        problem = self.problem
        classes = self._classes(vector)
        failing = ~safe(problem.prunable, classes)
        hopeless = self._exceeds(classes, failing)
        unsafe = failing if self._prunes_all else ~safe(problem.criteria, classes)
        penalty = full_penalty = math.inf
        if not hopeless:
            penalty = full_penalty = self._penalty(vector, classes, failing)
            if not self._prunes_all:
                full_penalty = self._penalty(vector, classes, unsafe)
        return Node(
            vector=vector,
            suppressed=int(classes.counts[unsafe].sum()) + problem.data.excluded,
            loss=self.floor(vector) + full_penalty,
            penalty=penalty,
            feasible=not self._exceeds(classes, unsafe),
            hopeless=hopeless,
        )

    def _exceeds(self, classes: Classes, failing: NDArray[np.bool_]) -> bool:
        """Whether suppressing these classes takes too many rows, or cannot help because one has none."""
        counts = classes.counts[failing]
        out = int(counts.sum()) + self.problem.data.excluded
        return out > self.problem.allowed or not counts.all()

    def _classes(self, vector: Vector) -> Classes:
        """Roll up from the smallest known classes below."""
        if vector in self._known:
            return self._known[vector]
        finer = next(known for _, known in self._by_size if all(map(le, known, vector)))
        source = self._known[finer]
        sizes = [h.levels[level].size for h, level in zip(self.problem.hierarchies, vector, strict=True)]
        # attributes at their top add nothing to a key; the bottom has its tuples in order
        wanted = [(attribute, level) for attribute, level in enumerate(vector) if sizes[attribute] > 1]
        columns = [self._digit(attribute, level) for attribute, level in wanted]
        if source is not self._bottom:
            columns = [column[source.members] for column in columns]
        keys = pack(columns or [np.zeros(len(source), dtype=np.int64)], [size for size in sizes if size > 1] or [1])
        classes = source.merge(group(keys))
        self._keep(vector, classes)
        return classes

    def _keep(self, vector: Vector, classes: Classes) -> None:
        self._known[vector] = classes
        insort(self._by_size, (len(classes), vector))
        self._budget -= len(classes)
        while self._budget < 0:
            # the largest helps least; the bottom stays, as it is below everything
            last = -2 if not any(self._by_size[-1][1]) else -1
            size, dropped = self._by_size.pop(last)
            del self._known[dropped]
            self._budget += size

    def _digits(self, attribute: int, level: int) -> NDArray[np.int32]:
        """Cell of every tuple at one level of one attribute; short integers, as they are gathered again and again."""
        cells = self.problem.hierarchies[attribute].levels[level].cells.astype(np.int32)
        return cells[self.problem.data.codes[:, attribute]]

    def _penalty(self, vector: Vector, classes: Classes, failing: NDArray[np.bool_]) -> float:
        """Sum of (weights - loss of generalisation) over suppressed rows: what suppressing them adds."""
        members, counts = classes.members[failing], classes.counts[failing]
        missing = np.full(len(members), self._weight)
        for attribute, level in enumerate(vector):
            losses = self.problem.hierarchies[attribute].levels[level].losses
            if level:
                missing -= self.problem.weights[attribute] * losses[self._digit(attribute, level)[members]]
        return float(counts @ missing) + self._weight * self.problem.data.excluded

    def _attribute_losses(self, attribute: int) -> Losses:
        """Weighted loss over all rows at each level of one attribute, in cells."""
        data, hierarchy = self.problem.data, self.problem.hierarchies[attribute]
        per_leaf = np.bincount(data.codes[:, attribute], weights=data.counts, minlength=len(hierarchy.leaves))
        weight = self.problem.weights[attribute]
        return np.array([weight * float(per_leaf @ level.losses[level.cells]) for level in hierarchy.levels])
