"""The OpenAPI document: what the framework knows of the routes, with their refusals and what opens them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from sfumato.app.http.problems import MEDIA
from sfumato.query.answer_formats import ARROW, PARQUET

_PROBLEM = {
    "title": "Problem",
    "description": "Why a request was refused or failed (RFC 9457); `type` is stable.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "charged"],
    "properties": {
        "type": {"type": "string", "examples": ["/problems/budget-exceeded"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "charged": {
            "type": ["boolean", "null"],
            "description": "Whether something was spent; null: unknown, and the same question asked again is free "
            "unless noise was drawn.",
        },
        "line": {"type": "integer", "description": "Of a refused statement."},
        "column": {"type": "integer", "description": "Of a refused statement."},
        "errors": {
            "type": "array",
            "description": "What is wrong with the form of a request.",
            "items": {
                "type": "object",
                "required": ["place", "reason"],
                "properties": {"place": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
        "spent_by": {
            "type": "object",
            "description": "For stewards: what each analyst spent of a budget that is used up.",
            "additionalProperties": {"type": "string"},
        },
    },
}
_KEY = {"type": "http", "scheme": "bearer", "description": "A key that a steward issued."}
_ALWAYS = (401, 403, 413, 422, 429, 500, 503)
_OPEN = (413, 500)  # of operations that need no key
_FIGURES = "/metrics"
_TEXTS = {
    _FIGURES: "text/plain",
    "/v1/releases/{job_id}/rows": "text/csv",
    "/v1/actions": "application/x-ndjson",
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_QUERY = "/v1/datasets/{name}/query"
_MEANINGS = {
    401: "No key, or one that opens nothing",
    403: "A budget that does not admit this, or something for stewards only",
    404: "No such dataset, release or key",
    409: "A name or key that is taken, or a release that is not ready",
    413: "A body that is too large",
    422: "A request, question or loss that is refused",
    429: "Too many requests, large questions or bytes of a key, or releases of yours that are not done yet; "
    "Retry-After says when to come again",
    500: "The server failed",
    503: "The dataset is paused, the server is busy, or the ledger or the data cannot be reached now",
}


def describe_itself(app: FastAPI) -> None:
    """Let an application describe its refusals."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(plain())
        return app.openapi_schema

    app.openapi_schema = None
    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's own documentation does it


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {"key": _KEY}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/") or path == _FIGURES:
                operation["security"] = [{"key": []}]
            if path in _TEXTS:
                text = {_TEXTS[path]: {"schema": {"type": "string"}}}
                operation["responses"]["200"]["content"] = text | ({PARQUET: _BINARY} if path.endswith("/rows") else {})
            if path == _QUERY:
                operation["responses"]["200"]["content"] |= {ARROW: _BINARY, PARQUET: _BINARY}
            for status in _statuses(path, method):
                operation["responses"][str(status)] = _response(status)
    return document


def _statuses(path: str, method: str) -> tuple[int, ...]:
    if path == _FIGURES:
        return _ALWAYS
    if not path.startswith("/v1/"):
        return (*_OPEN, HTTPStatus.SERVICE_UNAVAILABLE) if path == "/readyz" else _OPEN
    named = (HTTPStatus.NOT_FOUND,) if "{" in path else ()
    taken = (HTTPStatus.CONFLICT,) if method == "post" or path.endswith("/rows") else ()
    return (*_ALWAYS, *named, *taken)


def _response(status: int) -> dict[str, Any]:
    return {
        "description": _MEANINGS[status],
        "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
