"""The connections of a process to the databases of its ledgers: a few at each address, which all its stores share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sfumato.ledger import dbapi
from sfumato.ledger.dbapi import Address, Database, DatabaseError, Driver, NoneLeftError, Postgresql, Sqlite

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
        with self.lent() as driver:
            driver.begin(writing=writing)
            yield driver
            driver.commit()

    @contextmanager
    def lent(self) -> Iterator[Driver]:
        """A connection for a block, outside of any transaction; what was not committed is undone at its end."""
        connection = self._lend()
        try:
            driver = Driver(self.database, connection)
        except BaseException:
            self._close(connection)
            self._less()
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
            for key, found in list(_SHARED.items()):
                if found is self:
                    del _SHARED[key]
        with self._returned:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._close(connection)

    def _lend(self) -> Any:  # noqa: ANN401
        with self._returned:
            if not self._returned.wait_for(lambda: self._idle or self._lent < KEPT + MORE, dbapi.PATIENCE):
                raise NoneLeftError
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is not None and not self.database.answers(connection):
                self._close(connection)
                connection = None
            return self._opened() if connection is None else connection
        except BaseException:
            self._less()
            raise

    def _take_back(self, driver: Driver) -> None:
        try:
            usable = driver.undone()
            with self._returned:
                if usable and len(self._idle) < KEPT:
                    self._idle.append(driver.connection)
                    return
            self._close(driver.connection)
        finally:
            self._less()

    def _less(self) -> None:
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
_LOCK = threading.Lock()


def connections(address: Address, file: Path | None) -> Connections:
    """The connections of this process to an address; who takes them gives them back."""
    key = (address,) if file is None else (file, address.query)
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
        found = os.stat(file)  # noqa: PTH116  (a method less, and every transaction asks twice)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _forget() -> None:
    global _LOCK  # noqa: PLW0603  (another thread of the parent may hold it)
    _LOCK = threading.Lock()
    for found in _SHARED.values():
        _OF_PARENTS.extend(found.idle)
        found.forget()
    _SHARED.clear()


os.register_at_fork(after_in_child=_forget)
