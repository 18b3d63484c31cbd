"""The rendering of pages: templates with HTML escaping, gauges, charts, error pages and static files.

A static file has a hash of its content in its address, so browsers may cache it forever.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypedDict

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from sfumato.bounded_cache import cached
from sfumato.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.ledger import Account
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.query import Answer
from sfumato.query.aggregates import ExpectedError
from sfumato_server.access import KeyLookup, secret_of
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Key

NOTE_COOKIE = "sfumato_note"
REFUSALS = (SfumatoError, RefusalError)
_NOTE_SECONDS = 60
_NOTE_PATH = "/steward"
_PLAIN_DETAILS = {
    "missing-key": "You are not signed in any more.  Enter with your key again; what you filled in is still here.",
    "unknown-key": "Your key or session has ended.  Enter again, with a key that a steward gave you.",
    "expired-key": "Your key has expired or was revoked.  A steward can give you a new one.",
    "wrong-scope": "This page is for stewards.  Ask one of them, or enter with a steward's key.",
    "dataset-paused": "The dataset is paused.  Nothing is answered until a steward has had its table read again.",
    "unknown-dataset": "There is no dataset of that name that you may ask.  See the list of datasets.",
    "not-found": "There is nothing at this address.  See the list of datasets.",
}
_KINDS = (SfumatoError, RefusalError, RequestValidationError, HTTPException, Exception)


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401  (what templates show)
    """Render a page."""
    context = {"problem": None, "done": None, "secret": None, "wrong": False, "first": False, **values}
    return HTMLResponse(_environment().get_template(name).render(**context), status)


def login_page(request: Request, *, status: int = 200, **flags: bool) -> HTMLResponse:
    """Render the login page: a form for a key, and a link to the identity provider if there is one."""
    return page("enter.html.j2", key=None, provider=request.app.state.provider is not None, status=status, **flags)


def fragment(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Render a part of a page, which htmx inserts."""
    return HTMLResponse(_environment().get_template(name).render(**values), status)


@cache
def _environment() -> Environment:
    folder = resources.files("sfumato_server.ui").joinpath("templates")
    sources = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".j2")}
    environment = Environment(
        loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["json"] = _json
    environment.filters["figure"] = lambda number: f"{number:,.6g}"
    environment.filters["error"] = lambda number: f"{float(f'{number:.3g}'):,.6g}"  # an error is an estimate: 3 digits
    environment.filters["address"] = address
    return environment


def _json(value: object) -> Markup:
    """Return JSON for a script element.  No character of it can end the element."""
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (escaped above)


@dataclass(frozen=True)
class Gauge:
    """The share of a budget that is left, 0 to 1 (None: no limit), the amounts in words, and the guarantee."""

    share: float | None
    words: str
    guarantee: str


def gauge(account: Account) -> Gauge:
    """Return the gauge of an account."""
    share = account.share_left
    if share is None:
        return Gauge(None, "no cap of your own", account.guarantee)
    return Gauge(float(share), str(account), account.guarantee)


def add_error_pages(app: FastAPI) -> None:
    """Answer errors with a page if the request came from a browser."""
    for kind in _KINDS:
        app.add_exception_handler(kind, partial(_error_page, app.exception_handlers[kind]))


def _error_page(handler: Any, request: Request, error: Exception) -> Response:  # noqa: ANN401  (an error handler)
    reply: Response = handler(request, error)
    takes_html = is_htmx(request) or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith("/v1/") or not takes_html:
        return reply
    content = in_plain_words(json.loads(bytes(reply.body)))
    if is_htmx(request):
        return fragment("problem.html.j2", problem=content, status=reply.status_code)
    if reply.status_code == HTTPStatus.UNAUTHORIZED:
        return login_page(request, first=True, status=reply.status_code)
    try:
        key = request_key(request)
    except SfumatoError:  # the ledger does not answer
        key = None
    return page("error.html.j2", key=key, problem=content, status=reply.status_code)


def is_htmx(request: Request) -> bool:
    """Return whether htmx sent the request and will insert the reply."""
    return "hx-request" in request.headers


def in_plain_words(document: dict[str, Any]) -> dict[str, Any]:
    """Return a problem document with details for people instead of programs."""
    content = dict(document)
    detail = _PLAIN_DETAILS.get(str(document.get("type", "")).removeprefix("/problems/"))
    if detail is not None:
        content["detail"] = detail
    if "errors" in document:
        content["errors"] = [each | {"place": _field(str(each["place"]))} for each in document["errors"]]
    return content


def _field(place: str) -> str:
    """Return the label of the form's field that a place names."""
    name = next((part for part in reversed(place.split(".")) if not part.isdigit()), place)
    return name.replace("_", " ").capitalize()


def request_key(request: Request) -> Key | None:
    """Return the valid key of a request; None if there is none.

    Raises:
        LedgerError: the ledger does not answer.
    """
    secret = secret_of(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    try:
        return None if secret is None else key_lookup.find(secret)
    except RefusalError:
        return None


def is_https(request: Request) -> bool:
    """Return whether browsers reach this server by https, maybe through a proxy."""
    base: str | None = request.app.state.base_url
    return request.url.scheme == "https" or (base is not None and base.startswith("https:"))


class Note(TypedDict, total=False):
    """A message that a page shows once after a form was posted: what was done, and a new secret.

    The reply to the form is a redirect, so a reload posts nothing again.  The note is in a cookie that scripts and
    other sites cannot read.  The page that shows the note deletes it.
    """

    done: str
    secret: str


def leave_note(request: Request, path: str, note: Note) -> Response:
    """Redirect to a page that shows a note."""
    response = RedirectResponse(path, 303)
    text = base64.urlsafe_b64encode(json.dumps(note).encode()).decode()
    scope: dict[str, Any] = {"max_age": _NOTE_SECONDS, "path": _NOTE_PATH}
    response.set_cookie(NOTE_COOKIE, text, httponly=True, samesite="strict", secure=is_https(request), **scope)
    return response


def read_note(request: Request) -> Note:
    """Return the note of a request; empty if there is none."""
    try:
        content = json.loads(base64.urlsafe_b64decode(request.cookies.get(NOTE_COOKIE, "")))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    note: Note = {"done": str(content.get("done", ""))}
    return note | {"secret": str(content["secret"])} if "secret" in content else note


def forget_note(response: Response) -> Response:
    """Delete the note that a response shows."""
    response.delete_cookie(NOTE_COOKIE, path=_NOTE_PATH)
    return response


_MEDIA = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_CACHE_FOREVER = "public, max-age=31536000, immutable"
_DIGITS = 12  # of the hash in an address

files_router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A static file with its address and its compressed content."""

    address: str
    media: str
    content: bytes
    compressed: bytes


@cache
def _files() -> dict[str, StaticFile]:
    """Return all static files by name."""
    static = resources.files("sfumato_server.ui").joinpath("static")
    static_files = [file for folder in (static, static.joinpath("vendor")) for file in folder.iterdir() if _media(file)]
    return {file.name: _file(file) for file in static_files}


@cached(2_000)
def address(name: str) -> str:
    """Return the address of a static file, which has a hash of its content.

    >>> address("page.css").startswith("/static/") and address("page.css").endswith("/page.css")
    True
    """
    return _files()[name].address


@files_router.get("/static/{digest}/{name}")
@files_router.head("/static/{digest}/{name}")
def static_file(digest: str, name: str, request: Request) -> Response:
    """Send a static file; refuse the address of another version."""
    file = _files().get(name)
    if file is None or file.address != f"/static/{digest}/{name}":
        raise RefusalError("not-found", "There is no such file", 404, "load the page again")
    headers = {"Cache-Control": _CACHE_FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, media_type=file.media, headers=headers)
    return Response(file.compressed, media_type=file.media, headers=headers | {"Content-Encoding": "gzip"})


def _media(file: Traversable) -> str | None:
    return next((media for ending, media in _MEDIA.items() if file.name.endswith(ending)), None)


def _file(file: Traversable) -> StaticFile:
    content, media = file.read_bytes(), _media(file)
    assert media is not None
    digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
    return StaticFile(f"/static/{digest}/{file.name}", media, content, gzip.compress(content, mtime=0))


MAX_BARS = 100
_MAX_COLORS = 8
_MAX_CHARTS = 4  # one per column of an answer
_MAX_FILE_ROWS = 50_000  # of an answer that the page embeds as a file
_ALMOST_ONE = 1 - 1e-9  # the ends of an interval are rounded
_FACTORS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))


def charts(answer: Answer, domain: Domain) -> list[dict[str, Any]]:
    """Return a Vega-Lite bar chart with intervals for each column of an answer.

    An answer of one row or of too many rows has no charts.  An estimate of too few rows gets its interval but no bar,
    because the bar could be as tall as that of many rows.
    """
    if not answer.groups or not 1 < len(answer.keys) <= MAX_BARS:
        return []
    informative = informative_estimates(answer, domain)
    return [
        _chart(answer, column, [row[column] for row in informative])
        for column in range(len(answer.columns))[:_MAX_CHARTS]
    ]


def _chart(answer: Answer, column: int, informative: list[bool]) -> dict[str, Any]:
    """Return the chart of one column.  A group with few cells, if there is one, becomes the colors of the bars."""
    name, color_group = answer.columns[column], _color_group(answer)
    others = [place for place in range(len(answer.groups)) if place != color_group]
    values = [
        {
            "group": ", ".join(key[place] for place in others),
            "estimate": row[column].estimate if is_informative else None,
            "low": row[column].low,
            "high": row[column].high,
        }
        | ({} if color_group is None else {"series": key[color_group]})
        for key, row, is_informative in zip(answer.keys, answer.values, informative, strict=True)
    ]
    title = ", ".join(answer.groups[place] for place in others)
    y = {"field": "group", "type": "nominal", "sort": None, "title": title, "axis": {"labelLimit": 240}}
    axis = {"labelSeparation": 8}  # pixels, so that long labels do not touch
    bars: dict[str, Any] = {"x": {"field": "estimate", "type": "quantitative", "title": name, "axis": axis}}
    encoding: dict[str, Any] = {"y": y}
    if color_group is not None:
        legend = {"orient": "top", "columns": 3, "labelLimit": 160}
        series = {"field": "series", "type": "nominal", "sort": None}
        bars["color"] = series | {"title": answer.groups[color_group], "legend": legend}
        encoding["yOffset"] = series
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{name} by {', '.join(answer.groups)}, with intervals; the table has the same numbers",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": {"step": 14 if color_group is not None else 26},
        "data": {"values": values},
        "encoding": encoding,
        "layer": [
            {"mark": "bar", "encoding": bars},
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
        ],
    }


def _color_group(answer: Answer) -> int | None:
    """Return the group with the fewest cells, if a legend of colors can distinguish them; else None."""
    if len(answer.groups) == 1:
        return None
    sizes = [len({key[place] for key in answer.keys}) for place in range(len(answer.groups))]
    least = min(range(len(sizes)), key=sizes.__getitem__)
    return least if sizes[least] <= _MAX_COLORS else None


def informative_estimates(answer: Answer, domain: Domain) -> list[list[bool]]:
    """Return, by group and aggregate, whether an interval is narrower than the public bounds of its value."""
    largest = answer.query.largest_intervals(domain)
    return [
        [value.high - value.low < most * _ALMOST_ONE for value, most in zip(row, largest, strict=True)]
        for row in answer.values
    ]


def files(answer: Answer) -> dict[str, str]:
    """Return the answer as embedded files, by ending.  A download therefore sends no further request."""
    from pyarrow import csv, parquet

    if len(answer.keys) > _MAX_FILE_ROWS:
        return {}
    table, csv_file, parquet_file = answer.to_arrow(), io.BytesIO(), io.BytesIO()
    csv.write_csv(table, csv_file)
    parquet.write_table(table, parquet_file)
    kinds = {"csv": ("text/csv", csv_file), "parquet": ("application/vnd.apache.parquet", parquet_file)}
    return {
        ending: f"data:{media};base64,{base64.b64encode(file.getvalue()).decode()}"
        for ending, (media, file) in kinds.items()
    }


@dataclass(frozen=True)
class Step:
    """The effect of one loss on an answer.

    Attributes:
        loss: the loss in words.
        half_width: the half-width of the widest interval of the answer.
        bar: this half-width as a share of the largest one, 0 to 1.
        share: the share of the budget's rest that the loss takes, above 1 if it is too much; None if unknown.
        chosen: whether it is the loss of the form.
    """

    loss: str
    half_width: float
    bar: float
    share: float | None
    chosen: bool


def steps(loss: Loss, expected: Callable[[Loss], Iterable[ExpectedError]], own: Account) -> list[Step]:
    """Return the effects of a quarter, half, one, two and four times a loss; none for epsilon with delta."""
    if not isinstance(loss, Epsilon | Rho):
        return []
    widths: dict[Fraction, float] = {}
    for factor in _FACTORS:
        try:
            widths[factor] = max((each.half_width for each in expected(loss * factor)), default=0.0)
        except SfumatoError:  # the loss is out of range
            continue
    most = max(widths.values(), default=0.0)
    return [
        Step(
            str(loss * factor),
            width,
            width / most if most else 0.0,
            share_of(loss * factor, own),
            factor == 1,
        )
        for factor, width in widths.items()
    ]


def share_of(loss: Loss, own: Account) -> float | None:
    """Return the share of the budget's rest that a loss takes; None without a limit, or in another measure."""
    if own.limit is None or own.left is None or type(loss) is not type(own.limit) or not own.left:
        return None
    return float(loss.value / own.left) if isinstance(loss, Epsilon | Rho) else None
