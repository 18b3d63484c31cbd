"""Questions that come in at the same time are charged together, and each gets the reply that it would get alone."""

# ruff: noqa: S608 - statements are what is sent

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from tests.app.http.serving import DOMAIN, ROWS
from tests.ledger.asking import ROW
from tests.ledger.asking import TENTH as CHARGE
from tests.ledger.asking import question as numbered

from sfumato.app.http import together
from sfumato.app.http.asgi import create
from sfumato.app.http.registry import Scope
from sfumato.app.http.service import Service
from sfumato.app.http.together import Together
from sfumato.errors import LedgerError
from sfumato.ledger.store import Store

PATH = "/v1/datasets/people/query"
TENTH = {"epsilon": "0.1"}


@pytest.fixture
def service(tmp_path, people):
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as made:
        made.register("people", source=str(people), domain=DOMAIN, limit="10", more={"rows": ROWS})
        yield made


@pytest.fixture
def ask(service):
    """What a server replies to questions of one moment, in their order; each a statement, or more fields."""
    app = create(service)
    _, secret = service.registry.issue("ana", Scope.ANALYST, timedelta(hours=1))

    async def all_of(bodies, path):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            return await asyncio.gather(*(client.post(path, json=body) for body in bodies))

    def asked(*questions, path=PATH):
        bodies = [{"sql": each} if isinstance(each, str) else each for each in questions]
        return asyncio.run(all_of([{"loss": TENTH} | body for body in bodies], path))

    return asked


def older(age):
    return f"SELECT COUNT(*) FROM people WHERE age >= {age}"


def left(service):
    ledger = service.loaded("people").ledger
    ledger.verify()
    return float(ledger.remaining().left)


def test_those_of_one_moment_are_one_transaction(service, ask, monkeypatch):
    ask(older(1))  # the table is kept from then on
    monkeypatch.setattr("sfumato.app.http.tables._REMEMBERED", -1.0)  # which version is confirmed is looked up again
    begun, writing = [], Store.writing
    monkeypatch.setattr(Store, "writing", lambda store: begun.append(1) or writing(store))
    replies = ask(*map(older, range(20, 36)))
    assert [each.status_code for each in replies] == [200] * 16
    assert len({each.json()["provenance"]["journal_entry"] for each in replies}) == 16
    assert (len(begun), left(service)) == (1, 8.3)


def test_each_gets_the_reply_that_is_its_own(service, ask):
    questions = [
        older(30),
        "SELECT NOTHING",
        {"sql": older(40), "loss": {"epsilon": "99"}},
        older(30),
        "SELECT age, COUNT(*) FROM people GROUP BY age",
        "SELECT AVG(age), MEDIAN(age) FROM people",
    ]
    together = ask(*questions)
    assert [each.status_code for each in together] == [200, 422, 403, 200, 200, 200]
    assert together[0].json()["rows"] == together[3].json()["rows"]
    for question, reply in zip(questions, together, strict=True):
        (alone,) = ask(question)
        assert alone.status_code == reply.status_code
        assert alone.json().get("rows") == reply.json().get("rows")
        if reply.status_code != 200:
            assert alone.json()["type"] == reply.json()["type"]
    assert left(service) == 9.7


def test_nobody_waits_for_a_table_that_is_read(service, ask, monkeypatch, people):
    service.register("slow", source=str(people), domain=DOMAIN, limit="1", more={"second_budget": True})
    ask(older(1))
    served, vault = threading.Event(), Service.vault

    def reading(self, name, analyst):
        assert served.wait(60)
        return vault(self, name, analyst)

    at_hand = service.tables.at_hand
    monkeypatch.setattr(Service, "vault", reading)
    monkeypatch.setattr(
        service.tables, "at_hand", lambda loaded: None if loaded.dataset.name == "slow" else at_hand(loaded)
    )
    slow: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: slow.extend(ask(older(2), path="/v1/datasets/slow/query")))
    waiting.start()
    assert [each.status_code for each in ask(older(3), older(4))] == [200, 200]
    assert not slow
    served.set()
    waiting.join(60)
    assert [each.status_code for each in slow] == [200]


def test_what_breaks_for_one_breaks_for_no_other(service, ask, monkeypatch):
    ask(older(1))
    open_to = service.open_to

    def broken(name, key):
        if name == "broken":
            raise RuntimeError("Alice is 44")
        return open_to(name, key)

    monkeypatch.setattr(service, "open_to", broken)
    (bad,) = ask(older(2), path="/v1/datasets/broken/query")
    assert bad.status_code == 500
    assert "Alice" not in bad.text
    assert [each.status_code for each in ask(older(3), older(4))] == [200, 200]


def test_no_reply_leaves_before_the_commit(service, ask, monkeypatch):
    def fail(driver):
        raise LedgerError("the disk is full")

    ask(older(1))
    before = left(service)
    with monkeypatch.context() as patched:
        patched.setattr("sfumato.ledger.dbapi.Driver.commit", fail)
        replies = ask(older(30), older(40))
    assert [each.status_code for each in replies] == [503, 503]
    assert left(service) == before


def test_whoever_leaves_takes_no_other_with_them():
    replies = Together(lambda *_: None, lambda number: number)

    async def run():
        asked = [asyncio.ensure_future(replies.answer(number)) for number in range(4)]
        await asyncio.sleep(0)
        asked[1].cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(run())
    assert [found[0], *found[2:]] == [0, 2, 3]
    assert isinstance(found[1], asyncio.CancelledError)


class Slow:
    """A question whose answer is not computed with its charge."""

    def __init__(self, ledger, number):
        self.reserving = ledger.releasing(numbered(number, version=1), CHARGE, statement="pure", unit=ROW)

    def response(self):
        with self.reserving as reserved:
            if reserved.answer is None:
                reserved.settle(b"x")
        return reserved.answer


def test_answers_that_every_thread_waits_for_are_computed(service, monkeypatch):
    """Four wait for the releases of others, who were charged before them and get no thread until after them."""
    ledger, reserve, release = service.loaded("people").ledger, together.reserve_together, ThreadPoolExecutor.submit
    charged, later = threading.Event(), threading.Semaphore(0)

    def reserve_first(asked):
        reserve(asked)
        if not charged.is_set():
            charged.set()
            for _ in range(5):  # the second group, and its four questions
                assert later.acquire(timeout=60)

    def submit(threads, work):
        found = release(threads, work)
        if charged.is_set():
            later.release()
        return found

    monkeypatch.setattr(together, "_THREADS", 4)
    monkeypatch.setattr(together, "reserve_together", reserve_first)
    replies = Together(lambda number: Slow(ledger, number), lambda *_: None)

    async def run():
        first = [asyncio.ensure_future(replies.answer(number)) for number in range(4)]
        assert await asyncio.to_thread(charged.wait, 60)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
        second = [replies.answer(number) for number in range(4)]
        return await asyncio.wait_for(asyncio.gather(*first, *second), 20)

    assert asyncio.run(run()) == [b"x"] * 8
    assert left(service) == 9.6


def test_a_failure_that_no_future_takes_is_nobody_elses():
    def fail(number):
        if number == 1:
            raise StopIteration

    replies = Together(fail, lambda number: number)

    async def run():
        asked = [replies.answer(number) for number in range(3)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)

    found = asyncio.run(run())
    assert [found[0], found[2]] == [0, 2]
    assert isinstance(found[1], RuntimeError)
