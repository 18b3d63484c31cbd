"""The OpenAPI document against a real server, by generated requests: no crash, and problems in one form."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from sfumato.ledger.registry import Scope


@pytest.fixture(scope="module")
def schema(server):
    return schemathesis.openapi.from_url(f"{server.address}/openapi.json")


@pytest.fixture(scope="module")
def secret(server):
    return server.key("fuzz", Scope.STEWARD)


def test_generated_requests_are_answered_or_refused(schema, secret):
    seen = 0
    for found in schema.get_all_operations():
        seen += hammer(found.ok(), secret)
    assert seen > 100


def hammer(operation, secret) -> int:
    """Valid and invalid requests of one operation; returns how many."""
    replies = []

    @given(case=operation.as_strategy())
    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def one(case):
        if "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "people"
        reply = case.call(headers={"Authorization": f"Bearer {secret}"})
        assert reply.status_code < 500, (operation.label, reply.text)
        if reply.status_code >= 400:
            assert reply.headers["content-type"][0] == "application/problem+json"
            assert reply.json()["type"].startswith("/problems/")
        replies.append(reply.status_code)

    one()
    return len(replies)


def test_the_document_names_every_endpoint_and_no_page(server):
    paths = httpx.get(f"{server.address}/openapi.json", trust_env=False).json()["paths"]
    assert {"/v1/datasets", "/v1/datasets/{name}/query", "/v1/datasets/{name}/cost", "/v1/keys"} <= set(paths)
    assert not any(path.startswith(("/steward", "/enter")) for path in paths)
