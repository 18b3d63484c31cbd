"""A server that is told to end answers requests under way, and ends even if a client never finishes one."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import httpx
import pytest
from tests.server.serving import DOMAIN, PATIENCE, Server

from sfumato.ledger import database, store
from sfumato_server.registry import Scope

ASKERS = 8
LOCK = "SELECT 1 FROM ledger_dataset FOR UPDATE"
WAITING = (
    "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND application_name = :name"
)


def until(found):
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def listens(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


def end(server):
    """Tell it to, and wait until nobody is let in any longer."""
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not listens(server))


@pytest.fixture
def marked():
    return f"end-{secrets.token_hex(4)}"


@pytest.fixture
def server(people, postgres, marked):
    started = Server(f"{postgres}&application_name={marked}", workers=1, fresh=True).start()
    with started.client("stew", Scope.STEWARD) as steward:
        steward.register("people", source=str(people), domain=DOMAIN, limit="1")
    yield started
    started.stop()


def test_questions_under_way_when_the_server_ends_are_answered(server, postgres, marked, monkeypatch):
    """One request waits for a lock, others behind it, and the server is told to end before any is charged."""
    monkeypatch.setattr(database, "SILENCE", 600)  # of who holds the lock
    key = server.key("ana", Scope.ANALYST)

    def ask(number):
        body = {"sql": "SELECT COUNT(*) FROM t WHERE age > 30", "loss": {"epsilon": f"0.00{number + 1}"}}
        headers = {"Authorization": f"Bearer {key}"}
        address = f"{server.address}/v1/datasets/people/query"
        try:
            return httpx.post(address, json=body, headers=headers, trust_env=False, timeout=PATIENCE)
        except httpx.TransportError:  # it came too late
            return None

    assert ask(ASKERS).is_success
    with ThreadPoolExecutor(ASKERS) as pool, closing(store.Store(postgres)) as other:
        with other.writing() as connection:
            connection.rows(LOCK)
            asked = [pool.submit(ask, number) for number in range(ASKERS)]
            until(lambda: connection.value(WAITING, {"name": marked}))
            end(server)
        replies = [reply for each in asked if (reply := each.result()) is not None]
    assert server.process.wait(PATIENCE) is not None
    server.process = None
    assert replies
    assert {reply.status_code for reply in replies} == {200}
    with server.ledger("people") as ledger:
        ledger.verify()
        entries = {entry.number for entry in ledger.journal()}
    assert {reply.json()["provenance"]["journal_entry"] for reply in replies} <= entries


def test_workers_end_when_their_parent_was_killed(tmp_path):
    started = Server(f"sqlite:///{tmp_path}/s.ledger", workers=2, fresh=True).start()
    group = started.process.pid
    try:
        started.process.kill()  # it alone, and it can tell nobody
        started.process.wait()
        until(lambda: not listens(started))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
def test_a_request_that_is_never_finished_does_not_keep_the_server_from_ending(server):
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(b"POST /v1/datasets/people/query HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert httpx.get(f"{server.address}/healthz", trust_env=False).is_success
        end(server)
        assert server.process.wait(PATIENCE) is not None
        server.process = None
