"""The page of a synthetic file: what it is good for, its pairs, its columns with error bars, and its details.

It is drawn from the codebook alone.  The codebook is public, and any program may have written it.  So all text is
escaped, and the page runs no script.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from sfumato.arguments import listed
from sfumato.errors import InputError, percent, pluralize
from sfumato.evaluate.stated_claims import parse_stated_loss
from sfumato.evaluate.verdicts import WEAK_GUARANTEE
from sfumato.extras import require
from sfumato.notebook_html import HtmlPage
from sfumato.report.drawing import CARD, Bar, PairCell, Trust, band_drawing, bar_drawing, pair_matrix, percent_up
from sfumato.report.page import Page, Section, ShownTable, render, shown_to
from sfumato.synthesize.codebook.codebook import PAIRS_TEXT, facts, pair_title
from sfumato.synthesize.codebook.codebook_lines import FOLDED_TEXT, group_lines, seen, value_lines

if TYPE_CHECKING:
    from markupsafe import Markup

    from sfumato.domain.unit import Acceptance
    from sfumato.synthesize.codebook.codebook import Codebook, PairEntry
    from sfumato.synthesize.codebook.codebook_lines import ColumnEntry, ValueEntry, ValueLine
    from sfumato.synthesize.synthetic import Synthetic

_MOST_BARS = 9  # of a column, each with its whisker; of more numbers a line in a band is drawn
_MOST_DRAWN = 500  # columns
_MOST_MATRIX = 30  # columns, of a matrix that can still be read
_NAMED = 3  # pairs that a sentence names
_CLOSE, _WIDE = 0.05, 0.2  # shares of rows in the wrong cell up to which a pair, or its shape, is trusted
_ROW = "display:flex;flex-wrap:wrap;gap:8px;margin:4px 0;max-width:1000px;color:inherit"
_CELL = "flex:1 1 200px;min-width:0;border:1px solid rgba(128,128,128,.35);border-radius:4px;padding:6px 10px"
_SMALLEST = 4  # standard deviations of noise in the smallest count worth reading


def release_page(title: str, book: Codebook, *, accepted: Acceptance | None = None) -> Page:
    """Return a public page of a synthetic file, with its stated errors.

    Args:
        title: title of the page.
        book: the codebook of the file.
        accepted: the acceptance of the description of the table; None if it is unknown.
    """
    sections = [Section("Use", _uses(book))]
    if len(book.columns) > 1:
        sections.append(Section("Which pairs of columns can I trust?", _pairs(book)))
    sections += [Section("Columns", _columns(book)), Section("Answer a question with its uncertainty", _question(book))]
    described = {} if accepted is None else {"Description": f"accepted by {accepted}"}
    return Page(
        title=title,
        kicker="Synthetic data \N{MIDDLE DOT} release report",
        lead=_lead(book),
        facts=_four_numbers(book),
        terms={name: str(fact) for name, fact in facts(book)} | described,
        sections=tuple(sections),
        details={name: rows for name, rows in _details(book).items() if rows},
        digits=4,
    )


def _details(book: Codebook) -> dict[str, ShownTable]:
    return {
        "All uses in words": tuple(
            {"use": use, "sentence": each}
            for use, sentences in (("good for", book.good_for), ("not good for", book.not_for))
            for each in sentences
        ),
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


def _lead(book: Codebook) -> str:
    """Return what the file is, and who may see the page."""
    if not book.guarantee.loss:
        return f"{book.notice[:1].upper()}{book.notice[1:]}. {shown_to(book.guarantee.text)}"
    return (
        f"These {pluralize(book.rows, 'row')} look like rows of the table, and no row is a person. A model drew them "
        f"after it saw only noisy counts. {_weakness(book)}{shown_to(book.guarantee.text)}"
    )


def _weakness(book: Codebook) -> str:
    """Return a sentence about a guarantee that hardly protects; empty for any other."""
    try:
        right = parse_stated_loss(book.guarantee.loss).right_guesses()
    except (KeyError, TypeError, ValueError, InputError):  # a damaged file; its sign-off page refuses it
        return ""
    if right <= WEAK_GUARANTEE:
        return ""
    return (
        f"The guarantee hardly protects: a guess whether a unit ({book.guarantee.unit}) is in the table may be right "
        f"up to {percent_up(right)} of the time. "
    )


def _four_numbers(book: Codebook) -> tuple[tuple[str, str], ...]:
    loss = ", ".join(f"{name} = {value}" for name, value in list(book.guarantee.loss.items())[:1]) or "no loss stated"
    delta = "".join(f" ({name} {value})" for name, value in list(book.guarantee.loss.items())[1:])
    numbers = [
        (loss, f"{'differential privacy' if book.guarantee.loss else 'guarantee'}{delta}, for {book.guarantee.unit}")
    ]
    known = [column.worst for column in book.columns if column.worst is not None]
    if known:
        share = max(known) / max(book.table_rows, 1)
        some = (
            "every count"
            if len(known) == len(book.columns)
            else f"counts by {len(known)} of {len(book.columns)} columns"
        )
        numbers.append(
            (
                f"\N{PLUS-MINUS SIGN} {pluralize(max(known), 'row')}",
                f"or better, for {some} by one column ({percent(share)}, with 95 % confidence)",
            )
        )
    else:
        numbers.append(("not known", "error of counts by one column"))
    pairs, measured = len(book.pairs) + book.pairs_left_out, sum(pair.measured for pair in book.pairs)
    numbers.append(
        (f"{measured:,} of {pairs:,}", "pairs of columns were measured; the others are the model's estimate")
    )
    several = [table.deviation for table in book.measured if len(table.attributes) > 1]
    if several:
        smallest = math.ceil(_SMALLEST * median(several))
        numbers.append((pluralize(smallest, "row"), "the smallest count worth reading in a table of several columns"))
    else:
        numbers.append(("none", "no table of several columns was measured"))
    return tuple(numbers)


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


def _trust(pair: PairEntry) -> Trust:
    """Return how far a pair can be trusted, by the largest share of its rows in the wrong cell."""
    if not pair.measured or pair.misplaced is None:
        return Trust.MODELED
    if pair.misplaced <= _CLOSE:
        return Trust.TRUST
    return Trust.SHAPE if pair.misplaced <= _WIDE else Trust.AVOID


def _pair_names(pairs: Sequence[PairEntry]) -> str:
    named = ", ".join(" \N{MULTIPLICATION SIGN} ".join(pair.attributes) for pair in pairs[:_NAMED])
    return named if len(pairs) <= _NAMED else f"{named} and {len(pairs) - _NAMED} more"


def _uses(book: Codebook) -> Markup:
    from markupsafe import Markup

    def items(sentences: Iterator[tuple[str, str]]) -> Markup:
        return Markup("").join(Markup("<li><b>{}</b> {}</li>").format(*each) for each in sentences)

    return Markup(
        '<div class="two"><div class="use"><h3>Use it for</h3><ul>{}</ul></div>'
        '<div class="use no"><h3>Do not use it for</h3><ul>{}</ul></div></div>'
    ).format(items(_good_uses(book)), items(_bad_uses(book)))


def _good_uses(book: Codebook) -> Iterator[tuple[str, str]]:
    known = [column.name for column in book.columns if column.worst is not None]
    if known:
        some = "All columns" if len(known) == len(book.columns) else listed(known)
        yield "Counts by one column.", f"{some}, within the error on each card below."
    close = [pair for pair in book.pairs if _trust(pair) is Trust.TRUST]
    if close:
        most = max(pair.misplaced or 0 for pair in close)
        yield (
            "Tables of two trusted columns,",
            f"such as {_pair_names(close)}: at most {percent(most)} of rows in the wrong cell, with 95 % confidence.",
        )
    yield "Building and testing programs, and teaching.", "Columns, types and labels are those of the real table."


def _bad_uses(book: Codebook) -> Iterator[tuple[str, str]]:
    yield "Finding anyone.", "Rows are drawn from noisy counts; none is copied from the table."
    wide = sorted((pair for pair in book.pairs if _trust(pair) is Trust.AVOID), key=lambda pair: -(pair.misplaced or 0))
    if wide:
        yield (
            f"Fine detail in {_pair_names(wide)}.",
            f"Up to {percent(wide[0].misplaced or 0)} of the rows may be in the wrong cell.",
        )
    if any(_trust(pair) is Trust.MODELED for pair in book.pairs) or book.pairs_left_out:
        yield "Pairs that were not measured.", "The model fills them in from the others, with unknown error."
    unknown = [column.name for column in book.columns if column.worst is None]
    if unknown:
        yield f"Exact counts by {listed(unknown)}.", "Their error is not known."
    yield "Ordinary standard errors and tests.", "They ignore the noise. Use sfumato.interval, which does not."


def _pairs(book: Codebook) -> Markup:
    from markupsafe import Markup

    names = [column.name for column in book.columns]
    if len(names) > _MOST_MATRIX:  # the columns of which most is known
        known = {name: sum(pair.measured for pair in book.pairs if name in pair.attributes) for name in names}
        names = sorted(sorted(names, key=lambda name: -known[name])[:_MOST_MATRIX], key=names.index)
    cells = {
        frozenset((name, other)): PairCell(
            Trust.MODELED, "", f"{other} \N{MULTIPLICATION SIGN} {name}: estimated by the model"
        )
        for place, name in enumerate(names)
        for other in names[:place]
    }
    cells |= {
        frozenset(pair.attributes): _pair_cell(pair) for pair in book.pairs if frozenset(pair.attributes) in cells
    }
    totals = {trust: sum(_trust(pair) is trust for pair in book.pairs) for trust in Trust}
    totals[Trust.MODELED] += book.pairs_left_out
    title = f"Pairs of columns: {totals[Trust.TRUST]} to trust, {totals[Trust.SHAPE]} to trust in shape, "
    title += f"{totals[Trust.AVOID]} to avoid, {totals[Trust.MODELED]} estimated"
    left_out = len(book.columns) - len(names)
    more = Markup("<p>Left out: {} with fewer measured pairs.</p>").format(pluralize(left_out, "column"))
    return Markup(
        '<div class="pairs"><div>{}{}</div><div><ul class="trust">{}</ul><p class="note">The number is the largest '
        "share of rows, in percent, that may be in the wrong cell, with 95 % confidence. The owner of the table can "
        "test an estimated pair: <code>sfumato evaluate</code>.</p><details><summary>How to read the numbers</summary>"
        '<p class="note">{}</p></details></div></div>'
    ).format(
        Markup(pair_matrix(title, names, cells)),  # noqa: S704  (its text is escaped)
        more if left_out else "",
        Markup("").join(
            Markup('<li><i style="background:var(--{})"></i><span><b>{}: {}.</b> {}</span></li>').format(
                trust.value, pluralize(totals[trust], "pair"), *_TRUST_WORDS[trust]
            )
            for trust in Trust
        ),
        PAIRS_TEXT,
    )


_TRUST_WORDS = {
    Trust.TRUST: ("trust", f"Measured; at most {percent(_CLOSE)} of rows in the wrong cell."),
    Trust.SHAPE: ("trust the shape", f"Measured; {percent(_CLOSE)} to {percent(_WIDE)}."),
    Trust.AVOID: ("avoid", f"Measured, but more than {percent(_WIDE)}."),
    Trust.MODELED: ("estimated", "Not measured; the model fills them in from the others."),
}


def _pair_cell(pair: PairEntry) -> PairCell:
    trust, names = _trust(pair), " \N{MULTIPLICATION SIGN} ".join(pair.attributes)
    if pair.misplaced is None:
        kind = "measured, with unknown error" if pair.measured else "estimated by the model"
        return PairCell(trust, "", f"{names}: {kind}; association {pair.strength:.2f}")
    kind = "measured" if pair.measured else "estimated"
    error = f"at most {pair.share} of rows in the wrong cell"
    number = f"{math.ceil(100 * pair.misplaced - 1e-9)}" if 0 <= pair.misplaced <= 1 else ""
    return PairCell(trust, number, f"{names}: {kind}; {error}; association {pair.strength:.2f}")


def _columns(book: Codebook) -> Markup:
    from markupsafe import Markup

    scale = book.table_rows / book.rows if book.rows else 1.0
    figures = Markup("").join(_figure(place, column, scale) for place, column in enumerate(book.columns[:_MOST_DRAWN]))
    left_out = len(book.columns) - _MOST_DRAWN
    return Markup(
        '<p class="note">Bars are rows of this file, scaled to the table. The whisker holds the real number with 95 % '
        "confidence. Of many numbers, a line shows the rows and a band around it holds the real numbers. Brown bars, "
        'or stretches below a line, were measured together as one group.</p><div class="grid">{}</div>{}'
    ).format(figures, Markup("<p>Left out here: {}.</p>").format(pluralize(left_out, "column")) if left_out > 0 else "")


def _figure(place: int, column: ColumnEntry, scale: float) -> Markup:
    from markupsafe import Markup

    error = (
        Markup("The error of its values is not known.")
        if column.worst is None
        else Markup("Every value is right to within <b>{}</b>, with 95 % confidence.").format(
            pluralize(column.worst, "row")
        )
    )
    groups = (
        f" {sum(group.values for group in column.groups):,} of its {column.size:,} values are in "
        f"{pluralize(len(column.groups), 'group')}."
        if column.groups
        else f" {pluralize(column.size, 'value')}, none in a group."
    )
    drawn, more = _drawing(column, scale)
    note = Markup('<p class="note">{} more.</p>').format(pluralize(more, "value")) if more else ""
    drawing = Markup("{}{}").format(Markup(drawn), note)  # noqa: S704  (its text is escaped)
    return Markup('<figure><h3 id="column-{}">{}</h3>{}<figcaption>{}{}</figcaption>{}</figure>').format(
        place, column.name, drawing, error, groups, _values(column)
    )


def _drawing(column: ColumnEntry, scale: float) -> tuple[str, int]:
    """Return the picture of a column, and how many of its values are not in it.

    Many ordered values are a line in a band.  Others have a bar each with its whisker: in their order, or the most
    frequent if there are many.
    """
    title = f"Rows by {column.name}; the numbers are below"
    values: Sequence[ValueEntry] = column.values
    is_band = column.kind != "categorical" and len(values) > _MOST_BARS
    if column.kind == "categorical":
        values = sorted(values, key=lambda value: -value.rows)[:_MOST_BARS]
    bars = [Bar(seen(each.label), each.rows * scale, each.low, each.high, group=each.group) for each in values]
    drawn = band_drawing(title, bars) if is_band else bar_drawing(title, bars, CARD)
    return drawn, len(column.values) - len(bars)


def draw_synthetic_card(release: Synthetic) -> str:
    """Return the four numbers and the pictures of three columns, for a notebook; they need no extra."""
    book = release.codebook
    scale = book.table_rows / book.rows if book.rows else 1.0
    numbers = "".join(
        f'<div style="{_CELL}"><b style="font-size:1.25em">{escape(number)}</b><br>{escape(meaning)}</div>'
        for number, meaning in _four_numbers(book)
    )
    pictures = "".join(
        f'<div style="{_CELL}"><b>{escape(column.name)}</b>{_drawing(column, scale)[0]}</div>'
        for column in sorted(book.columns, key=lambda column: column.kind != "categorical")[:3]
    )
    return f'<div style="{_ROW}">{numbers}</div><div style="{_ROW}">{pictures}</div>'


def _question(book: Codebook) -> Markup:
    """Return a question about the most frequent value of a column with a known error, and its interval."""
    from markupsafe import Markup

    columns = [column for column in book.columns if column.kind == "categorical" and column.worst is not None]
    values = [
        (value.rows, column.name, value.label, value.low, value.high)
        for column in columns[-1:]
        for value in column.values
        if value.values == 1 and value.low is not None and value.high is not None
    ]
    command = "sfumato interval FILE \"SELECT COUNT(*) FROM file WHERE column = 'value'\""
    shell = Markup('<pre tabindex="0" role="region" aria-label="Command">{}</pre>')
    if not values:
        return shell.format(command)
    rows, name, label, low, high = max(values, key=lambda value: value[0])
    return shell.format(command.replace("column = 'value'", f"{name} = '{label}'")) + Markup(
        "<p>The file has {} with {} = {}. The real number lies between {:,} and {:,}, with 95 % confidence.</p>"
    ).format(pluralize(rows, "row"), name, label, low, high)


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
