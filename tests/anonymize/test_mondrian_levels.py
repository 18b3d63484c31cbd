"""Cutting all regions of one depth at once gives the same regions as one cut after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import drawn
from tests.anonymize.test_local_recoding import small, two

from sfumato.anonymize.clustering import mondrian_cuts
from sfumato.anonymize.clustering.mondrian_cuts import Rule, greedy_partition
from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Space
from sfumato.anonymize.microdata import Microdata
from sfumato.domain.hierarchy.builders import order


def same(space: Space, k: int) -> None:
    one = mondrian_cuts.partition(space, cutter=mondrian_cuts.greedy, rule=Rule(k))
    all_ = greedy_partition(space, least=k)
    assert one.tuples.tolist() == all_.tuples.tolist()
    assert one.classes.tolist() == all_.classes.tolist()
    assert one.rows.tolist() == all_.rows.tolist()


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 9), cells=st.booleans(), chunk=st.integers(1, 30))
def test_small_tables_are_cut_alike(*, seed: int, k: int, cells: bool, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mondrian_cuts, "CHUNK", chunk)
        same(small(drawn(np.random.default_rng(seed), tuples=20, sizes=(6, 4)), cells=cells), k)


@pytest.mark.parametrize("k", [2, 10])
def test_many_attributes_of_either_kind_are_cut_alike(k: int) -> None:
    rng = np.random.default_rng(k)
    sizes = (9, 3, 12, 2, 7, 5, 4, 3, 6)
    codes = np.unique(np.stack([rng.integers(size, size=1500) for size in sizes], axis=1), axis=0)
    data = Microdata(quasi=tuple("abcdefghi"), codes=codes, counts=rng.integers(1, 5, size=len(codes)))
    labels = [[str(code) for code in range(size)] for size in sizes]
    scales = [
        HierarchyCells(order("q", each, fanout=2))
        if place % 2
        else Intervals(tuple(each), np.arange(len(each)) * 1.0, 9.0)
        for place, each in enumerate(labels)
    ]
    same(Space.embed(data, scales, weights=[1.0, 0.5, 2.0, 0.0, 1.0, 1.0, 3.0, 1.0, 1.0]), k)


@pytest.mark.parametrize("k", [5, 50])
def test_adult_is_cut_alike(adult: list[dict[str, str]], k: int) -> None:
    same(two(adult), k)
