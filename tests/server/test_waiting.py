"""Questions that wait for the ledger keep nobody else from being answered."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
from tests.server.serving import PATIENCE

from sfumato_server.registry import Scope


def test_a_worker_goes_on_while_a_question_waits_for_the_ledger(server):
    """Sixteen questions wait for a lock that another process holds; the worker still answers others."""
    with closing(sqlite3.connect(server.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        headers = {"Authorization": f"Bearer {server.key('busy', Scope.ANALYST)}"}
        ask = {"sql": "SELECT COUNT(*) FROM people WHERE age > 30", "loss": {"epsilon": "0.001"}}
        post = {
            "url": f"{server.address}/v1/datasets/people/query",
            "headers": headers,
            "trust_env": False,
            "timeout": PATIENCE,
        }
        assert httpx.post(json=ask, **post).status_code == 200
        other.execute("BEGIN IMMEDIATE")
        bodies = [ask | {"loss": {"epsilon": f"0.00{number}"}} for number in range(2, 18)]
        with ThreadPoolExecutor(len(bodies)) as pool:
            waiting = [pool.submit(httpx.post, json=body, **post) for body in bodies]
            for _ in range(20):  # whichever worker takes them
                assert httpx.get(f"{server.address}/healthz", trust_env=False, timeout=PATIENCE).is_success
            assert not any(each.done() for each in waiting)
            other.execute("ROLLBACK")
            replies = [each.result() for each in waiting]
    assert {reply.status_code for reply in replies} == {200}
    with server.ledger("people") as ledger:
        ledger.verify()
