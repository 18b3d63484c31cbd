"""The chapter's lab: the distribution of its numbers, next to honest ones."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import InputError, TableError
from sfumato_labs import published_tables, run
from sfumato_labs.printed_chapter import PUBLISHED, PUBLISHED_PROBABILITY


@pytest.fixture(scope="module")
def adult(shared_data):
    return str(shared_data / "adult" / "adult.csv")


@pytest.fixture(scope="module")
def result(adult):
    return run("synthetic-data", runs=40, seed=3, data=adult)


@pytest.fixture(scope="module")
def rows(result):
    return {
        (row["statistic"], row["method"]): row
        for name in ("range_queries", "sampling", "marginals")
        for row in result.tables[name]
    }


def test_the_true_answers_are_those_of_adult(rows):
    assert rows["21 <= age < 33", "honest direct"]["true"] == 9878
    assert rows["mean age", "honest one-way"]["true"] == pytest.approx(38.5816, abs=1e-4)
    assert rows["20 <= age < 65", "honest, charged rows"]["true"] == 29568


def test_every_published_figure_of_both_editions_has_its_row(rows):
    shown = {
        key: (row["first_edition_percent"], row["second_edition_percent"])
        for key, row in rows.items()
        if row["first_edition_percent"] is not None
    }
    assert shown == PUBLISHED


def test_both_editions_are_within_sampling_error_of_the_printed_programs(rows):
    """Each of 18 figures is the size of one error.  Errors of noise and of sampling have tails no heavier than an
    exponential of the same mean, so that one exceeds 12 times the mean of 40 runs less than once in 100 000; of a
    sample of the wrong size and of the clipped two-way table, where a bias dominates, the figure is near the mean."""
    for key, published in PUBLISHED.items():
        mean = rows[key]["percent_error"]
        for figure in published:
            if key == ("20 <= age < 65", "printed, 10 000 rows"):
                assert figure == pytest.approx(mean, abs=1)
            else:
                assert 0 < figure < 12 * mean


def test_the_printed_probability_is_within_sampling_error(result):
    """The print is one draw, tested at 4.5 standard deviations: a false alarm once in 100 000."""
    (row,) = result.tables["probability"]
    assert (row["cell"], row["second_edition"]) == ("(17, Adm-clerical)", PUBLISHED_PROBABILITY)
    assert abs(row["printed"] - PUBLISHED_PROBABILITY) < 4.5 * row["printed_sd"] + 5e-6
    assert row["honest"] == pytest.approx(row["real"], abs=3e-4)


def test_noise_adds_up_over_a_wide_range(rows):
    # 41 cells of variance 1.84, against one draw: mean sizes of error 6.9 and 0.85
    for method in ("printed", "honest"):
        histogram = rows["30 <= age < 71", f"{method} histogram"]["percent_error"]
        direct = rows["30 <= age < 71", f"{method} direct"]["percent_error"]
        assert histogram == pytest.approx(6.9 / 22310 * 100, rel=0.6)
        assert direct == pytest.approx(0.9 / 22310 * 100, rel=0.7)


def test_a_sample_of_the_wrong_size_answers_counts_wrongly(rows):
    for method in ("printed", "honest"):
        few, charged = (
            rows["20 <= age < 65", f"{method}, {size}"]["percent_error"] for size in ("10 000 rows", "charged rows")
        )
        assert few == pytest.approx(69.3, abs=1)
        assert charged < 1


def test_one_way_marginals_lose_the_link_between_columns(rows):
    for method in ("printed", "honest"):
        statistic = "age < 25 and Exec-managerial"
        assert rows[statistic, f"{method} one-way"]["percent_error"] > 150
        assert rows[statistic, f"{method} two-way"]["percent_error"] < 15


def test_the_page_can_be_drawn(result):
    assert {plot.name for plot in result.plots} == {"ages", "widths", "heat_maps"}
    assert [row["private"] for row in result.tables["losses"]] == [False] * 5 + [True] * 5
    assert [row["table"] for row in result.tables["sample_rows"]] == ["printed"] * 5 + ["honest"] * 5
    head = [row for row in result.tables["cross_table_head"] if row["table"] == "real"]
    assert [row["age"] for row in head] == ["17", "18", "19", "20", "21"]


def test_other_columns_ranges_and_losses(monkeypatch):
    def unreachable():
        raise TableError("cannot fetch")

    monkeypatch.setattr(published_tables.data, "adult", unreachable)
    published_tables.fetched.cache_clear()
    found = run(
        "synthetic-data", runs=2, seed=1, epsilon="0.5,2", range=["20:40"], columns="hours_per_week=1:99,gender"
    )
    published_tables.fetched.cache_clear()
    assert found.notes[0] == published_tables.STAND_IN
    assert {row["epsilon"] for row in found.tables["range_queries"]} == {0.5, 2.0}
    assert {row["statistic"] for row in found.tables["range_queries"]} == {"20 <= hours_per_week < 40"}
    assert all(row["first_edition_percent"] is None for row in found.tables["range_queries"])
    errors = {
        row["epsilon"]: row["percent_error"]
        for row in run("synthetic-data", runs=40, seed=1, epsilon="0.05,5", data=_census()).tables["sampling"]
        if (row["statistic"], row["method"]) == ("20 <= age < 65", "printed, charged rows")
    }
    assert errors[5.0] < errors[0.05]
    with pytest.raises(InputError, match="two"):
        run("synthetic-data", columns="age", data=_census())


def _census():
    from importlib import resources

    return str(resources.files("sfumato.data").joinpath("census.parquet"))


def test_probabilities_are_cut_off_and_add_up():
    from sfumato_labs.printed_chapter import normalised

    assert normalised(np.array([3.0, -1.0, 1.0])).tolist() == [0.75, 0.0, 0.25]
    assert normalised(np.array([-3.0, -1.0])).tolist() == [0.5, 0.5]
