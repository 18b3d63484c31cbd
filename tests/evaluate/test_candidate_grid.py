from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Domain
from sfumato.evaluate.frontier import answered_pairs, batched, grid, mondrian, randomised
from sfumato.evaluate.released import Released, Rows
from sfumato.evaluate.utility.scorecard import marginal_score
from sfumato.privacy.loss import EpsilonDelta


@pytest.fixture(scope="module")
def rows(people) -> Rows:
    everybody = people.population(3000, seed=3)
    return Rows(everybody.domain.project(["town", "job", "rich", "rooms"]), everybody.codes[:, [1, 2, 4, 5]])


def test_every_family_is_run_and_names_are_distinct():
    candidates = grid(("town", "job"))
    assert {each.family for each in candidates} == {
        "synthetic table",
        "k-anonymity",
        "answered queries",
        "local reports",
    }
    assert len({each.name for each in candidates}) == len(candidates)
    assert all(each.claim.loss for each in candidates if each.family != "k-anonymity")


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: batched(rows, loss=EpsilonDelta(20, "1e-6")),
        lambda rows: mondrian(rows, k=2),
        lambda rows: answered_pairs(rows, loss=EpsilonDelta(20, "1e-6")),
        lambda rows: randomised(rows, epsilon=Fraction(40)),
    ],
)
def test_weak_protection_is_close_to_the_table(rows, make):
    assert marginal_score(Released.raw(rows), make(rows), ways=2) > 0.9


def test_k_anonymous_rows_come_in_classes(rows):
    release = mondrian(rows, k=10)
    assert np.unique(release.codes, axis=0, return_counts=True)[1].min() >= 10
    partly = mondrian(rows, k=10, quasi=("town", "rooms"))
    places = [partly.domain.index(name) for name in ("town", "rooms")]
    assert np.unique(partly.codes[:, places], axis=0, return_counts=True)[1].min() >= 10
    np.testing.assert_array_equal(partly.marginal(("job", "rich")), Released.raw(rows).marginal(("job", "rich")))


def test_a_column_of_one_value_needs_no_noise(rows):
    constant = Rows(Domain(rows.domain.attributes), np.where(np.arange(4) == 1, 0, rows.codes))
    assert randomised(constant, epsilon=Fraction(40)).marginal(("job",))[0] > 0.9
