"""Tables beyond a budget of bytes are evicted, and give the same answers after a reload."""

from __future__ import annotations

import gc
import threading
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.server.serving import DOMAIN, answer_of

from sfumato.app.api.questions import AskRequest
from sfumato.engine.open import held_bytes
from sfumato.privacy.loss import Epsilon
from sfumato_server.service import Service

ROWS = 20_000


def write(path, seed):
    random = np.random.default_rng(seed)
    columns = {"age": random.integers(0, 99, ROWS), "sex": random.choice(["F", "M"], ROWS)}
    parquet.write_table(pa.table(columns | {"income": random.random(ROWS) * 5000}), path)
    return path


@pytest.fixture
def tables(tmp_path):
    return {f"t{number}": write(tmp_path / f"t{number}.parquet", number) for number in range(3)}


def opened(tmp_path, tables, most):
    service = Service(f"sqlite:///{tmp_path}/s.ledger", create=True, table_bytes=most)
    for name, source in tables.items():
        if service.registry.dataset(name) is None:
            service.register(name, source=str(source), domain=DOMAIN, limit="100", more={})
    return service


def ask(service, name, epsilon="0.1"):
    form = AskRequest(sql="SELECT COUNT(*) FROM t WHERE age > 50", loss={"epsilon": epsilon})
    return answer_of(form, service.vault(name, "ana"), form.read(service.loaded(name).domain, ())).values


def test_a_budget_is_kept_and_forgotten_tables_answer_again(tmp_path, tables):
    gc.collect()  # what other tests read and left is counted with the rest
    with closing(opened(tmp_path, tables, 0)) as service:
        first = {name: ask(service, name) for name in tables}
        whole = held_bytes()
        assert len(service.tables._cached) == 3  # noqa: SLF001
    del service
    most = whole // 2
    with closing(opened(tmp_path, tables, most)) as service:
        for name in (*tables, *tables):
            assert ask(service, name) == first[name]  # repeated, for nothing
            ask(service, name, "0.2")
            assert held_bytes() <= most or len(service.tables._cached) == 1  # noqa: SLF001
        assert 1 <= len(service.tables._cached) < 3  # noqa: SLF001
        assert next(reversed(service.tables._cached)) == "t2"  # noqa: SLF001
        spent = {service.loaded(name).ledger.remaining().spent.epsilon for name in tables}
        assert spent == {Epsilon("0.3").value}


def test_a_forgotten_table_is_read_from_its_snapshot(tmp_path, tables):
    with closing(opened(tmp_path, tables, 1)) as service:
        first = ask(service, "t0", "9")
        ask(service, "t1")
        assert list(service.tables._cached) == ["t1"]  # noqa: SLF001
        write(tables["t0"], 77)
        again = ask(service, "t0", "9.5")
        assert abs(first[0][0].estimate - again[0][0].estimate) < 20


def test_looking_for_changes_leaves_the_order_of_the_cache(tmp_path, tables):
    with closing(opened(tmp_path, tables, 1 << 40)) as service:
        for name in ("t2", "t0", "t1"):
            ask(service, name)
        for name in tables:
            assert service.tables.source_changed(service.loaded(name)) is False
            assert not service.tables.is_paused(service.loaded(name))
        assert list(service.tables._cached) == ["t2", "t0", "t1"]  # noqa: SLF001


def race(service, names, rounds):
    """Questions to all tables at once, each answered or failed by name; returns what failed."""
    failed = []

    def asking(turn):
        for number in range(rounds):
            try:
                ask(service, names[(turn + number) % len(names)], f"0.0{1 + (turn * rounds + number) % 89:02d}")
            except Exception as error:  # noqa: BLE001
                failed.append(repr(error))

    threads = [threading.Thread(target=asking, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def test_tables_are_forgotten_under_those_who_ask_them(tmp_path, tables):
    with closing(opened(tmp_path, tables, 1)) as service:
        assert race(service, list(tables), 4) == []
        assert len(service.tables._cached) == 1  # noqa: SLF001
        for name in tables:
            service.loaded(name).ledger.verify()


@pytest.mark.slow
def test_a_long_run_of_eviction_under_load_holds_the_budget(tmp_path, tables):
    with closing(opened(tmp_path, tables, 1)) as service:
        for _ in range(20):
            assert race(service, list(tables), 15) == []
            assert len(service.tables._cached) == 1  # noqa: SLF001
        for name in tables:
            service.loaded(name).ledger.verify()
