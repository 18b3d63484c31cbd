"""Which releases are being computed at this moment, by whatever process: locks that die with who holds them.

A release that is charged and has no answer is computed by one at a time, and others wait.  The operating system
(SQLite: a lock file beside the ledger) or the database (PostgreSQL: a session of its own) takes the lock away from a
process that dies, and from nobody else, so that the death of one who was computing is told from their taking long.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import threading
from pathlib import Path
from typing import Protocol

from sfumato.errors import LedgerError
from sfumato.ledger.database import DatabaseError, Driver
from sfumato.ledger.store import Store

_DIGITS = 15  # hexadecimal, of an entry's hash: 60 bits, as files and PostgreSQL count up to 2^63


class Locks(Protocol):
    """Locks by number, which end with the process that took them."""

    def take(self, number: int) -> bool:
        """Take a lock that this process does not hold; False: another process holds it."""
        ...

    def drop(self, number: int) -> None:
        """Give a lock back."""
        ...

    def close(self) -> None:
        """Give all locks back."""
        ...


class FileLocks:
    """Locks on single bytes of a file, which stays empty."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, number: int) -> bool:
        """See :class:`Locks`."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise LedgerError("the folder of the ledger gives no locks; put the ledger on a local disk") from error
        return True

    def drop(self, number: int) -> None:
        """See :class:`Locks`."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        """See :class:`Locks`."""
        os.close(self._file)


class SessionLocks:
    """Advisory locks of one session of PostgreSQL, opened again where it was lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session: Driver | None = None

    def take(self, number: int) -> bool:
        """See :class:`Locks`; what the database fails by comes as :class:`~sfumato.ledger.database.DatabaseError`."""
        try:
            return self._asked("SELECT pg_try_advisory_lock(:number)", number)
        except DatabaseError:
            self.close()
            return self._asked("SELECT pg_try_advisory_lock(:number)", number)

    def drop(self, number: int) -> None:
        """See :class:`Locks`."""
        try:
            self._asked("SELECT pg_advisory_unlock(:number)", number)
        except DatabaseError:
            self.close()  # and with the session, the lock

    def close(self) -> None:
        """End the session, and all locks with it."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _asked(self, statement: str, number: int) -> bool:
        if self._session is None:
            self._session = self._store.session()
        return bool(self._session.value(statement, {"number": number}))


class Attempts:
    """The releases that this process is computing, and whether another process computes one."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._held: set[int] = set()  # a process does not exclude itself
        self._untouched: dict[int, bool] = {}
        self._lock = threading.Lock()

    def begin(self, number: int, *, retried: bool) -> bool | None:
        """Take a release to compute.

        Args:
            number: of its lock.
            retried: whether the journal says that it was computed again.

        Returns:
            None: somebody is at it.  Otherwise, whether the last attempt was one of this process that drew no noise,
            so that it need not be counted.
        """
        with self._lock:
            if number in self._held or not self._locks.take(number):
                return None
            self._held.add(number)
            return self._untouched.pop(number, None) is retried

    def end(self, number: int, *, untouched: bool, retried: bool) -> None:
        """Leave it to others; ``untouched``: no noise was drawn."""
        with self._lock:
            if untouched:
                self._untouched[number] = retried
            self._held.discard(number)
            self._locks.drop(number)

    def close(self) -> None:
        """The process ends."""
        self._locks.close()


class Attempt:
    """One caller's attempt at a release: holds at most one, until its end.

    Attributes:
        touched: whether noise was drawn; set by who computes.
        counts: whether it has to be journalled, as nobody knows what became of the attempts before it.
    """

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._number: int | None = None
        self._retried = False
        self.touched = False
        self.counts = False

    @property
    def holds(self) -> bool:
        """Whether the release is this caller's to compute."""
        return self._number is not None

    def begin(self, entry_hash: str, *, retried: bool) -> bool:
        """Take the release of an entry to compute; False: somebody else is at it."""
        self.end()  # what was taken in a transaction that failed
        number = int(entry_hash[:_DIGITS], 16)
        untouched = self._attempts.begin(number, retried=retried)
        if untouched is None:
            return False
        self._number, self._retried, self.counts = number, retried, not untouched
        return True

    def journalled(self, *, retried: bool) -> None:
        """The journal counts this attempt now: that it opened the release, or ``retried`` it."""
        self._retried, self.counts = retried, False

    def end(self) -> None:
        """Leave what was taken."""
        if self._number is not None:
            self._attempts.end(self._number, untouched=not (self.touched or self.counts), retried=self._retried)
            self._number = None


_BY_PLACE: dict[object, Attempts] = {}
_OF_PARENTS: list[Attempts] = []  # kept: a child that forgot one would close its parent's connection
_LOCK = threading.Lock()


def attempts_at(store: Store) -> Attempts:
    """The attempts of this process at the releases of a database.

    Raises:
        LedgerError: the lock file cannot be made.
    """
    # by whatever link it is opened, one ledger has one file of locks
    place = store.lock_place if store.file else store.address
    with _LOCK:
        if place not in _BY_PLACE:
            try:
                locks = FileLocks(Path(f"{place}-attempts")) if store.file else SessionLocks(store)
            except OSError as error:
                raise LedgerError(
                    f"no lock file can be made beside the ledger {place}; make its folder writable", culprit=place
                ) from error
            _BY_PLACE[place] = Attempts(locks)
        return _BY_PLACE[place]


def _forget_parent() -> None:
    global _LOCK  # noqa: PLW0603  (another thread of the parent may hold it)
    _LOCK = threading.Lock()
    _OF_PARENTS.extend(_BY_PLACE.values())
    _BY_PLACE.clear()


def _close() -> None:
    for attempts in _BY_PLACE.values():
        attempts.close()


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(_close)
