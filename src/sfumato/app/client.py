"""A typed client of the server.

It states requests by the models that the server reads them with, so what has not the right form is refused unsent.
Every request that may spend carries an Idempotency-Key, and repetitions after a lost connection or a
busy ledger carry the same one, so that a question is never charged twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack, cast

import httpx

from sfumato.app.client_exchange import (
    AskTerms,
    Call,
    Cost,
    CostTerms,
    LossTerms,
    Reply,
    Sent,
    ServerError,
    answered,
    attempts,
    connection,
    csv_text,
    document,
    new_retry_key,
    parquet_bytes,
    part,
    stated,
    with_loss,
    zip_bytes,
)
from sfumato.app.requests.administration import (
    AcceptanceRequest,
    CapRequest,
    DatasetRequest,
    DraftRequest,
    GrantRequest,
    KeyRequest,
    RenameRequest,
    RetirementRequest,
    TermsRequest,
)
from sfumato.app.requests.fields import filled
from sfumato.app.requests.queries import AskRequest, CostRequest, QueryFields
from sfumato.app.requests.releases import AnonymizeRequest, SynthesisFields
from sfumato.privacy.loss import Number as Exact

__all__ = ["AsyncHttpClient", "Cost", "HttpClient", "Reply", "ServerError"]

_JOURNAL_PAGE = 1000


class HttpClient:
    """A server at an address, asked with a key.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: as a steward issued it.
        timeout: seconds to wait for a reply.

    Raises:
        InputError: the address is none of HTTP, or no key looks like this one.
    """

    def __init__(self, address: str, key: str, *, timeout: float = 60.0) -> None:
        self._http = httpx.Client(**connection(address, key, timeout))

    def datasets(self) -> list[dict[str, Any]]:
        """All datasets, with what is public about them."""
        return cast("list[dict[str, Any]]", self._call("GET", "/v1/datasets")["datasets"])

    def dataset(self, name: str) -> dict[str, Any]:
        """One dataset and its public domain."""
        return self._call("GET", f"/v1/datasets/{name}")

    def budget(self, name: str) -> dict[str, Any]:
        """What is left."""
        return self._call("GET", f"/v1/datasets/{name}/budget")

    def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> list[dict[str, Any]]:
        """How wrong the answers would be at a loss (``epsilon=``, ``delta=``, ``rho=``); spends nothing."""
        body = stated(CostRequest, {"sql": sql, **with_loss(terms)})
        return cast("list[dict[str, Any]]", self._call("POST", f"/v1/datasets/{name}/cost", body)["expected"])

    def cost(self, name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Cost:
        """The epsilon that keeps every answer within ``error``, and what it supposes; spends nothing."""
        found = self._call(
            "POST", f"/v1/datasets/{name}/cost", stated(CostRequest, {"sql": sql, "error": error, **terms})
        )
        return Cost(str(found["epsilon"]), tuple(found["notes"]))

    def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Reply:
        """Answer a statement for a loss (``epsilon=``, ``delta=``, ``rho=``)."""
        return self._ask(name, stated(AskRequest, {"sql": sql, **with_loss(terms)}), retry_key)

    def query(
        self, name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Reply:
        """Answer a question stated as aggregates, groups and conditions."""
        asked = filled(QueryFields, query)
        return self._ask(name, stated(AskRequest, {"query": asked, **with_loss(terms)}), retry_key)

    def journal(self, name: str) -> list[dict[str, Any]]:
        """The journal: a steward's whole, an analyst's own."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._call("GET", f"/v1/datasets/{name}/journal?after={after}&limit={_JOURNAL_PAGE}")
            found += page["entries"]
            after = page["next"]
        return found

    def verify(self, name: str) -> str:
        """Have the whole journal checked (stewards); returns the hash of its last entry.

        Raises:
            ServerError: it was changed behind the server's back.
        """
        return str(self._call("GET", f"/v1/datasets/{name}/verify")["hash"])

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
    ) -> str:
        """Ask for a synthetic table in the background; returns the id of the job.

        Args:
            name: of the dataset.
            method: ``auto`` or ``histogram``; ``related`` of a dataset of several tables.
            attributes: of the histogram; all of them without.
            zeros: rules for what is impossible, as a file of them has them, for ``auto``.
            reuse: whether AIM may use what was released of the same table before.
            children: of ``related``, the tables of which a person has several rows, with ``order``, ``falling``,
                ``most``, ``memory`` and ``final``; all of them without.
            loss: what it costs.
        """
        said: dict[str, Any] = {"method": method, "attributes": list(attributes)}
        said |= {"zeros": [dict(rule) for rule in zeros]} if zeros else {}
        said |= {} if reuse else {"reuse": False}
        said |= {"children": [dict(child) for child in children]} if children else {}
        body = stated(SynthesisFields, {**said, **with_loss(loss)})
        return str(self._call("POST", f"/v1/datasets/{name}/releases", body)["job"])

    def anonymize(self, name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """Ask for an anonymised table in the background (stewards); returns the id of the job.

        ``more`` may have ``suppression``, ``suppress_rows``, ``criteria``, ``keep``, ``missing``, ``hierarchies``,
        ``seconds`` and ``cut``, as ``sfumato anonymize`` takes them.
        """
        body = stated(AnonymizeRequest, {"method": method, "quasi": list(quasi), "k": k, **more})
        return str(self._call("POST", f"/v1/datasets/{name}/anonymizations", body)["job"])

    def progress(self, job: str) -> dict[str, Any]:
        """How far a job is."""
        return self._call("GET", f"/v1/releases/{job}")

    def rows(self, job: str) -> str:
        """The rows of a finished job, as CSV."""
        return csv_text(self._send(Call("GET", f"/v1/releases/{job}/rows")))

    def parquet(self, job: str) -> bytes:
        """The rows of a finished job as a Parquet file, with the codebook and noisy tables of a synthetic one."""
        return parquet_bytes(self._send(Call("GET", f"/v1/releases/{job}/rows?format=parquet")))

    def tables(self, job: str, *, parquet: bool = False) -> bytes:
        """The related tables of a finished job as a ZIP file: CSV or Parquet files, with their codebook."""
        form = "parquet" if parquet else "csv"
        return zip_bytes(self._send(Call("GET", f"/v1/releases/{job}/rows?format={form}")))

    def draft(self, source: str, *, unit: str | None = None, name: str | None = None) -> dict[str, Any]:
        """Describe a table, or the tables of a folder or database, off the data (stewards); registers nothing.

        Args:
            source: where it lies, as the server sees it.
            unit: of several tables, the column by which people are called; else the one that sounds most like it.
            name: of several tables, what their schema is called.

        Returns:
            ``domain``, a draft to be edited to what is publicly known, and ``remarks`` on what to look at.
        """
        said = {"source": source, "unit": unit, "name": name}
        body = stated(DraftRequest, {key: each for key, each in said.items() if each is not None})
        return self._call("POST", "/v1/drafts", body)

    def accept(self, domain: Mapping[str, Any], *, source: str | None = None) -> dict[str, Any]:
        """Accept a description as it stands, in the name of the key's holder (stewards); registers nothing.

        Returns:
            ``domain``, which says who accepted it and is what to register, and ``risks``, which are looked for in the
            tables where their ``source`` is named.
        """
        said = {"domain": dict(domain)} | ({} if source is None else {"source": source})
        return self._call("POST", "/v1/acceptances", stated(AcceptanceRequest, said))

    def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        discoverable: Sequence[str] = (),
        second_budget: bool = False,
    ) -> dict[str, Any]:
        """Register a dataset (stewards).

        Args:
            name: what analysts call it.
            source: where the table lies, as the server sees it.
            domain: its accepted domain, as a document.
            limit: the most that may ever be released: ``1``, ``1,1e-9`` or ``rho=0.5``; or in each of some
                months, as ``0.5 a month for 12 months``.
            discoverable: columns outside the domain by whose values analysts may group.
            second_budget: confirms that a table which is registered under another name gets a second budget,
                although what is released under both names adds up.
        """
        said = {"name": name, "source": source, "domain": dict(domain), "limit": limit}
        more = {"discoverable": list(discoverable), "second_budget": second_budget}
        return self._call("POST", "/v1/datasets", stated(DatasetRequest, said | more))

    def read_again(self, name: str) -> dict[str, Any]:
        """Have a table read again and its content confirmed, after it has changed (stewards)."""
        return self._call("POST", f"/v1/datasets/{name}/reading")

    def cap(self, name: str, analyst: str, **loss: Unpack[LossTerms]) -> dict[str, Any]:
        """Set what an analyst may spend; without a loss, lift the cap (stewards)."""
        body = stated(CapRequest, {"analyst": analyst, **(with_loss(loss) if loss else {"loss": None})})
        return self._call("PUT", f"/v1/datasets/{name}/caps", body)

    def terms(self, name: str) -> dict[str, Any]:
        """On which terms a dataset is asked, and who is let in or shut out (stewards)."""
        return self._call("GET", f"/v1/datasets/{name}/terms")

    def set_terms(
        self,
        name: str,
        *,
        granted_only: bool = False,
        default_cap: str | None = None,
        most: str | None = None,
        approval_above: str | None = None,
    ) -> dict[str, Any]:
        """Set all of them: who may ask, the cap of new analysts, the most of one question (stewards)."""
        terms = {"granted_only": granted_only, "default_cap": default_cap, "most": most}
        terms |= {"approval_above": approval_above}
        return self._call("PUT", f"/v1/datasets/{name}/terms", stated(TermsRequest, terms))

    def rename(self, name: str, to: str) -> dict[str, Any]:
        """Call a dataset otherwise (stewards)."""
        return self._call("PUT", f"/v1/datasets/{name}/name", stated(RenameRequest, {"name": to}))

    def retire(self, name: str, *, retired: bool = True) -> dict[str, Any]:
        """Release nothing more of a dataset, or go on (stewards)."""
        return self._call("PUT", f"/v1/datasets/{name}/retirement", stated(RetirementRequest, {"retired": retired}))

    def approvals(self) -> list[dict[str, Any]]:
        """Releases that wait for an approval, or have one that is not used."""
        found: list[dict[str, Any]] = self._call("GET", "/v1/approvals")["approvals"]
        return found

    def approve(self, approval_id: str) -> dict[str, Any]:
        """Approve one release, once (stewards)."""
        return self._call("POST", f"/v1/approvals/{approval_id}", {})

    def let_in(self, name: str, analyst: str) -> dict[str, Any]:
        """Grant a dataset to an analyst (stewards)."""
        return self._grant(name, analyst, shut_out=False)

    def shut_out(self, name: str, analyst: str) -> dict[str, Any]:
        """Let an analyst ask a dataset no more (stewards)."""
        return self._grant(name, analyst, shut_out=True)

    def issue(self, name: str, *, scope: str, days: int) -> dict[str, Any]:
        """Issue a key; the secret is in the reply and nowhere else (stewards)."""
        return self._call("POST", "/v1/keys", stated(KeyRequest, {"name": name, "scope": scope, "days": days}))

    def revoke(self, key_id: str) -> None:
        """End a key (stewards)."""
        self._call("DELETE", f"/v1/keys/{key_id}")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _grant(self, name: str, analyst: str, *, shut_out: bool) -> dict[str, Any]:
        body = stated(GrantRequest, {"analyst": analyst, "shut_out": shut_out})
        return self._call("PUT", f"/v1/datasets/{name}/grants", body)

    def _ask(self, name: str, body: Mapping[str, Any], retry_key: str | None) -> Reply:
        call = Call("POST", f"/v1/datasets/{name}/query", body, retry_key or new_retry_key())
        return answered(self._send(call))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return document(self._send(Call(method, path, body)))

    def _send(self, call: Call) -> httpx.Response:
        """Send, and again where that is safe."""
        steps, found = attempts(call, self._http.base_url), None
        while True:
            try:
                step = steps.send(found)
            except StopIteration as done:
                return cast("httpx.Response", done.value)
            found = self._once(step)

    def _once(self, step: Call | float) -> Sent:
        if not isinstance(step, Call):
            time.sleep(step)
            return None
        try:
            return self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error


class AsyncHttpClient:
    """A server at an address, asked with a key by a program that does else meanwhile: what analysts do.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: as a steward issued it.
        timeout: seconds to wait for a reply.

    Raises:
        InputError: the address is none of HTTP, or no key looks like this one.
    """

    def __init__(self, address: str, key: str, *, timeout: float = 60.0) -> None:
        self._http = httpx.AsyncClient(**connection(address, key, timeout))

    async def datasets(self) -> list[dict[str, Any]]:
        """All datasets, with what is public about them."""
        return cast("list[dict[str, Any]]", part(await self._send(Call("GET", "/v1/datasets")), "datasets"))

    async def dataset(self, name: str) -> dict[str, Any]:
        """One dataset and its public domain, or the schema of its tables."""
        return document(await self._send(Call("GET", f"/v1/datasets/{name}")))

    async def budget(self, name: str) -> dict[str, Any]:
        """What is left."""
        return document(await self._send(Call("GET", f"/v1/datasets/{name}/budget")))

    async def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> list[dict[str, Any]]:
        """As :meth:`HttpClient.accuracy`."""
        body = stated(CostRequest, {"sql": sql, **with_loss(terms)})
        reply = await self._send(Call("POST", f"/v1/datasets/{name}/cost", body))
        return cast("list[dict[str, Any]]", part(reply, "expected"))

    async def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Reply:
        """As :meth:`HttpClient.ask`."""
        body = stated(AskRequest, {"sql": sql, **with_loss(terms)})
        call = Call("POST", f"/v1/datasets/{name}/query", body, retry_key or new_retry_key())
        return answered(await self._send(call))

    async def progress(self, job: str) -> dict[str, Any]:
        """How far a job is."""
        return document(await self._send(Call("GET", f"/v1/releases/{job}")))

    async def rows(self, job: str) -> str:
        """The rows of a finished job, as CSV."""
        return csv_text(await self._send(Call("GET", f"/v1/releases/{job}/rows")))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, call: Call) -> httpx.Response:
        steps, found = attempts(call, self._http.base_url), None
        while True:
            try:
                step = steps.send(found)
            except StopIteration as done:
                return cast("httpx.Response", done.value)
            found = await self._once(step)

    async def _once(self, step: Call | float) -> Sent:
        if not isinstance(step, Call):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error
