"""The way of a request to its route: pages of other sites, bounds of a body, the pace of a key, and whose key it is.

Programs send a key in the Authorization header, which browsers never send by themselves.  The page has a cookie that
names a session, and only its own routes read cookies.  So a page of another site, or of another port of this machine,
cannot act for a user by a request to ``/v1``.  Pages of origins that the operator named may send requests to ``/v1``
with a key and no cookie.

Bodies are bounded, replies get headers of safety, and every request is logged.  The server refuses JSON that says a key
twice before it charges anything.
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
from sfumato_server.problems import LATENCY, REQUESTS, RefusalError, log, note, problem, reply
from sfumato_server.registry import Key, Scope
from sfumato_server.service import Service
from sfumato_server.sessions import is_session

_METHODS = ("GET", "POST", "PUT", "DELETE")
_SENT = ("Authorization", "Content-Type", "Idempotency-Key")
_SHOWN = ("Retry-After", "X-Request-Id")


class CrossOrigin:
    """Lets browsers send what a named origin asks, and read the reply."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_SENT,
            expose_headers=_SHOWN,
            allow_credentials=False,
        )

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        ours = scope["type"] == "http" and scope["path"].startswith(PROGRAMS)
        await (self._open if ours else self._app)(scope, receive, send)


MOST_BYTES = 1 << 18
_PATH = 200  # characters of a path that are logged
_FRAMES = 8  # of the place of an error
_LENGTHS = {b"content-length", b"transfer-encoding"}


class RequestGuard:
    """Counts and logs requests, refuses large bodies, adds headers of safety, and answers HEAD like GET without a body.

    Every request gets an id, which its reply and its line in the log have.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, started = time.perf_counter(), 500, False
        number, method = secrets.token_hex(8), scope["method"]
        headless = method == "HEAD"
        state: dict[str, Any] = {**scope.get("state", {})}
        scope = {**scope, "state": state, "method": "GET" if headless else method}

        async def noted(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                own = {name for name, _ in message["headers"]}  # such as how long a file of the page is kept
                added = [each for each in _HEADERS if each[0] not in own]
                message["headers"] = [*message["headers"], *added, *parting, (b"x-request-id", number.encode())]
            elif headless:
                message = {**message, "body": b""}
            if (key := state.get("key")) is not None and (size := len(message.get("body", b""))):
                scope["app"].state.service.quotas.sent(key, size)
            await send(message)

        # A proxy may believe the other of two lengths: what follows on the connection is then anybody's request.
        doubtful = {name for name, _ in scope["headers"]} >= _LENGTHS
        parting = [(b"connection", b"close")] if doubtful else []
        try:
            body = None if doubtful else await _body(receive)
        except ClientDisconnect:
            log("request left", id=number, method=method, path=scope["path"][:_PATH], client=_client(scope))
            return
        if body is None:
            refusal = _two_lengths() if doubtful else _too_large()
            note(scope, problem(refusal))
            await reply(refusal)(scope, receive, noted)
        else:
            try:
                await self._app(scope, _replayed(body, receive), noted)
            except Exception as error:
                if started:
                    raise
                # what it says may quote the table, so it goes no further; whoever mends it needs the place
                log("broken", id=number, error=type(error).__name__, at=_place(error))
                note(scope, problem(error))
                await reply(error)(scope, receive, noted)
        seconds = time.perf_counter() - start
        REQUESTS.labels(f"{status // 100}xx").inc()
        LATENCY.labels(_route(scope)).observe(seconds)
        facts = {"key": state.get("key"), "reason": state.get("reason")}
        log(
            "request",
            id=number,
            client=_client(scope),
            method=method,
            path=scope["path"][:_PATH],
            status=status,
            seconds=round(seconds, 4),
            **{name: value for name, value in facts.items() if value is not None},
        )


def _client(scope: Connection) -> str | None:
    """The address of whoever asks; a trusted proxy says whose."""
    return scope["client"][0] if scope.get("client") else None


def _route(scope: Connection) -> str:
    """The route of a request, of which there are few; a path may be anything."""
    return getattr(scope.get("route"), "path", "other")


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


_MOST_PACED = 4096  # keys


class RateLimiter:
    """So many requests a minute of each key, by a worker; a sixth of them may come at once.

    Args:
        a_minute: how many; 0 for any number.
        clock: tells seconds that never go back.
    """

    def __init__(self, a_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._each = 60 / a_minute if a_minute else 0.0
        self._most = max(1.0, a_minute / 6) * self._each
        self._clock = clock
        self._free_from: dict[str, float] = {}
        self._lock = Lock()

    def take(self, key_id: str) -> None:
        """Let one request of a key in.

        Raises:
            RefusalError: too many came before it; says when to come again.
        """
        if not self._each:
            return
        now = self._clock()
        with self._lock:
            due = max(self._free_from.get(key_id, 0.0), now)
            if due + self._each - now <= self._most:
                self._free_from[key_id] = due + self._each
                return
            if len(self._free_from) > _MOST_PACED:
                self._free_from = {each: free for each, free in self._free_from.items() if free > now}
        wait = int(due + self._each - now - self._most) + 1
        raise RefusalError(
            "too-many-requests",
            "Too many requests",
            429,
            f"this is more than the server takes at a time; come again in {wait} s",
            after=wait,
        )


COOKIE = "sfumato_session"
PROGRAMS = "/v1/"
_REMEMBERED = 2.0  # seconds for which a worker trusts what it has looked up; a revoked key ends within them
_MOST = 1024


class KeyLookup:
    """Looks keys and sessions up, and remembers them for a moment."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, tuple[float, Key]] = {}

    def known(self, secret: str) -> Key | None:
        """The valid key of a secret that was looked up a moment ago."""
        seen, known = self._known.get(secret, (0.0, None))
        return known if known is not None and known.valid and time.monotonic() - seen <= _REMEMBERED else None

    def key(self, secret: str) -> Key:
        """The valid key of a secret, or what its session opens.

        Raises:
            RefusalError: there is none, it has expired or was revoked.
        """
        now = time.monotonic()
        found = self._service.sessions.holder if is_session(secret) else self._service.registry.key
        known = found(secret)
        if known is None or known.scope is Scope.INVITATION:
            raise RefusalError("unknown-key", "The key is not known", 401, "send a key that a steward issued")
        if not known.valid:
            raise RefusalError("expired-key", "The key has expired or was revoked", 401, "ask a steward for a new key")
        if found == self._service.registry.key:
            self._service.registry.used(known)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[secret] = (now, known)
        return known

    def forget(self) -> None:
        """Trust nothing any more that was looked up before, as something has ended."""
        self._known.clear()


async def service(request: Request) -> Service:
    """The worker's state."""
    found: Service = request.app.state.service
    return found


def secret_of(request: Request) -> str | None:
    """The secret that a request carries: a program's key, or the session of the page."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        return None if is_session(secret.strip()) else secret.strip()
    session = None if request.scope["path"].startswith(PROGRAMS) else request.cookies.get(COOKIE)
    return session if session is not None and is_session(session) else None


async def holder(request: Request) -> Key:
    """A valid key of any scope.

    Raises:
        RefusalError: none was sent, it opens nothing, or sends too much.
    """
    secret = secret_of(request)
    if secret is None:
        raise RefusalError("missing-key", "A key is needed", 401, "send 'Authorization: Bearer KEY'")
    key_lookup: KeyLookup = request.app.state.key_lookup
    known = key_lookup.known(secret)
    if known is None:
        known = await run_in_threadpool(key_lookup.key, secret)
    request.state.key = known.id
    pace: RateLimiter = request.app.state.pace
    pace.take(known.id)
    service: Service = request.app.state.service
    service.quotas.refuse_bytes(known.id)
    return known


async def anyone(key: Annotated[Key, Depends(holder)]) -> Key:
    """A valid key of a steward or an analyst.

    Raises:
        RefusalError: the key only reads figures.
    """
    if key.scope is Scope.MONITOR:
        raise RefusalError("wrong-scope", "This key reads figures only", 403, "use a key of a steward or an analyst")
    return key


async def monitor(key: Annotated[Key, Depends(holder)]) -> Key:
    """A key that may read the figures of the server.

    Raises:
        RefusalError: the key is an analyst's.
    """
    if key.scope is Scope.ANALYST:
        raise RefusalError(
            "wrong-scope", "This needs a key for figures", 403, "ask a steward for a key of scope monitor"
        )
    return key


async def steward(key: Annotated[Key, Depends(anyone)]) -> Key:
    """A steward's key.

    Raises:
        RefusalError: the key is an analyst's.
    """
    if key.scope is not Scope.STEWARD:
        raise RefusalError("wrong-scope", "This needs a steward's key", 403, "ask a steward to do this")
    return key


Anyone = Annotated[Key, Depends(anyone)]
Steward = Annotated[Key, Depends(steward)]
Monitor = Annotated[Key, Depends(monitor)]
CurrentService = Annotated[Service, Depends(service)]


class StrictRoute(APIRoute):
    """A route whose bodies are read by :func:`sfumato.strict_documents.read_json`."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """What answers a request."""
        answer = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await answer(_StrictRequest(request.scope, request.receive))

        return strictly


class _StrictRequest(Request):
    async def json(self) -> Any:  # noqa: ANN401 -- JSON
        """The body."""
        try:
            return read_json(await self.body(), name="the body")
        except InputError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None
