"""Linkage: do two sources that each know half of a person's columns meet in one released row?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.released import Weights

KNOWLEDGE = "two disjoint halves of the target's columns, from two sources that do not share an identifier"


def link_chances(first: Weights, second: Weights) -> NDArray[np.float64]:
    """Probability that each target is linked: shape ``(targets,)``.

    Every source picks one row at random among those nearest on its columns; the target is linked where
    both picked the same.  ``first`` and ``second`` are similarities over either half of the columns,
    shape ``(targets, rows)``.
    """
    nearest = [close == close.max(axis=1, keepdims=True) for close in (first, second)]
    together = np.count_nonzero(nearest[0] & nearest[1], axis=1)
    ways = [np.count_nonzero(rows, axis=1) for rows in nearest]
    return np.asarray(together / (ways[0] * ways[1]), dtype=np.float64)
