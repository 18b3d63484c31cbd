"""The convention of labs: names, options, JSON, and a page that needs nothing else."""

from __future__ import annotations

import json
import re

import pytest

from sfumato.errors import InputError, SfumatoError, TableError
from sfumato.report.page import Page, render, write
from sfumato_labs.lab import MODULES, Options, load


def test_every_lab_is_found_under_its_name():
    for name in MODULES:
        assert load(name).name == name
    with pytest.raises(InputError, match="no lab 'moon'"):
        load("moon")


@pytest.mark.parametrize("wrong", [{"runs": 0, "seed": 1}, {"runs": 1, "seed": -1}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        Options(**wrong)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TableError, match="cannot read"):
        load("synthetic-data").run(Options(runs=1, seed=1, data=tmp_path / "none.csv"))


def test_what_reads_a_file_says_so(tmp_path):
    named = Options(runs=1, seed=1, data=tmp_path / "none.csv")
    for lab in (load(name) for name in MODULES):
        if lab.reads_data:
            with pytest.raises(SfumatoError):
                lab.run(named)
    assert {name for name in MODULES if load(name).reads_data} == {
        "samarati",
        "mondrian",
        "synthetic-data",
        "hiera-mu",
        "ldp-sgd",
    }


def test_columns_of_text_are_read_from_the_left():
    html = render(Page(title="A", tables={"t": ({"n": 1, "word": "some", "x": 2.5},)}))
    assert '<td class="text">some</td>' in html
    assert "<td>2.5</td>" in html
    assert '<th scope="col" class="text">word</th>' in html


@pytest.fixture(scope="module")
def result():
    return load("mwem-2d").run(Options(runs=1, seed=1))


def test_the_json_is_as_promised(result):
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert found["lab"] == "mwem-2d"
    assert set(found) == {"lab", "tables"}
    assert all(isinstance(row, dict) for rows in found["tables"].values() for row in rows)


def test_the_page_is_whole_without_a_network(result, tmp_path):
    page = write(result.page(), tmp_path / "out", result.to_json())
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == len(result.plots) == 4
    assert not re.findall(r"(?:src|href)=\"(?!#)", html)
    for plot in result.plots:
        assert f'aria-label="{plot.caption}"' in html
        assert (page.parent / f"{plot.name}.svg").read_text().startswith("<svg")
        assert (page.parent / f"{plot.name}.png").read_bytes().startswith(b"\x89PNG")
    for name in result.tables:
        assert name.replace("_", " ") in html
    assert json.loads((page.parent / "tables.json").read_text()) == result.to_json()
