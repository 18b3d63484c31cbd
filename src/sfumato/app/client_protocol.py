"""The protocol of both clients: requests, repetitions, and the reading of replies.

Requests that read, and requests with an Idempotency-Key, are repeated if the server is busy or does not answer.
Every reply is checked for its form, because another program may answer at the address.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

import httpx

from sfumato.app.api.questions import LossFields, StrictModel, validate_fields
from sfumato.app.outbound import failure, outbound_from_environment, rejected_certificate
from sfumato.errors import InputError, MissingExtraError, SfumatoError
from sfumato.privacy.loss import Number as Exact

_ATTEMPTS = 4
_AGAIN = frozenset({429, 502, 503, 504})
_LONGEST_WAIT = 10.0  # seconds
JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
ZIP = "application/zip"
_UNKNOWN_AUTHORITY = (
    "If your organization signs its own certificates, pass the file of its authority, such as ca='authority.pem', "
    "or name the file in SSL_CERT_FILE."
)
_WRONG_NAME = "Use the address that the certificate names, or ask who runs the server."
_CERTIFICATE_REMEDIES = {
    10: "Ask who runs the server to renew its certificate, and check the clock of this machine.",
    62: _WRONG_NAME,
    64: _WRONG_NAME,
}
"""The remedy for each code of OpenSSL: an expired certificate, and one for another host or IP address."""
_PARQUET_MARK = b"PAR1"
_Part: TypeAlias = Literal["estimate", "standard_error", "low", "high"]
_ENDINGS: tuple[tuple[str, _Part], ...] = (
    ("", "estimate"),
    ("_error", "standard_error"),
    ("_low", "low"),
    ("_high", "high"),
)


class ServerError(SfumatoError):
    """A problem document that the server sent.

    Attributes:
        problem: the document: type, title, status, detail, charged and more.
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        listed = problem.get("errors") or ()
        more = "; ".join(f"{each.get('place')}: {each.get('reason')}" for each in listed)
        super().__init__(f"{problem.get('title')}: {more or problem.get('detail')}", culprit=problem)
        self.problem = dict(problem)

    @property
    def kind(self) -> str:
        """The last part of the problem's type, which names the kind of problem."""
        return str(self.problem.get("type", "")).rsplit("/", 1)[-1]


class NumberDocument(TypedDict):
    """An estimate with its error."""

    estimate: float
    standard_error: float
    low: float
    high: float


class AnswerLine(TypedDict):
    """One group of an answer."""

    key: list[str]
    values: list[NumberDocument]


@dataclass(frozen=True)
class Reply:
    """An answer: its columns, one line per group, and the statement of its guarantee and cost."""

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    rows: tuple[AnswerLine, ...]
    guarantee: str
    cost: str
    document: Mapping[str, Any]

    @property
    def confidence(self) -> float:
        """The probability with which each interval holds the exact answer."""
        return float(self.document["confidence"])

    @property
    def records(self) -> list[dict[str, Any]]:
        """One flat mapping per group: labels, then estimate, standard error and interval of each aggregate."""
        return [
            dict(zip(self.groups, row["key"], strict=True))
            | {
                f"{name}{ending}": value[part]
                for name, value in zip(self.columns, row["values"], strict=True)
                for ending, part in _ENDINGS
            }
            for row in self.rows
        ]

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas is optional)
        """Return the records as a pandas DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "A DataFrame needs pandas, which is not installed. Run: pip install pandas"
            ) from error
        names = [f"{name}{ending}" for name in self.columns for ending, _ in _ENDINGS]
        return pd.DataFrame(self.records, columns=[*self.groups, *names])


@dataclass(frozen=True)
class Cost:
    """The cost of a question: an epsilon as exact text, and its assumptions about rows, in sentences."""

    epsilon: str
    notes: tuple[str, ...]


class LossTerms(TypedDict, total=False):
    """A loss: ``epsilon``, ``epsilon`` with ``delta``, or ``rho``.  Text and numbers are read exactly."""

    epsilon: Exact
    delta: Exact
    rho: Exact


class CostTerms(LossTerms, total=False):
    """The terms of an estimate: a loss, rows per group, confidence, and a bound for counting truncated rows."""

    rows: int
    confidence: Exact
    truncation: int


class AskTerms(LossTerms, total=False):
    """The terms of an answer: a loss, its confidence, non-negative integers, and a bound for truncated rows."""

    confidence: Exact
    whole: bool
    truncation: int


@dataclass(frozen=True)
class Call:
    """A request.  ``retry_key`` makes it safe to repeat, and ``accept`` is the media type of its reply."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    retry_key: str | None = None
    accept: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of this request."""
        headers = {"Idempotency-Key": self.retry_key, "Accept": self.accept}
        return {name: value for name, value in headers.items() if value is not None}

    @property
    def safe(self) -> bool:
        """True if a repetition changes nothing."""
        return self.retry_key is not None or self.method == "GET" or self.path.endswith("/cost")


Outcome: TypeAlias = httpx.Response | httpx.TransportError | None
"""The reply to a request or the failure to send it; None after a pause."""
Result = TypeVar("Result")


def attempts(
    exchange: Generator[Call, httpx.Response, Result], address: httpx.URL
) -> Generator[Call | float, Outcome, Result]:
    """Yield the requests of an exchange to send, and the seconds to wait before a repetition.  Return its result.

    Raises:
        ServerError: the server refused a request, or no server answered.
    """
    try:
        call = next(exchange)
        while True:
            call = exchange.send((yield from _attempts(call, address)))
    except StopIteration as done:
        result: Result = done.value
        return result


def _attempts(call: Call, address: httpx.URL) -> Generator[Call | float, Outcome, httpx.Response]:
    for attempt in range(_ATTEMPTS):
        last = not call.safe or attempt == _ATTEMPTS - 1
        reply = yield call
        pause = 0.1 * 2**attempt
        if isinstance(reply, httpx.TransportError):
            if last or rejected_certificate(reply):
                raise ServerError(_no_reply(address, reply)) from reply
        else:
            assert reply is not None
            if reply.is_success:
                return reply
            if last or reply.status_code not in _AGAIN:
                raise ServerError(_problem(reply))
            pause = max(pause, min(_seconds(reply), _LONGEST_WAIT))
        yield pause
    raise AssertionError("the last attempt returns or raises")


def document(reply: httpx.Response) -> dict[str, Any]:
    """Return the JSON of a reply.

    Raises:
        ServerError: the reply is no JSON object.
    """
    _expect(reply, JSON)
    try:
        content = reply.json()
    except ValueError as error:
        raise ServerError(_foreign(reply)) from error
    if not isinstance(content, dict):
        raise ServerError(_foreign(reply))
    return content


def csv_text(reply: httpx.Response) -> str:
    """Return the CSV of a reply.

    Raises:
        ServerError: the reply is no CSV.
    """
    _expect(reply, CSV)
    return reply.text


def parquet_bytes(reply: httpx.Response) -> bytes:
    """Return the Parquet file of a reply.

    Raises:
        ServerError: the reply is no Parquet file.
    """
    _expect(reply, PARQUET)
    if not (reply.content.startswith(_PARQUET_MARK) and reply.content.endswith(_PARQUET_MARK)):
        raise ServerError(_foreign(reply))
    return reply.content


def zip_bytes(reply: httpx.Response) -> bytes:
    """Return the ZIP file of a reply.

    Raises:
        ServerError: the reply is no ZIP file.
    """
    _expect(reply, ZIP)
    return reply.content


def answered(reply: httpx.Response) -> Reply:
    """Return the answer of a reply.

    Raises:
        ServerError: the reply is no answer.
    """
    content = document(reply)
    try:
        columns, groups, rows = (tuple(content[name]) for name in ("columns", "groups", "rows"))
        return Reply(columns, groups, rows, content["guarantee"], content["cost"], content)
    except (KeyError, TypeError) as error:
        raise ServerError(_foreign(reply)) from error


def part(reply: httpx.Response, name: str) -> Any:  # noqa: ANN401  (JSON)
    """Return a field of a reply's JSON.

    Raises:
        ServerError: the reply has no such field.
    """
    content = document(reply)
    if name not in content:
        raise ServerError(_foreign(reply))
    return content[name]


def new_retry_key() -> str:
    """Return a random key for one request."""
    return secrets.token_hex(16)


def connection(
    address: str, key: str, timeout: float, *, ca: str | Path | None = None, proxy: str | None = None
) -> dict[str, Any]:
    """Return the arguments of an httpx client for a server.

    Raises:
        InputError: the address is no HTTP address, the key has a wrong form, or the certificates or proxy are wrong.
    """
    if not address.startswith(("http://", "https://")):
        raise InputError("an address of a server begins with http:// or https://", culprit=address)
    try:
        _ = urlsplit(address).port
    except ValueError as error:
        raise InputError("the port of an address is a number up to 65535", culprit=address) from error
    if not (key.isascii() and key.isprintable() and key and " " not in key):
        raise InputError("a key is one word of printable ASCII; copy it again, without line breaks or blanks")
    headers = {"Authorization": f"Bearer {key}"}
    return {
        "base_url": address,
        "headers": headers,
        "timeout": timeout,
        **outbound_from_environment(address, ca, proxy),
    }


def stated(kind: type[StrictModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as JSON, checked by the model of the server.

    Raises:
        InputError: a field is unknown, or beyond its limits.
    """
    return validate_fields(kind, fields).model_dump(mode="json", exclude_unset=True)


def with_loss(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms with the loss in a field of its own."""
    loss = {name: terms[name] for name in LossFields.model_fields if name in terms}
    return {
        "loss": validate_fields(LossFields, loss),
        **{name: term for name, term in terms.items() if name not in loss},
    }


def _expect(reply: httpx.Response, media: str) -> None:
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() != media:
        raise ServerError(_foreign(reply))


def _foreign(reply: httpx.Response) -> Mapping[str, Any]:
    title, detail = "no reply of a Sfumato server", "another program answers there; check the address"
    return {"title": title, "detail": detail, "status": reply.status_code}


def _seconds(reply: httpx.Response) -> float:
    """Return the seconds that a server asks to wait, or 0 without a number of seconds."""
    text = reply.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _no_reply(address: httpx.URL, error: httpx.TransportError) -> Mapping[str, Any]:
    """Return a problem document for a missing reply.  It leaves out user and password of the address."""
    place = str(address.copy_with(userinfo=b"")).rstrip("/")
    if rejected := rejected_certificate(error):
        detail = f"{rejected.verify_message}. {_CERTIFICATE_REMEDIES.get(rejected.verify_code, _UNKNOWN_AUTHORITY)}"
        return {"title": f"the certificate of {place} is not trusted", "detail": detail, "status": 0}
    detail = f"{failure(error)}; check the address, and that the server runs and can be reached from here"
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        detail = f"{type(error).__name__}; the server may be busy: wait, or give the client a longer timeout"
    return {"title": f"no reply from {place}", "detail": detail, "status": 0}


def _problem(reply: httpx.Response) -> Mapping[str, Any]:
    if reply.headers.get("content-type", "").startswith("application/problem+json"):
        try:
            problem = reply.json()
        except ValueError:
            problem = None
        if isinstance(problem, dict):
            return cast("Mapping[str, Any]", problem)
    return {"title": "no problem document", "detail": f"status {reply.status_code}", "status": reply.status_code}
