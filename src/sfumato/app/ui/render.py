"""Templates, with everything escaped."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401  (what templates show)
    """A whole page."""
    shown = {"problem": None, "done": None, "secret": None, "wrong": False, "first": False, **values}
    return HTMLResponse(_environment().get_template(name).render(**shown), status)


def fragment(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """A part of a page, for htmx to put in its place."""
    return HTMLResponse(_environment().get_template(name).render(**values), status)


@cache
def _environment() -> Environment:
    folder = resources.files("sfumato.app.ui").joinpath("templates")
    sources = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".j2")}
    environment = Environment(
        loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = _json
    environment.filters["figure"] = lambda number: f"{number:,.6g}"
    return environment


def _json(value: object) -> Markup:
    """JSON inside a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (escaped just now)
