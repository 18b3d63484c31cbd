"""Pages work offline, escape what they show, and come with the same numbers as JSON."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import altair as alt
import pytest

from sfumato.errors import InputError
from sfumato.report.page import Page, Plot, figure, render, render_interactive, write

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def page() -> Page:
    chart = alt.Chart(alt.InlineData(values=[{"a": HOSTILE, "n": 3}])).mark_bar().encode(x="a:N", y="n:Q")
    return Page(
        title=f"Title {HOSTILE}",
        terms={"Guarantee": HOSTILE},
        notes=(f"Note {HOSTILE}",),
        plots=(Plot("bars", f"Caption {HOSTILE}", chart),),
        tables={"expected_error": ({"of": HOSTILE, "rows": 1.23456789, "known": None},)},
    )


class Elements(HTMLParser):
    """Tags of a document, and every address that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loaded: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "data", "action")]


def test_a_page_loads_nothing_runs_nothing_and_shows_everything(page) -> None:
    text = render(page)
    elements = Elements(text)
    assert "script" not in elements.tags
    assert all(address and address.startswith(("#", "data:")) for address in elements.loaded)
    assert not re.search(r"@import|url\(\s*['\"]?https?:", text)
    assert "svg" in elements.tags
    for shown in ("Title &lt;script", "Note &lt;script", "Caption &lt;script", "1.23457", "<td"):
        assert shown in text


def test_a_folder_holds_the_page_its_numbers_and_its_plots(page, tmp_path) -> None:
    data = {"errors": [1.5, None]}
    index = write(page, tmp_path / "new" / "folder", data)
    folder = index.parent
    assert sorted(path.name for path in folder.iterdir()) == ["bars.png", "bars.svg", "index.html", "tables.json"]
    assert json.loads((folder / "tables.json").read_text()) == data
    assert (folder / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "bars.svg").read_text().startswith("<svg")
    assert index.read_text() == render(page)


def test_a_folder_that_is_a_file_is_refused(page, tmp_path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match="cannot write"):
        write(page, tmp_path / "taken", {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (0.1 + 0.2, "0.3"),
        (1e9, "1e+09"),
        (10**12, "1000000000000"),
        ("a", "a"),
    ],
)
def test_figures_have_six_digits_and_counts_have_all(value, text) -> None:
    assert figure(value) == text


def test_the_script_that_draws_is_bundled_once_and_never_taken_from_a_broken_file(page, tmp_path, monkeypatch) -> None:
    made = []

    def bundle(snippet: str) -> str:
        made.append(snippet)
        return "draw(); // </script>"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = render_interactive(page)
    assert "draw(); // <\\/script>" in first
    assert render_interactive(page) == first
    assert len(made) == 1
    (kept,) = (tmp_path / "sfumato").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"draw", b"steal"))
    assert render_interactive(page) == first
    assert len(made) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))  # a file, in which nothing can be kept
    assert render_interactive(page) == first
    assert len(made) == 3
