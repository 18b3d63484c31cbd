"""What can be measured of tables that are derived from whole units, whose rows have public weights.

A derived table is the union over all units of rows that are made of one unit at a time.  Adding a unit adds its rows,
each with a non-negative integer weight, and changes no other.  They weigh at most ``whole`` together, W: a unit whose
rows have the code k in the attribute ``number`` has at most ``rows[k]`` of them, of weight ``weights[k]`` each, and
``rows[k] weights[k] <= W`` for every k, which :class:`sfumato.domain.related_tables.DerivedTable` checks.  That holds
whether these rows are of one family or of several, as those of children of children are.  The bound on
rows is held by the engine, which counts at most the greatest of ``rows`` a unit, and the number of a unit is one for
all of its rows.  That holds of the rows that the engine derived: the domain of the protected table names their
description, and a question of any other is refused before it is charged.

So what a unit adds to the weighted cells of a marginal is c >= 0 with sum at most W: L1 at most W, and as L2 is at most
L1, squared L2 at most W^2; both are reached where all rows are in one cell, and hold for every coarsening.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.related_tables import DerivedTable
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError, SizeError
from sfumato.vault.contribution import Groups
from sfumato.vault.measurables import (
    ExactTable,
    IntegerArray,
    Measurable,
    cells,
    coarse_cells,
    coarsen,
    digest,
    groups_json,
    named_once,
    public_integers,
    shape_of,
)

_MOST_UNITS = 1 << 40
_LARGEST = 1 << 62


@dataclass(frozen=True)
class DerivedMarginal(ExactTable):
    """Weights of the rows of a derived table by the cells of some of its attributes, flat in C order.

    Neighbours: one unit more or less, in all tables.  L1 sensitivity is ``of.whole``, squared L2 its square, as the
    module says.
    """

    of: DerivedTable
    attributes: tuple[str, ...]
    groups: Groups | None = None
    adds_up: ClassVar[bool] = False

    @property
    def where(self) -> Predicate | None:  # type: ignore[override]
        """All rows."""
        return None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        refuse_other_table(self.of, domain)
        named_once(self.attributes)
        coarse_cells(self.of.domain, self.attributes, self.groups)

    def _moves(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.of.whole, self.of.whole**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"attributes": list(self.attributes), "groups": groups_json(self.groups)}
        return {"kind": "derived marginal", "of": derived_json(self.of), **own}

    def table(self) -> DerivedMarginal:
        """See :class:`sfumato.vault.measurables.Measurable`: without groups."""
        return self if self.groups is None else DerivedMarginal(self.of, self.attributes)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        del domain
        return coarsen(table, shape_of(self.of.domain, self.attributes), self.groups)

    @property
    def over(self) -> tuple[str, ...]:
        """See :class:`ExactTable`: none of the attributes of the head."""
        return ()

    def moved_to(self, attributes: tuple[str, ...]) -> DerivedMarginal:
        """See :class:`ExactTable`."""
        del attributes
        return self

    def size(self, domain: Domain) -> int:
        """See :class:`ExactTable`: rows are counted by their number as well, then weighed."""
        del domain
        return cells(self.of.domain, self._counted)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        (exact,) = encoded.derived(self.of.name).marginals([self._counted])
        counts = reveal(exact).reshape(shape_of(self.of.domain, self._counted))
        axis = self._counted.index(self.of.number)
        if int(counts.sum()) > _MOST_UNITS:
            raise SizeError("these are more rows than can be weighed without overflow")
        weights = np.array(self.of.weights, dtype=np.int64)
        if self.of.number in self.attributes:
            weighed = counts * weights.reshape([-1 if place == axis else 1 for place in range(counts.ndim)])
        else:
            weighed = np.tensordot(counts, weights, axes=([axis], [0]))
        return Exact(np.ascontiguousarray(weighed, dtype=np.int64).reshape(-1))

    @property
    def _counted(self) -> tuple[str, ...]:
        return self.attributes if self.of.number in self.attributes else (*self.attributes, self.of.number)


@dataclass(frozen=True, eq=False)
class DerivedDistance(Measurable):
    """L1 distance between such weights and a public integer table ``reference``, shape ``(cells,)``.

    By the triangle inequality it moves by at most what a unit adds in L1: sensitivity ``of.whole``.
    """

    of: DerivedTable
    attributes: tuple[str, ...]
    reference: IntegerArray
    groups: Groups | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        refuse_other_table(self.of, domain)
        named_once(self.attributes)
        size = coarse_cells(self.of.domain, self.attributes, self.groups)
        if self.reference.shape != (size,):
            raise QueryError(f"the distance is to a flat table of {size} integers", culprit=self.attributes)
        public_integers(self.reference, size)

    def _moves(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.of.whole, self.of.whole**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"attributes": list(self.attributes), "groups": groups_json(self.groups)}
        return {"kind": "derived distance", "of": derived_json(self.of), **own, "reference": digest(self.reference)}

    def table(self) -> DerivedMarginal:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return DerivedMarginal(self.of, self.attributes)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        del domain
        counts = coarsen(table, shape_of(self.of.domain, self.attributes), self.groups)
        distance: Counts = np.abs(counts - self.reference).sum(keepdims=True)
        return distance


def derived_json(table: DerivedTable) -> dict[str, Any]:
    """A derived table as JSON values: what its rows are made of, and their weights."""
    weights = {"whole": table.whole, "weights": list(table.weights), "rows": list(table.rows)}
    return {"name": table.name, "of": table.described, **weights}


def refuse_other_table(table: DerivedTable, domain: Domain) -> None:
    """Refuse a table that is derived of other units than those of the protected table, or otherwise than it says.

    Raises:
        QueryError: it is.
    """
    own, protected = table.domain.unit, domain.unit
    if (own.column, own.schema) != (protected.column, protected.schema) or own.column is None:
        raise QueryError(f"{table.name} is derived of other units than those of this table", culprit=table.name)
    if table.hash not in domain.derives:
        raise QueryError(
            f"{table.name} is described otherwise than what was derived with this table", culprit=table.name
        )
