"""What a recoding loses: the Loss Metric and its relatives, as functions of classes and their cells.

Throughout, ``counts`` are rows of the published classes, shape ``(classes,)``; ``cells`` the loss of each cell,
shape ``(classes, attributes)``; ``suppressed`` the rows left out, which count as fully lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Losses = NDArray[np.float64]


def loss_metric(counts: Integers, cells: Losses, suppressed: int) -> tuple[float, ...]:
    """LM of each attribute: mean loss of its cells over all rows (Iyengar 2002).

    The cell loss of a category is (leaves covered - 1) / (leaves - 1), of an interval (width - 1) / (domain
    width - 1) in integer units, 0 for a raw value, 1 for the top and for every cell of a suppressed row.
    The table's LM is the sum over attributes.

    >>> loss_metric(np.array([3, 1]), np.array([[0.0, 0.5], [1.0, 0.5]]), 1)
    (0.4, 0.6)
    """
    rows = int(counts.sum()) + suppressed
    result = []
    for column in cells.T:
        # rows of equal loss are multiplied, not added up one by one: fewer roundings
        distinct, place = np.unique(column, return_inverse=True)
        lost = np.bincount(place, weights=counts) * distinct
        result.append((float(lost.sum()) + suppressed) / rows)
    return tuple(result)


def interval_loss_metric(counts: Integers, widths: Integers, spans: Sequence[int]) -> tuple[float, ...]:
    """LM of each attribute where cells are intervals of whole numbers and nothing is suppressed.

    ``widths`` are greatest minus least value, shape ``(classes, attributes)``, ``spans`` the same of the
    domain.  Sums stay whole numbers until the one division, so nothing is rounded twice.
    """
    rows = int(counts.sum())
    return tuple(int(counts @ column) / (span * rows) for column, span in zip(widths.T, spans, strict=True))


def weighted(losses: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted sum of the attributes' losses, divided by the mean weight, so that equal weights change nothing.

    >>> weighted((0.5, 0.25), (3.0, 1.0))
    0.875
    """
    mean = sum(weights) / len(weights)
    return float(sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / mean)


def certainty_penalty(cells: Losses, domain_sizes: Sequence[int | None]) -> Losses:
    """NCP of each cell (Xu et al. 2006): share of the domain that it covers, 0 for a raw value.

    For categories that is leaves / all leaves, so a little more than the Loss Metric's (leaves - 1) / (all
    leaves - 1); for intervals (None in ``domain_sizes``) the two are the same.
    """
    result = cells.copy()
    for attribute, size in enumerate(domain_sizes):
        if size is not None:
            column = cells[:, attribute]
            result[:, attribute] = np.where(column > 0, (column * (size - 1) + 1) / size, 0.0)
    return result


def global_certainty_penalty(counts: Integers, penalties: Losses, suppressed: int) -> float:
    """GCP (Ghinita et al. 2007): mean NCP over all rows and attributes, in 0..1."""
    rows = int(counts.sum()) + suppressed
    attributes = penalties.shape[1]
    return float((counts @ penalties.sum(axis=1) + suppressed * attributes) / (rows * attributes))


def discernibility(counts: Integers, suppressed: int) -> int:
    """Each row costs the size of its class, a suppressed row the size of the table (Bayardo and Agrawal 2005).

    >>> discernibility(np.array([3, 1]), 1)
    15
    """
    rows = int(counts.sum()) + suppressed
    return int((counts * counts).sum()) + suppressed * rows


def average_class_size(counts: Integers, k: int) -> float:
    """Published rows a class, in units of k: 1 is the best possible (LeFevre et al. 2006)."""
    return float(counts.sum() / max(len(counts), 1) / k)


def precision(vector: Sequence[int], heights: Sequence[int], *, rows: int, suppressed: int) -> float:
    """Prec of a full-domain recoding: 1 minus the mean share of its hierarchy that a cell climbs (Sweeney 2002).

    >>> precision((1, 0), (4, 1), rows=10, suppressed=0)
    0.875
    """
    climbed = sum(level / height if height else 0.0 for level, height in zip(vector, heights, strict=True))
    lost = (rows - suppressed) * climbed + suppressed * len(heights)
    return 1 - lost / (rows * len(heights))


def non_uniform_entropy(leaf_counts: Integers, cell_counts: Integers, rows: Integers) -> float:
    """Bits lost: sum of -log2(rows with the leaf / rows with any leaf of its cell) (De Waal, Willenborg 1999).

    Args:
        leaf_counts: rows of the table with the original value.
        cell_counts: rows of the table with any value that the published cell covers; all rows for a suppressed one.
        rows: how many rows this happens to.  All three have the same shape.
    """
    used = rows > 0
    return float(rows[used] @ np.log2(cell_counts[used] / leaf_counts[used]))
