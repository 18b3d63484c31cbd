"""What can be measured of the sizes of units: how many of them have how many rows or groups, before any bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError
from sfumato.vault.measurables import ExactTable

_MOST_BINS = 1000


@dataclass(frozen=True)
class UnitSizes(ExactTable):
    """Units by their size, in bins that begin at ``starts``, the last one open: by their number of rows, or by groups.

    Rows are those that the domain does not drop, without any bound on the rows of a unit.  Neighbours: one unit more or
    less.  It has one size, so it is in one bin, whatever its rows, and changes nobody else's: L1 and squared L2
    sensitivity are 1.
    """

    starts: tuple[int, ...]
    of: SizeOf = field(default_factory=SizeOf)
    where: Predicate | None = field(default=None, init=False)  # of all rows
    adds_up: ClassVar[bool] = False
    encoded_rows: ClassVar[bool] = False

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        if domain.unit.column is None:
            raise QueryError("every row is a unit of its own here: each has one row", culprit=self)
        for name in self.of.by:
            domain.grouping(name)
        starts = self.starts
        whole = all(type(start) is int for start in starts)
        if not whole or not 0 < len(starts) <= _MOST_BINS or starts[0] != 1 or sorted({*starts}) != [*starts]:
            raise QueryError(f"sizes of units are in 1 to {_MOST_BINS} bins that begin at 1 and increase", culprit=self)

    def _moves(self, domain: Domain) -> tuple[int, int]:
        del domain
        return 1, 1

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        by = {"by": list(self.of.by), "of": "cells" if self.of.cells else "rows"} if self.of.by else {}
        return {"kind": "unit-sizes", "starts": list(self.starts), **by}

    @property
    def over(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return ()

    @property
    def width(self) -> int:
        """See :class:`ExactTable`."""
        return len(self.starts)

    def moved_to(self, attributes: tuple[str, ...]) -> UnitSizes:
        """See :class:`ExactTable`."""
        del attributes
        return self

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.unit_sizes(self.starts, self.of)
