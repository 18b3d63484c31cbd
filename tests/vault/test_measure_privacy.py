"""The measurement is as private as claimed: exact losses over all small neighboring tables.

``tests/privacy`` proves the noise itself. Here every pair of neighbors is measured, the exact answers before noise are
recorded, and the loss that they imply is added up exactly.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.vault.tables import TINY, neighbours, people, table
from tests.vault.test_derived_privacy import DERIVED

from sfumato.domain.unit import SizeOf
from sfumato.errors import LossError, QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.vault.measurables import Counting, Distance, ExactTable, Marginal, Measurable, Weighted
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.unit_measurables import Dropped, Units, UnitSizes
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

QUESTIONS = {
    "count": [Marginal(())],
    "marginal": [Marginal(("a", "b"))],
    "marginals": [Marginal(("a",)), Marginal(("b",)), Marginal(("b", "a"))],
    "coarse": [Marginal(("a", "b"), groups=((0, 0), None))],
    "counting": [Counting(("a", "b"), np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]], dtype=bool))],
    "distance": [Distance(("a",), np.array([2, 0])), Distance(("b",), np.array([1, 1]))],
    "coarse distance": [Distance(("a", "b"), np.array([3, 1]), groups=(None, (0, 0)))],
    "sum": [Sum("b", (), Fraction(1)), Sum("b", ("a",), Fraction(1, 2))],
    "mean": [Moments("b", ("a",), Fraction(1), 1)],
    "variance": [Moments("b", (), Fraction(1, 2), 2)],
    "weighted": [Weighted(("a", "b"), np.array([[3, -1, 0, 2], [-4, 1, 5, 0]], dtype=np.int64))],
    "units": [Units(("a",)), Units(())],
    "units in several groups": [Units(("b", "a"))],
    "positions": [Positions("b", Fraction(1), (3, 5))],
    "positions in parts": [Positions("b", Fraction(1), (3, 5), (1, 0))],
    "round numbers": [RoundNumbers("b", (1, 2))],
    "bins": [Bins("b", (-2.0, -1.0, 1.0), ("a",))],
    "dropped": [Dropped(2), Dropped(1)],
    "sizes": [UnitSizes((1, 2)), UnitSizes((1, 3, 4))],
    "sizes by groups": [UnitSizes((1, 2), SizeOf(("a",), cells=True)), UnitSizes((1, 2, 3), SizeOf(("a",)))],
}
WHOLE_UNITS = ("dropped", "sizes", "sizes by groups")  # count rows beyond the bound too
ROWS_OF_A_UNIT = {name: questions for name, questions in QUESTIONS.items() if name not in WHOLE_UNITS}
BEYOND = 2  # rows of a person beyond the bound


def realised_loss(left, right, questions, loss, monkeypatch, shares=None) -> Fraction:
    """Exact loss between two tables: L1 / scale summed, or squared distance / (2 sigma^2) summed."""
    recorded: list[tuple[object, np.ndarray]] = []

    def record(mechanism, counts, _entropy):
        recorded.append((mechanism, counts))
        return counts

    monkeypatch.setattr(DiscreteLaplace, "add", record)
    monkeypatch.setattr(DiscreteGaussian, "add", record)
    for encoded in (left, right):
        SimulatedVault(encoded, seed=0).mechanisms(loss).measure(questions, loss, shares=shares)
    half = len(recorded) // 2
    spent = Fraction(0)
    for (noise, before), (same_noise, after) in zip(recorded[:half], recorded[half:], strict=True):
        assert noise == same_noise, "the noise may not depend on the data"
        moved = [int(value) for value in np.abs(before - after)]
        if isinstance(noise, DiscreteLaplace):
            spent += Fraction(sum(moved)) / noise.scale
        else:
            spent += Fraction(sum(value**2 for value in moved)) / (2 * noise.sigma_squared)
    return spent


def test_every_kind_of_question_is_enumerated() -> None:
    kinds = {*Measurable.__subclasses__(), *ExactTable.__subclasses__()} - {ExactTable}
    assert {type(question) for questions in [*QUESTIONS.values(), DERIVED] for question in questions} == kinds
    assert len(kinds) == 14


@pytest.mark.parametrize("name", ROWS_OF_A_UNIT)
def test_no_pair_of_neighbours_loses_more_than_the_loss_and_some_pair_loses_it_all(name, loss, monkeypatch) -> None:
    losses = [realised_loss(*pair, QUESTIONS[name], loss, monkeypatch) for pair in neighbours(2)]
    assert max(losses) <= loss.value
    assert max(losses) > loss.value * Fraction(7, 10), "30 % less noise must exceed the loss"


@pytest.mark.parametrize("bound", [2, 3])
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_person_with_several_rows_in_several_groups_loses_no_more(name, bound, loss, monkeypatch) -> None:
    """Every person of up to two rows beyond the bound is added to every table of at most one person."""
    pairs = people(1, bound, bound + BEYOND)
    losses = [realised_loss(*pair, QUESTIONS[name], loss, monkeypatch) for pair in pairs]
    assert max(losses) <= loss.value
    assert max(losses) > loss.value * Fraction(7, 10), "30 % less noise must exceed the loss"


def test_shares_divide_the_loss(loss, monkeypatch) -> None:
    shares = [Fraction(1, 10), Fraction(1, 5), Fraction(7, 10)]
    losses = [realised_loss(*pair, QUESTIONS["marginals"], loss, monkeypatch, shares) for pair in neighbours(1)]
    assert max(losses) == loss.value


@pytest.mark.parametrize("shares", [[1], [Fraction(1, 2)] * 3, [Fraction(0), Fraction(1, 2), Fraction(1, 2)]])
def test_wrong_shares_are_refused_before_anything_is_spent(shares) -> None:
    mechanisms = SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Epsilon(1))
    with pytest.raises(LossError, match="shares"):
        mechanisms.measure(QUESTIONS["marginals"], Epsilon(1), shares=shares)
    mechanisms.measure(QUESTIONS["marginals"], Epsilon(1))


@pytest.mark.parametrize(
    "question",
    [
        Counting(("a",), np.ones((1, 3), dtype=bool)),
        Distance(("a",), np.zeros(5, dtype=np.int64)),
        Marginal(("a",), groups=((0,),)),
        Marginal(("a",), groups=((0, 2),)),
        Distance(("a", "b"), np.zeros(4, dtype=np.int64), groups=((0, 0), None)),
    ],
    ids=str,
)
def test_questions_that_do_not_fit_are_refused(question) -> None:
    with pytest.raises(QueryError):
        SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Rho(1)).measure([question], Rho(1))


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(QueryError, match="there is no question"):
        SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Rho(1)).measure([], Rho(1))


def test_measurements_are_the_answers_plus_noise_of_the_stated_size(loss) -> None:
    rows = [(0, 0)] * 5 + [(1, 1)] * 7
    vault = SimulatedVault(table(rows), seed=1)
    drawn = np.array(
        [vault.mechanisms(loss).measure([Marginal(("a",))], loss)[0].values - np.array([5, 7]) for _ in range(4000)]
    )
    noise = vault.mechanisms(loss).measure([Marginal(("a",))], loss)[0].noise
    ratio = drawn.var() / noise.variance
    # 8000 draws: the ratio's standard deviation is below 0.03 even for Laplace tails; 30 % less noise gives 0.49
    assert 0.8 < ratio < 1.2
    assert TINY.unit.rows == 1
