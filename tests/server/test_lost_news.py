"""The server misses confirmations of commits: clients retry with their keys, and no question is charged twice."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest
from tests.ledger.commits import Wire
from tests.server.serving import DOMAIN, Server
from tests.server.test_safety import check, one, run

from sfumato.ledger import Kind
from sfumato_server.registry import Scope

CLIENTS, QUESTIONS = 8, 12


@pytest.fixture
def wire(postgres):
    with closing(Wire(postgres)) as made:
        yield made


@pytest.fixture
def server(people, wire):
    started = Server(wire.url, workers=2).start()
    with started.client("stew", Scope.STEWARD) as steward:
        steward.register("people", source=str(people), domain=DOMAIN, limit="1")
    yield started
    started.stop()


def test_a_commit_that_the_server_does_not_hear_of_is_not_paid_twice(server, wire):
    def ask(client, place):
        found = []
        for number in range(QUESTIONS):
            statement = f"SELECT COUNT(*) FROM t WHERE age >= {place * QUESTIONS + number + 1}"  # noqa: S608
            for _ in range(50):
                found.append(one(client, statement, "0.01", f"{place}-{number}"))
                if isinstance(found[-1], tuple):
                    break
        return found

    clients = [server.client(f"analyst{place}") for place in range(CLIENTS)]
    commits = itertools.count()
    wire.breaks = lambda: next(commits) % 4 == 3
    delivered, refused = run(clients, ask)
    wire.breaks = lambda: False
    assert wire.broken
    assert set(refused) <= {"ledger-unavailable"}
    assert len(delivered) == CLIENTS * QUESTIONS
    check(server, delivered)
    with server.ledger("people") as ledger:
        assert float(ledger.remaining().spent.epsilon) == CLIENTS * QUESTIONS / 100
        releases = [entry for entry in ledger.journal() if entry.kind is Kind.RELEASE]
        assert len(releases) == CLIENTS * QUESTIONS
