"""Statements straight to the driver, within a transaction that SQLAlchemy holds.

SQLAlchemy spells each statement once, in the words of the database, and is left out of running it: going through
it costs several times what the database itself needs, and an answered question runs a dozen statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import Connection
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
    """Runs statements in the transaction of a connection.  Errors are those that SQLAlchemy raises."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect: Any = connection.dialect
        self._cursor: Any = connection.connection.cursor()

    def rows(self, statement: ClauseElement, values: Values) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        spelled = _spelled(statement, self._dialect)
        try:
            self._cursor.execute(spelled.text, spelled.arguments(values))
            return list(self._cursor.fetchall())
        except self._dialect.dbapi.Error as error:
            raise self._wrapped(error) from error

    def write(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Run a statement once for each row of values; for none, not at all."""
        if not rows:
            return
        spelled = _spelled(statement, self._dialect)
        try:
            self._cursor.executemany(spelled.text, [spelled.arguments(row) for row in rows])
        except self._dialect.dbapi.Error as error:
            raise self._wrapped(error) from error

    def _wrapped(self, error: Exception) -> BaseException:
        lost = self._dialect.is_disconnect(error, self._connection.connection.driver_connection, self._cursor)
        if lost:  # the pool must not hand it out again
            self._connection.invalidate(error)
        return DBAPIError.instance(
            None, None, error, self._dialect.dbapi.Error, connection_invalidated=lost, dialect=self._dialect
        )
