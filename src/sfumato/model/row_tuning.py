"""Move sampled rows toward the counts of many tables at once, also of tables that no junction tree can hold together.

The idea is the gradual update of PrivSyn (Zhang, Wang, Li, Honorio, Backes, He, Chen and Zhang 2021).  A row moves to
another cell of one attribute if that lowers the squared residuals of all tables, each in its own noise.  Rows start as
a sample of a model.  So rows change only as far as the tables say, and precise tables decide where tables disagree.

This is post-processing: it reads noisy counts and rows of a public model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.model.factor import FloatArray
from sfumato.model.row_sampling import CodeArray

_SWEEPS = 15
_TOLERANCE = 2e-3  # the search ends if two sweeps gained less than this part of the loss
_FIRST_PART = 0.3  # part of the moves that a step takes at first
_GROW, _SHRINK = 1.3, 0.5
_BATCHES = 8  # batches of moves of a step
_WINDOW = 1 << 15  # most rows that a step looks at
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
        variance: variance of the error of one count.
    """

    attributes: tuple[int, ...]
    places: tuple[NDArray[np.int64], ...]
    counts: FloatArray
    variance: float


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
        columns: one array of cells for each attribute, shape ``(rows,)``.
        sizes: number of cells of each attribute.
        targets: tables; their counts sum to the number of rows.
        impossible: cells that no row may have.
        generator: chooses among moves.
    """
    tuning = _Tuning(
        [column.copy() for column in columns], sizes, [_Residuals.of_rows(columns, target) for target in targets]
    )
    loss = sum(table.loss for table in tuning.tables)
    before = [loss, loss]
    for _ in range(_SWEEPS):
        for attribute in generator.permutation(len(columns)).tolist():
            zeros = [each for each in impossible if attribute in each.attributes]
            for window in tuning.windows(attribute):
                loss -= tuning.step(attribute, window, zeros, generator)
        if before[-2] - loss < _TOLERANCE * loss and len(before) > 2:  # noqa: PLR2004 - two sweeps were made
            break
        before.append(loss)
    return tuning.columns


@dataclass(eq=False)
class _Residuals:
    """The rows' counts of a table minus its target, flat, and its ``weight`` of a squared residual.

    ``offsets`` are, for each attribute, the summands of its cells in the number of a cell of the table.  ``strides``
    and ``lengths`` are the strides and lengths of its axis.
    """

    residuals: FloatArray
    offsets: dict[int, NDArray[np.int64]]
    strides: dict[int, int]
    lengths: dict[int, int]
    weight: float

    @staticmethod
    def of_rows(columns: Sequence[CodeArray], target: TargetTable) -> _Residuals:
        """Return the residuals of rows."""
        strides = np.cumprod((1, *target.counts.shape[:0:-1]))[::-1]
        places = dict(zip(target.attributes, target.places, strict=True))
        steps = dict(zip(target.attributes, strides.tolist(), strict=True))
        offsets = {attribute: places[attribute].astype(np.int64) * steps[attribute] for attribute in places}
        lengths = dict(zip(target.attributes, target.counts.shape, strict=True))
        table = _Residuals(-target.counts.ravel(), offsets, steps, lengths, 1 / (target.variance + _ROUNDING))
        table.residuals += np.bincount(table.cells(columns, slice(None)), minlength=target.counts.size)
        return table

    @property
    def loss(self) -> float:
        """Return half of the weighted sum of squared residuals."""
        return 0.5 * self.weight * float((self.residuals**2).sum())

    def cells(self, columns: Sequence[CodeArray], rows: slice) -> NDArray[np.int64]:
        """Return the number of the cell of each row."""
        cells: NDArray[np.int64] = sum(  # type: ignore[assignment]  # there is an attribute
            offsets.take(columns[attribute][rows]) for attribute, offsets in self.offsets.items()
        )
        return cells

    def change(self, old: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the change of the counts if rows move from old to new cells."""
        change: NDArray[np.int64] = np.bincount(new, minlength=self.residuals.size)
        change -= np.bincount(old, minlength=self.residuals.size)
        return change

    def gain(self, more: NDArray[np.int64]) -> float:
        """Return the loss that a change of the counts saves."""
        return -self.weight * float((more * (self.residuals + 0.5 * more)).sum())

    def others(self, columns: Sequence[CodeArray], attribute: int, rows: slice) -> NDArray[np.int64]:
        """Return what all attributes but one add to the number of the cell of each row."""
        added = [offsets.take(columns[each][rows]) for each, offsets in self.offsets.items() if each != attribute]
        return sum(added[1:], added[0]) if added else np.zeros(rows.stop - rows.start, dtype=np.int64)

    def values_of(self, values: NDArray[np.float32], attribute: int, others: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the values of all cells of an attribute, one row for each sum of :meth:`others`.

        This reads whole rows of memory, which is faster than one value at a time.
        """
        stride, length = self.strides[attribute], self.lengths[attribute]
        places = self.offsets[attribute] // stride
        by_others = values.reshape(-1, length, stride).swapaxes(1, 2)[..., places].reshape(-1, len(places))
        before = others // (length * stride)
        return by_others.take(others - before * ((length - 1) * stride), axis=0)

    def joined_weight(self, attribute: int) -> float:
        """Return the weight of a table in which cells of an attribute share a place, otherwise 0."""
        offsets = self.offsets[attribute]
        return self.weight if len(np.unique(offsets)) < len(offsets) else 0.0


@dataclass(frozen=True, eq=False)
class _Proposals:
    """Rows that may move to new ``cells`` of an attribute, and their old and new cells of each table."""

    rows: NDArray[np.int64]
    cells: NDArray[np.int64]
    ends: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]

    def select(self, part: slice | NDArray[np.int64]) -> _Proposals:
        """Return some of the proposals."""
        return _Proposals(self.rows[part], self.cells[part], [(old[part], new[part]) for old, new in self.ends])

    def gains(self, tables: Sequence[_Residuals]) -> FloatArray:
        """Return the loss that each move saves alone."""
        gains = np.zeros(len(self.rows))
        for table, (old, new) in zip(tables, self.ends, strict=True):
            saved = table.residuals.take(old)
            saved -= table.residuals.take(new)
            saved -= 1
            saved *= table.weight
            saved[old == new] = 0.0
            gains += saved
        return gains


@dataclass(eq=False)
class _Tuning:
    """The rows while they are tuned; ``parts`` is the part of the moves of each attribute that a step takes."""

    columns: list[CodeArray]
    sizes: Sequence[int]
    tables: list[_Residuals]
    parts: dict[int, float] = field(default_factory=dict)

    def windows(self, attribute: int) -> list[slice]:
        """Return the windows of rows that steps look at: fewer rows for an attribute of many cells."""
        rows, most = len(self.columns[0]), min(_WINDOW, max(1, _COMPARED // self.sizes[attribute]))
        return [slice(start, min(start + most, rows)) for start in range(0, rows, most)]

    def step(
        self, attribute: int, window: slice, zeros: Sequence[ImpossibleCells], generator: np.random.Generator
    ) -> float:
        """Move rows of a window to other cells of an attribute, and return the loss that this saves.

        The moves of a batch are chosen for the same residuals, so too many of them would overshoot.  A batch takes a
        part of the moves, those that save most.  If it saves nothing, the next batch is half as large.
        """
        tables = [table for table in self.tables if attribute in table.offsets]
        proposals = self._proposals(attribute, window, tables, zeros, generator)
        column, saved = self.columns[attribute], 0.0
        for _ in range(_BATCHES):
            single = proposals.gains(tables)
            saving = np.flatnonzero(single > 0)
            if not len(saving):
                break
            proposals = proposals.select(saving[np.argsort(-single[saving], kind="stable")])
            part = self.parts.get(attribute, _FIRST_PART)
            many = max(1, int(part * len(saving)))
            batch = proposals.select(slice(many))
            changes = [table.change(*ends) for table, ends in zip(tables, batch.ends, strict=True)]
            gain = sum(table.gain(more) for table, more in zip(tables, changes, strict=True))
            self.parts[attribute] = min(1.0, part * _GROW) if gain > 0 else part * _SHRINK
            if gain > 0:
                column[batch.rows] = batch.cells
                for table, more in zip(tables, changes, strict=True):
                    table.residuals += more
                saved, proposals = saved + gain, proposals.select(slice(many, None))
        return saved

    def _proposals(
        self,
        attribute: int,
        window: slice,
        tables: Sequence[_Residuals],
        zeros: Sequence[ImpossibleCells],
        generator: np.random.Generator,
    ) -> _Proposals:
        """Return the rows that may save loss by a move, and a new cell for each.

        The new cell is random among those that save loss, and likelier if it saves more.
        """
        slopes = [(table.weight * table.residuals).astype(np.float32) for table in tables]
        own = self.columns[attribute][window].astype(np.int64)
        others = [table.others(self.columns, attribute, window) for table in tables]
        now = np.zeros(len(own), dtype=np.float32)
        for table, slope, base in zip(tables, slopes, others, strict=True):
            now += slope.take(base + table.offsets[attribute].take(own))
        excess = np.flatnonzero(now > 0)
        others, own, rows = [base[excess] for base in others], own[excess], excess + window.start
        weight = sum(table.weight for table in tables)
        saved = np.repeat(now[excess][:, None] - np.float32(weight), self.sizes[attribute], 1)
        for table, slope, base in zip(tables, slopes, others, strict=True):
            saved -= table.values_of(slope, attribute, base)
        saved *= generator.random(saved.shape, dtype=np.float32)
        for each in zeros:
            saved[np.broadcast_to(each.of_rows(self.columns, attribute, rows), saved.shape)] = -np.inf
        chosen = saved.argmax(axis=1)
        best = saved.take(np.arange(0, saved.size, self.sizes[attribute]) + chosen)
        # a move within a place costs nothing, and sums are rounded; all other negative numbers are losses
        rounding = _SINGLE * len(tables) * (weight + sum(float(np.abs(slope).max()) for slope in slopes))
        least = -sum(table.joined_weight(attribute) for table in tables) - rounding
        useful = np.flatnonzero((best >= least) & (chosen != own))
        own, new = own[useful], chosen[useful]
        ends = [
            (base[useful] + table.offsets[attribute].take(own), base[useful] + table.offsets[attribute].take(new))
            for table, base in zip(tables, others, strict=True)
        ]
        return _Proposals(rows[useful], new, ends)
