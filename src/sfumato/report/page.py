"""A page of terms, tables and plots in one HTML file that works offline, and the plots as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.errors import InputError
from sfumato.extras import require

Row: TypeAlias = Mapping[str, str | int | float | bool | None]
Table: TypeAlias = tuple[Row, ...]

_PNG_SCALE = 2.0
_ROWS = 2000  # of a table; longer ones end with a remark
_CLOSED = "</"


@dataclass(frozen=True)
class Chart:
    """One chart as a Vega-Lite specification, with a heading where a plot has several."""

    heading: str
    specification: dict[str, Any]


@dataclass(frozen=True)
class Plot:
    """A picture: one Altair ``chart``, or several ``charts``, with the text that says what to conclude.

    Attributes:
        name: of its file, and of its place in the page.
        caption: what to conclude.
        chart: the picture, where it is one chart of Altair.
        title: heading, where it has one of its own.
        alternative: what stands for the picture where it is not seen; the caption without.
        charts: the picture, where it is several charts or none of Altair's.
        table: the numbers behind it.
    """

    name: str
    caption: str
    chart: Any = None
    title: str = ""
    alternative: str = ""
    charts: tuple[Chart, ...] = ()
    table: Table = ()

    def drawn(self) -> tuple[Chart, ...]:
        """Its charts."""
        return self.charts if self.chart is None else (Chart("", self.chart.to_dict()),)


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a page shows.

    Attributes:
        title: of the page.
        warning: shown across the top, where there is one.
        terms: with their definitions.
        notes: sentences before everything else.
        overview: tables before the plots, by their headings.
        details: tables that are folded away below the overview, by their summaries.
        plots: the pictures.
        tables: tables after the plots, by name.
        digits: significant digits of numbers in tables.
    """

    title: str
    warning: str = ""
    terms: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    overview: Mapping[str, Table] = field(default_factory=dict)
    details: Mapping[str, Table] = field(default_factory=dict)
    plots: tuple[Plot, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    digits: int = 6


def write(page: Page, folder: Path, data: Mapping[str, Any]) -> Path:
    """Write ``index.html``, ``tables.json`` (the ``data``) and every plot as SVG and PNG; returns the page's path.

    Raises:
        InputError: the folder cannot be written.
        MissingExtraError: what draws plots is not installed.
    """
    require("plots", "a page with plots")
    import vl_convert

    files: dict[str, str | bytes] = {}
    for plot in page.plots:
        for name, chart in _files(plot):
            files[f"{name}.svg"] = vl_convert.vegalite_to_svg(chart.specification)
            files[f"{name}.png"] = vl_convert.vegalite_to_png(chart.specification, scale=_PNG_SCALE)
    files["tables.json"] = json.dumps(data, indent=1, allow_nan=False) + "\n"
    files["index.html"] = render(page)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", culprit=folder) from None
    return folder / "index.html"


def render(page: Page) -> str:
    """The page as one HTML document, its plots inside as SVG; it runs nothing.

    Raises:
        MissingExtraError: what draws plots is not installed.
    """
    require("plots", "a page with plots")
    import vl_convert
    from markupsafe import Markup

    pictures = {
        name: Markup(vl_convert.vegalite_to_svg(chart.specification))  # noqa: S704  (in which all text is escaped)
        for plot in page.plots
        for name, chart in _files(plot)
    }
    return _render(page, pictures=pictures)


def render_interactive(page: Page) -> str:
    """The page as one HTML document that draws its plots itself: as wide as the window, dark or light, with tooltips.

    Raises:
        MissingExtraError: what draws plots is not installed.
    """
    require("plots", "a page with plots")
    import vl_convert
    from markupsafe import Markup

    charts = {name: chart.specification for plot in page.plots for name, chart in _files(plot)}
    data = json.dumps(charts, separators=(",", ":"), allow_nan=False).replace(_CLOSED, "<\\/")
    # Vega, Vega-Lite and Vega-Embed in one script, about 0.9 MB, that no tag inside can close
    renderer = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    script = {"charts": Markup(data), "bundle": Markup(renderer)}  # noqa: S704  (neither can close its element)
    return _render(page, script=script)


def _files(plot: Plot) -> list[tuple[str, Chart]]:
    """The charts of a plot by the names of their files."""
    drawn = plot.drawn()
    return [(plot.name if plot.chart is not None else f"{plot.name}-{place}", one) for place, one in enumerate(drawn)]


def _render(page: Page, **more: Any) -> str:  # noqa: ANN401  (what templates show)
    from jinja2 import Environment

    template = resources.files("sfumato.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    environment.filters["texts"] = _texts
    shown: dict[str, Any] = {"pictures": {}, "script": None, "limit": _ROWS, **more}
    named = {plot.name: _files(plot) for plot in page.plots}
    return environment.from_string(template).render(page=page, named=named, **shown)


def _texts(rows: Table) -> frozenset[str]:
    """The columns that hold text, which is read from its left end; numbers are compared at their right."""
    return frozenset(column for row in rows for column, value in row.items() if isinstance(value, str))


def figure(value: object, digits: int = 6) -> str:
    """A table's entry as text: significant digits of a number, a dash for what is not known.

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
