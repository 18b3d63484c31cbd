"""The layout of the pages of analysts: nothing is cut on a phone, and a print has the content without the controls."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, Server, write_people
from tests.server.ui.browsing import accessible, ask, browser, enter, write_sql

from sfumato.app.cli.options import database
from sfumato_server.registry import Scope

__all__ = ["browser"]

CONTROLS = "button, input:not([type=hidden]), select, textarea, nav, header"
BY_TWO = "SELECT sex, income, COUNT(*), AVG(age), VARIANCE(age) FROM people GROUP BY sex, income"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a table and with several linked tables, whose analysts have a cap."""
    folder = tmp_path_factory.mktemp("layout")
    started = Server(database(str(folder / "s.ledger")), workers=1).start()
    with started.client("stew", Scope.STEWARD) as client:
        client.register("people", source=str(write_people(folder / "people.parquet")), domain=DOMAIN, limit="3,1e-9")
        client.set_terms("people", default_cap="1.5,1e-9")
        client.register("hospital", source=str(write_hospital(folder / "hospital")), domain=SCHEMA, limit="3")
    yield started
    started.stop()


def hidden_parts(page: Page) -> list[str]:
    """Return the scroll boxes of a page that cut a part of their content."""
    cut = "each => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1"
    boxes = f"[...document.querySelectorAll('.scroll')].filter({cut}).map(each => each.getAttribute('aria-label'))"
    result: list[str] = page.evaluate(boxes)
    return result


def fits(page: Page) -> None:
    """Check that nothing but the content of a scroll box is beyond the right edge of the screen."""
    beyond = """[...document.querySelectorAll("main *, header *")]
        .filter(each => each.checkVisibility() && !each.closest(".skip, .scroll *, svg *, [role=listbox]"))
        .filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"""
    assert page.evaluate(beyond) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)


def in_view(page: Page, selector: str) -> None:
    """Check that the whole width of each element is on the screen."""
    found = page.locator(selector)
    assert found.count()
    for each in found.all():
        place = each.bounding_box()
        assert place is not None
        assert 0 <= place["x"] <= place["x"] + place["width"] <= page.viewport_size["width"]  # type: ignore[index]


@pytest.mark.parametrize(("width", "scheme", "epsilon"), [(390, "light", "0.2"), (1280, "dark", "0.21")])
def test_no_page_of_an_analyst_is_cut_off(server, browser, width, scheme, epsilon):
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = enter(browser, server, f"ana-{width}", Scope.ANALYST, context)
    result = page.locator("#result")
    fits(page)
    page.get_by_role("link", name="people").click()
    expect(page.locator("#status")).to_contain_text("100 % left of epsilon 1.5, delta 1e-9")  # the default cap
    expect(page.get_by_label("Epsilon")).to_have_value("")  # it has no default
    expect(page.locator("#question")).to_contain_text("Delta is 1e-9. The budget of the dataset sets it")
    fits(page)
    page.get_by_role("checkbox", name="sex").check()
    page.get_by_label("Epsilon").fill(epsilon)
    expect(page.locator("#expected")).to_contain_text("of what is left to you")
    page.get_by_role("button", name="Preview").click()
    expect(result).to_contain_text("Half-width")
    fits(page)
    ask(page)
    expect(result).to_contain_text(f"Cost: epsilon {epsilon}, delta 1e-9, which was")
    fits(page)
    in_view(page, "td.estimate")
    write_sql(page, BY_TWO)
    ask(page)
    expect(result.locator(".ends").first).to_be_visible()
    fits(page)
    in_view(page, "td.estimate")
    page.get_by_text("Advanced").click()
    page.locator("#status").get_by_text("Exact amounts").first.click()
    page.locator("#status").get_by_text("Your entries in the journal").click()
    fits(page)
    in_view(page, "#status td:last-child")
    for wrong, words in (("SELECT AVG(nothing_that_is_known) FROM people", "No attribute"), (BY_TWO, "It needs")):
        write_sql(page, wrong)
        ask(page, "9")
        expect(result.get_by_role("alert")).to_contain_text(words, ignore_case=True)
        fits(page)
    page.get_by_role("link", name="Tables made of people").click()
    page.get_by_label("Epsilon").fill("1")
    page.get_by_role("button", name="Make a synthetic table").click()
    expect(page.get_by_role("heading", name="of what is left?")).to_be_visible()
    fits(page)
    page.get_by_role("button", name="Make it and spend it").click()
    fits(page)
    expect(page.get_by_role("status")).to_contain_text("The table is ready")
    fits(page)
    for path in ("/datasets/hospital", "/datasets/hospital/releases", "/datasets/nothing"):
        page.goto(server.address + path)
        fits(page)
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    fits(page)


def test_the_first_screen_of_a_phone_has_the_fields_of_a_plain_question(server, browser):
    page = enter(browser, server, "phil", Scope.ANALYST, browser.new_context(viewport={"width": 390, "height": 844}))
    page.goto(f"{server.address}/datasets/people")
    button = page.get_by_role("button", name="Ask", exact=True).bounding_box()
    assert button is not None
    assert button["y"] < 2 * 844
    for folded in ("Rho", "Rows in a group"):
        expect(page.get_by_label(folded)).to_be_hidden()


def test_a_print_has_whole_tables_and_no_controls(server, browser):
    page = enter(browser, server, "petra", Scope.ANALYST)
    page.get_by_role("link", name="people").click()
    write_sql(page, "SELECT age, COUNT(*) FROM people GROUP BY age")
    ask(page, "0.2")
    assert hidden_parts(page) != []  # a hundred rows are in a box
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 700, "height": 900})  # the width of a sheet
    assert hidden_parts(page) == []
    assert [each.evaluate("node => node.outerHTML") for each in page.locator(CONTROLS).all() if each.is_visible()] == []
    expect(page.get_by_role("heading", name="Answer")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
