"""The page of the demonstration: its sentences, its slider without a script, and its commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.test_page import Elements
from tests.server.ui.browsing import ARGUMENTS, accessible
from tests.services import require

from sfumato.report.demo_page import COMMANDS, DemoRelease, PeopleByColumn, render_demo

REAL = PeopleByColumn({"age": {"0": 40, "1": 60}, "mood": {"good": 70, "bad": 30}})


@pytest.fixture(scope="module")
def page() -> str:
    """Two releases, of which the second is shown first."""
    far = PeopleByColumn({"age": {"0": 50, "1": 55}, "mood": {"good": 60, "bad": 45}})
    near = PeopleByColumn({"age": {"0": 41, "1": 60}, "mood": {"good": 70, "bad": 31}})
    releases = [DemoRelease("0.1", 0.525, 4, 3, far), DemoRelease("1", 0.7311, 4, 1, near)]
    details = {"Errors": ({"epsilon": "0.1", "worst": 15},)}
    return render_demo("100 children", REAL, releases, first=2, details=details)


def test_the_sentences_name_people_error_and_guess(page: str) -> None:
    assert "100 children." in page
    assert "4 numbers are released. None is off by more than 3." in page
    assert "The bars below are sums of them. None is off by more than 15." in page
    assert "right with a chance of at most 73.2 %, instead of 50 %" in page
    assert all(command.replace('"', "&#34;") in page for command in COMMANDS)


def test_the_slider_works_without_a_script(page: str, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    assert "script" not in Elements(page).tags
    place = tmp_path / "page.html"
    place.write_text(page, encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        for scheme, width in (("light", 1100), ("dark", 390)):
            tab = opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
            tab.on("request", lambda asked: asked.url == place.as_uri() or pytest.fail(asked.url))
            tab.goto(place.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.get_by_text("sums of them. None is off by more than 1.").is_visible()
            assert not tab.get_by_text("sums of them. None is off by more than 15.").is_visible()
            accessible(tab)
            tab.get_by_text("0.1", exact=True).first.click()
            assert tab.get_by_text("sums of them. None is off by more than 15.").is_visible()
            assert not tab.get_by_text("sums of them. None is off by more than 1.").is_visible()
            accessible(tab)
        opened.close()
