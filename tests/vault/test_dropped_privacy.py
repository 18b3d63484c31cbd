"""Counts of dropped rows are as private as claimed: the exact answers of every pair of small neighboring tables.

The rows lie on an engine, which does the dropping; nothing here knows which rows of a unit it keeps.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pyarrow as pa
import pytest

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.open import open_table
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.vault.mechanisms import ExactTables, noises
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.unit_measurables import Dropped

ATTRIBUTES = (Integer(name="a", minimum=0, maximum=1, unknown=Unknown.CLAMP),)
ONES = Among("a", frozenset({1}))
BASES = ([], [("x", 1)] * 4 + [("x", 0), ("y", 0), ("y", 0), ("y", 1)])


def encoded(rows: list[tuple[str, int]], bound: int):
    """A table of (id, a) on DuckDB, never without a row: one of a missing id counts nowhere."""
    held = [*rows, (None, 0)]
    table = pa.table({"id": pa.array([u for u, _ in held], pa.string()), "a": [a for _, a in held]})
    return open_table(table).encode(Domain(ATTRIBUTES, unit=Unit("id", rows=bound)))


def answers(rows: list[tuple[str, int]], bound: int, questions: list[Dropped]) -> list[int]:
    return [int(answer[0]) for answer in ExactTables(encoded(rows, bound)).answers(questions)]


@pytest.mark.parametrize("bound", [1, 2])
def test_one_unit_moves_a_count_of_dropped_rows_by_its_sensitivity_and_no_more(bound: int) -> None:
    questions = [Dropped(most, where) for most, where in product((1, 2, 3), (None, ONES))]
    domain = Domain(ATTRIBUTES, unit=Unit("id", rows=bound))
    moved = dict.fromkeys(questions, 0)
    for base in BASES:
        before = answers(base, bound, questions)
        for size in range(1, bound + 4):
            for extra in combinations_with_replacement((0, 1), size):
                after = answers([*base, *(("z", a) for a in extra)], bound, questions)
                for question, old, new in zip(questions, before, after, strict=True):
                    moved[question] = max(moved[question], abs(new - old))
    for question, most in moved.items():
        assert question.sensitivity(domain) == (most, most**2), "attained, so not too large either"


def test_the_cap_is_that_of_one_unit_and_one_counts_units() -> None:
    rows = [("x", 1)] * 7 + [("y", 1)] * 3 + [("z", 0)] * 2
    found = answers(rows, 2, [Dropped(100), Dropped(3), Dropped(1), Dropped(100, ONES), Dropped(1, ONES)])
    assert found == [5 + 1, 3 + 1, 2, 5 + 1, 2]


@pytest.mark.parametrize("loss", [Epsilon("0.5"), Rho("0.125")], ids=str)
def test_what_is_measured_carries_the_noise_of_the_declared_cap(loss) -> None:
    held, question = encoded([("x", 1)] * 9, 2), Dropped(5)
    vault = SimulatedVault(held, seed=3)
    drawn = [int(vault.mechanisms(loss).measure([question], loss)[0].values[0]) - 5 for _ in range(500)]
    (noise,) = noises(held.domain, [question], loss, None)
    wanted = 2 * 5**2 / 0.25 if isinstance(loss, Epsilon) else 5**2 / 0.25  # 2 (C/epsilon)^2, C^2 / (2 rho)
    assert noise.variance == pytest.approx(wanted, rel=0.01)
    # of 500 draws, which are always the same, the ratio's standard deviation is at most 0.1; noise 30 % too small gives
    # 0.49, with one of 0.05
    assert 0.7 < sum(value**2 for value in drawn) / len(drawn) / wanted < 1.4


@pytest.mark.parametrize("most", [0, -1, True, 1.5, 10**7])
def test_caps_that_are_none_are_refused(most) -> None:
    domain = Domain(ATTRIBUTES, unit=Unit("id", rows=2))
    with pytest.raises(QueryError, match="dropped rows"):
        Dropped(most).sensitivity(domain)
