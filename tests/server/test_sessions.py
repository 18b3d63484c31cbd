"""Sessions of the page: begun by keys and links, ended by leaving, and worth nothing on the routes of programs."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from datetime import timedelta
from functools import partial

import httpx
import pytest
from tests.app.test_cli import sfumato
from tests.server.serving import serving, write_people

from sfumato.app.http_client import HttpClient, ServerError
from sfumato.ledger.store import Store
from sfumato_server import application
from sfumato_server.access import COOKIE, RateLimiter
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Registry, Scope
from sfumato_server.service import Service, first_invitation
from sfumato_server.sessions import Sessions


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    with serving(f"sqlite:///{folder}/s.ledger", write_people(folder / "people.parquet")) as started:
        yield started


@pytest.fixture
def browse(server):
    """Makes browsers, each with cookies of its own."""
    opened = []

    def browser(cookies=None):
        headers = {"Accept": "text/html", "Connection": "close"}  # so that either worker may reply
        opened.append(
            httpx.Client(base_url=server.address, cookies=cookies, headers=headers, timeout=60, trust_env=False)
        )
        return opened[-1]

    yield browser
    for each in opened:
        each.close()


@pytest.fixture
def store(tmp_path):
    with closing(Store(f"sqlite:///{tmp_path}/s.ledger")) as opened:
        opened.prepare(create=True)
        yield opened


def test_a_browser_that_entered_holds_no_key(server, browse):
    browser, key = browse(), server.key("ana", Scope.ANALYST)
    assert browser.post("/enter", data={"key": key}).status_code == 303
    session = browser.cookies[COOKIE]
    assert key not in session
    assert "ana, analyst" in browser.get("/").text
    with HttpClient(server.address, session) as program, pytest.raises(ServerError) as refused:
        program.datasets()
    assert refused.value.kind == "missing-key"
    assert browse().post("/enter", data={"key": session}).status_code == 403  # nor does a session begin another


@pytest.mark.parametrize(
    ("scope", "home"), [(Scope.ANALYST, "/"), (Scope.STEWARD, "/steward"), (Scope.OFFICER, "/officer")]
)
def test_a_key_opens_the_first_page_of_its_holder(server, browse, scope, home):
    browser = browse()
    entered = browser.post("/enter", data={"key": server.key("somebody", scope)})
    assert (entered.status_code, entered.headers["location"]) == (303, home)
    assert browser.get(home).status_code == 200


@pytest.mark.parametrize("scope", [Scope.ANALYST, Scope.STEWARD])
def test_no_cookie_opens_a_route_of_programs(server, browse, scope):
    """Another port of the same host is the same site: browsers send the cookie with what its pages post."""
    browser = browse(server.session("eve", scope))
    assert browser.get("/datasets/people").status_code == 200
    for method, path in [
        ("GET", "/v1/datasets"),
        ("POST", "/v1/datasets/people/reading"),
        ("POST", "/v1/keys"),
        ("GET", "/v1/datasets/people/journal"),
    ]:
        reply = browser.request(method, path, headers={"Accept": "application/json"})
        assert (reply.status_code, reply.json()["type"]) == (401, "/problems/missing-key"), path


def test_a_key_in_the_cookie_opens_nothing(server, browse):
    browser = browse({COOKIE: server.key("ana", Scope.ANALYST)})
    assert browser.get("/datasets/people").status_code == 401


def test_logging_out_ends_every_copy_of_the_session(server, browse):
    cookies = server.session("ana", Scope.ANALYST)
    first, copy = browse(cookies), browse(cookies)
    assert copy.get("/datasets/people").status_code == 200
    left = first.post("/leave")
    assert left.status_code == 303
    assert f'{COOKIE}=""' in left.headers["set-cookie"]
    until_forgotten(lambda: copy.get("/datasets/people").status_code == 401)


def test_leaving_everywhere_ends_ones_own_sessions_and_no_others(server, browse):
    mine, elsewhere = (browse(server.session("bob", Scope.ANALYST)) for _ in range(2))
    other = browse(server.session("cleo", Scope.ANALYST))
    assert mine.post("/leave/all").status_code == 303
    until_forgotten(lambda: elsewhere.get("/datasets/people").status_code == 401)
    assert other.get("/datasets/people").status_code == 200


def test_a_steward_ends_everybodys_sessions_and_an_analyst_does_not(server, browse):
    steward, analyst = browse(server.session("stew", Scope.STEWARD)), browse(server.session("dan", Scope.ANALYST))
    assert analyst.post("/steward/sessions/end").status_code == 403
    assert analyst.get("/datasets/people").status_code == 200
    assert steward.post("/steward/sessions/end").status_code == 303
    for browser in (steward, analyst):
        until_forgotten(lambda browser=browser: browser.get("/datasets/people").status_code == 401)


def test_a_form_of_another_port_of_this_host_is_refused(server, browse):
    browser = browse(server.session("stew", Scope.STEWARD))
    foreign = {"Origin": "http://127.0.0.1:1"}
    assert browser.post("/steward/sessions/end", headers=foreign).status_code == 403
    assert browser.get("/steward").status_code == 200


def test_an_address_tries_only_so_many_keys(tmp_path, monkeypatch):
    """On a clock that stands still, as a slow machine would let more of them in."""
    monkeypatch.setattr(application, "RateLimiter", partial(RateLimiter, clock=lambda: 100.0))

    async def tried(service, address):
        transport = httpx.ASGITransport(application.create(service), client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as browser:
            return [await browser.post("/enter", data={"key": f"wrong {number}"}) for number in range(60)]

    with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as service:
        replies = asyncio.run(tried(service, "198.51.100.7"))
    status = [reply.status_code for reply in replies]
    assert (status[:49], status[50:]) == ([403] * 49, [429] * 10)  # of the fiftieth a rounding decides
    assert int(replies[-1].headers["Retry-After"]) >= 1


def until_forgotten(happened):
    """Wait until both workers have forgotten what they trusted; each reply comes from either."""
    end = time.monotonic() + 60
    while not all(happened() for _ in range(6)):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_session_ends_with_its_key(store):
    registry, sessions = Registry(store), Sessions(store)
    key, secret = registry.issue("ana", Scope.ANALYST, timedelta(hours=1))
    session = sessions.start(registry.key(secret))
    holder = sessions.holder(session)
    assert (holder.name, holder.scope, holder.valid, holder.expires) == ("ana", Scope.ANALYST, True, key.expires)
    registry.revoke(key.id)
    assert not sessions.holder(session).valid


def test_sessions_of_one_key_send_no_more_than_the_key(store):
    registry, sessions = Registry(store), Sessions(store)
    key, secret = registry.issue("ana", Scope.ANALYST, timedelta(hours=1))
    holders = [sessions.holder(sessions.start(registry.key(secret))) for _ in range(3)]
    pace = RateLimiter(6, clock=lambda: 100.0)
    pace.take(key.id)
    for holder in holders:
        with pytest.raises(RefusalError):
            pace.take(holder.id)


def test_a_session_lasts_half_a_day(store):
    registry, sessions = Registry(store), Sessions(store)
    _, secret = registry.issue("ana", Scope.ANALYST, timedelta(days=30))
    holder = sessions.holder(sessions.start(registry.key(secret)))
    assert holder.expires - holder.issued == timedelta(hours=12)


def test_secrets_are_not_kept(store):
    registry, sessions = Registry(store), Sessions(store)
    session = sessions.start(registry.issue("ana", Scope.ANALYST, timedelta(days=1))[0])
    with store.reading() as driver:
        assert session not in str(driver.rows("SELECT * FROM service_session"))
    assert sessions.holder(session + "x") is None


def test_a_link_is_printed_only_while_there_is_no_steward_and_ends_earlier_ones(tmp_path):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Store(url)) as store:
        store.prepare(create=True)
        registry, sessions = Registry(store), Sessions(store)
        registry.issue("ana", Scope.ANALYST, timedelta(days=1))
        earlier, later = (first_invitation(url, "").rpartition("=")[2] for _ in range(2))
        assert not registry.key(earlier).valid
        link = registry.key(later)
        assert link.valid
        sessions.start(link)
        assert first_invitation(url, "") is None
        sessions.end_all()
        assert first_invitation(url, "") is not None
        key, _ = registry.issue("stew", Scope.STEWARD, timedelta(days=1))
        assert first_invitation(url, "") is None
        registry.revoke(key.id)
        assert first_invitation(url, "") is not None


def test_keys_are_issued_listed_and_revoked_on_the_command_line(tmp_path):
    where = ("--ledger", "s.ledger")
    sfumato("key", "issue", "stew", "--days", "1", *where, cwd=tmp_path, code=2)
    assert not list(tmp_path.iterdir())
    with closing(Store(f"sqlite:///{tmp_path}/s.ledger")) as store:
        store.prepare(create=True)
        terms = ("--scope", "steward", "--days", "30", *where)
        secret = sfumato("key", "issue", "stew", *terms, cwd=tmp_path).stdout.strip()
        key = Registry(store).key(secret)
        assert (key.name, key.scope, key.valid) == ("stew", Scope.STEWARD, True)
        assert key.id in sfumato("key", "list", *where, cwd=tmp_path).stdout
        sfumato("key", "revoke", key.id, *where, cwd=tmp_path)
        assert not Registry(store).key(secret).valid
        assert "no such key" in sfumato("key", "revoke", key.id, *where, cwd=tmp_path, code=2).stderr
