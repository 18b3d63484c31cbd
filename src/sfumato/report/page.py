"""A page of tables and plots in one HTML file that works offline, and the plots as files."""

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


@dataclass(frozen=True)
class Plot:
    """A picture: a name for its file, the text that stands for it and says what to conclude, and an Altair chart."""

    name: str
    caption: str
    chart: Any


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a page shows: terms with their definitions, notes, plots, and tables by name."""

    title: str
    terms: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)


def write(page: Page, folder: Path, data: Mapping[str, Any]) -> Path:
    """Write ``index.html``, ``tables.json`` (the ``data``) and every plot as SVG and PNG; returns the page's path.

    Raises:
        InputError: the folder cannot be written.
    """
    require("plots", "a page with plots")
    import vl_convert

    files: dict[str, str | bytes] = {}
    for plot in page.plots:
        specification = plot.chart.to_json()
        files[f"{plot.name}.svg"] = vl_convert.vegalite_to_svg(specification)
        files[f"{plot.name}.png"] = vl_convert.vegalite_to_png(specification, scale=_PNG_SCALE)
    files["tables.json"] = json.dumps(data, indent=1, allow_nan=False) + "\n"
    files["index.html"] = _render(page, {plot.name: str(files[f"{plot.name}.svg"]) for plot in page.plots})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", culprit=folder) from None
    return folder / "index.html"


def render(page: Page) -> str:
    """The page as one HTML document, its plots inside as SVG."""
    require("plots", "a page with plots")
    import vl_convert

    return _render(page, {plot.name: vl_convert.vegalite_to_svg(plot.chart.to_json()) for plot in page.plots})


def _render(page: Page, pictures: Mapping[str, str]) -> str:
    from jinja2 import Environment
    from markupsafe import Markup

    template = resources.files("sfumato.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    environment.filters["texts"] = _texts
    return environment.from_string(template).render(
        page=page,
        # the renderer's own SVG, in which all text is escaped
        pictures={name: Markup(svg) for name, svg in pictures.items()},  # noqa: S704
    )


def _texts(rows: Table) -> frozenset[str]:
    """The columns that hold text, which is read from its left end; numbers are compared at their right."""
    return frozenset(column for row in rows for column, value in row.items() if isinstance(value, str))


def figure(value: object) -> str:
    """A table's entry as text: six significant digits, a dash for what is not known.

    >>> figure(0.123456789), figure(None), figure(True), figure(1013184)
    ('0.123457', '-', 'yes', '1013184')
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)
