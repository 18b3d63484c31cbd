"""If nothing is feasible, the named limit is the least sufficient one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.anonymize.conftest import drawn
from tests.anonymize.search.test_lattice_search import CRITERIA, SIZES, brute, problem

from sfumato.anonymize.criteria.criterion import Criterion, KAnonymity
from sfumato.anonymize.criteria.diversity import AlphaK, EntropyDiversity
from sfumato.anonymize.search.lattice import Lattice, allowed_rows, sufficient_share
from sfumato.anonymize.search.lattice_search import Nearest, least_loss, nearest
from sfumato.errors import InfeasibleError

ALPHA = (AlphaK(Fraction(1, 2), 3, "s"),)
EQUAL = (1.0, 1.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    criteria=st.sampled_from([*CRITERIA, ALPHA]),
    height=st.none() | st.integers(0, 7),
    excluded=st.integers(0, 5),
)
def test_nearest_is_the_least_of_an_exhaustive_search(
    seed: int, criteria: tuple[Criterion, ...], height: int | None, excluded: int
) -> None:
    data = replace(drawn(np.random.default_rng(seed), tuples=25, sizes=SIZES, values=3), excluded=excluded)
    task = problem(data, criteria, 0, EQUAL)
    vectors = itertools.product(*(range(top + 1) for top in task.heights))
    least = min((brute(task, each)[1] for each in vectors if height in (None, sum(each))), default=None)
    found = nearest(Lattice(task), height=height)
    assert found == Nearest(least, proven=True)
    if least is not None and least < data.rows:
        assert found.limit(data.rows) == f"the nearest limit is {sufficient_share(least, data.rows)}"
        typed = allowed_rows(sufficient_share(least, data.rows), data.rows)
        allowing = Lattice(replace(task, allowed=typed))
        assert least_loss(allowing, height=height).node is not None


def test_a_limit_below_that_of_the_top_is_found_where_a_criterion_is_not_monotone() -> None:
    """One half of the people is even, the other has one value: merged they fail, and only apart can one half be
    published.
    """
    data = drawn(np.random.default_rng(0), tuples=25, sizes=SIZES, values=3)
    even = data.codes[:, 1] == 0
    histogram = np.where(even[:, None], [[10, 10, 0]], [[90, 0, 0]])
    data = replace(data, counts=histogram.sum(axis=1), sensitive={"s": histogram})
    task = problem(data, (EntropyDiversity(1.9, "s"),), 0, EQUAL)
    assert Lattice(task).evaluate(task.heights).suppressed == data.rows
    assert nearest(Lattice(task)) == Nearest(int(data.counts[~even].sum()), proven=True)


def test_a_search_that_was_cut_short_says_so_and_names_only_what_is_enough() -> None:
    data = drawn(np.random.default_rng(1), tuples=25, sizes=SIZES, values=3)
    lattice = Lattice(problem(data, ALPHA, 0, EQUAL))
    cut = nearest(lattice, largest=len(data.counts))
    assert not cut.proven
    assert cut.limit(data.rows).startswith(("a limit of", "no limit below 1 that would do was found"))
    assert Nearest(data.rows, proven=False).limit(data.rows) == "no limit below 1 that would do was found"
    assert Nearest(1, proven=False).limit(4) == "a limit of 0.25 would do, perhaps a lower one"


@given(rows=st.integers(1, 10**12), share=st.fractions(0, 1))
def test_a_share_that_is_named_is_enough_and_is_not_one(rows: int, share: Fraction) -> None:
    suppressed = int(share * rows)
    named = sufficient_share(suppressed, rows)
    assert allowed_rows(named, rows) >= suppressed
    assert Fraction(named) - Fraction(suppressed, rows) < Fraction(1, 10**6)
    assert (Fraction(named) == 1) == (suppressed == rows)


def test_the_largest_k_is_named_with_the_limit_that_it_takes() -> None:
    data = replace(drawn(np.random.default_rng(0), tuples=25, sizes=SIZES, values=3), excluded=40)
    left = data.rows - 40
    share = sufficient_share(40, data.rows)
    with pytest.raises(
        InfeasibleError, match=rf"can meet is {left}, and that only from a suppression limit of {share}"
    ):
        problem(data, (KAnonymity(left + 1),), 39, EQUAL)
    with pytest.raises(InfeasibleError, match=f"can meet is {left}$"):
        problem(data, (KAnonymity(left + 1),), allowed_rows(share, data.rows), EQUAL)
    best = problem(data, (KAnonymity(left),), allowed_rows(share, data.rows), EQUAL)
    assert least_loss(Lattice(best)).node is not None
    with pytest.raises(InfeasibleError, match=f"no class has more than {left} rows"):
        problem(data, (KAnonymity(left + 1), *ALPHA), 40, EQUAL)
    none = replace(data, codes=data.codes[:0], counts=data.counts[:0], sensitive={"s": data.sensitive["s"][:0]})
    with pytest.raises(InfeasibleError, match="all 40 rows are left out"):
        problem(none, (KAnonymity(2),), 40, EQUAL)
