"""The same potentials, and the same noisy measurements, give the same marginals as private-pgm.

private-pgm (McKenna, Sheldon and Miklau 2019) is the reference implementation of inference for noisy marginals.  It
shares no code with :mod:`sfumato.model`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.model.factor import Factor
from sfumato.model.fitting import Observation, Patience, fit_model, loss
from sfumato.model.graphical_model import GraphicalModel

SIZES = dict(zip("abcdefghijkl", (2, 3, 5, 4, 2, 7, 3, 6, 2, 4, 5, 3), strict=True))
CLIQUES = {
    "tree": [("a", "b"), ("b", "c"), ("c", "d", "e"), ("e", "f"), ("d", "g"), ("g", "h"), ("i", "j"), ("j", "k")],
    "loop": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("d", "e", "f"), ("f", "g"), ("g", "e"), ("h", "i")],
}
OUTSIDE = [("a", "c"), ("a", "e", "l")]
"""Marginals within no clique, whose computation joins several of them."""

TOTAL = 5000.0
Tables = list[tuple[tuple[str, ...], np.ndarray]]


def potentials(cliques: list[tuple[str, ...]]) -> Tables:
    random = np.random.default_rng(1102)
    return [(clique, random.normal(size=[SIZES[name] for name in clique])) for clique in cliques]


def model_of(tables: Tables) -> GraphicalModel:
    return GraphicalModel(SIZES, tuple(Factor(clique, values) for clique, values in tables), TOTAL)


def measurements(cliques: list[tuple[str, ...]]) -> tuple[Tables, list[float]]:
    """Return noisy tables of every column and clique, of two precisions, and their standard deviations."""
    random = np.random.default_rng(1202)
    truth = model_of([(clique, 0.4 * values) for clique, values in potentials(cliques)])
    measured = [*((name,) for name in SIZES), *cliques]
    deviations = [float(random.choice([5.0, 20.0])) for _ in measured]
    tables = [
        (clique, truth.expected(clique) + random.normal(scale=deviation, size=[SIZES[name] for name in clique]))
        for clique, deviation in zip(measured, deviations, strict=True)
    ]
    return tables, deviations


def observed(tables: Tables, deviations: list[float]) -> list[Observation]:
    pairs = zip(tables, deviations, strict=True)
    return [Observation(clique, values, deviation**2) for (clique, values), deviation in pairs]


def request(tables: Tables, **more: Any) -> dict[str, Any]:
    rows = [(clique, values.tolist()) for clique, values in tables]
    asked = [*(clique for clique, _ in tables), *OUTSIDE]
    return {"sizes": SIZES, "tables": rows, "total": TOTAL, "asked": asked, **more}


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict[tuple[str, ...], np.ndarray]]:
    """Return the marginals of private-pgm's models by the name of the model; one process computes all of them."""
    if find_spec("mbi") is None:
        pytest.skip("private-pgm is not installed; pip install 'sfumato[oracle]'")
    requests = {}
    for name, cliques in CLIQUES.items():
        columns = [((column,), np.zeros(size)) for column, size in SIZES.items()]
        requests[name] = request([*potentials(cliques), *columns])
    tables, deviations = measurements(CLIQUES["loop"])
    requests["measurements"] = request(tables, deviations=deviations)
    script = Path(__file__).with_name("private_pgm.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        input=json.dumps([*requests.values()]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: {
            clique: np.array(values).reshape([SIZES[column] for column in clique])
            for clique, values in zip(requests[name]["asked"], answer, strict=True)
        }
        for name, answer in zip(requests, json.loads(done.stdout), strict=True)
    }


def farthest(model: GraphicalModel, other: dict[tuple[str, ...], np.ndarray]) -> float:
    """Return the largest difference of a cell, in shares of the total."""
    return max(float(np.abs(model.expected(clique) - values).max()) for clique, values in other.items()) / TOTAL


@pytest.mark.parametrize("name", CLIQUES)
def test_equal_potentials_give_equal_marginals(name: str, theirs: dict) -> None:
    tables = potentials(CLIQUES[name])
    assert farthest(model_of(tables), theirs[name]) < 1e-10
    tables[0][1][0, 0] += 0.01
    assert farthest(model_of(tables), theirs[name]) > 1e-4  # a difference in one potential is seen


def test_equal_measurements_give_equal_marginals(theirs: dict) -> None:
    """Noisy tables contradict one another, and both models come to the same compromise.

    A difference of 2e-4 of the total is one row, where the noise has standard deviations of 5 and 20 rows.
    """
    observations = observed(*measurements(CLIQUES["loop"]))
    uniform, patience = GraphicalModel.uniform(SIZES, [], TOTAL), Patience(iterations=1500, tolerance=1e-7)
    other = theirs["measurements"]
    assert farthest(fit_model(observations, uniform, patience), other) < 2e-4
    assert farthest(fit_model(observations[1:], uniform, patience), other) > 2e-4  # a missing table is seen


@pytest.mark.parametrize("name", CLIQUES)
def test_a_fit_from_the_truth_and_one_from_the_uniform_model_end_at_one_loss(name: str) -> None:
    """The loss is convex in the marginals; relative steps alone stall in the loop at more than twice the least loss."""
    tables, deviations = measurements(CLIQUES[name])
    observations, patience = observed(tables, deviations), Patience(iterations=1500, tolerance=1e-5)
    truth = model_of([(clique, 0.4 * values) for clique, values in potentials(CLIQUES[name])])
    ends = [fit_model(observations, start, patience) for start in (truth, GraphicalModel.uniform(SIZES, [], TOTAL))]
    assert loss(observations, ends[1]) == pytest.approx(loss(observations, ends[0]), rel=0.01)
