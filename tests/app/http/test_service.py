"""What a worker opens once, and how much it takes on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import pytest
from tests.app.http.serving import DOMAIN

from sfumato.app.http import release_jobs, service
from sfumato.app.http.problems import RefusalError
from sfumato.app.requests.releases import SynthesisFields
from sfumato.ledger import open_ledger
from sfumato.ledger.registry import Key, Scope

ANA = Key("k1", "ana", Scope.ANALYST, datetime.now(UTC), datetime.max.replace(tzinfo=UTC), revoked=False)
FORM = SynthesisFields.model_validate({"method": "histogram", "attributes": ["sex"], "loss": {"epsilon": "0.1"}})


@pytest.fixture
def worker(url, people):
    with closing(service.Service(url, create=True)) as first:
        first.register("people", source=str(people), domain=DOMAIN, limit="1", more={})
    with closing(service.Service(url)) as opened:
        yield opened


def test_of_two_threads_that_open_a_ledger_one_closes_its_own(worker, monkeypatch):
    ledgers, together = [], threading.Barrier(2, timeout=60)

    def opened_together(*arguments, **options):
        ledger = open_ledger(*arguments, **options)
        ledgers.append(ledger)
        together.wait()
        return ledger

    monkeypatch.setattr(service, "open_ledger", opened_together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(worker.loaded, ["people"] * 2)
    assert one is other
    closed = {id(ledger): ledger._store._closed for ledger in ledgers}
    assert closed.pop(id(one.ledger)) is False
    assert list(closed.values()) == [True]


def test_nobody_starts_threads_without_end(worker, monkeypatch):
    monkeypatch.setattr(release_jobs, "MOST_OPEN", 2)
    with release_jobs.AT_ONCE:
        jobs = [release_jobs.release("people", FORM, ANA, worker)["job"] for _ in range(2)]
        before = threading.active_count()
        with pytest.raises(RefusalError, match="2 releases that you asked for are not done yet") as refused:
            release_jobs.release("people", FORM, ANA, worker)
        assert (refused.value.kind, refused.value.status) == ("too-many-releases", 429)
        assert threading.active_count() == before
    deadline = time.monotonic() + 60
    while any(release_jobs.progress(job, ANA, worker)["state"] != "done" for job in jobs):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert worker.registry.jobs.add("people", "ana", {}, most=2) is not None
