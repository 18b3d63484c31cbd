"""A privacy officer reads journals and sign-off pages, and nothing else; nobody else's rights change."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from tests.server.serving import DOMAIN, answer_of, write_people
from tests.server.test_actions import routes_of

from sfumato.app.api.questions import AskRequest
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
    for path in ("/officer", "/officer/people", "/v1/datasets/people/verify"):
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


def test_a_retired_dataset_stays_in_the_journals(bench):
    service, _ = bench
    service.retire("people", retired=True)
    try:
        assert "people" in send(bench, Scope.OFFICER, "GET", "/officer").text
        assert send(bench, Scope.OFFICER, "GET", "/v1/datasets/people/journal").status_code == 200
        assert send(bench, Scope.ANALYST, "GET", "/v1/datasets/people/journal").status_code == 403
    finally:
        service.retire("people", retired=False)
