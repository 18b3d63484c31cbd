from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymize import microdata
from sfumato.anonymize.microdata import Keys, group, pack


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=30),
    st.sampled_from([4, 1000, 40_000, 60_000, 1 << 21, 1 << 40]),
)
def test_equal_tuples_have_equal_keys_in_order(tuples: list[list[int]], size: int) -> None:
    codes = np.array(tuples)
    codes[codes == 3] = size - 1
    keys = pack(list(codes.T), [size] * 3)
    distinct, classes = np.unique(codes, axis=0, return_inverse=True)
    grouping = group(keys)
    np.testing.assert_array_equal(grouping.classes, classes.ravel())
    np.testing.assert_array_equal(codes[grouping.members], distinct)
    assert keys.values.max() < keys.bound <= 1 << 62


@pytest.mark.parametrize("distinct", [1, 3, 40, 900, 1100, 5000])
@pytest.mark.parametrize("multiplier", [0, 1, int(microdata.MULTIPLIER)])
def test_many_keys_are_grouped_alike_whatever_buckets_they_share(
    distinct: int, multiplier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microdata, "MULTIPLIER", np.uint64(multiplier))  # 0: all in one, 1: by their first bits
    rng = np.random.default_rng(distinct)
    keys = rng.integers(0, 1 << 62, size=distinct)[rng.integers(distinct, size=5000)]
    values, classes = np.unique(keys, return_inverse=True)
    grouping = group(Keys(keys, 1 << 62))
    np.testing.assert_array_equal(grouping.classes, classes)
    np.testing.assert_array_equal(keys[grouping.members], values)


def test_sums_are_exact_for_one_and_two_axes() -> None:
    grouping = group(Keys(np.array([7, 0, 7]), 8))
    assert grouping.sums(np.array([1, 2, 3])).tolist() == [2, 4]
    assert grouping.sums(np.array([[1, 0], [2, 5], [3, 1]])).tolist() == [[2, 5], [4, 1]]
