"""Move sampled rows toward the counts of many tables at once, also of tables that no junction tree can hold together.

The idea is the gradual update of PrivSyn (Zhang, Wang, Li, Honorio, Backes, He, Chen and Zhang 2021).  A row moves to
another cell of one attribute if that lowers the squared residuals of all tables, each in its own noise.  Rows start as
a sample of a model.  So rows change only as far as the tables say, and precise tables decide where tables disagree.

A step looks at a window of rows, because far more rows can move than have to.  The search ends when it gains little
compared with noise, so its time depends on the misfit of the tables, and hardly on the number of rows.

This is post-processing: it reads noisy counts and rows of a public model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.model.factor import FloatArray
from sfumato.model.row_sampling import CodeArray

_SWEEPS = 100  # at most; a sweep looks at a window of rows, once for each attribute
_SEEN = 4  # sweeps after which the gain is compared with the noise
_TOLERANCE = 0.005  # the search ends if these sweeps gained less than this part of the loss that noise alone leaves
_FIRST_PART = 0.3  # part of the moves that a step takes at first
_GROW, _SHRINK = 1.3, 0.5
_BATCHES = 4  # batches of moves of a step
_WINDOW = 1 << 11  # most rows that a step looks at
_COMPARED = 1 << 22  # most cells that a step compares, in all its rows: 16 MiB an array
_SINGLE = 1e-6  # bound on the rounding of a sum of single precision, for each summand, relative to the sum of sizes
_ROUNDING = 0.1  # variance of a count that is rounded to a whole row


@dataclass(frozen=True, eq=False)
class TargetTable:
    """The counts that rows should have in a table, and the variance of their error.

    Attributes:
        attributes: numbers of its attributes, one for each axis.
        places: for each axis, the place on it of each cell of the attribute.
        counts: wanted counts, one axis for each attribute.
        variance: variance of the error of one count: a number, or one for each count.
    """

    attributes: tuple[int, ...]
    places: tuple[NDArray[np.int64], ...]
    counts: FloatArray
    variance: float | FloatArray


@dataclass(frozen=True, eq=False)
class ImpossibleCells:
    """The impossible cells of a table of attributes, one axis for each of them."""

    attributes: tuple[int, ...]
    cells: NDArray[np.bool_]

    def of_rows(self, columns: Sequence[CodeArray], attribute: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the impossible cells of an attribute given the others: shape ``(rows, cells)`` or ``(cells,)``."""
        last = np.moveaxis(self.cells, self.attributes.index(attribute), -1)
        impossible: NDArray[np.bool_] = last[
            tuple(columns[each][rows] for each in self.attributes if each != attribute)
        ]
        return impossible


def tune_rows(
    columns: Sequence[CodeArray],
    sizes: Sequence[int],
    targets: Sequence[TargetTable],
    impossible: Sequence[ImpossibleCells],
    generator: np.random.Generator,
) -> list[CodeArray]:
    """Return rows that are closer to all target tables.

    No row moves into an impossible cell.  Each step lowers the sum of squared residuals, each divided by its variance.

    Args:
        columns: one array of cells for each attribute, shape ``(rows,)``; rows are in random order.
        sizes: number of cells of each attribute.
        targets: tables; their counts sum to the number of rows.
        impossible: cells that no row may have.
        generator: chooses among moves.
    """
    tuning = _Tuning.of_rows(columns, sizes, targets)
    least = _TOLERANCE * len(tuning.slopes) / 2  # noise of one standard deviation in each cell leaves half of the cells
    saved = 0.0
    for sweep in range(_SWEEPS):
        for attribute in generator.permutation(len(columns)).tolist():
            zeros = [each for each in impossible if attribute in each.attributes]
            saved += tuning.step(attribute, tuning.window(attribute, sweep), zeros, generator)
        if sweep % _SEEN == _SEEN - 1:
            if saved < least:
                break
            saved = 0.0
    return tuning.columns


@dataclass(frozen=True, eq=False)
class _FlatTable:
    """A target table in the array of all slopes: its cells there, and the largest ``weight`` of a squared residual.

    ``offsets`` are, for each attribute, the summands of its cells in the number of a cell of the table.  ``strides``
    and ``lengths`` are the strides and lengths of its axis.  Cells of the attributes in ``joined`` share places.
    """

    cells: slice
    offsets: dict[int, NDArray[np.int64]]
    strides: dict[int, int]
    lengths: dict[int, int]
    joined: frozenset[int]
    weight: float

    @staticmethod
    def of_target(target: TargetTable, start: int) -> _FlatTable:
        """Return the table of a target whose cells have the numbers from ``start``."""
        strides = np.cumprod((1, *target.counts.shape[:0:-1]))[::-1]
        places = dict(zip(target.attributes, target.places, strict=True))
        steps = dict(zip(target.attributes, strides.tolist(), strict=True))
        offsets = {attribute: places[attribute].astype(np.int64) * steps[attribute] for attribute in places}
        lengths = dict(zip(target.attributes, target.counts.shape, strict=True))
        joined = frozenset(each for each, held in places.items() if len(np.unique(held)) < len(held))
        cells = slice(start, start + target.counts.size)
        return _FlatTable(cells, offsets, steps, lengths, joined, float(1 / (np.min(target.variance) + _ROUNDING)))

    def others(self, columns: Sequence[CodeArray], rows: slice, attribute: int | None = None) -> NDArray[np.int64]:
        """Return what all attributes but one add to the number of the cell of each row in the table."""
        added = [offsets.take(columns[each][rows]) for each, offsets in self.offsets.items() if each != attribute]
        return sum(added[1:], added[0]) if added else np.zeros(len(columns[0][rows]), dtype=np.int64)

    def values_of(self, values: FloatArray, attribute: int, others: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the ``values`` in all cells of an attribute, one row for each sum of :meth:`others`.

        ``values`` has a number for each cell of all tables.  This reads whole rows of memory, which is faster than one
        value at a time.
        """
        stride, length = self.strides[attribute], self.lengths[attribute]
        places = self.offsets[attribute] // stride
        by_places = values[self.cells].astype(np.float32).reshape(-1, length, stride).swapaxes(1, 2)
        before = others // (length * stride)
        return by_places[..., places].reshape(-1, len(places)).take(others - before * ((length - 1) * stride), axis=0)


@dataclass(frozen=True, eq=False)
class _Proposals:
    """Rows that may move to new ``cells`` of an attribute.

    ``old`` and ``new`` are the numbers of their cells in each table, shape ``(tables, rows)``.
    """

    rows: NDArray[np.int64]
    cells: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]

    def select(self, part: slice | NDArray[np.int64]) -> _Proposals:
        """Return some of the moves."""
        return _Proposals(self.rows[part], self.cells[part], self.old[:, part], self.new[:, part])

    def gains(self, slopes: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the loss that each move saves alone."""
        gains: FloatArray = slopes.take(self.old)
        gains -= slopes.take(self.new)
        gains -= (weights.take(self.old) + weights.take(self.new)) / 2
        gains[self.old == self.new] = 0.0
        total: FloatArray = gains.sum(axis=0)
        return total

    def apply(self, slopes: FloatArray, weights: FloatArray, sign: int = 1) -> float:
        """Make all moves, or take them back, and return the loss that this saves."""
        before = float(slopes.take(self.old).sum() - slopes.take(self.new).sum())
        np.add.at(slopes, self.new.ravel(), sign * weights.take(self.new).ravel())
        np.subtract.at(slopes, self.old.ravel(), sign * weights.take(self.old).ravel())
        return sign * (before + float(slopes.take(self.old).sum() - slopes.take(self.new).sum())) / 2


@dataclass(eq=False)
class _Tuning:
    """The rows while they are tuned.

    ``slopes`` are, for each cell of all tables, the counts of the rows minus those of the target, times the
    ``weights``.  ``parts`` is the part of the moves of each attribute that a step takes.
    """

    columns: list[CodeArray]
    sizes: Sequence[int]
    tables: list[_FlatTable]
    slopes: FloatArray
    weights: FloatArray
    parts: dict[int, float] = field(default_factory=dict)

    @staticmethod
    def of_rows(columns: Sequence[CodeArray], sizes: Sequence[int], targets: Sequence[TargetTable]) -> _Tuning:
        """Return copies of rows, before they are tuned to targets."""
        tables, slopes, weights, start = [], [], [], 0
        for target in targets:
            table = _FlatTable.of_target(target, start)
            held = np.bincount(table.others(columns, slice(None)), minlength=target.counts.size)
            weights.append(np.broadcast_to(1 / (target.variance + _ROUNDING), target.counts.shape).ravel())
            slopes.append(weights[-1] * (held - target.counts.ravel()))
            tables.append(table)
            start += target.counts.size
        copies = [column.copy() for column in columns]
        return _Tuning(copies, sizes, tables, np.concatenate(slopes), np.concatenate(weights))

    def window(self, attribute: int, sweep: int) -> slice:
        """Return the rows that a step of a sweep looks at: fewer for an attribute of many cells."""
        rows, most = len(self.columns[0]), min(_WINDOW, max(1, _COMPARED // self.sizes[attribute]))
        windows = -(-rows // most)
        place = sweep % windows
        return slice(rows * place // windows, rows * (place + 1) // windows)

    def step(
        self, attribute: int, window: slice, zeros: Sequence[ImpossibleCells], generator: np.random.Generator
    ) -> float:
        """Move rows of a window to other cells of an attribute, and return the loss that this saves.

        The moves of a batch are chosen for the same residuals, so too many of them would overshoot.  A batch takes a
        part of the moves, those that save most.  If it saves nothing, the next batch is half as large.
        """
        tables = [table for table in self.tables if attribute in table.offsets]
        if not tables:
            return 0.0
        proposals, saved = self._proposals(attribute, window, tables, zeros, generator), 0.0
        for _ in range(_BATCHES):
            single = proposals.gains(self.slopes, self.weights)
            saving = np.flatnonzero(single > 0)
            if not len(saving):
                break
            proposals = proposals.select(saving[np.argsort(-single[saving], kind="stable")])
            part = self.parts.get(attribute, _FIRST_PART)
            many = max(1, int(part * len(saving)))
            batch = proposals.select(slice(many))
            gain = batch.apply(self.slopes, self.weights)
            self.parts[attribute] = min(1.0, part * _GROW) if gain > 0 else part * _SHRINK
            if gain > 0:
                self.columns[attribute][batch.rows] = batch.cells
                saved, proposals = saved + gain, proposals.select(slice(many, None))
            else:
                batch.apply(self.slopes, self.weights, -1)
        return saved

    def _proposals(
        self,
        attribute: int,
        window: slice,
        tables: Sequence[_FlatTable],
        zeros: Sequence[ImpossibleCells],
        generator: np.random.Generator,
    ) -> _Proposals:
        """Return the rows that may save loss by a move, and a new cell for each.

        The new cell is random among those that save loss, and likelier if it saves more.
        """
        own = self.columns[attribute][window].astype(np.int64)
        others = np.stack([table.others(self.columns, window, attribute) for table in tables])
        starts = np.array([[table.cells.start] for table in tables])
        offsets = np.stack([table.offsets[attribute] for table in tables]) + starts
        held = others + offsets.take(own, axis=1)
        now = self.slopes.take(held).sum(axis=0)
        excess = np.flatnonzero(now > 0)
        now = now[excess] - self.weights.take(held[:, excess]).sum(axis=0) / 2
        others, own, rows = others[:, excess], own[excess], excess + window.start
        weight = sum(table.weight for table in tables)
        saved = np.repeat(now[:, None].astype(np.float32), self.sizes[attribute], 1)
        costs = self.slopes + self.weights / 2  # of one more row in a cell, in half squared residuals
        for table, base in zip(tables, others, strict=True):
            saved -= table.values_of(costs, attribute, base)
        saved *= generator.random(saved.shape, dtype=np.float32)
        for each in zeros:
            saved[np.broadcast_to(each.of_rows(self.columns, attribute, rows), saved.shape)] = -np.inf
        chosen = saved.argmax(axis=1)
        best = saved.take(np.arange(0, saved.size, self.sizes[attribute]) + chosen)
        # a move within a place costs nothing, and sums are rounded; all other negative numbers are losses
        rounding = _SINGLE * len(tables) * (weight + len(tables) * float(np.abs(self.slopes).max()))
        least = -sum(table.weight for table in tables if attribute in table.joined) - rounding
        useful = np.flatnonzero((best >= least) & (chosen != own))
        own, new, others = own[useful], chosen[useful], others[:, useful]
        old_cells, new_cells = (others + offsets.take(each, axis=1) for each in (own, new))
        return _Proposals(rows[useful], new, old_cells, new_cells)
