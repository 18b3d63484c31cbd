"""Requests of stewards and analysts over HTTP, on a real server with two workers."""

# ruff: noqa: S608 - statements are what is sent

from __future__ import annotations

import io
import json
import socket
import time
from datetime import timedelta
from fractions import Fraction

import httpx
import pytest
from pyarrow import csv, parquet
from tests.server.serving import DOMAIN, ROWS, VISITS, write_people, write_visits

import sfumato as sf
from sfumato import synthesize
from sfumato.app.http_client import HttpClient, ServerError
from sfumato.domain import parse
from sfumato.errors import InputError
from sfumato.query import count, interval
from sfumato.synthesize import Codebook, read_codebook, read_release
from sfumato_server.registry import Scope

COUNT = "SELECT COUNT(*) FROM people"


def refusal(call) -> dict:
    with pytest.raises(ServerError) as refused:
        call()
    return refused.value.problem


def spent(server):
    with server.ledger("people") as ledger:
        ledger.verify()
        return ledger.remaining().spent.epsilon


def test_an_analyst_previews_asks_and_repeats_for_free(server, analyst):
    before = spent(server)
    (expected,) = analyst.accuracy("people", COUNT, epsilon="0.5")
    epsilon = analyst.cost("people", COUNT, error="8")
    assert 0.2 < float(epsilon.epsilon) < 0.6
    assert spent(server) == before
    first = analyst.ask("people", COUNT, epsilon="0.5")
    value = first.rows[0]["values"][0]
    assert abs(value["estimate"] - ROWS) < 40
    assert value["standard_error"] == pytest.approx(expected["standard_error"])
    assert first.cost == "epsilon 0.5"
    assert spent(server) - before == pytest.approx(0.5)
    for _ in range(6):  # on whichever worker
        again = analyst.ask("people", "SELECT COUNT(*) AS n FROM elsewhere", epsilon="0.50")
        assert again.rows == first.rows
        assert "nothing" in again.cost
    assert spent(server) - before == pytest.approx(0.5)


def test_a_statement_may_compute_with_rows(server, analyst):
    before = spent(server)
    statement = "SELECT p.sex, AVG(CASE WHEN p.age >= 50 THEN 1 ELSE 0 END) AS old FROM public.people p GROUP BY p.sex"
    (expected, *_) = analyst.accuracy("people", statement, epsilon="0.5")
    assert expected["name"] == "old"
    first = analyst.ask("people", statement, epsilon="0.5")
    assert all(0 <= row["values"][0]["estimate"] <= 1 for row in first.rows)
    assert analyst.ask("people", statement, epsilon="0.5").rows == first.rows
    assert spent(server) - before == pytest.approx(0.5)


def test_the_form_and_the_statement_are_one_question(analyst):
    form = {
        "aggregates": [
            {"aggregate": "mean", "of": "income"},
            {"aggregate": "quantile", "of": "age", "probability": "0.9"},
        ],
        "by": ["sex"],
        "where": [
            {"attribute": "age", "comparison": ">=", "values": [18]},
            {"attribute": "sex", "comparison": "present"},
        ],
    }
    statement = "SELECT sex, AVG(income), QUANTILE(age, 0.9) FROM t WHERE NOT age < 18 AND sex IS NOT NULL GROUP BY sex"
    stated = analyst.query("people", form, epsilon="0.25")
    assert stated.groups == ("sex",)
    assert [row["key"][0] for row in stated.rows] == ["F", "M", "(other)"]
    assert analyst.ask("people", statement, epsilon="0.25").rows == stated.rows


def test_a_loss_may_be_a_number_and_is_read_as_it_is_written(server, analyst):
    before = spent(server)
    assert analyst.ask("people", "SELECT COUNT(*) FROM people WHERE age < 7", epsilon=0.1).cost == "epsilon 0.1"
    assert spent(server) - before == Fraction(1, 10)
    assert float(analyst.cost("people", COUNT, error=8).epsilon) < 0.6
    with pytest.raises(InputError, match=r"^epsilonn: "):
        analyst.ask("people", COUNT, epsilonn=1)
    status, found = posted(server, "datasets/people/query", {"sql": COUNT, "loss": {"epsilonn": 1}})
    assert (status, found["errors"][0]["place"]) == (422, "body.loss.epsilonn")


def posted(server, path, body, method="POST", **headers):
    """Return the server's reply to a steward."""
    secret = server.key("raw", Scope.STEWARD)
    found = httpx.request(
        method,
        f"{server.address}/v1/{path}",
        content=body if isinstance(body, str) else json.dumps(body),
        headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"} | headers,
        timeout=60,
        trust_env=False,
    )
    return found.status_code, found.json()


@pytest.mark.parametrize(("number", "meant"), [("0.013", "0.013"), ("1", "1"), ("2e-2", "0.02"), ("1E-7", "0.0000001")])
def test_a_loss_may_be_a_number_and_is_the_shortest_decimal_that_prints_it(server, number, meant):
    before = spent(server)
    status, found = posted(server, "datasets/people/query", f'{{"sql": "{COUNT}", "loss": {{"epsilon": {number}}}}}')
    assert status == 200, found
    assert spent(server) - before == Fraction(meant)
    status, found = posted(server, "datasets/people/cost", {"sql": COUNT, "error": 8, "confidence": 0.9})
    assert (status, found["notes"]) == (200, [])


@pytest.mark.parametrize("number", ["true", "[1]", "NaN", "Infinity", "1" * 61, "null"])
def test_what_is_no_number_is_no_loss(server, number):
    before = spent(server)
    status, found = posted(server, "datasets/people/query", f'{{"sql": "{COUNT}", "loss": {{"epsilon": {number}}}}}')
    assert (status, found["charged"]) == (422, False)
    assert spent(server) == before


def test_a_mean_says_what_was_supposed_of_its_rows(analyst):
    mean = "SELECT AVG(age) FROM people WHERE sex = 'F'"  # no count of it was released
    supposed = "mean(age): supposing 100 rows in each group; state yours with 'rows'."
    alone = analyst.cost("people", mean, error="0.1")
    assert [alone.notes[0], len(alone.notes)] == [supposed, 3]
    many = analyst.cost("people", mean, error="0.1", rows=1000)
    assert many.notes == ("mean(age): supposing 1,000 rows in each group.",)
    assert f"epsilon = {many.epsilon} is enough" in alone.notes[1]
    assert float(many.epsilon) < float(alone.epsilon) / 9
    assert analyst.cost("people", COUNT, error="1").notes == ()
    analyst.ask("people", "SELECT sex, COUNT(*) FROM people GROUP BY sex", epsilon="0.1")
    (expected, *_) = analyst.accuracy("people", "SELECT sex, AVG(age) FROM people GROUP BY sex", epsilon="1")
    assert expected["rows"] not in (None, 100)


@pytest.fixture(scope="module")
def visits(server, tmp_path_factory):
    """Serve three rows for each of 300 people, one of which counts, with a budget at which noise is negligible."""
    with server.client("stew", Scope.STEWARD) as client:
        source = str(write_visits(tmp_path_factory.mktemp("visits") / "visits.parquet"))
        client.register("visits", source=source, domain=VISITS, limit="1e5")


@pytest.mark.usefixtures("visits")
def test_what_the_bound_leaves_out_is_counted_where_that_is_asked(server, analyst):
    with server.ledger("visits") as ledger:
        before = ledger.remaining().spent.epsilon
    foreseen = analyst.accuracy("visits", COUNT, epsilon="1e4", truncation=5)
    left_out = ["rows left out by the bound", "units with rows left out by the bound"]
    assert [each["name"] for each in foreseen] == ["count(*)", *left_out]
    with server.ledger("visits") as ledger:
        assert ledger.remaining().spent.epsilon == before
    found = analyst.ask("visits", COUNT, epsilon="1e4", truncation=5)  # noise, but for once in e^1000
    assert found.rows[0]["values"][0]["estimate"] == 300
    said = found.document["truncation"]
    assert (said["rows"]["estimate"], said["units"]["estimate"], said["most"]) == (600, 300, 5)
    assert any("bound" in each for each in found.document["remarks"])
    assert found.cost == "epsilon 10000"
    form = {"aggregates": [{"aggregate": "count"}]}
    assert analyst.query("visits", form, epsilon="1e4", truncation=5).rows == found.rows
    assert "nothing" in analyst.query("visits", form, epsilon="1e4", truncation=5).cost
    assert "truncation" not in analyst.ask("visits", COUNT, epsilon="1e3").document


def test_where_no_bound_leaves_rows_out_counting_them_is_refused_and_free(server, analyst):
    before = spent(server)
    for call in (analyst.ask, analyst.accuracy):
        found = refusal(lambda: call("people", COUNT, epsilon="0.1", truncation=5))  # noqa: B023
        assert (found["type"], found["status"], found["charged"]) == ("/problems/query-refused", 422, False)
        assert "no bound drops rows" in found["detail"]
    for odd in (0, -1, 2.5, "5", True, 10**7):
        body = {"sql": COUNT, "loss": {"epsilon": "0.1"}, "truncation": odd}
        for path in ("query", "cost"):
            status, found = posted(server, f"datasets/people/{path}", body)
            assert (status, found["type"], found["charged"]) == (422, "/problems/invalid-request", False)
            assert found["errors"][0]["place"].startswith("body.truncation")
    assert spent(server) == before


def test_noise_that_outweighs_the_table_is_said_before_it_is_charged(server, analyst):
    before = spent(server)
    body = {"sql": COUNT, "loss": {"epsilon": "0.0001"}}
    status, found = posted(server, "datasets/people/cost", body)
    assert (status, found["charged"]) == (200, False)
    (said,) = found["notes"]
    assert said.startswith("count(*): at this loss noise may outweigh ")
    assert said.endswith("of fewer rows the answer says nothing")
    _, found = posted(server, "datasets/people/cost", body | {"rows": ROWS})
    assert found["notes"] == [
        "count(*): at this loss noise may outweigh all of 1,000 rows; the answer would say nothing"
    ]
    _, found = posted(server, "datasets/people/cost", body | {"loss": {"epsilon": "1"}, "rows": ROWS})
    assert found["notes"] == []
    assert spent(server) == before
    assert said in analyst.ask("people", COUNT, epsilon="0.0001").document["remarks"]
    assert spent(server) - before == Fraction(1, 10000)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_content_type_is_told_which_it_must_be(server, kind):
    body = {"sql": COUNT, "loss": {"epsilon": "0.1"}}
    status, found = posted(server, "datasets/people/query", body, **{"Content-Type": kind})
    assert (status, found["type"]) == (422, "/problems/invalid-request")
    assert found["errors"] == [{"place": "body", "reason": "the content type must be application/json"}]
    _, found = posted(server, "datasets/people/query", "[]")
    assert "content type" not in found["errors"][0]["reason"]


def test_a_cap_of_a_name_without_a_key_is_set_and_remarked_on(server, steward):
    server.key("known", Scope.ANALYST)
    server.key("former", Scope.ANALYST, timedelta(microseconds=1))
    assert steward.cap("people", "known", epsilon="1")["remarks"] == []
    for name in ("unkown", "former"):
        found = steward.cap("people", name, epsilon="1")
        assert len(found["remarks"]) == 1
        assert f"nobody holds a valid key of the name '{name}' now" in found["remarks"][0]
        assert found["analysts"][name] == "epsilon = 1 left of epsilon = 1"


def test_a_domain_that_cannot_be_used_has_words_of_its_own(steward, people):
    for domain in ({**DOMAIN, "draft": True}, {"sfumato": 1}):
        found = refusal(lambda: steward.register("new", source=str(people), domain=domain, limit="1"))  # noqa: B023
        assert (found["type"], found["title"]) == ("/problems/domain-unusable", "The domain cannot be used")
        assert (found["status"], found["charged"]) == (422, False)


@pytest.mark.parametrize("confidence", ["2", "0", "1", "-0.5", "much", "nan"])
def test_a_confidence_outside_of_0_to_1_is_a_wrong_request(server, confidence):
    headers = {"Authorization": f"Bearer {server.key('sure', Scope.ANALYST)}"}
    for path in ("query", "cost"):
        body = {"sql": COUNT, "loss": {"epsilon": "1"}, "confidence": confidence}
        reply = httpx.post(
            f"{server.address}/v1/datasets/people/{path}", json=body, headers=headers, timeout=60, trust_env=False
        )
        found = reply.json()
        assert (reply.status_code, found["type"], found["charged"]) == (422, "/problems/invalid-request", False)
        assert found["errors"][0]["reason"] == "a confidence is a number between 0 and 1, such as 0.95"


def test_a_retry_returns_what_was_returned_and_a_reused_key_is_refused(analyst):
    first = analyst.ask("people", COUNT, epsilon="0.011", retry_key="r1")
    assert analyst.ask("people", COUNT, epsilon="0.011", retry_key="r1").rows == first.rows
    found = refusal(lambda: analyst.ask("people", "SELECT SUM(age) FROM t", epsilon="0.011", retry_key="r1"))
    assert (found["type"], found["status"], found["charged"]) == ("/problems/idempotency-key-reused", 409, False)


@pytest.mark.parametrize(
    ("statement", "loss", "kind", "status"),
    [
        ("SELECT COUNT(*) FROM t WHERE age / 0 > 1", {"epsilon": "0.1"}, "query-refused", 422),
        ("SELECT COUNT(*) FROM t WHERE nobody = 1", {"epsilon": "0.1"}, "query-refused", 422),
        (COUNT, {"epsilon": "-1"}, "loss-refused", 422),
        (COUNT, {"epsilon": "nan"}, "loss-refused", 422),
        (COUNT, {}, "loss-refused", 422),
        (COUNT, {"rho": "0.1"}, "loss-refused", 422),
        (COUNT, {"epsilon": "10.5"}, "budget-exceeded", 403),
    ],
)
def test_refusals_are_problems_of_a_stable_type_and_free(server, analyst, statement, loss, kind, status):
    before = spent(server)
    found = refusal(lambda: analyst.ask("people", statement, **loss))
    assert (found["type"], found["status"], found["charged"]) == (f"/problems/{kind}", status, False)
    assert found["title"]
    assert found["detail"]
    if kind == "query-refused":
        assert (found["line"], found["column"]) == (1, 36 if "/ 0" in statement else 30)
    assert spent(server) == before


def test_unknown_things_and_wrong_keys(server, analyst, people):
    assert refusal(lambda: analyst.ask("nothing", COUNT, epsilon="1"))["type"] == "/problems/unknown-dataset"
    for call in (
        lambda: analyst.issue("me", scope="steward", days=1),
        lambda: analyst.cap("people", "ana", epsilon="100"),
        lambda: analyst.register("mine", source=str(people), domain=DOMAIN, limit="1"),
    ):
        assert refusal(call)["type"] == "/problems/wrong-scope"
    wrong = {
        "unknown-key": "sfumato_analyst_" + "x" * 43,
        "expired-key": server.key("late", Scope.ANALYST, timedelta(microseconds=1)),
    }
    for kind, secret in wrong.items():
        with HttpClient(server.address, secret) as stranger:
            found = refusal(stranger.datasets)
            assert (found["type"], found["status"]) == (f"/problems/{kind}", 401)
    with HttpClient(server.address, server.key("l", Scope.INVITATION)) as linked:
        assert refusal(linked.datasets)["type"] == "/problems/unknown-key"
    reply = httpx.get(f"{server.address}/v1/datasets", timeout=60, trust_env=False)
    assert reply.status_code == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_revoked_key_ends_on_every_worker(server, steward):
    issued = steward.issue("temp", scope="analyst", days=1)
    with HttpClient(server.address, issued["secret"]) as temporary:
        assert temporary.datasets()
        steward.revoke(issued["id"])
        time.sleep(2.2)
        for _ in range(6):
            assert refusal(temporary.datasets)["type"] == "/problems/expired-key"
    assert refusal(lambda: steward.revoke(issued["id"]))["status"] == 404


def test_caps_bind_analysts_and_stewards_see_who_spent(server, steward):
    with server.client("capped") as capped:
        steward.cap("people", "capped", epsilon="0.3")
        capped.ask("people", "SELECT SUM(age) FROM t", epsilon="0.3")
        found = refusal(lambda: capped.ask("people", COUNT, epsilon="0.01"))
        assert found["type"] == "/problems/budget-exceeded"
        assert "0" in found["detail"]
        assert "analysts" not in capped.budget("people")
        assert {entry["analyst"] for entry in capped.journal("people")} == {"capped"}
        # an answer that was charged to another analyst costs the dataset nothing, but this one's cap is empty
        with server.client("other") as other:
            before = spent(server)
            other.ask("people", "SELECT SUM(age) FROM t", epsilon="0.3")
            assert spent(server) == before
    assert "epsilon = 0 left of epsilon = 0.3" in steward.budget("people")["analysts"]["capped"]
    assert {"capped", "other"} <= {entry["analyst"] for entry in steward.journal("people")}
    summed = [entry for entry in steward.journal("people") if entry["asked"] == "sum(age)"]
    assert [entry["cost"].split(";")[0] for entry in summed] == ["epsilon 0.3", "nothing"]


def test_only_the_number_depends_on_whether_one_person_or_none_matches(server, analyst):
    """One person is 98 and no person is 99: same status, same shape, same charge."""
    shapes, charges = [], []
    for age in (98, 99):
        before = spent(server)
        reply = analyst.ask(
            "people",
            f"SELECT COUNT(*), AVG(income), MEDIAN(income), MIN(income) FROM t WHERE age = {age}",
            epsilon="0.2",
        )
        charges.append(spent(server) - before)
        shapes.append([sorted(value) for value in reply.rows[0]["values"]] + [reply.cost, sorted(reply.document)])
    assert shapes[0] == shapes[1]
    assert charges[0] == charges[1] > 0


def test_a_dataset_without_rows_answers_like_any_other(steward, people, tmp_path):
    parquet.write_table(parquet.read_table(people).slice(0, 0), tmp_path / "nobody.parquet")
    steward.register("nobody", source=str(tmp_path / "nobody.parquet"), domain=DOMAIN, limit="1e5")
    found = steward.ask("nobody", "SELECT COUNT(*) FROM people", epsilon="1e4")
    assert found.rows[0]["values"][0]["estimate"] == 0


def test_bodies_that_are_too_large_or_no_json_are_refused(server):
    headers = {"Authorization": f"Bearer {server.key('big', Scope.ANALYST)}", "Content-Type": "application/json"}
    address = f"{server.address}/v1/datasets/people/query"
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
        large = client.post(address, content=b" " * 300_000)
        streamed = client.post(address, content=iter([b" " * 100_000] * 4))
        broken = client.post(address, content=b"{")
        twice = client.post(address, content=b'{"sql": "", "loss": {"epsilon": "0.1", "epsilon": "9"}}')
        unknown = client.post(address, json={"sql": COUNT, "loss": {"epsilon": "1"}, "epsilon": "7"})
        both = client.post(
            address, json={"sql": COUNT, "query": {"aggregates": [{"aggregate": "count"}]}, "loss": {"epsilon": "1"}}
        )
        many = client.post(
            address, json={"sql": COUNT, "loss": {"epsilon": "1"}}, headers={"Idempotency-Key": "x" * 201}
        )
        odd = client.post(
            address,
            json={"sql": COUNT, "loss": {"epsilon": "1"}},
            headers={"Idempotency-Key": "r\u00a01".encode("latin-1")},
        )
    assert (odd.status_code, odd.json()["type"]) == (422, "/problems/request-refused")
    assert (large.status_code, streamed.status_code) == (413, 413)
    assert large.json()["type"] == streamed.json()["type"] == "/problems/body-too-large"
    assert twice.json()["errors"][0]["reason"] == "the body repeats a key, so its meaning is ambiguous"
    for reply in (broken, twice, unknown, many):
        assert reply.status_code == 422
        assert reply.json()["type"] == "/problems/invalid-request"
        assert reply.json()["charged"] is False
    assert both.json()["type"] == "/problems/query-refused"


def test_a_body_of_two_lengths_is_refused_and_ends_the_connection(server):
    address = httpx.URL(server.address)
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    for length in (5, len(smuggled)):
        with socket.create_connection((address.host, address.port), timeout=30) as line:
            line.sendall(
                b"POST /v1/datasets/people/query HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {length}\r\n".encode()
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + smuggled
            )
            received = b"".join(iter(lambda line=line: line.recv(1 << 16), b""))
        assert received.startswith(b"HTTP/1.1 400")
        assert b"/problems/two-lengths" in received  # in the same words, whatever reads HTTP
        assert received.count(b"HTTP/1.1") == 1  # the second request is nobody's


def test_a_release_is_made_in_the_background_and_is_its_owners(server, analyst):
    job = analyst.release("people", method="histogram", attributes=["sex", "age"], epsilon="1")
    deadline = time.monotonic() + 60
    while (state := analyst.progress(job))["state"] not in ("done", "failed"):
        assert 0 <= state["progress"] < 1
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert state["state"] == "done", state
    assert "epsilon = 1" in state["statement"]["guarantee"]
    lines = analyst.rows(job).splitlines()
    assert lines[0].replace('"', "") == "age,sex"
    assert len(lines) > ROWS / 2
    with server.client("nosy") as nosy:
        assert refusal(lambda: nosy.progress(job))["status"] == 404
        assert refusal(lambda: nosy.parquet(job))["status"] == 404
    assert "50" in refusal(lambda: analyst.release("people", method="auto", epsilon="50"))["detail"]  # never fits
    failed = analyst.release("people", method="auto", epsilon="9.9")
    while (state := analyst.progress(failed))["state"] not in ("done", "failed"):
        time.sleep(0.1)
    assert "budget" in state["note"]
    assert refusal(lambda: analyst.rows(failed))["type"] == "/problems/not-ready"


def done(client, job):
    deadline = time.monotonic() + 60
    while (state := client.progress(job))["state"] not in ("done", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert state["state"] == "done", state
    return state["statement"]


def test_rows_fetched_as_a_file_carry_what_the_file_of_the_command_carries(server, steward, tmp_path):
    people = write_people(tmp_path / "people.parquet", seed=11)
    steward.register("carried", source=str(people), domain=DOMAIN, limit="1")
    job = steward.release("carried", method="histogram", epsilon="1")
    statement = done(steward, job)
    (tmp_path / "rows.parquet").write_bytes(steward.parquet(job))
    book = read_codebook(tmp_path / "rows.parquet")
    assert book.to_json() == Codebook.parse(json.dumps(statement["codebook"]).encode()).to_json()
    assert book.journal_entry == statement["provenance"]["journal_entry"]
    assert book.guarantee.text == statement["guarantee"]
    alone = read_release(tmp_path / "rows.parquet")
    assert interval(alone, count("sex = 'F'")).table is not None
    assert csv.read_csv(io.BytesIO(steward.rows(job).encode())).num_rows == book.rows
    # the same release by the command, of the same ledger: a repeat, with the same rows, codebook and tables
    vault = sf.open(people, domain=parse(DOMAIN), ledger=server.url, dataset="carried")
    again = synthesize.histogram(vault, loss=sf.Epsilon(1), total=synthesize.NoisyTotal())
    assert again.cost == "nothing: asked and answered before"
    again.rows.write(tmp_path / "again.parquet")
    mine, theirs = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("rows", "again"))
    assert mine.equals(theirs)
    assert mine.schema.metadata == theirs.schema.metadata


def test_rules_keep_impossible_rows_out_of_what_the_server_makes(steward, tmp_path):
    people = write_people(tmp_path / "people.parquet", seed=12)
    steward.register("ruled", source=str(people), domain=DOMAIN, limit="3")
    rules = [{"if": {"age": "..30"}, "then": {"sex": ["F"]}}]
    job = steward.release("ruled", method="auto", zeros=rules, reuse=False, epsilon="1")
    parameters = done(steward, job)["provenance"]["parameters"]
    assert parameters["zeros"]
    assert parameters["limits"]["earlier"] is False
    rows = csv.read_csv(io.BytesIO(steward.rows(job).encode())).to_pylist()
    assert not [row for row in rows if row["age"] <= 30 and row["sex"] != "F"]
    for bad in ([{"if": {"age": 999}, "then": {"sex": ["F"]}}], [{"if": {"nobody": 1}, "then": {"sex": ["F"]}}]):
        refused = refusal(lambda bad=bad: steward.release("ruled", method="auto", zeros=bad, epsilon="1"))
        assert refused["status"] == 422
    refused = refusal(lambda: steward.release("ruled", method="histogram", zeros=rules, epsilon="1"))
    assert "takes no rules" in refused["detail"]


def test_registering_refuses_what_cannot_be_used_without_a_trace(steward, people, tmp_path):
    draft = {**DOMAIN, "draft": True}
    other = {**DOMAIN, "attributes": {"nobody": DOMAIN["attributes"]["age"]}}
    for name, source, domain, limit in [
        ("people", str(people), DOMAIN, "1"),
        ("new", str(tmp_path / "nothing.csv"), DOMAIN, "1"),
        ("new", str(people), draft, "1"),
        ("new", str(people), other, "1"),
        ("new", str(people), DOMAIN, "-1"),
        ("new", str(people), {"sfumato": 1}, "1"),
        ("no name", str(people), DOMAIN, "1"),
    ]:
        found = refusal(lambda: steward.register(name, source=source, domain=domain, limit=limit))  # noqa: B023
        assert found["status"] == (409 if name == "people" else 422)
        assert found["charged"] is False
    assert not {"new", "no name"} & {each["name"] for each in steward.datasets()}


def test_operation_endpoints_tell_nothing_about_people(server, analyst):
    analyst.ask("people", COUNT, epsilon="0.012")
    headers = {"Authorization": f"Bearer {server.key('prometheus', Scope.MONITOR)}"}
    figures = httpx.get(f"{server.address}/metrics", headers=headers, timeout=60, trust_env=False).text
    assert 'sfumato_requests_total{status="2xx"}' in figures
    assert 'sfumato_budget_left_ratio{dataset="people"}' in figures
    assert "ana" not in figures.replace("management", "")
    assert httpx.get(f"{server.address}/healthz", timeout=60, trust_env=False).json() == {"status": "alive"}
    headers = httpx.get(f"{server.address}/", timeout=60, trust_env=False).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
