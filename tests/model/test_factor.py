"""Factors against NumPy on the dense table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SizeError
from sfumato.model.factor import Factor

SIZES = {"a": 2, "b": 3, "c": 4}


def factors():
    def make(names, seed):
        return Factor(tuple(names), np.random.default_rng(seed).normal(size=[SIZES[name] for name in names]))

    names = st.lists(st.sampled_from(sorted(SIZES)), unique=True)
    return st.builds(make, names, st.integers(0, 1000))


def dense(factor):
    return np.broadcast_to(factor.expand(tuple(SIZES)), tuple(SIZES.values()))


@given(factors(), factors())
def test_products_and_sums_are_those_of_the_dense_tables(one, other):
    np.testing.assert_allclose(dense(one * other), dense(one) * dense(other))
    np.testing.assert_allclose(dense(one + other), dense(one) + dense(other))


@given(factors(), st.data())
def test_a_projection_in_two_steps_is_one_projection(factor, data):
    kept = data.draw(st.lists(st.sampled_from(factor.attributes), unique=True)) if factor.attributes else []
    fewer = data.draw(st.lists(st.sampled_from(kept), unique=True)) if kept else []
    np.testing.assert_allclose(factor.project(kept).project(fewer).values, factor.project(fewer).values, atol=1e-12)
    assert factor.project(kept).total == pytest.approx(factor.total)


def test_axes_must_match_attributes():
    with pytest.raises(SizeError, match="2 attributes"):
        Factor(("a", "b"), np.zeros(3))
