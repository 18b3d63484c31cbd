"""The pages to describe tables: a steward edits a draft attribute by attribute, checks, accepts and registers it.

The server stores nothing between two requests: the form has all fields, and each step is one of its buttons.  So the
pages work without scripts.  A steward may also edit the description as YAML, and switch between both.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from sfumato.description.findings import DescriptionFinding
from sfumato.description.sensitive_columns import FindingKind
from sfumato.engine.table_files import redacted_source
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import write_yaml
from sfumato_server.access import CurrentService, Steward
from sfumato_server.problems import domain_refusal, problem
from sfumato_server.registry import Key
from sfumato_server.stewards import (
    accept_description,
    draft_description,
    read_description,
    read_document,
    steward_findings,
)
from sfumato_server.tables import Description
from sfumato_server.ui.description_form import (
    GRAINS,
    KINDS,
    TYPES,
    UNKNOWN,
    draft_notes,
    form_fields,
    parse_fields,
    table_forms,
    with_attribute,
)
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, leave_note, page
from sfumato_server.ui.steward_pages import refused_page

HERE = "/steward/all/description"
_MAX_FIELDS = 20_000
_MAX_FIELD = 200_000  # characters
_DRAFT_DONE = "This was read off the data: replace what it says by what is publicly known, then accept it."

router = APIRouter(include_in_schema=False)


class DraftForm(BaseModel):
    """The form of a new dataset whose description is to be drafted."""

    name: Short = ""
    source: Annotated[str, Field(max_length=2000)] = ""
    limit: Short = ""
    person: Short = ""


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
        fields[name] = text
    return SentForm(fields)


SentFields = Annotated[SentForm, Depends(read_form)]


@router.get(HERE)
def begin(_: Steward) -> Response:
    """Redirect to the page on which a description starts."""
    return RedirectResponse("/steward", 303)


@router.post("/steward/draft", response_class=HTMLResponse)
def draft(key: Steward, service: CurrentService, form: Annotated[DraftForm, Form()]) -> Response:
    """Draft the description of a table, folder or database, and show it as a form."""
    source = form.source.strip()
    try:
        description = draft_description(source, service.places, unit=form.person.strip() or None)
        fields = form_fields(description.document, description.notes)
    except REFUSALS as error:
        return refused_page(key, service, error, form.model_dump())
    more = {"name": form.name.strip(), "source": source, "limit": form.limit.strip()}
    return _form(key, fields | more, done=_DRAFT_DONE)


@router.post(HERE, response_class=HTMLResponse)
def edit(request: Request, key: Steward, service: CurrentService, form: SentFields) -> Response:
    """Do the step of the button that was pressed."""
    fields, step = form.fields, form.fields.pop("do", "check")
    findings: tuple[DescriptionFinding, ...] = ()
    try:
        if step == "yaml":
            return _form(key, _from_yaml(fields), done="The form shows what the YAML says.")
        if step.startswith("add-"):
            return _form(key, with_attribute(fields, f"{step.removeprefix('add-')}-"), done="The attribute was added.")
        document = parse_fields(fields)
        if step == "save":
            return _file(document, fields)
        description = read_description(document)
        findings = steward_findings(description, fields.get("source", ""), service.places)
        if step == "register":
            confirmed = [kind for kind in FindingKind if fields.get(f"confirm-{kind}") == "true"]
            accepted = _accept(description, findings, fields, by=key.name, confirm=confirmed)
            return _register(request, accepted, fields, key, service)
    except REFUSALS as error:
        return _form(key, fields, error=error, findings=findings)
    return _form(key, fields, findings=findings, done="The description fits the tables, and nothing is missing in it.")


def _from_yaml(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a document that was edited as YAML, with the other fields of the form."""
    try:
        document = read_document(fields.get("yaml", ""))
        description_fields = form_fields(document, draft_notes(fields))
    except DomainError as error:
        raise domain_refusal(error) from error
    return {name: fields.get(name, "") for name in ("name", "source", "limit")} | description_fields


def _accept(
    description: Description,
    findings: tuple[DescriptionFinding, ...],
    fields: dict[str, str],
    *,
    by: str,
    confirm: list[FindingKind],
) -> dict[str, Any]:
    if fields.get("accepted") != "true":
        raise InputError("tick that you have looked at the description and accept it; a draft is not registered")
    return accept_description(description, findings, by=by, confirm=[kind.value for kind in confirm])


def _register(
    request: Request, domain: dict[str, Any], fields: dict[str, str], key: Key, service: CurrentService
) -> Response:
    name = fields.get("name", "").strip()
    service.register(
        name,
        source=fields.get("source", "").strip(),
        domain=domain,
        limit=fields.get("limit", "").strip(),
        more={"second_budget": fields.get("second_budget") == "true", "by": key.actor},
    )
    return leave_note(request, "/steward", {"done": f"{name} is registered."})


def _file(document: dict[str, Any], fields: dict[str, str]) -> Response:
    name = fields.get("name", "").strip()
    file_name = name if name.isascii() and name.isidentifier() else "description"
    headers = {"Content-Disposition": f'attachment; filename="{file_name}.yaml"'}
    return Response(write_yaml(document), media_type="application/yaml", headers=headers)


def _form(
    key: Key,
    fields: dict[str, str],
    *,
    error: Exception | None = None,
    findings: tuple[DescriptionFinding, ...] = (),
    done: str = "",
) -> Response:
    """Render the form with all that was typed and the result of the step."""
    content = None if error is None else problem(error)
    tables = table_forms(fields)
    hints = {f"{table.name}.{each.name}" if table.name else each.name for table in tables for each in table.attributes}
    notes = [note for note in draft_notes(fields) if note.partition(": ")[0].removeprefix("Look at ") not in hints]
    return page(
        "description.html.j2",
        key=key,
        fields=defaultdict(str, fields),
        tables=tables,
        several="schema" in fields,
        notes=notes,
        findings=findings,
        source=redacted_source(fields.get("source", "")),
        yaml=_yaml(fields),
        types=TYPES,
        unknown=UNKNOWN,
        grains=[("", "not said"), *((each, f"one {each}") for each in GRAINS)],
        tables_listed=[("", "none"), *((each.name, each.name) for each in tables)],
        kinds=KINDS,
        problem=content,
        done=done,
        status=200 if content is None else content["status"],
    )


def _yaml(fields: dict[str, str]) -> str:
    """Return the description as YAML: the typed text, or YAML from the fields; empty if the fields are invalid."""
    if "yaml" in fields:
        return fields["yaml"]
    try:
        return write_yaml(parse_fields(fields))
    except REFUSALS:
        return ""
