"""Optimized measurements: the promised error, against the actual one and against plain noise on the cells."""

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import SizeError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import NoisyTotal, PublicTotal, all_marginals, all_ranges, rectangles
from sfumato.synthesize.methods.histogram import matrix, optimised
from sfumato.vault.simulated import SimulatedVault


def line(size):
    return Domain((Integer(name="x", minimum=0, maximum=size - 1, unknown=Unknown.DROP),))


@pytest.mark.parametrize("loss", [Epsilon("0.1"), Rho("0.005")])
def test_the_error_is_what_was_promised(loss):
    domain = line(64)
    counts = np.full(64, 5000)  # far above the noise, so that non-negativity changes nothing
    workload = all_ranges(domain, "x")
    vault = SimulatedVault(ArrayTable(domain, np.arange(64)[:, None], weights=counts), seed=1)
    promised = optimised(domain, loss, NoisyTotal(), workload).error
    truth = workload.answers(domain, counts)
    squares = [
        np.square(
            matrix(vault, loss=loss, total=NoisyTotal(), workload=workload).model.answers(workload) - truth
        ).mean()
        for _ in range(12)
    ]
    assert np.sqrt(np.mean(squares)) == pytest.approx(promised, rel=0.35)
    assert vault.spent.rho <= sum(charge.rho for charge in vault.reserved)


@pytest.mark.parametrize(("loss", "variance", "strategy"), [(Epsilon(1), 2.0, "p-identity"), (Rho("0.5"), 1.0, "")])
def test_it_beats_noise_on_the_cells_where_it_says_so(loss, variance, strategy):
    domain = line(64)
    workload = all_ranges(domain, "x")
    found = optimised(domain, loss, NoisyTotal(), workload)
    on_cells = np.sqrt(workload.widths(domain).mean() * variance)
    assert found.error < 0.85 * on_cells  # at 64 cells the published optimum is 0.71 of the variance
    assert strategy in found.strategy.name


def test_single_cells_are_measured_as_they_are():
    assert optimised(line(30), Epsilon(1), NoisyTotal(), all_marginals(1)).strategy.name == "identity"


def test_several_attributes_and_a_public_total():
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=5, unknown=Unknown.DROP) for name in ("a", "b")))
    codes = np.indices(domain.shape).reshape(2, -1).T
    vault = SimulatedVault(ArrayTable(domain, codes, weights=np.full(36, 100)), seed=2)
    boxes = rectangles(domain.names, [[0, 0], [1, 2], [0, 0]], [[2, 5], [4, 4], [5, 5]])
    release = matrix(vault, loss=Rho("0.5"), total=PublicTotal(3600), workload=boxes)
    np.testing.assert_allclose(release.model.answers(boxes), [1800, 1200, 3600], rtol=0.05)
    assert len(release.rows) == 3600


def test_too_many_cells_are_refused_before_anything_is_charged():
    vault = SimulatedVault(ArrayTable(line(300), np.zeros((5, 1), dtype=np.int64)), seed=3)
    with pytest.raises(SizeError, match="mst or batched"):
        matrix(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(1))
    assert not vault.reserved
