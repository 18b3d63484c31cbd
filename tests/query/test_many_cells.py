"""A column with a billion cells: memory follows the rows, and what needs each cell is refused from the domain alone."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import tracemalloc
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato import query
from sfumato.domain import Domain, Grain, Integer, Timestamp, Unknown
from sfumato.errors import DomainError, QueryError
from sfumato.query import sql
from sfumato.query.statements.select_statement import parse
from sfumato_server.ui.question_form import Controls

CELLS = 10**9
WIDE = Integer(name="x", minimum=0, maximum=CELLS - 1, unknown=Unknown.CATEGORY, nullable=True)
DOMAIN = Domain((WIDE, Integer(name="b", minimum=0, maximum=4, unknown=Unknown.CLAMP)))
RANDOM = np.random.default_rng(3)
ROWS = RANDOM.integers(0, CELLS, 5_000)
MISSING = RANDOM.random(5_000) < 0.2
HUGE = sf.Epsilon(10**7)
MOST_BYTES = 30 << 20


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    rows = pa.table({"x": pa.array(ROWS, mask=MISSING), "b": ROWS % 5})
    path = tmp_path_factory.mktemp("wide") / "wide.ledger"
    return sf.open(rows, domain=DOMAIN, ledger=f"sqlite:///{path}", limit=sf.Epsilon(10**9), create=True)


@pytest.fixture
def little_memory():
    """Refuse a test that holds more than a small multiple of the rows at any time."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("SUM(x)", ROWS[~MISSING].sum()),
        ("AVG(x)", ROWS[~MISSING].mean()),
        ("MEDIAN(x)", np.median(ROWS[~MISSING])),
        ("MAX(x)", ROWS[~MISSING].max()),
        ("COUNT(x)", (~MISSING).sum()),
    ],
)
@pytest.mark.usefixtures("little_memory")
def test_numbers_of_a_billion_cells_are_computed_from_the_rows(vault, asked, expected):
    answer = sql(vault, f"SELECT {asked} FROM t", loss=HUGE)
    assert answer.value.estimate == pytest.approx(float(expected), rel=2e-3)


@pytest.mark.usefixtures("little_memory")
def test_conditions_on_a_billion_cells_count_rows(vault):
    listed = ", ".join(map(str, ROWS[:500]))
    for where, kept in ((f"x IN ({listed})", np.isin(ROWS, ROWS[:500])), ("NOT x < 5000000", ROWS >= 5_000_000)):
        found = sql(vault, f"SELECT COUNT(x) FROM t WHERE {where}", loss=HUGE).value.estimate
        assert round(found) == (kept & ~MISSING).sum()


@pytest.mark.usefixtures("little_memory")
def test_a_quantile_is_chosen_among_a_billion_cells_that_a_condition_leaves(vault):
    for where, low, high in (("x < 5000000", 0, 4_999_999), ("NOT x < 5000000 AND b > 2", 5_000_000, CELLS - 1)):
        chosen = query.choose_quantile(vault, query.Quantile("x", Fraction(1, 2)), loss=sf.Epsilon(1), where=where)
        assert low <= chosen.value <= high


@pytest.mark.usefixtures("little_memory")
def test_groups_of_a_billion_cells_are_refused_before_they_are_listed():
    with pytest.raises(QueryError, match="more than 1,048,576 cells"):
        parse("SELECT x, COUNT(*) FROM t GROUP BY x", DOMAIN)
    with pytest.raises(DomainError, match="'x' has 1,000,000,002 cells"):
        DOMAIN.grouping("x")
    hours = Timestamp(
        name="s", first=date(1000, 1, 1), last=date(2999, 12, 31), by=Grain.HOUR, zone="UTC", unknown=Unknown.DROP
    )
    with pytest.raises(DomainError, match="'s' has"):
        Domain((hours,)).grouping("month(s)")


@pytest.mark.usefixtures("little_memory")
def test_the_page_of_a_table_names_few_of_a_billion_cells():
    offered = Controls.for_attribute(WIDE)
    assert offered.cells.startswith("0, 1, 2, ")
    assert offered.cells.endswith(", 39, .. (other)")
    assert Controls.for_attribute(DOMAIN["b"]).cells == "0, 1, 2, 3, 4"
