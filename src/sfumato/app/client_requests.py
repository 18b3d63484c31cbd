"""What clients ask a server for, and how they read what it replies: once for those that wait and those that do not.

Every function states its request by the model that the server reads it with, so what has not the right form is refused
unsent.  The clients have a method of the same name and terms for each, and say there what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, Unpack, cast

import httpx

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
from sfumato.app.api.questions import AskRequest, CostRequest, QueryFields, StrictModel, validate_fields
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields
from sfumato.app.client_protocol import (
    PARQUET,
    AskTerms,
    Call,
    Cost,
    CostTerms,
    LossTerms,
    Reply,
    answered,
    csv_text,
    document,
    new_retry_key,
    parquet_bytes,
    part,
    stated,
    with_loss,
    zip_bytes,
)
from sfumato.privacy.loss import Number as Exact

JOURNAL_PAGE = 1000
"""Entries of a journal that are asked for at a time."""

Replied = TypeVar("Replied")
JsonDocument = dict[str, Any]
JsonDocuments = list[dict[str, Any]]


@dataclass(frozen=True)
class Exchange(Generic[Replied]):
    """A request and how its reply is read."""

    call: Call
    read: Callable[[httpx.Response], Replied]


def _documents(method: str, path: str, name: str, body: Mapping[str, Any] | None = None) -> Exchange[JsonDocuments]:
    return Exchange(Call(method, path, body), lambda reply: cast("JsonDocuments", part(reply, name)))


def _document(method: str, path: str, kind: type[StrictModel] | None = None, **fields: Any) -> Exchange[JsonDocument]:  # noqa: ANN401 -- JSON
    return Exchange(Call(method, path, None if kind is None else stated(kind, fields)), document)


def _text(method: str, path: str, name: str, body: Mapping[str, Any] | None = None) -> Exchange[str]:
    return Exchange(Call(method, path, body), lambda reply: str(part(reply, name)))


def _without_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """Fields of which something is said."""
    return {name: value for name, value in fields.items() if value is not None}


def datasets() -> Exchange[JsonDocuments]:
    """All datasets."""
    return _documents("GET", "/v1/datasets", "datasets")


def dataset(name: str) -> Exchange[JsonDocument]:
    """One dataset."""
    return _document("GET", f"/v1/datasets/{name}")


def budget(name: str) -> Exchange[JsonDocument]:
    """What is left."""
    return _document("GET", f"/v1/datasets/{name}/budget")


def accuracy(name: str, sql: str, **terms: Unpack[CostTerms]) -> Exchange[JsonDocuments]:
    """How wrong answers would be."""
    return _documents(
        "POST", f"/v1/datasets/{name}/cost", "expected", stated(CostRequest, {"sql": sql, **with_loss(terms)})
    )


def cost(name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Exchange[Cost]:
    """The epsilon for an error."""

    def read(reply: httpx.Response) -> Cost:
        return Cost(str(part(reply, "epsilon")), tuple(part(reply, "notes")))

    body = stated(CostRequest, {"sql": sql, "error": error, **terms})
    return Exchange(Call("POST", f"/v1/datasets/{name}/cost", body), read)


def ask(name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Exchange[Reply]:
    """The answer to a statement."""
    return _question(name, stated(AskRequest, {"sql": sql, **with_loss(terms)}), retry_key)


def ask_parquet(name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Exchange[bytes]:
    """The answer to a statement as a Parquet file."""
    exchange = _question(name, stated(AskRequest, {"sql": sql, **with_loss(terms)}), retry_key)
    return Exchange(replace(exchange.call, accept=PARQUET), parquet_bytes)


def query(
    name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
) -> Exchange[Reply]:
    """The answer to a question as fields."""
    question = validate_fields(QueryFields, query)
    return _question(name, stated(AskRequest, {"query": question, **with_loss(terms)}), retry_key)


def _question(name: str, body: Mapping[str, Any], retry_key: str | None) -> Exchange[Reply]:
    return Exchange(Call("POST", f"/v1/datasets/{name}/query", body, retry_key or new_retry_key()), answered)


def journal_page(name: str, after: int) -> Exchange[JsonDocument]:
    """A page of the journal."""
    return _document("GET", f"/v1/datasets/{name}/journal?after={after}&limit={JOURNAL_PAGE}")


def verify(name: str) -> Exchange[str]:
    """The hash of the last entry."""
    return _text("GET", f"/v1/datasets/{name}/verify", "hash")


def release(
    name: str,
    *,
    method: str,
    attributes: Sequence[str] = (),
    zeros: Sequence[Mapping[str, Any]] = (),
    reuse: bool = True,
    children: Sequence[Mapping[str, Any]] = (),
    **loss: Unpack[LossTerms],
) -> Exchange[str]:
    """A synthetic table, or several, in the background."""
    fields: dict[str, Any] = {"method": method, "attributes": list(attributes)}
    fields |= {"zeros": [dict(rule) for rule in zeros]} if zeros else {}
    fields |= {} if reuse else {"reuse": False}
    fields |= {"children": [dict(child) for child in children]} if children else {}
    body = stated(SynthesisFields, {**fields, **with_loss(loss)})
    return _text("POST", f"/v1/datasets/{name}/releases", "job", body)


def anonymize(name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> Exchange[str]:  # noqa: ANN401 -- JSON
    """An anonymised table in the background."""
    body = stated(AnonymizeRequest, {"method": method, "quasi": list(quasi), "k": k, **more})
    return _text("POST", f"/v1/datasets/{name}/anonymizations", "job", body)


def progress(job: str) -> Exchange[JsonDocument]:
    """How far a job is."""
    return _document("GET", f"/v1/releases/{job}")


def rows(job: str) -> Exchange[str]:
    """Rows as CSV."""
    return Exchange(Call("GET", f"/v1/releases/{job}/rows"), csv_text)


def parquet(job: str) -> Exchange[bytes]:
    """Rows as Parquet."""
    return Exchange(Call("GET", f"/v1/releases/{job}/rows?format=parquet"), parquet_bytes)


def tables(job: str, *, parquet: bool = False) -> Exchange[bytes]:
    """Related tables as a ZIP file."""
    return Exchange(Call("GET", f"/v1/releases/{job}/rows?format={'parquet' if parquet else 'csv'}"), zip_bytes)


def draft(source: str, *, unit: str | None = None, name: str | None = None) -> Exchange[JsonDocument]:
    """A description read off tables."""
    return _document("POST", "/v1/drafts", DraftRequest, **_without_none(source=source, unit=unit, name=name))


def accept(domain: Mapping[str, Any], *, source: str | None = None) -> Exchange[JsonDocument]:
    """A description as somebody accepts it."""
    return _document("POST", "/v1/acceptances", AcceptanceRequest, **_without_none(domain=dict(domain), source=source))


def register(
    name: str,
    *,
    source: str,
    domain: Mapping[str, Any],
    limit: str,
    discoverable: Sequence[str] = (),
    second_budget: bool = False,
) -> Exchange[JsonDocument]:
    """A dataset."""
    fields = {"name": name, "source": source, "domain": dict(domain), "limit": limit}
    more = {"discoverable": list(discoverable), "second_budget": second_budget}
    return _document("POST", "/v1/datasets", DatasetRequest, **fields, **more)


def read_again(name: str) -> Exchange[JsonDocument]:
    """A table as it is now."""
    return _document("POST", f"/v1/datasets/{name}/reading")


def reading(name: str) -> Exchange[JsonDocument]:
    """Return the request for the last declared version."""
    return _document("GET", f"/v1/datasets/{name}/reading")


def cap(name: str, analyst: str, **loss: Unpack[LossTerms]) -> Exchange[JsonDocument]:
    """What an analyst may spend."""
    fields = {"analyst": analyst, **(with_loss(loss) if loss else {"loss": None})}
    return _document("PUT", f"/v1/datasets/{name}/caps", CapRequest, **fields)


def terms(name: str) -> Exchange[JsonDocument]:
    """The terms of a dataset."""
    return _document("GET", f"/v1/datasets/{name}/terms")


def set_terms(
    name: str,
    *,
    granted_only: bool = False,
    default_cap: str | None = None,
    most: str | None = None,
    approval_above: str | None = None,
) -> Exchange[JsonDocument]:
    """Other terms."""
    fields = {"granted_only": granted_only, "default_cap": default_cap, "most": most, "approval_above": approval_above}
    return _document("PUT", f"/v1/datasets/{name}/terms", TermsRequest, **fields)


def rename(name: str, to: str) -> Exchange[JsonDocument]:
    """Another name."""
    return _document("PUT", f"/v1/datasets/{name}/name", RenameRequest, name=to)


def retire(name: str, *, retired: bool = True) -> Exchange[JsonDocument]:
    """An end, or none."""
    return _document("PUT", f"/v1/datasets/{name}/retirement", RetirementRequest, retired=retired)


def approvals() -> Exchange[JsonDocuments]:
    """What waits."""
    return _documents("GET", "/v1/approvals", "approvals")


def approve(approval_id: str) -> Exchange[JsonDocument]:
    """An approval."""
    return Exchange(Call("POST", f"/v1/approvals/{approval_id}", {}), document)


def refuse_approval(approval_id: str) -> Exchange[JsonDocument]:
    """None."""
    return _document("DELETE", f"/v1/approvals/{approval_id}")


def grant(name: str, analyst: str, *, shut_out: bool) -> Exchange[JsonDocument]:
    """Who may ask."""
    return _document("PUT", f"/v1/datasets/{name}/grants", GrantRequest, analyst=analyst, shut_out=shut_out)


def keys() -> Exchange[JsonDocuments]:
    """All keys."""
    return _documents("GET", "/v1/keys", "keys")


def issue(name: str, *, scope: str, days: int) -> Exchange[JsonDocument]:
    """A key."""
    return _document("POST", "/v1/keys", KeyRequest, name=name, scope=scope, days=days)


def rotate(key_id: str, *, overlap_hours: int = 0) -> Exchange[JsonDocument]:
    """A key in the place of another."""
    return _document("POST", f"/v1/keys/{key_id}/rotation", RotationRequest, overlap_hours=overlap_hours)


def revoke(key_id: str) -> Exchange[JsonDocument]:
    """The end of a key."""
    return _document("DELETE", f"/v1/keys/{key_id}")
