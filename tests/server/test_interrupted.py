"""A worker is killed in the middle of a background release: the release fails, and its charge is reported."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.server.mutants import HALT
from tests.server.serving import DOMAIN, Server

from sfumato.ledger import Kind
from sfumato_server.registry import Scope


@pytest.fixture(params=["before the charge", "after the charge"])
def step(request):
    return request.param


@pytest.fixture
def halted(tmp_path, step, monkeypatch):
    """Gets the number of the worker whose release halts."""
    file = tmp_path / "worker"
    monkeypatch.setenv(HALT, f"{step}:{file}")
    return file


@pytest.fixture
def server(url, people, halted):
    started = Server(url, workers=2, mutant="halting").start()
    with started.client("stew", Scope.STEWARD) as steward:
        steward.register("people", source=str(people), domain=DOMAIN, limit="1")
    yield started
    started.stop()


def until(found):
    """Return the final result."""
    deadline = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def over(client, job):
    """The state of a job when it is over."""
    return until(lambda: (state := client.progress(job))["state"] in ("done", "failed") and state)


def ask(client):
    return client.release("people", method="histogram", attributes=["sex", "age"], epsilon="0.6")


def test_a_release_whose_worker_is_killed_has_failed_and_is_never_paid_twice(server, halted, step):
    analyst, charged = server.client("ana"), step == "after the charge"
    job = ask(analyst)
    worker = int(until(lambda: halted.exists() and halted.read_text()))
    assert analyst.progress(job)["state"] == "running"
    os.kill(worker, signal.SIGKILL)
    state = over(analyst, job)
    assert state["state"] == "failed"
    assert "if it was charged, the charge stands" in state["note"]
    with server.ledger("people") as ledger:
        ledger.verify()
        assert float(ledger.remaining().spent.epsilon) == (0.6 if charged else 0)
        assert float(ledger.remaining("ana").spent.epsilon) == (0.6 if charged else 0)
    again = over(analyst, ask(analyst))
    assert again["state"] == "done", again
    assert analyst.rows(again["job"]).count("\n") > 100
    with server.ledger("people") as ledger:
        ledger.verify()
        assert float(ledger.remaining().spent.epsilon) == 0.6
        assert [entry.analyst for entry in ledger.journal() if entry.kind is Kind.RELEASE] == ["ana"]
