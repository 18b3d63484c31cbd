"""What whoever runs a server looks at: whether it lives, whether it can take questions, and its figures."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sfumato.app.http.access import Monitor, StrictRoute, Worker
from sfumato.app.http.problems import RefusalError, exposition, log
from sfumato.app.http.rules import read_periods
from sfumato.app.http.service import Service
from sfumato.errors import LedgerError
from sfumato.ledger.dbapi import Shortage, shortage

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
def figures(_: Monitor, worker: Worker) -> Response:
    """Figures in the text format of Prometheus, for keys of scope ``monitor`` and stewards."""
    return Response(exposition(ServiceFigures(worker)), media_type="text/plain; version=0.0.4")
