"""Routes of stewards: describe and register datasets, cap analysts, approve releases, manage keys, read journals.

A draft says what is in the tables, so it is for stewards alone, and releases refuse it.  The server keeps no draft: the
steward who asked for it edits it, has it accepted in their name, and registers what was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from sfumato.app.api.administration import (
    AcceptanceRequest,
    CapRequest,
    DatasetRequest,
    DraftRequest,
    GrantRequest,
    KeyRequest,
    RenameRequest,
    RetirementRequest,
    RotationRequest,
    TermsRequest,
)
from sfumato.app.api.methods import EXACT_FIGURES
from sfumato.app.api.questions import limit_of
from sfumato.description.domain_fit import draft_domain, risks
from sfumato.description.schema_fit import draft_source, schema_risks
from sfumato.domain.domain import Acceptance
from sfumato.domain.table_schema import Schema
from sfumato.engine.csv_file import how_written
from sfumato.engine.open import adapter_of, open_table
from sfumato.errors import DomainError, EngineError, InputError, LossError, TableError
from sfumato.ledger import Entry
from sfumato.ledger.audit_log import every_action, verify_actions
from sfumato.privacy.loss import Loss
from sfumato.query.statements.derived_columns import check_derived
from sfumato.strict_documents import read_yaml
from sfumato.vault.release import entry_cost
from sfumato_server.access import Anyone, CurrentService, Steward, StrictRoute
from sfumato_server.datasets import budgets, summary
from sfumato_server.problems import RefusalError, unreadable, unusable
from sfumato_server.registry import Key, Registry, Scope
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service
from sfumato_server.sources import TablePlaces
from sfumato_server.tables import Described, described

router = APIRouter(prefix="/v1", tags=["stewards"], route_class=StrictRoute)


@dataclass(frozen=True)
class DescriptionDraft:
    """The document of a domain or a schema that was read off tables, and what to look at, a sentence each."""

    document: dict[str, Any]
    remarks: tuple[str, ...]


@router.post("/drafts")
def draft(form: DraftRequest, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Draft the domain of a table, or the schema of the tables of a folder or database; nothing is registered."""
    found = drafted(form.source, service.places, unit=form.unit, name=form.name)
    return {"notice": EXACT_FIGURES, "domain": found.document, "remarks": list(found.remarks)}


@router.post("/acceptances")
def accept(form: AcceptanceRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Accept a description as it stands, in the name of the key's holder, after a look at what is risky in it.

    The document that comes back says who accepted it, and is what to register; nothing is registered here.
    """
    found = read_described(form.domain)
    told = () if form.source is None else steward_warnings(found, form.source, service.places)
    notice = {} if form.source is None else {"notice": EXACT_FIGURES}
    return {**notice, "domain": accepted(found, by=key.name), "risks": list(told)}


def drafted(source: str, places: TablePlaces, *, unit: str | None = None, name: str | None = None) -> DescriptionDraft:
    """A description read off what lies somewhere: of a folder, or a database without a table in its address, a schema.

    Args:
        source: where the table or the tables lie.
        places: where tables may lie.
        unit: of several tables, the column by which people are called; None: the one that sounds most like it.
        name: of several tables, what their schema is called; None: as the folder or database.

    Raises:
        RefusalError: they lie where none is served, or cannot be read.
        InputError: no such place, or a name or unit for a single table.
    """
    source = places.address(source)
    try:
        if adapter_of(source).is_several(source):
            many = draft_source([source], unit=unit, name=name)
            return DescriptionDraft(plain(many.document), tuple(f"{each}." for each in many.notes))
        if unit is not None or name is not None:
            raise InputError("a unit and a name are of several tables, which lie in a folder or a database")
        written = how_written(source, {})
        one = draft_domain(open_table(source, csv=written.format), written.format)
    except (TableError, EngineError) as error:
        raise unreadable(error) from error
    told = [f"How the file is written: {each}; the draft says so." for each in written.notes]
    told += [f"Left out {column}: {reason}." for column, reason in one.left_out.items()]
    told += [f"Look at {column}: {hint}." for column, hint in one.hints.items()]
    return DescriptionDraft(plain(one.document()), tuple(told))


def steward_warnings(found: Described, source: str, places: TablePlaces) -> tuple[str, ...]:
    """What of a description its steward should look at before accepting it, with the tables that it describes.

    Raises:
        RefusalError: the tables lie where none is served, cannot be read, or do not fit it.
    """
    source = places.address(source)
    try:
        if isinstance(found, Schema):
            return schema_risks(found, source)
        table = open_table(source, csv=found.csv)
        table.encode(found)
        return risks(found, table)
    except (TableError, EngineError) as error:
        raise unreadable(error) from error


def read_described(document: Mapping[str, Any]) -> Described:
    """The domain or schema that a document is, as nobody accepted it, with all that an accepted one has to say.

    Raises:
        RefusalError: it cannot be used.
    """
    try:
        found = replace(described(document), draft=False, acceptance=None)  # refuses what a draft may leave open
        if isinstance(found, Schema):
            check_derived(found)
    except DomainError as error:
        raise unusable(error) from error
    return found


def accepted(found: Described, *, by: str) -> dict[str, Any]:
    """The document of a description that somebody accepts as it stands, which says so."""
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    acceptance = Acceptance(by, at, found.hash_accepted(by, at))
    return plain(replace(found, acceptance=acceptance).describe())


def read_document(text: str) -> dict[str, Any]:
    """A description's YAML as plain values: dates as the text that JSON, in which the server keeps it, has for them.

    Raises:
        DomainError: it is not YAML, or no mapping.
    """
    try:
        found = read_yaml(text, name="the domain")
    except InputError as error:
        raise DomainError(str(error)) from None
    if not isinstance(found, dict):
        raise DomainError("the domain is a mapping with 'sfumato', 'unit' and 'attributes'")
    return plain(found)


def plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    """A document of values that JSON has: dates as text."""
    return {str(key): _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401  (whatever YAML may hold)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


PAGE = 50
"""Entries of a journal that are shown at a time."""

LINES = "application/x-ndjson"
"""The media type of lines of JSON."""


@router.post("/datasets", status_code=201)
def register(form: DatasetRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Register a dataset: read its table, declare its first version, and fix its limit for good."""
    more = {"rows": form.rows, "discoverable": form.discoverable, "second_budget": form.second_budget, "by": key.actor}
    return summary(service.register(form.name, source=form.source, domain=form.domain, limit=form.limit, more=more))


@router.post("/datasets/{name}/reading")
def read_again(name: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Read a table again and declare its content, for every worker.

    Until then every question is answered of the version that was declared last.  The content is the next version, in
    which every question is new and is charged, whether it differs or not: otherwise analysts would see whether any row
    changed.
    """
    loaded = service.loaded(name)
    found, changed = service.tables.read_again(loaded, by=key.actor)
    return {"dataset": loaded.dataset.called, "version": found.number, "changed": changed}


@router.get("/datasets/{name}/reading")
def reading(name: str, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Return the last declared version, and whether the dataset is paused and the table's files were written since.

    ``written`` is null where the table is not made of files.  Analysts learn nothing of it.
    """
    loaded = service.loaded(name)
    version = loaded.ledger.data_version()
    return {
        "dataset": loaded.dataset.called,
        "version": None if version is None else version.number,
        "declared": None if version is None else version.time,
        "declared_by": None if version is None else version.declared_by,
        "written": service.tables.written(loaded),
        "paused": service.tables.paused(loaded),
    }


@router.put("/datasets/{name}/caps")
def cap(name: str, form: CapRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Set or lift what an analyst may spend of a dataset, and say so where nobody holds a key of that name."""
    loaded = service.loaded(name)
    analyst, name = service.analyst(loaded, form.analyst), loaded.dataset.name
    if form.shuts_out:
        service.grants.shut_out(name, analyst, by=key.actor)
    else:
        loaded.ledger.set_cap(analyst, None if form.loss is None else form.loss.loss(), by=key.actor)
        service.grants.let_back(name, analyst, by=key.actor)
    return {**budgets(loaded, key), "remarks": remarks(service, analyst)}


@router.get("/datasets/{name}/terms")
def terms(name: str, _: Steward, service: CurrentService) -> dict[str, Any]:
    """On which terms a dataset is asked, and who is let in or shut out by name."""
    dataset = service.loaded(name).dataset.name
    named = service.grants.named(dataset)
    return {
        **asdict(service.grants.terms(dataset)),
        "granted": [analyst for analyst, admitted in named.items() if admitted],
        "shut_out": [analyst for analyst, admitted in named.items() if not admitted],
    }


@router.put("/datasets/{name}/terms")
def set_terms(name: str, form: TermsRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Set on which terms a dataset is asked: all of them, so that what is not said is lifted."""
    loaded = service.loaded(name)
    limit = loaded.ledger.limit
    for text in (form.default_cap, form.most, form.approval_above):
        refuse_measure(limit, limit_of(text))
    found = DatasetTerms(form.granted_only, form.default_cap, form.most, form.approval_above)
    service.grants.set_terms(loaded.dataset.name, found, by=key.actor)
    return terms(name, key, service)


@router.put("/datasets/{name}/name")
def rename(name: str, form: RenameRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Call a dataset otherwise; its journal, budget and terms stay, and no other dataset gets the former name."""
    return summary(service.rename(name, form.name, by=key.actor))


@router.put("/datasets/{name}/retirement")
def retire(name: str, form: RetirementRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Release nothing more of a dataset, or go on; journal and budget stay, and stewards see them."""
    return summary(service.retire(name, retired=form.retired, by=key.actor))


@router.get("/approvals")
def approvals(key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Releases that wait for a steward's approval, or have one that is not used: for analysts their own."""
    found = service.approvals.open_ones(own(key))
    return {"approvals": [{**asdict(each), "dataset": service.called(each.dataset)} for each in found]}


@router.post("/approvals/{approval_id}", status_code=201)
def approve(approval_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Approve one release, once: this question at this loss, of this version of the table, for who asked for it."""
    if not service.approvals.approve(approval_id, key):
        raise RefusalError(
            "no-such-request",
            "Nothing waits for your approval there",
            404,
            "it was approved or closed, has ended, or you asked for it; nobody approves what they asked for",
        )
    return {"approved": approval_id}


@router.delete("/approvals/{approval_id}")
def refuse_approval(approval_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Refuse a release, or take back an approval that was not used."""
    if not service.approvals.close(approval_id, by=key.actor):
        raise RefusalError("no-such-request", "Nothing waits there", 404, "name the id of one that is open")
    return {"closed": approval_id}


@router.put("/datasets/{name}/grants")
def grant(name: str, form: GrantRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Let an analyst ask a dataset, or shut one out."""
    loaded = service.loaded(name)
    analyst = service.analyst(loaded, form.analyst)
    (service.grants.shut_out if form.shut_out else service.grants.let_in)(loaded.dataset.name, analyst, by=key.actor)
    return terms(name, key, service)


@router.get("/datasets/{name}/journal")
def journal(
    name: str,
    key: Anyone,
    service: CurrentService,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
) -> dict[str, Any]:
    """Entries after a number, oldest first: for stewards all, for analysts their own; ``next`` asks for those after."""
    found = service.check_access(name, key).ledger.page(after=after, most=limit, analyst=own(key))
    return {"entries": [entry(each) for each in found], "next": found[-1].number if len(found) == limit else None}


@router.get("/datasets/{name}/verify")
def verify(name: str, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Check the whole journal, and the audit log of the server."""
    head = service.loaded(name).ledger.verify()
    with service.store.reading() as driver:
        log = verify_actions(driver)
    return {"verified": True, "hash": head, "actions": log.number, "actions_hash": log.hash}


@router.get("/actions")
def actions(_: Steward, service: CurrentService, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> StreamingResponse:
    """Export the audit log as lines of JSON, oldest first: all actions of stewards, or those after a number."""
    lines = (f"{action.to_json()}\n" for action in every_action(service.store, after=after))
    return StreamingResponse(lines, media_type=LINES)


@router.get("/keys")
def keys(
    _: Steward,
    service: CurrentService,
    name: Annotated[str, Query(max_length=200)] = "",
    state: Literal["all", "valid", "ended"] = "all",
    expires_within_days: Annotated[int | None, Query(ge=0, le=3660)] = None,
) -> dict[str, Any]:
    """Keys without their secrets, newest first: all, or those of a name or a state, or that end soon."""
    return {"keys": [key_facts(each) for each in found_keys(service.registry, name, state, expires_within_days)]}


def found_keys(registry: Registry, name: str, state: str, expires_within_days: int | None) -> list[Key]:
    """Keys whose holder's name has a text, whatever its case; of a state; of those that are valid, which end soon."""
    days = 10**4 if expires_within_days is None else expires_within_days
    end = datetime.now(UTC) + timedelta(days=days)
    return [
        key
        for key in registry.all_keys()
        if name.casefold() in key.name.casefold()
        and (state == "all" or key.valid is (state == "valid"))
        and (expires_within_days is None or (key.valid and key.expires <= end))
    ]


@router.post("/keys", status_code=201)
def issue(form: KeyRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Issue a key; its secret is in this reply and nowhere else."""
    new, secret = service.registry.issue(form.name, Scope(form.scope), timedelta(days=form.days), by=key.actor)
    return {**key_facts(new), "secret": secret}


@router.post("/keys/{key_id}/rotation", status_code=201)
def rotate(key_id: str, form: RotationRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Issue a key in the place of another, which goes on working for an overlap; its secret is in this reply alone."""
    found = service.registry.rotate(key_id, overlap=timedelta(hours=form.overlap_hours), by=key.actor)
    if found is None:
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that is valid")
    return {**key_facts(found[0]), "secret": found[1], "instead_of": key_id}


@router.delete("/keys/{key_id}")
def revoke(key_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """End a key; every worker forgets it within two seconds."""
    if not service.registry.revoke(key_id, by=key.actor):
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that was not revoked")
    return {"revoked": key_id}


def remarks(service: Service, analyst: str) -> list[str]:
    """What a steward is to know about a name that was capped: it may be misspelled, or get a key later."""
    if any(each.valid and each.name == analyst for each in service.registry.all_keys()):
        return []
    return [f"nobody holds a valid key of the name {analyst!r} now; see that it is spelled as the key's will be"]


def key_facts(key: Key) -> dict[str, Any]:
    """A key without its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope.value,
        "issued": key.issued.isoformat(),
        "expires": key.expires.isoformat(),
        "used": None if key.used is None else key.used.isoformat(),
        "valid": key.valid,
    }


def refuse_measure(limit: Loss, found: Loss | None) -> None:
    """Refuse a limit within a dataset's own that is not in its measure.

    Raises:
        LossError: it is not.
    """
    if found is not None and type(found) is not type(limit):
        measure = " and ".join(limit.amounts)
        raise LossError(f"the limit is {limit}: state other limits in the same measure, by {measure}", culprit=found)


def own(key: Key) -> str | None:
    """Whose entries a key may see: an analyst their own, a steward everybody's."""
    return None if key.scope is Scope.STEWARD else key.name


def entry(found: Entry) -> dict[str, Any]:
    """An entry of the journal; the question names cells of the public domain, never the data's version."""
    return {
        "number": found.number,
        "time": found.time,
        "kind": found.kind.value,
        "family": found.family,
        "method": found.method,
        "analyst": found.analyst,
        "statement": found.statement,
        "asked": found.asked,
        "cost": entry_cost(found),
        "parameters": found.question.parameters,
        "hash": found.hash,
    }
