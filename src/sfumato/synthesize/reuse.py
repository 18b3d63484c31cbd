"""Marginals that were released before, as observations of a model that is fitted now.

They are public, so that a fit may use them at no loss; the analyst was charged for them when they were asked.  They
help where they are about as precise as what the new loss can measure: all are used where the new loss is at most
what they cost together, and none above that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.model.fitting import Observation
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import tree_cells
from sfumato.privacy.loss import Loss
from sfumato.synthesize.initial_marginals import LEAST_VARIANCE, FittedState, pooled
from sfumato.vault.questions import StoredMarginal

CLEAR = 2.0
"""Times the expected noise that a stored table must differ from independent attributes to shape the model at once."""

ROOM = 0.15
"""Share of the cell cap that tables may take before anything was scored: they stand in the way of better ones."""


@dataclass(frozen=True, eq=False)
class Reusable:
    """Stored marginals over the groups of a state, each once, and the journal's entries that they stand in."""

    observations: tuple[Observation, ...] = ()
    entries: tuple[int, ...] = ()

    def early(self, state: FittedState, cap: int) -> tuple[Observation, ...]:
        """Tables of several attributes that tell clearly more than independence, as far as there is room for them."""
        found = [each for each in self.observations if len(each.attributes) > 1]
        gains = [_distance(state.model, each) - CLEAR * _expected_noise(each) for each in found]
        chosen: list[Observation] = []
        present = [factor.attributes for factor in state.model.factors]
        for gain, each in sorted(zip(gains, found, strict=True), key=lambda pair: -pair[0]):
            cliques = [*present, *(other.attributes for other in chosen), each.attributes]
            if gain > 0 and tree_cells(cliques, state.model.sizes) <= ROOM * cap:
                chosen.append(each)
        return tuple(chosen)

    def late(self, state: FittedState, used: Sequence[Observation]) -> tuple[Observation, ...]:
        """The tables that the model has room for as it is, without those already used."""
        return tuple(
            each
            for each in self.observations
            if each not in used and state.model.tree.holder(each.attributes) is not None
        )


def reusable(domain: Domain, state: FittedState, stored: Sequence[StoredMarginal], loss: Loss) -> Reusable:
    """What a release at ``loss`` uses of stored marginals: nothing where it costs more than they did."""
    stored = [each for each in stored if each.attributes]
    if loss.as_rho().value > sum(each.rho for each in stored):
        return Reusable()
    found: dict[tuple[str, ...], Observation] = {}
    for each in stored:
        new = over_groups(domain, state, each)
        old = found.get(new.attributes)
        found[new.attributes] = new if old is None else pooled(old, new)
    return Reusable(tuple(found.values()), tuple(sorted({each.entry for each in stored})))


def over_groups(domain: Domain, state: FittedState, stored: StoredMarginal) -> Observation:
    """A stored marginal with its cells summed into groups: a sum of m cells carries the noise of m cells."""
    names = tuple(name for name in domain.names if name in stored.attributes)
    counts = stored.values.astype(np.float64).transpose([stored.attributes.index(name) for name in names])
    cells = np.ones(counts.shape)
    for axis, name in enumerate(names):
        merge = state.coarsenings[name].merge
        counts, cells = (np.apply_along_axis(merge, axis, table) for table in (counts, cells))
    return Observation(names, counts, cells * max(stored.noise.variance, LEAST_VARIANCE))


def _distance(model: GraphicalModel, observation: Observation) -> float:
    return float(np.abs(model.expected(observation.attributes) - observation.counts).sum())


def _expected_noise(observation: Observation) -> float:
    deviations = np.sqrt(np.broadcast_to(observation.variance, observation.counts.shape))
    return math.sqrt(2 / math.pi) * float(deviations.sum())
