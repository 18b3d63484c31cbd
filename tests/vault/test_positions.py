"""Positions within cells: what is summed, and that no row moves the sum by more than is stated, on an engine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Domain, Integer, Real, Unknown
from sfumato.domain.attribute import Attribute
from sfumato.engine.open import open_table
from sfumato.vault.mechanisms import ExactTables
from sfumato.vault.value_measurables import Positions

INCOME = Integer(name="x", minimum=-5, maximum=40, edges=(-5, 0, 1, 20), unknown=Unknown.CATEGORY, nullable=True)
SHARE = Real(name="x", edges=(-0.3, 0.05, 0.7, 2.5), unknown=Unknown.CLAMP, nullable=True)
CASES = {
    "whole numbers": (INCOME, Positions("x", Fraction(1), (3, 9, 1, 2))),
    "whole numbers in tens": (INCOME, Positions("x", Fraction(10), (3, 9, 1, 2))),
    "reals": (SHARE, Positions("x", Fraction(1, 1000), (5, 0, 2))),
    "reals in coarse steps": (SHARE, Positions("x", Fraction(3, 10), (1, 7, 2))),
    "whole numbers in two parts": (INCOME, Positions("x", Fraction(1), (3, 9, 1, 2), (0, 0, 0, 1))),
    "reals in three parts": (SHARE, Positions("x", Fraction(1, 1000), (5, 0, 2), (2, 1, 0))),
}
VALUES: list[float | None] = [None, *(step / 20 for step in range(-8, 60)), *range(-7, 44)]


def answer(attribute: Attribute, question: Positions, values: list[float | None]) -> list[int]:
    kind = pa.int64() if isinstance(attribute, Integer) else pa.float64()
    table = pa.table({"x": pa.array(values, kind)})
    return list(map(int, ExactTables(open_table(table).encode(Domain((attribute,)))).answers([question])[0]))


@pytest.mark.parametrize("name", CASES)
def test_one_row_adds_at_most_the_sensitivity(name) -> None:
    """Every value near and in every cell is tried alone; some row comes within the two steps of rounding."""
    attribute, question = CASES[name]
    values = [v for v in VALUES if v is None or isinstance(attribute, Real) or v == int(v)]
    answers = [answer(attribute, question, [value]) for value in values]
    moves = [sum(map(abs, found)) for found in answers]
    assert all(np.count_nonzero(found) <= 1 for found in answers), "a row is in one part"
    domain = Domain((attribute,))
    one, squared = question.sensitivity(domain)
    assert squared == one**2
    assert max(moves) <= one
    assert max(moves) >= one - 2 * max(question.weights)
    if isinstance(attribute, Integer) and question.unit == 1:
        assert max(moves) == one, "attained, so not too large either"


def test_whole_numbers_are_summed_as_stated() -> None:
    random = np.random.default_rng(3)
    values = [None if random.random() < 0.1 else int(v) for v in random.integers(-9, 50, 500)]
    lows, highs, weights = (-5, 0, 1, 20), (-1, 0, 19, 40), (3, 9, 1, 2)
    expected = 0
    for value in values:
        if value is None or not -5 <= value <= 40:
            continue
        cell = max(code for code in range(4) if value >= lows[code])
        expected += weights[cell] * (2 * value - lows[cell] - highs[cell])
    attribute, question = CASES["whole numbers"]
    assert answer(attribute, question, values) == [expected]
    assert sum(answer(*CASES["whole numbers in two parts"], values)) == expected


def test_reals_are_summed_to_the_rounding_of_each() -> None:
    random = np.random.default_rng(4)
    values = random.uniform(-0.3, 2.5, 300)
    edges, weights = np.array([-0.3, 0.05, 0.7, 2.5]), np.array([5, 0, 2])
    cells = np.searchsorted(edges, values, side="right") - 1
    exact = (weights[cells] * (2 * values - edges[cells] - edges[cells + 1]) * 1000).sum()
    attribute, question = CASES["reals"]
    assert abs(answer(attribute, question, values.tolist())[0] - exact) <= 300 * 2 * 5


def test_each_part_sums_the_rows_of_its_own_cells() -> None:
    """One value per cell, at its upper end: the contribution of a cell is its weight times its width."""
    attribute, question = CASES["whole numbers in two parts"]
    assert answer(attribute, question, [-1, 0, 19, 40]) == [3 * 4 + 0 + 18, 2 * 20]
    attribute, question = CASES["reals in three parts"]
    assert answer(attribute, question, [0.0499, 0.6999, 2.5]) == [2 * 1800, 0, 5 * 350]
