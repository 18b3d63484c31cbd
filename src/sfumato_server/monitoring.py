"""The health of a worker, its metrics for Prometheus, and notices to stewards.

The server sends a notice if a release waits for an approval, a budget is low, the source of a dataset was changed, a
dataset is paused, or a key ends soon.  Each notice is a line of the log.  It also goes to a webhook if there is one.

Only one worker sends a notice, once for each state of its subject.  A new state brings a new notice: a budget that
changed, or a table that was read and then changed again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Any

import httpx
from fastapi import APIRouter, Request, Response
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sfumato.app.outbound import failure, outbound
from sfumato.errors import LedgerError, SfumatoError
from sfumato.ledger.account import Account
from sfumato.ledger.database import Exhaustion, exhaustion
from sfumato_server.access import CurrentService, Monitor, StrictRoute
from sfumato_server.problems import RefusalError, log, render_metrics
from sfumato_server.registry import Dataset
from sfumato_server.rules import parse_monthly_budget
from sfumato_server.service import Service

router = APIRouter(tags=["operation"], route_class=StrictRoute)
_READY_CACHE_SECONDS = 1.0  # the route needs no key, so it must stay cheap
_TITLES = {
    Exhaustion.DISK: ("The disk of the ledger is full", "free some space; nothing is charged meanwhile"),
    Exhaustion.CONNECTIONS: ("The ledger has no connection left", "allow more, or run fewer workers"),
    Exhaustion.MOVED: (
        "The ledger was moved, replaced or set back",
        "put it back, or start the server again knowingly",
    ),
}


class Readiness:
    """A check whether a worker can answer questions, at most once per second."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._result: tuple[float, RefusalError | None] | None = None  # the time of the last check, and its refusal

    def refuse(self) -> None:
        """Refuse if the ledger would fail a question now.

        Raises:
            RefusalError: the kind of the refusal names the reason.
        """
        with self._lock:
            if self._result is None or time.monotonic() - self._result[0] > _READY_CACHE_SECONDS:
                self._result = (time.monotonic(), self._check())
            error = self._result[1]
        if error is not None:
            raise error

    def _check(self) -> RefusalError | None:
        try:
            self._service.registry.check_database()
            self._service.refuse_set_back()
        except LedgerError as error:
            kind = exhaustion(error)
            title, remedy = _TITLES.get(kind, ("The ledger does not answer", "see that its database runs"))  # type: ignore[arg-type]
            name = "ledger-unavailable" if kind is None else kind.value
            log("not ready", reason=name)
            return RefusalError(name, title, 503, remedy)
        return None


class ServiceFigures(Collector):
    """Metrics that are read from the database for each request: budgets by dataset, and the queue."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all metrics.  If the ledger fails, the rest of its metrics are missing."""
        left = GaugeMetricFamily("sfumato_budget_left_ratio", "Share of a budget that is left.", labels=["dataset"])
        month = GaugeMetricFamily(
            "sfumato_budget_left_months",
            "Months of a monthly budget that are left: 1 is the amount of one month.",
            labels=["dataset"],
        )
        coming = GaugeMetricFamily(
            "sfumato_budget_months_to_come", "Months of a budget that have not begun.", labels=["dataset"]
        )
        queue = GaugeMetricFamily("sfumato_releases", "Background releases that are not over.", labels=["state"])
        ledger_up = GaugeMetricFamily("sfumato_ledger_up", "Whether the ledger answered when figures were read.")
        try:
            for dataset in self._service.registry.datasets():
                account = self._service.loaded(dataset.called).ledger.remaining()
                share = account.share_left
                assert share is not None  # as a dataset has a limit
                left.add_metric([dataset.called], float(share))
                budget = parse_monthly_budget(dataset.limit)
                if budget is not None:
                    since, now = datetime.fromisoformat(dataset.registered), datetime.now(UTC)
                    month.add_metric([dataset.called], float(budget.left(account, since, now) / budget.monthly.value))
                    coming.add_metric([dataset.called], budget.months - budget.months_begun(since, now))
            jobs = Counter(self._service.registry.jobs.open_states())
            for state in ("queued", "running"):
                queue.add_metric([state], jobs[state])
        except LedgerError:
            ledger_up.add_metric([], 0)
        else:
            ledger_up.add_metric([], 1)
        yield from (left, month, coming, queue, ledger_up)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Confirm that the process runs."""
    return {"status": "alive"}


@router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Confirm that the ledger answers and can be written."""
    readiness: Readiness = request.app.state.readiness
    readiness.refuse()
    return {"status": "ready"}


@router.get("/metrics")
def figures(_: Monitor, service: CurrentService) -> Response:
    """Return metrics in the text format of Prometheus, for keys of scope ``monitor`` and stewards."""
    return Response(render_metrics(ServiceFigures(service)), media_type="text/plain; version=0.0.4")


LOW = Fraction(1, 10)
"""A budget or cap is low if less than this share of it is left."""

ENDING = timedelta(days=7)
"""A key ends soon if this time or less is left, and three quarters of its life are over."""

CHECK_SECONDS = 60.0  # between two checks
_LOW_BUDGET_PAUSE = timedelta(hours=1)  # between two notices of one budget, which changes with each question
_WEBHOOK_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Notice:
    """A notice: its kind, its subject, the state of the subject, and public facts."""

    kind: str
    subject: str
    state: str
    facts: Mapping[str, str]


class StewardAlerts:
    """The notices that stewards get.

    Args:
        service: the worker's service.
        webhook: the address that gets notices; None to write them to the log only.
        client_options: arguments of the HTTP client, see :func:`sfumato.app.outbound.outbound`.
    """

    def __init__(
        self, service: Service, *, webhook: str | None, client_options: Mapping[str, Any] | None = None
    ) -> None:
        self._service = service
        self._store = service.store
        self._webhook = webhook
        self._client_options = outbound(None, None) if client_options is None else client_options
        self._stopped = threading.Event()

    def start(self) -> None:
        """Check for new notices at intervals, in a thread, until :meth:`stop`."""
        threading.Thread(target=self._run, name="notices", daemon=True).start()

    def stop(self) -> None:
        """End the checks."""
        self._stopped.set()

    def send_new(self) -> int:
        """Send the notices that are new and return their number.  A dataset that fails does not stop the others."""
        with _failures_logged("snapshots"):
            self._service.remove_unneeded()
        checks: list[Callable[[], Iterator[Notice]]] = [self._keys, self._approvals]
        with _failures_logged("datasets"):
            datasets = self._service.registry.datasets()
            checks += [partial(self._dataset, dataset) for dataset in datasets if not dataset.retired]
        count = 0
        for check in checks:
            with _failures_logged("notices"):
                for notice in check():
                    count += self._send_once(notice)
        return count

    def _run(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            self.send_new()

    def _dataset(self, dataset: Dataset) -> Iterator[Notice]:
        loaded = self._service.loaded(dataset.called)
        facts = {"dataset": dataset.called}
        accounts = {"": loaded.ledger.remaining(), **loaded.ledger.caps()}
        for analyst, account in accounts.items():
            if budget_is_low(account):
                holder = {**facts, "analyst": analyst} if analyst else facts
                state = f"{account.limit}: {account}"
                yield Notice("budget-low", f"{dataset.name}/{analyst}", state, {**holder, "left": str(account)})
        tables = self._service.tables
        snapshot = tables.snapshots.declared(dataset.name).snapshot
        state = "none" if snapshot is None else snapshot.folder
        if tables.source_changed(loaded):
            yield Notice("table-changed", dataset.name, state, facts)
        if tables.is_paused(loaded):
            yield Notice("dataset-paused", dataset.name, state, facts)

    def _keys(self) -> Iterator[Notice]:
        now = datetime.now(UTC)
        for key in self._service.registry.all_keys():
            if key.valid and key.expires - now < min(ENDING, (key.expires - key.issued) / 4):
                end = key.expires.isoformat(timespec="minutes")
                yield Notice("key-expiring", key.id, end, {"key": key.id, "holder": key.name, "expires": end})

    def _approvals(self) -> Iterator[Notice]:
        """Yield a notice of each release that waits for an approval, without its question.

        The statement on an anonymized table goes on with figures that were computed from the rows.  They are for
        stewards, and are left out of logs and webhooks.
        """
        for approval in self._service.approvals.pending():
            if approval.approved_by is None:
                dataset = self._service.current_name(approval.dataset)
                facts = {"dataset": dataset, "approval": approval.id, "analyst": approval.asked_by}
                yield Notice(
                    "approval-waiting", approval.id, approval.asked, {**facts, "cost": approval.cost.partition(";")[0]}
                )

    def _send_once(self, notice: Notice) -> bool:
        """Send a notice unless a worker sent it.  If the webhook does not take it, the next check repeats it."""
        former_state = self._claim(notice)
        if former_state is None:
            return False
        log("notice", kind=notice.kind, **notice.facts)
        if self._webhook is not None and not self._post(self._webhook, notice):
            self._unclaim(notice, former_state)
            return False
        return True

    def _claim(self, notice: Notice) -> str | None:
        """Record that this worker sends a notice.

        Returns:
            The state of the last notice, empty if there was none; None if this notice need not be sent.
        """
        key = {"kind": notice.kind, "subject": notice.subject}
        query = "SELECT state, told FROM service_notice WHERE kind = :kind AND subject = :subject"
        with self._store.founding() as driver:
            row = driver.record(query, key)
            if row is not None and (row["state"] == notice.state or _sent_recently(notice, row["told"])):
                return None
            driver.run("DELETE FROM service_notice WHERE kind = :kind AND subject = :subject", key)
            driver.insert("service_notice", [{**key, "state": notice.state, "told": _stamp()}])
        return "" if row is None else str(row["state"])

    def _unclaim(self, notice: Notice, state: str) -> None:
        change = "UPDATE service_notice SET state = :state, told = '' WHERE kind = :kind AND subject = :subject"
        with self._store.writing() as driver:
            driver.run(change, {"state": state, "kind": notice.kind, "subject": notice.subject})

    def _post(self, address: str, notice: Notice) -> bool:
        try:
            with httpx.Client(timeout=_WEBHOOK_TIMEOUT, follow_redirects=False, **self._client_options) as client:
                reply = client.post(address, json={"event": notice.kind, "time": _stamp(), **notice.facts})
        except httpx.HTTPError as error:
            log("webhook failed", reason=failure(error))
            return False
        if not reply.is_success:
            log("webhook failed", reason=f"status {reply.status_code}")
        return reply.is_success


@contextmanager
def _failures_logged(step: str) -> Iterator[None]:
    """Log any exception of a block and go on, because the thread has no caller to report to."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (see above)
        expected = isinstance(error, SfumatoError | RefusalError)
        log("look failed", what=step, error=type(error).__name__, expected=str(expected))


def budget_is_low(account: Account) -> bool:
    """Return whether less than a tenth of a limit is left."""
    share = account.share_left
    return share is not None and share < LOW


def _sent_recently(notice: Notice, time_sent: str) -> bool:
    if notice.kind != "budget-low" or not time_sent:
        return False
    return datetime.now(UTC) - datetime.fromisoformat(time_sent) < _LOW_BUDGET_PAUSE


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
