"""Contradictions between two runs: the check itself must be able to fail."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.replay.tape import Draw, Tape, losses

from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho
from sfumato.privacy.selection import Exponential
from sfumato.privacy.threshold import StabilityThreshold

ONE = Epsilon(1).charge


def tape(charge: Charge, *draws: Draw) -> Tape:
    return Tape(drawn=[charge, *draws])


def sums(noise: DiscreteLaplace | DiscreteGaussian, *exact: int, declared: tuple[int, int] | None = None) -> Draw:
    return Draw(noise, np.array(exact, dtype=np.int64), None, declared)


@pytest.mark.parametrize(("moved", "units", "faults"), [(2, 1, 0), (3, 1, 1), (3, 2, 0), (5, 2, 1)])
def test_laplace_noise_loses_what_its_inputs_move_by(moved: int, units: int, faults: int) -> None:
    noise = DiscreteLaplace.for_loss(Epsilon(1), 2)
    left, right = tape(ONE, sums(noise, 5, 5)), tape(ONE, sums(noise, 5 + moved, 5))
    assert len([*losses(left, right, units=units)]) == faults


@pytest.mark.parametrize(("moved", "faults"), [((1, 1), 0), ((2, 0), 1)])
def test_gaussian_noise_loses_the_square(moved: tuple[int, int], faults: int) -> None:
    noise, charge = DiscreteGaussian.for_loss(Rho(1), 2), Rho(1).charge
    left, right = tape(charge, sums(noise, 0, 0)), tape(charge, sums(noise, *moved))
    assert len([*losses(left, right, units=1)]) == faults


def test_all_draws_of_a_charge_add_up_and_those_of_the_next_do_not() -> None:
    noise = DiscreteLaplace.for_loss(Epsilon("0.5"), 1)
    one, other = [sums(noise, 0)] * 3, [sums(noise, 1)] * 3
    assert [*losses(tape(ONE, *one[:2]), tape(ONE, *other[:2]), units=1)] == []
    assert len([*losses(tape(ONE, *one), tape(ONE, *other), units=1)]) == 1
    apart = [Tape(drawn=[ONE, *draws[:2], ONE, draws[2]]) for draws in (one, other)]
    assert [*losses(*apart, units=1)] == []


def test_a_sum_that_moves_beyond_what_is_declared_is_found() -> None:
    noise = DiscreteLaplace(1000)
    left, right = (tape(ONE, sums(noise, exact, declared=(2, 4))) for exact in (0, 3))
    (fault,) = losses(left, right, units=1)
    assert "declared is (2, 4)" in fault


@pytest.mark.parametrize(("scores", "faults"), [([1, 1, 0], 0), ([1, -1, 0], 0), ([2, 0, 0], 1), ([2, -1, 0], 2)])
def test_a_choice_loses_the_range_by_which_scores_move(scores: list[int], faults: int) -> None:
    mechanism = Exponential(Epsilon(1), sensitivity=1, monotone=False)
    left, right = (tape(mechanism.charge, Draw(mechanism, np.array(each), 0)) for each in ([0, 0, 0], scores))
    assert len([*losses(left, right, units=1)]) == faults


def test_scores_are_fractions_as_well() -> None:
    mechanism = Exponential(Epsilon(1), sensitivity=Fraction(1, 3), monotone=False)
    left, right = (
        tape(mechanism.charge, Draw(mechanism, [each, Fraction(1, 2)], 0)) for each in (Fraction(1), Fraction(4, 3))
    )
    assert [*losses(left, right, units=1)] == []


@pytest.mark.parametrize(
    ("held", "fault"), [({"a": 3}, False), ({"a": 4, "b": 1}, False), ({"a": 5}, True), ({"b": 1, "c": 1}, True)]
)
def test_a_unit_counts_once_in_each_of_its_keys(held: dict[str, int], *, fault: bool) -> None:
    mechanism = StabilityThreshold(EpsilonDelta(1, "1e-6"), keys_per_unit=2)
    left, right = (tape(mechanism.charge, Draw(mechanism, each, None)) for each in ({"a": 3}, held))
    assert bool([*losses(left, right, units=1)]) is fault


@pytest.mark.parametrize(
    "other",
    [
        tape(ONE),
        tape(ONE, sums(DiscreteLaplace(1), 1), sums(DiscreteLaplace(1), 1)),
        tape(ONE, sums(DiscreteLaplace(2), 1)),
        tape(ONE, sums(DiscreteLaplace(1), 1, 1)),
        tape(Epsilon(2).charge, sums(DiscreteLaplace(1), 1)),
    ],
    ids=["fewer", "more", "other noise", "other shape", "other charge"],
)
def test_runs_draw_alike(other: Tape) -> None:
    assert [*losses(tape(ONE, sums(DiscreteLaplace(1), 1)), other, units=1)]


def test_a_forced_tape_returns_what_was_recorded_and_keeps_its_own_inputs() -> None:
    recorded = Tape()
    assert recorded.draw("noise", np.zeros(2), "left") == "left"
    forced = Tape(recorded)
    assert forced.draw("noise", np.ones(2), "right") == "left"
    assert forced.drawn[0].exact.tolist() == [1, 1]
    assert forced.draw("noise", np.ones(2), "right") == "right", "there is nothing to be forced to"
