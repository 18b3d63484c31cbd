"""Marginal scores: how close a release is to the real table in every t-way marginal."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from sfumato.evaluate.released import Marginals


def marginal_distance(real: Marginals, release: Marginals, attributes: tuple[str, ...]) -> float:
    """Total variation: half the L1 distance of the two normalised marginals, 0 to 1."""
    return float(np.abs(real.marginal(attributes) - release.marginal(attributes)).sum() / 2)


def marginal_score(real: Marginals, release: Marginals, *, ways: int) -> float:
    """U_t = 1 - mean total variation over all marginals of ``ways`` attributes, over the domain's cells.

    NIST's k-marginal score (Synthetic Data Challenge 2018, over a public binning) is 1000 U_3.
    """
    cliques = list(combinations(real.domain.names, ways))
    return 1 - sum(marginal_distance(real, release, clique) for clique in cliques) / len(cliques)


def rescaled(score: float, *, floor: float, ceiling: float) -> float:
    """Where a score lies between independent columns (0) and other people of the same population (1).

    NaN where the two ends coincide: the table has no structure that the score could see.
    """
    return (score - floor) / (ceiling - floor) if ceiling != floor else float("nan")
