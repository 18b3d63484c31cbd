"""Covers contain every clique, stay small, and lead to the same counts as counting each clique alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.engine.contingency import COVER_CELLS, TOTAL_CELLS, CoverCounts, plan_covers
from sfumato.errors import SizeError


@st.composite
def questions(draw):
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    orders = st.permutations(range(len(shape)))
    cliques = st.tuples(orders, st.integers(0, len(shape))).map(lambda pair: tuple(pair[0][: pair[1]]))
    return shape, draw(st.lists(cliques, min_size=1, max_size=8))


@given(questions(), st.integers(0, 50))
def test_marginals_from_covers_equal_direct_counts(case, rows):
    shape, cliques = case
    generator = np.random.default_rng(rows)
    codes = [generator.integers(0, size, rows).astype(np.uint8) for size in shape]
    wanted = plan_covers(cliques, shape)
    halves = [CoverCounts(wanted), CoverCounts(wanted)]
    halves[0].add([column[: rows // 2] for column in codes], rows // 2)
    halves[1].add([column[rows // 2 :] for column in codes], rows - rows // 2)
    halves[0].merge(halves[1].tables)
    for clique, counts in zip(cliques, wanted.project(halves[0].tables), strict=True):
        direct = np.zeros([shape[axis] for axis in clique], dtype=np.int64)
        np.add.at(direct, tuple(codes[axis] for axis in clique), 1 if clique else rows)
        np.testing.assert_array_equal(counts, direct.reshape(-1))


def test_triples_of_fifteen_attributes_share_covers():
    shape = (74, 9, 16, 16, 16, 7, 15, 6, 5, 2, 16, 16, 20, 42, 2)
    cliques = list(itertools.combinations(range(15), 3))
    chosen = plan_covers(cliques, shape)
    assert len(chosen.covers) < len(cliques) / 2
    assert all(chosen.cells(index) <= max(COVER_CELLS, 74 * 42 * 20) for index in range(len(chosen.covers)))
    for clique, source in zip(cliques, chosen.source, strict=True):
        assert set(clique) <= set(chosen.covers[source])


def test_a_clique_beyond_the_cover_limit_is_its_own_cover():
    chosen = plan_covers([(0, 1)], (1 << 10, 1 << 10))
    assert chosen.covers == ((0, 1),)


def test_more_cells_than_fit_are_refused_with_their_number():
    with pytest.raises(SizeError, match="1,073,741,824 cells"):
        plan_covers([(0, 1, 2)], (1 << 10,) * 3)


def test_covers_never_need_more_room_than_is_allowed():
    shape = (60,) * 30
    chosen = plan_covers(list(itertools.combinations(range(30), 2)), shape)
    assert sum(math.prod(shape[axis] for axis in cover) for cover in chosen.covers) <= TOTAL_CELLS


def test_rows_beyond_one_slice_are_all_counted():
    rows = 100_003
    codes = [np.arange(rows, dtype=np.uint32) % 7, (np.arange(rows) % 3).astype(np.uint8)]
    tally = CoverCounts(plan_covers([(0, 1), ()], (7, 3)))
    tally.add(codes, rows)
    assert sum(table.sum() for table in tally.tables) == rows * len(tally.tables)
