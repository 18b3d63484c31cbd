"""The database under a ledger: connections, transactions and migrations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from sfumato.errors import InputError, LedgerError, MissingLedgerError
from sfumato.ledger.driver import Driver, transaction
from sfumato.ledger.failures import spoken_plainly
from sfumato.ledger.schema import REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

_PATIENCE = 30  # seconds to wait for a lock
_SILENCE = 15  # seconds for which a transaction may say nothing: its process has vanished, and holds rows that all need
# Of itself, PostgreSQL shows each statement what was committed before it, not before the transaction.
_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
_BEGIN_WRITING = "BEGIN IMMEDIATE"  # SQLite takes the write lock now, not when the first row is written
_FOUNDING_LOCK = 0x5F0_3A70  # any number that no other program in the database uses


class Store:
    """A SQLite file or a PostgreSQL database that holds ledgers.

    SQLite runs in WAL mode with full sync, and a write transaction takes the write lock at its start.

    Raises:
        InputError: the address is not ``sqlite:///file`` or ``postgresql://...``.
    """

    def __init__(self, url: str) -> None:
        address = _address(url)
        self.place = address.set(drivername=address.get_backend_name(), query={}).render_as_string(hide_password=True)
        self._file = address.database if address.get_backend_name() == "sqlite" else None
        self._snapshot: dict[str, Any] = {} if self._file else _SNAPSHOT
        with spoken_plainly(self.place):
            self.engine = _sqlite(address) if self._file else _postgresql(address)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads, all of it from the state at its first statement."""
        with (
            spoken_plainly(self.place),
            self.engine.connect() as connection,
            connection.execution_options(**self._snapshot).begin(),
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is durable when the block ends, and leaves no trace if it raises."""
        with (
            spoken_plainly(self.place),
            self.engine.connect() as connection,
            connection.execution_options(writing=True).begin(),
        ):
            yield connection

    @contextmanager
    def committing(self) -> Iterator[Driver]:
        """A transaction like that of :meth:`writing`, straight through the driver."""
        with (
            spoken_plainly(self.place),
            transaction(self.engine, begin=_BEGIN_WRITING if self._file else None) as driver,
        ):
            yield driver

    @contextmanager
    def founding(self) -> Iterator[Connection]:
        """A write transaction that no other of its kind overlaps: for making what must be made once."""
        with self.writing() as connection:
            if not self._file:  # SQLite has one writer at a time anyhow
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _FOUNDING_LOCK})
            yield connection

    def prepare(self, *, create: bool) -> None:
        """Bring the tables up to date; with ``create``, make them where there are none.

        Raises:
            LedgerError: there is no ledger and none is to be created, the database holds something else,
                or it was written by a newer version.
        """
        if self._file and not create and not self._file.startswith("file:") and not Path(self._file).exists():
            raise MissingLedgerError(
                f"there is no ledger at {self.place}; name a limit to make one", culprit=self.place
            )
        revision = self._revision()
        if revision == REVISION:
            return
        if revision is None and not create:
            raise MissingLedgerError(
                f"there is no ledger at {self.place}; name a limit to make one", culprit=self.place
            )
        if self._file:
            self._use_write_ahead_log()
        migrations = self._migrations()  # before the lock: importing Alembic takes long where the machine is busy
        with self.founding() as connection:
            if self._revision_in(connection) != REVISION:  # nobody was faster
                self._migrate(connection, migrations)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _revision(self) -> str | None:
        with self.reading() as connection:
            return self._revision_in(connection)

    def _revision_in(self, connection: Connection) -> str | None:
        tables = inspect(connection).get_table_names()
        if VERSION_TABLE in tables:
            return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608
        if self._file and tables:
            raise LedgerError(f"{self.place} is a database but not a ledger; name another file", culprit=self.place)
        return None

    def _use_write_ahead_log(self) -> None:
        # SQLite does not wait for the lock that this change takes, so that we must
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with spoken_plainly(self.place), self.engine.connect() as connection:
                    driver: Any = connection.connection.driver_connection
                    driver.execute("PRAGMA journal_mode = WAL")
                    return
            except LedgerError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrations(self) -> Config:
        from alembic import command  # noqa: F401  # imported now and not under the lock
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        return config

    def _migrate(self, connection: Connection, migrations: Config) -> None:
        from alembic import command
        from alembic.util import CommandError

        migrations.attributes["connection"] = connection
        try:
            command.upgrade(migrations, "head")
        except CommandError as error:
            raise LedgerError(
                f"the ledger {self.place} was written by a newer version; update Sfumato", culprit=self.place
            ) from error


def _address(url: str) -> URL:
    try:
        address = make_url(url)
    except ArgumentError:
        raise InputError(f"{url!r} is no address of a ledger; use sqlite:///FILE or postgresql://...") from None
    backend = address.get_backend_name()
    if backend == "sqlite" and address.database and address.database != ":memory:":
        return address
    if backend == "postgresql":
        return address.set(drivername="postgresql+psycopg")
    raise InputError(f"a ledger lives in sqlite:///FILE or postgresql://..., not in {backend}", culprit=url)


def _sqlite(address: URL) -> Engine:
    engine = create_engine(address, connect_args={"timeout": _PATIENCE, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:  # noqa: ANN401  # the driver's own
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql(_BEGIN_WRITING if writing else "BEGIN")

    return engine


def _postgresql(address: URL) -> Engine:
    asked = address.query.get("options", "")  # such as -csearch_path=..., which is kept
    options = (
        f"{asked} -c lock_timeout={_PATIENCE}s -c idle_in_transaction_session_timeout={_SILENCE}s "
        "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 "
        "-c synchronous_commit=on -c timezone=UTC"
    )
    try:
        return create_engine(address, pool_pre_ping=True, connect_args={"connect_timeout": 10, "options": options})
    except ImportError as error:
        raise LedgerError("a ledger in PostgreSQL needs its driver; pip install 'sfumato[postgres]'") from error
