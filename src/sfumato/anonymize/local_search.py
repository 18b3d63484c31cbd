"""Local search on classes: dissolve a few neighbouring ones, place their rows anew, keep what loses no more.

Large neighbourhood search (Shaw 1998; ruin and recreate, Schrimpf et al. 2000), with k-member's growth as the
way to recreate.
"""

from __future__ import annotations

import numpy as np

from sfumato.anonymize.clusters import Clusters
from sfumato.anonymize.grower import Grower

MOST_DISSOLVED = 5
MOST_NOISE = 0.5


def improve(grower: Grower, *, trials: int) -> None:
    """Try ``trials`` times to lower the loss; it never rises."""
    clusters, rng = grower.clusters, grower.rng
    for _ in range(trials):
        if not clusters.mixed:
            return
        home, need, loss = clusters.home.copy(), clusters.need.copy(), clusters.loss
        clusters.release(_neighbours(clusters, grower, int(rng.integers(1, MOST_DISSOLVED + 1))))
        placed = grower.place(np.flatnonzero(clusters.need).tolist(), noise=MOST_NOISE * float(rng.random()))
        if placed and clusters.loss <= loss:
            clusters.settle()
        else:
            clusters.take_back()
            clusters.home, clusters.need, clusters.loss = home, need, loss


def _neighbours(clusters: Clusters, grower: Grower, number: int) -> list[int]:
    """A class drawn at random, and others that hold tuples close to one of its own."""
    first = list(clusters.mixed)[int(grower.rng.integers(len(clusters.mixed)))]
    tuples = list(clusters.mixed[first].parts)
    centre = tuples[int(grower.rng.integers(len(tuples)))]
    chosen = {first: None}
    for tuple_ in grower.near[centre].tolist():
        for holder in sorted(clusters.holders[tuple_]):
            if len(chosen) == number:
                return list(chosen)
            chosen[holder] = None
    return list(chosen)
