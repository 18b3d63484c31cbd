"""One-run audit of the graphical methods: canaries that own a cell each, in or out by a fair coin."""

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.evaluate.audit.loss_bounds import audit_one_run
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import EpsilonDelta
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.methods.batched import batched
from sfumato.synthesize.methods.mst import mst
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import all_marginals

CANARIES = 400
CLAIM = EpsilonDelta(1, "1e-12")
DOMAIN = Domain(
    (
        Categorical(name="who", values=tuple(range(CANARIES)), unknown=Unknown.DROP),
        Integer(name="group", minimum=0, maximum=1, unknown=Unknown.DROP),
    )
)
METHODS = {
    "batched": lambda vault, loss: batched(vault, loss=loss, total=PublicTotal(CANARIES), workload=all_marginals(2)),
    "mst": lambda vault, loss: mst(vault, loss=loss, total=PublicTotal(CANARIES)),
}


def audited(method, spent):
    """The audit of a run that claims CLAIM and spends ``spent``; a canary looks present by its expected count."""

    def run(included):
        present = np.flatnonzero(included)
        codes = np.stack([present, present % 2], axis=1)
        cells = method(SimulatedVault(ArrayTable(DOMAIN, codes), seed=5), spent).model.cells(("who",))
        return cells - np.median(cells)

    return audit_one_run(run, canaries=CANARIES, guesses=100, claim=CLAIM, error=1e-6, generator=generator(6))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_more_is_proven_than_was_claimed(method):
    assert audited(method, CLAIM).passed


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_audit_sees_a_run_that_spends_more_than_it_says(method):
    assert not audited(method, EpsilonDelta(300, "1e-12")).passed
