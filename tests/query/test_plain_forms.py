"""Forms that other databases write, against DuckDB at a very large epsilon."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from tests.query.test_answer_clauses import DOMAIN, HUGE, PEOPLE

import sfumato as sf
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.domain import parse as parse_domain
from sfumato.errors import QueryError
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.table_statement import parse_with_view

STATEMENTS = [
    "SELECT sex, member, COUNT(*) FROM t GROUP BY ALL HAVING COUNT(*) > 0 ORDER BY 3",
    "SELECT COUNT(*) FROM t GROUP BY ALL",
    "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex ORDER BY n DESC LIMIT 1 OFFSET 1",
    "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex ORDER BY n OFFSET 1",
    "SELECT COUNT(*) FROM t WHERE age BETWEEN SYMMETRIC 5 AND 2",
    "SELECT COUNT(*) FROM t WHERE NOT age BETWEEN SYMMETRIC 5 AND 2",
    "SELECT COUNT(*) FROM t WHERE sex IS DISTINCT FROM 'F'",
    "SELECT COUNT(*) FROM t WHERE sex IS NOT DISTINCT FROM 'F'",
    "SELECT COUNT(*) FROM t WHERE 'F' IS NOT DISTINCT FROM sex",
    "SELECT COUNT(*) FROM t WHERE sex IS DISTINCT FROM NULL",
    "SELECT COUNT(*) FROM t WHERE sex IS NOT DISTINCT FROM NULL",
    "SELECT COUNT(*) FROM t WHERE age IS NOT DISTINCT FROM income",
    "SELECT COUNT(*) FROM t WHERE TRUE",
    "SELECT COUNT(*) FROM t WHERE 1 = 1 AND age > 3 AND 'a' <> 'b'",
    "SELECT COUNT(*) FROM t WHERE (age > 3 OR 1 = 2)",
    "SELECT COUNT(*) FROM t WHERE (TRUE AND (TRUE)) OR age > 3",
    "SELECT SUM(age) FILTER (WHERE TRUE) FROM t",
    "SELECT COUNT(*) FILTER (WHERE TRUE AND sex = 'F') FROM t",
    "SELECT sex, 3 AS three, COUNT(*) FROM t WHERE sex = 'F' GROUP BY sex HAVING COUNT(*) > 0",
    "SELECT 'all' AS label, SUM(age), -1.5 AS less FROM t",
    "SELECT sex, 'x', COUNT(*) FROM t GROUP BY ALL HAVING COUNT(*) > 0 ORDER BY 3",
    "WITH s AS (SELECT age, sex FROM t) SELECT 7, AVG(age) FROM s",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_form_of_another_database_is_answered_as_duckdb_answers_it(text: str, tmp_path: Path) -> None:
    vault = sf.open(PEOPLE, domain=DOMAIN, ledger=tmp_path / "ledger", limit=HUGE, create=True)
    answer = sf.query.sql(vault, text, epsilon=10**4)
    t = PEOPLE
    assert t is not None  # DuckDB reads it by its name
    rows = duckdb.sql(re.sub(r"SYMMETRIC (\d) AND (\d)", r"\2 AND \1", text)).fetchall()  # DuckDB has no SYMMETRIC
    keys = [[None if part == "(missing)" else part for part in key] for key in answer.keys]
    shown = [[*key, *(each.estimate for each in row)] for key, row in zip(keys, answer.values, strict=True)]
    assert [sorted(map(_plain, row)) for row in shown] == [sorted(map(_plain, row)) for row in rows]


def _plain(value: object) -> str:
    """Return a text or a number in one way."""
    try:
        return f"{float(str(value).lower().replace('true', '1').replace('false', '0')):.4f}"
    except ValueError:
        return str(value)


def test_a_having_clause_without_selected_aggregate_selects_its_aggregate(tmp_path: Path) -> None:
    vault = sf.open(PEOPLE, domain=DOMAIN, ledger=tmp_path / "ledger", limit=HUGE, create=True)
    answer = sf.query.sql(vault, "SELECT sex FROM t GROUP BY sex HAVING COUNT(*) > 100", epsilon=10**4)
    assert (answer.keys, answer.columns) == ((("M",),), ("count(*)",))


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("SELECT COUNT(*) FROM t WHERE sex = NULL", "SELECT COUNT(*) FROM t WHERE sex IS NULL"),
        (
            "SELECT COUNT(*) FROM t WHERE sex IN ('F', NULL)",
            "SELECT COUNT(*) FROM t WHERE (sex IN ('F') OR sex IS NULL)",
        ),
        ("SELECT COUNT(*) FROM t; SELECT 1", "SELECT COUNT(*) FROM t"),
        ("SELECT `sex`, COUNT(*) FROM t GROUP BY 1", 'SELECT "sex", COUNT(*) FROM t GROUP BY 1'),
        ("SELECT [sex], COUNT(*) FROM t GROUP BY 1", 'SELECT "sex", COUNT(*) FROM t GROUP BY 1'),
        ('SELECT COUNT(*) FROM t WHERE sex = "F"', "SELECT COUNT(*) FROM t WHERE sex = 'F'"),
        ("SELECT COUNT(*) FROM t WHERE sex = 'f'", "SELECT COUNT(*) FROM t WHERE sex = 'F'"),
        ("SELECT COUNT(*) FROM t WHERE sex = 'F' && age > 3", "SELECT COUNT(*) FROM t WHERE sex = 'F' AND age > 3"),
        ("SELECT AVG(age) 'mean age' FROM t", 'SELECT AVG(age) AS "mean age" FROM t'),
        ("SELCT COUNT(*) FROM t", "SELECT COUNT(*) FROM t"),
    ],
)
def test_a_refusal_shows_the_statement_that_was_meant(text: str, remedy: str) -> None:
    with pytest.raises(QueryError) as refused:
        read(text)
    assert refused.value.statements == (remedy,)
    read(remedy)


def test_a_pattern_over_a_column_with_other_texts_is_offered_as_a_list() -> None:
    towns = Domain((Categorical(name="town", values=("Ulm", "Aulendorf"), unknown=Unknown.CATEGORY),))
    with pytest.raises(QueryError) as refused:
        read("SELECT COUNT(*) FROM t WHERE town LIKE '%ul%'", towns)
    assert refused.value.statements == ("SELECT COUNT(*) FROM t WHERE town IN ('Aulendorf')",)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "SELECT CAST(seen AS DATE), COUNT(*) FROM t GROUP BY 1",
            "SELECT DATE_TRUNC('DAY', seen), COUNT(*) FROM t GROUP BY 1",
        ),
        (
            "SELECT STRFTIME(seen, '%Y-%m'), COUNT(*) FROM t GROUP BY 1",
            "SELECT DATE_TRUNC('MONTH', seen), COUNT(*) FROM t GROUP BY 1",
        ),
        (
            "SELECT DATEPART(month, seen), COUNT(*) FROM t GROUP BY 1",
            "SELECT EXTRACT(MONTH FROM seen), COUNT(*) FROM t GROUP BY 1",
        ),
        ("SELECT COUNT(*) FROM t WHERE n = '3'", "SELECT COUNT(*) FROM t WHERE n = 3"),
    ],
)
def test_a_part_of_a_date_is_offered_as_the_grammar_writes_it(text: str, remedy: str) -> None:
    at = {"type": "timestamp", "first": "2024-01-01", "last": "2024-02-29", "by": "hour", "zone": "UTC"}
    number = {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "drop"}
    attributes = {"seen": {**at, "unknown": "drop"}, "n": number}
    with pytest.raises(QueryError) as refused:
        read(text, parse_domain({"sfumato": 1, "unit": "row", "attributes": attributes}))
    assert refused.value.statements == (remedy,)


def test_a_table_that_from_lacks_is_named() -> None:
    with pytest.raises(QueryError, match="no table 'x' in FROM, which has t"):
        read("SELECT AVG(x.age) FROM t")


def read(text: str, domain: Domain = DOMAIN) -> None:
    """Read a statement as the command does."""
    try:
        parse(text, domain)
    except QueryError as refused:
        parse_with_view(text, domain, refused)


def test_a_condition_that_holds_for_no_row_is_refused() -> None:
    with pytest.raises(QueryError, match="the same for all rows; leave it out"):
        read("SELECT COUNT(*) FROM t WHERE 1 = 2")


@pytest.mark.parametrize(
    ("statement", "counted"),
    [
        ("SELECT DISTINCT sex FROM t", "SELECT sex, COUNT(*) FROM t GROUP BY sex"),
        ("SELECT DISTINCT sex AS s, member FROM t", "SELECT sex AS s, member, COUNT(*) FROM t GROUP BY sex, member"),
        ("SELECT sex FROM t GROUP BY sex ORDER BY 1", "SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY 1"),
        (
            "SELECT DISTINCT sex FROM t WHERE age > 3 LIMIT 1",
            "SELECT sex, COUNT(*) FROM t WHERE age > 3 GROUP BY sex LIMIT 1",
        ),
    ],
)
def test_groups_without_an_aggregate_are_counted(statement: str, counted: str) -> None:
    domain = DOMAIN
    read, expected = parse(statement, domain), parse(counted, domain)
    assert read.by == expected.by
    assert read.aggregates == expected.aggregates
    assert read.condition(domain) == expected.condition(domain)


@pytest.mark.parametrize("statement", ["SELECT sex FROM t", "SELECT DISTINCT * FROM t", "SELECT DISTINCT 3 FROM t"])
def test_rows_and_constants_alone_are_refused(statement: str) -> None:
    with pytest.raises(QueryError):
        parse(statement, DOMAIN)
