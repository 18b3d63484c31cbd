"""Association of pairs of columns, from their two-way marginal alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Domain
from sfumato.evaluate.released import Marginals, Shares


def associations(source: Marginals) -> NDArray[np.float64]:
    """Symmetric matrix over the attributes: Pearson correlation of two numbers, otherwise Cramér's V.

    Numbers stand for their bin's middle.  Rows without a declared value of both are left out: a cell for missing or
    unknown values is no category, and would change the size that Cramér's V is divided by.  A constant column has
    association 0 with every other.
    """
    attributes = source.domain.attributes
    matrix = np.eye(len(attributes))
    for first, second in combinations(range(len(attributes)), 2):
        one, two = attributes[first], attributes[second]
        table = source.marginal((one.name, two.name))[: one.declared, : two.declared]
        if isinstance(one, Categorical) or isinstance(two, Categorical):
            value = cramers_v(table)
        else:
            value = _pearson(table, _middles(one), _middles(two))
        matrix[first, second] = matrix[second, first] = value
    return matrix


def largest_gap(real: NDArray[np.float64], release: NDArray[np.float64], domain: Domain) -> tuple[float, str, str]:
    """Largest absolute difference of two association matrices, and the pair where it lies."""
    gap = np.abs(real - release)
    first, second = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return float(gap[first, second]), domain.names[first], domain.names[second]


def cramers_v(table: Shares) -> float:
    """Cramér's V of a two-way table of shares: 0 independent, 1 determined (Cramér 1946, section 21.9).

    >>> cramers_v(np.array([[0.5, 0.0], [0.0, 0.5]])), cramers_v(np.full((2, 2), 0.25))
    (1.0, 0.0)
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape, default=0) < 2:  # noqa: PLR2004 (a constant column)
        return 0.0
    table = table / table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float(np.sqrt(((table - expected) ** 2 / expected).sum() / (min(table.shape) - 1)))


def _pearson(table: Shares, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> float:
    total = table.sum()
    if total <= 0:
        return 0.0
    table = table / total
    x = rows - table.sum(axis=1) @ rows
    y = columns - table.sum(axis=0) @ columns
    spread = np.sqrt((table.sum(axis=1) @ x**2) * (table.sum(axis=0) @ y**2))
    return float(x @ table @ y / spread) if spread > 0 else 0.0


def _middles(attribute: Attribute) -> NDArray[np.float64]:
    assert not isinstance(attribute, Categorical)
    return np.array([sum(attribute.bounds(code)) / 2 for code in range(attribute.declared)], dtype=np.float64)
