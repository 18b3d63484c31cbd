"""Groups of codes: what is merged, and how rows find their way back."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from sfumato.model import coarsening
from sfumato.model.coarsening import (
    Coarsening,
    Runs,
    identity,
    join_levels,
    merge_neighbours,
    merge_rare,
    runs_of_at_most,
)
from sfumato.model.row_sampling import generator


def test_identity_changes_nothing():
    same = identity(4)
    assert same.trivial
    assert same.labels is None
    assert same.expand(np.array([3, 1]), generator(1)).tolist() == [3, 1]


def test_rare_codes_share_the_last_group():
    groups = merge_rare(np.array([2.0, 90.0, -5.0, 80.0, 1.0]), 10.0)
    assert groups.labels == (2, 0, 2, 1, 2)
    assert groups.merge(np.array([2.0, 90.0, -5.0, 80.0, 1.0])).tolist() == [90.0, 80.0, -2.0]


@pytest.mark.parametrize("counts", [[5.0, 90.0, 70.0], [1.0, 2.0, 3.0]])
def test_one_rare_code_or_nothing_but_rare_codes_are_left_alone(counts):
    assert merge_rare(np.array(counts), 10.0).trivial


def partition_cost(counts, cuts, charge, *, deviation, whole=()):
    """Return the cost of a partition; infinite for a piece with too few cuts, unless it may not be cut."""
    pieces = np.split(counts, cuts)
    starts = [0, *cuts]
    if any(len(p) > 1 and s not in whole and p.sum() > 10 * deviation for p, s in zip(pieces, starts, strict=True)):
        return np.inf
    return sum(((piece - piece.mean()) ** 2).sum() + charge for piece in pieces)


def test_runs_of_neighbours_are_the_cheapest_of_all_partitions():
    random = np.random.default_rng(2)
    for _ in range(20):
        counts = np.concatenate([random.normal(level, 3, 3) for level in random.choice([0, 5, 10, 30], 3)])
        variance = 9.0
        charge = variance * (2 * np.log(len(counts)) + 1)
        found = merge_neighbours(counts, variance, len(counts))
        cuts = np.flatnonzero(np.diff(found.groups)) + 1
        every = ([i + 1 for i in range(8) if mask >> i & 1] for mask in range(1 << 8))
        assert partition_cost(counts, cuts, charge, deviation=3.0) == pytest.approx(
            min(partition_cost(counts, cuts, charge, deviation=3.0) for cuts in every)
        )


def test_a_group_of_many_people_is_cut_although_its_codes_count_alike():
    """Groups of neighbors have at most ten deviations; the counts are fixed, so the result is certain."""
    assert merge_neighbours(np.full(19, 400.0), 900.0, 19).trivial  # two would hold 800, more than ten times 30
    threes = np.bincount(merge_neighbours(np.full(20, 100.0), 900.0, 20).groups)
    assert threes.max() == 3  # 300 are just ten deviations
    assert len(threes) == 7


def test_with_more_codes_than_cuts_the_best_of_the_cuts_that_are_left_are_found(monkeypatch):
    monkeypatch.setattr(coarsening, "MOST_CUTS", 5)  # 9 codes by twos: cuts before codes 2, 4, 6 and 8

    def twos(counts, cuts, charge):
        ends = [*cuts, 9]
        single = {start for start, end in zip([0, *cuts], ends, strict=True) if end - start <= 2}
        return partition_cost(counts, cuts, charge, deviation=3.0, whole=single)

    random = np.random.default_rng(4)
    for _ in range(20):
        counts = np.concatenate([random.normal(level, 3, 3) for level in random.choice([0, 5, 10], 3)])
        charge = 9.0 * (2 * np.log(5) + 1)
        found = merge_neighbours(counts, 9.0, len(counts))
        cuts = np.flatnonzero(np.diff(found.groups)) + 1
        assert set(cuts) <= {2, 4, 6, 8}
        every = ([2 * i + 2 for i in range(4) if mask >> i & 1] for mask in range(1 << 4))
        assert twos(counts, cuts, charge) == pytest.approx(min(twos(counts, cuts, charge) for cuts in every))


def test_fifty_thousand_codes_take_memory_in_proportion_to_them():
    random = np.random.default_rng(6)
    counts = np.where(np.arange(50_000) % 5 == 0, 1000.0, 0.0) + random.normal(0, 10, 50_000)
    tracemalloc.start()
    rare = merge_rare(counts, 100.0)
    assert rare.size > 10_000
    codes = rare.expand(random.integers(0, rare.size, 20_000), generator(1))
    steps = merge_neighbours(np.repeat([0.0, 500.0], 25_000) + random.normal(0, 5, 50_000), 25.0, 50_000)
    thin = merge_neighbours(np.repeat([0.0, 0.01], 25_000), 25.0, 50_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * 2**20  # a table of groups by codes has 4 GB
    assert len(codes) == 20_000
    held = np.bincount(steps.groups)
    assert held[steps.groups[25_013:]].max() <= 13  # where many are, nothing is merged beyond the first thirteens
    assert thin.size <= 6  # 250 rows in groups of at most 50, and the empty half


def test_levels_far_above_the_noise_are_kept_apart_and_noise_is_not():
    random = np.random.default_rng(3)
    flat = merge_neighbours(random.normal(0.5, 5, 60), 25.0, 60)
    steps = merge_neighbours(np.repeat([0.0, 500.0, 0.0], 20) + random.normal(0, 1, 60), 25.0, 60)
    assert flat.size <= 3
    assert steps.groups.tolist() == [*[0] * 20, *range(1, 21), *[21] * 20]


def test_rows_of_a_group_follow_its_slope():
    random = np.random.default_rng(8)
    truth = np.linspace(4, 0, 12)
    target = truth / truth.sum()
    found = [merge_neighbours(truth + random.normal(0, 2.5, 12), 6.25, 12) for _ in range(300)]
    whole = [groups.weights / groups.weights.sum() for groups in found if groups.size == 1]
    assert len(whole) > 10
    even = np.abs(1 / 12 - target).sum()
    assert np.mean([np.abs(shares - target).sum() for shares in whole]) < 0.9 * even


def test_shares_of_rare_codes_are_nearer_the_truth_than_even_ones_on_average():
    random = np.random.default_rng(9)
    truth = np.concatenate(([5000.0], random.gamma(0.3, 60, 40)))
    kept, even = [], []
    for _ in range(50):
        found = merge_rare(truth + random.normal(0, 25, 41), 625.0)
        rare = np.flatnonzero(found.groups == found.groups.max())
        target = truth[rare] / truth[rare].sum()
        kept.append(np.abs(found.weights[rare] / found.weights[rare].sum() - target).sum())
        even.append(np.abs(1 / len(rare) - target).sum())
    assert np.mean(kept) < 0.95 * np.mean(even)


def test_missing_and_unknown_cells_stay_apart():
    assert merge_neighbours(np.array([1.0, 1.0, 1.0, 1.0]), 4.0, 2).groups.tolist() == [0, 0, 1, 2]


def test_rows_of_a_group_are_shared_out_evenly_by_weight():
    groups = Coarsening(np.array([0, 1, 1, 0]), np.array([1.0, 3.0, 1.0, 0.0]))
    codes = groups.expand(np.repeat([0, 1], [10, 40]), generator(4))
    assert np.bincount(codes, minlength=4).tolist() == [10, 30, 10, 0]
    assert (groups.groups[codes] == np.repeat([0, 1], [10, 40])).all()


def test_a_restriction_keeps_the_groups_and_drops_the_codes():
    some = Coarsening(np.array([0, 0, 1]), np.ones(3)).restricted(np.array([False, True, True]))
    assert some.expand(np.array([0, 0, 1]), generator(5)).tolist() == [1, 1, 2]


@pytest.mark.parametrize("places", [4096, 7])
def test_codes_that_are_to_stay_apart_never_share_a_group(monkeypatch, places):
    monkeypatch.setattr(coarsening, "MOST_CUTS", places)
    random = np.random.default_rng(12)
    for _ in range(50):
        counts, apart = random.normal(2, 5, 20), np.sort(random.integers(0, 4, 20))
        runs = merge_neighbours(counts, 25.0, 18, strata=apart)
        mixed = random.permutation(apart)
        rare = merge_rare(np.append(counts, 500.0), 25.0, strata=np.append(mixed, 9))
        for groups, kinds in ((runs.groups[:18], apart[:18]), (rare.groups[:20], mixed)):
            assert all(len(set(kinds[groups == group])) == 1 for group in set(groups))
        assert runs.size < 20
        assert rare.size < 21
        assert set(rare.groups) == set(range(rare.size))


def test_rare_codes_share_a_group_within_their_cell_where_they_are_enough_together():
    """Variance 1: three standard deviations of a count are 3, of two counts together 4.2, of three 5.2."""
    counts = np.array([90.0, 2.5, 2.5, 1.0, 0.5, 2.0, 2.0, -1.0, 50.0])
    blocks = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3])
    chapters = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    groups = merge_rare(counts, 1.0, levels=[blocks, chapters]).groups.tolist()
    assert groups == [0, 2, 2, 3, 3, 3, 3, 3, 1]  # what neither block nor chapter makes enough of is one group
    alone = merge_rare(np.where(np.arange(9) == 7, 2.9, counts), 1.0, levels=[blocks, chapters]).groups.tolist()
    assert alone == [0, 2, 2, 4, 4, 3, 3, 3, 1]  # 6.9 people in the rest of the second chapter
    assert merge_rare(counts, 1.0).groups.tolist() == [0, 2, 2, 2, 2, 2, 2, 2, 1]


def test_codes_that_rules_part_share_no_group_along_a_hierarchy_either():
    counts, apart = np.array([2.5, 2.5, 2.5, 2.5]), np.array([0, 1, 0, 1])
    groups = merge_rare(counts, 1.0, levels=[np.zeros(4, dtype=np.int64)], strata=apart).groups.tolist()
    assert groups == [0, 1, 0, 1]


def test_a_table_of_which_nothing_is_left_but_one_group_keeps_its_codes():
    assert merge_rare(np.ones(4), 1.0, levels=[np.zeros(4, dtype=np.int64)]).trivial
    assert merge_rare(np.array([4.0, 1.0, 1.0]), 1.0, levels=[np.array([0, 1, 1])]).groups.tolist() == [0, 1, 1]


def joined_by_hand(counts, ordered, least):
    """Return the starts of runs after the smallest run below ``least`` people joins its smaller neighbor,
    repeatedly.
    """
    runs = [[place] for place in range(ordered)]
    while len(runs) > 1:
        held = [sum(max(counts[place], 0.0) for place in run) for run in runs]
        smallest = held.index(min(held))
        if held[smallest] >= least:
            break
        sides = [side for side in (smallest - 1, smallest + 1) if 0 <= side < len(runs)]
        into = min(sides, key=held.__getitem__)
        low, high = sorted((smallest, into))
        runs[low : high + 1] = [runs[low] + runs[high]]
    return [run[0] for run in runs] + list(range(ordered, len(counts)))


def test_runs_hold_the_people_that_they_are_asked_for():
    random = np.random.default_rng(5)
    for _ in range(30):
        counts = random.gamma(0.7, 40, 12) - 2
        levels = join_levels(counts, 10)
        for least in (1.0, 20.0, 90.0, 1e6):
            assert np.flatnonzero(levels >= least).tolist() == joined_by_hand(counts, 10, least)


def test_a_table_joins_no_more_than_its_cells_allow():
    """The runs are the finest of all numbers of people in a run; what is not ordered is never joined."""
    random = np.random.default_rng(6)
    for _ in range(5):
        one, two = random.gamma(0.7, 40, 12), random.gamma(2.0, 20, 9)
        levels = [join_levels(one, 11), join_levels(two, 9), np.full(4, np.inf)]
        every_sum = {
            counts[low:high].sum() * (1 + 1e-9)  # a run holds such a number of people, so that runs change there only
            for counts in (one[:11], two)
            for low, high in combinations(range(len(counts) + 1), 2)
        }
        for most in (10.0, 48.0, 150.0, 1e5):
            tables = [
                [joined_by_hand(one, 11, least), joined_by_hand(two, 9, least), [0, 1, 2, 3]]
                for least in [0.0, *every_sum]
            ]
            fitting = [table for table in tables if np.prod([len(starts) for starts in table]) <= most]
            finest = max(fitting or [tables[-1]], key=lambda table: np.prod([len(starts) for starts in table]))
            assert runs_of_at_most(most, levels).shape == tuple(map(len, finest))


def test_sums_over_runs_and_their_way_back_are_transposes_of_each_other():
    random = np.random.default_rng(7)
    runs = Runs(((0, 2, 5), (0, 1, 2), (0,)), (6, 3, 4))
    fine, coarse = random.random((6, 3, 4)), random.random((3, 3, 1))
    labels = np.ix_([0, 0, 1, 1, 1, 2], [0, 1, 2], [0, 0, 0, 0])
    by_hand = np.zeros((3, 3, 1))
    np.add.at(by_hand, labels, fine)
    np.testing.assert_allclose(runs.sum(fine), by_hand)
    np.testing.assert_array_equal(runs.spread(coarse), coarse[labels])
    assert runs.sum(fine.astype(np.int64)).dtype == np.int64
    assert [runs.labels(axis).tolist() for axis in range(3)] == [[0, 0, 1, 1, 1, 2], [0, 1, 2], [0, 0, 0, 0]]
    groups = Coarsening(np.array([0, 0, 1, 2, 2]), np.ones(5))
    assert groups.labels_in(np.array([0, 1, 1])) == (0, 0, 1, 1, 1)
    assert groups.labels_in(np.array([0, 1, 1])) is groups.labels_in(np.array([0, 1, 1]), always=True)
    assert groups.labels_in(np.array([0, 1, 2]), always=True) is groups.labels
    assert identity(2).labels is None
    assert identity(2).labels_in(None, always=True) == (0, 1)
    assert groups.labels_in(np.array([0, 1, 2])) == groups.labels_in(None) == (0, 0, 1, 2, 2)


def test_smoothing_takes_the_noise_of_groups_and_keeps_a_step():
    """Forty even codes, then forty with twice the people: errors of groups fall, and the step stays."""
    true = np.repeat([100.0, 200.0], 40)
    errors = {"noisy": 0.0, "smoothed": 0.0}
    for seed in range(20):
        counts = true + np.random.default_rng(seed).normal(0, 30, 80)
        cut = merge_neighbours(counts, 900.0, 80)
        smooth, held = cut.smoothed(merge_neighbours(counts, 900.0, 80, max_deviations=np.inf), counts)
        assert cut.size > 20
        assert smooth.groups is cut.groups
        errors["noisy"] += np.abs(cut.merge(counts) - cut.merge(true)).sum()
        errors["smoothed"] += np.abs(held - cut.merge(true)).sum()
        assert abs(smooth.weights[:38].mean() - 100) < 15
        assert abs(smooth.weights[42:].mean() - 200) < 15
    assert errors["smoothed"] < errors["noisy"] / 2


def test_smoothing_keeps_the_sum_of_a_wider_group():
    counts = np.array([9.0, 1.0, 2.0, 8.0, 3.0, 7.0, -4.0, -1.0, 2.0, -3.0])
    wider = Coarsening(np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2]), np.array([1.0, 1, 1, 1, 2, 3, 1, 1, 1, 1]))
    single = Coarsening(np.arange(10), np.full(10, 0.5))
    smooth, held = single.smoothed(wider, counts)
    assert held.tolist() == [5, 5, 5, 5, 3, 7, -4, -1, 2, -3]
    assert smooth.weights.tolist() == [5, 5, 5, 5, 4, 6, 0.5, 0.5, 0.5, 0.5]
