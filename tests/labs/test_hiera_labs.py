"""Labs on HierA: the printed program against exact variances, exact guarantees, captions that follow their tables."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato.errors import InputError, TableError
from sfumato.local.specs.hiera import DIVISIONS, Hiera, variance
from sfumato_labs import NamedColumn, hiera_labs, printed_hiera, run
from sfumato_labs.published_tables import read

EXACT = {0.25: 2.151, 0.5: 3.947, 1.0: 8.067, 1.5: 12.580, 2.0: 17.083, 2.5: 21.584}
ALTERNATIVE = {0.25: 0.933, 0.5: 1.827, 1.0: 3.472, 1.5: 4.956, 2.0: 6.585, 2.5: 8.455}
BUDGETS = [5.0, 4.0, 3.0, 2.0, 1.0]


def test_the_guarantees_are_the_exact_ones() -> None:
    rows = hiera_labs.guarantees()
    assert {row["epsilon"]: row["real_epsilon"] for row in rows} == EXACT
    assert {row["epsilon"]: row["real_epsilon_of_2e_to_e"] for row in rows} == ALTERNATIVE


def test_made_data_are_the_published_kinds() -> None:
    """Standard errors of the mean are below 0.003 and of the deviation below 0.002."""
    values = hiera_labs.made(np.random.default_rng(1), 100_000)
    assert {name: (each.min() >= -1, each.max() <= 1) for name, each in values.items()} == dict.fromkeys(
        ("normal", "uniform", "exponential"), (True, True)
    )
    assert values["exponential"].mean() == pytest.approx(0.264, abs=0.012)
    assert values["exponential"].std() == pytest.approx(0.72, abs=0.01)
    assert values["normal"].mean() == pytest.approx(0.5, abs=0.0015)


@pytest.mark.parametrize("mu", [1, 2, 5])
def test_the_printed_program_errs_as_the_exact_variance_says(mu: int) -> None:
    """200 runs of 20 000 people, where no level is clamped: a mean square of 200 errors is within 45 % of the variance
    with a false-alarm rate of 1e-5 (4.5 standard deviations of 10 %); noise 30 % too small leaves half of it."""
    generator = np.random.default_rng(mu)
    values = hiera_labs.made(generator, 20_000)["uniform"]
    errors = [printed_hiera.hiera(values, BUDGETS, generator, mu=mu) - values.mean() for _ in range(200)]
    spec = Hiera.design(-1, 1, divisions=DIVISIONS, budgets=[Fraction(level) for level in (5, 4, 3, 2, 1)])
    exact = variance(values, spec, mu=mu)
    assert np.mean(np.square(errors)) == pytest.approx(exact, rel=0.45)
    assert abs(np.mean(errors)) < 4.5 * np.sqrt(exact / 200)


def test_the_printed_collector_clamps_every_level() -> None:
    """Ten reports of one sign: unclamped the level would claim 10 / (2 p - 1) = 21.6 of them, clamped it claims ten."""
    counts = np.zeros((5, 2), dtype=np.int64)
    counts[4, 0] = 10
    assert printed_hiera.collected(counts, BUDGETS, np.random.default_rng(0), mu=1) == 1
    with_zeros = printed_hiera.collected(counts, BUDGETS, np.random.default_rng(0), mu=1, zeros=30)
    assert with_zeros == pytest.approx(0.25)


def test_reuse_on_adult_ages_has_the_exact_ratios(shared_data: Path) -> None:
    found = run("hiera-mu", runs=2, seed=1, people=1000, data=str(shared_data / "adult" / "adult.csv"))
    errors = [row for row in found.to_json()["tables"]["errors"] if row["data"] == "age"]
    assert len(errors) == 30
    spread = {(row["mu"], row["epsilon"]): row["exact_sd"] for row in errors}
    ratios = [spread[2, e] / spread[1, e] for e in EXACT]
    assert ratios == pytest.approx([1.080, 1.077, 1.046, 1.021, 1.010, 1.005], abs=0.0006)
    assert all(row["mae"] < 6 * row["exact_sd"] for row in errors)
    assert all(spread[5, e] < spread[4, e] for e in EXACT)  # why no caption says that it rises with every use
    json.dumps(found.to_json(), allow_nan=False)


def test_the_census_stands_in_and_options_are_taken() -> None:
    found = run(
        "hiera-mu",
        runs=2,
        seed=1,
        people=1000,
        epsilon="0.5",
        mu=[1, 3],
        budgets="3,2,1",
        columns="hours_per_week=1:99",
    )
    assert "bundled synthetic census" in found.notes[0]
    assert {row["data"] for row in found.tables["errors"]} == {"normal", "uniform", "exponential", "hours_per_week"}
    assert {row["mu"] for row in found.tables["errors"]} == {1, 3}
    (guarantee,) = found.tables["guarantees"]
    assert guarantee["budgets"] == "1.5, 1, 0.5"
    with pytest.raises(InputError, match="--mu must be at most 3"):
        run("hiera-mu", runs=1, budgets="3,2,1", mu=4)


def methods(**settings: object) -> dict[str, list[dict[str, object]]]:
    tables: dict[str, list[dict[str, object]]] = run("hiera-methods", seed=1, **settings).to_json()["tables"]
    return tables


def test_methods_side_by_side() -> None:
    tables = methods(runs=2, people=2000, epsilon="1,2.5")
    named = {"harmony", "pm", "hm", "hiera, mu = 1", "optimal_table"}
    printed = named | {"multi_laplace", "hiera, mu = 2, clamped"}
    for name, expected in (("published", printed), ("equal_real_epsilon", named)):
        assert {row["method"] for row in tables[name]} == expected
        assert {row["epsilon"]: row["real_epsilon"] for row in tables[name] if row["method"] == "hiera, mu = 1"} == {
            1.0: EXACT[1.0],
            2.5: EXACT[2.5],
        }
    assert {row["real_epsilon"] for row in tables["published"] if row["method"] == "multi_laplace"} == {"inf"}


@pytest.mark.parametrize("data", ["normal", "uniform"])
def test_hiera_as_printed_is_behind_simpler_mechanisms_at_large_epsilon(data: str) -> None:
    """The variances are exact, so only the values are drawn. At epsilon = 2.5 the piecewise mechanism and multi-level
    Laplace have at most two thirds of HierA's variance, although its actual epsilon is 21.6. Only Harmony has more.
    """
    values = hiera_labs.made(np.random.default_rng(1), 100_000)[data]
    own = variance(values, hiera_labs.graded(Fraction(5, 2)), mu=2) * values.size
    root, square = np.exp(1.25), float(np.mean(values**2))
    piecewise = square / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    scales = 2 / (2.5 * np.array(BUDGETS))[printed_hiera.levels(values, 5)]
    harmony = 1 / np.tanh(1.25) ** 2 - square
    assert max(piecewise, 2 * float(np.mean(scales**2))) < own / 1.5
    assert own < harmony
    rows = methods(runs=1, people=1000, epsilon="2.5")["published"]
    assert {row["real_epsilon"] for row in rows if row["method"] == "hiera, mu = 2, clamped"} == {21.584}


def test_methods_are_drawn_over_the_epsilon_that_they_are_compared_at() -> None:
    found = run("hiera-methods", runs=1, seed=1, people=100, epsilon="1,2.5")
    ends = {
        plot.name: {float(value) for value in re.findall(r'"x": ([0-9.]+)', plot.chart.to_json())}
        for plot in found.plots
    }
    assert ends == {"published": {1.0, 2.5}, "equal": {EXACT[1.0], EXACT[2.5]}}


def test_captions_follow_their_tables() -> None:
    row = {"data": "a", "epsilon": 1.0, "real_epsilon": 4.5}
    nominal = [{**row, "method": "harmony", "mae": 1.0}, {**row, "method": "hiera, mu = 2, clamped", "mae": 2.0}]
    assert "2 on a" in hiera_labs.ranks(nominal)
    assert "really spends 4.5 times as much" in hiera_labs.ranks(nominal)
    nominal[1]["mae"] = 0.5
    assert "1 on a" in hiera_labs.ranks(nominal)
    equal = [{**row, "method": "harmony", "mae": 1.0}, {**row, "method": "hiera, mu = 1", "mae": 3.0}]
    assert "3 to 3 times as much as Harmony" in hiera_labs.beaten(equal)
    equal[0]["mae"] = 0.0  # a table of one value may be reported exactly
    assert "at epsilon = 1 it errs where another does not err at all" in hiera_labs.beaten(equal)
    assert hiera_labs.unsolved(equal) == ("The solver finds no optimal table at epsilon 4.5: it is left out there.",)
    (behind,) = hiera_labs.unsolved(
        [{**row, "method": name, "mae": each} for name, each in (("pm", 1.0), ("optimal_table", 3.0))]
    )
    assert "at real epsilon 4.5 this rounding errs more than twice" in behind
    assert not hiera_labs.unsolved([{**row, "method": "optimal_table", "mae": 1.0}])
    levels = ({"epsilon": 1.0, "budgets": "3, 2, 1", "real_epsilon": 4.5},)
    assert "with budgets 3, 2, 1 at epsilon = 1 it is 4.5; it is 4.5 times epsilon" in hiera_labs.spent(levels)
    uses = [{**row, "mu": 1, "exact_sd": 2.0}, {**row, "mu": 2, "exact_sd": 1.0}]
    assert "best in 0 of 1" in hiera_labs.best_use(uses)


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
    generator = np.random.default_rng(2)
    low, high = (printed_hiera.multi_laplace(np.full(50_000, v), BUDGETS, generator).std() for v in (-1.0, 1.0))
    assert high / low == pytest.approx(5, rel=0.05)


def test_columns_are_scaled_and_gaps_left_out(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n10,1,x\n20,2,y\n30,N,z\n")
    found = read(str(table))
    assert found.numeric() == ("a",)
    assert found.scaled([NamedColumn("a")])[:, 0].tolist() == [-1, 0, 1]
    assert found.scaled([NamedColumn("a"), NamedColumn("b", (0, 4))]).tolist() == [[-1, -0.5], [1, 0]]
    with pytest.raises(TableError):
        found.scaled([NamedColumn("c")])
    with pytest.raises(TableError):
        read(str(table), ["d"])
