"""The chapter's lab: its numbers in distribution, honest ones beside them."""

from __future__ import annotations

import pytest

from sfumato_labs.lab import Options, load
from sfumato_labs.synthetic_data import PUBLISHED


@pytest.fixture(scope="module")
def result(shared_data):
    return load("synthetic-data").run(Options(runs=40, seed=3, data=shared_data / "adult" / "adult.csv"))


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


def test_every_published_figure_has_its_row(rows):
    shown = {key for key, row in rows.items() if row["published_percent_error"] is not None}
    assert shown == set(PUBLISHED)


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
