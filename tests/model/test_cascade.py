"""The cascade against one projection, or one expansion, at a time."""

from itertools import chain, combinations, permutations

import numpy as np
import pytest

from sfumato.model.factor import Factor, project_all, sum_all

SIZES = {"a": 3, "b": 2, "c": 4, "d": 2}


@pytest.fixture
def random():
    return np.random.default_rng(3)


def test_marginals_are_those_of_single_projections(random):
    joint = Factor(tuple(SIZES), random.random(tuple(SIZES.values())))
    targets = list(chain.from_iterable(permutations(SIZES, ways) for ways in range(5)))
    random.shuffle(targets)
    for target, found in zip(targets, project_all(joint, targets), strict=True):
        np.testing.assert_allclose(found, joint.project(target).values)


def test_a_sum_is_that_of_the_expanded_tables(random):
    names = tuple(SIZES)
    chosen = [*chain.from_iterable(combinations(names, ways) for ways in range(4)), ("c", "a"), ("a", "c")]
    factors = [Factor(tuple(clique), random.normal(size=[SIZES[n] for n in clique])) for clique in chosen]
    before = [factor.values.copy() for factor in factors]
    expected = sum(np.broadcast_to(factor.expand(names), tuple(SIZES.values())) for factor in factors)
    np.testing.assert_allclose(sum_all(factors, SIZES), expected)
    for factor, values in zip(factors, before, strict=True):
        np.testing.assert_array_equal(factor.values, values)


def test_a_sum_of_nothing_is_zero():
    assert not sum_all([], SIZES).any()
    assert sum_all([Factor((), np.array(2.0))], {"a": 2}).tolist() == [2.0, 2.0]
