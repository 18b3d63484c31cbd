"""Mechanisms for a mean as the HierA study printed them, in floating point, for simulation only.

None of these is fit for a release: floating-point noise gives inputs away, and multi-level Laplace noise, whose scale
depends on the value, has no finite epsilon at all.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.local.specs.hiera import levels_of

Floats = NDArray[np.float64]

_HYBRID_FROM = 0.61


def harmony(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """One bit a value (Duchi et al.; Harmony, Nguyen et al. 2016)."""
    rate = math.tanh(epsilon / 2)
    return np.where(generator.random(values.size) < (1 + values * rate) / 2, 1 / rate, -1 / rate)


def piecewise(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """The piecewise mechanism (Wang et al. 2019, Algorithm 2)."""
    root = math.exp(epsilon / 2)
    reach = (root + 1) / (root - 1)
    left = (reach + 1) / 2 * values - (reach - 1) / 2
    near = generator.random(values.size) < root / (root + 1)
    inner = left + generator.random(values.size) * (reach - 1)
    outer = generator.random(values.size) * (reach + 1) - reach  # the line without the window, closed up
    outer += np.where(outer >= left, reach - 1, 0)
    return np.where(near, inner, outer)


def hybrid(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """The hybrid mechanism (Wang et al. 2019): piecewise with probability 1 - e^(-epsilon/2), otherwise one bit."""
    if epsilon <= _HYBRID_FROM:
        return harmony(values, epsilon, generator)
    pieces = generator.random(values.size) < 1 - math.exp(-epsilon / 2)
    return np.where(pieces, piecewise(values, epsilon, generator), harmony(values, epsilon, generator))


def multi_laplace(
    values: Floats, divisions: Floats, budgets: tuple[Fraction, ...], generator: np.random.Generator
) -> Floats:
    """Laplace noise with the budget of the value's own level.  Its epsilon is infinite: the scale shows the level."""
    budget = np.array([float(each) for each in budgets])[levels_of(values, divisions)]
    return values + generator.laplace(0, 2 / budget)
