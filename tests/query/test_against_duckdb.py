"""Answers at a very large epsilon equal DuckDB's for the same statement over the same rows."""

# ruff: noqa: S608 - statements are put together here

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Unit
from sfumato.domain.table_schema import parse_schema
from sfumato.domain.view import BoundedView, PerUnit, RowCount, Scan, UnitSum
from sfumato.errors import SfumatoError
from sfumato.privacy.loss import Epsilon
from sfumato.vault.schema_vault import SchemaVault, open_schema

LOSS = Epsilon(10**6)
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 99, "nullable": True, "unknown": "clamp"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "shop",
    "draft": False,
    "unit": {"id": "person", "table": "people"},
    "tables": {
        "people": {
            "key": "person",
            "attributes": {"sex": {"type": "categorical", "values": ["F", "M"], "nullable": False, "unknown": "drop"}},
        },
        "buys": {
            "key": "buy",
            "unit": "person",
            "rows": 5,
            "attributes": {
                "paid": NUMBER,
                "weight": {"type": "real", "edges": [0.0, 50.0, 100.0], "nullable": True, "unknown": "clamp"},
                "day": {
                    "type": "date",
                    "by": "day",
                    "first": "2024-01-01",
                    "last": "2024-12-31",
                    "nullable": True,
                    "unknown": "drop",
                },
                "kind": {
                    "type": "categorical",
                    "values": ["ale", "rye", "tea"],
                    "nullable": True,
                    "unknown": "category",
                },
                "gift": {"type": "categorical", "values": [False, True], "nullable": True, "unknown": "drop"},
            },
            "hierarchies": {"kind": {"levels": ["drink"], "rows": [["ale", "wet"], ["rye", "dry"], ["tea", "wet"]]}},
        },
    },
}


def tables() -> dict[str, pa.Table]:
    """People of whom some have no rows, and others only rows without values."""
    chance = random.Random(4)  # noqa: S311 - of test data
    people = [{"person": n, "sex": chance.choice("FM")} for n in range(300)]
    buys: list[dict[str, Any]] = []
    for person in range(250):
        empty = person % 5 == 0
        for _ in range(chance.randrange(1, 5)):
            values: dict[str, Any] = {"paid": chance.randrange(100), "weight": chance.randrange(400) / 4}
            values["gift"] = chance.random() < 0.3
            values["day"] = date(2024, 1, 1) + timedelta(days=chance.randrange(366))
            values["kind"] = chance.choice(["ale", "rye", "tea"])
            kept = {name: None if empty or chance.random() < 0.2 else value for name, value in values.items()}
            buys.append({"buy": len(buys), "person": person, **kept})
    return {"people": pa.Table.from_pylist(people), "buys": pa.Table.from_pylist(buys)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> SchemaVault:
    ledger = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.ledger'}"
    return open_schema(tables(), schema=parse_schema(DOCUMENT), ledger=ledger, limit=Epsilon(10**9), create=True)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, rows in tables().items():
            connection.register(name, rows)
        yield connection


def answers(vault: SchemaVault, text: str) -> dict[tuple[Any, ...], list[float]]:
    answer = sf.query.sql(vault, text, loss=LOSS)
    keys = answer.keys if answer.groups else ((),)
    assert len(set(keys)) == len(keys), "groups have labels of their own"
    return {
        tuple(str(label).lower() for label in key): [each.estimate for each in row]
        for key, row in zip(keys, answer.values, strict=True)
    }


def agree(vault: SchemaVault, connection: duckdb.DuckDBPyConnection, text: str, plain_text: str) -> None:
    ours = answers(vault, text)
    relation = connection.sql(plain_text)
    width = len(next(iter(ours.values())))
    rows = [(row[: len(row) - width], row[len(row) - width :]) for row in relation.fetchall()]
    expected = {
        tuple("(missing)" if label is None else str(label).lower() for label in key): numbers for key, numbers in rows
    }
    for key, numbers in expected.items():
        assert ours.pop(key) == pytest.approx(list(numbers), rel=1e-4, abs=0.05), (text, key)
    assert all(abs(number) < 1 for row in ours.values() for number in row), (text, ours)  # cells without rows


SPENT = "SELECT b.person, {} AS t FROM buys b GROUP BY b.person"
JOINED = "SELECT p.person, {} AS t FROM people p LEFT JOIN buys b USING (person) GROUP BY p.person"
BOUNDED = [
    ("SUM(b.paid)", "SUM(b.paid)"),
    ("SUM(b.weight)", "SUM(b.weight)"),
    ("SUM(b.paid - 50)", "SUM(b.paid - 50)"),
    ("LEAST(SUM(b.paid), 90)", "LEAST(SUM(b.paid), 90)"),
    ("LEAST(GREATEST(SUM(b.weight), 0), 60)", "LEAST(GREATEST(SUM(b.weight), 0), 60)"),
    ("LEAST(GREATEST(SUM(b.paid), 7), 90)", "LEAST(GREATEST(SUM(b.paid), 7), 90)"),
    ("GREATEST(LEAST(SUM(b.paid), 90), 7)", "GREATEST(LEAST(SUM(b.paid), 90), 7)"),
    ("MAX(b.paid)", "MAX(b.paid)"),
]
OUTER = ["SELECT COUNT(t) FROM ({}) AS x", "SELECT AVG(t), COUNT(*) FROM ({}) AS x", "SELECT SUM(t) FROM ({}) AS x",
         "SELECT COUNT(*) FROM ({}) AS x WHERE t IS NULL", "SELECT COUNT(*) FROM ({}) AS x WHERE t >= 0",
         "SELECT COUNT(*) FROM ({}) AS x WHERE NOT (t >= 0)"]  # fmt: skip


@pytest.mark.parametrize("rows", [SPENT, JOINED], ids=["some rows", "all people"])
@pytest.mark.parametrize(("ours", "theirs"), BOUNDED, ids=[theirs for _, theirs in BOUNDED])
def test_a_sum_of_nothing_is_missing(shop, plain, rows, ours, theirs):
    for outer in OUTER:
        agree(shop, plain, outer.format(rows.format(ours)), outer.format(rows.format(theirs)))


CONDITIONS = ["paid >= 50", "gift", "NOT gift", "paid >= 50 AND gift", "paid < 20 OR gift", "paid IS NULL"]
TRUTHS = ["SELECT t, COUNT(*) FROM ({}) AS x GROUP BY t", "SELECT COUNT(*) FROM ({}) AS x WHERE t IS NULL",
          "SELECT COUNT(t) FROM ({}) AS x", "SELECT COUNT(*) FROM ({}) AS x WHERE t",
          "SELECT COUNT(*) FROM ({}) AS x WHERE NOT t"]  # fmt: skip


@pytest.mark.parametrize("aggregate", ["BOOL_OR", "BOOL_AND"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_truth_value_of_nothing_is_missing(shop, plain, condition, aggregate):
    for rows in (SPENT, JOINED):
        for outer in TRUTHS:
            text = outer.format(rows.format(f"{aggregate}({condition})"))
            agree(shop, plain, text, text)


DRINK = "CASE WHEN kind IN ('ale', 'tea') THEN 'wet' WHEN kind = 'rye' THEN 'dry' END"
KEYS = [
    ("month(day)", "STRFTIME(day, '%Y-%m')"),
    ("DATE_TRUNC('month', day)", "STRFTIME(day, '%Y-%m')"),
    ("quarter(day)", "'2024-Q' || QUARTER(day)"),
    ("EXTRACT(MONTH FROM day)", "MONTH(day)"),
    ("weekday(day)", "DAYNAME(day)"),
    ("drink(kind)", DRINK),
    ("kind", "kind"),
    ("gift", "gift"),
    ("paid", "paid"),
]


@pytest.mark.parametrize(("key", "plain_key"), KEYS, ids=[key for key, _ in KEYS])
def test_labels_of_groups_are_unique_where_values_are_missing(shop, plain, key, plain_key):
    """Each kind of grouping of a nullable column, by each way in which it reaches an answer."""
    for count in ("COUNT(DISTINCT person)", "COUNT(*)", "COUNT(*), COUNT(DISTINCT person)"):
        ours, theirs = (f"SELECT {each} AS k, {count} FROM buys GROUP BY k" for each in (key, plain_key))
        agree(shop, plain, ours, theirs)
    by_person = (
        "SELECT k, COUNT(*) FROM (SELECT person, {} AS k, COUNT(*) AS n FROM buys GROUP BY person, k) AS x GROUP BY k"
    )
    agree(shop, plain, by_person.format(key), by_person.format(plain_key))


def test_cells_of_one_name_are_refused_before_a_charge(shop):
    spent = shop.remaining.spent
    band = "CASE WHEN gift THEN 'dear' WHEN NOT gift THEN '(missing)' END"
    with pytest.raises(
        SfumatoError, match=r"two cells of band are called '\(missing\)'; give one of them another name"
    ):
        sf.query.sql(shop, f"SELECT {band} AS band, COUNT(*) FROM buys GROUP BY band", loss=LOSS)
    assert shop.remaining.spent == spent


ENDS = ["LEAST(paid, 40)", "GREATEST(paid, 40)", "LEAST(paid, 120)", "GREATEST(-20, paid)", "LEAST(paid * 2 - 9, 40)",
        "LEAST(GREATEST(paid, 20), 80)", "GREATEST(LEAST(weight, 30.5), 2)", "GREATEST(weight, -7)",
        "1 + LEAST(paid, 150) * 2", "LEAST(CASE WHEN gift THEN paid END, 60)"]  # fmt: skip


@pytest.mark.parametrize("value", ENDS)
def test_least_and_greatest_ignore_what_is_missing(shop, plain, value):
    for selected in (f"SUM({value})", f"AVG({value}), COUNT({value})"):
        agree(shop, plain, *[f"SELECT {selected} FROM buys"] * 2)
    for where in (f"{value} > 30", f"NOT ({value} <= 30)", f"({value}) IS NULL"):
        agree(shop, plain, *[f"SELECT COUNT(*) FROM buys WHERE {where}"] * 2)
    by_person = f"SELECT SUM(t), COUNT(t) FROM (SELECT person, MAX({value}) AS t FROM buys GROUP BY person) AS x"
    agree(shop, plain, by_person, by_person)


LARGE = [Epsilon(2000), Epsilon(5000), LOSS]


@pytest.mark.parametrize("loss", LARGE, ids=str)
@pytest.mark.parametrize("bound", ["MIN", "MAX"])
def test_an_extreme_without_noise_is_the_row(shop, plain, bound, loss):
    for of, where in (("paid", "paid < 80"), ("paid", "paid >= 20"), ("weight", "weight < 50")):
        ((value,),) = sf.query.sql(shop, f"SELECT {bound}({of}) FROM buys WHERE {where}", loss=loss).values
        ((expected,),) = plain.sql(f"SELECT {bound}({of}) FROM buys WHERE {where}").fetchall()
        bins = 0 if of == "paid" else 100 / 4096
        assert abs(value.estimate - expected) <= bins
        assert value.low - 1e-9 <= expected <= value.high + 1e-9
        assert loss != LOSS or value.high - value.low <= bins + 1e-9


@pytest.mark.parametrize("name", ["VAR_POP", "STDDEV_POP"])
def test_a_variance_of_reals_states_the_rounding_of_its_grid(shop, plain, name):
    ((value,),) = sf.query.sql(shop, f"SELECT {name}(weight) FROM buys", loss=LOSS).values
    ((expected,),) = plain.sql(f"SELECT {name}(weight) FROM buys").fetchall()
    assert 0 < abs(value.estimate - expected) <= value.standard_error
    assert value.low <= expected <= value.high


@pytest.mark.parametrize("name", ["paid", "weight"])
def test_a_sum_that_may_be_missing_has_an_identity_of_its_own(name: str) -> None:
    """An answer that an earlier version stored, when such a sum was 0, answers no question of today."""
    table = parse_schema(DOCUMENT)["buys"]
    rows = Scan(table, "b", tuple(each.name for each in table.attributes))

    def described(sum_of_unit: UnitSum) -> str:
        counted = PerUnit(PerUnit(rows, (), (("t", sum_of_unit),)), (), (("n", RowCount(1, "t")),))
        return BoundedView(counted, Unit("person", rows=1)).canonical

    of_zero = UnitSum(name, Fraction(0), Fraction(9))
    assert f'{{"high":"9","is":"UnitSum","low":"0","of":"{name}"}}' in described(of_zero)
    assert described(of_zero) != described(replace(of_zero, missing=True))


FUNCTIONS = ["VAR_SAMP(paid)", "VARIANCE(paid)", "STDDEV(paid)", "STDDEV_SAMP(paid)", "SUM(paid)", "AVG(paid)",
             "COUNT(DISTINCT kind)", "COUNT(DISTINCT paid)", "COUNT(DISTINCT person)", "COUNT(kind)"]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_aggregates_and_their_filters_are_those_of_duckdb(shop, plain, function):
    for selected in (
        function,
        f"{function} FILTER (WHERE gift)",
        f"COUNT_IF(gift), {function} FILTER (WHERE paid < 50)",
    ):
        agree(shop, plain, *[f"SELECT {selected} FROM buys"] * 2)


@pytest.mark.parametrize("counted", ["b.kind", "CASE WHEN b.paid > 50 THEN 'much' ELSE 'little' END"])
def test_distinct_values_of_aliased_and_computed_columns_are_those_of_duckdb(shop, plain, counted):
    agree(shop, plain, *[f"SELECT COUNT(DISTINCT {counted}) FROM buys b WHERE b.gift"] * 2)
