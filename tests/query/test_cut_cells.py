"""A comparison inside a cell is refused with working statements at its edges, and one for the values."""

from __future__ import annotations

from datetime import date

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Date, Domain, Integer, Real, Timestamp, Unit, Unknown
from sfumato.domain.calendar import Grain
from sfumato.errors import QueryError
from sfumato.query import sql

SURE = sf.Epsilon(10**6)  # so little noise that answers are exact after rounding
DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, edges=(0, 18, 30, 60, 75), unknown=Unknown.CLAMP),
        Real(name="income", edges=(0.0, 250.0, 500.0, 1000.5), unknown=Unknown.CLAMP, nullable=True),
        Date(name="day", first=date(2023, 1, 1), last=date(2023, 12, 31), unknown=Unknown.DROP, by=Grain.MONTH),
        Timestamp(
            name="seen",
            first=date(2023, 1, 1),
            last=date(2023, 12, 31),
            unknown=Unknown.DROP,
            by=Grain.DAY,
            zone="UTC",
        ),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    ),
    unit=Unit.row(),
)


@pytest.fixture(scope="module")
def people():
    days = [date(2023, 1 + n % 12, 1 + n % 28) for n in range(900)]
    return pa.table(
        {
            "age": [n * 7 % 100 for n in range(900)],
            "income": [None if n % 11 == 0 else float(n * 13 % 1000) for n in range(900)],
            "day": pa.array(days),
            "seen": pa.array(days).cast(pa.timestamp("us")),
            "sex": ["F" if n % 3 else "M" for n in range(900)],
        }
    )


@pytest.fixture(scope="module")
def vault(people, tmp_path_factory):
    ledger = f"sqlite:///{tmp_path_factory.mktemp('cut')}/people.ledger"
    return sf.open(people, domain=DOMAIN, ledger=ledger, limit=sf.Epsilon(10**9), create=True)


def refused(vault, where):
    with pytest.raises(QueryError, match="this cuts the cell") as error:
        sql(vault, f"SELECT COUNT(*) FROM people WHERE {where}", loss=SURE)  # noqa: S608
    start = "SELECT COUNT(*) FROM people WHERE "
    for statement in error.value.statements:
        assert statement in str(error.value)
    return [statement.removeprefix(start) for statement in error.value.statements]


CUTS = {
    "age >= 65": ["age >= 60", "age >= 75", "age + 0 >= 65"],
    "65 < age": ["age >= 60", "age >= 75", "65 < age + 0"],
    "age < 65": ["age < 75", "age < 60", "age + 0 < 65"],
    "age > 80": ["age >= 75", "age + 0 > 80"],
    "age = 65": ["age BETWEEN 60 AND 74", "age + 0 = 65"],
    "age BETWEEN 20 AND 64": ["age BETWEEN 18 AND 74", "age >= 30 AND age < 60", "age + 0 BETWEEN 20 AND 64"],
    "age BETWEEN 62 AND 64": ["age BETWEEN 60 AND 74", "age + 0 BETWEEN 62 AND 64"],
    "age IN (3, 20) AND sex = 'F'": [
        "((age BETWEEN 18 AND 29) OR age BETWEEN 0 AND 17) AND sex = 'F'",
        "age + 0 IN (3, 20) AND sex = 'F'",
    ],
    "income > 300": ["income >= 250", "income >= 500", "income + 0 > 300"],
    "income > 250": ["income >= 250", "income >= 500", "income + 0 > 250"],
    "income <= 700": ["income <= 1000.5", "income < 500", "income + 0 <= 700"],
    "income = 300": ["income >= 250 AND income < 500"],
    "day >= '2023-03-05'": ["day >= DATE '2023-03-01'", "day >= DATE '2023-04-01'"],
    "day = DATE '2023-03-05'": ["day BETWEEN DATE '2023-03-01' AND DATE '2023-03-31'"],
    "seen < TIMESTAMP '2023-03-05 06:00:00'": [
        "seen < TIMESTAMP '2023-03-06 00:00:00'",
        "seen < TIMESTAMP '2023-03-05 00:00:00'",
    ],
}


@pytest.mark.parametrize("where", CUTS)
def test_a_cut_cell_is_refused_with_statements_at_its_edges(vault, where):
    assert refused(vault, where) == CUTS[where]


@pytest.mark.parametrize("where", CUTS)
def test_the_statements_answer_what_duckdb_answers_with_the_exact_number_between(people, vault, where):
    rows = duckdb.from_arrow(people)

    def exactly(condition):
        return rows.filter(condition).aggregate("count(*)").fetchall()[0][0]

    counts = [exactly(each) for each in CUTS[where]]
    for condition, count in zip(CUTS[where], counts, strict=True):
        answer = sql(vault, f"SELECT COUNT(*) FROM people WHERE {condition}", loss=SURE)  # noqa: S608
        assert round(answer.values[0][0].estimate) == count
    assert counts[0] >= exactly(where)
    if "+ 0" in CUTS[where][-1]:
        assert counts[-1] == exactly(where)
    if len(counts) > 1 and "+ 0" not in CUTS[where][1]:
        assert exactly(where) >= counts[1]


def test_several_cuts_of_one_statement_are_mended_together(vault):
    assert refused(vault, "age > 20 OR NOT (income < 300 AND day > '2023-05-05')") == [
        "age >= 18 OR NOT (income < 500 AND day >= DATE '2023-05-01')",
        "age >= 30 OR NOT (income < 250 AND day >= DATE '2023-06-01')",
    ]
