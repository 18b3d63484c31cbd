"""Everything a release is good for, on scales that begin at independent columns and end at other people."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.population_split import (
    PopulationSplit,
    Progress,
    no_progress,
    refuse_wrong_release,
    refuse_wrong_split,
)
from sfumato.evaluate.released import KeptMarginals, MarginalSource, Released
from sfumato.evaluate.utility.learners import Learning, propensity, train_on_release
from sfumato.evaluate.utility.marginal_scores import (
    SampledMean,
    associations,
    largest_correlation_gap,
    largest_gap,
    marginal_distance,
    mean_of,
    sampled_score,
)
from sfumato.evaluate.utility.query_errors import QueryErrors, draw_conjunctions, query_errors
from sfumato.model.row_sampling import generator

_QUERIES = 1000
_DISTINCT = 20  # released rows below which nothing can be learned about telling them apart
_TRIPLES = 1000  # three-way marginals compared: all of them up to 19 attributes


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Utility of one release.  ``learning`` and ``propensity`` are None without rows, ``propensity`` also with few."""

    marginals: tuple[SampledMean, SampledMean, SampledMean]  # U_1, U_2, U_3
    queries: QueryErrors
    pair_distance: NDArray[np.float64]  # total variation, (attributes, attributes); of one attribute on the diagonal
    association_difference: NDArray[np.float64]  # released minus real, (attributes, attributes)
    association_gap: tuple[float, str, str]
    correlation_gap: tuple[float, str, str] | None
    learning: Learning | None
    propensity: SampledMean | None


def scorecard(
    release: MarginalSource, split: PopulationSplit, *, target: str, seed: int, watch: Progress = no_progress
) -> Scorecard:
    """Score a release against the members of ``split``.

    Args:
        release: rows, answers or reports.
        split: the members it was made from, and real people it was not made from.
        target: the attribute that learners predict.
        seed: of the marginals and queries drawn and the learners, so that releases are compared on the same ones.
        watch: told what comes next.

    Raises:
        InputError: what is no release, split or target.
    """
    refuse_wrong_split(split, target=target, seed=seed)
    refuse_wrong_release(release, split.domain)
    real, seen = split.truth, KeptMarginals(release)
    watch("all pairs of columns")
    distances = _pair_distances(real, seen)
    released, true = associations(seen), associations(real)
    watch("three-way marginals and queries")
    three = _triples(real, release, distances, seed=seed)
    queries = draw_conjunctions(split.domain, count=_QUERIES, generator=generator(seed))
    errors = query_errors(real, release, queries)
    learned = distinguished = None
    if isinstance(release, Released):
        rows = release.draw(generator(seed))
        watch(f"a learner of {target}")
        learned = train_on_release(rows, split.controls, target=target, seed=seed)
        if len(rows) >= _DISTINCT:
            watch("telling released from real rows")
            distinguished = propensity(split.members, rows, seed=seed)
    return Scorecard(
        marginals=(_one_way(distances), _two_way(distances), three),
        queries=errors,
        pair_distance=distances,
        association_difference=released - true,
        association_gap=largest_gap(true, released, split.domain),
        correlation_gap=largest_correlation_gap(true, released, split.domain),
        learning=learned,
        propensity=distinguished,
    )


def _pair_distances(real: MarginalSource, release: MarginalSource) -> NDArray[np.float64]:
    names = real.domain.names
    found = np.zeros((len(names), len(names)))
    for first, one in enumerate(names):
        found[first, first] = marginal_distance(real, release, (one,))
        for second in range(first):
            distance = marginal_distance(real, release, (names[second], one))
            found[first, second] = found[second, first] = distance
    return found


def _one_way(distances: NDArray[np.float64]) -> SampledMean:
    score = 1 - math.fsum(np.diagonal(distances)) / len(distances)
    return SampledMean(score, 0.0, len(distances), len(distances))


def _two_way(distances: NDArray[np.float64]) -> SampledMean:
    """U_1 again where there is a single attribute."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    return (
        SampledMean(1 - mean_of(pairs.tolist(), of=len(pairs)).value, 0.0, len(pairs), len(pairs))
        if len(pairs)
        else _one_way(distances)
    )


def _triples(
    real: MarginalSource, release: MarginalSource, distances: NDArray[np.float64], *, seed: int
) -> SampledMean:
    """U_3, or the score of as many attributes as there are."""
    if len(distances) < 3:  # noqa: PLR2004
        return _two_way(distances)
    return sampled_score(real, release, ways=3, most=_TRIPLES, generator=generator(seed))
