"""What an engine does for tables that are joined in it, and a view as a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from sfumato.domain import Domain
from sfumato.domain.view import BoundedView
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import RowEncoding
from sfumato.engine.port import Column, Content, Profile, Recodable
from sfumato.engine.views.view_sql import ViewEncoding
from sfumato.errors import TableError

_UNBOUNDED = 1 << 40
FromTables = TypeVar("FromTables")


class JoinEngine(Protocol):
    """What an engine does for tables that are joined in it."""

    @property
    def dialect(self) -> Dialect:
        """How it writes SQL."""
        ...

    def columns(self, name: str) -> Mapping[str, Column]:
        """The columns of a raw table, by name."""
        ...

    def keep(self, select: Callable[[str], str], name: str, keys: Sequence[str]) -> str:
        """Keep the rows of a query over the raw table ``name``, which are looked up by some columns of text.

        Returns:
            What stands after FROM for them.
        """
        ...

    def keep_joined(self, select: str, keys: Sequence[str]) -> str:
        """Keep the rows of a query over what is kept."""
        ...

    def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """The rows of a small result."""
        ...

    def with_content(self, make: Callable[[], FromTables]) -> tuple[FromTables, Content]:
        """Make something of the raw tables, and name the content of all of them, both of one state of the tables.

        Raises:
            EngineError: a table was written meanwhile.
        """
        ...

    def ready(self) -> None:
        """Refuse where what is kept is lost, or of files that were written since.

        Raises:
            EngineError: so it is; the tables have to be opened again.
        """
        ...

    def encoded(self, encoding: RowEncoding) -> EncodedRows:
        """The rows of a view, or of a derived table, bounded."""
        ...


@dataclass(frozen=True)
class ViewTable:
    """Implements :class:`sfumato.engine.port.ProtectedTable` over a view: it has no raw columns, only encoded rows."""

    engine: JoinEngine
    encoding: RowEncoding

    def schema(self) -> tuple[Column, ...]:
        """None."""
        return ()

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Nothing: drafts are made of raw tables."""
        del distinct_limit
        return ()

    def values(self, name: str) -> pa.ChunkedArray:
        """None.

        Raises:
            TableError: always.
        """
        raise TableError(f"a view has no raw column {name!r}", culprit=name)

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Refuse: there is no raw column.

        Raises:
            TableError: always.
        """
        del out
        raise TableError("a view has no raw columns to write", culprit=(*attributes, *ids))

    def content(self) -> str:
        """Refuse: the content of raw tables is named where they are opened.

        Raises:
            TableError: always.
        """
        raise TableError("a view has no content of its own")

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Refuse, as :meth:`content` does."""
        return self.encode(domain), Content(self.content)

    def encode(self, domain: Domain) -> Recodable:
        """All rows of the view under the unit of a domain; without one no bound takes any of them away."""
        if not isinstance(self.encoding, ViewEncoding):
            raise TableError("a derived table is encoded once, by the related tables that it belongs to")
        bounded = self.encoding.bounded
        bounds = domain.unit if domain.unit.column is not None else bounded.unit.bounded(rows=_UNBOUNDED, per=())
        return self.engine.encoded(replace(self.encoding, bounded=BoundedView(bounded.view, bounds)))
