"""The marginals to measure if inference has no room for all of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.model.coarsening import Runs
from sfumato.model.junction_tree import CellBudget, Triangulation, spanning, tree_cells
from sfumato.privacy.loss import Rho
from sfumato.synthesize.budget_allocation import BudgetSplit, PublicTotal
from sfumato.synthesize.initial_marginals import OneWayMarginals, measure_one_way
from sfumato.synthesize.marginal_selection import (
    Scored,
    Table,
    measure_marginals,
    select_child_marginals,
    select_marginals,
    with_visible_cells,
)
from sfumato.vault.simulated import SimulatedVault

SIZES = {"a": 10, "b": 10, "c": 10, "d": 10, "e": 10}
FAR = {("a", "b"): 9.0, ("b", "c"): 8.0, ("a", "c"): 7.0, ("c", "d"): 2.0, ("b", "d"): 1.5, ("d", "e"): 1.0}
SPLIT = BudgetSplit(Rho("1"), 1)


def grown(distances, most, rows=1000.0):
    """Return the selected pairs at these distances, in rows, if the tree has ``most`` cells."""
    tables = tuple(Table(pair, Runs((tuple(range(10)),) * 2, (10, 10))) for pair in distances)
    scored = Scored(tables, rows * np.array(list(distances.values())))
    cell_budget = CellBudget(Triangulation([(name,) for name in SIZES], SIZES), most)
    return list(
        select_marginals(scored, np.ones(len(tables)), split=SPLIT, share=1.0, cell_budget=cell_budget, taken={})
    )


def test_pairs_go_by_their_distances_as_far_as_there_is_room():
    """The pairs of a, b and c fill the 1,020 cells, so that d and e stay alone."""
    assert grown(FAR, 100_000) == list(FAR)
    assert grown(FAR, 1200) == [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("d", "e")]
    assert tree_cells([("a", "b"), ("b", "c"), ("a", "c"), ("d",), ("e",)], SIZES) == 1020
    assert grown(FAR, 1020) == [("a", "b"), ("b", "c"), ("a", "c")]


def test_a_pair_that_is_not_worth_its_noise_is_not_chosen():
    """No distance of 1 to 2 rows is worth the noise of some ten rows in a hundred cells."""
    far = FAR | {pair: FAR[pair] / 1000 for pair in (("c", "d"), ("b", "d"), ("d", "e"))}
    assert grown(far, 100_000) == [("a", "b"), ("b", "c"), ("a", "c")]


def test_cells_that_nobody_can_be_in_are_no_reason_to_leave_a_table_out():
    """For two pairs at one distance, noise in a hundred cells outweighs the gain; the half-empty one is chosen."""
    pairs = (("a", "b"), ("c", "d"))
    runs = Runs((tuple(range(10)),) * 2, (10, 10))
    scored = Scored((Table(pairs[0], runs, 50), Table(pairs[1], runs)), np.full(2, SPLIT.mean_absolute_noise(1.0) * 70))
    cell_budget = CellBudget(Triangulation([(name,) for name in SIZES], SIZES), 100_000)
    assert list(select_marginals(scored, np.ones(2), split=SPLIT, share=1.0, cell_budget=cell_budget, taken={})) == [
        ("a", "b")
    ]


def fitted(codes, domain):
    """Return a fit to the single columns of rows, and to the pair of a and b."""
    mechanisms = SimulatedVault(ArrayTable(domain, codes), seed=1).mechanisms(Rho(1000))
    fit = measure_one_way(mechanisms, BudgetSplit(Rho(900), 1), PublicTotal(len(codes)), OneWayMarginals(), zeros=())
    return measure_marginals(mechanisms, fit, {("a", "b"): None}, loss=Rho(10), shares=[Fraction(1)])


@pytest.mark.parametrize("deviation", [1.0, 30.0, 1e9])
def test_a_pair_counts_the_cells_that_noise_leaves_visible(deviation):
    """By hand: every cell of the model's counts in full from one deviation, and below in part; triples count all."""
    random = np.random.default_rng(0)
    codes = np.stack([random.zipf(1.8, 1000).clip(1, 10) - 1 for _ in "abc"], axis=1)
    domain = Domain(tuple(Categorical(name=name, values=tuple(range(10)), unknown=Unknown.DROP) for name in "abc"))
    fit = fitted(codes, domain)
    runs = Runs(((0, 2, 3), (0, 5)), tuple(fit.model.sizes[name] for name in "ac"))
    pair, triple = Table(("a", "c"), runs), Table(("a", "b", "c"), runs.finest(), 3)
    expected = fit.model.expected(("a", "c"))
    people = [
        expected[rows, columns].sum()
        for rows in (slice(0, 2), slice(2, 3), slice(3, None))
        for columns in (slice(0, 5), slice(5, None))
    ]
    counted, same = with_visible_cells(fit, deviation, [pair, triple])
    assert same is triple
    assert counted.open == max(1, round(sum(min(1.0, each / deviation) for each in people)))
    assert counted.open < counted.cells or deviation == 1.0


def grown_of_a_child(distances, most):
    """Return the selected pairs if they belong to a child."""
    tables = tuple(Table(pair, Runs((tuple(range(10)),) * 2, (10, 10))) for pair in distances)
    scored = Scored(tables, 1000 * np.array(list(distances.values())))
    cell_budget = CellBudget(Triangulation([(name,) for name in SIZES], SIZES), most)
    return list(select_child_marginals(scored, split=SPLIT, share=1.0, cell_budget=cell_budget))


def test_of_a_child_a_tree_goes_first_only_where_there_is_not_room_for_all():
    assert grown_of_a_child(FAR, 100_000) == list(FAR)
    assert grown_of_a_child(FAR, 1020) == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]


@pytest.mark.parametrize("seed", range(20))
def test_a_spanning_tree_weighs_most_of_all_trees(seed):
    random = np.random.default_rng(seed)
    pairs = list(combinations(range(5), 2))
    weights = dict(zip(pairs, random.permutation(len(pairs)).tolist(), strict=True))

    def joins_all(edges):
        reached = {0}
        for _ in range(5):
            reached |= {end for edge in edges if reached & {*edge} for end in edge}
        return len(reached) == 5

    best = max(sum(weights[edge] for edge in tree) for tree in combinations(pairs, 4) if joins_all(tree))
    named = {(str(one), str(other)): weight for (one, other), weight in weights.items()}
    found = list(spanning(sorted(named, key=lambda pair: -named[pair])))
    assert sum(named[pair] for pair in found) == best


@pytest.mark.parametrize(("measured", "outside"), [(1, False), (2, True)])
def test_few_pairs_outside_the_tree_are_not_worth_tuning_rows(measured: int, *, outside: bool) -> None:
    """Of five columns, two pairs without room are measured, and one alone is not."""
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "c"), ("b", "d")][: 4 + measured]
    tables = tuple(Table(pair, Runs(tuple(tuple(range(10)) for _ in pair), (10, 10))) for pair in pairs)
    scored = Scored(tables, np.array([9000.0, 8000.0, 7000.0, 6000.0, 5000.0, 4000.0][: len(pairs)]))
    budget = CellBudget(Triangulation([(name,) for name in SIZES], SIZES), 450, outside=2)
    chosen = select_marginals(scored, np.ones(len(pairs)), split=SPLIT, share=1.0, cell_budget=budget, taken={})
    assert (len(chosen) == len(pairs), all(table.in_model for table in chosen.values())) == (outside, not outside)
