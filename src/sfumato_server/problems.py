"""Refusals as problem documents (RFC 9457), and the log and metrics of the operator.

Messages of an engine or database never leave the server, because they may quote the table.  Every problem says whether
it was charged.  A refusal before the data is touched is free.  If a budget does not admit a release, a steward sees who
spent it, and an analyst sees only the rest.  The OpenAPI description lists the problems of each route.

The log has one JSON object per line on standard error.  No metric has a label that could name a person or a question.
Neither has a value of a table, a question or an answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.types import Scope as Connection

from sfumato.errors import (
    BrokenLedgerError,
    BudgetError,
    DomainError,
    EngineError,
    InfeasibleError,
    InputError,
    LedgerError,
    LossError,
    MovedLedgerError,
    QueryError,
    RetryKeyError,
    SfumatoError,
    SizeError,
    TableError,
    VersionError,
)
from sfumato.query.answer import ARROW, PARQUET
from sfumato.query.statements.sql_condition import Place

_LOGGER = logging.getLogger("sfumato.http")
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names the folder in which workers add up their metrics
REQUESTS = Counter("sfumato_requests_total", "Requests by status class.", ["status"])
SECONDS = Histogram("sfumato_work_seconds", "Seconds of work on a request.", ["work"])
LATENCY = Histogram("sfumato_request_seconds", "Seconds until a reply is sent, by route.", ["route"])
REFUSALS = Counter("sfumato_refusals_total", "Refusals and failures by kind of problem.", ["kind"])
REPLACED = Counter("sfumato_workers_replaced_total", "Workers that took the place of one that died.")
LEDGER_FAILURES = Counter("sfumato_ledger_failures_total", "Requests that failed as the ledger did not answer.")


def log(event: str, **facts: str | float | None) -> None:
    """Write a line to the log."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _LOGGER.info(json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def log_to_standard_error() -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False


@contextmanager
def timed(work: str) -> Iterator[None]:
    """Measure the seconds of a piece of work."""
    start = time.perf_counter()
    try:
        yield
    finally:
        SECONDS.labels(work).observe(time.perf_counter() - start)


def render_metrics(more: Collector) -> bytes:
    """Return all metrics and ``more`` in the text format of Prometheus, summed over all workers."""
    extra = CollectorRegistry()
    extra.register(more)
    if SHARED not in os.environ:
        return generate_latest() + generate_latest(extra)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry) + generate_latest(extra)


MEDIA = "application/problem+json"


class RefusalError(Exception):
    """A refusal with the parts of its problem document; nothing was charged.

    Attributes:
        kind: the last part of the problem's type.
        title: a fixed title of the kind.
        status: the HTTP status.
        detail: one sentence on this refusal.
        after: seconds for the header Retry-After; None for no such header.
    """

    def __init__(self, kind: str, title: str, status: int, detail: str, *, after: int | None = None) -> None:
        super().__init__(detail)
        self.kind, self.title, self.status, self.detail, self.after = kind, title, status, detail, after


def table_refusal(error: TableError | EngineError) -> RefusalError:
    """Return the refusal of a table that cannot be read.  Its text has no value of the table and no password."""
    if isinstance(error, EngineError):
        return RefusalError("data-unavailable", "The data cannot be read now", 503, str(error))
    return RefusalError("table-unusable", "The table cannot be used", 422, str(error))


def snapshot_refusal(error: OSError, folder: Path) -> RefusalError:
    """Return the refusal of a snapshot that cannot be written."""
    reason = error.strerror or type(error).__name__
    detail = f"the folder {folder} cannot be written: {reason}; tell the operator of the server"
    return RefusalError("snapshot-unwritable", "The snapshot cannot be written", 503, detail)


def domain_refusal(error: DomainError) -> RefusalError:
    """Return the refusal of a domain or schema that cannot be registered."""
    return RefusalError("domain-unusable", "The domain cannot be used", 422, str(error))


class UnknownDatasetError(InputError):
    """No registered dataset has that name."""


class TakenNameError(InputError):
    """Another dataset has or had this name."""


class ApprovalNeededError(BudgetError):
    """The release needs the approval of a second steward; nothing was charged."""


class RetiredError(BudgetError):
    """The dataset is retired, and releases nothing more; nothing was charged."""


class BudgetUsedUpError(BudgetError):
    """A refusal for a steward; ``spent_by`` has each analyst's spending in words."""

    def __init__(self, message: str, spent_by: Mapping[str, str]) -> None:
        super().__init__(message)
        self.spent_by = dict(spent_by)


# type, title, status, whether the error's own message is shown, whether something was charged (None: unknown)
_KINDS: tuple[tuple[type[SfumatoError], tuple[str, str, int, bool, bool | None]], ...] = (
    (UnknownDatasetError, ("unknown-dataset", "There is no such dataset", 404, True, False)),
    (TakenNameError, ("dataset-exists", "The name is taken", 409, True, False)),
    (ApprovalNeededError, ("approval-needed", "This needs an approval", 403, True, False)),
    (RetiredError, ("dataset-retired", "The dataset is retired", 403, True, False)),
    (BudgetError, ("budget-exceeded", "The budget does not admit this", 403, True, False)),
    (QueryError, ("query-refused", "The question is outside the language", 422, True, False)),
    (DomainError, ("domain-refused", "The question does not fit the domain", 422, True, False)),
    (LossError, ("loss-refused", "The privacy loss cannot be taken", 422, True, False)),
    (SizeError, ("too-large", "The question is too large", 422, True, False)),
    (TableError, ("table-unusable", "The table cannot be used", 422, False, None)),
    (
        RetryKeyError,
        ("idempotency-key-reused", "This Idempotency-Key stands for another request", 409, False, False),
    ),
    (InputError, ("request-refused", "The request is refused", 422, True, False)),
    (InfeasibleError, ("infeasible", "No result meets the requirements", 422, True, False)),
    (BrokenLedgerError, ("ledger-broken", "Another program changed the ledger", 500, False, False)),
    (MovedLedgerError, ("ledger-moved", "The ledger was moved, replaced or set back", 503, False, False)),
    (VersionError, ("version-declared", "Another version of the data was declared", 503, False, False)),
    (LedgerError, ("ledger-unavailable", "The ledger does not answer", 503, False, None)),
    (EngineError, ("data-unavailable", "The data cannot be read now", 503, False, None)),
)
_OPTION = re.compile(r"(?<![\w-])--(no-)?([a-z]+(?:-[a-z]+)*)")
_CHARGE_STANDS = (
    "What was charged stands. The same question asked again is free, unless noise was drawn before it failed."
)
_FIXED_DETAILS = {
    "idempotency-key-reused": "Use a new key for a new question.",
    "ledger-unavailable": "Ask the same question again: it is never charged twice.",
    "ledger-moved": "Nothing is charged until the operator of the server restores the ledger.",
    "version-declared": "Nothing was charged. Ask the same question again, for an answer from the new version.",
    "ledger-broken": "The stored answer does not match the ledger's hashes, so it is not sent. "
    "Nothing was charged. A steward can verify the ledger to find what was changed.",
    "data-unavailable": _CHARGE_STANDS,
    "table-unusable": "The table cannot be read, or does not fit its domain. A steward can see why.",
    "internal": f"The server failed. Ask its operator. {_CHARGE_STANDS}",
}


def document(kind: str, title: str, status: int, *, detail: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem document."""
    return {"type": f"/problems/{kind}", "title": title, "status": status, "detail": detail, **more}


def problem(error: Exception) -> dict[str, Any]:
    """Return the problem document of any error."""
    if isinstance(error, RefusalError):
        return document(error.kind, error.title, error.status, detail=error.detail, more={"charged": False})
    for kind, (name, title, status, show_message, charged) in _KINDS:
        if isinstance(error, kind):
            more: dict[str, Any] = {"charged": charged}
            if isinstance(error, BudgetUsedUpError):
                more["spent_by"] = error.spent_by
            if isinstance(error.culprit, Place):
                more |= {"line": error.culprit.line, "column": error.culprit.column}
            detail = _with_field_names(str(error)) if show_message else _FIXED_DETAILS[name]
            return document(name, title, status, detail=detail, more=more)
    return document("internal", "The server failed", 500, detail=_FIXED_DETAILS["internal"], more={"charged": None})


def _with_field_names(message: str) -> str:
    """Return a message that names fields of requests instead of options of the command line.

    A message that quotes a whole command stays unchanged.

    >>> _with_field_names("publish it with --keep-anyway town; --no-reuse is for mst")
    "publish it with 'keep_anyway' town; 'reuse' (false) is for mst"
    """
    if "sfumato " in message:
        return message
    return _OPTION.sub(lambda match: f"'{match[2].replace('-', '_')}'{' (false)' if match[1] else ''}", message)


def problem_response(error: Exception) -> JSONResponse:
    """Return the response for any error."""
    content = problem(error)
    headers = {"WWW-Authenticate": "Bearer"} if content["status"] == 401 else None  # noqa: PLR2004
    if isinstance(error, RefusalError) and error.after is not None:
        headers = {"Retry-After": str(error.after)}
    if isinstance(error, VersionError):  # by then the worker has looked up the new version
        headers = {"Retry-After": "1"}
    return JSONResponse(content, content["status"], headers, MEDIA)


def record_refusal(scope: Connection, content: Mapping[str, Any]) -> None:
    """Count a problem, and add its kind to the log line of the request."""
    kind = str(content["type"]).rpartition("/")[2]
    scope.setdefault("state", {})["reason"] = kind
    REFUSALS.labels(kind).inc()
    if kind in ("ledger-unavailable", "ledger-moved"):
        LEDGER_FAILURES.inc()


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with its problem document."""

    def refuse(request: Request, error: Exception) -> JSONResponse:
        record_refusal(request.scope, problem(error))
        return problem_response(error)

    def refuse_invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # the place and the rule, but not the value, which could be secret
        errors = [
            {"place": ".".join(map(str, each["loc"])), "reason": _reason(request, each)} for each in error.errors()
        ]
        more = {"charged": False, "errors": errors}
        content = document("invalid-request", "The request has not the right form", 422, detail="see errors", more=more)
        record_refusal(request.scope, content)
        return JSONResponse(content, 422, None, MEDIA)

    def refuse_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
        detail = str(error.detail)
        content = document(kind, detail, error.status_code, detail=detail, more={"charged": False})
        record_refusal(request.scope, content)
        return JSONResponse(content, error.status_code, error.headers, MEDIA)

    for kind in (SfumatoError, RefusalError, Exception):
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(RequestValidationError, refuse_invalid)
    app.add_exception_handler(HTTPException, refuse_http)


def _reason(request: Request, error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return str(error["ctx"]["error"])
    if error["type"] == "model_attributes_type" and tuple(error["loc"]) == ("body",):
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return "the content type must be application/json"
    return _with_field_names(str(error["msg"]).removeprefix("Value error, "))


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
_KEY_STATUSES = (401, 403, 413, 422, 429, 500, 503)
_OPEN_STATUSES = (413, 500)  # of operations without a key
_METRICS = "/metrics"
_TEXTS = {
    _METRICS: "text/plain",
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
    "Retry-After says when to try again",
    500: "The server failed",
    503: "The dataset is paused, the server is busy, or the ledger or the data cannot be reached now",
}


def document_problems(app: FastAPI) -> None:
    """Add the problems of each route to the OpenAPI description."""
    default_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_problems(default_openapi())
        return app.openapi_schema

    app.openapi_schema = None
    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own documentation does it


def _with_problems(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {"key": _KEY}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/") or path == _METRICS:
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
    if path == _METRICS:
        return _KEY_STATUSES
    if not path.startswith("/v1/"):
        return (*_OPEN_STATUSES, HTTPStatus.SERVICE_UNAVAILABLE) if path == "/readyz" else _OPEN_STATUSES
    not_found = (HTTPStatus.NOT_FOUND,) if "{" in path else ()
    conflict = (HTTPStatus.CONFLICT,) if method == "post" or path.endswith("/rows") else ()
    return (*_KEY_STATUSES, *not_found, *conflict)


def _response(status: int) -> dict[str, Any]:
    return {
        "description": _MEANINGS[status],
        "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
