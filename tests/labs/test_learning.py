"""Linear regression from local reports: near the optimum, and unbiased steps."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.local import Mean
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato_labs.learning import RegressionData, descend, group_size, mean_squared_error, perturb_with, ridge

RANDOM = np.random.default_rng(11)


def regression(people: int, dimension: int) -> tuple[RegressionData, np.ndarray]:
    inputs = RANDOM.choice([-1.0, 1.0], (people, dimension))
    weights = np.linspace(-0.2, 0.2, dimension)
    return RegressionData(inputs, np.clip(inputs @ weights + RANDOM.normal(0, 0.05, people), -1, 1)), weights


def test_descent_and_ridge_come_near_the_optimum() -> None:
    rows, weights = regression(200_000, 4)
    spec = Mean.design(-1, 1, epsilon=2)
    trivial = mean_squared_error(rows, np.zeros(4))
    descended = descend(rows, perturb_with(spec, SimulatedEntropy(1)), group=group_size(4, 2.0), generator=RANDOM)
    moments = ridge(rows, spec, entropy=SimulatedEntropy(2), generator=RANDOM)
    best = mean_squared_error(rows, weights)
    for found in (descended, moments):
        assert mean_squared_error(rows, found) < best + 0.1 * (trivial - best)


def test_a_gradient_is_unbiased_after_scaling_by_the_dimension() -> None:
    """With one group and no noise, the first step is the full gradient."""
    rows, _ = regression(200_000, 4)
    exact = lambda values, coordinate, inputs: values  # noqa: ARG005, E731
    found = descend(rows, exact, group=200_000, generator=RANDOM)
    gradient = -(rows.inputs * rows.outcomes[:, None]).mean(axis=0)
    assert found == pytest.approx(
        -gradient, abs=0.02
    )  # half of twice it: the average of the start and the first iterate


def test_group_sizes_and_bounds() -> None:
    assert group_size(10, 1.0) == 1000
    assert group_size(100, 0.5) == 3685
    with pytest.raises(InputError, match="scaled"):
        RegressionData(np.array([[2.0]]), np.array([0.0]))
    with pytest.raises(InputError, match="between -1 and 1"):
        perturb_with(Mean.design(0, 1, epsilon=1), SimulatedEntropy(1))
