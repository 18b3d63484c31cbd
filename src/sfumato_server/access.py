"""Middleware and dependencies that every request passes before its route: body limits, keys and rate limits.

Programs send a key in the Authorization header, which browsers never send on their own.  The pages use a cookie that
names a session, and only their own routes read it.  So a page of another site, or of another port of this machine,
cannot act for a user by a request to ``/v1``.  Pages of origins that the operator named may send requests to ``/v1``
with a key and no cookie.

Bodies are bounded, replies get security headers, and every request is logged.  The server refuses JSON with a repeated
key before it charges anything.
"""

from __future__ import annotations

import json
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from sfumato.errors import InputError
from sfumato.strict_documents import read_json
from sfumato_server.problems import (
    LATENCY,
    REQUESTS,
    RefusalError,
    log,
    problem,
    problem_response,
    record_refusal,
)
from sfumato_server.registry import Key, Scope
from sfumato_server.service import Service
from sfumato_server.sessions import is_session

_METHODS = ("GET", "POST", "PUT", "DELETE")
_REQUEST_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key")
_REPLY_HEADERS = ("Retry-After", "X-Request-Id")


class CrossOrigin:
    """A middleware for CORS under ``/v1``: pages of named origins may send requests there and read the replies."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str]) -> None:
        self._app = app
        self._with_cors = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_REPLY_HEADERS,
            allow_credentials=False,
        )

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle a request."""
        is_api = scope["type"] == "http" and scope["path"].startswith(PROGRAMS)
        await (self._with_cors if is_api else self._app)(scope, receive, send)


MAX_BODY_BYTES = 1 << 18
_MAX_LOGGED_PATH = 200  # characters
_LOGGED_FRAMES = 8  # innermost frames of an error
_LENGTHS = {b"content-length", b"transfer-encoding"}


class RequestGuard:
    """A middleware that counts and logs requests, bounds their bodies and adds security headers to the replies.

    It answers HEAD like GET without a body.  Every request gets an id, which its reply and its log line have.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            body = None if exchange.two_lengths else await _read_body(receive)
        except ClientDisconnect:
            exchange.log_disconnect()
            return
        if body is None:
            await exchange.refuse(_two_lengths() if exchange.two_lengths else _too_large(), receive)
        else:
            try:
                await self._app(exchange.scope, _replayed(body, receive), exchange.send)
            except Exception as error:
                if exchange.started:
                    raise
                # the error's text may quote the table, so only its type and place are logged
                log("broken", id=exchange.id, error=type(error).__name__, at=_place(error))
                await exchange.refuse(error, receive)
        exchange.log_request()


class _Exchange:
    """A request and its reply, as the guard changes, counts and logs them."""

    def __init__(self, scope: Connection, send: Send) -> None:
        self._send = send
        self._start = time.perf_counter()
        self._status = 500
        self.started = False
        self.id = secrets.token_hex(8)
        self._method = scope["method"]
        self._state: dict[str, Any] = {**scope.get("state", {})}
        method = "GET" if self._method == "HEAD" else self._method
        self.scope = {**scope, "state": self._state, "method": method}
        # A proxy may use the other of two lengths.  It would take the rest of the body for another client's request.
        self.two_lengths = {name for name, _ in scope["headers"]} >= _LENGTHS

    async def send(self, message: Message) -> None:
        """Send a part of the reply, with the headers that every reply has."""
        if message["type"] == "http.response.start":
            self._status, self.started = message["status"], True
            present = {name for name, _ in message["headers"]}  # such as the cache time of a static file
            added = [header for header in _HEADERS if header[0] not in present]
            closing = [(b"connection", b"close")] if self.two_lengths else []
            message["headers"] = [*message["headers"], *added, *closing, (b"x-request-id", self.id.encode())]
        elif self._method == "HEAD":
            message = {**message, "body": b""}
        if (key := self._state.get("key")) is not None and (size := len(message.get("body", b""))):
            self.scope["app"].state.service.quotas.count_bytes(key, size)
        await self._send(message)

    async def refuse(self, error: Exception, receive: Receive) -> None:
        """Count an error and send its problem document."""
        record_refusal(self.scope, problem(error))
        await problem_response(error)(self.scope, receive, self.send)

    def log_disconnect(self) -> None:
        """Log that the client left before its request arrived in full."""
        log("request left", id=self.id, method=self._method, path=self._path, client=_client(self.scope))

    def log_request(self) -> None:
        """Count and log the finished request."""
        seconds = time.perf_counter() - self._start
        REQUESTS.labels(f"{self._status // 100}xx").inc()
        LATENCY.labels(_route(self.scope)).observe(seconds)
        facts = {"key": self._state.get("key"), "reason": self._state.get("reason")}
        log(
            "request",
            id=self.id,
            client=_client(self.scope),
            method=self._method,
            path=self._path,
            status=self._status,
            seconds=round(seconds, 4),
            **{name: value for name, value in facts.items() if value is not None},
        )

    @property
    def _path(self) -> str:
        path: str = self.scope["path"]
        return path[:_MAX_LOGGED_PATH]


def _client(scope: Connection) -> str | None:
    """Return the address of the client, which a trusted proxy may state."""
    return scope["client"][0] if scope.get("client") else None


def _route(scope: Connection) -> str:
    """Return the route of a request as a label.  There are few routes, while a path may be anything."""
    return getattr(scope.get("route"), "path", "other")


def _two_lengths() -> RefusalError:
    title = "Content-Length and Transfer-Encoding cannot both say where a body ends"
    return RefusalError("two-lengths", title, 400, "send one of the two headers")


def _too_large() -> RefusalError:
    return RefusalError("body-too-large", "The body is too large", 413, f"send at most {MAX_BODY_BYTES} bytes")


def _place(error: Exception) -> str:
    """Return the file and line of each of an error's innermost frames, the innermost last."""
    frames = traceback.walk_tb(error.__traceback__)
    return " ".join(f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in list(frames)[-_LOGGED_FRAMES:])


async def _read_body(receive: Receive) -> bytes | None:
    """Read the body; return None if it is too large.

    Raises:
        ClientDisconnect: the body did not arrive in full.  A part of it may be another valid question: 3 of 30 years.
    """
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a channel with the body in one message, and after it the messages of the connection."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


_HEADERS = [  # of every reply that does not set them itself
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


_MAX_TRACKED_KEYS = 4096


class RateLimiter:
    """A limit on the requests per minute of each key in one worker.  A burst may use a sixth of a minute's requests.

    Args:
        per_minute: the number of requests; 0 for no limit.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 60 / per_minute if per_minute else 0.0  # seconds per request
        self._burst = max(1.0, per_minute / 6) * self._interval
        self._clock = clock
        self._busy_until: dict[str, float] = {}  # by key id
        self._lock = Lock()

    def take(self, key_id: str) -> None:
        """Count one request of a key.

        Raises:
            RefusalError: the key sent too many requests; the reply's Retry-After says when to send the next one.
        """
        if not self._interval:
            return
        now = self._clock()
        with self._lock:
            due = max(self._busy_until.get(key_id, 0.0), now)
            if due + self._interval - now <= self._burst:
                self._busy_until[key_id] = due + self._interval
                return
            if len(self._busy_until) > _MAX_TRACKED_KEYS:
                self._busy_until = {id_: until for id_, until in self._busy_until.items() if until > now}
        wait = int(due + self._interval - now - self._burst) + 1
        raise RefusalError(
            "too-many-requests",
            "Too many requests",
            429,
            f"the key or address sent more requests than the server takes; try again in {wait} s",
            after=wait,
        )


COOKIE = "sfumato_session"
PROGRAMS = "/v1/"
_CACHE_SECONDS = 2.0  # a revoked key stops working within this time
_MAX_CACHED = 1024


class KeyLookup:
    """A lookup of keys by secret, with a short cache."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache: dict[str, tuple[float, Key]] = {}  # the time of the lookup and the key, by secret

    def cached(self, secret: str) -> Key | None:
        """Return the valid key of a secret from the cache; None if it is not cached."""
        time_read, key = self._cache.get(secret, (0.0, None))
        return key if key is not None and key.valid and time.monotonic() - time_read <= _CACHE_SECONDS else None

    def find(self, secret: str) -> Key:
        """Return the valid key of a secret, or of the session that the secret names.

        Raises:
            RefusalError: no such key exists, or it has expired or was revoked.
        """
        now = time.monotonic()
        in_session = is_session(secret)
        key = self._service.sessions.holder(secret) if in_session else self._service.registry.key(secret)
        if key is None or key.scope is Scope.INVITATION:
            raise RefusalError("unknown-key", "The key is not known", 401, "send a key that a steward issued")
        if not key.valid:
            raise RefusalError("expired-key", "The key has expired or was revoked", 401, "ask a steward for a new key")
        if not in_session:
            self._service.registry.record_use(key)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[secret] = (now, key)
        return key

    def forget(self) -> None:
        """Empty the cache, because a session or key has ended."""
        self._cache.clear()


async def current_service(request: Request) -> Service:
    """Return the worker's service."""
    service: Service = request.app.state.service
    return service


def secret_of(request: Request) -> str | None:
    """Return the secret that a request carries: a program's key, or the session of a page."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        return None if is_session(secret.strip()) else secret.strip()
    session = None if request.scope["path"].startswith(PROGRAMS) else request.cookies.get(COOKIE)
    return session if session is not None and is_session(session) else None


async def valid_key(request: Request) -> Key:
    """Return the request's key, of any scope.

    Raises:
        RefusalError: the request has no key, the key is not valid, or it exceeds its rate or its bytes of replies.
    """
    secret = secret_of(request)
    if secret is None:
        raise RefusalError("missing-key", "A key is needed", 401, "send 'Authorization: Bearer KEY'")
    key_lookup: KeyLookup = request.app.state.key_lookup
    key = key_lookup.cached(secret)
    if key is None:
        key = await run_in_threadpool(key_lookup.find, secret)
    request.state.key = key.id
    rate_limiter: RateLimiter = request.app.state.rate_limiter
    rate_limiter.take(key.id)
    service: Service = request.app.state.service
    service.quotas.refuse_bytes(key.id)
    return key


async def user_key(key: Annotated[Key, Depends(valid_key)]) -> Key:
    """Return the request's key, of a steward or an analyst.

    Raises:
        RefusalError: the key is of another scope.
    """
    if key.scope in {Scope.STEWARD, Scope.ANALYST}:
        return key
    readable = "journals and sign-off pages" if key.scope is Scope.OFFICER else "figures"
    raise RefusalError("wrong-scope", f"This key reads {readable} only", 403, "use a key of a steward or an analyst")


async def reader_key(key: Annotated[Key, Depends(valid_key)]) -> Key:
    """Return the request's key, of a steward, an analyst or a privacy officer.

    Raises:
        RefusalError: the key is for monitoring only.
    """
    return key if key.scope is Scope.OFFICER else await user_key(key)


async def officer_key(key: Annotated[Key, Depends(reader_key)]) -> Key:
    """Return the request's key, of a privacy officer or a steward.

    Raises:
        RefusalError: the key is an analyst's.
    """
    if not key.sees_all:
        raise RefusalError(
            "wrong-scope", "This needs a key of a privacy officer", 403, "ask a steward for a key of scope officer"
        )
    return key


async def monitor_key(key: Annotated[Key, Depends(valid_key)]) -> Key:
    """Return the request's key, of a monitor or a steward.

    Raises:
        RefusalError: the key is of another scope.
    """
    if key.scope not in {Scope.MONITOR, Scope.STEWARD}:
        raise RefusalError(
            "wrong-scope", "This needs a key for figures", 403, "ask a steward for a key of scope monitor"
        )
    return key


async def steward_key(key: Annotated[Key, Depends(user_key)]) -> Key:
    """Return the request's key, of a steward.

    Raises:
        RefusalError: the key is an analyst's.
    """
    if key.scope is not Scope.STEWARD:
        raise RefusalError("wrong-scope", "This needs a steward's key", 403, "ask a steward to do this")
    return key


Anyone = Annotated[Key, Depends(user_key)]
Reader = Annotated[Key, Depends(reader_key)]
Officer = Annotated[Key, Depends(officer_key)]
Steward = Annotated[Key, Depends(steward_key)]
Monitor = Annotated[Key, Depends(monitor_key)]
CurrentService = Annotated[Service, Depends(current_service)]


class StrictRoute(APIRoute):
    """A route that reads JSON bodies by :func:`sfumato.strict_documents.read_json`, which refuses repeated keys."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler, with a strict reader of the body."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


class _StrictRequest(Request):
    async def json(self) -> Any:  # noqa: ANN401 -- JSON
        """Read the body as JSON."""
        try:
            return read_json(await self.body(), name="the body")
        except InputError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None
