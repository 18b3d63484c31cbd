"""Targets and weights: what the domain says they are, and what is measured for them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Role, Unknown, dump, parse
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import DomainError, QueryError
from sfumato.privacy.loss import EpsilonDelta
from sfumato.strict_documents import read_yaml
from sfumato.synthesize import PublicTotal, all_marginals, batched, mst
from sfumato.synthesize.synthetic import Synthetic, rows_for
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import Marginals
from sfumato.workload.named_marginals import workload_cliques

NAMES = ("a", "b", "c", "d")
LETTERS = tuple(Categorical(name=name, values=tuple(range(4)), unknown=Unknown.DROP) for name in NAMES)
WEIGHT = Integer(name="w", minimum=0, maximum=99, edges=(0, 10, 20, 40, 60), unknown=Unknown.CLAMP, role=Role.WEIGHT)
PLAIN = Domain((*LETTERS, replace(WEIGHT, role=None)))
WEIGHTED = Domain((*LETTERS, WEIGHT))
TARGETED = Domain((*LETTERS[:3], replace(LETTERS[3], role=Role.TARGET), replace(WEIGHT, role=None)))


def test_a_domain_file_says_the_role_and_one_without_is_as_it_was():
    for domain in (WEIGHTED, TARGETED):
        assert parse(read_yaml(dump(domain))) == domain
        assert "role:" in dump(domain)
    assert "role" not in dump(PLAIN)
    assert len({PLAIN.hash, WEIGHTED.hash, TARGETED.hash}) == 3


WRONG = {
    "two targets": lambda: Domain(tuple(replace(letter, role=Role.TARGET) for letter in LETTERS[:2])),
    "two weights": lambda: Domain((WEIGHT, replace(WEIGHT, name="v"))),
    "a category as weight": lambda: replace(LETTERS[0], role=Role.WEIGHT),
    "a weight below zero": lambda: replace(WEIGHT, minimum=-1, edges=(-1, 5)),
    "a real weight below zero": lambda: Real(name="w", edges=(-0.5, 2.0), unknown=Unknown.DROP, role=Role.WEIGHT),
    "no role": lambda: replace(WEIGHT, role="weight"),
    "a role that nobody knows": lambda: parse(read_yaml(dump(WEIGHTED).replace("role: weight", "role: wait"))),
    "a category as weight, in a file": lambda: parse(read_yaml(dump(TARGETED).replace("role: target", "role: weight"))),
}


@pytest.mark.parametrize("name", WRONG)
def test_roles_that_do_not_apply_are_refused(name):
    with pytest.raises(DomainError, match=r"weight|target|role"):
        WRONG[name]()


def test_the_target_is_in_every_marginal_of_a_general_workload():
    """The workload of benchmarks/tstr.py: all marginals of two columns and the target."""
    towards = Marginals(cliques=tuple((*pair, "d") for pair in combinations(("a", "b", "c", "w"), 2)))
    triples = {clique for clique in workload_cliques(all_marginals(2), TARGETED) if len(clique) == 3}
    assert triples == set(workload_cliques(towards, PLAIN))
    assert all("d" in clique for clique in workload_cliques(all_marginals(3), TARGETED))
    named = Marginals(cliques=(("a", "b"),))
    assert workload_cliques(named, TARGETED) == [("a", "b")]  # who names marginals gets these
    assert workload_cliques(all_marginals(2), PLAIN) == list(combinations(PLAIN.names, 2))


def test_what_is_released_says_the_roles():
    assert rows_for(PLAIN, all_marginals(2)).endswith("for all 2-way marginals")
    assert "each with the target d" in rows_for(TARGETED, all_marginals(2))
    assert "totals of the weight w" in rows_for(WEIGHTED, all_marginals(2))


def test_a_tree_refuses_roles_before_it_is_charged():
    for domain, named in ((WEIGHTED, "'w' as the weight"), (TARGETED, "'d' as the target")):
        vault = SimulatedVault(ArrayTable(domain, np.zeros((9, 5), dtype=np.int64)), seed=1)
        with pytest.raises(QueryError, match=named):
            mst(vault, loss=EpsilonDelta(1, "1e-6"), total=PublicTotal(9))
        assert not vault.reserved


def people() -> tuple[np.ndarray, np.ndarray]:
    """Codes of six attributes that go strongly with one another, and a number that goes weakly with each."""
    random = np.random.default_rng(7)
    base = random.integers(0, 6, (2, 6000))
    letters = [np.where(random.random(6000) < 0.35, random.integers(0, 6, 6000), base[place % 2]) for place in range(6)]
    return np.stack(letters, axis=1), np.floor(np.minimum(random.gamma(2 + sum(letters[:4]) / 4, 5), 99))


def released(weight: Integer, letters: tuple[Categorical, ...], seed: int) -> Synthetic:
    codes, numbers = people()
    bins = np.searchsorted(weight.edges, numbers, side="right") - 1
    table = ArrayTable(Domain((*letters, weight)), np.column_stack([codes, bins]), values={"w": numbers})
    loss, total = EpsilonDelta(1, "1e-6"), PublicTotal(6000)
    return batched(SimulatedVault(table, seed=seed), loss=loss, total=total, workload=all_marginals(2))


SIXES = tuple(Categorical(name=name, values=tuple(range(6)), unknown=Unknown.DROP) for name in "abcdef")


def pairs_with(name: str, release: Synthetic) -> int:
    held = {frozenset(pair) for table in release.model.measured for pair in combinations(table.attributes, 2)}
    return sum(name in pair for pair in held)


def test_more_pairs_with_the_target_are_measured():
    """The seeds are fixed: f goes with b and d alone, and weakly with the others."""
    with_role, without = (
        [
            pairs_with("f", released(replace(WEIGHT, role=None), (*SIXES[:5], replace(SIXES[5], role=role)), seed))
            for seed in range(3)
        ]
        for role in (Role.TARGET, None)
    )
    assert sum(with_role) > sum(without)
