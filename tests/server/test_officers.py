"""A privacy officer reads journals and sign-off pages, and nothing else; nobody else's rights change."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from urllib.parse import urlencode

import httpx
import pytest
from tests.server.serving import DOMAIN, answer_of, write_people
from tests.server.test_actions import routes_of

from sfumato.app.api.questions import AskRequest
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields
from sfumato_server import release_jobs
from sfumato_server.access import COOKIE
from sfumato_server.application import create
from sfumato_server.registry import Scope
from sfumato_server.service import Service

OPEN = {  # without a key
    "GET /",
    "GET /enter",
    "POST /enter",
    "POST /enter/link",
    "GET /login",
    "GET /login/back",
    "POST /leave",
    "GET /static/{digest}/{name}",
    "HEAD /static/{digest}/{name}",
    "GET /healthz",
    "GET /readyz",
}
FOR_OFFICERS = {
    "GET /v1/datasets",
    "GET /v1/datasets/{name}/journal",
    "GET /v1/datasets/{name}/verify",
    "GET /officer",
    "GET /officer/{name}",
    "GET /sign-off/{name}",
    "POST /leave/all",
}
ADDRESSES = {"{name}": "people", "{key_id}": "k", "{approval_id}": "a", "{draft_id}": "d", "{job_id}": "j"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("officers")
    with closing(Service(f"sqlite:///{folder}/s.ledger", create=True)) as service:
        source = str(write_people(folder / "p.parquet"))
        service.register("people", source=source, domain=DOMAIN, limit="9", more={})
        loaded = service.loaded("people")
        form = AskRequest(sql="SELECT COUNT(*) FROM t", loss={"epsilon": "1"})
        answer_of(form, service.vault("people", "ana"), form.read(loaded.domain, ()))
        yield service, create(service)


def send(bench, scope, method, path, by_key=None):
    """Send an empty request with the key of a scope, or by a session of it."""
    service, app = bench
    key, secret = service.registry.issue(f"holder of {scope}", scope, timedelta(days=1))
    by_key = path.startswith("/v1") if by_key is None else by_key
    headers = {"Authorization": f"Bearer {secret}"} if by_key else {"Accept": "text/html"}
    cookies = None if by_key else {COOKIE: service.sessions.start(key)}

    async def request():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", cookies=cookies) as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(request())


def all_routes(app):
    return sorted(f"{method} {route.path}" for route in routes_of(app) for method in route.methods)


def address(path):
    for part, value in ADDRESSES.items():
        path = path.replace(part, value)
    return path


def test_an_officer_reaches_the_pages_and_routes_that_read_and_no_others(bench):
    routes = set(all_routes(bench[1])) - OPEN
    assert routes > FOR_OFFICERS
    for route in sorted(routes):
        method, path = route.split()
        for by_key in {path.startswith("/v1"), True}:
            reply = send(bench, Scope.OFFICER, method, address(path), by_key)
            assert (reply.status_code != 403) is (route in FOR_OFFICERS), (route, reply.text)
            if route in FOR_OFFICERS:
                assert reply.status_code in {200, 303}, (route, reply.text)
    assert bench[0].loaded("people").dataset.retired is False


@pytest.mark.parametrize(("scope", "status"), [(Scope.ANALYST, 403), (Scope.MONITOR, 403), (Scope.STEWARD, 200)])
def test_pages_of_officers_are_for_stewards_too_and_for_nobody_else(bench, scope, status):
    for path in ("/officer", "/officer/people", "/sign-off/people", "/v1/datasets/people/verify"):
        assert send(bench, scope, "GET", path, by_key=True).status_code == status
    assert send(bench, scope, "GET", "/metrics").status_code == (403 if scope is Scope.ANALYST else 200)


def test_an_officer_sees_the_entries_of_all_analysts_and_starts_at_the_journals(bench):
    entries = send(bench, Scope.OFFICER, "GET", "/v1/datasets/people/journal").json()["entries"]
    assert [(each["kind"], each["analyst"]) for each in entries] == [("version", None), ("release", "ana")]
    assert send(bench, Scope.ANALYST, "GET", "/v1/datasets/people/journal").json()["entries"] == []
    start = send(bench, Scope.OFFICER, "GET", "/")
    assert (start.status_code, start.headers["location"]) == (303, "/officer")
    page = send(bench, Scope.OFFICER, "GET", "/officer/people").text
    assert "SELECT COUNT(*) FROM t" in page or "count(*)" in page
    assert "<textarea" not in page
    assert "settings" not in page


def released(service, request, file, statement=None):
    """The id of a finished release of the dataset, as a worker stores it."""
    jobs = service.registry.jobs
    job = jobs.add("people", "ana", request, most=9)
    jobs.advance(job, 0.5, "half")
    jobs.finish(job, statement or {}, file)
    return job


def sign_off(bench, **form):
    return send(bench, Scope.OFFICER, "GET", f"/sign-off/people?{urlencode(form)}")


def test_a_sign_off_page_of_answers_is_checked_against_the_ledger(bench):
    reply = sign_off(bench, to="City council", purpose="A report")
    assert reply.status_code == 200
    for words in ("Answers of people", "City council", "A report", "Ledger verified", "entry 2"):
        assert words in reply.text
    assert "<script" not in reply.text
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    public = sign_off(bench, to="City council", public="true").text
    stated = send(bench, Scope.STEWARD, "GET", "/sign-off/people").text
    assert "requested by holder of steward" in stated
    assert "City council" not in stated
    assert "requested by" not in reply.text + public  # an officer signs what another person asks for
    assert sign_off(bench, release="nothing").status_code == 404
    assert "&lt;b&gt;" in sign_off(bench, to="<b>").text
    assert send(bench, Scope.OFFICER, "GET", "/sign-off/nothing").status_code == 404


def test_a_sign_off_page_of_a_released_file_is_checked_against_its_entry(bench):
    service, _ = bench
    loss = {"epsilon": "1"}
    form = SynthesisFields(method="histogram", attributes=["sex"], loss=loss)
    statement, file = release_jobs.synthesized(
        service.vault("people", "ana"), form.read(service.loaded("people").domain)
    )
    job = released(service, {"synthesize": form.model_dump()}, file, statement)
    assert f'<option value="{job}">synthetic table for ana' in send(bench, Scope.OFFICER, "GET", "/officer/people").text
    text = sign_off(bench, release=job).text
    assert "Ledger verified" in text
    assert f"people-{job}.parquet" in text
    assert "The stated guarantee and description equal those of entry 3" in text
    assert "Rows and stated errors are those that entry 3 of the ledger draws" in text
    public = sign_off(bench, release=job, public="true").text
    assert "people-" not in public
    edited = released(service, {"synthesize": form.model_dump()}, b"PAR1 and nothing else", statement)
    refused = sign_off(bench, release=edited)
    assert (refused.status_code, "Nothing was spent" in refused.text) == (422, True)


def test_a_sign_off_page_of_an_anonymized_table_states_the_risk_of_its_file(bench):
    service, _ = bench
    form = AnonymizeRequest(method="optimal", quasi=["sex", "income"], k=5)
    statement, file = release_jobs.anonymized(service.vault("people", "ana"), form.read())
    job = released(service, {"anonymize": form.model_dump()}, file, statement)
    text = sign_off(bench, release=job).text
    assert "anonymized table for ana" in send(bench, Scope.STEWARD, "GET", "/steward/people").text
    assert "no differential privacy" in text
    assert "Ledger verified" in text


def test_files_of_other_datasets_have_no_sign_off_page_here(bench, tmp_path):
    service, _ = bench
    source = str(write_people(tmp_path / "other.parquet", seed=8))
    service.register("other", source=source, domain=DOMAIN, limit="1", more={})
    job = released(service, {"synthesize": {"method": "auto"}}, b"PAR1")
    assert send(bench, Scope.OFFICER, "GET", f"/sign-off/other?release={job}").status_code == 404
    empty = send(bench, Scope.OFFICER, "GET", "/sign-off/other")
    assert (empty.status_code, "no answer to a query" in empty.text) == (422, True)


def test_a_retired_dataset_stays_in_the_journals(bench):
    service, _ = bench
    service.retire("people", retired=True)
    try:
        assert "people" in send(bench, Scope.OFFICER, "GET", "/officer").text
        assert send(bench, Scope.OFFICER, "GET", "/v1/datasets/people/journal").status_code == 200
        assert send(bench, Scope.ANALYST, "GET", "/v1/datasets/people/journal").status_code == 403
    finally:
        service.retire("people", retired=False)
