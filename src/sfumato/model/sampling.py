"""Rows from a graphical model, rounded rather than drawn: each cell gets its expected count, up or down.

Cliques are visited parents first.  All rows that share a cell of the separator are spread over the
clique's remaining attributes in proportion to the model, by systematic sampling with one random start a
cell of the separator (Madow and Madow 1944): every cell gets the floor or the ceiling of its expected
count, on average exactly that.  Within a separator cell the rows come in an order drawn anew for every clique, so that
attributes that the model makes conditionally independent are so in the rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.model.factor import Factor, Table
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique

Codes = NDArray[np.int64]


def sample(model: GraphicalModel, rows: int, generator: np.random.Generator) -> dict[str, Codes]:
    """Codes of ``rows`` rows, one array of shape ``(rows,)`` an attribute, in random order of rows.

    Raises:
        SizeError: a negative number of rows.
    """
    if rows < 0:
        raise SizeError(f"cannot sample {rows} rows", culprit=rows)
    columns: dict[str, Codes] = {}
    order = generator.permutation(rows)
    for clique, separator, belief in zip(model.tree.cliques, model.tree.separators, model.beliefs, strict=True):
        new = tuple(name for name in clique if name not in separator)
        table = Factor(clique, belief).project((*separator, *new)).values
        groups = _flat(columns, separator, model, rows)
        drawn = spread(groups, table.reshape(-1, _volume(new, model)), generator)
        shape = [model.sizes[name] for name in new]
        columns.update(zip(new, np.unravel_index(drawn, shape), strict=True))
    return {name: columns[name][order] for name in model.sizes}


def spread(groups: Codes, table: Table, generator: np.random.Generator) -> Codes:
    """For every row a column of ``table``, in proportion to the weights that stand in the row of its group.

    ``groups`` has shape ``(rows,)``, ``table`` ``(groups, cells)``; weights of a group need not sum to one.
    """
    order = np.argsort(generator.permutation(len(groups)), kind="stable")
    order = order[np.argsort(groups[order], kind="stable")]
    sizes = np.bincount(groups, minlength=len(table))
    present = np.flatnonzero(sizes)
    held = sizes[present]
    weights = table[present]
    edges = np.cumsum(weights, axis=1)
    edges *= (held / edges[:, -1])[:, None]
    starts = np.cumsum(held) - held
    edges += starts[:, None]
    edges[:, -1] = starts + held  # exact, so that rounding never moves a row into the next group
    points = np.arange(len(groups)) + np.repeat(generator.random(len(present)), held)
    found = np.searchsorted(edges.reshape(-1), points, side="right")
    found -= np.repeat(np.arange(len(present)) * table.shape[1], held)
    drawn = np.empty(len(groups), dtype=np.int64)
    drawn[order] = _possible(found, np.repeat(present, held), table)
    return drawn


def _possible(found: Codes, groups: Codes, table: Table) -> Codes:
    """The cells found, moved to the likeliest of the group where rounding hit a cell of no probability."""
    wrong = (found < 0) | (found >= table.shape[1])
    wrong[~wrong] = table[groups[~wrong], found[~wrong]] <= 0
    if wrong.any():
        found[wrong] = table[groups[wrong]].argmax(axis=1)
    return found


def _flat(columns: dict[str, Codes], attributes: Clique, model: GraphicalModel, rows: int) -> Codes:
    if not attributes:
        return np.zeros(rows, dtype=np.int64)
    shape = [model.sizes[name] for name in attributes]
    return np.ravel_multi_index([columns[name] for name in attributes], shape)


def _volume(attributes: Clique, model: GraphicalModel) -> int:
    return int(np.prod([model.sizes[name] for name in attributes], dtype=np.int64))
