"""What can be measured of the bound on a unit's rows: how many rows it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.engine.contingency import check_condition
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError
from sfumato.vault.measurables import ExactTable, where_json

_MOST_DROPPED = 10**6


@dataclass(frozen=True)
class Dropped(ExactTable):
    """How many rows the bound on rows of a unit leaves out, of those that meet ``where``: at most ``most`` of one unit.

    Which rows of a unit are left out depends on that unit's rows alone, so adding or removing one unit adds or removes
    its own: from none up to ``most``, which is the sensitivity.  With ``most`` 1 it counts the units of which a row is
    left out.  Numbers beyond ``most`` are cut off, so the exact answer is the least that were left out.
    """

    most: int
    where: Predicate | None = None
    adds_up: ClassVar[bool] = False
    encoded_rows: ClassVar[bool] = False

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        if domain.unit.column is None:
            raise QueryError("every row is a unit of its own here, so none is dropped by a bound", culprit=self)
        if isinstance(self.most, bool) or not isinstance(self.most, int) or not 0 < self.most <= _MOST_DROPPED:
            raise QueryError(
                f"of one unit at most 1 to {_MOST_DROPPED:,} dropped rows are counted, a whole number",
                culprit=self.most,
            )
        check_condition(self.where, domain)

    def _moves(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.most, self.most**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return {"kind": "dropped", "most": self.most, "where": where_json(self.where)}

    @property
    def over(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return ()

    def moved_to(self, attributes: tuple[str, ...]) -> Dropped:
        """See :class:`ExactTable`."""
        del attributes
        return replace(self, where=None)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.dropped(self.most, self.where)
