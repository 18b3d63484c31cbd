"""Questions that wait together are begun, charged in one transaction, and answered by one thread.

A thread for each would be handed over to several times a question: to begin, to write, when all is durable, and to
reply.  So whatever has come in when a thread is free is its next group.  What may take long, as it looks at rows, reads
a table, or waits for somebody else's answer, is left to a thread of its own: nobody waits for it.  What others wait for
is left to threads in which nobody waits, so that it is computed however many do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.responses import Response

from sfumato.app.http.registry import Key
from sfumato.app.http.service import Service
from sfumato.app.requests.queries import AskRequest
from sfumato.ledger.ledger import Releasing, reserve_together

MOST: Final = 64  # questions of one group
_GROUPS: Final = 2  # at a time: one is begun while the other is made durable; more would be smaller
_THREADS: Final = 40  # as many questions at a time as the framework's own threads would answer

RouteArguments = tuple[str, AskRequest, Key, Service, str | None, str | None]


class Begun(Protocol):
    """A question that was begun, and charges nothing before it is reserved."""

    @property
    def reserving(self) -> Releasing | None:
        """Its block in the ledger; None where nothing is to be reserved."""
        ...

    def response(self) -> Response:
        """Its reply, once it is reserved."""
        ...


@dataclass(frozen=True, eq=False)
class _Waiting:
    asked: RouteArguments
    future: asyncio.Future[Response]


class Together:
    """Answers questions that come in at the same time together.

    Args:
        begin: begins a question quickly; None where it cannot.
        answer: answers one in a thread of its own.
    """

    def __init__(self, begin: Callable[..., Begun | None], answer: Callable[..., Response]) -> None:
        self._begin = begin
        self._answer = answer
        self._threads = ThreadPoolExecutor(_THREADS, "question")  # the framework's way to a thread takes twice as long
        self._computing = ThreadPoolExecutor(_THREADS, "release")  # of those who hold a release, and wait for nobody
        self._waiting: deque[_Waiting] = deque()
        self._groups = 0
        self._lock = threading.Lock()  # of the number of groups

    async def answer(self, *asked: *RouteArguments) -> Response:
        """Answer a question, with whatever others are asked meanwhile."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(asked, loop.create_future())
        self._waiting.append(waiting)
        loop.call_soon(self._start)  # after all that has come in by now
        return await waiting.future

    def _start(self) -> None:
        with self._lock:
            if not self._waiting or self._groups >= _GROUPS:
                return  # whoever is at it looks again
            self._groups += 1
        self._threads.submit(self._work)

    def _work(self) -> None:
        """Answer group after group, until nothing waits."""
        while True:
            with self._lock:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
                if not group:
                    self._groups -= 1
                    return
            done: list[_Done] = []
            try:
                self._answer_together(group, done)
            except BaseException as error:  # noqa: BLE001  # nobody is left without a reply
                done += [(each, error) for each in group]
            _deliver(done)

    def _answer_together(self, group: Sequence[_Waiting], done: list[_Done]) -> None:
        begun: list[tuple[_Waiting, Begun]] = []
        for each in group:
            try:
                found = self._begin(*each.asked)
            except Exception as error:  # noqa: BLE001  # handed to who asked
                done.append((each, error))
                continue
            if found is None:
                self._alone(self._threads, each, self._answer, *each.asked)
            else:
                begun.append((each, found))
        reserve_together([found.reserving for _, found in begun if found.reserving is not None])
        for each, found in begun:
            if found.reserving is not None and found.reserving.waits:
                self._alone(self._computing if found.reserving.holds else self._threads, each, found.response)
            else:
                done.append((each, _outcome(found.response)))

    @staticmethod
    def _alone(threads: ThreadPoolExecutor, waiting: _Waiting, work: Callable[..., Response], *asked: object) -> None:
        """Answer a question in a thread of its own."""
        threads.submit(lambda: _deliver([(waiting, _outcome(work, *asked))]))


_Done = tuple[_Waiting, Response | BaseException]


def _outcome(work: Callable[..., Response], *asked: object) -> Response | BaseException:
    try:
        return work(*asked)
    except BaseException as error:  # noqa: BLE001  # handed to who asked
        return error


def _deliver(done: Sequence[_Done]) -> None:
    """Hand replies to the loops whose requests wait for them, all of a loop at once."""
    for loop in {each.future.get_loop() for each, _ in done}:
        own = [(each.future, outcome) for each, outcome in done if each.future.get_loop() is loop]
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(done: Sequence[tuple[asyncio.Future[Response], Response | BaseException]]) -> None:
    for future, outcome in done:
        if future.done():  # whoever asked has left
            continue
        if isinstance(outcome, StopIteration):  # which no future takes
            future.set_exception(RuntimeError("a question ended by StopIteration"))
        elif isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
