"""The layout of the pages of analysts: nothing is cut on a phone, and a print has the content without the controls."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from tests.server.serving import DOMAIN, Server, write_people
from tests.server.ui.browsing import ask, browser, enter, write_sql

from sfumato.app.cli.options import database
from sfumato_server.registry import Scope

__all__ = ["browser"]

CONTROLS = "button, input:not([type=hidden]), select, textarea, nav, header"


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    """A page of an analyst who asked a question of a dataset."""
    folder = tmp_path_factory.mktemp("layout")
    server = Server(database(str(folder / "s.ledger")), workers=1).start()
    try:
        with server.client("stew", Scope.STEWARD) as client:
            source = str(write_people(folder / "people.parquet"))
            client.register("people", source=source, domain=DOMAIN, limit="3,1e-9")
        yield enter(browser, server, "ana", Scope.ANALYST)
    finally:
        server.stop()


def hidden_parts(page: Page) -> list[str]:
    """Return the scroll boxes of a page that cut a part of their content."""
    cut = "each => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1"
    boxes = f"[...document.querySelectorAll('.scroll')].filter({cut}).map(each => each.getAttribute('aria-label'))"
    result: list[str] = page.evaluate(boxes)
    return result


def test_a_print_has_whole_tables_and_no_controls(page):
    page.get_by_role("link", name="people").click()
    write_sql(page, "SELECT age, COUNT(*) FROM people GROUP BY age")
    page.get_by_label("Delta", exact=False).fill("1e-9")
    ask(page, "0.2")
    assert hidden_parts(page) != []  # a hundred rows are in a box
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 700, "height": 900})  # the width of a sheet
    assert hidden_parts(page) == []
    assert [each.evaluate("node => node.outerHTML") for each in page.locator(CONTROLS).all() if each.is_visible()] == []
    expect(page.get_by_role("heading", name="Answer")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
