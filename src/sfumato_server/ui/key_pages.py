"""The steward's pages of keys and sessions, and of the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.api.administration import KeyRequest
from sfumato.app.api.questions import filled
from sfumato.errors import LedgerError
from sfumato.ledger.audit_log import newest_actions, verify_actions
from sfumato_server import stewards
from sfumato_server.access import KeyLookup, Steward, Worker
from sfumato_server.problems import problem
from sfumato_server.registry import Key, Scope
from sfumato_server.stewards import PAGE, found_keys, key_facts
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, forget_note, leave_note, page, read_note

router = APIRouter(include_in_schema=False)

KEYS = "/steward/all/keys"
ACTIONS = "/steward/all/actions"
_LONGEST = 3660  # days for which a key is valid


class KeyForm(BaseModel):
    """What the steward's form for keys sends."""

    holder: Short
    scope: Literal["steward", "analyst", "monitor"]
    days: Annotated[int, Field(ge=1, le=3650)]


class KeySearch(BaseModel):
    """Which keys are looked for: by the holder's name, by their state, or those that end within some days."""

    q: Annotated[str, Field(max_length=200)] = ""
    state: Literal["all", "valid", "ended", "soon"] = "all"
    days: Annotated[int, Field(ge=0, le=_LONGEST)] = 30


@router.get(KEYS, response_class=HTMLResponse)
def keys_page(request: Request, key: Steward, worker: Worker, search: Annotated[KeySearch, Query()]) -> Response:
    """Keys that are looked for, newest first."""
    return forget_note(_keys_page(key, worker, **search.model_dump(), **read_note(request)))


@router.post("/steward/keys", response_class=HTMLResponse)
def issue(request: Request, key: Steward, worker: Worker, form: Annotated[KeyForm, Form()]) -> Response:
    """Issue a key and show it once."""
    try:
        wanted = filled(KeyRequest, {"name": form.holder, "scope": form.scope, "days": form.days})
        scope, lifetime = Scope(wanted.scope), timedelta(days=wanted.days)
        _, secret = worker.registry.issue(wanted.name, scope, lifetime, by=key.actor)
    except REFUSALS as error:
        found = problem(error)
        return _keys_page(key, worker, problem=found, holder=form.holder, status=found["status"])
    return leave_note(request, KEYS, {"secret": secret, "done": f"A key for {wanted.name}, shown only now:"})


@router.post("/steward/keys/{key_id}/rotate", response_class=HTMLResponse)
def rotate(request: Request, key_id: str, key: Steward, worker: Worker) -> Response:
    """Issue a key in the place of another, which ends, and show it once."""
    found = worker.registry.rotate(key_id, overlap=timedelta(0), by=key.actor)
    if found is None:
        return leave_note(request, KEYS, {"done": "There was no such key to rotate."})
    done = f"The key of {found[0].name} has ended; a new one in its place, shown only now:"
    return leave_note(request, KEYS, {"secret": found[1], "done": done})


@router.post("/steward/keys/{key_id}/revoke", response_class=HTMLResponse)
def revoke(request: Request, key_id: str, key: Steward, worker: Worker) -> Response:
    """End a key."""
    done = worker.registry.revoke(key_id, by=key.actor)
    return leave_note(request, KEYS, {"done": "The key is revoked." if done else "There was no such key to revoke."})


@router.post("/steward/sessions/end", response_class=HTMLResponse)
def end_sessions(request: Request, key: Steward, worker: Worker) -> Response:
    """End everybody's sessions, this one too."""
    worker.sessions.end_all(by=key.actor)
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    return RedirectResponse("/", 303)


@router.get(ACTIONS, response_class=HTMLResponse)
def actions_page(key: Steward, worker: Worker, before: Annotated[int | None, Query(ge=1, le=2**53)] = None) -> Response:
    """Show what stewards and operators changed, newest first, and whether the audit log is whole."""
    with worker.store.reading() as driver:
        found, whole, broken = [], None, None
        try:
            found = newest_actions(driver, before=before, most=PAGE)
            whole = verify_actions(driver)
        except LedgerError as error:
            broken = str(error)
    older = found[-1].number if found and found[-1].number > 1 else None
    return page(
        "actions.html.j2", key=key, actions=found, older=older, newer=before is not None, whole=whole, broken=broken
    )


@router.get(f"{ACTIONS}/lines")
def actions_file(key: Steward, worker: Worker) -> Response:
    """Export the audit log as a file of lines of JSON."""
    lines = stewards.actions(key, worker)
    lines.headers["Content-Disposition"] = 'attachment; filename="actions.jsonl"'
    return lines


def _keys_page(key: Key, worker: Worker, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    shown = {**KeySearch().model_dump(), "holder": "", **said}
    soon = shown["state"] == "soon"
    state, within = ("all", shown["days"]) if soon else (shown["state"], None)
    found = found_keys(worker.registry, shown["q"].strip(), state, within)
    return page("keys.html.j2", key=key, keys=[key_facts(each) for each in found], **shown)
