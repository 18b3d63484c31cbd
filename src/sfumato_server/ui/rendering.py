"""The rendering of pages: templates with HTML escaping, budget bars, answers, error pages and static files.

A static file has a hash of its content in its address, so browsers may cache it forever.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypedDict

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from sfumato.app.cli.output import sentences
from sfumato.bounded_cache import cached
from sfumato.domain import Categorical, Domain
from sfumato.errors import SfumatoError, budget_percent, digits, interval_digits, short_deltas
from sfumato.ledger.audit_log import fact_words
from sfumato.ledger.entry import method_title
from sfumato.query import Answer, NoisyValue
from sfumato_server.access import KeyLookup, secret_of
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Key
from sfumato_server.ui.budgets import loss_words

NOTE_COOKIE = "sfumato_note"
REFUSALS = (SfumatoError, RefusalError)
_NOTE_SECONDS = 60
_SHORT_NAME = 12  # characters
_NOTE_PATH = "/steward"
_PLAIN_DETAILS = {
    "missing-key": "You are not signed in. Sign in with your key again; the form keeps what you typed.",
    "unknown-key": "Your key or session has ended. Sign in again, with a key that a steward gave you.",
    "expired-key": "Your key has expired or was revoked. A steward can give you a new one.",
    "wrong-scope": "Your key does not open this page. Ask a steward, or sign in with another key.",
    "dataset-paused": "The dataset is paused. A steward has to read its table again before it answers questions.",
    "unknown-dataset": "There is no dataset of that name that you may ask. See the list of datasets.",
    "not-found": "There is nothing at this address. See the list of datasets.",
    "data-unavailable": "The table cannot be read now. Ask again later, or tell a steward.",
    "internal": "The server failed. Tell its operator.",
    "dataset-retired": "It answers no questions, and shows no earlier answers. See the list of datasets for others.",
}
_PLAIN_TITLES = {
    "budget-exceeded": "The budget is too small for this",
    "query-refused": "This question cannot be answered",
    "domain-refused": "This question does not fit the dataset",
    "request-refused": "Something in the form is missing or wrong",
    "invalid-request": "Something in the form is missing or wrong",
    "loss-refused": "This privacy loss cannot be taken",
}
_KINDS = (SfumatoError, RefusalError, RequestValidationError, HTTPException, Exception)


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401  (what templates show)
    """Render a page."""
    context = {"problem": None, "done": None, "secret": None, "wrong": False, "first": False, **values}
    return HTMLResponse(short_deltas(_environment().get_template(name).render(**context)), status)


def login_page(request: Request, *, status: int = 200, **flags: bool) -> HTMLResponse:
    """Render the login page: a form for a key, and a link to the identity provider if there is one."""
    return page("enter.html.j2", key=None, provider=request.app.state.provider is not None, status=status, **flags)


def fragment(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Render a part of a page, which htmx inserts."""
    return HTMLResponse(short_deltas(_environment().get_template(name).render(**values)), status)


@cache
def _environment() -> Environment:
    folder = resources.files("sfumato_server.ui").joinpath("templates")
    sources = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".j2")}
    environment = Environment(
        loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["figure"] = lambda number: digits(number, ",")
    environment.filters["interval"] = lambda value: interval_digits(value.estimate, value.low, value.high, ",")
    environment.filters["error"] = lambda number: f"{float(f'{number:.3g}'):,.6g}"  # an error is an estimate: 3 digits
    environment.filters["percent_up"] = lambda share: budget_percent(share, up=True)
    environment.filters["address"] = address
    environment.filters["fact_words"] = fact_words
    environment.filters["breakable"] = _breakable
    environment.filters["plain"] = in_plain_words
    environment.filters["loss"] = loss_words
    environment.filters["sentences"] = lambda text: sentences(text.replace("; nothing was spent", ""))
    environment.filters["method_title"] = method_title
    return environment


def _breakable(name: str) -> Markup:
    """Return a name that a line may break after its dots, underscores and parentheses, if it is long."""
    text = str(escape(name))
    broken = re.sub(r"([._(])", r"\1<wbr>", text) if len(name) > _SHORT_NAME else text
    return Markup(broken)  # noqa: S704  (it is escaped)


def add_error_pages(app: FastAPI) -> None:
    """Answer errors with a page if the request came from a browser."""
    for kind in _KINDS:
        app.add_exception_handler(kind, partial(_error_page, app.exception_handlers[kind]))


def _error_page(handler: Any, request: Request, error: Exception) -> Response:  # noqa: ANN401  (an error handler)
    reply: Response = handler(request, error)
    takes_html = is_htmx(request) or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith("/v1/") or not takes_html:
        return reply
    content = json.loads(bytes(reply.body))
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
    """Return a problem document with a title and details for people instead of programs."""
    content, kind = dict(document), str(document.get("type", "")).removeprefix("/problems/")
    content["title"] = _PLAIN_TITLES.get(kind, content["title"])
    content["detail"] = _PLAIN_DETAILS.get(kind, content["detail"])
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


_MAX_FILE_ROWS = 50_000  # of an answer that the page embeds as a file


@dataclass(frozen=True)
class CommonError:
    """The error of every estimate of a column: half the width of its interval before it is cut at public bounds."""

    half_width: float
    standard_error: float


@dataclass(frozen=True)
class BarScale:
    """The scale of the bars of a column, which starts at or below zero; positions are percentages of its width."""

    least: float
    most: float

    @staticmethod
    def of_values(values: Iterable[NoisyValue]) -> BarScale:
        """Return the scale that shows zero and all intervals."""
        ends = [0.0, *(end for each in values for end in each.interval if math.isfinite(end))]
        return BarScale(min(ends), max(ends))

    def place(self, number: float) -> float:
        """Return the position of a number."""
        share = (number - self.least) / ((self.most - self.least) or 1.0)
        return round(100 * min(max(share, 0.0), 1.0), 2)


@dataclass(frozen=True)
class BarCell:
    """An estimate with its bar and whiskers; an estimate of too few rows has whiskers only.

    Attributes:
        value: the estimate with its interval.
        informative: whether the interval is narrower than the public bounds of the value.
        start, end: the ends of the bar.
        low, high: the ends of the whiskers.
    """

    value: NoisyValue
    informative: bool
    start: float
    end: float
    low: float
    high: float


@dataclass(frozen=True)
class DrawnColumn:
    """A column of an answer, with the error of all its estimates if they have the same."""

    name: str
    common_error: CommonError | None


@dataclass(frozen=True)
class AnswerTable:
    """All rows of an answer, sorted for a page.

    Attributes:
        columns: the columns.
        rows: for each group, its labels and a cell per column.
        order: the order of the rows, in words; empty for a single row.
    """

    columns: tuple[DrawnColumn, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[BarCell, ...]], ...]
    order: str


def answer_table(answer: Answer, domain: Domain) -> AnswerTable:
    """Return the rows of an answer with a bar and whiskers for each estimate."""
    by_column = [[row[place] for row in answer.values] for place in range(len(answer.columns))]
    scales = [BarScale.of_values(values) for values in by_column]
    rows = [
        (key, tuple(_bar_cell(*cell) for cell in zip(values, is_informative, scales, strict=True)))
        for key, values, is_informative in zip(answer.keys, answer.values, answer.informative, strict=True)
    ]
    order = ""
    if len(rows) > 1:
        order = "in the order of the statement" if answer.query.ordering.order else "in the order of the description"
        if _sorts_by_estimate(answer, domain):
            rows.sort(key=lambda row: (not row[1][0].informative, -row[1][0].value.estimate))
            order = f"largest {answer.columns[0]} first"
    columns = zip(answer.columns, map(_common_error, by_column), strict=True)
    return AnswerTable(tuple(DrawnColumn(*each) for each in columns), tuple(rows), order)


def _bar_cell(value: NoisyValue, informative: bool, scale: BarScale) -> BarCell:  # noqa: FBT001
    estimate = value.estimate if informative and math.isfinite(value.estimate) else 0.0
    start, end = sorted((scale.place(0), scale.place(estimate)))
    low, high = (scale.place(each) if math.isfinite(each) else scale.place(0) for each in value.interval)
    return BarCell(value, informative, start, end, low, high)


def _common_error(values: Sequence[NoisyValue]) -> CommonError | None:
    """Return the error of all estimates if they have the same standard error above zero; None otherwise."""
    errors = [each.standard_error for each in values]
    widths = [abs(end - each.estimate) for each in values for end in each.interval]
    if not errors or not math.isclose(min(errors), max(errors), rel_tol=1e-9) or not all(map(math.isfinite, widths)):
        return None
    return CommonError(max(widths), errors[0]) if max(widths) and errors[0] else None


def _sorts_by_estimate(answer: Answer, domain: Domain) -> bool:
    """Return whether rows are sorted by their first estimate: those of one group without an order of its own."""
    if answer.query.ordering.order or len(answer.groups) != 1:
        return False
    by = answer.query.by
    return not by or by[0] not in domain.names or isinstance(domain[by[0]], Categorical)


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
