"""Expressions over noisy answers: DuckDB's numbers at a very large epsilon, and intervals that hold at small ones."""

# ruff: noqa: S608 - statements are put together here

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from tests.query.test_against_duckdb import LOSS, agree, plain, shop  # noqa: F401 - fixtures

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.query import Average, Count, Total, ask
from sfumato.query.answer import json_pieces
from sfumato.query.answer_expression import AnswerFunction, Linear, NoisyNumbers, added, aggregate_at, quotient
from sfumato.query.plan import accuracy
from sfumato.query.statements.select_statement import parse
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP, nullable=True),
        Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),
        Integer(name="income", minimum=-20, maximum=100, unknown=Unknown.CLAMP, nullable=True),
        Real(name="weight", edges=(0.0, 50.0, 100.0), unknown=Unknown.CLAMP),
    )
)
PEOPLE = pa.table(
    {
        "sex": [None if n % 11 == 0 else "FMM"[n % 3] for n in range(300)],
        "age": [n * n % 8 for n in range(300)],  # no row has all ages, so groups are empty
        "income": [None if n % 8 == 0 else n % 97 - 9 for n in range(300)],
        "weight": [n % 81 + 0.5 for n in range(300)],
        "city": [f"city {n % 2}" for n in range(300)],
    }
)
EXPRESSIONS = [
    "COUNT(*) + 100",
    "(SUM(age))",
    "-COUNT(*)",
    "2.5 * SUM(age) + 3 * COUNT(*) - SUM(income) / 4",
    "COUNT(*) - COUNT(income)",
    "COUNT(*) - COUNT(age)",
    "SUM(income) / COUNT(*)",
    "SUM(income) / COUNT(income)",
    "100.0 * SUM(age) / COUNT(*)",
    "SUM(income) / SUM(age)",
    "SUM(age) / NULLIF(COUNT(income), 0)",
    "(COUNT(*) + COUNT(income)) * 2 - 1",
    "COUNT(*) * AVG(age)",
    "AVG(weight) / AVG(age)",
    "ROUND(AVG(income), 2)",
    "ROUND(SUM(income), -2)",
    "ROUND(100.0 * COUNT(income) / COUNT(*), 1)",
    "FLOOR(AVG(income))",
    "CEIL(AVG(income))",
    "ABS(SUM(age) - SUM(weight))",
    "COALESCE(SUM(income), 0)",
    "IFNULL(AVG(income), 0) * 2",
    "CAST(AVG(income) AS INTEGER)",
    "AVG(income)::DOUBLE",
    "CAST(AVG(income) AS DECIMAL(10, 1))",
    "GREATEST(COUNT(*), 120)",
    "LEAST(AVG(income), 40, SUM(age))",
]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory):
    ledger = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'a.ledger'}"
    return sf.open(PEOPLE, domain=DOMAIN, ledger=ledger, limit=Epsilon(10**9), create=True)


def duck(text: str) -> list[tuple]:
    people = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    return duckdb.sql(text).fetchall()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_computed_column_is_the_one_of_duckdb(vault, expression: str) -> None:
    for text in (
        f"SELECT {expression} AS x FROM people",
        f"SELECT sex, {expression} AS x, COUNT(*) FROM people GROUP BY sex ORDER BY sex",
        f"SELECT sex, {expression} AS x FROM people GROUP BY sex HAVING x < 120 ORDER BY x DESC",
        f"SELECT sex, {expression} FROM people GROUP BY sex ORDER BY {expression}, sex",
    ):
        answer = sf.query.sql(vault, text, loss=LOSS)
        place = len(answer.groups)
        theirs = duck(text)
        assert [row[0].estimate for row in answer.values] == pytest.approx(
            [float(row[place]) for row in theirs], rel=1e-4, abs=0.01
        ), text
        for row, values in zip(theirs, answer.values, strict=True):
            assert values[0].low - 0.02 <= float(row[place]) <= values[0].high + 0.02


@pytest.mark.parametrize(
    "expression",
    ["COUNT(*) + 100", "100.0 * SUM(CASE WHEN gift THEN 1 ELSE 0 END) / COUNT(*)", "SUM(paid) / COUNT(*)",
     "ROUND(AVG(paid + 1), 1)", "SUM(paid * 2) - SUM(weight)", "COUNT(DISTINCT person) * 1.0 / COUNT(*)",
     "(COUNT(kind))", "COALESCE(SUM(CASE WHEN paid > 40 THEN paid END), 0)"],
)  # fmt: skip
def test_linked_tables_compute_as_one_table_does(shop, plain, expression: str) -> None:  # noqa: F811
    for text in ("SELECT {} FROM buys", "SELECT sex, {} FROM buys JOIN people USING (person) GROUP BY sex",
                 "SELECT DISTINCT kind, {} FROM buys GROUP BY kind HAVING COUNT(*) > 0 ORDER BY 2"):  # fmt: skip
        measured = ", COUNT(*)" if "HAVING" in text else ""
        agree(shop, plain, *[text.format(expression + measured)] * 2)


def test_a_computed_column_costs_what_is_inside_and_is_the_same_release(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'a.ledger'}"
    vault = sf.open(PEOPLE, domain=DOMAIN, ledger=ledger, limit=Epsilon(10), create=True)
    plain_answer = sf.query.sql(vault, "SELECT COUNT(*), SUM(income) FROM people", loss=Epsilon(1))
    text = "SELECT SUM(income) / COUNT(*) AS r, COUNT(*) + 1, COUNT(*) * 2 - SUM(income), COUNT(*) - COUNT(age) FROM t"
    computed = sf.query.sql(vault, text, loss=Epsilon(1))
    assert vault.remaining.spent.epsilon == 1
    assert computed.provenance == plain_answer.provenance
    count, total = plain_answer.values[0]
    ratio, more, both, nothing = computed.values[0]
    assert ratio.estimate == pytest.approx(total.estimate / count.estimate)
    assert (more.estimate, *more.interval) == (count.estimate + 1, count.low + 1, count.high + 1)
    assert both.standard_error == pytest.approx(np.hypot(2 * count.standard_error, total.standard_error))
    assert (nothing.estimate, nothing.standard_error, *nothing.interval) == (0, 0, 0, 0)  # one noisy table
    assert computed.columns == ("r", "COUNT(*) + 1", "COUNT(*) * 2 - SUM(income)", "COUNT(*) - COUNT(age)")
    assert any(note.startswith("computed from noisy answers, at no cost: r;") for note in computed.notes)


def test_every_form_of_an_answer_has_the_computed_columns(vault) -> None:
    text = "SELECT age, ROUND(AVG(income), 1) AS pay, SUM(income) / AVG(income) AS r FROM t GROUP BY age"
    answer = sf.query.sql(vault, text, loss=Epsilon(2))
    document = json.loads(b"".join(json_pieces(answer)))
    assert document == answer.to_json()
    assert document["columns"] == ["pay", "r"]
    assert [*answer.rows[0]][:5] == ["age", "pay", "pay_error", "pay_low", "pay_high"]
    assert answer.to_arrow().column_names[1:5] == ["pay", "pay_error", "pay_low", "pay_high"]
    for value in document["rows"][9]["values"]:  # nobody is 9 years old, and JSON has no infinity
        assert value["low"] <= value["estimate"] <= value["high"]
    with pytest.raises(QueryError, match="cannot be made"):
        sf.query.non_negative_integers(answer)


def test_a_mean_is_measured_instead_of_a_sum_and_a_count() -> None:
    better = parse("SELECT 100 * SUM(age) / COUNT(*) AS share FROM t", DOMAIN)
    assert better.aggregates == (Average("age"),)
    assert better.columns[0].note == "share: sum(age) / count(*) is measured as mean(age), which has a smaller error"
    assert parse("SELECT SUM(income) / COUNT(income) FROM t", DOMAIN).aggregates == (Average("income"),)
    missing = parse("SELECT SUM(income) / COUNT(*) FROM t", DOMAIN)  # the sum is of fewer rows
    assert missing.aggregates == (Total("income"), Count())
    both = parse("SELECT SUM(age), COUNT(*), SUM(age) / COUNT(*) FROM t", DOMAIN)
    assert both.aggregates == (Total("age"), Count())
    having = parse("SELECT 1 + SUM(age) / COUNT(*) AS x FROM t HAVING COUNT(*) > 2 AND x > 1 ORDER BY x", DOMAIN)
    assert having.aggregates == (Count(), Average("age"))
    assert having.columns[0].expression == Linear(Fraction(1), ((1, Fraction(1)),))
    both = parse("SELECT SUM(age) / COUNT(*) FROM t HAVING COUNT(*) > 2 AND SUM(age) > 1", DOMAIN)
    assert both.aggregates == (Total("age"), Count())
    also = parse("SELECT COUNT(*), SUM(age) / COUNT(*) FROM t HAVING COUNT(*) > 2", DOMAIN)
    assert also.aggregates == (Count(), Average("age"))


def test_the_error_of_a_sum_is_known_before_it_is_asked(vault) -> None:
    query = parse("SELECT COUNT(*) - COUNT(income) AS n, SUM(income) / COUNT(*) AS r FROM t", DOMAIN)
    expected = {each.name: each for each in accuracy(DOMAIN, query, Epsilon(1), confidence="0.9")}
    assert list(expected) == ["count(*)", "count(income)", "sum(income)", "n"]
    value = sf.query.ask(vault, query, loss=Epsilon(1), confidence="0.9").values[0][0]
    assert value.standard_error == pytest.approx(expected["n"].standard_error)
    assert value.high - value.low == pytest.approx(2 * expected["n"].half_width)


REFUSED = [
    ("SELECT COUNT(*) + age FROM t", "line 1, column 19: compute with aggregates.*age is no aggregate"),
    ("SELECT SQRT(COUNT(*)) FROM t", "compute with aggregates, numbers"),
    ("SELECT COUNT(*) / 0 FROM t", "division by zero is not possible"),
    ("SELECT CAST(COUNT(*) AS VARCHAR) FROM t", "TEXT is no number"),
    ("SELECT ROUND(COUNT(*), 0.5) FROM t", "round to a whole number of digits"),
    ("SELECT SUM(sex) + 1 FROM t", "sex"),
    ("SELECT COUNT(*) + 1 AS n, SUM(age) AS n FROM t", "two columns have the same name"),
    ("SELECT DISTINCT COUNT(*) FROM t GROUP BY sex", "drop answers that are equal by chance; select sex as well"),
    ("SELECT DISTINCT ON (sex) sex, COUNT(*) FROM t GROUP BY sex", "without ON"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_computed_is_refused_for_free(text: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        parse(text, DOMAIN)


def test_values_found_in_the_data_are_compared_with_literals(tmp_path: Path) -> None:
    loss, limit = EpsilonDelta(10, "1e-9"), EpsilonDelta(1000, "1e-6")
    vault = sf.open(PEOPLE, domain=DOMAIN, ledger=f"sqlite:///{tmp_path / 'a.ledger'}", limit=limit, create=True)
    text = "SELECT city, COUNT(*) + 1 AS n FROM t GROUP BY city"
    for having, keys in [
        ("city = 'city 1'", ["city 1"]),
        ("NOT city IN ('city 1', 'x')", ["city 0"]),
        ("city > 'city 0' OR n < 0", ["city 1"]),
        ("city IS NULL", []),
    ]:
        answer = sf.query.sql(vault, f"{text} HAVING {having}", loss=loss, groupable_undeclared=["city"])
        assert [key for (key,) in answer.keys] == keys
    assert vault.remaining.spent.epsilon is None or vault.remaining.spent.epsilon <= 10


SURE = Fraction(9, 10)
COVERED = [
    "COUNT(*) + COUNT(income)",
    "2 * COUNT(*) - COUNT(income) - COUNT(sex)",
    "3 * COUNT(*) - SUM(income)",
    "SUM(income) / COUNT(*)",
    "COUNT(income) / COUNT(sex)",
    "COUNT(income) * AVG(age)",
    "ROUND(AVG(age) / AVG(weight), 3)",
    "COALESCE(SUM(income) / COUNT(sex), 0)",
    "GREATEST(COUNT(income), COUNT(sex))",
]


GROUPS = 800
CHANCE = np.random.default_rng(9)
MANY = pa.table(
    {
        "cell": np.arange(GROUPS * 24) % GROUPS,
        "sex": pa.array(CHANCE.choice(np.array(["F", "M", None]), GROUPS * 24).tolist()),
        "age": CHANCE.integers(0, 10, GROUPS * 24),
        "income": pa.array([None if n % 8 == 0 else n % 121 - 20 for n in range(GROUPS * 24)]),
        "weight": CHANCE.integers(1, 100, GROUPS * 24) + 0.5,
    }
)


@pytest.mark.parametrize("loss", [Epsilon("0.4"), Epsilon(6), Rho("0.3")], ids=str)
def test_intervals_hold_as_often_as_they_say(tmp_path: Path, loss) -> None:
    """Each group has its own noise.  More misses happen once in a million times where the statement holds."""
    many = MANY  # noqa: F841  (DuckDB finds it by its name)
    domain = Domain((Integer(name="cell", minimum=0, maximum=GROUPS - 1, unknown=Unknown.DROP), *DOMAIN))
    ledger = f"sqlite:///{tmp_path / 'a.ledger'}"
    limit = Epsilon(1000) if isinstance(loss, Epsilon) else Rho(1000)
    vault = sf.open(MANY, domain=domain, ledger=ledger, limit=limit, create=True)
    for expression in COVERED:
        found = duckdb.sql(f"SELECT cell, {expression} FROM many GROUP BY cell ORDER BY cell").fetchall()
        exact = np.array([np.nan if x is None else float(x) for _, x in found])
        text = f"SELECT cell, {expression} FROM t GROUP BY cell"
        (each,) = sf.query.sql(vault, text, loss=loss, confidence=SURE).estimates
        margin = 1e-9 * (1 + np.abs(exact))
        missed = (exact < each.low - margin) | (exact > each.high + margin)
        draws = int((~np.isnan(exact)).sum())
        assert draws > GROUPS / 2, expression
        assert missed.sum() <= binom.ppf(1 - 1e-6, draws, float(1 - SURE)), expression
        if expression in COVERED[:3]:  # sums state the error of their noise
            assert np.nanstd(exact - each.value) == pytest.approx(each.error.mean(), rel=0.2), expression


def test_counts_with_filter_are_counts_in_expressions() -> None:
    """A share of filtered counts is not below zero, its interval is finite, and a sum of them has an exact error."""
    share = parse("SELECT COUNT(*) FILTER (WHERE age = 9) / COUNT(*) FILTER (WHERE age = 0) FROM t", DOMAIN)
    by_none = parse("SELECT COUNT(*) / COUNT(*) FILTER (WHERE age = 9) FROM t", DOMAIN)
    encoded = open_table(PEOPLE).encode(DOMAIN)
    for seed in range(30):
        vault = SimulatedVault(encoded, seed=seed)
        assert ask(vault, share, loss=Epsilon(2)).values[0][0].estimate >= 0
        assert ask(vault, by_none, loss=Epsilon(2)).values[0][0].high < 400
    both = parse("SELECT COUNT(*) FILTER (WHERE age = 0) + COUNT(*) AS both FROM t", DOMAIN)
    assert "both" in [error.name for error in accuracy(DOMAIN, both, Epsilon(2), confidence=Fraction(9, 10))]


@pytest.mark.parametrize("rows", [49, 98, 103])
def test_a_count_over_a_number_is_rounded_as_its_quotient(rows: int) -> None:
    query = parse("SELECT FLOOR(COUNT(*) / 49) FROM t", DOMAIN)
    encoded = open_table(PEOPLE.slice(0, rows)).encode(DOMAIN)
    value = ask(SimulatedVault(encoded, seed=1), query, loss=Epsilon(10**6)).values[0][0]
    assert (value.low, value.estimate, value.high) == (rows // 49,) * 3


def test_a_noisy_number_that_happens_to_be_zero_has_no_step() -> None:
    """Only the constant zero is a multiple of everything: a mean of 0.0 with an interval may be 0.3."""
    mean = NoisyNumbers(np.zeros(1), np.full(1, -1.0), np.ones(1), np.zeros(1, dtype=bool))
    count = NoisyNumbers(np.zeros(1), np.zeros(1), np.ones(1), np.zeros(1, dtype=bool), step=Fraction(1))
    one = NoisyNumbers(np.ones(1), np.ones(1), np.ones(1), np.zeros(1, dtype=bool), step=Fraction(1))
    both = AnswerFunction(quotient, (aggregate_at(0), added(aggregate_at(1), aggregate_at(2))))
    answer = both.evaluate({0: one, 1: mean, 2: count})
    assert answer.high[0] >= 1 / 0.3
