"""Quotas of a key: refusals name the limit, charge nothing, and come before the charge."""

from __future__ import annotations

import gc
import json
import re
import socket
import time
from contextlib import closing, contextmanager

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.server.serving import PATIENCE, Server

from sfumato_server.problems import RefusalError
from sfumato_server.registry import Scope
from sfumato_server.work import LARGE, KeyLimits, Quotas

SIDE = 400
DOMAIN = {
    "sfumato": 1,
    "unit": "row",
    "attributes": {
        name: {"type": "integer", "minimum": 0, "maximum": SIDE - 1, "unknown": "clamp"} for name in ("a", "b")
    },
}
COUNT = "SELECT COUNT(*) FROM grid"
WIDE = "SELECT a, b, COUNT(*) FROM grid GROUP BY a, b"
TWICE = "SELECT a, b, COUNT(*), SUM(a) FROM grid GROUP BY a, b"
QUOTAS = ("--answer-cells", "200000", "--large-questions", "1", "--reply-rate", "8")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quotas")
    random = np.random.default_rng(3)
    parquet.write_table(pa.table({each: random.integers(0, SIDE, 500) for each in "ab"}), folder / "grid.parquet")
    started = Server(f"sqlite:///{folder}/s.ledger", workers=1, more=QUOTAS).start()
    try:
        with started.client("stew", Scope.STEWARD) as steward:
            steward.register("grid", source=str(folder / "grid.parquet"), domain=DOMAIN, limit="10")
        yield started
    finally:
        started.stop()


class Asker:
    def __init__(self, server, name, scope=Scope.ANALYST):
        self.server, self.headers = server, {"Authorization": f"Bearer {server.key(name, scope)}"}

    def ask(self, statement, epsilon="0.125"):
        body = {"sql": statement, "loss": {"epsilon": epsilon}}
        address = f"{self.server.address}/v1/datasets/grid/query"
        return httpx.post(address, json=body, headers=self.headers, trust_env=False, timeout=PATIENCE)

    @contextmanager
    def unread(self, statement):
        """Send a question and read almost nothing of its reply."""
        body = json.dumps({"sql": statement, "loss": {"epsilon": "0.125"}}).encode()
        lines = {**self.headers, "Host": "x", "Content-Type": "application/json", "Content-Length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        with closing(socket.socket()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.server.port))
            connection.sendall(f"POST /v1/datasets/grid/query HTTP/1.1\r\n{head}\r\n".encode() + body)
            assert connection.recv(12) == b"HTTP/1.1 200"
            yield

    def figures(self):
        text = httpx.get(f"{self.server.address}/metrics", headers=self.headers, trust_env=False).text
        return {name: float(value) for name, value in re.findall(r"^(sfumato_\S+) (\S+)$", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def monitor(server):
    return Asker(server, "mona", Scope.MONITOR)


def charges(server):
    with server.ledger("grid") as ledger:
        return len(list(ledger.journal())), str(ledger.remaining())


def refused(reply, kind, *words):
    found = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert (found["type"], found["charged"], found["status"]) == (f"/problems/{kind}", False, reply.status_code)
    for each in words:
        assert each in found["detail"]
    return int(reply.headers.get("Retry-After", 0))


def test_an_answer_of_too_many_cells_is_refused_and_charges_nothing(server, monitor):
    before, figures = charges(server), monitor.figures()
    reply = Asker(server, "ann").ask(TWICE)
    refused(reply, "answer-too-large", f"{2 * SIDE**2:,} cells", "200,000", "--answer-cells")
    assert reply.status_code == 422
    assert charges(server) == before
    kind = 'sfumato_refusals_total{kind="answer-too-large"}'
    assert monitor.figures()[kind] == figures.get(kind, 0) + 1


def test_a_page_does_not_show_a_large_answer(server):
    before = charges(server)
    with httpx.Client(base_url=server.address, cookies=server.session("pat", Scope.ANALYST), trust_env=False) as page:
        form = {"how": "sql", "sql": WIDE, "epsilon": "0.125"}
        reply = page.post("/datasets/grid/ask", data=form, headers={"Origin": server.address})
    assert f"{SIDE**2:,} cells" in reply.text
    assert charges(server) == before


def test_a_key_has_so_many_large_questions_under_way_and_small_ones_go_ahead(server, monitor):
    bob, eve = Asker(server, "bob"), Asker(server, "eve")
    with bob.unread(WIDE):
        before = charges(server)
        assert monitor.figures()["sfumato_large_questions"] == 1
        for epsilon in ("0.125", "0.25"):  # the same question again, and another one
            reply = bob.ask(WIDE, epsilon)
            assert reply.status_code == 429
            assert refused(reply, "too-many-large-questions", f"{LARGE:,} cells", "limit is 1", "--large-questions")
        assert charges(server) == before
        assert bob.ask(COUNT).is_success
        with eve.unread(WIDE):  # each key has its own
            assert monitor.figures()["sfumato_large_questions"] == 2
    deadline = time.monotonic() + PATIENCE
    while monitor.figures()["sfumato_large_questions"]:  # a client that leaves frees its place
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_bytes_of_replies_are_counted_also_those_of_repeats(server, monitor):
    cyd = Asker(server, "cyd")
    assert cyd.ask(COUNT).is_success
    before = monitor.figures()
    reply = cyd.ask(WIDE, "0.5")
    assert len(reply.content) > 8 << 20
    assert len(reply.json()["rows"]) == SIDE**2
    found, seen = charges(server), monitor.figures()
    assert seen["sfumato_reply_bytes_total"] - before["sfumato_reply_bytes_total"] >= len(reply.content)
    assert seen["sfumato_answer_cells_total"] - before["sfumato_answer_cells_total"] == SIDE**2
    for statement, epsilon in ((WIDE, "0.5"), (COUNT, "0.125"), (COUNT, "0.25")):
        reply = cyd.ask(statement, epsilon)
        assert reply.status_code == 429
        assert refused(reply, "too-many-bytes", "8 MiB in a minute", "--reply-rate")
    assert charges(server) == found
    assert Asker(server, "dan").ask(COUNT).is_success


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def kind_of(entering):
    with pytest.raises(RefusalError) as found, entering:
        pass
    return found.value.kind


def test_a_limit_of_nothing_is_none():
    quotas = Quotas(KeyLimits(0, 0, 0))
    permits = []
    for _ in range(5):
        with quotas.question_slot("k", 10**9) as permit:
            permits.append(permit)
    quotas.count_bytes("k", 10**12)
    quotas.refuse_bytes("k")
    assert len(permits) == 5


def test_one_large_question_is_computed_at_a_time():
    quotas = Quotas(max_wait=0.01)
    with quotas.question_slot("a", LARGE):
        assert kind_of(quotas.question_slot("b", LARGE)) == "server-busy"
        with quotas.question_slot("b", LARGE - 1) as small:
            assert small is None
    with quotas.question_slot("b", LARGE):  # the refused one gave its place back
        assert kind_of(quotas.question_slot("b", LARGE)) == "server-busy"


def test_places_are_given_back_when_replies_are_sent_lost_or_never_made():
    quotas = Quotas(KeyLimits(large_questions=1))
    with quotas.question_slot("a", LARGE) as permit:
        pass
    assert kind_of(quotas.question_slot("a", LARGE)) == "too-many-large-questions"
    permit.close()
    permit.close()
    with pytest.raises(KeyError), quotas.question_slot("a", LARGE):
        raise KeyError
    with quotas.question_slot("a", LARGE) as permit:
        pass
    del permit  # a reply that nobody sends
    gc.collect()
    with quotas.question_slot("a", LARGE):
        pass


def test_a_worker_runs_a_limited_number_of_large_questions_of_all_analysts():
    quotas, permits = Quotas(), []
    for number in range(16):
        with quotas.question_slot(f"key {number}", LARGE) as permit:
            permits.append(permit)
    assert kind_of(quotas.question_slot("another key", LARGE)) == "server-busy"
    permits.pop().close()
    with quotas.question_slot("another key", LARGE):
        pass


def test_bytes_pass_at_a_rate():
    clock = Clock()
    quotas = Quotas(KeyLimits(bytes_a_minute=600), clock=clock)
    quotas.count_bytes("a", 600)
    quotas.refuse_bytes("a")
    quotas.count_bytes("a", 100)
    with pytest.raises(RefusalError) as found:
        quotas.refuse_bytes("a")
    assert found.value.after == 11
    quotas.refuse_bytes("b")
    clock.now += found.value.after
    quotas.refuse_bytes("a")
