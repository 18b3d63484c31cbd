"""Bodies of requests mean one thing: JSON that says a key twice is refused before anything is charged."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from sfumato.errors import InputError
from sfumato.strict_documents import read_json


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
