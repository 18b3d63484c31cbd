"""Starting the server where something is in the way."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.server.serving import Server

from sfumato_server.registry import Scope

COUNTED = r'sfumato_requests_total{status="2xx"} ([0-9.]+)'


def serve(folder, *arguments):
    command = [Path(sys.executable).parent / "sfumato", "serve", "--ledger", "x.ledger", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_said_in_one_sentence_and_nothing_is_made(tmp_path, workers):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = serve(tmp_path, "--port", port, "--workers", workers)
    assert found.returncode == 2
    assert f"Cannot listen on 127.0.0.1 port {port}" in " ".join(found.stderr.split())
    assert "link" not in found.stderr
    assert len(found.stderr.strip().splitlines()) <= 2
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_machine(tmp_path):
    found = serve(tmp_path, "--host", "192.0.2.1", "--port", "0")
    assert found.returncode == 2
    assert "Cannot listen on 192.0.2.1" in " ".join(found.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_single_worker_counts_its_requests_too(tmp_path):
    server = Server(f"sqlite:///{tmp_path}/x.ledger", workers=1, fresh=True).start()
    try:
        headers = {"Authorization": f"Bearer {server.key('prometheus', Scope.MONITOR)}"}
        read = partial(httpx.get, f"{server.address}/metrics", headers=headers, trust_env=False)
        before, after = (float(re.search(COUNTED, read().text)[1]) for _ in range(2))
    finally:
        server.stop()
    assert after == before + 1


def test_a_file_of_the_users_is_left_alone_and_the_server_starts(tmp_path):
    own = tmp_path / "children.parquet"
    own.write_text("mine")
    server = Server(f"sqlite:///{tmp_path}/x.ledger", workers=1, fresh=True, folder=tmp_path).start()
    try:
        assert own.read_text() == "mine"
        with server.client("ana") as analyst:
            assert analyst.datasets() == []
        assert httpx.get(f"{server.address}/healthz", trust_env=False).is_success
    finally:
        server.stop()
