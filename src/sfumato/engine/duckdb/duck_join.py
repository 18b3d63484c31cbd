"""Joined tables of DuckDB: their encoded rows, and views of these, in the database that a process shares."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sfumato.engine.adapter import FromTables, ViewTable
from sfumato.engine.dialect import Dialect
from sfumato.engine.duckdb.duck_session import DIALECT
from sfumato.engine.duckdb.duck_table import DuckStore, DuckTable
from sfumato.engine.encoded import EncodedRows, LaterStore
from sfumato.engine.encoding import RowEncoding, content_of_tables
from sfumato.engine.port import Column
from sfumato.engine.table_files import Content, Stamps
from sfumato.errors import EngineError


class DuckJoin:
    """The :class:`sfumato.engine.adapter.JoinEngine` of this engine."""

    format = None  # a view's query reads codes, no text

    def __init__(self, tables: Mapping[str, DuckTable]) -> None:
        self._tables = tables
        self._session = next(iter(tables.values())).session
        self._stamps = {name: table.source.stamps() for name, table in tables.items()}

    @property
    def dialect(self) -> Dialect:
        """The dialect of DuckDB."""
        return DIALECT

    def columns(self, name: str) -> Mapping[str, Column]:
        """Return the columns of a raw table."""
        return {column.name: column for column in self._tables[name].schema()}

    def materialize(self, select: Callable[[str], str], name: str, keys: Sequence[str]) -> str:
        """Return a table of the database, dropped with this object; joins are by hash."""
        del keys
        table = self._tables[name]
        with table.reading() as cursor:
            return self._made(cursor, select(table.source.relation(cursor)))

    def materialize_joined(self, select: str, keys: Sequence[str]) -> str:
        """Return a table of the database, dropped with this object; joins are by hash."""
        del keys
        with self._session.cursor(self.title) as cursor:
            return self._made(cursor, select)

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Fetch all rows at once."""
        with self._session.cursor(self.title) as cursor:
            return list(cursor.sql(statement).fetchall())

    def with_content(self, make: Callable[[], FromTables]) -> tuple[FromTables, Content]:
        """See :class:`sfumato.engine.adapter.JoinEngine`; the files did not change in the meantime."""
        made = make()
        contents = {name: table.content_while(self.ready) for name, table in self._tables.items()}
        self.ready()
        files = content_of_tables({name: each.files for name, each in contents.items()})
        return made, Content(
            lambda: content_of_tables({name: each.name for name, each in contents.items()}), files=files
        )

    def ready(self) -> None:
        """See :class:`sfumato.engine.adapter.JoinEngine`."""
        self._session.refuse_lost(self.title)
        self._refuse_written()

    def encoded(self, encoding: RowEncoding) -> EncodedRows:
        """Return one more table of the database, made when it is first counted and dropped with the result.

        No rows of a view are cached in this process, because the limit of DuckDB's memory would not hold for them.
        """
        self.ready()
        return EncodedRows(
            LaterStore(encoding.domain, partial(self._stored, encoding), self.ready), ViewTable(self, encoding)
        )

    def _stored(self, encoding: RowEncoding) -> DuckStore:
        self._refuse_written()
        table = DuckTable(self, self._session)
        name = self._session.fresh_name()
        with table.reading() as cursor:
            table.store(cursor, encoding, name, ())
        return DuckStore(table, encoding, name, self.stamps())

    # --- what a table needs of its source -----------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The titles of all tables."""
        return f"the tables {', '.join(self._tables)}"

    @property
    def form(self) -> str:
        """The empty text, because it has no bytes of its own."""
        return ""

    @property
    def headers(self) -> Mapping[str, str]:
        """No headers, because it has no columns of its own."""
        return {}

    def relation(self, connection: Any) -> str:  # noqa: ANN401, ARG002 - part of the protocol
        """Return nothing to read: a view's query names the encoded tables."""
        return ""

    def stamps(self) -> Stamps:
        """Return the stamps of all files."""
        return tuple(stamp for table in self._tables.values() for stamp in table.source.stamps())

    def _refuse_written(self) -> None:
        """Refuse if a file was written since its rows were encoded.

        Raises:
            EngineError: a file was written.
        """
        for name, table in self._tables.items():
            if table.source.stamps() != self._stamps[name]:
                raise EngineError(f"{table.source.title} was written since it was encoded; open it again", culprit=name)

    def _made(self, cursor: Any, select: str) -> str:  # noqa: ANN401 - a duckdb connection, imported lazily
        name = self._session.fresh_name()
        cursor.execute(f"CREATE TABLE {name} AS {select}")
        weakref.finalize(self, self._session.drop, name)
        return name
