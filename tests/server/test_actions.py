"""Actions of stewards are in the audit log with their names, and are undone if the log cannot be written."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from fastapi.routing import APIRoute
from tests.app.test_cli import sfumato
from tests.ledger.asking import behind_its_back, unfreeze
from tests.server.serving import DOMAIN, answer_of, write_people

from sfumato.app.api.questions import AskRequest
from sfumato.ledger.audit_log import AuditHead, every_action, verified_actions
from sfumato.privacy.loss import Epsilon
from sfumato_server import access
from sfumato_server.access import COOKIE
from sfumato_server.application import create
from sfumato_server.problems import ApprovalNeededError
from sfumato_server.registry import Scope
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service
from sfumato_server.stewards import accept_description, read_description
from sfumato_server.ui.description_pages import StoredDescription


@pytest.fixture
def url(request, tmp_path):
    """Return SQLite's address, or PostgreSQL's for tests that ask for it."""
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("postgres")
    return f"sqlite:///{tmp_path}/s.ledger"


@pytest.fixture
def service(url, tmp_path):
    with closing(Service(url, create=True)) as opened:
        write_people(tmp_path / "other.parquet", seed=3)
        opened.register("people", source=str(write_people(tmp_path / "p.parquet")), domain=DOMAIN, limit="9", more={})
        opened.grants.set_terms("people", DatasetTerms(approval_above="0.5"))
        yield opened


class Bench:
    """An application in this process, and a steward who asks it by a key or by a session."""

    def __init__(self, service, folder):
        self.service, self.folder, self.app = service, folder, create(service)
        self.key, self.secret = service.registry.issue("stew", Scope.STEWARD, timedelta(days=1))
        session = service.sessions.start(self.key)
        self.cookies, self.session = {COOKIE: session}, service.sessions.holder(session).session
        self.spare = service.registry.issue("spare", Scope.ANALYST, timedelta(days=1))[0].id
        self.link = service.registry.issue_link(timedelta(hours=1))
        accepted = accept_description(read_description(DOMAIN), (), by="stew")
        described = StoredDescription("fresh", str(folder / "other.parquet"), DOMAIN, DOMAIN, [], [], [], accepted)
        self.draft = described.save(self.key, service).id

    def ask(self, method, path, **more):
        by_key = path.startswith("/v1")
        headers = {"Authorization": f"Bearer {self.secret}"} if by_key else {"Accept": "text/html"}

        async def send():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            cookies = None if by_key else self.cookies
            async with httpx.AsyncClient(transport=transport, base_url="http://here", cookies=cookies) as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(send())

    def waiting(self):
        """The id of a release that waits for an approval."""
        loaded = self.service.loaded("people")
        self.service.check_query_budget("people", self.service.registry.all_keys()[0], Epsilon(1))
        form = AskRequest(sql="SELECT COUNT(*) FROM t", loss={"epsilon": "1"})
        with pytest.raises(ApprovalNeededError):
            answer_of(form, self.service.vault("people", "ana"), form.read(loaded.domain, ()))
        return self.service.approvals.pending()[0].id

    def actions(self):
        return list(every_action(self.service.store))


@pytest.fixture
def bench(service, tmp_path):
    return Bench(service, tmp_path)


def new_dataset(bench):
    return {"name": "fresh", "source": str(bench.folder / "other.parquet"), "limit": "1"}


# what each route that is a steward's is sent, and the kinds of actions that it leaves
PROGRAMS = {
    "POST /v1/datasets": (lambda b: {"json": new_dataset(b) | {"domain": DOMAIN}}, ["dataset"]),
    "POST /v1/datasets/{name}/reading": (lambda _: {}, ["table"]),
    "PUT /v1/datasets/{name}/caps": (lambda _: {"json": {"analyst": "ana", "loss": {"epsilon": "1"}}}, ["cap"]),
    "PUT /v1/datasets/{name}/terms": (lambda _: {"json": {"most": "0.25"}}, ["terms"]),
    "PUT /v1/datasets/{name}/name": (lambda _: {"json": {"name": "folk"}}, ["name"]),
    "PUT /v1/datasets/{name}/retirement": (lambda _: {"json": {"retired": True}}, ["retirement"]),
    "PUT /v1/datasets/{name}/grants": (lambda _: {"json": {"analyst": "ana", "shut_out": True}}, ["grant"]),
    "POST /v1/approvals/{approval_id}": (lambda _: {}, ["approval"]),
    "DELETE /v1/approvals/{approval_id}": (lambda _: {}, ["approval"]),
    "POST /v1/keys": (lambda _: {"json": {"name": "new", "scope": "analyst", "days": 3}}, ["key"]),
    "POST /v1/keys/{key_id}/rotation": (lambda _: {"json": {"overlap_hours": 1}}, ["key", "key"]),
    "DELETE /v1/keys/{key_id}": (lambda _: {}, ["key"]),
}
PAGES = {
    "POST /steward/datasets": (
        lambda b: {"data": new_dataset(b) | {"domain": json.dumps(DOMAIN), "accepted": "true"}},
        ["dataset"],
    ),
    "POST /steward/all/description/{draft_id}/budget": (lambda b: {"data": new_dataset(b)}, ["dataset"]),
    "POST /steward/{name}/reading": (lambda _: {}, ["table"]),
    "POST /steward/caps": (lambda _: {"data": {"dataset": "people", "analyst": "ana", "most": "1"}}, ["cap"]),
    "POST /steward/{name}/terms": (lambda _: {"data": {"most": "0.25"}}, ["terms"]),
    "POST /steward/{name}/name": (lambda _: {"data": {"called": "folk"}}, ["name"]),
    "POST /steward/{name}/retirement": (lambda _: {"data": {"retired": "true"}}, ["retirement"]),
    "POST /steward/{name}/grants": (lambda _: {"data": {"analyst": "ana", "shut": "true"}}, ["grant"]),
    "POST /steward/approvals/{approval_id}": (lambda _: {}, ["approval"]),
    "POST /steward/keys": (lambda _: {"data": {"holder": "new", "scope": "analyst", "days": "3"}}, ["key"]),
    "POST /steward/keys/{key_id}/rotate": (lambda _: {}, ["key", "key"]),
    "POST /steward/keys/{key_id}/revoke": (lambda _: {}, ["key"]),
    "POST /steward/sessions/end": (lambda _: {}, ["sessions"]),
}
CHANGES = {**PROGRAMS, **PAGES}
# routes of stewards that change nothing of the server: drafts, and releases, which are in the dataset's own journal
ELSEWHERE = {
    "POST /v1/drafts",
    "POST /v1/acceptances",
    "POST /steward/all/limit",
    "POST /steward/draft",
    "POST /steward/all/description/{draft_id}",
    "POST /v1/datasets/{name}/anonymizations",
    "POST /datasets/{name}/anonymizations",
}


def sent(bench, route):
    """Send what a route takes."""
    method, path = route.split()
    wanted = bench.waiting() if "{approval_id}" in path else ""
    path = path.format(name="people", key_id=bench.spare, approval_id=wanted, draft_id=bench.draft)
    return bench.ask(method, path, **CHANGES[route][0](bench))


def guarded(dependant):
    """Return whether a route needs a steward's key."""
    return dependant.call is access.steward_key or any(guarded(each) for each in dependant.dependencies)


def routes_of(router):
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from routes_of(route.original_router)


def test_every_route_of_stewards_that_changes_something_is_tried_here(bench):
    routes = {
        f"{method} {route.path}"
        for route in routes_of(bench.app)
        if guarded(route.dependant)
        for method in route.methods - {"GET", "HEAD"}
    }
    assert len(routes) > 20
    assert routes - ELSEWHERE == CHANGES.keys()


@pytest.mark.parametrize("route", CHANGES)
def test_each_change_of_a_steward_is_an_action_in_their_name(bench, route):
    before = bench.actions()
    reply = sent(bench, route)
    assert reply.status_code in {200, 201, 303}, reply.text
    new = bench.actions()[len(before) :]
    assert [each.kind for each in new] == CHANGES[route][1]
    through = f"key {bench.key.id}" if route in PROGRAMS else f"session {bench.session} of {bench.key.id}"
    assert {(each.actor, each.through) for each in new} == {("stew", through)}
    assert all(each.state_before != each.state_after for each in new)
    assert verified_actions(bench.service.url).number == len(before) + len(new)


LOOKED = {"service_probe", "ledger_checkpoint"}  # what a look at readiness or at a journal leaves


def kept(service):
    """Return everything in the database except what mere viewing writes."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
    with service.store.reading() as driver:
        tables = [name for (name,) in driver.rows(names) if name not in LOOKED]
        return {name: sorted(map(repr, driver.records(f"SELECT * FROM {name}"))) for name in tables}  # noqa: S608


@pytest.mark.parametrize("route", CHANGES)
def test_a_change_that_the_log_does_not_take_is_not_made(bench, route):
    method, path = route.split()
    wanted = bench.waiting() if "{approval_id}" in path else ""
    bench.ask("GET", "/v1/keys")  # which notes that the key was used
    before = kept(bench.service)
    stop = "CREATE TRIGGER no_more BEFORE INSERT ON service_action BEGIN SELECT RAISE(ABORT, 'no more'); END"
    behind_its_back(bench.service.url, stop)
    path = path.format(name="people", key_id=bench.spare, approval_id=wanted, draft_id=bench.draft)
    reply = bench.ask(method, path, **CHANGES[route][0](bench))
    assert reply.status_code >= 400, reply.text
    assert kept(bench.service) == before
    behind_its_back(bench.service.url, "DROP TRIGGER no_more")
    assert bench.ask(method, path, **CHANGES[route][0](bench)).status_code < 400
    assert kept(bench.service) != before


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_actions_are_kept_in_postgresql_alike(bench):
    for route in sorted(
        PROGRAMS, key=lambda each: ("approval" not in each, each)
    ):  # which need the terms that there are
        assert sent(bench, route).status_code < 500
    kinds = [each.kind for each in bench.actions()]
    assert {"dataset", "table", "cap", "terms", "grant", "approval", "key", "link"} <= set(kinds)
    assert verified_actions(bench.service.url).number == len(kinds)


def test_what_became_of_what_is_told_in_both_states(bench):
    bench.ask("PUT", "/v1/datasets/people/terms", json={"most": "0.25", "granted_only": True})
    terms = bench.actions()[-1]
    assert (terms.state_before["approval_above"], terms.state_before["most"]) == ("0.5", None)
    assert (terms.state_after["approval_above"], terms.state_after["most"]) == (None, "0.25")
    assert terms.state_after["granted_only"] is True
    bench.ask("PUT", "/v1/datasets/people/caps", json={"analyst": "ana", "loss": {"epsilon": "0"}})
    bench.ask("PUT", "/v1/datasets/people/caps", json={"analyst": "ana", "loss": {"epsilon": "2"}})
    shut, cap, let = bench.actions()[-3:]
    assert (shut.state_before["let_in"], shut.state_after["let_in"]) == (None, False)
    assert (cap.state_before["cap"], cap.state_after["cap"]) == (None, "epsilon = 2")
    assert (let.state_before["let_in"], let.state_after["let_in"]) == (False, True)
    bench.ask("PUT", "/v1/datasets/people/name", json={"name": "folk"})
    bench.ask("PUT", "/v1/datasets/folk/name", json={"name": "crowd"})
    assert (bench.actions()[-1].state_before, bench.actions()[-1].state_after) == ("folk", "crowd")


def test_an_approval_is_told_with_its_question(bench):
    wanted = bench.waiting()
    bench.ask("POST", f"/v1/approvals/{wanted}")
    given = bench.actions()[-1]
    assert (given.subject, given.state_before["approved_by"], given.state_after["approved_by"]) == (
        wanted,
        None,
        "stew",
    )
    assert "count" in given.state_after["question"].lower()
    assert given.state_after["asked_by"] == "ana"


def test_no_secret_and_no_password_of_a_source_is_in_the_log(bench):
    made = bench.ask("POST", "/v1/keys", json={"name": "new", "scope": "steward", "days": 3}).json()
    log = " ".join(action.to_json() for action in bench.actions())
    assert made["id"] in log
    assert made["secret"] not in log
    assert bench.link not in log
    page = bench.ask("GET", "/steward/all/actions").text
    assert made["secret"] not in page


def test_the_page_of_the_log_has_words_instead_of_names_of_fields(bench):
    bench.ask("PUT", "/v1/datasets/people/terms", json={"most": "0.25", "granted_only": True})
    bench.ask("PUT", "/v1/datasets/people/caps", json={"analyst": "ana", "loss": {"epsilon": "0"}})
    page = bench.ask("GET", "/steward/all/actions").text
    for words in ("only granted analysts: yes", "most per question: 0.25", "access: no", "analyst: ana"):
        assert words in page
    assert not any(name in page for name in ("let_in", "granted_only", "approval_above"))


def test_the_log_is_exported_as_lines_over_http_and_on_the_page(bench):
    bench.ask("PUT", "/v1/datasets/people/terms", json={})
    reply = bench.ask("GET", "/v1/actions")
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert [each["number"] for each in lines] == list(range(1, len(bench.actions()) + 1))
    assert lines[-1]["actor"] == "stew"
    assert bench.ask("GET", "/v1/actions", params={"after": len(lines) - 1}).text.splitlines() == [
        reply.text.splitlines()[-1]
    ]
    assert bench.ask("GET", "/steward/all/actions/lines").text == reply.text
    shown = bench.ask("GET", "/steward/all/actions").text
    assert "The log is verified" in shown
    assert "stew" in shown
    told = bench.ask("GET", "/v1/datasets/people/verify").json()
    assert AuditHead(told["actions"], told["actions_hash"]) == verified_actions(bench.service.url)


def test_analysts_do_not_see_the_log(bench):
    bench.secret = bench.service.registry.issue("ana", Scope.ANALYST, timedelta(days=1))[1]
    assert bench.ask("GET", "/v1/actions").status_code == 403


def test_an_edited_log_is_reported_on_the_page_and_by_the_command(bench, tmp_path):
    unfreeze(bench.service.url)
    behind_its_back(bench.service.url, "UPDATE service_action SET actor = 'eve' WHERE number = 2")
    assert "broken at action 2" in bench.ask("GET", "/steward/all/actions").text
    assert bench.ask("GET", "/v1/datasets/people/verify").status_code == 500
    done = sfumato("ledger", "verify", "s.ledger", "--dataset", "people", cwd=tmp_path, code=1)
    assert "broken at action 2" in done.stderr


def test_commands_leave_actions_of_the_systems_user_and_show_them(bench, tmp_path):
    where = ("--ledger", "s.ledger")
    sfumato("key", "issue", "bob", "--days", "1", *where, cwd=tmp_path)
    sfumato("ledger", "cap", "s.ledger", "bob", "--epsilon", "1", "--dataset", "people", cwd=tmp_path)
    key, cap = bench.actions()[-2:]
    assert (key.kind, key.through.partition(",")[0], key.state_after["holder"]) == ("key", "machine", "bob")
    assert (cap.kind, cap.state_after) == ("cap", {"analyst": "bob", "cap": "epsilon = 1"})
    shown = sfumato("ledger", "actions", "s.ledger", "--last", "1", cwd=tmp_path).stdout
    assert "cap epsilon = 1" in shown
    assert len(shown.splitlines()) == 3
    lines = sfumato("ledger", "actions", "s.ledger", "--lines", cwd=tmp_path).stdout.splitlines()
    assert lines == [each.to_json() for each in bench.actions()]
    checked = sfumato("ledger", "verify", "s.ledger", "--dataset", "people", "--json", cwd=tmp_path)
    assert json.loads(checked.stdout)["actions"] == len(lines)


def logged(caplog, event):
    found = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sfumato.http"]
    return [each for each in found if each["event"] == event]


def test_a_login_is_logged_with_the_name_of_the_person(bench, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    bench.cookies = {}
    bench.ask("POST", "/enter", data={"key": bench.secret})
    bench.ask("POST", "/enter/link", data={"link": bench.link})
    first, second = logged(caplog, "login")
    assert (first["name"], first["scope"], first["by"], first["id"]) == ("stew", "steward", "key", bench.key.id)
    assert (second["name"], second["scope"], second["by"]) == ("steward", "steward", "link")
    assert bench.actions()[-1].kind == "link"


def test_a_login_that_is_refused_is_logged_with_its_reason(bench, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    monitor = bench.service.registry.issue("probe", Scope.MONITOR, timedelta(days=1))[1]
    for key in ("sfumato_steward_x", monitor, "sfumato_session_x"):
        bench.ask("POST", "/enter", data={"key": key})
    bench.ask("POST", "/enter/link", data={"link": bench.link + "x"})
    told = [(each["reason"], each["name"]) for each in logged(caplog, "login refused")]
    assert told == [("unknown-key", None), ("wrong-scope", "probe"), ("session", None), ("unknown-link", None)]
