"""Swaps of rows between neighboring classes, many pairs of classes at once.

Each pair makes the swap of two rows, or the move of one row, that lowers its loss most. Early rounds also accept a
small rise (threshold accepting, Dueck and Scheuer 1990).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from sfumato.anonymize.clustering.regrowth import JoinCosts, Singles
from sfumato.anonymize.clustering.space import Group
from sfumato.domain.hierarchy.levels import Integers

NEAREST = 12  # number of classes that a class may swap with
REFRESHED = 15  # rounds between updates of the nearest classes
CHUNK = 256  # pairs processed together
LAST = 0.9  # share of the rounds after which no swap may raise the loss
GAIN = 1e-6  # minimum gain, above rounding in single precision


@dataclass(frozen=True)
class Swaps:
    """A schedule: the number of rounds, the accepted rise at first as a share of a class's loss, and the deadline."""

    rounds: int
    threshold: float
    deadline: float = math.inf  # of the monotonic clock


class RowSwaps:
    """Classes of rows, one line per class. A swap with an empty place of a line is a move."""

    def __init__(self, costs: JoinCosts, groups: Sequence[Group], *, k: int, rng: np.random.Generator) -> None:
        self.costs, self.k, self.rng = costs, k, rng
        single = [np.repeat(tuples, rows) for tuples, rows in groups]
        self.sizes: Integers = np.array([len(rows) for rows in single])
        self.tuples = np.full((len(single), int(self.sizes.max()) + 1), -1)
        for line, rows in zip(self.tuples, single, strict=True):
            line[: len(rows)] = rows
        self.lows, self.highs = [], []
        for value, (low, high) in zip(costs.values, costs.absent(), strict=True):
            here, absent = value[self.tuples], self.tuples < 0
            self.lows.append(np.where(absent, low, here).astype(value.dtype))
            self.highs.append(np.where(absent, high, here).astype(value.dtype))

    def run(self, swaps: Swaps) -> list[Group]:
        """Swap rows, and return the tuples and rows of the classes."""
        if len(self.sizes) == 1:
            return self.groups()
        limit = swaps.threshold * float(self._losses().mean())
        near = self._nearest()
        for number in range(swaps.rounds):
            if monotonic() > swaps.deadline:
                break
            if number % REFRESHED == REFRESHED - 1:
                self._move_absent_last()
                near = self._nearest()
            one, other = self._pairs(near)
            widths = np.maximum(self.sizes[one], self.sizes[other])
            order = np.argsort(widths, kind="stable")
            for start in range(0, len(order), CHUNK):
                some = order[start : start + CHUNK]
                self._swap(one[some], other[some], limit * max(0.0, 1 - number / (LAST * swaps.rounds)))
        return self.groups()

    def groups(self) -> list[Group]:
        """Return the tuples and rows of every class."""
        return [np.unique(line[line >= 0], return_counts=True) for line in self.tuples]

    def _losses(self) -> Singles:
        ends = [low.min(axis=1) for low in self.lows], [high.max(axis=1) for high in self.highs]
        return np.asarray(self.sizes * self.costs.between(*ends), dtype=np.float32)

    def _move_absent_last(self) -> None:
        order = np.argsort(self.tuples < 0, axis=1, kind="stable")
        for held in (self.tuples, *self.lows, *self.highs):
            held[:] = np.take_along_axis(held, order, axis=1)

    def _nearest(self) -> Integers:
        """Return, for each class, the classes whose boxes take one of its rows, drawn at random, at the least cost."""
        there = self.tuples >= 0
        drawn = (self.rng.random(there.shape, dtype=np.float32) * there).argmax(axis=1)
        rows = self.tuples[np.arange(len(there)), drawn]
        ends = [low.min(axis=1) for low in self.lows], [high.max(axis=1) for high in self.highs]
        return NearestBoxes(self.costs, ends, self.rng).to(rows, number=NEAREST, own=np.arange(len(there)))

    def _pairs(self, near: Integers) -> tuple[Integers, Integers]:
        """Return disjoint pairs of a class and one of its nearest classes."""
        classes = np.arange(len(near))
        other = near[classes, self.rng.integers(near.shape[1], size=len(near))]
        luck = self.rng.random(len(near))
        best = luck.copy()
        np.minimum.at(best, other, luck)
        chosen = (best == luck) & (best[other] == luck) & (other != classes)
        return classes[chosen], other[chosen]

    def _swap(self, one: Integers, other: Integers, limit: float) -> None:
        """Make the best swap of each pair if it lowers the loss, or raises it by less than a random part of
        ``limit``.
        """
        width = min(int(max(self.sizes[one].max(), self.sizes[other].max())) + 1, self.tuples.shape[1])
        wide = width if (self.tuples[one, width:] < 0).all() and (self.tuples[other, width:] < 0).all() else None
        without_one, without_other = self._without(one, wide), self._without(other, wide)
        at_one = (
            [low[one, :wide][:, :, None] for low in self.lows],
            [high[one, :wide][:, :, None] for high in self.highs],
        )
        at_other = (
            [low[other, :wide][:, None] for low in self.lows],
            [high[other, :wide][:, None] for high in self.highs],
        )
        # (pairs, rows of one, rows of the other)
        ends = [each[:, :, None] for each in without_one[0]], [each[:, :, None] for each in without_one[1]]
        first = self.costs.joined(*ends, *at_other)
        ends = [each[:, None] for each in without_other[0]], [each[:, None] for each in without_other[1]]
        second = self.costs.joined(*ends, *at_one)
        moved = (self.tuples[other, :wide] >= 0)[:, None].astype(np.int64) - (self.tuples[one, :wide] >= 0)[:, :, None]
        sizes = self.sizes[one][:, None, None] + moved, self.sizes[other][:, None, None] - moved
        losses = self._losses_of(one) + self._losses_of(other)
        added = (sizes[0] * first + sizes[1] * second - losses[:, None, None]).astype(np.float32)
        added[(sizes[0] < self.k) | (sizes[1] < self.k)] = np.inf
        flat = added.reshape(len(one), -1)
        if limit:
            flat = flat - np.float32(limit) * self.rng.random(flat.shape, dtype=np.float32)
        best = flat.argmin(axis=1)
        pairs = np.flatnonzero(flat[np.arange(len(one)), best] < -GAIN)
        columns = added.shape[2]
        self._exchange(one[pairs], best[pairs] // columns, other[pairs], best[pairs] % columns)

    def _losses_of(self, classes: Integers) -> Singles:
        ends = [low[classes].min(axis=1) for low in self.lows], [high[classes].max(axis=1) for high in self.highs]
        return np.asarray(self.sizes[classes] * self.costs.between(*ends), dtype=np.float32)

    def _without(self, classes: Integers, width: int | None) -> tuple[list[Singles], list[Singles]]:
        """Return the ends of each class without each of its rows."""
        lows, highs = [], []
        for low, high in zip(self.lows, self.highs, strict=True):
            two = np.partition(low[classes], 1, axis=1)[:, :2]
            lows.append(np.where(low[classes, :width] == two[:, :1], two[:, 1:], two[:, :1]))
            two = -np.partition(-high[classes], 1, axis=1)[:, :2]
            highs.append(np.where(high[classes, :width] == two[:, :1], two[:, 1:], two[:, :1]))
        return lows, highs

    def _exchange(self, one: Integers, row: Integers, other: Integers, column: Integers) -> None:
        for held in (self.tuples, *self.lows, *self.highs):
            held[one, row], held[other, column] = held[other, column], held[one, row]
        for classes in (one, other):
            self.sizes[classes] = (self.tuples[classes] >= 0).sum(axis=1)


NEAREST_CHUNK = 16  # rows compared with thousands of boxes at once: the data stay in the second-level cache
FOLDS = 8  # parts of a line whose minima are compared first


class NearestBoxes:
    """An index that returns the cheapest boxes for a row, with ties in random order."""

    def __init__(
        self, costs: JoinCosts, ends: tuple[Sequence[Singles], Sequence[Singles]], luck: np.random.Generator
    ) -> None:
        self.costs = costs
        self.boxes: Integers = luck.permutation(len(ends[0][0]))
        self.place = np.argsort(self.boxes)
        self.lows, self.highs = ([end[self.boxes] for end in each] for each in ends)
        self.each = costs.between(self.lows, self.highs)

    def to(self, rows: Integers, *, number: int, own: Integers) -> Integers:
        """Return, for each row, the cheapest boxes other than its own: shape ``(rows, number)``."""
        number = min(number, len(self.boxes) - 1)
        result = np.empty((len(rows), number), dtype=np.int64)
        for start in range(0, len(rows), NEAREST_CHUNK):
            part = slice(start, start + NEAREST_CHUNK)
            point = [value[rows[part], None] for value in self.costs.values]
            added = self.costs.joined(self.lows, self.highs, point, point)
            added -= self.each
            added[np.arange(len(added)), self.place[own[part]]] = np.inf
            result[part] = self.boxes[least_columns(added, number)]
        return result


def least_columns(values: Singles, number: int) -> Integers:
    """Return the columns of the least values of each line, in ascending order of value, shape ``(lines, number)``.

    Each line is folded, and the least values are in the columns with the least minima over the folds.
    """
    lines, columns = values.shape
    width = columns // FOLDS
    if width < number:
        return values.argsort(axis=1, kind="stable")[:, :number]
    folded = values[:, : width * FOLDS].reshape(lines, FOLDS, width)
    closest = np.argpartition(folded.min(axis=1), number - 1, axis=1)[:, None, :number]
    among = (closest + width * np.arange(FOLDS)[:, None]).reshape(lines, -1)
    rest = np.broadcast_to(np.arange(width * FOLDS, columns), (lines, columns - width * FOLDS))
    among = np.sort(np.concatenate([among, rest], axis=1), axis=1)
    order = np.take_along_axis(values, among, axis=1).argsort(axis=1, kind="stable")[:, :number]
    return np.take_along_axis(among, order, axis=1)
