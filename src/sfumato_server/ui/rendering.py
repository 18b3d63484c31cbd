"""How pages are rendered: templates with everything escaped, gauges, refusals for people, and notes shown once."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from importlib import resources
from typing import Any, TypedDict

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from sfumato.errors import SfumatoError
from sfumato.ledger import Account
from sfumato_server.access import KeyLookup, secret_of
from sfumato_server.problems import RefusalError, problem
from sfumato_server.registry import Key
from sfumato_server.ui import static_files

NOTE_COOKIE = "sfumato_note"
REFUSALS = (SfumatoError, RefusalError)
_NOTE_SECONDS = 60
_NOTE_PATH = "/steward"
_FOR_PEOPLE = {
    "missing-key": "You are not signed in any more.  Enter with your key again; what you filled in is still here.",
    "unknown-key": "Your key or session has ended.  Enter again, with a key that a steward gave you.",
    "expired-key": "Your key has expired or was revoked.  A steward can give you a new one.",
    "wrong-scope": "This page is for stewards.  Ask one of them, or enter with a steward's key.",
    "dataset-paused": "The dataset is paused.  Nothing is answered until a steward has had its table read again.",
    "unknown-dataset": "There is no dataset of that name that you may ask.  See the list of datasets.",
    "not-found": "There is nothing at this address.  See the list of datasets.",
}
_KINDS = (SfumatoError, RefusalError, RequestValidationError, HTTPException, Exception)


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401  (what templates show)
    """A whole page."""
    shown = {"problem": None, "done": None, "secret": None, "wrong": False, "first": False, **values}
    return HTMLResponse(_environment().get_template(name).render(**shown), status)


def entrance(request: Request, *, status: int = 200, **said: bool) -> HTMLResponse:
    """The page that asks for a key, or sends people to the provider of identities where there is one."""
    return page("enter.html.j2", key=None, provider=request.app.state.provider is not None, status=status, **said)


def fragment(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """A part of a page, for htmx to put in its place."""
    return HTMLResponse(_environment().get_template(name).render(**values), status)


@cache
def _environment() -> Environment:
    folder = resources.files("sfumato_server.ui").joinpath("templates")
    sources = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".j2")}
    environment = Environment(
        loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = _json
    environment.filters["figure"] = lambda number: f"{number:,.6g}"
    environment.filters["error"] = lambda number: f"{float(f'{number:.3g}'):,.6g}"  # which is itself an estimate
    environment.filters["address"] = static_files.address
    return environment


def _json(value: object) -> Markup:
    """JSON inside a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (escaped just now)


@dataclass(frozen=True)
class Gauge:
    """The share that is left, 0 to 1 (None: no limit), exact amounts in words, and the guarantee of all releases."""

    share: float | None
    words: str
    guarantee: str


def gauge(account: Account) -> Gauge:
    """The gauge of an account."""
    share = account.share_left
    if share is None:
        return Gauge(None, "no cap of your own", account.guarantee)
    return Gauge(float(share), str(account), account.guarantee)


def show_errors(app: FastAPI) -> None:
    """Show what the application's own handlers say as a page, where a person asked for a page."""
    for kind in _KINDS:
        app.add_exception_handler(kind, partial(_shown, app.exception_handlers[kind]))


def _shown(handler: Any, request: Request, error: Exception) -> Response:  # noqa: ANN401  (one of problems.install)
    reply: Response = handler(request, error)
    wanted = in_place(request) or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith("/v1/") or not wanted:
        return reply
    found = for_people(json.loads(bytes(reply.body)))
    if in_place(request):
        return fragment("problem.html.j2", problem=found, status=reply.status_code)
    if reply.status_code == HTTPStatus.UNAUTHORIZED:
        return entrance(request, first=True, status=reply.status_code)
    try:
        key = known(request)
    except SfumatoError:  # a ledger that does not answer knows nobody
        key = None
    return page("error.html.j2", key=key, problem=found, status=reply.status_code)


def in_place(request: Request) -> bool:
    """Whether a script of the page asks, and puts the reply in its place."""
    return "hx-request" in request.headers


def for_people(found: dict[str, Any]) -> dict[str, Any]:
    """A problem in words for people, where its own are for programs."""
    told = dict(found)
    detail = _FOR_PEOPLE.get(str(found.get("type", "")).removeprefix("/problems/"))
    if detail is not None:
        told["detail"] = detail
    if "errors" in found:
        told["errors"] = [each | {"place": _field(str(each["place"]))} for each in found["errors"]]
    return told


def _field(place: str) -> str:
    """What a form calls the field that a place names."""
    name = next((part for part in reversed(place.split(".")) if not part.isdigit()), place)
    return name.replace("_", " ").capitalize()


def refused(error: Exception) -> Response:
    """An error as a fragment."""
    found = for_people(problem(error))
    return fragment("problem.html.j2", problem=found, status=found["status"])


def known(request: Request) -> Key | None:
    """Whose key the request carries, if it opens anything.

    Raises:
        LedgerError: the ledger does not answer.
    """
    secret = secret_of(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    try:
        return None if secret is None else key_lookup.key(secret)
    except RefusalError:
        return None


def by_tls(request: Request) -> bool:
    """Whether browsers reach this server by TLS, which may end before it."""
    base: str | None = request.app.state.base_url
    return request.url.scheme == "https" or (base is not None and base.startswith("https:"))


class Note(TypedDict, total=False):
    """What a page says once after a form was posted: what was done, and a secret that is shown only now.

    The reply to the form redirects, so that a reload posts nothing again; the note travels in a cookie that scripts
    and other sites cannot read, and is gone when it was shown.
    """

    done: str
    secret: str


def leave_note(request: Request, path: str, note: Note) -> Response:
    """Go to a page that says it."""
    response = RedirectResponse(path, 303)
    text = base64.urlsafe_b64encode(json.dumps(note).encode()).decode()
    kept: dict[str, Any] = {"max_age": _NOTE_SECONDS, "path": _NOTE_PATH}
    response.set_cookie(NOTE_COOKIE, text, httponly=True, samesite="strict", secure=by_tls(request), **kept)
    return response


def read_note(request: Request) -> Note:
    """What is to be said, if anything."""
    try:
        found = json.loads(base64.urlsafe_b64decode(request.cookies.get(NOTE_COOKIE, "")))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    note: Note = {"done": str(found.get("done", ""))}
    return note | {"secret": str(found["secret"])} if "secret" in found else note


def forget_note(response: Response) -> Response:
    """The response, with the note that it shows forgotten."""
    response.delete_cookie(NOTE_COOKIE, path=_NOTE_PATH)
    return response
