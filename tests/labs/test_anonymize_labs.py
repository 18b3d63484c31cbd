"""Both anonymisation labs give the published tables to the last digit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.errors import TableError
from sfumato_labs import mondrian, tables
from sfumato_labs.lab import LabResult, Options, Table, load
from sfumato_labs.tables import available


@pytest.fixture(scope="module")
def options(shared_data: Path) -> Options:
    return Options(runs=1, seed=1, data=shared_data / "adult" / "adult.csv")


@pytest.fixture(scope="module")
def samarati(options: Options) -> LabResult:
    return load("samarati").run(options)


def picked(rows: Table, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_samarati_by_suppression(samarati: LabResult) -> None:
    rows = samarati.tables["by_suppression"]
    assert list(rows[0]) == ["k", "max_suppression", "vector", "suppressed", "lm", "optimum_vector", "optimum_lm"]
    assert picked(rows, "max_suppression", "vector", "suppressed", "lm") == [
        (10, "(1, 0, 1, 2)", 7, 2.0552459640316716),
        (20, "(1, 0, 1, 2)", 7, 2.0552459640316716),
        (30, "(0, 1, 1, 2)", 27, 3.0008951661030436),
        (40, "(0, 1, 1, 2)", 27, 3.0008951661030436),
        (50, "(0, 1, 1, 2)", 27, 3.0008951661030436),
    ]
    optimum = [row["optimum_lm"] for row in rows]
    assert optimum == sorted(optimum, reverse=True)
    assert optimum[1] == pytest.approx(1.11414472957, abs=1e-11)


def test_samarati_by_k(samarati: LabResult) -> None:
    assert picked(samarati.tables["by_k"], "k", "vector", "suppressed", "lm") == [
        (10, "(1, 0, 1, 2)", 7, 2.0552459640316716),
        (20, "(1, 1, 1, 2)", 7, 3.055013883930883),
        (30, "(1, 1, 1, 2)", 7, 3.055013883930883),
        (40, "(4, 0, 0, 2)", 0, 2.0),
        (50, "(4, 0, 0, 2)", 0, 2.0),
    ]


def test_samarati_shows_where_the_heuristic_misleads(samarati: LabResult) -> None:
    rows = samarati.tables["heuristic_by_height"]
    assert any(row["misled"] for row in rows)
    assert not all(row["misled"] for row in rows)
    assert all(row["heuristic_lm"] >= row["least_lm"] for row in rows)
    lowest = samarati.tables["least_loss_of_lowest_height"]
    assert all(row["least_loss_lm"] <= min(row["lexicographic_lm"], row["heuristic_lm"]) for row in lowest)


def test_samarati_puts_the_published_time_beside_ours(samarati: LabResult) -> None:
    assert picked(samarati.tables["run_times"], "search") == [("published",), ("samarati",), ("optimal",)]
    assert samarati.tables["run_times"][0]["seconds"] == 82


def test_mondrian_by_k(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mondrian, "EFFORT", 0)  # the full effort is for the slow tests of k-member
    steps: list[str] = []
    result = load("mondrian").run(replace(options, progress=steps.append))
    assert [step for step in steps if step.startswith("k = ")] == [f"k = {k}: cuts, then k-member" for k in mondrian.KS]
    rows = result.tables["by_k"]
    assert list(rows[0]) == ["k", "groups", "lm", "method"]
    published = [row for row in rows if row["method"] == "published"]
    assert picked(tuple(published), "k", "groups", "lm") == [
        (10, 254, 0.2807992699392837),
        (20, 211, 0.2888448951007028),
        (30, 183, 0.3042713941368059),
        (40, 168, 0.3140892755982232),
        (50, 156, 0.329045286351722),
    ]
    for k in mondrian.KS:
        losses = {row["method"]: row["lm"] for row in rows if row["k"] == k}
        assert max(losses, key=losses.__getitem__) == "published"
    by_weight = {row["weights"]: row for row in result.tables["weighted"]}
    assert by_weight["age counts threefold"]["age"] < by_weight["equal"]["age"]
    assert by_weight["education_num counts threefold"]["education_num"] < by_weight["equal"]["education_num"]
    (plot,) = result.plots
    assert plot.chart.to_dict()["encoding"]["color"]["legend"]["labelLimit"] == 0  # names are never cut off
    assert {row["method"] for row in result.tables["with_gender"]} == set(mondrian.CUTTERS)


def test_without_the_file_the_message_says_so(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="cannot read"):
        available(tmp_path / "adult.csv")


def test_the_bundled_census_stands_in_for_a_table_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        raise TableError("cannot fetch")

    monkeypatch.setattr(tables.data, "adult", unreachable)
    result = load("samarati").run(Options(runs=1, seed=1))
    assert result.notes[0] == tables.STAND_IN
    assert picked(result.tables["by_k"], "k") == [(10,), (20,), (30,), (40,), (50,)]
