"""One writer a process, which groups waiting commits.

Making a commit durable takes as long for one entry as for many.  Whoever comes while a commit is under
way waits in line; when it is over, the first of the line writes for all of it in one transaction, and each gets a
result of their own.  Processes take turns by the lock on the dataset row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from sfumato.errors import SfumatoError
from sfumato.ledger.dbapi import failed_for_all
from sfumato.ledger.transaction import Transaction, Wanted

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Work(Generic[T_co]):
    """What to do in a transaction, and what it will look at there.  It refuses before it writes, or not at all."""

    wanted: Wanted
    act: Callable[[Transaction], T_co]


class Ticket(Generic[T]):
    """A piece of work in a transaction, and what became of it."""

    def __init__(self, work: Work[T]) -> None:
        self.wanted = work.wanted
        self._act = work.act
        self._result: T | None = None
        self._error: Exception | None = None
        self.done = False
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def attempt(self, transaction: Transaction) -> None:
        """Do the work; a refusal is its result."""
        self._result, self._error = None, None
        try:
            self._result = self._act(transaction)
        except SfumatoError as error:
            self._error = error

    def fail(self, error: Exception) -> None:
        """Record that the transaction failed: nothing of the work was written."""
        self._error, self.done = error, True

    def sleep(self) -> None:
        """Wait until the work is done, or it is this ticket's turn to write."""
        self._asleep.acquire()

    def wake(self) -> None:
        """End the sleep."""
        self._asleep.release()

    @property
    def failed(self) -> bool:
        """Whether the work raised, or was not written."""
        return self._error is not None

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class _Party:
    """Tickets of one caller, who sleeps on the first of them."""

    def __init__(self, tickets: Sequence[Ticket[Any]]) -> None:
        self.tickets = tickets
        self.abandoned = False

    @property
    def done(self) -> bool:
        """Whether all work is."""
        return all(ticket.done for ticket in self.tickets)


class Writer:
    """Runs work in durable transactions, grouped as it comes.

    Args:
        transact: attempts all tickets in one transaction and commits it, or raises and leaves no trace.
    """

    def __init__(self, transact: Callable[[Sequence[Ticket[Any]]], None]) -> None:
        self._transact = transact
        self._line: list[_Party] = []
        self._writing: _Party | None = None  # whose turn it is
        self._lock = threading.Lock()  # of both

    def run(self, work: Work[T]) -> T:
        """The result of ``work``, after the commit that made it durable."""
        ticket = Ticket(work)
        self.run_together([ticket])
        return ticket.result()

    def run_together(self, tickets: Sequence[Ticket[Any]]) -> None:
        """Do work in one transaction, and have it committed; each ticket then has its own result."""
        party, group = _Party(tickets), list[_Party]()
        with self._lock:
            self._line.append(party)
            if self._writing is None:
                self._next()
        try:
            tickets[0].sleep()
            if not party.done:
                with self._lock:
                    group, self._line = self._line, []
                self._commit([ticket for each in group for ticket in each.tickets if not ticket.done])
        finally:
            if self._writing is party or not party.done:
                self._leave(party, group)

    def _leave(self, party: _Party, group: Sequence[_Party]) -> None:
        """Let the next one write, wake those who were served; who was interrupted drops out, others stay in line."""
        with self._lock:
            party.abandoned = not party.done
            self._line = [each for each in (*group, *self._line) if not (each.done or each.abandoned)]
            if self._writing is party:
                self._next()
        for served in group:
            if served.done and served is not party:
                served.tickets[0].wake()

    def _next(self) -> None:
        self._writing = self._line[0] if self._line else None
        if self._writing is not None:
            self._writing.tickets[0].wake()

    def _commit(self, group: Sequence[Ticket[Any]]) -> None:
        try:
            self._transact(group)
        except Exception as error:  # noqa: BLE001  # handed to whoever waits for it
            if len(group) > 1 and not failed_for_all(error):
                for ticket in group:  # one that the database refuses must not take the others with it
                    self._commit([ticket])
                return
            for ticket in group:
                ticket.fail(error)
        else:
            for ticket in group:
                ticket.done = True
