"""Draw the children of units table by table, and write all tables with new keys in the types of the schema.

Each table is drawn after the table of its parents.  Declared bounds by groups keep the first rows of a unit in each
cell.  The rows are synthetic, so this is post-processing.

Rows that are drawn from a model miss its pairs by chance.  So several times as many units are drawn, and halved: of two
units with equally many children, the one stays that balances the counts of pairs.  This is a greedy form of the
self-balancing walk (Alweiss, Liu and Sawhney 2021, "Discrepancy minimization via a self-balancing walk").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
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

_MOST_TIMES = 4  # how many times as many units are drawn; larger numbers gain little
_MOST_CELLS = 1 << 23  # rows that the drawn units may have, times pairs of columns: 64 MiB
_BLOCK = 16  # pairs of units at a time


def linked_rows(
    linked: LinkedTables,
    unit_rows: Mapping[str, Codes],
    children: Mapping[str, Sequence[Slot]],
    random: np.random.Generator,
) -> dict[str, pa.Table]:
    """Return Arrow tables by name.  Units are numbered from 1, in the random order in which they were drawn.

    Args:
        linked: the tables.
        unit_rows: codes of the units, by attribute of the head.
        children: the slots of each child table: the parent rows with a child in the slot, and its codes.
        random: generator for values within a cell.
    """
    import pyarrow as pa

    tables: dict[str, pa.Table] = {}
    parent = linked.parent
    if parent is not None:
        units = len(next(iter(unit_rows.values())))
        keys = pa.table({parent.key or linked.schema.id: np.arange(1, units + 1)})
        codes = {each.name: unit_rows[f"{parent.name}.{each.name}"] for each in parent.attributes}
        tables[parent.name] = _with_keys(keys, _typed(parent, codes, random))
    for child in linked.children:
        table = child.table
        rows, codes = stacked(children[table.name], [each.name for each in table.attributes])
        of_unit = table.unit if table.unit is not None else table.through.column if table.through else linked.schema.id
        keys = {} if table.key is None else {table.key: np.arange(1, len(rows) + 1)}
        typed = _in_order(child, rows, codes, _typed(table, codes, random))
        tables[table.name] = _with_keys(pa.table({**keys, of_unit: rows + 1}), typed)
    return tables


def _typed(table: SchemaTable, codes: Mapping[str, Codes], random: np.random.Generator) -> pa.Table:
    import pyarrow as pa

    if not table.attributes:
        return pa.table({})
    domain = Domain(table.attributes)
    kind = np.min_scalar_type(max(domain.shape) - 1)
    return to_arrow(domain, np.column_stack([codes[name].astype(kind) for name in domain.names]), random)


def _with_keys(keys: pa.Table, attributes: pa.Table) -> pa.Table:
    for name in attributes.column_names:
        keys = keys.append_column(name, attributes.column(name))
    return keys


def _in_order(child: ChildTable, rows: Codes, codes: Mapping[str, Codes], typed: pa.Table) -> pa.Table:
    """Sort the values of the ordering attribute among the rows of a unit that share a cell."""
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
    """The drawn rows of every child table, by its name.

    Attributes:
        child_slots: for each slot the first rows with a child in it, and codes of the child.
        first_rows: codes by attribute, one row for each unit or parent row.
        notes: sentences for the reader.
    """

    child_slots: Mapping[str, Sequence[Slot]]
    first_rows: Mapping[str, Mapping[str, Codes]]
    notes: tuple[str, ...] = ()


def drawn_children(
    linked: LinkedTables,
    units: Mapping[str, Codes],
    models: Mapping[str, Graphical],
    random: np.random.Generator,
    *,
    times: int,
    some: int,
) -> DrawnChildren:
    """Draw the children of units from the models of the derived tables.

    Args:
        linked: the tables.
        units: codes of the head of the units, by attribute.
        models: models by the name of the derived table.
        random: generator of the rows.
        times: rounds of calibration.
        some: largest number of rows whose children are drawn in a round.
    """
    child_slots: dict[str, list[Slot]] = {}
    first_rows_of: dict[str, Mapping[str, Codes]] = {}
    notes: list[str] = []
    drawn: dict[str, ParentRows] = {}
    for child in linked.children:
        parent, name = linked.parent_of(child), child.table.name
        first_rows, unit = units, np.arange(len(next(iter(units.values()))))
        if parent is not None:
            rows = drawn[parent.table.name]
            first = FirstRows.from_drawn(linked, child, models[f"{name}.head"], rows)
            unit = rows.unit
            first_rows = first.codes(calibrated(first, random, times=times, units=some), unit, random)
        model = models.get(f"{name}.tail")
        if model is None:
            child_slots[name] = ChildSlots.alone(linked, child, first_rows, random)
        else:
            further = ChildSlots(linked, child, model, first_rows)
            calibrated_model = calibrated(further, random, times=times, units=some)
            child_slots[name] = list(further.codes(calibrated_model, random, units=some))
        child_slots[name], numbers, left = rows_within_group_bounds(child, child_slots[name], unit)
        notes += [f"{not_held} does not bound the rows of {name} that were drawn" for not_held in not_kept(child)]
        if left:
            notes.append(f"{left:,} rows of {name} were drawn beyond what the schema bounds by groups, and left out")
        if numbers is not None:
            first_rows = {**first_rows, child.number: np.maximum(numbers - linked.least_children(child), 0)}
            first_rows |= weight_classes_of(linked, child, numbers, unit)
        first_rows_of[name] = first_rows
        if linked.children_of(child):
            drawn[name] = ParentRows.from_drawn(linked, child, child_slots[name], first_rows, unit)
    return DrawnChildren(child_slots, first_rows_of, tuple(notes))


@dataclass(frozen=True)
class ParentRows:
    """The drawn rows of a child table that have children, unit by unit and in order.

    Attributes:
        unit: the unit of each row.
        place: the place of each row among its siblings, from 1.
        siblings: the number of siblings, the row included.
        known: codes of the known attributes: of the unit, of the rows between, and of the row with its date.
    """

    unit: Codes
    place: Codes
    siblings: Codes
    known: Mapping[str, Codes]

    @staticmethod
    def from_drawn(
        linked: LinkedTables, child: ChildTable, slots: Sequence[Slot], first_rows: Mapping[str, Codes], unit: Codes
    ) -> ParentRows:
        """Return the rows of slots, given the unit of each first row."""
        owner, codes = stacked(slots, [each.name for each in child.table.attributes])
        count = np.bincount(owner, minlength=len(unit))
        first = np.cumsum(count) - count
        known = {each.name: first_rows[each.name][owner] for each in linked.known_attributes(child)}
        known |= {child.named("this", each.name): codes[each.name] for each in child.plain}
        known |= {DAY: codes[child.order]} if child.dated and child.order is not None else {}
        return ParentRows(unit[owner], np.arange(len(owner)) - first[owner] + 1, count[owner], known)

    def number(self) -> Codes:
        """Return the number of rows of each row's unit."""
        counts: Codes = np.bincount(self.unit)[self.unit] if len(self.unit) else self.unit
        return counts


@dataclass(frozen=True)
class FirstRows:
    """The numbers of children and first children of parent rows, to be drawn from the model of a nested head.

    Attributes:
        linked: the tables.
        child: the nested child table.
        fitted: the model of its head.
        known: codes of the known attributes of the parent rows.
    """

    linked: LinkedTables
    child: ChildTable
    fitted: Graphical
    known: Mapping[str, Codes]

    @staticmethod
    def from_drawn(linked: LinkedTables, child: ChildTable, model: Graphical, rows: ParentRows) -> FirstRows:
        """Return the first rows of drawn parent rows."""
        parent, table = linked.parent_of(child), linked.first_child(child)
        assert parent is not None
        assert table is not None
        number = rows.number()
        row_class = number - 1 if table.number == parent.number else np.searchsorted(np.array(table.rows), number)
        place = np.minimum(rows.place, min(parent.most, PLACES + 1)) - 1
        return FirstRows(linked, child, model, {**rows.known, table.number: row_class, parent.place: place})

    @property
    def drawn(self) -> frozenset[str]:
        """Return the attributes that are drawn: the number of children, and the first child."""
        return frozenset(first_names(self.child))

    @property
    def weights(self) -> FloatArray:
        """Return the weight of each row, in units."""
        table = self.linked.first_child(self.child)
        assert table is not None
        return np.array(table.weights)[self.known[table.number]] / table.unit_weight

    def first_units(self, many: int) -> FirstRows:
        """Return the same rows, but only the first ``many``."""
        return replace(self, known={name: codes[:many] for name, codes in self.known.items()})

    def groups(self, model: GraphicalModel, random: np.random.Generator) -> Iterator[Slot]:
        """Yield all rows with the groups of all attributes, drawn and known."""
        rows = np.arange(len(self.weights))
        if not len(rows):
            return
        known = {name: codes for name, codes in self.known.items() if name in self.fitted.coarsenings}
        group_of = {name: self.fitted.coarsenings[name].groups[codes] for name, codes in known.items()}
        sampler = ConditionalSampler(model.factors, model.sizes, first_names(self.child))
        yield rows, {**group_of, **sampler.draw(group_of, len(rows), random)}

    def codes(self, model: GraphicalModel, unit: Codes, random: np.random.Generator) -> dict[str, Codes]:
        """Draw codes of the child table's head, within the schema's bound on the children of a unit.

        Args:
            model: calibrated model.
            unit: the unit of each row.
            random: generator of the rows.
        """
        linked, child = self.linked, self.child
        drawn_codes = {name: codes.astype(np.int64) for name, codes in self.known.items()}
        drawn_codes |= {name: np.zeros(0, dtype=np.int64) for name in first_names(child)}
        for _, groups in self.groups(model, random):
            for name in first_names(child):
                drawn_codes[name] = np.asarray(
                    self.fitted.coarsenings[name].expand(groups[name], random), dtype=np.int64
                )
        drawn_codes[child.number] = within(drawn_codes[child.number], unit, linked.most_rows(child))
        return drawn_codes | weight_classes_of(linked, child, drawn_codes[child.number], unit)


def weight_classes_of(linked: LinkedTables, child: ChildTable, numbers: Codes, unit: Codes) -> dict[str, Codes]:
    """Return the weight class of the next rows of each row's unit; nothing for tables without such classes."""
    table = linked.next_child(child)
    if table is None or table.number != child.rows:
        return {}
    further = np.maximum(numbers - 1, 0)
    counts = np.bincount(unit, weights=further)[unit] if len(unit) else further
    return {child.rows: np.searchsorted(np.array(table.rows), np.maximum(counts, 1)).astype(np.int64)}


def within(numbers: Codes, unit: Codes, most: int) -> Codes:
    """Reduce numbers of children so that a unit has at most ``most`` in total.  Its last rows are reduced first.

    >>> within(np.array([2, 2, 2, 1]), np.array([0, 0, 0, 1]), 3).tolist()
    [2, 1, 0, 1]
    """
    upto = np.cumsum(numbers)
    start = np.searchsorted(unit, unit)  # start of each unit
    before = upto - numbers - (upto - numbers)[start]
    bounded: Codes = np.clip(most - before, 0, numbers)
    return bounded


def rows_within_group_bounds(
    child: ChildTable, slots: Sequence[Slot], unit: Codes
) -> tuple[list[Slot], NDArray[np.int64] | None, int]:
    """Drop the rows of a child table that exceed its bounds by groups.

    Args:
        child: the child table.
        slots: drawn slots.
        unit: the unit of each first row.

    Returns:
        The slots, the number of children of each first row (None without bounds by groups), and the number of dropped
            rows.
    """
    names = [each.name for each in child.table.attributes]
    if not child.table.per:
        return list(slots), None, 0
    owner, codes = stacked(slots, names)
    rows_kept = np.arange(len(owner))
    for bound in child.table.per:
        cells = _cells(child, bound, {name: column[rows_kept] for name, column in codes.items()})
        rows_kept = rows_kept[_stand(unit[owner[rows_kept]], cells, bound)] if cells is not None else rows_kept
    left = len(owner) - len(rows_kept)
    owner, codes = owner[rows_kept], {name: column[rows_kept] for name, column in codes.items()}
    numbers = np.bincount(owner, minlength=len(unit)).astype(np.int64)
    place = np.arange(len(owner)) - (np.cumsum(numbers) - numbers)[owner]
    bounded: list[Slot] = []
    for slot in range(int(numbers.max(initial=1))):
        slot_rows = np.flatnonzero(place == slot)
        bounded.append((owner[slot_rows], {name: column[slot_rows] for name, column in codes.items()}))
    return bounded, numbers, left


def not_kept(child: ChildTable) -> list[str]:
    """Return the names of bounds by groups of other tables' attributes, which the drawn rows may exceed."""
    none: Mapping[str, Codes] = {each.name: np.zeros(0, dtype=np.int64) for each in child.table.attributes}
    return [bound.name for bound in child.table.per if _cells(child, bound, none) is None]


def _cells(child: ChildTable, bound: GroupBound, codes: Mapping[str, Codes]) -> Codes | None:
    """Return the cell of each row; None if a grouping has attributes of another table."""
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
    """Return True for rows within a bound: among the first rows of their cell, in one of the first cells of their
    unit.
    """
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
    """Return the number of equal keys before each key."""
    order = np.argsort(keys, kind="stable")
    held = keys[order]
    start = np.flatnonzero(np.concatenate([[True], held[1:] != held[:-1]]))
    ordinals = np.empty(len(keys), dtype=np.int64)
    ordinals[order] = np.arange(len(keys)) - np.repeat(start, np.diff(np.append(start, len(keys))))
    return ordinals


def times_drawn(linked: LinkedTables, units: int, most: int) -> int:
    """Return how many times as many units are drawn: 1, 2 or 4, so that they are at most ``most``."""
    cells, times = 0, 1
    for child in linked.children:
        known, own = len(linked.known_attributes(child)) + 1, len(child.plain)
        cells += linked.most_rows(child) * (known * own + own * (own - 1) // 2)
    while times < _MOST_TIMES and 2 * times * units <= min(most, _MOST_CELLS // max(cells, 1)):
        times *= 2
    return times


def balanced(
    linked: LinkedTables, rows: Mapping[str, Codes], drawn: DrawnChildren, units: int, random: np.random.Generator
) -> tuple[dict[str, Codes], DrawnChildren]:
    """Return ``units`` of the drawn units, and their children.  Twice or four times as many may have been drawn."""
    numbers = np.stack([rows[child.number] for child in linked.direct])
    selected = np.arange(numbers.shape[1])
    cells = _Cells.of_pairs(_pairs(linked, rows, drawn), len(selected), units) if len(selected) > units else None
    while cells is not None and len(selected) > units:
        selected = selected[np.lexsort((random.random(len(selected)), *numbers[:, selected]))]
        both = random.permutation(selected.reshape(-1, 2))
        selected = both[np.arange(len(both)), cells.chosen(both)]
    selected.sort()
    return {name: codes[selected] for name, codes in rows.items()}, _children_of(
        linked, drawn, selected, numbers.shape[1]
    )


def _units_of(linked: LinkedTables, drawn: DrawnChildren, units: int) -> Iterator[tuple[ChildTable, Codes]]:
    """Yield each child table with the unit of each of its first rows."""
    units_of: dict[str, Codes] = {}
    for child in linked.children:
        parent = linked.parent_of(child)
        units_of[child.table.name] = np.arange(units)
        if parent is not None:
            owner, _ = stacked(drawn.child_slots[parent.table.name], [])
            units_of[child.table.name] = units_of[parent.table.name][owner]
        yield child, units_of[child.table.name]


def _children_of(linked: LinkedTables, drawn: DrawnChildren, selected: Codes, units: int) -> DrawnChildren:
    """Return the children of the selected ones of ``units`` units, numbered anew and in the same order."""
    slots, first_rows = {}, {}
    for child, unit in _units_of(linked, drawn, units):
        name = child.table.name
        stays = np.isin(unit, selected)
        number = np.cumsum(stays) - 1
        slots[name] = [
            (number[rows[stays[rows]]], {each: of[stays[rows]] for each, of in codes.items()})
            for rows, codes in drawn.child_slots[name]
        ]
        first_rows[name] = {each: codes[stays] for each, codes in drawn.first_rows[name].items()}
    return replace(drawn, child_slots=slots, first_rows=first_rows)


def _pairs(linked: LinkedTables, rows: Mapping[str, Codes], drawn: DrawnChildren) -> Iterator[tuple[Codes, ...]]:
    """Yield units and codes of pairs of columns: two of a unit, two of a child, or one of a child and a known one."""
    units = np.arange(len(next(iter(rows.values()))))
    own = [each.name for each in linked.known_attributes(linked.direct[0])]
    for one, other in combinations([*own, *(child.number for child in linked.direct)], 2):
        yield units, rows[one], rows[other]
    for child, unit in _units_of(linked, drawn, len(units)):
        owner, codes = stacked(drawn.child_slots[child.table.name], [each.name for each in child.plain])
        first_rows = drawn.first_rows[child.table.name]
        known = [*(each.name for each in linked.known_attributes(child)), child.number]
        for above, below in product(known, codes):
            yield unit[owner], first_rows[above][owner], codes[below]
        for one, other in combinations(codes, 2):
            yield unit[owner], codes[one], codes[other]


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of pairs of columns that the rows of each unit fall into, and the weight of each cell.

    The cells of a unit are those of ``cells`` from its ``start`` to the start of the next.  A cell weighs less if more
    rows fall into it, because their number is off by more.
    """

    cells: NDArray[np.int64]
    start: NDArray[np.int64]
    weights: FloatArray

    @staticmethod
    def of_pairs(pairs: Iterator[tuple[Codes, ...]], drawn: int, most: int) -> _Cells:
        """Return the cells of all pairs of columns with at most ``most`` cells."""
        units, cells, many = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], 0
        for unit, one, other in pairs:
            high, low = (int(codes.max(initial=0)) + 1 for codes in (one, other))
            if high * low <= most:
                units.append(unit)
                cells.append(many + one * low + other)
                many += high * low
        unit, cell = np.concatenate(units), np.concatenate(cells)
        order = np.argsort(unit, kind="stable")
        counts = np.bincount(cell, minlength=many)
        start = np.searchsorted(unit[order], np.arange(drawn + 1))
        return _Cells(cell[order], start, 1 / np.sqrt(np.maximum(counts, 1)))

    def chosen(self, both: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which of two units to keep, for each row of ``both``: 0 or 1."""
        excess = np.zeros(len(self.weights))  # weighted rows of selected units in each cell, less those of others
        chosen = np.zeros(len(both), dtype=np.int64)
        for start in range(0, len(both), _BLOCK):
            of_units = both[start : start + _BLOCK].T.ravel()
            lengths = self.start[of_units + 1] - self.start[of_units]
            place = np.repeat(self.start[of_units] - (np.cumsum(lengths) - lengths), lengths)
            cells = self.cells[place + np.arange(len(place))]
            of = np.repeat(np.arange(len(of_units)), lengths)
            sums = np.bincount(of, excess[cells], minlength=len(of_units)).reshape(2, -1)
            second = sums[1] < sums[0]
            chosen[start : start + _BLOCK] = second
            sign = np.concatenate([np.where(second, -1.0, 1.0), np.where(second, 1.0, -1.0)])
            np.add.at(excess, cells, sign[of] * self.weights[cells])
        return chosen
