from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import counted, drawn

from sfumato.anonymize.clustering import k_member_clustering, mondrian_cuts
from sfumato.anonymize.clustering.k_member_clustering import (
    ClusterGrowth,
    Clusters,
    improve,
    initial_clusters,
    k_member_partition,
)
from sfumato.anonymize.clustering.mondrian_cuts import Cutter, Region, Rule
from sfumato.anonymize.clustering.regrowth import JoinCosts
from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Partition, Space
from sfumato.anonymize.local_recoding import mdav_partition, means, positions, standardised
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.release.decision import interval_loss_metric
from sfumato.domain.hierarchy.builders import flat, intervals, order
from sfumato.domain.hierarchy.levels import Hierarchy
from sfumato.errors import InputError, SizeError

SIZES = (6, 4)
CUTTERS = [
    mondrian_cuts.in_order,
    mondrian_cuts.strict,
    mondrian_cuts.balanced,
    mondrian_cuts.relaxed,
    mondrian_cuts.greedy,
]


def labels(size: int) -> list[str]:
    return [str(code) for code in range(size)]


def small(data: Microdata, *, cells: bool) -> Space:
    scales = [
        HierarchyCells(order("q", labels(size), fanout=2))
        if cells
        else Intervals(tuple(labels(size)), np.arange(size, dtype=float), size - 1.0)
        for size in SIZES
    ]
    return Space.embed(data, scales, weights=[1.0, 1.0])


def check(partition: Partition, space: Space, k: int) -> None:
    """Check that every row is in one class of at least k rows."""
    rows = np.bincount(partition.tuples, weights=partition.rows, minlength=len(space.counts))
    np.testing.assert_array_equal(rows, space.counts)
    assert partition.counts().min() >= k
    assert (partition.rows > 0).all()
    low, high = partition.boxes(space)
    points = space.points[partition.tuples]
    assert (points >= low[partition.classes]).all()
    assert (points <= high[partition.classes]).all()


def brute_loss(data: Microdata, partition: Partition, *, cells: bool) -> float:
    """Loss of a partition by its definition, class by class."""
    total = 0.0
    for number in range(partition.size):
        here = partition.classes == number
        for attribute, size in enumerate(SIZES):
            codes = sorted(set(data.codes[partition.tuples[here], attribute]))
            if cells:
                hierarchy = order("q", labels(size), fanout=2)
                level = next(level for level in hierarchy.levels if len(set(level.cells[codes])) == 1)
                loss = level.losses[level.cells[codes[0]]]
            else:
                loss = (codes[-1] - codes[0]) / (size - 1)
            total += float(loss) * int(partition.rows[here].sum())
    return total


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 9), cells=st.booleans(), cutter=st.sampled_from(CUTTERS))
def test_mondrian_divides_all_rows_into_safe_classes(*, seed: int, k: int, cells: bool, cutter: Cutter) -> None:
    data = drawn(np.random.default_rng(seed), tuples=18, sizes=SIZES)
    space = small(data, cells=cells)
    partition = mondrian_cuts.partition(space, cutter=cutter, rule=Rule(k))
    check(partition, space, min(k, data.rows))
    assert math.isclose(partition.loss(space), brute_loss(data, partition, cells=cells), abs_tol=1e-9)
    if cutter is not mondrian_cuts.relaxed:
        low, high = partition.boxes(space)
        for (a, b), (c, d) in itertools.combinations(zip(low, high, strict=True), 2):
            assert ((b < c) | (d < a)).any(), "strict regions overlap"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 9), cells=st.booleans())
def test_k_member_divides_all_rows_and_local_search_never_loses(*, seed: int, k: int, cells: bool) -> None:
    data = drawn(np.random.default_rng(seed), tuples=18, sizes=SIZES)
    space = small(data, cells=cells)
    clusters = Clusters(space, k)
    growth = ClusterGrowth(clusters, np.random.default_rng(seed))
    assert growth.place(np.flatnonzero(clusters.need).tolist(), noise=0.0)
    clusters.commit()
    losses = [clusters.loss]
    for _ in range(5):
        improve(growth, trials=10)
        losses.append(clusters.loss)
        partition = Partition.from_groups(clusters.groups())
        check(partition, space, k)
        assert math.isclose(partition.loss(space), clusters.loss, abs_tol=1e-9)
        assert math.isclose(partition.loss(space), brute_loss(data, partition, cells=cells), abs_tol=1e-9)
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(losses))


def partitions(rows: list[int], k: int) -> list[list[list[int]]]:
    """Return every division of rows into classes of at least k."""
    if not rows:
        return [[]]
    first, rest = rows[0], rows[1:]
    found = []
    for size in range(k - 1, len(rest) + 1):
        for others in itertools.combinations(range(len(rest)), size):
            left = [row for place, row in enumerate(rest) if place not in others]
            found += [[[first, *(rest[place] for place in others)], *more] for more in partitions(left, k)]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_local_search_finds_the_least_loss_of_all_divisions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = np.unique(np.stack([rng.integers(size, size=7) for size in SIZES], axis=1), axis=0)
    data = Microdata(quasi=("a", "b"), codes=codes, counts=np.ones(len(codes), dtype=np.int64))
    data = Microdata(quasi=data.quasi, codes=codes, counts=data.counts + (rng.random(len(codes)) < 0.3))
    space = small(data, cells=False)
    rows = np.repeat(np.arange(len(codes)), data.counts).tolist()

    def loss(division: list[list[int]]) -> float:
        boxes = ((len(part), space.points[part]) for part in division)
        return sum(size * float(space.cost(points.min(axis=0), points.max(axis=0))) for size, points in boxes)

    least = min(map(loss, partitions(rows, 3)))
    found = k_member_partition(space, k=3, effort=200, rng=np.random.default_rng(seed))
    assert math.isclose(found.loss(space), least, abs_tol=1e-9)


def test_k_member_stopped_by_the_clock_still_divides_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k_member_clustering, "BLOCK", 30)
    codes = np.unique(np.random.default_rng(11).integers(40, size=(70, 2)), axis=0)
    data = Microdata(quasi=("a", "b"), codes=codes, counts=np.ones(len(codes), dtype=np.int64))
    scale = Intervals(tuple(labels(40)), np.arange(40.0), 39.0)
    space = Space.embed(data, [scale, scale], weights=[1.0, 1.0])
    clock = itertools.count()
    monkeypatch.setattr(k_member_clustering, "monotonic", lambda: float(next(clock)))

    def loss(seconds: float) -> float:
        found = k_member_partition(space, k=5, effort=4, rng=np.random.default_rng(2), seconds=seconds)
        check(found, space, 5)
        assert found.stopped == (seconds < 1e6)
        return found.loss(space)

    grown = k_member_partition(space, k=5, effort=0, rng=np.random.default_rng(2)).loss(space)
    assert loss(0.0) == pytest.approx(grown)  # no trial at all
    stopped = loss(60.0)
    assert stopped < grown
    assert next(clock) < 200  # trials ask for the time, and end when it is up
    assert loss(1e9) <= stopped + 1e-9  # nothing stops it
    assert loss(math.inf) < grown


@pytest.mark.parametrize(("block", "blocks"), [(1000, 4), (1 << 15, 1)])
def test_large_tables_are_cut_into_blocks_first(monkeypatch: pytest.MonkeyPatch, block: int, blocks: int) -> None:
    monkeypatch.setattr(k_member_clustering, "BLOCK", block)
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(60, size=(4000, 2)), axis=0)
    data = Microdata(quasi=("a", "b"), codes=codes, counts=rng.integers(1, 4, size=len(codes)))
    scale = Intervals(tuple(labels(60)), np.arange(60.0), 59.0)
    space = Space.embed(data, [scale, scale], weights=[1.0, 1.0])
    assert len(codes) > k_member_clustering.SMALL
    said: list[str] = []
    check(k_member_partition(space, k=6, effort=0, rng=rng, watch=said.append), space, 6)
    assert len(said) == blocks


def test_k_of_the_whole_table_makes_one_class() -> None:
    data = drawn(np.random.default_rng(1), tuples=12, sizes=SIZES)
    space = small(data, cells=False)
    found = k_member_partition(space, k=data.rows, effort=2, rng=np.random.default_rng(0))
    check(found, space, data.rows)
    assert found.size == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 9))
def test_microaggregation_makes_groups_of_k_to_2k_less_1(seed: int, k: int) -> None:
    data = drawn(np.random.default_rng(seed), tuples=18, sizes=SIZES)
    space = small(data, cells=False)
    values = standardised(positions(space), space.counts)
    groups = mdav_partition(values, space.counts, k=k)
    check(groups, space, k)
    assert groups.counts().max() < 2 * k
    for number in range(groups.size):
        here = groups.classes == number
        rows = np.repeat(values[groups.tuples[here]], groups.rows[here], axis=0)
        np.testing.assert_allclose(means(values, groups)[number], rows.mean(axis=0))


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("cutter", CUTTERS)
def test_scales_too_large_for_a_pair_table_have_the_same_classes(cutter, cells, monkeypatch) -> None:
    data = drawn(np.random.default_rng(5), tuples=18, sizes=SIZES)
    expected = mondrian_cuts.partition(small(data, cells=cells), cutter=cutter, rule=Rule(least=3))
    monkeypatch.setattr("sfumato.anonymize.clustering.space.LARGEST_TABLE", 5)  # a table of the second scale alone
    computed = mondrian_cuts.partition(small(data, cells=cells), cutter=cutter, rule=Rule(least=3))
    for one, other in zip(vars(expected).values(), vars(computed).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_values_are_recoded_and_many_leaves_are_refused_by_k_member() -> None:
    size = 3000
    codes = np.random.default_rng(3).permutation(size)[:, None]
    data = Microdata(quasi=("a",), codes=codes, counts=np.ones(size, dtype=np.int64))
    scale = Intervals(tuple(labels(size + 1)), np.arange(float(size)), size - 1.0)  # the last code is a missing value
    space = Space.embed(data, [scale], weights=[1.0])
    for groups in (
        mondrian_cuts.greedy_partition(space, least=5),
        k_member_partition(space, k=5, effort=1, rng=np.random.default_rng(1)),
    ):
        check(groups, space, 5)
        assert groups.loss(space) < 2 * size * 5 / size
    nested = Space.embed(data, [HierarchyCells(flat("a", labels(size)))], weights=[1.0])
    with pytest.raises(SizeError, match="at most 2,048 values of a hierarchy, not 3,000"):
        JoinCosts(nested)
    with pytest.raises(InputError, match="one scale and one weight"):
        Space.embed(data, [], weights=[])


def test_the_cell_of_a_class_is_the_lowest_common_one() -> None:
    cells = HierarchyCells(Hierarchy.from_rows("p", [["a", "x", "*"], ["b", "y", "*"], ["c", "x", "*"]]))
    assert cells.ranks.tolist() == [0, 2, 1]
    assert (cells.label(0, 2), cells.label(0, 1), cells.label(1, 1)) == ("x", "*", "b")
    assert (cells.cover(0, 2), cells.cover(0, 1)) == ((0, 1), (0, 2))
    by_rank = np.array([0, 2, 1])
    assert cells.losses(by_rank[:, None], by_rank).tolist() == [[0, 0.5, 1], [0.5, 0, 1], [1, 1, 0]]
    assert cells.cuts(by_rank).tolist() == [False, True]


def two(adult: list[dict[str, str]]) -> Space:
    known = {"age": tuple(str(age) for age in range(17, 91)), "education_num": tuple(map(str, range(1, 17)))}
    scales = [Intervals(each, np.arange(float(len(each))), len(each) - 1.0) for each in known.values()]
    return Space.embed(counted(adult, known), scales, weights=[1.0, 1.0])


@pytest.mark.parametrize(
    ("k", "groups", "loss"),
    [
        (10, 254, 0.2807992699392837),
        (20, 211, 0.2888448951007028),
        (30, 183, 0.3042713941368059),
        (40, 168, 0.3140892755982232),
        (50, 156, 0.329045286351722),
    ],
)
def test_the_published_mondrian_table_to_the_last_digit(
    adult: list[dict[str, str]], k: int, groups: int, loss: float
) -> None:
    space = two(adult)
    partition = mondrian_cuts.partition(space, cutter=mondrian_cuts.in_order, rule=Rule(k))
    assert partition.size == groups
    low, high = partition.boxes(space)
    values = [codes for codes in space.codes]  # noqa: C416  (ages and years of education, less the least)
    widths = np.stack([code[high[:, a]] - code[low[:, a]] for a, code in enumerate(values)], axis=1)
    assert sum(interval_loss_metric(partition.counts(), widths, (73, 15))) == loss


REFERENCES = {  # Loss Metric on UCI Adult, age and education_num, by k
    mondrian_cuts.strict: (0.07785, 0.08161, 0.08639, 0.08881, 0.09341),
    mondrian_cuts.relaxed: (0.01121, 0.02081, 0.03730, 0.03730, 0.03730),
    mondrian_cuts.greedy: (0.00370, 0.00845, 0.01364, 0.01775, 0.02361),
}


@pytest.mark.parametrize("cutter", REFERENCES, ids=lambda cutter: cutter.__name__)
def test_mondrian_reaches_the_reference_losses(adult: list[dict[str, str]], cutter: Cutter) -> None:
    space = two(adult)
    for k, reference in zip((10, 20, 30, 40, 50), REFERENCES[cutter], strict=True):
        partition = mondrian_cuts.partition(space, cutter=cutter, rule=Rule(k))
        assert partition.loss(space) / len(adult) <= reference + 5e-6


def k_member_loss(space: Space, k: int, effort: int) -> float:
    found = k_member_partition(space, k=k, effort=effort, rng=np.random.default_rng(k))
    check(found, space, k)
    return found.loss(space) / int(space.counts.sum())


def test_k_member_beats_every_mondrian_at_once(adult: list[dict[str, str]]) -> None:
    assert k_member_loss(two(adult), 10, 1) < 0.0031


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "reference"), [(10, 0.00254), (20, 0.00645), (30, 0.01083), (40, 0.01500), (50, 0.01897)]
)
def test_the_default_effort_reaches_the_best_line_of_two(adult: list[dict[str, str]], k: int, reference: float) -> None:
    from sfumato.anonymize.local_recoding import EFFORT

    assert k_member_loss(two(adult), k, EFFORT) <= reference + 5e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "cells", "free"),
    [(10, 0.02372, 0.01193), (20, 0.04861, 0.02699), (30, 0.06709, 0.04306),
     (40, 0.08459, 0.05851), (50, 0.10048, 0.07376)],
)  # fmt: skip
def test_the_default_effort_reaches_the_best_line_of_four(
    adult: list[dict[str, str]], four: tuple[Hierarchy, ...], k: int, cells: float, free: float
) -> None:
    from sfumato.anonymize.local_recoding import EFFORT

    known = {hierarchy.attribute: hierarchy.leaves for hierarchy in four}
    data = counted(adult, known)
    nested = Space.embed(data, [HierarchyCells(hierarchy) for hierarchy in four], weights=[1.0] * 4)
    ordered = [Intervals(each, np.arange(float(len(each))), len(each) - 1.0) for each in known.values()]
    assert k_member_loss(nested, k, EFFORT) <= cells + 5e-6
    assert k_member_loss(Space.embed(data, ordered, weights=[1.0] * 4), k, EFFORT) <= free + 5e-6


@pytest.mark.parametrize("k", [2, 5])
def test_precision_first_makes_classes_of_cells_and_loses_no_row(k: int) -> None:
    rng = np.random.default_rng(k)
    data = drawn(rng, tuples=40, sizes=(8, 2))
    hierarchies = (intervals("q0", 0, 7, widths=(2, 4)), flat("q1", ["a", "b"]))
    clusters = Clusters(Space.embed(data, [HierarchyCells(each) for each in hierarchies], weights=[1.0, 1.0]), k)
    initial_clusters(clusters)
    assert all(cluster.size >= k for cluster in clusters.mixed.values())
    placed = clusters.home + clusters.need
    for cluster in clusters.mixed.values():
        for tuple_, rows in cluster.parts.items():
            placed[tuple_] += rows
    assert placed.tolist() == data.counts.tolist()
    assert int(clusters.need.sum()) < k, "the coarsest cell takes the rest, if it has k rows"


def test_precision_first_leaves_free_intervals_alone() -> None:
    data = drawn(np.random.default_rng(1), tuples=20, sizes=(5,))
    scale = Intervals(tuple("abcde"), np.arange(5.0), 4.0)
    clusters = Clusters(Space.embed(data, [scale], weights=[1.0]), 3)
    initial_clusters(clusters)
    assert not clusters.mixed


def test_a_region_divides_into_its_tuples() -> None:
    left, right = Region(np.array([3, 5]), np.array([1, 2])).divide(np.array([True, False]))
    assert (left.tuples.tolist(), left.size, right.tuples.tolist(), right.size) == ([3], 1, [5], 2)
