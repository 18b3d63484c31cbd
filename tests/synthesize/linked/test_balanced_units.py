"""Kept units have the pairs of columns of all drawn units, and keep their own children."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.families import related
from tests.nested_families import nested

from sfumato.synthesize.linked.linked_rows import DrawnChildren, balanced, times_drawn

SIZE, NUMBER = "houses.size", "persons.number"


@pytest.mark.parametrize(
    ("units", "most", "times"),
    [(0, 40_000, 4), (10_000, 40_000, 4), (10_001, 40_000, 2), (20_001, 40_000, 1), (100, 0, 1)],
)
def test_small_tables_are_drawn_several_times(units: int, most: int, times: int) -> None:
    assert times_drawn(related(4), units, most) == times


def test_wide_tables_are_drawn_once_if_their_pairs_have_too_many_cells() -> None:
    """A person of up to six has two columns and two known ones, so four pairs and one more: 30 cells for each unit."""
    assert [times_drawn(related(6), units, 1 << 30) for units in ((1 << 23) // 30 // 2, (1 << 23) // 30 // 2 + 1)] == [
        2,
        1,
    ]


def drawn_at_random(units: int, seed: int) -> tuple[dict[str, np.ndarray], DrawnChildren]:
    """Return houses of two or three persons, whose columns have no relation."""
    random = np.random.default_rng(seed)
    number = random.integers(2, 4, units)
    rows = {SIZE: random.integers(2, size=units), NUMBER: number}
    slots = []
    for slot in range(3):
        held = np.flatnonzero(number > slot)
        slots.append((held, {"age": random.integers(5, size=len(held)), "work": random.integers(3, size=len(held))}))
    return rows, DrawnChildren({"persons": slots}, {"persons": rows})


def table(rows: dict[str, np.ndarray], drawn: DrawnChildren, known: str, column: str) -> np.ndarray:
    """Return the shares of the pairs of a column of a house and a column of its persons."""
    counts = np.zeros((4, 5))
    for held, codes in drawn.child_slots["persons"]:
        np.add.at(counts, (rows[known][held], codes[column]), 1)
    return counts / counts.sum()


def test_pairs_of_kept_units_are_like_those_of_all() -> None:
    units, off, by_chance = 500, [], []
    for seed in range(5):
        rows, drawn = drawn_at_random(4 * units, seed)
        kept, children = balanced(related(3), rows, drawn, units, np.random.default_rng(seed))
        first, few = drawn_at_random(units, 100 + seed)
        for known, column in product((SIZE, NUMBER), ("age", "work")):
            all_drawn = table(rows, drawn, known, column)
            off.append(np.abs(table(kept, children, known, column) - all_drawn).sum())
            by_chance.append(np.abs(table(first, few, known, column) - all_drawn).sum())
    assert np.mean(off) < np.mean(by_chance) / 4


def test_kept_units_keep_their_children_in_order() -> None:
    """Each code is the number of the unit, so that a child of another unit would show."""
    many = 64
    number = np.arange(many) % 4
    rows = {SIZE: np.arange(many), NUMBER: number}
    slots = []
    for slot in range(3):
        held = np.flatnonzero(number > slot)
        slots.append((held, {"age": held, "work": np.full(len(held), slot)}))
    kept, children = balanced(
        related(3), rows, DrawnChildren({"persons": slots}, {"persons": rows}), 16, np.random.default_rng(0)
    )
    assert len(kept[SIZE]) == 16
    assert np.bincount(kept[NUMBER]).tolist() == [4, 4, 4, 4]
    assert (np.diff(kept[SIZE]) > 0).all()
    for slot, (held, codes) in enumerate(children.child_slots["persons"]):
        assert held.tolist() == np.flatnonzero(kept[NUMBER] > slot).tolist()
        assert codes["age"].tolist() == kept[SIZE][held].tolist()
    assert children.first_rows["persons"][SIZE].tolist() == kept[SIZE].tolist()


def test_rows_of_rows_stay_with_their_units() -> None:
    tables = nested(2, 2)
    many = 8
    rows = {"houses.large": np.arange(many), "persons.number": np.full(many, 2)}
    every, persons = np.arange(many), np.repeat(np.arange(many), 2)
    of_persons = [(every, {"age": every, "work": np.full(many, slot)}) for slot in range(2)]
    known = {"houses.large": persons, "persons.this.age": persons, "persons.this.work": np.tile([0, 1], many)}
    jobs = [(np.arange(0, 2 * many, 2), {"pay": every})]  # the first person of each house has a job
    first_rows = {"persons": rows, "jobs": {**known, "jobs.number": np.tile([1, 0], many)}}
    drawn = DrawnChildren({"persons": of_persons, "jobs": jobs}, first_rows)
    kept, children = balanced(tables, rows, drawn, 2, np.random.default_rng(0))
    held, codes = children.child_slots["jobs"][0]
    assert held.tolist() == [0, 2]
    assert codes["pay"].tolist() == kept["houses.large"].tolist()
    assert children.first_rows["jobs"]["houses.large"].tolist() == np.repeat(kept["houses.large"], 2).tolist()
