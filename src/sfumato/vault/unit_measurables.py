"""Questions about units: distinct and dropped ones, their sizes, and tables derived from units.

A derived table is the union over all units of rows that are made of one unit at a time.  Adding a unit adds its rows,
each with a public non-negative integer weight, and changes no other row.  The rows of a unit weigh at most
``unit_weight`` together, W.  A unit whose rows have the code k in the attribute ``number`` has at most ``rows[k]`` of
them, of weight ``weights[k]`` each.  :class:`sfumato.domain.linked_domain.DerivedTable` checks
``rows[k] weights[k] <= W`` for every k.  The engine holds the bound: it counts at most the greatest of ``rows`` per
unit, and gives all rows of a unit one number.  The domain of the protected table names the description of its derived
tables.  A question about any other table is refused before it is charged.

A unit adds c >= 0 with sum at most W to the weighted cells of a marginal.  So L1 is at most W, and squared L2 at most
W^2, because L2 is at most L1.  Both are reached if all rows are in one cell, and hold for every coarsening.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.linked_domain import DerivedTable
from sfumato.domain.predicate import All, Among, CodeRanges, Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.contingency import check_condition
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError, SizeError
from sfumato.vault.contribution import (
    Groups,
    coarse_cells,
    contribution,
    counted_over_groups,
    group_counts,
    groups_bytes,
    sum_over_groups,
)
from sfumato.vault.measurables import (
    ExactTable,
    IntegerArray,
    Measurable,
    cells,
    digest,
    groups_json,
    named_once,
    public_integers,
    shape_of,
    where_json,
)

_MOST_PASSES = 1000  # over the rows, for distinct units of coarser cells

_MOST_DROPPED = 10**6


@dataclass(frozen=True)
class Dropped(ExactTable):
    """The number of rows that meet ``where`` and exceed the bound on rows of a unit: at most ``most`` per unit.

    The dropped rows of a unit depend on that unit's rows alone.  So one unit adds 0 to ``most``, which is the
    sensitivity.  With ``most`` 1 the answer is the number of units with a dropped row.  Larger numbers of one unit are
    cut to ``most``, so the exact answer is a lower bound.
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

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.most, self.most**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return {"kind": "dropped", "most": self.most, "where": where_json(self.where)}

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return ()

    def moved_to(self, attributes: tuple[str, ...]) -> Dropped:
        """See :class:`ExactTable`."""
        del attributes
        return replace(self, where=None)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        return encoded.dropped(self.most, self.where)


_MOST_BINS = 1000


@dataclass(frozen=True)
class UnitSizes(ExactTable):
    """The number of units by size, in bins that begin at ``starts``; the last bin is open.

    All rows count that the domain does not drop, without any bound on the rows of a unit.  Neighbors: one unit more or
    less.  It has one size, so it is in one bin for any number of rows, and changes the bin of no other unit: L1 and
    squared L2 sensitivity are 1.
    """

    starts: tuple[int, ...]
    of: SizeOf = field(default_factory=SizeOf)
    where: Predicate | None = field(default=None, init=False)  # all rows
    adds_up: ClassVar[bool] = False
    encoded_rows: ClassVar[bool] = False

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        if domain.unit.column is None:
            raise QueryError("every row is a unit of its own here: each has one row", culprit=self)
        for name in self.of.by:
            domain.grouping(name)
        starts = self.starts
        are_integers = all(type(start) is int for start in starts)
        if not are_integers or not 0 < len(starts) <= _MOST_BINS or starts[0] != 1 or sorted({*starts}) != [*starts]:
            raise QueryError(f"sizes of units are in 1 to {_MOST_BINS} bins that begin at 1 and increase", culprit=self)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        del domain
        return 1, 1

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        by = {"by": list(self.of.by), "of": "cells" if self.of.cells else "rows"} if self.of.by else {}
        return {"kind": "unit-sizes", "starts": list(self.starts), **by}

    @property
    def axes(self) -> tuple[str, ...]:
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


_MOST_UNITS = 1 << 40
_LARGEST = 1 << 62


@dataclass(frozen=True)
class DerivedMarginal(ExactTable):
    """Weights of the rows of a derived table by the cells of some of its attributes, flat in C order.

    Neighbors: one unit more or less, in all tables.  The L1 sensitivity is ``of.unit_weight``, the squared L2
    sensitivity its square, as the module says.
    """

    of: DerivedTable
    attributes: tuple[str, ...]
    groups: Groups | None = None
    adds_up: ClassVar[bool] = False

    @property
    def where(self) -> Predicate | None:  # type: ignore[override]
        """The condition: None, because all rows count."""
        return None

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        refuse_other_table(self.of, domain)
        named_once(self.attributes)
        coarse_cells(self.of.domain, self.attributes, self.groups)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.of.unit_weight, self.of.unit_weight**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"attributes": list(self.attributes), "groups": groups_json(self.groups)}
        return {"kind": "derived marginal", "of": derived_json(self.of), **own}

    def table(self) -> DerivedMarginal:
        """See :class:`sfumato.vault.measurables.Measurable`: without groups, unless it would be too large."""
        over_codes = self.groups is not None and not counted_over_groups(self.groups)
        return DerivedMarginal(self.of, self.attributes) if over_codes else self

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        del domain
        return group_counts(table, shape_of(self.of.domain, self.attributes), self.groups)

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`: none of the attributes of the head."""
        return ()

    @property
    def held_bytes(self) -> int:
        """See :class:`ExactTable`."""
        return super().held_bytes + groups_bytes(self.groups)

    def moved_to(self, attributes: tuple[str, ...]) -> DerivedMarginal:
        """See :class:`ExactTable`."""
        del attributes
        return self

    def size(self, domain: Domain) -> int:
        """See :class:`ExactTable`: rows are counted by their number as well, then weighed."""
        del domain
        if counted_over_groups(self.groups):
            return coarse_cells(self.of.domain, self.attributes, self.groups)
        return cells(self.of.domain, self._counted_attributes)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        if counted_over_groups(self.groups):
            return self._count_over_groups(encoded.derived(self.of.name))
        (exact,) = encoded.derived(self.of.name).marginals([self._counted_attributes])
        counts = reveal(exact).reshape(shape_of(self.of.domain, self._counted_attributes))
        axis = self._counted_attributes.index(self.of.number)
        _refuse_many(int(counts.sum()))
        weights = np.array(self.of.weights, dtype=np.int64)
        if self.of.number in self.attributes:
            weighed = counts * weights.reshape([-1 if place == axis else 1 for place in range(counts.ndim)])
        else:
            weighed = np.tensordot(counts, weights, axes=([axis], [0]))
        return Exact(np.ascontiguousarray(weighed, dtype=np.int64).reshape(-1))

    def _count_over_groups(self, encoded: Encoded) -> Exact[Counts]:
        filled = reveal(encoded.groups(self._counted_attributes))
        _refuse_many(int(filled.counts.sum()))
        weights = np.array(self.of.weights, dtype=np.int64)
        numbers = filled.codes[:, self._counted_attributes.index(self.of.number)]
        codes = filled.codes[:, : len(self.attributes)]
        return Exact(sum_over_groups(codes, filled.counts * weights[numbers], self.groups or ()))

    @property
    def _counted_attributes(self) -> tuple[str, ...]:
        return self.attributes if self.of.number in self.attributes else (*self.attributes, self.of.number)


@dataclass(frozen=True, eq=False)
class DerivedDistance(Measurable):
    """L1 distance between such weights and a public integer table ``reference``, shape ``(cells,)``.

    By the triangle inequality its sensitivity is at most the L1 sensitivity of the weights: ``of.unit_weight``.
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

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        del domain
        return self.of.unit_weight, self.of.unit_weight**2

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        own = {"attributes": list(self.attributes), "groups": groups_json(self.groups)}
        return {"kind": "derived distance", "of": derived_json(self.of), **own, "reference": digest(self.reference)}

    def table(self) -> DerivedMarginal:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        return DerivedMarginal(self.of, self.attributes, self.groups).table()

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        del domain
        counts = group_counts(table, shape_of(self.of.domain, self.attributes), self.groups)
        distance: Counts = np.abs(counts - self.reference).sum(keepdims=True)
        return distance


def _refuse_many(rows: int) -> None:
    if rows > _MOST_UNITS:
        raise SizeError("these are more rows than can be weighed without overflow")


def derived_json(table: DerivedTable) -> dict[str, Any]:
    """Return a derived table as JSON values: its description and the weights of its rows."""
    weights = {"whole": table.unit_weight, "weights": list(table.weights), "rows": list(table.rows)}
    return {"name": table.name, "of": table.described, **weights}


def refuse_other_table(table: DerivedTable, domain: Domain) -> None:
    """Refuse a derived table that has other units than the protected table, or another description.

    Raises:
        QueryError: the units or the descriptions differ.
    """
    own, protected = table.domain.unit, domain.unit
    if (own.column, own.schema) != (protected.column, protected.schema) or own.column is None:
        raise QueryError(f"{table.name} is derived of other units than those of this table", culprit=table.name)
    if table.hash not in domain.derives:
        raise QueryError(
            f"{table.name} is described otherwise than what was derived with this table", culprit=table.name
        )


@dataclass(frozen=True)
class Units(ExactTable):
    """Distinct units with a row in each cell of ``by``: both sensitivities are the cells that rows of a unit are in.

    A unit in two cells counts once in each, so counts do not add up, and coarser cells are counted one by one.
    """

    by: tuple[str, ...]
    where: Predicate | None = None
    groups: Groups | None = None
    adds_up: ClassVar[bool] = False

    def check(self, domain: Domain) -> None:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        named_once(self.by)
        coarse_cells(domain, self.by, self.groups)
        check_condition(self.where, domain)
        passes = math.prod(max(group) + 1 for group in self.groups or () if group is not None)
        if passes > _MOST_PASSES:
            raise QueryError(
                f"distinct units of coarser cells are counted in a pass for each, in at most {_MOST_PASSES:,}; group "
                "by a coarser level",
                culprit=self.by,
            )

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        return contribution(domain, self.by, self.groups, self.where).units()

    def canonical(self) -> dict[str, Any]:
        """See :class:`sfumato.vault.measurables.Measurable`."""
        groups = {} if self.groups is None else {"groups": groups_json(self.groups)}
        return {"kind": "units", "by": list(self.by), "where": where_json(self.where), **groups}

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return self.by

    def moved_to(self, attributes: tuple[str, ...]) -> Units:
        """See :class:`ExactTable`."""
        return Units(attributes)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        if self.groups is None:
            return encoded.units(self.by, self.where)
        sides = [
            range(encoded.domain[name].size) if group is None else range(max(group) + 1)
            for name, group in zip(self.by, self.groups, strict=True)
        ]
        counts = np.zeros([len(side) for side in sides], dtype=np.int64)
        finer = tuple(name for name, group in zip(self.by, self.groups, strict=True) if group is None)
        coarser = [(name, group) for name, group in zip(self.by, self.groups, strict=True) if group is not None]
        for cell in product(*(range(max(group) + 1) for _, group in coarser)):
            parts: list[Predicate] = [] if self.where is None else [self.where]
            for (name, group), group_number in zip(coarser, cell, strict=True):
                parts.append(Among(name, CodeRanges.where(np.array(group) == group_number)))
            places = iter(cell)
            at = tuple(slice(None) if group is None else next(places) for group in self.groups)
            inside = counts[at]
            counts[at] = reveal(encoded.units(finer, All(tuple(parts)))).reshape(inside.shape)
        return Exact(counts.reshape(-1))
