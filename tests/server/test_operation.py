"""Facilities for an operator: readiness that writes, a log, figures, HEAD, proxies, limits on slow clients."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import socket
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from datetime import timedelta

import httpx
import psycopg
import pytest
from tests.ledger.asking import behind_its_back, unfreeze
from tests.server.serving import DOMAIN, Server

from sfumato.errors import LedgerError
from sfumato.ledger.database import DatabaseError, Exhaustion, Sqlite, exhaustion, translate_errors
from sfumato.ledger.store import KEPT, MORE
from sfumato_server.application import create
from sfumato_server.registry import Scope
from sfumato_server.service import Service


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s.ledger"


@pytest.fixture
def worker(place, people):
    with closing(Service(f"sqlite:///{place}", create=True)) as opened:
        opened.register("people", source=str(people), domain=DOMAIN, limit="2", more={})
        yield opened


def ask(worker, method, path, secret=None, **more):
    """Send one request to an application in this process."""

    async def send():
        transport = httpx.ASGITransport(create(worker))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
            return await client.request(method, path, headers=headers, **more)

    return asyncio.run(send())


def key(worker, name, scope):
    return worker.registry.issue(name, scope, timedelta(days=1))[1]


def unready(worker):
    reply = ask(worker, "GET", "/readyz")
    assert reply.status_code == 503, reply.text
    return reply.json()["type"].removeprefix("/problems/")


def test_a_worker_is_ready_when_its_ledger_takes_what_is_written(worker):
    assert ask(worker, "GET", "/readyz").json() == {"status": "ready"}
    with worker._store.reading() as driver:  # noqa: SLF001
        assert driver.value("SELECT COUNT(*) FROM service_probe") == 1


def test_a_full_disk_is_named(worker, monkeypatch):
    connect = Sqlite.connect

    def small(self):
        connection = connect(self)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(Sqlite, "connect", small)
    worker._store._connections._idle.clear()  # noqa: SLF001  (they may grow)
    filler = "x" * 3_000_000
    with pytest.raises(LedgerError, match="disk is full"), worker._store.writing() as driver:  # noqa: SLF001
        driver.insert("service_probe", [{"id": "filler", "written": filler}])
    assert unready(worker) == "disk-full"


def test_a_moved_ledger_is_named(worker, place):
    moved = place.with_suffix(".moved")
    place.rename(moved)
    assert unready(worker) == "ledger-moved"
    shutil.copy(moved, place)
    assert unready(worker) == "ledger-moved"
    place.unlink()
    moved.rename(place)
    assert ask(worker, "GET", "/readyz").is_success


def set_back(url):
    """Take the last release away, as an old copy of the database does that is restored."""
    unfreeze(url)
    behind_its_back(
        url,
        "DELETE FROM ledger_answer",
        "DELETE FROM ledger_entry WHERE number = 2",
        "UPDATE ledger_dataset SET entries = 1, answers = 0, epsilon = '0', rho = '0', spent_units = 0, "
        "head = (SELECT hash FROM ledger_entry WHERE number = 1)",
    )


def question(number):
    return {"json": {"sql": f"SELECT COUNT(*) FROM people WHERE age > {number}", "loss": {"epsilon": "0.1"}}}  # noqa: S608


def test_a_ledger_that_was_set_back_is_named_everywhere(url, people, caplog):
    with closing(Service(url, create=True)) as worker, closing(Service(url)) as other:
        worker.register("people", source=str(people), domain=DOMAIN, limit="2", more={})
        ana = key(worker, "ana", Scope.ANALYST)
        assert ask(worker, "POST", "/v1/datasets/people/query", ana, **question(1)).is_success
        assert ask(other, "GET", "/v1/datasets/people", ana).is_success  # which opens the ledger and charges nothing
        for each in (worker, other):
            assert ask(each, "GET", "/readyz").is_success
        set_back(url)
        for each in (worker, other):
            with caplog.at_level(logging.INFO):
                caplog.clear()
                assert unready(each) == "ledger-moved"
                assert any('"reason": "ledger-moved"' in record.getMessage() for record in caplog.records)
                caplog.clear()
                reply = ask(each, "POST", "/v1/datasets/people/query", ana, **question(2))
            found = reply.json()
            assert (found["type"], found["status"], found["charged"]) == ("/problems/ledger-moved", 503, False)
            assert any('"reason": "ledger-moved"' in record.getMessage() for record in caplog.records)
            for path in ("/v1/datasets", "/v1/datasets/people", "/v1/datasets/people/budget"):
                found = ask(each, "GET", path, ana).json()
                assert (found["type"], found["status"], "left" in found) == ("/problems/ledger-moved", 503, False)
        with closing(Service(url)) as restarted:  # by an operator who continues with the existing state
            assert ask(restarted, "GET", "/readyz").is_success


def test_a_worker_without_a_free_connection_is_named(worker, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.database.PATIENCE", 0.1)
    with ExitStack() as busy:
        for _ in range(KEPT + MORE):
            busy.enter_context(worker._store._connections.borrow())  # noqa: SLF001
        assert unready(worker) == "too-many-connections"
    assert ask(worker, "GET", "/readyz").is_success


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        (psycopg.OperationalError("FATAL:  sorry, too many clients already"), Exhaustion.CONNECTIONS),
        (psycopg.OperationalError('FATAL:  too many connections for role "a"'), Exhaustion.CONNECTIONS),
        (
            psycopg.OperationalError("FATAL:  remaining connection slots are reserved for roles with SUPERUSER"),
            Exhaustion.CONNECTIONS,
        ),
        (psycopg.errors.TooManyConnections("x"), Exhaustion.CONNECTIONS),
        (psycopg.errors.DiskFull("x"), Exhaustion.DISK),
        (psycopg.OperationalError("connection refused"), None),
        (sqlite3.OperationalError("x"), None),
    ],
)
def test_what_a_database_is_short_of_is_told_apart(origin, found):
    def failing():
        with translate_errors("here"):
            raise DatabaseError(origin, lost=False, refused=False)

    with pytest.raises(LedgerError) as failed:
        failing()
    assert exhaustion(failed.value) is found


def lines(caplog, event):
    found = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sfumato.http"]
    return [line for line in found if line["event"] == event]


def test_a_request_is_logged_with_its_id_path_key_client_and_reason(worker, caplog):
    secret = key(worker, "ana", Scope.ANALYST)
    (issued,) = worker.registry.all_keys()
    with caplog.at_level(logging.INFO):
        fine = ask(worker, "GET", "/v1/datasets/people?x=secret-of-a-query", secret)
        refused = ask(worker, "GET", "/v1/datasets/none", secret)
        unknown = ask(worker, "GET", "/v1/datasets", "nobody's")
        ask(worker, "GET", "/" + "a" * 500)
    logged = lines(caplog, "request")
    assert [line["status"] for line in logged] == [200, 404, 401, 404]
    for reply, line in zip((fine, refused, unknown), logged, strict=False):
        assert reply.headers["x-request-id"] == line["id"]
        assert (line["method"], line["client"]) == ("GET", "127.0.0.1")
    assert [line["path"] for line in logged[:3]] == ["/v1/datasets/people", "/v1/datasets/none", "/v1/datasets"]
    assert [line.get("key") for line in logged[:3]] == [issued.id, issued.id, None]
    assert [line.get("reason") for line in logged[:3]] == [None, "unknown-dataset", "unknown-key"]
    assert len(logged[3]["path"]) == 200
    ours = json.dumps(logged)
    assert secret not in ours
    assert "secret-of-a-query" not in ours


def test_figures_need_a_key_of_their_own_that_opens_nothing_else(worker):
    monitor = key(worker, "prometheus", Scope.MONITOR)
    assert ask(worker, "GET", "/metrics").status_code == 401
    assert ask(worker, "GET", "/metrics", key(worker, "ana", Scope.ANALYST)).status_code == 403
    assert ask(worker, "GET", "/metrics", key(worker, "stew", Scope.STEWARD)).is_success
    for path in ("/v1/datasets", "/v1/datasets/people/budget", "/v1/keys"):
        assert ask(worker, "GET", path, monitor).status_code == 403
    question = {"sql": "SELECT COUNT(*) FROM t", "loss": {"epsilon": "1"}}
    assert ask(worker, "POST", "/v1/datasets/people/query", monitor, json=question).status_code == 403
    assert ask(worker, "POST", "/enter", data={"key": monitor}).status_code == 403
    answered = ask(worker, "POST", "/v1/datasets/people/query", key(worker, "ana", Scope.ANALYST), json=question)
    assert answered.is_success
    found = ask(worker, "GET", "/metrics", monitor).text
    assert 'sfumato_budget_left_ratio{dataset="people"} 0.5' in found
    assert 'sfumato_releases{state="queued"} 0.0' in found
    assert "sfumato_ledger_up 1.0" in found
    assert 'sfumato_refusals_total{kind="wrong-scope"}' in found
    assert 'sfumato_request_seconds_count{route="/v1/datasets/{name}/query"}' in found
    assert "ana" not in found.replace("management", "").replace("analysts", "")  # a route of the pages


def test_every_figure_of_the_dashboard_is_one_that_the_server_has(worker):
    from tests.test_deployment import DEPLOYMENT, alerts, figures_of

    monitor = key(worker, "prometheus", Scope.MONITOR)
    ask(worker, "GET", "/metrics", monitor)
    found = ask(worker, "GET", "/metrics", monitor).text
    named = figures_of(json.loads((DEPLOYMENT / "grafana.json").read_text(encoding="utf-8")))
    named += re.findall(r"\bsfumato_\w+", " ".join(rule["expr"] for rule in alerts()))
    assert len(named) >= 12
    for name in named:
        assert f"# TYPE {name.removesuffix('_bucket').removesuffix('_count').removesuffix('_total')}" in found, name


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/static/page.css", "/v1/datasets/people"])
def test_head_is_get_without_a_body(worker, path):
    secret = key(worker, "ana", Scope.ANALYST)
    got, headed = ask(worker, "GET", path, secret), ask(worker, "HEAD", path, secret)
    assert (headed.status_code, headed.content) == (got.status_code, b"")
    assert headed.headers.get("content-length") == got.headers.get("content-length")
    assert headed.headers["content-type"] == got.headers["content-type"]


def test_head_spends_nothing(worker):
    assert ask(worker, "HEAD", "/v1/datasets/people/query", key(worker, "ana", Scope.ANALYST)).status_code == 405


HALF = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "half its headers": b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: ",
    "half its body": b"POST /enter HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nkey=",
}


def test_hundreds_of_half_sent_requests_do_not_stay_open(tmp_path):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=("--arrival", "2")).start()
    try:
        with ExitStack() as opened:
            started = []
            for number in range(600):
                line = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                line.sendall(list(HALF.values())[number % len(HALF)])
                started.append(line)
            assert httpx.get(f"{server.address}/healthz", trust_env=False).is_success  # others are served meanwhile
            end = time.monotonic() + 60
            while started and time.monotonic() < end:
                started = [line for line in started if is_open(line)]
                for line in started[:5]:
                    drip(line)  # what comes drop by drop is no request either
                time.sleep(0.1)
            assert not started
    finally:
        server.stop()


def is_open(line):
    line.setblocking(False)
    try:
        return line.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        line.setblocking(True)


def drip(line):
    with suppress(OSError):
        line.sendall(b"a")


@pytest.mark.parametrize(("trusted", "refused"), [((), True), (("--trusted-proxy", "127.0.0.1"), False)])
def test_who_asks_is_believed_of_a_trusted_proxy_alone(tmp_path, trusted, refused):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=trusted).start()
    try:
        with httpx.Client(base_url=server.address, timeout=60, trust_env=False) as client:
            said = set()
            for number in range(2000 if refused else 80):  # on a busy machine it takes more until they are too many
                known = {"X-Forwarded-For": f"10.0.{number % 200}.1"}
                said.add(client.post("/enter", data={"key": "wrong"}, headers=known).status_code)
                if 429 in said:
                    break
        assert (429 in said) is refused
    finally:
        server.stop()


def test_forms_come_from_the_address_that_people_use_and_cookies_by_tls_alone(tmp_path):
    base = ("--base-url", "https://here.example/")
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=base).start()
    try:
        with httpx.Client(
            base_url=server.address, headers={"Host": "here.example"}, timeout=60, trust_env=False
        ) as client:
            entered = {"data": {"key": server.key("ana", Scope.ANALYST)}}
            for origin in ("http://here.example", "https://evil.example", "null"):
                assert client.post("/enter", headers={"Origin": origin}, **entered).status_code == 403
            reply = client.post("/enter", headers={"Origin": "https://here.example"}, **entered)
            assert reply.status_code == 303
            assert "Secure" in reply.headers["set-cookie"]
            client.headers["Cookie"] = "; ".join(map("=".join, server.session("stew", Scope.STEWARD).items()))
            form = {"holder": "bob", "scope": "analyst", "days": "1"}
            reply = client.post("/steward/keys", headers={"Origin": "https://here.example"}, data=form)
            assert reply.status_code == 303
            (note,) = reply.headers.get_list("set-cookie")  # with the key
            assert note.startswith("sfumato_note=")
            assert "Secure" in note
    finally:
        server.stop()
