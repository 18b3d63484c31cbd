"""Clients who leave: a request that did not arrive in full is none."""

from __future__ import annotations

import json
import socket
from fractions import Fraction

from tests.server.serving import PATIENCE

from sfumato_server.registry import Scope

REQUESTS = 8  # so that each worker gets some


def leave(server, key, path, kind, body):
    """Promise one byte more than there is, and leave."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        connection.sendall(head.encode() + body)


def test_a_request_that_did_not_arrive_in_full_is_neither_answered_nor_charged(server):
    """The received part is a valid question: complete, or a form whose last field may lack a digit."""
    key = server.key("lea", Scope.ANALYST)
    statement = "SELECT COUNT(*) FROM t WHERE age < 50"
    question = json.dumps({"sql": statement, "loss": {"epsilon": "0.01"}}).encode()
    form = b"how=sql&sql=SELECT+COUNT(*)+FROM+t+WHERE+sex+IN+('F')&epsilon=0.0"
    for _ in range(REQUESTS):
        leave(server, key, "/v1/datasets/people/query", "application/json", question)
        leave(server, key, "/datasets/people/ask", "application/x-www-form-urlencoded", form + b"2")
    for turn in range(REQUESTS):  # each worker comes to these after the others
        with server.client("lea") as client:
            client.ask("people", statement, epsilon=f"0.000{turn + 1}")
    with server.ledger("people") as ledger:
        costs = [entry.charge.epsilon for entry in ledger.journal() if entry.analyst == "lea"]
    assert sorted(costs) == [Fraction(turn + 1, 10_000) for turn in range(REQUESTS)]
