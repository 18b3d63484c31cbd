"""The SQL box in a real Chromium: it completes declared names, marks what is wrong, and takes suggested statements."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, Server, write_people
from tests.server.ui.browsing import accessible, ask, browser, enter

from sfumato.app.cli.options import database
from sfumato.query.statements.sql_condition import Place
from sfumato_server.registry import Scope
from sfumato_server.ui.sql_box import wrong_place

__all__ = ["browser"]
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 360, "height": 740}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a table with an undeclared column, and several tables."""
    folder = tmp_path_factory.mktemp("sql")
    started = Server(database(str(folder / "s.ledger")), workers=1).start()
    attributes = {name: body for name, body in DOMAIN["attributes"].items() if name != "income"}
    with started.client("stew", Scope.STEWARD) as client:
        source = str(write_people(folder / "people.parquet"))
        client.register("people", source=source, domain={**DOMAIN, "attributes": attributes}, limit="3")
        bins = {**DOMAIN, "attributes": {"age": {**DOMAIN["attributes"]["age"], "edges": [0, 20, 60, 75]}}}
        client.register("bins", source=str(write_people(folder / "bins.parquet", seed=3)), domain=bins, limit="3")
        client.register("hospital", source=str(write_hospital(folder / "hospital")), domain=SCHEMA, limit="3")
    yield started
    started.stop()


def box_of(browser, server, dataset, size, **context):
    page = enter(browser, server, f"ana-{size}", Scope.ANALYST, browser.new_context(viewport=SIZES[size], **context))
    page.goto(f"{server.address}/datasets/{dataset}")
    page.get_by_role("radio", name="SQL").check()
    return page, page.locator("#sql")


def type_anew(box, text):
    box.fill("")
    box.press_sequentially(text)


def fits(page):
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    accessible(page)


def offered(page):
    names = page.locator("#sql-names")
    return [each.inner_text().split()[0] for each in names.get_by_role("option").all()] if names.is_visible() else []


@pytest.mark.parametrize("size", SIZES)
def test_declared_names_are_completed_by_the_keyboard(server, browser, size):
    page, box = box_of(browser, server, "people", size)
    type_anew(box, "SELECT a")
    assert offered(page) == ["age"]
    option = page.locator("#sql-names").get_by_role("option", name="age")
    expect(option).to_have_attribute("aria-selected", "true")
    assert box.get_attribute("aria-activedescendant") == option.get_attribute("id")
    assert box.get_attribute("aria-controls") == page.locator("#sql-names").get_attribute("id")
    expect(page.locator("#sql-count")).to_have_text("1 name, first age")
    fits(page)
    place = page.locator("#sql-names").bounding_box()
    assert 0 <= place["x"] <= place["x"] + place["width"] <= SIZES[size]["width"]
    box.press("Enter")
    expect(box).to_have_value("SELECT age")
    expect(page.locator("#sql-names")).to_be_hidden()
    box.press_sequentially(", COUNT(*) FROM p")
    assert offered(page) == ["people"]
    box.press("Tab")
    expect(box).to_have_value("SELECT age, COUNT(*) FROM people")
    expect(box).to_be_focused()
    box.press_sequentially(" WHERE inco")
    assert offered(page) == []  # the column is not declared
    box.press_sequentially("me = 'a")
    assert offered(page) == []  # within a text
    type_anew(box, "SELECT ")
    expect(page.locator("#sql-names")).to_be_hidden()
    box.press("Control+Space")
    assert offered(page) == ["age", "sex", "people"]
    box.press("ArrowDown")
    expect(page.locator("#sql-names").get_by_role("option", name="sex")).to_have_attribute("aria-selected", "true")
    box.press("ArrowUp")
    box.press("ArrowUp")
    expect(page.locator("#sql-names").get_by_role("option", name="people")).to_have_attribute("aria-selected", "true")
    box.press("Escape")
    expect(page.locator("#sql-names")).to_be_hidden()
    expect(box).to_have_value("SELECT ")
    box.press("Tab")
    expect(box).not_to_be_focused()


def test_columns_of_several_tables_are_completed_by_table_and_alias(server, browser):
    page, box = box_of(browser, server, "hospital", "wide")
    type_anew(box, "SELECT * FROM ")
    box.press("Control+Space")
    assert offered(page) == ["patients", "visits", "diagnoses", "icd"]
    box.press_sequentially("visits v JOIN pat")
    page.locator("#sql-names").get_by_role("option", name="patients").click()
    expect(box).to_have_value("SELECT * FROM visits v JOIN patients")
    box.press_sequentially(" p ON v.")
    assert offered(page) == ["cost", "patient_id", "visit_id"]
    box.press_sequentially("pat")
    box.press("Enter")
    box.press_sequentially(" = p.")
    assert offered(page) == ["sex", "region", "patient_id"]
    box.press_sequentially("patient_id GROUP BY sex, p")
    assert "patient_id" in offered(page)
    fits(page)


@pytest.mark.parametrize("size", SIZES)
def test_a_refusal_marks_its_place_and_its_statement_goes_into_the_box(server, browser, size):
    page, box = box_of(browser, server, "people", size)
    form, result = page.locator("#sql-form"), page.locator("#result")
    box.fill("SELECT sex, COUNT(*)\nFROM people\nWHERE job = 'baker'\nGROUP BY sex")
    ask(page, "0.1")
    expect(result.get_by_role("alert")).to_contain_text("Line 3, column 7: no attribute 'job'")
    expect(result.get_by_role("alert")).not_to_contain_text("; ask SELECT")
    expect(result.locator("mark")).to_have_text("job")
    expect(form.locator(".marks mark")).to_have_text("job")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(box).to_have_attribute("aria-describedby", "sql-place sql-help")
    assert box.evaluate("box => box.value.slice(box.selectionStart, box.selectionEnd)") == "job"
    over = "mark => (r => [r.x, r.y])(mark.getBoundingClientRect())"
    x, y = form.locator(".marks mark").evaluate(over)
    within = box.bounding_box()
    assert within["x"] < x < within["x"] + within["width"]
    assert within["y"] < y < within["y"] + within["height"]
    fits(page)
    link = result.get_by_role("link", name="SELECT")
    suggested = link.first.inner_text()
    link.first.press("Enter")
    expect(box).to_have_value(suggested)
    expect(box).to_be_focused()
    expect(form.locator(".marks mark")).to_have_count(0)
    assert box.get_attribute("aria-invalid") is None
    ask(page)
    expect(result).to_contain_text("Cost: ")  # nothing, if the other size asked first
    fits(page)


def test_a_cell_that_is_cut_offers_the_statements_at_both_edges(server, browser):
    page, box = box_of(browser, server, "bins", "narrow")
    result = page.locator("#result")
    box.fill("SELECT COUNT(*) FROM bins WHERE age >= 65")
    page.get_by_label("Epsilon").fill("0.1")
    page.get_by_role("button", name="Preview").click()
    expect(result.get_by_role("alert")).to_contain_text("These statements work")
    links = result.get_by_role("link").all_inner_texts()
    assert links[:2] == ["SELECT COUNT(*) FROM bins WHERE age >= 60", "SELECT COUNT(*) FROM bins WHERE age >= 75"]
    fits(page)
    result.get_by_role("link").nth(1).click()
    expect(box).to_have_value(links[1])


def test_without_scripts_the_place_is_shown_and_the_statement_is_a_link(server, browser):
    page, box = box_of(browser, server, "people", "narrow", java_script_enabled=False)
    box.fill("SELECT sex FROM people LIMIT a")
    page.get_by_label("Epsilon").fill("0.1")
    page.get_by_role("button", name="Ask", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Nothing was spent")
    expect(alert.locator("mark")).to_have_count(1)
    expect(page.locator("#sql-help")).to_be_hidden()
    link = alert.get_by_role("link", name="SELECT").first
    suggested = link.inner_text()
    link.click()
    expect(page.locator("#sql")).to_have_value(suggested)


def test_statements_in_addresses_are_text_and_bounded(server, browser):
    page, _ = box_of(browser, server, "people", "wide")
    page.goto(f"{server.address}/datasets/people?sql=%3C/textarea%3E%3Cscript%3Ealert(1)%3C/script%3E")
    expect(page.locator("#sql")).to_have_value("</textarea><script>alert(1)</script>")
    reply = page.goto(f"{server.address}/datasets/people?sql={'a' * 10_001}")
    assert reply.status == 422


def test_the_wrong_word_is_the_one_at_the_place():
    cases = [
        ("SELECT a", Place(1, 8), ("SELECT ", "a", "")),
        ("SELECT\n\"a b\", 'c' FROM t", Place(2, 1), ("", '"a b"', ", 'c' FROM t")),
        ("SELECT a\r\nFROM t\r\n", Place(2, 5), ("FROM", " ", "t")),
        ("SELECT", Place(1, 9), ("SELECT", " ", "")),
        ("x" * 100 + " bad " + "y" * 100, Place(1, 102), ("..." + "x" * 59 + " ", "bad", " " + "y" * 59 + "...")),
    ]
    for statement, place, expected in cases:
        marked = wrong_place(statement, place)
        assert (marked.before, marked.word, marked.after) == expected
    assert wrong_place("SELECT", Place(2, 1)) is None
