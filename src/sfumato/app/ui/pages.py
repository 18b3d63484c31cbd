"""Pages and fragments.  A key in a cookie that no other site can send stands for whoever asks."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from sfumato.app.http.access import COOKIE, KeyLookup, Worker, secret_of
from sfumato.app.http.datasets import summary
from sfumato.app.http.problems import RefusalError
from sfumato.app.http.registry import Scope
from sfumato.app.ui import dataset_pages, steward_pages
from sfumato.app.ui.rendering import gauge, known, page, show_errors

_KEY_LIFETIME = timedelta(hours=12)

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
    shown = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in worker.all()]
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
    """Trade a steward's link, once, for a key that lasts a day's work."""
    found = worker.registry.key(link)
    if found is None or found.scope is not Scope.LINK or not found.valid or not worker.registry.revoke(found.id):
        return page("enter.html.j2", key=None, wrong=True, status=403)
    _, secret = worker.registry.issue(found.name, Scope.STEWARD, _KEY_LIFETIME)
    return _with_cookie(request, secret)


@router.post("/enter")
def enter(key: Annotated[str, Form(max_length=200)], request: Request) -> Response:
    """Take a key."""
    key_lookup: KeyLookup = request.app.state.key_lookup
    try:
        key_lookup.key(key.strip())
    except RefusalError:
        return page("enter.html.j2", key=None, wrong=True, status=403)
    return _with_cookie(request, key.strip())


@router.post("/leave")
def leave() -> Response:
    """Forget the key."""
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE)
    return response


def _with_cookie(request: Request, secret: str) -> Response:
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, secret, httponly=True, samesite="strict", secure=secure, max_age=int(_KEY_LIFETIME.total_seconds())
    )
    return response
