"""Functions of the numbers of a row: the values of DuckDB, within the bounds from which sensitivity follows."""

# ruff: noqa: S608, S311 - statements and test data are put together here

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.query.test_against_duckdb import LOSS, agree, answers, plain, shop  # noqa: F401 - fixtures

import sfumato as sf
from sfumato.domain.attribute import Integer, Real
from sfumato.domain.table_schema import parse_schema
from sfumato.errors import QueryError
from sfumato.query.statements.table_statement import parse_tables
from sfumato.vault.schema_vault import open_schema

SUMMED = [
    "COALESCE(paid, 0)", "COALESCE(paid, weight, 3)", "COALESCE(weight, 7.5)", "NULLIF(paid, 10)",
    "NULLIF(paid, weight)", "ABS(paid - 50)", "ABS(weight - 50)", "ABS(paid)", "CEIL(weight)", "CEILING(weight / 3)",
    "FLOOR(weight)", "FLOOR(paid / 7) * 7", "ROUND(weight)", "ROUND(weight - 50)", "ROUND(weight, 1)",
    "ROUND(weight, -1)", "ROUND(paid, -1)", "ROUND(paid)", "CAST(weight AS INTEGER)", "CAST(weight - 50 AS BIGINT)",
    "CAST(paid AS DOUBLE)", "CAST(gift AS INTEGER)", "TRUNC(weight - 50)", "paid % 7", "(paid - 50) % 7",
    "MOD(paid, 200)", "weight % 7", "paid // 7", "(paid - 50) // 7", "weight // 7", "paid / (2 * 7)",
    "POWER(paid - 50, 2)", "POWER(weight, 2)", "(paid - 50) ** 3", "IF(paid > 50, 1, 0)", "IF(gift, paid, weight)",
    "LEAST(paid, weight)", "GREATEST(paid, weight, 30)", "LEAST(paid - 50, weight - 50)", "SIGN(paid - 50)",
    "SIGN(weight - 50)", "DATEDIFF('day', day, day)",
    "CASE WHEN ABS(paid - 50) > 20 THEN FLOOR(weight) ELSE COALESCE(paid, 1) END",
]  # fmt: skip


@pytest.mark.parametrize("value", SUMMED)
def test_functions_are_those_of_duckdb(shop, plain, value):  # noqa: F811
    agree(shop, plain, *[f"SELECT SUM({value}), COUNT({value}), COUNT(*) FROM buys"] * 2)


CLAUSES = [
    "SELECT COUNT(*) FROM buys WHERE ABS(paid - 50) > 20",
    "SELECT COUNT(*) FROM buys WHERE COALESCE(paid, 0) >= 18",
    "SELECT COUNT(*) FROM buys WHERE ROUND(weight, 1) >= 12.3",
    "SELECT COUNT(*) FROM buys WHERE NULLIF(paid, 10) IS NULL",
    "SELECT COUNT(*) FROM buys WHERE paid % 2 = 0 AND paid / 49 >= 1",
    "SELECT COUNT(*) FROM buys WHERE CAST(weight AS INTEGER) BETWEEN 10 AND 20",
    "SELECT AVG(ABS(paid - 50)), VAR_POP(FLOOR(weight)) FROM buys",
    "SELECT paid % 5, COUNT(*) FROM buys GROUP BY paid % 5",
    "SELECT paid // 10 * 10 AS band, COUNT(*), AVG(weight) FROM buys GROUP BY band",
    "SELECT CAST(FLOOR(paid / 10) AS INTEGER) AS band, COUNT(*) FROM buys GROUP BY 1",
    "SELECT CAST(paid AS VARCHAR) AS t, COUNT(*) FROM buys GROUP BY 1",
    "SELECT IF(paid > 50, 'much', 'little'), COUNT(*) FROM buys GROUP BY 1",
    "SELECT AVG(n) FROM (SELECT person, SUM(COALESCE(paid, 0)) AS n FROM buys GROUP BY person) AS t",
    "SELECT SUM(COALESCE(n, 0)), COUNT(*) FROM (SELECT person, SUM(paid) AS n FROM buys GROUP BY person) AS t",
    "SELECT sex, SUM(ROUND(weight)) FROM buys JOIN people USING (person) GROUP BY sex",
]


@pytest.mark.parametrize("text", CLAUSES)
def test_functions_work_in_each_clause(shop, plain, text):  # noqa: F811
    agree(shop, plain, text, text)


ANSWERS = [
    "SELECT POWER(COUNT(*) - 500, 2), SIGN(COUNT(*) - 9000), COUNT(*) // 7, TRUNC(AVG(paid) - 100, 1) FROM buys",
    "SELECT POWER(AVG(weight), 3), COUNT(paid) // (-7), ABS(AVG(paid) - 100) FROM buys",
    "SELECT paid, COUNT(*) AS n FROM buys GROUP BY paid HAVING paid * 1000 < 30000 OR paid * 2 > 120",
    "SELECT paid AS p, COUNT(*) AS n FROM buys GROUP BY paid HAVING ABS(p - 50) < 10 ORDER BY CAST(p AS INTEGER) + 5",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_functions_of_answers_and_groups(shop, plain, text):  # noqa: F811
    agree(shop, plain, text, text)


@pytest.mark.parametrize("order", ["CAST(paid AS VARCHAR) DESC", "(CAST(paid AS INTEGER) + 5) DESC", "ABS(50 - paid)"])
def test_groups_are_ordered_by_their_numbers_or_texts(shop, plain, order):  # noqa: F811
    text = f"SELECT paid, COUNT(*) AS n FROM buys WHERE paid IS NOT NULL GROUP BY paid ORDER BY {order}"
    expected = [str(paid) for paid, _ in plain.sql(text).fetchall()]
    ours = [paid for (paid,) in answers(shop, text) if paid in expected]
    if order.startswith("ABS"):  # of two groups at one distance either may come first
        expected, ours = ([abs(50 - int(paid)) for paid in each] for each in (expected, ours))
    assert ours == expected


def test_groups_that_no_row_can_have_are_left_out(shop):  # noqa: F811
    keys = answers(shop, "SELECT FLOOR(paid / 10) * 10 AS band, COUNT(*) FROM buys GROUP BY band")
    assert list(keys) == [*((str(10 * each),) for each in range(10)), ("(missing)",)]


def test_functions_that_change_nothing_ask_the_column(shop):  # noqa: F811
    plain_question = sf.query.sql(shop, "SELECT SUM(paid) FROM buys", loss=LOSS)
    for same in ("ABS(paid)", "ROUND(paid, 2)", "CAST(paid AS BIGINT)", "FLOOR(CAST(paid AS DOUBLE))", "paid::int"):
        spent = shop.remaining.spent
        assert sf.query.sql(shop, f"SELECT SUM({same}) FROM buys", loss=LOSS).values == plain_question.values
        assert shop.remaining.spent == spent


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("POWER(paid, 0.5)", "POWER of a row takes a whole exponent from 1 to 8"),
        ("paid % weight", "a division by a column could fail, depending on the data; divide by a number"),
        ("paid // 0", "division by zero is not possible"),
        ("ROUND(paid, weight)", "round to a whole number of digits|number stands here|literal"),
        ("CAST(kind AS INTEGER)", "the declared values of 'kind' are not all numbers; use CASE WHEN"),
        ("DATEDIFF('month', day, day)", "only days are counted between dates"),
        ("DATEDIFF(day, day)", "write DATEDIFF\\('day', a, b\\) for the days from a to b"),
        ("SQRT(paid)", "of a row compute with attributes"),
        ("paid + 'x'", "this must be a number; choose texts by CASE"),
        ("DATE '2024-01-01' - day", "days are counted between two dates of a row"),
        ("ROUND(" * 8 + "weight" + " * 1.5)" * 8, "nested too deeply; compute a part of it in a SELECT in FROM"),
        ("POWER(" * 9 + "weight" + " / 99, 2)" * 9, "nested too deeply; compute a part of it in a SELECT in FROM"),
    ],
)
def test_a_function_that_is_not_computed_is_refused(shop, value, words):  # noqa: F811
    with pytest.raises(QueryError, match=words):
        sf.query.sql(shop, f"SELECT SUM({value}) FROM buys", loss=LOSS)


# --- drawn expressions ------------------------------------------------------------------------------------------------

COLUMNS = {"a": (-20, 20), "b": (0, 50), "x": (-10, 10), "y": (0, 100)}
DRAWN: dict[str, Any] = {
    "sfumato": 2,
    "schema": "drawn",
    "unit": {"id": "person"},
    "tables": {
        "t": {
            "unit": "person",
            "rows": 1,
            "attributes": {
                name: {"nullable": True, "unknown": "clamp"}
                | ({"type": "integer", "minimum": low, "maximum": high} if name in "ab" else
                   {"type": "real", "edges": [low, high]})
                for name, (low, high) in COLUMNS.items()
            },
        }
    },
}  # fmt: skip


def drawn_rows(chance: random.Random) -> pa.Table:
    """Rows at and between the bounds, in quarters, some of them without values."""
    rows = []
    for person in range(400):
        row: dict[str, Any] = {"person": person}
        for name, (low, high) in COLUMNS.items():
            number = chance.choice([low, high, 0, chance.randint(low, high)])
            quarters = min(number + chance.choice([0, 0.25, 0.5, 0.75]), high)
            row[name] = None if chance.random() < 0.1 else number if name in "ab" else float(quarters)
        rows.append(row)
    types = [("person", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("x", pa.float64()), ("y", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema(types))


def drawn(chance: random.Random, depth: int) -> str:
    if not depth or chance.random() < 0.15:
        return chance.choice([*COLUMNS, str(chance.randint(-9, 9)), "2.5e0"])
    one, other = drawn(chance, depth - 1), drawn(chance, depth - 1)
    number = chance.choice(["2", "3", "7", "(-5)"])
    return chance.choice([
        f"({one} + {other})", f"({one} - {other})", f"({one} / {number})", f"(CAST({one} AS DOUBLE) / {number})",
        f"ABS({one})", f"SIGN({one})", f"FLOOR({one})", f"CEIL({one})", f"ROUND(CAST({one} AS DOUBLE))",
        f"ROUND(CAST({one} AS DOUBLE), -1)", f"CAST({one} AS BIGINT)", f"TRUNC(CAST({one} AS DOUBLE))",
        f"COALESCE({one}, {other})", f"NULLIF({one}, {other})", f"LEAST({one}, {other})", f"GREATEST({one}, {other})",
        f"(CAST({one} AS BIGINT) % {number})", f"(CAST({one} AS BIGINT) // {number})", f"POWER({one}, 2)",
        f"(x * {other})", f"CASE WHEN a > 3 THEN {one} ELSE {other} END",
    ])  # fmt: skip


def test_drawn_expressions_have_the_values_of_duckdb_within_their_bounds(tmp_path):
    """Every value equals DuckDB's, and none is beyond the bounds, to which the noise is scaled."""
    chance, schema = random.Random(11), parse_schema(DRAWN)
    rows, seen = drawn_rows(chance), 0
    vault = open_schema(
        {"t": rows},
        schema=schema,
        ledger=f"sqlite:///{tmp_path / 'drawn.ledger'}",
        limit=sf.Epsilon(10**15),
        create=True,
    )
    with duckdb.connect() as connection:
        connection.register("t", rows)
        while seen < 60:
            value = drawn(chance, 3)
            ((low, high, total, count),) = connection.sql(
                f"SELECT MIN(v), MAX(v), SUM(v), COUNT(v) FROM (SELECT CAST({value} AS DOUBLE) AS v FROM t)"
            ).fetchall()
            text, domain = f"SELECT SUM({value}), COUNT({value}) FROM t", None
            with suppress(QueryError):  # a number could be too large, or be nothing but NULL
                domain = parse_tables(text, schema).view.domain
            made = None if domain is None else domain[domain.names[-1]]
            if made is None or made.name in COLUMNS:
                continue
            seen += 1
            assert isinstance(made, Integer | Real)
            if count:
                room = 1e-9 * max(1, abs(low), abs(high))
                assert made.minimum - room <= low <= high <= made.maximum + room, value
            ours = sf.query.sql(vault, text, loss=sf.Epsilon(10**9)).values[0]
            widest = max(1.0, abs(float(made.minimum)), abs(float(made.maximum)))
            assert float(ours[1]) == pytest.approx(count, abs=0.01), value
            assert float(ours[0]) == pytest.approx(float(total or 0), abs=1e-4 * widest, rel=1e-6), value
