"""The requests to a server: one table of routes, from which both clients have their methods.

Each route states its request by the model that the server reads it with.  So a request of a wrong form is refused
unsent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction, signature
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, Unpack, cast, overload

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
    Result,
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

JOURNAL_PAGE = 1000  # entries of a journal in one request

Parameters = ParamSpec("Parameters")
JsonDocument = dict[str, Any]
JsonDocuments = list[dict[str, Any]]
Exchange: TypeAlias = Generator[Call, httpx.Response, Result]
"""A generator that yields requests, takes their replies, and returns what a method returns."""


class _BlockingClient(Protocol):
    def _run(self, exchange: Exchange[Result]) -> Result: ...


class _AsyncClient(Protocol):
    async def _run(self, exchange: Exchange[Result]) -> Result: ...


class Route(Generic[Parameters, Result]):
    """A request of :class:`Requests` as a method of a client.

    The method has the parameters and the docstring of the request.  It returns the result of the exchange, or a
    coroutine of it if the client has a coroutine to run exchanges.
    """

    def __init__(self, request: Callable[Concatenate[Any, Parameters], Exchange[Result]]) -> None:
        def blocking(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return self._run(request(self, *args, **kwargs))

        async def awaiting(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return await self._run(request(self, *args, **kwargs))

        self._blocking = _with_signature(request, blocking)
        self._awaiting = _with_signature(request, awaiting)

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: _BlockingClient, owner: type) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, client: _AsyncClient, owner: type) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    def __get__(self, client: object, owner: Any) -> Callable[..., Any]:
        """Return the method of a client, or the function of its class."""
        method = self._awaiting if iscoroutinefunction(owner._run) else self._blocking  # noqa: SLF001 - the client's own
        return method if client is None else MethodType(method, client)


def _with_signature(request: Callable[..., Exchange[Any]], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that runs the exchange of a request, with the signature and docstring of the request."""
    original = signature(request)
    result = str(original.return_annotation).removeprefix("Exchange[").removesuffix("]")
    wraps(request)(method)
    method.__signature__ = original.replace(return_annotation=result)  # type: ignore[attr-defined]
    return method


def _read(call: Call, read: Callable[[httpx.Response], Result]) -> Exchange[Result]:
    return read((yield call))


def _documents(method: str, path: str, name: str, body: Mapping[str, Any] | None = None) -> Exchange[JsonDocuments]:
    return cast("JsonDocuments", part((yield Call(method, path, body)), name))


def _document(method: str, path: str, kind: type[StrictModel] | None = None, **fields: Any) -> Exchange[JsonDocument]:  # noqa: ANN401 -- JSON
    return document((yield Call(method, path, None if kind is None else stated(kind, fields))))


def _text(method: str, path: str, name: str, body: Mapping[str, Any] | None = None) -> Exchange[str]:
    return str(part((yield Call(method, path, body)), name))


def _question(name: str, body: Mapping[str, Any], retry_key: str | None) -> Exchange[Reply]:
    return _read(Call("POST", f"/v1/datasets/{name}/query", body, retry_key or new_retry_key()), answered)


def _without_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {name: value for name, value in fields.items() if value is not None}


class Requests:
    """The methods of both clients.  Each returns an exchange here, and its result in a client."""

    def _run(self, exchange: Exchange[Any]) -> Any:  # noqa: ANN401 - the result, or a coroutine of it
        raise NotImplementedError

    @Route
    def datasets(self) -> Exchange[JsonDocuments]:
        """Return the public facts of all datasets."""
        return _documents("GET", "/v1/datasets", "datasets")

    @Route
    def dataset(self, name: str) -> Exchange[JsonDocument]:
        """Return the public facts of a dataset, with its domain."""
        return _document("GET", f"/v1/datasets/{name}")

    @Route
    def budget(self, name: str) -> Exchange[JsonDocument]:
        """Return the remaining budget of a dataset."""
        return _document("GET", f"/v1/datasets/{name}/budget")

    @Route
    def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> Exchange[JsonDocuments]:
        """Return the expected errors at a loss (``epsilon=``, ``delta=``, ``rho=``).  This spends nothing."""
        return _documents(
            "POST", f"/v1/datasets/{name}/cost", "expected", stated(CostRequest, {"sql": sql, **with_loss(terms)})
        )

    @Route
    def cost(self, name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Exchange[Cost]:
        """Return the epsilon that keeps every answer within ``error``, with its assumptions.  This spends nothing."""
        body = stated(CostRequest, {"sql": sql, "error": error, **terms})
        reply = yield Call("POST", f"/v1/datasets/{name}/cost", body)
        return Cost(str(part(reply, "epsilon")), tuple(part(reply, "notes")))

    @Route
    def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Exchange[Reply]:
        """Answer a statement for a loss (``epsilon=``, ``delta=``, ``rho=``)."""
        return _question(name, stated(AskRequest, {"sql": sql, **with_loss(terms)}), retry_key)

    @Route
    def ask_parquet(
        self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Exchange[bytes]:
        """Answer a statement as :meth:`ask` does, and return a Parquet file.  It suits an answer of many groups."""
        body = stated(AskRequest, {"sql": sql, **with_loss(terms)})
        call = Call("POST", f"/v1/datasets/{name}/query", body, retry_key or new_retry_key(), PARQUET)
        return _read(call, parquet_bytes)

    @Route
    def query(
        self, name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Exchange[Reply]:
        """Answer a question stated as aggregates, groups and conditions."""
        question = validate_fields(QueryFields, query)
        return _question(name, stated(AskRequest, {"query": question, **with_loss(terms)}), retry_key)

    @Route
    def journal(self, name: str) -> Exchange[JsonDocuments]:
        """Return the journal: all entries for a steward, the caller's own for an analyst."""
        entries: JsonDocuments = []
        after: int | None = 0
        while after is not None:
            page = yield from _document("GET", f"/v1/datasets/{name}/journal?after={after}&limit={JOURNAL_PAGE}")
            entries += page["entries"]
            after = page["next"]
        return entries

    @Route
    def verify(self, name: str) -> Exchange[str]:
        """Verify the journal of a dataset, and return the hash of its last entry (stewards).

        Raises:
            ServerError: another program changed the journal.
        """
        return _text("GET", f"/v1/datasets/{name}/verify", "hash")

    @Route
    def release(
        self,
        name: str,
        *,
        method: str,
        attributes: Sequence[str] = (),
        zeros: Sequence[Mapping[str, Any]] = (),
        reuse: bool = True,
        children: Sequence[Mapping[str, Any]] = (),
        **loss: Unpack[LossTerms],
    ) -> Exchange[str]:
        """Start a job that makes a synthetic table, and return its id.

        Args:
            name: name of the dataset.
            method: ``auto`` or ``histogram``, or ``related`` for a dataset of several tables.
            attributes: attributes of the histogram; all if empty.
            zeros: rules for impossible combinations, for ``auto``, in the form of a file of such rules.
            reuse: if true, ``batched`` uses earlier releases of the same table.
            children: for ``related``, the tables with several rows per person, each with ``order``, ``falling``,
                ``most``, ``memory`` and ``final``; all if empty.
            loss: the privacy loss of the table.
        """
        fields: dict[str, Any] = {"method": method, "attributes": list(attributes)}
        fields |= {"zeros": [dict(rule) for rule in zeros]} if zeros else {}
        fields |= {} if reuse else {"reuse": False}
        fields |= {"children": [dict(child) for child in children]} if children else {}
        body = stated(SynthesisFields, {**fields, **with_loss(loss)})
        return _text("POST", f"/v1/datasets/{name}/releases", "job", body)

    @Route
    def anonymize(self, /, name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> Exchange[str]:  # noqa: ANN401 -- JSON
        """Start a job that makes an anonymized table, and return its id (stewards).

        ``more`` may have ``suppression``, ``suppress_rows``, ``criteria``, ``keep``, ``keep_anyway``, ``missing``,
        ``hierarchies``, ``seconds``, ``cut`` and ``count``, as ``sfumato anonymize`` takes them.
        """
        body = stated(AnonymizeRequest, {"method": method, "quasi": list(quasi), "k": k, **more})
        return _text("POST", f"/v1/datasets/{name}/anonymizations", "job", body)

    @Route
    def progress(self, job: str) -> Exchange[JsonDocument]:
        """Return the state of a job."""
        return _document("GET", f"/v1/releases/{job}")

    @Route
    def rows(self, job: str) -> Exchange[str]:
        """Return the rows of a finished job, as CSV."""
        return _read(Call("GET", f"/v1/releases/{job}/rows"), csv_text)

    @Route
    def parquet(self, job: str) -> Exchange[bytes]:
        """Return the rows of a finished job as a Parquet file.

        The file of a synthetic table also holds its codebook and its noisy tables.
        """
        return _read(Call("GET", f"/v1/releases/{job}/rows?format=parquet"), parquet_bytes)

    @Route
    def tables(self, job: str, *, parquet: bool = False) -> Exchange[bytes]:
        """Return the linked tables of a finished job and their codebook as a ZIP file of CSV or Parquet files."""
        return _read(Call("GET", f"/v1/releases/{job}/rows?format={'parquet' if parquet else 'csv'}"), zip_bytes)

    @Route
    def draft(self, source: str, *, unit: str | None = None, name: str | None = None) -> Exchange[JsonDocument]:
        """Draft the description of a table, or of the tables of a folder or database (stewards).

        The draft is read off the data, and nothing is registered.

        Args:
            source: place of the table, as the server sees it.
            unit: for several tables, the column that identifies people; detected by its name if None.
            name: for several tables, the name of their schema.

        Returns:
            ``domain``, a draft to replace by public knowledge, and ``remarks``, notes for this work.
        """
        return _document("POST", "/v1/drafts", DraftRequest, **_without_none(source=source, unit=unit, name=name))

    @Route
    def accept(
        self, domain: Mapping[str, Any], *, source: str | None = None, confirm: Sequence[str] = ()
    ) -> Exchange[JsonDocument]:
        """Accept a description unchanged, in the name of the key's holder (stewards).  Nothing is registered.

        Args:
            domain: the description.
            source: the address of its tables, to look for risks in them.
            confirm: the kinds of findings that the steward confirms, such as ``bounds``.

        Returns:
            ``domain``, which names who accepted it and can be registered, and ``risks``.  If ``source`` is given, risks
            are also looked for in its tables.
        """
        fields = _without_none(domain=dict(domain), source=source, confirm=list(confirm) or None)
        return _document("POST", "/v1/acceptances", AcceptanceRequest, **fields)

    @Route
    def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        discoverable: Sequence[str] = (),
        second_budget: bool = False,
    ) -> Exchange[JsonDocument]:
        """Register a dataset (stewards).

        Args:
            name: name of the dataset for analysts.
            source: place of the table, as the server sees it.
            domain: its accepted domain, as a document.
            limit: the privacy budget: ``1``, ``1,1e-9`` or ``rho=0.5``; or a budget per month, such as
                ``0.5 a month for 12 months``.
            discoverable: columns outside the domain by whose values analysts may group.
            second_budget: confirms a second budget for a table that is registered under another name.  The losses of
                both add up.
        """
        fields = {"name": name, "source": source, "domain": dict(domain), "limit": limit}
        more = {"discoverable": list(discoverable), "second_budget": second_budget}
        return _document("POST", "/v1/datasets", DatasetRequest, **fields, **more)

    @Route
    def read_again(self, name: str) -> Exchange[JsonDocument]:
        """Read a table again as the next version of the data, even if its content is the same (stewards)."""
        return _document("POST", f"/v1/datasets/{name}/reading")

    @Route
    def reading(self, name: str) -> Exchange[JsonDocument]:
        """Return the last declared version, and whether the table's files were written since (stewards)."""
        return _document("GET", f"/v1/datasets/{name}/reading")

    @Route
    def cap(self, name: str, analyst: str, **loss: Unpack[LossTerms]) -> Exchange[JsonDocument]:
        """Set the cap of an analyst, or lift it if no loss is given (stewards)."""
        fields = {"analyst": analyst, **(with_loss(loss) if loss else {"loss": None})}
        return _document("PUT", f"/v1/datasets/{name}/caps", CapRequest, **fields)

    @Route
    def terms(self, name: str) -> Exchange[JsonDocument]:
        """Return the terms of a dataset, and the analysts who are let in or shut out (stewards)."""
        return _document("GET", f"/v1/datasets/{name}/terms")

    @Route
    def set_terms(
        self,
        name: str,
        *,
        granted_only: bool = False,
        default_cap: str | None = None,
        most: str | None = None,
        approval_above: str | None = None,
    ) -> Exchange[JsonDocument]:
        """Set all terms of a dataset: who has access, the cap of new analysts, the most of one question (stewards)."""
        fields = {
            "granted_only": granted_only,
            "default_cap": default_cap,
            "most": most,
            "approval_above": approval_above,
        }
        return _document("PUT", f"/v1/datasets/{name}/terms", TermsRequest, **fields)

    @Route
    def rename(self, name: str, to: str) -> Exchange[JsonDocument]:
        """Rename a dataset (stewards)."""
        return _document("PUT", f"/v1/datasets/{name}/name", RenameRequest, name=to)

    @Route
    def retire(self, name: str, *, retired: bool = True) -> Exchange[JsonDocument]:
        """End all releases of a dataset, or allow them again (stewards)."""
        return _document("PUT", f"/v1/datasets/{name}/retirement", RetirementRequest, retired=retired)

    @Route
    def approvals(self) -> Exchange[JsonDocuments]:
        """Return the releases that wait for an approval, or have an unused one."""
        return _documents("GET", "/v1/approvals", "approvals")

    @Route
    def approve(self, approval_id: str) -> Exchange[JsonDocument]:
        """Approve a release that waits, for one use (stewards)."""
        return _read(Call("POST", f"/v1/approvals/{approval_id}", {}), document)

    @Route
    def refuse_approval(self, approval_id: str) -> Exchange[JsonDocument]:
        """Refuse a release that waits, or withdraw an unused approval (stewards)."""
        return _document("DELETE", f"/v1/approvals/{approval_id}")

    @Route
    def let_in(self, name: str, analyst: str) -> Exchange[JsonDocument]:
        """Grant a dataset to an analyst (stewards)."""
        return _document("PUT", f"/v1/datasets/{name}/grants", GrantRequest, analyst=analyst, shut_out=False)

    @Route
    def shut_out(self, name: str, analyst: str) -> Exchange[JsonDocument]:
        """Refuse all further questions of an analyst to a dataset (stewards)."""
        return _document("PUT", f"/v1/datasets/{name}/grants", GrantRequest, analyst=analyst, shut_out=True)

    @Route
    def keys(self) -> Exchange[JsonDocuments]:
        """Return all keys without their secrets (stewards)."""
        return _documents("GET", "/v1/keys", "keys")

    @Route
    def issue(self, name: str, *, scope: str, days: int) -> Exchange[JsonDocument]:
        """Issue a key (stewards).  Only this reply holds its secret."""
        return _document("POST", "/v1/keys", KeyRequest, name=name, scope=scope, days=days)

    @Route
    def rotate(self, key_id: str, *, overlap_hours: int = 0) -> Exchange[JsonDocument]:
        """Issue a key that replaces another after an overlap (stewards).  Only this reply holds its secret."""
        return _document("POST", f"/v1/keys/{key_id}/rotation", RotationRequest, overlap_hours=overlap_hours)

    @Route
    def revoke(self, key_id: str) -> Exchange[None]:
        """Revoke a key (stewards)."""
        yield from _document("DELETE", f"/v1/keys/{key_id}")
