"""Fits against a brute-force solution over the full joint table."""

import numpy as np
import pytest
from scipy.optimize import nnls

from sfumato.errors import InfeasibleError, QueryError
from sfumato.model.coarsening import Runs
from sfumato.model.factor import Factor
from sfumato.model.fitting import Observation, Patience, estimate_total, fit_model, loss
from sfumato.model.graphical_model import GraphicalModel

SIZES = {"a": 3, "b": 2, "c": 4}
CLIQUES = (("a", "b"), ("b", "c"), ("a",))
LONG = Patience(iterations=3000, tolerance=1e-12)


def observed(table, clique, variance, random=None):
    counts = Factor(tuple(SIZES), table).project(clique).values
    noise = 0.0 if random is None else random.normal(scale=np.sqrt(variance), size=counts.shape)
    return Observation(clique, counts + noise, variance)


@pytest.fixture
def random():
    return np.random.default_rng(11)


@pytest.fixture
def table(random):
    return random.gamma(0.5, size=tuple(SIZES.values())) * 100


def brute_force(observations, total):
    """The smallest loss of any non-negative table of the given total, by non-negative least squares."""
    shape = tuple(SIZES.values())
    rows, targets = [], []
    for o in observations:
        root = np.sqrt(np.broadcast_to(o.variance, o.counts.shape)).ravel()
        for cell, indicator in enumerate(np.eye(o.counts.size)):
            inside = indicator.reshape(o.counts.shape)
            if o.runs is not None:
                inside = inside[np.ix_(*(o.runs.labels(axis) for axis in range(inside.ndim)))]
            expanded = Factor(o.attributes, inside).expand(tuple(SIZES))
            rows.append(np.broadcast_to(expanded, shape).ravel() / root[cell])
            targets.append(o.counts.ravel()[cell] / root[cell])
    heavy = 1e4  # the total as a constraint
    rows.append(np.full(np.prod(shape), heavy))
    targets.append(heavy * total)
    cells, _ = nnls(np.array(rows), np.array(targets))
    return float(((np.array(rows[:-1]) @ cells - np.array(targets[:-1])) ** 2).sum() / 2)


def test_the_fit_is_as_near_as_any_table_could_be(random, table):
    observations = [observed(table, clique, 30.0, random) for clique in CLIQUES]
    total = estimate_total(observations)
    fitted = fit_model(observations, GraphicalModel.uniform(SIZES, CLIQUES, total), LONG)
    assert loss(observations, fitted) == pytest.approx(brute_force(observations, total), rel=2e-3)


def test_a_table_over_runs_of_cells_says_nothing_of_what_is_inside_them(random, table):
    """The fit is as close as any table, and as far as possible from a distinction inside measured runs."""
    runs = Runs(((0, 2), (0, 1)), (4, 2))
    counts = Factor(tuple(SIZES), table).project(("c", "b")).values
    joined = np.array([counts[:2].sum(axis=0), counts[2:].sum(axis=0)]) + random.normal(scale=3, size=(2, 2))
    observations = [observed(table, ("c",), 9.0, random), Observation(("c", "b"), joined, 9.0, runs)]
    total = estimate_total(observations)
    fitted = fit_model(observations, GraphicalModel.uniform(SIZES, [], total), LONG)
    assert loss(observations, fitted) == pytest.approx(brute_force(observations, total), rel=2e-3)
    share = fitted.expected(("c", "b"))
    share /= share.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(share[[0, 2]], share[[1, 3]], rtol=1e-9)


def test_each_cell_counts_by_its_own_variance(random, table):
    variance = np.array([1.0, 400.0, 100.0])
    observations = [observed(table, ("a", "b"), 5.0, random), Observation(("a",), np.array([30.0, 9, 50]), variance)]
    total = estimate_total(observations)
    fitted = fit_model(observations, GraphicalModel.uniform(SIZES, [], total), LONG)
    assert loss(observations, fitted) == pytest.approx(brute_force(observations, total), rel=2e-3)


def test_what_was_not_measured_stays_at_maximum_entropy(table):
    observations = [observed(table, ("a", "b"), 1.0), observed(table, ("b", "c"), 1.0)]
    fitted = fit_model(observations, GraphicalModel.uniform(SIZES, [], table.sum()), LONG)
    whole = Factor(tuple(SIZES), table)
    ab, bc, b = (whole.project(clique).values for clique in (("a", "b"), ("b", "c"), ("b",)))
    conditional = ab[:, :, None] * bc[None] / b[None, :, None]
    np.testing.assert_allclose(fitted.expected(("a", "b", "c")), conditional, atol=0.05)


def test_a_fit_goes_on_from_where_it_is_started(random, table):
    observations = [observed(table, ("a", "b"), 4.0, random), observed(table, ("b", "c"), 4.0, random)]
    uniform = GraphicalModel.uniform(SIZES, [], table.sum())
    few = Patience(iterations=3, tolerance=0.0)
    cold = fit_model(observations, uniform, few)
    warm = fit_model(observations, fit_model(observations[:1], uniform, LONG), few)
    again = fit_model(observations, fit_model(observations, uniform, LONG), few)
    assert loss(observations, cold) < loss(observations, uniform)
    assert loss(observations, warm) < loss(observations, fit_model(observations[:1], uniform, LONG))
    assert loss(observations, again) < loss(observations, cold)


def test_structural_zeros_survive_a_fit_that_contradicts_them(table):
    barred = np.zeros((3, 2))
    barred[0, 0] = -np.inf
    start = GraphicalModel.uniform(SIZES, [], table.sum()).times(Factor(("a", "b"), barred))
    fitted = fit_model([observed(table, ("a", "b"), 1.0)], start)
    assert fitted.expected(("a", "b"))[0, 0] == 0.0
    assert fitted.expected(("a", "b")).sum() == pytest.approx(table.sum())
    impossible = start.times(Factor((), np.array(-np.inf)))
    with pytest.raises(InfeasibleError):
        fit_model([observed(table, ("a",), 1.0)], impossible)


def test_negative_counts_fit_to_empty_cells():
    fitted = fit_model(
        [Observation(("b",), np.array([-50.0, 120.0]), 9.0)], GraphicalModel.uniform({"b": 2}, [], 70.0), LONG
    )
    assert fitted.expected(("b",))[0] < 0.1


def test_totals_are_weighted_by_the_noise_of_their_sums():
    narrow = Observation(("a",), np.array([10.0, 20.0, 30.0]), 1.0)  # a sum of 60 with variance 3
    wide = Observation(("b",), np.array([40.0, 40.0]), np.array([5.0, 1.0]))  # a sum of 80 with variance 6
    assert estimate_total([narrow, wide]) == pytest.approx((60 / 3 + 80 / 6) / (1 / 3 + 1 / 6))
    assert estimate_total([Observation(("a",), np.full(3, -9.0), 1.0)]) == 1.0
    with pytest.raises(QueryError):
        estimate_total([])


def test_an_observation_needs_axes_and_noise():
    with pytest.raises(QueryError):
        Observation(("a", "b"), np.zeros(3), 1.0)
    with pytest.raises(QueryError):
        Observation(("a",), np.zeros(3), 0.0)


def test_a_fit_stops_where_its_last_ten_steps_gained_too_little():
    falling = [100.0 * 0.99**step for step in range(12)]
    assert not Patience().exhausted(falling)
    assert Patience(tolerance=0.2).exhausted(falling)
    assert not Patience(tolerance=0.2).exhausted(falling[:10])


def test_a_weighted_sum_tilts_a_distribution_as_far_as_it_says():
    """A maximum-entropy distribution under one weighted sum is an exponential tilt, solved for by hand."""
    weights, counts = np.array([-1.0, 0.0, 0.5, 1.0]), np.array([[-30.0], [0.0], [45.0]])
    sums = Observation(("a", "c"), counts, 1e-4, weights=weights)
    known = [Observation(("a",), np.full(3, 100.0), 1e-4), sums]
    fitted = fit_model(known, GraphicalModel.uniform(SIZES, [("a",), ("c",)], 300.0), LONG)
    cells = fitted.expected(("a", "c"))
    assert cells @ weights == pytest.approx(counts[:, 0], abs=0.05)
    assert cells.sum(axis=1) == pytest.approx(np.full(3, 100.0), abs=0.05)
    slopes = np.diff(np.log(cells), axis=1) / np.diff(weights)
    assert slopes == pytest.approx(np.broadcast_to(slopes[:, :1], slopes.shape), abs=0.02)
    assert slopes[0, 0] < -0.3 < 0.3 < slopes[2, 0]


def test_a_weighted_sum_over_runs_is_fitted_as_near_as_its_noise():
    runs = Runs(((0, 2), (0, 1, 2, 3)), (3, 4))
    sums = Observation(("a", "c"), np.array([[40.0], [-20.0]]), 25.0, runs, np.array([-1.0, 0.0, 0.5, 1.0]))
    fitted = fit_model([sums], GraphicalModel.uniform(SIZES, [("a", "c")], 300.0), LONG)
    assert loss([sums], fitted) < 1e-6
