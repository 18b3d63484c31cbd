"""How pages are rendered: templates with everything escaped, gauges, charts, refusals for people, and static files.

A static file has an address that names its content, so browsers keep it for good.
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
from sfumato.query.aggregates import Aggregate, ExpectedError
from sfumato.query.answer import NoisyValue
from sfumato_server.access import KeyLookup, secret_of
from sfumato_server.problems import RefusalError, problem
from sfumato_server.registry import Key

NOTE_COOKIE = "sfumato_note"
REFUSALS = (SfumatoError, RefusalError)
_NOTE_SECONDS = 60
_NOTE_PATH = "/steward"
_FOR_PEOPLE = {
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
    """A whole page."""
    shown = {"problem": None, "done": None, "secret": None, "wrong": False, "first": False, **values}
    return HTMLResponse(_environment().get_template(name).render(**shown), status)


def entrance(request: Request, *, status: int = 200, **said: bool) -> HTMLResponse:
    """The page that asks for a key, or sends people to the provider of identities where there is one."""
    return page("enter.html.j2", key=None, provider=request.app.state.provider is not None, status=status, **said)


def fragment(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """A part of a page, for htmx to put in its place."""
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
    environment.filters["error"] = lambda number: f"{float(f'{number:.3g}'):,.6g}"  # which is itself an estimate
    environment.filters["address"] = address
    return environment


def _json(value: object) -> Markup:
    """JSON inside a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704  (escaped just now)


@dataclass(frozen=True)
class Gauge:
    """The share that is left, 0 to 1 (None: no limit), exact amounts in words, and the guarantee of all releases."""

    share: float | None
    words: str
    guarantee: str


def gauge(account: Account) -> Gauge:
    """The gauge of an account."""
    share = account.share_left
    if share is None:
        return Gauge(None, "no cap of your own", account.guarantee)
    return Gauge(float(share), str(account), account.guarantee)


def show_errors(app: FastAPI) -> None:
    """Show what the application's own handlers say as a page, where a person asked for a page."""
    for kind in _KINDS:
        app.add_exception_handler(kind, partial(_shown, app.exception_handlers[kind]))


def _shown(handler: Any, request: Request, error: Exception) -> Response:  # noqa: ANN401  (one of problems.install)
    reply: Response = handler(request, error)
    wanted = in_place(request) or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith("/v1/") or not wanted:
        return reply
    found = for_people(json.loads(bytes(reply.body)))
    if in_place(request):
        return fragment("problem.html.j2", problem=found, status=reply.status_code)
    if reply.status_code == HTTPStatus.UNAUTHORIZED:
        return entrance(request, first=True, status=reply.status_code)
    try:
        key = known(request)
    except SfumatoError:  # a ledger that does not answer knows nobody
        key = None
    return page("error.html.j2", key=key, problem=found, status=reply.status_code)


def in_place(request: Request) -> bool:
    """Whether a script of the page asks, and puts the reply in its place."""
    return "hx-request" in request.headers


def for_people(found: dict[str, Any]) -> dict[str, Any]:
    """A problem in words for people, where its own are for programs."""
    told = dict(found)
    detail = _FOR_PEOPLE.get(str(found.get("type", "")).removeprefix("/problems/"))
    if detail is not None:
        told["detail"] = detail
    if "errors" in found:
        told["errors"] = [each | {"place": _field(str(each["place"]))} for each in found["errors"]]
    return told


def _field(place: str) -> str:
    """What a form calls the field that a place names."""
    name = next((part for part in reversed(place.split(".")) if not part.isdigit()), place)
    return name.replace("_", " ").capitalize()


def refused(error: Exception) -> Response:
    """An error as a fragment."""
    found = for_people(problem(error))
    return fragment("problem.html.j2", problem=found, status=found["status"])


def known(request: Request) -> Key | None:
    """Whose key the request carries, if it opens anything.

    Raises:
        LedgerError: the ledger does not answer.
    """
    secret = secret_of(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    try:
        return None if secret is None else key_lookup.key(secret)
    except RefusalError:
        return None


def by_tls(request: Request) -> bool:
    """Whether browsers reach this server by TLS, which may end before it."""
    base: str | None = request.app.state.base_url
    return request.url.scheme == "https" or (base is not None and base.startswith("https:"))


class Note(TypedDict, total=False):
    """What a page says once after a form was posted: what was done, and a secret that is shown only now.

    The reply to the form redirects, so that a reload posts nothing again; the note travels in a cookie that scripts
    and other sites cannot read, and is gone when it was shown.
    """

    done: str
    secret: str


def leave_note(request: Request, path: str, note: Note) -> Response:
    """Go to a page that says it."""
    response = RedirectResponse(path, 303)
    text = base64.urlsafe_b64encode(json.dumps(note).encode()).decode()
    kept: dict[str, Any] = {"max_age": _NOTE_SECONDS, "path": _NOTE_PATH}
    response.set_cookie(NOTE_COOKIE, text, httponly=True, samesite="strict", secure=by_tls(request), **kept)
    return response


def read_note(request: Request) -> Note:
    """What is to be said, if anything."""
    try:
        found = json.loads(base64.urlsafe_b64decode(request.cookies.get(NOTE_COOKIE, "")))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    note: Note = {"done": str(found.get("done", ""))}
    return note | {"secret": str(found["secret"])} if "secret" in found else note


def forget_note(response: Response) -> Response:
    """The response, with the note that it shows forgotten."""
    response.delete_cookie(NOTE_COOKIE, path=_NOTE_PATH)
    return response


_MEDIA = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_KEPT = "public, max-age=31536000, immutable"
_LONG = 12  # digits of a hash in an address

files_router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent, and its address."""

    address: str
    media: str
    content: bytes
    compressed: bytes


@cache
def _files() -> dict[str, StaticFile]:
    """All files by name; compressed when the first of them is asked for."""
    found = resources.files("sfumato_server.ui").joinpath("static")
    scripts = [each for folder in (found, found.joinpath("vendor")) for each in folder.iterdir() if _media(each)]
    return {each.name: _file(each) for each in scripts}


@cached(2_000)
def address(name: str) -> str:
    """Where a browser finds a file of that name, which changes with what is in it.

    >>> address("page.css").startswith("/static/") and address("page.css").endswith("/page.css")
    True
    """
    return _files()[name].address


@files_router.get("/static/{digest}/{name}")
@files_router.head("/static/{digest}/{name}")
def static_file(digest: str, name: str, request: Request) -> Response:
    """A file; one of another version is not there."""
    found = _files().get(name)
    if found is None or found.address != f"/static/{digest}/{name}":
        raise RefusalError("not-found", "There is no such file", 404, "load the page again")
    headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.media, headers=headers)
    return Response(found.compressed, media_type=found.media, headers=headers | {"Content-Encoding": "gzip"})


def _media(file: Traversable) -> str | None:
    return next((media for ending, media in _MEDIA.items() if file.name.endswith(ending)), None)


def _file(file: Traversable) -> StaticFile:
    content, media = file.read_bytes(), _media(file)
    assert media is not None
    digest = hashlib.sha256(content).hexdigest()[:_LONG]
    return StaticFile(f"/static/{digest}/{file.name}", media, content, gzip.compress(content, mtime=0))


MOST_BARS = 100
_MOST_COLOURS = 8
_MOST_CHARTS = 4  # columns of an answer that are drawn
_MOST_ROWS = 50_000  # of an answer that travels in the page as a file
_WHOLE = 1 - 1e-9  # of the width of the bounds: their ends are rounded
_FACTORS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))


def charts(found: Answer, domain: Domain) -> list[dict[str, Any]]:
    """Bars with their intervals as Vega-Lite specifications, one a column; none where there is one row, or too many.

    An estimate of too few rows has its interval and no bar, which would be as tall as those of many rows.
    """
    if not found.groups or not 1 < len(found.keys) <= MOST_BARS:
        return []
    told = telling(found, domain)
    return [_chart(found, column, [row[column] for row in told]) for column in range(len(found.columns))[:_MOST_CHARTS]]


def _chart(found: Answer, column: int, told: list[bool]) -> dict[str, Any]:
    """One column: bars by groups, side by side and in colours by one of them that has few cells, where there is one."""
    name, coloured = found.columns[column], _coloured(found)
    others = [place for place in range(len(found.groups)) if place != coloured]
    values = [
        {
            "group": ", ".join(key[place] for place in others),
            "estimate": row[column].estimate if tells else None,
            "low": row[column].low,
            "high": row[column].high,
        }
        | ({} if coloured is None else {"series": key[coloured]})
        for key, row, tells in zip(found.keys, found.values, told, strict=True)
    ]
    title = ", ".join(found.groups[place] for place in others)
    y = {"field": "group", "type": "nominal", "sort": None, "title": title, "axis": {"labelLimit": 240}}
    apart = {"labelSeparation": 8}  # pixels: labels of thousands run into one another
    bars: dict[str, Any] = {"x": {"field": "estimate", "type": "quantitative", "title": name, "axis": apart}}
    both: dict[str, Any] = {"y": y}
    if coloured is not None:
        legend = {"orient": "top", "columns": 3, "labelLimit": 160}
        series = {"field": "series", "type": "nominal", "sort": None}
        bars["color"] = series | {"title": found.groups[coloured], "legend": legend}
        both["yOffset"] = series
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{name} by {', '.join(found.groups)}, with intervals; the table has the same numbers",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": {"step": 14 if coloured is not None else 26},
        "data": {"values": values},
        "encoding": both,
        "layer": [
            {"mark": "bar", "encoding": bars},
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
        ],
    }


def _coloured(found: Answer) -> int | None:
    """Of several groups the one with the fewest cells, if a legend can tell them apart by their colours."""
    if len(found.groups) == 1:
        return None
    sizes = [len({key[place] for key in found.keys}) for place in range(len(found.groups))]
    least = min(range(len(sizes)), key=sizes.__getitem__)
    return least if sizes[least] <= _MOST_COLOURS else None


def telling(found: Answer, domain: Domain) -> list[list[bool]]:
    """Of each estimate, by group and aggregate, whether its interval excludes anything that anyone may know."""
    return [
        [_tells(value, aggregate, domain) for value, aggregate in zip(row, found.query.aggregates, strict=True)]
        for row in found.values
    ]


def _tells(value: NoisyValue, aggregate: Aggregate, domain: Domain) -> bool:
    return value.high - value.low < aggregate.largest_interval(domain) * _WHOLE


def files(found: Answer) -> dict[str, str]:
    """The answer as files that the page carries itself, by their ending: fetching one asks nothing again."""
    from pyarrow import csv, parquet

    if len(found.keys) > _MOST_ROWS:
        return {}
    table, text, packed = found.to_arrow(), io.BytesIO(), io.BytesIO()
    csv.write_csv(table, text)
    parquet.write_table(table, packed)
    kinds = {"csv": ("text/csv", text), "parquet": ("application/vnd.apache.parquet", packed)}
    return {
        ending: f"data:{media};base64,{base64.b64encode(held.getvalue()).decode()}"
        for ending, (media, held) in kinds.items()
    }


@dataclass(frozen=True)
class Step:
    """What one loss would give.

    Attributes:
        loss: in words.
        half_width: of the widest interval among the answers.
        bar: its length, of the longest: 0 to 1.
        share: of what is left, 0 to 1; None where that is not known, and above 1 where it is too much.
        chosen: whether it is the loss that was asked about.
    """

    loss: str
    half_width: float
    bar: float
    share: float | None
    chosen: bool


def steps(loss: Loss, expected: Callable[[Loss], Iterable[ExpectedError]], own: Account) -> list[Step]:
    """What a quarter of a loss would give, and half of it, all, double and four times; none of epsilon with delta."""
    if not isinstance(loss, Epsilon | Rho):
        return []
    widths: dict[Fraction, float] = {}
    for factor in _FACTORS:
        try:
            widths[factor] = max((each.half_width for each in expected(loss * factor)), default=0.0)
        except SfumatoError:  # beyond what can be asked for
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
    """How much of what is left a loss would take; None where nothing limits it, or in another measure."""
    if own.limit is None or own.left is None or type(loss) is not type(own.limit) or not own.left:
        return None
    return float(loss.value / own.left) if isinstance(loss, Epsilon | Rho) else None
