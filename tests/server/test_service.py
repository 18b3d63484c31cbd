"""The resources that a worker opens once, and the limits of its load."""

from __future__ import annotations

import copy
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from tests.server.serving import DOMAIN

from sfumato.app.api.releases import SynthesisFields
from sfumato.domain import Unit
from sfumato.errors import LedgerError, LimitError
from sfumato.ledger import open_ledger
from sfumato.ledger.store import Connections, Store
from sfumato.privacy.loss import Epsilon
from sfumato_server import release_jobs, service
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Key, Scope

ANA = Key("k1", "ana", Scope.ANALYST, datetime.now(UTC), datetime.max.replace(tzinfo=UTC), revoked=False)
FORM = SynthesisFields.model_validate({"method": "histogram", "attributes": ["sex"], "loss": {"epsilon": "0.1"}})


@pytest.fixture
def worker(url, people):
    with closing(service.Service(url, create=True)) as first:
        first.register("people", source=str(people), domain=DOMAIN, limit="1", more={})
    with closing(service.Service(url)) as opened:
        yield opened


def test_of_two_threads_that_open_a_ledger_one_closes_its_own(worker, monkeypatch):
    closed, together = [], threading.Barrier(2, timeout=60)

    def opened_together(*arguments, **options):
        ledger = open_ledger(*arguments, **options)
        close = ledger.close
        monkeypatch.setattr(ledger, "close", lambda: (closed.append(ledger), close()))
        together.wait()
        return ledger

    monkeypatch.setattr(service, "open_ledger", opened_together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(worker.loaded, ["people"] * 2)
    assert one is other
    assert len(closed) == 1
    assert closed[0] is not one.ledger


def test_the_number_of_threads_is_bounded(worker, monkeypatch):
    monkeypatch.setattr(release_jobs, "MAX_OPEN", 2)
    with release_jobs.RELEASE_SLOT:
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


def test_of_several_who_register_one_table_at_once_one_does(url, people, tmp_path):
    copies = [Path(shutil.copy(people, tmp_path / f"copy{number}.parquet")) for number in range(4)]
    with closing(service.Service(url, create=True)):
        pass
    together = threading.Barrier(len(copies), timeout=60)

    def register(number):
        with closing(service.Service(url)) as worker:
            together.wait()
            try:
                worker.register(f"name{number}", source=str(copies[number]), domain=DOMAIN, limit="1", more={})
            except RefusalError as refusal:
                return refusal.kind
            return "registered"

    with ThreadPoolExecutor(len(copies)) as pool:
        found = sorted(pool.map(register, range(len(copies))))
    assert found == ["registered"] + ["table-registered"] * 3
    with closing(service.Service(url)) as opened:
        assert len(opened.registry.datasets()) == 1
        (left,) = (opened.loaded(each.name) for each in opened.registry.datasets())
        assert left.ledger.unit == Unit.row()


def other_domains():
    """The same table, described in other words."""
    turned = copy.deepcopy(DOMAIN)
    turned["attributes"]["sex"]["values"] = ["M", "F"]
    coarser = copy.deepcopy(DOMAIN)
    coarser["attributes"]["income"]["edges"] = [0, 5000]
    fewer = copy.deepcopy(DOMAIN)
    del fewer["attributes"]["income"]
    return [turned, coarser, fewer]


@pytest.mark.parametrize("domain", other_domains())
def test_a_copy_under_another_description_is_the_same_table(worker, people, tmp_path, domain):
    table = pq.read_table(people)
    pq.write_table(table.take(pa.array(range(len(table) - 1, -1, -1))), tmp_path / "turned.parquet")
    with pytest.raises(RefusalError, match="'people' already") as refused:
        worker.register("copy", source=str(tmp_path / "turned.parquet"), domain=domain, limit="1", more={})
    assert refused.value.kind == "table-registered"
    pq.write_table(table.slice(1), tmp_path / "other.parquet")
    assert worker.register("other", source=str(tmp_path / "other.parquet"), domain=domain, limit="1", more={})
    confirmed = worker.register(
        "copy", source=str(tmp_path / "turned.parquet"), domain=domain, limit="1", more={"second_budget": True}
    )
    assert confirmed.dataset.name == "copy"


def test_a_refused_registration_leaves_nothing(worker, people, tmp_path):
    own = tmp_path / "own.parquet"
    pq.write_table(pq.read_table(people).slice(5), own)
    open_ledger(worker.url, dataset="own", limit=Epsilon(2), create=True).close()
    with pytest.raises(LimitError):
        worker.register("own", source=str(own), domain=DOMAIN, limit="1", more={})
    assert [each.name for each in worker.registry.datasets()] == ["people"]


def test_whether_a_worker_is_ready_is_asked_over_a_connection_of_its_own(worker, monkeypatch):
    worker.registry.check_database()
    with closing(Store(worker.url)) as store, store.reading():
        monkeypatch.setattr(Connections, "fresh", refuse)
        with pytest.raises(LedgerError):
            worker.registry.check_database()


def refuse(_connections):
    raise LedgerError("no connections are left")
