"""The client of the server for programs that do else while they wait; it has the methods of the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack, cast

import httpx

from sfumato.app import client_requests
from sfumato.app.client_protocol import (
    AskTerms,
    Call,
    Cost,
    CostTerms,
    LossTerms,
    Reply,
    Sent,
    attempts,
    connection,
)
from sfumato.app.client_requests import Exchange, JsonDocument, JsonDocuments, Replied
from sfumato.privacy.loss import Number as Exact


class AsyncHttpClient:
    """A server at an address, asked with a key by a program that does else meanwhile.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: as a steward issued it.
        timeout: seconds to wait for a reply.
        ca_file: certificates in PEM of the only authorities that are trusted; None: those that come with httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``, through which every connection goes; None: none.

    Raises:
        InputError: the address is none of HTTP, no key looks like this one, or the certificates or the proxy are wrong.
    """

    def __init__(
        self,
        address: str,
        key: str,
        *,
        timeout: float = 60.0,
        ca_file: str | Path | None = None,
        proxy: str | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(**connection(address, key, timeout, ca_file=ca_file, proxy=proxy))

    async def datasets(self) -> JsonDocuments:
        """As :meth:`HttpClient.datasets`."""
        return await self._done(client_requests.datasets())

    async def dataset(self, name: str) -> JsonDocument:
        """As :meth:`HttpClient.dataset`."""
        return await self._done(client_requests.dataset(name))

    async def budget(self, name: str) -> JsonDocument:
        """As :meth:`HttpClient.budget`."""
        return await self._done(client_requests.budget(name))

    async def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> JsonDocuments:
        """As :meth:`HttpClient.accuracy`."""
        return await self._done(client_requests.accuracy(name, sql, **terms))

    async def cost(self, name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Cost:
        """As :meth:`HttpClient.cost`."""
        return await self._done(client_requests.cost(name, sql, error=error, **terms))

    async def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Reply:
        """As :meth:`HttpClient.ask`."""
        return await self._done(client_requests.ask(name, sql, retry_key=retry_key, **terms))

    async def ask_parquet(
        self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> bytes:
        """As :meth:`HttpClient.ask_parquet`."""
        return await self._done(client_requests.ask_parquet(name, sql, retry_key=retry_key, **terms))

    async def query(
        self, name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Reply:
        """As :meth:`HttpClient.query`."""
        return await self._done(client_requests.query(name, query, retry_key=retry_key, **terms))

    async def journal(self, name: str) -> JsonDocuments:
        """As :meth:`HttpClient.journal`."""
        entries: JsonDocuments = []
        after: int | None = 0
        while after is not None:
            page = await self._done(client_requests.journal_page(name, after))
            entries += page["entries"]
            after = page["next"]
        return entries

    async def verify(self, name: str) -> str:
        """As :meth:`HttpClient.verify`."""
        return await self._done(client_requests.verify(name))

    async def release(
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
        """As :meth:`HttpClient.release`."""
        return await self._done(
            client_requests.release(
                name, method=method, attributes=attributes, zeros=zeros, reuse=reuse, children=children, **loss
            )
        )

    async def anonymize(self, name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """As :meth:`HttpClient.anonymize`."""
        return await self._done(client_requests.anonymize(name, method=method, quasi=quasi, k=k, **more))

    async def progress(self, job: str) -> JsonDocument:
        """As :meth:`HttpClient.progress`."""
        return await self._done(client_requests.progress(job))

    async def rows(self, job: str) -> str:
        """As :meth:`HttpClient.rows`."""
        return await self._done(client_requests.rows(job))

    async def parquet(self, job: str) -> bytes:
        """As :meth:`HttpClient.parquet`."""
        return await self._done(client_requests.parquet(job))

    async def tables(self, job: str, *, parquet: bool = False) -> bytes:
        """As :meth:`HttpClient.tables`."""
        return await self._done(client_requests.tables(job, parquet=parquet))

    async def draft(self, source: str, *, unit: str | None = None, name: str | None = None) -> JsonDocument:
        """As :meth:`HttpClient.draft`."""
        return await self._done(client_requests.draft(source, unit=unit, name=name))

    async def accept(self, domain: Mapping[str, Any], *, source: str | None = None) -> JsonDocument:
        """As :meth:`HttpClient.accept`."""
        return await self._done(client_requests.accept(domain, source=source))

    async def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        discoverable: Sequence[str] = (),
        second_budget: bool = False,
    ) -> JsonDocument:
        """As :meth:`HttpClient.register`."""
        return await self._done(
            client_requests.register(
                name, source=source, domain=domain, limit=limit, discoverable=discoverable, second_budget=second_budget
            )
        )

    async def read_again(self, name: str) -> JsonDocument:
        """As :meth:`HttpClient.read_again`."""
        return await self._done(client_requests.read_again(name))

    async def reading(self, name: str) -> JsonDocument:
        """As :meth:`HttpClient.reading`."""
        return await self._done(client_requests.reading(name))

    async def cap(self, name: str, analyst: str, **loss: Unpack[LossTerms]) -> JsonDocument:
        """As :meth:`HttpClient.cap`."""
        return await self._done(client_requests.cap(name, analyst, **loss))

    async def terms(self, name: str) -> JsonDocument:
        """As :meth:`HttpClient.terms`."""
        return await self._done(client_requests.terms(name))

    async def set_terms(
        self,
        name: str,
        *,
        granted_only: bool = False,
        default_cap: str | None = None,
        most: str | None = None,
        approval_above: str | None = None,
    ) -> JsonDocument:
        """As :meth:`HttpClient.set_terms`."""
        return await self._done(
            client_requests.set_terms(
                name, granted_only=granted_only, default_cap=default_cap, most=most, approval_above=approval_above
            )
        )

    async def rename(self, name: str, to: str) -> JsonDocument:
        """As :meth:`HttpClient.rename`."""
        return await self._done(client_requests.rename(name, to))

    async def retire(self, name: str, *, retired: bool = True) -> JsonDocument:
        """As :meth:`HttpClient.retire`."""
        return await self._done(client_requests.retire(name, retired=retired))

    async def approvals(self) -> JsonDocuments:
        """As :meth:`HttpClient.approvals`."""
        return await self._done(client_requests.approvals())

    async def approve(self, approval_id: str) -> JsonDocument:
        """As :meth:`HttpClient.approve`."""
        return await self._done(client_requests.approve(approval_id))

    async def refuse_approval(self, approval_id: str) -> JsonDocument:
        """As :meth:`HttpClient.refuse_approval`."""
        return await self._done(client_requests.refuse_approval(approval_id))

    async def let_in(self, name: str, analyst: str) -> JsonDocument:
        """As :meth:`HttpClient.let_in`."""
        return await self._done(client_requests.grant(name, analyst, shut_out=False))

    async def shut_out(self, name: str, analyst: str) -> JsonDocument:
        """As :meth:`HttpClient.shut_out`."""
        return await self._done(client_requests.grant(name, analyst, shut_out=True))

    async def keys(self) -> JsonDocuments:
        """As :meth:`HttpClient.keys`."""
        return await self._done(client_requests.keys())

    async def issue(self, name: str, *, scope: str, days: int) -> JsonDocument:
        """As :meth:`HttpClient.issue`."""
        return await self._done(client_requests.issue(name, scope=scope, days=days))

    async def rotate(self, key_id: str, *, overlap_hours: int = 0) -> JsonDocument:
        """As :meth:`HttpClient.rotate`."""
        return await self._done(client_requests.rotate(key_id, overlap_hours=overlap_hours))

    async def revoke(self, key_id: str) -> None:
        """As :meth:`HttpClient.revoke`."""
        await self._done(client_requests.revoke(key_id))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _done(self, exchange: Exchange[Replied]) -> Replied:
        return exchange.read(await self._send(exchange.call))

    async def _send(self, call: Call) -> httpx.Response:
        """Send, and again where that is safe."""
        steps, outcome = attempts(call, self._http.base_url), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return cast("httpx.Response", done.value)
            outcome = await self._once(step)

    async def _once(self, step: Call | float) -> Sent:
        if not isinstance(step, Call):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error
