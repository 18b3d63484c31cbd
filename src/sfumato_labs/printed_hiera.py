"""The HierA study's mechanisms for a mean as printed, in floating point, for simulation only.

None of these is fit for a release.  Floating-point noise reveals inputs, and HierA's budgets are not its guarantee.
Multi-level Laplace noise has no finite epsilon, because its scale depends on the value.  The module shares no code with
the library, which is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ENDS = (-0.6, -0.2, 0.2, 0.6)
"""Inner ends of the five levels of [-1, 1], the least sensitive first."""

PRINTED_MU = 2

_HYBRID_FROM = 0.61


def harmony(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Report one bit per value (Duchi et al.; Harmony, Nguyen et al. 2016)."""
    rate = math.tanh(epsilon / 2)
    return np.where(generator.random(values.size) < (1 + values * rate) / 2, 1 / rate, -1 / rate)


def piecewise(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Report values by the piecewise mechanism (Wang et al. 2019, Algorithm 2)."""
    root = math.exp(epsilon / 2)
    bound = (root + 1) / (root - 1)
    left = (bound + 1) / 2 * values - (bound - 1) / 2
    near = generator.random(values.size) < root / (root + 1)
    inner = left + generator.random(values.size) * (bound - 1)
    outer = generator.random(values.size) * (bound + 1) - bound  # the line without the window, joined
    outer += np.where(outer >= left, bound - 1, 0)
    return np.where(near, inner, outer)


def hybrid(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Report values by the hybrid mechanism (Wang et al. 2019): piecewise with probability 1 - e^(-epsilon/2), else one
    bit.
    """
    if epsilon <= _HYBRID_FROM:
        return harmony(values, epsilon, generator)
    pieces = generator.random(values.size) < 1 - math.exp(-epsilon / 2)
    return np.where(pieces, piecewise(values, epsilon, generator), harmony(values, epsilon, generator))


def laplace(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Add Laplace noise of scale 2 / epsilon."""
    return values + generator.laplace(0, 2 / epsilon, values.size)


def multi_laplace(values: Floats, budgets: Sequence[float], generator: np.random.Generator) -> Floats:
    """Add Laplace noise with the budget of the value's own level.  Its epsilon is infinite, because the scale shows the
    level.
    """
    return values + generator.laplace(0, 2 / np.array(budgets)[levels(values, len(budgets))])


def levels(values: Floats, depth: int) -> Integers:
    """Return the level of each value from 0, for ``depth`` levels of equal width."""
    ends = np.array(ENDS) if depth == len(ENDS) + 1 else np.linspace(-1, 1, depth + 1)[1:-1]
    return np.searchsorted(ends, values, side="right")


def local_reports(
    values: Floats, level: Integers, budgets: Sequence[float], generator: np.random.Generator
) -> tuple[Integers, Integers]:
    """Draw LHP reports: a level by randomized response with the *true* level's budget, then a sign with the *drawn*
    level's.

    Returns:
        Levels from 0 and signs of 1 or -1, shapes ``(people,)``.
    """
    budget, depth = np.array(budgets), len(budgets)
    strength = np.exp(budget)
    same = generator.random(values.size) < (strength / (strength + depth - 1))[level]
    moved = (level + generator.integers(1, depth, values.size)) % depth if depth > 1 else level
    drawn = np.where(same, level, moved)
    up = generator.random(values.size) < (1 + values * np.tanh(budget / 2)[drawn]) / 2
    return drawn, np.where(up, 1, -1)


def level_counts(drawn: Integers, signs: Integers, depth: int) -> Integers:
    """Count reports by level and sign: shape ``(depth, 2)``, positive reports first."""
    return np.bincount(2 * drawn + (signs < 0), minlength=2 * depth).reshape(depth, 2)


def collected(
    counts: Integers,
    budgets: Sequence[float],
    generator: np.random.Generator,
    *,
    mu: int = PRINTED_MU,
    zeros: Integers | int = 0,
) -> Floats:
    """Return the printed collector's means: PLC, every report used ``mu`` times, true signs of every level clamped,
    pooled.

    Args:
        counts: reports by level and sign, shape ``(..., levels, 2)``.
        budgets: of the levels, the largest first.
        generator: of the simulation.
        mu: uses of a report.
        zeros: people of the last level with a value of 0, who sent nothing, shape ``(...)``.  They are copied like
            reports, and count in the denominator only.

    Returns:
        Means, shape ``(...)``.
    """
    depth = len(budgets)
    likely = [math.exp(budget) / (math.exp(budget) + 1) for budget in budgets]
    first, second = counts[..., 0], counts[..., 1]
    total, people = np.zeros(counts.shape[:-2]), np.asarray(zeros * mu, dtype=np.float64)
    for level in range(1, depth + 1):
        copies = mu - depth + level if level + mu - 1 > depth else 1
        up, down = copies * first[..., level - 1], copies * second[..., level - 1]
        for source in range(max(1, level - mu + 1), level):
            chance = (likely[source - 1] + likely[level - 1] - 1) / (2 * likely[source - 1] - 1)
            kept_up = generator.binomial(first[..., source - 1], chance)
            kept_down = generator.binomial(second[..., source - 1], chance)
            up = up + kept_up + second[..., source - 1] - kept_down
            down = down + kept_down + first[..., source - 1] - kept_up
        number, true = up + down, likely[level - 1]
        ups = np.clip((true * number - down) / (2 * true - 1), 0, number)
        downs = np.clip((true * number - up) / (2 * true - 1), 0, number)
        total, people = total + ups - downs, people + number
    return total / people


def hiera(values: Floats, budgets: Sequence[float], generator: np.random.Generator, *, mu: int = PRINTED_MU) -> float:
    """Return HierA's estimate of the mean of values, as printed: mu = 2, clamped."""
    drawn, signs = local_reports(values, levels(values, len(budgets)), budgets, generator)
    return float(collected(level_counts(drawn, signs, len(budgets)), budgets, generator, mu=mu))
