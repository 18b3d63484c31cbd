"""Joined tables of one database: their encoded rows, and views of them, in temporary tables of a session."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sfumato.engine.adapter import FromTables, ViewTable
from sfumato.engine.bounding import kept_rows, kept_rows_at_once
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoded import EncodedRows, LaterStore
from sfumato.engine.encoding import RowEncoding, content_of_tables
from sfumato.engine.port import Column
from sfumato.engine.sql.sql_session import DatabaseSession
from sfumato.engine.sql.sql_table import SqlStore, SqlTable, in_one_state
from sfumato.engine.table_files import Content
from sfumato.errors import TableError


class SqlJoin:
    """The :class:`sfumato.engine.adapter.JoinEngine` of this engine.

    Temporary tables belong to a session, so views are made in the session with the encoded tables.
    """

    relation = ""  # a view's query names the encoded tables

    def __init__(self, tables: Mapping[str, SqlTable]) -> None:
        self._tables = tables
        self.title = f"the tables {', '.join(tables)}"
        first = next(iter(tables.values()))
        self._session = first.own_session(self.title)
        self._numbers = itertools.count()
        self._unused: deque[str] = deque()
        weakref.finalize(self, self._session.close)

    @property
    def dialect(self) -> Dialect:
        """The dialect of the database."""
        return self._session.dialect

    def columns(self, name: str) -> Mapping[str, Column]:
        """Return the columns of a raw table."""
        return {column.name: column for column in self._tables[name].schema()}

    def materialize(self, select: Callable[[str], str], name: str, keys: Sequence[str]) -> str:
        """Return a temporary table."""
        return self._made(select(self._tables[name].relation), keys)

    def materialize_joined(self, select: str, keys: Sequence[str]) -> str:
        """Return a temporary table."""
        return self._made(select, keys)

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Fetch all rows at once."""
        return self._session.rows(statement)

    def with_content(self, make: Callable[[], FromTables]) -> tuple[FromTables, Content]:
        """See :class:`sfumato.engine.adapter.JoinEngine`, and :func:`in_one_state`."""
        return in_one_state(self._session, make, self._content)

    def _content(self) -> str:
        return content_of_tables({name: table.content_in(self._session) for name, table in self._tables.items()})

    def ready(self) -> None:
        """See :class:`sfumato.engine.adapter.JoinEngine`: the one session has all tables."""
        self._session.ready()

    def encoded(self, encoding: RowEncoding) -> EncodedRows:
        """Return one more temporary table, made when it is first counted and dropped some time after its result."""
        later = LaterStore(encoding.domain, partial(self._stored, encoding), self.ready)
        return EncodedRows(later, ViewTable(self, encoding))

    def _stored(self, encoding: RowEncoding) -> SqlStore:
        unused = [self._unused.popleft() for _ in range(len(self._unused))]
        self._session.drop(unused)
        name = f"sfumato_view{next(self._numbers)}"
        definition = self._session.dialect.definition(encoding.domain)
        self._session.make(name, self.selected(encoding, ()), definition)
        store = SqlStore(self, encoding, self._session, name)
        weakref.finalize(store, self._unused.append, name)
        return store

    def _made(self, select: str, keys: Sequence[str]) -> str:
        name = f"sfumato_table{next(self._numbers)}"
        self._session.make(name, select, keys=keys)
        return name

    # --- what a view's rows need of their source ----------------------------------------------------------------------

    def raw(self, name: str) -> Column:
        """Refuse, because a view has no raw columns."""
        raise TableError(f"the table has no column {name!r}", culprit=name)

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """See :meth:`SqlTable.selected`."""
        written = kept_rows_at_once if self._session.dialect.common_once else kept_rows
        return written(encoding, self.relation, raw)

    @contextmanager
    def session(self) -> Iterator[DatabaseSession]:
        """Provide the only session."""
        yield self._session
