"""The children of units, and theirs, table by table: each after the table whose rows its own belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain.related_tables import RelatedTables
from sfumato.synthesize.families.child_dates import Codes
from sfumato.synthesize.families.kept_by_groups import kept_by_groups, not_kept
from sfumato.synthesize.families.nested_rows import FirstRows, RowsAbove, weight_classes_of
from sfumato.synthesize.families.slots import Slot, Slots, calibrated
from sfumato.synthesize.graphical import Graphical


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
    related: RelatedTables,
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
            slots[name] = Slots.alone(related, child, head, random)
        else:
            further = Slots(related, child, tail, head)
            slots[name] = list(further.codes(calibrated(further, random, times=times, units=some), random))
        slots[name], numbers, left = kept_by_groups(child, slots[name], unit)
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
