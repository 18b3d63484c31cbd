"""Comparisons of declared texts with numbers and truth values, against DuckDB on the same rows."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.errors import QueryError

PEOPLE = pa.table(
    {
        "flag": [None if n % 13 == 0 else n % 3 == 0 for n in range(200)],
        "word": [None if n % 7 == 0 else ("true", "false")[n % 2] for n in range(200)],
        "digit": [("0", "1", "2", "10")[n % 4] for n in range(200)],
        "name": [("a", "1")[n % 2] for n in range(200)],
    }
)
DOMAIN = Domain(
    (
        Categorical(name="flag", values=(True, False), unknown=Unknown.DROP, nullable=True),
        Categorical(name="word", values=("true", "false"), unknown=Unknown.DROP, nullable=True),
        Categorical(name="digit", values=("0", "1", "2", "10"), unknown=Unknown.DROP),
        Categorical(name="name", values=("a", "1"), unknown=Unknown.CATEGORY),
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
