"""Linkage: do two sources that each know half of a person's columns meet in one released row?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.attacks.similarity import Similarity
from sfumato.evaluate.attacks.targets import Targets

KNOWLEDGE = "two disjoint halves of the target's columns, from two sources that do not share an identifier"


def linked(similarity: Similarity, targets: Targets, *, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each target, members then controls, was linked.

    Every source picks one row at random among those nearest on its columns; the target is linked where
    both picked the same.  Columns are dealt to the sources at random.
    """
    people = targets.stacked
    order = generator.permutation(people.shape[1])
    middle = (len(order) + 1) // 2
    chance = np.empty(len(people))
    for part in similarity.chunks(len(people)):
        nearest = [_nearest(similarity, people[part], columns) for columns in (order[:middle], order[middle:])]
        together = np.count_nonzero(nearest[0] & nearest[1], axis=1)
        apart = [np.count_nonzero(rows, axis=1) for rows in nearest]
        chance[part] = together / (apart[0] * apart[1])
    return generator.random(len(people)) < chance


def _nearest(similarity: Similarity, people: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    if not len(columns):  # a domain of one attribute: the second source knows nothing
        return np.ones((len(people), similarity.rows), dtype=np.bool_)
    close = similarity.over(people, columns.tolist())
    return np.asarray(close == close.max(axis=1, keepdims=True))
