"""Work on the event loop's thread waits beside the loop, and is finished like work in a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.concurrency import run_in_threadpool
from tests.app.http.serving import PATIENCE

from sfumato.app.http.loop import on_loop
from sfumato.errors import BudgetError
from sfumato.ledger.registry import Scope
from sfumato.ledger.transaction import Wanted
from sfumato.ledger.waiting import WAITING
from sfumato.ledger.writer import Work, Writer


def test_work_returns_and_raises_as_if_it_were_called():
    async def both():
        assert await on_loop(lambda: 7) == 7
        with pytest.raises(BudgetError, match="no more"):
            await on_loop(refuse)

    def refuse():
        raise BudgetError("no more")

    asyncio.run(both())


def test_what_is_slow_runs_in_another_thread_and_the_loop_goes_on():
    go = threading.Event()

    def work():
        def slow():
            assert go.wait(PATIENCE)
            return threading.get_ident()

        return WAITING.get().aside(slow), threading.get_ident()

    async def both():
        waiting = asyncio.ensure_future(on_loop(work))
        await asyncio.sleep(0)
        assert await on_loop(lambda: "meanwhile") == "meanwhile"
        go.set()
        beside, here = await waiting
        assert here == threading.get_ident() != beside

    asyncio.run(both())


def test_what_fails_aside_fails_where_it_is_waited_for():
    def work():
        try:
            WAITING.get().aside(lambda: 1 // 0)
        except ZeroDivisionError:
            return "caught"

    assert asyncio.run(on_loop(work)) == "caught"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_bell_rings_before_or_after_the_wait_from_any_thread(elsewhere):
    bells = []

    def work(early):
        bell = WAITING.get().bell()
        bells.append(bell)
        if early:
            bell.ring()
        bell.wait()
        return early

    async def all_of_it():
        assert await on_loop(lambda: work(True))
        waiting = asyncio.ensure_future(on_loop(lambda: work(False)))
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(bells) == 2
        assert not waiting.done()
        if elsewhere:
            await asyncio.to_thread(bells[1].ring)
        else:
            bells[1].ring()
        assert await waiting is False

    asyncio.run(all_of_it())


def test_work_that_nobody_awaits_any_longer_is_finished():
    done, go = threading.Event(), threading.Event()

    def work():
        WAITING.get().aside(lambda: go.wait(PATIENCE))
        done.set()

    async def leave():
        waiting = asyncio.ensure_future(on_loop(work))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not done.is_set()
        go.set()
        assert await asyncio.to_thread(done.wait, PATIENCE)

    asyncio.run(leave())


def test_work_aside_is_finished_before_the_loop_ends():
    """What is under way in a thread cannot be called back: who gave it up early would have it done twice."""
    begun, go, steps = threading.Event(), threading.Event(), []

    def work():
        def slow():
            begun.set()
            assert go.wait(PATIENCE)
            steps.append("aside")

        WAITING.get().aside(slow)
        steps.append("after it")

    async def end_early():
        waiting = asyncio.ensure_future(on_loop(work))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        threading.Timer(0.1, go.set).start()
        waiting.cancel()  # and the loop cancels all else

    asyncio.run(end_early())
    assert steps == ["aside", "after it"]


def test_writing_needs_no_thread_of_those_that_wait_for_it():
    """All threads of requests wait in line behind work on the loop, which then has to be committed."""

    async def everybody():
        threads = current_default_thread_limiter()
        threads.total_tokens = 2
        first = threading.Event()

        def transact(tickets):
            while not first.is_set() and len(writer._line) + threads.statistics().tasks_waiting < 3:
                threading.Event().wait(0.001)
            first.set()
            for ticket in tickets:
                ticket.attempt(None)

        writer = Writer(transact)
        work = partial(writer.run, Work(Wanted(), lambda _: "written"))
        on = [asyncio.ensure_future(on_loop(work)) for _ in range(2)]
        for _ in range(3):
            await asyncio.sleep(0)
        beside = [asyncio.ensure_future(run_in_threadpool(work)) for _ in range(2)]
        assert await asyncio.gather(*on, *beside) == ["written"] * 4

    asyncio.run(everybody())


def test_outside_the_loop_a_wait_is_a_wait():
    assert WAITING.get().aside(threading.get_ident) == threading.get_ident()


def test_a_worker_goes_on_while_a_question_waits_for_the_ledger(server):
    """Sixteen questions wait for a lock that another process holds; the worker still answers others."""
    with closing(sqlite3.connect(server.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        headers = {"Authorization": f"Bearer {server.key('busy', Scope.ANALYST)}"}
        ask = {"sql": "SELECT COUNT(*) FROM people WHERE age > 30", "loss": {"epsilon": "0.001"}}
        post = {
            "url": f"{server.address}/v1/datasets/people/query",
            "headers": headers,
            "trust_env": False,
            "timeout": PATIENCE,
        }
        assert httpx.post(json=ask, **post).status_code == 200
        other.execute("BEGIN IMMEDIATE")
        bodies = [ask | {"loss": {"epsilon": f"0.00{number}"}} for number in range(2, 18)]
        with ThreadPoolExecutor(len(bodies)) as pool:
            waiting = [pool.submit(httpx.post, json=body, **post) for body in bodies]
            for _ in range(20):  # whichever worker takes them
                assert httpx.get(f"{server.address}/healthz", trust_env=False, timeout=PATIENCE).is_success
            assert not any(each.done() for each in waiting)
            other.execute("ROLLBACK")
            replies = [each.result() for each in waiting]
    assert {reply.status_code for reply in replies} == {200}
    with server.ledger("people") as ledger:
        ledger.verify()
