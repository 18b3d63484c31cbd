"""Marginal scores: how close a release is to the real table in every t-way marginal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from sfumato.evaluate.released import Marginals


def marginal_distance(real: Marginals, release: Marginals, attributes: tuple[str, ...]) -> float:
    """Total variation: half the L1 distance of the two normalised marginals, 0 to 1."""
    return float(np.abs(real.marginal(attributes) - release.marginal(attributes)).sum() / 2)


@dataclass(frozen=True)
class Mean:
    """A mean over ``taken`` of ``all`` things, and its standard error: zero where all were taken.

    >>> mean_of([0.0, 1.0], of=2)
    Mean(value=0.5, error=0.0, taken=2, all=2)
    """

    value: float
    error: float
    taken: int
    all: int


def mean_of(values: Sequence[float], *, of: int) -> Mean:
    """The mean of ``values``, drawn without replacement from ``of`` of them."""
    taken = len(values)
    error = 0.0
    if 1 < taken < of:
        error = float(np.std(values, ddof=1)) * math.sqrt((1 - taken / of) / taken)
    return Mean(math.fsum(values) / taken, error, taken, of)


def marginal_score(real: Marginals, release: Marginals, *, ways: int) -> float:
    """U_t = 1 - mean total variation over all marginals of ``ways`` attributes, over the domain's cells.

    NIST's k-marginal score (Synthetic Data Challenge 2018, over a public binning) is 1000 U_3.
    """
    cliques = list(combinations(real.domain.names, ways))
    return 1 - math.fsum(marginal_distance(real, release, clique) for clique in cliques) / len(cliques)


def sampled_score(real: Marginals, release: Marginals, *, ways: int, most: int, generator: np.random.Generator) -> Mean:
    """``marginal_score`` from at most ``most`` marginals, drawn where there are more."""
    cliques = list(combinations(real.domain.names, ways))
    drawn = np.sort(generator.permutation(len(cliques))[:most])
    found = mean_of([marginal_distance(real, release, cliques[place]) for place in drawn], of=len(cliques))
    return replace(found, value=1 - found.value)


def rescaled(score: float, *, floor: float, ceiling: float) -> float:
    """Where a score lies between independent columns (0) and other people of the same population (1).

    NaN where the two ends coincide: the table has no structure that the score could see.
    """
    return (score - floor) / (ceiling - floor) if ceiling != floor else float("nan")
