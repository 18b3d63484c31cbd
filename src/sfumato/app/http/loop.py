"""Small pieces of work on the event loop's own thread.

An answer read off kept tables takes less time than handing it to another thread, and back, twice over.  The work
runs in a greenlet: where it would wait, for a commit or a count, the loop goes on with others, and takes it up
again afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

from sfumato.ledger.waiting import WAITING

T = TypeVar("T")
_UNDER_WAY: set[asyncio.Future[Any]] = set()  # a loop alone does not keep its tasks alive
# Not the threads that requests run in: those may all wait for a commit that is still to be done by one of these.
_ASIDE = ThreadPoolExecutor(40, thread_name_prefix="aside")


async def on_loop(work: Callable[[], T]) -> T:
    """Run ``work`` on this thread, and let the loop go on wherever it waits by :data:`WAITING`.

    It is finished even if nobody awaits it any longer or the loop is ending, as a thread would finish it.
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
        await _over(found)
        found = worker.switch()
    return cast("T", found)


async def _over(awaited: asyncio.Future[Any]) -> None:
    """Return when it is over, and not before: nobody can call a commit back that is under way in a thread."""
    while not awaited.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([awaited])


class _BesideLoop:
    """Waiting that gives the thread back to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hub: greenlet) -> None:
        self._loop, self._hub = loop, hub

    def bell(self) -> _LoopBell:
        return _LoopBell(self._loop, self._hub)

    def aside(self, slow: Callable[[], T]) -> T:
        done = self._loop.run_in_executor(_ASIDE, slow)
        self._hub.switch(done)
        return done.result()


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
