"""Linear regression by locally private gradient descent as printed in the published notebook, including its flaws.

The module shares no code with the corrected descent, which is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato_labs import printed_hiera

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FOLDS = 5
PENALTY = 1e-4
_LEAST_GROUP = 1000

FLAWS = (
    "the coefficients start at random in [0, 1], far from the data, and stay near where they started",
    "the group's sum is divided by its size, not by the reports a coordinate has, so that steps are d times too short",
    "the penalty's gradient is lambda |beta| in place of lambda beta, which only ever pushes coefficients down",
    "the last iterate is used, with all of its noise, in place of an average",
    "the people of the last partial group are thrown away",
    "every fold is scored with the inputs of the first, so for four of five inputs and outcomes are different people's",
    "the five folds are fitted inside another loop over five, which costs time and shows nothing",
)

Noise = Callable[[Floats, np.random.Generator], Floats]
"""Adds noise to clipped gradient coordinates, shape ``(people,)``."""

Collector = Callable[[Floats, Integers, Floats, int, np.random.Generator], Floats]
"""Returns the mean gradient, shape ``(coordinates,)``. The arguments are a group's clipped gradient coordinates, the
coordinate and the own input of each person, shapes ``(people,)``, and the number of coordinates.
"""


def summed(noise: Noise) -> Collector:
    """Return a collector that sums noisy coordinates and divides by the size of the group, as printed: no factor d."""

    def collect(
        slopes: Floats, coordinate: Integers, own: Floats, width: int, generator: np.random.Generator
    ) -> Floats:
        del own
        sums = np.bincount(coordinate, weights=noise(slopes, generator), minlength=width)
        mean: Floats = sums.astype(np.float64) / slopes.size
        return mean

    return collect


def graded(budgets: Sequence[float], mu: int) -> Collector:
    """Return HierA's collector. The level is that of the own input; people with another coordinate are zeros of the
    last level.
    """

    def collect(
        slopes: Floats, coordinate: Integers, own: Floats, width: int, generator: np.random.Generator
    ) -> Floats:
        depth = len(budgets)
        drawn, signs = printed_hiera.local_reports(slopes, printed_hiera.levels(own, depth), budgets, generator)
        cells = 2 * (coordinate * depth + drawn) + (signs < 0)
        counts = np.bincount(cells, minlength=2 * depth * width).reshape(width, depth, 2)
        zeros = slopes.size - counts.sum(axis=(1, 2))
        return printed_hiera.collected(counts, budgets, generator, mu=mu, zeros=zeros)

    return collect


def group_size(coordinates: int, epsilon: float) -> int:
    """Return the people per step."""
    return max(math.ceil(coordinates * math.log(coordinates) / epsilon**2), _LEAST_GROUP)


def descend(
    inputs: Floats, outcomes: Floats, collect: Collector, *, group: int, generator: np.random.Generator
) -> Floats:
    """Return coefficients of the printed procedure, the intercept first, shape ``(inputs + 1,)``."""
    x = np.column_stack([np.ones(len(inputs)), inputs])
    width = x.shape[1]
    beta = generator.random(width)
    order = generator.permutation(len(x))
    x, y = x[order], outcomes[order]
    people = np.arange(group)
    for step in range(1, len(x) // group + 1):
        rows = slice((step - 1) * group, step * group)
        coordinate = generator.integers(0, width, group)
        own = x[rows][people, coordinate]
        slopes = 2 * own * (x[rows] @ beta - y[rows]) + PENALTY * np.abs(beta)[coordinate] * (coordinate > 0)
        mean = collect(np.clip(slopes, -1, 1), coordinate, own, width, generator)
        beta = beta - mean / math.sqrt(step)
    last: Floats = beta
    return last


@dataclass(frozen=True)
class Score:
    """Mean squared errors of 25 fits: as the notebook scored them, and on the held-out fold."""

    printed: float
    held_out: float


def validated(
    inputs: Floats, outcomes: Floats, fit: Callable[[Floats, Floats], Floats], *, rounds: int = FOLDS
) -> Score:
    """Return both scores over five contiguous folds, all of them in each of five rounds, as printed."""
    size = len(outcomes) // FOLDS
    printed: list[float] = []
    held: list[float] = []
    for chosen in _folds(size, rounds):
        rest = np.ones(size * FOLDS, dtype=bool)
        rest[chosen] = False
        beta = fit(inputs[: rest.size][rest], outcomes[: rest.size][rest])
        printed.append(_error(beta, inputs[:size], outcomes[chosen]))
        held.append(_error(beta, inputs[chosen], outcomes[chosen]))
    return Score(float(np.mean(printed)), float(np.mean(held)))


def _folds(size: int, rounds: int) -> Iterator[slice]:
    for _ in range(rounds):
        for fold in range(FOLDS):
            yield slice(fold * size, (fold + 1) * size)


def _error(beta: Floats, inputs: Floats, outcomes: Floats) -> float:
    return float(np.mean((beta[0] + inputs @ beta[1:] - outcomes) ** 2))
