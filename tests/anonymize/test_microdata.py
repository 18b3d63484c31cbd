from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymize.microdata import Keys, group, pack


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=30),
    st.sampled_from([4, 1000, 1 << 21, 1 << 40]),
)
def test_equal_tuples_have_equal_keys_in_order(tuples: list[list[int]], size: int) -> None:
    codes = np.array(tuples)
    keys = pack(list(codes.T), [size] * 3)
    distinct, classes = np.unique(codes, axis=0, return_inverse=True)
    grouping = group(keys)
    np.testing.assert_array_equal(grouping.classes, classes.ravel())
    np.testing.assert_array_equal(codes[grouping.members], distinct)
    assert keys.values.max() < keys.bound <= 1 << 62


def test_sums_are_exact_for_one_and_two_axes() -> None:
    grouping = group(Keys(np.array([7, 0, 7]), 8))
    assert grouping.sums(np.array([1, 2, 3])).tolist() == [2, 4]
    assert grouping.sums(np.array([[1, 0], [2, 5], [3, 1]])).tolist() == [[2, 5], [4, 1]]
