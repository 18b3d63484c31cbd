"""Pages and fragments.  A session in a cookie that no other site can send stands for whoever asks."""

from __future__ import annotations

from importlib import resources
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from sfumato.app.http.access import COOKIE, Anyone, KeyLookup, Worker, secret_of
from sfumato.app.http.admission import Pace
from sfumato.app.http.datasets import summary
from sfumato.app.http.problems import RefusalError
from sfumato.app.http.registry import Scope
from sfumato.app.http.sessions import LONGEST, is_session
from sfumato.app.ui import dataset_pages, steward_pages
from sfumato.app.ui.rendering import gauge, known, page, show_errors

Text = Annotated[str, Form(max_length=20_000)]


def same_site(request: Request) -> None:
    """Refuse forms that another site posts.

    Raises:
        RefusalError: the Origin header names another host.
    """
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise RefusalError("foreign-origin", "This form came from another site", 403, "post from the page itself")


router = APIRouter(include_in_schema=False, dependencies=[Depends(same_site)])


def mount(app: FastAPI) -> None:
    """Add the page to an application."""
    static = resources.files("sfumato.app.ui").joinpath("static")
    app.mount("/static", StaticFiles(directory=str(static)), name="static")
    app.include_router(router)
    for pages in (dataset_pages.router, steward_pages.router):
        app.include_router(pages, dependencies=[Depends(same_site)])
    show_errors(app)


@router.get("/", response_class=HTMLResponse)
def home(request: Request, worker: Worker) -> Response:
    """Datasets, or the form that asks for a key."""
    key = known(request)
    if key is None:
        return page("enter.html.j2", key=None, wrong=secret_of(request) is not None)
    shown = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in worker.all_open_to(key)]
    return page("datasets.html.j2", key=key, datasets=shown)


@router.get("/enter")
def arrive(link: Annotated[str, Query(max_length=200)], worker: Worker) -> Response:
    """Show a steward's link as a button: whatever merely looks at the address must not use it up."""
    found = worker.registry.key(link)
    if found is None or found.scope is not Scope.LINK or not found.valid:
        return page("enter.html.j2", key=None, wrong=True, status=403)
    return page("arrive.html.j2", key=None, link=link)


@router.post("/enter/link")
def follow(link: Annotated[str, Form(max_length=200)], request: Request, worker: Worker) -> Response:
    """Trade a steward's link, once, for a session."""
    _take(request)
    found = worker.registry.key(link)
    if found is None or found.scope is not Scope.LINK or not found.valid or not worker.registry.revoke(found.id):
        return page("enter.html.j2", key=None, wrong=True, status=403)
    return _entered(request, worker.sessions.begin(found))


@router.post("/enter")
def enter(key: Annotated[str, Form(max_length=200)], request: Request, worker: Worker) -> Response:
    """Begin a session with a key."""
    _take(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    try:
        if is_session(key.strip()):
            return page("enter.html.j2", key=None, wrong=True, status=403)
        return _entered(request, worker.sessions.begin(key_lookup.key(key.strip())))
    except RefusalError:
        return page("enter.html.j2", key=None, wrong=True, status=403)


@router.post("/leave")
def leave(request: Request, worker: Worker) -> Response:
    """End this session."""
    secret = secret_of(request)
    if secret is not None:
        worker.sessions.end(secret)
    return _left(request)


@router.post("/leave/all")
def leave_everywhere(request: Request, key: Anyone, worker: Worker) -> Response:
    """End all sessions of whoever asks, on every machine."""
    worker.sessions.end_all(key.name)
    return _left(request)


def _take(request: Request) -> None:
    """Let one attempt of an address in.

    Raises:
        RefusalError: too many came before it.
    """
    entrance: Pace = request.app.state.entrance
    entrance.take("" if request.client is None else request.client.host)


def _left(request: Request) -> Response:
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE)
    return response


def _entered(request: Request, session: str) -> Response:
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    lasting = int(LONGEST.total_seconds())
    response.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=secure, max_age=lasting)
    return response
