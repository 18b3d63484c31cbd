from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import altair as alt
import pytest
import vl_convert

from sfumato.domain import Unit
from sfumato.evaluate.audit.audit import Finding
from sfumato.evaluate.frontier import BASELINES
from sfumato.report.evaluation_page import evaluation_page
from sfumato.report.page import render_interactive

FINDINGS = (Finding("laplace", "epsilon", 1.0, 0.8, "coordinate 0 > 0", 6400),)
JOURNAL = (
    {"entry": 1, "statement": "half", "spent": 1.0, "guarantee_so_far": "epsilon = 1"},
    {"entry": 2, "statement": "more", "spent": 1.5, "guarantee_so_far": "epsilon = 1.5"},
)


class Elements(HTMLParser):
    """Tags with their attributes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module", params=[False, True], ids=["public", "internal"])
def page(request, judged, breaking_domain):
    drawn = evaluation_page(
        "Trial", judged.results, breaking_domain, findings=FINDINGS, journal=JOURNAL, internal=request.param
    )
    return request.param, render_interactive(drawn)


def parsed(text: str) -> Elements:
    elements = Elements()
    elements.feed(text)
    return elements


def charts(text: str) -> dict[str, dict]:
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)[1])


def test_ten_pictures_each_with_caption_words_and_numbers(page):
    _, text = page
    elements = parsed(text)
    count = {tag: sum(name == tag for name, _ in elements.tags) for tag in ("figure", "figcaption", "details", "h2")}
    # besides the pictures: verdicts and attacks, and folded away all scores and samples
    assert count == {"figure": 10, "figcaption": 10, "details": 12, "h2": 12}
    assert "Verdicts (default set 1)" in text
    assert "The worst two columns" in text
    assert "standard error of learner" in text
    assert "people tested on" in text
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)
    assert all(len(caption.split()) > 12 for caption in captions)
    images = [attributes for name, attributes in elements.tags if attributes.get("role") == "img"]
    assert len(images) == 10
    assert all(len((attributes["aria-label"] or "").split()) > 5 for attributes in images)
    assert sum(name == "table" for name, _ in elements.tags) == 14
    ids = {attributes.get("id") for _, attributes in elements.tags}
    assert set(charts(text)) <= ids


def test_the_page_stands_alone_and_is_small(page):
    _, text = page
    assert len(text.encode()) < 3_000_000
    for name, attributes in parsed(text).tags:
        assert not attributes.get("src"), name
        assert name != "link"
        assert not (attributes.get("href") or "").startswith("http")


def test_names_cannot_break_out_of_the_page(page):
    _, text = page
    assert "<i>quarter" not in text.replace(json.dumps("<i>quarter"), "")
    assert not any(tag in ("b", "i") for tag, _ in parsed(text).tags)


def test_exact_shares_are_shown_to_the_steward_only(page, judged):
    internal, text = page
    banner = any(attributes.get("class") == "internal" for _, attributes in parsed(text).tags)
    assert banner is internal
    panel = charts(text)["columns-0"]
    sources = {row["source"] for layer in panel.get("layer", [panel]) for row in _values(panel, layer)}
    assert sources == ({"released", "exact"} if internal else {"released"})
    assert ('<th scope="col">exact</th>' in text) is internal
    prose = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"\b300\b", prose)  # the number of members


def test_a_page_without_any_release_shows_no_column_of_the_table(judged, breaking_domain):
    baselines = [result for result in judged.results if result.family == BASELINES]
    text = render_interactive(evaluation_page("Nothing was made", baselines, breaking_domain))
    assert not [name for name in charts(text) if name.startswith("columns")]
    assert "columns-0" in charts(
        render_interactive(evaluation_page("Inside", baselines, breaking_domain, internal=True))
    )


def test_the_first_sentence_agrees_with_the_verdicts(judged, breaking_domain):
    """The page leaves exact shares out, and still judges single columns by them."""
    page = evaluation_page("Trial", judged.results, breaking_domain)
    verdicts = next(rows for heading, rows in page.overview.items() if heading.startswith("Verdicts"))
    assert "not measured" not in {row["this release"] for row in verdicts if row["question"] == "Counts by one column"}
    assert page.lead == evaluation_page("Trial", judged.results, breaking_domain, internal=True).lead
    assert [name for name in verdicts[0] if name != "release"][:2] == ["question", "verdict"]


def test_no_column_is_paired_with_itself(judged, breaking_domain):
    page = evaluation_page("Trial", judged.results, breaking_domain)
    caption = next(plot.caption for plot in page.plots if plot.name == "pairs")
    first, second = re.search(r"The worst is (\S+) with (\S+) in", caption).groups()
    assert first != second


def test_a_page_says_that_it_counts_rows_where_one_person_has_several(judged, breaking_domain):
    said = "Scores, classes and attacks count rows, and one patient has up to 5 of them"
    several = replace(breaking_domain, unit=Unit("patient", rows=5))
    assert said in render_interactive(evaluation_page("Visits", judged.results, several))
    assert said not in render_interactive(evaluation_page("People", judged.results, breaking_domain))


def _values(panel, layer):
    data = layer.get("data", panel.get("data"))
    return data["values"] if "values" in data else panel["datasets"][data["name"]]


def test_every_chart_is_valid_vega_lite(page):
    internal, text = page
    if internal:
        for specification in charts(text).values():
            alt.TopLevelSpec.validate(specification)  # a page is drawn unchecked
            assert vl_convert.vegalite_to_svg(specification).startswith("<svg")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium to look with")
@pytest.mark.parametrize("size", ["1280,1000", "390,800"])
def test_a_browser_draws_every_chart_offline(page, tmp_path, size):
    _, text = page
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=20000",
            f"--window-size={size}",
            "--dump-dom",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.count('class="marks"') == len(charts(text))
