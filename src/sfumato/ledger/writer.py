"""One writer a process, which groups waiting commits.

Making a commit durable takes as long for one entry as for many.  Whoever comes while a commit is under
way waits in line; the first of the line then writes for all of it in one transaction, and each gets a
result of their own.  Processes take turns by the lock on the dataset row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from sfumato.errors import SfumatoError
from sfumato.ledger.books import Books

T = TypeVar("T")


class Ticket(Generic[T]):
    """A piece of work on the books, and what became of it.  Work refuses before it writes, or not at all."""

    def __init__(self, work: Callable[[Books], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._error: Exception | None = None
        self.done = False

    def attempt(self, books: Books) -> None:
        """Do the work; a refusal is its result."""
        self._result, self._error = None, None
        try:
            self._result = self._work(books)
        except SfumatoError as error:
            self._error = error

    def fail(self, error: Exception) -> None:
        """Record that the transaction failed: nothing of the work was written."""
        self._error, self.done = error, True

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Writer:
    """Runs work on the books, each piece in a durable transaction, grouped as it comes.

    Args:
        transact: attempts all tickets in one transaction and commits it, or raises and leaves no trace.
    """

    def __init__(self, transact: Callable[[Sequence[Ticket[Any]]], None]) -> None:
        self._transact = transact
        self._line: list[Ticket[Any]] = []
        self._line_lock = threading.Lock()
        self._leading = threading.Lock()

    def run(self, work: Callable[[Books], T]) -> T:
        """The result of ``work``, after the commit that made it durable."""
        ticket = Ticket(work)
        with self._line_lock:
            self._line.append(ticket)
        with self._leading:
            if not ticket.done:
                self._write_for_all()
        return ticket.result()

    def _write_for_all(self) -> None:
        with self._line_lock:
            group, self._line = self._line, []
        try:
            self._commit(group)
        finally:  # interrupted: those not served go back to the front of the line
            with self._line_lock:
                self._line[:0] = [ticket for ticket in group if not ticket.done]

    def _commit(self, group: Sequence[Ticket[Any]]) -> None:
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001  # handed to whoever waits for it
            if len(group) == 1:
                group[0].fail(error)
                return
            for ticket in group:  # one that the database refuses must not take the others with it
                self._commit([ticket])
        else:
            for ticket in group:
                ticket.done = True
