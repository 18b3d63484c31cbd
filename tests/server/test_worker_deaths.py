"""A worker that dies is replaced, and the log and the figures of the server say so."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.server.serving import PATIENCE, Server

from sfumato_server.registry import Scope


def until(found):
    deadline = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def workers_of(parent):
    """Return the processes of a server, without helper processes of Python."""
    found = []
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes():
                found.append(int(each))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds workers in /proc")
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "killed by signal 9 (Killed); the system kills so when memory runs out"),
        (signal.SIGSEGV, "killed by signal 11 (Segmentation fault)"),
    ],
)
def test_the_death_of_a_worker_is_logged_with_its_reason(number, reason, tmp_path):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=2, fresh=True, log=tmp_path / "log").start()
    try:
        monitor = {"Authorization": f"Bearer {server.key('mona', Scope.MONITOR)}"}
        parent = server.process.pid
        until(lambda: len(workers_of(parent)) == 2)
        victim, other = workers_of(parent)
        os.kill(victim, number)
        found = until(lambda: [each for each in lines(server.log) if each["event"] == "worker died"])
        assert [(each["worker"], each["reason"]) for each in found] == [(victim, reason)]
        until(lambda: len(workers_of(parent)) == 2 and other in workers_of(parent))
        until(lambda: "sfumato_workers_replaced_total 1.0" in figures(server, monitor))
    finally:
        server.stop()


def figures(server, headers):
    with suppress(httpx.TransportError):
        return httpx.get(f"{server.address}/metrics", headers=headers, trust_env=False).text
    return ""


def lines(log):
    return [json.loads(each) for each in log.read_text().splitlines() if each.startswith("{")]
