"""The steward's pages: datasets, analysts, journals, keys, sessions and the audit log.

A page says once, after a redirect, what was done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.api.administration import KeyRequest, RenameRequest, RetirementRequest, TermsRequest
from sfumato.app.api.questions import limit_of, validate_fields
from sfumato.engine.table_files import redacted_source
from sfumato.errors import DomainError, LedgerError
from sfumato.ledger.audit_log import newest_actions, verify_actions
from sfumato.privacy.loss import EpsilonDelta, Loss
from sfumato_server import stewards
from sfumato_server.access import CurrentService, KeyLookup, Steward
from sfumato_server.datasets import summary
from sfumato_server.problems import problem, unusable
from sfumato_server.registry import Key, Scope
from sfumato_server.stewards import PAGE, accepted, entry, found_keys, key_facts, read_described, read_document, remarks
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, forget_note, gauge, leave_note, page, read_note

router = APIRouter(include_in_schema=False)

_HERE = "/steward"
_ANALYSTS = "/steward/all/analysts"
SearchText = Annotated[str, Query(max_length=200)]
_EMPTY: defaultdict[str, str] = defaultdict(str)  # what a form shows that nobody has filled in


class DatasetForm(BaseModel):
    """What the steward's form for datasets sends."""

    name: Short
    source: Annotated[str, Field(max_length=2000)]
    domain: Annotated[str, Field(max_length=200_000)]
    limit: Short
    second_budget: bool = False
    accepted: bool = False


class CapForm(BaseModel):
    """What the steward's form for caps sends."""

    dataset: Short
    analyst: Short
    most: Short = ""
    lift: bool = False


class TermsForm(BaseModel):
    """What the steward's form for the terms of a dataset sends."""

    granted_only: bool = False
    default_cap: Short = ""
    most: Short = ""
    approval_above: Short = ""


class GrantForm(BaseModel):
    """What the steward's form for those who may ask sends."""

    analyst: Annotated[str, Field(min_length=1, max_length=200)]
    shut: bool = False


class ApprovalForm(BaseModel):
    """What the steward's form for approvals sends."""

    refuse: bool = False


class NameForm(BaseModel):
    """What the steward's form for the name of a dataset sends."""

    called: Short


class RetirementForm(BaseModel):
    """What the steward's form for the end of a dataset sends."""

    retired: bool = False


@router.get("/steward", response_class=HTMLResponse)
def steward_page(request: Request, key: Steward, service: CurrentService, q: SearchText = "") -> Response:
    """Datasets whose names have a text, what waits for approval, and a form to register more."""
    return forget_note(_steward_page(key, service, q=q, **read_note(request)))


@router.get(_ANALYSTS, response_class=HTMLResponse)
def analysts_page(request: Request, key: Steward, service: CurrentService, q: SearchText = "") -> Response:
    """What each analyst whose name has a text may spend of which dataset, and a form for caps."""
    return forget_note(_analysts_page(key, service, q=q, **read_note(request)))


@router.post("/steward/datasets", response_class=HTMLResponse)
def register(request: Request, key: Steward, service: CurrentService, form: Annotated[DatasetForm, Form()]) -> Response:
    """Register a dataset."""
    name = form.name.strip()
    try:
        service.register(
            name,
            source=form.source.strip(),
            domain=accepted(read_described(_read(form.domain)), by=key.name) if form.accepted else _read(form.domain),
            limit=form.limit.strip(),
            more={"second_budget": form.second_budget, "by": key.actor},
        )
    except REFUSALS as error:
        return refused_page(key, service, error, form.model_dump())
    return leave_note(request, _HERE, {"done": f"{name} is registered."})


@router.post("/steward/caps", response_class=HTMLResponse)
def cap(request: Request, key: Steward, service: CurrentService, form: Annotated[CapForm, Form()]) -> Response:
    """Set or lift what an analyst may spend; nothing shuts out, and anything else lets in again."""
    try:
        loaded = service.loaded(form.dataset)
        analyst, ledger = service.analyst(loaded, form.analyst), loaded.ledger
        if not form.lift and form.most.strip() == "0":
            service.grants.shut_out(loaded.dataset.name, analyst, by=key.actor)
            done = f"{analyst} is shut out of {form.dataset}."
        else:
            ledger.set_cap(analyst, None if form.lift else cap_of(ledger.limit, form.most.strip()), by=key.actor)
            service.grants.let_back(loaded.dataset.name, analyst, by=key.actor)
            done = f"The cap of {analyst} is {'lifted' if form.lift else 'set'}."
    except REFUSALS as error:
        found, kept = problem(error), defaultdict(str, form.model_dump())
        return _analysts_page(key, service, problem=found, filled=kept, status=found["status"])
    warned = "".join(f" But {remark}." for remark in remarks(service, analyst))
    return leave_note(request, _ANALYSTS, {"done": done + warned})


@router.post("/steward/{name}/terms", response_class=HTMLResponse)
def set_terms(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[TermsForm, Form()]
) -> Response:
    """Set on which terms a dataset is asked."""
    limits = {"default_cap": form.default_cap.strip() or None, "most": form.most.strip() or None}
    limits["approval_above"] = form.approval_above.strip() or None
    try:
        stewards.set_terms(
            name, validate_fields(TermsRequest, {"granted_only": form.granted_only, **limits}), key, service
        )
    except REFUSALS as error:
        found = problem(error)
        return _journal(name, key, service, problem=found, status=found["status"])
    return leave_note(request, f"{_HERE}/{name}", {"done": "The terms are set."})


@router.post("/steward/{name}/grants", response_class=HTMLResponse)
def grant(
    request: Request, name: str, service: CurrentService, key: Steward, form: Annotated[GrantForm, Form()]
) -> Response:
    """Let an analyst in, or shut one out."""
    loaded = service.loaded(name)
    analyst = service.analyst(loaded, form.analyst)
    (service.grants.shut_out if form.shut else service.grants.let_in)(loaded.dataset.name, analyst, by=key.actor)
    done = f"{analyst} is {'shut out' if form.shut else 'let in'}."
    return leave_note(request, f"{_HERE}/{name}", {"done": done})


@router.post("/steward/approvals/{approval_id}", response_class=HTMLResponse)
def approve(
    request: Request, approval_id: str, key: Steward, service: CurrentService, form: Annotated[ApprovalForm, Form()]
) -> Response:
    """Approve one release, or refuse it."""
    if form.refuse:
        done = "It is refused." if service.approvals.close(approval_id, by=key.actor) else "Nothing waits there."
    elif service.approvals.approve(approval_id, key):
        done = "It is approved, once; whoever asked for it asks again."
    else:
        done = "Nothing waits for your approval there: it was approved or closed, has ended, or you asked for it."
    return leave_note(request, _HERE, {"done": done})


@router.post("/steward/{name}/name", response_class=HTMLResponse)
def rename(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[NameForm, Form()]
) -> Response:
    """Call a dataset otherwise."""
    try:
        renaming = validate_fields(RenameRequest, {"name": form.called.strip()})
        called = stewards.rename(name, renaming, key, service)["name"]
    except REFUSALS as error:
        found = problem(error)
        return _journal(name, key, service, problem=found, status=found["status"])
    return leave_note(request, f"{_HERE}/{called}", {"done": f"{name} is called {called} now."})


@router.post("/steward/{name}/retirement", response_class=HTMLResponse)
def retire(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[RetirementForm, Form()]
) -> Response:
    """Release nothing more of a dataset, or go on."""
    stewards.retire(name, RetirementRequest(retired=form.retired), key, service)
    done = "It is retired: nothing more is released of it, and its snapshot is deleted."
    if not form.retired:
        done = "It is no longer retired. Read its table again, and questions are answered again."
    return leave_note(request, f"{_HERE}/{name}", {"done": done})


@router.get("/steward/{name}", response_class=HTMLResponse)
def journal(
    request: Request,
    name: str,
    key: Steward,
    service: CurrentService,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Response:
    """The journal of a dataset, and who spent what."""
    return forget_note(_journal(name, key, service, before, **read_note(request)))


@router.post("/steward/{name}/reading", response_class=HTMLResponse)
def read_again(request: Request, name: str, key: Steward, service: CurrentService) -> Response:
    """Read the table again, and declare its content."""
    try:
        version, changed = service.tables.read_again(service.loaded(name), by=key.actor)
    except REFUSALS as error:
        found = problem(error)
        return _journal(name, key, service, problem=found, status=found["status"])
    told = "It differs from the last version" if changed else "It is as it was"
    words = f"The table was read. {told}. It is version {version.number} now, in which every question is charged."
    return leave_note(request, f"{_HERE}/{name}", {"done": words})


def _read(text: str) -> dict[str, Any]:
    try:
        return read_document(text)
    except DomainError as error:
        raise unusable(error) from error


def _journal(
    name: str,
    key: Key,
    service: CurrentService,
    before: int | None = None,
    **said: Any,  # noqa: ANN401  (what templates show)
) -> Response:
    loaded = service.loaded(name)
    shown_entries = loaded.ledger.newest(PAGE, before=before)[::-1]
    try:
        whole, broken = loaded.ledger.check(), None
    except LedgerError as error:
        whole, broken = None, str(error)
    return page(
        "journal.html.j2",
        key=key,
        dataset=summary(loaded),
        source=redacted_source(loaded.dataset.source),
        gauge=gauge(loaded.ledger.remaining()),
        entries=[entry(each) for each in shown_entries],
        older=shown_entries[-1].number if shown_entries and shown_entries[-1].number > 1 else None,
        newer=before is not None,
        analysts=[(analyst, str(account)) for analyst, account in loaded.ledger.caps().items()],
        terms=service.grants.terms(loaded.dataset.name),
        named=service.grants.named(loaded.dataset.name),
        reading=stewards.reading(name, key, service),
        whole=whole,
        broken=broken,
        **said,
    )


def refused_page(key: Key, service: CurrentService, error: Exception, filled: Mapping[str, Any]) -> Response:
    """The steward's page with a refusal, and the form as it was filled in."""
    found = problem(error)
    return _steward_page(key, service, problem=found, filled=defaultdict(str, filled), status=found["status"])


def _steward_page(key: Key, service: CurrentService, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    said = {"filled": _EMPTY, "q": "", **said}
    found = [each for each in service.all_open_to(key) if _has(each.dataset.called, said["q"])]
    registered = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in found]
    waiting = stewards.approvals(key, service)["approvals"]
    return page("steward.html.j2", key=key, datasets=registered, approvals=waiting, **said)


def _analysts_page(key: Key, service: CurrentService, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    said = {"filled": _EMPTY, "q": "", **said}
    every = service.all_open_to(key)
    found = [
        (analyst, loaded.dataset.called, gauge(account), service.grants.admits(loaded.dataset.name, analyst))
        for loaded in every
        for analyst, account in loaded.ledger.caps().items()
        if _has(analyst, said["q"])
    ]
    names = [loaded.dataset.called for loaded in every]
    ordered = sorted(found, key=lambda row: row[:2])
    return page("analysts.html.j2", key=key, datasets=names, analysts=ordered, **said)


def _has(name: str, wanted: str) -> bool:
    """Whether a name has a text, whatever its case."""
    return wanted.strip().casefold() in name.casefold()


def cap_of(limit: Loss, text: str) -> Loss:
    """A cap, from a number in the measure of a limit, or spelled as a limit is.

    Raises:
        LossError: neither.
    """
    if isinstance(limit, EpsilonDelta) or text.startswith("rho="):
        found = limit_of(text)
        assert found is not None  # as there is a text
        return found
    return type(limit.divisible)(text)


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
def keys_page(
    request: Request, key: Steward, service: CurrentService, search: Annotated[KeySearch, Query()]
) -> Response:
    """Keys that are looked for, newest first."""
    return forget_note(_keys_page(key, service, **search.model_dump(), **read_note(request)))


@router.post("/steward/keys", response_class=HTMLResponse)
def issue(request: Request, key: Steward, service: CurrentService, form: Annotated[KeyForm, Form()]) -> Response:
    """Issue a key and show it once."""
    try:
        wanted = validate_fields(KeyRequest, {"name": form.holder, "scope": form.scope, "days": form.days})
        scope, lifetime = Scope(wanted.scope), timedelta(days=wanted.days)
        _, secret = service.registry.issue(wanted.name, scope, lifetime, by=key.actor)
    except REFUSALS as error:
        found = problem(error)
        return _keys_page(key, service, problem=found, holder=form.holder, status=found["status"])
    return leave_note(request, KEYS, {"secret": secret, "done": f"A key for {wanted.name}, shown only now:"})


@router.post("/steward/keys/{key_id}/rotate", response_class=HTMLResponse)
def rotate(request: Request, key_id: str, key: Steward, service: CurrentService) -> Response:
    """Issue a key in the place of another, which ends, and show it once."""
    found = service.registry.rotate(key_id, overlap=timedelta(0), by=key.actor)
    if found is None:
        return leave_note(request, KEYS, {"done": "There was no such key to rotate."})
    done = f"The key of {found[0].name} has ended; a new one in its place, shown only now:"
    return leave_note(request, KEYS, {"secret": found[1], "done": done})


@router.post("/steward/keys/{key_id}/revoke", response_class=HTMLResponse)
def revoke(request: Request, key_id: str, key: Steward, service: CurrentService) -> Response:
    """End a key."""
    done = service.registry.revoke(key_id, by=key.actor)
    return leave_note(request, KEYS, {"done": "The key is revoked." if done else "There was no such key to revoke."})


@router.post("/steward/sessions/end", response_class=HTMLResponse)
def end_sessions(request: Request, key: Steward, service: CurrentService) -> Response:
    """End everybody's sessions, this one too."""
    service.sessions.end_all(by=key.actor)
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    return RedirectResponse("/", 303)


@router.get(ACTIONS, response_class=HTMLResponse)
def actions_page(
    key: Steward, service: CurrentService, before: Annotated[int | None, Query(ge=1, le=2**53)] = None
) -> Response:
    """Show what stewards and operators changed, newest first, and whether the audit log is whole."""
    with service.store.reading() as driver:
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
def actions_file(key: Steward, service: CurrentService) -> Response:
    """Export the audit log as a file of lines of JSON."""
    lines = stewards.actions(key, service)
    lines.headers["Content-Disposition"] = 'attachment; filename="actions.jsonl"'
    return lines


def _keys_page(key: Key, service: CurrentService, **said: Any) -> Response:  # noqa: ANN401  (what templates show)
    shown = {**KeySearch().model_dump(), "holder": "", **said}
    soon = shown["state"] == "soon"
    state, within = ("all", shown["days"]) if soon else (shown["state"], None)
    found = found_keys(service.registry, shown["q"].strip(), state, within)
    return page("keys.html.j2", key=key, keys=[key_facts(each) for each in found], **shown)
