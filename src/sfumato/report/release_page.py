"""The page of a synthetic file: its columns with error bars, its pairs, its groups, and its uses.

It is drawn from the codebook alone.  The codebook is public, and any program may have written it.  So all text is
escaped, and the page runs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sfumato.arguments import listed
from sfumato.errors import InputError, pluralize
from sfumato.extras import require
from sfumato.notebook_html import HtmlPage
from sfumato.report.page import Page, Section, ShownTable, render, shown_to
from sfumato.synthesize.codebook.codebook import PAIRS_TEXT, facts, pair_title
from sfumato.synthesize.codebook.codebook_lines import FOLDED_TEXT, group_lines, seen, value_lines

if TYPE_CHECKING:
    from markupsafe import Markup

    from sfumato.domain.unit import Acceptance
    from sfumato.synthesize.codebook.codebook import Codebook, PairEntry
    from sfumato.synthesize.codebook.codebook_lines import ColumnEntry, ValueLine
    from sfumato.synthesize.synthetic import Synthetic

_MOST_BARS = 40  # with labels and error bars of their own; more are drawn as a line in a band
_MOST_DRAWN = 500  # columns
_MOST_MATRIX = 30  # columns, of a matrix that can still be read
_WIDTH, _HEIGHT, _TOP, _LEFT, _FOOT = 320, 130, 8, 44, 76  # pixels of a drawing
_LABEL = 13  # characters below a bar
_FIGURES = 10_000
_DARK = 0.5  # strength from which text is white


def release_page(title: str, book: Codebook, *, accepted: Acceptance | None = None) -> Page:
    """Return a public page of a synthetic file, with its stated errors.

    Args:
        title: title of the page.
        book: the codebook of the file.
        accepted: the acceptance of the description of the table; None if it is unknown.
    """
    sections = [Section("What it is good for", _uses(book)), Section("Columns", _columns(book))]
    if len(book.columns) > 1:
        sections.append(Section("Pairs of columns", _pairs(book)))
    details: dict[str, ShownTable] = {
        "Measured tables": tuple(
            {
                "table": pair_title(table),
                "cells": table.cells,
                "of groups": table.grouped,
                "noise": table.noise,
                "standard deviation": table.deviation,
            }
            for table in book.measured
        ),
        "Every listed pair": tuple(
            {
                "pair": pair_title(pair),
                "measured": pair.measured,
                "strength": pair.strength,
                "cell off by": pair.worst,
                "single value off by": pair.worst_of_values,
                "misplaced": pair.share,
            }
            for pair in book.pairs
        ),
        "Methods that were considered": tuple({"method": each} for each in book.considered),
    }
    described = {} if accepted is None else {"Description": f"accepted by {accepted}"}
    return Page(
        title=title,
        warning=book.notice,
        terms={name: str(fact) for name, fact in facts(book)} | described,
        notes=(shown_to(book.guarantee.text),),
        sections=tuple(sections),
        details={name: rows for name, rows in details.items() if rows},
        digits=4,
    )


def draw_synthetic(release: Synthetic) -> HtmlPage:
    """Return the page of a release as HTML with its pictures.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    book = release.codebook
    return HtmlPage(
        render(release_page(f"Release of {pluralize(book.rows, 'synthetic row')}", book, accepted=release.accepted))
    )


def draw_synthetic_columns(release: Synthetic, name: str | None) -> HtmlPage:
    """Return a page with the picture of one column, or of all.

    Raises:
        InputError: there is no such column.
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    from markupsafe import Markup

    book = release.codebook
    if name is None:
        return HtmlPage(render(Page(title="Columns", sections=(Section("Rows by value", _columns(book)),))))
    place = next((place for place, column in enumerate(book.columns) if column.name == name), None)
    if place is None:
        columns = listed(column.name for column in book.columns)
        raise InputError(f"the release has no column {name!r}; it has {columns}", culprit=name)
    scale = book.table_rows / book.rows if book.rows else 1.0
    figure = Markup('<div class="grid">{}</div>').format(_figure(place, book.columns[place], scale))
    return HtmlPage(render(Page(title=name, sections=(Section("Rows by value", figure),))), height=460)


def _uses(book: Codebook) -> Markup:
    from markupsafe import Markup

    def listed(heading: str, sentences: Iterable[str]) -> Markup:
        items = Markup("").join(Markup("<li>{}</li>").format(each) for each in sentences)
        return Markup("<div><h3>{}</h3><ul>{}</ul></div>").format(heading, items)

    return Markup('<div class="uses">{}{}</div>').format(
        listed("Good for", book.good_for), listed("Not good for", book.not_for)
    )


def _columns(book: Codebook) -> Markup:
    from markupsafe import Markup

    scale = book.table_rows / book.rows if book.rows else 1.0
    figures = Markup("").join(_figure(place, column, scale) for place, column in enumerate(book.columns[:_MOST_DRAWN]))
    left_out = len(book.columns) - _MOST_DRAWN
    return Markup(
        '<p class="note">Bars are the rows of the file, scaled to the table; where they are measured, an upright line '
        "shows where the table's own number lies, with 95 %. Of many values a line shows the rows, and a band "
        "around it where the table's own numbers lie. Brown bars, or stretches below the line, of one shade beside "
        'each other are a group: tables of several columns measured them as one.</p><div class="grid">{}</div>{}'
    ).format(figures, Markup("<p>{} more columns are left out here.</p>").format(left_out) if left_out > 0 else "")


def _figure(place: int, column: ColumnEntry, scale: float) -> Markup:
    from markupsafe import Markup

    known = (
        "How far its values are off is not known."
        if column.worst is None
        else f"No value is off by more than {pluralize(column.worst, 'row')} (95 %)."
    )
    groups = (
        f" {sum(group.values for group in column.groups):,} of its {column.size:,} values are in "
        f"{pluralize(len(column.groups), 'group')}."
        if column.groups
        else f" {pluralize(column.size, 'value')}, none in a group."
    )
    drawing = _band(column, scale) if len(column.values) > _MOST_BARS else _bars(column, scale)
    return Markup('<figure><h3 id="column-{}">{}</h3>{}<figcaption>{}{}</figcaption>{}</figure>').format(
        place, column.name, drawing, known, groups, _values(column)
    )


def _values(column: ColumnEntry) -> Markup:
    """Return the folded table of the values of a column, and the sums of its groups."""
    from markupsafe import Markup

    lines = value_lines(column)
    sums = Markup("").join(
        Markup("<li>{}: {}, {}{}</li>").format(
            group.label,
            pluralize(group.values, "value"),
            pluralize(group.rows, "row"),
            "" if group.error is None else f", their sum off by at most {_figures(group.error)}",
        )
        for group in group_lines(column)
    )
    return Markup(
        '<details><summary>Values of {name}</summary><div class="scroll" tabindex="0" role="region" '
        'aria-label="Values of {name}"><table><tr><th scope="col" class="text">value</th><th scope="col">rows</th>'
        '<th scope="col">table: from</th><th scope="col">to</th><th scope="col">off by</th>'
        '<th scope="col" class="text">group</th></tr>{rows}</table>{folded}{sums}</div></details>'
    ).format(
        name=column.name,
        rows=Markup("").join(map(_line, lines)),
        folded=Markup("<p>{}</p>").format(FOLDED_TEXT.replace("`", "")) if any(line.several for line in lines) else "",
        sums=Markup("<ul>{}</ul>").format(sums) if sums else "",
    )


def _figures(error: int | str) -> str:
    return error if isinstance(error, str) else f"{error:,}"


def _line(line: ValueLine) -> Markup:
    from markupsafe import Markup

    numbers = (
        "-" if number is None else f"{number:,}" if isinstance(number, int) else number
        for number in (line.rows, line.low, line.high, line.error)
    )
    cells = Markup("").join(Markup("<td>{}</td>").format(number) for number in numbers)
    return Markup('<tr><td class="text">{}</td>{}<td class="text">{}</td></tr>').format(line.label, cells, line.group)


_BLUE, _LIGHT, _INK, _SOFT, _LINE = "#2f6fa8", "#8db8dd", "#1b2430", "#55606e", "#d9dee4"
_SHADES = ("#b8860b", "#7a5a12")  # of neighboring groups


def _scales(column: ColumnEntry, scale: float) -> tuple[list[float], float]:
    heights = [value.rows * scale for value in column.values]
    highest = max([*heights, *(value.high or 0 for value in column.values), 1.0])
    return heights, highest


def _bars(column: ColumnEntry, scale: float) -> Markup:
    """Return a bar per value, with its interval and label, and a strip of shades below if values share groups."""
    from markupsafe import Markup

    heights, highest = _scales(column, scale)
    count = max(len(heights), 1)
    step = (_WIDTH - _LEFT) / count
    parts = [_axis(highest)]
    for place, (value, height) in enumerate(zip(column.values, heights, strict=True)):
        left, middle = _LEFT + place * step, _LEFT + (place + 0.5) * step
        fill = _BLUE if value.group is None else _SHADES[value.group % len(_SHADES)]
        top = _y(height, highest)
        parts.append(
            Markup(
                '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"><title>{}</title></rect>'
            ).format(
                left + step * 0.1,
                top,
                step * 0.8,
                _TOP + _HEIGHT - top,
                fill,
                f"{seen(value.label)}: {pluralize(value.rows, 'row')}",
            )
        )
        if value.low is not None and value.high is not None:
            parts.append(_whisker(middle, value.low, value.high, highest, cap=min(3.0, step * 0.3)))
        if count <= 20 or place % (count // 12) == 0:  # noqa: PLR2004  (labels that do not overlap)
            parts.append(_label(middle, seen(value.label)))
    return _drawing(column, parts)


def _band(column: ColumnEntry, scale: float) -> Markup:
    """Return many values as a line inside the band of the table's own rows, with groups as a strip."""
    from markupsafe import Markup

    heights, highest = _scales(column, scale)
    step = (_WIDTH - _LEFT) / len(heights)
    middles = [_LEFT + (place + 0.5) * step for place in range(len(heights))]
    parts = [_axis(highest)]
    ends = [(value.low, value.high) for value in column.values]
    if all(low is not None and high is not None for low, high in ends):
        upper = [f"{x:.1f},{_y(high or 0, highest):.1f}" for x, (_, high) in zip(middles, ends, strict=True)]
        lower = [f"{x:.1f},{_y(low or 0, highest):.1f}" for x, (low, _) in zip(middles, ends, strict=True)]
        parts.append(Markup('<polygon points="{}" fill="{}"/>').format(" ".join([*upper, *reversed(lower)]), _LIGHT))
    line = " ".join(f"{x:.1f},{_y(height, highest):.1f}" for x, height in zip(middles, heights, strict=True))
    parts.append(Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.2"/>').format(line, _INK))
    for place, value in enumerate(column.values):
        if value.group is not None:
            parts.append(
                Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="4" fill="{}"/>').format(
                    middles[place] - step / 2, _TOP + _HEIGHT + 1, step + 0.1, _SHADES[value.group % len(_SHADES)]
                )
            )
        if place % (len(heights) // 10) == 0:
            parts.append(_label(middles[place], seen(value.label)))
    return _drawing(column, parts)


def _drawing(column: ColumnEntry, parts: Sequence[Markup]) -> Markup:
    from markupsafe import Markup

    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" font-family="system-ui, sans-serif">{}</svg>'
    ).format(_WIDTH, _TOP + _HEIGHT + _FOOT, f"Rows by {column.name}; the numbers are below", Markup("").join(parts))


def _y(rows: float, highest: float) -> float:
    return _TOP + _HEIGHT * (1 - min(max(rows / highest, 0.0), 1.0))


def _axis(highest: float) -> Markup:
    from markupsafe import Markup

    ticks = Markup("").join(
        Markup(
            '<line x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}" stroke="{}"/><text x="{}" y="{t:.1f}" font-size="11" '
            'text-anchor="end" fill="{}">{}</text>'
        ).format(_LEFT, _WIDTH, _LINE, _LEFT - 4, _SOFT, _short(part * highest), y=_y(part, 1), t=_y(part, 1) + 4)
        for part in (0.0, 0.5, 1.0)
    )
    return Markup("<g>{}</g>").format(ticks)


def _short(number: float) -> str:
    if number >= 100 * _FIGURES:
        return f"{number / 1e6:.3g}M"
    return f"{number / 1000:.3g}k" if number >= _FIGURES else f"{number:,.0f}"


def _whisker(x: float, low: float, high: float, highest: float, *, cap: float) -> Markup:
    from markupsafe import Markup

    ends = _y(low, highest), _y(high, highest)
    path = f"M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}" + "".join(f"M{x - cap:.1f} {y:.1f}h{2 * cap:.1f}" for y in ends)
    return Markup('<path d="{}" stroke="{}" stroke-width="1.2" fill="none"/>').format(path, _INK)


def _label(x: float, text: str) -> Markup:
    from markupsafe import Markup

    label = text if len(text) <= _LABEL else text[: _LABEL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    y = _TOP + _HEIGHT + 12
    return Markup(
        '<text transform="translate({:.1f} {}) rotate(-45)" font-size="11" text-anchor="end" fill="{}">{}</text>'
    ).format(x + 3, y, _SOFT, label)


def _pairs(book: Codebook) -> Markup:
    from markupsafe import Markup

    by_names = {frozenset(pair.attributes): pair for pair in book.pairs}
    names = [column.name for column in book.columns]
    if len(names) > _MOST_MATRIX:  # the columns of which most is known
        known = {name: sum(pair.measured for pair in book.pairs if name in pair.attributes) for name in names}
        names = sorted(sorted(names, key=lambda name: -known[name])[:_MOST_MATRIX], key=names.index)
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(name) for name in names[:-1])
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            name, Markup("").join(_cell(by_names.get(frozenset((name, other)))) for other in names[:place])
        )
        for place, name in enumerate(names)
        if place
    )
    left_out = len(book.columns) - len(names)
    return Markup(
        '<p class="note">In each cell: the strength of the association in the file, 0 to 1, and below it the most rows '
        'that a combination of two values is off by. {}</p><ul class="key">'
        '<li><span style="background:{}"></span>measured, weak</li>'
        '<li><span style="background:{}"></span>measured, strong</li>'
        '<li><span class="hatched"></span>modelled: not measured for this release; '
        "at most the share given would have to move to another cell, and where none stands, the error is not known"
        "</li></ul>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Matrix of pairs">'
        '<table class="matrix"><thead><tr><td class="empty"></td>{}</tr></thead><tbody>{}</tbody></table></div>{}'
    ).format(
        PAIRS_TEXT,
        _shade(0),
        _shade(1),
        head,
        rows,
        Markup("<p>Left out: {} with fewer measured pairs.</p>").format(pluralize(left_out, "column"))
        if left_out
        else "",
    )


def _cell(pair: PairEntry | None) -> Markup:
    from markupsafe import Markup

    if pair is None:
        return Markup('<td class="modelled">modelled</td>')
    if not pair.measured:
        known = "modelled" if pair.share is None else f"modelled, \N{LESS-THAN OR EQUAL TO} {pair.share}"
        return Markup('<td class="modelled">{:.2f}<small>{}</small></td>').format(pair.strength, known)
    error = "measured" if pair.worst_of_values is None else f"\N{PLUS-MINUS SIGN}{_short(pair.worst_of_values)}"
    return Markup('<td style="background:{};color:{}">{:.2f}<small>{}</small></td>').format(
        _shade(pair.strength),
        "#fff" if pair.strength > _DARK else _INK,
        pair.strength,
        error,
    )


def _shade(strength: float) -> str:
    """Return a shade from near white to dark blue; text is readable on both sides of one half."""
    part = min(max(strength, 0.0), 1.0)
    weak, strong = ((234, 242, 250), (110, 160, 205)) if part <= _DARK else ((62, 110, 160), (16, 58, 102))
    place = 2 * part if part <= _DARK else 2 * part - 1
    return "#" + "".join(f"{round(a + (b - a) * place):02x}" for a, b in zip(weak, strong, strict=True))
