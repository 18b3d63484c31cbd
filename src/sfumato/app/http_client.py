"""A typed client of the server.

It states requests by the models that the server reads them with, so what has not the right form is refused unsent.
Every request that may spend carries an Idempotency-Key, and repetitions after a lost connection or a
busy ledger carry the same one, so that a question is never charged twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack, cast

import httpx

from sfumato.app import client_requests
from sfumato.app.async_http_client import AsyncHttpClient
from sfumato.app.client_protocol import (
    AskTerms,
    Call,
    Cost,
    CostTerms,
    LossTerms,
    Reply,
    Sent,
    ServerError,
    attempts,
    connection,
)
from sfumato.app.client_requests import Exchange, JsonDocument, JsonDocuments, Replied
from sfumato.privacy.loss import Number as Exact

__all__ = ["AsyncHttpClient", "Cost", "HttpClient", "Reply", "ServerError"]


class HttpClient:
    """A server at an address, asked with a key.

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
        self._http = httpx.Client(**connection(address, key, timeout, ca_file=ca_file, proxy=proxy))

    def datasets(self) -> JsonDocuments:
        """All datasets, with what is public about them."""
        return self._done(client_requests.datasets())

    def dataset(self, name: str) -> JsonDocument:
        """One dataset and its public domain."""
        return self._done(client_requests.dataset(name))

    def budget(self, name: str) -> JsonDocument:
        """What is left."""
        return self._done(client_requests.budget(name))

    def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> JsonDocuments:
        """How wrong the answers would be at a loss (``epsilon=``, ``delta=``, ``rho=``); spends nothing."""
        return self._done(client_requests.accuracy(name, sql, **terms))

    def cost(self, name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Cost:
        """The epsilon that keeps every answer within ``error``, and what it supposes; spends nothing."""
        return self._done(client_requests.cost(name, sql, error=error, **terms))

    def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Reply:
        """Answer a statement for a loss (``epsilon=``, ``delta=``, ``rho=``)."""
        return self._done(client_requests.ask(name, sql, retry_key=retry_key, **terms))

    def ask_parquet(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> bytes:
        """Answer a statement as :meth:`ask` does; returns a Parquet file, which suits an answer of many groups."""
        return self._done(client_requests.ask_parquet(name, sql, retry_key=retry_key, **terms))

    def query(
        self, name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Reply:
        """Answer a question stated as aggregates, groups and conditions."""
        return self._done(client_requests.query(name, query, retry_key=retry_key, **terms))

    def journal(self, name: str) -> JsonDocuments:
        """The journal: a steward's whole, an analyst's own."""
        entries: JsonDocuments = []
        after: int | None = 0
        while after is not None:
            page = self._done(client_requests.journal_page(name, after))
            entries += page["entries"]
            after = page["next"]
        return entries

    def verify(self, name: str) -> str:
        """Have the whole journal checked (stewards); returns the hash of its last entry.

        Raises:
            ServerError: it was changed behind the server's back.
        """
        return self._done(client_requests.verify(name))

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
        return self._done(
            client_requests.release(
                name, method=method, attributes=attributes, zeros=zeros, reuse=reuse, children=children, **loss
            )
        )

    def anonymize(self, name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """Ask for an anonymised table in the background (stewards); returns the id of the job.

        ``more`` may have ``suppression``, ``suppress_rows``, ``criteria``, ``keep``, ``keep_anyway``, ``missing``,
        ``hierarchies``, ``seconds``, ``cut`` and ``count``, as ``sfumato anonymize`` takes them.
        """
        return self._done(client_requests.anonymize(name, method=method, quasi=quasi, k=k, **more))

    def progress(self, job: str) -> JsonDocument:
        """How far a job is."""
        return self._done(client_requests.progress(job))

    def rows(self, job: str) -> str:
        """The rows of a finished job, as CSV."""
        return self._done(client_requests.rows(job))

    def parquet(self, job: str) -> bytes:
        """The rows of a finished job as a Parquet file, with the codebook and noisy tables of a synthetic one."""
        return self._done(client_requests.parquet(job))

    def tables(self, job: str, *, parquet: bool = False) -> bytes:
        """The related tables of a finished job as a ZIP file: CSV or Parquet files, with their codebook."""
        return self._done(client_requests.tables(job, parquet=parquet))

    def draft(self, source: str, *, unit: str | None = None, name: str | None = None) -> JsonDocument:
        """Describe a table, or the tables of a folder or database, off the data (stewards); registers nothing.

        Args:
            source: where it lies, as the server sees it.
            unit: of several tables, the column by which people are called; else the one that sounds most like it.
            name: of several tables, what their schema is called.

        Returns:
            ``domain``, a draft to be edited to what is publicly known, and ``remarks`` on what to look at.
        """
        return self._done(client_requests.draft(source, unit=unit, name=name))

    def accept(self, domain: Mapping[str, Any], *, source: str | None = None) -> JsonDocument:
        """Accept a description as it stands, in the name of the key's holder (stewards); registers nothing.

        Returns:
            ``domain``, which says who accepted it and is what to register, and ``risks``, which are looked for in the
            tables where their ``source`` is named.
        """
        return self._done(client_requests.accept(domain, source=source))

    def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        discoverable: Sequence[str] = (),
        second_budget: bool = False,
    ) -> JsonDocument:
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
        return self._done(
            client_requests.register(
                name, source=source, domain=domain, limit=limit, discoverable=discoverable, second_budget=second_budget
            )
        )

    def read_again(self, name: str) -> JsonDocument:
        """Have a table read again: it is the next version, whether its content differs or not (stewards)."""
        return self._done(client_requests.read_again(name))

    def reading(self, name: str) -> JsonDocument:
        """Return the last declared version, and whether the table's files were written since (stewards)."""
        return self._done(client_requests.reading(name))

    def cap(self, name: str, analyst: str, **loss: Unpack[LossTerms]) -> JsonDocument:
        """Set what an analyst may spend; without a loss, lift the cap (stewards)."""
        return self._done(client_requests.cap(name, analyst, **loss))

    def terms(self, name: str) -> JsonDocument:
        """On which terms a dataset is asked, and who is let in or shut out (stewards)."""
        return self._done(client_requests.terms(name))

    def set_terms(
        self,
        name: str,
        *,
        granted_only: bool = False,
        default_cap: str | None = None,
        most: str | None = None,
        approval_above: str | None = None,
    ) -> JsonDocument:
        """Set all of them: who may ask, the cap of new analysts, the most of one question (stewards)."""
        return self._done(
            client_requests.set_terms(
                name, granted_only=granted_only, default_cap=default_cap, most=most, approval_above=approval_above
            )
        )

    def rename(self, name: str, to: str) -> JsonDocument:
        """Call a dataset otherwise (stewards)."""
        return self._done(client_requests.rename(name, to))

    def retire(self, name: str, *, retired: bool = True) -> JsonDocument:
        """Release nothing more of a dataset, or go on (stewards)."""
        return self._done(client_requests.retire(name, retired=retired))

    def approvals(self) -> JsonDocuments:
        """Releases that wait for an approval, or have one that is not used."""
        return self._done(client_requests.approvals())

    def approve(self, approval_id: str) -> JsonDocument:
        """Approve one release, once (stewards)."""
        return self._done(client_requests.approve(approval_id))

    def refuse_approval(self, approval_id: str) -> JsonDocument:
        """Refuse a release that waits, or take back an approval that was not used (stewards)."""
        return self._done(client_requests.refuse_approval(approval_id))

    def let_in(self, name: str, analyst: str) -> JsonDocument:
        """Grant a dataset to an analyst (stewards)."""
        return self._done(client_requests.grant(name, analyst, shut_out=False))

    def shut_out(self, name: str, analyst: str) -> JsonDocument:
        """Let an analyst ask a dataset no more (stewards)."""
        return self._done(client_requests.grant(name, analyst, shut_out=True))

    def keys(self) -> JsonDocuments:
        """All keys without their secrets (stewards)."""
        return self._done(client_requests.keys())

    def issue(self, name: str, *, scope: str, days: int) -> JsonDocument:
        """Issue a key; the secret is in the reply and nowhere else (stewards)."""
        return self._done(client_requests.issue(name, scope=scope, days=days))

    def rotate(self, key_id: str, *, overlap_hours: int = 0) -> JsonDocument:
        """Issue a key in the place of one, which goes on for an overlap; the secret is in the reply (stewards)."""
        return self._done(client_requests.rotate(key_id, overlap_hours=overlap_hours))

    def revoke(self, key_id: str) -> None:
        """End a key (stewards)."""
        self._done(client_requests.revoke(key_id))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _done(self, exchange: Exchange[Replied]) -> Replied:
        return exchange.read(self._send(exchange.call))

    def _send(self, call: Call) -> httpx.Response:
        """Send, and again where that is safe."""
        steps, outcome = attempts(call, self._http.base_url), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return cast("httpx.Response", done.value)
            outcome = self._once(step)

    def _once(self, step: Call | float) -> Sent:
        if not isinstance(step, Call):
            time.sleep(step)
            return None
        try:
            return self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error
