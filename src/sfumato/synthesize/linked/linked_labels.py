"""What the cells of a head or a tail are called: as the schema calls them, with what only a derived table has."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.domain import Attribute
from sfumato.domain.linked_domain import ChildTable, LinkedTables


def head_labels(related: LinkedTables) -> dict[str, list[str]]:
    """Of the head of the units."""
    labels_of = _parent_labels(related)
    for child in related.direct:
        labels_of |= _first_labels(related, child)
    return labels_of


def _first_labels(related: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    labels_of = {}
    for each in child.table.attributes:
        labels = list(each.labels())
        if child.dated and each.name == child.order and related.apart(child) is not None:
            labels = _distance_labels(related, child, labels[each.declared :])
        elif child.dated and each.name == child.order:
            cells = _spans(child.first_dates, each.declared)
            labels = [_span(labels[low], labels[high]) for low, high in cells] + labels[each.declared :]
        labels_of[child.named("first", each.name)] = [*labels, *(["none"] if related.least(child) == 0 else [])]
    return labels_of


def _distance_labels(related: LinkedTables, child: ChildTable, further: Sequence[str]) -> list[str]:
    above, starts = related.above(child), related.distances(child)
    assert above is not None
    name = above.table.name
    most = (related.apart(child) or 0) + child.attribute(child.order or "").declared
    distances = []
    for low, high in _spans(starts, most):
        said = _span(str(low), str(high)) if low >= 0 else _span(str(-high), str(-low))
        distances.append(f"{said} {'after' if low >= 0 else 'before'} that of {name}")
    return [*distances, *further, *([f"of {name} without a date"] if above.undated else [])]


def opening_labels(related: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Of the own head of a child table."""
    table = related.opening(child)
    assert table is not None
    labels_of = _known_labels(related, child) | _first_labels(related, child)
    above = related.above(child)
    return labels_of | ({above.rows: _classes(table.rows)} if above is not None else {})


def _classes(rows: Sequence[int]) -> list[str]:
    """Numbers of rows that weigh the same."""
    return [_span(str(low), str(high)) for low, high in zip((1, *(each + 1 for each in rows)), rows, strict=False)]


def tail_labels(related: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Of its tail."""
    labels_of = _known_labels(related, child)
    table = related.tail(child)
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


def _known_labels(related: LinkedTables, child: ChildTable) -> dict[str, list[str]]:
    """Of what is known of the rows that those of a child table belong to."""
    above = related.above(child)
    if above is None:
        return _parent_labels(related)
    return _known_labels(related, above) | {above.named("this", each.name): list(each.labels()) for each in above.plain}


def _parent_labels(related: LinkedTables) -> dict[str, list[str]]:
    parent = related.parent
    attributes: tuple[Attribute, ...] = () if parent is None else parent.attributes
    return {f"{parent.name if parent else ''}.{each.name}": list(each.labels()) for each in attributes}
