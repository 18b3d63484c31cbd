"""Rows that belong to rows of a child table: how many each of these has, and the first, given what is known of it.

Further ones are drawn slot by slot, as those of a unit are.  Of the rows of one unit as many are kept as the schema
bounds, the first in the order of the rows that they belong to, as is counted.  Nothing here reads protected tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.model.factor import FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.child_dates import DAY, Codes
from sfumato.synthesize.linked.child_slots import Slot, stacked
from sfumato.synthesize.linked.conditional_sampling import ConditionalSampler
from sfumato.synthesize.linked.first_child import first_names


@dataclass(frozen=True)
class RowsAbove:
    """The rows of a child table that were drawn, unit by unit, and in each in the order that is counted.

    Attributes:
        unit: of each row.
        place: among its siblings, from 1.
        siblings: how many they are, itself among them.
        known: codes of what is known of it: of its unit, of the rows between, and of itself, with its date.
    """

    unit: Codes
    place: Codes
    siblings: Codes
    known: Mapping[str, Codes]

    @staticmethod
    def of(
        related: LinkedTables, child: ChildTable, slots: Sequence[Slot], head: Mapping[str, Codes], unit: Codes
    ) -> RowsAbove:
        """The rows that were drawn for those of a head, of each of which ``unit`` says whose it is."""
        owner, codes = stacked(slots, [each.name for each in child.table.attributes])
        count = np.bincount(owner, minlength=len(unit))
        first = np.cumsum(count) - count
        known = {each.name: head[each.name][owner] for each in related.evidence(child)}
        known |= {child.named("this", each.name): codes[each.name] for each in child.plain}
        known |= {DAY: codes[child.order]} if child.dated and child.order is not None else {}
        return RowsAbove(unit[owner], np.arange(len(owner)) - first[owner] + 1, count[owner], known)

    def number(self) -> Codes:
        """How many rows the unit of each has."""
        counts: Codes = np.bincount(self.unit)[self.unit] if len(self.unit) else self.unit
        return counts


@dataclass(frozen=True)
class FirstRows:
    """The numbers and first children of rows, to be drawn from the own head of a child table.

    Attributes:
        related: the tables.
        child: whose rows are drawn.
        tail: the model of its own head.
        head: codes of what is known of the rows that they belong to.
    """

    related: LinkedTables
    child: ChildTable
    tail: Graphical
    head: Mapping[str, Codes]

    @staticmethod
    def of(related: LinkedTables, child: ChildTable, model: Graphical, rows: RowsAbove) -> FirstRows:
        """Those of rows that were drawn."""
        above, table = related.above(child), related.opening(child)
        assert above is not None
        assert table is not None
        number = rows.number()
        counted = number - 1 if table.number == above.number else np.searchsorted(np.array(table.rows), number)
        place = np.minimum(rows.place, min(above.most, PLACES + 1)) - 1
        return FirstRows(related, child, model, {**rows.known, table.number: counted, above.place: place})

    @property
    def drawn(self) -> frozenset[str]:
        """How many children, and the attributes of the first."""
        return frozenset(first_names(self.child))

    @property
    def weights(self) -> FloatArray:
        """What each row weighs, in units."""
        table = self.related.opening(self.child)
        assert table is not None
        return np.array(table.weights)[self.head[table.number]] / table.whole

    def first_units(self, many: int) -> FirstRows:
        """The same of the first rows alone."""
        return replace(self, head={name: codes[:many] for name, codes in self.head.items()})

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """All rows, and groups of what is drawn and of what it is drawn by."""
        rows = np.arange(len(self.weights))
        if not len(rows):
            return
        known = {name: codes for name, codes in self.head.items() if name in self.tail.coarsenings}
        found = {name: self.tail.coarsenings[name].groups[codes] for name, codes in known.items()}
        sampler = ConditionalSampler(model.factors, model.sizes, first_names(self.child))
        yield rows, {**found, **sampler.draw(found, len(rows), random)}

    def codes(self, model: GraphicalModel, unit: Codes, random: np.random.Generator) -> dict[str, Codes]:
        """Codes of the own head of the child table, of which each unit has no more rows than the schema bounds.

        Args:
            model: under which they are drawn.
            unit: of each row.
            random: what they are drawn with.
        """
        related, child = self.related, self.child
        found = {name: codes.astype(np.int64) for name, codes in self.head.items()}
        found |= {name: np.zeros(0, dtype=np.int64) for name in first_names(child)}
        for _, groups in self.groups(model, random):
            for name in first_names(child):
                found[name] = np.asarray(self.tail.coarsenings[name].expand(groups[name], random), dtype=np.int64)
        found[child.number] = within(found[child.number], unit, related.most_rows(child))
        return found | weight_classes_of(related, child, found[child.number], unit)


def weight_classes_of(related: LinkedTables, child: ChildTable, numbers: Codes, unit: Codes) -> dict[str, Codes]:
    """The class of all further rows of the unit of each row, given how many rows each has; nothing where none weigh."""
    table = related.tail(child)
    if table is None or table.number != child.rows:
        return {}
    further = np.maximum(numbers - 1, 0)
    counts = np.bincount(unit, weights=further)[unit] if len(unit) else further
    return {child.rows: np.searchsorted(np.array(table.rows), np.maximum(counts, 1)).astype(np.int64)}


def within(numbers: Codes, unit: Codes, most: int) -> Codes:
    """Numbers of children of rows of units, together no more than ``most`` a unit: the last have fewer.

    >>> within(np.array([2, 2, 2, 1]), np.array([0, 0, 0, 1]), 3).tolist()
    [2, 1, 0, 1]
    """
    upto = np.cumsum(numbers)
    start = np.searchsorted(unit, unit)  # where each unit begins
    before = upto - numbers - (upto - numbers)[start]
    kept: Codes = np.clip(most - before, 0, numbers)
    return kept
