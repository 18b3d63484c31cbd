"""Pages and fragments.  A key in a cookie that no other site can send stands for whoever asks."""

from __future__ import annotations

from datetime import timedelta
from importlib import resources
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from sfumato.app.http.access import COOKIE, Anyone, Doorkeeper, Steward, Worker, secret_of
from sfumato.app.http.forms import KeyForm
from sfumato.app.http.overspent import explained
from sfumato.app.http.problems import problem
from sfumato.app.http.queries import summary
from sfumato.app.http.refusal import RefusalError
from sfumato.app.http.stewards import described, entries, entry
from sfumato.app.ui import asking
from sfumato.app.ui.gauge import gauge
from sfumato.app.ui.render import fragment, page
from sfumato.errors import SfumatoError
from sfumato.ledger.registry import Key, Scope

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


@router.get("/", response_class=HTMLResponse)
def home(request: Request, worker: Worker) -> Response:
    """Datasets, or the door."""
    key = _known(request)
    if key is None:
        return page("enter.html.j2", key=None, wrong=secret_of(request) is not None)
    shown = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in _all(worker)]
    return page("datasets.html.j2", key=key, datasets=shown)


@router.get("/enter")
def follow(link: Annotated[str, Query(max_length=200)], request: Request, worker: Worker) -> Response:
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
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


@router.post("/datasets/{name}/preview", response_class=HTMLResponse)
def preview(name: str, form: Annotated[asking.Asked, Form()], _: Anyone, worker: Worker) -> Response:
    """How wrong the answer would be; spends nothing."""
    try:
        return fragment("preview.html.j2", **asking.preview(worker.loaded(name), form))
    except SfumatoError as error:
        return _refused(error)


@router.post("/datasets/{name}/ask", response_class=HTMLResponse)
def ask(name: str, form: Annotated[asking.Asked, Form()], key: Anyone, worker: Worker) -> Response:
    """Answer, with what is left and the history."""
    loaded = worker.loaded(name)
    try:
        with explained(loaded.ledger, key):
            answer = asking.answer(loaded, worker.vault(name, key.name), form)
    except SfumatoError as error:
        return _refused(error)
    return fragment(
        "answer.html.j2",
        answer=answer,
        chart=asking.chart(answer),
        dataset=summary(loaded),
        gauge=gauge(loaded.ledger.remaining()),
        own=gauge(loaded.ledger.remaining(key.name)),
        history=_history(worker, name, key),
    )


@router.get("/steward", response_class=HTMLResponse)
def desk(key: Steward, worker: Worker) -> Response:
    """Datasets, keys and forms to change them."""
    return _desk(key, worker, {})


@router.post("/steward/datasets", response_class=HTMLResponse)
def register(key: Steward, worker: Worker, name: Text, source: Text, domain: Text, limit: Text) -> Response:
    """Register a dataset."""
    try:
        worker.register(
            name.strip(), source=source.strip(), domain=asking.document(domain), limit=limit.strip(), more={}
        )
    except SfumatoError as error:
        return _desk(key, worker, {"problem": problem(error)})
    return _desk(key, worker, {"done": f"{name.strip()} is registered."})


@router.post("/steward/caps", response_class=HTMLResponse)
def cap(key: Steward, worker: Worker, dataset: Text, analyst: Text, epsilon: Text) -> Response:
    """Set what an analyst may spend."""
    try:
        worker.loaded(dataset).ledger.set_cap(analyst.strip(), asking.cap(worker.loaded(dataset).ledger.limit, epsilon))
    except SfumatoError as error:
        return _desk(key, worker, {"problem": problem(error)})
    return _desk(key, worker, {"done": f"The cap of {analyst.strip()} is set."})


@router.post("/steward/keys", response_class=HTMLResponse)
def issue(key: Steward, worker: Worker, form: Annotated[asking.NewKey, Form()]) -> Response:
    """Issue a key and show it once."""
    wanted = KeyForm(name=form.name, scope=form.scope, days=form.days)
    try:
        _, secret = worker.registry.issue(wanted.name, Scope(wanted.scope), timedelta(days=wanted.days))
    except SfumatoError as error:
        return _desk(key, worker, {"problem": problem(error)})
    return _desk(key, worker, {"secret": secret, "done": f"A key for {wanted.name}, shown only now:"})


@router.post("/steward/keys/{key_id}/revoke", response_class=HTMLResponse)
def revoke(key_id: str, key: Steward, worker: Worker) -> Response:
    """End a key."""
    done = worker.registry.revoke(key_id)
    return _desk(key, worker, {"done": "The key is revoked." if done else "There was no such key to revoke."})


@router.get("/steward/{name}", response_class=HTMLResponse)
def journal(name: str, key: Steward, worker: Worker) -> Response:
    """The journal of a dataset, and who spent what."""
    loaded = worker.loaded(name)
    return page(
        "journal.html.j2",
        key=key,
        dataset=summary(loaded),
        gauge=gauge(loaded.ledger.remaining()),
        entries=[entry(each) for each in entries(loaded.ledger.journal(), None)][::-1],
        analysts=[(analyst, str(account)) for analyst, account in loaded.ledger.caps().items()],
        head=loaded.ledger.verify(),
    )


def _desk(key: Key, worker: Worker, said: dict[str, Any]) -> Response:
    shown = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in _all(worker)]
    keys = [described(each) for each in worker.registry.all_keys()]
    return page("steward.html.j2", key=key, datasets=shown, keys=keys, **said)


def _all(worker: Worker) -> list[Any]:
    return [worker.loaded(each.name) for each in worker.registry.datasets()]


def _history(worker: Worker, name: str, key: Key) -> list[dict[str, Any]]:
    own = entries(worker.loaded(name).ledger.journal(), key.name)
    return [entry(each) for each in own][-_SHOWN:][::-1]


def _known(request: Request) -> Key | None:
    secret = secret_of(request)
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    try:
        return None if secret is None else doorkeeper.key(secret)
    except RefusalError:
        return None


def _seated(request: Request, secret: str) -> Response:
    response = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, secret, httponly=True, samesite="strict", secure=secure, max_age=int(_SITTING.total_seconds())
    )
    return response


def _refused(error: SfumatoError) -> Response:
    found = problem(error)
    return fragment("problem.html.j2", problem=found, status=found["status"])
