"""What stewards do: register datasets, cap analysts, issue and revoke keys, read journals."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from sfumato.app.http.access import Anyone, Steward, StrictRoute, Worker
from sfumato.app.http.datasets import budgets, summary
from sfumato.app.http.problems import RefusalError
from sfumato.app.http.registry import Key, Registry, Scope
from sfumato.app.http.rules import DatasetTerms
from sfumato.app.http.service import Service
from sfumato.app.requests.administration import (
    CapRequest,
    DatasetRequest,
    GrantRequest,
    KeyRequest,
    RenameRequest,
    RetirementRequest,
    RotationRequest,
    TermsRequest,
)
from sfumato.app.requests.fields import limit_of
from sfumato.errors import LossError
from sfumato.ledger import Entry
from sfumato.ledger.audit_log import every_action, verify_actions
from sfumato.privacy.loss import Loss
from sfumato.vault.release import entry_cost

PAGE = 50
"""Entries of a journal that are shown at a time."""

LINES = "application/x-ndjson"
"""The media type of lines of JSON."""

router = APIRouter(prefix="/v1", tags=["stewards"], route_class=StrictRoute)


@router.post("/datasets", status_code=201)
def register(form: DatasetRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Register a dataset: read its table, declare its first version, and fix its limit for good."""
    more = {"rows": form.rows, "discoverable": form.discoverable, "second_budget": form.second_budget, "by": key.actor}
    return summary(worker.register(form.name, source=form.source, domain=form.domain, limit=form.limit, more=more))


@router.post("/datasets/{name}/reading")
def read_again(name: str, key: Steward, worker: Worker) -> dict[str, Any]:
    """Read a table again and declare its content, for every worker.

    Until then every question is answered of the version that was declared last.  The content is the next version, in
    which every question is new and is charged, whether it differs or not: otherwise analysts would see whether any row
    changed.
    """
    loaded = worker.loaded(name)
    found, changed = worker.tables.read_again(loaded, by=key.actor)
    return {"dataset": loaded.dataset.called, "version": found.number, "changed": changed}


@router.get("/datasets/{name}/reading")
def reading(name: str, _: Steward, worker: Worker) -> dict[str, Any]:
    """Return the last declared version, and whether the dataset is paused and the table's files were written since.

    ``written`` is null where the table is not made of files.  Analysts learn nothing of it.
    """
    loaded = worker.loaded(name)
    version = loaded.ledger.data_version()
    return {
        "dataset": loaded.dataset.called,
        "version": None if version is None else version.number,
        "declared": None if version is None else version.time,
        "declared_by": None if version is None else version.declared_by,
        "written": worker.tables.written(loaded),
        "paused": worker.tables.paused(loaded),
    }


@router.put("/datasets/{name}/caps")
def cap(name: str, form: CapRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Set or lift what an analyst may spend of a dataset, and say so where nobody holds a key of that name."""
    loaded = worker.loaded(name)
    analyst, name = worker.analyst(loaded, form.analyst), loaded.dataset.name
    if form.shuts_out:
        worker.grants.shut_out(name, analyst, by=key.actor)
    else:
        loaded.ledger.set_cap(analyst, None if form.loss is None else form.loss.loss(), by=key.actor)
        worker.grants.let_back(name, analyst, by=key.actor)
    return {**budgets(loaded, key), "remarks": remarks(worker, analyst)}


@router.get("/datasets/{name}/terms")
def terms(name: str, _: Steward, worker: Worker) -> dict[str, Any]:
    """On which terms a dataset is asked, and who is let in or shut out by name."""
    dataset = worker.loaded(name).dataset.name
    named = worker.grants.named(dataset)
    return {
        **asdict(worker.grants.terms(dataset)),
        "granted": [analyst for analyst, admitted in named.items() if admitted],
        "shut_out": [analyst for analyst, admitted in named.items() if not admitted],
    }


@router.put("/datasets/{name}/terms")
def set_terms(name: str, form: TermsRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Set on which terms a dataset is asked: all of them, so that what is not said is lifted."""
    loaded = worker.loaded(name)
    limit = loaded.ledger.limit
    for text in (form.default_cap, form.most, form.approval_above):
        refuse_measure(limit, limit_of(text))
    found = DatasetTerms(form.granted_only, form.default_cap, form.most, form.approval_above)
    worker.grants.set_terms(loaded.dataset.name, found, by=key.actor)
    return terms(name, key, worker)


@router.put("/datasets/{name}/name")
def rename(name: str, form: RenameRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Call a dataset otherwise; its journal, budget and terms stay, and no other dataset gets the former name."""
    return summary(worker.rename(name, form.name, by=key.actor))


@router.put("/datasets/{name}/retirement")
def retire(name: str, form: RetirementRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Release nothing more of a dataset, or go on; journal and budget stay, and stewards see them."""
    return summary(worker.retire(name, retired=form.retired, by=key.actor))


@router.get("/approvals")
def approvals(key: Anyone, worker: Worker) -> dict[str, Any]:
    """Releases that wait for a steward's approval, or have one that is not used: for analysts their own."""
    found = worker.approvals.open_ones(own(key))
    return {"approvals": [{**asdict(each), "dataset": worker.called(each.dataset)} for each in found]}


@router.post("/approvals/{approval_id}", status_code=201)
def approve(approval_id: str, key: Steward, worker: Worker) -> dict[str, Any]:
    """Approve one release, once: this question at this loss, of this version of the table, for who asked for it."""
    if not worker.approvals.approve(approval_id, key):
        raise RefusalError(
            "no-such-request",
            "Nothing waits for your approval there",
            404,
            "it was approved or closed, has ended, or you asked for it; nobody approves what they asked for",
        )
    return {"approved": approval_id}


@router.delete("/approvals/{approval_id}")
def refuse_approval(approval_id: str, key: Steward, worker: Worker) -> dict[str, Any]:
    """Refuse a release, or take back an approval that was not used."""
    if not worker.approvals.close(approval_id, by=key.actor):
        raise RefusalError("no-such-request", "Nothing waits there", 404, "name the id of one that is open")
    return {"closed": approval_id}


@router.put("/datasets/{name}/grants")
def grant(name: str, form: GrantRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Let an analyst ask a dataset, or shut one out."""
    loaded = worker.loaded(name)
    analyst = worker.analyst(loaded, form.analyst)
    (worker.grants.shut_out if form.shut_out else worker.grants.let_in)(loaded.dataset.name, analyst, by=key.actor)
    return terms(name, key, worker)


@router.get("/datasets/{name}/journal")
def journal(
    name: str,
    key: Anyone,
    worker: Worker,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
) -> dict[str, Any]:
    """Entries after a number, oldest first: for stewards all, for analysts their own; ``next`` asks for those after."""
    found = worker.open_to(name, key).ledger.page(after=after, most=limit, analyst=own(key))
    return {"entries": [entry(each) for each in found], "next": found[-1].number if len(found) == limit else None}


@router.get("/datasets/{name}/verify")
def verify(name: str, _: Steward, worker: Worker) -> dict[str, Any]:
    """Check the whole journal, and the audit log of the server."""
    head = worker.loaded(name).ledger.verify()
    with worker.store.reading() as driver:
        log = verify_actions(driver)
    return {"verified": True, "hash": head, "actions": log.number, "actions_hash": log.hash}


@router.get("/actions")
def actions(_: Steward, worker: Worker, after: Annotated[int, Query(ge=0, le=2**53)] = 0) -> StreamingResponse:
    """Export the audit log as lines of JSON, oldest first: all actions of stewards, or those after a number."""
    lines = (f"{action.to_json()}\n" for action in every_action(worker.store, after=after))
    return StreamingResponse(lines, media_type=LINES)


@router.get("/keys")
def keys(
    _: Steward,
    worker: Worker,
    name: Annotated[str, Query(max_length=200)] = "",
    state: Literal["all", "valid", "ended"] = "all",
    expires_within_days: Annotated[int | None, Query(ge=0, le=3660)] = None,
) -> dict[str, Any]:
    """Keys without their secrets, newest first: all, or those of a name or a state, or that end soon."""
    return {"keys": [described(each) for each in found_keys(worker.registry, name, state, expires_within_days)]}


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
def issue(form: KeyRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Issue a key; its secret is in this reply and nowhere else."""
    new, secret = worker.registry.issue(form.name, Scope(form.scope), timedelta(days=form.days), by=key.actor)
    return {**described(new), "secret": secret}


@router.post("/keys/{key_id}/rotation", status_code=201)
def rotate(key_id: str, form: RotationRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Issue a key in the place of another, which goes on working for an overlap; its secret is in this reply alone."""
    found = worker.registry.rotate(key_id, overlap=timedelta(hours=form.overlap_hours), by=key.actor)
    if found is None:
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that is valid")
    return {**described(found[0]), "secret": found[1], "instead_of": key_id}


@router.delete("/keys/{key_id}")
def revoke(key_id: str, key: Steward, worker: Worker) -> dict[str, Any]:
    """End a key; every worker forgets it within two seconds."""
    if not worker.registry.revoke(key_id, by=key.actor):
        raise RefusalError("unknown-key", "There is no such key", 404, "name the id of a key that was not revoked")
    return {"revoked": key_id}


def remarks(worker: Service, analyst: str) -> list[str]:
    """What a steward is to know about a name that was capped: it may be misspelled, or get a key later."""
    if any(each.valid and each.name == analyst for each in worker.registry.all_keys()):
        return []
    return [f"nobody holds a valid key of the name {analyst!r} now; see that it is spelled as the key's will be"]


def described(key: Key) -> dict[str, Any]:
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
