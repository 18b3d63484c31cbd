"""The keywords of a loss: ``loss``, or ``epsilon`` with or without ``delta``, for every function of the families."""

from __future__ import annotations

import inspect
from fractions import Fraction

import pyarrow as pa
import pytest

from sfumato import query, synthesize
from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.open import open_table
from sfumato.errors import LossError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.vault.interface import stated_loss
from sfumato.vault.simulated import SimulatedVault

STATING = (
    *(query.ask, query.sql, query.Adaptive.ask, query.answer_batch, query.choose_quantile, query.linear_regression),
    *(query.suggest_bound, synthesize.auto, synthesize.options, synthesize.without_delta, synthesize.private_edges),
    *(synthesize.synthesize_linked, synthesize.linked_without_delta, synthesize.batched, synthesize.aim),
    *(synthesize.mst, synthesize.independent, synthesize.histogram, synthesize.marginals, synthesize.matrix),
    synthesize.mwem,
)


def test_numbers_are_exact_decimals() -> None:
    assert stated_loss({"epsilon": 0.1}) == Epsilon(Fraction(1, 10))
    assert stated_loss({"epsilon": "0.1", "delta": 1e-9}) == EpsilonDelta(Fraction(1, 10), Fraction(1, 10**9))
    assert stated_loss({"loss": Rho(1)}) == Rho(1)


@pytest.mark.parametrize(
    "stated",
    [{}, {"loss": None}, {"delta": 1e-9}, {"loss": Epsilon(1), "epsilon": 1}, {"loss": Rho(1), "delta": "1e-9"}],
)
def test_neither_and_both_are_refused_in_one_sentence(stated) -> None:
    with pytest.raises(LossError, match="state a loss once: as loss="):
        stated_loss(stated)


def test_numbers_that_are_no_loss_and_unknown_keywords_are_refused() -> None:
    with pytest.raises(LossError, match="epsilon must be greater than zero"):
        stated_loss({"epsilon": 0})
    with pytest.raises(TypeError, match="'epsilom'"):
        stated_loss({"epsilom": 1})


@pytest.mark.parametrize("function", STATING, ids=lambda function: function.__qualname__)
def test_every_function_shows_the_keywords_and_requires_one(function) -> None:
    parameters = inspect.signature(function).parameters
    assert {"loss", "epsilon", "delta"} <= parameters.keys()
    assert "stated" not in parameters
    required = [each for each in parameters.values() if each.default is each.empty]
    others = [None for each in required if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: None for each in required if each.kind is each.KEYWORD_ONLY}
    with pytest.raises(LossError, match="state a loss once"):
        function(*others, **named)


def test_an_epsilon_is_charged_as_the_loss_is() -> None:
    table = open_table(pa.table({"age": [30, 41, 30]}))
    domain = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.DROP),))
    vault = SimulatedVault(table.encode(domain), seed=1)
    one = query.sql(vault, "SELECT COUNT(*) FROM t", epsilon=0.1)
    other = query.sql(vault, "SELECT COUNT(*) FROM t", loss=Epsilon("0.1"))
    assert one.guarantee == other.guarantee
    total = synthesize.NoisyTotal()
    assert synthesize.mst(vault, epsilon=0.1, delta="1e-9", total=total).guarantee == (
        synthesize.mst(vault, loss=EpsilonDelta("0.1", "1e-9"), total=total).guarantee
    )
