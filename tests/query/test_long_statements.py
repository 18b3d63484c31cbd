"""Long lists, long statements and many aggregates: answered like short ones, and journaled in little room."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import json
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Date, Domain, Grain, Integer, Timestamp, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.contingency import plan_covers
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.query import sql
from sfumato.query.plan import plan
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.sql_condition import LONGEST
from sfumato.vault.measurables import where_json

CELLS = 100_000
DOMAIN = Domain(
    (
        Integer(name="x", minimum=0, maximum=CELLS - 1, unknown=Unknown.DROP),
        *(Integer(name=f"v{place}", minimum=0, maximum=9, unknown=Unknown.CLAMP) for place in range(70)),
    )
)
ROWS = np.random.default_rng(5).integers(0, CELLS, 4_000)
LISTED = [number * 7919 % CELLS for number in range(10_000)]
HUGE = sf.Epsilon(10**7)


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    rows = {"x": ROWS} | {f"v{place}": ROWS % 10 for place in range(70)}
    path = tmp_path_factory.mktemp("long") / "long.ledger"
    return sf.open(pa.table(rows), domain=DOMAIN, ledger=f"sqlite:///{path}", limit=sf.Epsilon(10**9), create=True)


def counted(vault, where: str) -> int:
    return round(sql(vault, f"SELECT COUNT(*) FROM t WHERE {where}", loss=HUGE).value.estimate)


@pytest.mark.parametrize("spoken", ["x IN ({})", "x IN ({}) -- read by the parser of SQL"], ids=["plain", "parsed"])
def test_a_list_of_ten_thousand_values_is_answered(vault, spoken):
    assert counted(vault, spoken.format(", ".join(map(str, LISTED)))) == np.isin(ROWS, LISTED).sum()


def test_what_is_not_in_a_long_list_is_the_rest(vault):
    listed = ", ".join(map(str, LISTED))
    assert counted(vault, f"NOT (x IN ({listed}) OR x >= 50000)") == (~np.isin(ROWS, LISTED) & (ROWS < 50_000)).sum()


def test_a_statement_of_a_million_characters_is_answered(vault):
    text = "SELECT COUNT(*) FROM t WHERE x IN (1"
    text += ", 77777" * ((LONGEST - len(text) - 1) // 7)
    text += " " * (LONGEST - len(text) - 1) + ")"
    assert len(text) == LONGEST
    assert round(sql(vault, text, loss=HUGE).value.estimate) == np.isin(ROWS, [1, 77_777]).sum()
    with pytest.raises(QueryError, match="at most 1,000,000 characters"):
        parse(f"{text} ", DOMAIN)


def test_a_value_that_a_long_list_cannot_have_is_pointed_at():
    with pytest.raises(QueryError, match=r"line 2, column 3: 'x' holds numbers"):
        parse("SELECT COUNT(*) FROM t WHERE x IN (1,\n  'a', 3)", DOMAIN)


def aggregates(number: int) -> str:
    kinds = ["SUM({})", "AVG({})", "MEDIAN({})"]
    return ", ".join(f"{kinds[place % 3].format(f'v{place // 3}')} AS a{place}" for place in range(number))


def test_two_hundred_aggregates_are_answered_and_no_more(vault):
    found = sql(vault, f"SELECT {aggregates(200)} FROM t WHERE x < 60000", loss=HUGE)
    kept = (ROWS % 10)[ROWS < 60_000]
    assert [round(value.estimate) for value in found.values[0][::3]] == [kept.sum()] * 67
    with pytest.raises(QueryError, match="1 to 200 aggregates"):
        parse(f"SELECT {aggregates(201)} FROM t", DOMAIN)


def test_a_condition_is_journaled_once_however_many_aggregates_share_it():
    listed = f" FROM t WHERE x IN ({', '.join(map(str, LISTED[:1_000]))})"
    one = len(json.dumps(plan(parse(f"SELECT COUNT(*){listed}", DOMAIN), DOMAIN).parameters))
    many = len(json.dumps(plan(parse(f"SELECT {aggregates(200)}{listed}", DOMAIN), DOMAIN).parameters))
    without = len(json.dumps(plan(parse(f"SELECT {aggregates(200)} FROM t", DOMAIN), DOMAIN).parameters))
    assert one > 5_000
    assert many - without < one + 1_000


def parameters(text: str) -> str:
    return json.dumps(plan(parse(text, DOMAIN), DOMAIN).parameters)


def test_questions_under_different_conditions_keep_them_apart():
    """COUNT of a column with missing values has its own condition in addition to the shared one."""
    nullable = Domain((Integer(name="n", minimum=0, maximum=9, unknown=Unknown.DROP, nullable=True),))
    texts = [
        "SELECT COUNT(*), COUNT(n) FROM t WHERE n IS NULL OR n < 5",
        "SELECT COUNT(n), COUNT(*) FROM t WHERE n IS NULL OR n < 6",
    ]
    texts += ["SELECT COUNT(*), COUNT(n) FROM t", "SELECT COUNT(*) FROM t WHERE n < 5", "SELECT COUNT(n) FROM t"]
    said = [json.dumps(plan(parse(text, nullable), nullable).parameters) for text in texts]
    assert len(set(said)) == len(texts)
    assert parameters("SELECT SUM(v1), AVG(v2) FROM t WHERE x < 5") == parameters(
        "SELECT AVG(v2), SUM(v1) FROM t WHERE NOT x >= 5"
    )


DAYS = Date(name="d", first=date(1900, 1, 1), last=date(2029, 12, 31), by=Grain.DAY, unknown=Unknown.DROP)
HOURS = Timestamp(
    name="s", first=date(1990, 1, 1), last=date(2029, 12, 31), by=Grain.HOUR, zone="UTC", unknown=Unknown.DROP
)


@pytest.mark.parametrize(
    "where",
    [
        "d >= '1920-07-15' AND d < '2003-02-01'",
        "year(d) IN (1950, 1960)",
        "weekday(d) = 'Sunday'",
        "EXTRACT(HOUR FROM s) = 3",
        "EXTRACT(HOUR FROM s) BETWEEN 8 AND 17",
        "DATE_TRUNC('month', s) >= DATE '2003-02-01'",
        "EXTRACT(YEAR FROM s) <> 2000",
    ],
)
def test_a_condition_on_many_dates_is_journaled_in_little_room(where):
    domain = Domain((DAYS, HOURS))
    found = parse(f"SELECT COUNT(*) FROM t WHERE {where}", domain).condition(domain)
    assert len(json.dumps(where_json(found))) < 150


def test_groups_of_many_codes_are_journaled_by_their_digest():
    domain = Domain((DAYS,))
    by_month = parse("SELECT month(d), COUNT(*) FROM t GROUP BY month(d)", domain)
    by_year = parse("SELECT year(d), COUNT(*) FROM t GROUP BY year(d)", domain)
    said = [json.dumps(plan(query, domain).parameters) for query in (by_month, by_year)]
    assert max(map(len, said)) < 400
    assert said[0] != said[1]


@pytest.mark.parametrize(
    "codes", [[3], [3, 7], range(0, 99_000, 2), range(5, 90_000), LISTED, [*range(9), *range(0, 90_000, 3)]]
)
def test_an_engine_counts_by_many_ranges(codes):
    """This holds in arrays and in SQL, whose statement must not nest too deeply."""
    encoded = open_table(pa.table({"x": ROWS})).encode(DOMAIN.project(["x"]))
    where = Among("x", codes)
    expected = int(np.isin(ROWS, list(codes)).sum())
    assert int(reveal(encoded.marginals([()], where)[0])[0]) == expected
    (by_sql,) = encoded.store.tally(  # type: ignore[attr-defined]
        plan_covers([()], DOMAIN.shape[:1]), where
    )
    assert int(by_sql[0]) == expected


def test_a_query_takes_no_more_than_its_limit_of_aggregates():
    one = parse("SELECT COUNT(*) FROM t", DOMAIN).aggregates
    with pytest.raises(QueryError, match="1 to 200 aggregates"):
        Query(one * 201)
