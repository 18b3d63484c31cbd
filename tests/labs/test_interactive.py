"""The interactive lab: figures of the design, the flaws that it claims, and an honest session."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato_labs import printed_interactive
from sfumato_labs.interactive import averaging, within
from sfumato_labs.lab import Options, load


@pytest.fixture(scope="module")
def found():
    return load("interactive").run(Options(runs=4, seed=7))


def test_the_exact_danger_figures_are_those_of_the_design(found):
    exact = {(row["epsilon"], row["queries"]): row["exact_percent"] for row in found.tables["danger_interval"]}
    designed = {
        (0.1, 100): 27.73,
        (0.1, 1000): 73.66,
        (0.1, 10_000): 99.96,
        (0.1, 100_000): 100,
        (0.01, 100): 2.83,
        (0.01, 1000): 8.91,
        (0.01, 10_000): 27.63,
        (0.01, 100_000): 73.64,
        (1.0, 100): 99.95,
        (1.0, 1000): 100,
    }
    assert {key: exact[key] for key in designed} == pytest.approx(designed, abs=0.006)
    for row in found.tables["danger_interval"]:
        share = row["exact_percent"] / 100
        spread = 100 * 6 * np.sqrt(share * (1 - share) / 20_000) + 0.05
        assert row["monte_carlo_percent"] == pytest.approx(row["exact_percent"], abs=spread)


@pytest.mark.parametrize("queries", [1, 2])
def test_the_inversion_agrees_with_closed_forms(queries):
    distance, scale = 0.5, 2.0
    reach = distance * queries / scale
    one, two = 1 - np.exp(-reach), 1 - np.exp(-reach) * (1 + reach / 2)
    assert within(distance, queries, scale) == pytest.approx(one if queries == 1 else two, abs=2e-3)
    normal = stats.norm.cdf(0.5 / (np.sqrt(2) * 2 / 100)) * 2 - 1
    assert within(0.5, 10_000, 2.0) == pytest.approx(normal, abs=1e-3)


def test_the_noise_quantiles(found):
    rows = [row for row in found.tables["noise_quantiles"] if row["epsilon"] == 1]
    assert [round(row["laplace"], 2) for row in rows] == [2.30, 3.00, 4.61, 6.91]
    assert [row["discrete_laplace"] for row in rows] == [2, 3, 4, 7]
    for row in found.tables["noise_quantiles"]:
        assert row["monte_carlo"] == pytest.approx(row["laplace"], rel=0.12)


def test_the_printed_sampler_is_biased_by_a_quarter_of_its_scale():
    random = np.random.default_rng(0)
    assert printed_interactive.means(400_000, 1000.0, random) == pytest.approx(250.25, abs=6)
    drawn = [printed_interactive.noise(printed_interactive.Generator(seed), 1000.0) for seed in range(10_000)]
    assert 100 < np.mean(drawn) < 400


def test_one_printed_answer_gives_the_count_away(found):
    for row in found.tables["printed"]:
        assert row["true_count_found"]
        assert row["counts_left_possible"] <= 3


def test_averaging_defeats_fixed_noise_and_nothing_else(found):
    distance = {(row["regime"], row["queries"]): row["mean_distance"] for row in found.tables["averaging"]}
    assert distance["fixed noise, never refused", 10_000] < 10
    assert distance["budget divided by the number asked", 10_000] > 50
    assert distance["stored answers", 10_000] > 20
    assert distance["printed sampler, budget divided", 10_000] == pytest.approx(25_000, rel=0.2)


def test_the_mean_of_answers_under_a_divided_budget_gets_worse_as_the_notes_say(found):
    rows = averaging(np.random.default_rng(1), Options(runs=400, seed=1))
    divided = {row["queries"]: row["mean_distance"] for row in rows if "divided by the number" in row["regime"]}
    for asked, distance in divided.items():
        # of a normal variable with standard deviation sqrt(2 n) / epsilon
        assert distance == pytest.approx(np.sqrt(2 * asked) / 0.1 * np.sqrt(2 / np.pi), rel=0.2)
    (note,) = [note for note in found.notes if note.startswith("averaging")]
    assert "sqrt(2 n)/epsilon" in note
    assert "stays as wrong" not in note


def test_the_honest_session_answers_twenty_repeats_for_free_and_refuses_the_next(found):
    rows = {row["question"]: row for row in found.tables["honest"]}
    assert rows["more than 55, again"]["zoo"] == rows["more than 55"]["zoo"]
    assert rows["more than 97, a 21st"]["zoo"] == "refused"
    assert rows["more than 97, a 21st"]["zoo_without_dugong"] == "refused"


def test_the_medical_histograms_differ_by_one_patient(found):
    rows = found.tables["medical"]
    counts = {name: [row["count"] for row in rows if row["table"] == name] for name in ("medical", "neighbour")}
    assert counts == {"medical": [405, 436, 421, 457, 463], "neighbour": [405, 435, 421, 457, 463]}
    assert all(abs(row["honest"] - row["count"]) < 400 for row in rows)


def test_a_run_can_be_repeated(found):
    assert load("interactive").run(Options(runs=4, seed=7)).to_json() == found.to_json()
