"""Pages of answers, anonymized tables and linked tables: horizontal bars with intervals, and the numbers below.

A picture of bars needs no extra.  All text is escaped, and the pages run no script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sfumato.arguments import listed
from sfumato.errors import InputError, percent, pluralize
from sfumato.extras import require
from sfumato.notebook_html import HtmlPage
from sfumato.report.drawing import NARROW, WIDE, Bar, bar_drawing, palette, percent_up
from sfumato.report.page import Page, Section, ShownTable, render, shown_to

if TYPE_CHECKING:
    import pyarrow as pa
    from markupsafe import Markup

    from sfumato.anonymize.release.anonymized import Anonymized
    from sfumato.query.answer import Answer

_MOST_BARS = 60  # of a picture
_MOST_ROWS = 2000  # of the numbers below
_AROUND, _HIGHEST = 70, 640  # pixels: around the bars of a column, and of a frame in a notebook
_EXACT = 1e-9  # error of a sum of doubles
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_STYLE = "body{margin:8px;font-size:14px}figure{margin:0 0 16px}"


@dataclass(frozen=True)
class BarFigure:
    """The bars of one column."""

    title: str
    bars: tuple[Bar, ...]

    def html(self) -> str:
        """Return the figure as HTML."""
        left_out = len(self.bars) - _MOST_BARS
        note = f"<p>Not drawn: {pluralize(left_out, 'value')}.</p>" if left_out > 0 else ""
        heading = f'<h3 style="margin:0 0 6px;font-size:1rem">{escape(self.title)}</h3>'
        drawn = self.bars[:_MOST_BARS]
        pictures = (
            f'<div class="on-page">{bar_drawing(self.title, drawn)}</div>'
            f'<div class="on-phone">{bar_drawing(self.title, drawn, NARROW)}</div>'
        )
        return f"<figure>{heading}{pictures}{note}</figure>"


def chosen_columns(title: str, figures: Mapping[str, tuple[Bar, ...]], column: str | None) -> HtmlPage:
    """Return a page with the pictures of one column, or of all.

    Raises:
        InputError: there is no such column.
    """
    if column is not None and column not in figures:
        raise InputError(f"there is no column {column!r} to draw; there are {listed(figures)}", culprit=column)
    chosen = figures if column is None else {column: figures[column]}
    body = "".join(BarFigure(name, bars).html() for name, bars in chosen.items())
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(column or title)}</title>'
        f"<style>{palette()}{_STYLE}</style></head><body>{body}</body></html>"
    )
    height = sum(_AROUND + WIDE.step * min(len(bars), _MOST_BARS) for bars in chosen.values())
    return HtmlPage(page, height=min(height, _HIGHEST))


def bar_section(heading: str, figures: Mapping[str, tuple[Bar, ...]]) -> Section:
    """Return a part of a page with the pictures of several columns."""
    from markupsafe import Markup

    drawn = "".join(BarFigure(name, bars).html() for name, bars in figures.items())
    return Section(heading, Markup(drawn))  # noqa: S704  (all text in it is escaped)


def draw_answer(answer: Answer) -> HtmlPage:
    """Return the page of an answer.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    numbers: ShownTable = tuple(answer.slice_groups(slice(_MOST_ROWS)).rows)
    page = Page(
        title="Answer",
        kicker="Noisy answer \N{MIDDLE DOT} release report",
        lead=(
            f"Each bar is an estimate. Its line holds the exact answer{answer.table_phrase} with a probability of "
            f"{percent(float(answer.confidence))}. {shown_to(answer.guarantee)}"
        ),
        facts=_answer_numbers(answer),
        terms=answer.terms(),
        notes=tuple(f"Note: {each}." for each in answer.notes),
        sections=(bar_section("Answers", _answer_bars(answer)),),
        details={"Numbers": numbers},
    )
    return HtmlPage(render(page))


def _answer_numbers(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Return the four numbers of an answer; none if it is not private, such as a simulated one."""
    promise = "differential privacy"
    if not answer.guarantee.startswith(promise):
        return ()
    (name, amount), *others = answer.provenance["parameters"]["loss"].items()
    more = "".join(f" ({other} {value})" for other, value in others)
    return (
        (f"{name} = {amount}", f"{promise}{more}, for {answer.provenance['unit']}"),
        (pluralize(len(answer) * len(answer.columns), "number"), "with noise, each with an interval"),
        (percent(float(answer.confidence)), "confidence of each interval, on its own"),
        (f"entry {answer.provenance['journal_entry']}", "in the journal of the ledger"),
    )


def draw_answer_columns(answer: Answer, column: str | None) -> HtmlPage:
    """Return the pictures of one column of an answer, or of all.

    Raises:
        InputError: there is no such column.
    """
    return chosen_columns(answer.headline, _answer_bars(answer), column)


def _answer_bars(answer: Answer) -> dict[str, tuple[Bar, ...]]:
    labels = [", ".join(key) or "all rows" for key in answer.keys]
    return {
        name: tuple(
            Bar(label, row[place].estimate, *row[place].interval, informative=informative[place])
            for label, row, informative in zip(labels, answer.values, answer.informative, strict=True)
        )
        for place, name in enumerate(answer.columns)
    }


def draw_anonymized(release: Anonymized) -> HtmlPage:
    """Return the page of an anonymized table.

    Raises:
        InfeasibleError: the rows are not those that were verified.
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    return HtmlPage(render(anonymized_page("Anonymized table", release)))


def anonymized_page(title: str, release: Anonymized) -> Page:
    """Return the page of an anonymized table, whose figures are published with its rows.

    Raises:
        InfeasibleError: the rows are not those that were verified.
    """
    facts, quasi = release.facts, tuple(release.facts["loss_metric"])
    losses: ShownTable = tuple({"column": name, "loss": loss} for name, loss in facts["loss_metric"].items())
    return Page(
        title=title,
        kicker="Anonymized table \N{MIDDLE DOT} release report",
        lead=(
            "These rows are rows of people, with coarser values. No noise was added, and no differential privacy "
            f"protects them. Rows with the same {listed(quasi)} form a class, so that an attacker who knows only these "
            "columns cannot tell the rows of a class apart."
        ),
        facts=_anonymized_numbers(facts),
        terms=release.terms(),
        sections=(
            Section("Use", _anonymized_uses(release, quasi)),
            bar_section("Published rows by value", _anonymized_bars(release)),
        ),
        details={"Loss of each quasi-identifier: 0 if nothing is lost, 1 if everything is": losses},
        digits=3,
    )


def _anonymized_numbers(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    smallest, worst = facts["smallest_class"], max(facts["loss_metric"].items(), key=lambda each: each[1])
    suppressed = facts["suppressed"] / max(facts["rows"], 1)
    return (
        (f"{smallest:,}", f"{facts['counted']} at least in every class, of {pluralize(facts['classes'], 'class')}"),
        (percent_up(1 / max(smallest, 1)), "highest chance that a match by these columns is right"),
        (f"{facts['rows'] - facts['suppressed']:,}", f"rows published; {percent(suppressed)} suppressed"),
        (f"{percent(worst[1])}", f"of the detail of {worst[0]} is lost, the most of all columns"),
    )


def _anonymized_uses(release: Anonymized, quasi: Sequence[str]) -> Markup:
    from markupsafe import Markup

    facts = release.facts
    published = max(facts["rows"] - facts["suppressed"], 1)
    read_off = [
        f"{name} ({percent(rows / published)} of the rows)" for name, rows in facts["homogeneous"].items() if rows
    ]
    suppressed, share = release.suppressed_columns, facts["suppressed"] / max(facts["rows"], 1)
    usable = [name for name in quasi if name not in suppressed]
    coarser = [name for name in usable if facts["loss_metric"][name] > share + _EXACT]
    exact = [name for name in usable if name not in coarser]
    good = [("Counts and tables of the published values.", "They are exact for the published rows.")]
    if coarser:
        good.append((f"Analyses by {listed(coarser)} in coarser values.", "The bars below show these values."))
    if exact:
        good.append((f"Analyses by {listed(exact)}.", "The published rows keep their full detail."))
    bad = [
        *([(f"Analyses by {listed(suppressed)}.", "Every value was replaced by *.")] if suppressed else []),
        ("Recipients who know other columns.", "The rule holds for an attacker who knows these columns only."),
        ("Two releases of the same people.", "Their classes can be intersected."),
        *([("Hiding a value that a whole class shares:", f"{listed(read_off)}.")] if read_off else []),
        ("Hiding that a person is in the table.", "The release does not protect that."),
    ]

    def items(sentences: Sequence[tuple[str, str]]) -> Markup:
        return Markup("").join(Markup("<li><b>{}</b> {}</li>").format(*each) for each in sentences)

    return Markup(
        '<div class="two"><div class="use"><h3>Use it for</h3><ul>{}</ul></div>'
        '<div class="use no"><h3>Do not use it for</h3><ul>{}</ul></div></div>'
    ).format(items(good), items(bad))


def draw_anonymized_columns(release: Anonymized, column: str | None) -> HtmlPage:
    """Return the pictures of one column of an anonymized table, or of all.

    Raises:
        InputError: there is no such column.
        InfeasibleError: the rows are not those that were verified.
    """
    return chosen_columns(release.headline, _anonymized_bars(release), column)


def _anonymized_bars(release: Anonymized) -> dict[str, tuple[Bar, ...]]:
    return {name: _value_bars(release.rows[name]) for name in release.rows.columns}


def _value_bars(values: pa.ChunkedArray) -> tuple[Bar, ...]:
    """Return a bar for each value: by the numbers with which all values begin, or else by rows, most first."""
    totals = [("missing" if value is None else str(value), rows) for value, rows in _counts(values)]
    numbers = {label: _NUMBER.match(label) for label, _ in totals}
    if all(numbers.values()):
        totals.sort(key=lambda each: float((numbers[each[0]] or [0])[0]))
    else:
        totals.sort(key=lambda each: (-each[1], each[0]))
    return tuple(Bar(label, rows) for label, rows in totals)


def _counts(values: pa.ChunkedArray) -> Iterator[tuple[object, int]]:
    for each in values.value_counts().to_pylist():
        yield each["values"], each["counts"]
