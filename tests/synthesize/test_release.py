"""Releases through a real vault with a ledger: one entry, stated, stored, repeated for nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sfumato.engine.arrays import ArrayTable
from sfumato.errors import BudgetError, InputError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import NoisyTotal, PublicTotal, Schedule, all_marginals, auto, histogram, marginals, mwem
from sfumato.vault.vault import Vault

METHODS = {
    "histogram": lambda vault, loss: histogram(vault, loss=loss, total=NoisyTotal()),
    "marginals": lambda vault, loss: marginals(
        vault, loss=loss, total=NoisyTotal(), cliques=[["age"], ["mood", "sex"]]
    ),
    "mwem": lambda vault, loss: mwem(
        vault, loss=loss, total=PublicTotal(1000), workload=all_marginals(2), schedule=Schedule(5, 3)
    ),
    "auto": lambda vault, loss: auto(vault, loss=loss, total=NoisyTotal(), workload=all_marginals(1)),
}


@pytest.fixture
def vault(tmp_path, domain, counts):
    codes = np.indices(domain.shape).reshape(len(domain), -1).T
    encoded = ArrayTable(domain, codes, weights=counts.ravel())
    with open_ledger(f"sqlite:///{tmp_path / 'ledger'}", dataset="people", limit=Epsilon(1), create=True) as ledger:
        yield Vault(encoded, ledger, UNDECLARED)


@pytest.mark.parametrize("method", METHODS)
def test_a_repeated_release_is_the_same_model_for_nothing(vault, method):
    first = METHODS[method](vault, Epsilon("0.6"))
    again = METHODS[method](vault, Epsilon("0.6"))
    names = first.model.domain.names
    np.testing.assert_array_equal(first.model.cells(names), again.model.cells(names))
    assert "epsilon = 0.6" in first.guarantee
    assert "nothing" in again.cost
    assert first.provenance["journal_entry"] == again.provenance["journal_entry"]
    json.dumps(first.statement())


@pytest.mark.parametrize("method", METHODS)
def test_a_release_beyond_the_limit_is_refused(vault, method):
    METHODS[method](vault, Epsilon("0.6"))
    with pytest.raises(BudgetError):
        METHODS[method](vault, Epsilon("0.5"))


def test_one_release_samples_once_and_can_sample_again(vault):
    release = METHODS["histogram"](vault, Epsilon(1))
    assert release.rows is release.rows
    assert len(release.sample(17)) == 17
    assert len(release.sample()) == release.model.total == len(release.rows)
    with pytest.raises(InputError, match="not -1"):
        release.sample(-1)
