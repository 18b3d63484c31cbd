"""Codes of units and of their children as tables with fresh keys, in the types of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.related_tables import ChildTable, RelatedTables
from sfumato.domain.table_schema import SchemaTable
from sfumato.synthesize.families.child_dates import Codes
from sfumato.synthesize.families.slots import Slot, stacked
from sfumato.synthesize.product import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def linked_rows(
    related: RelatedTables,
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
