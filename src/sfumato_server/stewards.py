"""Routes of stewards: describe and register datasets, cap analysts, approve releases, manage keys, read journals.

A draft of a description is derived from the data, so only stewards see it, and releases refuse it.  The steward edits
it, has it accepted in their name, and registers the accepted document.  Over HTTP the server stores no draft; on the
pages it stores the draft for its steward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from sfumato.description.draft import describe
from sfumato.description.findings import DescriptionFinding, confirmed_kinds, domain_findings, refuse_unconfirmed
from sfumato.description.redraft import Redrafts
from sfumato.description.schema_fit import schema_findings
from sfumato.description.tables_draft import describe_tables
from sfumato.domain import CsvFormat
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import accepted_now
from sfumato.engine.open import adapter_of, open_table
from sfumato.errors import DomainError, EngineError, InputError, LossError, TableError
from sfumato.ledger import Entry
from sfumato.ledger.audit_log import every_action, verify_actions
from sfumato.privacy.loss import Loss
from sfumato.query.statements.derived_columns import check_derived
from sfumato.strict_documents import read_yaml
from sfumato.vault.release import entry_cost
from sfumato_server.access import Anyone, CurrentService, Officer, Reader, Steward, StrictRoute
from sfumato_server.datasets import budgets, summary
from sfumato_server.problems import RefusalError, domain_refusal, table_refusal
from sfumato_server.registry import Key, Registry, Scope
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service
from sfumato_server.sources import TablePlaces
from sfumato_server.tables import Description, parse_description

router = APIRouter(prefix="/v1", tags=["stewards"], route_class=StrictRoute)


@dataclass(frozen=True)
class DescriptionDraft:
    """A domain or schema that was derived from tables, with notes for the steward and findings to confirm."""

    document: dict[str, Any]
    notes: tuple[str, ...]
    findings: tuple[DescriptionFinding, ...]


@router.post("/drafts")
def draft(form: DraftRequest, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Draft the domain of a table, or the schema of the tables of a folder or database; nothing is registered."""
    description = draft_description(form.source, service.places, unit=form.unit, name=form.name)
    return {"notice": EXACT_FIGURES, "domain": description.document, "remarks": list(description.notes)}


@router.post("/acceptances")
def accept(form: AcceptanceRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Accept a description in the name of the key's holder, and return its findings, which are all confirmed.

    The returned document names who accepted it, and is the one to register.  Nothing is registered here.
    """
    description = read_description(form.domain)
    findings = steward_findings(description, form.source, service.places)
    accepted = accept_description(description, findings, by=key.name, confirm=form.confirm)
    notice = {} if form.source is None else {"notice": EXACT_FIGURES}
    return {**notice, "domain": accepted, "risks": [str(finding) for finding in findings]}


def draft_description(
    source: str, places: TablePlaces, *, unit: str | None = None, name: str | None = None
) -> DescriptionDraft:
    """Derive a description from tables: a domain from one, a schema from a folder or database.

    Args:
        source: the address of the table, folder or database.
        places: the places that are served.
        unit: for several tables, the column that identifies people; None to guess it.
        name: for several tables, the name of their schema; None for the name of the folder or database.

    Raises:
        RefusalError: the place is not served, or the tables cannot be read.
        InputError: the place does not exist, or a single table gets a name or unit.
    """
    source = places.address(source)
    try:
        if adapter_of(source).is_several(source):
            schema = describe_tables(source, unit=unit, name=name)
            return DescriptionDraft(plain(schema.document), tuple(f"{note}." for note in schema.notes), schema.findings)
        if unit is not None or name is not None:
            raise InputError("a unit and a name are of several tables, which lie in a folder or a database")
        domain = describe(source)
    except (TableError, EngineError) as error:
        raise table_refusal(error) from error
    notes = [f"How the file is written: {note}; the draft says so." for note in domain.csv_notes]
    return DescriptionDraft(plain(domain.document), (*notes, *domain.notes()), domain.findings)


def open_drafted(source: str, places: TablePlaces, name: str, drafted: Mapping[str, Any]) -> Redrafts:
    """Open a table that was drafted, to draft its columns again.

    Args:
        source: the address of the table, folder or database.
        places: the places that are served.
        name: the name of the table in its schema; empty for a single table.
        drafted: the part of the document that describes the table, as it was drafted.

    Raises:
        RefusalError: the place is not served, or the table cannot be read.
    """
    place = places.address(source)
    form = CsvFormat(**drafted["csv"]) if "csv" in drafted else None
    try:
        one = adapter_of(place).place(SchemaTable(name=name, public=True), place) if name else place
        return Redrafts(open_table(one, csv=form), drafted["attributes"], form)
    except (TableError, EngineError) as error:
        raise table_refusal(error) from error


def steward_findings(
    description: Description, source: str | None, places: TablePlaces
) -> tuple[DescriptionFinding, ...]:
    """Return what a steward should look at before accepting a description of tables.

    Args:
        description: the domain or schema.
        source: the address of its tables; None to look at the description only.
        places: the places that are served.

    Raises:
        RefusalError: the place is not served, or the tables cannot be read or do not fit.
    """
    source = None if source is None else places.address(source)
    try:
        if isinstance(description, Schema):
            return schema_findings(description, source)
        if source is None:
            return domain_findings(description, None)
        table = open_table(source, csv=description.csv)
        table.encode(description)
        return domain_findings(description, table)
    except (TableError, EngineError) as error:
        raise table_refusal(error) from error


def read_description(document: Mapping[str, Any]) -> Description:
    """Return the domain or schema of a document, as complete as an accepted one but without an acceptance.

    Raises:
        RefusalError: the document cannot be used.
    """
    try:
        # refuses gaps that a draft may have
        description = replace(parse_description(document), draft=False, acceptance=None)
        if isinstance(description, Schema):
            check_derived(description)
    except DomainError as error:
        raise domain_refusal(error) from error
    return description


def accept_description(
    description: Description, findings: Sequence[DescriptionFinding], *, by: str, confirm: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document of a description, with the acceptance of a person.

    Args:
        description: the domain or schema.
        findings: about the description.
        by: the person.
        confirm: the kinds of findings that the person confirms, by name.

    Raises:
        RefusalError: a kind is not confirmed.
        InputError: there is no such kind.
    """
    try:
        confirmed = refuse_unconfirmed(findings, confirmed_kinds(confirm))
    except DomainError as error:
        raise domain_refusal(error) from error
    acceptance = accepted_now(description, by=by, confirmed=confirmed)
    return plain(replace(description, acceptance=acceptance).describe())


def read_document(text: str) -> dict[str, Any]:
    """Read a description's YAML as JSON values; dates become text.

    Raises:
        DomainError: the text is not YAML, or not a mapping.
    """
    try:
        document = read_yaml(text, name="the domain")
    except InputError as error:
        raise DomainError(str(error)) from None
    if not isinstance(document, dict):
        raise DomainError("the domain is a mapping with 'sfumato', 'unit' and 'attributes'")
    return plain(document)


def plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a document with JSON values only; dates become text."""
    return {str(key): _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401  (whatever YAML may hold)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


PAGE_SIZE = 50
"""Entries of a journal on one page."""

JSON_LINES = "application/x-ndjson"


@router.post("/datasets", status_code=201)
def register(form: DatasetRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Register a dataset: read its table, declare its first version, and fix its limit for good."""
    more = {"rows": form.rows, "discoverable": form.discoverable, "second_budget": form.second_budget, "by": key.actor}
    return summary(service.register(form.name, source=form.source, domain=form.domain, limit=form.limit, more=more))


@router.post("/datasets/{name}/reading")
def read_again(name: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Read a table again and declare its content as the next version, for all workers.

    Until then, answers come from the last version.  A question of a new version is a new charge, even if the content is
    the same.  Otherwise analysts could see whether a row changed.
    """
    loaded = service.loaded(name)
    version, changed = service.tables.reread(loaded, by=key.actor)
    return {"dataset": loaded.dataset.called, "version": version.number, "changed": changed}


@router.get("/datasets/{name}/reading")
def reading(name: str, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Return the last declared version, and whether the dataset is paused or its files have changed.

    ``written`` is null if the table is not made of files.  Analysts cannot see any of this.
    """
    loaded = service.loaded(name)
    version = loaded.ledger.data_version()
    return {
        "dataset": loaded.dataset.called,
        "version": None if version is None else version.number,
        "declared": None if version is None else version.time,
        "declared_by": None if version is None else version.declared_by,
        "written": service.tables.source_changed(loaded),
        "paused": service.tables.is_paused(loaded),
    }


@router.put("/datasets/{name}/caps")
def cap(name: str, form: CapRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Set or lift an analyst's cap, and warn if no valid key has the name."""
    loaded = service.loaded(name)
    analyst, name = service.analyst_name(loaded, form.analyst), loaded.dataset.name
    if form.shuts_out:
        service.grants.shut_out(name, analyst, by=key.actor)
    else:
        loaded.ledger.set_cap(analyst, None if form.loss is None else form.loss.loss(), by=key.actor)
        service.grants.let_back(name, analyst, by=key.actor)
    return {**budgets(loaded, key), "remarks": cap_warnings(service, analyst)}


@router.get("/datasets/{name}/terms")
def terms(name: str, _: Steward, service: CurrentService) -> dict[str, Any]:
    """Return a dataset's terms, and the analysts with a grant or an exclusion."""
    dataset = service.loaded(name).dataset.name
    grants = service.grants.analysts(dataset)
    return {
        **asdict(service.grants.terms(dataset)),
        "granted": [analyst for analyst, admitted in grants.items() if admitted],
        "shut_out": [analyst for analyst, admitted in grants.items() if not admitted],
    }


@router.put("/datasets/{name}/terms")
def set_terms(name: str, form: TermsRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Replace all terms of a dataset.  A term that the request leaves out is lifted."""
    loaded = service.loaded(name)
    limit = loaded.ledger.limit
    for text in (form.default_cap, form.most, form.approval_above):
        refuse_measure(limit, limit_of(text))
    new_terms = DatasetTerms(form.granted_only, form.default_cap, form.most, form.approval_above)
    service.grants.set_terms(loaded.dataset.name, new_terms, by=key.actor)
    return terms(name, key, service)


@router.put("/datasets/{name}/name")
def rename(name: str, form: RenameRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Rename a dataset.  Its journal, budget and terms stay, and no other dataset gets the former name."""
    return summary(service.rename(name, form.name, by=key.actor))


@router.put("/datasets/{name}/retirement")
def retire(name: str, form: RetirementRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Retire a dataset, or end its retirement.  Its journal and budget stay, and stewards see them."""
    return summary(service.retire(name, retired=form.retired, by=key.actor))


@router.get("/approvals")
def approvals(key: Anyone, service: CurrentService) -> dict[str, Any]:
    """List open requests for approval and unused approvals; an analyst sees their own."""
    pending = service.approvals.pending(analyst_filter(key))
    return {"approvals": [{**asdict(each), "dataset": service.current_name(each.dataset)} for each in pending]}


@router.post("/approvals/{approval_id}", status_code=201)
def approve(approval_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Approve one release, once: this question at this loss, of this version, for this analyst."""
    if not service.approvals.approve(approval_id, key):
        raise RefusalError(
            "no-such-request",
            "You cannot approve this request",
            404,
            "it was approved or closed, has expired, or is your own; a steward cannot approve their own request",
        )
    return {"approved": approval_id}


@router.delete("/approvals/{approval_id}")
def refuse_approval(approval_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Refuse a release, or withdraw an unused approval."""
    if not service.approvals.close(approval_id, by=key.actor):
        raise RefusalError("no-such-request", "There is no such request", 404, "name the id of an open request")
    return {"closed": approval_id}


@router.put("/datasets/{name}/grants")
def grant(name: str, form: GrantRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Grant a dataset to an analyst, or exclude one."""
    loaded = service.loaded(name)
    analyst = service.analyst_name(loaded, form.analyst)
    (service.grants.shut_out if form.shut_out else service.grants.let_in)(loaded.dataset.name, analyst, by=key.actor)
    return terms(name, key, service)


@router.get("/datasets/{name}/journal")
def journal(
    name: str,
    key: Reader,
    service: CurrentService,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE_SIZE,
) -> dict[str, Any]:
    """Return the entries after a number, oldest first; an analyst sees their own.

    ``next`` is the number for the next page.
    """
    entries = service.check_access(name, key).ledger.page(after=after, most=limit, analyst=analyst_filter(key))
    more = entries[-1].number if len(entries) == limit else None
    return {"entries": [entry_facts(entry) for entry in entries], "next": more}


@router.get("/datasets/{name}/verify")
def verify(name: str, _: Officer, service: CurrentService) -> dict[str, Any]:
    """Verify the whole journal of a dataset, and the audit log of the server."""
    head = service.loaded(name).ledger.verify()
    with service.store.reading() as driver:
        log = verify_actions(driver)
    return {"verified": True, "hash": head, "actions": log.number, "actions_hash": log.hash}


@router.get("/actions")
def actions(_: Steward, service: CurrentService, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> StreamingResponse:
    """Export the audit log of stewards' actions as lines of JSON, oldest first.

    ``after`` is the number of the last action to leave out.
    """
    lines = (f"{action.to_json()}\n" for action in every_action(service.store, after=after))
    return StreamingResponse(lines, media_type=JSON_LINES)


@router.get("/keys")
def keys(
    _: Steward,
    service: CurrentService,
    name: Annotated[str, Query(max_length=200)] = "",
    state: Literal["all", "valid", "ended"] = "all",
    expires_within_days: Annotated[int | None, Query(ge=0, le=3660)] = None,
) -> dict[str, Any]:
    """List keys without their secrets, newest first.  The list may be filtered by name, state and end."""
    return {"keys": [key_facts(each) for each in search_keys(service.registry, name, state, expires_within_days)]}


def search_keys(registry: Registry, name: str, state: str, expires_within_days: int | None) -> list[Key]:
    """Return keys by a part of the holder's name in any case, by their state, and by their end."""
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
    """Issue a key.  Only this reply has its secret."""
    new, secret = service.registry.issue(form.name, Scope(form.scope), timedelta(days=form.days), by=key.actor)
    return {**key_facts(new), "secret": secret}


@router.post("/keys/{key_id}/rotation", status_code=201)
def rotate(key_id: str, form: RotationRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Issue a key in exchange for another, which works until an overlap is over.

    Only this reply has the new secret.
    """
    rotated = service.registry.rotate(key_id, overlap=timedelta(hours=form.overlap_hours), by=key.actor)
    if rotated is None:
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that is valid")
    new, secret = rotated
    return {**key_facts(new), "secret": secret, "instead_of": key_id}


@router.delete("/keys/{key_id}")
def revoke(key_id: str, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Revoke a key; every worker follows within two seconds."""
    if not service.registry.revoke(key_id, by=key.actor):
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that was not revoked")
    return {"revoked": key_id}


def cap_warnings(service: Service, analyst: str) -> list[str]:
    """Return warnings for a steward who set a cap: the name may be misspelled, or get a key later."""
    if any(each.valid and each.name == analyst for each in service.registry.all_keys()):
        return []
    return [f"nobody holds a valid key of the name {analyst!r} now; check that the name is that of the key"]


def key_facts(key: Key) -> dict[str, Any]:
    """Return a key without its secret, as JSON."""
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope.value,
        "issued": key.issued.isoformat(),
        "expires": key.expires.isoformat(),
        "used": None if key.used is None else key.used.isoformat(),
        "valid": key.valid,
    }


def refuse_measure(limit: Loss, other: Loss | None) -> None:
    """Refuse a limit that is not in the measure of a dataset's own limit.

    Raises:
        LossError: the measures differ.
    """
    if other is not None and type(other) is not type(limit):
        measure = " and ".join(limit.amounts)
        raise LossError(f"the limit is {limit}: state other limits in the same measure, by {measure}", culprit=other)


def analyst_filter(key: Key) -> str | None:
    """Return the analyst whose entries a key may see; None for all, if it is a steward's or an officer's."""
    return None if key.sees_all else key.name


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return an entry of the journal as JSON.  It names cells of the public domain, and never the data's digest."""
    return {
        "number": entry.number,
        "time": entry.time,
        "kind": entry.kind.value,
        "family": entry.family,
        "method": entry.method,
        "analyst": entry.analyst,
        "statement": entry.statement,
        "asked": entry.asked,
        "cost": entry_cost(entry),
        "parameters": entry.question.parameters,
        "hash": entry.hash,
    }
