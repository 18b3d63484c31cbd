"""A schema as a picture: tables as boxes, people at the left, what belongs to them further right, public tables last.

It shows what the document says, which is public; all of its text is escaped, and the page runs nothing.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.report.page import Page, Section, ShownTable

if TYPE_CHECKING:
    from markupsafe import Markup

_WIDTH, _GAP, _LINE, _PAD = 230, 90, 17, 10  # pixels of a box, between boxes, of a line of text, around it
_MOST_LINES = 14  # of attributes in a box
_MOST_LETTERS = 30


def schema_page(schema: Schema, title: str) -> Page:
    """The page of a schema: its picture, and a table of what it says of each table."""
    from markupsafe import Markup

    return Page(
        title=title,
        terms={"Unit": f"one {schema.id} of {schema.name}, in all tables together"},
        notes=("This schema is a draft: releases refuse it.",) if schema.draft else (),
        sections=(Section("Tables", Markup(drawing(schema))),),  # noqa: S704 - all text in it is escaped
        overview={"What it says": schema_rows(schema)},
    )


def schema_rows(schema: Schema) -> ShownTable:
    """A line for each table."""
    return tuple(
        {
            "table": table.name,
            "is": "public" if table.public else "private",
            "key": table.key,
            "belongs to": owner_text(schema, table),
            "refers to": ", ".join(f"{link.column} of {link.table}" for link in table.references) or None,
            "rows kept of one": None if table.public else _bound(schema, table),
            "attributes": len(table.attributes),
        }
        for table in schema
    )


def owner_text(schema: Schema, table: SchemaTable) -> str:
    """Whose the rows of a table are, in words."""
    if table.public:
        return "nobody"
    if table.name == schema.units:
        return f"one {schema.id} each"
    if table.through is not None:
        return f"{table.through.table}, by {table.through.column}"
    return f"{schema.id}, by {table.unit}"


def _bound(schema: Schema, table: SchemaTable) -> str:
    if table.rows is None and table.name != schema.units:
        return "not said yet"
    bounds = schema.bounds(table.name)
    return f"{bounds.rows}{bounds.by_groups}"


def layers(schema: Schema) -> list[list[SchemaTable]]:
    """Tables by their distance from the people, public ones last."""
    depth: dict[str, int] = {}
    for table in schema:
        at, far = table, 0 if table.name == schema.units else 1
        while at.through is not None:
            at, far = schema[at.through.table], far + 1
        depth[table.name] = far
    last = max((far for name, far in depth.items() if not schema[name].public), default=0)
    found: list[list[SchemaTable]] = [[] for _ in range(last + 2)]
    for table in schema:
        found[last + 1 if table.public else depth[table.name]].append(table)
    return [layer for layer in found if layer]


def drawing(schema: Schema) -> Markup:
    """The picture, as SVG that takes the colour of the text around it."""
    from markupsafe import Markup

    boxes: dict[str, tuple[int, int, int]] = {}  # left, top, height
    shapes, bottom = [], 0
    placed = layers(schema)
    for column, layer in enumerate(placed):
        top = _PAD
        for table in layer:
            lines = _lines(schema, table)
            left, height = _PAD + column * (_WIDTH + _GAP), (len(lines) + 1) * _LINE + 2 * _PAD
            boxes[table.name] = (left, top, height)
            shapes.append(_box(table, lines, left, top))
            top += height + 2 * _LINE
            bottom = max(bottom, top)
    ties = [_tie(boxes, table.name, to) for table in schema for to in _leads(schema, table) if to in boxes]
    width = 2 * _PAD + len(placed) * (_WIDTH + _GAP) - _GAP
    words = ", ".join(f"{table.name}: {owner_text(schema, table)}" for table in schema)
    drawn = "".join([*ties, *shapes])
    return Markup(  # noqa: S704 - names are escaped where they are drawn
        f'<svg viewBox="0 0 {width} {bottom}" width="{width}" class="drawing" role="img" '
        f'aria-label="{escape(words)}" font-family="sans-serif" font-size="12" fill="currentColor">{drawn}</svg>'
    )


def _leads(schema: Schema, table: SchemaTable) -> list[str]:
    above = [link.table for link in table.links]
    if not table.public and table.through is None and schema.units not in (None, table.name):
        above.append(str(schema.units))
    return [schema[name].name for name in above]


def _lines(schema: Schema, table: SchemaTable) -> list[str]:
    marks = {table.key: "key"} if table.key is not None else {}
    marks |= {link.column: f"→ {link.table}" for link in table.links}
    if table.unit is not None and table.unit != table.key:
        marks[table.unit] = f"→ {schema.units or schema.id}"
    names = [attribute.name for attribute in table.attributes if attribute.name not in marks]
    lines = [f"{name}  {mark}" for name, mark in marks.items()] + names[:_MOST_LINES]
    if len(names) > _MOST_LINES:
        lines.append(f"and {len(names) - _MOST_LINES} more")
    if not table.public:
        lines.append(f"rows: {_bound(schema, table)}")
    return [_short(line) for line in lines]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _box(table: SchemaTable, lines: list[str], left: int, top: int) -> str:
    height = (len(lines) + 1) * _LINE + 2 * _PAD
    dashed = ' stroke-dasharray="5 4"' if table.public else ""
    name = escape(_short(table.name) + (" (public)" if table.public else ""))
    written = "".join(
        f'<text x="{left + _PAD}" y="{top + _PAD + (place + 2) * _LINE - 4}">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{height}" rx="6" fill="none" stroke="currentColor"'
        f'{dashed}/><text x="{left + _PAD}" y="{top + _PAD + _LINE - 4}" font-weight="bold">{name}</text>{written}'
    )


def _tie(boxes: dict[str, tuple[int, int, int]], one: str, other: str) -> str:
    """A line from a table to the one whose keys it holds."""
    (left, top, _), (left2, top2, _) = boxes[one], boxes[other]
    start, end = (left, left2 + _WIDTH) if left > left2 else (left + _WIDTH, left2)
    y, y2, bend = top + _PAD + _LINE // 2, top2 + _PAD + _LINE // 2, (start + end) // 2
    return (
        f'<path d="M {start} {y} C {bend} {y}, {bend} {y2}, {end} {y2}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.5" stroke-width="1.5"/>'
    )
