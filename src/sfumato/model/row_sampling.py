"""Sample rows from a graphical model by rounding: each cell gets the floor or the ceiling of its expected count.

Cliques are visited parents first.  All rows that share a cell of the separator are spread over the clique's other
attributes in proportion to the model.  Each separator cell is a systematic sample with one random start (Madow and
Madow 1944), so counts are right on average.  Within a separator cell every clique has its own random order of rows, so
that attributes that are conditionally independent in the model are so in the rows.

The randomness here is for post-processing: it draws rows of a public model and shuffles output.  It may be seeded, and
no guarantee depends on it.  Privacy noise is drawn only in ``privacy`` and by local clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import parse_integer
from sfumato.errors import InputError, SizeError
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique

CodeArray = NDArray[np.integer]

_LEAST_SAMPLE, _MOST_SAMPLE = 100_000, 250_000


def generator(seed: int | None = None) -> np.random.Generator:
    """Return a generator seeded by the operating system, or by ``seed`` for a reproducible simulation.

    Raises:
        InputError: the seed is not an integer from 0.
    """
    return np.random.default_rng(None if seed is None else seeded(seed))


def seeded(seed: object) -> int:
    """Return the seed as an integer from 0.

    Raises:
        InputError: the seed is not an integer from 0.
    """
    form = "a seed is a whole number from 0"
    number = parse_integer(seed, form)
    if number < 0:
        raise InputError(f"{form}, not below it", culprit=seed)
    return number


def sample(model: GraphicalModel, rows: int, generator: np.random.Generator) -> dict[str, CodeArray]:
    """Draw the codes of ``rows`` rows, an array of shape ``(rows,)`` for each attribute, in random order.

    Raises:
        SizeError: the number of rows is negative.
    """
    return RowSampler(model).draw(rows, generator)


def sample_model(model: GraphicalModel, random: np.random.Generator) -> dict[str, CodeArray]:
    """Draw rows for counting marginals outside all cliques, because exact elimination could be very large."""
    return sample(model, int(np.clip(2 * model.total, _LEAST_SAMPLE, _MOST_SAMPLE)), random)


def expected_counts(model: GraphicalModel, clique: Clique, sampled: dict[str, CodeArray]) -> FloatArray:
    """Return the model's expected counts of a marginal, one axis for each attribute.

    They are exact, except for three or more attributes outside all cliques: these are counted on ``sampled`` rows.
    """
    if not sampled or len(clique) <= 2 or model.tree.holder(clique) is not None:  # noqa: PLR2004
        return model.expected(clique)
    shape = [model.sizes[name] for name in clique]
    cell = np.ravel_multi_index([sampled[name] for name in clique], shape)
    return np.bincount(cell, minlength=math.prod(shape)).reshape(shape) * np.float64(model.total / len(cell))


class RowSampler:
    """A model that is prepared once to draw blocks of rows.

    The rows of the first clique come in random order, and later cliques depend only on a row's own cells.  Codes have
    the smallest integer type that fits.
    """

    def __init__(self, model: GraphicalModel) -> None:
        self._sizes = model.sizes
        self._steps: list[tuple[Clique, Clique, GroupedCells]] = []
        for clique, separator, belief in zip(model.tree.cliques, model.tree.separators, model.beliefs, strict=True):
            new = tuple(name for name in clique if name not in separator)
            table = Factor(clique, belief).project((*separator, *new)).values
            shape = [model.sizes[name] for name in new]
            self._steps.append((separator, new, by_group(table.reshape(-1, math.prod(shape)), shape)))

    def draw(self, rows: int, generator: np.random.Generator) -> dict[str, CodeArray]:
        """Draw rows as :func:`sample` does.

        Raises:
            SizeError: the number of rows is negative.
        """
        if rows < 0:
            raise SizeError(f"cannot sample {rows} rows", culprit=rows)
        columns: dict[str, CodeArray] = {}
        for separator, new, cells in self._steps:
            groups = self._flat([columns[name] for name in separator], separator, rows)
            columns.update(zip(new, cells.give(groups, generator), strict=True))
        return {name: columns[name] for name in self._sizes}

    def _flat(self, columns: Sequence[CodeArray], attributes: Clique, rows: int) -> CodeArray:
        sizes = [self._sizes[name] for name in attributes]
        groups = np.zeros(rows, dtype=np.min_scalar_type(math.prod(sizes)))
        for column, size in zip(columns, sizes, strict=True):
            groups *= size
            groups += column  # in a type no wider
        return groups


@dataclass(frozen=True, eq=False)
class GroupedCells:
    """The cells of groups; rows of a group are spread over its cells in proportion to weights.

    Attributes:
        weights: one group after the other, shape ``(cells,)``; the weights of a group need not sum to one.
        ends: group g has the cells up to ``ends[g]``; every group has a cell.
        values: arrays of shape ``(cells,)``; a row gets the values of its cell.
    """

    weights: FloatArray
    ends: CodeArray
    values: tuple[CodeArray, ...]

    def give(self, groups: CodeArray, generator: np.random.Generator) -> list[CodeArray]:
        """Return for every row the values of a cell of its group: arrays of the shape of ``groups``, ``(rows,)``.

        Cells get integer counts, and are repeated in a random order of the rows of their group.
        """
        held = np.bincount(groups, minlength=len(self.ends))
        counts = self.counts(held, generator)
        order = grouped(groups, len(self.ends), generator)
        given = []
        for value in self.values:
            column = np.empty(len(groups), dtype=value.dtype)
            column[order] = np.repeat(value, counts)
            given.append(column)
        return given

    def counts(self, held: CodeArray, generator: np.random.Generator) -> CodeArray:
        """Return the rows of each cell, shape ``(cells,)``; the cells of a group sum to the rows of the group.

        The rows of a group are at integer distances from one random start; a cell has the rows below its edge.

        Raises:
            SizeError: a group with rows has no cell with a positive weight.
        """
        group, last = self._group, np.cumsum(held)
        below = self._below * held[group]
        below -= generator.random(len(held))[group]
        np.ceil(below, out=below)
        upto = np.clip(below, 0, held[group], out=below).astype(np.int64)
        upto += (last - held)[group]
        upto[self.ends - 1] = last  # exact, so that rounding never moves a row into the next group
        counts = np.diff(upto, prepend=0)
        for cell in np.flatnonzero((counts > 0) & self._impossible):  # rounding selected a cell of probability zero
            start, end = self._first[group[cell]], self.ends[group[cell]]
            likeliest = start + int(self.weights[start:end].argmax())
            if self.weights[likeliest] <= 0:
                raise SizeError("the model has rows in a group of values of which it admits none")
            counts[likeliest] += counts[cell]
            counts[cell] = 0
        return counts

    @property
    def _impossible(self) -> NDArray[np.bool_]:
        return self.weights <= 0

    @property
    def _first(self) -> CodeArray:
        return np.concatenate(([0], self.ends[:-1]))

    @property
    def _group(self) -> CodeArray:
        """Return the group of each cell."""
        return np.repeat(np.arange(len(self.ends)), self.ends - self._first)

    @property
    def _below(self) -> FloatArray:
        """Return the share of its group in each cell and the cells before it."""
        sums = np.add.reduceat(self.weights, self._first)
        shares = np.cumsum(self.weights / np.where(sums > 0, sums, 1.0)[self._group])
        shares -= np.concatenate(([0.0], shares))[self._first][self._group]
        return np.clip(shares, 0.0, 1.0)


def by_group(table: FloatArray, shape: Sequence[int]) -> GroupedCells:
    """Group the cells of a table of weights, shape ``(groups, cells)``; a row gets a code of each axis of ``shape``."""
    codes = np.unravel_index(np.arange(table.shape[1]), shape) if shape else ()
    values = tuple(
        np.tile(code.astype(np.min_scalar_type(size - 1)), len(table)) for code, size in zip(codes, shape, strict=True)
    )
    return GroupedCells(table.reshape(-1), np.arange(1, len(table) + 1) * table.shape[1], values)


_LEAST_RANDOM = 24  # minimum random bits of a key; equal keys in a group are not shuffled, so they must be rare


def grouped(groups: CodeArray, size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the numbers of the rows, group by group from 0 to ``size - 1``, in random order within each group.

    Keys of 64 bits are sorted: the group, random bits, the number of the row.
    """
    low, high = len(groups).bit_length(), (size - 1).bit_length()
    if not high or 64 - low - high < _LEAST_RANDOM:
        order = generator.permutation(len(groups))
        return order if not high else order[np.argsort(groups[order], kind="stable")]
    keys = generator.integers(0, np.iinfo(np.uint64).max, len(groups), dtype=np.uint64, endpoint=True)
    keys >>= np.uint64(low + high)
    keys <<= np.uint64(low)
    keys |= np.arange(len(groups), dtype=np.uint64)
    keys |= groups.astype(np.uint64) << np.uint64(64 - high)
    keys.sort()
    keys &= np.uint64((1 << low) - 1)
    return keys.view(np.int64)
