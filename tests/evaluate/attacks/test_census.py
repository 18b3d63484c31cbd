from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sfumato.domain import Domain
from sfumato.errors import SizeError
from sfumato.evaluate.attacks.answer_attacks import rebuild
from sfumato.evaluate.released import Rows
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace


@pytest.fixture
def block(people) -> Rows:
    """Return forty neighbors with four attributes."""
    rows = people.population(40, seed=4)
    domain = rows.domain.project(["town", "job", "rich", "rooms"])
    return Rows(domain, rows.codes[:, [1, 2, 4, 5]])


def published(block: Rows, ways: int) -> dict[tuple[str, ...], np.ndarray]:
    tables = {}
    for names in combinations(block.domain.names, ways):
        columns = [block.domain.index(name) for name in names]
        table = np.zeros([block.domain.shape[column] for column in columns], dtype=np.int64)
        np.add.at(table, tuple(block.codes[:, columns].T), 1)
        tables[names] = table
    return tables


def test_exact_tables_give_the_people_away_and_private_ones_do_not(block):
    rebuilt = rebuild(block.domain, published(block, 3))
    assert rebuilt.against(block).value > 0.9
    noise, entropy = DiscreteLaplace(4), SimulatedEntropy(0)  # four tables at epsilon 1 together
    noisy = {names: noise.add(table, entropy) for names, table in published(block, 3).items()}
    assert rebuild(block.domain, noisy).against(block).value < 0.5


def test_the_overlap_counts_people_not_cells(block):
    rebuilt = rebuild(block.domain, {block.domain.names: published(block, 4)[block.domain.names]})
    assert rebuilt.against(block).value == 1
    assert rebuilt.counts.sum() == 40


def test_large_domains_are_refused(people):
    with pytest.raises(SizeError, match="at most 20000 cells"):
        rebuild(Domain(people.DOMAIN.attributes), {})
