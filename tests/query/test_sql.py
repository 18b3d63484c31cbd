"""Statements against DuckDB on the same rows, and every refusal with its place."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.query.conftest import DOMAIN, rows

from sfumato.domain import Domain, Real, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.query.aggregates import Average, Count, Distinct, Extreme, Quantile, Total, Variance
from sfumato.query.plan import plan
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.sql_condition import Place, read_condition
from sfumato.query.statements.three_valued_logic import normal

PEOPLE = rows(600)
ENCODED = open_table(PEOPLE).encode(DOMAIN)
# as the domain sees them: numbers outside the bounds are equal to the nearest bound
SEEN = "(SELECT * REPLACE (CASE WHEN income BETWEEN 0 AND 5000 THEN income END AS income) FROM people)"

ATOMS = [
    "sex = 'F'",
    "sex <> 'F'",
    "'M' = sex",
    "sex IN ('F', 'M')",
    "sex NOT IN ('M')",
    "sex IS NULL",
    "sex IS NOT NULL",
    "age < 18",
    "17 < age",
    "age BETWEEN 20 AND 29",
    "age NOT BETWEEN 20 AND 29",
    "age >= 200",
    "band < 65",
    "band = 200",
    "band IS NULL",
    "income < 100",
    "income >= 1000",
    "NOT income < 1000",
    "income <= 5000",
    "income BETWEEN -1 AND 5000",
]


def conditions():
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        ),
        max_leaves=6,
    )


def counted(statement: str) -> int:
    query = parse(statement, DOMAIN)
    (found,) = ENCODED.marginals([()], query.where)
    (same,) = ENCODED.marginals([()], normal(query.where, DOMAIN))
    assert int(reveal(found)[0]) == int(reveal(same)[0])
    return int(reveal(found)[0])


def expected(where: str) -> int:
    people = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    return duckdb.sql(f"SELECT COUNT(*) FROM {SEEN} WHERE {where}").fetchall()[0][0]


@pytest.mark.parametrize("where", ATOMS)
def test_a_comparison_keeps_the_rows_that_sql_keeps(where):
    assert counted(f"SELECT COUNT(*) FROM t WHERE {where}") == expected(where)


@given(conditions())
@settings(max_examples=60, deadline=None)
def test_missing_values_are_neither_true_nor_false_however_conditions_are_joined(where):
    assert counted(f"SELECT COUNT(*) FROM t WHERE {where}") == expected(where)


def test_the_ledger_of_missing_truth_values_goes_by_the_declared_other_cell():
    query = parse("SELECT COUNT(*) FROM t WHERE NOT member", DOMAIN)
    (found,) = ENCODED.marginals([()], query.where)
    values = PEOPLE["member"].to_pylist()
    # the attribute is not nullable, so a missing value is one of the other values: different from true
    assert int(reveal(found)[0]) == sum(value is not True for value in values)


@pytest.mark.parametrize(
    ("where", "codes"), [("x >= 0.1", {1, 2}), ("x < 0.3", {0, 1}), ("x BETWEEN 1e-1 AND 1", {1, 2})]
)
def test_a_decimal_edge_is_the_double_that_edges_are(where, codes):
    domain = Domain((Real(name="x", edges=(0.0, 0.1, 0.3, 1.0), unknown=Unknown.CLAMP),))
    assert normal(read_condition(where, domain), domain) == Among("x", frozenset(codes))


def test_every_aggregate_is_read():
    statement = (
        "SELECT sex AS s, COUNT(*), COUNT(income) AS n, SUM(age), AVG(age), VAR_POP(age), STDDEV_POP(age), "
        "MEDIAN(age), QUANTILE(income, 0.9), PERCENTILE_CONT(0.1) WITHIN GROUP (ORDER BY income), MIN(age), MAX(age) "
        "FROM people GROUP BY sex"
    )
    query = parse(statement, DOMAIN)
    assert query.by == ("sex",)
    assert query.labels[:2] == ("count(*)", "n")
    assert query.aggregates == (
        Count(),
        Count("income"),
        Total("age"),
        Average("age"),
        Variance("age"),
        Variance("age", root=True),
        Quantile("age", Fraction(1, 2)),
        Quantile("income", Fraction(9, 10)),
        Quantile("income", Fraction(1, 10)),
        Extreme("age", largest=False),
        Extreme("age", largest=True),
    )


def test_distinct_units_and_discovered_keys(by_id):
    assert parse("SELECT COUNT(DISTINCT id) FROM t", by_id.domain).aggregates == (Distinct(),)
    query = parse("SELECT city, COUNT(DISTINCT id) FROM t GROUP BY city", by_id.domain, groupable_undeclared=["city"])
    assert query.data_dependent_groups == ("city",)


def test_where_rows_are_the_units_all_rows_of_a_discovered_value_can_be_counted(by_id):
    query = parse("SELECT city, COUNT(*) FROM t GROUP BY city", DOMAIN, groupable_undeclared=["city"])
    assert (query.aggregates, query.labels) == ((Distinct(),), ("count(*)",))
    with pytest.raises(QueryError, match=r"ask COUNT\(\*\)"):
        parse("SELECT city, SUM(age) FROM t GROUP BY city", DOMAIN, groupable_undeclared=["city"])
    with pytest.raises(QueryError, match=r"ask COUNT\(DISTINCT id\)"):
        parse("SELECT city, COUNT(*) FROM t GROUP BY city", by_id.domain, groupable_undeclared=["city"])


def test_unquoted_names_are_found_in_any_case(by_id):
    folded = parse("SELECT Sex, AVG(AGE) FROM t WHERE Band < 65 GROUP BY SEX", DOMAIN)
    assert folded == parse("SELECT sex, AVG(age) FROM t WHERE band < 65 GROUP BY sex", DOMAIN)
    assert folded.labels == ("mean(age)",)
    query = parse("SELECT CITY, COUNT(DISTINCT ID) FROM t GROUP BY City", by_id.domain, groupable_undeclared=["city"])
    assert query.data_dependent_groups == ("city",)


@pytest.mark.parametrize("word", ["OR", "AND"])
def test_a_long_chain_of_conditions_does_not_nest(word):
    where = f" {word} ".join(["age<3"] * 900)
    query = parse(f"SELECT COUNT(*) FROM t WHERE {where}", DOMAIN)
    assert plan(query, DOMAIN) == plan(parse("SELECT COUNT(*) FROM t WHERE age < 3", DOMAIN), DOMAIN)


def test_conditions_that_nest_deeply_are_refused():
    where = "age < 3"
    for step in range(300):
        where = f"band < {(18, 65)[step // 2 % 2]} {'OR' if step % 2 else 'AND'} ({where} OR sex = 'F')"
    with pytest.raises(QueryError, match="deep"):
        parse(f"SELECT COUNT(*) FROM t WHERE {where}", DOMAIN)


REFUSED = [
    ("SELECT COUNT(*) FROM t WHERE income < 150", 1, 39, "cuts the cell"),
    ("SELECT COUNT(*) FROM t WHERE income <= 1000", 1, 40, "cuts the cell"),
    ("SELECT COUNT(*) FROM t WHERE income = 100", 1, 39, "cuts the cell"),
    ("SELECT COUNT(*)\nFROM t\nWHERE band > 20", 3, 14, "0, 18, 65"),
    ("SELECT COUNT(*) FROM t WHERE sex = 'Q'", 1, 36, "'F', 'M'"),
    ("SELECT COUNT(*) FROM t WHERE sex < 'M'", 1, 36, "no order"),
    ("SELECT COUNT(*) FROM t WHERE age = 'x'", 1, 36, "numbers"),
    ("SELECT COUNT(*) FROM t WHERE member = 1", 1, 39, "declared value"),
    ("SELECT COUNT(*) FROM t WHERE nobody = 1", 1, 30, "no attribute"),
    ("SELECT COUNT(*) FROM t WHERE age = NULL", 1, 30, "IS NULL"),
    ("SELECT COUNT(*) FROM t WHERE age / 0 > 1", 1, 30, "expressions"),
    ("SELECT COUNT(*) FROM t WHERE age > (SELECT 1)", 1, 44, "literal"),
    ("SELECT COUNT(*) FROM t WHERE sex LIKE 'F%'", 1, 30, "not declared"),
    ("SELECT COUNT(*) FROM t WHERE sex = age", 1, 36, "another attribute"),
    ("SELECT COUNT(*) FROM t WHERE t.age = 1", 1, 30, "name an attribute"),
    ("WITH t AS (SELECT 1) SELECT COUNT(*) FROM t", 1, 1, "WITH"),
    ("SELECT COUNT(*) FROM a, b", 1, 25, "one table"),
    ("SELECT COUNT(*) FROM a JOIN b ON a.x = b.x", 1, 24, "one table"),
    ("SELECT COUNT(*) FROM s.t", 1, 22, "plain name"),
    ("SELECT COUNT(*) FROM read_csv('x')", 1, 22, "plain name"),
    ("SELECT COUNT(*)", 1, 8, "FROM"),
    ("SELECT SUM(age * 2) FROM t", 1, 12, "expressions"),
    ("SELECT SUM(sex) FROM t", 1, 12, "categorical"),
    ("SELECT SUM(DISTINCT age) FROM t", 1, 21, "expressions"),
    ("SELECT MAX(age, 2) FROM t", 1, 12, "one attribute"),
    ("SELECT QUANTILE(age, 1.5) FROM t", 1, 22, "between 0 and 1"),
    ("SELECT COUNT(*), QUANTILE(age, .9, .9), SUM(age) FROM t", 1, 27, "one attribute and a probability"),
    ("SELECT PERCENTILE_CONT(0.5, 2) WITHIN GROUP (ORDER BY age) FROM t", 1, 8, "of an attribute"),
    ("SELECT COUNT(*) OVER () FROM t", 1, 8, "of an attribute"),
    ("SELECT sex, MODE(sex) FROM t GROUP BY sex", 1, 13, "count the rows of each value"),
    ("SELECT age FROM t", 1, 8, "GROUP BY"),
    ("SELECT * FROM t", 1, 8, "of an attribute"),
    ("SELECT COUNT(*) AS n, SUM(age) AS n FROM t", 1, 8, "the same name"),
    ("SELECT city, COUNT(*) FROM t GROUP BY city", 1, 39, "no attribute"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY sex, sex", 1, 38, "repeated"),
    ("SELECT sex, COUNT(*) FROM t GROUP BY CUBE (sex)", 1, 44, "name an attribute"),
    ("SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t", 1, 1, "one SELECT"),
    ("SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t", 1, 1, "one SELECT"),
    ("DROP TABLE t", 1, 1, "one SELECT"),
    ("", 1, 1, "one SELECT"),
    ("SELECT COUNT(*) FROM t WHERE sex = 'F", 1, 36, "not closed"),
    ("SELECT COUNT(*) -- it's\nFROM t WHERE sex = 'F''", 2, 20, "not closed"),
    ('SELECT COUNT(*) FROM t WHERE "sex = 1', 1, 30, "not closed"),
    ("SELECT COUNT(*) /* all FROM t", 1, 17, "not closed"),
    ("SELECT COUNT(* FROM t", 1, 16, "not SQL"),
    ('SELECT COUNT(*) FROM t WHERE "AGE" = 1', 1, 30, "no attribute"),
    ("SELECT COUNT(*) FROM t WHERE " + "(" * 3000 + "age = 1" + ")" * 3000, 1, 1, "deeply"),
    ("SELECT COUNT(*) FROM t -- " + "x" * 1_000_000, 1, 1, "characters"),
]


@pytest.mark.parametrize(("statement", "line", "column", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_outside_the_subset_is_refused_with_its_place_and_reason(statement, line, column, reason):
    with pytest.raises(QueryError, match=f"(?s).*{reason}") as refused:
        parse(statement, DOMAIN)
    place = refused.value.culprit
    assert isinstance(place, Place)
    assert (place.line, place.column) == (line, column)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_whatever_is_written_is_read_or_refused(text):
    with pytest.raises(QueryError):
        parse(f"SELECT {text}", DOMAIN)


@given(conditions())
@settings(max_examples=40, deadline=None)
def test_the_normal_form_is_normal(where):
    once = normal(parse(f"SELECT COUNT(*) FROM t WHERE {where}", DOMAIN).where, DOMAIN)
    assert normal(once, DOMAIN) == once
