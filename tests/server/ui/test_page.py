"""The page in a real Chromium: the whole flow of a steward and an analyst, without a network, and with axe."""

from __future__ import annotations

import httpx
import pytest
import yaml
from playwright.sync_api import expect
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, VISITS, Server, write_people, write_visits
from tests.server.ui.browsing import accessible, ask, browser, enter, visitor, write_sql

from sfumato.app.cli.options import database
from sfumato.app.client_protocol import ServerError
from sfumato_server.registry import Scope
from sfumato_server.service import first_invitation

__all__ = ["browser"]


@pytest.fixture
def server(tmp_path):
    """A server that knows no dataset, and a table."""
    started = Server(database(str(tmp_path / "s.ledger")), workers=1).start()
    write_people(tmp_path / "people.parquet")
    yield started, tmp_path / "people.parquet"
    started.stop()


@pytest.fixture
def registered(server):
    """That server, with the table registered as people."""
    started, table = server
    with started.client("stew", Scope.STEWARD) as client:
        client.register("people", source=str(table), domain=DOMAIN, limit="3")
    return server


def test_a_steward_registers_and_an_analyst_previews_asks_repeats_and_is_refused(  # noqa: PLR0915
    server, browser
):
    started, table = server
    steward = visitor(browser, started)
    link = first_invitation(started.url, started.address)
    for _ in range(2):  # whatever looks at the address, such as a preview of a message, does not use it up
        steward.goto(link)
        expect(steward.get_by_role("button", name="Sign in as steward")).to_be_visible()
    accessible(steward)
    steward.get_by_role("button", name="Sign in as steward").click()
    expect(steward).to_have_title("Steward - Sfumato")
    expect(steward.get_by_role("region", name="Needs attention")).to_contain_text("Nothing.")
    accessible(steward)
    steward.get_by_text("Register with a description that you have").click()
    steward.get_by_label("Name", exact=True).fill("people")
    steward.get_by_label("Table: a file").fill(str(table))
    steward.get_by_label("Accepted domain").fill(yaml.safe_dump(DOMAIN, sort_keys=False))
    steward.get_by_label("Limit: the most that may ever").fill("-1")
    steward.get_by_role("button", name="Register").click()
    expect(steward.get_by_role("alert")).to_contain_text("Nothing was spent")
    accessible(steward)
    steward.get_by_label("Limit: the most that may ever").fill("3")  # the rest is as it was filled in
    steward.get_by_label("Table: a file").fill("/nosuch.csv")
    steward.get_by_role("button", name="Register").click()
    expect(steward.get_by_role("alert")).to_contain_text("There is no file /nosuch.csv")
    expect(steward.get_by_role("alert")).to_contain_text("Nothing was spent")
    steward.get_by_label("Table: a file").fill(str(table))
    steward.get_by_role("button", name="Register").click()
    expect(steward.get_by_role("status")).to_contain_text("people is registered")
    steward.get_by_role("link", name="Analysts", exact=True).click()
    steward.get_by_label("Analyst, as their key").fill("ana")
    steward.get_by_label("Most that the analyst may spend").fill("1")
    steward.get_by_role("button", name="Set the cap").click()
    expect(steward.get_by_role("status")).to_contain_text("cap of ana")
    accessible(steward)
    steward.get_by_role("link", name="Keys").click()
    steward.get_by_label("Name of the holder").fill("ana")
    steward.get_by_role("button", name="Issue").click()
    secret = steward.locator("#secret").inner_text()
    assert secret.startswith("sfumato_analyst_")
    accessible(steward)
    steward.reload()  # posts nothing again
    expect(steward.locator("#secret")).to_have_count(0)
    expect(steward.get_by_role("button", name="Revoke the key of ana")).to_have_count(1)

    analyst = visitor(browser, started)
    analyst.goto(link)  # used by the steward
    expect(analyst.get_by_role("alert")).to_contain_text("opens nothing")
    accessible(analyst)
    analyst.get_by_label("Key").fill("wrong")
    analyst.get_by_role("button", name="Sign in").click()
    expect(analyst.get_by_role("alert")).to_contain_text("opens nothing")
    analyst.get_by_label("Key").fill(secret)
    analyst.get_by_role("button", name="Sign in").click()
    expect(analyst.get_by_role("link", name="Steward")).to_have_count(0)
    analyst.get_by_role("link", name="people").click()

    builder, result = analyst.locator("#builder"), analyst.locator("#result")
    builder.get_by_role("checkbox", name="sex").check()
    builder.locator("summary", has_text="age").click()
    builder.get_by_label("age at least").fill("18")
    builder.locator("summary", has_text="income").click()
    builder.get_by_label("income below").select_option("1000.0")
    analyst.get_by_label("Epsilon").fill("0.5")
    analyst.get_by_role("button", name="Preview").click()
    expect(result).to_contain_text("Nothing was spent")
    expect(result).to_contain_text("Half-width")
    expect(analyst.locator("#status")).to_contain_text("epsilon = 1 left of epsilon = 1")
    accessible(analyst)
    analyst.get_by_role("button", name="Ask", exact=True).click()
    expect(result.get_by_role("heading", name="Spend 50 % of what is left?")).to_be_focused()
    expect(analyst.locator("#status")).to_contain_text("epsilon = 1 left of epsilon = 1")
    accessible(analyst)
    result.get_by_role("button", name="Ask and spend it").click()
    expect(result).to_contain_text("Cost: epsilon 0.5")
    assert result.locator("rect.bar").count() == 4
    expect(result.locator(".error")).to_contain_text("for every row, with 95 % confidence")
    expect(result.get_by_role("heading", name="Answer")).to_be_focused()
    expect(result.get_by_role("heading", name="Answer")).to_be_in_viewport()
    with analyst.expect_download() as saved:
        result.get_by_role("link", name="CSV").click()
    assert len(saved.value.path().read_text().splitlines()) == 5
    expect(analyst.locator("#status")).to_contain_text("epsilon = 0.5 left of epsilon = 1")
    accessible(analyst)
    estimates = result.locator("td.estimate").all_inner_texts()
    assert len(estimates) == 4

    analyst.locator("#status summary", has_text="Your entries").click()
    journal = analyst.get_by_role("region", name="Your entries, newest first")
    expect(journal).to_contain_text("For ana: differential privacy with epsilon = 0.5")
    for width in (1366, 390):  # no column is cut off
        analyst.set_viewport_size({"width": width, "height": 768})
        assert journal.evaluate("each => each.scrollWidth <= each.clientWidth")
    analyst.set_viewport_size({"width": 1280, "height": 720})
    earlier = analyst.locator("#status").get_by_role("link", name="count(*) by sex where (age")
    earlier.click()  # the question, in words, opens with the form
    expect(builder.get_by_label("age at least")).to_have_value("18")

    analyst.get_by_role("button", name="Ask", exact=True).click()  # a repeat is free, so nothing is to be confirmed
    expect(result).to_contain_text("You got this answer before")
    assert result.locator("td.estimate").all_inner_texts() == estimates
    expect(analyst.locator("#status")).to_contain_text("epsilon = 0.5 left of epsilon = 1")

    expect(analyst.get_by_label("Epsilon")).to_have_value("0.5")  # the last value
    write_sql(analyst, "SELECT MEDIAN(income) FROM people WHERE age > 20 AND job = 1")
    ask(analyst, "0.6")
    expect(result.get_by_role("alert")).to_contain_text("column 54: no attribute 'job'")
    write_sql(analyst, "SELECT MEDIAN(income) FROM people")
    ask(analyst)
    expect(result.get_by_role("alert")).to_contain_text(
        "It needs 60 % of your cap (epsilon 1), of which 50 % is left. Ask with at most epsilon 0.5"
    )
    expect(result.get_by_role("alert")).to_contain_text("Nothing was spent")
    accessible(analyst)

    steward.goto(f"{started.address}/steward/people")
    expect(steward.get_by_role("region", name="Analysts")).to_contain_text("epsilon = 0.5 left of epsilon = 1")
    expect(steward.locator("main")).to_contain_text("The journal is verified")
    accessible(steward)
    refused = analyst.goto(f"{started.address}/steward")
    assert refused is not None
    assert refused.status == 403
    expect(analyst.get_by_role("alert")).to_contain_text("does not open this page")
    accessible(analyst)


def test_refusals_are_pages_for_people(server, browser):
    started, _ = server
    stranger = visitor(browser, started)
    reply = stranger.goto(f"{started.address}/datasets/people")
    assert reply is not None
    assert reply.status == 401
    expect(stranger.get_by_role("alert")).to_contain_text("sign in with your key")
    accessible(stranger)
    analyst = enter(browser, started, "bea", Scope.ANALYST)
    for path, status in (("/datasets/nothing", 404), ("/nowhere", 404), ("/steward", 403)):
        reply = analyst.goto(started.address + path)
        assert reply is not None
        assert reply.status == status
        expect(analyst.get_by_role("heading", name="This did not work")).to_be_visible()
        expect(analyst.get_by_role("alert")).to_contain_text("Nothing was spent")
        expect(analyst.get_by_role("link", name="All datasets")).to_be_visible()


def test_a_steward_confirms_a_second_budget_lifts_a_cap_and_has_a_table_read_again(registered, browser):
    started, table = registered
    steward = enter(browser, started, "stew", Scope.STEWARD)
    steward.get_by_role("link", name="Steward").click()
    expect(steward.get_by_role("region", name="Needs attention")).to_contain_text("Nothing.")
    steward.get_by_text("Register with a description that you have").click()
    steward.get_by_label("Name", exact=True).fill("twin")
    steward.get_by_label("Table: a file").fill(str(table))
    steward.get_by_label("Accepted domain").fill(yaml.safe_dump(DOMAIN, sort_keys=False))
    steward.get_by_label("Limit: the most that may ever").fill("1")
    steward.get_by_role("button", name="Register").click()
    expect(steward.get_by_role("alert")).to_contain_text("It is 'people' already")
    accessible(steward)
    steward.get_by_label("This table is to have a second budget").check()
    steward.get_by_role("button", name="Register").click()
    expect(steward.get_by_role("status")).to_contain_text("twin is registered")

    steward.get_by_role("link", name="Analysts", exact=True).click()
    steward.get_by_label("Dataset", exact=True).select_option("twin")
    steward.get_by_label("Analyst, as their key").fill("bea")
    steward.get_by_label("Most that the analyst may spend").fill("0.5")
    steward.get_by_role("button", name="Set the cap").click()
    expect(steward.get_by_role("status")).to_contain_text("cap of bea is set")
    steward.get_by_label("Dataset", exact=True).select_option("twin")
    steward.get_by_label("Analyst, as their key").fill("bea")
    steward.get_by_role("button", name="Lift the cap").click()
    expect(steward.get_by_role("status")).to_contain_text("cap of bea is lifted")
    with started.ledger("twin") as ledger:
        assert ledger.remaining("bea").limit is None

    bea = enter(browser, started, "bea", Scope.ANALYST)
    bea.goto(f"{started.address}/datasets/twin")
    write_people(table, seed=3)
    bea.get_by_role("radio", name="SQL").check()
    ask(bea, "0.1")
    expect(bea.locator("#result")).to_contain_text("Cost: epsilon 0.1")  # of the version that was declared
    for name in ("twin", "people"):
        steward.goto(f"{started.address}/steward")
        steward.get_by_role("link", name=f"Read its table again ({name})").click()
        expect(steward.get_by_role("alert")).to_contain_text("The files of the table have changed since then")
        steward.get_by_role("button", name="Read the table again").click()
        expect(steward.get_by_role("status")).to_contain_text("It is version 2,")
        accessible(steward)
    ask(bea)
    expect(bea.get_by_label("Budget and history")).to_contain_text("epsilon = 0.8 left of epsilon = 1")


def test_a_preview_at_a_large_loss_says_that_the_answer_is_exact_all_but_surely(registered, browser):
    started, _ = registered
    page = enter(browser, started, "ana", Scope.ANALYST)
    page.get_by_role("link", name="people").click()
    page.get_by_label("Epsilon").fill("60")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#result")).to_contain_text("Nothing was spent")
    expect(page.locator("#result")).to_contain_text("Half-width")
    expect(page.locator("#result")).not_to_contain_text("Half that error")


def test_rows_beyond_the_bound_are_counted_and_very_noisy_answers_announced(registered, browser, tmp_path):
    started, _ = registered
    with started.client("stew", Scope.STEWARD) as client:
        source = str(write_visits(tmp_path / "visits.parquet"))
        client.register("visits", source=source, domain=VISITS, limit="1e5")
    page = enter(browser, started, "vera", Scope.ANALYST)
    page.get_by_role("link", name="people").click()
    expect(page.get_by_label("Epsilon")).to_be_visible()
    expect(page.get_by_label("Rows that the bound drops")).to_have_count(0)  # a row is a person there
    page.goto(f"{started.address}/datasets/visits")
    expect(page.get_by_label("Rows that the bound drops, counted up to this many per person")).to_have_count(1)
    page.get_by_text("Advanced").click()
    result = page.locator("#result")
    page.get_by_label("Epsilon").fill("0.0001")
    page.get_by_role("button", name="Preview").click()
    expect(result).to_contain_text("at this loss noise may outweigh")
    expect(result).to_contain_text("Nothing was spent")
    page.get_by_label("Epsilon").fill("10000")
    page.get_by_label("Rows that the bound drops").fill("5")
    page.get_by_role("button", name="Preview").click()
    expect(result).to_contain_text("rows left out by the bound")
    expect(result).not_to_contain_text("outweigh")
    accessible(page)
    ask(page)
    expect(result).to_contain_text("the bound leaves out 600 (600 to 600) rows, counting at most 5 of one unit")
    accessible(page)


def test_the_page_is_used_with_the_keyboard_alone(registered, browser):
    started, _ = registered
    page = visitor(browser, started)
    page.goto(started.link())
    for _ in range(3):  # past the skip link and the name
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Sign in as steward")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_title("Steward - Sfumato")
    page.goto(started.address)
    page.wait_for_load_state()  # a key that is pressed before goes nowhere
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(":target")).to_have_count(1)  # the way there is asynchronous
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="people")).to_be_focused()
    page.keyboard.press("Enter")
    epsilon = page.get_by_label("Epsilon")
    expect(epsilon).to_be_visible()
    page.wait_for_load_state()  # scripts that send forms are deferred
    for _ in range(40):
        page.keyboard.press("Tab")
        if epsilon.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.type("0.25")
    for _ in range(3):  # past the slide and the preview
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#result")).to_contain_text("Cost: epsilon 0.25")
    expect(page.locator("#result").get_by_role("heading", name="Answer")).to_be_focused()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_expected_error_follows_the_form_and_answers_come_into_view(registered, browser, width, scheme):
    started, _ = registered
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = enter(browser, started, "small", Scope.ANALYST, context)
    page.goto(f"{started.address}/datasets/people")
    builder, result, expected = page.locator("#builder"), page.locator("#result"), page.locator("#expected")
    builder.get_by_role("checkbox", name="sex").check()
    builder.get_by_role("checkbox", name="income").check()
    expect(expected).not_to_contain_text("confidence")  # there is no loss yet
    page.get_by_label("on a slide").fill("-0.5")
    expect(page.get_by_label("Epsilon")).to_have_value("0.31")
    expect(expected).to_contain_text("takes 11 % of what is left")
    expect(expected).to_contain_text("count(*) \u00b1 10, with 95 % confidence")
    expect(expected.get_by_role("img")).to_have_accessible_name("Left to you: 100 %, of which this takes 11 %")
    expect(result).to_have_text("Answers appear here.")  # a preview that follows leaves the answer alone
    expect(page.get_by_label("on a slide")).to_be_in_viewport()
    builder.get_by_label("What").select_option("sum")
    expect(expected).to_contain_text("No expected error yet. Choose the number that the sum is of")
    builder.get_by_label("What").select_option("count")
    write_sql(page, "SELECT COUNT(*) FROM people")
    page.get_by_label("Epsilon").fill("0.1")
    expect(expected).to_contain_text("takes 3.4 % of what is left")
    expect(builder).to_be_hidden()
    page.get_by_role("radio", name="Build").check()
    page.get_by_label("Epsilon").fill("0.31")
    expect(expected).to_contain_text("takes 11 % of what is left")
    accessible(page)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(result.get_by_role("heading", name="Spend 11 % of what is left?")).to_be_in_viewport()
    accessible(page)
    result.get_by_role("button", name="Ask and spend it").click()
    expect(result.locator("rect.bar")).to_have_count(8)
    expect(result.get_by_role("heading", name="Answer")).to_be_in_viewport()
    expect(page.locator("#question")).to_have_attribute("aria-busy", "false")
    expect(expected).to_contain_text("89 % left of epsilon 3 (epsilon 2.69)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)
    page.goto(f"{started.address}/datasets/people")
    expect(page.get_by_label("Epsilon")).to_have_value("0.31")  # the last one
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("heading", name="Answers from sensitive tables, with privacy")).to_be_visible()
    accessible(page)


def test_without_scripts_questions_are_asked_confirmed_and_answered_as_pages(registered, browser):
    started, _ = registered
    page = enter(browser, started, "plain", Scope.ANALYST, browser.new_context(java_script_enabled=False))
    page.goto(f"{started.address}/datasets/people")
    page.get_by_label("Epsilon").fill("0.1")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#result")).to_contain_text("Nothing was spent")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#result")).to_contain_text("Cost: epsilon 0.1")
    write_sql(page, "SELECT sex, COUNT(*) FROM people GROUP BY sex")  # the tabs need no scripts
    page.get_by_label("Epsilon").fill("1.45")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("heading", name="Spend 50 % of what is left?")).to_be_visible()
    page.get_by_role("button", name="Ask and spend it").click()
    expect(page.locator("#result")).to_contain_text("Cost: epsilon 1.45")


def test_tables_are_shown_as_a_picture_and_their_columns_picked_and_joined(server, browser, tmp_path):
    started, _ = server
    with started.client("stew", Scope.STEWARD) as client:
        source = str(write_hospital(tmp_path / "hospital"))
        client.register("hospital", source=source, domain=SCHEMA, limit="1")
    page = enter(browser, started, "ana", Scope.ANALYST)
    page.goto(f"{started.address}/datasets/hospital")
    expect(page.get_by_role("img", name="visits: patient_id")).to_be_visible()
    builder, result = page.locator("#builder"), page.locator("#result")
    builder.get_by_label("Rows of").select_option("visits")
    builder.get_by_role("checkbox", name="patients.sex").check()
    ask(page, "0.5")
    expect(result).to_contain_text("JOIN patients ON visits.patient_id = patients.patient_id")
    expect(result.locator("rect.bar").first).to_be_visible()
    accessible(page)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_a_steward_sees_what_waits_and_an_officer_only_reads(registered, browser, width, scheme):
    started, _ = registered
    with started.client("stew", Scope.STEWARD) as client:
        client.set_terms("people", approval_above="0.5")
    with started.client("ana") as client, pytest.raises(ServerError):
        client.ask("people", "SELECT COUNT(*) FROM people", epsilon="1")
    screen = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    steward = enter(browser, started, "stew", Scope.STEWARD, browser.new_context(**screen))
    steward.get_by_role("link", name="Steward").click()
    needed = steward.get_by_role("region", name="Needs attention")
    expect(needed).to_contain_text("epsilon = 1")
    accessible(steward)
    assert steward.evaluate("document.documentElement.scrollWidth <= innerWidth")
    needed.get_by_role("button", name="Approve the release for ana").click()
    expect(needed).to_contain_text("Nothing.")
    expect(steward.get_by_role("region", name="Approved and not used yet")).to_contain_text("Approved by stew")
    with started.client("ana") as client:
        client.ask("people", "SELECT COUNT(*) FROM people", epsilon="1")
    steward.get_by_role("region", name="Datasets").get_by_role("link", name="people").click()
    expect(steward.get_by_role("region", name="Journal")).to_contain_text("For ana: differential privacy")
    accessible(steward)
    steward.get_by_role("link", name="Settings").click()
    expect(steward.get_by_role("heading", name="Who may ask")).to_be_visible()
    accessible(steward)

    officer = enter(browser, started, "ida", Scope.OFFICER, browser.new_context(**screen))
    expect(officer.get_by_text("ida, privacy officer")).to_be_visible()
    expect(officer.get_by_role("region", name="Datasets")).to_contain_text("ana, ")
    accessible(officer)
    assert officer.evaluate("document.documentElement.scrollWidth <= innerWidth")
    officer.get_by_role("link", name="people").click()
    expect(officer.get_by_role("region", name="Journal")).to_contain_text("For ana: differential privacy")
    expect(officer.get_by_role("link", name="Settings")).to_have_count(0)
    expect(officer.locator("form[method=post]")).to_have_count(1)  # to sign out
    accessible(officer)
    officer.get_by_label("Recipients").fill("City council")
    officer.get_by_role("button", name="Sign-off sheet").click()
    expect(officer.get_by_role("heading", name="Answers of people")).to_be_visible()
    expect(officer.locator("main")).to_contain_text("City council")
    accessible(officer)
    assert officer.evaluate("document.documentElement.scrollWidth <= innerWidth")
    officer.go_back()
    officer.get_by_role("button", name="Sign out everywhere").click()
    expect(officer.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_long_name_is_broken_and_the_table_of_keys_is_not(server, browser):
    started, _ = server
    with started.client("stew", Scope.STEWARD) as client:
        client.issue("n" * 200, scope="analyst", days=1)
    steward = enter(browser, started, "stew", Scope.STEWARD)
    steward.get_by_role("link", name="Steward").click()
    steward.get_by_role("link", name="Keys").click()
    region = steward.get_by_role("region", name="All keys")
    expect(region.get_by_role("button", name="Revoke the key of nnn")).to_have_count(1)
    accessible(steward)
    assert region.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_forms_of_other_sites_are_refused(server):
    started, _ = server
    reply = httpx.post(
        f"{started.address}/enter", data={"key": "x"}, headers={"Origin": "https://evil.example"}, trust_env=False
    )
    assert reply.status_code == 403
    assert reply.json()["type"] == "/problems/foreign-origin"


def test_an_analyst_asks_by_rho_or_by_epsilon_and_delta_where_the_limit_has_them(server, browser):
    started, table = server
    with started.client("stew", Scope.STEWARD) as client:
        client.register("smooth", source=str(table), domain=DOMAIN, limit="4,1e-6")
    page = enter(browser, started, "rhea", Scope.ANALYST)
    page.get_by_role("link", name="smooth").click()
    result = page.locator("#result")
    page.get_by_role("button", name="Preview").click()
    expect(result.get_by_role("alert")).to_contain_text("There is no epsilon yet. Fill it in")
    expect(page.locator("#question")).to_contain_text("Delta is 1e-6. The budget of the dataset sets it")
    page.get_by_text("Advanced").click()
    page.get_by_label("Rho").fill("0.1")
    page.get_by_role("button", name="Preview").click()
    expect(result).to_contain_text("It would cost rho 0.1")
    ask(page)
    expect(result).to_contain_text("Cost: rho 0.1")
    accessible(page)
    page.get_by_label("Rho").fill("")
    ask(page, "0.5")
    expect(result).to_contain_text("Cost: epsilon 0.5, delta 1e-6, which was")


def test_tables_are_made_in_the_background(server, browser):
    started, table = server
    with started.client("stew", Scope.STEWARD) as client:
        client.register("source", source=str(table), domain=DOMAIN, limit="2")
    analyst = enter(browser, started, "syn", Scope.ANALYST)
    analyst.get_by_role("link", name="source").click()
    analyst.get_by_role("link", name="Tables made of source").click()
    expect(analyst.get_by_role("button", name="Make an anonymized table")).to_have_count(0)
    form = analyst.locator("#synthesis")
    expect(form.get_by_label("age")).to_be_hidden()
    form.get_by_label("Method").select_option("histogram")
    form.get_by_label("Epsilon").fill("1")
    form.get_by_role("button").click()
    expect(analyst.get_by_role("alert")).to_contain_text("Tick the columns of the histogram")
    accessible(analyst)
    form.get_by_label("age").check()  # the epsilon is still in the form
    form.get_by_role("button").click()
    expect(analyst.get_by_role("heading", name="Spend 50 % of what is left?")).to_be_visible()
    accessible(analyst)
    analyst.get_by_role("button", name="Make it and spend it").click()
    expect(analyst.get_by_role("status")).to_contain_text("The table is ready")
    expect(analyst.locator("main")).to_contain_text("epsilon 1")
    accessible(analyst)
    with analyst.expect_download() as fetched:
        analyst.get_by_role("link", name="Save the rows").click()
    assert fetched.value.path().read_text().splitlines()[0].replace('"', "") == "age"

    steward = enter(browser, started, "stew", Scope.STEWARD)
    steward.goto(f"{started.address}/datasets/source/releases")
    form = steward.locator("#anonymization")
    form.get_by_label("Method").select_option("mondrian")
    form.get_by_label("sex").check()
    form.get_by_label("k: smallest").fill("5")
    accessible(steward)
    form.get_by_role("button").click()
    expect(steward.get_by_role("status")).to_contain_text("The table is ready")
    expect(steward.locator("main")).to_contain_text("no DP guarantee")
    with started.ledger("source") as ledger:
        assert ledger.remaining().spent.epsilon == 1
    reply = analyst.goto(steward.url)
    assert reply is not None
    assert reply.status == 404


def test_a_ledger_that_does_not_answer_is_said_on_a_page(tmp_path):
    started = Server(database(str(tmp_path / "s.ledger")), workers=1).start()
    try:
        cookies, headers = started.session("ana", Scope.ANALYST), {"Accept": "text/html"}
        for file in tmp_path.glob("s.ledger*"):
            file.write_bytes(b"no ledger" * 4096)
        for path in ("/", "/datasets/people", "/steward"):
            address = started.address + path
            reply = httpx.get(address, headers=headers, cookies=cookies, trust_env=False, timeout=60)
            assert (reply.status_code, reply.headers["content-type"]) == (503, "text/html; charset=utf-8")
            assert "The ledger does not answer" in reply.text
    finally:
        started.stop()
