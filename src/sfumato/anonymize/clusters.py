"""Rows gathered into classes of at least k: the state that k-member builds and local search improves.

Only multiplicities matter, so a class is a box with a number of rows of each tuple.  A tuple with k rows or
more has a *home*, a class of its own that loses nothing; rows beyond k may leave it to fill other classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.partition import Group
from sfumato.anonymize.space import Space

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cluster:
    """A class: its box, and how many rows of each tuple it holds; ``cost`` is the loss of one row."""

    low: Integers
    high: Integers
    cost: float
    parts: dict[int, int]
    size: int

    @property
    def loss(self) -> float:
        """Loss of all rows."""
        return self.size * self.cost


class Clusters:
    """Homes and classes of mixed tuples, with a journal so that a trial can be taken back."""

    def __init__(self, space: Space, k: int) -> None:
        self.space = space
        self.k = k
        self.home: Integers = np.where(space.counts >= k, space.counts, 0)  # rows of each tuple at home
        self.need: Integers = space.counts - self.home  # rows of each tuple without a class
        self.mixed: dict[int, Cluster] = {}
        self.holders: list[set[int]] = [set() for _ in space.counts]  # mixed classes that hold each tuple
        self.loss = 0.0
        self._next = 0
        self._added: list[int] = []
        self._dropped: list[tuple[int, Cluster]] = []

    def cluster(self, parts: dict[int, int]) -> Cluster:
        """The class of these rows, in the smallest box."""
        points = self.space.points[list(parts)]
        low, high = points.min(axis=0), points.max(axis=0)
        return Cluster(low, high, float(self.space.cost(low, high)), parts, sum(parts.values()))

    def add(self, cluster: Cluster) -> None:
        """Place a class whose rows were taken from home or from need already."""
        self._place(self._next, cluster)
        self._added.append(self._next)
        self._next += 1

    def drop(self, number: int) -> Cluster:
        """Take a class away; its rows are the caller's."""
        cluster = self._remove(number)
        if number in self._added:
            self._added.remove(number)
        else:
            self._dropped.append((number, cluster))
        return cluster

    def release(self, numbers: Iterable[int]) -> None:
        """Dissolve classes: rows go home if there is one, or if k of a tuple come together; others need a class."""
        for number in numbers:
            for tuple_, rows in self.drop(number).parts.items():
                self.need[tuple_] += rows
                if self.home[tuple_] or self.need[tuple_] >= self.k:
                    self.home[tuple_] += self.need[tuple_]
                    self.need[tuple_] = 0

    def groups(self) -> list[Group]:
        """Tuples and rows of every class, homes first."""
        homes = [(np.array([tuple_]), self.home[tuple_ : tuple_ + 1]) for tuple_ in np.flatnonzero(self.home)]
        parts = (cluster.parts for cluster in self.mixed.values())
        return homes + [(np.array(list(part)), np.array(list(part.values()))) for part in parts]

    def settle(self) -> None:
        """Keep what was done since the last settlement."""
        self._added.clear()
        self._dropped.clear()

    def take_back(self) -> None:
        """Undo what was done since the last settlement: the rows of classes return to where they were."""
        for number in self._added:
            self._remove(number)
        for number, cluster in self._dropped:
            self._place(number, cluster)
        self.settle()

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
