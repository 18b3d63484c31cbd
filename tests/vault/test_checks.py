"""Invalid questions are refused before anything is charged, for any data."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.vault.tables import table

from sfumato.domain import Domain, Integer, Unknown
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import DomainError, InputError, QueryError, SizeError
from sfumato.privacy.loss import Epsilon
from sfumato.vault.measurables import Counting, Distance, Marginal, Weighted
from sfumato.vault.scores import AbsoluteErrors, MarginalErrors
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.unit_measurables import Dropped, Units
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

ONE = Fraction(1)
NOWHERE = Among("a", frozenset({7}))
HALVES = Counting(("a",), np.eye(2, dtype=bool))
WRONG = {
    "unknown attribute": (Marginal(("nobody",)), DomainError),
    "attribute twice": (Marginal(("a", "a")), QueryError),
    "too few groups": (Marginal(("a", "b"), groups=((0, 1),)), QueryError),
    "code that is none": (Marginal((), where=NOWHERE), QueryError),
    "code that is none, deep": (Units((), where=All((Not(NOWHERE),))), QueryError),
    "code that is none, one of two": (Marginal((), where=Any((Among("a", frozenset({0})), NOWHERE))), QueryError),
    "code below none": (Dropped(1, Among("a", frozenset({-1}))), QueryError),
    "condition on nothing": (Marginal((), where=Among("nobody", frozenset({0}))), DomainError),
    "queries that are weights": (Counting(("a",), np.full((1, 2), 0.9)), QueryError),
    "negative queries": (Counting(("a",), np.full((1, 2), -5)), QueryError),
    "no queries": (Counting(("a",), np.ones((0, 2), dtype=bool)), QueryError),
    "weights that square past 64 bits": (Weighted(("a",), np.full((1, 2), 1 << 32)), SizeError),
    "the least integer, without an absolute value": (Weighted(("a",), np.array([[-(1 << 63), 0]])), SizeError),
    "weights that are too many": (Weighted(("a",), np.full((3, 2), 1 << 30)), SizeError),
    "real weights": (Weighted(("a",), np.full((1, 2), 0.5)), QueryError),
    "real reference": (Distance(("a",), np.array([0.5, 0.5])), QueryError),
    "reference without a distance in 64 bits": (Distance(("a",), np.array([1 << 62, 0])), QueryError),
    "sum in a negative unit": (Sum("b", (), Fraction(-1)), QueryError),
    "sum in no unit": (Sum("b", (), Fraction(0)), QueryError),
    "sum that overflows": (Sum("b", (), Fraction(1, 1 << 40)), SizeError),
    "sum by nobody": (Sum("b", ("nobody",), ONE), DomainError),
    "third moments": (Moments("b", (), ONE, 3), QueryError),
    "moments that overflow": (Moments("b", (), Fraction(1, 1 << 20), 2), SizeError),
    "positions with too few weights": (Positions("b", ONE, (1,)), QueryError),
    "positions with a weight below zero": (Positions("b", ONE, (1, -1)), QueryError),
    "positions with weights that are no integers": (Positions("b", ONE, (1, 0.5)), QueryError),
    "positions with too few parts": (Positions("b", ONE, (1, 1), (0,)), QueryError),
    "positions with a part left out": (Positions("b", ONE, (1, 1), (0, 2)), QueryError),
    "positions with a part that is no integer": (Positions("b", ONE, (1, 1), (0, True)), QueryError),
    "positions that overflow": (Positions("b", ONE, (1, 1 << 40)), SizeError),
    "positions of nobody": (Positions("nobody", ONE, (1, 1)), DomainError),
    "positions in no unit": (Positions("b", Fraction(0), (1, 1)), QueryError),
    "round numbers without steps": (RoundNumbers("b", ()), QueryError),
    "round numbers of steps that are no multiples": (RoundNumbers("b", (2, 5)), QueryError),
    "round numbers of a step zero": (RoundNumbers("b", (0, 5)), QueryError),
    "round numbers of nobody": (RoundNumbers("nobody", (5,)), DomainError),
    "bins that fall": (Bins("b", (1.0, 0.0), ()), QueryError),
    "bins of no width": (Bins("b", (0.0, 0.0), ()), QueryError),
    "bins without end": (Bins("b", (0.0, float("inf")), ()), QueryError),
    "dropped rows where every row is a unit": (Dropped(3), QueryError),
    "one edge": (Bins("b", (0.0,), ()), QueryError),
}
CANDIDATES = {
    "too few answers": AbsoluteErrors(HALVES, np.zeros(1, dtype=np.int64)),
    "answers beyond 64 bits": AbsoluteErrors(HALVES, np.array([-(1 << 63), 0])),
    "real answers": AbsoluteErrors(HALVES, np.zeros(2)),
    "none": MarginalErrors((), (), ()),
    "too few weights": MarginalErrors((Distance(("a",), np.zeros(2, dtype=np.int64)),) * 2, (ONE,), (ONE, ONE)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_question_is_refused_and_costs_nothing(name) -> None:
    question, error = WRONG[name]
    mechanisms = SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Epsilon(1))
    with pytest.raises(error):
        mechanisms.measure([Marginal(("a",)), question], Epsilon(1))
    mechanisms.measure([Marginal(("a",))], Epsilon(1))  # all of the loss is still there


@pytest.mark.parametrize("name", CANDIDATES)
def test_wrong_candidates_are_refused_and_cost_nothing(name) -> None:
    mechanisms = SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Epsilon(1))
    with pytest.raises(InputError):
        mechanisms.select(CANDIDATES[name], Epsilon(1))
    mechanisms.measure([Marginal(("a",))], Epsilon(1))


def test_tables_that_no_engine_holds_are_refused_together_and_counted_once_each() -> None:
    wide = Domain(tuple(Integer(name=name, minimum=0, maximum=9999, unknown=Unknown.CLAMP) for name in "xyz"))
    mechanisms = SimulatedVault(ArrayTable(wide, np.zeros((1, 3), dtype=np.int64)), seed=0).mechanisms(Epsilon(1))
    with pytest.raises(SizeError, match="200,000,000 cells"):
        mechanisms.measure([Marginal(("x", "y")), Marginal(("x", "z")), Marginal(("x", "z"))], Epsilon(1))
    with pytest.raises(SizeError):
        mechanisms.measure([Bins("x", tuple(map(float, range(100001))), ("y",))], Epsilon(1))
    mechanisms.measure([Marginal(("x",)), Marginal(("x",), groups=((0,) * 10000,))], Epsilon(1))


def test_candidates_whose_tables_no_engine_holds_are_refused_before_the_charge() -> None:
    wide = Domain(tuple(Integer(name=name, minimum=0, maximum=9999, unknown=Unknown.CLAMP) for name in "xyz"))
    encoded = ArrayTable(wide, np.zeros((1, 3), dtype=np.int64))
    one = ((0,) * 10000, None)
    distances = tuple(Distance(pair, np.zeros(10000, dtype=np.int64), groups=one) for pair in (("x", "y"), ("x", "z")))
    mechanisms = SimulatedVault(encoded, seed=0).mechanisms(Epsilon(1))
    with pytest.raises(SizeError, match="200,000,000 cells"):
        mechanisms.select(MarginalErrors(distances, (ONE, ONE), (ONE, ONE)), Epsilon(1))
    mechanisms.measure([Marginal(("x",))], Epsilon(1))
