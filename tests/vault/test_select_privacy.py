"""The select and threshold mechanisms, compared with their exact output probabilities on tiny neighboring tables."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.vault.tables import neighbours, table

from sfumato.errors import BudgetError, QueryError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho
from sfumato.privacy.selection import Exponential
from sfumato.vault.measurables import Counting, Distance
from sfumato.vault.scores import AbsoluteErrors, MarginalErrors
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault

QUERIES = Counting(("a", "b"), np.array([[1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]], dtype=bool))
SCORES = {
    "absolute errors": AbsoluteErrors(QUERIES, np.array([1, 0, 0, 12])),
    "marginal errors": MarginalErrors(
        (
            Distance(("a",), np.array([0, 0])),  # rises with every row
            Distance(("a", "b"), np.array([5, 5, 5, 5])),  # falls with every row, and dominates
            Distance(("b",), np.array([1, 0])),
        ),
        weights=(Fraction(2), Fraction(2), Fraction(1, 2)),
        penalties=(Fraction(1), Fraction(14), Fraction(0)),
    ),
}


def log_probabilities(encoded, scores, loss, monkeypatch) -> np.ndarray:
    """Exact distribution of the mechanism's choice, from the mechanism and scores that it really uses."""
    used = []
    monkeypatch.setattr(Exponential, "choose", lambda self, values, _entropy: used.append((self, values)) or 0)
    SimulatedVault(encoded, seed=0).mechanisms(loss).select(scores, loss)
    ((mechanism, values),) = used
    rate = float(mechanism.epsilon.value / (2 * mechanism.sensitivity))
    logs = rate * np.array([float(value) for value in values])
    return logs - np.logaddexp.reduce(logs)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("unit_rows", [1, 2])
def test_no_choice_of_the_selection_tells_neighbours_apart_by_more_than_epsilon(name, unit_rows, monkeypatch) -> None:
    loss = Epsilon("0.9")
    gaps = []
    for left, right in neighbours(2, unit_rows=unit_rows):
        pair = [log_probabilities(encoded, SCORES[name], loss, monkeypatch) for encoded in (left, right)]
        gaps.append(np.abs(pair[0] - pair[1]).max())
    assert max(gaps) <= float(loss.value) + 1e-12
    assert max(gaps) > 0.7 * float(loss.value), "30 % more weight on the scores must exceed the loss"


@pytest.mark.parametrize("name", SCORES)
def test_a_choice_under_rho_has_bounded_range_of_sqrt_8_rho(name, monkeypatch) -> None:
    loss = Rho("0.125")  # bounded range 1
    for left, right in neighbours(2):
        before, after = (log_probabilities(encoded, SCORES[name], loss, monkeypatch) for encoded in (left, right))
        assert np.ptp(before - after) <= math.sqrt(8 * 0.125) + 1e-12


@pytest.mark.parametrize("name", SCORES)
def test_a_selection_on_its_own_is_charged_what_it_costs(name, tmp_path) -> None:
    """Under an (epsilon, delta) limit rho binds, and bounded range costs epsilon^2 / 8, not epsilon^2 / 2."""
    with open_ledger(
        f"sqlite:///{tmp_path / 'x.ledger'}", dataset="x", limit=EpsilonDelta(2, "1e-6"), create=True
    ) as ledger:
        vault = Vault(table([(0, 0)] * 9), ledger, UNDECLARED)
        vault.select(SCORES[name], Epsilon("0.2"))
        assert ledger.remaining().spent == Charge(Fraction(1, 5), Fraction(1, 200), Fraction(0))
        vault.select(SCORES[name], Rho("0.01"))
        assert ledger.remaining().spent.rho == Fraction(1, 200) + Fraction(1, 100)


def test_the_mechanism_prefers_the_worst_query() -> None:
    encoded = table([(1, 1)] * 40)
    picks = [
        SimulatedVault(encoded, seed=seed).mechanisms(Epsilon(2)).select(SCORES["absolute errors"], Epsilon(2))
        for seed in range(50)
    ]
    assert set(picks) == {1, 2}  # both miss 40; the others miss 1 and 28


def test_candidates_that_do_not_fit_or_weigh_nothing_are_refused_for_free() -> None:
    mechanisms = SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Epsilon(1))
    with pytest.raises(QueryError):
        mechanisms.select(
            AbsoluteErrors(Counting(("a",), np.ones((1, 4), dtype=bool)), np.zeros(1, dtype=np.int64)), Epsilon(1)
        )
    weightless = MarginalErrors((Distance(("a",), np.array([1, 0])),), (Fraction(0),), (Fraction(0),))
    with pytest.raises(QueryError, match="positive"):
        mechanisms.select(weightless, Epsilon(1))
    mechanisms.select(SCORES["absolute errors"], Epsilon(1))


def test_threshold_hides_what_one_person_brings_but_for_delta() -> None:
    loss = EpsilonDelta(1, "0.01")
    seen = sum(
        SimulatedVault(table([(0, 0)] * 60 + [(1, 1)]), seed=seed)
        .mechanisms(_threshold_charge(loss))
        .threshold(("a",), loss)
        .num_rows
        for seed in range(300)
    )
    # key 0 is held by 60 people and always shown; key 1 by one, shown with probability at most 0.01 a run
    assert 300 <= seen <= 300 + 20


def test_threshold_needs_its_delta_reserved() -> None:
    loss = EpsilonDelta(1, "1e-6")
    with pytest.raises(BudgetError):
        SimulatedVault(table([(0, 0)]), seed=0).mechanisms(Epsilon(1).charge).threshold(("a",), loss)


def _threshold_charge(loss: EpsilonDelta):
    from sfumato.privacy.threshold import StabilityThreshold

    return StabilityThreshold(loss, keys_per_unit=1).charge
