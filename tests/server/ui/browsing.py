"""A real Chromium for the tests of the page: it leaves no server's address, and looks for what axe forbids."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from tests.services import require

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PATIENCE = 240_000  # milliseconds, on a machine that does much else
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        yield opened
        opened.close()


def visitor(browser, server, context=None) -> Page:
    """A browser of its own; whatever would leave the server's address fails the test, and so does any script error."""
    page = (context or browser.new_context()).new_page()
    page.route(
        lambda address: not address.startswith((server.address, "data:")), lambda route: pytest.fail(route.request.url)
    )
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.set_default_timeout(PATIENCE)
    return page


def accessible(page: Page) -> None:
    page.wait_for_load_state()  # colors come from the style sheet
    page.evaluate(Path(require("SFUMATO_TEST_AXE")).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []


def enter(browser, server, name, scope, context=None) -> Page:
    page = visitor(browser, server, context)
    page.goto(server.address)
    page.get_by_label("Key").fill(server.key(name, scope))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()
    return page


def write_sql(page: Page, statement: str) -> None:
    page.get_by_role("radio", name="SQL").check()
    page.locator("#sql").fill(statement)


def ask(page: Page, epsilon: str | None = None) -> None:
    """Press Ask, and confirm the cost if the page asks for it."""
    if epsilon is not None:
        page.get_by_label("Epsilon", exact=True).fill(epsilon)
    with page.expect_response(lambda reply: reply.url.endswith("/ask")):
        page.get_by_role("button", name="Ask", exact=True).click()
    spend = page.get_by_role("button", name="Ask and spend it")
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")  # the reply is on the page
    if spend.count():
        spend.click()
        expect(spend).to_have_count(0)
