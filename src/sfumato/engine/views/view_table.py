"""A view as a table of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from sfumato.domain import Domain
from sfumato.domain.view import BoundedView
from sfumato.engine.adapter import JoinEngine
from sfumato.engine.encoding import RowEncoding
from sfumato.engine.port import Column, Content, Profile, Recodable
from sfumato.engine.views.view_sql import ViewEncoding
from sfumato.errors import TableError

_UNBOUNDED = 1 << 40


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
