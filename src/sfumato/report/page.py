"""A page of terms, tables and plots in one HTML file that works offline, its plots as files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sfumato.errors import InputError, SfumatoError, short_deltas
from sfumato.extras import require
from sfumato.privacy.entropy import SIMULATED
from sfumato.report.drawing import palette
from sfumato.vault.release import write_atomically

if TYPE_CHECKING:
    from markupsafe import Markup

Row: TypeAlias = Mapping[str, str | int | float | bool | None]
ShownTable: TypeAlias = tuple[Row, ...]

_PNG_SCALE = 2.0
_ROWS = 2000  # of a table; longer ones end with a note
_CLOSED = "</"

PALETTE = ("#7f7f7f", "#2f86c6", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6a51a3")
"""Distinct without red against green, and readable on white and on near-black."""


@dataclass(frozen=True)
class Chart:
    """A chart as a Vega-Lite specification, with a heading if its plot has several charts."""

    heading: str
    specification: dict[str, Any]


@dataclass(frozen=True)
class Plot:
    """A picture: one Altair ``chart`` or several ``charts``, with a caption.

    Attributes:
        name: name of its file, and its anchor in the page.
        caption: the conclusion.
        chart: the picture, if it is one chart of Altair.
        title: heading, if it has its own.
        alternative: text for readers who do not see the picture; the caption if empty.
        charts: the picture, if it has several charts or is not made by Altair.
        table: the numbers of the picture.
    """

    name: str
    caption: str
    chart: Any = None
    title: str = ""
    alternative: str = ""
    charts: tuple[Chart, ...] = ()
    table: ShownTable = ()

    def drawn(self) -> tuple[Chart, ...]:
        """Return the charts of the picture."""
        return self.charts if self.chart is None else (Chart("", self.chart.to_dict()),)


@dataclass(frozen=True)
class Section:
    """A part of a page as HTML.  Its author has escaped all text."""

    heading: str
    markup: Markup


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of a page.

    Attributes:
        title: title of the page.
        kicker: the kind of the page, above the title.
        lead: the conclusion, below the title.
        facts: the four numbers to remember, each with its meaning.
        warning: text across the top, or empty.
        terms: terms with their definitions; folded away if there are ``facts``.
        notes: sentences at the top.
        sections: parts with their own markup, before the tables.
        overview: tables before the plots, by their headings.
        details: tables that are folded away below the overview, by their summaries.
        plots: the pictures.
        tables: tables after the plots, by name.
        digits: significant digits of numbers in tables.
    """

    title: str
    kicker: str = ""
    lead: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    warning: str = ""
    terms: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    overview: Mapping[str, ShownTable] = field(default_factory=dict)
    details: Mapping[str, ShownTable] = field(default_factory=dict)
    plots: tuple[Plot, ...] = ()
    tables: Mapping[str, ShownTable] = field(default_factory=dict)
    digits: int = 6


def shown_to(guarantee: str) -> str:
    """Return a sentence that names the people who may see the page of a release with this guarantee."""
    if guarantee.startswith(SIMULATED):
        return f"{SIMULATED}: show this page only to people who may see the rows."
    return "Everything on this page is released: it may be shown to anyone, and looking at it costs nothing."


def write(page: Page, folder: Path, data: Mapping[str, Any]) -> Path:
    """Write ``index.html``, ``tables.json`` (the ``data``) and every plot as SVG and PNG, and return the page's path.

    Each file is written whole or not at all, the page last.

    Raises:
        InputError: the folder cannot be written.
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    import vl_convert

    files: dict[str, str | bytes] = {}
    drawn = _drawn(page)
    for name, picture in drawn.items():
        files[f"{name}.svg"] = picture
        files[f"{name}.png"] = vl_convert.svg_to_png(picture, scale=_PNG_SCALE)
    files["tables.json"] = json.dumps(data, indent=1, allow_nan=False) + "\n"
    files["index.html"] = _page(page, drawn)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", culprit=folder) from None
    for name, content in files.items():
        written = content if isinstance(content, bytes) else content.encode()
        try:
            write_atomically(folder / name, partial(_fill, content=written))
        except SfumatoError as error:
            raise InputError(str(error), culprit=folder) from None
    return folder / "index.html"


def _fill(path: Path, *, content: bytes) -> None:
    path.write_bytes(content)


def render(page: Page) -> str:
    """Return the page as one HTML document with its plots as SVG.  It runs no script.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    return _page(page, _drawn(page))


def _drawn(page: Page) -> dict[str, str]:
    """Return every picture as SVG, by the name of its file."""
    import vl_convert

    return {
        name: vl_convert.vegalite_to_svg(chart.specification) for plot in page.plots for name, chart in _files(plot)
    }


def _page(page: Page, drawn: Mapping[str, str]) -> str:
    from markupsafe import Markup

    return _render(page, pictures={name: Markup(svg) for name, svg in drawn.items()})  # noqa: S704  (all text escaped)


def render_interactive(page: Page) -> str:
    """Return the page as one HTML document that draws its plots: as wide as the window, dark or light, with tooltips.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "a page with plots")
    from markupsafe import Markup

    charts = {name: chart.specification for plot in page.plots for name, chart in _files(plot)}
    data = json.dumps(charts, separators=(",", ":"), allow_nan=False).replace(_CLOSED, "<\\/")
    renderer = _renderer().replace("</script", "<\\/script")
    script = {"charts": Markup(data), "bundle": Markup(renderer)}  # noqa: S704  (neither can close its element)
    return _render(page, script=script)


def _renderer() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one script of about 0.9 MB.

    Bundling takes more CPU time than drawing a page.  So the user's cache holds the script and its digest, per version
    of the bundler.
    """
    import vl_convert

    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "sfumato"
    cached_file = folder / f"renderer-{version('vl-convert-python')}.js"
    try:
        digest, _, script = cached_file.read_bytes().partition(b"\n")
    except OSError:
        digest, script = b"", b""
    if hashlib.sha256(script).hexdigest().encode() == digest:
        return script.decode()
    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    unfinished = cached_file.with_suffix(f".{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(hashlib.sha256(made.encode()).hexdigest().encode() + b"\n" + made.encode())
        unfinished.replace(cached_file)
    except OSError:  # the page is as good without
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return made


def _files(plot: Plot) -> list[tuple[str, Chart]]:
    """Return the charts of a plot by the names of their files."""
    drawn = plot.drawn()
    return [(plot.name if plot.chart is not None else f"{plot.name}-{place}", one) for place, one in enumerate(drawn)]


def _render(page: Page, **more: Any) -> str:  # noqa: ANN401  (what templates show)
    from jinja2 import Environment
    from markupsafe import Markup

    template = resources.files("sfumato.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    environment.filters["texts"] = _texts
    dark = "script" in more or not page.plots  # a stored picture of Altair is dark on white
    style = Markup(palette(dark=dark))  # noqa: S704  (no text of a release)
    context: dict[str, Any] = {"pictures": {}, "script": None, "limit": _ROWS, "palette": style, "dark": dark, **more}
    named = {plot.name: _files(plot) for plot in page.plots}
    return short_deltas(environment.from_string(template).render(page=page, named=named, **context))


def _texts(rows: ShownTable) -> frozenset[str]:
    """Return the columns that hold text, which is aligned left.  Numbers are aligned right."""
    return frozenset(column for row in rows for column, value in row.items() if isinstance(value, str))


def figure(value: object, digits: int = 6) -> str:
    """Return a table's entry as text: significant digits of a number, or a dash for an unknown value.

    >>> figure(0.123456789), figure(None), figure(True), figure(1013184), figure(float("nan")), figure(0.123456, 4)
    ('0.123457', '-', 'yes', '1013184', '-', '0.1235')
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float() if value != value:  # noqa: PLR0124  (NaN differs from itself)
            return "-"
        case float():
            return f"{value:.{digits}g}"
        case _:
            return str(value)


def layer(values: Sequence[Row]) -> Any:  # noqa: ANN401  (charts of Altair have no useful type)
    """Return a layer over rows of values."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(values)))


def unchecked() -> AbstractContextManager[None]:
    """Skip the check of charts against their schema, which takes half of the time.  Tests check them."""
    from altair.utils.schemapi import debug_mode

    return debug_mode(False)


def sized(*layers: Any, height: int = 0, step: int = 0) -> dict[str, Any]:  # noqa: ANN401
    """Return stacked layers, as wide as the page, with a height in pixels or in pixels per row."""
    import altair as alt

    drawn = layers[0] if len(layers) == 1 else alt.layer(*layers)
    chart = drawn.properties(width="container", height=alt.Step(step) if step else height)
    specification: dict[str, Any] = chart.to_dict(validate=False)  # by its schema: a third of the time; tests do it
    return specification


def tooltips(*names: str, numbers: Sequence[str] = (), form: str = ".3f") -> list[Any]:
    """Return tooltips of columns of text, then of columns of numbers in one format."""
    import altair as alt

    return [
        *(alt.Tooltip(f"{name}:N") for name in names),
        *(alt.Tooltip(f"{name}:Q", format=form) for name in numbers),
    ]


def release_axis() -> Any:  # noqa: ANN401
    """Return the vertical axis of a picture with one row per release."""
    import altair as alt

    return alt.Y("release:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))


def top_legend(**more: Any) -> Any:  # noqa: ANN401
    """Return a legend above the picture."""
    import altair as alt

    return alt.Legend(orient="top", **more)


def dashed(values: Sequence[Row]) -> Any:  # noqa: ANN401
    """Return a dashed gray line through rows of values."""
    return layer(values).mark_line(strokeDash=[5, 4], color="#888")


def method_color(kinds: Sequence[str]) -> Any:  # noqa: ANN401
    """Return one color per kind of method, the same in every picture of a page with the same kinds."""
    import altair as alt

    named = list(dict.fromkeys(kinds))
    scale = alt.Scale(domain=named, range=list(PALETTE[: len(named)]))
    return alt.Color("family:N", title=None, scale=scale, legend=top_legend(columns=3))
