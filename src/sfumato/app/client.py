"""A typed client of the server.

It states requests by the models that the server reads them with, so what has not the right form is refused unsent.
Every request that may spend carries an Idempotency-Key, and repetitions after a lost connection or a
busy ledger carry the same one, so that a question is never charged twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack, cast

from sfumato.errors import InputError, SfumatoError
from sfumato.extras import require
from sfumato.privacy.loss import Number as Exact

require("client", "the HTTP client")

import httpx  # noqa: E402  (after it was found to be there)

from sfumato.app.requests.administration import (  # noqa: E402
    CapRequest,
    DatasetRequest,
    GrantRequest,
    KeyRequest,
    TermsRequest,
)
from sfumato.app.requests.fields import LossFields, StrictModel, filled  # noqa: E402
from sfumato.app.requests.queries import AskRequest, CostRequest, QueryFields  # noqa: E402
from sfumato.app.requests.releases import AnonymizeRequest, SynthesisFields  # noqa: E402

_ATTEMPTS = 4
_JOURNAL_PAGE = 1000
_AGAIN = frozenset({429, 502, 503, 504})
_LONGEST_WAIT = 10.0  # seconds


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
        """The last part of the problem's type."""
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
    """An answer: the columns, one line a group, and the statement of its guarantee and cost."""

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    rows: tuple[AnswerLine, ...]
    guarantee: str
    cost: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """What a question would cost: an epsilon as exact text, and what is supposed of rows, in sentences."""

    epsilon: str
    notes: tuple[str, ...]


class LossTerms(TypedDict, total=False):
    """What something may cost: ``epsilon``, ``epsilon`` with ``delta``, or ``rho``; text or numbers, read exactly."""

    epsilon: Exact
    delta: Exact
    rho: Exact


class CostTerms(LossTerms, total=False):
    """What is supposed: rows in each group, the confidence of intervals, rows of a unit beyond the bound to count."""

    rows: int
    confidence: Exact
    truncation: int


class AskTerms(LossTerms, total=False):
    """How to answer: at which confidence, in non-negative integers, counting rows of a unit beyond the bound."""

    confidence: Exact
    whole: bool
    truncation: int


class HttpClient:
    """A server at an address, asked with a key.

    Args:
        address: such as ``http://127.0.0.1:8000``.
        key: as a steward issued it.
        timeout: seconds to wait for a reply.

    Raises:
        InputError: the address is none of HTTP, or no key looks like this one.
    """

    def __init__(self, address: str, key: str, *, timeout: float = 60.0) -> None:
        if not address.startswith(("http://", "https://")):
            raise InputError("an address of a server begins with http:// or https://", culprit=address)
        if not (key.isascii() and key.isprintable() and key and " " not in key):
            raise InputError("a key is one word of printable ASCII; copy it again, without line breaks or blanks")
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout, trust_env=False)

    def datasets(self) -> list[dict[str, Any]]:
        """All datasets, with what is public about them."""
        return cast("list[dict[str, Any]]", self._call("GET", "/v1/datasets")["datasets"])

    def dataset(self, name: str) -> dict[str, Any]:
        """One dataset and its public domain."""
        return self._call("GET", f"/v1/datasets/{name}")

    def budget(self, name: str) -> dict[str, Any]:
        """What is left."""
        return self._call("GET", f"/v1/datasets/{name}/budget")

    def accuracy(self, name: str, sql: str, **terms: Unpack[CostTerms]) -> list[dict[str, Any]]:
        """How wrong the answers would be at a loss (``epsilon=``, ``delta=``, ``rho=``); spends nothing."""
        body = _body(CostRequest, {"sql": sql, **_with_loss(terms)})
        return cast("list[dict[str, Any]]", self._call("POST", f"/v1/datasets/{name}/cost", body)["expected"])

    def cost(self, name: str, sql: str, *, error: Exact, **terms: Unpack[CostTerms]) -> Cost:
        """The epsilon that keeps every answer within ``error``, and what it supposes; spends nothing."""
        found = self._call(
            "POST", f"/v1/datasets/{name}/cost", _body(CostRequest, {"sql": sql, "error": error, **terms})
        )
        return Cost(str(found["epsilon"]), tuple(found["notes"]))

    def ask(self, name: str, sql: str, *, retry_key: str | None = None, **terms: Unpack[AskTerms]) -> Reply:
        """Answer a statement for a loss (``epsilon=``, ``delta=``, ``rho=``)."""
        return self._ask(name, _body(AskRequest, {"sql": sql, **_with_loss(terms)}), retry_key)

    def query(
        self, name: str, query: Mapping[str, Any], *, retry_key: str | None = None, **terms: Unpack[AskTerms]
    ) -> Reply:
        """Answer a question stated as aggregates, groups and conditions."""
        stated = filled(QueryFields, query)
        return self._ask(name, _body(AskRequest, {"query": stated, **_with_loss(terms)}), retry_key)

    def journal(self, name: str) -> list[dict[str, Any]]:
        """The journal: a steward's whole, an analyst's own."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._call("GET", f"/v1/datasets/{name}/journal?after={after}&limit={_JOURNAL_PAGE}")
            found += page["entries"]
            after = page["next"]
        return found

    def release(
        self,
        name: str,
        *,
        method: str,
        attributes: Sequence[str] = (),
        zeros: Sequence[Mapping[str, Any]] = (),
        reuse: bool = True,
        **loss: Unpack[LossTerms],
    ) -> str:
        """Ask for a synthetic table in the background; returns the id of the job.

        Args:
            name: of the dataset.
            method: ``auto`` or ``histogram``.
            attributes: of the histogram; all of them without.
            zeros: rules for what is impossible, as a file of them has them, for ``auto``.
            reuse: whether AIM may use what was released of the same table before.
            loss: what it costs.
        """
        said: dict[str, Any] = {"method": method, "attributes": list(attributes)}
        said |= {"zeros": [dict(rule) for rule in zeros]} if zeros else {}
        said |= {} if reuse else {"reuse": False}
        body = _body(SynthesisFields, {**said, **_with_loss(loss)})
        return str(self._call("POST", f"/v1/datasets/{name}/releases", body)["job"])

    def anonymize(self, name: str, *, method: str, quasi: Sequence[str], k: int, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """Ask for an anonymised table in the background (stewards); returns the id of the job.

        ``more`` may have ``suppression``, ``suppress_rows``, ``criteria``, ``keep``, ``missing``, ``hierarchies``,
        ``seconds`` and ``cut``, as ``sfumato anonymize`` takes them.
        """
        body = _body(AnonymizeRequest, {"method": method, "quasi": list(quasi), "k": k, **more})
        return str(self._call("POST", f"/v1/datasets/{name}/anonymizations", body)["job"])

    def progress(self, job: str) -> dict[str, Any]:
        """How far a job is."""
        return self._call("GET", f"/v1/releases/{job}")

    def rows(self, job: str) -> str:
        """The rows of a finished job, as CSV."""
        return self._send("GET", f"/v1/releases/{job}/rows", None, None).text

    def parquet(self, job: str) -> bytes:
        """The rows of a finished job as a Parquet file, with the codebook and noisy tables of a synthetic one."""
        return self._send("GET", f"/v1/releases/{job}/rows?format=parquet", None, None).content

    def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        discoverable: Sequence[str] = (),
        second_budget: bool = False,
    ) -> dict[str, Any]:
        """Register a dataset (stewards).

        Args:
            name: what analysts call it.
            source: where the table lies, as the server sees it.
            domain: its accepted domain, as a document.
            limit: the most that may ever be released: ``1``, ``1,1e-9`` or ``rho=0.5``.
            discoverable: columns outside the domain by whose values analysts may group.
            second_budget: confirms that a table which is registered under another name gets a second budget,
                although what is released under both names adds up.
        """
        said = {"name": name, "source": source, "domain": dict(domain), "limit": limit}
        more = {"discoverable": list(discoverable), "second_budget": second_budget}
        return self._call("POST", "/v1/datasets", _body(DatasetRequest, said | more))

    def read_again(self, name: str) -> dict[str, Any]:
        """Have a table read again and its content confirmed, after it has changed (stewards)."""
        return self._call("POST", f"/v1/datasets/{name}/reading")

    def cap(self, name: str, analyst: str, **loss: Unpack[LossTerms]) -> dict[str, Any]:
        """Set what an analyst may spend; without a loss, lift the cap (stewards)."""
        body = _body(CapRequest, {"analyst": analyst, **(_with_loss(loss) if loss else {"loss": None})})
        return self._call("PUT", f"/v1/datasets/{name}/caps", body)

    def terms(self, name: str) -> dict[str, Any]:
        """On which terms a dataset is asked, and who is let in or shut out (stewards)."""
        return self._call("GET", f"/v1/datasets/{name}/terms")

    def set_terms(
        self, name: str, *, granted_only: bool = False, default_cap: str | None = None, most: str | None = None
    ) -> dict[str, Any]:
        """Set all of them: who may ask, the cap of new analysts, the most that a question may cost (stewards)."""
        terms = {"granted_only": granted_only, "default_cap": default_cap, "most": most}
        return self._call("PUT", f"/v1/datasets/{name}/terms", _body(TermsRequest, terms))

    def let_in(self, name: str, analyst: str) -> dict[str, Any]:
        """Grant a dataset to an analyst (stewards)."""
        return self._grant(name, analyst, shut_out=False)

    def shut_out(self, name: str, analyst: str) -> dict[str, Any]:
        """Let an analyst ask a dataset no more (stewards)."""
        return self._grant(name, analyst, shut_out=True)

    def issue(self, name: str, *, scope: str, days: int) -> dict[str, Any]:
        """Issue a key; the secret is in the reply and nowhere else (stewards)."""
        return self._call("POST", "/v1/keys", _body(KeyRequest, {"name": name, "scope": scope, "days": days}))

    def revoke(self, key_id: str) -> None:
        """End a key (stewards)."""
        self._call("DELETE", f"/v1/keys/{key_id}")

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _grant(self, name: str, analyst: str, *, shut_out: bool) -> dict[str, Any]:
        body = _body(GrantRequest, {"analyst": analyst, "shut_out": shut_out})
        return self._call("PUT", f"/v1/datasets/{name}/grants", body)

    def _ask(self, name: str, body: Mapping[str, Any], retry_key: str | None) -> Reply:
        found = self._send("POST", f"/v1/datasets/{name}/query", body, retry_key or secrets.token_hex(16)).json()
        return Reply(
            tuple(found["columns"]),
            tuple(found["groups"]),
            tuple(found["rows"]),
            found["guarantee"],
            found["cost"],
            found,
        )

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return cast("dict[str, Any]", self._send(method, path, body, None).json())

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, retry_key: str | None) -> httpx.Response:
        """Send, and again where that is safe: requests that read, and those that carry a retry key."""
        safe = retry_key is not None or method == "GET" or path.endswith("/cost")
        headers = {} if retry_key is None else {"Idempotency-Key": retry_key}
        for attempt in range(_ATTEMPTS):
            last = not safe or attempt == _ATTEMPTS - 1
            try:
                reply = self._http.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                if last:
                    raise ServerError(self._no_reply(error)) from error
                pause = 0.1 * 2**attempt
            else:
                if reply.is_success:
                    return reply
                if last or reply.status_code not in _AGAIN:
                    raise ServerError(_problem(reply))
                pause = max(0.1 * 2**attempt, min(float(reply.headers.get("Retry-After", 0)), _LONGEST_WAIT))
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _no_reply(self, error: httpx.TransportError) -> Mapping[str, Any]:
        """What is known and what to check where no server answered; whatever signs on in an address is not shown."""
        address = str(self._http.base_url.copy_with(userinfo=b"")).rstrip("/")
        detail = f"{type(error).__name__}; check the address, and that the server runs and can be reached from here"
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
            detail = f"{type(error).__name__}; the server may be busy: wait, or give the client a longer timeout"
        return {"title": f"no reply from {address}", "detail": detail, "status": 0}


def _body(kind: type[StrictModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A request as JSON, by the model with which the server reads it.

    Raises:
        InputError: a field that it does not have, or one beyond its limits; nothing was sent.
    """
    return filled(kind, fields).model_dump(mode="json", exclude_unset=True)


def _with_loss(terms: Mapping[str, Any]) -> dict[str, Any]:
    """The terms with what they say of the loss in a field of its own."""
    loss = {name: terms[name] for name in LossFields.model_fields if name in terms}
    return {"loss": filled(LossFields, loss), **{name: term for name, term in terms.items() if name not in loss}}


def _problem(reply: httpx.Response) -> Mapping[str, Any]:
    if reply.headers.get("content-type", "").startswith("application/problem+json"):
        return cast("Mapping[str, Any]", reply.json())
    return {"title": "no problem document", "detail": f"status {reply.status_code}", "status": reply.status_code}
