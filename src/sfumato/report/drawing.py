"""Small fixed pictures as SVG: bars with whiskers, pairs of columns, a budget, attacks, and a chance to guess right.

A picture needs no extra and no style sheet.  It takes the colors of ``palette.css`` from its page, and its own colors
elsewhere, such as in a notebook.  All text is escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from importlib import resources

from sfumato.errors import budget_percent, digits, interval_digits

_EXACT = 1e-9  # error of a double, which is not rounded up
_FONT = 'font-family="Inter, system-ui, sans-serif" font-size="11"'
_INK, _SOFT, _LINE = "currentColor", "var(--soft, #6b737c)", "var(--line, #b9b5ad)"
_BAR, _ACCENT, _SPENT, _LIMIT = (
    "var(--bar, #4f7f93)",
    "var(--accent, #9a6431)",
    "var(--spent, #b9ab97)",
    "var(--bad, #c03a3e)",
)
_WIDTH = 380  # of a picture in half a page
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{.*?\} \}\n", re.DOTALL)
_STEP = 23  # pixels between rows
_BEFORE, _LETTER = 12, 6.2  # pixels: before the numbers next to bars, and of one digit


def palette(*, dark: bool = True) -> str:
    """Return the style sheet of colors and fonts that all pages share, for dark screens too or for light ones only."""
    style = resources.files("sfumato.report").joinpath("palette.css").read_text(encoding="utf-8")
    return style if dark else _DARK.sub("", style)


def percent_up(share: float) -> str:
    """Return a share in percent, rounded up: a bound that is rounded down would be false.

    >>> percent_up(0.7310586), percent_up(0.99995), percent_up(0.5)
    ('73.2 %', '100 %', '50 %')
    """
    return f"{math.ceil(1000 * share - _EXACT) / 10:g} %"


def drawing(label: str, width: float, height: float, *parts: str) -> str:
    """Return parts as one picture with a text for readers who do not see it."""
    return (
        f'<svg class="drawing" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" {_FONT}>'
        f"{''.join(parts)}</svg>"
    )


def text_mark(x: float, y: float, text: str, *, anchor: str = "start", fill: str = _INK, more: str = "") -> str:
    """Return a text as a part of a picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(text)}</text>'


@dataclass(frozen=True)
class Bar:
    """A bar with a label, and with both ends of its interval if it has one.

    A bar with a ``group`` is brown: a release measured the values of the group together.  A bar that is not
    ``informative`` has an interval of all possible values, so that no bar is drawn.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    group: int | None = None
    informative: bool = True

    @property
    def text(self) -> str:
        """The value, with its interval."""
        if self.low is None or self.high is None:
            return digits(self.value, ",")
        value, low, high = interval_digits(self.value, self.low, self.high, ",")
        return f"{value if self.informative else 'too few rows'} ({low} to {high})"


@dataclass(frozen=True)
class BarWidths:
    """The widths of the labels, the bars and the numbers of a picture of bars, and the height of a row.

    The numbers get more width if they need it.
    """

    labels: int = 190
    bars: int = 320
    numbers: int = 200
    step: int = 24
    letters: int = 28
    intervals: bool = True

    def number(self, bar: Bar) -> str:
        """Return the number to the right of a bar."""
        return bar.text if self.intervals else digits(bar.value, ",")


WIDE = BarWidths()
"""The widths of a picture across a page."""
NARROW = BarWidths(labels=146, bars=66, numbers=40, step=20, letters=22)
"""The widths of a picture on a phone."""
CARD = BarWidths(labels=120, bars=130, numbers=60, step=16, letters=17, intervals=False)
"""The widths in a card, of which three stand in a row."""


def bar_drawing(
    title: str, bars: Sequence[Bar], widths: BarWidths = WIDE, *, span: tuple[float, float] | None = None
) -> str:
    """Return horizontal bars, with the interval of each as a whisker.

    With ``span``, the scale has these ends instead of the least and the largest number.
    """
    ends = [each for bar in bars for each in (bar.value, bar.low, bar.high) if each is not None]
    numbers: list[float] = [0.0, *(span or ()), *ends]
    least, most = min(numbers), max(numbers)
    scale, step = widths.bars / ((most - least) or 1.0), widths.step

    def x(number: float) -> float:
        return widths.labels + (number - least) * scale

    parts = []
    for place, bar in enumerate(bars):
        top, middle = place * step, (place + 0.5) * step
        start, end = sorted((x(0), x(bar.value if bar.informative else 0.0)))
        right = max(end, x(bar.high or 0.0)) + 8 if not widths.intervals else widths.labels + widths.bars + _BEFORE
        parts += [
            text_mark(widths.labels - 8, middle + 4, _short(bar.label, widths.letters), anchor="end"),
            _bar(bar, (start, end), top + step / 6, step * 2 / 3),
            text_mark(right, middle + 4, widths.number(bar), fill=_SOFT),
        ]
        if bar.low is not None and bar.high is not None:
            parts.append(_whisker(x(bar.low), x(bar.high), middle, min(4.0, step / 5)))
    height = len(bars) * step
    zero = f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{height}" stroke="{_LINE}"/>'
    longest = max((len(widths.number(bar)) for bar in bars), default=0)
    width = widths.labels + widths.bars + max(widths.numbers, math.ceil(_BEFORE + _LETTER * longest))
    return f'<div style="max-width:{width}px">{drawing(title, width, height, zero, *parts)}</div>'


def _bar(bar: Bar, ends: tuple[float, float], y: float, height: float) -> str:
    fill = "var(--group, #b8975a)" if bar.group is not None else _BAR
    return (
        f'<rect x="{ends[0]:.1f}" y="{y:.1f}" width="{ends[1] - ends[0]:.1f}" height="{height:.1f}" fill="{fill}">'
        f"<title>{escape(bar.label)}: {escape(bar.text)}</title></rect>"
    )


_BAND_WIDTH, _BAND_HEIGHT, _BAND_TOP, _BAND_LEFT, _BAND_FOOT = 320, 130, 8, 44, 76  # pixels
_BAND_LETTERS = 13
_SHADES = ("var(--group, #b8975a)", "var(--accent, #7a4a21)")  # of neighboring groups


def band_drawing(title: str, bars: Sequence[Bar]) -> str:
    """Return at least ten ordered values as a line inside the band of their intervals, with groups as a strip."""
    highest = max(1.0, *(bar.value for bar in bars), *(bar.high or 0.0 for bar in bars))
    step = (_BAND_WIDTH - _BAND_LEFT) / len(bars)
    middles = [_BAND_LEFT + (place + 0.5) * step for place in range(len(bars))]
    bottom = _BAND_TOP + _BAND_HEIGHT

    def y(rows: float) -> float:
        return bottom - _BAND_HEIGHT * min(max(rows / highest, 0.0), 1.0)

    def line(rows: Sequence[float]) -> list[str]:
        return [f"{x:.1f},{y(each):.1f}" for x, each in zip(middles, rows, strict=True)]

    parts = [_tick(part * highest, y(part * highest)) for part in (0.0, 0.5, 1.0)]
    if all(bar.low is not None and bar.high is not None for bar in bars):
        band = [*line([bar.high or 0.0 for bar in bars]), *line([bar.low or 0.0 for bar in bars])[::-1]]
        parts.append(f'<polygon points="{" ".join(band)}" fill="var(--shape, #8fbf9f)"/>')
    points = " ".join(line([bar.value for bar in bars]))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_INK}" stroke-width="1.2"/>')
    for place, (x, bar) in enumerate(zip(middles, bars, strict=True)):
        if bar.group is not None:
            fill = _SHADES[bar.group % len(_SHADES)]
            parts.append(
                f'<rect x="{x - step / 2:.1f}" y="{bottom + 1}" width="{step + 0.1:.1f}" height="4" fill="{fill}"/>'
            )
        if place % max(len(bars) // 10, 1) == 0:
            turn = f' transform="translate({x + 3:.1f} {bottom + 12}) rotate(-45)"'
            parts.append(text_mark(0, 0, _short(bar.label, _BAND_LETTERS), anchor="end", fill=_SOFT, more=turn))
    return drawing(title, _BAND_WIDTH, bottom + _BAND_FOOT, *parts)


def _tick(rows: float, y: float) -> str:
    label = f"{rows / 1e6:.3g}M" if rows >= 1e6 else f"{rows / 1000:.3g}k" if rows >= 1e4 else f"{rows:,.0f}"  # noqa: PLR2004
    line = f'<line x1="{_BAND_LEFT}" x2="{_BAND_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_LINE}"/>'
    return line + text_mark(_BAND_LEFT - 4, y + 4, label, anchor="end", fill=_SOFT)


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _whisker(low: float, high: float, y: float, cap: float) -> str:
    ends = "".join(f"M{end:.1f} {y - cap:.1f}v{2 * cap:.1f}" for end in (low, high))
    return f'<path d="M{low:.1f} {y:.1f}H{high:.1f}{ends}" stroke="{_INK}" stroke-width="1.3" fill="none"/>'


@dataclass(frozen=True)
class BudgetShares:
    """The shares of a budget: spent before a release, by the release, after it, and left."""

    earlier: float
    release: float
    later: float
    left: float


def budget_bar(shares: BudgetShares, release: str = "this release") -> str:
    """Return a budget as one bar: spent shares pale, the release in the accent color, the rest empty."""
    inner, height = _WIDTH - 2, 14
    spent = (
        (0.0, shares.earlier, _SPENT),
        (shares.earlier, shares.release, _ACCENT),
        (shares.earlier + shares.release, shares.later, _SPENT),
    )
    blocks = "".join(
        f'<rect x="{1 + inner * start:.2f}" y="1.5" width="{inner * max(share, 0.0):.2f}" height="{height}" '
        f'fill="{fill}"/>'
        for start, share, fill in spent
    )
    label = (
        f"Budget: {budget_percent(shares.earlier, up=True)} spent before, {budget_percent(shares.release, up=True)} by "
        f"{release}, {budget_percent(shares.later, up=True)} later, {budget_percent(shares.left, up=False)} left"
    )
    frame = f'<rect x=".5" y="1" width="{_WIDTH - 1}" height="15" rx="2" fill="none" stroke="{_INK}"/>'
    return drawing(label, _WIDTH, 18, blocks, frame)


def guess_scale(right: float) -> str:
    """Return the largest chance to guess rightly whether a unit is in the table, on a scale from 0 to 100 %."""
    radius, at_most = 4.5, percent_up(right)
    left, width = radius, _WIDTH - 2 * radius  # both ends have room for a dot
    half, x = _WIDTH / 2, round(left + width * right, 1)
    marks = (
        f'<rect x="{left:g}" y="6" width="{width:g}" height="5" rx="2.5" fill="{_LINE}"/>'
        f'<rect x="{half:g}" y="6" width="{x - half:.1f}" height="5" fill="{_ACCENT}"/>'
        f'<circle cx="{half:g}" cy="8.5" r="{radius:g}" fill="var(--paper, #fff)" stroke="{_INK}" stroke-width="1.6"/>'
        f'<circle cx="{x:g}" cy="8.5" r="{radius:g}" fill="{_ACCENT}"/>'
    )
    anchor = "end" if right > 0.8 else "start" if right < 0.6 else "middle"  # noqa: PLR2004  (texts do not overlap)
    texts = (
        text_mark(0, 27, "0 %", fill=_SOFT),
        text_mark(half - 8, 27, "50 % without", anchor="end" if right < 0.7 else "middle"),  # noqa: PLR2004
        text_mark(min(x, _WIDTH - 4.0), 27, f"{at_most} with it", anchor=anchor),
    )
    label = f"Chance that a guess is right: 50 % without the release, at most {at_most} with it"
    return drawing(label, _WIDTH, 31, marks, *texts)


_LIMIT_TEXT = 70  # width of the text at a limit


@dataclass(frozen=True)
class DrawnInterval:
    """An interval with a label, a tone (``good``, ``care``, ``bad`` or ``none``), and its limit if one is known."""

    label: str
    low: float
    high: float
    tone: str
    limit: float | None = None


def interval_drawing(title: str, intervals: Sequence[DrawnInterval]) -> str:
    """Return intervals on one scale with zero marked, each with its limit as a dashed mark."""
    letters = max(22, min(34, *(len(each.label) for each in intervals), 34))
    left, right = 150 * letters / 22, _WIDTH - 6
    ends = [0.0, *(end for each in intervals for end in (each.low, each.high, each.limit or 0.0))]
    least, most = min(*ends, -0.05), max(*ends, 0.1)
    scale = (right - left) / (most - least)

    def x(value: float) -> float:
        return left + (value - least) * scale

    height = len(intervals) * _STEP
    parts = [f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{height}" stroke="{_INK}"/>']
    for place, each in enumerate(intervals):
        y = (place + 0.5) * _STEP
        color = f"var(--{each.tone}, {_INK})"
        parts.append(text_mark(0, y + 4, _short(each.label, letters)))
        parts.append(
            f'<g stroke="{color}" fill="{color}" stroke-width="2.4"><line x1="{x(each.low):.1f}" '
            f'x2="{x(each.high):.1f}" y1="{y}" y2="{y}"/><circle cx="{x((each.low + each.high) / 2):.1f}" cy="{y}" '
            'r="2.6"/></g>'
        )
        if each.limit is not None:
            limit = x(each.limit)
            parts.append(
                f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="{y - 10}" y2="{y + 10}" stroke="{_LIMIT}" '
                f'stroke-width="1.6" stroke-dasharray="3 2"><title>limit {each.limit:.2f}</title></line>'
            )
    limits = sorted({each.limit for each in intervals if each.limit is not None})
    foot = [text_mark(x(0), height + 13, "0", anchor="middle", fill=_SOFT)]
    if len(limits) == 1:
        at, after = x(limits[0]), x(limits[0]) - x(0) < _LIMIT_TEXT  # the text would stand on the zero
        start, anchor = (at + 5.0, "start") if after else (min(at, right - 4.0), "end")
        foot.append(text_mark(start, height + 13, f"limit {limits[0]:.2f}", anchor=anchor, fill=_LIMIT))
    spoken = "; ".join(f"{each.label} {each.low:+.3f} to {each.high:+.3f}" for each in intervals)
    return drawing(f"{title}: {spoken}", _WIDTH, height + 18, *parts, *foot)


class Trust(StrEnum):
    """The trust that a pair of columns deserves, by the largest share of its rows in the wrong cell."""

    TRUST = "trust"
    SHAPE = "shape"
    AVOID = "avoid"
    MODELED = "modeled"


_TRUST_COLORS = {
    Trust.TRUST: ("var(--trust, #2d7d5d)", "var(--trust-ink, #fff)"),
    Trust.SHAPE: ("var(--shape, #8fbf9f)", "var(--shape-ink, #133826)"),
    Trust.AVOID: ("var(--avoid, #d98b3a)", "var(--avoid-ink, #2e1600)"),
    Trust.MODELED: ("var(--modeled, #ece8df)", _INK),
}


@dataclass(frozen=True)
class PairCell:
    """A cell of a matrix of pairs: its trust, its number, and a sentence about it."""

    trust: Trust
    number: str
    sentence: str


def pair_matrix(title: str, names: Sequence[str], cells: Mapping[frozenset[str], PairCell]) -> str:
    """Return the lower half of a matrix of columns; each cell tells how far a pair can be trusted."""
    left, side, letters = 118, 21, 18
    parts = []
    for row, name in enumerate(names):
        y = row * side
        parts.append(text_mark(left - 7, y + 15, _short(name, letters), anchor="end"))
        for place, other in enumerate(names[:row]):
            cell = cells.get(frozenset((name, other)))
            if cell is None:
                continue
            fill, ink = _TRUST_COLORS[cell.trust]
            x = left + place * side
            parts.append(
                f'<rect x="{x}" y="{y + 1}" width="19" height="19" rx="2" fill="{fill}">'
                f"<title>{escape(cell.sentence)}</title></rect>"
            )
            if cell.number:
                parts.append(
                    text_mark(x + 9.5, y + 14, cell.number, anchor="middle", fill=ink, more=' font-size="9.5"')
                )
        parts.append(
            text_mark(left + row * side + 4, y + 14, _short(name, letters), fill=_SOFT, more=' font-size="10"')
        )
    width = left + len(names) * side + 90
    return drawing(title, width, len(names) * side + 2, *parts)
