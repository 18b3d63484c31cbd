"""Tails of ordered attributes: what is expected of cells that noise outweighs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sfumato.model.coarsening import merge_neighbours
from sfumato.model.count_priors import falling_tail, with_falling_tails

# Visits of 101,766 hospital stays to an emergency room in the year before, as published (UCI, Diabetes 130-US). Their
# number is declared up to 100, and hardly any stay has more than ten.
VISITS = np.zeros(101)
VISITS[:16] = [90383, 7677, 2042, 725, 374, 192, 94, 73, 50, 33, 34, 23, 10, 12, 3, 3]
VISITS[[16, 18, 19, 20, 21, 22, 24, 25, 28, 29, 37, 42, 46, 54, 63, 64, 76]] = [5, 5, 4, 4, 2, 6, 1, 2, *[1] * 9]


def test_a_curve_holds_the_integral_of_its_density():
    """The trapezium rule is independent of the closed forms."""
    widths, density = np.array([1.0, 3.0, 0.5, 10.0]), 7.0
    tail = falling_tail(np.zeros(4), widths, 1e9, density=density)  # no likelihood tells one curve from another
    assert np.allclose(tail.likely, tail.likely[0], rtol=1e-6)
    lengths = np.geomspace(0.02, 2 * widths.sum(), 48)
    ends = np.concatenate(([0], np.cumsum(widths)))
    for shape, at in ((None, 0), (0.25, 1), (0.5, 2), (1.0, 3)):
        for place in (20, 47):
            length = lengths[place]
            held = []
            for low, high in pairwise(ends):
                x = np.linspace(low, high, 20_001) / length
                # the density whose integral from x on is exp(-x) or (1 + shape x)^(-1 / shape)
                y = np.exp(-x) if shape is None else (1 + shape * x) ** (-1 / shape - 1)
                held.append(density * np.trapezoid(y, x) * length)
            assert np.allclose(tail.curves[at * 48 + place], held, rtol=1e-4, atol=1e-9)


def test_weights_are_likelihoods_of_the_counts():
    counts, widths = np.array([30.0, -10.0, 12.0]), np.array([2.0, 2.0, 2.0])
    tail = falling_tail(counts, widths, 100.0, density=25.0)
    likely = np.exp(-((tail.curves - counts) ** 2).sum(axis=1) / 200.0)
    assert np.allclose(tail.likely, likely / likely.sum())
    assert np.allclose(tail.counts, sum(p * curve for p, curve in zip(tail.likely, tail.curves, strict=True)))
    outer = np.array([False, True, True])
    sums = tail.curves[:, 1:].sum(axis=1)
    assert np.isclose(
        tail.variance(outer), np.average((sums - np.average(sums, weights=tail.likely)) ** 2, weights=tail.likely)
    )


def test_counts_that_rise_are_no_falling_tail():
    assert falling_tail(np.array([0.0, 50.0, 400.0]), np.ones(3), 25.0, density=20.0) is None


def test_people_at_the_end_that_noise_hides_cell_by_cell_are_no_falling_tail():
    """Forty cells of 25 people each, below noise of 40: every cell is within two deviations, and their sum is not."""
    random = np.random.default_rng(2)
    counts = np.concatenate([random.normal(0, 40, 40), 25 + random.normal(0, 40, 40)])
    assert abs(counts / 40).max() < 3.5
    assert falling_tail(counts, np.ones(80), 1600.0, density=200.0) is None


def test_noise_alone_is_rarely_taken_for_people():
    random = np.random.default_rng(3)
    tails = [falling_tail(random.normal(0, 40, 80), np.ones(80), 1600.0, density=80.0) for _ in range(300)]
    assert sum(tail is None for tail in tails) <= 15  # one in a hundred is expected


def test_a_count_that_stands_out_is_followed():
    steep = falling_tail(np.array([200.0, 20.0, 2.0, 0.0]), np.ones(4), 4.0, density=600.0)
    assert abs(steep.counts - [200, 20, 2, 0]).max() < 15


def test_both_ends_are_treated_alike():
    random = np.random.default_rng(5)
    counts = np.concatenate([random.normal(0, 10, 30), [500.0, 900.0, 800.0], random.normal(0, 10, 12)])
    widths = np.linspace(1, 2, len(counts))
    one, of_one = with_falling_tails(merge_neighbours(counts, 100.0, 45), counts, 100.0, widths)
    mirrored = merge_neighbours(counts[::-1].copy(), 100.0, 45)
    groups = one.groups.max() - one.groups[::-1]
    assert (mirrored.groups == groups).all()
    other, of_other = with_falling_tails(mirrored, counts[::-1].copy(), 100.0, widths[::-1].copy())
    assert len(of_one) >= 2
    assert np.allclose(one.weights, other.weights[::-1])
    for group, estimate in of_one.items():
        assert np.allclose(estimate, of_other[int(one.groups.max()) - group])


def test_what_stands_out_of_the_noise_keeps_its_groups():
    """If the last cell is above the noise, neither it nor the cells before it are a tail; later codes are unchanged."""
    counts = np.array([900.0, 3.0, -4.0, 2.0, 700.0, 55.0])
    found = merge_neighbours(counts, 25.0, 5)
    shared, estimates = with_falling_tails(found, counts, 25.0, np.ones(5))
    assert not estimates
    assert (shared.weights == found.weights).all()


def test_a_stray_cell_beyond_a_rare_group_is_noise():
    """Among many empty cells one exceeds three deviations: here 40 cells, four of ten, after thirty empty cells."""
    counts = np.concatenate([[2000.0, 1000.0], np.tile([4.0, -4.0], 15), [40.0]])
    found = merge_neighbours(counts, 100.0, len(counts))
    assert found.groups[-1] != found.groups[-2]
    shared, estimates = with_falling_tails(found, counts, 100.0, np.ones(len(counts)))
    assert estimates[int(found.groups[-1])][0] < 1
    assert shared.weights[-1] < 1


@pytest.mark.parametrize("people", [1.0, 0.1])
def test_the_mean_of_a_long_empty_tail_holds(people):
    """The seeds are fixed: 40 noisy tables each, noise of standard deviation 40 a cell.

    Evenly shared out, the mean of .198 becomes .295, and 1.08 with a tenth of the people; as tails .189 and .181.
    """
    counts = np.round(VISITS * people)
    visits = np.arange(101)
    truth = counts @ visits / counts.sum()
    random = np.random.default_rng(8)
    even, fallen = [], []
    for _ in range(40):
        noisy = counts + random.normal(0, 40, 101)
        found = merge_neighbours(noisy, 1600.0, 101)
        shared, estimates = with_falling_tails(found, noisy, 1600.0, np.ones(101))
        held = np.bincount(found.groups, weights=noisy)
        sums = held.copy()
        for group, (expected, _variance) in estimates.items():
            sums[group] = expected
        for means, groups, by in ((even, np.maximum(held, 0), found), (fallen, np.maximum(sums, 0), shared)):
            cells = groups[by.groups] * by.shares()
            means.append(cells @ visits / cells.sum())
    assert np.mean(even) > truth * (1.4 if people == 1 else 4)
    assert abs(np.mean(fallen) / truth - 1) < (0.08 if people == 1 else 0.15)
    assert np.abs(np.array(fallen) / truth - 1).mean() < np.abs(np.array(even) / truth - 1).mean() / 3
