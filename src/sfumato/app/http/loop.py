"""Small pieces of work on the event loop's own thread.

An answer read off kept tables takes less time than handing it to another thread, and back, twice over.  The work
runs in a greenlet: where it would wait, for a commit or a count, the loop goes on with others, and takes it up
again afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet
from starlette.concurrency import run_in_threadpool

from sfumato.ledger.waiting import WAITING

T = TypeVar("T")
_UNDER_WAY: set[asyncio.Future[Any]] = set()  # a loop alone does not keep its tasks alive


async def on_loop(work: Callable[[], T]) -> T:
    """Run ``work`` on this thread, and let the loop go on wherever it waits by :data:`WAITING`.

    It is finished even if nobody awaits it any longer, as a thread would finish it.
    """
    task = asyncio.ensure_future(_driven(work))
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    return await asyncio.shield(task)


async def _driven(work: Callable[[], T]) -> T:
    def run() -> T:
        WAITING.set(_BesideLoop(asyncio.get_running_loop(), hub))  # a greenlet has a context of its own
        return work()

    hub = getcurrent()
    worker = greenlet(run, hub)
    found = worker.switch()
    while not worker.dead:
        try:
            given = await cast("Awaitable[Any]", found)
        except BaseException as error:  # noqa: BLE001  # raised where the work waits
            found = worker.throw(error)
        else:
            found = worker.switch(given)
    return cast("T", found)


class _BesideLoop:
    """Waiting that gives the thread back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hub: greenlet) -> None:
        self._loop, self._hub = loop, hub

    def bell(self) -> _LoopBell:
        return _LoopBell(self._loop, self._hub)

    def aside(self, slow: Callable[[], T]) -> T:
        return cast("T", self._hub.switch(run_in_threadpool(slow)))


class _LoopBell:
    def __init__(self, loop: asyncio.AbstractEventLoop, hub: greenlet) -> None:
        self._loop, self._hub = loop, hub
        self._rung: asyncio.Future[None] = loop.create_future()
        self._thread = threading.get_ident()

    def wait(self) -> None:
        if not self._rung.done():
            self._hub.switch(self._rung)

    def ring(self) -> None:
        if threading.get_ident() == self._thread:
            self._rung.set_result(None)
        else:
            self._loop.call_soon_threadsafe(self._rung.set_result, None)
