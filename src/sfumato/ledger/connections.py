"""The connections of a process to the databases under its ledgers: few, and shared by all ledgers at one address."""

from __future__ import annotations

import os
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool, QueuePool

from sfumato.errors import LedgerError

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
