"""The page of a lab: its tables and plots in one HTML file that works offline, and the plots as files."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from sfumato.errors import InputError
from sfumato.labs.lab import LabResult

_PNG_SCALE = 2.0


def write(result: LabResult, folder: Path) -> Path:
    """Write ``index.html``, ``tables.json`` and every plot as SVG and PNG; returns the page.

    Raises:
        InputError: the folder cannot be written.
    """
    import vl_convert

    files: dict[str, str | bytes] = {}
    for plot in result.plots:
        specification = plot.chart.to_json()
        files[f"{plot.name}.svg"] = vl_convert.vegalite_to_svg(specification)
        files[f"{plot.name}.png"] = vl_convert.vegalite_to_png(specification, scale=_PNG_SCALE)
    files["tables.json"] = json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n"
    files["index.html"] = render(result, {plot.name: str(files[f"{plot.name}.svg"]) for plot in result.plots})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", culprit=folder) from None
    return folder / "index.html"


def render(result: LabResult, pictures: dict[str, str]) -> str:
    """The page as HTML, with the plots' SVG by name inside it."""
    from jinja2 import Environment
    from markupsafe import Markup

    template = resources.files("sfumato.labs").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    return environment.from_string(template).render(
        result=result,
        # the renderer's own SVG, in which all text is escaped
        pictures={name: Markup(svg) for name, svg in pictures.items()},  # noqa: S704
    )


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
