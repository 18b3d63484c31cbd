"""Comparisons of declared texts with numbers and truth values, against DuckDB on the same rows."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import QueryError

PEOPLE = pa.table(
    {
        "flag": [None if n % 13 == 0 else n % 3 == 0 for n in range(200)],
        "word": [None if n % 7 == 0 else ("true", "false")[n % 2] for n in range(200)],
        "digit": [("0", "1", "2", "10")[n % 4] for n in range(200)],
        "name": [("a", "1")[n % 2] for n in range(200)],
        "town": [None if n % 9 == 0 else ("Ulm", " Bonn ", "Straße", "ab-cd", "")[n % 5] for n in range(200)],
        "kind": [("x", "y", "Xy")[n % 3] for n in range(200)],
        "age": [n % 12 for n in range(200)],
    }
)
DOMAIN = Domain(
    (
        Categorical(name="flag", values=(True, False), unknown=Unknown.DROP, nullable=True),
        Categorical(name="word", values=("true", "false"), unknown=Unknown.DROP, nullable=True),
        Categorical(name="digit", values=("0", "1", "2", "10"), unknown=Unknown.DROP),
        Categorical(name="name", values=("a", "1"), unknown=Unknown.CATEGORY),
        Categorical(name="town", values=("Ulm", " Bonn ", "Straße", "ab-cd", ""), unknown=Unknown.DROP, nullable=True),
        Categorical(name="kind", values=("x", "y", "Xy"), unknown=Unknown.DROP),
        Integer(name="age", minimum=0, maximum=11, unknown=Unknown.CLAMP),
    )
)


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    ledger = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/a.ledger"
    return sf.open(PEOPLE, domain=DOMAIN, ledger=ledger, limit=sf.Epsilon(10**9), create=True)


CONDITIONS = [
    "flag",
    "NOT flag",
    "flag = TRUE",
    "flag <> TRUE",
    "flag = 1",
    "flag = 0",
    "flag = 'true'",
    "flag IN (1)",
    "flag IS TRUE",
    "flag IS NOT TRUE",
    "flag IS FALSE",
    "NOT (flag IS FALSE)",
    "(flag AND digit = 1) IS NOT TRUE",
    "word = TRUE",
    "word IS NOT FALSE",
    "digit = 1",
    "1 <> digit",
    "digit IN (1, 10)",
    "digit > 1",
    "digit <= 2",
    "digit BETWEEN 1 AND 5",
    "digit < -1 OR digit >= 10",
    "CASE digit WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END = 'many'",
    "CASE WHEN flag THEN 1 ELSE 0 END = 1",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_is_met_by_the_rows_of_duckdb(vault, condition: str) -> None:
    text = f"SELECT COUNT(*) FROM people WHERE {condition}"
    people = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    expected = duckdb.sql(text.replace("digit", "CAST(digit AS INTEGER)")).fetchall()[0][0]  # it has < of numbers only
    assert round(sf.query.sql(vault, text, epsilon=10**5).values[0][0].estimate) == expected


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("digit = 7", "not a declared value of 'digit', which are '0', '1', '2', '10'"),
        ("digit > 'b'", "the values of 'digit' have no order"),
        ("digit = TRUE", "not a declared value of 'digit'"),
        ("name = 1", "not a declared value of 'name'"),
    ],
)
def test_a_literal_that_no_declared_value_reads_as_is_refused(vault, condition: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        sf.query.sql(vault, f"SELECT COUNT(*) FROM people WHERE {condition}", epsilon=1)


TEXTS = [
    "UPPER(town)",
    "LOWER(kind)",
    "TRIM(town)",
    "LTRIM(town)",
    "RTRIM(town, ' n')",
    "LEFT(town, 2)",
    "RIGHT(town, -1)",
    "SUBSTRING(town, 0, 2)",
    "SUBSTRING(town FROM 2 FOR 2)",
    "SUBSTR(town, -2)",
    "SUBSTR(town, -5, 3)",
    "REPLACE(town, 'n', 'm')",
    "REVERSE(kind)",
    "town || '-' || kind",
    "CONCAT(town, kind)",
    "kind || age",
    "COALESCE(town, 'none')",
    "COALESCE(NULLIF(TRIM(town), ''), kind)",
    "NULLIF(kind, 'x')",
    "UPPER(LEFT(TRIM(town), 1))",
    "LEFT(CAST(age AS VARCHAR), 1)",
    "UPPER(CASE WHEN age > 6 THEN 'old' ELSE 'young' END)",
    "CASE LOWER(kind) WHEN 'x' THEN 'one' ELSE 'other' END",
    "IF(kind = 'x', 'one', 'other')",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_groups_of_a_text_function_are_those_of_duckdb(vault, text: str) -> None:
    answer = sf.query.sql(vault, f"SELECT {text} AS part, COUNT(*) FROM people GROUP BY part", epsilon=10**6)
    people = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    rows = duckdb.sql(f"SELECT {text}, COUNT(*) FROM people GROUP BY 1").fetchall()
    expected = {"(missing)" if part is None else part: number for part, number in rows}
    counts = {key[0]: round(row[0].estimate) for key, row in zip(answer.keys, answer.values, strict=True)}
    assert {key: number for key, number in counts.items() if number} == expected


SELECTED = [
    "COUNT(DISTINCT UPPER(kind))",
    "SUM(LENGTH(town))",
    "COUNT(NULLIF(kind, 'x'))",
    "COUNT(*) FILTER (WHERE UPPER(town) = 'ULM')",
    "SUM(CASE WHEN UPPER(town) LIKE 'UL%' THEN age ELSE 0 END)",
]
MET = [
    "UPPER(kind) = 'XY'",
    "UPPER(kind) = UPPER('xy')",
    "LOWER(kind) IN ('x', 'y')",
    "LEFT(town, 1) <> 'U'",
    "TRIM(town) IS NULL",
    "NULLIF(town, '') IS NULL",
    "UPPER(town) LIKE '%N%'",
    "LENGTH(town) > 3",
    "LENGTH(TRIM(town)) BETWEEN 3 AND 4",
    "town SIMILAR TO '[A-Z].*'",
    "town NOT SIMILAR TO '[A-Z].*'",
    "REGEXP_MATCHES(town, 'l|n')",
    "kind || town = 'xUlm'",
    "COALESCE(town, 'none') = 'none' AND kind = 'x'",
]


@pytest.mark.parametrize("text", [f"SELECT {each} FROM people" for each in SELECTED])
@pytest.mark.parametrize("condition", ["", "WHERE LOWER(kind) <> 'y'"])
def test_an_aggregate_of_a_text_function_is_that_of_duckdb(vault, text: str, condition: str) -> None:
    assert round(sf.query.sql(vault, f"{text} {condition}", epsilon=10**6).values[0][0].estimate) == of_duckdb(
        f"{text} {condition}"
    )


@pytest.mark.parametrize("condition", MET)
def test_a_condition_on_a_text_function_is_met_by_the_rows_of_duckdb(vault, condition: str) -> None:
    text = f"SELECT COUNT(*) FROM people WHERE {condition}"
    assert round(sf.query.sql(vault, text, epsilon=10**6).values[0][0].estimate) == of_duckdb(text)


def of_duckdb(text: str) -> int:
    people = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    return round(duckdb.sql(text).fetchall()[0][0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT COUNT(*) FROM people WHERE UPPER(name) = 'A'", "'name' has a cell for values that are not declared"),
        ("SELECT COUNT(*) FROM people WHERE LEFT(town, 'x') = 'A'", "this must be a number of letters"),
        ("SELECT COUNT(*) FROM people WHERE UPPER(kind) = 'Q'", "not a declared value of 'UPPER"),
        ("SELECT COUNT(*) FROM people WHERE town SIMILAR TO '('", "this is no regular expression"),
        ("SELECT AVG(UPPER(kind)) FROM people", "categorical"),
    ],
)
def test_a_text_function_that_no_declared_values_have_is_refused(vault, text: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        sf.query.sql(vault, text, epsilon=1)
