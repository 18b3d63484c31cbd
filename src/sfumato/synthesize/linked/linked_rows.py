"""The children of units, drawn table by table, and all of them as tables with fresh keys, in the types of the schema.

Each table is drawn after the table that its rows belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.domain.table_schema import SchemaTable
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.child_dates import Codes
from sfumato.synthesize.linked.child_slots import ChildSlots, Slot, calibrated, stacked
from sfumato.synthesize.linked.nested_rows import FirstRows, RowsAbove, weight_classes_of
from sfumato.synthesize.linked.rows_within_group_bounds import not_kept, rows_within_group_bounds
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

    found: dict[str, pa.Table] = {}
    parent = related.parent
    if parent is not None:
        units = len(next(iter(head.values())))
        keys = pa.table({parent.key or related.schema.id: np.arange(1, units + 1)})
        codes = {each.name: head[f"{parent.name}.{each.name}"] for each in parent.attributes}
        found[parent.name] = _beside(keys, _typed(parent, codes, random))
    for child in related.children:
        table = child.table
        rows, codes = stacked(children[table.name], [each.name for each in table.attributes])
        of_unit = table.unit if table.unit is not None else table.through.column if table.through else related.schema.id
        keys = {} if table.key is None else {table.key: np.arange(1, len(rows) + 1)}
        typed = _in_order(child, rows, codes, _typed(table, codes, random))
        found[table.name] = _beside(pa.table({**keys, of_unit: rows + 1}), typed)
    return found


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
