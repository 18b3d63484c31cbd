"""The unbiased mean mechanism of least worst-case variance among finite tables, by linear programming.

The unknowns are the probabilities ``p[y, x]`` of fixed output values y for inputs x on a grid. Column bounds are ``u[y]
/ e^epsilon <= p[y, x] <= u[y]``. Rows sum to one and have mean x. The largest variance is minimized. Graded budgets
(MinID-LDP) bound each pair of levels by the smaller of their budgets.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InfeasibleError
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.randomizers.randomizer import Numerator, RealArray, exp_below

if TYPE_CHECKING:
    from scipy.sparse import coo_array

GRID = 21
"""Inputs of a table. Values between them are rounded at random, which adds at most 0.0025 to the variance."""

_OUTPUTS = 121
_RANGE = 1.1  # outputs reach a tenth beyond the piecewise mechanism's; a wider range gains nothing
_UNUSED = 1e-9
_SHIPPED = "optimal_tables.json"


@dataclass(frozen=True)
class Solution:
    """An integer table and the number that each of its outputs represents."""

    table: IntegerTable
    values: tuple[float, ...]


def optimal(epsilon: Fraction) -> Solution:
    """Return the optimal table for one epsilon: stored for 0.5, 1, 2, 3, 4 and 5, otherwise solved in about a second.

    Raises:
        InfeasibleError: the solver failed; this happens only beyond any useful epsilon.
    """
    return _shipped(epsilon) or solve(np.linspace(-1, 1, GRID), [0] * GRID, (epsilon,))


def solve(grid: RealArray, levels: list[int], budgets: tuple[Fraction, ...]) -> Solution:
    """Return the table of least worst-case variance, or of least average variance if budgets differ.

    Args:
        grid: inputs in [-1, 1], ``(inputs,)``.
        levels: the level of each input, an index into ``budgets``.
        budgets: epsilon of each level; a pair of inputs is bounded by the smaller of their two.
    """
    limits = [exp_below(epsilon) for epsilon in budgets]
    half = math.exp(float(min(budgets)) / 2)
    half_range = _RANGE * (half + 1) / (half - 1)
    values = np.linspace(-half_range, half_range, _OUTPUTS)
    probabilities = _programme(grid, values, np.array(levels), np.array([float(limit) for limit in limits]))
    probabilities = (probabilities + probabilities[::-1, ::-1]) / 2 if len(budgets) == 1 else probabilities
    used = probabilities.max(axis=0) > _UNUSED
    positive = probabilities[:, used]
    positive = np.maximum(positive, positive.max(axis=0) * 2.0**-50)
    positive /= positive.sum(axis=1, keepdims=True)
    table = _rounded(positive, levels, limits)
    return Solution(table, unbiased(table, values[used], grid))


def unbiased(table: IntegerTable, values: RealArray, grid: RealArray) -> tuple[float, ...]:
    """Return the output values nearest to ``values`` for which every row of the table has its input as mean."""
    correction, *_ = np.linalg.lstsq(table.probabilities, grid - table.probabilities @ values)
    return tuple((values + correction).tolist())


def variances(solution: Solution, grid: RealArray) -> RealArray:
    """Return the variance of one report's value at each grid input."""
    second: RealArray = solution.table.probabilities @ np.square(solution.values)
    return second - grid**2


def within(table: IntegerTable, levels: list[int], limits: list[Fraction]) -> bool:
    """Return whether every pair of inputs satisfies the smaller limit of their levels, in integers."""
    groups = [
        [row for row, level in zip(table.numerators, levels, strict=True) if level == each]
        for each in range(len(limits))
    ]
    highest = [[max(column) for column in zip(*group, strict=True)] for group in groups]
    lowest = [[min(column) for column in zip(*group, strict=True)] for group in groups]
    return all(
        high <= min(limits[i], limits[j]) * low
        for i in range(len(limits))
        for j in range(len(limits))
        for high, low in zip(highest[i], lowest[j], strict=True)
    )


def _rounded(probabilities: RealArray, levels: list[int], limits: list[Fraction]) -> IntegerTable:
    """Round the solution to integers, moved toward the mean of its rows until every limit holds."""
    centre = probabilities.mean(axis=0)
    for exponent in range(52, 6, -1):
        blend = 2.0**-exponent
        table = IntegerTable.nearest((1 - blend) * probabilities + blend * centre)
        if within(table, levels, limits):
            return table
    raise InfeasibleError(
        "the solver's table is further from its epsilon than rounding can explain: ask for a smaller one"
    )


def _programme(grid: RealArray, values: RealArray, levels: NDArray[np.int64], limits: RealArray) -> RealArray:
    """Solve the linear program for probabilities, ``(inputs, outputs)``.

    Its variables are the probabilities, the highest and lowest probability of each level, and the worst variance.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, csr_array, hstack, vstack

    inputs, outputs, depth = len(grid), len(values), len(limits)
    size = inputs * outputs
    place = np.arange(size)
    row, column = np.divmod(place, outputs)
    group = levels[row] * outputs + column
    picked = csr_array((np.ones(size), (place, group)), shape=(size, depth * outputs))
    each, none = csr_array((np.ones(size), (place, place)), shape=(size, size)), coo_array((size, depth * outputs))
    spread = csr_array((np.square(values)[column], (row, place)), shape=(inputs, size))
    worst = np.ones((inputs, 1))
    blocks = [hstack([each, -picked, none, coo_array((size, 1))]), hstack([-each, none, picked, coo_array((size, 1))])]
    blocks += _ratio_rows(limits, size, outputs)
    bounds = np.zeros(sum(block.shape[0] for block in blocks))
    if depth == 1:
        blocks.append(hstack([spread, coo_array((inputs, 2 * depth * outputs)), coo_array(-worst)]))
        bounds = np.concatenate([bounds, grid**2])
        cost = np.zeros(size + 2 * depth * outputs + 1)
        cost[-1] = 1
    else:
        cost = np.concatenate([np.square(values)[column], np.zeros(2 * depth * outputs + 1)])
    sums = csr_array((np.ones(size), (row, place)), shape=(inputs, size))
    means = csr_array((values[column], (row, place)), shape=(inputs, size))
    equal = hstack([vstack([sums, means]), coo_array((2 * inputs, 2 * depth * outputs + 1))])
    solved = linprog(  # type: ignore[call-overload]  # the stubs do not know sparse arrays
        cost, A_ub=vstack(blocks), b_ub=bounds, A_eq=equal, b_eq=np.concatenate([np.ones(inputs), grid]), method="highs"
    )
    if solved.x is None:
        raise InfeasibleError("the solver found no optimal table for this epsilon: use pm or hm")
    solution: RealArray = np.maximum(solved.x[:size].reshape(inputs, outputs), 0)
    return solution


def _ratio_rows(limits: RealArray, size: int, outputs: int) -> list[coo_array]:
    """Return the rows highest[i] <= limit lowest[j] of each pair of levels, after ``size`` probabilities."""
    from scipy.sparse import coo_array, hstack

    depth, place = len(limits), np.arange(outputs)
    rows = []
    for i in range(depth):
        for j in range(depth):
            inverse = np.full(outputs, 1 / min(limits[i], limits[j]))
            high = coo_array((inverse, (place, place + i * outputs)), shape=(outputs, depth * outputs))
            low = coo_array((-np.ones(outputs), (place, place + j * outputs)), shape=(outputs, depth * outputs))
            rows.append(hstack([coo_array((outputs, size)), high, low, coo_array((outputs, 1))]))
    return rows


def _shipped(epsilon: Fraction) -> Solution | None:
    """Read the stored table for an epsilon; None if there is none."""
    text = resources.files("sfumato.local").joinpath(_SHIPPED).read_text(encoding="utf-8")
    body = next((body for key, body in json.loads(text).items() if Fraction(key) == epsilon), None)
    if body is None:
        return None
    rows = tuple(tuple(Numerator(int(entry)) for entry in row) for row in body["rows"])
    return Solution(IntegerTable(rows), tuple(map(float, body["values"])))
