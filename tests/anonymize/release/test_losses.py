from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymize.release.decision import (
    average_class_size,
    certainty_penalty,
    discernibility,
    global_certainty_penalty,
    interval_loss_metric,
    loss_metric,
    non_uniform_entropy,
    precision,
    weighted,
)

classes = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1)), min_size=1)


@given(classes, st.integers(0, 5))
def test_the_loss_metric_is_the_mean_over_all_rows(parts: list[tuple[int, float, float]], suppressed: int) -> None:
    counts = np.array([part[0] for part in parts])
    cells = np.array([part[1:] for part in parts])
    rows = np.concatenate([np.repeat(cells, counts, axis=0), np.ones((suppressed, 2))])
    np.testing.assert_allclose(loss_metric(counts, cells, suppressed), rows.mean(axis=0))


def test_whole_number_intervals_round_once() -> None:
    counts, widths = np.array([3, 7]), np.array([[1], [0]])
    assert interval_loss_metric(counts, widths, (3,)) == (3 / 30,)


def test_equal_weights_change_nothing() -> None:
    assert weighted((0.5, 0.25), (7.0, 7.0)) == 0.75


def test_certainty_penalty_counts_covered_leaves() -> None:
    # a cell of 2 of 5 leaves: loss 1/4, penalty 2/5; an interval keeps its loss
    found = certainty_penalty(np.array([[0.25, 0.3], [0.0, 0.0], [1.0, 1.0]]), [5, None])
    np.testing.assert_allclose(found, [[0.4, 0.3], [0, 0], [1, 1]])
    assert global_certainty_penalty(np.array([2, 1, 1]), found, 1) == pytest.approx((2 * 0.7 + 2 + 2) / 10)


def test_sizes_of_classes() -> None:
    counts = np.array([10, 20])
    assert discernibility(counts, 5) == 100 + 400 + 5 * 35
    assert average_class_size(counts, 10) == 1.5


def test_precision_counts_a_suppressed_row_as_climbed_to_the_top() -> None:
    assert precision((2, 0), (4, 1), rows=10, suppressed=5) == pytest.approx(1 - (5 * 0.5 + 5 * 2) / 20)
    assert precision((4, 1), (4, 1), rows=10, suppressed=0) == 0


def test_non_uniform_entropy_is_the_surprise_of_the_original_value() -> None:
    # values 1, 1, 2 in one cell: two rows lose log2(3/2), one loses log2(3)
    found = non_uniform_entropy(np.array([2, 1]), np.array([3, 3]), np.array([2, 1]))
    assert found == pytest.approx(2 * math.log2(3 / 2) + math.log2(3))
    assert non_uniform_entropy(np.array([2, 1]), np.array([2, 1]), np.array([2, 1])) == 0
