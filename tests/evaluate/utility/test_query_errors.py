from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.evaluate.released import AnsweredWorkload, CachedMarginals, Released
from sfumato.evaluate.utility.scorecard import draw_conjunctions, query_errors


def test_answers_are_shares_of_rows_that_meet_every_condition(everyone):
    queries = draw_conjunctions(everyone.domain, count=200, generator=np.random.default_rng(0))
    real = Released.raw(everyone.members)
    for query in queries:
        met = np.ones(len(everyone.members), dtype=bool)
        for name, allowed in zip(query.attributes, query.allowed, strict=True):
            assert allowed.any()
            met &= allowed[everyone.members.codes[:, everyone.domain.index(name)]]
        assert query.answer(real) == pytest.approx(met.mean())
    assert {len(query.attributes) for query in queries} == {1, 2, 3}


def test_answers_that_are_kept_are_the_same_for_rows_and_for_marginals(everyone):
    queries = draw_conjunctions(everyone.domain, count=50, generator=np.random.default_rng(1))
    rows = Released.raw(everyone.members)
    pair = everyone.domain.names[:2]
    for source in (rows, AnsweredWorkload(everyone.domain, {pair: rows.marginal(pair)})):
        kept = CachedMarginals(source)
        for query in (*queries, *queries):
            assert query.answer(kept) == query.answer(source)


def test_conditions_are_read_off_kept_marginals_as_off_the_rows(everyone):
    source = Released.raw(everyone.members)
    kept, names = CachedMarginals(source), everyone.domain.names
    cliques = [*((name,) for name in names), *combinations(names, 2), *combinations(names, 3)]
    for clique in cliques:
        first = kept.marginal(clique)
        small = len(clique) < 3 or first.size <= len(source)
        assert (kept.marginal(clique) is first) == small
    for query in draw_conjunctions(everyone.domain, count=100, generator=np.random.default_rng(1)):
        assert query.answer(kept) == pytest.approx(query.answer(source), abs=1e-12)


def test_errors_are_zero_on_the_table_itself_and_grow_for_worse_releases(everyone):
    queries = draw_conjunctions(everyone.domain, count=200, generator=np.random.default_rng(0))
    real = Released.raw(everyone.members)
    assert query_errors(real, real, queries).mean_absolute == 0
    others = query_errors(real, Released.raw(everyone.others), queries)
    luck = np.random.default_rng(0)
    shuffled = everyone.members.codes.copy()
    shuffled[:, 0] = luck.integers(0, 20, len(shuffled))
    worse = query_errors(real, Released.raw(type(everyone.members)(everyone.domain, shuffled)), queries)
    assert 0 < others.mean_absolute < worse.mean_absolute
    assert 0 < others.mean_relative < worse.mean_relative


def test_a_range_of_numbers_holds_no_missing_ones():
    """A missing number is not the greatest."""
    domain = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CATEGORY, nullable=True),))
    for query in draw_conjunctions(domain, count=100, generator=np.random.default_rng(0)):
        assert not query.allowed[0][4:].any()
