"""A release from its charge to its stored answer: one transaction charges it, and a later one stores the answer.

The charge is durable before any data is touched.  Three rules hold whenever a process dies or a database fails:

1. A charge is never lost: a process that dies before the first commit leaves neither charge nor answer.
2. No answer is free: no part of an answer leaves the process before the commit that stores it.  If the result of a
   commit is lost, the caller gets an error, and the next request finds whether the commit was made.
3. A death is retried once: a charged release without an answer was left by a process that died, and nothing of it
   was released.  It is computed again for its charge, and the journal counts this.  The next death closes it as
   failed.  If noise was drawn and the computation raised, the release is closed as failed at once.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeVar

from sfumato.bounded_cache import BoundedCache
from sfumato.errors import LedgerError, RetryKeyError, SfumatoError
from sfumato.ledger.account import Account, on_grid, refuse_unaffordable, refuse_unit
from sfumato.ledger.database import DatabaseError, Driver
from sfumato.ledger.entry import ADD_REMOVE, Event, Kind
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import Stored, Transaction

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between checks for an answer that another caller computes
_HASH_DIGITS = 15  # hexadecimal digits of an entry's hash that number its lock: 60 bits, below the 2^63 of PostgreSQL
_LARGEST_CACHED = 1 << 14  # bytes of an answer; larger ones are read from the database again
_ENTRY_BYTES = 3_000  # bytes of a cached answer's event and keys

NumberedAnswer: TypeAlias = tuple[int, bytes]
"""The number of a release's entry, and its stored answer."""

AnswerCache: TypeAlias = BoundedCache[tuple[str, str | None, str | None], NumberedAnswer | None]
"""Answers by release, analyst and retry key, so that asking again needs no lock and no database.

Each was charged and stored, and the journal never changes or removes it.  What is left of a budget must not be cached.
"""


def new_answer_cache() -> AnswerCache:
    """Return a cache for the answers of one dataset."""
    return BoundedCache(lambda _, answer: _ENTRY_BYTES + (0 if answer is None else len(answer[1])))


class Admission(Protocol):
    """A further condition on a charge, checked in the transaction that charges.

    It may write to tables next to the journal.  It raises to refuse; nothing is charged then.
    """

    def __call__(self, driver: Driver, event: Event, account: Account) -> None:
        """Admit a release, or refuse it; the account is the dataset's, before the charge."""
        ...


class ReleaseLedger(Protocol):
    """The operations of a ledger that a reservation uses."""

    @property
    def compute_locks(self) -> ComputeLocks:
        """See :attr:`sfumato.ledger.Ledger.compute_locks`."""
        ...

    @property
    def cached_answers(self) -> AnswerCache:
        """The cached answers of the dataset."""
        ...

    def prepare(self, first: Event) -> None:
        """See :meth:`sfumato.ledger.Ledger.prepare`."""
        ...

    def write(
        self,
        act: Callable[[Transaction], T],
        *,
        key: str | None = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> T:
        """See :meth:`sfumato.ledger.Ledger.write`."""
        ...


class Reservation:
    """A release: a context manager that charges it when it is entered, and takes its answer.

    One caller at a time computes a release.  Other callers who ask for it wait for its answer.

    Args:
        ledger: the ledger of the dataset.
        event: the release, as the journal records it.
        retry_key: the same for all attempts at one request; None: there is none.
        admission: a further condition; None: the budget alone decides.
        noise_drawn: true if the caller has drawn noise for the release.

    Attributes:
        event: see above.
        number: the release's entry in the journal; 0 before it is charged.
        answer: the stored answer; None while it is still to be computed.
        charged: true if this reservation charged the dataset.
        charged_analyst: true if this reservation charged the analyst.
    """

    def __init__(
        self,
        ledger: ReleaseLedger,
        event: Event,
        *,
        retry_key: str | None,
        admission: Admission | None,
        noise_drawn: Callable[[], bool],
    ) -> None:
        self.event = event
        self.number = 0
        self.answer: bytes | None = None
        self.charged = self.charged_analyst = False
        self._ledger = ledger
        self._retry_key = retry_key
        self._admission = admission
        self._noise_drawn = noise_drawn
        self._lock_number: int | None = None
        self._is_retried = False  # whether the journal has a retry of the release
        self._must_count = False  # whether the journal has to count this computation, because one may have died
        self._computing = False

    def __enter__(self) -> Self:
        """Charge the release, or find its answer; wait if another caller computes it.

        Raises:
            BudgetError: the limit or the analyst's cap does not admit the charge; nothing was charged.
            RetryKeyError: the retry key was used for another question.
            LossError: the limit does not have the measure of the charge.
            UnitError: the ledger adds up losses of another unit, or for other owners of a table's rows.
            VersionError: the question is of another version of the data than the last declared one.
            MovedLedgerError: the ledger was moved, deleted, replaced or set back since it was opened.
            BrokenLedgerError: the answer was changed outside the program, or may have been taken away.
            LedgerError: the database failed.  It is then unknown whether the charge was made; asking the same
                question again is never charged twice.
        """
        self._ledger.prepare(self.event)
        pause = _FIRST_PAUSE
        try:
            while not self._reserve():
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            self._unlock()
            raise
        self._computing = self.answer is None
        return self

    def store(self, answer: bytes) -> None:
        """Store the answer, unless one is stored: only :attr:`answer` may be handed out afterwards.

        Raises:
            LedgerError: the release was closed as failed, or the database failed; nothing was stored.
        """
        self.answer = self._ledger.write(partial(self._store, answer=answer), key=self.event.key)

    def stored(self) -> bytes:
        """Return the stored answer.

        Raises:
            LedgerError: none was stored.
        """
        if self.answer is None:
            raise LedgerError("a release was left without its answer", culprit=self.number)
        return self.answer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let other callers go on; close the release as failed if noise was drawn and no answer was stored."""
        noise_drawn = False
        try:
            noise_drawn = self._computing and (error is None or self.answer is not None or self._noise_drawn())
            if error is not None and self.event.charge is not None and noise_drawn and self.answer is None:
                with suppress(SfumatoError):  # the caller has to see the first error
                    self._ledger.write(self._fail, key=self.event.key)
        finally:
            self._unlock(noise_drawn=noise_drawn)

    def _reserve(self) -> bool:
        """Charge the release, or find its answer; False: another caller is computing it."""
        event, cache = self.event, self._ledger.cached_answers
        cached = cache.get((event.key, event.analyst, self._retry_key), None)
        if cached is not None:
            self.number, self.answer = cached
            return True
        self._ledger.write(self._charge, key=event.key, analyst=event.analyst, retry_key=self._retry_key)
        if self.answer is not None and len(self.answer) <= _LARGEST_CACHED:
            for retry_key in {None, self._retry_key}:
                cache.put((event.key, event.analyst, retry_key), (self.number, self.answer))
        return self.answer is not None or event.charge is None or self._lock_number is not None

    def _lock(self, entry_hash: str, *, retried: bool) -> bool:
        """Lock the release of an entry; return False if another caller computes it."""
        self._unlock()  # a transaction that failed may have taken one
        number = int(entry_hash[:_HASH_DIGITS], 16)
        last_drew_nothing = self._ledger.compute_locks.acquire(number, retried=retried)
        if last_drew_nothing is None:
            return False
        self._lock_number, self._is_retried, self._must_count = number, retried, not last_drew_nothing
        return True

    def _unlock(self, *, noise_drawn: bool = False) -> None:
        if self._lock_number is not None:
            drawn = noise_drawn or self._must_count
            self._ledger.compute_locks.release(self._lock_number, noise_drawn=drawn, retried=self._is_retried)
            self._lock_number = None

    def _charge(self, transaction: Transaction) -> None:
        """Charge the release in a transaction, or find that it was charged before.

        A release that is in the journal is not charged to the dataset again, even if its answer is still pending.  An
        analyst who was not charged for it before is charged to their own cap.
        """
        self.charged = self.charged_analyst = False
        event, key = self.event, self.event.key
        transaction.refuse_other_version(event.question.dataset_version)
        known = None if self._retry_key is None else transaction.release_of_retry_key
        if known is not None and known != key:
            raise RetryKeyError("this retry key was used for another question; use a new one", culprit=self._retry_key)
        stored = transaction.stored_release()
        if stored is None:
            self._release(transaction)
        elif stored.answer is not None:
            self._repeat(transaction, stored)
        elif event.charge is not None and not self._lock(stored.hash, retried=stored.retried):
            self.number = stored.number
            return
        else:
            transaction.refuse_lost(stored)
            self._go_on(transaction, stored)
        if self._retry_key is not None and known is None:
            transaction.remember(key)

    def _release(self, transaction: Transaction, *, instead: bool = False) -> None:
        """Add a new entry and a new charge, ``instead`` of a pending one, which is closed as failed."""
        event = admitted(transaction, self.event)
        if self._admission is not None:
            self._admission(transaction.driver, event, transaction.account)
        if event.charge is not None:
            if instead:
                transaction.fail(event)
            transaction.charge(event.charge, dataset=True, analyst=event.analyst is not None)
        opened = transaction.open(event)
        self.number, self.charged = opened.number, event.charge is not None
        self.charged_analyst = self.charged and event.analyst is not None
        if self.charged:
            self._lock(opened.hash, retried=False)
            self._must_count = False

    def _go_on(self, transaction: Transaction, pending: Stored) -> None:
        """Take over a charged release without an answer; the journal counts it once, and then closes it."""
        if self.event.charge is None or not self._must_count:
            self._repeat(transaction, pending)
        elif pending.retried:
            self._release(transaction, instead=True)
        else:
            self._repeat(transaction, pending)
            transaction.retry(self.event)
            self._is_retried, self._must_count = True, False

    def _repeat(self, transaction: Transaction, stored: Stored) -> None:
        """Show a release that is in the journal; an analyst who was not charged for it is charged."""
        event = self.event
        self.number, self.answer = stored.number, stored.answer
        if event.analyst is None or transaction.was_shown:
            return
        event = _stated(transaction, event)
        if event.charge is not None:
            refuse_unaffordable(transaction.analyst, event.charge, "your cap")
            transaction.charge(event.charge, dataset=False, analyst=True)
        transaction.append(replace(event, kind=Kind.REPEAT))
        self.charged_analyst = event.charge is not None

    def _store(self, transaction: Transaction, answer: bytes) -> bytes:
        stored = transaction.stored_release()
        if stored is None or stored.number != self.number:
            raise LedgerError("this release was closed as failed in the meantime; ask again", culprit=self.number)
        if stored.answer is not None:
            return stored.answer
        transaction.store(answer)
        return answer

    def _fail(self, transaction: Transaction) -> None:
        stored = transaction.stored_release()
        if stored is not None and stored.number == self.number and stored.answer is None:
            transaction.fail(self.event)


def admitted(transaction: Transaction, event: Event) -> Event:
    """Return a new release with the statement of its charge for the entry.

    Raises:
        BudgetError: the limit or the analyst's cap does not admit the charge.
        LossError: the limit does not have the measure of the charge.
        UnitError: the ledger adds up losses of another unit, or for other owners of a table's rows.
    """
    event = _stated(transaction, event)
    if event.charge is not None:
        refuse_unaffordable(transaction.account, event.charge, "the ledger")
        if event.analyst is not None:
            refuse_unaffordable(transaction.analyst, event.charge, "your cap")
    owners = event.details.get("owners") if isinstance(event.details, dict) else None
    if isinstance(owners, dict):
        transaction.refuse_other_owners({name: str(owner) for name, owner in owners.items()})
    return event


def _stated(transaction: Transaction, event: Event) -> Event:
    """Return the event with the statement of its charge, under the unit of the ledger.

    A ledger without a unit gets the unit of its next release.  A loss for all rows of one id holds for any bound on
    their number: rows beyond the bound are dropped, person by person, before anything is counted.  So a changed bound
    is the same unit.  Another id is another unit, and so are rows instead of ids.

    Raises:
        UnitError: the ledger adds up losses of another unit.
    """
    if event.charge is None:
        return replace(event, unit=None)
    assert event.unit is not None
    refuse_unit(transaction.unit, event.unit)
    return event.stating(ADD_REMOVE, on_grid(event.charge), fixes_unit=transaction.unit is None)


class ComputeLocks(ABC):
    """The releases that this process computes, each under a lock that ends with the process.

    One caller at a time computes a release that is charged and has no answer.  The operating system (SQLite: a lock
    file next to the ledger) or the database (PostgreSQL: a session) frees the locks of a process that dies.  So the
    death of a process is not mistaken for a long computation.
    """

    def __init__(self) -> None:
        self._held: set[int] = set()  # a process does not exclude itself by locks on a file or in a session
        self._drew_nothing: dict[int, bool] = {}  # last computations of this process, and whether they were retries
        self._mutex = threading.Lock()

    def acquire(self, number: int, *, retried: bool) -> bool | None:
        """Lock a release to compute it.

        Args:
            number: the number of its lock.
            retried: true if the journal has a retry of the release.

        Returns:
            None if another caller computes it.  Otherwise, whether this process computed it last and drew no noise,
            so that the journal need not count the computation.
        """
        with self._mutex:
            if number in self._held or not self._take(number):
                return None
            self._held.add(number)
            return self._drew_nothing.pop(number, None) is retried

    def release(self, number: int, *, noise_drawn: bool, retried: bool) -> None:
        """Unlock a release, and remember a computation that drew no noise."""
        with self._mutex:
            if not noise_drawn:
                self._drew_nothing[number] = retried
            self._held.discard(number)
            self._drop(number)

    @abstractmethod
    def _take(self, number: int) -> bool:
        """Take a lock that this process does not hold; return False if another process holds it."""

    @abstractmethod
    def _drop(self, number: int) -> None:
        """Give a lock back."""

    @abstractmethod
    def close(self) -> None:
        """Give all locks back."""


class _FileLocks(ComputeLocks):
    """Locks on single bytes of a file, which stays empty."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _take(self, number: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise LedgerError("the folder of the ledger gives no locks; put the ledger on a local disk") from error
        return True

    def _drop(self, number: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        os.close(self._file)


class _SessionLocks(ComputeLocks):
    """Advisory locks of one session of PostgreSQL, which is opened again if it is lost."""

    def __init__(self, open_session: Callable[[], Driver]) -> None:
        super().__init__()
        self._open_session = open_session
        self._session: Driver | None = None

    def _take(self, number: int) -> bool:
        try:
            return self._query("SELECT pg_try_advisory_lock(:number)", number)
        except DatabaseError:
            self.close()
            return self._query("SELECT pg_try_advisory_lock(:number)", number)

    def _drop(self, number: int) -> None:
        try:
            self._query("SELECT pg_advisory_unlock(:number)", number)
        except DatabaseError:
            self.close()  # the lock ends with the session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _query(self, statement: str, number: int) -> bool:
        if self._session is None:
            self._session = self._open_session()
        return bool(self._session.value(statement, {"number": number}))


_LOCKS: dict[object, ComputeLocks] = {}
_LOCKS_OF_PARENT: list[ComputeLocks] = []  # never freed: a child would close its parent's connection
_MUTEX = threading.Lock()


def compute_locks(store: Store) -> ComputeLocks:
    """Return the locks of this process on the releases of a database.

    Raises:
        LedgerError: the lock file cannot be made.
    """
    # links are resolved, so that one ledger has one file of locks
    place = store.lock_place if store.file else store.address
    with _MUTEX:
        if place not in _LOCKS:
            try:
                _LOCKS[place] = (
                    _FileLocks(Path(f"{place}-attempts")) if store.file else _SessionLocks(store.open_session)
                )
            except OSError as error:
                raise LedgerError(
                    f"no lock file can be made next to the ledger {place}; make its folder writable", culprit=place
                ) from error
        return _LOCKS[place]


def _forget_locks_of_parent() -> None:
    global _MUTEX  # noqa: PLW0603  (another thread of the parent may hold it)
    _MUTEX = threading.Lock()
    _LOCKS_OF_PARENT.extend(_LOCKS.values())
    _LOCKS.clear()


def _close_locks() -> None:
    for locks in _LOCKS.values():
        locks.close()


os.register_at_fork(after_in_child=_forget_locks_of_parent)
atexit.register(_close_locks)
