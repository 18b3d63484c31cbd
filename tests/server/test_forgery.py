"""Forged cookies, sessions and logins against a live server, and what belongs to another analyst."""

from __future__ import annotations

import secrets
import time

import httpx
import pytest
from tests.server.serving import serving, write_people

from sfumato.app.http_client import ServerError
from sfumato_server.access import COOKIE
from sfumato_server.registry import Scope, secret_hash

PAGES = ("/steward", "/datasets/people", "/datasets/people/releases")
REQUESTS = ("/v1/datasets", "/v1/keys", "/v1/approvals", "/metrics")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forgery")
    with serving(f"sqlite:///{folder}/s.ledger", write_people(folder / "people.parquet")) as started:
        yield started


@pytest.fixture
def stranger(server):
    with httpx.Client(base_url=server.address, headers={"Accept": "text/html"}, timeout=60, trust_env=False) as opened:
        yield opened


def forged(session):
    """Cookies that are nearly a session, or what the database keeps of one."""
    swapped = session[:-1] + ("A" if session[-1] != "A" else "B")
    yield from (swapped, session[:-1], session + "=", session.upper(), session.replace("session", "steward"))
    yield from (secret_hash(session), "sfumato_session_", "sfumato_session_' OR 1=1 --", "null", "a" * 4000)
    yield f"sfumato_session_{secrets.token_urlsafe(32)}"


def test_forged_cookies_open_nothing(server, stranger):
    session = server.session("stew", Scope.STEWARD)[COOKIE]
    for cookie in forged(session):
        for page in PAGES:
            reply = stranger.get(page, headers={"Cookie": f"{COOKIE}={cookie}"})
            assert reply.status_code == 401, (cookie, page)
    assert stranger.get("/steward", headers={"Cookie": f"{COOKIE}={session}"}).status_code == 200


def test_forged_keys_open_nothing(server, stranger):
    key = server.key("stew", Scope.STEWARD)
    session = server.session("stew", Scope.STEWARD)[COOKIE]
    for secret in (key[:-1], key + "x", secret_hash(key), session, "null"):
        for path in REQUESTS:
            headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
            assert stranger.get(path, headers=headers).status_code == 401, (secret, path)


def test_two_cookies_of_one_name_open_no_more_than_one(server, stranger):
    mine, other = (server.session(name, Scope.ANALYST)[COOKIE] for name in ("ana", "bob"))
    reply = stranger.get("/steward", headers={"Cookie": f"{COOKIE}={mine}; {COOKIE}={other}"})
    assert reply.status_code == 403


def test_nobody_logs_in_by_a_provider_that_is_not_there(stranger):
    assert stranger.get("/login").status_code == 404
    assert stranger.get("/login/back", params={"code": "c", "state": "s"}).status_code == 404


def test_releases_and_questions_of_another_are_not_there(server):
    with server.client("ana") as ana, server.client("bob") as bob, server.client("stew", Scope.STEWARD) as steward:
        job = ana.release("people", method="histogram", attributes=["sex"], epsilon="0.1")
        end = time.monotonic() + 60
        while ana.progress(job)["state"] != "done":
            assert time.monotonic() < end
            time.sleep(0.1)
        for call in (bob.progress, bob.rows):
            with pytest.raises(ServerError) as refused:
                call(job)
            assert refused.value.kind == "unknown-release"
        assert steward.progress(job)["state"] == "done"
        assert ana.rows(job)
        asked = {each["number"] for each in ana.journal("people")}
        assert asked
        assert not asked & {each["number"] for each in bob.journal("people")}
    cookies = server.session("bob", Scope.ANALYST)
    with httpx.Client(base_url=server.address, cookies=cookies, timeout=60, trust_env=False) as browser:
        for path in (f"/releases/{job}", f"/releases/{job}/rows", f"/releases/{job}/progress"):
            assert browser.get(path).status_code == 404, path
        assert job not in browser.get("/datasets/people/releases").text
