"""Unexpected errors are reported in fixed words, and their own text is written nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from tests.server.serving import DOMAIN

from sfumato.privacy.loss import Epsilon
from sfumato_server import tables
from sfumato_server.application import create
from sfumato_server.registry import Scope
from sfumato_server.service import Service


@pytest.fixture
def worker(url, people, monkeypatch):
    monkeypatch.setattr(tables, "_VERSION_CACHE_SECONDS", 600)  # so that a statement is answered on the loop
    with closing(Service(url, create=True)) as opened:
        opened.register("people", source=str(people), domain=DOMAIN, limit="1", more={})
        yield opened


def post(worker, secret, *, how):
    """Send one question to an application in this process; uncaught errors are raised here."""
    question = {"aggregates": [{"aggregate": "count"}]} if how == "query" else "SELECT COUNT(*) FROM t"
    body = {how: question, "loss": {"epsilon": "0.1"}}

    async def ask():
        transport = httpx.ASGITransport(create(worker))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"Authorization": f"Bearer {secret}"}
            return await client.post("/v1/datasets/people/query", json=body, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize("how", ["sql", "query"])
def test_an_engine_that_breaks_is_charged_and_quoted_nowhere(worker, monkeypatch, caplog, how):
    def broken(*_):
        raise ValueError("Dugong, 34")

    encoded = worker.vault("people", "ana").encoded
    _, secret = worker.registry.issue("ana", Scope.ANALYST, timedelta(days=1))
    with caplog.at_level(logging.INFO), monkeypatch.context() as breaking:
        breaking.setattr(type(encoded), "marginals", broken)
        reply = post(worker, secret, how=how)
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/problem+json")
    assert reply.json()["type"] == "/problems/internal"
    assert reply.headers["cache-control"] == "no-store"
    assert "Dugong" not in reply.text + caplog.text
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sfumato.http"]
    (broke,) = [line for line in lines if line["event"] == "broken"]
    assert broke["error"] == "ValueError"
    assert "test_broken.py" in broke["at"]
    assert worker.loaded("people").ledger.remaining().spent.epsilon == Epsilon("0.1").value
    again = post(worker, secret, how=how)
    assert again.is_success
    assert "nothing" in again.json()["cost"]
    assert worker.loaded("people").ledger.remaining().spent.epsilon == Epsilon("0.1").value
