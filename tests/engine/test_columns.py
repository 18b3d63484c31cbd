"""Counting over columns in memory, against the same questions put to DuckDB in SQL."""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.engine import arrays
from sfumato.engine.contingency import totals
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="age", minimum=-5, maximum=90, unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="band", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.CLAMP, nullable=True),
        Real(name="income", edges=(0.0, 0.1, 100.0, 5000.0), unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="town", values=tuple(f"t{place}" for place in range(300)), unknown=Unknown.DROP),
    )
)
CONDITIONS = [
    None,
    All(()),
    Any(()),
    Not(Among("town", frozenset(range(100)))),
    Any(
        (All((Among("sex", frozenset({0, 2})), Among("age", frozenset(range(20, 60))))), Among("band", frozenset({3})))
    ),
]
QUESTIONS = {
    "marginals": lambda on, where: on.marginals([(), ("sex",), ("town", "sex"), ("income", "band", "sex")], where),
    "sums": lambda on, where: (on.sums("income", ("sex",), Fraction(1, 100), where),),
    "sums of codes": lambda on, where: (on.sums("age", (), Fraction(7, 2), where),),
    "moments": lambda on, where: (on.moments("income", (), unit=Fraction(1, 2), degree=2, where=where),),
    "moments by": lambda on, where: (on.moments("band", ("sex", "town"), unit=Fraction(1), degree=2, where=where),),
    "bins of one width": lambda on, where: (on.bins("income", (np.arange(401) * 12.5).tolist(), ("sex",), where),),
    "bins": lambda on, where: (on.bins("income", [0.1, 3.0, 2500.0], (), where),),
    "bins of codes": lambda on, where: (on.bins("age", list(range(-5, 80)), ("band",), where),),
    "bins of an integer": lambda on, where: (on.bins("band", [float(edge) for edge in range(0, 99, 2)], (), where),),
}


def rows(count: int = 70_000) -> pa.Table:
    """More rows than are looked at in one step."""
    random = np.random.default_rng(8)
    incomes = np.where(random.random(count) < 0.1, np.nan, np.round(random.gamma(2, 600, count), 1))
    return pa.table(
        {
            "sex": pa.array(random.choice(np.array(["F", "M", "X", None], dtype=object), count).tolist()),
            "age": pa.array(random.integers(-20, 120, count), mask=random.random(count) < 0.1),
            "band": pa.array(random.integers(-20, 120, count), mask=random.random(count) < 0.1),
            "income": pa.array(incomes, from_pandas=True),
            "town": [f"t{town}" for town in random.integers(0, 301, count).tolist()],
        }
    )


@pytest.fixture(scope="module")
def table():
    return open_table(rows())


@pytest.fixture(scope="module")
def asked_in_sql(table):
    """An encoding that never keeps a column."""
    return table.encode(DOMAIN)


@pytest.fixture(scope="module", params=QUESTIONS)
def held_for(request, table):
    """A kind of question, and an encoding that is asked nothing else."""
    return request.param, table.encode(DOMAIN)


@pytest.mark.parametrize("where", CONDITIONS, ids=range(len(CONDITIONS)))
def test_columns_in_memory_are_counted_as_the_engine_counts_them(held_for, asked_in_sql, monkeypatch, where):
    question, encoded = held_for
    held = [reveal(exact) for exact in QUESTIONS[question](encoded, where)]
    monkeypatch.setattr(arrays, "KEPT_BYTES", 0)
    asked = [reveal(exact) for exact in QUESTIONS[question](asked_in_sql, where)]
    for ours, theirs in zip(held, asked, strict=True):
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, theirs)


def test_what_does_not_fit_is_left_to_the_engine_question_by_question(table, monkeypatch):
    monkeypatch.setattr(arrays, "KEPT_BYTES", 2 * 70_000)
    encoded = table.encode(DOMAIN)
    whole = table.encode(DOMAIN)
    for _ in range(2):
        for question in QUESTIONS.values():
            for where in CONDITIONS:
                found = [reveal(exact).tolist() for exact in question(encoded, where)]
                monkeypatch.setattr(arrays, "KEPT_BYTES", 1 << 28)
                assert found == [reveal(exact).tolist() for exact in question(whole, where)]
                monkeypatch.setattr(arrays, "KEPT_BYTES", 2 * 70_000)


def test_threads_read_a_column_once():
    read = []

    def column(name, into):
        read.append(name)
        into[:] = 1

    held = arrays.KeptColumns(DOMAIN, 1000, column)
    threads = [
        threading.Thread(
            target=held.powers,
            args=("income", ("sex",)),
            kwargs={"unit": Fraction(1), "degree": 1, "bounds": (0, 5000), "where": None},
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read) == ["c0", "v3"]


@given(
    st.sampled_from([(0.0, 0.1, 7), (-3.0, 1 / 3, 50), (1e9, 1e-6, 40), (-8e307, 4e307, 4), (0.0, 100 / 4096, 4096)]),
    st.lists(st.floats(allow_nan=True) | st.integers(-5, 4100), min_size=1, max_size=50),
    st.sampled_from([-0.25, 0.0, 0.25]),
)
def test_bins_by_division_are_those_of_a_search_among_the_edges(shape, places, moved):
    start, width, bins = shape
    edges = start + np.arange(bins + 1) * width
    edges[-1] += moved * width  # the last need not lie on the grid
    near = np.array([edges[int(place) % (bins + 1)] for place in places if np.isfinite(place)] or [0.0])
    numbers = np.concatenate(
        [np.array(places, dtype=float), near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf)]
    )
    assert arrays.divided(numbers, edges, width).tolist() == arrays.searched(numbers, edges).tolist()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-(1 << 40), 1 << 40)), max_size=40))
def test_totals_are_exact(pairs):
    cells = np.array([cell for cell, _ in pairs], dtype=np.uint8)
    weights = np.array([weight for _, weight in pairs], dtype=np.int64)
    expected = [sum(weight for at, weight in pairs if at == cell) for cell in range(7)]
    assert totals(cells, 7, weights).tolist() == expected
    assert totals(cells, 7).tolist() == [sum(at == cell for at, _ in pairs) for cell in range(7)]
