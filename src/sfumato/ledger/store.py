"""The database under a ledger: connections, transactions and tables."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sfumato.errors import InputError, LedgerError, MissingLedgerError, MovedLedgerError, NoLedgerError
from sfumato.ledger import database
from sfumato.ledger.database import (
    PATIENCE,
    Address,
    Database,
    DatabaseError,
    Driver,
    PoolExhaustedError,
    Postgresql,
    Sqlite,
    translate_errors,
)
from sfumato.ledger.schema import REVISION, VERSION_TABLE, create_tables

_PAUSE = 0.01  # seconds between attempts at what SQLite does not wait for
CHECKPOINT_AFTER = 1.0  # seconds after which a commit also moves SQLite's log to the file
_TABLES = {  # the names of all
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_FOUNDING_LOCK = 0x5F0_3A70  # any number that no other program in the database uses


class Store:
    """A SQLite file or a PostgreSQL database that holds ledgers.

    SQLite runs in WAL mode with full sync, and a write transaction takes the write lock at its start.  All stores of
    a process at one address share a few connections.  A file that is moved, deleted or replaced is noticed before
    anything is read from it or written to it.

    Attributes:
        address: where it is.
        place: the same as messages say it, without a password.
        file: of SQLite; None for PostgreSQL.

    Raises:
        InputError: the address is not ``sqlite:///file`` or ``postgresql://...``.
    """

    def __init__(self, url: str) -> None:
        self.address = _address(url)
        self.place = str(self.address)
        self.file = _file(self.address).absolute() if self.address.backend == "sqlite" else None
        with translate_errors(self.place):
            self._connections = connections(self.address, self.file)
        self._checkpointed = time.monotonic()
        self._give_back = weakref.finalize(self, self._connections.give_back)  # for a caller that never closes it
        self._give_back.atexit = False  # the operating system closes what is left, also that of a parent process

    @cached_property
    def lock_place(self) -> str:
        """Where SQLite's file is, links followed: looked up once, as a file that is replaced is noticed anyway."""
        assert self.file is not None
        return str(self.file.resolve())

    @contextmanager
    def reading(self) -> Iterator[Driver]:
        """A transaction that only reads, all of it from the state at its first statement."""
        self._refuse_moved()
        with translate_errors(self.place), self._connections.transaction(writing=False) as driver:
            yield driver

    @contextmanager
    def writing(self) -> Iterator[Driver]:
        """A transaction that is durable when the block ends, and leaves no trace if it raises."""
        self._refuse_moved()
        with translate_errors(self.place), self._connections.transaction(writing=True) as driver:
            yield driver
            self._refuse_moved()
        if time.monotonic() - self._checkpointed > CHECKPOINT_AFTER:
            self.checkpoint()

    @contextmanager
    def founding(self) -> Iterator[Driver]:
        """A write transaction that no other of its kind overlaps: for making what must be made once."""
        with self.writing() as driver:
            if not self.file:  # SQLite has one writer at a time anyhow
                driver.rows("SELECT pg_advisory_xact_lock(:key)", {"key": _FOUNDING_LOCK})
            yield driver

    def alive(self) -> None:
        """Ask the database anything over a connection of its own, as a new worker or request would need one.

        Raises:
            LedgerError: it does not answer, or has no connection left.
        """
        self._refuse_moved()
        with translate_errors(self.place), self._connections.fresh() as driver:
            driver.rows("SELECT 1")

    def session(self) -> Driver:
        """A connection of its own that lasts until it is closed, with each statement in a transaction of its own."""
        return self._connections.opened()

    def prepare(self, *, create: bool) -> None:
        """Check the tables; with ``create``, make them if there are none.

        Several processes may do so at the same time, and any of them may die; what each finds, and answers:

        1. No file: without ``create`` that is refused.  With it, connecting makes an empty one.  The file is never
           replaced afterwards, so that all mean the same one, and it has the identity that is remembered at the end.
        2. An empty file, or one without tables, is no ledger yet: refused without ``create``.  Tables come all at once
           in one transaction, so that nobody sees some of them, and who dies before its end leaves none.
        3. SQLite's log: its mode is changed outside of any transaction, under an exclusive lock that SQLite does not
           wait for.  Whoever is second is refused at once, and tries again.  Once it is changed, asking for it again
           takes no lock, and who dies between this and the next step leaves an empty file.
        4. Making the tables: one at a time, by SQLite's write lock, or by an advisory lock of PostgreSQL.  Both end
           with their process, and are waited for.  The tables are looked for once more under the lock, so that all
           but the first find nothing to do.
        5. A dataset, its secret and its limit are entered in one more such transaction (:func:`opening.open_ledger`),
           where its row is looked for first: one is entered, others find that it has their limit, or are refused.  Who
           dies before leaves a ledger without datasets, which is begun by ``create`` and by nothing else.

        Readers of SQLite wait wherever another process changes the mode of the log, recovers it, or removes it as the
        last to leave; only after :data:`~sfumato.ledger.database.PATIENCE` does one answer that the ledger is locked.

        Raises:
            LedgerError: there is no ledger and none is to be created, the database holds something else,
                or it was written by another version.
        """
        if self.file:
            if not create and not self.file.exists():
                raise self._missing()
            self._refuse_second_name(self.file)
            self._connections.database.creates = create
        has_tables = self._has_tables()
        if not has_tables and not create:
            raise self._missing()
        if not has_tables:
            if self.file:
                with translate_errors(self.place):
                    self._use_write_ahead_log()
            with self.founding() as driver:
                if not self._holds_tables(driver):  # looked at again: another process may have been faster
                    create_tables(driver)
        if self.file:
            self._connections.database.creates = False
            self._connections.identity = identity(self.file)

    def exists(self) -> bool:
        """Whether there is a ledger."""
        return not (self.file and not self.file.exists()) and self._has_tables()

    def checkpoint(self) -> None:
        """Move what is in SQLite's write-ahead log to the file itself, as far as nobody reads it."""
        self._checkpointed = time.monotonic()
        if self.file is None:
            return
        with suppress(DatabaseError), self._connections.borrow() as driver:
            driver.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Give the connections back; the last store of an address closes them."""
        if not self._give_back.alive:
            return
        if self._connections.identity is not None and identity(self.file) == self._connections.identity:
            self.checkpoint()
        self._give_back()

    def _refuse_moved(self) -> None:
        """Refuse to go on with a file that is no longer the one at the address.

        Raises:
            MovedLedgerError: it was moved, deleted or replaced.
        """
        was = self._connections.identity
        if was is not None and identity(self.file) != was:
            raise MovedLedgerError(
                f"the ledger {self.place} was moved, deleted or replaced while it was open, and nothing was charged; "
                "put the file back, or start again with the address where it lies now",
                culprit=self.place,
            )

    def _refuse_second_name(self, file: Path) -> None:
        """Refuse a file that has another name (a hard link): SQLite has a log, and locks, for each name.

        Raises:
            LedgerError: says so.
        """
        if file.is_dir():
            raise NoLedgerError(f"the ledger {self.place} is a folder; name a file in it", culprit=self.place)
        if file.exists() and file.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.place} is a file of two names (a hard link), under each of which charges of the "
                "other are not seen; delete one name, or copy the ledger by 'sfumato ledger backup'",
                culprit=self.place,
            )

    def _missing(self) -> MissingLedgerError:
        return MissingLedgerError(
            f"there is no ledger at {self.place}; name the one that there is, or begin one, with a budget of its own, "
            "by 'sfumato ledger create' or with --create where something is released or served (create=True in Python)",
            culprit=self.place,
        )

    def _has_tables(self) -> bool:
        with self.reading() as driver:
            return self._holds_tables(driver)

    def _holds_tables(self, driver: Driver) -> bool:
        """Return whether the tables of a ledger are there; refuse those of another revision, or of something else."""
        tables = [name for (name,) in driver.rows(_TABLES[driver.database])]
        if VERSION_TABLE in tables:
            revision = driver.value("SELECT version_num FROM ledger_version")
            if revision != REVISION:
                raise LedgerError(
                    f"the ledger {self.place} was written by another version of Sfumato: its tables have revision "
                    f"{revision}, and this version reads {REVISION} only; open it with the version that wrote it",
                    culprit=self.place,
                )
            return True
        if self.file and tables:
            raise NoLedgerError(f"{self.place} is a database but not a ledger; name another file", culprit=self.place)
        return False

    def _use_write_ahead_log(self) -> None:
        """Have SQLite write ahead from now on, in whatever transaction nobody else is in the middle of.

        SQLite refuses this change at once where another process holds a lock, whatever patience it was told to have.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self._connections.borrow() as driver:
                    driver.rows("PRAGMA journal_mode = WAL")
            except DatabaseError as error:
                if not error.is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return


def unmerged_wal(url: str) -> Path | None:
    """SQLite's write-ahead log beside a ledger, where it holds what the file itself may not hold yet.

    That is so while a program has the ledger open, and after one was killed.  A copy of the file alone would then
    have forgotten releases.
    """
    address = _address(url)
    file = _file(address) if address.backend == "sqlite" else None
    log = None if file is None else file.with_name(f"{file.name}-wal")
    return log if log is not None and log.exists() and log.stat().st_size else None


def _address(url: str) -> Address:
    address = Address.parse(url)
    if address is None:
        named = "what is given" if "@" in url else repr(url)  # it may hold a password
        raise InputError(
            f"{named} is no address of a ledger; use sqlite:///FILE or postgresql://..., in which the characters "
            "@ : / ? # % of a user or password are written %40 %3A %2F %3F %23 %25"
        )
    if address.backend == "postgresql":
        return address
    if address.backend != "sqlite" or not address.database or ":memory:" in address.database:
        raise InputError(f"a ledger lives in sqlite:///FILE or postgresql://..., not in {address.backend}")
    if "\0" in address.database:
        raise InputError("the name of a ledger's file holds a character that no file may have")
    if not _on_disk(address):
        raise InputError(
            "a ledger in memory forgets what was released; name a file: sqlite:///FILE, without parameters but "
            "uri=true with mode=ro or mode=rw",
            culprit=url,
        )
    return address


def _on_disk(address: Address) -> bool:
    """Whether what the address says of SQLite leaves the ledger in the file that it names."""
    settings = dict(address.query)
    mode, uri = settings.pop("mode", None), settings.pop("uri", None)
    once = len(address.query) == len(dict(address.query))
    return once and not settings and mode in (None, "ro", "rw") and uri in (None, "true") and bool(_file(address).name)


def _file(address: Address) -> Path:
    """The file of a ledger, a link followed to where it leads."""
    path = address.database or ""
    return Path(unquote(path.removeprefix("file:").partition("?")[0]) if "uri" in dict(address.query) else path)


KEPT, MORE = 4, 4  # connections of a process that stay open, and that are opened besides when all are in use

Identity = tuple[int, int]  # device and inode


class Connections:
    """The connections of this process to one address, in use by ``users`` stores.

    Attributes:
        database: which opens them.
        identity: of the SQLite file that they are to; None where it is not known yet, and for PostgreSQL.
    """

    def __init__(self, address: Address, file: Path | None) -> None:
        self.file = file
        self.identity: Identity | None = None
        self.users = 0
        read_only = dict(address.query).get("mode") == "ro"
        self.database: Database = Postgresql(address) if file is None else Sqlite(file, read_only=read_only)
        self.forget()

    def forget(self) -> None:
        """In a child process: leave the parent's connections to the parent."""
        self._returned = threading.Condition()
        self._idle: list[Any] = []
        self._lent = 0

    @property
    def idle(self) -> Sequence[Any]:
        """Those that are open and in nobody's use."""
        return self._idle

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Driver]:
        """A transaction that is durable when the block ends, and leaves no trace if it raises."""
        with self.borrow() as driver:
            driver.begin_transaction(writing=writing)
            yield driver
            driver.commit()

    @contextmanager
    def borrow(self) -> Iterator[Driver]:
        """A connection for a block, outside of any transaction; what was not committed is undone at its end."""
        connection = self._acquire()
        try:
            driver = Driver(self.database, connection)
        except BaseException:
            self._close(connection)
            self._shrink()
            raise
        try:
            yield driver
        finally:
            self._take_back(driver)

    @contextmanager
    def fresh(self) -> Iterator[Driver]:
        """A connection that nobody used before, or will use afterwards."""
        with closing(self.opened()) as driver:
            yield driver

    def opened(self) -> Driver:
        """The same, for whoever closes it."""
        return Driver(self.database, self._opened())

    def give_back(self) -> None:
        """Say that one store less uses them."""
        with _LOCK:
            self.users -= 1
            if self.users > 0:
                return
            for key, shared in list(_SHARED.items()):
                if shared is self:
                    del _SHARED[key]
        with self._returned:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._close(connection)

    def _acquire(self) -> Any:  # noqa: ANN401
        with self._returned:
            if not self._returned.wait_for(lambda: self._idle or self._lent < KEPT + MORE, database.PATIENCE):
                raise PoolExhaustedError
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is not None and not self.database.answers(connection):
                self._close(connection)
                connection = None
            return self._opened() if connection is None else connection
        except BaseException:
            self._shrink()
            raise

    def _take_back(self, driver: Driver) -> None:
        try:
            usable = driver.roll_back()
            with self._returned:
                if usable and len(self._idle) < KEPT:
                    self._idle.append(driver.connection)
                    return
            self._close(driver.connection)
        finally:
            self._shrink()

    def _shrink(self) -> None:
        with self._returned:
            self._lent -= 1
            self._returned.notify()

    def _opened(self) -> Any:  # noqa: ANN401
        try:
            return self.database.connect()
        except self.database.driver.Error as error:
            raise DatabaseError(error, lost=False, refused=False) from error

    def _close(self, connection: Any) -> None:  # noqa: ANN401
        with suppress(self.database.driver.Error):
            connection.close()


_SHARED: dict[tuple[object, ...], Connections] = {}
_OF_PARENTS: list[Any] = []  # kept: a child that forgot one would close its parent's connection
_LOCK = threading.RLock()  # a store that is collected in this block gives its connections back in it


def connections(address: Address, file: Path | None) -> Connections:
    """The connections of this process to an address; who takes them gives them back."""
    key = (address,) if file is None else (file, address.query)
    with _LOCK:
        shared = _SHARED.get(key)
        if shared is None or (shared.identity is not None and identity(shared.file) != shared.identity):
            shared = _SHARED[key] = Connections(address, file)
        shared.users += 1
        return shared


def identity(file: Path | None) -> Identity | None:
    """Device and inode of a file; None where there is none."""
    if file is None:
        return None
    try:
        status = os.stat(file)  # noqa: PTH116  (a method less, and every transaction asks twice)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _forget() -> None:
    global _LOCK  # noqa: PLW0603  (another thread of the parent may hold it)
    _LOCK = threading.RLock()
    for shared in _SHARED.values():
        _OF_PARENTS.extend(shared.idle)
        shared.forget()
    _SHARED.clear()


os.register_at_fork(after_in_child=_forget)
