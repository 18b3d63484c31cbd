"""Noisy counts are shrunk toward the distribution of counts in their table."""

import numpy as np
import pytest

from sfumato.model.count_priors import expected_from_neighbors, posterior_means, shrunken_column, shrunken_counts


def sparse(random):
    """A table of twelve hundred cells, most of them empty, and what independence would expect of each."""
    counts = np.zeros((40, 30))
    counts[np.arange(40), np.arange(40) % 30] = random.integers(20, 400, 40)
    return counts, np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()


@pytest.mark.parametrize("deviation", [5.0, 20.0, 40.0])
def test_a_sparse_table_is_recovered_better_than_by_cutting_below_zero(deviation):
    """False alarms: below 1e-9.  Over 1 160 empty cells clipped noise errs by .4 deviations on average, the means by
    a tenth of that; both are means over a thousand cells.
    """
    random = np.random.default_rng(5)
    counts, expected = sparse(random)
    noisy = counts + random.normal(scale=deviation, size=counts.shape)
    found = posterior_means(noisy, expected, deviation)[0]
    assert np.abs(found - counts).sum() < 0.5 * np.abs(np.maximum(noisy, 0) - counts).sum()


def test_a_table_that_is_as_expected_is_drawn_to_what_was_expected():
    """False alarms: below 1e-9.  Errors of .8 deviations per cell fall to less than half: means over 900 cells."""
    random = np.random.default_rng(6)
    expected = np.outer(np.geomspace(1, 30, 30), np.geomspace(1, 10, 30))
    counts = random.poisson(expected).astype(float)
    noisy = counts + random.normal(scale=40.0, size=counts.shape)
    assert np.abs(posterior_means(noisy, expected, 40.0)[0] - counts).mean() < 0.4 * 40 * 0.8


def test_the_posterior_mean_is_that_of_the_weights_found():
    """Cells of zero and of five deviations, half each: the mean of a cell is known in closed form."""
    random = np.random.default_rng(7)
    counts = np.repeat([0.0, 5.0], 20_000)
    noisy = counts + random.normal(size=counts.size)
    found = posterior_means(noisy, np.full(counts.size, 2.0**-10), 1.0)[0]
    exact = 5 / (1 + np.exp(5 * (2.5 - noisy)))
    assert np.abs(found - exact).mean() < 0.15


def test_many_people_are_left_as_counted_and_none_are_negative():
    noisy = np.array([[900.0, 81.0], [-3.0, 4.0]])
    found = posterior_means(noisy, np.full((2, 2), 100.0), 10.0)[0]
    assert found[0].tolist() == [900.0, 81.0]
    assert (found >= 0).all()
    everywhere = np.full((3, 3), 500.0)
    assert posterior_means(everywhere, everywhere, 2.0)[0] is everywhere


def test_cells_beyond_a_block_are_treated_like_those_within():
    random = np.random.default_rng(8)
    noisy = np.tile(random.normal(size=100), 400)  # 40 000 cells, a hundred different
    found = posterior_means(noisy, np.ones(noisy.size), 1.0)[0]
    assert np.allclose(found.reshape(400, 100), found[:100])


def test_neighbours_along_an_order_tell_what_to_expect_and_others_do_not():
    expected = np.full((4, 3), 10.0)
    counts = np.zeros((4, 3))
    counts[1, 0] = 90.0
    beside = expected_from_neighbors(counts, expected, 10.0, [3, 0])
    twice, once = 10 * 100 / 25, 10 * 10 / 30  # one of two neighbors (1 and 1/2) is full; both are empty
    assert beside[0, 0] == pytest.approx(twice)
    assert beside[2, 0] == pytest.approx(twice)
    assert beside[1, 0] == pytest.approx(once)  # its own count is no witness
    assert (beside[3] == 10.0).all()  # after the last place with an order
    assert beside[0, 1] == pytest.approx(10 * 10 / 25)  # the second axis has no order
    assert (expected_from_neighbors(counts, expected, 10.0, [0, 0]) == expected).all()
    assert (expected_from_neighbors(-counts, expected, 10.0, [4, 3]) > 0).all()
    assert expected_from_neighbors(counts, expected * 0, 10.0, [4, 3]).max() == 0  # what cannot be is not expected


def test_cells_that_go_along_with_their_neighbours_are_recovered_better():
    """A ridge across a table that independence does not know: errors fall to .7, means over two thousand cells.

    If neighbors are unrelated, they are ignored.  False alarms: below 1e-9.
    """
    random = np.random.default_rng(9)
    places = np.arange(45)
    counts = 60.0 * np.exp(-(((places[:, None] - places) / 6.0) ** 2))
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    noisy = counts + random.normal(scale=20.0, size=counts.shape)
    before, off = (np.abs(shrunken_counts(noisy, expected, 20.0, each) - counts).sum() for each in ([0, 0], [45, 45]))
    assert off < 0.85 * before
    strange = random.permutation(45)
    noisy, expected = noisy[strange][:, strange[::-1]], expected[strange][:, strange[::-1]]
    assert (shrunken_counts(noisy, expected, 20.0, [45, 45]) == shrunken_counts(noisy, expected, 20.0)).all()


def test_drawn_counts_err_less_over_neighbours_that_hold_more_than_most():
    """False alarms: below 1e-4.

    Among 1 200 mostly empty cells, twenty-five neighbors have 1.5 deviations each.  Posterior means take most of that
    for noise: over forty draws their sums are 33 deviations too small, and sums of drawn counts 23.  Cell by cell, the
    squared error of drawn counts is an eighth of the noise: a mean over 48 000 cells.
    """
    random = np.random.default_rng(9)
    counts = np.zeros((40, 30))
    counts[:25, 4] = 1.5
    expected = np.full(counts.shape, counts.mean())
    sums, means, cells, noise = [], [], [], []
    for _ in range(40):
        noisy = counts + random.normal(size=counts.shape)
        drawn, mean = shrunken_counts(noisy, expected, 1.0), posterior_means(noisy, expected, 1.0)[0]
        sums.append(abs((drawn - counts)[:25, 4].sum()))
        means.append(abs((mean - counts)[:25, 4].sum()))
        cells.append(np.square(drawn - counts).mean())
        noise.append(np.square(noisy - counts).mean())
    assert np.mean(sums) < 0.8 * np.mean(means)
    assert np.mean(cells) < 0.25 * np.mean(noise)


def test_a_column_of_categories_that_are_alike_shrinks_towards_its_mean() -> None:
    random = np.random.default_rng(3)
    before, after = [], []
    for _ in range(200):
        true = np.append(random.normal(600, 20, size=11), 3000.0)  # one category is unlike the others
        noisy = true + random.normal(0, 50, size=12)
        shrunken = shrunken_column(noisy, 2500.0)
        assert shrunken.sum() == pytest.approx(noisy.sum())
        before.append(np.abs(noisy - true).mean())
        after.append(np.abs(shrunken - true).mean())
    assert np.mean(after) < 0.6 * np.mean(before)


def test_a_column_whose_categories_differ_by_more_than_noise_is_hardly_changed() -> None:
    random = np.random.default_rng(4)
    before, after = [], []
    for _ in range(200):
        true = 4000 * random.dirichlet(np.ones(9))
        noisy = true + random.normal(0, 30, size=9)
        before.append(np.abs(noisy - true).mean())
        after.append(np.abs(shrunken_column(noisy, 900.0) - true).mean())
    assert np.mean(after) < 1.02 * np.mean(before)


@pytest.mark.parametrize("many", range(5))
def test_few_categories_keep_their_counts(many) -> None:
    counts = np.arange(float(many))
    assert shrunken_column(counts, 100.0).tolist() == counts.tolist()
