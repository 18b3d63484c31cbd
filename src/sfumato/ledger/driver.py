"""Statements and transactions straight to the driver.

SQLAlchemy keeps the connections, and spells each statement once, in the words of the database.  It is left out of
running them: going through it costs several times what the database itself needs, and an answered question runs a
dozen statements in two transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

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
def transaction(engine: Engine, *, begin: str | None) -> Iterator[Driver]:
    """A transaction that is durable when the block ends, and leaves no trace if it raises.

    Args:
        engine: whose pool lends the connection, and rolls back what was not committed when it gets it back.
        begin: the statement that begins it; None where the driver does so by itself.
    """
    dialect: Any = engine.dialect
    try:
        connection = engine.raw_connection()
    except dialect.loaded_dbapi.Error as error:
        raise _wrapped(error, dialect, lost=False) from error
    try:
        driver = Driver(connection, dialect)
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
