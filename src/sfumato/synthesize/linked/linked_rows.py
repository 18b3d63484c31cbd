"""The children of units, drawn table by table, and all of them as tables with fresh keys, in the types of the schema.

Each table is drawn after the table that its rows belong to.

Bounds by groups that the schema declares keep the first rows of a unit in each cell.  The rows are synthetic, so this
is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.domain.table_schema import SchemaTable
from sfumato.domain.unit import GroupBound
from sfumato.errors import DomainError
from sfumato.model.factor import FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.child_dates import DAY, Codes
from sfumato.synthesize.linked.child_slots import ChildSlots, Slot, calibrated, stacked
from sfumato.synthesize.linked.conditional_sampling import ConditionalSampler
from sfumato.synthesize.linked.first_child import first_names
from sfumato.synthesize.product import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def linked_rows(
    related: LinkedTables,
    head: Mapping[str, Codes],
    children: Mapping[str, Sequence[Slot]],
    random: np.random.Generator,
) -> dict[str, pa.Table]:
    """The tables by name.  Units are numbered from 1, in the random order in which they were drawn.

    Args:
        related: the tables.
        head: codes of the units, by attribute of the head.
        children: of each child table, slot by slot, the rows above that have a child there and its codes.
        random: what values within a cell are drawn with.
    """
    import pyarrow as pa

    tables: dict[str, pa.Table] = {}
    parent = related.parent
    if parent is not None:
        units = len(next(iter(head.values())))
        keys = pa.table({parent.key or related.schema.id: np.arange(1, units + 1)})
        codes = {each.name: head[f"{parent.name}.{each.name}"] for each in parent.attributes}
        tables[parent.name] = _beside(keys, _typed(parent, codes, random))
    for child in related.children:
        table = child.table
        rows, codes = stacked(children[table.name], [each.name for each in table.attributes])
        of_unit = table.unit if table.unit is not None else table.through.column if table.through else related.schema.id
        keys = {} if table.key is None else {table.key: np.arange(1, len(rows) + 1)}
        typed = _in_order(child, rows, codes, _typed(table, codes, random))
        tables[table.name] = _beside(pa.table({**keys, of_unit: rows + 1}), typed)
    return tables


def _typed(table: SchemaTable, codes: Mapping[str, Codes], random: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    if not table.attributes:
        return pa.table({})
    domain = Domain(table.attributes)
    kind = np.min_scalar_type(max(domain.shape) - 1)
    return to_arrow(domain, np.column_stack([codes[name].astype(kind) for name in domain.names]), random)


def _beside(keys: pa.Table, attributes: pa.Table) -> pa.Table:
    for name in attributes.column_names:
        keys = keys.append_column(name, attributes.column(name))
    return keys


def _in_order(child: ChildTable, rows: Codes, codes: Mapping[str, Codes], typed: pa.Table) -> pa.Table:
    """The same rows with the values of the ordering attribute in order, where several of a unit share a cell."""
    import pyarrow as pa

    if child.order is None or child.dated or not len(rows):  # a date is the first day of its cell
        return typed
    held = codes[child.order]
    values = typed.column(child.order).combine_chunks()
    numbers: NDArray[np.float64] = np.asarray(values.cast(pa.int64(), safe=False).fill_null(0), dtype=np.float64)
    if pa.types.is_floating(values.type):
        numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
    run = np.cumsum(np.concatenate([[0], (np.diff(rows) != 0) | (np.diff(held) != 0)]))
    order = np.lexsort((-numbers if child.falling else numbers, run))
    place = typed.column_names.index(child.order)
    return typed.set_column(place, typed.field(child.order), values.take(pa.array(order)))


@dataclass(frozen=True)
class DrawnChildren:
    """What was drawn of every child table, by its name.

    Attributes:
        slots: slot by slot the rows of its head that have a child there, and codes of the child.
        heads: codes of the rows of its head, by attribute: of the head of the units, or of its own.
        notes: what a reader has to know of them.
    """

    slots: Mapping[str, Sequence[Slot]]
    heads: Mapping[str, Mapping[str, Codes]]
    notes: tuple[str, ...] = ()


def drawn_children(
    related: LinkedTables,
    units: Mapping[str, Codes],
    models: Mapping[str, Graphical],
    random: np.random.Generator,
    *,
    times: int,
    some: int,
) -> DrawnChildren:
    """Draw the children of units from the models of what is derived.

    Args:
        related: the tables.
        units: codes of the head of the units, by attribute.
        models: by the name of what is derived.
        random: what they are drawn with.
        times: how often what is drawn is compared with what was measured.
        some: rows for which it is drawn then, at most.
    """
    slots: dict[str, list[Slot]] = {}
    heads: dict[str, Mapping[str, Codes]] = {}
    notes: list[str] = []
    drawn: dict[str, RowsAbove] = {}
    for child in related.children:
        above, name = related.above(child), child.table.name
        head, unit = units, np.arange(len(next(iter(units.values()))))
        if above is not None:
            rows = drawn[above.table.name]
            first = FirstRows.of(related, child, models[f"{name}.head"], rows)
            unit = rows.unit
            head = first.codes(calibrated(first, random, times=times, units=some), unit, random)
        tail = models.get(f"{name}.tail")
        if tail is None:
            slots[name] = ChildSlots.alone(related, child, head, random)
        else:
            further = ChildSlots(related, child, tail, head)
            slots[name] = list(further.codes(calibrated(further, random, times=times, units=some), random))
        slots[name], numbers, left = rows_within_group_bounds(child, slots[name], unit)
        notes += [f"{not_held} does not bound the rows of {name} that were drawn" for not_held in not_kept(child)]
        if left:
            notes.append(f"{left:,} rows of {name} were drawn beyond what the schema bounds by groups, and left out")
        if numbers is not None:
            head = {**head, child.number: np.maximum(numbers - related.least(child), 0)}
            head |= weight_classes_of(related, child, numbers, unit)
        heads[name] = head
        if related.below(child):
            drawn[name] = RowsAbove.of(related, child, slots[name], head, unit)
    return DrawnChildren(slots, heads, tuple(notes))


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


def rows_within_group_bounds(
    child: ChildTable, slots: Sequence[Slot], unit: Codes
) -> tuple[list[Slot], NDArray[np.int64] | None, int]:
    """The rows of a child table that stand under its bounds by groups, slot by slot.

    Args:
        child: of which they are.
        slots: that were drawn.
        unit: of each row of the head.

    Returns:
        The slots, how many rows each row of the head keeps (None: nothing is bounded by groups), how many were left
        out.
    """
    names = [each.name for each in child.table.attributes]
    if not child.table.per:
        return list(slots), None, 0
    owner, codes = stacked(slots, names)
    kept = np.arange(len(owner))
    for bound in child.table.per:
        cells = _cells(child, bound, {name: column[kept] for name, column in codes.items()})
        kept = kept[_stand(unit[owner[kept]], cells, bound)] if cells is not None else kept
    left = len(owner) - len(kept)
    owner, codes = owner[kept], {name: column[kept] for name, column in codes.items()}
    numbers = np.bincount(owner, minlength=len(unit)).astype(np.int64)
    place = np.arange(len(owner)) - (np.cumsum(numbers) - numbers)[owner]
    bounded: list[Slot] = []
    for slot in range(int(numbers.max(initial=1))):
        rows = np.flatnonzero(place == slot)
        bounded.append((owner[rows], {name: column[rows] for name, column in codes.items()}))
    return bounded, numbers, left


def not_kept(child: ChildTable) -> list[str]:
    """The bounds by groups that are not of attributes of the table alone, by name: rows do not stand under these."""
    none: Mapping[str, Codes] = {each.name: np.zeros(0, dtype=np.int64) for each in child.table.attributes}
    return [bound.name for bound in child.table.per if _cells(child, bound, none) is None]


def _cells(child: ChildTable, bound: GroupBound, codes: Mapping[str, Codes]) -> Codes | None:
    """The cell of each row; None where a grouping is not of attributes of the table."""
    domain = Domain(child.table.attributes, hierarchies=child.table.hierarchies)
    cell_numbers: Codes = np.zeros(len(next(iter(codes.values()))), dtype=np.int64)
    for name in bound.by:
        try:
            grouping = domain.grouping(name)
        except DomainError:
            return None
        own = codes[grouping.attribute]
        own = own if grouping.groups is None else np.asarray(grouping.groups, dtype=np.int64)[own]
        cell_numbers = np.unique(cell_numbers * len(grouping.labels) + own, return_inverse=True)[1].reshape(-1)
    return cell_numbers


def _stand(unit: Codes, cells: Codes, bound: GroupBound) -> NDArray[np.bool_]:
    """Whether each row of units, in order, is among the first of its cell, and its cell among the first of its unit."""
    if not len(unit):
        return np.zeros(0, dtype=np.bool_)
    keys = unit * (int(cells.max()) + 1) + cells
    stands: NDArray[np.bool_] = _ordinal(keys) < bound.rows
    if bound.groups is not None:
        first = np.unique(keys, return_index=True)[1]  # the first row of each cell of each unit
        rank = np.zeros(len(keys), dtype=np.int64)
        rank[np.sort(first)] = _ordinal(unit[np.sort(first)])
        stands &= rank[first[np.searchsorted(keys[first], keys)]] < bound.groups
    return stands


def _ordinal(keys: Codes) -> Codes:
    """How many equal ones stand before each."""
    order = np.argsort(keys, kind="stable")
    held = keys[order]
    start = np.flatnonzero(np.concatenate([[True], held[1:] != held[:-1]]))
    ordinals = np.empty(len(keys), dtype=np.int64)
    ordinals[order] = np.arange(len(keys)) - np.repeat(start, np.diff(np.append(start, len(keys))))
    return ordinals
