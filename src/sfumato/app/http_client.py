"""Typed clients of the server: one that blocks, and one for programs with an event loop.

They state requests by the models that the server reads them with.  Every request that may spend carries an
Idempotency-Key.  Repetitions after a lost connection or a busy ledger carry the same key, so that a question is never
charged twice.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Self

import httpx

from sfumato.app.client_protocol import Call, Cost, Outcome, Reply, Result, ServerError, attempts, connection
from sfumato.app.client_requests import Exchange, Requests

__all__ = ["AsyncHttpClient", "Cost", "HttpClient", "Reply", "ServerError"]


class HttpClient(Requests):
    """A server at an address, asked with a key.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: the key that a steward issued.
        timeout: seconds to wait for a reply.
        ca: a file with the certificates of the only authorities to trust, in PEM.  If None, the file that
            ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE`` names, else the certificates of the system and those of httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``.  If None, ``HTTPS_PROXY`` and ``NO_PROXY`` decide.

    Raises:
        InputError: the address is no HTTP address, the key has not the form of a key, or the certificates or the proxy
            are wrong.
    """

    def __init__(
        self,
        address: str,
        key: str,
        *,
        timeout: float = 60.0,
        ca: str | Path | None = None,
        proxy: str | None = None,
    ) -> None:
        self._http = httpx.Client(**connection(address, key, timeout, ca=ca, proxy=proxy))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, exchange: Exchange[Result]) -> Result:
        steps = attempts(exchange, self._http.base_url)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            outcome = self._take(step)

    def _take(self, step: Call | float) -> Outcome:
        """Send a request, or wait."""
        if not isinstance(step, Call):
            time.sleep(step)
            return None
        try:
            return self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error


class AsyncHttpClient(Requests):
    """A server at an address, asked with a key in an event loop.

    It has the methods of :class:`HttpClient`, as coroutines.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: the key that a steward issued.
        timeout: seconds to wait for a reply.
        ca: a file with the certificates of the only authorities to trust, in PEM.  If None, the file that
            ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE`` names, else the certificates of the system and those of httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``.  If None, ``HTTPS_PROXY`` and ``NO_PROXY`` decide.

    Raises:
        InputError: the address is no HTTP address, the key has not the form of a key, or the certificates or the proxy
            are wrong.
    """

    def __init__(
        self,
        address: str,
        key: str,
        *,
        timeout: float = 60.0,
        ca: str | Path | None = None,
        proxy: str | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(**connection(address, key, timeout, ca=ca, proxy=proxy))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, exchange: Exchange[Result]) -> Result:
        steps = attempts(exchange, self._http.base_url)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            outcome = await self._take(step)

    async def _take(self, step: Call | float) -> Outcome:
        """Send a request, or wait."""
        if not isinstance(step, Call):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.request(step.method, step.path, json=step.body, headers=step.headers)
        except httpx.TransportError as error:
            return error
