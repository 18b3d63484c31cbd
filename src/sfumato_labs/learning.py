"""Linear regression from local reports: mini-batch gradient descent, and ridge regression from moments.

Gradient descent uses every person once.  The collector sends the current coefficients to a group of people.  Each
computes the gradient on their own row, clips it to [-1, 1], and reports one random coordinate through a mean
randomizer.  In ridge regression each person reports one random product of entries of their own row.  Both have the
randomizer's epsilon for the replacement of a person's whole row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.local.estimators import Post
from sfumato.local.protocol.device import randomize
from sfumato.local.specs.mean import Mean
from sfumato.privacy.entropy import Entropy

Floats = NDArray[np.float64]

PENALTY = 1e-4
"""Weight of the squared coefficients in gradient descent."""

_LEAST_GROUP = 1000


@dataclass(frozen=True, eq=False)
class RegressionData:
    """People's rows: inputs ``(n, d)`` and outcomes ``(n,)``, all within [-1, 1].

    Raises:
        InputError: the shapes do not fit, or a number is missing or outside [-1, 1].
    """

    inputs: Floats
    outcomes: Floats

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.outcomes.shape != self.inputs.shape[:1]:  # noqa: PLR2004
            raise InputError("learning needs a row of inputs and one outcome for every person")
        if not all(np.all(np.abs(part) <= 1) for part in (self.inputs, self.outcomes)):
            raise InputError("inputs and outcomes must be scaled to [-1, 1] by public bounds, and none may be missing")

    def take(self, chosen: NDArray[np.intp] | slice) -> RegressionData:
        """Return the rows of some people."""
        return RegressionData(self.inputs[chosen], self.outcomes[chosen])


Perturb = Callable[[Floats, NDArray[np.intp], Floats], Floats]
"""A function of clipped gradient coordinates, the number of each coordinate, and the input's own value of that
coordinate, each of shape ``(n,)``.  It returns unbiased noisy values ``(n,)``.  Only randomizers with graded budgets
need the last argument.
"""


def perturb_with(spec: Mean, entropy: Entropy) -> Perturb:
    """Return the perturbation of a mean spec between -1 and 1.

    Raises:
        InputError: the spec has other bounds.
    """
    if (spec.low, spec.high) != (-1, 1):
        raise InputError("gradients need a mean spec between -1 and 1", culprit=spec)
    outputs = np.array(spec.outputs)

    def perturb(values: Floats, coordinate: NDArray[np.intp], inputs: Floats) -> Floats:  # noqa: ARG001
        noisy: Floats = outputs[randomize(spec, values, entropy).data]
        return noisy

    return perturb


def group_size(coordinates: int, epsilon: float) -> int:
    """Return the people per step: at least 1000, and enough for the noise of sampled coordinates (Nguyen et al.
    2016).
    """
    return max(math.ceil(2 * coordinates * math.log(max(coordinates, 2)) / epsilon**2), _LEAST_GROUP)


def descend(rows: RegressionData, perturb: Perturb, *, group: int, generator: np.random.Generator) -> Floats:
    """Return coefficients ``(d,)`` from one pass of mini-batch gradient descent.

    The sampled coordinate is scaled by d.  The gradient of the penalty is ``PENALTY * b``.  Steps shrink as 1 /
    sqrt(t).  The last, partial group is used, and the result is the average of all iterates.

    Args:
        rows: in random order, because the order of arrival must not depend on the rows.
        perturb: the local randomizer.
        group: people per step.
        generator: draws the coordinate that each person reports.
    """
    people, dimension = rows.inputs.shape
    iterates = [np.zeros(dimension)]
    for step, start in enumerate(range(0, people, group), start=1):
        part = rows.take(slice(start, start + group))
        b = iterates[-1]
        coordinate = generator.integers(0, dimension, size=len(part.outcomes))
        own = part.inputs[np.arange(len(part.outcomes)), coordinate]
        slope = np.clip(2 * (part.inputs @ b - part.outcomes) * own, -1, 1)
        noisy = perturb(slope, coordinate, own)
        gradient = dimension * np.bincount(coordinate, weights=noisy, minlength=dimension) / len(noisy) + PENALTY * b
        iterates.append(b - gradient / math.sqrt(step))
    averaged: Floats = np.mean(iterates, axis=0)
    return averaged


def ridge(rows: RegressionData, spec: Mean, *, entropy: Entropy, generator: np.random.Generator) -> Floats:
    """Return coefficients ``(d,)`` of ridge regression from locally private second moments.

    Every person reports one of the products ``x_i x_j`` and ``x_i y`` of their own row; these are in [-1, 1]. The
    penalty is the standard error of a moment times the root of d, which keeps the noisy matrix well conditioned.

    Raises:
        InputError: fewer than two people reported a moment, or the spec has other bounds than -1 and 1.
    """
    if (spec.low, spec.high) != (-1, 1):
        raise InputError("moments need a mean spec between -1 and 1", culprit=spec)
    people, dimension = rows.inputs.shape
    first, second = np.triu_indices(dimension, m=dimension + 1)
    augmented = np.column_stack([rows.inputs, rows.outcomes])
    entry = generator.integers(0, first.size, size=people)
    products = augmented[np.arange(people), first[entry]] * augmented[np.arange(people), second[entry]]
    data = randomize(spec, products, entropy).data
    moments, errors = np.empty(first.size), np.empty(first.size)
    for index in range(first.size):
        mine = data[entry == index]
        made = spec.estimate(spec.randomizer.tally(mine), len(mine), Post.NONE)
        moments[index], errors[index] = made.values[0], made.variance[0]
    matrix = np.zeros((dimension, dimension + 1))
    matrix[first, second] = moments
    square = matrix[:, :dimension]
    square = square + np.triu(square, 1).T
    penalty = math.sqrt(dimension * float(np.mean(errors)))
    values, vectors = np.linalg.eigh(square)
    solved: Floats = vectors @ ((vectors.T @ matrix[:, dimension]) / (np.maximum(values, 0) + penalty))
    return solved


def mean_squared_error(rows: RegressionData, coefficients: Floats) -> float:
    """Return the average squared error of predictions."""
    return float(np.mean((rows.outcomes - rows.inputs @ coefficients) ** 2))
