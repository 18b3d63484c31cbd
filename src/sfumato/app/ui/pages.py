"""Pages and fragments.  A key in a cookie that no other site can send stands for whoever asks."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from sfumato.app.http.access import COOKIE, Anyone, Doorkeeper, Worker, secret_of
from sfumato.app.http.overspent import explained
from sfumato.app.http.queries import summary
from sfumato.app.http.refusal import RefusalError
from sfumato.app.http.stewards import entries, entry
from sfumato.app.ui import asking, desk, making, mistakes
from sfumato.app.ui.chart import chart, telling
from sfumato.app.ui.gauge import gauge
from sfumato.app.ui.mistakes import known, refused
from sfumato.app.ui.render import fragment, page
from sfumato.errors import SfumatoError
from sfumato.ledger.registry import Key, Scope
from sfumato.privacy.loss import Epsilon

_SITTING = timedelta(hours=12)
_SHOWN = 50

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
    for rooms in (desk.router, making.router):
        app.include_router(rooms, dependencies=[Depends(same_site)])
    mistakes.install(app)


@router.get("/", response_class=HTMLResponse)
def home(request: Request, worker: Worker) -> Response:
    """Datasets, or the door."""
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
    _, secret = worker.registry.issue(found.name, Scope.STEWARD, _SITTING)
    return _seated(request, secret)


@router.post("/enter")
def enter(key: Annotated[str, Form(max_length=200)], request: Request) -> Response:
    """Take a key."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    try:
        doorkeeper.key(key.strip())
    except RefusalError:
        return page("enter.html.j2", key=None, wrong=True, status=403)
    return _seated(request, key.strip())


@router.post("/leave")
def leave() -> Response:
    """Forget the key."""
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE)
    return response


@router.get("/datasets/{name}", response_class=HTMLResponse)
def dataset(name: str, key: Anyone, worker: Worker) -> Response:
    """Ask a dataset."""
    loaded = worker.loaded(name)
    attributes = [
        {"name": each.name, "numeric": each.name in asking.numbers(loaded.domain), "cells": each.labels()}
        for each in loaded.domain
    ]
    return page(
        "dataset.html.j2",
        key=key,
        dataset=summary(loaded),
        attributes=attributes,
        concentrated=not isinstance(loaded.ledger.limit, Epsilon),
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def preview(name: str, form: Annotated[asking.Asked, Form()], _: Anyone, worker: Worker) -> Response:
    """How wrong the answer would be; spends nothing."""
    try:
        return fragment("preview.html.j2", **asking.preview(worker.loaded(name), form))
    except (SfumatoError, RefusalError) as error:
        return refused(error)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def ask(name: str, form: Annotated[asking.Asked, Form()], key: Anyone, worker: Worker) -> Response:
    """Answer, with what is left and the history."""
    loaded = worker.loaded(name)
    try:
        with explained(loaded.ledger, key):
            answer = asking.answer(loaded, worker.vault(name, key.name), form)
    except (SfumatoError, RefusalError) as error:
        return refused(error)
    return fragment(
        "answer.html.j2",
        answer=answer,
        chart=chart(answer, loaded.domain),
        telling=telling(answer, loaded.domain),
        dataset=summary(loaded),
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


def _history(worker: Worker, name: str, key: Key) -> list[dict[str, Any]]:
    own = entries(worker.loaded(name).ledger.journal(), key.name)
    return [entry(each) for each in own][-_SHOWN:][::-1]


def _seated(request: Request, secret: str) -> Response:
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, secret, httponly=True, samesite="strict", secure=secure, max_age=int(_SITTING.total_seconds())
    )
    return response
