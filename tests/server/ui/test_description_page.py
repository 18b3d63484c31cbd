"""A steward describes tables on the page in a real Chromium: drafts, edits in the form, checks, accepts, registers."""

from __future__ import annotations

import html
import json
from contextlib import closing

import httpx
import pytest
from playwright.sync_api import expect
from tests.server.hospital import write_hospital
from tests.server.serving import DOMAIN, Server, write_people
from tests.server.ui.browsing import accessible, browser, enter

import sfumato as sf
from sfumato.app.cli.options import database
from sfumato.ledger.store import Store
from sfumato.strict_documents import write_yaml
from sfumato_server.registry import Registry, Scope
from sfumato_server.stewards import plain

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
    "wide": {"viewport": {"width": 1280, "height": 900}},
    "small": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
    "plain": {"viewport": {"width": 360, "height": 740}, "java_script_enabled": False},
}


def begin(browser, server, look, name, source):
    """The review of a draft, as a steward comes to it."""
    page = enter(browser, server, "stew", Scope.STEWARD, browser.new_context(**LOOKS[look]))
    page.get_by_role("link", name="Steward").click()
    page.get_by_role("link", name="Register a dataset").click()
    expect(page.get_by_role("listitem").filter(has_text="Choose the table").first).to_have_attribute(
        "aria-current", "step"
    )
    looks_right(page, look)
    page.get_by_label("Name of the dataset").fill(name)
    page.get_by_label("Where the table is").fill(str(source))
    page.get_by_role("button", name="Draft the description").click()
    expect(page.get_by_role("heading", name=f"Describe {name}")).to_be_visible()
    return page


def of(page, attribute, label):
    """A field of one attribute."""
    return page.locator("details.attribute").filter(has=page.get_by_text(attribute, exact=True)).get_by_label(label)


def opened(page, attribute):
    """Open an attribute, if it is not."""
    part = page.locator("details.attribute").filter(has=page.get_by_text(attribute, exact=True))
    if part.get_attribute("open") is None:
        part.locator("summary").press("Enter")


def kept(page):
    page.get_by_role("button", name="Keep the changes").last.click()


def looks_right(page, look):
    if look == "plain":  # axe is a script
        return
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def findings_on(page):
    return [each.inner_text().strip() for each in page.get_by_role("region", name="Findings").locator(".finding").all()]


@pytest.mark.parametrize("look", LOOKS)
def test_a_table_is_described_and_registered_in_three_steps(server, browser, tmp_path, look):  # noqa: PLR0915
    source = write_stays(tmp_path / "stays.csv", 1 + list(LOOKS).index(look))
    page = begin(browser, server, look, look, source)
    draft = sf.describe(source)
    assert findings_on(page) == [f"{each.kind}: {each}." for each in draft.findings]  # the same words
    expect(page.get_by_label("Most rows kept of a person")).to_have_value("10")
    expect(of(page, "admitted", "First day")).to_be_visible()  # what lacks something is open
    expect(of(page, "age", "Greatest")).to_be_hidden()
    looks_right(page, look)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save it as a file").click()
    assert saved.value.suggested_filename == f"{look}.yaml"
    assert saved.value.path().read_text() == draft.text()  # the file that the command writes

    page.get_by_role("button", name="Accept and go on").click()
    expect(page.get_by_role("alert")).to_contain_text("'admitted' still needs its first and its last day")
    of(page, "admitted", "First day").fill("2023-01-01")
    of(page, "admitted", "Last day").fill("2023-12-31")
    of(page, "admitted", "Last day").press("Enter")  # which stores the changes
    page.wait_for_url("**#findings-title")
    page.reload()
    expect(of(page, "admitted", "Last day")).to_have_value("2023-12-31")
    opened(page, "age")
    expect(of(page, "age", "First day")).to_be_hidden()  # of another type
    of(page, "age", "Greatest").fill("-5")
    kept(page)
    expect(page.get_by_role("alert")).to_contain_text("The bounds of 'age' are 0 and -5: the least comes first")
    expect(of(page, "age", "Greatest")).to_have_value("-5")
    page.goto(page.url.partition("#")[0])
    expect(of(page, "age", "Greatest")).to_have_value("89")  # nothing was stored
    opened(page, "age")
    of(page, "age", "Greatest").fill("120")
    of(page, "age", "Codes for a missing value").fill("-9, ?")
    opened(page, "ward")
    of(page, "ward", "Values, one per line").fill("A\nB\nC\nD")
    page.get_by_label("Most rows kept of a person").fill("12")
    kept(page)
    draft["admitted"].days("2023-01-01", "2023-12-31")
    draft["age"].bounds(0, 120).missing(-9, "?")
    draft.unit("person", rows=12)
    assert findings_on(page) == [f"{each.kind}: {each}." for each in draft.findings]
    looks_right(page, look)
    page.get_by_role("button", name="Accept and go on").click()
    expect(page.get_by_role("alert")).to_contain_text("Tick that you have looked at the description")
    page.get_by_label("I have looked at this description").press("Space")
    page.get_by_role("button", name="Accept and go on").press("Enter")

    expect(page.get_by_role("heading", name=f"Budget of {look}")).to_be_visible()
    looks_right(page, look)
    page.reload()
    expect(page.get_by_label("Epsilon", exact=True)).to_have_value("")  # no epsilon is usual
    expect(page.get_by_label("Delta", exact=True)).to_have_value("1e-9")
    page.get_by_label("Delta", exact=True).fill("")
    page.get_by_label("Epsilon", exact=True).fill("-2")
    page.get_by_role("button", name="Register the dataset").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was spent")
    page.get_by_label("Epsilon", exact=True).fill("2")
    meaning = page.get_by_role("status", name="What the limit means")
    if look != "plain":  # the meaning follows the form by a script
        expect(meaning).to_contain_text("with a chance of at most 88.1 %")
        expect(meaning).to_contain_text("a quarter of the limit, which is epsilon 0.5")
    page.get_by_role("button", name="Register the dataset").press("Enter")
    expect(page.get_by_role("heading", name=f"{look} is registered")).to_be_visible()
    looks_right(page, look)
    page.reload()  # registers nothing again
    expect(page.get_by_text("accepted by stew")).to_be_visible()
    expect(page.get_by_text("epsilon 0.5", exact=True)).to_be_visible()  # the cap: a quarter, as proposed
    with server.client("stew", Scope.STEWARD) as client:
        said = client.dataset(look)["domain"]
    assert said["accepted"]["by"] == "stew"
    assert said["unit"] == {"id": "person", "rows": 12}
    assert [said["attributes"]["age"][part] for part in ("minimum", "maximum", "missing")] == [0, 120, [-9, "?"]]
    assert said["attributes"]["ward"]["values"] == ["A", "B", "C", "D"]
    assert said["attributes"]["admitted"]["last"] == "2023-12-31"


@pytest.mark.parametrize("look", ["wide", "plain"])
def test_several_tables_are_drafted_edited_and_accepted(server, browser, tmp_path, look):
    page = begin(browser, server, look, f"hospital_{look}", write_hospital(tmp_path / look, 1 + len(look)))
    looks_right(page, look)
    page.get_by_role("button", name="Accept and go on").click()
    expect(page.get_by_role("alert")).to_contain_text("tables.icd still needs an owner of its rows")
    icd = page.get_by_role("region", name="Table icd")
    icd.get_by_label("Whom its rows belong to").select_option("public")
    expect(icd.get_by_label("Column of the person")).to_be_hidden()
    for table, rows in (("visits", "3"), ("diagnoses", "6")):
        page.get_by_role("region", name=f"Table {table}").get_by_label("Most rows kept").fill(rows)
    kept(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    looks_right(page, look)
    page.get_by_label("I have looked at this description").check()
    page.get_by_role("button", name="Accept and go on").click()
    expect(page.get_by_role("alert")).to_contain_text("tick each kind of finding to confirm it")
    for box in page.get_by_role("region", name="Findings").get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Accept and go on").click()
    page.get_by_label("Epsilon", exact=True).fill("1")
    page.get_by_label("Delta", exact=True).fill("")
    page.get_by_role("button", name="Register the dataset").click()
    expect(page.get_by_role("heading", name=f"hospital_{look} is registered")).to_be_visible()
    page.goto(f"{page.url.partition('/steward')[0]}/steward/hospital_{look}")
    expect(page.get_by_text("stew accepted the description on")).to_contain_text("confirmed bins. The draft was edited")
    with server.client("stew", Scope.STEWARD) as client:
        said = client.dataset(f"hospital_{look}")["schema"]
    assert said["accepted"]["by"] == "stew"
    assert [said["tables"][name].get("rows") for name in ("patients", "visits", "diagnoses")] == [None, 3, 6]
    assert said["tables"]["icd"]["public"] is True


def test_a_description_goes_to_yaml_and_back(server, browser, tmp_path):
    page = begin(browser, server, "wide", "spelled", write_people(tmp_path / "people.parquet", seed=41))
    page.get_by_label("Another column").fill("note")
    page.get_by_role("button", name="Add the column").click()
    page.locator("summary", has_text="note").click()
    page.get_by_label("Leave note out").check()
    kept(page)
    expect(page.locator("summary", has_text="note")).to_have_count(0)
    page.locator("summary", has_text="The same as YAML").click()
    page.get_by_label("Description, in YAML").fill("sfumato: [")
    page.get_by_role("button", name="Keep this YAML").click()
    expect(page.get_by_role("alert")).to_contain_text("The domain cannot be used")
    expect(page.get_by_label("Description, in YAML")).to_have_value("sfumato: [")
    accessible(page)
    page.get_by_label("Description, in YAML").fill(write_yaml(DOMAIN))
    page.get_by_role("button", name="Keep this YAML").click()
    page.locator("summary", has_text="income").click()
    expect(of(page, "income", "Edges of bins")).to_have_value("0, 1000, 5000")


@pytest.fixture
def post(server):
    cookies = server.session("stew", Scope.STEWARD)
    with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:

        def send(path, headers=None, **fields):
            reply = browser.post(path, data=fields, headers={"Accept": "text/html", **(headers or {})})
            return reply.status_code, reply.headers.get("location") or html.unescape(reply.text)

        yield send


def registered(server):
    with server.client("stew", Scope.STEWARD) as client:
        return [each["name"] for each in client.datasets()]


def test_no_form_accepts_or_registers_what_was_not_confirmed(server, post, tmp_path):
    source = str(write_stays(tmp_path / "stays.csv", 5))
    status, path = post("/steward/draft", name="unread", source=source)
    assert status == 303
    days = {"t0-a2-name": "admitted", "t0-a2-first": "2023-01-01", "t0-a2-last": "2023-12-31"}
    for said in ({}, {"accepted": ""}, {"accepted": "false"}, {"accepted": "on"}):
        status, text = post(path, do="accept", **days, **said)
        assert (status, "Tick that you have looked at the description" in text) == (422, True)
    for confirmed in ({}, {"confirm-bounds": "on"}, {"confirm-bounds": "true"}, {"confirm-all": "true"}):
        status, text = post(path, do="accept", accepted="true", **confirmed)
        assert (status, "tick each kind of finding to confirm it" in text) == (422, True)
    assert post(f"{path}/budget", name="unread", limit="1", accepted="true") == (303, path)
    forged = {"accepted": json.dumps(DOMAIN), "document": json.dumps(DOMAIN), "findings": "[]"}
    assert post(f"{path}/budget", name="unread", limit="1", **forged) == (303, path)
    assert "unread" not in registered(server)
    kinds = dict.fromkeys(["confirm-unit", "confirm-bounds"], "true")
    assert post(path, do="accept", accepted="true", **kinds) == (303, f"{path}/budget")
    status, _ = post(path, do="save", **{"t0-a0-name": "age", "t0-a0-maximum": "95"})
    assert status == 303
    assert post(f"{path}/budget", name="unread", limit="1") == (303, path)  # it needs a new acceptance
    assert "unread" not in registered(server)
    assert post(path, do="accept", accepted="true", **kinds) == (303, f"{path}/budget")
    assert post(f"{path}/budget", name="unread", limit="1") == (303, f"{path}/done")
    assert "unread" in registered(server)
    assert post(path, do="save", **{"t0-a0-name": "age", "t0-a0-maximum": "99"}) == (303, f"{path}/done")
    assert post(path, do="discard") == (303, f"{path}/done")
    with closing(Store(server.url)) as store:  # facts of the table are not stored any longer
        stored = json.loads(Registry(store).jobs.draft("stew", path.rpartition("/")[2]))
    assert stored["drafted"] == stored["document"] == {}
    assert stored["notes"] == stored["findings"] == stored["drafted_findings"] == []


def test_an_accepted_file_next_to_the_table_is_offered_and_registered_as_it_is(server, post, tmp_path):
    source = write_stays(tmp_path / "near.csv", 7)
    draft = sf.describe(source)
    draft["admitted"].days("2023-01-01", "2023-12-31")
    accepted = plain(draft.accept(by="Ann Lee", confirm=draft.risks).describe())
    source.with_suffix(".yaml").write_text(write_yaml(accepted))
    _, path = post("/steward/draft", name="near", source=str(source))
    text = get(server, path)
    assert "near.yaml next to the table, in place of a draft" in text
    assert "Use it as Ann Lee accepted it" in text
    assert 'value="2023-12-31"' in text
    assert post(path, do="use") == (303, f"{path}/budget")
    assert "Ann Lee accepted the description" in get(server, f"{path}/budget")
    assert post(f"{path}/budget", name="near", epsilon="1", delta="1e-9", cap_share="1/4") == (303, f"{path}/done")
    with server.client("stew", Scope.STEWARD) as client:
        assert client.dataset("near")["domain"] == accepted
        assert client.dataset("near")["limit"] == "epsilon = 1, delta = 1e-09"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("age", "wage"), "near.yaml next to the table was not used"),
        (lambda _: "sfumato: [", "near.yaml next to the table was not used"),
        (lambda text: text.replace("2023-12-31", "2024-12-31"), "in place of a draft"),  # changed after its acceptance
    ],
)
def test_a_file_next_to_the_table_that_is_wrong_or_changed_is_not_taken_as_accepted(
    server, post, tmp_path, change, says
):
    source = write_stays(tmp_path / "near.csv", 5)
    draft = sf.describe(source)
    draft["admitted"].days("2023-01-01", "2023-12-31")
    accepted = plain(draft.accept(by="Ann Lee", confirm=draft.risks).describe())
    source.with_suffix(".yaml").write_text(change(write_yaml(accepted)))
    _, path = post("/steward/draft", name="wrong", source=str(source))
    text = get(server, path)
    assert says in text
    assert "Use it as" not in text
    assert post(path, do="use") == (303, path)
    assert post(f"{path}/budget", name="wrong", epsilon="1") == (303, path)
    assert "wrong" not in registered(server)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "Write an epsilon to see what it promises"),
        ({"epsilon": "1", "cap_share": "none"}, "with a chance of at most 73.2 %"),
        ({"epsilon": "2", "delta": "1e-9", "cap_share": "1/4"}, "which is <strong>epsilon 0.966, delta 1e-9"),
        ({"limit": "0.5 a month for 12 months"}, "in all months together"),
        ({"epsilon": "much"}, "No limit yet"),
        ({"epsilon": "0"}, "No limit yet"),
        ({"epsilon": "1", "limit": "2"}, "leave the other field empty"),
    ],
)
def test_a_limit_is_explained_before_it_is_set(post, fields, says):
    status, text = post("/steward/all/limit", **fields)
    assert (status, says in text) == (200, True), text


@pytest.mark.parametrize(
    ("name", "says"), [("a b", "named like a variable"), ("", "name the dataset"), ("near", "was a dataset 'near'")]
)
def test_a_name_that_cannot_be_given_is_refused_before_the_draft(post, tmp_path, name, says):
    post("/steward/datasets", name="near", source=str(write_people(tmp_path / "n.parquet", 88)), limit="1", **NEAR)
    status, text = post("/steward/draft", name=name, source=str(write_stays(tmp_path / "stays.csv", 5)))
    assert (status in (409, 422), says in text.lower()) == (True, True), text


NEAR = {"domain": json.dumps(DOMAIN), "second_budget": "true"}


def get(server, path):
    cookies = server.session("stew", Scope.STEWARD)
    return html.unescape(httpx.get(server.address + path, cookies=cookies, timeout=60, trust_env=False).text)


def test_a_record_of_the_draft_cannot_be_edited_as_yaml(server, post, tmp_path):
    draft = sf.describe(write_stays(tmp_path / "stays.csv", 5))
    draft["admitted"].days("2023-01-01", "2023-12-31")
    _, path = post("/steward/draft", name="unrecorded", source=str(tmp_path / "stays.csv"))
    for record in ({}, {"drafted": {"hash": "0", "findings": {}}}):
        document = {name: part for name, part in draft.document.items() if name != "drafted"} | record
        assert post(path, do="yaml", yaml=write_yaml(document))[0] == 303
        status, text = post(path, do="accept", accepted="true")
        assert (status, "tick each kind of finding" in text) == (422, True)


def test_a_description_under_way_is_discarded(post, tmp_path):
    _, path = post("/steward/draft", name="tried", source=str(write_people(tmp_path / "people.parquet", seed=44)))
    assert post(path, do="discard") == (303, HERE)
    status, text = post(path, do="save")
    assert (status, "There is no such description" in text, "drafted_findings" in text) == (404, True, False)


def test_bad_input_is_refused_in_a_sentence_and_stores_nothing(server, post, tmp_path):
    source = str(write_people(tmp_path / "people.parquet", seed=42))
    for fields in ({}, {"name": "odd"}, {"source": source}, {"name": "odd", "source": "/nowhere.csv"}):
        status, text = post("/steward/draft", **fields)
        assert (status, "Nothing was spent" in text) == (422, True), fields
    _, path = post("/steward/draft", name="odd", source=source)
    half = write_yaml({**DOMAIN, "csv": {"delimiter": "X"}}).replace("X", '"\\ud800"')
    for fields in (
        {"do": "add-t9"},
        {"do": "add-t0", "t0-new": "age"},
        {"do": "yaml"},
        {"do": "yaml", "yaml": "{}"},
        {"do": "yaml", "yaml": half},
        {"t0-a0-name": "age", "t0-a0-maximum": "x"},
        {"t0-a0-name": "age", "t0-a0-type": "nothing"},
    ):
        status, text = post(path, **fields)
        assert (status, "Nothing was spent" in text) == (422, True), (fields, text)
    many = {f"t0-a{n}-name": "x" for n in range(20_001)}
    assert post(path, **many)[0] in (400, 413, 422)
    assert post(path, {"Origin": "https://evil.example"}, do="save")[0] == 403
    assert "odd" not in registered(server)


def test_a_description_under_way_is_seen_by_its_steward_alone(server, post, tmp_path):
    source = str(write_people(tmp_path / "people.parquet", seed=43))
    _, path = post("/steward/draft", name="mine", source=source)
    for name, scope, status in (("ana", Scope.ANALYST, 403), ("other", Scope.STEWARD, 404)):
        cookies = server.session(name, scope)
        with httpx.Client(base_url=server.address, trust_env=False, cookies=cookies, timeout=60) as client:
            for place in (path, f"{path}/budget", f"{path}/done", f"{path}/file"):
                assert client.get(place).status_code == status
            assert client.post(path, data={"do": "save"}).status_code == status
            assert client.post(f"{path}/budget", data={"limit": "1"}).status_code == status
            assert "mine" not in client.get(HERE).text
            assert client.get(f"/releases/{path.rpartition('/')[2]}").status_code == 404
    with httpx.Client(base_url=server.address, trust_env=False, cookies=server.session("stew", Scope.STEWARD)) as stew:
        assert "mine" in stew.get(HERE).text
        unknown = stew.get(f"{HERE}/nothing", headers={"Accept": "application/json"})
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/not-found")
