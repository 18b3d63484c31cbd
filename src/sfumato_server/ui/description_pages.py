"""Describing tables on the page: a draft is edited in a form, attribute by attribute, looked at, accepted, registered.

Nothing is kept between two requests but the form itself, and every step is a button of it, so that it works without
scripts; whoever likes YAML better edits that, and goes back and forth.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from sfumato.engine.table_files import redacted_source
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import write_yaml
from sfumato_server.access import CurrentService, Steward
from sfumato_server.problems import problem, unusable
from sfumato_server.registry import Key
from sfumato_server.stewards import accepted, drafted, read_described, read_document, steward_warnings
from sfumato_server.tables import Described
from sfumato_server.ui.description_form import (
    GRAINS,
    KINDS,
    TYPES,
    UNKNOWN,
    document_of,
    fields_of,
    remarks_of,
    tables_of,
    with_attribute,
)
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS, leave_note, page
from sfumato_server.ui.steward_pages import refused_page

HERE = "/steward/all/description"
_MOST_FIELDS = 20_000
_LONGEST = 200_000  # characters of a field
_DRAFTED = "This was read off the data: replace what it says by what is publicly known, then accept it."

router = APIRouter(include_in_schema=False)


class DraftForm(BaseModel):
    """What the form for datasets sends where the description is to be drafted."""

    name: Short = ""
    source: Annotated[str, Field(max_length=2000)] = ""
    limit: Short = ""
    person: Short = ""


@dataclass(frozen=True)
class SentForm:
    """The fields of a form as they were sent, the last of those of one name."""

    fields: dict[str, str]


async def sent(request: Request) -> SentForm:
    """A form of any fields, of which there are as many as attributes ask for.

    Raises:
        InputError: a field that is a file, or beyond all length.
    """
    form = await request.form(max_fields=_MOST_FIELDS)
    found = {}
    for name, text in form.multi_items():
        if isinstance(text, UploadFile) or len(text) > _LONGEST:
            raise InputError("a description is sent as fields of text")
        found[name] = text
    return SentForm(found)


SentFields = Annotated[SentForm, Depends(sent)]


@router.get(HERE)
def begin(_: Steward) -> Response:
    """Go to where a description begins: it is drafted from a table, or pasted as YAML."""
    return RedirectResponse("/steward", 303)


@router.post("/steward/draft", response_class=HTMLResponse)
def draft(key: Steward, service: CurrentService, form: Annotated[DraftForm, Form()]) -> Response:
    """Draft the description of a table, or of the tables of a folder or database, and show it as a form."""
    source = form.source.strip()
    try:
        found = drafted(source, service.places, unit=form.person.strip() or None)
        fields = fields_of(found.document, found.remarks)
    except REFUSALS as error:
        return refused_page(key, service, error, form.model_dump())
    more = {"name": form.name.strip(), "source": source, "limit": form.limit.strip()}
    return _form(key, fields | more, done=_DRAFTED)


@router.post(HERE, response_class=HTMLResponse)
def edit(request: Request, key: Steward, service: CurrentService, form: SentFields) -> Response:
    """Do what the button that was pressed says."""
    fields, step = form.fields, form.fields.pop("do", "check")
    try:
        if step == "yaml":
            return _form(key, _from_yaml(fields), done="The form shows what the YAML says.")
        if step.startswith("add-"):
            return _form(key, with_attribute(fields, f"{step.removeprefix('add-')}-"), done="The attribute was added.")
        document = document_of(fields)
        if step == "save":
            return _file(document, fields)
        found = read_described(document)
        if step == "register":
            return _register(request, found, fields, key, service)
        risks = steward_warnings(found, fields.get("source", ""), service.places)
    except REFUSALS as error:
        return _form(key, fields, error=error)
    return _form(key, fields, risks=risks, done="The description fits the tables, and nothing is missing in it.")


def _from_yaml(fields: dict[str, str]) -> dict[str, str]:
    """The fields of a document that was edited as YAML, with what else was filled in."""
    try:
        document = read_document(fields.get("yaml", ""))
        shown_fields = fields_of(document, remarks_of(fields))
    except DomainError as error:
        raise unusable(error) from error
    return {name: fields.get(name, "") for name in ("name", "source", "limit")} | shown_fields


def _register(
    request: Request, found: Described, fields: dict[str, str], key: Key, service: CurrentService
) -> Response:
    if fields.get("accepted") != "true":
        raise InputError("tick that you have looked at the description and accept it; a draft is not registered")
    name = fields.get("name", "").strip()
    service.register(
        name,
        source=fields.get("source", "").strip(),
        domain=accepted(found, by=key.name),
        limit=fields.get("limit", "").strip(),
        more={"second_budget": fields.get("second_budget") == "true", "by": key.actor},
    )
    return leave_note(request, "/steward", {"done": f"{name} is registered."})


def _file(document: dict[str, Any], fields: dict[str, str]) -> Response:
    name = fields.get("name", "").strip()
    called = name if name.isascii() and name.isidentifier() else "description"
    headers = {"Content-Disposition": f'attachment; filename="{called}.yaml"'}
    return Response(write_yaml(document), media_type="application/yaml", headers=headers)


def _form(
    key: Key,
    fields: dict[str, str],
    *,
    error: Exception | None = None,
    risks: tuple[str, ...] | None = None,
    done: str = "",
) -> Response:
    """The form as it was sent, with what came of it."""
    found = None if error is None else problem(error)
    tables = tables_of(fields)
    hints = {f"{table.name}.{each.name}" if table.name else each.name for table in tables for each in table.attributes}
    looks = [each for each in remarks_of(fields) if each.partition(": ")[0].removeprefix("Look at ") not in hints]
    return page(
        "description.html.j2",
        key=key,
        fields=defaultdict(str, fields),
        tables=tables,
        several="schema" in fields,
        remarks=looks,
        risks=risks,
        source=redacted_source(fields.get("source", "")),
        yaml=_yaml(fields),
        types=TYPES,
        unknown=UNKNOWN,
        grains=[("", "not said"), *((each, f"one {each}") for each in GRAINS)],
        tables_listed=[("", "none"), *((each.name, each.name) for each in tables)],
        kinds=KINDS,
        problem=found,
        done=done,
        status=200 if found is None else found["status"],
    )


def _yaml(fields: dict[str, str]) -> str:
    """The description as YAML; as it was typed where it says none, and nothing where fields are wrong."""
    if "yaml" in fields:
        return fields["yaml"]
    try:
        return write_yaml(document_of(fields))
    except REFUSALS:
        return ""
