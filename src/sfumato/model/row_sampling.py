"""Rows from a graphical model, rounded rather than drawn: each cell gets its expected count, up or down.

Cliques are visited parents first.  All rows that share a cell of the separator are spread over the
clique's remaining attributes in proportion to the model, by systematic sampling with one random start a
cell of the separator (Madow and Madow 1944): every cell gets the floor or the ceiling of its expected
count, on average exactly that.  Within a separator cell the rows come in an order drawn anew for every clique, so that
attributes that the model makes conditionally independent are so in the rows.

The randomness of post-processing, for drawing rows and shuffling output, is here as well: never privacy noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import whole
from sfumato.errors import InputError, SizeError
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique

CodeArray = NDArray[np.integer]


def generator(seed: int | None = None) -> np.random.Generator:
    """A generator seeded by the operating system, or by ``seed`` so that a simulation can be repeated.

    Raises:
        InputError: a seed that is no whole number from 0.
    """
    return np.random.default_rng(None if seed is None else seeded(seed))


def seeded(seed: object) -> int:
    """The seed, as a whole number from 0.

    Raises:
        InputError: it is none.
    """
    form = "a seed is a whole number from 0"
    number = whole(seed, form)
    if number < 0:
        raise InputError(f"{form}, not below it", culprit=seed)
    return number


def sample(model: GraphicalModel, rows: int, generator: np.random.Generator) -> dict[str, CodeArray]:
    """CodeArray of ``rows`` rows, one array of shape ``(rows,)`` an attribute, in random order of rows.

    Raises:
        SizeError: a negative number of rows.
    """
    if rows < 0:
        raise SizeError(f"cannot sample {rows} rows", culprit=rows)
    columns: dict[str, CodeArray] = {}
    order = generator.permutation(rows)
    for clique, separator, belief in zip(model.tree.cliques, model.tree.separators, model.beliefs, strict=True):
        new = tuple(name for name in clique if name not in separator)
        table = Factor(clique, belief).project((*separator, *new)).values
        groups = _flat(columns, separator, model, rows)
        drawn = spread(groups, table.reshape(-1, _volume(new, model)), generator)
        shape = [model.sizes[name] for name in new]
        for name, column in zip(new, np.unravel_index(drawn, shape), strict=True):
            columns[name] = column.astype(np.int32)  # half the memory: no attribute has 2^31 cells
    return {name: columns.pop(name)[order] for name in model.sizes}


def spread(groups: CodeArray, table: FloatArray, generator: np.random.Generator) -> CodeArray:
    """For every row a column of ``table``, in proportion to the weights that stand in the row of its group.

    ``groups`` has shape ``(rows,)``, ``table`` ``(groups, cells)``; weights of a group need not sum to one.
    """
    present = np.bincount(groups, minlength=len(table)) > 0
    width = table.shape[1]
    ends = np.arange(1, int(present.sum()) + 1) * width
    places = np.cumsum(present) - 1
    drawn: CodeArray = spread_over(places[groups], table[present].reshape(-1), ends, generator) % width
    return drawn


def spread_over(groups: CodeArray, weights: FloatArray, ends: CodeArray, generator: np.random.Generator) -> CodeArray:
    """For every row a cell of its group, in proportion to the weights, by position in ``weights``.

    ``groups`` has shape ``(rows,)``; ``weights``, shape ``(cells,)``, holds one group after the other, none
    without a cell, group g up to ``ends[g]``; weights of a group need not sum to one.

    Rows are not looked at one by one: cells get integer counts, and are repeated in a random order of the group's rows.
    """
    drawn = np.empty(len(groups), dtype=np.int32)
    if not len(groups):
        return drawn
    order = generator.permutation(len(groups))
    if len(ends) > 1:
        # NumPy sorts small integers by radix
        narrow = np.min_scalar_type(len(ends) - 1) if len(ends) <= 1 << 16 else np.dtype(np.int64)
        order = order[np.argsort(groups.astype(narrow)[order], kind="stable")]
    held = np.bincount(groups, minlength=len(ends))
    counts = _integer_counts(held, weights, ends, generator)
    drawn[order] = np.repeat(np.arange(len(weights), dtype=np.int32), counts)
    return drawn


def _integer_counts(held: CodeArray, weights: FloatArray, ends: CodeArray, generator: np.random.Generator) -> CodeArray:
    """Rows of each cell, those of a group summing to what the group holds: shape ``(cells,)``.

    The rows of a group lie at whole numbers from one random start; a cell has those below its edge.
    """
    last = np.cumsum(held)
    first = np.concatenate(([0], ends[:-1]))
    group = np.repeat(np.arange(len(ends)), ends - first)  # of each cell
    below = _running_shares(weights, first, group) * held[group] - generator.random(len(ends))[group]
    upto = np.clip(np.ceil(below).astype(np.int64), 0, held[group]) + (last - held)[group]
    upto[ends - 1] = last  # exact, so that rounding never moves a row into the next group
    counts = np.diff(upto, prepend=0)
    for cell in np.flatnonzero((counts > 0) & (weights <= 0)):  # rounding hit a cell of no probability
        begin, end = first[group[cell]], ends[group[cell]]
        counts[begin + int(weights[begin:end].argmax())] += counts[cell]
        counts[cell] = 0
    return counts


def _running_shares(weights: FloatArray, first: CodeArray, group: CodeArray) -> FloatArray:
    """Share of its group that lies in a cell and those before it."""
    sums = np.add.reduceat(weights, first)
    shares = np.cumsum(weights / np.where(sums > 0, sums, 1.0)[group])
    shares -= np.concatenate(([0.0], shares))[first][group]
    return np.clip(shares, 0.0, 1.0)


def _flat(columns: dict[str, CodeArray], attributes: Clique, model: GraphicalModel, rows: int) -> CodeArray:
    if not attributes:
        return np.zeros(rows, dtype=np.int64)
    shape = [model.sizes[name] for name in attributes]
    return np.ravel_multi_index([columns[name] for name in attributes], shape)


def _volume(attributes: Clique, model: GraphicalModel) -> int:
    return int(np.prod([model.sizes[name] for name in attributes], dtype=np.int64))
