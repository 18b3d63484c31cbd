from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import DomainError, LossError, QueryError
from sfumato.privacy.loss import NOTHING, Epsilon, Rho
from sfumato.query import ask, choose_quantile
from sfumato.query.aggregates import Quantile
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse
from sfumato.vault.simulated import SimulatedVault

MEDIAN = Quantile("income", Fraction(1, 2))


def test_a_chosen_quantile_is_nearer_to_the_truth_than_one_read_off_a_tree(encoded, table):
    income = table["income"].to_numpy(zero_copy_only=False)
    truth = np.median(income[(income >= 0) & (income <= 5000)])
    vault = SimulatedVault(encoded, seed=2)
    chosen = [abs(choose_quantile(vault, MEDIAN, loss=Epsilon(1)).value - truth) for _ in range(40)]
    read = [abs(ask(vault, Query((MEDIAN,)), loss=Epsilon(1)).value.estimate - truth) for _ in range(40)]
    assert np.mean(chosen) < np.mean(read) / 2


@pytest.mark.parametrize("loss", [Epsilon(1), Rho("0.5")], ids=str)
@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(1, 10)], ids=str)
def test_it_misses_the_rank_by_no_more_than_it_says(encoded, table, loss, probability):
    ages, vault = np.sort(table["age"].to_numpy()), SimulatedVault(encoded, seed=5)
    for _ in range(20):
        found = choose_quantile(vault, Quantile("age", probability), loss=loss)
        (bound,) = found.expected_error.values()
        low, high = (np.searchsorted(ages, found.value, side=side) for side in ("left", "right"))
        assert low - bound <= float(probability) * len(ages) <= high + bound


def test_large_integers_are_found_to_the_unit():
    domain = Domain((Integer(name="x", minimum=0, maximum=10**7, edges=(0, 5), unknown=Unknown.CLAMP),))
    values = np.arange(4001) * 3.0 + 1_000_000
    table = ArrayTable(domain, np.ones((4001, 1), dtype=np.int64), values={"x": values})
    found = choose_quantile(SimulatedVault(table, seed=1), Quantile("x", Fraction(1, 2)), loss=Epsilon(1))
    assert found.value == int(found.value)
    assert abs(found.value - 1_006_000) < 100


def test_it_is_charged_once_filtered_and_free_when_repeated(vault):
    where = parse("SELECT COUNT(*) FROM t WHERE sex = 'F'", vault.domain).where
    first = choose_quantile(vault, MEDIAN, loss=Epsilon(1), where=where)
    again = choose_quantile(vault, MEDIAN, loss=Epsilon(1), where=where)
    assert first.value == again.value
    assert "nothing" in again.cost
    assert vault.ledger.remaining().spent.epsilon == 1
    assert [entry.asked for entry in vault.ledger.journal()] == ["chosen median(income) where sex in F"]
    choose_quantile(vault, MEDIAN, loss=Epsilon(1))
    assert vault.ledger.remaining().spent.epsilon == 2


def test_a_chosen_value_is_one_that_rows_which_meet_the_condition_can_have(encoded):
    """At so small a loss any of the declared values is chosen."""
    vault = SimulatedVault(encoded, seed=4)
    for where, low, high in [("age BETWEEN 30 AND 40", 30, 40), ("age >= 30 AND band < 18 OR age = 7", 7, 99)]:
        found = [
            choose_quantile(vault, Quantile("age", Fraction(1, 2)), loss=Epsilon("1e-7"), where=where).value
            for _ in range(30)
        ]
        assert low <= min(found) <= max(found) <= high
    found = [choose_quantile(vault, MEDIAN, loss=Epsilon("1e-7"), where="income < 1000").value for _ in range(30)]
    assert max(found) < 1000


def test_a_quantile_of_values_that_no_row_can_have_is_refused_for_free(vault):
    with pytest.raises(QueryError, match="no row that meets this condition has a value of 'income'"):
        choose_quantile(vault, MEDIAN, loss=Epsilon(1), where="income IS NULL")
    assert vault.ledger.remaining().spent == NOTHING


def test_what_has_no_quantile_is_refused_for_free(vault):
    for quantile, error in [
        (Quantile("sex", Fraction(1, 2)), QueryError),
        (Quantile("x", Fraction(1, 2)), DomainError),
    ]:
        with pytest.raises(error):
            choose_quantile(vault, quantile, loss=Epsilon(1))
    with pytest.raises(QueryError):
        choose_quantile(vault, Quantile("age", Fraction(1, 10**9)), loss=Epsilon(1))
    for wrong in (0.1, "1", None):
        with pytest.raises(LossError):
            choose_quantile(vault, MEDIAN, loss=wrong)
    assert vault.ledger.remaining().spent == NOTHING


@pytest.mark.parametrize("wrong", [0.5, "1/2", 1, None])
def test_a_probability_is_a_fraction(wrong):
    with pytest.raises(QueryError, match="fraction"):
        Quantile("income", wrong)
