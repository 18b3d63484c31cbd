"""Sensitivities of a table bounded by groups, against the answers over neighboring tables on an engine.

A neighbor has all rows of one more person.  The engine cuts that person to the bounds; the test does not know which
rows remain.  No answer moves further than stated, and persons with many rows in many cells reach each bound.
"""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Categorical, Date, Domain, Grain, GroupBound, Integer, Unit, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.open import open_table
from sfumato.vault.measurables import Counting, Distance, Marginal, Weighted
from sfumato.vault.mechanisms import ExactTables
from sfumato.vault.unit_measurables import Units
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

FIRST = date(2023, 1, 1)
ATTRIBUTES = (
    Date(name="admitted", first=FIRST, last=date(2024, 12, 31), by=Grain.DAY, unknown=Unknown.DROP),
    Categorical(name="kind", values=("a", "b", "c"), unknown=Unknown.DROP),
    Integer(name="cost", minimum=0, maximum=1000, edges=(0, 500), unknown=Unknown.CLAMP),
)
V = Domain(ATTRIBUTES, unit=Unit("p", rows=6, per=(GroupBound(("month(admitted)",), rows=2, groups=4),)))
MONTH, QUARTER, WEEKDAY = (V.grouping(f"{name}(admitted)").groups for name in ("month", "quarter", "weekday"))
MARCH = Among("admitted", frozenset(np.flatnonzero(np.array(MONTH) == 2).tolist()))
ONE = Fraction(1)
QUESTIONS = {  # question of V, its L1 sensitivity and its squared L2 sensitivity
    "count": (Marginal(()), 6, 36),
    "by kind": (Marginal(("kind",)), 6, 36),
    "by month": (Marginal(("admitted",), groups=(MONTH,)), 6, 12),
    "by month and kind": (Marginal(("admitted", "kind"), groups=(MONTH, None)), 6, 12),
    "by quarter": (Marginal(("admitted",), groups=(QUARTER,)), 6, 36),
    "by day": (Marginal(("admitted",)), 6, 12),
    "by weekday": (Marginal(("admitted",), groups=(WEEKDAY,)), 6, 36),
    "of March": (Marginal((), MARCH), 2, 4),
    "units": (Units(()), 1, 1),
    "units by month": (Units(("admitted",), groups=(MONTH,)), 4, 4),
    "units by kind": (Units(("kind",)), 3, 3),
    "sum": (Sum("cost", (), ONE), 6000, 36 * 10**6),
    "sum by month": (Sum("cost", ("admitted",), ONE, None, (MONTH,)), 6000, 12 * 10**6),
    "mean by month": (Moments("cost", ("admitted",), ONE, 1, None, (MONTH,)), 6000, 12 * 10**6),
    "bins by month": (Bins("cost", (0.0, 500.0, 1000.0), ("admitted",), None, (MONTH,)), 6, 12),
    "positions": (Positions("cost", ONE, (1, 1)), 6 * 500, 36 * 500**2),
    "round numbers": (RoundNumbers("cost", (5, 50)), 6, 36),
    "counting": (Counting(("kind",), np.array([[True, False, True], [True, True, False]])), 12, 72),
    "weighted": (Weighted(("kind",), np.array([[3, -1, 0], [1, 2, 0]])), 24, 360),
    "distance": (Distance(("kind",), np.zeros(3, dtype=np.int64)), 6, 36),
}  # fmt: skip
BASE = [("x", FIRST + timedelta(days=9 * n), "abc"[n % 3], 90 * n) for n in range(12)]


def answers(rows):
    table = pa.table(dict(zip(("p", "admitted", "kind", "cost"), map(list, zip(*rows, strict=True)), strict=True)))
    encoded = open_table(table).encode(V)
    return ExactTables(encoded).answers([question for question, _, _ in QUESTIONS.values()])


def persons():
    """Rows of one more person: many of one month, kind and cost, many of a quarter, and any."""
    yield [("z", FIRST + timedelta(days=31 * (n % 4)), "a", 1000) for n in range(40)]
    yield [("z", FIRST + timedelta(days=31 * (n % 3)), "a", 1000) for n in range(40)]
    yield [("z", FIRST + timedelta(days=n), "b", 0) for n in range(80)]
    yield [("z", date(2023, 3, 1 + n), "c", 1000) for n in range(9)]
    yield [("z", FIRST + timedelta(days=40 * (n % 12)), "abc"[n % 3], 1000) for n in range(60)]
    yield [("z", FIRST + timedelta(days=28 * (n % 3)), "a", 0) for n in range(40)]  # on one weekday
    drawn = np.random.default_rng(7)
    for size in [1, 2, 3, 6, 7, 12, 20, 40]:
        yield [
            (
                "z",
                FIRST + timedelta(days=int(drawn.integers(731))),
                "abc"[drawn.integers(3)],
                int(drawn.choice((0, 400, 1000))),
            )
            for _ in range(size)
        ]


@pytest.mark.parametrize(("question", "l1", "l2_squared"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_sensitivities_are_those_of_the_table_of_the_design(question, l1, l2_squared) -> None:
    assert question.sensitivity(V) == (l1, l2_squared)


def test_no_neighbouring_table_moves_an_answer_further_and_some_move_it_as_far() -> None:
    before = answers(BASE)
    largest = dict.fromkeys(QUESTIONS, (0, 0))
    for person in persons():
        after = answers([*BASE, *person])
        for name, old, new in zip(QUESTIONS, before, after, strict=True):
            moved = np.abs(new - old)
            found = int(moved.sum()), int((moved**2).sum())
            largest[name] = tuple(map(max, largest[name], found))
            assert all(a <= b for a, b in zip(found, QUESTIONS[name][1:], strict=True)), name
    attained = {name for name, found in largest.items() if found == QUESTIONS[name][1:]}
    assert {*QUESTIONS} - attained <= {"by weekday", "positions", "counting", "weighted", "distance"}
