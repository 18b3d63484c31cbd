"""The search of many neighborhoods at once, on tables small enough for inspection."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import drawn
from tests.anonymize.test_local_recoding import brute_loss, check, labels, small

from sfumato.anonymize.clustering import k_member_clustering, mondrian_cuts, simultaneous_search
from sfumato.anonymize.clustering.k_member_clustering import k_member_partition
from sfumato.anonymize.clustering.regrowth import JoinCosts, Neighbourhoods, Regrowth
from sfumato.anonymize.clustering.row_swaps import NearestBoxes, RowSwaps, Swaps, least_columns
from sfumato.anonymize.clustering.simultaneous_search import Rounds, first_division, mixed_groups, search
from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Partition, Space
from sfumato.anonymize.microdata import Microdata
from sfumato.domain.hierarchy.builders import order


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 9), cells=st.booleans())
def test_all_rows_are_divided_into_classes_of_k_and_the_search_loses_no_more(*, seed: int, k: int, cells: bool) -> None:
    data = drawn(np.random.default_rng(seed), tuples=18, sizes=(6, 4))
    space = small(data, cells=cells)
    first = Partition.from_groups(first_division(space, k).groups())
    check(first, space, min(k, data.rows))
    found = Partition.from_groups(search(space, k=k, effort=1, rng=np.random.default_rng(seed))[0])
    check(found, space, min(k, data.rows))
    assert found.loss(space) <= first.loss(space) + 1e-9
    assert math.isclose(found.loss(space), brute_loss(data, found, cells=cells), abs_tol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 6), cells=st.booleans())
def test_every_round_keeps_all_rows_in_classes_of_k_and_lowers_the_loss(*, seed: int, k: int, cells: bool) -> None:
    rng = np.random.default_rng(seed)
    data = drawn(rng, tuples=24, sizes=(6, 4))
    space = small(data, cells=cells)
    division = first_division(space, k)
    costs = JoinCosts(space)
    rounds = Rounds(space, costs, k, rng)
    for _ in range(6):
        if division.mixed is None or division.mixed.size == 1:
            return
        after = rounds.regrown(division, most=3)
        check(Partition.from_groups(after.groups()), space, k)
        assert after.loss(space) <= division.loss(space) + 1e-3
        division = after
        if division.mixed is not None:
            swapped = RowSwaps(costs, mixed_groups(division), k=k, rng=rng).run(Swaps(3, 0.0))
            assert min(int(rows.sum()) for _, rows in swapped) >= k
            assert Partition.from_groups(swapped).loss(space) <= division.loss(space) + 1e-3


def lines(size: int, seed: int) -> Space:
    """Points on a line, each with one row."""
    codes = np.sort(np.random.default_rng(seed).choice(400, size=size, replace=False))[:, None]
    data = Microdata(quasi=("a",), codes=codes, counts=np.ones(size, dtype=np.int64))
    return Space.embed(data, [Intervals(tuple(labels(400)), np.arange(400.0), 399.0)], weights=[1.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_search_comes_near_the_least_loss_on_a_line(seed: int) -> None:
    # on a line the least loss is that of runs, found by going through all ends of the last one
    space, k = lines(60, seed), 4
    places = space.codes[0][space.points[:, 0]]
    least = [0.0] + [math.inf] * len(places)
    for end in range(1, len(places) + 1):
        for start in range(max(end - k + 1, 0)):
            width = (places[end - 1] - places[start]) / 399
            least[end] = min(least[end], least[start] + (end - start) * float(width))
    first = first_division(space, k).loss(space)
    found = Partition.from_groups(search(space, k=k, effort=6, rng=np.random.default_rng(seed))[0]).loss(space)
    assert least[-1] - 1e-9 <= found
    assert found - least[-1] <= 0.5 * (first - least[-1])


@pytest.mark.parametrize("cells", [False, True])
def test_costs_in_single_precision_are_those_of_the_space(*, cells: bool) -> None:
    rng = np.random.default_rng(3)
    missing = Intervals(tuple(labels(6)), np.arange(5.0), 4.0)  # the last code is no value
    nested = HierarchyCells(order("q", labels(6), fanout=2))
    scales = [nested if cells else missing, Intervals(tuple(labels(4)), np.array([0.0, 1, 5, 7]), 7.0)]
    codes = np.array(list(itertools.product(range(6), range(4))))
    data = Microdata(quasi=("a", "b"), codes=codes, counts=np.ones(24, dtype=np.int64))
    space = Space.embed(data, scales, weights=[0.5, 2.0])
    costs = JoinCosts(space)
    for _ in range(50):
        some = rng.integers(24, size=int(rng.integers(1, 5)))
        point = [value[some] for value in costs.values]
        ends = [value.min(keepdims=True) for value in point], [value.max(keepdims=True) for value in point]
        points = space.points[some]
        exact = float(space.cost(points.min(axis=0), points.max(axis=0)))
        assert float(costs.between(*ends)[0]) == pytest.approx(exact, abs=1e-6)
        absent = [np.array([low], dtype=v.dtype) for (low, _), v in zip(costs.absent(), costs.values, strict=True)]
        beyond = [np.array([high], dtype=v.dtype) for (_, high), v in zip(costs.absent(), costs.values, strict=True)]
        assert float(costs.joined(*ends, absent, beyond)[0]) == pytest.approx(exact, abs=1e-6)


def test_growth_says_what_it_placed_and_what_it_loses() -> None:
    rng = np.random.default_rng(5)
    space = small(drawn(rng, tuples=20, sizes=(6, 4)), cells=False)
    costs, k = JoinCosts(space), 3
    tuples = np.stack([rng.permutation(len(space.counts))[:8] for _ in range(40)])
    need = rng.integers(0, 3, size=tuples.shape)
    spare = np.where(need == 0, rng.integers(0, 4, size=tuples.shape), 0)
    grown = Regrowth(costs, Neighbourhoods(tuples, need, spare), k=k, rng=rng).run()
    assert np.isfinite(grown.loss).any()
    for place in range(40):
        if not np.isfinite(grown.loss[place]):
            assert need[place].sum() + spare[place].sum() < 2 * k
            continue
        rows = grown.rows[:, place]
        placed = rows.sum(axis=0)
        assert (placed[need[place] > 0] == need[place][need[place] > 0]).all()
        assert (placed <= need[place] + spare[place]).all()
        loss = 0.0
        for class_ in rows[rows.any(axis=1)]:
            assert class_.sum() >= k
            points = space.points[tuples[place][class_ > 0]]
            loss += int(class_.sum()) * float(space.cost(points.min(axis=0), points.max(axis=0)))
        assert grown.loss[place] == pytest.approx(loss, abs=1e-5)


def test_growth_that_may_lose_so_much_fails_beyond_it() -> None:
    space, k = lines(90, 7), 4
    costs, rng = JoinCosts(space), np.random.default_rng(6)
    start = rng.integers(80, size=200)
    around = Neighbourhoods(start[:, None] + np.arange(10), np.ones((200, 10), int), np.zeros((200, 10), int))
    free = Regrowth(costs, around, k=k, rng=np.random.default_rng(1)).run().loss
    assert np.isfinite(free).all()
    most = rng.permutation(free)  # some may lose more than others ever did, some less than any growth loses
    least = np.array([free[start == each].min() for each in start])
    most[:50], most[50:100] = 0.5 * least[:50], math.inf
    found = Regrowth(costs, around, k=k, rng=np.random.default_rng(2), most=most).run().loss
    assert (found[np.isfinite(found)] <= most[np.isfinite(found)]).all()
    assert np.isfinite(found[50:100]).all()
    assert 10 < np.isfinite(found[100:]).sum() < 90


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 150), values=st.integers(1, 400))
def test_the_least_columns_are_those_of_a_full_sort(*, seed: int, columns: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(values, size=(5, columns)).astype(np.float32)
    number = int(rng.integers(1, columns + 1))
    found = least_columns(table, number)
    assert (np.take_along_axis(table, found, axis=1) == np.sort(table, axis=1)[:, :number]).all()
    assert all(len(set(line)) == number for line in found.tolist())


def test_boxes_that_take_a_row_for_the_same_come_in_random_order_and_never_its_own() -> None:
    costs = JoinCosts(lines(60, 4))
    ends = [np.zeros(40, np.float32)], [np.full(40, 400, np.float32)]  # every box holds every row
    own, rows = np.arange(40), np.arange(40)
    drawn = NearestBoxes(costs, ends, np.random.default_rng(3)).to(rows, number=5, own=own)
    again = NearestBoxes(costs, ends, np.random.default_rng(4)).to(rows, number=5, own=own)
    assert (drawn != own[:, None]).all()
    assert (drawn != again).any()


def test_the_clock_ends_the_search_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k_member_clustering, "SMALL", 30)
    space, clock = lines(120, 1), itertools.count()
    monkeypatch.setattr(k_member_clustering, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(simultaneous_search, "monotonic", lambda: float(next(clock)))

    def found(seconds: float) -> float:
        divided = k_member_partition(space, k=4, effort=3, rng=np.random.default_rng(2), seconds=seconds)
        check(divided, space, 4)
        assert divided.stopped == (seconds < 1e6)
        return divided.loss(space)

    first = mondrian_cuts.partition(space, cutter=mondrian_cuts.greedy, rule=mondrian_cuts.Rule(4)).loss(space)
    assert found(0.0) == pytest.approx(first)
    assert found(8.0) < first
    assert next(clock) < 40, "rounds ask for the time, and end when it is up"
    found(1e9)  # nothing stops it


def test_more_rows_than_a_class_may_need_are_one_class() -> None:
    # 40 tuples of one row and one of many: too few small ones for a class, so the large one is cut with them
    codes = np.arange(41)[:, None]
    data = Microdata(quasi=("a",), codes=codes, counts=np.where(np.arange(41) == 20, 100, 1))
    space = Space.embed(data, [Intervals(tuple(labels(41)), np.arange(41.0), 40.0)], weights=[1.0])
    check(Partition.from_groups(search(space, k=70, effort=1, rng=np.random.default_rng(0))[0]), space, 70)


@pytest.mark.parametrize("seed", range(8))
def test_neighbourhoods_that_ask_the_same_home_leave_it_k_rows(seed: int) -> None:
    codes = np.arange(61)[:, None]
    counts = np.where(np.arange(61) % 20 == 10, 8, 1)  # three homes of 8 rows, between rows that nobody else is near
    data = Microdata(quasi=("a",), codes=codes, counts=counts)
    space, k = Space.embed(data, [Intervals(tuple(labels(61)), np.arange(61.0), 60.0)], weights=[1.0]), 5
    rng = np.random.default_rng(seed)
    division, rounds = first_division(space, k), Rounds(space, JoinCosts(space), k, rng)
    lent = 0
    for _ in range(20):
        division = rounds.regrown(division, most=3)
        check(Partition.from_groups(division.groups()), space, k)
        lent = max(lent, 24 - int(division.home.sum()))
    assert lent > 0, "no home lent a row, so that nothing was tested"
