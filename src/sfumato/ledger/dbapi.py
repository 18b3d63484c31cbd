"""Databases under ledgers: connections, transactions straight to the driver, and failures in one sentence of ours.

SQLAlchemy keeps the connections, and spells each statement once, in the words of the database.  It is left out of
running them: going through it costs several times what the database itself needs, and an answered question runs a
dozen statements in two transactions.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, TimeoutError  # noqa: A004
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.sql.elements import ClauseElement

from sfumato.errors import LedgerError

_SQLITE = {
    "SQLITE_BUSY": "is locked by another program; close it or try again later",
    "SQLITE_LOCKED": "is locked by another program; close it or try again later",
    "SQLITE_PROTOCOL": "is locked by another program; close it or try again later",
    "SQLITE_READONLY": "is read-only; make the file and its folder writable",
    "SQLITE_PERM": "may not be opened; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "cannot be opened; check that its folder exists and is writable",
    "SQLITE_NOTADB": "is not a ledger but some other file; name another one",
    "SQLITE_CORRUPT": "is corrupted; restore it from a copy",
    "SQLITE_FULL": "cannot grow because the disk is full; free some space",
    "SQLITE_IOERR": "cannot be read or written; check the disk",
}
_LOST = "lost its connection; ask again, which is never charged twice"
_POSTGRES = {  # by SQLSTATE, or its class of two letters
    "25P03": _LOST,  # the server ended a transaction that was silent for too long
    "55P03": "is locked by another program; close it or try again later",
    "25006": "is read-only; connect to a server that takes writes",
    "42501": "may not be written by this database user; grant the right to create and use tables",
    "53": "is on a server that is out of space, memory or connections; try again later",
}
_UNREACHABLE = (
    "cannot be reached; check that the server runs and has connections left, and database, user and password of the "
    "address"
)


@contextmanager
def spoken_plainly(place: str) -> Iterator[None]:
    """Turn what the driver raises into a :class:`LedgerError` about the ledger at ``place``.

    The database's own words are left out: they may quote what was being written.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(f"the ledger {place} {_reason(error)}", culprit=place) from error


def failed_for_all(error: Exception) -> bool:
    """Whether the database failed whoever writes to it, and did not refuse one of several entries.

    Trying each alone would be in vain then, and take as long again for every one: the patience for a lock, say.
    """
    return isinstance(error, LedgerError) and not isinstance(error.__cause__, IntegrityError | DataError)


def is_busy(error: DBAPIError) -> bool:
    """Whether SQLite did not wait for a lock of another process."""
    return str(getattr(error.orig, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def _reason(error: SQLAlchemyError) -> str:
    if isinstance(error, TimeoutError):
        return "has all its connections in use; try again later"
    if not isinstance(error, DBAPIError):
        return "cannot be used by this installation; check the address and that its driver is installed"
    if error.connection_invalidated:
        return _LOST
    origin = error.orig
    name = str(getattr(origin, "sqlite_errorname", ""))
    for code, reason in _SQLITE.items():
        if name.startswith(code):
            return reason
    state = str(getattr(origin, "sqlstate", None) or "")
    for code, reason in _POSTGRES.items():
        if state.startswith(code):
            return reason
    if isinstance(error, IntegrityError):
        return "refused an entry that would break its rules; verify the journal"
    if not name and not state:
        return _UNREACHABLE
    return f"failed ({name or state}); nothing was written"


PATIENCE = 30  # seconds to wait for a lock
SILENCE = 15  # seconds for which a transaction may say nothing: its process has vanished, and holds rows that all need
KEPT, MORE = 4, 4  # connections of a process that stay open, and that are opened besides when all are in use
BEGIN_WRITING = "BEGIN IMMEDIATE"  # SQLite takes the write lock now, not when the first row is written

Identity = tuple[int, int]  # device and inode


class Connections:
    """The connections of this process to one address, in use by ``users`` stores.

    Attributes:
        engine: lends them.
        fresh: opens one anew each time.
        identity: of the SQLite file that they are to; None where it is not known yet, and for PostgreSQL.
        creates: whether connecting may make the SQLite file.
    """

    def __init__(self, address: URL, file: Path | None) -> None:
        self.file = file
        self.identity: Identity | None = None
        self.creates = False
        self.users = 0
        pool: dict[str, Any] = {"pool_size": KEPT, "max_overflow": MORE, "pool_timeout": PATIENCE}
        if file is None:
            self.engine = _postgresql(address, pool_pre_ping=True, **pool)
            self.fresh = _postgresql(address, poolclass=NullPool)
        else:
            connect = partial(self._connect, file, read_only=address.query.get("mode") == "ro")
            self.engine = _sqlite(connect, **pool)
            self.fresh = _sqlite(connect, poolclass=NullPool)

    def give_back(self) -> None:
        """Say that one store less uses them."""
        with _LOCK:
            self.users -= 1
            if self.users > 0:
                return
            for key, found in list(_SHARED.items()):
                if found is self:
                    del _SHARED[key]
        self.engine.dispose()

    def _connect(self, file: Path, *, read_only: bool) -> sqlite3.Connection:
        mode = "ro" if read_only else "rwc" if self.creates else "rw"
        return sqlite3.connect(
            f"file:{quote(str(file))}?mode={mode}", uri=True, timeout=PATIENCE, check_same_thread=False
        )


_SHARED: dict[str, Connections] = {}
_LOCK = threading.Lock()


def connections(address: URL, file: Path | None) -> Connections:
    """The connections of this process to an address; who takes them gives them back."""
    key = address.render_as_string(hide_password=False) if file is None else f"{file}?{address.query}"
    with _LOCK:
        found = _SHARED.get(key)
        if found is None or (found.identity is not None and identity(found.file) != found.identity):
            found = _SHARED[key] = Connections(address, file)
        found.users += 1
        return found


def identity(file: Path | None) -> Identity | None:
    """Device and inode of a file; None where there is none."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _forget() -> None:
    """In a child process: leave the parent's connections to the parent."""
    global _LOCK  # noqa: PLW0603  (another thread of the parent may hold it)
    _LOCK = threading.Lock()
    for found in _SHARED.values():
        found.engine.dispose(close=False)
    _SHARED.clear()


os.register_at_fork(after_in_child=_forget)


def _sqlite(connect: Any, **pool: Any) -> Engine:  # noqa: ANN401  # what SQLAlchemy takes
    engine = create_engine("sqlite://", creator=connect, **({"poolclass": QueuePool} | pool))

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:  # noqa: ANN401  # the driver's own
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql(BEGIN_WRITING if writing else "BEGIN")

    return engine


def _postgresql(address: URL, **pool: Any) -> Engine:  # noqa: ANN401  # what SQLAlchemy takes
    asked = address.query.get("options", "")  # such as -csearch_path=..., which is kept
    options = (
        f"{asked} -c lock_timeout={PATIENCE}s -c idle_in_transaction_session_timeout={SILENCE}s "
        "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 "
        "-c synchronous_commit=on -c timezone=UTC"
    )
    try:
        return create_engine(address, connect_args={"connect_timeout": 10, "options": options}, **pool)
    except ImportError as error:
        raise LedgerError("a ledger in PostgreSQL needs its driver; install sfumato[postgres]") from error


Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class _Spelled:
    """A statement in the words of one database; the order of its parameters where they have places, not names."""

    text: str
    places: tuple[str, ...] | None

    def arguments(self, values: Values) -> Any:  # noqa: ANN401  (what the driver takes: a list or a mapping)
        return values if self.places is None else [values[name] for name in self.places]


@lru_cache(maxsize=1024)
def _spelled(statement: ClauseElement, dialect: Dialect) -> _Spelled:
    compiled: Any = statement.compile(dialect=dialect)
    return _Spelled(str(compiled), None if compiled.positiontup is None else tuple(compiled.positiontup))


class Driver:
    """One transaction.  Errors are those that SQLAlchemy raises.  Use :func:`transaction` to begin one."""

    def __init__(self, connection: PoolProxiedConnection, dialect: Dialect) -> None:
        self._connection = connection
        self._dialect: Any = dialect
        self._cursor: Any = connection.cursor()

    def begin(self, how: str) -> None:
        """Begin the transaction, where the driver does not by itself."""
        with self._speaking():
            self._cursor.execute(how)

    def commit(self) -> None:
        """Make everything durable."""
        with self._speaking():
            self._connection.commit()

    def rows(self, statement: ClauseElement, values: Values) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        spelled = _spelled(statement, self._dialect)
        with self._speaking():
            self._cursor.execute(spelled.text, spelled.arguments(values))
            return list(self._cursor.fetchall())

    def write(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Run a statement once for each row of values; for none, not at all."""
        if not rows:
            return
        spelled = _spelled(statement, self._dialect)
        with self._speaking():
            self._cursor.executemany(spelled.text, [spelled.arguments(row) for row in rows])

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.dbapi.Error as error:
            lost = self._dialect.is_disconnect(error, self._connection.driver_connection, self._cursor)
            if lost:  # the pool must not hand it out again
                self._connection.invalidate(error)
            raise _wrapped(error, self._dialect, lost=lost) from error


@contextmanager
def raising_as_sqlalchemy(engine: Engine) -> Iterator[None]:
    """For calls that go straight to the driver: what it raises comes as :func:`spoken_plainly` expects it."""
    dialect: Any = engine.dialect
    try:
        yield
    except dialect.loaded_dbapi.Error as error:
        raise _wrapped(error, dialect, lost=False) from error


@contextmanager
def transaction(engine: Engine, *, begin: str | None) -> Iterator[Driver]:
    """A transaction that is durable when the block ends, and leaves no trace if it raises.

    Args:
        engine: whose pool lends the connection, and rolls back what was not committed when it gets it back.
        begin: the statement that begins it; None where the driver does so by itself.
    """
    with raising_as_sqlalchemy(engine):
        connection = engine.raw_connection()
    try:
        driver = Driver(connection, engine.dialect)
        if begin is not None:
            driver.begin(begin)
        yield driver
        driver.commit()
    finally:
        connection.close()


def _wrapped(error: Exception, dialect: Any, *, lost: bool) -> BaseException:  # noqa: ANN401  (a dialect with a driver)
    return DBAPIError.instance(
        None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=lost, dialect=dialect
    )
