"""Refusals, warnings and results of the page's forms, sent as a browser sends them."""

from __future__ import annotations

import html
import json
import re
import time
from contextlib import closing
from fractions import Fraction

import httpx
import pytest
from tests.ledger.asking import behind_its_back, unfreeze
from tests.server.serving import DOMAIN, VISITS, serving, write_people, write_visits

from sfumato.ledger.store import Store
from sfumato_server.registry import Scope
from sfumato_server.rules import Grants
from sfumato_server.ui import rendering

WHOLE = {"aggregate": "count", "epsilon": "0.01", "how": "builder"}
UNTOLD = "too few rows to tell"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    with serving(f"sqlite:///{folder}/s.ledger", write_people(folder / "people.parquet")) as started:
        yield started


@pytest.fixture
def post(server):
    """Sends a form, and returns the status and the text that it leads to, as read."""
    cookies = server.session("stew", Scope.STEWARD)
    with httpx.Client(
        base_url=server.address, cookies=cookies, timeout=60, trust_env=False, follow_redirects=True
    ) as browser:

        def send(path, *, confirm=True, **fields):
            reply = browser.post(path, data=fields, headers={"Accept": "text/html"})
            if confirm and "Nothing was spent yet" in reply.text:
                reply = browser.post(path, data=hidden_fields(reply.text), headers={"Accept": "text/html"})
            return reply.status_code, html.unescape(reply.text)

        yield send


def hidden_fields(text):
    """The fields of the question that a page asks to confirm."""
    fields = {}
    form = text[text.index('class="confirm"') :]
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[: form.index("</form>")]):
        fields.setdefault(name, []).append(html.unescape(value))
    return fields


def spent(server, dataset="people"):
    with server.ledger(dataset) as ledger:
        return ledger.remaining().spent.epsilon


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"among": '["sex", "X"]'}, "not a declared value of"),
        ({"among": "sex=F"}, "values that the form offers"),
        ({"among": '["job", "F"]'}, "no attribute 'job'"),
        ({"among": ['["sex", "F"]', '["sex", null]']}, "choose missing values alone"),
        ({"ranged": "age", "low": "65"}, "a least and a greatest value"),
        ({"ranged": "age", "low": "old", "high": ""}, "compare it with a number"),
        ({"ranged": "income", "low": "10", "high": ""}, "income"),
        ({"ranged": "job", "low": "1", "high": ""}, "no attribute 'job'"),
        ({"aggregate": "median"}, "choose the number that the median is of"),
    ],
)
@pytest.mark.parametrize("path", ["preview", "ask"])
def test_what_cannot_be_read_is_refused_and_no_other_question_is_asked(server, post, path, wrong, reason):
    before = spent(server)
    status, text = post(f"/datasets/people/{path}", **WHOLE | wrong)
    assert status == 422, text
    assert reason.lower() in text.lower()  # a sentence begins with a capital letter
    assert "Nothing was spent" in text
    assert spent(server) == before


def test_several_conditions_of_declared_values_hold_together(server, post):
    """Boxes and ends give the same question as the statement, so it is answered already."""
    statement = "SELECT COUNT(*) FROM t WHERE sex IN ('F', 'M') AND age >= 18 AND age <= 65 AND income < 1000"
    assert post("/datasets/people/ask", how="sql", sql=statement, epsilon="0.013")[0] == 200
    before = spent(server)
    chosen = {"among": ['["sex", "M"]', '["sex", "F"]'], "ranged": ["age", "income"], "low": ["18", ""]}
    fields = {"how": "builder", "epsilon": "0.013", **chosen, "high": ["65", "1000.0"]}
    status, text = post("/datasets/people/ask", **fields)
    assert (status, "You got this answer before" in text) == (200, True)
    assert spent(server) == before
    _, text = post("/datasets/people/ask", how="builder", epsilon="0.014", among='["sex", null]')
    assert "count(*) where sex in missing" in text


def test_groups_that_a_condition_excludes_are_on_no_page_and_in_no_reply(server, post):
    fields = {"how": "builder", "by": "age", "ranged": "age", "low": "97", "high": "98", "epsilon": "0.015"}
    status, text = post("/datasets/people/ask", **fields)
    assert status == 200
    found = [re.search(rf'<th scope="?.?row"?.?>{age}</th>', text) is not None for age in (96, 97, 98, 99)]
    assert found == [False, True, True, False]
    with server.client("ana") as client:
        reply = client.ask("people", "SELECT age, COUNT(*) FROM t WHERE age IN (97, 98) GROUP BY age", epsilon="0.015")
        assert [row["key"] for row in reply.rows] == [["97"], ["98"]]
        assert "nothing" in reply.cost
    before = spent(server)
    status, text = post("/datasets/people/ask", **fields | {"among": '["sex", "F"]', "low": "98", "high": "97"})
    assert status == 422
    assert "No group can hold a row that meets the condition" in text
    assert spent(server) == before


def test_an_earlier_question_opens_with_the_form_as_it_was_sent(server, post):
    fields = {"aggregate": "mean", "of": "age", "by": "sex", "among": '["sex", "F"]', "epsilon": "0.017"}
    assert post("/datasets/people/ask", how="builder", **fields)[0] == 200
    cookies = server.session("stew", Scope.STEWARD)
    with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:
        listed = browser.get("/datasets/people").text
        opened = re.search(r'href="(/datasets/people\?question=q\w+)">mean\(age\) by sex', listed)[1]
        page = browser.get(opened).text
    assert '<option value="mean" selected>' in page
    assert 'name="by" value="sex" checked' in page
    assert 'value="[&#34;sex&#34;, &#34;F&#34;]" checked' in page
    assert 'value="0.017"' in page
    stranger = server.session("other", Scope.ANALYST)
    with httpx.Client(base_url=server.address, cookies=stranger, timeout=60, trust_env=False) as browser:
        assert 'value="0.017"' not in browser.get(opened).text
        assert browser.get(f"/releases/{opened.partition('=')[2]}").status_code == 404


def test_without_scripts_an_answer_is_a_page_with_the_form_as_it_was_sent(post):
    status, text = post("/datasets/people/ask", how="builder", by="sex", epsilon="0.019")
    assert status == 200
    assert text.startswith("<!doctype html>")
    assert "Cost: epsilon 0.019" in text
    assert 'name="by" value="sex" checked' in text
    status, text = post("/datasets/people/preview", how="builder", aggregate="sum", epsilon="0.019")
    assert (status, text.startswith("<!doctype html>")) == (422, True)
    assert "Choose the number that the sum is of" in text
    assert '<option value="sum" selected>' in text


def test_static_files_are_kept_for_good_and_sent_compressed(server):
    address = rendering.address("htmx.min.js")
    with httpx.Client(base_url=server.address, timeout=60, trust_env=False) as browser:
        packed = browser.get(address, headers={"Accept-Encoding": "gzip"})
        plain = browser.get(address, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert packed.content == plain.content
        assert packed.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
        assert browser.head(address).status_code == 200
        assert browser.get("/static/000000000000/htmx.min.js").status_code == 404
        assert browser.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("ticked", [{}, {"every": "true", "attributes": "sex"}])
def test_a_histogram_of_no_attribute_that_was_chosen_is_refused(server, post, ticked):
    before = spent(server)
    status, text = post("/datasets/people/releases", method="histogram", epsilon="0.02", **ticked)
    assert status == 422
    assert "Tick the columns of the histogram, or 'all of them'" in text
    assert spent(server) == before


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"method": "auto", "zeros": "- {if: {age: 999}, then: {sex: [F]}}"}, "age"),
        ({"method": "auto", "zeros": "if: {age: 3}"}, "rules are a list in YAML"),
        ({"method": "auto", "zeros": "- {"}, "the list of rules is not YAML at line 1"),
        ({"method": "histogram", "every": "true", "zeros": "- {if: {age: 3}, then: {sex: [F]}}"}, "takes no rules"),
        ({"method": "histogram", "every": "true", "fresh": "true"}, "leave both to auto"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_and_nothing_is_spent(server, post, fields, says):
    before = spent(server)
    status, text = post("/datasets/people/releases", epsilon="0.02", **fields)
    assert status == 422
    assert says.lower() in text.lower()
    assert spent(server) == before


def test_rules_are_taken_from_the_page(post):
    rules = "- {if: {age: ..30}, then: {sex: [F]}}"
    status, text = post("/datasets/people/releases", method="auto", epsilon="0.05", zeros=rules, fresh="true")
    assert (status, "Table of people" in text) == (200, True)


def test_a_histogram_of_all_attributes_is_made_where_that_is_ticked(post):
    status, text = post("/datasets/people/releases", method="histogram", epsilon="0.02", every="true")
    assert (status, "Table of people" in text) == (200, True)


def test_groups_of_too_few_rows_have_an_interval_no_bar_and_a_remark(server, post, tmp_path):
    """Nobody is of another sex; the loss is so large that there is no noise, but for once in e^100."""
    with server.client("stew", Scope.STEWARD) as client:
        client.register("plain", source=str(write_people(tmp_path / "p.parquet", seed=6)), domain=DOMAIN, limit="1e5")
    fields = {"how": "builder", "aggregate": "mean", "of": "age", "by": "sex", "epsilon": "2e4"}
    status, text = post("/datasets/plain/ask", **fields)
    assert status == 200
    rows = [line for line in text.splitlines() if line.startswith('<tr><th scope="row">') and "estimate" in line]
    assert [UNTOLD in row for row in rows] == [False, False, False, True]
    assert ['class="bar"' in row for row in rows] == [True, True, True, False]
    assert "(other)" in rows[3]
    assert "0 to 99" in rows[3]


def test_the_page_shows_computed_columns_with_their_intervals(post):
    statement = "SELECT sex, COUNT(*) + 100 AS more, SUM(age) / COUNT(*) AS years FROM people GROUP BY sex"
    status, text = post("/datasets/people/ask", how="sql", sql=statement, epsilon="1")
    assert status == 200
    for name in ("more", "years"):
        assert f'<th scope="col">{name}</th>' in text
    assert "is measured as mean(age), which has a smaller error" in text


def test_a_preview_of_a_mean_says_what_it_supposes_of_the_rows(post):
    mean = "SELECT AVG(age) FROM people WHERE age < 90"  # no count of it was released
    statement = {"how": "sql", "epsilon": "1"}
    _, text = post("/datasets/people/preview", sql=mean, **statement)
    assert "mean(age): supposing 100, 1,000 or 10,000 rows in each group; state yours in the form" in text
    _, text = post("/datasets/people/preview", sql=mean, rows="70", **statement)
    assert "mean(age): supposing 70 rows in each group." in text
    _, text = post("/datasets/people/preview", sql=mean, rows="no", **statement)
    assert "The rows to suppose in a group are a whole number" in text
    _, text = post("/datasets/people/preview", sql="SELECT COUNT(*) FROM people", **statement)
    assert "supposing" not in text


def test_a_loss_at_which_noise_outweighs_the_table_is_said_before_the_charge(server, post):
    before = spent(server)
    fields = {"aggregate": "count", "how": "builder"}
    status, text = post("/datasets/people/preview", epsilon="0.0001", **fields)
    assert status == 200
    assert "count(*): at this loss noise may outweigh" in text
    assert "of fewer rows the answer says nothing" in text
    assert "Nothing was spent" in text
    assert "outweigh" not in post("/datasets/people/preview", epsilon="1", **fields)[1]
    assert spent(server) == before
    assert (
        "Note: count(*): at this loss noise may outweigh" in post("/datasets/people/ask", epsilon="0.0001", **fields)[1]
    )


def test_rows_beyond_the_bound_are_counted_where_a_form_asks(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_visits(tmp_path / "visits.parquet"))
        client.register("visits", source=source, domain=VISITS, limit="1e5")
    asked = {"how": "sql", "sql": "SELECT COUNT(*) FROM t", "epsilon": "1e4"}
    _, text = post("/datasets/visits/preview", **asked, truncation="5")
    assert "units with rows left out by the bound" in text
    assert "left out by the bound" not in post("/datasets/visits/preview", **asked, truncation=" ")[1]
    _, text = post("/datasets/visits/ask", **asked, truncation=" 5 ")
    said = "the bound leaves out 600 (600 to 600) rows, counting at most 5 of one unit, of 300 (300 to 300) units."
    assert f"Note: {said}" in text
    assert "Each interval holds the exact answer of the bounded table" in text
    again = {"how": "builder", "aggregate": "count", "epsilon": "1e4", "truncation": "5"}
    assert "You got this answer before" in post("/datasets/visits/ask", **again)[1]
    before = spent(server, "visits")
    for odd in ("0", "-1", "2.5", "five", "10000000", "\u0665"):
        status, text = post("/datasets/visits/ask", **asked | {"truncation": odd, "epsilon": "1"})
        assert (status, "Nothing was spent" in text) == (422, True)
    status, text = post("/datasets/people/ask", **asked | {"truncation": "5", "epsilon": "0.1"})
    assert (status, "no bound drops rows" in text) == (422, True)
    assert spent(server, "visits") == before


def test_a_cap_of_a_name_without_a_key_is_set_with_a_warning(server, post):
    warning = "nobody holds a valid key of the name"
    status, text = post("/steward/caps", dataset="people", analyst="unkown", most="1")
    assert status == 200
    assert f"The cap of unkown is set. But {warning} 'unkown' now" in text
    server.key("known", Scope.ANALYST)
    _, text = post("/steward/caps", dataset="people", analyst="known", most="1")
    assert "The cap of known is set." in text
    assert warning not in text


@pytest.mark.parametrize("again", [{"most": "1"}, {"lift": "true"}], ids=["set", "lifted"])
def test_a_cap_lets_in_whom_a_cap_of_nothing_shut_out(server, post, again):
    def named():  # as it is kept: workers may look a little later
        with closing(Store(server.url)) as store:
            return Grants(store).analysts("people").get("outis")

    assert "outis has no access to people." in post("/steward/caps", dataset="people", analyst="outis", most="0")[1]
    assert named() is False
    assert post("/steward/caps", dataset="people", analyst="outis", **again)[0] == 200
    assert named() is True


def test_a_cap_in_rho_is_a_number_or_spelled_as_the_limit(server, post, tmp_path):
    table = write_people(tmp_path / "other.parquet", seed=5)
    with server.client("stew", Scope.STEWARD) as client:
        client.register("smooth", source=str(table), domain=DOMAIN, limit="rho=0.5")
        for most in ("0.1", "rho=0.1", " rho=0.1 "):
            post("/steward/caps", dataset="smooth", analyst="rhea", lift="true")
            assert post("/steward/caps", dataset="smooth", analyst="rhea", most=most)[0] == 200
            assert client.budget("smooth")["analysts"]["rhea"] == "rho = 0.1 left of rho = 0.1"
    status, text = post("/steward/caps", dataset="people", analyst="rhea", most="rho=0.1")
    assert (status, "the same measure" in text) == (422, True)


def test_a_domain_that_cannot_be_used_is_not_called_a_question(post):
    for domain in ("- a list", "sfumato: 1"):
        status, text = post("/steward/datasets", name="new", source="x.csv", domain=domain, limit="1")
        assert status == 422
        assert "The domain cannot be used" in text
        assert "question" not in re.search(r'<div class="problem".*?</div>', text, re.DOTALL)[0]


def test_a_domain_of_dates_is_registered_as_it_is_written(post, server, tmp_path):
    table = tmp_path / "dates.csv"
    table.write_text("day\n" + "2023-03-01\n" * 20)
    domain = """
        sfumato: 1
        draft: false
        unit: row
        attributes:
          day: {type: date, first: 2023-01-01, last: 2023-12-31, by: month, unknown: drop}
    """
    status, text = post("/steward/datasets", name="dates", source=str(table), domain=domain, limit="1")
    assert (status, "dates is registered." in text) == (200, True)
    with server.client("stew", Scope.STEWARD) as client:
        counted = client.ask("dates", "SELECT month(day), COUNT(*) FROM t GROUP BY month(day)", epsilon="1")
    assert len(counted.rows) == 12


def test_a_refusal_says_once_that_nothing_was_spent(post):
    status, text = post("/datasets/people/ask", how="sql", sql="SELECT COUNT(*) FROM t", epsilon="11")
    assert status == 403
    assert "It needs 110 % of the dataset's budget" in text
    assert "Ask with at most epsilon" in text
    assert text.lower().count("nothing was spent") == 1


def test_levels_of_hierarchies_are_offered_and_asked_by(server, post, tmp_path):
    """The builder, fields over HTTP and SQL ask one question; the loss is so large that there is no noise."""
    table = write_people(tmp_path / "p.parquet", seed=9)
    levels = {"sex": {"levels": ["told"], "rows": [["F", "yes"], ["M", "yes"]]}, "age": {"draft": True}}
    with server.client("stew", Scope.STEWARD) as client:
        client.register("levels", source=str(table), domain=DOMAIN | {"hierarchies": levels}, limit="1e6")
    with server.client("ana") as client:
        form = {
            "aggregates": [{"aggregate": "count"}],
            "by": ["told(sex)"],
            "where": [{"attribute": "level_1(age)", "comparison": "in", "values": ["0..4", "5..9"]}],
        }
        fields = client.query("levels", form, epsilon="1e5")
        asked = "SELECT told(sex), COUNT(*) FROM t WHERE level_1(age) IN ('0..4', '5..9') GROUP BY told(sex)"
        stated = client.ask("levels", asked, epsilon="1e5")
    assert stated.groups == ("told(sex)",)
    assert [row["key"] for row in fields.rows] == [["yes"], ["(missing)"], ["(other)"]]
    assert fields.rows == stated.rows
    assert "nothing" in stated.cost
    builder = {"how": "builder", "aggregate": "count", "by": "told(sex)", "epsilon": "1e5"}
    status, text = post("/datasets/levels/ask", **builder, among='["level_1(age)", "0..4"]')
    assert (status, "told(sex)" in text) == (200, True)
    assert post("/datasets/levels/ask", **builder, among='["level_1(age)", "0..3"]')[0] == 422


EXPENSIVE = {"how": "builder", "aggregate": "count", "by": ["sex", "income"], "ranged": "age", "low": "18", "high": ""}


def test_a_question_of_more_than_a_tenth_is_confirmed_before_its_charge(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_people(tmp_path / "dear.parquet", seed=41))
        client.register("dear", source=source, domain=DOMAIN, limit="2")
    path, asked = "/datasets/dear/ask", {**EXPENSIVE, "epsilon": "0.5"}
    for told in ({}, {"confirmed": "yes"}, {"confirmed": "epsilon = 0.4 of 2"}, {"confirmed": "epsilon = 0.5 of 1.9"}):
        status, text = post(path, confirm=False, **asked, **told)
        assert (status, "Spend 25 % of what is left?" in text) == (200, True)
        assert "Nothing was spent yet" in text
        assert spent(server, "dear") == 0
    fields = hidden_fields(text)
    assert re.fullmatch(r"epsilon = 0.5 of 2 for [0-9a-f]{16}", fields["confirmed"][0])
    for changed in ({"by": ["sex"]}, {"low": "19"}, {"how": "sql", "sql": "SELECT COUNT(*) FROM people"}):
        status, text = post(path, confirm=False, **{**fields, **changed})  # the same loss for another question
        assert (status, "Spend 25 % of what is left?" in text) == (200, True)
        assert hidden_fields(text)["confirmed"] != fields["confirmed"]
    assert spent(server, "dear") == 0
    assert (fields["by"], fields["low"], fields["high"]) == (["sex", "income"], ["18"], [""])
    status, text = post(path, confirm=False, how="builder", aggregate="count", epsilon="0.2")  # not more than a tenth
    assert (status, "Cost: epsilon 0.2" in text) == (200, True)
    assert "Spend 28 % of what is left?" in post(path, confirm=False, **fields)[1]  # the remaining budget has changed
    assert spent(server, "dear") == Fraction(1, 5)
    status, text = post(path, **asked)
    assert (status, "Cost: epsilon 0.5" in text) == (200, True)
    assert spent(server, "dear") == Fraction(7, 10)
    status, text = post(path, confirm=False, **asked)  # is free
    assert (status, "You got this answer before" in text) == (200, True)
    status, text = post(path, confirm=False, **{**asked, "epsilon": "5"})  # cannot be paid, which the ledger says
    assert (status, "nothing was spent" in text.lower()) == (403, True)
    assert post("/steward/dear/reading")[0] == 200
    assert "Spend 39 % of what is left?" in post(path, confirm=False, **asked)[1]  # a new version is a new charge
    assert spent(server, "dear") == Fraction(7, 10)


def test_a_confirmation_is_for_one_dataset_and_one_analyst(server, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        for name, seed in (("twin", 411), ("other", 412)):
            source = str(write_people(tmp_path / f"{name}.parquet", seed=seed))
            client.register(name, source=source, domain=DOMAIN, limit="2")
    forms = {
        "ask": {"how": "builder", "aggregate": "count", "epsilon": "0.5"},
        "releases": {"method": "histogram", "every": "true", "epsilon": "0.5"},
    }

    def send(analyst, dataset, page, fields):
        cookies = server.session(analyst, Scope.STEWARD)
        with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:
            reply = browser.post(f"/datasets/{dataset}/{page}", data=fields, headers={"Accept": "text/html"})
        return html.unescape(reply.text)

    for page, fields in forms.items():
        confirmed = hidden_fields(send("stew", "twin", page, fields))
        for analyst, dataset in (("stew", "other"), ("second", "twin")):
            assert "Nothing was spent yet" in send(analyst, dataset, page, confirmed)
            assert spent(server, dataset) == 0


def test_a_question_with_a_delta_is_confirmed_by_the_form_of_its_page(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_people(tmp_path / "delta.parquet", seed=4399))
        client.register("delta", source=source, domain=DOMAIN, limit="2,1e-8")
    path, asked = "/datasets/delta/ask", {**EXPENSIVE, "epsilon": "1", "delta": "1e-9"}
    status, text = post(path, confirm=False, **asked)
    assert (status, "Nothing was spent yet" in text) == (200, True)
    status, text = post(path, confirm=False, **hidden_fields(text))
    assert (status, "Cost: epsilon 1" in text) == (200, True)


def test_a_synthetic_table_of_more_than_a_tenth_is_confirmed_before_its_charge(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_people(tmp_path / "costly.parquet", seed=4301))
        client.register("costly", source=source, domain=DOMAIN, limit="2")
        path, form = "/datasets/costly/releases", {"method": "histogram", "every": "true", "epsilon": "0.5"}
        for told in ({}, {"confirmed": "epsilon = 0.4 of 2"}, {"confirmed": "epsilon = 0.5 of 1.9"}):
            status, text = post(path, confirm=False, **form, **told)
            assert (status, "Spend 25 % of what is left?" in text) == (200, True)
            assert 'name="epsilon" inputmode="decimal" maxlength="60" autocomplete="off" value="0.5"' in text
        assert spent(server, "costly") == 0
        confirmed = hidden_fields(text)
        assert re.fullmatch(r"epsilon = 0.5 of 2 for [0-9a-f]{16}", confirmed["confirmed"][0])
        other = {**confirmed, "every": [], "attributes": ["sex"]}
        assert "Spend 25 % of what is left?" in post(path, confirm=False, **other)[1]  # the same loss for another table
        assert spent(server, "costly") == 0
        for fields in (confirmed, {**form, "epsilon": "0.1"}):  # the second takes less than a tenth of 1.5
            status, text = post(path, confirm=False, **fields)
            assert (status, "Table of costly" in text) == (200, True)
            finish(client, re.search(r"/releases/(\w+)/progress", text)[1])
        assert spent(server, "costly") == Fraction(3, 5)
        status, text = post(path, confirm=False, **form)  # the same table, which is free
        assert (status, "Table of costly" in text) == (200, True)
        status, text = post(path, confirm=False, **{**form, "epsilon": "5"})
        assert (status, "Nothing was spent" in text) == (403, True)
        assert spent(server, "costly") == Fraction(3, 5)


def finish(client, job):
    """Wait until a release is done."""
    while (state := client.progress(job)["state"]) != "done":
        assert state in ("queued", "running")
        time.sleep(0.05)


ANONYMIZED = {"quasi": ["age", "sex"], "k": "5", "suppression": "0.1"}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"quasi": []}, "tick the quasi-identifiers"),
        ({"k": "many"}, "write k, the smallest number"),
        ({"k": "0"}, "write k, the smallest number"),
        ({"k": "9" * 30}, "k: input should be less than or equal to 1000000000"),
        ({"suppression": "half"}, "suppression"),
        ({"suppression": "2"}, "the suppression limit must lie in"),
        ({"criteria": "nearness:t=0.2"}, "nearness"),
        ({"quasi": ["job"]}, "job"),
    ],
)
def test_a_refused_form_of_an_anonymized_table_keeps_its_fields(post, wrong, says):
    form = ANONYMIZED | {"criteria": "", "method": "samarati"} | wrong
    status, text = post("/datasets/people/anonymizations", **form)
    assert (status, says.lower() in text.lower(), "Nothing was spent" in text) == (422, True, True), text
    assert "<option selected>samarati</option>" in text
    assert f'name="suppression" value="{form["suppression"]}"' in text


def test_a_share_is_of_the_default_cap_and_of_the_months_begun(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_people(tmp_path / "monthly.parquet", seed=43))
        client.register("monthly", source=source, domain=DOMAIN, limit="1 a month for 12 months")
        client.set_terms("monthly", default_cap="0.4")
    assert "Spend 50 % of what is left?" in post("/datasets/monthly/ask", confirm=False, **EXPENSIVE, epsilon="0.5")[1]
    new = server.session("new", Scope.ANALYST)
    with httpx.Client(base_url=server.address, cookies=new, timeout=60, trust_env=False) as browser:
        expected = browser.post("/datasets/monthly/expected", data={**EXPENSIVE, "epsilon": "0.1"}).text
        assert "This question takes 25 % of what is left to you." in expected
        assert "100 % left of epsilon 0.4" in expected
        asked = browser.post("/datasets/monthly/ask", data={**EXPENSIVE, "epsilon": "0.1"}).text
        assert "Spend 25 % of what is left?" in asked
    assert spent(server, "monthly") == 0


def test_the_expected_error_spends_nothing_and_is_of_datasets_that_one_may_ask(server, post, tmp_path):
    fields = {"how": "sql", "sql": "SELECT COUNT(*) FROM people WHERE age < 50", "epsilon": "0.3"}
    before = spent(server)
    status, text = post("/datasets/people/expected", **fields)
    assert (status, "<!doctype" in text, "count(*) \u00b1 10" in text) == (200, False, True)
    _, text = post("/datasets/people/expected", **fields | {"epsilon": ""})
    assert "No expected error" not in text
    _, text = post("/datasets/people/expected", **fields | {"sql": "SELECT job FROM people"})
    assert "No expected error yet" in text
    assert spent(server) == before
    with httpx.Client(base_url=server.address, timeout=60, trust_env=False) as stranger:
        assert stranger.post("/datasets/people/expected", data=fields).status_code == 401
        foreign = {"Origin": "https://evil.example"}
        assert stranger.post("/datasets/people/expected", data=fields, headers=foreign).status_code == 403
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_people(tmp_path / "closed.parquet", seed=44))
        client.register("closed", source=source, domain=DOMAIN, limit="2")
        client.set_terms("closed", granted_only=True)
    analyst = server.session("shut", Scope.ANALYST)
    with httpx.Client(base_url=server.address, cookies=analyst, timeout=60, trust_env=False) as browser:
        eventually(lambda: browser.post("/datasets/closed/expected", data=fields).status_code == 403)


def get(server, path, name="stew", scope=Scope.STEWARD, **wanted):
    cookies = server.session(name, scope)
    with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:
        reply = browser.get(path, params=wanted)
    return reply.status_code, reply.text


def rows_of(text):
    """The first cells of the rows of a page's tables."""
    return [re.sub("<[^>]*>", "", each) for each in re.findall(r'<th scope="row">(.*?)</th>', text)]


def test_the_stewards_pages_find_datasets_analysts_and_keys(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        for name, seed in (("alpha", 21), ("beta", 22)):
            table = write_people(tmp_path / f"{name}.parquet", seed=seed)
            client.register(name, source=str(table), domain=DOMAIN, limit="1")
        client.cap("alpha", "Anton", epsilon="0.5")
        client.cap("beta", "berta", epsilon="0.5")
        ended = client.issue("berta", scope="analyst", days=90)
        client.revoke(ended["id"])
        client.issue("Anton", scope="analyst", days=5)
    assert rows_of(get(server, "/steward", q="ALPH")[1]) == ["alpha"]
    assert {"alpha", "beta"} <= set(rows_of(get(server, "/steward")[1]))
    assert rows_of(get(server, "/steward", q="<nothing>")[1]) == []
    assert "&lt;nothing&gt;" in get(server, "/steward", q="<nothing>")[1]
    assert rows_of(get(server, "/steward/all/analysts", q="anto")[1]) == ["Anton"]
    assert {"Anton", "berta"} <= set(rows_of(get(server, "/steward/all/analysts")[1]))
    keys = "/steward/all/keys"
    assert rows_of(get(server, keys, q="BERTA")[1]) == ["berta"]
    assert rows_of(get(server, keys, q="berta", state="valid")[1]) == []
    assert rows_of(get(server, keys, q="berta", state="ended")[1]) == ["berta"]
    assert "Anton" in rows_of(get(server, keys, state="soon", days="7")[1])
    assert rows_of(get(server, keys, q="anton", state="soon", days="3")[1]) == []
    assert get(server, keys, state="odd")[0] == 422
    for path in ("/steward", "/steward/all/analysts", keys):
        assert get(server, path, "ana", Scope.ANALYST)[0] == 403
    status, text = post("/steward/keys", holder=" ", scope="analyst", days="3")
    assert (status, "Nothing was spent" in text, 'action="/steward/keys"' in text) == (422, True, True)


def test_a_steward_renames_and_retires_a_dataset_on_its_page(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as client:
        table = write_people(tmp_path / "former.parquet", seed=31)
        client.register("former", source=str(table), domain=DOMAIN, limit="0.5 a month for 4 months")
        text = get(server, "/steward/former")[1]
        assert 'href="/steward/former/settings"' in text
        assert 'href="/steward/former"' in get(server, "/steward/former/settings")[1]
        assert "epsilon = 0.5 a month: 1 of 4 months have begun, so 0.5 is left now." in text
        status, text = post("/steward/former/name", called="latter")
        assert (status, "former is renamed to latter." in text) == (200, True)
        status, text = post("/steward/latter/name", called="people")
        assert (status, "Nothing was spent" in text) == (409, True)
        assert "1 of 4 months have begun" in get(server, "/datasets/latter")[1]
        assert "It releases nothing more" in post("/steward/latter/retirement", retired="true")[1]
        assert post("/datasets/latter/ask", how="sql", sql="SELECT COUNT(*) FROM t", epsilon="0.1")[0] == 403
        eventually(lambda: "latter (retired)" in rows_of(get(server, "/steward")[1]))
        assert "Read its table again" in post("/steward/latter/retirement")[1]
        asked = {"how": "sql", "sql": "SELECT COUNT(*) FROM t"}
        eventually(lambda: post("/datasets/latter/ask", **asked, epsilon="0.5")[0] == 503)
        assert "The dataset is paused" in get(server, "/steward/latter/settings")[1]
        eventually(lambda: any(each.startswith("latter: It answers no questions") for each in attention(server)))
        assert "It equals the last version. It is version 2" in post("/steward/latter/reading")[1]
        eventually(lambda: post("/datasets/latter/ask", **asked, epsilon="0.5")[0] == 200)
        status, text = post("/datasets/latter/ask", **asked, epsilon="0.1")
        assert (status, "nothing was spent" in text.lower()) == (403, True)
        assert spent(server, "former") == Fraction(1, 2)  # as its ledger is called


def attention(server):
    """The matters that the steward's page says need attention."""
    text = get(server, "/steward")[1]
    part = text[text.index('id="attention-title"') : text.index('id="datasets-title"')]
    return [html.unescape(re.sub("<[^>]*>", "", each)) for each in re.findall(r"<li>(.*?)</li>", part)]


def test_changed_tables_low_budgets_and_damaged_ledgers_need_attention(server, post, tmp_path):
    table = write_people(tmp_path / "watched.parquet", seed=51)
    with server.client("stew", Scope.STEWARD) as client:
        client.register("watched", source=str(table), domain=DOMAIN, limit="1")
    with server.client("ana") as client:
        client.ask("watched", "SELECT COUNT(*) FROM t", epsilon="0.9")
        assert not [each for each in attention(server) if each.startswith("watched")]  # a tenth is left
        client.ask("watched", "SELECT COUNT(*) FROM t WHERE age < 50", epsilon="0.01")
    low = "watched: Less than 10 % of its budget is left: 9 % left of epsilon 1 (epsilon 0.09). See its journal"
    assert low in attention(server)
    row = get(server, "/steward", q="watched")[1]
    assert re.search(r'data-label="Releases">2</td><td data-label="Last release">ana, <time', row)
    write_people(table, seed=52)
    changed = (
        "watched: The files of its table have changed. Answers are still from the last version. Read its table again"
    )
    assert {low, changed} <= set(attention(server))
    assert "have changed" not in get(server, "/datasets/watched", "ana", Scope.ANALYST)[1]
    assert "have changed" not in get(server, "/officer", "ida", Scope.OFFICER)[1]
    assert post("/steward/watched/reading")[0] == 200
    assert changed not in attention(server)
    unfreeze(server.url)
    newest = "dataset = 'watched' AND number = (SELECT MAX(number) FROM ledger_entry WHERE dataset = 'watched')"
    behind_its_back(server.url, f"UPDATE ledger_entry SET statement = 'none' WHERE {newest}")  # noqa: S608
    assert any(each.startswith("watched: The ledger is not verified:") for each in attention(server))
    assert "The journal is not verified:" in get(server, "/steward/watched")[1]


def test_a_used_up_cap_of_an_analyst_with_access_needs_attention(server, post, tmp_path):
    with server.client("stew", Scope.STEWARD) as steward, server.client("cap & co") as analyst:
        steward.register("bounded", source=str(write_people(tmp_path / "b.parquet", seed=57)), domain=DOMAIN, limit="5")
        steward.cap("bounded", "cap & co", epsilon="1")
        analyst.ask("bounded", "SELECT COUNT(*) FROM t", epsilon="0.9")
        assert not [each for each in attention(server) if each.startswith("bounded")]  # a tenth is left
        analyst.ask("bounded", "SELECT COUNT(*) FROM t WHERE age < 50", epsilon="0.1")
        (listed,) = [each for each in attention(server) if each.startswith("bounded")]
        assert listed.startswith("bounded: Nothing of the cap of cap & co is left")
        assert 'href="/steward/all/analysts?q=cap+%26+co"' in get(server, "/steward")[1]
        assert "Nothing of the cap" not in get(server, "/officer", "ida", Scope.OFFICER)[1]
        assert post("/steward/bounded/grants", analyst="cap & co", shut="true")[0] == 200
        eventually(lambda: not [each for each in attention(server) if each.startswith("bounded")])


@pytest.mark.parametrize(("share", "cap"), [("1/4", "0.5"), ("1/10", "0.2"), ("none", None), ("", None)])
def test_a_cap_per_analyst_is_proposed_and_set_with_the_limit(server, post, tmp_path, share, cap):
    name = f"capped_{len(share)}_{cap and cap[-1]}"
    source = str(write_people(tmp_path / f"{name}.parquet", seed=60 + 7 * len(share) + (cap == "0.2")))
    fields = {"cap_share": share} if share else {}
    status, text = post("/steward/datasets", name=name, source=source, domain=json.dumps(DOMAIN), limit="2", **fields)
    assert (status, f"{name} is registered." in text) == (200, True)
    assert '<option value="1/4" selected>a quarter of the limit</option>' in get(server, "/steward")[1]
    with server.client("stew", Scope.STEWARD) as client:
        assert client.terms(name)["default_cap"] == cap


def eventually(holds):
    """Wait until all workers have heard: each trusts for a moment what it knows of a dataset."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
