"""Classes of k different units out of methods that deal rows: every row in one class, and every class with k units."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.anonymize.clustering import mondrian_cuts
from sfumato.anonymize.clustering.k_member_clustering import k_member_partition
from sfumato.anonymize.clustering.mondrian_cuts import Rule
from sfumato.anonymize.clustering.space import Intervals, Partition, Space
from sfumato.anonymize.clustering.unit_partition import Homes, partition_units
from sfumato.anonymize.microdata import Microdata

VALUES = 8
ROWS = st.lists(st.tuples(st.integers(0, VALUES - 1), st.integers(0, 11)), min_size=4, max_size=40)  # value, unit


def relaxed(space: Space, k: int) -> Partition:
    return mondrian_cuts.partition(space, cutter=mondrian_cuts.relaxed, rule=Rule(k))


def k_member(space: Space, k: int) -> Partition:
    return k_member_partition(space, k=k, effort=3, rng=np.random.default_rng(1))


@pytest.mark.parametrize("divide", [relaxed, k_member])
@settings(max_examples=100, deadline=None)
@given(rows=ROWS, k=st.integers(1, 5))
def test_every_row_has_one_class_and_every_class_k_units_however_rows_are_dealt(divide, rows, k):
    units = sorted({unit for _, unit in rows})
    assume(len(units) >= k)
    numbers = {unit: number for number, unit in enumerate(units)}
    values = sorted({value for value, _ in rows})
    counts = np.array([sum(value == other for other, _ in rows) for value in values])
    scale = Intervals(tuple(str(value) for value in range(VALUES)), np.arange(float(VALUES)), VALUES - 1.0)
    data = Microdata(quasi=("a",), codes=np.array(values)[:, None], counts=counts)
    space = Space.embed(data, [scale], weights=[1.0])
    of_unit = Counter(unit for _, unit in rows)
    homes = Homes.from_pairs(
        np.array([values.index(value) for value, _ in rows]),
        np.array([numbers[unit] for _, unit in rows]),
        counts,
        np.array([of_unit[unit] == 1 for unit in units]),
    )
    found = partition_units(space, homes, k=k, divide=lambda part: divide(part, k))
    assert np.bincount(found.tuples, weights=found.rows).tolist() == counts.tolist()
    parts = Counter(found.tuples.tolist())
    for number in range(found.size):
        here = found.classes == number
        least: set[int] = set()
        dealt = 0
        for tuple_, some in zip(found.tuples[here].tolist(), found.rows[here].tolist(), strict=True):
            held = [unit for value, unit in rows if value == values[tuple_]]
            if parts[tuple_] == 1:
                least |= set(held)
            else:  # any rows of the tuple: each of another unit, that has no row elsewhere
                assert all(of_unit[unit] == 1 for unit in held)
                dealt += some
        assert len(least) + dealt >= k
