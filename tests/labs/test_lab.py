"""The convention of labs: names, options, JSON, a page that needs nothing else, and one page of all labs."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest

from sfumato.errors import InputError, TableError
from sfumato.report.page import Page, Plot, render, write
from sfumato_labs import NamedColumn, Options, charts, load, names, run
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Handout, hand_out

EVERY = {
    "data": "t.csv",
    "epsilon": "1",
    "k": "5",
    "max_suppression": "5",
    "queries": "50",
    "rounds": 5,
    "repetitions": 2,
    "mu": "2",
    "budgets": "2,1",
    "people": 500,
    "threshold": 5,
    "target": "a",
    "inputs": "b",
    "columns": "a",
    "range": "1:5",
}
# the options of each lab, apart from runs and seed
TAKES = {
    "samarati": {"data", "k", "max_suppression", "columns"},
    "mondrian": {"data", "k", "columns"},
    "mwem-1d": {"data", "columns", "epsilon", "queries", "rounds", "repetitions"},
    "mwem-2d": {"data", "columns", "epsilon", "queries", "rounds", "repetitions"},
    "hiera-mu": {"data", "columns", "epsilon", "mu", "budgets", "people"},
    "hiera-methods": {"data", "columns", "epsilon", "mu", "budgets", "people"},
    "ldp-sgd": {"data", "epsilon", "budgets", "mu", "people", "target", "inputs"},
    "synthetic-data": {"data", "epsilon", "range", "columns"},
    "interactive": {"data", "columns", "epsilon", "queries", "threshold"},
}


def test_every_lab_is_found_under_its_name():
    assert set(names()) == set(TAKES)
    for name in names():
        assert load(name).name == name
        assert load(name).takes == TAKES[name]
    with pytest.raises(InputError, match="no lab 'moon'"):
        load("moon")


@pytest.mark.parametrize("name", TAKES)
def test_an_option_that_does_not_apply_is_refused_by_name(name):
    for option, value in EVERY.items():
        if option in TAKES[name]:
            continue
        with pytest.raises(InputError, match=f"takes no --{option.replace('_', '-')}; it takes"):
            run(name, **{option: value})


def test_options_are_read_once():
    read = Options.of(
        epsilon=["0.5", 1], k="5,10", budgets="5,4.5,1", columns=["a=1:9", "b,c"], range=["1:5", "6:9"], target="y=-1:1"
    )
    assert read.epsilon == (Fraction(1, 2), Fraction(1))
    assert read.k == (5, 10)
    assert read.budgets == (5, Fraction(9, 2), 1)
    assert read.columns == (NamedColumn("a", (1, 9)), NamedColumn("b"), NamedColumn("c"))
    assert read.range == ((1, 5), (6, 9))
    assert read.target == NamedColumn("y", (-1, 1))
    assert Options.of(epsilon=[], k=None).given() == frozenset()
    assert Options.of().seed != Options.of().seed or Options.of().seed != Options.of().seed


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"runs": 0}, "--runs"),
        ({"seed": -1}, "--seed"),
        ({"epsilon": "x"}, "--epsilon"),
        ({"epsilon": 0}, "--epsilon"),
        ({"epsilon": "1/0"}, "--epsilon"),
        ({"k": "2.5"}, "--k"),
        ({"max_suppression": -1}, "--max-suppression"),
        ({"rounds": 0}, "--rounds"),
        ({"mu": 0}, "--mu"),
        ({"budgets": "2,-1"}, "--budgets"),
        ({"people": 3}, "--people"),
        ({"columns": "=1:2"}, "names no column"),
        ({"columns": "a=5:1"}, "LOW below HIGH"),
        ({"inputs": "a=x"}, "LOW:HIGH"),
        ({"range": "1:2.5"}, "whole numbers"),
        ({"range": "5"}, "LOW:HIGH"),
        ({"moon": 1}, "--moon"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong, named):
    with pytest.raises(InputError, match=named):
        Options.of(**wrong)


@pytest.mark.parametrize("name", TAKES)
def test_every_lab_reads_the_table_that_is_named(name, tmp_path):
    with pytest.raises(TableError, match=r"none\.csv"):
        run(name, runs=1, data=str(tmp_path / "none.csv"))


COUNTED = {  # labs that count a column value by value, and how they are told which
    "mwem-1d": {"columns": "a{}", "epsilon": 1, "rounds": 2, "queries": 5},
    "mwem-2d": {"columns": "a{},b", "epsilon": 1, "rounds": 2, "queries": 5},
    "interactive": {"columns": "a{}", "threshold": 3},
    "synthetic-data": {"columns": "a{},c"},
}


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(
    ("first", "bounds", "named"),
    [
        ("1000000", "", "'a' has 999997 values from 4 to 1000000"),
        ("20", "=0:1000000000", "'a' has 1000000001 values"),
        ("20", "=0.2:0.8", "'a' has 0 values|no row"),
        ("2.5", "", "'a' does not hold whole numbers"),
        ("1" * 30, "", "'a'"),
    ],
)
def test_a_column_that_cannot_be_counted_is_refused_by_name(name, first, bounds, named, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(f"a,b,c\n{first},1,x\n" + "".join(f"{place},{place % 3},y\n" for place in range(4, 30)))
    settings = {**COUNTED[name], "columns": COUNTED[name]["columns"].format(bounds)}
    with pytest.raises((InputError, TableError), match=named):
        run(name, runs=1, data=str(table), **settings)


def test_a_run_that_needs_too_much_is_refused(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n" + "".join(f"{place},{place},k{place}\n" for place in range(9000)))
    with pytest.raises(InputError, match="81000000 cells"):
        run("mwem-2d", runs=1, data=str(table), columns="a,b")
    with pytest.raises(InputError, match=r"cells of 'a' by 'c'"):
        run("synthetic-data", runs=1, data=str(table), columns="a,c")
    with pytest.raises(InputError, match=r"range 21:33 holds no value of 'b', which has 0 to 9; .*--range"):
        run("synthetic-data", runs=1, data=str(table), columns="b=0:9,c")
    with pytest.raises(InputError, match="named twice: b, b"):
        run("mwem-2d", runs=1, data=str(table), columns="b,b")
    with pytest.raises(InputError, match="has 6 values from 0 to 5"):
        run("interactive", runs=1, data=str(table), columns="a=0:5", threshold=3)


@pytest.fixture(scope="module")
def result():
    return run("mwem-2d", runs=1, seed=1, rounds=20, epsilon="0.1,1")


def test_the_json_is_as_promised(result):
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert found["lab"] == "mwem-2d"
    assert set(found) == {"lab", "tables"}
    assert all(isinstance(row, dict) for rows in found["tables"].values() for row in rows)
    assert set(found["tables"]["summary"][0]) == {"experiment", "published", "as_printed", "honest", "lesson"}


def test_the_page_is_whole_without_a_network(result, tmp_path):
    page = write(result.page(), tmp_path / "out", result.to_json())
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == len(result.plots) == 5
    assert not re.findall(r"(?:src|href)=\"(?!#)", html)
    for plot in result.plots:
        assert (page.parent / f"{plot.name}.svg").read_text().startswith("<svg")
        assert (page.parent / f"{plot.name}.png").read_bytes().startswith(b"\x89PNG")
    for name in result.tables:
        assert name.replace("_", " ") in html
    assert json.loads((page.parent / "tables.json").read_text()) == result.to_json()


def test_every_picture_names_its_table_and_options_and_both_axes(result):
    for plot in result.plots:
        drawn = plot.chart.to_dict()
        assert drawn["title"]["text"] == result.title
        assert drawn["title"]["subtitle"] == (
            "runs 1, seed 1, epsilon 0.1, 1, rounds 20; other options as in the source"
        )
        assert all(axis_titles(drawn)), plot.name


def axis_titles(drawn):
    """The title of every axis and of every legend of amounts."""
    if isinstance(drawn, list):
        for each in drawn:
            yield from axis_titles(each)
    elif isinstance(drawn, dict):
        for channel, each in drawn.get("encoding", {}).items():
            if channel in {"x", "y"} and "title" in each:
                yield each["title"] not in {"", None}
            if channel == "color" and each.get("type") == "quantitative":
                yield each.get("title") == "people"
        for each in drawn.values():
            yield from axis_titles(each)


def test_legends_show_whole_names(result):
    for plot in result.plots:
        text = plot.chart.to_json()
        assert '"labelLimit": 0' in text
        assert '"facet"' not in text


def test_only_the_first_line_of_a_figure_is_broad():
    rows = [{"at": at, "value": at * line + 1.0, "line": f"{line}"} for line in range(5) for at in (1, 2)]
    chart = charts.lines(
        rows, ChartAxis(column="at", title="at"), ChartAxis(column="value", title="value"), series="line", panel=Panel()
    )
    html = render(Page(title="Lines", plots=(Plot("lines", "", chart),)))
    drawn = re.findall(
        r'series: (\d)" role="graphics-symbol" aria-roledescription="line mark"[^>]*-width="([\d.]+)"', html
    )
    assert dict(drawn) == {"0": "5", "1": "2", "2": "2", "3": "2", "4": "2"}


def test_one_page_of_all_labs_has_a_line_an_experiment(result):
    handout = Handout({"mwem-2d": result})
    assert [line["lab"] for line in handout.lines()] == ["mwem-2d"] * 2
    html = render(handout.page())
    assert html.count("<svg") == 5
    assert not re.findall(r"(?:src|href)=\"(?!#)", html)
    assert result.notes[-1] in html
    assert json.loads(json.dumps(handout.to_json(), allow_nan=False))["labs"]["mwem-2d"] == result.to_json()["tables"]


@pytest.mark.slow
def test_all_labs_make_one_page_offline(monkeypatch):
    def unreachable():
        raise TableError("cannot fetch")

    monkeypatch.setattr("sfumato.data.adult", unreachable)
    handout = hand_out(Options(runs=1, seed=1), progress=lambda _: None)
    assert set(handout.results) == set(names())
    assert {line["lab"] for line in handout.lines()} == set(names())
    for result in handout.results.values():
        assert result.notes[0].startswith(("Runs on", "UCI Adult could not be fetched"))
    html = render(handout.page())
    assert html.count("<svg") == sum(len(result.plots) for result in handout.results.values())
