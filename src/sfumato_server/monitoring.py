"""What operators and stewards watch: whether a worker answers, its figures for Prometheus, and notices to a webhook.

The server sends a notice if a release waits for an approval, a budget is low, a table was written, a dataset is paused,
or a key ends soon.  Each notice is a line of the log, and goes to a webhook if the operator named one.  One of all
workers sends it once for each state that it is about: again if the budget has changed, or if the table was read again
and written once more.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import httpx
from fastapi import APIRouter, Request, Response
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sfumato.app.outbound import failure, outbound
from sfumato.errors import LedgerError, SfumatoError
from sfumato.ledger.account import Account
from sfumato.ledger.database import Shortage, shortage
from sfumato_server.access import CurrentService, Monitor, StrictRoute
from sfumato_server.problems import RefusalError, exposition, log
from sfumato_server.registry import Dataset
from sfumato_server.rules import read_periods
from sfumato_server.service import Service

router = APIRouter(tags=["operation"], route_class=StrictRoute)
_TRUSTED = 1.0  # seconds for which a worker trusts that it was ready: whoever asks need not have a key
_TITLES = {
    Shortage.DISK: ("The disk of the ledger is full", "free some space; nothing is charged meanwhile"),
    Shortage.CONNECTIONS: ("The ledger has no connection left", "allow more, or run fewer workers"),
    Shortage.MOVED: ("The ledger was moved, replaced or set back", "put it back, or start the server again knowingly"),
}


class Readiness:
    """Whether a worker can take questions, looked at no more often than once a second."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._found: tuple[float, RefusalError | None] | None = None

    def refuse(self) -> None:
        """Refuse to be ready where a question would fail for the ledger.

        Raises:
            RefusalError: says what is wrong, by one of few kinds.
        """
        with self._lock:
            if self._found is None or time.monotonic() - self._found[0] > _TRUSTED:
                self._found = (time.monotonic(), self._look())
            error = self._found[1]
        if error is not None:
            raise error

    def _look(self) -> RefusalError | None:
        try:
            self._service.registry.alive()
            self._service.refuse_set_back()
        except LedgerError as error:
            kind = shortage(error)
            title, remedy = _TITLES.get(kind, ("The ledger does not answer", "see that its database runs"))  # type: ignore[arg-type]
            name = "ledger-unavailable" if kind is None else kind.value
            log("not ready", reason=name)
            return RefusalError(name, title, 503, remedy)
        return None


class ServiceFigures(Collector):
    """Figures that are read off the database when they are asked for: budgets by dataset, and the queue."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All of them; without those of a ledger that does not answer."""
        left = GaugeMetricFamily("sfumato_budget_left_ratio", "Share of a budget that is left.", labels=["dataset"])
        month = GaugeMetricFamily(
            "sfumato_budget_left_months",
            "What the months begun so far leave of a budget by months: 1 is as much as a month brings.",
            labels=["dataset"],
        )
        coming = GaugeMetricFamily(
            "sfumato_budget_months_to_come", "Months of a budget that have not begun.", labels=["dataset"]
        )
        queue = GaugeMetricFamily("sfumato_releases", "Background releases that are not over.", labels=["state"])
        answers = GaugeMetricFamily("sfumato_ledger_up", "Whether the ledger answered when figures were read.")
        try:
            for dataset in self._service.registry.datasets():
                account = self._service.loaded(dataset.called).ledger.remaining()
                share = account.share_left
                assert share is not None  # as a dataset has a limit
                left.add_metric([dataset.called], float(share))
                periods = read_periods(dataset.limit)
                if periods is not None:
                    since, now = datetime.fromisoformat(dataset.registered), datetime.now(UTC)
                    month.add_metric([dataset.called], float(periods.left(account, since, now) / periods.each.value))
                    coming.add_metric([dataset.called], periods.months - periods.begun(since, now))
            counted = Counter(self._service.registry.jobs.open_states())
            for state in ("queued", "running"):
                queue.add_metric([state], counted[state])
        except LedgerError:
            answers.add_metric([], 0)
        else:
            answers.add_metric([], 1)
        yield from (left, month, coming, queue, answers)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process runs."""
    return {"status": "alive"}


@router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Whether the ledger answers and takes what is written to it."""
    readiness: Readiness = request.app.state.readiness
    readiness.refuse()
    return {"status": "ready"}


@router.get("/metrics")
def figures(_: Monitor, service: CurrentService) -> Response:
    """Figures in the text format of Prometheus, for keys of scope ``monitor`` and stewards."""
    return Response(exposition(ServiceFigures(service)), media_type="text/plain; version=0.0.4")


LOW = Fraction(1, 10)
"""The share of a budget, or of an analyst's cap, below which it is low."""

ENDING = timedelta(days=7)
"""A key that ends within this time ends soon, once three quarters of its life are over."""

BETWEEN = 60.0  # seconds between looks
_AGAIN = timedelta(hours=1)  # between two notices of one budget, which changes with each question
_PATIENCE = 10.0  # seconds for a reply of the webhook


@dataclass(frozen=True)
class Notice:
    """Something to tell: what kind it is, of whom, the state that it is about, and public facts in words."""

    kind: str
    subject: str
    state: str
    facts: Mapping[str, str]


class StewardAlerts:
    """Looks for what stewards are to know, and tells it.

    Args:
        service: of the worker.
        webhook: where to send notices; None for the log alone.
        reached: arguments of the client that sends them, as :func:`sfumato.app.outbound.outbound` returns them.
    """

    def __init__(self, service: Service, *, webhook: str | None, reached: Mapping[str, Any] | None = None) -> None:
        self._service = service
        self._store = service.store
        self._webhook = webhook
        self._reached = outbound(None, None) if reached is None else reached
        self._over = threading.Event()

    def watch(self) -> None:
        """Look again and again, in a thread of its own, until :meth:`end`."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()

    def look(self) -> int:
        """Tell what is new; returns how much that was.  What fails of one dataset ends nothing of the others."""
        with _Guard("snapshots"):
            self._service.tidy()
        looks: list[Callable[[], Iterator[Notice]]] = [self._keys, self._approvals]
        with _Guard("datasets"):
            looks += [self._of(each) for each in self._service.registry.datasets() if not each.retired]
        told = 0
        for found in looks:
            with _Guard("notices"):
                for notice in found():
                    told += self._tell(notice)
        return told

    def _watch(self) -> None:
        while not self._over.wait(BETWEEN):
            self.look()

    def _of(self, dataset: Dataset) -> Callable[[], Iterator[Notice]]:
        def found() -> Iterator[Notice]:
            loaded = self._service.loaded(dataset.called)
            facts = {"dataset": dataset.called}
            accounts = {"": loaded.ledger.remaining(), **loaded.ledger.caps()}
            for analyst, account in accounts.items():
                if budget_is_low(account):
                    whose = {**facts, "analyst": analyst} if analyst else facts
                    state = f"{account.limit}: {account}"
                    yield Notice("budget-low", f"{dataset.name}/{analyst}", state, {**whose, "left": str(account)})
            tables = self._service.tables
            snapshot = tables.snapshots.declared(dataset.name).snapshot
            state = "none" if snapshot is None else snapshot.folder
            if tables.written(loaded):
                yield Notice("table-changed", dataset.name, state, facts)
            if tables.paused(loaded):
                yield Notice("dataset-paused", dataset.name, state, facts)

        return found

    def _keys(self) -> Iterator[Notice]:
        now = datetime.now(UTC)
        for key in self._service.registry.all_keys():
            if key.valid and key.expires - now < min(ENDING, (key.expires - key.issued) / 4):
                end = key.expires.isoformat(timespec="minutes")
                yield Notice("key-expiring", key.id, end, {"key": key.id, "holder": key.name, "expires": end})

    def _approvals(self) -> Iterator[Notice]:
        """Yield a notice of each release that waits for an approval, without its question."""
        for each in self._service.approvals.open_ones():
            if each.approved_by is None:
                facts = {"dataset": self._service.called(each.dataset), "approval": each.id, "analyst": each.asked_by}
                yield Notice("approval-waiting", each.id, each.asked, {**facts, "cost": each.cost})

    def _tell(self, notice: Notice) -> bool:
        """Tell a notice unless somebody told it; what the webhook did not take is told again."""
        before = self._claim(notice)
        if before is None:
            return False
        log("notice", kind=notice.kind, **notice.facts)
        if self._webhook is not None and not self._sent(self._webhook, notice):
            self._write(notice, before)
            return False
        return True

    def _claim(self, notice: Notice) -> str | None:
        """The state that was told before, empty for none; None where this one need not be told."""
        which = {"kind": notice.kind, "subject": notice.subject}
        query = "SELECT state, told FROM service_notice WHERE kind = :kind AND subject = :subject"
        with self._store.founding() as driver:
            row = driver.record(query, which)
            if row is not None and (row["state"] == notice.state or _lately(notice, row["told"])):
                return None
            driver.run("DELETE FROM service_notice WHERE kind = :kind AND subject = :subject", which)
            driver.insert("service_notice", [{**which, "state": notice.state, "told": _stamp()}])
        return "" if row is None else str(row["state"])

    def _write(self, notice: Notice, state: str) -> None:
        change = "UPDATE service_notice SET state = :state, told = '' WHERE kind = :kind AND subject = :subject"
        with self._store.writing() as driver:
            driver.run(change, {"state": state, "kind": notice.kind, "subject": notice.subject})

    def _sent(self, address: str, notice: Notice) -> bool:
        try:
            with httpx.Client(timeout=_PATIENCE, follow_redirects=False, **self._reached) as client:
                reply = client.post(address, json={"event": notice.kind, "time": _stamp(), **notice.facts})
        except httpx.HTTPError as error:
            log("webhook failed", reason=failure(error))
            return False
        if not reply.is_success:
            log("webhook failed", reason=f"status {reply.status_code}")
        return reply.is_success


class _Guard:
    """Logs what a block fails with, and goes on; what nobody expected as well, as nobody waits for it here."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            return True
        if not isinstance(error, Exception):
            return False
        known = isinstance(error, SfumatoError | RefusalError)
        log("look failed", what=self._what, error=type(error).__name__, expected=str(known))
        return True


def budget_is_low(account: Account) -> bool:
    """Whether less than a tenth of a limit is left."""
    share = account.share_left
    return share is not None and share < LOW


def _lately(notice: Notice, told: str) -> bool:
    if notice.kind != "budget-low" or not told:
        return False
    return datetime.now(UTC) - datetime.fromisoformat(told) < _AGAIN


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
