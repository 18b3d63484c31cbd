"""Requests of other sites' pages: to ``/v1`` alone, from origins that the operator named, with a key and no cookie."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from sfumato.app.http.access import PROGRAMS

_METHODS = ("GET", "POST", "PUT", "DELETE")
_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key")
_SHOWN = ("Retry-After", "X-Request-Id")


class CrossOrigin:
    """Lets browsers send what a named origin asks, and read the reply."""

    def __init__(self, app: ASGIApp, *, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_HEADERS,
            expose_headers=_SHOWN,
            allow_credentials=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        ours = scope["type"] == "http" and scope["path"].startswith(PROGRAMS)
        await (self._open if ours else self._app)(scope, receive, send)
