"""The application that uvicorn runs, one a worker process, and the OpenAPI document that describes it."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.app.http import datasets, problems, release_jobs, stewards
from sfumato.app.http.access import KeyLookup, Worker
from sfumato.app.http.admission import Pace, TablePlaces
from sfumato.app.http.problems import MEDIA, RefusalError
from sfumato.app.http.processes import REQUESTS, end_with_parent, exposition, log, to_standard_error
from sfumato.app.http.service import Service

LEDGER, PLACES, RATE = "SFUMATO_LEDGER", "SFUMATO_TABLES", "SFUMATO_RATE"
MOST_BYTES = 1 << 18
_ENTRANCES = 300  # keys and links a minute that one address may try, a sixth of them at once
_FRAMES = 8  # of the place of an error
_LENGTHS = {b"content-length", b"transfer-encoding"}


def application() -> FastAPI:
    """The application over the database that the environment names: what each worker calls."""
    to_standard_error()
    end_with_parent()
    places = TablePlaces.from_json(os.environ.get(PLACES, "[]"))
    return create(Service(os.environ[LEDGER], places=places), a_minute=int(os.environ.get(RATE, "0")))


def create(service: Service, *, a_minute: int = 0) -> FastAPI:
    """The application over a service, which takes so many requests a minute of each key; 0: any number."""
    from importlib.metadata import version

    from sfumato.app.ui import pages

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="Sfumato", version=version("sfumato"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.key_lookup = KeyLookup(service)
    app.state.pace = Pace(a_minute)
    app.state.entrance = Pace(_ENTRANCES)
    problems.install(app)
    for router in (datasets.router, stewards.router, release_jobs.router):
        app.include_router(router)
    pages.mount(app)

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """Whether the process runs."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["operation"])
    def readyz(worker: Worker) -> dict[str, str]:
        """Whether the ledger answers."""
        worker.registry.alive()
        return {"status": "ready"}

    @app.get("/metrics", tags=["operation"])
    def figures() -> Response:
        """Figures in the text format of Prometheus."""
        return Response(exposition(), media_type="text/plain; version=0.0.4")

    describe_itself(app)
    app.add_middleware(Porter)
    return app


class Porter:
    """Counts and logs requests, refuses large bodies, and adds headers of safety."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, started = time.perf_counter(), 500, False

        async def noted(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message["headers"], *_HEADERS, *parting]
            await send(message)

        # A proxy may believe the other of two lengths: what follows on the connection is then anybody's request.
        doubtful = {name for name, _ in scope["headers"]} >= _LENGTHS
        parting = [(b"connection", b"close")] if doubtful else []
        try:
            body = None if doubtful else await _body(receive)
        except ClientDisconnect:
            log("request left", method=scope["method"])
            return
        if body is None:
            await problems.reply(_two_lengths() if doubtful else _too_large())(scope, receive, noted)
        else:
            try:
                await self._app(scope, _replayed(body, receive), noted)
            except Exception as error:
                if started:
                    raise
                # what it says may quote the table, so it goes no further; whoever mends it needs the place
                log("broken", error=type(error).__name__, at=_place(error))
                await problems.reply(error)(scope, receive, noted)
        REQUESTS.labels(f"{status // 100}xx").inc()
        log("request", method=scope["method"], status=status, seconds=round(time.perf_counter() - start, 4))


def _two_lengths() -> RefusalError:
    title = "Content-Length and Transfer-Encoding cannot both say where a body ends"
    return RefusalError("two-lengths", title, 400, "send one of the two headers")


def _too_large() -> RefusalError:
    return RefusalError("body-too-large", "The body is too large", 413, f"send at most {MOST_BYTES} bytes")


def _place(error: Exception) -> str:
    """Where an error arose, innermost last."""
    frames = traceback.walk_tb(error.__traceback__)
    return " ".join(f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in list(frames)[-_FRAMES:])


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None where it is too large.

    Raises:
        ClientDisconnect: it did not arrive in full.  What did arrive may be another question: of 30 years, 3.
    """
    parts, taken = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        taken += len(parts[-1])
        if taken > MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, and then whatever comes: the end of the connection."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
]


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
            "description": "Whether something was spent; null: unknown, and the same question asked again is free.",
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
_TEXTS = {"/metrics": "text/plain", "/v1/releases/{job_id}/rows": "text/csv"}
_PARQUET = {"application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}}}
_MEANINGS = {
    401: "No key, or one that opens nothing",
    403: "A budget that does not admit this, or something for stewards only",
    404: "No such dataset, release or key",
    409: "A name or key that is taken, a table that has changed, or a release that is not ready",
    413: "A body that is too large",
    422: "A request, question or loss that is refused",
    429: "Too many requests of a key, or releases of yours that are not done yet; Retry-After says when to come again",
    500: "The server failed",
    503: "The ledger or the data cannot be reached now",
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
            if path.startswith("/v1/"):
                operation["security"] = [{"key": []}]
            if path in _TEXTS:
                text = {_TEXTS[path]: {"schema": {"type": "string"}}}
                operation["responses"]["200"]["content"] = text | (_PARQUET if path.endswith("/rows") else {})
            for status in _statuses(path, method):
                operation["responses"][str(status)] = _response(status)
    return document


def _statuses(path: str, method: str) -> tuple[int, ...]:
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
