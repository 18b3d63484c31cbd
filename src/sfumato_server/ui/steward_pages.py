"""The steward's pages: what needs attention, datasets with their settings, analysts, keys and sessions.

After a form was posted, the next page shows once what was done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from sfumato.app.api.administration import KeyRequest, RenameRequest, RetirementRequest, TermsRequest
from sfumato.app.api.questions import validate_fields
from sfumato.engine.table_files import redacted_source
from sfumato.errors import DomainError, LedgerError
from sfumato_server import stewards
from sfumato_server.access import CurrentService, KeyLookup, Steward
from sfumato_server.datasets import summary
from sfumato_server.monitoring import budget_is_low
from sfumato_server.problems import domain_refusal, problem
from sfumato_server.registry import Key, Scope
from sfumato_server.service import Service
from sfumato_server.stewards import (
    accept_description,
    cap_warnings,
    key_facts,
    read_description,
    read_document,
    search_keys,
    steward_findings,
)
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.budgets import gauge, loss_words
from sfumato_server.ui.journal_pages import dataset_rows
from sfumato_server.ui.limit_form import (
    CAP_SHARES,
    CapShare,
    LimitForm,
    cap_of,
    described_limit,
    limit_share,
    meaning_of,
    set_default_cap,
)
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, forget_note, fragment, leave_note, page, read_note

router = APIRouter(include_in_schema=False)

HOME = "/steward"
"""The address of the steward's first page."""

_ANALYSTS = "/steward/all/analysts"
SearchText = Annotated[str, Query(max_length=200)]
_EMPTY: defaultdict[str, str] = defaultdict(str)  # the fields of an empty form


class DatasetForm(BaseModel):
    """The form that registers a dataset."""

    name: Short
    source: Annotated[str, Field(max_length=2000)]
    domain: Annotated[str, Field(max_length=200_000)]
    limit: Short
    second_budget: bool = False
    accepted: bool = False
    confirm: Short = ""
    cap_share: CapShare = "none"


class CapForm(BaseModel):
    """The form for the cap of an analyst."""

    dataset: Short
    analyst: Short
    most: Short = ""
    lift: bool = False


class TermsForm(BaseModel):
    """The form for the terms of a dataset."""

    granted_only: bool = False
    default_cap: Short = ""
    most: Short = ""
    approval_above: Short = ""


class GrantForm(BaseModel):
    """The form that grants a dataset to an analyst, or excludes one."""

    analyst: Annotated[str, Field(min_length=1, max_length=200)]
    shut: bool = False


class ApprovalForm(BaseModel):
    """The form that approves or refuses a release."""

    refuse: bool = False


class NameForm(BaseModel):
    """The form that renames a dataset."""

    called: Short


class RetirementForm(BaseModel):
    """The form that retires a dataset."""

    retired: bool = False


@router.get("/steward", response_class=HTMLResponse)
def overview(request: Request, key: Steward, service: CurrentService, q: SearchText = "") -> Response:
    """Show the datasets whose names have a text, the open approvals, and the form to register a dataset."""
    return forget_note(_overview(key, service, q=q, **read_note(request)))


@router.get(_ANALYSTS, response_class=HTMLResponse)
def analysts_page(request: Request, key: Steward, service: CurrentService, q: SearchText = "") -> Response:
    """Show the caps of the analysts whose names have a text, and the form for caps."""
    return forget_note(_analysts_page(key, service, q=q, **read_note(request)))


@router.post("/steward/datasets", response_class=HTMLResponse)
def register(request: Request, key: Steward, service: CurrentService, form: Annotated[DatasetForm, Form()]) -> Response:
    """Register a dataset."""
    name = form.name.strip()
    try:
        domain = _parse_document(form.domain)
        meaning_of(LimitForm(limit=form.limit, cap_share=form.cap_share))  # refuses a cap that cannot be set
        if form.accepted:
            description = read_description(domain)
            findings = steward_findings(description, None, service.places)
            domain = accept_description(description, findings, by=key.name, confirm=[form.confirm])
        service.register(
            name,
            source=form.source.strip(),
            domain=domain,
            limit=form.limit.strip(),
            more={"second_budget": form.second_budget, "by": key.actor},
        )
        set_default_cap(service, name, form.cap_share, key)
    except REFUSALS as error:
        return refused_page(key, service, error, form.model_dump())
    return leave_note(request, HOME, {"done": f"{name} is registered."})


@router.post("/steward/all/limit", response_class=HTMLResponse)
def explain_limit(_: Steward, form: Annotated[LimitForm, Form()]) -> Response:
    """Render the meaning of a limit, which follows a form while it is typed.  Nothing is stored."""
    return fragment("limit_meaning.html.j2", **described_limit(form))


@router.post("/steward/caps", response_class=HTMLResponse)
def cap(request: Request, key: Steward, service: CurrentService, form: Annotated[CapForm, Form()]) -> Response:
    """Set or lift the cap of an analyst.  A cap of 0 excludes the analyst, and any other one admits them again."""
    try:
        loaded = service.loaded(form.dataset)
        analyst, ledger = service.analyst_name(loaded, form.analyst), loaded.ledger
        if not form.lift and form.most.strip() == "0":
            service.grants.shut_out(loaded.dataset.name, analyst, by=key.actor)
            done = f"{analyst} has no access to {form.dataset}."
        else:
            ledger.set_cap(analyst, None if form.lift else cap_of(ledger.limit, form.most.strip()), by=key.actor)
            service.grants.let_back(loaded.dataset.name, analyst, by=key.actor)
            done = f"The cap of {analyst} is {'lifted' if form.lift else 'set'}."
    except REFUSALS as error:
        content, fields = problem(error), defaultdict(str, form.model_dump())
        return _analysts_page(key, service, problem=content, filled=fields, status=content["status"])
    warnings = "".join(f" But {warning}." for warning in cap_warnings(service, analyst))
    return leave_note(request, _ANALYSTS, {"done": done + warnings})


@router.post("/steward/{name}/terms", response_class=HTMLResponse)
def set_terms(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[TermsForm, Form()]
) -> Response:
    """Set the terms of a dataset."""
    limits = {"default_cap": form.default_cap.strip() or None, "most": form.most.strip() or None}
    limits["approval_above"] = form.approval_above.strip() or None
    try:
        stewards.set_terms(
            name, validate_fields(TermsRequest, {"granted_only": form.granted_only, **limits}), key, service
        )
    except REFUSALS as error:
        return _settings_problem(name, key, service, error, terms=form)
    return leave_note(request, f"{HOME}/{name}/settings", {"done": "The terms are set."})


@router.post("/steward/{name}/grants", response_class=HTMLResponse)
def grant(
    request: Request, name: str, service: CurrentService, key: Steward, form: Annotated[GrantForm, Form()]
) -> Response:
    """Grant a dataset to an analyst, or exclude one."""
    loaded = service.loaded(name)
    analyst = service.analyst_name(loaded, form.analyst)
    (service.grants.shut_out if form.shut else service.grants.let_in)(loaded.dataset.name, analyst, by=key.actor)
    done = f"{analyst} has {'no access' if form.shut else 'access'}."
    return leave_note(request, f"{HOME}/{name}/settings", {"done": done})


@router.post("/steward/approvals/{approval_id}", response_class=HTMLResponse)
def approve(
    request: Request, approval_id: str, key: Steward, service: CurrentService, form: Annotated[ApprovalForm, Form()]
) -> Response:
    """Approve one release, or refuse it."""
    if form.refuse:
        done = (
            "The release is refused."
            if service.approvals.close(approval_id, by=key.actor)
            else "No request has that number."
        )
    elif service.approvals.approve(approval_id, key):
        done = "The release is approved, once. The analyst has to ask for it again."
    else:
        done = "You cannot approve this: it was approved or closed, has expired, or is your own request."
    return leave_note(request, HOME, {"done": done})


@router.post("/steward/{name}/name", response_class=HTMLResponse)
def rename(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[NameForm, Form()]
) -> Response:
    """Rename a dataset."""
    try:
        called = stewards.rename(name, validate_fields(RenameRequest, {"name": form.called.strip()}), key, service)[
            "name"
        ]
    except REFUSALS as error:
        return _settings_problem(name, key, service, error, called=form.called)
    return leave_note(request, f"{HOME}/{called}/settings", {"done": f"{name} is renamed to {called}."})


@router.post("/steward/{name}/retirement", response_class=HTMLResponse)
def retire(
    request: Request, name: str, key: Steward, service: CurrentService, form: Annotated[RetirementForm, Form()]
) -> Response:
    """Retire a dataset, or end its retirement."""
    stewards.retire(name, RetirementRequest(retired=form.retired), key, service)
    done = "The dataset is retired. It releases nothing more, and its snapshot is deleted."
    if not form.retired:
        done = "The retirement has ended. Read its table again to answer questions again."
    return leave_note(request, f"{HOME}/{name}/settings", {"done": done})


@router.get("/steward/{name}/settings", response_class=HTMLResponse)
def settings(request: Request, name: str, key: Steward, service: CurrentService) -> Response:
    """Show the settings of a dataset: its terms, its analysts, its table, its name and its end."""
    return forget_note(_settings(name, key, service, **read_note(request)))


@router.post("/steward/{name}/reading", response_class=HTMLResponse)
def read_again(request: Request, name: str, key: Steward, service: CurrentService) -> Response:
    """Read the table again, and declare its content."""
    try:
        version, changed = service.tables.reread(service.loaded(name), by=key.actor)
    except REFUSALS as error:
        return _settings_problem(name, key, service, error)
    difference = "It differs from the last version" if changed else "It equals the last version"
    done = f"The table was read. {difference}. It is version {version.number}, and every question is charged again."
    return leave_note(request, f"{HOME}/{name}/settings", {"done": done})


def _parse_document(text: str) -> dict[str, Any]:
    try:
        return read_document(text)
    except DomainError as error:
        raise domain_refusal(error) from error


def _settings(name: str, key: Key, service: CurrentService, **context: Any) -> Response:  # noqa: ANN401  (see page)
    loaded = service.loaded(name)
    context = {"terms": service.grants.terms(loaded.dataset.name), "called": "", **context}
    return page(
        "settings.html.j2",
        key=key,
        dataset=summary(loaded),
        source=redacted_source(loaded.dataset.source),
        accepted=loaded.description.accepted_by,
        limit=loss_words(loaded.ledger.limit),
        written=limit_share(loaded.ledger.limit, Fraction(1, 4)),
        named=service.grants.analysts(loaded.dataset.name),
        reading=stewards.reading(name, key, service),
        **context,
    )


def _settings_problem(name: str, key: Key, service: CurrentService, error: Exception, **typed: Any) -> Response:  # noqa: ANN401
    """Render the settings with a refusal and the typed fields of the refused form."""
    content = problem(error)
    return _settings(name, key, service, problem=content, status=content["status"], **typed)


def refused_page(key: Key, service: CurrentService, error: Exception, fields: Mapping[str, Any]) -> Response:
    """Render the steward's page with a refusal and the fields of the refused form."""
    content = problem(error)
    return _overview(key, service, problem=content, filled=defaultdict(str, fields), status=content["status"])


def _overview(key: Key, service: CurrentService, **context: Any) -> Response:  # noqa: ANN401  (for the template)
    context = {"filled": _EMPTY, "q": "", **context}
    datasets = service.accessible_datasets(key)
    approvals = stewards.approvals(key, service)["approvals"]
    return page(
        "steward.html.j2",
        key=key,
        attention=[each for loaded in datasets for each in attention_to(loaded, service)],
        waiting=[each for each in approvals if not each["approved_by"]],
        approved=[each for each in approvals if each["approved_by"]],
        datasets=dataset_rows(service, (each for each in datasets if _contains(each.dataset.called, context["q"]))),
        cap_shares=CAP_SHARES,
        **context,
    )


@dataclass(frozen=True)
class Attention:
    """A matter of a dataset that a steward should look at, and the page on which to act."""

    dataset: str
    text: str
    path: str
    action: str


def attention_to(loaded: ServedDataset, service: Service) -> Iterator[Attention]:
    """Yield what needs a steward's attention: a changed table, a low budget, a damaged ledger.

    Only stewards may see it, because a changed table says something about its rows.
    """
    name = loaded.dataset.called
    try:
        loaded.ledger.check()
    except LedgerError as error:
        yield Attention(name, f"The ledger is not verified: {error}.", f"{HOME}/{name}", "See its journal")
    if loaded.dataset.retired:
        return
    settings, tables = f"{HOME}/{name}/settings#table-title", service.tables
    if tables.is_paused(loaded):
        yield Attention(
            name, "It answers no questions, because its snapshot is missing or was changed.", settings, "Read its table"
        )
    elif tables.source_changed(loaded):
        text = "The files of its table have changed. Answers are still from the last version."
        yield Attention(name, text, settings, "Read its table again")
    account = loaded.ledger.remaining()
    if budget_is_low(account):
        yield Attention(
            name, f"Less than 10 % of its budget is left: {gauge(account).words}.", f"{HOME}/{name}", "See its journal"
        )
    else:  # a larger cap would not help if the budget is used up
        yield from _low_caps(loaded, service)


def _low_caps(loaded: ServedDataset, service: Service) -> Iterator[Attention]:
    """Yield the analysts with access whose caps are used up, or nearly so."""
    name = loaded.dataset.called
    for analyst, account in loaded.ledger.caps().items():
        if budget_is_low(account) and service.grants.admits(loaded.dataset.name, analyst):
            state = "Less than 10 % of the cap" if account.left else "Nothing of the cap"
            path = f"{_ANALYSTS}?{urlencode({'q': analyst})}"
            yield Attention(name, f"{state} of {analyst} is left: {gauge(account).words}.", path, "See the caps")


def _analysts_page(key: Key, service: CurrentService, **context: Any) -> Response:  # noqa: ANN401  (for the template)
    context = {"filled": _EMPTY, "q": "", **context}
    datasets = service.accessible_datasets(key)
    rows = [
        (analyst, loaded.dataset.called, gauge(account), service.grants.admits(loaded.dataset.name, analyst))
        for loaded in datasets
        for analyst, account in loaded.ledger.caps().items()
        if _contains(analyst, context["q"])
    ]
    names = [loaded.dataset.called for loaded in datasets]
    return page("analysts.html.j2", key=key, datasets=names, analysts=sorted(rows, key=lambda row: row[:2]), **context)


def _contains(name: str, text: str) -> bool:
    """Return whether a name contains a text in any case."""
    return text.strip().casefold() in name.casefold()


KEYS = "/steward/all/keys"
_MAX_DAYS = 3660  # of the life of a key


class KeyForm(BaseModel):
    """The form that issues a key."""

    holder: Short
    scope: Literal["steward", "analyst", "officer", "monitor"]
    days: Annotated[int, Field(ge=1, le=3650)]


class KeySearch(BaseModel):
    """The filter of the list of keys: a part of the holder's name, a state, or the days until they end."""

    q: Annotated[str, Field(max_length=200)] = ""
    state: Literal["all", "valid", "ended", "soon"] = "all"
    days: Annotated[int, Field(ge=0, le=_MAX_DAYS)] = 30


@router.get(KEYS, response_class=HTMLResponse)
def keys_page(
    request: Request, key: Steward, service: CurrentService, search: Annotated[KeySearch, Query()]
) -> Response:
    """Show the keys that match a filter, newest first."""
    return forget_note(_keys_page(key, service, **search.model_dump(), **read_note(request)))


@router.post("/steward/keys", response_class=HTMLResponse)
def issue(request: Request, key: Steward, service: CurrentService, form: Annotated[KeyForm, Form()]) -> Response:
    """Issue a key and show it once."""
    try:
        new = validate_fields(KeyRequest, {"name": form.holder, "scope": form.scope, "days": form.days})
        _, secret = service.registry.issue(new.name, Scope(new.scope), timedelta(days=new.days), by=key.actor)
    except REFUSALS as error:
        content = problem(error)
        return _keys_page(key, service, problem=content, holder=form.holder, status=content["status"])
    return leave_note(request, KEYS, {"secret": secret, "done": f"A key for {new.name}, shown only once:"})


@router.post("/steward/keys/{key_id}/rotate", response_class=HTMLResponse)
def rotate(request: Request, key_id: str, key: Steward, service: CurrentService) -> Response:
    """Issue a key in exchange for another, which ends, and show its secret once."""
    rotated = service.registry.rotate(key_id, overlap=timedelta(0), by=key.actor)
    if rotated is None:
        return leave_note(request, KEYS, {"done": "There is no such valid key."})
    new, secret = rotated
    done = f"The key of {new.name} has ended. Its new key, shown only once:"
    return leave_note(request, KEYS, {"secret": secret, "done": done})


@router.post("/steward/keys/{key_id}/revoke", response_class=HTMLResponse)
def revoke(request: Request, key_id: str, key: Steward, service: CurrentService) -> Response:
    """Revoke a key."""
    done = service.registry.revoke(key_id, by=key.actor)
    return leave_note(request, KEYS, {"done": "The key is revoked." if done else "There is no such valid key."})


@router.post("/steward/sessions/end", response_class=HTMLResponse)
def end_sessions(request: Request, key: Steward, service: CurrentService) -> Response:
    """End the sessions of all users, including this one."""
    service.sessions.end_all(by=key.actor)
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    return RedirectResponse("/", 303)


def _keys_page(key: Key, service: CurrentService, **context: Any) -> Response:  # noqa: ANN401  (for the template)
    context = {**KeySearch().model_dump(), "holder": "", **context}
    ends_soon = context["state"] == "soon"
    state, days = ("all", context["days"]) if ends_soon else (context["state"], None)
    keys = search_keys(service.registry, context["q"].strip(), state, days)
    return page("keys.html.j2", key=key, keys=[key_facts(each) for each in keys], **context)
