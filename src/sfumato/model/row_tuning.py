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

    ``offsets`` are, for each attribute, the summands of its cells in the number of a cell of the table.
    """

    residuals: FloatArray
    offsets: dict[int, NDArray[np.int32]]
    weight: float

    @staticmethod
    def of_rows(columns: Sequence[CodeArray], target: TargetTable) -> _Residuals:
        """Return the residuals of rows."""
        strides = np.cumprod((1, *target.counts.shape[:0:-1]))[::-1]
        offsets = {
            attribute: (places * stride).astype(np.int32)
            for attribute, places, stride in zip(target.attributes, target.places, strides, strict=True)
        }
        table = _Residuals(-target.counts.ravel(), offsets, 1 / (target.variance + _ROUNDING))
        table.residuals += np.bincount(table.cells(columns, slice(None)), minlength=target.counts.size)
        return table

    @property
    def loss(self) -> float:
        """Return half of the weighted sum of squared residuals."""
        return 0.5 * self.weight * float((self.residuals**2).sum())

    def cells(self, columns: Sequence[CodeArray], rows: slice | NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the number of the cell of each row."""
        cells: NDArray[np.int32] = sum(  # type: ignore[assignment]  # there is an attribute
            offsets[columns[attribute][rows]] for attribute, offsets in self.offsets.items()
        )
        return cells

    def ends(
        self, columns: Sequence[CodeArray], attribute: int, rows: NDArray[np.int64], cells: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the numbers of the cells of rows before and after they move to other cells of an attribute."""
        offsets, old = self.offsets[attribute], self.cells(columns, rows)
        return old, old - offsets[columns[attribute][rows]] + offsets[cells]

    def change(
        self, columns: Sequence[CodeArray], attribute: int, rows: NDArray[np.int64], cells: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the change of the counts if rows move to other cells of an attribute."""
        old, new = (
            np.bincount(end, minlength=len(self.residuals)) for end in self.ends(columns, attribute, rows, cells)
        )
        change: NDArray[np.int64] = new - old
        return change

    def gain(self, more: NDArray[np.int64]) -> float:
        """Return the loss that a change of the counts saves."""
        return -self.weight * float((more * (self.residuals + 0.5 * more)).sum())


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
        rows, cells = self._proposals(attribute, window, tables, zeros, generator)
        column, saved = self.columns[attribute], 0.0
        for _ in range(_BATCHES):
            single = self._gains(attribute, rows, cells, tables)
            order = np.argsort(-single, kind="stable")[: np.count_nonzero(single > 0)]
            rows, cells = rows[order], cells[order]
            if not len(rows):
                break
            part = self.parts.get(attribute, _FIRST_PART)
            many = max(1, int(part * len(rows)))
            changes = [table.change(self.columns, attribute, rows[:many], cells[:many]) for table in tables]
            gain = sum(table.gain(more) for table, more in zip(tables, changes, strict=True))
            self.parts[attribute] = min(1.0, part * _GROW) if gain > 0 else part * _SHRINK
            if gain > 0:
                column[rows[:many]] = cells[:many]
                for table, more in zip(tables, changes, strict=True):
                    table.residuals += more
                saved, rows, cells = saved + gain, rows[many:], cells[many:]
        return saved

    def _proposals(
        self,
        attribute: int,
        window: slice,
        tables: Sequence[_Residuals],
        zeros: Sequence[ImpossibleCells],
        generator: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that may save loss by a move, and a new cell for each.

        The new cell is random among those that save loss, and likelier if it saves more.
        """
        slopes = [(table.weight * table.residuals).astype(np.float32) for table in tables]
        now = np.zeros(window.stop - window.start, dtype=np.float32)
        for table, slope in zip(tables, slopes, strict=True):
            now += slope[table.cells(self.columns, window)]
        excess = np.flatnonzero(now > 0)
        rows = excess + window.start
        saved = np.repeat(
            now[excess][:, None] - np.float32(sum(table.weight for table in tables)), self.sizes[attribute], 1
        )
        for table, slope in zip(tables, slopes, strict=True):
            offsets = table.offsets[attribute]
            others = table.cells(self.columns, rows) - offsets[self.columns[attribute][rows]]
            saved -= slope[others[:, None] + offsets]
        saved *= generator.random(saved.shape, dtype=np.float32)
        for each in zeros:
            saved[np.broadcast_to(each.of_rows(self.columns, attribute, rows), saved.shape)] = -np.inf
        return rows, saved.argmax(axis=1)

    def _gains(
        self, attribute: int, rows: NDArray[np.int64], cells: NDArray[np.int64], tables: Sequence[_Residuals]
    ) -> FloatArray:
        """Return the loss that each move saves alone."""
        gains = np.zeros(len(rows))
        for table in tables:
            old, new = table.ends(self.columns, attribute, rows, cells)
            gains += np.where(old == new, 0.0, table.weight * (table.residuals[old] - table.residuals[new] - 1))
        return gains
