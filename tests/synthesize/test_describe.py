"""The journal's words for a request."""

import numpy as np
import pytest
from tests.synthesize.conftest import integer, table_of

from sfumato import synthesize
from sfumato.domain import Domain
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import PublicTotal, all_marginals, binning
from sfumato.synthesize.methods.mwem import Schedule
from sfumato.vault.vault import Vault
from sfumato.workload.counting_queries import Marginals, all_ranges

DOMAIN = Domain([integer(name, 3) for name in "abcde"])
ROWS = PublicTotal(243)
SOME = Marginals(cliques=(("a", "e"), ("b", "e"), ("c", "e"), ("d", "e"), ("a", "b")))

RELEASES = {
    "synthetic rows of a x b": lambda vault: synthesize.histogram(
        vault, loss=Rho(1), total=ROWS, attributes=("a", "b")
    ),
    "synthetic rows of a x b; c": lambda vault: synthesize.marginals(
        vault, loss=Rho(1), total=ROWS, cliques=[("a", "b"), ("c",)]
    ),
    "synthetic rows of all 5 attributes": lambda vault: synthesize.mst(vault, loss=Rho(1), total=ROWS),
    "synthetic rows of all 5 attributes for all 2-way marginals": lambda vault: synthesize.batched(
        vault, loss=Rho(1), total=ROWS, workload=all_marginals(2)
    ),
    "synthetic rows of all 5 attributes for the marginals a x e; b x e; c x e; d x e; and 1 more": lambda vault: (
        synthesize.aim(vault, loss=Rho(1), total=ROWS, workload=SOME)
    ),
    "synthetic rows of all 5 attributes for the marginals a x b": lambda vault: synthesize.batched(
        vault, loss=Rho(1), total=ROWS, workload=Marginals(cliques=(("a", "b"),))
    ),
    "synthetic rows of b for 6 queries": lambda vault: synthesize.mwem(
        vault, loss=Rho(1), total=ROWS, workload=all_ranges(DOMAIN, "b"), schedule=Schedule(rounds=2, repetitions=2)
    ),
    "synthetic rows of c for 6 queries": lambda vault: synthesize.matrix(
        vault, loss=Rho(1), total=ROWS, workload=all_ranges(DOMAIN, "c")
    ),
}


@pytest.mark.parametrize(("words", "release"), RELEASES.items(), ids=RELEASES)
def test_the_journal_names_the_columns_and_what_the_rows_are_for(words, release, tmp_path):
    encoded = table_of(DOMAIN, np.ones(DOMAIN.shape))
    with open_ledger(f"sqlite:///{tmp_path / 'a.ledger'}", dataset="people", limit=Rho(1), create=True) as ledger:
        release(Vault(encoded, ledger, UNDECLARED))
        assert [entry.asked for entry in ledger.journal()] == [words]


def test_private_edges_name_their_attribute(tmp_path):
    encoded = table_of(DOMAIN, np.ones(DOMAIN.shape))
    with open_ledger(f"sqlite:///{tmp_path / 'a.ledger'}", dataset="people", limit=Epsilon(1), create=True) as ledger:
        binning.private_edges(Vault(encoded, ledger, UNDECLARED), "a", loss=Epsilon(1), bins=2)
        assert [entry.asked for entry in ledger.journal()] == ["edges of 2 bins of a"]
