"""If a unit has at most one child, linked synthesis equals the flat method on parents joined with their first child."""

from __future__ import annotations

import numpy as np
import pytest
from tests.families import Families, derived_rows, related, some_families

from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import EpsilonDelta, Rho
from sfumato.synthesize.budget_allocation import NoisyTotal
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_synthesis import first_row_zeros, release_units
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.batched import batched
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import all_marginals

SIZES = ModelSizes(head_cells=20_000, tail_cells=20_000, calibration=1)


@pytest.mark.parametrize("loss", [Rho("0.5"), EpsilonDelta("1", "1e-6")], ids=str)
def test_with_one_child_it_is_the_flat_method_on_the_joined_table_bit_for_bit(loss) -> None:
    tables, families = related(1), some_families(400, 3)
    release = release_units(
        SimulatedVault(Families(families, tables), seed=7), tables, loss=loss, total=NoisyTotal(), settings=SIZES
    )
    head, _ = derived_rows(families, tables)
    joined = SimulatedVault(ArrayTable(tables.unit_domain, np.array(head, dtype=np.int64)), seed=7)
    flat = batched(
        joined,
        loss=loss,
        total=NoisyTotal(),
        workload=all_marginals(3),
        limits=SizeLimits(cells=SIZES.head_cells, prior_marginals=False),
        zeros=first_row_zeros(tables),
    )
    one, other = release.unit_model, flat.model
    assert one.measured == other.measured
    assert one.total == other.total
    assert [factor.attributes for factor in one.model.factors] == [factor.attributes for factor in other.model.factors]
    pairs = zip(one.model.factors, other.model.factors, strict=True)
    assert all(np.array_equal(left.values, right.values) for left, right in pairs)
    samples = [model.sample(np.random.default_rng(1)) for model in (one, other)]
    assert np.array_equal(*samples)
