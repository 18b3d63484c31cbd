"""Labs on HierA and on gradient descent: columns, exact numbers, honest comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sfumato.errors import InputError, TableError
from sfumato.local.specs.hiera import DIVISIONS
from sfumato_labs import hiera, ldp_sgd, printed_hiera
from sfumato_labs.lab import Options
from sfumato_labs.tables import scaled

EXACT = {0.25: 2.151, 0.5: 3.947, 1.0: 8.067, 1.5: 12.580, 2.0: 17.083, 2.5: 21.584}


def test_reuse_on_adult_ages_has_the_exact_ratios(shared_data: Path) -> None:
    found = hiera.run_mu(Options(runs=2, seed=1, data=shared_data / "adult" / "adult.csv"))
    errors = found.to_json()["tables"]["errors"]
    assert len(errors) == 30
    assert all(list(row) == ["mu", "epsilon", "mae", "exact_sd"] for row in errors)
    spread = {(row["mu"], row["epsilon"]): row["exact_sd"] for row in errors}
    ratios = [spread[2, e] / spread[1, e] for e in EXACT]
    assert ratios == pytest.approx([1.080, 1.077, 1.046, 1.021, 1.010, 1.005], abs=0.0006)
    assert all(row["mae"] < 6 * row["exact_sd"] for row in errors)
    json.dumps(found.to_json(), allow_nan=False)


def test_the_guarantees_are_the_exact_ones() -> None:
    assert {row["epsilon"]: row["real_epsilon"] for row in hiera.guarantees()} == EXACT


@pytest.mark.slow
def test_methods_side_by_side() -> None:
    tables = hiera.run_methods(Options(runs=2, seed=1)).to_json()["tables"]
    methods = {"harmony", "pm", "hm", "multi_laplace", "hiera", "optimal_table"}
    for name, expected in (("published", methods), ("equal_real_epsilon", methods - {"multi_laplace"})):
        assert {row["method"] for row in tables[name]} == expected
        assert all(list(row) == ["method", "data", "epsilon", "real_epsilon", "mae"] for row in tables[name])
        graded = {row["epsilon"]: row["real_epsilon"] for row in tables[name] if row["method"] == "hiera"}
        assert graded == EXACT
    assert {row["real_epsilon"] for row in tables["published"] if row["method"] == "multi_laplace"} == {"inf"}
    equal = {
        method: np.mean([row["mae"] for row in tables["equal_real_epsilon"] if row["method"] == method])
        for method in ("hiera", "pm", "optimal_table")
    }
    assert equal["hiera"] > 3 * equal["pm"]
    assert equal["hiera"] > 3 * equal["optimal_table"]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_printed_mechanisms_are_unbiased(epsilon: float) -> None:
    generator = np.random.default_rng(1)
    for value in (-1.0, 0.3, 1.0):
        values = np.full(100_000, value)
        for method in (printed_hiera.harmony, printed_hiera.piecewise, printed_hiera.hybrid):
            noisy = method(values, epsilon, generator)
            assert abs(noisy.mean() - value) < 9.3 * noisy.std() / np.sqrt(values.size)
    spread = printed_hiera.piecewise(np.full(400_000, 1.0), 1.0, generator).var()
    root = np.exp(0.5)
    assert spread == pytest.approx(1 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2), rel=0.03)


def test_multi_level_laplace_shows_the_level_in_its_scale() -> None:
    budgets = hiera.graded(hiera.EPSILONS[2]).budgets
    generator = np.random.default_rng(2)
    low, high = (
        printed_hiera.multi_laplace(np.full(50_000, v), np.array(DIVISIONS), budgets, generator).std() for v in (-1, 1)
    )
    assert high / low == pytest.approx(5, rel=0.05)


@pytest.mark.slow
def test_gradient_descent_on_made_data() -> None:
    rows = ldp_sgd.run(Options(runs=1, seed=1)).to_json()["tables"]["errors"]
    error = {(row["method"], row["procedure"], row["epsilon"]): row["mse"] for row in rows}
    assert error["none", "optimum", 1.0] == pytest.approx(0.0100, abs=0.0003)
    for method in ("harmony", "pm", "hm", "optimal_table"):
        assert error[method, "corrected", 1.0] < 0.017
        assert error[method, "corrected", 2.0] < error[method, "corrected", 0.5]


def test_made_data_has_the_stated_variance() -> None:
    rows = ldp_sgd.made(np.random.default_rng(3))
    assert rows.outcomes.var() == pytest.approx(0.0547, abs=0.0005)


def test_columns_are_scaled_and_gaps_left_out(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n10,1,x\n20,2,y\n30,N,z\n")
    assert scaled(table, {"a": None})[:, 0].tolist() == [-1, 0, 1]
    assert scaled(table, {"a": None, "b": (0, 4)}).tolist() == [[-1, -0.5], [0, 0]]
    for columns in ({"d": None}, {"c": None}):
        with pytest.raises(TableError):
            scaled(table, columns)


def test_without_a_table_the_lab_says_what_it_lacks_or_uses_the_census() -> None:
    try:
        found = hiera.run_mu(Options(runs=1, seed=1))
    except InputError as error:
        assert "--data" in str(error)  # noqa: PT017 -- which of the two happens depends on the bundled data
    else:
        assert len(found.tables["errors"]) == 30
