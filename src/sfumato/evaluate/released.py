"""A release as an outsider sees it: rows of cells, each cell a set of compatible leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import SizeError, TableError
from sfumato.evaluate.rows import Codes, Rows

Shares = NDArray[np.float64]
Weights = NDArray[np.float32]

_DENSE_CELLS = 1 << 22  # cells of one contingency table that we are ready to hold (32 MiB)
_CHUNK_CELLS = 1 << 24
_STEP = 1 << 16  # weights are multiples of 2^-16: float32 sums over 255 attributes are exact, so ties are ties


@runtime_checkable
class Marginals(Protocol):
    """Whatever can say how the people are spread over the cells of a few attributes."""

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        ...

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Estimated shares of all cells, shape of the projected domain, summing to one."""
        ...


@dataclass(frozen=True, eq=False)
class Released:
    """Released rows.  ``codes`` (rows, attributes) index ``cells``; ``cells[j]`` has shape
    ``(distinct cells, leaves)`` and holds ``1/|set|`` at every leaf compatible with the cell.
    """

    domain: Domain
    codes: Codes
    cells: tuple[Weights, ...]

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or self.codes.shape[1] != len(self.domain) or len(self.cells) != len(self.domain):  # noqa: PLR2004
            raise TableError("released rows need one column for each attribute of the domain", culprit=self.domain)
        if not len(self.codes):
            raise TableError("the release has no rows", culprit=self.domain)
        object.__setattr__(self, "codes", np.asfortranarray(self.codes, dtype=np.intp))

    @staticmethod
    def of(rows: Rows) -> Released:
        """Rows released as they are: every cell is one leaf."""
        return Released(rows.domain, rows.codes, tuple(np.eye(size, dtype=np.float32) for size in rows.domain.shape))

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def plain(self) -> tuple[bool, ...]:
        """For each attribute, whether its cells are its leaves, so that codes are codes of the domain."""
        return tuple(cells.shape[0] == cells.shape[1] and bool((np.diagonal(cells) == 1).all()) for cells in self.cells)

    def rounded(self, column: int) -> Weights:
        """Weights of the cells of a column in multiples of 2^-16."""
        return np.asarray(np.round(self.cells[column] * _STEP) / _STEP, dtype=np.float32)

    def weights(self) -> Weights:
        """One row a released row, one column a leaf of any attribute: shape ``(rows, sum of domain.shape)``."""
        blocks = [self.rounded(column)[self.codes[:, column]] for column in range(len(self.domain))]
        return np.concatenate(blocks, axis=1, dtype=np.float32)

    def share(self, attributes: tuple[str, ...], allowed: tuple[NDArray[np.bool_], ...]) -> float:
        """Share of the rows that meet a condition on every attribute, as ``marginal`` would sum it.

        Args:
            attributes: names.
            allowed: for each of them which leaves meet the condition, shape ``(leaves,)``.
        """
        met = np.ones(len(self))
        for name, leaves in zip(attributes, allowed, strict=True):
            column = self.domain.index(name)
            chances = leaves.astype(np.float64) if self.plain[column] else self.cells[column] @ leaves
            met *= np.asarray(chances, dtype=np.float64)[self.codes[:, column]]
        return float(met.mean())

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Shares of the cells of a marginal; a generalised cell spreads its mass evenly over its leaves.

        Raises:
            SizeError: the marginal is too large to hold.
        """
        columns = [self.domain.index(name) for name in attributes]
        leaves = [self.domain.shape[column] for column in columns]
        if math.prod(leaves) > _DENSE_CELLS:
            raise SizeError(
                f"the marginal of {', '.join(attributes)} has {math.prod(leaves)} cells; declare wider bins",
                culprit=attributes,
            )
        distinct = [len(self.cells[column]) for column in columns]
        if math.prod(distinct) > _DENSE_CELLS:
            return self._marginal_by_rows(columns).reshape(leaves)
        key = np.zeros(len(self), dtype=np.intp)
        for column, count in zip(columns, distinct, strict=True):
            key *= count
            key += self.codes[:, column]
        table = np.bincount(key, minlength=math.prod(distinct)).reshape(distinct) / len(self)
        for axis, column in enumerate(columns):
            if not self.plain[column]:
                spread = np.tensordot(table, self.cells[column], axes=(axis, 0))
                table = np.moveaxis(spread, -1, axis)
        return np.asarray(table, dtype=np.float64)

    def draw(self, generator: np.random.Generator) -> Rows:
        """One leaf for every cell, uniform over its compatible leaves: rows that a learner can read."""
        drawn = np.empty_like(self.codes)
        for column, cells in enumerate(self.cells):
            place = self.codes[:, column]
            if self.plain[column]:
                drawn[:, column] = place
                continue
            cumulative = np.cumsum(cells, axis=1, dtype=np.float64)
            cumulative[:, -1] = 1.0
            luck = generator.random(len(self))
            drawn[:, column] = (cumulative[place] <= luck[:, None]).sum(axis=1)
        return Rows(self.domain, drawn)

    def _marginal_by_rows(self, columns: list[int]) -> Shares:
        """Too many distinct cells for a table of them: sum the outer products of the rows, in chunks."""
        *first, last = (self.cells[column] for column in columns)
        width = math.prod(cells.shape[1] for cells in first)
        total = np.zeros((width, last.shape[1]))
        step = max(1, _CHUNK_CELLS // max(width, 1))
        for start in range(0, len(self), step):
            chunk = self.codes[start : start + step]
            outer = np.ones((len(chunk), 1))
            for column, cells in zip(columns[:-1], first, strict=True):
                outer = (outer[:, :, None] * cells[chunk[:, column]][:, None, :]).reshape(len(chunk), -1)
            total += outer.T @ last[chunk[:, columns[-1]]]
        return np.asarray(total / len(self), dtype=np.float64)


def spread(sets: NDArray[np.bool_]) -> Weights:
    """Weights of cells given as sets of leaves: shape ``(cells, leaves)``, every row summing to one."""
    return np.asarray(sets / sets.sum(axis=1, keepdims=True), dtype=np.float32)
