"""Refusals for people: a page or a fragment, where a program would get a problem document."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from sfumato.app.http.access import Doorkeeper, secret_of
from sfumato.app.http.problems import problem
from sfumato.app.http.refusal import RefusalError
from sfumato.app.ui.render import fragment, page
from sfumato.errors import SfumatoError
from sfumato.ledger.registry import Key

_KINDS = (SfumatoError, RefusalError, RequestValidationError, HTTPException, Exception)


def install(app: FastAPI) -> None:
    """Show what the application's own handlers say as a page, where a person asked for a page."""
    for kind in _KINDS:
        app.add_exception_handler(kind, partial(_shown, app.exception_handlers[kind]))


def _shown(handler: Any, request: Request, error: Exception) -> Response:  # noqa: ANN401  (one of problems.install)
    reply: Response = handler(request, error)
    in_place = "hx-request" in request.headers
    wanted = in_place or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith("/v1/") or not wanted:
        return reply
    found = json.loads(bytes(reply.body))
    if in_place:
        return fragment("problem.html.j2", problem=found, status=reply.status_code)
    if reply.status_code == HTTPStatus.UNAUTHORIZED:
        return page("enter.html.j2", key=None, first=True, status=reply.status_code)
    try:
        key = known(request)
    except SfumatoError:  # a ledger that does not answer knows nobody
        key = None
    return page("mistake.html.j2", key=key, problem=found, status=reply.status_code)


def refused(error: Exception) -> Response:
    """An error as a fragment."""
    found = problem(error)
    return fragment("problem.html.j2", problem=found, status=found["status"])


def known(request: Request) -> Key | None:
    """Whose key the request carries, if it opens anything.

    Raises:
        LedgerError: the ledger does not answer.
    """
    secret = secret_of(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    try:
        return None if secret is None else doorkeeper.key(secret)
    except RefusalError:
        return None
