"""Everything a release is good for, on scales that begin at independent columns and end at other people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.panel import Panel
from sfumato.evaluate.released import Marginals, Released
from sfumato.evaluate.utility.association import associations, largest_gap
from sfumato.evaluate.utility.learning import Learning, propensity, train_on_release
from sfumato.evaluate.utility.queries import QueryErrors, draw_conjunctions, query_errors
from sfumato.evaluate.utility.scores import marginal_score
from sfumato.model.simulation import generator

_QUERIES = 1000


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Utility of one release.  ``learning`` and ``propensity`` are None for releases without rows."""

    marginals: tuple[float, float, float]  # U_1, U_2, U_3
    queries: QueryErrors
    association_difference: NDArray[np.float64]  # released minus real, (attributes, attributes)
    association_gap: tuple[float, str, str]
    learning: Learning | None
    propensity: float | None


def scorecard(release: Marginals, panel: Panel, *, target: str, seed: int) -> Scorecard:
    """Score a release against the members of ``panel``.

    Args:
        release: rows, answers or reports.
        panel: the members it was made from, and real people it was not made from.
        target: the attribute that learners predict.
        seed: of the queries drawn and the learners, so that releases are compared on the same ones.
    """
    real = Released.of(panel.members)
    ways = min(3, len(panel.domain))
    scores = [marginal_score(real, release, ways=min(way, ways)) for way in (1, 2, 3)]
    queries = draw_conjunctions(panel.domain, count=_QUERIES, generator=generator(seed))
    released, true = associations(release), associations(real)
    learned = distinguished = None
    if isinstance(release, Released):
        rows = release.draw(generator(seed))
        learned = train_on_release(rows, panel.controls, target=target, seed=seed)
        distinguished = propensity(panel.members, rows, seed=seed)
    return Scorecard(
        marginals=(scores[0], scores[1], scores[2]),
        queries=query_errors(real, release, queries),
        association_difference=released - true,
        association_gap=largest_gap(true, released, panel.domain),
        learning=learned,
        propensity=distinguished,
    )
