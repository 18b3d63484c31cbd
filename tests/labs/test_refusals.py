"""Each lab refuses a student's mistake in one sentence with the repair, or runs to the end."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from sfumato.errors import InfeasibleError, InputError, SfumatoError, TableError
from sfumato.report.page import render
from sfumato_labs import Options, hiera_labs, printed_mwem, run
from sfumato_labs.printed_mwem import Printed, in_order


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": "1e400"}, "--epsilon must lie between 1e-06 and 1000000"),
        ({"epsilon": "1e999999999"}, "--epsilon takes numbers"),
        ({"epsilon": "1e-999999999"}, "--epsilon takes numbers"),
        ({"epsilon": "1e-7"}, "--epsilon must lie between"),
        ({"epsilon": True}, "--epsilon takes numbers"),
        ({"k": "1e999999999"}, "--k takes whole numbers"),
        ({"people": 10**12}, "--people must lie between 100 and 10000000"),
        ({"queries": 10**12}, "--queries must lie between"),
        ({"runs": 10**9}, "--runs must lie between"),
        ({"columns": "a=-inf:9"}, "bounds must lie between"),
        ({"columns": "a=0:1e300"}, "bounds must lie between"),
        ({"target": "a=nan:9"}, "bounds must lie between"),
        ({"columns": "a,b,a=1:2"}, "named twice: a, b, a"),
        ({"inputs": ["a", "a"]}, "named twice: a, a"),
        ({"range": 5}, "a range is LOW:HIGH"),
        ({"range": [1, 2, 3]}, "a range is LOW:HIGH"),
        ({"range": [(1, float("inf"))]}, "a range is LOW:HIGH"),
        ({"range": "1:1e400"}, "a range must lie between"),
    ],
)
def test_options_that_no_lab_can_run_with(wrong, named):
    with pytest.raises(InputError, match=named) as refused:
        Options.of(**wrong)
    assert len(str(refused.value)) < 200


def test_options_show_no_address_with_its_password():
    options = Options.of(data="postgresql://ann:geheim@host/db?table=t")
    assert "geheim" not in repr(options)
    assert options.data == "postgresql://ann:geheim@host/db?table=t"


def test_what_is_asked_twice_is_shown_once():
    read = Options.of(epsilon="1,0.5,1.0", mu=[2, 2], range=(1, 5), budgets="2,2,1")
    assert read.epsilon == (Fraction(1), Fraction(1, 2))
    assert read.mu == (2,)
    assert read.range == ((1, 5),)
    assert read.budgets == (2, 2, 1)


@pytest.mark.parametrize(
    ("name", "option"),
    [("hiera-methods", "mu"), ("ldp-sgd", "mu"), ("mwem-1d", "queries"), ("mwem-2d", "queries")],
)
def test_a_second_number_is_not_passed_over(name, option):
    with pytest.raises(InputError, match=f"--{option} takes one number in this lab, not 2"):
        run(name, runs=1, epsilon=1, **{option: [2, 3]})


# a table of each odd kind, and what of each lab reads it
ROWS = {
    "one row": "30,1,60,4\n",
    "two rows": "30,1,60,4\n31,2,40,5\n",
    "one value": "30,1,60,4\n" * 40,
    "nothing but gaps": ",,,\n" * 20,
    "gaps": "30,,60,4\n,1,50,3\n31,2,,\n35,1,99,1\n" * 10,
    "words": "a,b,c,d\n" * 20,
    "no finite numbers": "inf,nan,1e308,-1e308\n" * 20,
    "negative": "".join(f"{-place % 40 - 60},{-(place % 4)},{-(place % 90)},{-place % 9}\n" for place in range(60)),
}
SMALL = {
    "mwem-1d": {"columns": "age", "rounds": 1, "queries": 1, "epsilon": 1},
    "mwem-2d": {"columns": "age,satisfaction", "rounds": 1, "queries": 1, "epsilon": 1},
    "hiera-mu": {"columns": "age", "people": 100, "epsilon": 1},
    "hiera-methods": {"columns": "age", "people": 100, "epsilon": 1},
    "ldp-sgd": {"target": "y", "inputs": "age,carrots", "epsilon": 1},
    "synthetic-data": {"columns": "age,satisfaction", "range": "20:40"},
    "interactive": {"columns": "carrots=0:100", "epsilon": 10, "queries": 20, "threshold": 55},
}


_SOON = ("one row", "nothing but gaps", "no finite numbers")


@pytest.fixture(params=[kind if kind in _SOON else pytest.param(kind, marks=pytest.mark.slow) for kind in ROWS])
def odd(request, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("age,satisfaction,carrots,y\n" + ROWS[request.param])
    return str(table)


def outcome(name, source):
    """Return the lab's result, or the sentence of its refusal."""
    try:
        return run(name, runs=1, seed=3, data=source, **SMALL[name])
    except SfumatoError as refused:
        return str(refused)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SMALL)
def test_an_odd_table_gives_a_page_or_one_sentence(name, odd):
    found = outcome(name, odd)
    if isinstance(found, str):
        assert "\n" not in found
        assert len(found) < 300
        return
    json.dumps(found.to_json(), allow_nan=False)
    said = " ".join([*found.notes, *(plot.caption for plot in found.plots)])
    assert " nan" not in said
    assert " inf " not in said


def test_a_table_of_one_row_has_no_neighbour(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("carrots,word\n60,a\n")
    with pytest.raises(TableError, match="the column 'carrots' has a single number"):
        run("interactive", runs=1, data=str(table))


def test_a_threshold_that_nobody_passes_is_refused():
    with pytest.raises(InputError, match="no value of 'carrots' reaches the threshold"):
        run("interactive", runs=1, threshold=101)


def test_gradient_descent_needs_people_for_a_step():
    with pytest.raises(
        InputError, match=r"100 people are too few: with 10 inputs at epsilon 1 .* needs 1925; name fewer"
    ):
        run("ldp-sgd", runs=1, people=100, epsilon=1)
    with pytest.raises(InputError, match=r"200000 people are too few: .* at epsilon 0\.01 .* a larger --epsilon"):
        run("ldp-sgd", runs=1, epsilon="1,0.01")


@pytest.mark.parametrize("name", ["hiera-mu", "hiera-methods", "ldp-sgd"])
def test_budgets_that_levels_cannot_have(name):
    for wrong, named in (
        ({"budgets": "1,2,3"}, "must not increase"),
        ({"budgets": ",".join("1" * 21)}, "--budgets names 21 levels, and 20 are the most"),
        ({"budgets": "3,2,1", "mu": 4}, "--mu must be at most 3"),
        ({"epsilon": 7}, "epsilon 7 times the budget 5 of a level is 35: name a smaller --epsilon"),
    ):
        with pytest.raises(InputError, match=named):
            run(name, runs=1, **{"people": 2000, "epsilon": 1, **wrong})


def test_methods_are_compared_as_far_as_there_are_others():
    with pytest.raises(InputError, match=r"at epsilon 4 HierA really spends 35\.08, .* beyond 32"):
        run("hiera-methods", runs=1, people=100, epsilon=4)


def test_where_there_is_no_optimal_table_the_others_are_compared(monkeypatch):
    design = hiera_labs.Mean.design

    def unsolved(*bounds, epsilon, method):
        if method is hiera_labs.MeanMethod.OPTIMAL:
            raise InfeasibleError("no optimal table")
        return design(*bounds, epsilon=epsilon, method=method)

    monkeypatch.setattr(hiera_labs.Mean, "design", unsolved)
    found = run("hiera-methods", runs=1, seed=1, people=100, epsilon=1)
    assert "optimal_table" not in {row["method"] for row in found.tables["equal_real_epsilon"]}
    assert "The solver finds no optimal table at epsilon 8.067: it is left out there." in found.notes


def test_a_column_called_as_one_of_the_labs_own_is_refused(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("normal,real,table,y\n" + "".join(f"{place},{place % 5},{place % 7},k\n" for place in range(40)))
    for name, columns in (
        ("hiera-mu", "normal"),
        ("mwem-1d", "real"),
        ("mwem-2d", "y,table"),
        ("synthetic-data", "table,y"),
    ):
        with pytest.raises(InputError, match=r"have a column .* of their own: rename it"):
            run(name, runs=1, data=str(table), columns=columns)


def test_names_with_odd_characters_are_drawn(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text('"a.b","c[0]"\n' + "".join(f"{place % 7},{place % 3}\n" for place in range(400)))
    found = run("mwem-2d", runs=1, seed=1, data=str(table), columns="a.b,c[0]", epsilon=1, rounds=3, queries=6)
    (bars,) = (plot for plot in found.plots if plot.name == "bars")
    html = render(found.page())
    assert "a.b" in html
    values = next(iter(bars.chart.to_dict()["datasets"].values())) if "datasets" in bars.chart.to_dict() else None
    assert values is None or {value["x"] for value in values} == {str(place) for place in range(7)}
    assert '"field": "a.b"' not in bars.chart.to_json()


def test_noise_that_overflows_and_draws_that_do_not_end_are_refused():
    program = Printed(rounds=4, repetitions=2, halved=False, replay=in_order)
    counts = np.array([1.0, 0, 2, 1])
    queries = np.random.default_rng(1).random((1, 6, 4)) < 0.5
    with pytest.raises(InputError, match="at epsilon 1e-06 noise on 4 people is so large"):
        printed_mwem.run(program, counts, queries.astype(float), np.array([1e-6]), np.random.default_rng(1))
    large = counts * 1e6
    with pytest.raises(
        InputError, match=r"at epsilon 1e\+06 the printed program draws queries that it measured before"
    ):
        printed_mwem.run(program, large, queries.astype(float), np.array([1e6]), np.random.default_rng(1))


@pytest.mark.parametrize("k", [30, 10**9])
def test_classes_larger_than_the_table_are_refused(k, tmp_path):
    table = tmp_path / "t.csv"
    row = "30,9,Male,Divorced,Sales,White\n40,10,Female,Widowed,Sales,Black\n"
    table.write_text("age,education_num,gender,marital_status,occupation,race\n" + row * 10)
    for name in ("samarati", "mondrian"):
        with pytest.raises(InfeasibleError, match=f"{k}-anonymity cannot hold"):
            run(name, data=str(table), k=k)
