"""Which synthetic rows stand under the bounds by groups that the schema declares: of a unit the first in each cell.

The rows are synthetic, so this is post-processing.  The first row of a unit is always kept: it is the first in its
cell, and its cell is the first of the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.linked_domain import ChildTable
from sfumato.domain.unit import GroupBound
from sfumato.errors import DomainError
from sfumato.synthesize.linked.child_dates import Codes
from sfumato.synthesize.linked.child_slots import Slot, stacked


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
    found: list[Slot] = []
    for slot in range(int(numbers.max(initial=1))):
        rows = np.flatnonzero(place == slot)
        found.append((owner[rows], {name: column[rows] for name, column in codes.items()}))
    return found, numbers, left


def not_kept(child: ChildTable) -> list[str]:
    """The bounds by groups that are not of attributes of the table alone, by name: rows do not stand under these."""
    none: Mapping[str, Codes] = {each.name: np.zeros(0, dtype=np.int64) for each in child.table.attributes}
    return [bound.name for bound in child.table.per if _cells(child, bound, none) is None]


def _cells(child: ChildTable, bound: GroupBound, codes: Mapping[str, Codes]) -> Codes | None:
    """The cell of each row; None where a grouping is not of attributes of the table."""
    domain = Domain(child.table.attributes, hierarchies=child.table.hierarchies)
    found: Codes = np.zeros(len(next(iter(codes.values()))), dtype=np.int64)
    for name in bound.by:
        try:
            grouping = domain.grouping(name)
        except DomainError:
            return None
        own = codes[grouping.attribute]
        own = own if grouping.groups is None else np.asarray(grouping.groups, dtype=np.int64)[own]
        found = np.unique(found * len(grouping.labels) + own, return_inverse=True)[1].reshape(-1)
    return found


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
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(start, np.diff(np.append(start, len(keys))))
    return found
