"""Heads and tails of children of children are as private as they say: every small unit on top of others, exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from tests.nested_families import NestedFamilies, Row, every_house, nested, some_houses

from sfumato.domain.derived import weight_classes
from sfumato.domain.linked_domain import WHOLE
from sfumato.engine.exact import reveal
from sfumato.errors import DomainError, QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Rho
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.unit_measurables import DerivedDistance, DerivedMarginal

TABLES = nested(2, 2)
HEAD, TAIL = (table for table in TABLES.derived if table.name.startswith("jobs"))
ASKED = [
    DerivedMarginal(HEAD, ("persons.this.age", "jobs.number")),
    DerivedMarginal(HEAD, ("jobs.first.pay",), ((0, 0, 1, 1),)),
    DerivedMarginal(HEAD, ()),
    DerivedDistance(HEAD, ("jobs.number",), np.array([3, WHOLE, 0])),
    DerivedMarginal(TAIL, ("persons.this.work", "jobs.this.pay")),
    DerivedMarginal(TAIL, ("jobs.number",)),
    DerivedDistance(TAIL, ("jobs.this.pay",), np.array([WHOLE, 0, 3])),
]
LARGE = Row((1,), (Row((3, 1), (Row((2,)),) * 5),) * 5)  # more of both than are kept
HOUSES = [*every_house(2, 2), LARGE]
OTHERS = some_houses(4, 1)


def moved(question, tables, before, house) -> list[int]:
    """Return the change of each number of the exact answer when a house is added to others."""
    left, right = (NestedFamilies(houses, tables) for houses in (before, [*before, house]))
    exact = [question.finish(tables.unit_domain, reveal(question.table().count(each))) for each in (left, right)]
    return [int(value) for value in exact[1] - exact[0]]


@pytest.mark.parametrize("place", range(len(ASKED)))
def test_a_unit_moves_an_answer_by_no_more_than_is_said_and_some_by_all_of_it(place) -> None:
    question = ASKED[place]
    changes = [moved(question, TABLES, [], house) for house in HOUSES]
    changes += [moved(question, TABLES, [*OTHERS, house], house) for house in HOUSES[::10]]
    most = [max(sum(abs(value) ** power for value in change) for change in changes) for power in (1, 2)]
    assert tuple(most) == question.sensitivity(TABLES.unit_domain) == (WHOLE, WHOLE**2)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(ASKED)))
def test_houses_of_more_jobs_than_are_kept_hold_as_well(place) -> None:
    question = ASKED[place]
    changes = [moved(question, TABLES, before, house) for house in every_house(2, 3) for before in ([], [house])]
    assert max(sum(map(abs, change)) for change in changes) == WHOLE


@pytest.mark.parametrize(
    "tables",
    [nested(2, 3, tau=1), nested(3, 2, tau=3), nested(2, 2, memory=2), nested(1, 3), nested(2, 1)],
    ids=["tau 1", "tau 3", "two before", "one person", "one job"],
)
def test_other_bounds_weights_and_memories_hold_as_well(tables) -> None:
    for table in tables.derived:
        if table.name.startswith("jobs"):
            question = DerivedMarginal(table, ("persons.this.age", "persons.this.work"))
            most = max(sum(map(abs, moved(question, tables, [], house))) for house in (*HOUSES[::4], LARGE))
            assert max(table.weights) <= most <= WHOLE == question.sensitivity(tables.unit_domain)[0]


def test_rows_of_the_fourth_generation_hold_as_well() -> None:
    tables = nested(2, 3, 3)
    random = np.random.default_rng(3)
    tasks = [tuple(Row((int(each),)) for each in random.integers(2, size=count)) for count in (0, 1, 2, 4)]
    jobs = [
        tuple(Row((at % 3,), tasks[(start + at) % 4]) for at in range(count)) for start in range(4) for count in (1, 3)
    ]
    houses = [Row((0,), tuple(Row((at, 1), each) for at in range(persons))) for each in jobs for persons in (1, 2)]
    for table in tables.derived:
        question = DerivedMarginal(table, ("persons.this.work",) if table.name != "persons.tail" else ())
        assert all(sum(map(abs, moved(question, tables, [], house))) <= WHOLE for house in houses), table.name


def test_noise_is_scaled_to_it_so_that_30_percent_less_would_lose_more(monkeypatch) -> None:
    question, recorded, losses = ASKED[0], [], []
    monkeypatch.setattr(DiscreteGaussian, "add", lambda noise, counts, _: recorded.append((noise, counts)) or counts)
    for house in HOUSES[::5]:
        recorded.clear()
        for houses in (OTHERS, [*OTHERS, house]):
            SimulatedVault(NestedFamilies(houses, TABLES), seed=0).mechanisms(Rho(1)).measure([question], Rho(1))
        (noise, before), (same, after) = recorded
        assert noise == same, "the noise may not depend on the data"
        losses.append(Fraction(sum(int(value) ** 2 for value in after - before)) / (2 * noise.sigma_squared))
    assert Fraction(7, 10) < max(losses) <= 1


def test_classes_of_weights_are_sound_and_lose_a_quarter_at_most() -> None:
    for most in (1, 2, 8, 9, 64, 1000, 60_000):
        rows = weight_classes(most)
        assert rows[-1] == most
        assert list(rows) == sorted(set(rows))
        assert all(after <= before + max(1, before // 4) for before, after in pairwise(rows))
    table = nested(4, 5).next_child(nested(4, 5).children[1])
    assert table.rows == (1, 2, 3, 4)
    assert table.weights == (WHOLE // 2, WHOLE // 2, WHOLE // 3, WHOLE // 4)


def test_weights_that_add_up_to_more_and_other_tables_are_refused() -> None:
    with pytest.raises(DomainError, match="would weigh more"):
        replace(HEAD, weights=(WHOLE, WHOLE))
    vault = SimulatedVault(NestedFamilies(OTHERS, TABLES), seed=0)
    for table in (replace(HEAD, name="jobs.other"), nested(2, 2, tau=1).derived[1], nested(2, 3).derived[1]):
        with pytest.raises(QueryError, match="described otherwise"):
            vault.mechanisms(Rho(1)).measure([DerivedMarginal(table, ("jobs.number",))], Rho(1))
