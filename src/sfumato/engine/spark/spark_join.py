"""Joined tables of Spark: their encoded rows, and views of these, cached by the executors."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sfumato.engine.adapter import FromTables, ViewTable
from sfumato.engine.bounding import kept_rows
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoded import EncodedRows, LaterStore
from sfumato.engine.encoding import RowEncoding, content_of_tables
from sfumato.engine.port import Column
from sfumato.engine.spark.spark_session import DIALECT, translating
from sfumato.engine.spark.spark_table import SparkStore, SparkTable, drop_view
from sfumato.engine.table_files import Content
from sfumato.errors import EngineError, TableError

_numbers = itertools.count()  # unique in this process, because views of a session share their names


class SparkJoin:
    """The :class:`sfumato.engine.adapter.JoinEngine` of this engine."""

    relation = ""  # a view's query names the encoded tables

    def __init__(self, tables: Mapping[str, SparkTable]) -> None:
        self._tables = tables
        self.title = f"the tables {', '.join(tables)}"
        self.spark = next(iter(tables.values())).spark
        with translating(self.spark, self.title):
            self._stamps = self.stamps()

    @property
    def dialect(self) -> Dialect:
        """The dialect of Spark."""
        return DIALECT

    def columns(self, name: str) -> Mapping[str, Column]:
        """Return the columns of a raw table."""
        return {column.name: column for column in self._tables[name].schema()}

    def materialize(self, select: Callable[[str], str], name: str, keys: Sequence[str]) -> str:
        """Return a cached frame under a new name."""
        return self.materialize_joined(select(self._tables[name].relation), keys)

    def materialize_joined(self, select: str, keys: Sequence[str]) -> str:
        """Return a cached frame under a new name; joins are by hash."""
        del keys
        name = f"sfumato_table_{next(_numbers)}"
        with translating(self.spark, self.title):
            frame = self._cached(select)
            frame.createOrReplaceTempView(name)
        weakref.finalize(self, drop_view, self.spark, name, frame)
        return name

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Fetch all rows at once."""
        with translating(self.spark, self.title):
            return [tuple(row) for row in self.spark.sql(statement).collect()]

    def with_content(self, make: Callable[[], FromTables]) -> tuple[FromTables, Content]:
        """See :class:`sfumato.engine.adapter.JoinEngine`; the files did not change in the meantime."""
        made = make()
        content = content_of_tables({name: table.content() for name, table in self._tables.items()})
        self.ready()
        return made, Content(lambda: content)

    def ready(self) -> None:
        """See :class:`sfumato.engine.adapter.JoinEngine`."""
        with translating(self.spark, self.title):
            written = self.stamps() != self._stamps
        if written:
            raise EngineError(f"{self.title} were written since they were encoded; open them again")

    def encoded(self, encoding: RowEncoding) -> EncodedRows:
        """Return one more cached frame, made when it is first counted and dropped with the result."""
        self.ready()
        later = LaterStore(encoding.domain, partial(self._stored, encoding), self.ready)
        return EncodedRows(later, ViewTable(self, encoding))

    def _stored(self, encoding: RowEncoding) -> SparkStore:
        self.ready()
        with translating(self.spark, self.title):
            frame = self._cached(self.selected(encoding, ()))
        return SparkStore(self, encoding, frame, self._stamps)

    def _cached(self, select: str) -> Any:  # noqa: ANN401 - a frame of Spark
        # Spark would share the cache of an equal plan, and drop it with the other frame
        frame = self.spark.sql(select).where(f"{next(_numbers)} >= 0").persist()
        frame.count()
        return frame

    # --- what a view's rows need of their source ----------------------------------------------------------------------

    def stamps(self) -> list[tuple[str, int, int]]:
        """Return the stamps of all files."""
        return [stamp for table in self._tables.values() for stamp in table.stamps()]

    def raw(self, name: str) -> str:
        """Refuse, because a view has no raw columns."""
        raise TableError(f"the table has no column {name!r}", culprit=name)

    def selected(self, encoding: RowEncoding, raw: Sequence[str]) -> str:
        """See :meth:`SparkTable.selected`."""
        return kept_rows(encoding, self.relation, raw)
