"""Tracing a person in published marginals, means of attributes included (Homer et al. 2008)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.released import Marginals, Released
from sfumato.evaluate.rows import Codes, Rows

KNOWLEDGE = "the whole row of the target, and rows of other people of the population"


def tracing_scores(published: Marginals, reference: Rows, targets: Codes) -> NDArray[np.float64]:
    """How much more each target's cells weigh in the published marginals than in the reference.

    The statistic sums (published - reference)/reference over the cells of the target in all one- and
    two-way marginals: the inner product of Dwork, Smith, Steinke, Ullman and Vadhan (2015), whitened.
    """
    domain = published.domain
    known = Released.of(reference)
    scores = np.zeros(len(targets))
    floor = 1 / len(reference)
    pairs = combinations(domain.names, 2) if len(domain) > 1 else iter(())
    for attributes in [*((name,) for name in domain.names), *pairs]:
        expected = known.marginal(attributes)
        gain = (published.marginal(attributes) - expected) / np.maximum(expected, floor)
        scores += gain[tuple(targets[:, domain.index(name)] for name in attributes)]
    return scores


def homer_distance(
    means: NDArray[np.float64], reference: NDArray[np.float64], people: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Homer's statistic sum_j |y_j - reference_j| - |y_j - mean_j|: large where y is nearer the published means.

    Args:
        means: published shares of each yes/no attribute, shape ``(attributes,)``.
        reference: shares in the population, shape ``(attributes,)``.
        people: the rows tested, shape ``(people, attributes)``.
    """
    far = np.abs(people - reference) - np.abs(people - means)
    return np.asarray(far.sum(axis=1), dtype=np.float64)
