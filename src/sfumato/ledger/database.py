"""Databases under ledgers: addresses, statements in a transaction, and failures as messages of this package.

The drivers are sqlite3 and psycopg, which is loaded at its first use.  Statements are written for both, with
parameters ``:name``.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

from sfumato.errors import InputError, LedgerError, MovedLedgerError, NoLedgerError

_SQLITE = {
    "SQLITE_BUSY": "is locked by another program; close it or try again later",
    "SQLITE_LOCKED": "is locked by another program; close it or try again later",
    "SQLITE_PROTOCOL": "is locked by another program; close it or try again later",
    "SQLITE_READONLY": "is read-only; make its file, its folder, and its files -wal and -shm writable",
    "SQLITE_PERM": "may not be opened; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "cannot be opened; check that its folder exists and is writable",
    "SQLITE_NOTADB": "is not a ledger but some other file; name another one",
    "SQLITE_CORRUPT": "is corrupted; restore it from a copy",
    "SQLITE_FULL": "cannot grow because the disk is full; free some space",
    "SQLITE_IOERR": "cannot be read or written; check the disk",
}
_DISK = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")
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

Values: TypeAlias = Mapping[str, Any]


class DatabaseError(Exception):
    """An error of a driver.

    Attributes:
        origin: the driver's own error.
        lost: true if the connection is lost.
        refused: true if the database refused the written rows, and not the connection.
    """

    def __init__(self, origin: Exception, *, lost: bool, refused: bool) -> None:
        super().__init__(type(origin).__name__)
        self.origin = origin
        self.lost = lost
        self.refused = refused

    @property
    def is_busy(self) -> bool:
        """True if SQLite did not wait for a lock of another process."""
        return self._name.startswith("SQLITE_BUSY")

    @property
    def is_of_other_file(self) -> bool:
        """True if SQLite found a file that is no database."""
        return self._name.startswith("SQLITE_NOTADB")

    @property
    def _name(self) -> str:
        return str(getattr(self.origin, "sqlite_errorname", ""))

    def __str__(self) -> str:
        """Return the reason, as the end of a sentence about the ledger."""
        if self.lost:
            return _LOST
        state = str(getattr(self.origin, "sqlstate", None) or "")
        for code, reasons in ((self._name, _SQLITE), (state, _POSTGRES)):
            for prefix, reason in reasons.items():
                if code.startswith(prefix):
                    return reason
        if self.refused:
            return "refused an entry that would break its rules; verify the journal"
        if not self._name and not state:
            return _UNREACHABLE
        return f"failed ({self._name or state}); nothing was written"


class PoolExhaustedError(Exception):
    """An error because all connections of the process are in use."""

    def __str__(self) -> str:
        return "has all its connections in use; try again later"


class Exhaustion(StrEnum):
    """A condition of a database that operators look for."""

    DISK = "disk-full"
    CONNECTIONS = "too-many-connections"
    MOVED = "ledger-moved"


def exhaustion(error: LedgerError) -> Exhaustion | None:
    """Return the condition that made a ledger fail; None for any other reason."""
    if isinstance(error, MovedLedgerError):
        return Exhaustion.MOVED
    cause = error.__cause__
    if isinstance(cause, PoolExhaustedError):
        return Exhaustion.CONNECTIONS
    if not isinstance(cause, DatabaseError):
        return None
    origin = cause.origin
    name, state = getattr(origin, "sqlite_errorname", ""), getattr(origin, "sqlstate", None)
    if name in _DISK or state == "53100":
        return Exhaustion.DISK
    # libpq refuses a connection with a text and without a state
    crowded = state is None and any(text in str(origin) for text in ("too many c", "connection slots are reserved"))
    return Exhaustion.CONNECTIONS if state == "53300" or crowded else None


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Turn errors of a database into a :class:`LedgerError` about the ledger at ``place``.

    The database's own message is left out, because it may quote the written values.
    """
    try:
        yield
    except (DatabaseError, PoolExhaustedError) as error:
        kind = NoLedgerError if isinstance(error, DatabaseError) and error.is_of_other_file else LedgerError
        raise kind(f"the ledger {place} {error}", culprit=place) from error


PATIENCE = 30  # seconds to wait for a lock
SILENCE = 15  # seconds after which PostgreSQL ends an idle transaction: its process is gone and holds locks
BEGIN_WRITING = "BEGIN IMMEDIATE"  # SQLite takes the write lock now, not when the first row is written

_ADDRESS = re.compile(
    r"(?P<backend>\w+)(?:\+\w+)?://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?@]+))?(?::(?P<port>\d*))?(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?"
)


def file_address(file: Path) -> str:
    """Return the URL of the SQLite database in a file; any characters of its path are escaped.

    >>> file_address(Path("a 10%?.ledger"))
    'sqlite:///a 10%25%3F.ledger'
    """
    return "sqlite:///" + str(file).replace("%", "%25").replace("?", "%3F")


def ledger_url(address: str | Path) -> str:
    """Return the URL of a ledger from its URL or the path of its SQLite file.

    >>> ledger_url("people.ledger"), ledger_url("sqlite:///people.ledger")
    ('sqlite:///people.ledger', 'sqlite:///people.ledger')
    """
    if isinstance(address, str) and ("://" in address or address.partition(":")[0] in ("sqlite", "postgresql", "")):
        return address
    return file_address(Path(address))


@dataclass(frozen=True)
class Address:
    """The address of a database; its text has no password and no query."""

    backend: str
    user: str | None
    password: str | None
    host: str | None
    port: str | None
    database: str | None
    query: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> Address | None:
        """Return the address in a URL; None if it is no address."""
        match = _ADDRESS.fullmatch(url)
        if match is None:
            return None
        parts = {name: None if part is None else unquote(part) for name, part in match.groupdict().items()}
        query = tuple(parse_qsl(match["query"] or "", keep_blank_values=True))
        host, port = parts.pop("ipv6") or parts.pop("host"), parts.pop("port") or None
        user, password = parts["user"], parts["password"]
        return cls(match["backend"], user, password, host, port, parts["database"], query)

    def __str__(self) -> str:
        host = self.host or ""
        port = "" if self.port is None else f":{self.port}"
        password = "" if self.password is None else ":***"
        user = "" if self.user is None else f"{quote(self.user)}{password}@"
        database = "" if self.database is None else f"/{self.database}"
        return f"{self.backend}://{user}{f'[{host}]' if ':' in host else host}{port}{database}"


class Database(Protocol):
    """The operations that differ between the two databases."""

    name: str
    creates: bool

    @property
    def driver(self) -> Any:  # noqa: ANN401  (a module)
        """The driver, with the errors that it raises."""
        ...

    def connect(self) -> Any:  # noqa: ANN401  (the driver's own)
        """Return a new connection, on which only :meth:`begin_transaction` begins a transaction."""
        ...

    def answers(self, connection: Any) -> bool:  # noqa: ANN401
        """Return whether a connection that was idle still works."""
        ...

    def begin_transaction(self, connection: Any, *, writing: bool) -> None:  # noqa: ANN401
        """Begin a transaction; one that only reads sees one state of the database."""
        ...

    def translate(self, statement: str) -> str:
        """Return a statement in the dialect of the database."""
        ...

    def is_lost(self, connection: Any, error: Exception) -> bool:  # noqa: ANN401
        """Return whether the connection is lost."""
        ...


class Sqlite:
    """A SQLite file; ``creates`` is true if connecting may create it."""

    name = "sqlite"
    driver = sqlite3

    def __init__(self, file: Path, *, read_only: bool) -> None:
        self._file = file
        self._read_only = read_only
        self.creates = False

    def connect(self) -> sqlite3.Connection:
        """See :class:`Database`."""
        mode = "ro" if self._read_only else "rwc" if self.creates else "rw"
        place = f"file://{quote(os.fsencode(self._file))}?mode={mode}"  # with an empty host: a path may begin with //
        connection = sqlite3.connect(place, uri=True, timeout=PATIENCE, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def answers(self, connection: sqlite3.Connection) -> bool:
        """Return True: no other process closes a file."""
        del connection
        return True

    def begin_transaction(self, connection: sqlite3.Connection, *, writing: bool) -> None:
        """Begin a transaction, whose first statement fixes the state that it sees."""
        connection.execute(BEGIN_WRITING if writing else "BEGIN")

    def translate(self, statement: str) -> str:
        """Return a statement without its row locks, because there is one writer at a time."""
        return statement.removesuffix(" FOR UPDATE")

    def is_lost(self, connection: sqlite3.Connection, error: Exception) -> bool:
        """Return False: a file is not lost as a connection is."""
        del connection, error
        return False


class Postgresql:
    """A database of a server."""

    name = "postgresql"

    def __init__(self, address: Address) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise LedgerError("a ledger in PostgreSQL needs its driver; install sfumato[postgres]") from error
        self.driver = psycopg
        self.creates = False
        settings = dict(address.query)
        known = {setting.keyword.decode() for setting in psycopg.pq.Conninfo.get_defaults()}
        for name, _ in address.query:
            if name not in known or [each for each, _ in address.query].count(name) > 1:
                raise InputError(
                    f"the address of a ledger in PostgreSQL sets {name!r}, which is no setting of a connection, or "
                    "stands there twice",
                    culprit=name,
                )
        own_options = settings.pop("options", "")  # such as -csearch_path=..., which is kept
        options = (
            f"{own_options} -c lock_timeout={PATIENCE}s -c idle_in_transaction_session_timeout={SILENCE}s "
            "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 "
            "-c synchronous_commit=on -c timezone=UTC"
        )
        named = {
            "user": address.user,
            "password": address.password,
            "host": address.host,
            "port": address.port,
            "dbname": address.database,
        }
        self._parameters: dict[str, Any] = {name: part for name, part in named.items() if part} | settings
        self._parameters |= {"options": options, "connect_timeout": "10", "client_encoding": "UTF8"}

    def connect(self) -> Any:  # noqa: ANN401
        """See :class:`Database`."""
        return self.driver.connect(**self._parameters, autocommit=True)

    def answers(self, connection: Any) -> bool:  # noqa: ANN401
        """Run a statement to see."""
        try:
            connection.execute("SELECT 1", prepare=False)
        except self.driver.Error:
            return False
        return True

    def begin_transaction(self, connection: Any, *, writing: bool) -> None:  # noqa: ANN401
        """Begin a transaction.  By default, each statement of PostgreSQL sees the commits before it."""
        how = "BEGIN" if writing else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        connection.execute(how, prepare=False)

    def translate(self, statement: str) -> str:
        """Return a statement with the parameters of psycopg."""
        return _named(statement)

    def is_lost(self, connection: Any, error: Exception) -> bool:  # noqa: ANN401
        """Return whether the driver found the connection lost."""
        del error
        return bool(connection.closed or connection.broken)


def _named(statement: str) -> str:
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", statement)


class Driver:
    """A connection in one transaction.  Its errors are :class:`DatabaseError`."""

    def __init__(self, database: Database, connection: Any) -> None:  # noqa: ANN401
        self.connection = connection
        self._database = database
        self._lost = False
        self._looked_up: dict[tuple[str, str], tuple[Any, ...] | None] = {}
        self._cursor: Any = self._call(connection.cursor)

    @property
    def database(self) -> str:
        """The name of the database: ``sqlite`` or ``postgresql``."""
        return self._database.name

    def begin_transaction(self, *, writing: bool) -> None:
        """Begin the transaction."""
        self._call(partial(self._database.begin_transaction, self.connection, writing=writing))

    def commit(self) -> None:
        """Make everything durable."""
        self._call(self.connection.commit)

    def close(self) -> None:
        """End the connection if it is open."""
        with suppress(self._database.driver.Error):
            self.connection.close()

    def roll_back(self) -> bool:
        """Undo uncommitted changes, and return whether the connection can still be used."""
        if self._lost:
            return False
        try:
            self.connection.rollback()
        except self._database.driver.Error:
            return False
        return True

    def run(self, statement: str, values: Values | None = None) -> int:
        """Run a statement, and return the number of rows that it changed."""
        translated = self._database.translate(statement)
        self._call(self._cursor.execute, translated, *([values] if values else []))
        return int(self._cursor.rowcount)

    def rows(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        self.run(statement, values)
        return list(self._call(self._cursor.fetchall))

    def records(self, statement: str, values: Values | None = None) -> list[dict[str, Any]]:
        """Return all rows of a query, by the names of their columns."""
        rows = self.rows(statement, values)
        names = [column[0] for column in self._cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def record(self, statement: str, values: Values) -> dict[str, Any] | None:
        """Return the first row, by the names of its columns; None if there is none."""
        return next(iter(self.records(statement, values)), None)

    def first(self, statement: str, key: str) -> tuple[Any, ...] | None:
        """Return the first row of a query by one ``:key``, read once in this transaction; None if there is none."""
        if (statement, key) not in self._looked_up:
            self._looked_up[statement, key] = next(iter(self.rows(statement, {"key": key})), None)
        return self._looked_up[statement, key]

    def value(self, statement: str, values: Values | None = None) -> Any:  # noqa: ANN401  (what stands there)
        """Return the first value of the first row; None if there is none."""
        return next((row[0] for row in self.rows(statement, values)), None)

    def write(self, statement: str, rows: Sequence[Values]) -> None:
        """Run a statement once for each row of values."""
        if rows:
            self._call(self._cursor.executemany, self._database.translate(statement), rows)

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        """Enter rows of the same columns in a table."""
        if rows:
            self.write(_insert(table, tuple(rows[0])), rows)

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what the driver returns)
        """Call the driver; its errors leave as a :class:`DatabaseError`."""
        driver = self._database.driver
        try:
            return function(*arguments)
        except driver.Error as error:
            self._lost = self._lost or self._database.is_lost(self.connection, error)
            refused = isinstance(error, driver.IntegrityError | driver.DataError)
            raise DatabaseError(error, lost=self._lost, refused=refused) from error


def _insert(table: str, columns: tuple[str, ...]) -> str:
    named = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({named})"  # noqa: S608  (names of our own)


def changed(columns: Sequence[str]) -> str:
    """Return the SET clause of an UPDATE of some columns, each by the parameter of its name."""
    return ", ".join(f"{column} = :{column}" for column in columns)
