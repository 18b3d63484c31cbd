"""The space of local recoding: tuples are points, classes are boxes, and each box has a cost.

Every attribute has an order.  Intervals use their own order.  Hierarchy cells use the depth-first order of the leaves,
in which every cell is a run.  So the cell of a class depends only on its least and greatest rank.  For a hierarchy, it
is the lowest common ancestor of these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.microdata import Microdata
from sfumato.domain.hierarchy.levels import Hierarchy, Integers, Level, Reals
from sfumato.errors import InputError

IN_TURN = 8  # numpy adds fewer numbers than this one after another, and more of them in pairs
LARGEST_TABLE = 2048  # most ranks of an attribute with a table of the costs of all pairs of them


class Scale(Protocol):
    """An order of the codes of one attribute, and the cell spanned by two codes."""

    @property
    def domain_size(self) -> int | None:
        """The number of leaves of the hierarchy, or None for intervals."""
        ...

    @property
    def ranks(self) -> Integers:
        """The rank of each code, shape ``(codes,)``.  Codes of equal rank are always treated alike."""
        ...

    def losses(self, low: Integers, high: Integers) -> Reals:
        """Return the loss of the cell from each code ``low`` to the code ``high``, of no lower rank."""
        ...

    def cuts(self, codes: Integers) -> NDArray[np.bool_]:
        """Return whether a class with these codes (ascending rank) may be cut after each code but the last."""
        ...

    def levels_from_top(self, codes: Integers) -> Integers:
        """Return the cells that ``cuts`` never divides, coarsest level first: shape ``(levels, codes)``."""
        ...

    def label(self, low: int, high: int) -> str:
        """Return the name of the cell from code ``low`` to code ``high``."""
        ...

    def cover(self, low: int, high: int) -> tuple[int, int]:
        """Return the least and greatest rank of the cell from code ``low`` to code ``high``."""
        ...


@dataclass(frozen=True, eq=False)
class Intervals:
    """A scale of free intervals in the order of the codes.  The loss is (greatest - least) / span.

    ``positions`` are rising numbers of the declared values, shape ``(declared,)``: values of an integer attribute, or
    codes of categories.  ``span`` is the width of the declared range in the same units.  Codes of missing and unknown
    values follow all declared values and have no position.  A cell with such a code and any other code has loss 1.
    """

    labels: tuple[str, ...]
    positions: Reals
    span: float

    domain_size: ClassVar[None] = None

    @property
    def ranks(self) -> Integers:
        """The codes themselves, which are in order."""
        return np.arange(len(self.labels))

    def losses(self, low: Integers, high: Integers) -> Reals:
        """Return (greatest - least) / span; 1 if one of two codes is a missing or unknown value."""
        if len(self.labels) == len(self.positions):  # no missing or unknown values
            widths = np.asarray(self.positions[high] - self.positions[low])
            np.maximum(widths, 0, out=widths)  # in place, as most of the time goes to memory
            widths /= self.span or 1.0
            return widths
        values = np.maximum(low, high) < len(self.positions)
        least, greatest = (self.positions[np.where(values, codes, 0)] for codes in (low, high))
        widths = np.maximum(greatest - least, 0) / (self.span or 1.0)
        return np.where(values, widths, (high > low).astype(np.float64))

    def cuts(self, codes: Integers) -> NDArray[np.bool_]:
        """Return True everywhere: an interval may be cut after each code."""
        return np.ones(len(codes) - 1, dtype=bool)

    def levels_from_top(self, codes: Integers) -> Integers:
        """Return a single level, on which each code is a cell."""
        return np.arange(len(codes))[None]

    def label(self, low: int, high: int) -> str:
        """Return the value, ``low..high``, or ``{low..high, (missing)}`` if there are missing or unknown values.

        >>> scale = Intervals(("a", "b", "c", "(missing)", "(other)"), np.arange(3.0), 2.0)
        >>> scale.label(0, 1), scale.label(1, 4), scale.label(2, 3), scale.label(3, 4)
        ('a..b', '{b..c, (missing), (other)}', '{c, (missing)}', '{(missing), (other)}')
        """
        if low == high:
            return self.labels[low]
        values = len(self.positions)
        last = min(high, values - 1)
        run = [] if low > last else [self.labels[low] if low == last else f"{self.labels[low]}..{self.labels[last]}"]
        no_values = self.labels[max(low, values) : high + 1]
        return f"{{{', '.join([*run, *no_values])}}}" if no_values else run[0]

    def cover(self, low: int, high: int) -> tuple[int, int]:
        """Return the two codes, because an interval covers all codes between them."""
        return low, high


@dataclass(frozen=True, eq=False)
class HierarchyCells:
    """A scale of the cells of a hierarchy: a class gets the lowest cell that covers it."""

    hierarchy: Hierarchy

    @property
    def domain_size(self) -> int:
        """The leaves of the hierarchy, dropped ones included."""
        return self.hierarchy.domain_size

    @property
    def ranks(self) -> Integers:
        """The position of each leaf in depth-first order."""
        order = np.lexsort([level.cells for level in self.hierarchy.levels])
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def losses(self, low: Integers, high: Integers) -> Reals:
        """Return the loss of the lowest common cell of each pair."""
        result = np.zeros(np.broadcast_shapes(low.shape, high.shape))
        for level in reversed(self.hierarchy.levels):
            joined = level.cells[low] == level.cells[high]
            result = np.where(joined, level.losses[level.cells[high]], result)
        return result

    def cuts(self, codes: Integers) -> NDArray[np.bool_]:
        """Return True between cells of the coarsest level at which the class has several cells."""
        for level in reversed(self.hierarchy.levels):
            cells = level.cells[codes]
            if cells[0] != cells[-1]:
                return np.asarray(cells[1:] != cells[:-1])
        return np.zeros(len(codes) - 1, dtype=bool)

    def levels_from_top(self, codes: Integers) -> Integers:
        """Return the cells of the hierarchy, top level first."""
        return np.stack([level.cells[codes] for level in reversed(self.hierarchy.levels)])

    def label(self, low: int, high: int) -> str:
        """Return the name of the lowest common cell."""
        level = self._common(low, high)
        return level.labels[int(level.cells[low])]

    def cover(self, low: int, high: int) -> tuple[int, int]:
        """Return the least and greatest rank of the lowest common cell."""
        level = self._common(low, high)
        ranks = self.ranks[level.cells == level.cells[low]]
        return int(ranks.min()), int(ranks.max())

    def _common(self, low: int, high: int) -> Level:
        return next(level for level in self.hierarchy.levels if level.cells[low] == level.cells[high])


@dataclass(frozen=True, eq=False)
class Space:
    """The points and box costs of one table.

    ``points`` has shape ``(tuples, quasi)``: the rank of each code among the codes that occur.  ``codes[a]`` are these
    codes in order.  ``counts`` are rows per tuple.  Up to :data:`LARGEST_TABLE` ranks, the weighted losses of all pairs
    of ranks of an attribute are in one flat table, because looking them up is faster than computing them.
    """

    scales: tuple[Scale, ...]
    points: Integers
    counts: Integers
    codes: tuple[Integers, ...]
    sizes: Integers  # (quasi,)
    _weights: Reals  # (quasi,)
    _offsets: Integers  # where the pairs of an attribute begin in the table
    _table: Reals

    @classmethod
    def embed(cls, data: Microdata, scales: Sequence[Scale], *, weights: Sequence[float]) -> Space:
        """Return the space of a table.

        Raises:
            InputError: there is not one scale and one weight per quasi-identifier, or there are no rows.
        """
        if len(scales) != len(data.quasi) or len(weights) != len(data.quasi):
            raise InputError("each quasi-identifier needs one scale and one weight", culprit=data.quasi)
        if not len(data.counts):
            raise InputError("there is no row to anonymize")
        points, codes, tables = [], [], []
        for column, scale, weight in zip(data.codes.T, scales, weights, strict=True):
            ranks, place = np.unique(scale.ranks[column], return_inverse=True)
            held = np.argsort(scale.ranks)[ranks]
            codes.append(held)
            points.append(place)
            small = held if len(held) <= LARGEST_TABLE else held[:0]
            tables.append((weight * scale.losses(small[:, None], small)).ravel())
        offsets = np.cumsum([0, *map(len, tables)])[:-1]
        return cls(
            tuple(scales),
            np.stack(points, axis=1),
            data.counts,
            tuple(codes),
            np.array([len(held) for held in codes]),
            np.array(weights, dtype=np.float64),
            offsets,
            np.concatenate(tables),
        )

    def part(self, tuples: Integers, rows: Integers) -> Space:
        """Return the space of some tuples, with the given rows per tuple."""
        return replace(self, points=self.points[tuples], counts=rows)

    def cost(self, low: Integers, high: Integers) -> Reals:
        """Return the weighted loss of one row in each box: the shape of ``low`` without its last axis."""
        return np.asarray(self.cells(low, high).sum(axis=-1))

    def cells(self, low: Integers, high: Integers) -> Reals:
        """Return the weighted loss of each cell of each box: the shape of ``low``."""
        if (self.sizes <= LARGEST_TABLE).all():
            return np.asarray(self._table[low * self.sizes + high + self._offsets])
        result = np.empty(low.shape)
        for attribute in range(len(self.sizes)):
            result[..., attribute] = self.pairs(attribute, low[..., attribute], high[..., attribute])
        return result

    @staticmethod
    def total(cells: Reals) -> Reals:
        """Return the sums over the first axis, rounded as in :meth:`cost`, so that ties are equal."""
        if len(cells) < IN_TURN:
            return np.asarray(cells.sum(axis=0))  # much faster than a sum over a short last axis
        return np.asarray(np.ascontiguousarray(np.moveaxis(cells, 0, -1)).sum(axis=-1))

    def pairs(self, attribute: int, low: Integers, high: Integers) -> Reals:
        """Return the weighted loss of the cell from each rank ``low`` to ``high`` of an attribute; shapes broadcast."""
        if (size := int(self.sizes[attribute])) <= LARGEST_TABLE:
            return np.asarray(self._table[low * size + high + self._offsets[attribute]])
        codes = self.codes[attribute]
        return np.asarray(self._weights[attribute] * self.scales[attribute].losses(codes[low], codes[high]))

    def losses(self, low: Integers, high: Integers) -> Reals:
        """Return the unweighted loss of each cell of each box, in 0..1: shape ``(boxes, quasi)``."""
        scales = zip(self.scales, self.codes, low.T, high.T, strict=True)
        return np.stack([scale.losses(codes[first], codes[last]) for scale, codes, first, last in scales], axis=1)

    def describe(self, low: Integers, high: Integers) -> tuple[tuple[str, ...], Integers, Integers]:
        """Return the labels of one box, and the least and greatest ranks of its cells, shape ``(quasi,)``."""
        labels, covers = [], []
        for scale, codes, first, last in zip(self.scales, self.codes, low, high, strict=True):
            ends = int(codes[first]), int(codes[last])
            labels.append(scale.label(*ends))
            covers.append(scale.cover(*ends))
        lows, highs = zip(*covers, strict=True)
        return tuple(labels), np.array(lows), np.array(highs)


Group = tuple[Integers, Integers]  # tuples of a class, and the number of rows of each


@dataclass(frozen=True, eq=False)
class Partition:
    """A division of rows into classes: ``rows[p]`` rows of tuple ``tuples[p]`` are in class ``classes[p]``.

    Parts are sorted by class.  A tuple may be in several classes; a random draw assigns its rows when they are written.
    ``stopped`` is true if a deadline ended the search.
    """

    tuples: Integers
    classes: Integers
    rows: Integers
    stopped: bool = False

    @classmethod
    def from_groups(cls, groups: list[Group]) -> Partition:
        """Return a partition from the tuples and rows of each class."""
        return cls(
            np.concatenate([tuples for tuples, _ in groups]),
            np.repeat(np.arange(len(groups)), [len(tuples) for tuples, _ in groups]),
            np.concatenate([rows for _, rows in groups]),
        )

    @property
    def size(self) -> int:
        """The number of classes."""
        return int(self.classes[-1]) + 1

    @property
    def _starts(self) -> Integers:
        return np.searchsorted(self.classes, np.arange(self.size))

    def counts(self) -> Integers:
        """Return the rows of each class."""
        return np.add.reduceat(self.rows, self._starts)

    def boxes(self, space: Space) -> tuple[Integers, Integers]:
        """Return the least and greatest rank of each class, each of shape ``(classes, quasi)``."""
        columns, starts = [column[self.tuples] for column in space.points.T], self._starts  # faster than by rows
        low = [np.minimum.reduceat(column, starts) for column in columns]
        return np.stack(low, axis=1), np.stack([np.maximum.reduceat(column, starts) for column in columns], axis=1)

    def loss(self, space: Space) -> float:
        """Return the weighted loss in cells: rows times the loss of their class's box, summed."""
        return float(self.counts() @ space.cost(*self.boxes(space)))
