"""Pages of linked tables: a schema as a picture, the codebook of synthetic tables, and their evaluation.

The picture shows the document, which is public.  All text is escaped, and the page runs no script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.errors import percent
from sfumato.evaluate.verdicts import risk_verdicts
from sfumato.extras import require
from sfumato.notebook_html import HtmlPage
from sfumato.report.bar_pages import bar_section, chosen_columns
from sfumato.report.drawing import Bar
from sfumato.report.page import (
    PALETTE,
    Chart,
    Page,
    Plot,
    Row,
    Section,
    ShownTable,
    layer,
    render,
    shown_to,
    sized,
    tooltips,
    top_legend,
)

if TYPE_CHECKING:
    from markupsafe import Markup

    from sfumato.domain.unit import Acceptance
    from sfumato.evaluate.linked.linked_evaluation import EdgeResult, LinkedResult
    from sfumato.evaluate.linked.table_tree import RowsRead
    from sfumato.synthesize.linked.linked_release import LinkedRelease


_BARS = 40  # sizes that are drawn; larger ones come together in the last
_DIGITS, _CODEBOOK_DIGITS = 3, 4
_WIDTH, _GAP, _LINE, _PAD = 230, 90, 17, 10  # pixels of a box, between boxes, of a line of text, around it
_MOST_LINES = 14  # of attributes in a box
_MOST_LETTERS = 30
_INTERNAL = "Internal: this page contains exact numbers of the protected tables. It must not leave the steward's hands."
_MEANINGS = {
    "size": "children a parent",
    "parent1": "a column of parents",
    "parent2": "two columns of parents",
    "parent3": "three columns of parents",
    "child1": "a column of children",
    "child2": "two columns of children",
    "child3": "three columns of children",
    "cross2": "a parent's column with a child's",
    "cross3": "three columns of parent and child",
    "sibling": "a column of each of two siblings",
    "sibling_same": "the same column of two siblings",
    "transition": "a column of a child and of the next",
    "trigram": "a column of three in a row",
}


def linked_evaluation_page(title: str, result: LinkedResult, *, internal: bool = False) -> Page:
    """Return the page of a result; if ``internal``, with exact sizes and numbers of rows, and a warning at the top."""
    plots: list[Plot] = []
    overview = {"What attacks on a family achieved": _attacks(result)} if result.attacks else {}
    for edge in result.edges:
        overview[f"{edge.parents} with {edge.children}: share in a wrong cell, on average"] = _scores(edge)
        plots += [_score_picture(edge), _size_picture(edge, internal=internal)]
        plots += _pair_pictures(edge)
    overview["Rows of the release that break what the schema says"] = _rows(result.released)
    details = {"Rows of the protected tables": _rows(result.real)} if internal else {}
    return Page(
        title=title,
        kicker="Evaluation \N{MIDDLE DOT} for the owner of the tables",
        warning=_INTERNAL if internal else "",
        terms={"Guarantee": "none is stated" if result.claim is None else str(result.claim)},
        notes=(
            (
                "The scores on this page were computed from the protected tables, without noise: no guarantee covers "
                "them. A score is a mean of total variations, and 0 if release and table agree. 'The same units drawn "
                "again' shows the effect of chance alone. 'Children dealt at random' are the exact tables without the "
                "tie between them: a release that is no better does not keep families together."
                + ("" if result.attacks else " No holdout was given, so that no attack was run.")
            ),
        ),
        overview=overview,
        details=details,
        plots=tuple(plots),
        digits=_DIGITS,
    )


def _scores(edge: EdgeResult) -> ShownTable:
    rows: list[Row] = []
    for measure, meaning in _MEANINGS.items():
        row: dict[str, str | int | float | bool | None] = {"measure": meaning}
        row |= {name: asdict(each.scores)[measure] for name, each in edge.compared.items()}
        rows.append(row)
    return tuple(rows)


def _attacks(result: LinkedResult) -> ShownTable:
    return tuple(
        {
            "attack": each.attack,
            "verdict": judgement.verdict.value,
            "attacker knows": each.knowledge,
            "on members": each.members.value,
            "on others": each.controls.value,
            "advantage": each.value,
            "95 % interval": f"{each.interval.low:+.3f} to {each.interval.high:+.3f}",
            "bound": each.bound,
        }
        for each, judgement in zip(result.attacks, risk_verdicts(result), strict=True)
    )


def _rows(read: Mapping[str, RowsRead]) -> ShownTable:
    rows: list[Row] = []
    for name, each in read.items():
        rows.append(
            {
                "table": name,
                "rows": each.rows,
                "judged": each.judged,
                "cell not declared": each.undeclared,
                "key repeated": each.repeated,
                "without a parent": each.ownerless,
                "beyond the most of a parent": each.beyond,
            }
        )
    return tuple(rows)


def _score_picture(edge: EdgeResult) -> Plot:
    values: list[Row] = [
        {"of": meaning, "families": name, "share": share}
        for measure, meaning in _MEANINGS.items()
        for name, each in edge.compared.items()
        if (share := asdict(each.scores)[measure]) is not None
    ]
    release, dealt = (asdict(edge.compared[name].scores) for name in ("release", "children dealt at random"))
    worse = [
        _MEANINGS[measure]
        for measure in ("cross2", "cross3", "sibling", "transition", "trigram")
        if release[measure] is not None and release[measure] >= dealt[measure]
    ]
    verdict = (
        f"No better than children dealt at random: {', '.join(worse)}."
        if worse
        else "The ties of parents and children are kept better than by children dealt at random."
    )
    return Plot(
        f"scores-{edge.children}",
        title=f"{edge.parents} with {edge.children}: what is kept",
        caption=f"Left is better; grey is as good as chance allows. {verdict}",
        alternative=f"Points of the scores of the release and of three baselines, for {edge.children}.",
        charts=(Chart("", _score_points(values, list(edge.compared))),),
        table=tuple(values),
    )


def _score_points(values: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    import altair as alt

    points = (
        layer(values)
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(
            x=alt.X("share:Q", title="share in a wrong cell"),
            y=alt.Y("of:N", sort=list(_MEANINGS.values()), title=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color(
                "families:N",
                title=None,
                sort=list(names),
                scale=alt.Scale(domain=list(names), range=["#2f86c6", "#7f7f7f", "#d55e00", "#b8860b"]),
                legend=top_legend(columns=1),
            ),
            tooltip=tooltips("of", "families", numbers=("share",), form=".4f"),
        )
    )
    return sized(points, step=22)


def _size_picture(edge: EdgeResult, *, internal: bool) -> Plot:
    import altair as alt

    sources = {"release": edge.sizes} | ({"exact": edge.real_sizes} if internal else {})
    values: list[Row] = []
    for source, shares in sources.items():
        bars = [*shares[:_BARS], sum(shares[_BARS:])] if len(shares) > _BARS else list(shares)
        for size, share in enumerate(bars):
            children = f"{_BARS} or more" if size == _BARS else str(size)
            values.append({"children": children, "order": size, "source": source, "share": share})
    base = layer(values)
    encoding = {
        "x": alt.X("children:N", sort=alt.SortField("order"), title=f"{edge.children} of one of {edge.parents}"),
        "y": alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
        "tooltip": tooltips("children", "source", numbers=("share",), form=".2%"),
    }
    layers = [base.transform_filter("datum.source == 'release'").mark_bar(color=PALETTE[1]).encode(**encoding)]
    if internal:
        exact = base.transform_filter("datum.source == 'exact'").mark_tick(color=PALETTE[2], thickness=2)
        layers.append(exact.encode(**encoding))
    off = edge.compared["release"].scores.size
    return Plot(
        f"sizes-{edge.children}",
        title=f"How many {edge.children}",
        caption=f"{'Ticks are exact. ' if internal else ''}{off:.2%} of {edge.parents} would need another number.",
        alternative=f"Bars of the share of {edge.parents} by their number of {edge.children}.",
        charts=(Chart("", sized(*layers, height=180)),),
        table=tuple(values),
    )


def _pair_pictures(edge: EdgeResult) -> list[Plot]:
    """Return heat maps of siblings and of transitions, if there are any."""
    release = edge.compared["release"]
    kinds = (
        ("siblings", "Two of one parent", release.siblings, ("one", "other")),
        ("transitions", "One and the next", release.transitions, ("earlier", "next")),
    )
    return [_pair_picture(edge.children, *kind) for kind in kinds if kind[2]]


def _pair_picture(
    children: str, name: str, title: str, distances: Mapping[tuple[str, ...], float], sides: tuple[str, str]
) -> Plot:
    import altair as alt

    values: list[Row] = [{sides[0]: names[0], sides[1]: names[1], "off by": off} for names, off in distances.items()]
    worst = max(distances, key=lambda names: distances[names])
    order = list(dict.fromkeys(each for names in distances for each in names))
    heat = (
        layer(values)
        .mark_rect()
        .encode(
            x=alt.X(f"{sides[1]}:N", sort=order, axis=alt.Axis(labelAngle=-60, labelLimit=90)),
            y=alt.Y(f"{sides[0]}:N", sort=order, axis=alt.Axis(labelLimit=90)),
            color=alt.Color(
                "off by:Q",
                title="share in a wrong cell",
                scale=alt.Scale(scheme="orangered", domain=[0, 0.5], clamp=True),
                legend=top_legend(gradientLength=160),
            ),
            tooltip=tooltips(*sides, numbers=("off by",)),
        )
    )
    return Plot(
        f"{name}-{children}",
        title=f"{title}: {children}",
        caption=f"Dark pairs cannot be used together. The worst is {worst[0]} of the {sides[0]} child with {worst[1]} "
        f"of the {sides[1]}: {percent(distances[worst])} are in a wrong cell.",
        alternative=f"Heat map of the total variation of pairs of columns of two {children}.",
        charts=(Chart("", sized(heat, step=max(24, min(40, 400 // len(order))))),),
        table=tuple(values),
    )


def linked_release_page(title: str, book: Mapping[str, Any], *, accepted: Acceptance | None = None) -> Page:
    """Return a public page of linked tables: their columns, the measured tables, and the stated errors.

    ``book`` is the codebook as JSON values; ``accepted`` is None if the acceptance of the description is unknown.
    """
    from sfumato.synthesize.linked import linked_codebook as codebook

    described = {} if accepted is None else {"Description": f"accepted by {accepted}"}
    details: dict[str, ShownTable] = {}
    for part in book["parts"]:
        details[f"{part['name']}: columns"] = tuple(codebook.family_column_rows(part))
        details[f"{part['name']}: tables measured together"] = tuple(codebook.family_tie_rows(part))
        for column in part["columns"]:
            details[f"{part['name']}: values of {column['name']}"] = _values(column)
    return Page(
        title=title,
        kicker="Synthetic linked tables \N{MIDDLE DOT} release report",
        lead=f"{str(book['notice']).capitalize()}. {shown_to(str(book['guarantee']['text']))}",
        facts=_four_numbers(book),
        terms=dict(codebook.family_facts(book)) | described,
        notes=(
            codebook.UNITS_TEXT,
            *(f"{part['name']} has {part['says']}." for part in book["parts"]),
            *(f"Note: {note}." for note in book["notes"]),
        ),
        sections=(bar_section("Columns", _bars(book)),),
        details={name: rows for name, rows in details.items() if rows},
        digits=_CODEBOOK_DIGITS,
    )


def _four_numbers(book: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the loss, the units, the rows and the largest error of a column; nothing without a loss."""
    loss = [f"{name} = {value}" for name, value in book["guarantee"]["loss"].items()]
    if not loss:
        return ()
    more = "".join(f" ({each})" for each in loss[1:])
    worst = max((column["worst"] or 0 for column in book["parts"][0]["columns"]), default=0)
    return (
        (loss[0], f"differential privacy{more}, for {book['guarantee']['unit']}"),
        (f"{book['units']:,}", "synthetic units, each with its rows in all tables"),
        (f"{sum(each['rows'] for each in book['files']):,}", f"rows in {len(book['files'])} tables"),
        (
            f"\N{PLUS-MINUS SIGN} {worst:,.0f} units",
            "or better, for a count of units by one column (95 % confidence)",
        ),
    )


def draw_linked(release: LinkedRelease) -> HtmlPage:
    """Return the page of linked synthetic tables.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    page = linked_release_page("Synthetic tables", release.codebook.to_json(), accepted=release.accepted)
    return HtmlPage(render(page))


def draw_linked_columns(release: LinkedRelease, column: str | None) -> HtmlPage:
    """Return the pictures of one column, such as ``visits.reason``, or of all.

    Raises:
        InputError: there is no such column.
    """
    return chosen_columns(release.headline, _bars(release.codebook.to_json()), column)


def _bars(book: Mapping[str, Any]) -> dict[str, tuple[Bar, ...]]:
    """Return the synthetic units by value, for each table and column; intervals are for the protected tables."""
    return {
        f"{part['name']}.{column['name']}".removeprefix("head."): tuple(
            Bar(str(value["label"]), value["units"], value["low"], value["high"]) for value in column["values"]
        )
        for part in book["parts"]
        for column in part["columns"]
    }


def _values(column: Mapping[str, Any]) -> ShownTable:
    rows: list[Row] = [
        {
            "value": str(value["label"]),
            "units": value["units"],
            "protected tables: from": value["low"],
            "to": value["high"],
            "off by at most": value["off_by"],
        }
        for value in column["values"]
    ]
    return tuple(rows)


def schema_page(schema: Schema, title: str) -> Page:
    """Return the page of a schema: its picture, and one line per table."""
    from markupsafe import Markup

    return Page(
        title=title,
        terms={"Unit": f"one {schema.id} of {schema.name}, in all tables together"},
        notes=("This schema is a draft: releases refuse it.",) if schema.draft else (),
        sections=(Section("Tables", Markup(drawing(schema))),),  # noqa: S704 - all text in it is escaped
        overview={"What it says": schema_rows(schema)},
    )


def schema_rows(schema: Schema) -> ShownTable:
    """Return a line for each table."""
    return tuple(
        {
            "table": table.name,
            "is": "public" if table.public else "private",
            "key": table.key,
            "belongs to": _owner_text(schema, table),
            "refers to": ", ".join(f"{link.column} of {link.table}" for link in table.references) or None,
            "rows kept of one": None if table.public else _bound(schema, table),
            "attributes": len(table.attributes),
        }
        for table in schema
    )


def _owner_text(schema: Schema, table: SchemaTable) -> str:
    """Return the owner of the rows of a table, in words."""
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
    """Return tables by their distance from the people, public ones last."""
    depth: dict[str, int] = {}
    for table in schema:
        at, far = table, 0 if table.name == schema.units else 1
        while at.through is not None:
            at, far = schema[at.through.table], far + 1
        depth[table.name] = far
    last = max((far for name, far in depth.items() if not schema[name].public), default=0)
    by_depth: list[list[SchemaTable]] = [[] for _ in range(last + 2)]
    for table in schema:
        by_depth[last + 1 if table.public else depth[table.name]].append(table)
    return [layer for layer in by_depth if layer]


def drawing(schema: Schema) -> Markup:
    """Return the picture, as SVG that takes the color of the text around it."""
    from markupsafe import Markup

    boxes: dict[str, tuple[int, int, int]] = {}  # left, top, height
    shapes, bottom = [], 0
    placed = layers(schema)
    for column, tables in enumerate(placed):
        top = _PAD
        for table in tables:
            lines = _lines(schema, table)
            left, height = _PAD + column * (_WIDTH + _GAP), (len(lines) + 1) * _LINE + 2 * _PAD
            boxes[table.name] = (left, top, height)
            shapes.append(_box(table, lines, left, top))
            top += height + 2 * _LINE
            bottom = max(bottom, top)
    ties = [_tie(boxes, table.name, to) for table in schema for to in _leads(schema, table) if to in boxes]
    width = 2 * _PAD + len(placed) * (_WIDTH + _GAP) - _GAP
    words = ", ".join(f"{table.name}: {_owner_text(schema, table)}" for table in schema)
    drawn = "".join([*ties, *shapes])
    return Markup(  # noqa: S704 - names are escaped where they are drawn
        f'<svg viewBox="0 0 {width} {bottom}" width="{width}" style="max-width:{width}px" class="drawing" role="img" '
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
    """Return a line from a table to the one whose keys it holds."""
    (left, top, _), (left2, top2, _) = boxes[one], boxes[other]
    start, end = (left, left2 + _WIDTH) if left > left2 else (left + _WIDTH, left2)
    y, y2, bend = top + _PAD + _LINE // 2, top2 + _PAD + _LINE // 2, (start + end) // 2
    return (
        f'<path d="M {start} {y} C {bend} {y}, {bend} {y2}, {end} {y2}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.5" stroke-width="1.5"/>'
    )
