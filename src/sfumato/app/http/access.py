"""What every route asks before it does anything: whose key a request carries, and that its body means one thing.

Programs send a key in the Authorization header, of which browsers know nothing.  The page has a cookie that names a
session, and only its own routes look at cookies: what another site, or another port of this machine, makes a browser
send to ``/v1`` is nobody's request.  JSON that says a key twice is refused before anything is charged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from sfumato.app.http.admission import Pace
from sfumato.app.http.problems import RefusalError
from sfumato.app.http.registry import Key, Scope
from sfumato.app.http.service import Service
from sfumato.app.http.sessions import is_session
from sfumato.errors import InputError
from sfumato.strict_documents import read_json

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
        if known is None or known.scope is Scope.LINK:
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
    pace: Pace = request.app.state.pace
    pace.take(known.id)
    worker: Service = request.app.state.service
    worker.quotas.refuse_bytes(known.id)
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
Worker = Annotated[Service, Depends(service)]


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
