"""Rows of tuples divided among classes: what every local method returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.space import Space

Integers = NDArray[np.int64]
Group = tuple[Integers, Integers]  # tuples of a class, and how many rows of each


@dataclass(frozen=True, eq=False)
class Partition:
    """``rows[p]`` rows of tuple ``tuples[p]`` are in class ``classes[p]``; parts come in order of their class.

    A tuple may be in several classes; which of its rows go where is drawn at random when rows are written.
    """

    tuples: Integers
    classes: Integers
    rows: Integers

    @classmethod
    def of(cls, groups: list[Group]) -> Partition:
        """From the tuples and rows of each class."""
        return cls(
            np.concatenate([tuples for tuples, _ in groups]),
            np.repeat(np.arange(len(groups)), [len(tuples) for tuples, _ in groups]),
            np.concatenate([rows for _, rows in groups]),
        )

    @property
    def size(self) -> int:
        """Number of classes."""
        return int(self.classes[-1]) + 1

    @property
    def _starts(self) -> Integers:
        return np.searchsorted(self.classes, np.arange(self.size))

    def counts(self) -> Integers:
        """Rows of each class."""
        return np.add.reduceat(self.rows, self._starts)

    def boxes(self, space: Space) -> tuple[Integers, Integers]:
        """Least and greatest rank of each class, each of shape ``(classes, quasi)``."""
        points = space.points[self.tuples]
        return np.minimum.reduceat(points, self._starts, axis=0), np.maximum.reduceat(points, self._starts, axis=0)

    def loss(self, space: Space) -> float:
        """Weighted loss in cells: rows times the loss of their class's box, summed."""
        return float(self.counts() @ space.cost(*self.boxes(space)))
