"""Only stewards see who spent a budget."""

from __future__ import annotations

import pytest
from tests.server.serving import DOMAIN, Server
from tests.server.test_anonymizations import finished

from sfumato.app.http_client import ServerError
from sfumato_server.registry import Scope

COUNT = "SELECT COUNT(*) FROM people WHERE age >= 30"


@pytest.fixture
def spent(tmp_path, people):
    """A server whose one epsilon was spent by two analysts, but for a tenth."""
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()
    with server.client("stew", Scope.STEWARD) as steward:
        steward.register("people", source=str(people), domain=DOMAIN, limit="1")
    with server.client("ana") as ana, server.client("bob") as bob:
        ana.ask("people", COUNT, epsilon="0.6")
        bob.ask("people", COUNT, epsilon="0.3")
    yield server
    server.stop()


def refused(client):
    with pytest.raises(ServerError) as caught:
        client.ask("people", COUNT, epsilon="0.2")
    assert (caught.value.kind, caught.value.problem["charged"]) == ("budget-exceeded", False)
    assert "epsilon = 0.1 left of epsilon = 1" in caught.value.problem["detail"]
    return caught.value.problem


def test_a_steward_is_told_who_spent_it(spent):
    with spent.client("stew", Scope.STEWARD) as steward:
        problem = refused(steward)
        assert problem["spent_by"] == {"ana": "epsilon = 0.6", "bob": "epsilon = 0.3"}
        assert "ana: epsilon = 0.6" in problem["detail"]
        assert steward.budget("people")["spent_by"] == problem["spent_by"]
        job = finished(steward, steward.release("people", method="histogram", epsilon="0.5"))
        assert job["state"] == "failed"
        assert "bob: epsilon = 0.3" in job["note"]


def test_an_analyst_is_told_what_is_left_and_of_nobody_else(spent):
    with spent.client("ana") as analyst:
        problem = refused(analyst)
        assert "spent_by" not in problem
        assert "bob" not in str(problem)
        assert "spent_by" not in analyst.budget("people")
