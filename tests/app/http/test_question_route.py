"""Questions by their own way past the framework: every reply is the one that the framework would have given."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from tests.app.http.serving import DOMAIN, ROWS

from sfumato.app.http import question_route
from sfumato.app.http.asgi import create
from sfumato.app.http.question_route import QuestionRoute
from sfumato.app.http.registry import Scope
from sfumato.app.http.service import Service

ASKED = {"sql": "SELECT COUNT(*) FROM people", "loss": {"epsilon": "0.5"}}
PATH = "/v1/datasets/people/query"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def service(tmp_path_factory, people):
    with closing(Service(f"sqlite:///{tmp_path_factory.mktemp('asked')}/s.ledger", create=True)) as made:
        made.register("people", source=str(people), domain=DOMAIN, limit="10", more={"rows": ROWS})
        yield made


@pytest.fixture(scope="module")
def key(service):
    return {"Authorization": f"Bearer {service.registry.issue('ana', Scope.ANALYST, timedelta(hours=1))[1]}"}


@pytest.fixture(scope="module")
def plain(service):
    return Asked(create(service))


@pytest.fixture(scope="module")
def framework(service):
    app = create(service)
    app.user_middleware = [each for each in app.user_middleware if each.cls is not QuestionRoute]
    return Asked(app)


class Asked:
    def __init__(self, app):
        self._app = app

    def send(self, method, path, **what):
        async def sent():
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.request(method, path, **what)

        return asyncio.run(sent())

    def post(self, path, **what):
        return self.send("POST", path, **what)


def said(response):
    headers = {name: value for name, value in response.headers.items() if name != "x-request-id"}
    return response.status_code, headers, response.text


FORMS = {
    "not JSON": (b"{", JSON),
    "nothing": (b"", JSON),
    "a key twice": (b'{"sql": "a", "sql": "b", "loss": {"epsilon": "1"}}', JSON),
    "a number that is none": (b'{"sql": "a", "loss": {"epsilon": NaN}}', JSON),
    "a list": (b"[]", JSON),
    "a field too many": (json.dumps(ASKED | {"more": 1}).encode(), JSON),
    "no loss": (b'{"sql": "SELECT COUNT(*) FROM people"}', JSON),
    "a confidence of two": (json.dumps(ASKED | {"confidence": 2}).encode(), JSON),
    "text": (json.dumps(ASKED).encode(), {"Content-Type": "text/plain"}),
    "no type": (json.dumps(ASKED).encode(), {}),
    "no column": (json.dumps(ASKED | {"sql": "SELECT COUNT(*) FROM people WHERE x = 1"}).encode(), JSON),
    "no statement": (json.dumps({"loss": ASKED["loss"]}).encode(), JSON),
    "no meaning": (json.dumps(ASKED | {"loss": {"delta": "1e-9"}}).encode(), JSON),
    "above the budget": (json.dumps(ASKED | {"loss": {"epsilon": "99"}}).encode(), JSON),
    "a retry key of nothing": (json.dumps(ASKED).encode(), JSON | {"Idempotency-Key": ""}),
    "a retry key too long": (json.dumps(ASKED).encode(), JSON | {"Idempotency-Key": "k" * 201}),
    "no encoding": (b'{"sql": "\xff"}', JSON),
}


@pytest.mark.parametrize("path", [PATH, "/v1/datasets/nobody/query", "/v1/datasets/a%2Fb/query", f"{PATH}/"])
def test_refusals_are_those_of_the_framework(plain, framework, key, path) -> None:
    for name, (content, headers) in FORMS.items():
        for who in (key, {}):
            replies = [said(each.post(path, content=content, headers=headers | who)) for each in (plain, framework)]
            assert replies[0] == replies[1], name
            assert replies[0][0] >= 300, name


@pytest.mark.parametrize("secret", ["", "Bearer", "Bearer nobody", "Basic abc"])
def test_strangers_are_refused_as_by_the_framework(plain, framework, secret) -> None:
    replies = [said(each.post(PATH, json=ASKED, headers={"Authorization": secret})) for each in (plain, framework)]
    assert replies[0] == replies[1]
    assert replies[0][0] == 401


def test_answers_are_those_of_the_framework_and_charged_once(service, plain, framework, key) -> None:
    more = key | {"Idempotency-Key": "first"}
    first, again = (each.post(PATH, json=ASKED, headers=more) for each in (plain, framework))
    assert first.status_code == again.status_code == 200
    assert first.headers.keys() == again.headers.keys()
    assert first.json()["rows"] == again.json()["rows"]
    other = ASKED | {"loss": {"epsilon": "0.25"}}
    reused = [said(each.post(PATH, json=other, headers=more)) for each in (plain, framework)]
    assert reused[0] == reused[1]
    assert reused[0][0] == 409
    assert str(service.loaded("people").ledger.remaining()) == "epsilon = 9.5 left of epsilon = 10"


def test_well_formed_questions_do_not_pass_the_framework(plain, key, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(question_route, "holder", asked.append)  # what it returns cannot be awaited
    assert plain.post(PATH, json=ASKED, headers=key).status_code == 500
    assert len(asked) == 1
    assert plain.send("GET", PATH, headers=key).status_code == 405
    assert plain.post("/v1/datasets/people/cost", json=ASKED, headers=key).status_code == 200
    assert len(asked) == 1


def test_what_breaks_inside_says_nothing_of_it(service, plain, key, monkeypatch) -> None:
    def broken(*_):
        raise RuntimeError("Alice is 44")

    monkeypatch.setattr(service, "admit_to", broken)
    reply = plain.post(PATH, json=ASKED, headers=key)
    assert reply.status_code == 500
    assert "Alice" not in reply.text
    assert reply.json()["charged"] is None
