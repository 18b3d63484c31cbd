"""Distinct values, sample variances and FILTER: their intervals hold as often as stated, and their tables are known."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query import ask
from sfumato.query.statements.select_statement import parse
from sfumato.vault.simulated import SimulatedVault

TOWNS = tuple(f"t{number:02}" for number in range(40))
DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
        Categorical(name="town", values=TOWNS, unknown=Unknown.DROP),
        Integer(name="income", minimum=0, maximum=100, edges=(0, 50), unknown=Unknown.CLAMP),
    )
)
SURE = Fraction(9, 10)
RANDOM = np.random.default_rng(4)
AGES = np.clip(RANDOM.normal(45, 15, 400), 0, 99).astype(np.int64)
PLACES = np.minimum(RANDOM.geometric(0.15, 400) - 1, 39)  # of 40 towns some have many rows, some few, some none
ENCODED = open_table(pa.table({"age": AGES, "town": [TOWNS[place] for place in PLACES], "income": AGES})).encode(DOMAIN)


def values(statement: str, epsilon: str, runs: int = 200):
    query = parse(statement, DOMAIN)
    return [
        ask(SimulatedVault(ENCODED, seed=seed), query, loss=Epsilon(epsilon), confidence=SURE).values[0][0]
        for seed in range(runs)
    ]


@pytest.mark.parametrize("epsilon", ["0.2", "1", "5"])
def test_the_number_of_distinct_values_lies_in_its_interval(epsilon):
    true = len(set(PLACES.tolist()))
    drawn = values("SELECT COUNT(DISTINCT town) FROM t", epsilon)
    assert sum(value.low <= true <= value.high for value in drawn) >= 180
    assert all(0 <= value.low <= value.high <= len(TOWNS) for value in drawn)
    if epsilon == "5":
        assert np.mean([value.high - value.low for value in drawn]) < 20  # of 40 that are possible


@pytest.mark.parametrize("function", ["VAR_SAMP", "STDDEV_SAMP"])
@pytest.mark.parametrize(("condition", "chosen"), [("", AGES >= 0), (" WHERE age >= 75", AGES >= 75)])
def test_the_sample_variance_lies_in_its_interval(function, condition, chosen):
    true = AGES[chosen].var(ddof=1)
    true = true if function == "VAR_SAMP" else true**0.5
    drawn = values(f"SELECT {function}(age) FROM t{condition}", "2")  # noqa: S608
    assert sum(value.low <= true <= value.high for value in drawn) >= 180


def test_filter_asks_for_the_table_that_where_asks_for():
    (filtered,) = parse("SELECT SUM(age) FILTER (WHERE town = 't01') FROM t", DOMAIN).aggregates
    whole = parse("SELECT SUM(age) FROM t WHERE town = 't01'", DOMAIN)
    (summed,) = whole.aggregates
    assert filtered.measurables((), None, DOMAIN) == summed.measurables((), whole.condition(DOMAIN), DOMAIN)


def test_distinct_values_of_cells_of_several_values_are_refused():
    with pytest.raises(QueryError, match="hold several values each"):
        parse("SELECT COUNT(DISTINCT income) FROM t", DOMAIN)
