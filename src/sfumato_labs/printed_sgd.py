"""Gradient descent as the published notebook printed it, flaws included, for comparison only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato_labs.learning import PENALTY, Perturb, Rows

FLAWS = (
    "the sampled coordinate is not scaled by the number of coordinates, so steps are that much too short",
    "the penalty adds its value to the gradient in place of its own gradient",
    "the last iterate is used, with all of its noise, in place of an average",
    "the people of the last partial batch are thrown away",
    "the score is taken on a fold that was trained on",
)


def descend(rows: Rows, perturb: Perturb, *, group: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Coefficients ``(d,)`` of the printed procedure; see :data:`FLAWS` for what is wrong with it."""
    people, dimension = rows.inputs.shape
    b = np.zeros(dimension)
    for step in range(1, people // group + 1):
        part = rows.take(slice((step - 1) * group, step * group))
        coordinate = generator.integers(0, dimension, size=group)
        own = part.inputs[np.arange(group), coordinate]
        slope = np.clip((part.inputs @ b - part.outcomes) * own, -1, 1)
        noisy = perturb(slope, coordinate, own)
        gradient = np.bincount(coordinate, weights=noisy, minlength=dimension) / group + PENALTY / 2 * (b @ b)
        b = b - gradient / math.sqrt(step)
    return b
