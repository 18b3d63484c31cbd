"""How many rows fail in a level vector, counted in buckets of a hash: fast, and never more than do fail.

Two classes that share a bucket look like one larger class, so that fewer rows fail there than do.  What is ruled out
by such a count is ruled out rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import group, pack
from sfumato.anonymize.search.lattice import Problem, Vector
from sfumato.domain.hierarchy.levels import Integers, Reals

MOST_BUCKETS = 20  # bits


@dataclass(frozen=True, eq=False)
class RolledTuples:
    """The tuples of a table rolled up to a vector: one member of each class, and how many rows it has."""

    vector: Vector
    members: NDArray[np.int32]
    rows: Reals


class GeneralisedTable:
    """The tuples of a problem with their cells at every level of every attribute."""

    def __init__(self, problem: Problem) -> None:
        levels = [hierarchy.levels for hierarchy in problem.hierarchies]
        self.least = max(each.least_rows for each in problem.criteria)  # fewer rows never make a class that holds
        self.sizes = [[level.size for level in each] for each in levels]
        self.cells = [[level.cells.astype(np.int64) for level in each] for each in levels]  # of every leaf
        self.losses: list[list[Reals]] = [
            [weight * level.losses[level.cells] for level in each]
            for weight, each in zip(problem.weights, levels, strict=True)
        ]
        rng = np.random.default_rng(0)  # any numbers are right: they decide which classes share a bucket
        self.hashes: list[list[NDArray[np.uint64]]] = [
            [rng.integers(0, 1 << 64, size=level.size, dtype=np.uint64)[level.cells] for level in each]
            for each in levels
        ]
        self.codes = [np.ascontiguousarray(column, dtype=np.int64) for column in problem.data.codes.T]
        self.bottom = RolledTuples(
            (0,) * len(levels),
            np.arange(len(problem.data.codes), dtype=np.int32),
            problem.data.counts.astype(np.float64),
        )

    def roll_up(self, finer: RolledTuples, vector: Vector) -> RolledTuples:
        """The tuples of a vector above; classes are exact."""
        wanted = [(attribute, level) for attribute, level in enumerate(vector) if self.sizes[attribute][level] > 1]
        columns = [self.cells[a][level].take(self.codes[a].take(finer.members)) for a, level in wanted]
        sizes = [self.sizes[a][level] for a, level in wanted]
        keys = pack(columns or [np.zeros(len(finer.members), dtype=np.int64)], sizes or [1])
        classes = group(keys)
        rows = np.bincount(classes.classes, weights=finer.rows).astype(np.float64, copy=False)
        return RolledTuples(vector, finer.members[classes.members], rows)


@dataclass(frozen=True, eq=False)
class BucketClasses:
    """Classes of a vector by bucket: which one each tuple is in, whether that fails, and how many rows fail."""

    numbers: Integers  # (tuples,)
    failed: NDArray[np.bool_]  # (tuples,)
    failing: float


class BucketCounts:
    """Counts failing rows of rolled up tuples in vectors above theirs.

    Args:
        table: the table.
        rolled: its tuples, rolled up.
        high: a vector close to those that will be asked for.
    """

    def __init__(self, table: GeneralisedTable, rolled: RolledTuples, high: Vector) -> None:
        self.counted = 0  # vectors so far
        self._table = table
        self._rows = rolled.rows
        self._codes = [codes.take(rolled.members) for codes in table.codes]
        self._shift = np.uint64(64 - min((2 * len(self._rows)).bit_length(), MOST_BUCKETS))
        self._high = high
        self._cells = cache(self._cells_of)
        self._key = np.zeros(len(self._rows), dtype=np.uint64)
        for hashes, codes, level in zip(table.hashes, self._codes, high, strict=True):
            self._key += hashes[level].take(codes)

    def classes(self, vector: Sequence[int]) -> BucketClasses:
        """The classes of a vector."""
        key = self._key
        for hashes, codes, level, was in zip(self._table.hashes, self._codes, vector, self._high, strict=True):
            if level != was:
                key = key + (hashes[level] - hashes[was]).take(codes)
        buckets = (key >> self._shift).view(np.int64)
        rows = np.bincount(buckets, weights=self._rows)
        used = rows > 0
        numbers = np.maximum(np.cumsum(used) - 1, 0)  # a tuple without rows goes anywhere
        return self._judged(numbers.take(buckets), rows[used])

    def refined(self, classes: BucketClasses, attribute: int, level: int) -> float:
        """Rows that fail where one attribute is at a finer level than that of the classes."""
        finer = classes.numbers * self._table.sizes[attribute][level]
        finer += self._cells(attribute, level)
        return self._judged(finer, np.bincount(finer, weights=self._rows)).failing

    def lost(self, classes: BucketClasses, vector: Sequence[int], weight: float) -> float:
        """What rows that fail lose beyond their generalisation by a vector, where suppression costs ``weight``."""
        failed = np.flatnonzero(classes.failed)
        missing = np.full(len(failed), weight)
        for attribute, level in enumerate(vector):
            if level:
                missing -= self._table.losses[attribute][level].take(self._codes[attribute].take(failed))
        return float(self._rows[failed] @ missing)

    def _cells_of(self, attribute: int, level: int) -> Integers:
        return self._table.cells[attribute][level].take(self._codes[attribute])

    def _judged(self, numbers: Integers, rows: NDArray[Any]) -> BucketClasses:
        self.counted += 1
        failed = rows.take(numbers) < self._table.least
        return BucketClasses(numbers, failed, float(self._rows @ failed))
