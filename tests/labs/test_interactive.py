"""The interactive lab: its prints to the last digit, the clocks behind them, the flaws claimed, honest answers."""

from __future__ import annotations

import ctypes
import hashlib

import numpy as np
import pytest
from scipy import stats

from sfumato import data
from sfumato_labs import filtering_study, interactive_noise, printed_interactive, run
from sfumato_labs.interactive_noise import averaging, within
from sfumato_labs.interactive_prints import PUBLISHED_BUCKETS
from sfumato_labs.printed_interactive import CLOCKS, RECORDS_CLOCK, SEEDS, clock_starts, starts

MISPRINTS = {420.856021: 420.956021, 165.718378: 465.718378}


@pytest.fixture(scope="module")
def found():
    return run("interactive", runs=4, seed=7)


def test_the_generator_is_the_printed_one():
    state, drawn = 12_345, []
    for _ in range(6):
        state = (2045 * state + 1) % 1_048_576
        drawn.append(state / 1_048_576)
    assert printed_interactive.uniforms(np.array([12_345]), 6)[0].tolist() == drawn
    assert starts(np.array([0, 9999, 10_001])).tolist() == [10_000, 19_999, 10_001]


def test_the_printed_histogram_comes_out_to_the_last_digit(found):
    """Deterministic: no false alarm.  Two of the twenty figures are misprints, each of one digit."""
    rows = found.tables["printed_buckets"]
    assert [row["published"] for row in rows] == [figure for print_ in PUBLISHED_BUCKETS.values() for figure in print_]
    for row in rows:
        assert row["as_printed"] == MISPRINTS.get(row["published"], row["published"])
    assert sum(row["equal"] for row in rows) == 18


def test_the_printed_averages_are_within_sampling_error(found):
    """36 averages against the exact mean over all seeds; beyond 4.5 standard deviations once in 4000 such tables."""
    rows = [row for row in found.tables["printed_averages"] if row["published"] is not None]
    assert len(rows) == 36
    for row in rows:
        assert abs(row["published"] - row["expected"]) < 4.5 * row["sd_of_average"]
        assert abs(row["as_printed"] - row["expected"]) < 4.5 * row["sd_of_average"]


def test_seeds_are_those_of_the_c_library():
    """The C library draws the numbers that the lab computes; the first four seeds are those of the printed session."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        pytest.skip("rand of another C library than GNU's")
    clocks = np.array([RECORDS_CLOCK, *CLOCKS.values()])
    drawn = clock_starts(clocks, 400)
    for clock, row in zip(clocks.tolist(), drawn.tolist(), strict=True):
        libc.srand(clock)
        assert row == [libc.rand() % 10_000 + 10_000 for _ in range(400)]
    assert drawn[0, :4].tolist() == [18332, 14053, 15060, 19461]


def test_the_printed_noises_have_two_misprints():
    """The noise of record 180 in the first run, and of record 2 in the fourth."""
    first = printed_interactive.noise(np.array([18332]), 182, 0.1)[0]
    fourth = printed_interactive.noise(np.array([19461]), 181, 10)[0]
    assert round(float(first[179]), 6) == 0.900634
    assert round(float(fourth[1]), 6) == 7.535990


def test_every_printed_count_comes_out_of_the_printed_seed(found):
    rows = [row for row in found.tables["printed_records"] if row["published"] is not None]
    assert [(row["published"], row["as_printed"], row["true_count"]) for row in rows] == [
        (90, 90, 90),
        (88, 88, 89),
        (92, 92, 90),
        (89, 89, 89),
    ]


def test_one_second_fits_each_printed_run(found):
    """A wrong second passes four tests by chance with probability (2 * 6e-7 n)^4, at n = 10 000 once in 5e7."""
    rows = found.tables["clocks_recovered"]
    assert {(row["program"], row["queries"]): row["clock"] for row in rows} == CLOCKS
    assert all(row["seconds_left"] == 1 and row["seconds_tried"] == 480 for row in rows)


def test_the_list_of_answers_has_the_noise_and_the_average_of_the_run(found):
    averages = {
        (row["program"], row["epsilon"], row["queries"], row["table"]): row for row in found.tables["printed_averages"]
    }
    listed = found.tables["printed_answers"]
    assert len(listed) == 4 * (50 + 20)
    for program, asked in (("interactive", 50), ("improved", 20)):
        for epsilon in (10, 0.1):
            for table in ("zoo", "zoo without Dugong"):
                rows = [
                    row for row in listed if (row["program"], row["epsilon"], row["table"]) == (program, epsilon, table)
                ]
                average = averages[program, epsilon, asked, table]
                assert [row["question"] for row in rows] == list(range(1, asked + 1))
                assert np.mean([row["answer"] for row in rows]) == pytest.approx(average["as_printed"], abs=2e-6)
                assert np.mean([row["noise"] for row in rows]) == pytest.approx(average["noise"], abs=2e-6)


def test_the_stand_in_has_the_size_of_the_source_and_nearly_its_averages(found):
    whole, fewer = data.zoo()["carrots"].to_pylist(), data.zoo_neighbour()["carrots"].to_pylist()
    assert (len(whole), len(fewer)) == (182, 181)
    assert (sum(value >= 55 for value in whole), sum(value >= 55 for value in fewer)) == (90, 89)
    invented = whole[29:-3]
    assert not any(50 <= value < 55 for value in invented)
    rows = [row for row in found.tables["printed_averages"] if row["published"] is not None]
    assert all(abs(row["published"] - row["as_printed"]) * row["queries"] < 20 for row in rows)  # records of n answers
    assert sum(abs(row["published"] - row["as_printed"]) < 2e-6 for row in rows) >= 12


def test_a_file_with_the_numbers_of_the_source_is_taken_in_its_own_order(tmp_path, monkeypatch):
    """Any table can replace the source's here: the digest decides, and then the order of the file."""
    numbers = [3, 99, 60, 55, 54, *range(177)]
    path = tmp_path / "animals.csv"
    path.write_text("".join(f"animal {place},{number}\n" for place, number in enumerate(numbers)))
    digest = hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest()
    assert filtering_study.source_records(str(path)) is None
    monkeypatch.setattr(filtering_study, "SOURCE_DIGEST", digest)
    assert filtering_study.source_records(str(path)) == tuple(numbers)


def test_the_batch_is_less_noisy_than_the_session(found):
    rows = found.tables["honest_batch"]
    assert len(rows) == 20
    assert all(40 < row["standard_error"] < 75 for row in rows)


def test_one_answer_leaves_one_seed_and_gives_away_every_noise(found):
    for row in found.tables["seed_recovered"]:
        assert row["seed_found"]
        assert row["seeds_left"] <= 3
    assert any(row["seeds_left"] == 1 for row in found.tables["seed_recovered"])


def test_the_printed_sampler_is_biased_by_a_quarter_of_its_scale():
    drawn = printed_interactive.noise(starts(np.arange(SEEDS)), 40, 1000.0)
    drawn = drawn[np.isfinite(drawn)]
    assert drawn.mean() == pytest.approx(250.25, abs=6)
    assert drawn.std() == pytest.approx(1270, rel=0.02)


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
        assert row["published_percent"] == pytest.approx(row["exact_percent"], abs=2.5)


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
        assert row["published"] == pytest.approx(row["laplace"], rel=0.08)


def test_averaging_defeats_fixed_noise_and_nothing_else(found):
    distance = {(row["regime"], row["queries"]): row["mean_distance"] for row in found.tables["averaging"]}
    assert distance["fixed noise, never refused", 10_000] < 10
    assert distance["budget divided by the number asked", 10_000] > 50
    assert distance["stored answers", 10_000] > 20
    assert distance["printed sampler, budget divided", 10_000] == pytest.approx(25_000, rel=0.2)


def test_a_mean_under_a_divided_budget_gets_worse_as_the_caption_says(found):
    rows = averaging(90, (20, 100, 1000), np.random.default_rng(1), 400, 1)
    divided = {row["queries"]: row["mean_distance"] for row in rows if "divided by the number" in row["regime"]}
    for asked, distance in divided.items():
        # of a normal variable with standard deviation sqrt(2 n) / epsilon
        assert distance == pytest.approx(np.sqrt(2 * asked) / 0.1 * np.sqrt(2 / np.pi), rel=0.2)
    assert f"is off by {divided[1000]:.3g}" in interactive_noise.bias(rows)


def test_the_honest_session_repeats_for_free_and_refuses_the_next(found):
    rows = {row["question"]: row for row in found.tables["honest"]}
    assert rows["at least 95, again"]["zoo"] == rows["at least 95"]["zoo"]
    assert rows["at least 96, a 21st"]["zoo"] == "refused"
    assert rows["at least 96, a 21st"]["zoo_without_dugong"] == "refused"


def test_the_medical_histograms_differ_by_one_patient(found):
    rows = found.tables["medical"]
    counts = {name: [row["count"] for row in rows if row["table"] == name] for name in ("medical", "neighbour")}
    assert counts == {"medical": [405, 436, 421, 457, 463], "neighbour": [405, 435, 421, 457, 463]}
    assert all(abs(row["honest"] - row["count"]) < 400 for row in rows)


def test_a_run_with_other_options_can_be_repeated():
    first, second = (
        run("interactive", runs=2, seed=7, epsilon="1", queries="30", threshold=70).to_json() for _ in range(2)
    )
    assert first == second
    assert {row["queries"] for row in first["tables"]["averaging"]} == {30}
    assert {row["true_count"] for row in first["tables"]["averaging"]} == {
        sum(eaten >= 70 for eaten in data.zoo()["carrots"].to_pylist())
    }
