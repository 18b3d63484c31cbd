"""The reach of a unit against all contributions that its bounds let it make, enumerated one by one.

A unit has up to three rows in each of four months and two kinds: 4^8 contributions (3^8 outside the slow runs).  What
each of them adds to an answer is counted from the definition of rows, cells and conditions; nothing of
:mod:`sfumato.vault.contribution` is used for it.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sfumato.domain import Categorical, Date, Domain, Grain, GroupBound, Integer, Unit, Unknown
from sfumato.domain.predicate import All, Among, Not, Predicate
from sfumato.domain.predicate import Any as AnyOf
from sfumato.vault.contribution import Contribution, contribution
from sfumato.vault.measurables import Counting, Distance, Marginal, Weighted
from sfumato.vault.scores import AbsoluteErrors, MarginalErrors, RankErrors
from sfumato.vault.unit_measurables import Units
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

MONTHS, KINDS = 4, 2
QUARTER = (0, 0, 0, 1)  # January to April
DAY = Date(name="d", first=date(2023, 1, 1), last=date(2023, 4, 30), by=Grain.MONTH, unknown=Unknown.DROP)
KIND = Categorical(name="kind", values=("a", "b"), unknown=Unknown.DROP)
COST = Integer(name="cost", minimum=0, maximum=1000, edges=(0, 500), unknown=Unknown.CLAMP)
ATTRIBUTES = (DAY, KIND, COST)

CELLS = {  # of each grouping the cell of a month and a kind
    "d": lambda month, _kind: month,
    "quarter(d)": lambda month, _kind: QUARTER[month],
    "kind": lambda _month, kind: kind,
}
ASKED = {  # attributes and groups of a question, and the groupings that they are
    (): ((), None),
    ("d",): (("d",), None),
    ("kind",): (("kind",), (None,)),
    ("quarter(d)",): (("d",), (QUARTER,)),
    ("d", "kind"): (("d", "kind"), None),
    ("kind", "quarter(d)"): (("kind", "d"), (None, QUARTER)),
}
FIRST, EARLY, A = Among("d", frozenset({0})), Among("d", frozenset({0, 1})), Among("kind", frozenset({0}))
CONDITIONS: dict[str, tuple[Predicate | None, object]] = {
    "all": (None, lambda _month, _kind: True),
    "a month": (FIRST, lambda month, _kind: month == 0),
    "two months": (EARLY, lambda month, _kind: month < 2),
    "not a month": (Not(FIRST), lambda month, _kind: month != 0),
    "a kind": (A, lambda _month, kind: kind == 0),
    "both": (All((EARLY, A)), lambda month, kind: month < 2 and kind == 0),
    "neither": (Not(AnyOf((FIRST, A))), lambda month, kind: month != 0 and kind != 0),
    "not both": (Not(All((EARLY, A))), lambda month, kind: not (month < 2 and kind == 0)),
    "either": (AnyOf((FIRST, A)), lambda month, kind: month == 0 or kind == 0),
    "nothing": (All((FIRST, Not(FIRST))), lambda _month, _kind: False),
}
BY = [("d",), ("kind",), ("quarter(d)",), ("d", "kind"), ("kind", "quarter(d)")]
BOUNDS = [
    (rows, tuple(per))
    for rows in (3, 5)
    for per in [
        *([GroupBound(by, rows=s, groups=g)] for by, s, g in product(BY, (1, 2), (None, 1, 2, 3))),
        *(
            [GroupBound(("d",), rows=s, groups=2), GroupBound(("kind",), rows=t, groups=g)]
            for s, t, g in product((1, 2), (1, 3), (None, 1))
        ),
        [GroupBound(("d",), rows=2, groups=3), GroupBound(("quarter(d)",), rows=3), GroupBound(("kind",), rows=4)],
    ]
]


def contributions(most: int) -> np.ndarray:
    """Rows of a unit by month and kind, shape ``(contributions, months, kinds)``."""
    return np.array(list(product(range(most + 1), repeat=MONTHS * KINDS)), dtype=np.int64).reshape(-1, MONTHS, KINDS)


def by_cell(rows: np.ndarray, names: tuple[str, ...], holds=lambda _month, _kind: True) -> np.ndarray:
    """Rows in each cell of some groupings, as far as a condition holds: shape ``(contributions, cells)``."""
    found: dict[tuple[int, ...], np.ndarray] = {}
    for month, kind in product(range(MONTHS), range(KINDS)):
        if holds(month, kind):
            cell = tuple(CELLS[name](month, kind) for name in names)
            found[cell] = found.get(cell, 0) + rows[:, month, kind]
    return np.stack(list(found.values()), axis=1) if found else np.zeros((len(rows), 1), dtype=np.int64)


def kept(rows: np.ndarray, most: int, per: tuple[GroupBound, ...]) -> np.ndarray:
    """The contributions that meet every bound."""
    fits = rows.sum(axis=(1, 2)) <= most
    for bound in per:
        cells = by_cell(rows, bound.by)
        fits &= cells.max(axis=1) <= bound.rows
        if bound.groups is not None:
            fits &= (cells > 0).sum(axis=1) <= bound.groups
    return rows[fits]


def compared(most: int, bounds) -> tuple[int, int, int]:
    """Return the numbers of all combinations, of combinations that attain all four figures, and of conditions that are
    no box.
    """
    every, equal, loose = 0, 0, 0
    rows = contributions(most)
    for limit, per in bounds:
        domain = Domain(ATTRIBUTES, unit=Unit("p", rows=limit, per=per))
        fitting = kept(rows, limit, per)
        for names, (where, holds) in product(ASKED, CONDITIONS.values()):
            by, groups = ASKED[names]
            found = contribution(domain, by, groups, where)
            moved = by_cell(fitting, names, holds)
            attained = (
                int(moved.sum(axis=1).max()),
                int(moved.max()),
                int((moved > 0).sum(axis=1).max()),
                int((moved**2).sum(axis=1).max()),
            )
            l1, l2_squared = found.counts()
            stated = (found.rows, found.in_a_cell, found.cells, l2_squared if found.rows else 0)
            assert all(a <= b for a, b in zip(attained, stated, strict=True)), (limit, per, names, where, stated)
            assert l1 == max(1, found.rows)
            every += 1
            equal += attained == stated
            loose += attained != stated and (isinstance(where, AnyOf) or where == CONDITIONS["not both"][0])
    return every, equal, loose


def test_no_contribution_exceeds_its_reach_and_nearly_all_are_attained() -> None:
    every, equal, loose = compared(2, BOUNDS)
    assert every > 5_000
    assert equal + loose > 0.9 * every  # cells of three rows and more are not enumerated here


@pytest.mark.slow
def test_the_reach_is_attained_where_the_enumeration_is_long_enough() -> None:
    bounds = [(limit, per) for limit, per in BOUNDS if all(bound.rows < 4 for bound in per)]
    every, equal, loose = compared(3, bounds)
    assert equal + loose > 0.97 * every


def test_a_reach_without_bounds_by_groups_is_that_of_the_rows_alone() -> None:
    domain = Domain(ATTRIBUTES, unit=Unit("p", rows=5))
    assert contribution(domain) == Contribution(5, 5, 1)
    assert contribution(domain, ("d",)) == Contribution(5, 5, 4)
    assert contribution(domain, ("d",), (QUARTER,), FIRST) == Contribution(5, 5, 2), (
        "as it was before there were other bounds"
    )
    assert contribution(Domain(ATTRIBUTES), ("d", "kind")) == Contribution(1, 1, 1)


V = Domain(ATTRIBUTES, unit=Unit("p", rows=6, per=(GroupBound(("d",), rows=2, groups=4),)))
WIDE = Domain(
    (Date(name="d", first=date(2023, 1, 1), last=date(2024, 12, 31), by=Grain.MONTH, unknown=Unknown.DROP), KIND, COST),
    unit=V.unit,
)
QUARTERS = tuple(month // 3 for month in range(24))
ONE = Fraction(1)


@pytest.mark.parametrize(
    ("question", "l1", "l2_squared"),
    [
        (Marginal(("kind",)), 6, 36),
        (Marginal(("d",)), 6, 12),
        (Marginal(("d", "kind")), 6, 12),
        (Marginal(("d",), groups=(QUARTERS,)), 6, 36),
        (Marginal((), Among("d", frozenset({2}))), 2, 4),
        (Units(()), 1, 1),
        (Units(("d",)), 4, 4),
        (Units(("kind",)), 2, 2),  # of two kinds; of three it would be 3
        (Sum("cost", (), ONE), 6000, 36 * 10**6),
        (Sum("cost", ("d",), ONE), 6000, 12 * 10**6),
        (Moments("cost", ("d",), ONE, 1), 6000, 12 * 10**6),
        (Moments("cost", ("d",), ONE, 2), 6 * 10**6, 12 * 10**12),
        (Bins("cost", (0.0, 500.0, 1000.0), ("d",)), 6, 12),
        (Bins("cost", (0.0, 500.0, 1000.0), ()), 6, 36),
        (Positions("cost", ONE, (1, 1)), 6 * 500, 36 * 500**2),
        (RoundNumbers("cost", (5, 50)), 6, 36),
        (Distance(("kind",), np.zeros(2, dtype=np.int64)), 6, 36),
        (Counting(("kind",), np.array([[True, False], [True, True]])), 12, 36 * 2),
        (Counting(("d",), np.ones((1, 24), dtype=bool)), 6, 36),  # a workload may add up what months keep apart
        (Weighted(("kind",), np.array([[3, -1], [1, 2]])), 6 * 4, 36 * 10),
        (Marginal((), All((FIRST, Not(FIRST)))), 1, 1),
    ],
    ids=repr,
)
def test_each_kind_of_question_has_the_sensitivity_of_its_reach(question, l1, l2_squared) -> None:
    assert question.sensitivity(WIDE) == (l1, l2_squared)


def test_scores_move_by_the_rows_of_a_unit_that_meet_their_condition() -> None:
    edges = (0.0, 500.0, 1000.0)
    half, nine = Fraction(1, 2), Fraction(9, 10)
    assert RankErrors("cost", half, edges, 1).sensitivity(WIDE) == 6
    assert RankErrors("cost", nine, edges, 1).sensitivity(WIDE) == 6 * 9
    assert RankErrors("cost", nine, edges, 1, Among("d", frozenset({3}))).sensitivity(WIDE) == 2 * 9
    counting = Counting(("kind",), np.array([[True, False]]))
    assert AbsoluteErrors(counting, np.array([0])).sensitivity(WIDE) == 6
    distance = Distance(("kind",), np.zeros(2, dtype=np.int64))
    assert MarginalErrors((distance,), (Fraction(3, 2),), (Fraction(0),)).sensitivity(WIDE) == 9


def test_a_number_of_each_unit_and_cell_is_clamped_once_a_cell() -> None:
    monthly = Unit("p", rows=60, per=(GroupBound(("d",), rows=20, groups=3),))
    assert contribution(Domain(WIDE.attributes, unit=monthly), ("d",)).clamped(800) == (2400, 1_920_000)
    assert contribution(Domain(WIDE.attributes, unit=monthly)).clamped(2500) == (2500, 2500**2)


def test_months_of_twelve_of_twenty_four_have_the_noise_that_the_documents_print() -> None:
    unit = Unit("p", rows=40, per=(GroupBound(("month(d)",), rows=4, groups=12),))
    assert contribution(Domain(WIDE.attributes, unit=unit), ("d",)).counts() == (40, 160)
