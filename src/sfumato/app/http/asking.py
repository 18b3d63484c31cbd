"""Answering one question, charged before the data is touched and durable before the reply leaves.

What is short to read and is read off kept tables is done on the event loop's own thread, which takes less than
handing it to another one; whatever may take long has a thread to itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from sfumato.app.http.loop import on_loop
from sfumato.app.http.monitoring import timed
from sfumato.app.http.overspent import explained
from sfumato.app.http.service import Service
from sfumato.app.http.tables import Loaded
from sfumato.app.requests.queries import AskRequest
from sfumato.ledger.registry import Key
from sfumato.privacy.loss import Loss
from sfumato.query import Query
from sfumato.query.aggregate import Average, Count, Total
from sfumato.query.question import plan
from sfumato.vault.mechanisms import noises
from sfumato.vault.vault import Vault

_SHORT = 500  # characters of a statement
_SMALL = 4096  # cells of any attribute: conditions are sets of them
_FEW = 256  # numbers of an answer
_NARROW = 20_000.0  # variance of noise whose table of probabilities, one a loss, is made in a few milliseconds


@dataclass(frozen=True)
class Asked:
    """A question to a dataset, who asks, and the key of the attempt."""

    name: str
    form: AskRequest
    key: Key
    retry_key: str | None


async def answered(worker: Service, asked: Asked) -> Response:
    """The reply."""
    held, form = worker.held(asked.name), asked.form
    if held is not None and form.sql is not None and len(form.sql) <= _SHORT and max(held[0].domain.shape) <= _SMALL:
        loaded, vault = held
        query = form.read(loaded.domain, loaded.dataset.discoverable)
        if _is_quick(query, loaded, form.loss.loss()):
            return await on_loop(partial(_reply, query, asked, loaded, vault.asked_by(asked.key.name)))
    return await run_in_threadpool(_read_and_reply, worker, asked)


def _read_and_reply(worker: Service, asked: Asked) -> Response:
    loaded = worker.loaded(asked.name)
    query = asked.form.read(loaded.domain, loaded.dataset.discoverable)
    return _reply(query, asked, loaded, worker.vault(asked.name, asked.key.name))


def _reply(query: Query, asked: Asked, loaded: Loaded, vault: Vault) -> Response:
    with timed("query"), explained(loaded.ledger, asked.key):
        found = asked.form.answer(vault, query, retry_key=asked.retry_key)
    return JSONResponse(found.to_json())


def _is_quick(query: Query, loaded: Loaded, loss: Loss) -> bool:
    """Whether what is left to do, but for waiting, is a little arithmetic."""
    plain = all(isinstance(each, Count | Total | Average) for each in query.aggregates)
    groups = math.prod(loaded.domain[name].size for name in query.by)
    if not plain or query.discovered or query.truncation or groups * len(query.aggregates) > _FEW:
        return False
    planned = plan(query, loaded.domain)
    mechanisms = noises(loaded.domain, planned.questions, loss, planned.shares)
    return all(each.variance <= _NARROW for each in mechanisms)
