"""Exact inference against the full joint distribution."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import InfeasibleError
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel

NAMES = tuple("abcde")
SIZES = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}
CLIQUES = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple), max_size=7)


def random_model(cliques, seed):
    random = np.random.default_rng(seed)
    factors = tuple(Factor(c, 3 * random.normal(size=[SIZES[name] for name in c])) for c in cliques)
    return GraphicalModel(SIZES, factors, 100.0)


def joint(model):
    logs = np.zeros([model.sizes[name] for name in model.sizes])
    for factor in model.factors:
        logs = logs + factor.expand(tuple(model.sizes))
    table = np.exp(logs - logs.max())
    return Factor(tuple(model.sizes), table / table.sum())


@given(CLIQUES, st.integers(0, 100))
def test_every_marginal_is_that_of_the_joint(cliques, seed):
    model = random_model(cliques, seed)
    whole = joint(model)
    for ways in range(len(NAMES) + 1):
        for attributes in combinations(NAMES, ways):
            expected = whole.project(attributes).values
            np.testing.assert_allclose(model.probabilities(attributes).values, expected, atol=1e-12)
    for attributes in permutations(NAMES, 2):
        np.testing.assert_allclose(model.expected(attributes), 100 * whole.project(attributes).values, atol=1e-10)


@given(CLIQUES, st.integers(0, 100))
def test_conditioning_multiplies_and_rescales(cliques, seed):
    model = random_model(cliques, seed)
    shares = np.log([0.25, 0.0, 1.0], where=[True, False, True], out=np.full(3, -np.inf))
    whole = joint(model).values * np.array([0.25, 0.0, 1.0])[:, None, None, None].transpose(1, 0, 2, 3)[..., None]
    found = model.given({"b": shares})
    assert found.total == pytest.approx(100 * whole.sum())
    np.testing.assert_allclose(found.probabilities(NAMES).values, whole / whole.sum(), atol=1e-12)


def test_a_structural_zero_is_exactly_zero_everywhere():
    model = random_model([("a", "b"), ("b", "c")], 1)
    barred = np.full((2, 2), 0.0)
    barred[0, 1] = -np.inf
    table = model.times(Factor(("a", "c"), barred)).probabilities(("a", "c", "b")).values
    assert table[0, 1].tolist() == [0.0, 0.0, 0.0]
    assert table.sum() == pytest.approx(1)


def test_nothing_possible_is_refused():
    nothing = GraphicalModel.uniform(SIZES, [], 1.0).times(Factor(("a",), np.full(2, -np.inf)))
    with pytest.raises(InfeasibleError, match="no combination"):
        _ = nothing.beliefs
    with pytest.raises(InfeasibleError, match="'b'"):
        GraphicalModel.uniform(SIZES, [], 1.0).given({"b": np.full(3, -np.inf)})


def test_potentials_far_apart_do_not_underflow():
    chain = [(f"x{i}", f"x{i + 1}") for i in range(60)]
    factors = tuple(Factor(clique, np.array([[0.0, -700.0], [-700.0, -20.0 * i]])) for i, clique in enumerate(chain))
    model = GraphicalModel({f"x{i}": 2 for i in range(61)}, factors, 1.0)
    np.testing.assert_allclose(model.probabilities(("x0", "x60")).values, [[1, 0], [0, 0]], atol=1e-12)


@given(CLIQUES, st.integers(0, 100), st.sampled_from([0.0, 0.3]))
def test_marginals_of_potentials_thousands_apart_are_those_of_the_joint(cliques, seed, impossible):
    """Such potentials come from a fit to noise far above the number of rows: sums of probabilities underflow."""
    random = np.random.default_rng(seed)
    model = random_model(cliques, seed)
    factors = tuple(Factor(f.attributes, np.round(1000 * f.values)) for f in model.factors)
    barred = tuple(
        Factor(f.attributes, np.where(random.random(f.values.shape) < impossible, -np.inf, 0.0)) for f in factors
    )
    model = GraphicalModel(SIZES, (*factors, *barred), 100.0)
    if np.isneginf(sum((f.expand(NAMES) for f in model.factors), np.zeros([SIZES[name] for name in NAMES]))).all():
        with pytest.raises(InfeasibleError, match="no combination"):
            _ = model.beliefs
        return
    whole = joint(model)
    for attributes in [*combinations(NAMES, 1), *combinations(NAMES, 2), NAMES]:
        np.testing.assert_allclose(model.probabilities(attributes).values, whole.project(attributes).values, atol=1e-9)


def test_cliques_that_agree_on_a_cell_which_each_of_them_all_but_rules_out():
    factors = (
        Factor(("a", "b"), np.array([[-3000.0, -1000.0, 0.0], [-3000.0, -1000.0, 0.0]])),
        Factor(("b", "c"), np.array([[0.0, 0.0], [-1000.0, -1000.0], [-3000.0, -3000.0]])),
    )
    model = GraphicalModel(SIZES, factors, 1.0)
    np.testing.assert_allclose(model.probabilities(("b",)).values, [0, 1, 0], atol=1e-12)


def test_no_cell_is_lost_beside_one_that_a_number_just_holds():
    factors = (
        Factor(("a", "b"), np.array([[0.0, -720.0, -365.0]] * 2)),
        Factor(("b", "c"), np.array([[-720.0] * 2, [0.0] * 2, [-365.0] * 2])),
    )
    model = GraphicalModel(SIZES, factors, 1.0)
    third = np.exp(-10.0)
    np.testing.assert_allclose(model.probabilities(("b",)).values, np.array([1, 1, third]) / (2 + third), rtol=1e-9)


def test_attributes_of_one_cell_take_no_room_however_many():
    single = [f"s{index}" for index in range(58)]
    sizes = {"a": 2, "b": 2, **dict.fromkeys(single, 1)}
    random = np.random.default_rng(2)
    one = Factor(("a", *single), random.random((2, *[1] * 58)))
    other = Factor(("b", *single), random.random((2, *[1] * 58)))
    found = GraphicalModel(sizes, (one, other), 1.0).probabilities(("b", single[0], "a"))
    a, b = (np.exp(factor.values.ravel()) / np.exp(factor.values).sum() for factor in (one, other))
    np.testing.assert_allclose(found.values, np.multiply.outer(b, a)[:, None, :], atol=1e-12)
