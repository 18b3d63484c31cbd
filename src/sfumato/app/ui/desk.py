"""The steward's desk: datasets, caps, keys and journals.  What was done is said once, after a redirect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, Response

from sfumato.app.http.access import Steward, Worker
from sfumato.app.http.forms import KeyForm
from sfumato.app.http.problems import problem
from sfumato.app.http.queries import summary
from sfumato.app.http.refusal import RefusalError, unusable
from sfumato.app.http.stewards import described, entries, entry, remarks
from sfumato.app.ui import asking, notes
from sfumato.app.ui.gauge import gauge
from sfumato.app.ui.render import page
from sfumato.engine.address import shown
from sfumato.errors import DomainError, SfumatoError
from sfumato.ledger.registry import Key, Scope

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Form(max_length=20_000)]
_HERE = "/steward"
_EMPTY: defaultdict[str, str] = defaultdict(str)  # what a form shows that nobody has filled in
_REFUSALS = (SfumatoError, RefusalError)


@router.get("/steward", response_class=HTMLResponse)
def desk(request: Request, key: Steward, worker: Worker) -> Response:
    """Datasets, keys and forms to change them."""
    return notes.shown(_desk(key, worker, **notes.read(request)))


@router.post("/steward/datasets", response_class=HTMLResponse)
def register(request: Request, key: Steward, worker: Worker, form: Annotated[asking.NewDataset, Form()]) -> Response:
    """Register a dataset."""
    name = form.name.strip()
    try:
        worker.register(
            name,
            source=form.source.strip(),
            domain=_domain(form.domain),
            limit=form.limit.strip(),
            more={"second_budget": form.second_budget},
        )
    except _REFUSALS as error:
        return _refused(key, worker, error, form.model_dump())
    return notes.leave(request, _HERE, {"done": f"{name} is registered."})


@router.post("/steward/caps", response_class=HTMLResponse)
def cap(request: Request, key: Steward, worker: Worker, form: Annotated[asking.NewCap, Form()]) -> Response:
    """Set or lift what an analyst may spend."""
    analyst = form.analyst.strip()
    try:
        ledger = worker.loaded(form.dataset).ledger
        ledger.set_cap(analyst, None if form.lift else asking.cap(ledger.limit, form.most.strip()))
    except _REFUSALS as error:
        return _refused(key, worker, error, form.model_dump())
    done = f"The cap of {analyst} is {'lifted' if form.lift else 'set'}."
    warned = "".join(f" But {remark}." for remark in remarks(worker, analyst))
    return notes.leave(request, _HERE, {"done": done + warned})


@router.post("/steward/keys", response_class=HTMLResponse)
def issue(request: Request, key: Steward, worker: Worker, form: Annotated[asking.NewKey, Form()]) -> Response:
    """Issue a key and show it once."""
    wanted = KeyForm(name=form.holder, scope=form.scope, days=form.days)
    try:
        _, secret = worker.registry.issue(wanted.name, Scope(wanted.scope), timedelta(days=wanted.days))
    except _REFUSALS as error:
        return _refused(key, worker, error, form.model_dump())
    return notes.leave(request, _HERE, {"secret": secret, "done": f"A key for {wanted.name}, shown only now:"})


@router.post("/steward/keys/{key_id}/revoke", response_class=HTMLResponse)
def revoke(request: Request, key_id: str, _: Steward, worker: Worker) -> Response:
    """End a key."""
    done = worker.registry.revoke(key_id)
    return notes.leave(request, _HERE, {"done": "The key is revoked." if done else "There was no such key to revoke."})


@router.get("/steward/{name}", response_class=HTMLResponse)
def journal(request: Request, name: str, key: Steward, worker: Worker) -> Response:
    """The journal of a dataset, and who spent what."""
    return notes.shown(_journal(name, key, worker, **notes.read(request)))


@router.post("/steward/{name}/reading", response_class=HTMLResponse)
def read_again(request: Request, name: str, key: Steward, worker: Worker) -> Response:
    """Read the table again, and confirm what it holds now."""
    try:
        _, changed = worker.tables.read_again(worker.loaded(name))
    except _REFUSALS as error:
        found = problem(error)
        return _journal(name, key, worker, problem=found, status=found["status"])
    found_words = "has changed; questions are answered of its new content" if changed else "is as it was"
    return notes.leave(request, f"{_HERE}/{name}", {"done": f"The table was read: it {found_words}."})


def _domain(text: str) -> dict[str, Any]:
    try:
        return asking.document(text)
    except DomainError as error:
        raise unusable(error) from error


def _journal(name: str, key: Key, worker: Worker, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    loaded = worker.loaded(name)
    return page(
        "journal.html.j2",
        key=key,
        dataset=summary(loaded),
        source=shown(loaded.dataset.source),
        gauge=gauge(loaded.ledger.remaining()),
        entries=[entry(each) for each in entries(loaded.ledger.journal(), None)][::-1],
        analysts=[(analyst, str(account)) for analyst, account in loaded.ledger.caps().items()],
        head=loaded.ledger.verify(),
        **said,
    )


def _refused(key: Key, worker: Worker, error: Exception, filled: Mapping[str, Any]) -> Response:
    """The desk with a refusal, and the form as it was filled in."""
    found = problem(error)
    return _desk(key, worker, problem=found, filled=defaultdict(str, filled), status=found["status"])


def _desk(key: Key, worker: Worker, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    registered = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in worker.all()]
    keys = [described(each) for each in worker.registry.all_keys()]
    return page("steward.html.j2", key=key, datasets=registered, keys=keys, **{"filled": _EMPTY, **said})
