"""The tree of counts against plain linear algebra."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Integer, Real, Unknown
from sfumato.model.factor import project_to_total, to_counts
from sfumato.query.aggregates import bins as tree
from sfumato.query.aggregates.bins import consistent, increasing, ladder, rank_variance


@pytest.mark.parametrize(("branches", "heights", "top"), [(2, 3, 3), (3, 2, 2), (4, 1, 5)])
def test_consistent_leaves_are_the_least_squares_solution(monkeypatch, branches, heights, top):
    monkeypatch.setattr(tree, "BRANCHES", branches)
    leaves = top * branches ** (heights - 1)
    random = np.random.default_rng(0)
    levels = [random.normal(size=(2, leaves // branches**height)) for height in range(heights)]
    design = np.concatenate([np.kron(np.eye(level.shape[1]), np.ones(leaves // level.shape[1])) for level in levels])
    for group in range(2):
        seen = np.concatenate([level[group] for level in levels])
        expected = np.linalg.lstsq(design, seen, rcond=None)[0]
        assert consistent(levels)[group] == pytest.approx(expected)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5])
def test_the_variance_of_ranks_is_bounded(monkeypatch, probability):
    monkeypatch.setattr(tree, "BRANCHES", 4)
    heights, top = 3, 3
    leaves = top * 16
    design = np.concatenate([np.kron(np.eye(leaves // 4**h), np.ones(4**h)) for h in range(heights)])
    covariance = np.linalg.inv(design.T @ design)
    places = np.arange(leaves + 1)
    weights = (np.arange(leaves) < places[:, None]) - probability
    true = np.einsum("pi,ij,pj->p", weights, covariance, weights)
    bound = rank_variance(places, np.full(leaves + 1, probability), leaves, heights)
    assert (true <= bound + 1e-9).all()
    assert (bound < 6 * true + 1).all()


@pytest.mark.parametrize(
    "attribute",
    [
        Integer(name="x", minimum=-3, maximum=12, unknown=Unknown.CLAMP),
        Integer(name="x", minimum=0, maximum=120, unknown=Unknown.CLAMP),
        Integer(name="x", minimum=0, maximum=10**9, edges=(0, 5), unknown=Unknown.CLAMP),
        Real(name="x", edges=(0.1, 0.7), unknown=Unknown.CLAMP),
        Real(name="x", edges=(-1e9, 1.1e300), unknown=Unknown.CLAMP),
    ],
)
def test_the_bins_hold_every_value_and_nest(attribute):
    levels = ladder(attribute).edges
    assert levels[0][0] == attribute.minimum
    assert levels[0][-1] >= attribute.maximum
    assert all(low < high for low, high in pairwise(levels[0]))
    for fine, coarse in pairwise(levels):
        assert fine[:: tree.BRANCHES] == coarse
    assert len(levels[0]) <= 2 * tree.LEAVES


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30))
def test_non_negative_integers_are_the_nearest_of_their_sum(values):
    noisy = np.array(values)
    total = max(0, round(float(noisy.sum())))
    nearest, counts = project_to_total(noisy, float(total)), to_counts(noisy)
    assert counts.min() >= 0
    assert counts.sum() == total
    assert nearest.sum() == pytest.approx(total, abs=1e-6)
    assert (np.abs(counts - nearest) < 1 + 1e-9).all()
    # the optimality condition of the projection: one shift for all that stay above zero, none larger below
    shifts = noisy - nearest
    above = nearest > 1e-9
    if above.any():
        assert np.ptp(shifts[above]) < 1e-6
        assert (shifts[~above] <= shifts[above].min() + 1e-6).all()


def test_increasing_counts_never_fall_and_leave_rising_ones_alone():
    rising = np.array([[0.0, 1.0, 5.0]])
    assert increasing(rising).tolist() == rising.tolist()
    assert (np.diff(increasing(np.array([[0.0, 3.0, 1.0, 2.0, -4.0, 9.0]]))) >= 0).all()
