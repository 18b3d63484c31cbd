"""A steward describes tables on the page in a real Chromium: drafts, edits in the form, checks, accepts, registers."""

from __future__ import annotations

import html
import re

import httpx
import pytest
from playwright.sync_api import expect
from tests.server.hospital import write_hospital
from tests.server.serving import DOMAIN, Server, write_people
from tests.server.ui.browsing import accessible, browser, enter

from sfumato.app.cli.options import database
from sfumato.strict_documents import write_yaml
from sfumato_server.registry import Scope
from sfumato_server.ui.description_form import form_fields

__all__ = ["browser"]
HERE = "/steward/all/description"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(database(str(tmp_path_factory.mktemp("describing") / "s.ledger")), workers=1).start()
    yield started
    started.stop()


def write_stays(path, step):
    rows = [f"{n % 40},{n % 90},{'ABC'[n % 3]},2023-{1 + n * step % 12:02d}-03" for n in range(400)]
    path.write_text("\n".join(["person,age,ward,admitted", *rows]) + "\n")
    return path


LOOKS = {
    "wide": {},
    "small": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "plain": {"viewport": {"width": 390, "height": 844}, "java_script_enabled": False},
}


def begin(browser, server, look, name, source):
    """The page of a draft, as a steward comes to it."""
    page = enter(browser, server, "stew", Scope.STEWARD, browser.new_context(**LOOKS[look]))
    page.get_by_role("link", name="Steward").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Table: a file").fill(str(source))
    page.get_by_role("button", name="Draft a description").click()
    expect(page.get_by_role("heading", name=f"Describe {name}")).to_be_visible()
    return page


def of(page, attribute, label):
    """A field of one attribute."""
    return page.locator("details.attribute").filter(has=page.get_by_text(attribute, exact=True)).get_by_label(label)


def looks_right(page, look):
    if look == "plain":  # axe is a script
        return
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("look", LOOKS)
def test_a_table_is_drafted_edited_in_the_form_checked_accepted_and_registered(server, browser, tmp_path, look):
    page = begin(browser, server, look, look, write_stays(tmp_path / "stays.csv", 1 + list(LOOKS).index(look)))
    expect(page.get_by_text("its values seem to be people")).to_be_visible()
    expect(page.get_by_label("Most rows kept of a person")).to_have_value("10")
    expect(of(page, "admitted", "First day")).to_be_visible()  # what lacks something is open
    expect(of(page, "age", "Greatest")).to_be_hidden()
    looks_right(page, look)
    page.get_by_role("button", name="Check it with the tables").click()
    expect(page.get_by_role("alert")).to_contain_text("'admitted' still needs its first and its last day")
    of(page, "admitted", "First day").fill("2023-01-01")
    of(page, "admitted", "Last day").fill("2023-12-31")
    of(page, "admitted", "Last day").press("Enter")  # which checks, and registers nothing
    expect(page.get_by_role("status")).to_contain_text("nothing is missing")
    risks = page.get_by_role("region", name="Look at this before you accept")
    expect(risks).to_contain_text("1 column has bounds read off the table: age")
    page.locator("summary", has_text="age").press("Enter")
    expect(of(page, "age", "First day")).to_be_hidden()  # of another type
    of(page, "age", "Greatest").fill("120")
    page.locator("summary", has_text="ward").press("Enter")
    of(page, "ward", "Values, one a line").fill("A\nB\nC\nD")
    page.get_by_label("Most rows kept of a person").fill("12")
    looks_right(page, look)
    page.get_by_label("The most that may ever").fill("2")
    page.get_by_role("button", name="Accept and register").click()
    expect(page.get_by_role("alert")).to_contain_text("tick that you have looked at the description")
    page.get_by_label("I have looked at this description").press("Space")
    page.get_by_role("button", name="Accept and register").press("Enter")
    expect(page.get_by_role("status")).to_contain_text(f"{look} is registered")
    with server.client("stew", Scope.STEWARD) as client:
        said = client.dataset(look)["domain"]
    assert said["accepted"]["by"] == "stew"
    assert said["unit"] == {"id": "person", "rows": 12}
    assert [said["attributes"]["age"][part] for part in ("minimum", "maximum", "unknown")] == [0, 120, "clamp"]
    assert said["attributes"]["ward"]["values"] == ["A", "B", "C", "D"]
    assert said["attributes"]["admitted"]["last"] == "2023-12-31"


@pytest.mark.parametrize("look", ["wide", "plain"])
def test_several_tables_are_drafted_edited_and_accepted(server, browser, tmp_path, look):
    page = begin(browser, server, look, f"hospital_{look}", write_hospital(tmp_path / look, 1 + len(look)))
    looks_right(page, look)
    page.get_by_role("button", name="Check it with the tables").click()
    expect(page.get_by_role("alert")).to_contain_text("tables.icd still needs to be said public or not")
    icd = page.get_by_role("region", name="Table icd")
    icd.get_by_label("Whose its rows are").select_option("public")
    expect(icd.get_by_label("Column of the person")).to_be_hidden()
    for table, rows in (("visits", "3"), ("diagnoses", "6")):
        page.get_by_role("region", name=f"Table {table}").get_by_label("Most rows kept").fill(rows)
    page.get_by_role("button", name="Check it with the tables").click()
    expect(page.get_by_role("status")).to_contain_text("nothing is missing")
    looks_right(page, look)
    page.get_by_label("The most that may ever").fill("1")
    page.get_by_label("I have looked at this description").check()
    page.get_by_role("button", name="Accept and register").click()
    expect(page.get_by_role("alert")).to_contain_text("confirm each kind by name")
    for box in page.get_by_role("region", name="Look at this before you accept").get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Accept and register").click()
    expect(page.get_by_role("status")).to_contain_text(f"hospital_{look} is registered")
    page.goto(f"{page.url.partition('/steward')[0]}/steward/hospital_{look}")
    expect(page.get_by_text("stew accepted its description on")).to_contain_text("confirmed bins. The draft was edited")
    with server.client("stew", Scope.STEWARD) as client:
        said = client.dataset(f"hospital_{look}")["schema"]
    assert said["accepted"]["by"] == "stew"
    assert [said["tables"][name].get("rows") for name in ("patients", "visits", "diagnoses")] == [None, 3, 6]
    assert said["tables"]["icd"]["public"] is True


def test_a_description_goes_to_yaml_and_back_and_is_saved(server, browser, tmp_path):
    page = begin(browser, server, "wide", "spelled", write_people(tmp_path / "people.parquet", seed=41))
    page.get_by_label("Another column").fill("note")
    page.get_by_role("button", name="Add the column").click()
    expect(page.get_by_role("status")).to_contain_text("The attribute was added")
    page.locator("summary", has_text="note").click()
    page.get_by_label("Leave note out").check()
    page.locator("summary", has_text="The same as YAML").click()
    page.get_by_label("Description, in YAML").fill("sfumato: [")
    page.get_by_role("button", name="Show this in the form").click()
    expect(page.get_by_role("alert")).to_contain_text("The domain cannot be used")
    expect(page.get_by_label("Description, in YAML")).to_have_value("sfumato: [")
    accessible(page)
    page.get_by_label("Description, in YAML").fill(write_yaml(DOMAIN))
    page.get_by_role("button", name="Show this in the form").click()
    page.locator("summary", has_text="income").click()
    expect(of(page, "income", "Edges of bins")).to_have_value("0, 1000, 5000")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save it as a file").click()
    assert saved.value.suggested_filename == "spelled.yaml"
    assert "draft: true" in saved.value.path().read_text()


@pytest.fixture
def post(server):
    cookies = server.session("stew", Scope.STEWARD)
    with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:

        def send(path, headers=None, **fields):
            reply = browser.post(path, data=fields, headers={"Accept": "text/html", **(headers or {})})
            return reply.status_code, html.unescape(reply.text)

        yield send


def test_a_description_that_nobody_said_they_accept_is_not_registered(server, post, tmp_path):
    source = str(write_people(tmp_path / "people.parquet", seed=43))
    fields = {**form_fields(DOMAIN), "name": "unread", "source": source, "limit": "1", "do": "register"}
    for said in ({}, {"accepted": ""}, {"accepted": "false"}, {"accepted": "on"}):
        status, text = post(HERE, **fields, **said)
        assert (status, "tick that you have looked at the description" in text) == (422, True)
    with server.client("stew", Scope.STEWARD) as client:
        assert "unread" not in [each["name"] for each in client.datasets()]
    assert post(HERE, **fields, accepted="true")[0] == 303


def test_a_form_that_was_tampered_with_or_came_from_elsewhere_changes_nothing(server, post, tmp_path):
    source = str(write_people(tmp_path / "people.parquet", seed=42))
    status, text = post("/steward/draft", name="odd", source=source)
    assert status == 200
    base = re.search(r'name="base" value="(.*?)"><?\n', text.replace('">\n', '">\n'))
    assert base is not None
    for fields in (
        {},
        {"base": "{"},
        {"base": "[]"},
        {"base": "{}", "do": "register"},
        {"do": "add-t9"},
        {"do": "yaml"},
    ):
        status, text = post(HERE, **fields)
        assert (status, "Nothing was spent" in text) == (422, True), (fields, text)
    emptied = post(HERE, do="yaml", yaml="", base=form_fields(DOMAIN)["base"])
    assert (emptied[0], "It has no attributes" in emptied[1]) == (422, False)
    half = write_yaml({**DOMAIN, "csv": {"delimiter": "X"}}).replace("X", '"\\ud800"')
    assert "half a letter" in post(HERE, do="yaml", yaml=half, base=form_fields(DOMAIN)["base"])[1]
    many = {f"t0-a{n}-name": "x" for n in range(20_001)}
    assert post(HERE, **many)[0] in (400, 413, 422)
    assert post("/steward/draft", source="/nowhere.csv")[0] == 422
    assert post(HERE, {"Origin": "https://evil.example"}, do="check")[0] == 403
    with server.client("stew", Scope.STEWARD) as client:
        assert "odd" not in [each["name"] for each in client.datasets()]
    with httpx.Client(
        base_url=server.address, trust_env=False, cookies=server.session("ana", Scope.ANALYST)
    ) as analyst:
        assert analyst.post("/steward/draft", data={"source": source}).status_code == 403
        assert analyst.post(HERE, data={"do": "check"}).status_code == 403
        assert analyst.get(HERE).status_code == 403
    with httpx.Client(
        base_url=server.address, trust_env=False, cookies=server.session("stew", Scope.STEWARD)
    ) as steward:
        assert steward.get(HERE).headers["location"] == "/steward"
