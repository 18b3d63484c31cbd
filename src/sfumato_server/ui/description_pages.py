"""The pages to describe tables in four steps: choose the table, review its draft, set the budget, and done.

The server's database holds each description that is under way, for its steward alone.  So a reload loses nothing, and a
form cannot accept what was not confirmed: the budget is set for the document that the review stored as accepted.  The
pages work without scripts.  A steward may also edit the description as YAML.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from sfumato.app.api.questions import limit_of
from sfumato.app.help_pages import files_next_to
from sfumato.description.findings import DescriptionFinding, to_confirm
from sfumato.description.redraft import OpenTable, Redrafts
from sfumato.description.sensitive_columns import FindingKind
from sfumato.domain.table_schema import VERSION, Schema
from sfumato.engine.table_files import redacted_source
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import write_yaml
from sfumato_server.access import CurrentService, Steward
from sfumato_server.problems import RefusalError, domain_refusal, problem
from sfumato_server.registry import Key, plain_name, refuse_name
from sfumato_server.rules import total_of
from sfumato_server.service import Service
from sfumato_server.stewards import (
    accept_description,
    draft_description,
    open_drafted,
    read_description,
    read_document,
    steward_findings,
)
from sfumato_server.tables import parse_description
from sfumato_server.ui.budgets import loss_words
from sfumato_server.ui.description_form import (
    TYPES,
    edited_document,
    form_fields,
    table_forms,
    with_attribute,
)
from sfumato_server.ui.limit_form import CAP_SHARES, LimitForm, described_limit, meaning_of, set_default_cap
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, page

HERE = "/steward/all/description"
UNKNOWN = {
    "category": "counted in a cell of its own",
    "drop": "leaves the row out",
    "clamp": "moved to the nearest bound",
}
GRAINS = ("hour", "day", "week", "month", "quarter", "year")
USUAL_DELTA = "1e-9"
"""The delta that the form of a limit proposes next to the epsilon, which the steward writes."""
KINDS = {"text": "texts", "number": "whole numbers", "truth": "true and false"}
_MAX_FIELDS = 20_000
_MAX_FIELD = 200_000  # characters

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StoredDescription:
    """A description under way, as the server's database holds it.

    Attributes:
        name: the name of the dataset to be.
        source: the address of its tables.
        drafted: the document of the draft, which ``document`` equals until it is edited.
        document: the document with all edits.
        notes: findings and hints of the draft, in sentences.
        drafted_findings: the findings of the draft: kind, columns with details, and whether the columns are left out.
        findings: the findings about ``document``, in the same form.
        accepted: the accepted document; None until each kind of finding is confirmed.
        limit: the budget; empty until the dataset is registered.
        file: the accepted description in a file next to the table; None if there is none.
    """

    name: str
    source: str
    drafted: dict[str, Any]
    document: dict[str, Any]
    notes: list[str]
    drafted_findings: list[Any]
    findings: list[Any]
    accepted: dict[str, Any] | None = None
    limit: str = ""
    file: dict[str, Any] | None = None
    id: str = field(default="", compare=False)

    @staticmethod
    def load(draft_id: str, key: Key, service: Service) -> StoredDescription:
        """Return the description of an id.

        Raises:
            RefusalError: the steward has no such description.
        """
        stored = service.registry.jobs.draft(key.name, draft_id)
        if stored is None:
            raise RefusalError("not-found", "There is no such description", 404, "describe the table again")
        return replace(StoredDescription(**json.loads(stored)), id=draft_id)

    def save(self, key: Key, service: Service) -> StoredDescription:
        """Store the description, and return it with its id."""
        text = json.dumps({name: value for name, value in asdict(self).items() if name != "id"})
        label = f"{self.name}: registered" if self.limit else self.name
        saved = service.registry.jobs.save_draft(key.name, text.encode(), label, self.id or None)
        return replace(self, id=saved)

    def edited(self, document: dict[str, Any], service: Service) -> StoredDescription:
        """Return the description with another document, its findings, and no acceptance."""
        if document == self.document:
            return self
        if document == self.drafted:
            findings = self.drafted_findings
        elif document["sfumato"] == VERSION:
            findings = _schema_findings(document, self, service)
        else:
            findings = _domain_findings(document, self, service)
        return replace(self, document=document, findings=findings, accepted=None)

    def opening(self, service: Service) -> OpenTable:
        """Return how to open a table, to draft its columns again as long as the steward did not change them."""

        def opened(name: str) -> Redrafts:
            drafted = self.drafted["tables"][name] if name else self.drafted
            return open_drafted(self.source, service.places, name, drafted)

        return opened

    @property
    def current_findings(self) -> tuple[DescriptionFinding, ...]:
        """The findings about ``document``."""
        return tuple(DescriptionFinding(FindingKind(kind), names, out) for kind, names, out in self.findings)

    @property
    def path(self) -> str:
        """The address of its review."""
        return f"{HERE}/{self.id}"


def _stated(findings: tuple[DescriptionFinding, ...]) -> list[Any]:
    return [[each.kind.value, dict(each.columns), each.left_out] for each in findings]


def _domain_findings(document: Mapping[str, Any], stored: StoredDescription, service: Service) -> list[Any]:
    """Return the findings about a domain.  Columns whose days or values are still to be stated have none yet.

    Raises:
        RefusalError: the document cannot be used, or does not fit the table.
    """
    described = document["attributes"]
    ready = {name: body for name, body in described.items() if not _is_open(body)}
    findings = steward_findings(read_description({**document, "attributes": ready}), stored.source, service.places)
    left_out = [
        [kind, {name: why for name, why in columns.items() if name not in described}, out]
        for kind, columns, out in stored.drafted_findings
        if out
    ]
    return [*_stated(findings), *(each for each in left_out if each[1])]


def _schema_findings(document: Mapping[str, Any], stored: StoredDescription, service: Service) -> list[Any]:
    """Return the findings about a schema, or those of its draft until the steward has stated all that is open."""
    try:
        description = read_description(document)
    except RefusalError:
        return stored.drafted_findings
    left_out = [each for each in stored.drafted_findings if each[2]]
    return [*_stated(steward_findings(description, stored.source, service.places)), *left_out]


def _is_open(body: Mapping[str, Any]) -> bool:
    """Return whether an attribute still lacks its days or values."""
    return None in (body.get("first", 0), body.get("last", 0)) or body.get("values", True) == []


class DraftForm(BaseModel):
    """The form of the first step: the table to describe."""

    name: Short = ""
    source: Annotated[str, Field(max_length=2000)] = ""
    person: Short = ""


class BudgetForm(LimitForm):
    """The form of the third step: the name and the budget of the dataset."""

    name: Short = ""
    second_budget: bool = False
    show: bool = False


@dataclass(frozen=True)
class SentForm:
    """The fields of a form.  If fields share a name, the last is used."""

    fields: dict[str, str]


async def read_form(request: Request) -> SentForm:
    """Read a form with any fields, because each attribute has its own.

    Raises:
        InputError: a field is a file, or is too long.
    """
    form = await request.form(max_fields=_MAX_FIELDS)
    fields = {}
    for name, text in form.multi_items():
        if isinstance(text, UploadFile) or len(text) > _MAX_FIELD:
            raise InputError("a description is sent as fields of text")
        fields[name] = text.replace("\r\n", "\n")
    return SentForm(fields)


SentFields = Annotated[SentForm, Depends(read_form)]


@router.get(HERE, response_class=HTMLResponse)
def choose_table(key: Steward, service: CurrentService) -> Response:
    """Show the first step, with the descriptions under way."""
    return _table_page(key, service)


@router.post("/steward/draft", response_class=HTMLResponse)
def draft(key: Steward, service: CurrentService, form: Annotated[DraftForm, Form()]) -> Response:
    """Draft the description of a table, folder or database, store it, and go on to its review."""
    source, name = form.source.strip(), form.name.strip()
    try:
        if not name or not source:
            raise InputError("name the dataset, and write where its table is")
        refuse_name(name)
        service.registry.refuse_taken(plain_name(name))
        drafted = draft_description(source, service.places, unit=form.person.strip() or None)
        form_fields(drafted.document)
    except REFUSALS as error:
        return _table_page(key, service, error, form)
    drafted_findings = _stated(drafted.findings)
    document, notes = drafted.document, list(drafted.notes)
    stored = StoredDescription(name, source, document, document, notes, drafted_findings, drafted_findings)
    return RedirectResponse(_with_near_file(stored, service).save(key, service).path, 303)


def _with_near_file(stored: StoredDescription, service: Service) -> StoredDescription:
    """Return the description with the document of the YAML file that is named like the table, if there is one.

    The file is not used if it does not describe the table.  Then a note gives the reason.
    """
    near = files_next_to(stored.source, ".yaml", ".yml")
    if not near or (service.places.named and not service.places.hold(str(near[0]))):
        return stored
    try:
        text = near[0].read_text(encoding="utf-8")
        document = read_document(text)
        described = stored.edited(_from_yaml(text, stored.drafted), service)
    except (*REFUSALS, OSError, ValueError) as error:
        reason = str(error) if isinstance(error, REFUSALS) else "it cannot be read"
        note = f"{near[0].name} next to the table was not used: {reason}."
        return replace(stored, notes=[note, *stored.notes])
    note = f"The description was read from {near[0].name} next to the table, in place of a draft."
    accepted = document if _is_accepted(document) else None
    return replace(described, notes=[note], file=accepted)


def _is_accepted(document: Mapping[str, Any]) -> bool:
    """Return whether a person accepted a document and it was not changed since."""
    try:
        description = parse_description(document)
        description.refuse_draft()
        if not isinstance(description, Schema):
            description.refuse_changed()
    except DomainError:
        return False
    return description.acceptance is not None


@router.get(f"{HERE}/{{draft_id}}", response_class=HTMLResponse)
def review(draft_id: str, key: Steward, service: CurrentService) -> Response:
    """Show the second step: the draft with its findings, to change and to accept."""
    stored = StoredDescription.load(draft_id, key, service)
    return RedirectResponse(f"{stored.path}/done", 303) if stored.limit else _review(key, stored, {})


@router.post(f"{HERE}/{{draft_id}}", response_class=HTMLResponse)
def edit(draft_id: str, key: Steward, service: CurrentService, form: SentFields) -> Response:
    """Change the description, or accept it.  A refusal changes nothing."""
    stored = StoredDescription.load(draft_id, key, service)
    if stored.limit:
        return RedirectResponse(f"{stored.path}/done", 303)
    fields, step = form.fields, form.fields.pop("do", "save")
    if step == "discard":
        service.registry.jobs.discard_draft(key.name, stored.id)
        return RedirectResponse(HERE, 303)
    if step == "use":
        if stored.file is None:
            return RedirectResponse(stored.path, 303)
        return RedirectResponse(f"{replace(stored, accepted=stored.file).save(key, service).path}/budget", 303)
    try:
        stored = stored.edited(_sent_document(stored, fields, step, service), service).save(key, service)
        fields = {name: text for name, text in fields.items() if name.startswith(("confirm-", "accepted"))}
        if step == "accept":
            stored = _accept(stored, fields, key, service).save(key, service)
    except REFUSALS as error:
        return _review(key, StoredDescription.load(draft_id, key, service), fields, error)
    place = {"accept": "/budget", "file": "/file"}.get(step, "#findings-title")
    return RedirectResponse(f"{stored.path}{place}", 303)


def _sent_document(stored: StoredDescription, fields: Mapping[str, str], step: str, service: Service) -> dict[str, Any]:
    """Return the document that a form states: by its fields, or as YAML.

    Raises:
        RefusalError, InputError, DomainError: a field or the YAML is invalid.
    """
    if step == "yaml":
        return _from_yaml(fields.get("yaml", ""), stored.drafted)
    document = edited_document(stored.document, fields, stored.opening(service))
    table = step.removeprefix("add-t")
    if step == table:
        return document
    return with_attribute(document, table, fields.get(f"t{table}-new", ""))


@router.get(f"{HERE}/{{draft_id}}/budget", response_class=HTMLResponse)
def budget(draft_id: str, key: Steward, service: CurrentService) -> Response:
    """Show the third step: the name and the budget."""
    stored = StoredDescription.load(draft_id, key, service)
    if stored.limit or stored.accepted is None:
        return RedirectResponse(stored.path, 303)
    return _budget_page(key, stored, BudgetForm(name=stored.name, delta=USUAL_DELTA, cap_share="1/4"))


@router.post(f"{HERE}/{{draft_id}}/budget", response_class=HTMLResponse)
def register(draft_id: str, key: Steward, service: CurrentService, form: Annotated[BudgetForm, Form()]) -> Response:
    """Register the accepted document under its name, with its budget."""
    stored = StoredDescription.load(draft_id, key, service)
    if stored.limit or stored.accepted is None:
        return RedirectResponse(stored.path, 303)
    if form.show:  # without scripts
        return _budget_page(key, stored, form)
    name, more = form.name.strip(), {"second_budget": form.second_budget, "by": key.actor}
    try:
        limit = form.stated()
        meaning_of(form)  # refuses a cap that cannot be set, before the dataset is registered
        service.register(name, source=stored.source, domain=stored.accepted, limit=limit, more=more)
        set_default_cap(service, name, form.cap_share, key)
    except REFUSALS as error:
        return _budget_page(key, stored, form, error)
    registered = replace(stored, name=name, limit=limit, drafted={}, document={}, notes=[], file=None)
    replace(registered, drafted_findings=[], findings=[]).save(key, service)  # the facts of the table are not needed
    return RedirectResponse(f"{stored.path}/done", 303)


@router.get(f"{HERE}/{{draft_id}}/done", response_class=HTMLResponse)
def done(draft_id: str, key: Steward, service: CurrentService) -> Response:
    """Show the last step: the registered dataset, and the next actions."""
    stored = StoredDescription.load(draft_id, key, service)
    if not stored.limit or stored.accepted is None:
        return RedirectResponse(stored.path, 303)
    acceptance = stored.accepted["accepted"]
    cap = limit_of(service.grants.terms(service.loaded(stored.name).dataset.name).default_cap)
    total = total_of(stored.limit)
    return page(
        "description_done.html.j2",
        key=key,
        step="done",
        stored=stored,
        acceptance=acceptance,
        limit=stored.limit if total is None or "month" in stored.limit else loss_words(total),
        cap=None if cap is None else loss_words(cap),
    )


@router.get(f"{HERE}/{{draft_id}}/file")
def file(draft_id: str, key: Steward, service: CurrentService) -> Response:
    """Send the document as a file: the accepted one, or the draft as the command ``domain draft`` writes it."""
    stored = StoredDescription.load(draft_id, key, service)
    file_name = stored.name if stored.name.isascii() and stored.name.isidentifier() else "description"
    headers = {"Content-Disposition": f'attachment; filename="{file_name}.yaml"'}
    return Response(write_yaml(stored.accepted or stored.document), media_type="application/yaml", headers=headers)


def _from_yaml(text: str, drafted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that was edited as YAML, as a draft, with the record of how it was drafted."""
    try:
        document = read_document(text)
        form_fields(document)
    except DomainError as error:
        raise domain_refusal(error) from error
    record = {"drafted": drafted["drafted"]} if "drafted" in drafted else {}
    edited = {name: value for name, value in document.items() if name not in ("accepted", "drafted")}
    return edited | {"draft": True} | record


def _accept(stored: StoredDescription, fields: Mapping[str, str], key: Key, service: Service) -> StoredDescription:
    """Return the description as accepted by the steward, who confirmed each kind of finding.

    Raises:
        RefusalError: something is not stated yet, or a kind is not confirmed.
        InputError: the steward does not say that they accept it.
    """
    description = read_description(stored.document)
    if fields.get("accepted") != "true":
        raise InputError("tick that you have looked at the description and accept it; a draft is not registered")
    findings = steward_findings(description, stored.source, service.places)
    confirmed = [kind.value for kind in FindingKind if fields.get(f"confirm-{kind}") == "true"]
    listed = {kind.value for kind in to_confirm(stored.current_findings)}
    needed = [kind.value for kind in to_confirm(findings)]
    if set(needed) - listed:  # the table changed since
        replace(stored, findings=_stated(findings)).save(key, service)
    if missing := [kind for kind in needed if kind not in confirmed]:
        words = f"tick each kind of finding to confirm it, or change what it names: {', '.join(missing)}"
        raise domain_refusal(DomainError(f"the description is not accepted: {words}"))
    return replace(stored, accepted=accept_description(description, findings, by=key.name, confirm=confirmed))


def _table_page(key: Key, service: Service, error: Exception | None = None, form: DraftForm | None = None) -> Response:
    content = None if error is None else problem(error)
    drafts = [(job.id, job.note, f"{job.updated:%Y-%m-%d %H:%M}") for job in service.registry.jobs.drafts(key.name)]
    status = 200 if content is None else content["status"]
    filled = form or DraftForm()
    return page(
        "description_table.html.j2",
        key=key,
        step="table",
        stored=None,
        drafts=drafts,
        form=filled,
        problem=content,
        status=status,
    )


def _budget_page(key: Key, stored: StoredDescription, form: BudgetForm, error: Exception | None = None) -> Response:
    content = None if error is None else problem(error)
    status = 200 if content is None else content["status"]
    return page(
        "description_budget.html.j2",
        key=key,
        step="budget",
        stored=stored,
        form=form,
        cap_shares=CAP_SHARES,
        **described_limit(form),
        problem=content,
        status=status,
    )


def _review(key: Key, stored: StoredDescription, typed: Mapping[str, str], error: Exception | None = None) -> Response:
    """Render the review; after a refusal it keeps the typed fields."""
    content = None if error is None else problem(error)
    fields = displayed_fields(form_fields(stored.document), typed)
    tables = table_forms(stored.document, fields, stored.notes)
    hints = {f"{table.name}.{each.name}" if table.name else each.name for table in tables for each in table.attributes}
    stated = {f"{DescriptionFinding(FindingKind(kind), names, out)}." for kind, names, out in stored.drafted_findings}
    notes = [
        note
        for note in stored.notes
        if note not in stated and note.partition(": ")[0].removeprefix("Look at ") not in hints
    ]
    return page(
        "description.html.j2",
        key=key,
        step="review",
        stored=stored,
        fields=defaultdict(str, fields),
        tables=tables,
        several="schema" in fields,
        notes=notes,
        findings=stored.current_findings,
        source=redacted_source(stored.source),
        yaml=typed.get("yaml") or write_yaml(stored.document),
        types=TYPES,
        unknown=UNKNOWN,
        grains=[("", "not stated"), *((each, f"one {each}") for each in GRAINS)],
        tables_listed=[("", "none"), *((each.name, each.name) for each in tables)],
        kinds=KINDS,
        problem=content,
        status=200 if content is None else content["status"],
    )


def displayed_fields(fields: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the document, replaced by those that were typed; a box that was sent unticked is empty."""
    sent = {name.removesuffix("name") for name in typed if name.endswith("-name")}
    unticked = [name for name in fields if name.removesuffix("nullable") in sent and name not in typed]
    return {name: text for name, text in {**fields, **typed}.items() if name not in unticked}
