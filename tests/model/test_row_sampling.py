"""Sampled rows: rounded where the model speaks, independent where it says so.

False alarms: statistical tests compare with 1e-9.
"""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from sfumato.errors import SizeError
from sfumato.model import row_sampling
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.row_sampling import RowSampler, by_group, generator, grouped, sample

SIZES = {"a": 3, "b": 4, "c": 5}


def random_model(cliques, seed=1):
    random = np.random.default_rng(seed)
    return GraphicalModel(
        SIZES, tuple(Factor(c, random.normal(size=[SIZES[name] for name in c])) for c in cliques), 1000.0
    )


def spread(groups, table, random):
    """The column that every row is given, by its group's row of the table."""
    return by_group(table, [table.shape[1]]).give(groups, random)[0]


def counts(rows, names):
    shape = [SIZES[name] for name in names]
    return np.bincount(np.ravel_multi_index([rows[name] for name in names], shape), minlength=np.prod(shape))


def test_the_root_clique_is_met_to_within_one_row_a_cell():
    model = random_model([("a", "b", "c")])
    rows = sample(model, 777, generator(1))
    expected = 777 * model.probabilities(("a", "b", "c")).values.ravel()
    assert (np.abs(counts(rows, ("a", "b", "c")) - expected) < 1).all()


def test_every_child_cell_is_rounded_within_its_parent_cell():
    model = random_model([("a", "b"), ("b", "c")])
    rows = sample(model, 5000, generator(2))
    parents = counts(rows, ("b",))
    for clique in (("a", "b"), ("b", "c")):
        axis = clique.index("b")
        table = np.moveaxis(model.probabilities(clique).values, axis, 0)
        conditional = table / table.sum(axis=1, keepdims=True)
        found = np.moveaxis(counts(rows, clique).reshape([SIZES[n] for n in clique]), axis, 0)
        # the root is rounded as a whole, its child within each cell of b
        assert (
            np.abs(found - parents[:, None] * conditional) < 2 + SIZES[clique[1 - axis]] * (clique == ("a", "b"))
        ).all()


def test_counts_are_right_on_average():
    model = random_model([("a", "b"), ("b", "c")])
    random = generator(3)
    mean = np.mean([counts(sample(model, 10, random), ("a", "b", "c")) for _ in range(3000)], axis=0)
    np.testing.assert_allclose(mean, 10 * model.probabilities(("a", "b", "c")).values.ravel(), atol=0.05)


def test_pairs_that_were_never_measured_are_as_independent_as_the_model_says():
    model = GraphicalModel.uniform({"a": 2, "b": 2, "c": 2}, [("a",), ("b", "c")], 1.0)
    rows = sample(model, 20_000, generator(4))
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        assert abs(np.corrcoef(rows[one], rows[other])[0, 1]) < 0.04  # 5.6 standard errors
    star = random_model([("a", "b"), ("b", "c")])
    rows = sample(star, 200_000, generator(5))
    found = counts(rows, ("a", "c")).reshape(3, 5) / 200_000
    np.testing.assert_allclose(found, star.probabilities(("a", "c")).values, atol=0.005)


def test_rows_come_in_random_order():
    rows = sample(random_model([("a", "b")]), 10_000, generator(6))
    assert abs(np.corrcoef(rows["a"][:-1], rows["a"][1:])[0, 1]) < 0.06


def test_impossible_cells_are_never_drawn():
    barred = np.zeros((3, 4))
    barred[:, 1] = barred[2, 2] = -np.inf
    model = random_model([("b", "c")]).times(Factor(("a", "b"), barred))
    rows = sample(model, 50_000, generator(7))
    assert not (rows["b"] == 1).any()
    assert not ((rows["a"] == 2) & (rows["b"] == 2)).any()


def test_cells_of_almost_no_mass_do_not_break_the_rounding():
    table = np.array([[1e-300, 1.0, 1e-17, 0.0], [0.0, 0.0, 0.0, 1.0]])
    drawn = spread(np.repeat([0, 1], [100_000, 3]), table, generator(8))
    assert set(drawn[:100_000]) <= {0, 1, 2}
    assert drawn[100_000:].tolist() == [3, 3, 3]


def test_cells_get_the_rows_whose_points_lie_below_their_edges():
    """The reference places one point per row: row r of a group is at r + u, u is drawn once per group, and cells have
    edges in rows.
    """
    random = np.random.default_rng(10)
    for _ in range(50):
        table = random.gamma(0.3, size=(6, 5))
        table[random.random(table.shape) < 0.3] = 0.0
        table[:, 4] += 1e-3
        groups = random.integers(0, 6, 60)
        drawn = spread(groups, table, generator(11))
        starts = generator(11).random(6)  # one for each group, before the order of rows
        for group in np.unique(groups):
            start = starts[group]
            held = int((groups == group).sum())
            edges = np.cumsum(table[group]) / table[group].sum() * held
            expected = [int((np.arange(held) + start < edge).sum()) for edge in edges[:-1]] + [held]
            assert np.bincount(drawn[groups == group], minlength=5).cumsum().tolist() == expected


def one_by_one(steps, rows, random):
    """The same law, slow and obvious: a point for each row, dealt out to the rows of a separator's cell in turn."""
    found = [{} for _ in range(rows)]
    for separator, new, table in steps:
        together = {}
        for row in random.permutation(rows).tolist():
            together.setdefault(tuple(found[row][name] for name in separator), []).append(row)
        for cell, held in together.items():
            edges = np.cumsum(table[cell].ravel()) / table[cell].sum() * len(held)
            points = random.random() + np.arange(len(held))
            for row, code in zip(held, np.searchsorted(edges[:-1], points, side="right").tolist(), strict=True):
                found[row] |= {"a": code // 2, "b": code % 2} if len(new) > 1 else {new[0]: code}
    return found


def test_rows_have_the_law_of_rows_that_are_dealt_out_one_by_one(monkeypatch):
    """Whole tables of three rows, in their order, 8^3 of them; a sampler that leaves rows in their order is found."""
    sizes, draws = {"a": 2, "b": 2, "c": 2}, 4000
    random = np.random.default_rng(3)
    model = GraphicalModel(
        sizes, tuple(Factor(clique, random.normal(size=(2, 2))) for clique in (("a", "b"), ("b", "c"))), 1.0
    )
    assert model.tree.cliques == (("a", "b"), ("b", "c"))
    steps = [((), ("a", "b"), model.probabilities(("a", "b")).values)]
    steps += [(("b",), ("c",), model.probabilities(("b", "c")).values)]
    random = np.random.default_rng(4)
    slow = [[[row[name] for name in sizes] for row in one_by_one(steps, 3, random)] for _ in range(draws)]

    def tables(drawn):
        return np.bincount(np.reshape(drawn, (draws, 9)) @ (1 << np.arange(9)), minlength=512)

    def chance():
        random, sampler = generator(5), RowSampler(model)
        fast = [np.stack([*sampler.draw(3, random).values()], axis=1) for _ in range(draws)]
        both = np.stack([tables(slow), tables(fast)])
        return stats.chi2_contingency(both[:, both.sum(axis=0) >= 10]).pvalue

    assert chance() > 1e-9
    monkeypatch.setattr(row_sampling, "grouped", lambda groups, *_: np.argsort(groups, kind="stable"))
    assert chance() < 1e-9


@pytest.mark.parametrize("least", [0, 65])  # of random bits in a key: by keys, and without
def test_rows_of_a_group_come_in_every_order_equally_often(least, monkeypatch):
    monkeypatch.setattr(row_sampling, "_LEAST_RANDOM", least)
    random = generator(6)
    groups = np.array([2, 0, 2, 0, 2, 2], dtype=np.uint8)
    seen = {(*first, *second): 0 for first in permutations([1, 3]) for second in permutations([0, 2, 4, 5])}
    for _ in range(9600):
        seen[tuple(grouped(groups, 3, random).tolist())] += 1
    assert stats.chisquare([*seen.values()]).pvalue > 1e-9


def test_more_groups_than_a_narrow_type_holds_are_kept_apart():
    random = generator(7)
    groups = random.integers(0, 70_000, 200_000)
    order = grouped(groups, 70_000, random)
    assert (np.diff(groups[order]) >= 0).all()
    assert (np.bincount(order) == 1).all()
    wide = GraphicalModel.uniform({"a": 256, "b": 300, "c": 2}, [("a", "b"), ("b", "c")], 1.0)
    rows = sample(wide, 1000, random)
    assert {name: column.dtype for name, column in rows.items()} == {"a": np.uint8, "b": np.uint16, "c": np.uint8}
    assert (rows["a"].max() > 200, rows["b"].max() > 256) == (True, True)


def test_no_rows_and_fewer_than_none():
    assert sample(random_model([("a", "b")]), 0, generator(9))["c"].shape == (0,)
    with pytest.raises(SizeError):
        sample(random_model([]), -1, generator(9))


def test_rows_in_a_group_without_any_weight_are_refused():
    table = np.array([[0.0, 0.0], [0.5, 0.5]])
    assert spread(np.array([1, 1]), table, generator(1)).tolist() in ([0, 1], [1, 0])
    with pytest.raises(SizeError, match="admits none"):
        spread(np.array([0, 1]), table, generator(1))
