"""The contract of an engine: an adapter, which opens its tables, and joins for views of several tables.

A :class:`ViewTable` is a view as a table of its own.  A new engine is one folder next to ``duckdb``, and its adapter in
``ADAPTERS`` of :mod:`sfumato.engine.open`.  Its tables implement the protocols of :mod:`sfumato.engine.port`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from sfumato.domain import CsvFormat, Domain
from sfumato.domain.table_schema import SchemaTable
from sfumato.domain.view import BoundedView
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import RowEncoding
from sfumato.engine.port import Column, Profile, ProtectedTable, Recodable
from sfumato.engine.table_files import Content
from sfumato.engine.views.view_sql import ViewEncoding
from sfumato.errors import InputError, TableError

FromTables = TypeVar("FromTables")


class ServedPlaces(Protocol):
    """The places from which a server opens tables, as named by its operator."""

    def names(self, place: str) -> bool:
        """Return whether the operator named a host or a catalog."""
        ...

    def hold(self, path: str) -> bool:
        """Return whether every file behind a path is in a folder that the operator named."""
        ...


class EngineAdapter(ABC):
    """An engine that opens tables.

    An adapter imports its engine when it opens a table, not before.

    Attributes:
        schemes: texts before the first colon of its addresses.
        libraries: packages whose frames it opens.
        extras: the packages that it imports, by the extra that installs them.
        folder: the words of messages for a source of several tables; empty if it opens none.
        joinable_sources: the words of messages for sources whose tables it can join; empty if it cannot join tables.
    """

    schemes: ClassVar[tuple[str, ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    extras: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    folder: ClassVar[str] = ""
    joinable_sources: ClassVar[str] = ""

    def claims(self, source: object) -> bool:
        """Return whether a source is for this engine: an address of its schemes or a frame of its libraries."""
        if isinstance(source, str):
            scheme, colon, _ = source.partition(":")
            return bool(colon) and scheme in self.schemes
        return type(source).__module__.partition(".")[0] in self.libraries

    def extra_for(self, source: object) -> str | None:
        """Return the extra that opens a source, one of ``extras``; None if every installation has what it needs."""
        del source
        return next(iter(self.extras), None)

    @abstractmethod
    def open(self, source: object, csv: CsvFormat | None, *, empty: bool) -> ProtectedTable:
        """Open a table; see :func:`sfumato.engine.open.open_table` for arguments and errors."""

    def place(self, table: SchemaTable, source: str) -> object:
        """Return the place of one table in a source of several tables.

        Raises:
            InputError: the engine opens no such source.
            TableError: the source has no such table, or cannot be read.
        """
        raise InputError(f"{source.partition(':')[0]} opens single tables; name each table of {table.name}'s schema")

    def join(self, tables: Mapping[str, ProtectedTable]) -> JoinEngine | None:
        """Return the engine's join of tables; None if a table belongs to another engine, or the engine joins none."""
        del tables
        return None

    def path(self, source: str) -> str | None:
        """Return the path of the files behind an address; None if there are none."""
        del source
        return None

    def location(self, source: str) -> object:
        """Return server and table of an address in a canonical form; None if the address does not show them."""
        del source
        return None

    def is_several(self, source: str) -> bool:
        """Return whether an address refers to several tables."""
        del source
        return False

    def allowed(self, source: str, places: ServedPlaces) -> bool:
        """Return whether a server may open an address.  The default is never."""
        del source, places
        return False

    def open_copy(self, place: Path, title: str, csv: CsvFormat, *, empty: bool) -> ProtectedTable | None:
        """Open the result of ``write_columns`` at a place; None if another engine wrote it."""
        del place, title, csv, empty
        return None


class JoinEngine(Protocol):
    """The operations of an engine on tables that are joined in it."""

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of the engine."""
        ...

    def columns(self, name: str) -> Mapping[str, Column]:
        """Return the columns of a raw table, by name."""
        ...

    def materialize(self, select: Callable[[str], str], name: str, keys: Sequence[str]) -> str:
        """Store the rows of a query over the raw table ``name``, with look-ups by some columns of text.

        Returns:
            Their FROM clause.
        """
        ...

    def materialize_joined(self, select: str, keys: Sequence[str]) -> str:
        """Store the rows of a query over materialized rows."""
        ...

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a small result."""
        ...

    def with_content(self, make: Callable[[], FromTables]) -> tuple[FromTables, Content]:
        """Make something of the raw tables, and name the content of all of them, both of one state of the tables.

        Raises:
            EngineError: a table was written in the meantime.
        """
        ...

    def ready(self) -> None:
        """Refuse if materialized rows are lost, or if their files were written later.

        Raises:
            EngineError: rows are lost, or files changed; the tables have to be opened again.
        """
        ...

    def encoded(self, encoding: RowEncoding) -> EncodedRows:
        """Return the rows of a view, or of a derived table, bounded."""
        ...


_UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class ViewTable:
    """A view as a :class:`sfumato.engine.port.ProtectedTable`: it has no raw columns, only encoded rows."""

    engine: JoinEngine
    encoding: RowEncoding

    def schema(self) -> tuple[Column, ...]:
        """No columns."""
        return ()

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Return no profiles, because drafts are made from raw tables."""
        del distinct_limit
        return ()

    def values(self, name: str) -> pa.ChunkedArray:
        """Refuse, because a view has no raw column.

        Raises:
            TableError: always.
        """
        raise TableError(f"a view has no raw column {name!r}", culprit=name)

    def distinct_texts(self, name: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Refuse, because a view has no raw column.

        Raises:
            TableError: always.
        """
        del among
        raise TableError(f"a view has no raw column {name!r}", culprit=name)

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Refuse, because a view has no raw column.

        Raises:
            TableError: always.
        """
        del out
        raise TableError("a view has no raw columns to write", culprit=(*attributes, *ids))

    def content(self) -> str:
        """Refuse, because the content of raw tables is named when they are opened.

        Raises:
            TableError: always.
        """
        raise TableError("a view has no content of its own")

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Refuse like :meth:`content`."""
        return self.encode(domain), Content(self.content)

    def encode(self, domain: Domain) -> Recodable:
        """Return all rows of the view under the unit of a domain; without any bound if that unit has no id."""
        if not isinstance(self.encoding, ViewEncoding):
            raise TableError("a derived table is encoded once, by the related tables that it belongs to")
        bounded = self.encoding.bounded
        bounds = domain.unit
        if bounds.column is None and bounded.unit.column is not None:
            bounds = bounded.unit.bounded(rows=_UNBOUNDED, per=())
        return self.engine.encoded(replace(self.encoding, bounded=BoundedView(bounded.view, bounds)))
