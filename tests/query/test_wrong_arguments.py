"""Wrong arguments are refused in a sentence, before anything is reserved."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato import query
from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError, QueryError
from sfumato.privacy.loss import Rho
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
COUNT = query.count()
BATCH = query.Explicit(("age",), np.eye(10, dtype=bool))
ODD = (None, 5, "people.csv", [], {"a": 1}, DOMAIN, object())

ASKED = {
    "ask": lambda vault: query.ask(vault, COUNT, loss=Rho(1)),
    "sql": lambda vault: query.sql(vault, "SELECT COUNT(*) FROM t", loss=Rho(1)),
    "answer_batch": lambda vault: query.answer_batch(vault, BATCH, loss=Rho(1)),
    "choose_quantile": lambda vault: query.choose_quantile(vault, query.median("age").aggregates[0], loss=Rho(1)),
    "Session": lambda vault: query.Session(vault, budget=Rho(1), queries=2).ask(COUNT),
    "Adaptive": lambda vault: query.Adaptive(vault, budget=Rho(1)).ask(COUNT, loss=Rho("0.5")),
}


@pytest.fixture
def vault() -> SimulatedVault:
    return SimulatedVault(ArrayTable(DOMAIN, np.arange(30).reshape(30, 1) % 10), seed=1)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_what_is_no_vault_is_refused(ask, vault) -> None:
    for odd in ODD:
        with pytest.raises(InputError, match=r"the vault that sf\.open"):
            ask(odd)
    ask(vault)
    assert vault.reserved


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_what_is_no_query_is_refused(odd, vault) -> None:
    for refused in (
        lambda: query.ask(vault, odd, loss=Rho(1)),
        lambda: query.accuracy(DOMAIN, odd, Rho(1), confidence="0.95"),
        lambda: query.cost(DOMAIN, odd, 10, confidence="0.95"),
        lambda: query.Session(vault, budget=Rho(1), queries=2).ask(odd),
        lambda: query.Adaptive(vault, budget=Rho(1)).ask(odd, loss=Rho("0.5")),
    ):
        with pytest.raises(QueryError, match="the query must be a Query"):
            refused()
    with pytest.raises(QueryError, match="a workload"):
        query.answer_batch(vault, odd, loss=Rho(1))
    with pytest.raises(InputError, match="an Answer"):
        query.non_negative_integers(odd)
    assert not vault.reserved


@pytest.mark.parametrize("odd", ["x", 1.5, True, [3]], ids=repr)
def test_rows_supposed_are_whole(odd) -> None:
    with pytest.raises(InputError, match="whole number"):
        query.accuracy(DOMAIN, COUNT, Rho(1), confidence="0.95", rows=odd)


def test_domains_and_workloads_of_the_wrong_form_are_refused() -> None:
    for odd in (None, 5, {"age": 1}):
        with pytest.raises(InputError, match="a Domain"):
            query.accuracy(odd, COUNT, Rho(1), confidence="0.95")
        with pytest.raises(InputError, match="a Domain"):
            query.strategies(odd, BATCH, Rho(1))
        for ranges in (query.all_ranges, query.prefixes):
            with pytest.raises(InputError, match="a Domain"):
                ranges(odd, "age")
    rows = np.ones((1, 100), dtype=bool)
    for attributes, odd in (
        (5, rows),
        ("age", rows),
        ([5], rows),
        (("age",), [[True]]),
        ((), rows),
        (("age",) * 2, rows),
    ):
        with pytest.raises(QueryError):
            query.Explicit(attributes, odd)
    assert query.Explicit(["age"], rows).axes == ("age",)
