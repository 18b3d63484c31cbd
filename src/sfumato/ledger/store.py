"""The database of a ledger: connections, transactions and tables."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
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

_PAUSE = 0.01  # seconds between attempts, if SQLite itself does not wait
CHECKPOINT_AFTER = 1.0  # seconds after which a commit also moves SQLite's log to the file
_TABLES = {  # the names of all tables
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_FOUNDING_LOCK = 0x5F0_3A70  # a number that no other program in the database uses


def place_of(url: str) -> str:
    """Return the address of a database in messages, without a password."""
    return str(_address(url))


class Store:
    """A SQLite file or a PostgreSQL database that holds ledgers.

    SQLite runs in WAL mode with full sync, and a write transaction takes the write lock at its start.  All stores of
    a process at one address share a few connections.  A file that is moved, deleted or replaced is noticed before
    anything is read from it or written to it.

    Attributes:
        address: the address of the database.
        place: the address in messages, without a password.
        file: the file of SQLite; None for PostgreSQL.

    Raises:
        InputError: the address is not ``sqlite:///file`` or ``postgresql://...``.
    """

    def __init__(self, url: str) -> None:
        self.address = _address(url)
        self.place = place_of(url)
        self.file = _file(self.address).absolute() if self.address.backend == "sqlite" else None
        with translate_errors(self.place):
            self._connections = connections(self.address, self.file)
        self._checkpointed = time.monotonic()
        self._give_back = weakref.finalize(self, self._connections.give_back)  # in case the caller never closes it
        self._give_back.atexit = False  # at exit the operating system closes connections, also inherited ones

    @cached_property
    def lock_place(self) -> str:
        """The path of SQLite's file with links resolved.  A replaced file is noticed anyway, so it is resolved once."""
        assert self.file is not None
        return str(self.file.resolve())

    @contextmanager
    def reading(self) -> Iterator[Driver]:
        """Begin a transaction that only reads, from the state at its first statement."""
        self._refuse_moved()
        with translate_errors(self.place), self._connections.transaction(writing=False) as driver:
            yield driver

    @contextmanager
    def writing(self) -> Iterator[Driver]:
        """Begin a transaction that is durable when the block ends, and is undone if the block raises."""
        self._refuse_moved()
        with translate_errors(self.place), self._connections.transaction(writing=True) as driver:
            yield driver
            self._refuse_moved()
        if time.monotonic() - self._checkpointed > CHECKPOINT_AFTER:
            self.checkpoint()

    @contextmanager
    def founding(self) -> Iterator[Driver]:
        """Begin a write transaction that excludes others of its kind, to create tables and datasets once."""
        with self.writing() as driver:
            if not self.file:  # SQLite has one writer at a time anyway
                driver.rows("SELECT pg_advisory_xact_lock(:key)", {"key": _FOUNDING_LOCK})
            yield driver

    def alive(self) -> None:
        """Run a statement over a new connection, as a new worker would.

        Raises:
            LedgerError: it does not answer, or has no connection left.
        """
        self._refuse_moved()
        with translate_errors(self.place), self._connections.fresh() as driver:
            driver.rows("SELECT 1")

    @property
    def open_session(self) -> Callable[[], Driver]:
        """Return a function that opens a connection, on which each statement is a transaction.

        It does not hold this store, which may be collected before its caller.
        """
        return self._connections.opened

    def prepare(self, *, create: bool) -> None:
        """Check the tables; with ``create``, make them if there are none.

        Several processes may do so at the same time, and any of them may die.  The cases:

        1. There is no file.  Without ``create`` that is refused.  With it, connecting makes an empty file, which is
           never replaced.  So all processes use one file, and its identity is stored at the end.
        2. A file is empty or has no tables.  Without ``create`` that is refused.  One transaction creates all tables,
           so no process sees some of them, and a process that dies leaves none.
        3. SQLite's journal mode is changed outside of a transaction, under an exclusive lock for which SQLite does
           not wait.  The second process is refused at once, and tries again.  A process that dies before the next
           step leaves an empty file.
        4. One process at a time creates the tables: under SQLite's write lock, or an advisory lock of PostgreSQL.
           Both end with their process.  Each process looks for the tables again under the lock.
        5. One more such transaction enters a dataset with its secret and limit (:func:`dataset_terms.open_dataset`).
           Other processes find the row, and compare their limit with it.  A process that dies before leaves a ledger
           without datasets, in which only ``create`` begins one.

        Readers of SQLite wait while another process changes the journal mode, recovers the log, or removes it.  After
        :data:`~sfumato.ledger.database.PATIENCE` they report that the ledger is locked.

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
                if not self._holds_tables(driver):  # checked under the lock: another process may have been faster
                    create_tables(driver)
        if self.file:
            self._connections.database.creates = False
            self._connections.identity = identity(self.file)

    def exists(self) -> bool:
        """Return whether there is a ledger."""
        return not (self.file and not self.file.exists()) and self._has_tables()

    def checkpoint(self) -> None:
        """Move SQLite's write-ahead log to the file, except for pages that another connection reads."""
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
        """Refuse another file than the opened one.

        Raises:
            MovedLedgerError: the opened file was moved, deleted or replaced.
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
            LedgerError: the file has a second name.
        """
        if file.is_dir():
            raise NoLedgerError(f"the ledger {self.place} is a folder; name a file in it", culprit=self.place)
        if file.exists() and file.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.place} is a file of two names (a hard link), and each name misses the charges of "
                "the other; delete one name, or copy the ledger by 'sfumato ledger backup'",
                culprit=self.place,
            )

    def _missing(self) -> MissingLedgerError:
        return MissingLedgerError(
            f"there is no ledger at {self.place}; name an existing ledger, or begin one with its own budget: "
            "--create --limit 2,1e-9, or 'sfumato ledger create' (create=True, limit=EpsilonDelta(2, 1e-9) in Python)",
            culprit=self.place,
        )

    def _has_tables(self) -> bool:
        with self.reading() as driver:
            return self._holds_tables(driver)

    def _holds_tables(self, driver: Driver) -> bool:
        """Return whether the tables of a ledger exist; refuse tables of another revision, or of something else."""
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
        """Set SQLite's journal mode to WAL.

        SQLite refuses this change at once if another process holds a lock, in spite of its timeout.
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
    """Return SQLite's write-ahead log next to a ledger if it holds pages that the file may lack.

    That happens while a program has the ledger open, and after one was killed.  A copy of the file alone would then
    lack releases.
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
            "a ledger in memory would lose the releases; name a file: sqlite:///FILE, without parameters but "
            "uri=true with mode=ro or mode=rw",
            culprit=url,
        )
    return address


def _on_disk(address: Address) -> bool:
    """Return whether the parameters of an address leave the ledger in the file that it names."""
    settings = dict(address.query)
    mode, uri = settings.pop("mode", None), settings.pop("uri", None)
    once = len(address.query) == len(dict(address.query))
    return once and not settings and mode in (None, "ro", "rw") and uri in (None, "true") and bool(_file(address).name)


def _file(address: Address) -> Path:
    """Return the file of a ledger."""
    path = address.database or ""
    return Path(unquote(path.removeprefix("file:").partition("?")[0]) if "uri" in dict(address.query) else path)


KEPT, MORE = 4, 4  # connections of a process that stay open, and further ones if all are in use

Identity = tuple[int, int]  # device and inode


class Connections:
    """The connections of this process to one address, in use by ``users`` stores.

    Attributes:
        database: opens them.
        identity: the identity of the SQLite file; None until it is known, and for PostgreSQL.
    """

    def __init__(self, address: Address, file: Path | None) -> None:
        self.file = file
        self.identity: Identity | None = None
        self.users = 0
        read_only = dict(address.query).get("mode") == "ro"
        self.database: Database = Postgresql(address) if file is None else Sqlite(file, read_only=read_only)
        self.forget()

    def forget(self) -> None:
        """Drop the connections of the parent in a child process."""
        self._returned = threading.Condition()
        self._idle: list[Any] = []
        self._lent = 0

    @property
    def idle(self) -> Sequence[Any]:
        """The open connections that are not in use."""
        return self._idle

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Driver]:
        """Begin a transaction that is durable when the block ends, and is undone if the block raises."""
        with self.borrow() as driver:
            driver.begin_transaction(writing=writing)
            yield driver
            driver.commit()

    @contextmanager
    def borrow(self) -> Iterator[Driver]:
        """Borrow a connection for a block, outside of any transaction; undo uncommitted changes at its end."""
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
        """Open a connection for a block."""
        with closing(self.opened()) as driver:
            yield driver

    def opened(self) -> Driver:
        """Open a connection, which the caller closes."""
        return Driver(self.database, self._opened())

    def give_back(self) -> None:
        """Count one user less, and close all after the last one."""
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
_OF_PARENTS: list[Any] = []  # never freed: a child would close its parent's connection
_LOCK = threading.RLock()  # a store collected in this block returns its connections within it


def connections(address: Address, file: Path | None) -> Connections:
    """Return the connections of this process to an address; the caller gives them back."""
    key = (address,) if file is None else (file, address.query)
    with _LOCK:
        shared = _SHARED.get(key)
        if shared is None or (shared.identity is not None and identity(shared.file) != shared.identity):
            shared = Connections(address, file)
        shared.users += 1
        _SHARED[key] = shared  # set again, because a store collected just now may have removed it
        return shared


def identity(file: Path | None) -> Identity | None:
    """Return device and inode of a file; None if there is none."""
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
