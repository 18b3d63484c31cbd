"""The OpenAPI document against a real server, by generated requests: no crash, and problems in one form."""

from __future__ import annotations

import json

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from sfumato_server.registry import Scope


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
        declared = operation.definition.raw["responses"]
        assert str(reply.status_code) in declared, (operation.label, reply.status_code)
        if reply.status_code >= 400:
            assert reply.headers["content-type"][0] == "application/problem+json"
            assert reply.json()["type"].startswith("/problems/")
            assert "application/problem+json" in declared[str(reply.status_code)]["content"]
        replies.append(reply.status_code)

    one()
    return len(replies)


def test_the_document_names_every_endpoint_and_no_page(server):
    paths = httpx.get(f"{server.address}/openapi.json", timeout=60, trust_env=False).json()["paths"]
    assert {"/v1/datasets", "/v1/datasets/{name}/query", "/v1/datasets/{name}/cost", "/v1/keys"} <= set(paths)
    assert not any(path.startswith(("/steward", "/enter")) for path in paths)


def test_the_document_says_that_a_key_is_needed_and_what_a_refusal_looks_like(server):
    document = httpx.get(f"{server.address}/openapi.json", timeout=60, trust_env=False).json()
    schemes, schemas = (document["components"][name] for name in ("securitySchemes", "schemas"))
    assert schemes["key"]["scheme"] == "bearer"
    assert "HTTPValidationError" not in json.dumps(document)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation.get("security", []) == (
                [{"key": []}] if path.startswith("/v1/") or path == "/metrics" else []
            )
            if path.startswith("/v1/"):
                assert {"401", "403", "413", "422", "503"} <= set(operation["responses"])
    assert list(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    reply = httpx.get(f"{server.address}/v1/datasets", timeout=60, trust_env=False).json()
    assert set(schemas["Problem"]["required"]) <= set(reply) <= set(schemas["Problem"]["properties"])


def test_the_document_says_that_losses_are_text_or_numbers(server):
    schemas = httpx.get(f"{server.address}/openapi.json", timeout=60, trust_env=False).json()["components"]["schemas"]
    kinds = schemas["LossFields"]["properties"]["epsilon"]["anyOf"]
    flat = [each for kind in kinds for each in kind.get("anyOf", [kind])]
    assert {each["type"] for each in flat} == {"string", "number", "null"}
    assert [each["maxLength"] for each in flat if each["type"] == "string"] == [60]
