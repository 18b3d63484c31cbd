"""Labels of the cells of derived tables: labels of the schema, and labels that only a derived table has."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.domain import Attribute
from sfumato.domain.linked_domain import ChildTable, LinkedTables


def unit_labels(linked: LinkedTables) -> dict[str, list[str]]:
    """Return the labels of the columns of the head of the units."""
    labels_of = _parent_labels(linked)
    for child in linked.direct:
        labels_of |= _first_labels(linked, child)
    return labels_of


def _first_labels(linked: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    labels_of = {}
    for each in child.table.attributes:
        labels = list(each.labels())
        if child.dated and each.name == child.order and linked.periods_between(child) is not None:
            labels = _distance_labels(linked, child, labels[each.declared :])
        elif child.dated and each.name == child.order:
            cells = _spans(child.first_dates, each.declared)
            labels = [_span(labels[low], labels[high]) for low, high in cells] + labels[each.declared :]
        labels_of[child.named("first", each.name)] = [*labels, *(["none"] if linked.least_children(child) == 0 else [])]
    return labels_of


def _distance_labels(linked: LinkedTables, child: ChildTable, further: Sequence[str]) -> list[str]:
    parent, starts = linked.parent_of(child), linked.distances(child)
    assert parent is not None
    name = parent.table.name
    most = (linked.periods_between(child) or 0) + child.attribute(child.order or "").declared
    distances = []
    for low, high in _spans(starts, most):
        distance = _span(str(low), str(high)) if low >= 0 else _span(str(-high), str(-low))
        distances.append(f"{distance} {'after' if low >= 0 else 'before'} that of {name}")
    return [*distances, *further, *([f"of {name} without a date"] if parent.undated else [])]


def first_child_labels(linked: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Return the labels of the columns of a nested child table's first rows."""
    table = linked.first_child(child)
    assert table is not None
    labels_of = _known_labels(linked, child) | _first_labels(linked, child)
    parent = linked.parent_of(child)
    return labels_of | ({parent.rows: _classes(table.rows)} if parent is not None else {})


def _classes(rows: Sequence[int]) -> list[str]:
    """Label the classes of numbers of rows that weigh the same."""
    return [_span(str(low), str(high)) for low, high in zip((1, *(each + 1 for each in rows)), rows, strict=False)]


def next_child_labels(linked: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Return the labels of the columns of a child table's next rows."""
    labels_of = _known_labels(linked, child)
    table = linked.next_child(child)
    assert table is not None
    labels_of |= {child.rows: _classes(table.rows)}
    for each in child.plain:
        labels_of[child.named("previous", each.name)] = list(each.labels())
        labels_of[child.named("this", each.name)] = list(each.labels())
        labels_of[child.named("before", each.name)] = [*each.labels(), "none"]
    if child.dated and child.order is not None:
        cells = _spans(child.gaps, child.attribute(child.order).declared)
        gaps = [f"{_span(str(low), str(high))} later" for low, high in cells]
        absent = ["missing"] if child.undated else []
        labels_of[child.named("this", child.order)] = [*gaps, *absent]
        labels_of[child.named("previous", child.order)] = [*gaps, *absent, "first"]
    return labels_of


def _spans(starts: Sequence[int], end: int) -> list[tuple[int, int]]:
    return [(low, high - 1) for low, high in zip(starts, (*starts[1:], end), strict=True)]


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _known_labels(linked: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Return the labels of the known attributes of the rows of a child table."""
    parent = linked.parent_of(child)
    if parent is None:
        return _parent_labels(linked)
    return _known_labels(linked, parent) | {
        parent.named("this", each.name): list(each.labels()) for each in parent.plain
    }


def _parent_labels(linked: LinkedTables) -> dict[str, list[str]]:
    parent = linked.parent
    attributes: tuple[Attribute, ...] = () if parent is None else parent.attributes
    return {f"{parent.name if parent else ''}.{each.name}": list(each.labels()) for each in attributes}
