"""Children drawn given other rows have the single columns that were measured."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel
from sfumato.synthesize.graphical import Measured
from sfumato.synthesize.linked.child_slots import calibrated

UNITS = 40_000
JOINT = np.array([[0.4, 0.1], [0.1, 0.4]])  # of the owner's group and the child's, as the model expects them
OWNERS = np.array([0.8, 0.2])  # the groups of the owners that were drawn


class OneChild:
    """A child of each owner, drawn given the group of the owner."""

    drawn = frozenset(["child"])

    def __init__(self, deviation: float, units: int = UNITS) -> None:
        model = GraphicalModel({"owner": 2, "child": 2}, (Factor(("owner", "child"), np.log(JOINT)),), float(UNITS))
        measured = [Measured(names, deviation) for names in (("child",), ("owner", "child"))]
        groups = Coarsening(np.arange(2), np.ones(2))
        self.fitted = SimpleNamespace(model=model, measured=measured, coarsenings={"owner": groups, "child": groups})
        self.deviation, self.weights = deviation, np.ones(units)
        self.owner = (np.arange(units) % 5 == 0).astype(np.int64)

    def first_units(self, many: int) -> OneChild:
        return OneChild(self.deviation, min(many, len(self.weights)))

    def groups(self, model: GraphicalModel, random: np.random.Generator):
        table = model.probabilities(("owner", "child")).values
        share = (table[:, 1] / table.sum(axis=1))[self.owner]
        yield np.arange(len(self.owner)), {"owner": self.owner, "child": (random.random(len(share)) < share) * 1}


@pytest.mark.parametrize(("deviation", "nearest", "farthest"), [(1e5, 0.0, 0.04), (1e-3, 0.08, 0.15)], ids=str)
def test_a_column_comes_near_its_share_as_far_as_noise_explains_the_rest(deviation, nearest, farthest) -> None:
    """The pair alone would give .32 of the children the second group.  The measured column gives it half of them."""
    slots = OneChild(deviation)
    assert OWNERS @ (JOINT[:, 1] / JOINT.sum(axis=1)) == pytest.approx(0.32)
    model = calibrated(slots, np.random.default_rng(1), times=4, units=UNITS)
    table = model.probabilities(("owner", "child")).values
    assert nearest < 0.5 - OWNERS @ (table[:, 1] / table.sum(axis=1)) < farthest
