"""Points: single real numbers with a cell of their own."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Real, Unknown, dump, parse
from sfumato.domain.document import schema
from sfumato.domain.predicate import describe_condition
from sfumato.errors import DomainError, QueryError
from sfumato.query import count
from sfumato.query.statements.three_valued_logic import Comparison, compare
from sfumato.strict_documents import read_yaml

PAY = Real(
    name="pay", edges=(-10.0, 10.0, 40.0), points=(0.0, 25.0, 40.0), unknown=Unknown.CLAMP, nullable=True, typical=40.0
)
LABELS = ("[-10.0, 0.0)", "0.0", "(0.0, 10.0)", "[10.0, 25.0)", "25.0", "(25.0, 40.0)", "40.0", "(missing)")


def test_a_point_splits_its_cell_and_leaves_the_bounds_where_they_were():
    assert PAY.labels() == LABELS
    assert (PAY.minimum, PAY.maximum, PAY.declared, PAY.size) == (-10.0, 40.0, 7, 8)
    assert [PAY.bounds(code) for code in (0, 1, 6)] == [(-10.0, 0.0), (0.0, 0.0), (40.0, 40.0)]
    assert PAY.bounds(2) == (5e-324, 10.0)  # of the next double
    assert replace(PAY, nullable=False).labels() == LABELS[:-1]


def test_a_domain_file_says_points_and_is_read_back():
    domain = Domain((PAY,))
    text = dump(domain)
    assert "points: [0.0, 25.0, 40.0]" in text
    assert "edges: [-10.0, 0.0, 10.0, 25.0, 40.0]" in text
    assert parse(read_yaml(text)) == domain
    assert parse(read_yaml(text)).hash == domain.hash
    assert "points" in schema()["$defs"]["real"]["properties"]


def test_without_points_a_domain_says_and_hashes_what_it_did():
    closed = Domain((Real(name="pay", edges=(0.0, 0.5, 1.0), unknown=Unknown.CLAMP),))
    assert "points" not in dump(closed)
    assert closed.hash == Domain((replace(closed["pay"], points=()),)).hash


@pytest.mark.parametrize(
    "points", [(1.0, 0.0), (0.0, 0.0), (-11.0,), (41.0,), (math.nan,), (math.inf,), (0.0, math.nan, 1.0)]
)
def test_points_that_fall_or_lie_beyond_the_edges_are_refused(points):
    with pytest.raises(DomainError, match="points of 'pay' must increase and lie between"):
        Real(name="pay", edges=(-10.0, 40.0), points=points, unknown=Unknown.DROP)


def test_points_need_numbers_beside_them():
    with pytest.raises(DomainError, match="leave no number beside"):
        Real(name="pay", edges=(0.0, 1.7976931348623157e308), points=(1.7976931348623157e308,), unknown=Unknown.DROP)
    with pytest.raises(DomainError, match="leave no number beside"):
        Real(name="pay", edges=(0.0, 5e-324), points=(0.0,), unknown=Unknown.DROP)
    with pytest.raises(DomainError, match="increasing edges"):
        Real(name="pay", edges=(1.0, 0.0, 2.0), points=(1.0,), unknown=Unknown.DROP)
    beside = Real(name="pay", edges=(0.0, 1.0), points=(0.3, 0.1 + 0.2), unknown=Unknown.DROP)
    assert beside.labels() == ("[0.0, 0.3)", "0.3", "0.30000000000000004", "(0.30000000000000004, 1.0]")


@pytest.mark.parametrize("kind", ["integer, minimum: 0, maximum: 9", "categorical, values: [a]"])
def test_only_real_numbers_have_points(kind):
    with pytest.raises(DomainError, match="points"):
        parse(read_yaml(f"sfumato: 1\nunit: row\nattributes:\n  x: {{type: {kind}, unknown: drop, points: [0]}}\n"))


NUMBERS = st.sampled_from(
    [-10.0, -0.0, 0.0, 5e-324, 3.5, 10.0, math.nextafter(25, 0), 25.0, math.nextafter(25, 30), 40.0]
)


@given(number=NUMBERS, literal=NUMBERS, how=st.sampled_from(Comparison))
def test_a_comparison_decides_every_number_as_the_number_says(number, literal, how):
    domain = Domain((PAY,))
    (code,) = (
        code
        for code in range(PAY.declared)
        if PAY.bounds(code)[0] <= number and (number < PAY.bounds(code)[1] or number == PAY.bounds(code)[0])
    )
    try:
        found = compare(domain, "pay", how, Fraction(literal))
    except QueryError as error:
        assert "cuts the cell" in str(error)  # noqa: PT017
        assert literal not in PAY.points
        assert literal not in PAY.edges or how not in (Comparison.LESS, Comparison.AT_LEAST)
        return
    holds = {
        Comparison.EQUAL: number == literal,
        Comparison.UNEQUAL: number != literal,
        Comparison.LESS: number < literal,
        Comparison.AT_MOST: number <= literal,
        Comparison.GREATER: number > literal,
        Comparison.AT_LEAST: number >= literal,
    }[how]
    assert (code in found.true.codes) is holds
    assert (code in found.false.codes) is not holds


def test_conditions_at_points_are_said_in_words():
    domain = Domain((PAY,))

    def words(condition):
        return describe_condition(count(condition).condition(domain), domain)

    assert words("pay = 0") == "pay in 0.0"
    assert words("pay > 0 AND pay < 25") == "pay in (0.0, 25.0)"
    assert words("pay >= 0 AND pay <= 25") == "pay in [0.0, 25.0]"
    with pytest.raises(QueryError, match=r"cells, .* start at -10.0, 0.0, above 0.0, 10.0, 25.0, above 25.0, 40.0;"):
        count("pay > 3").condition(domain)
