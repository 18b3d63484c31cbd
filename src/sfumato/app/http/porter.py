"""What every request passes on its way in and out: bodies are bounded, replies get headers of safety, all is logged."""

from __future__ import annotations

import secrets
import time
import traceback
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.app.http import problems
from sfumato.app.http.problems import RefusalError
from sfumato.app.http.processes import LATENCY, REQUESTS, log

MOST_BYTES = 1 << 18
_PATH = 200  # characters of a path that are logged
_FRAMES = 8  # of the place of an error
_LENGTHS = {b"content-length", b"transfer-encoding"}


class Porter:
    """Counts and logs requests, refuses large bodies, adds headers of safety, and answers HEAD like GET without a body.

    Every request gets an id, which its reply and its line in the log have.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            problems.note(scope, problems.problem(refusal))
            await problems.reply(refusal)(scope, receive, noted)
        else:
            try:
                await self._app(scope, _replayed(body, receive), noted)
            except Exception as error:
                if started:
                    raise
                # what it says may quote the table, so it goes no further; whoever mends it needs the place
                log("broken", id=number, error=type(error).__name__, at=_place(error))
                problems.note(scope, problems.problem(error))
                await problems.reply(error)(scope, receive, noted)
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


def _client(scope: Scope) -> str | None:
    """The address of whoever asks; a trusted proxy says whose."""
    return scope["client"][0] if scope.get("client") else None


def _route(scope: Scope) -> str:
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
