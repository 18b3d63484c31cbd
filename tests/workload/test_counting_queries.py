"""Compact workloads answer as their 0/1 rows do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import QueryError, SizeError
from sfumato.synthesize import all_marginals, all_ranges, prefixes, ranges, rectangles
from sfumato.workload.counting_queries import Explicit, Marginals, counting


def a_domain(*sizes):
    return Domain(
        tuple(
            Integer(name=f"a{axis}", minimum=0, maximum=size - 1, unknown=Unknown.DROP)
            for axis, size in enumerate(sizes)
        )
    )


@st.composite
def boxes(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    domain = a_domain(*sizes)
    bound = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    pairs = draw(st.lists(st.tuples(bound, bound), min_size=1, max_size=6))
    low = np.array([np.minimum(*pair) for pair in pairs])
    high = np.array([np.maximum(*pair) for pair in pairs])
    return domain, rectangles(domain.names, low, high)


@st.composite
def marginals(draw):
    domain = a_domain(*draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    if draw(st.booleans()):
        return domain, all_marginals(draw(st.integers(1, len(domain))))
    clique = st.lists(st.sampled_from(domain.names), min_size=1, max_size=3, unique=True).map(tuple)
    return domain, Marginals(cliques=tuple(draw(st.lists(clique, min_size=1, max_size=3))))


@given(boxes() | marginals(), st.integers(0, 1 << 32))
def test_answers_and_widths_are_those_of_the_matrix(case, seed):
    domain, workload = case
    matrix = workload.matrix(domain)
    size = domain.project(workload.attributes(domain)).size
    cells = np.random.default_rng(seed).integers(0, 1000, size)
    assert matrix.shape == (workload.length(domain), size)
    assert matrix.dtype == bool
    np.testing.assert_array_equal(workload.answers(domain, cells), matrix @ cells)
    np.testing.assert_array_equal(workload.widths(domain), matrix.sum(axis=1))


def test_a_box_is_inclusive_on_both_sides():
    domain = a_domain(3, 2)
    matrix = rectangles(("a0", "a1"), [[0, 1]], [[1, 1]]).matrix(domain)
    assert matrix.tolist() == [[False, True, False, True, False, False]]


def test_ranges_and_prefixes_of_one_attribute():
    domain = a_domain(4)
    assert all_ranges(domain, "a0").length(domain) == 10
    assert prefixes(domain, "a0").answers(domain, np.array([1, 2, 3, 4])).tolist() == [1, 3, 6, 10]


def test_explicit_rows_answer_as_given():
    domain = a_domain(3)
    workload = Explicit(("a0",), np.array([[True, False, True]]))
    assert workload.answers(domain, np.array([5, 7, 1])).tolist() == [6.0]
    assert counting(workload, domain).attributes == ("a0",)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: ranges("a0", [(2, 1)]),
        lambda _: ranges("a0", [(-1, 1)]),
        lambda _: ranges("a0", []),
        lambda domain: ranges("a0", [(0, 3)]).matrix(domain),
        lambda _: rectangles(("a0",), [[0, 0]], [[1, 1]]),
        lambda domain: Explicit(("a0",), np.ones((1, 4), dtype=bool)).matrix(domain),
        lambda domain: Explicit(("a0",), np.full((1, 3), 2)).matrix(domain),
        lambda _: all_marginals(0),
        lambda domain: all_marginals(2).marginal_attributes(domain),
        lambda _: Marginals(),
    ],
)
def test_what_does_not_fit_is_refused(make):
    with pytest.raises(QueryError):
        make(a_domain(3))


def test_a_matrix_too_large_for_memory_is_refused():
    domain = a_domain(1 << 15)
    with pytest.raises(SizeError, match="mst, batched"):
        all_marginals(1).matrix(domain)
