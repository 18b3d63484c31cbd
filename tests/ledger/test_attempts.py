"""One caller at a time computes a release. After a death it is computed once more for free; after drawing it is
charged.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from tests.ledger.asking import ROW, TENTH, question, release, spent_epsilon
from tests.processes import processes

from sfumato.errors import BudgetError
from sfumato.ledger import Kind, open_ledger
from sfumato.ledger.reservation import Reservation
from sfumato.privacy.loss import Epsilon

POINTS = ["before it draws", "after it drew", "before it stores", "after it stored"]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def open_people(url):
    return open_ledger(url, dataset="people", limit=Epsilon("0.3"), create=True)


def release_and_die(url, point):
    """Start one attempt at the question, and kill it at the given point."""
    store = Reservation.store

    def storing(self, answer):
        if point == "before it stores":
            die()
        store(self, answer)
        die()

    def compute():
        if point in ("before it draws", "after it drew"):
            die()
        return b"never seen"

    Reservation.store = storing
    with open_people(url) as ledger:
        release(
            ledger,
            question(),
            TENTH,
            compute,
            noise_drawn=lambda: point != "before it draws",
            statement="pure",
            unit=ROW,
        )


def killed(url, point):
    child = processes().Process(target=release_and_die, args=(url, point))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def kinds(ledger):
    ledger.verify()
    return [entry.kind for entry in ledger.journal()]


@pytest.mark.parametrize("point", POINTS)
def test_what_a_killed_process_did_not_answer_is_computed_again_for_its_charge(url, ledger_of_three, point):
    killed(url, point)
    found = release(ledger_of_three, question(), TENTH, lambda: b"answer", statement="pure", unit=ROW)
    assert not found.charged
    assert spent_epsilon(ledger_of_three) == Fraction(1, 10)
    if point == "after it stored":
        assert found.answer == b"never seen"
        assert kinds(ledger_of_three) == [Kind.RELEASE]
    else:
        assert found.answer == b"answer"
        assert kinds(ledger_of_three) == [Kind.RELEASE, Kind.RETRY]


@pytest.mark.parametrize("point", POINTS[:3])
def test_the_second_death_is_charged_and_so_on_until_nothing_is_left(url, ledger_of_three, point):
    for _ in range(6):
        killed(url, point)
    assert spent_epsilon(ledger_of_three) == Fraction(3, 10)
    once = [Kind.RELEASE, Kind.RETRY]
    assert kinds(ledger_of_three) == [*once, Kind.FAILED, *once, Kind.FAILED, *once]
    for _ in range(2):
        with pytest.raises(BudgetError):
            release(ledger_of_three, question(), TENTH, lambda: b"answer", statement="pure", unit=ROW)


def test_an_attempt_that_draws_nothing_does_not_forgive_the_deaths_before_it(url, ledger_of_three):
    killed(url, "after it drew")
    killed(url, "after it drew")
    ledger_of_three.set_cap("ann", Epsilon("0.05"))
    with pytest.raises(BudgetError):
        release(ledger_of_three, question(), TENTH, lambda: b"answer", statement="pure", unit=ROW, analyst="ann")
    assert release(ledger_of_three, question(), TENTH, lambda: b"answer", statement="pure", unit=ROW).charged


def release_slowly(url, began, go_on):
    def compute():
        began.set()
        go_on.wait()
        return b"slow"

    with open_people(url) as ledger:
        release(ledger, question(), TENTH, compute, statement="pure", unit=ROW)


def test_a_caller_waits_for_a_release_that_another_process_computes(url, ledger_of_three):
    context = processes()
    began, go_on = context.Event(), context.Event()
    child = context.Process(target=release_slowly, args=(url, began, go_on))
    child.start()
    assert began.wait(60)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(release, ledger_of_three, question(), TENTH, lambda: b"mine", statement="pure", unit=ROW)
        with pytest.raises(TimeoutError):
            found.result(0.3)
        go_on.set()
        assert found.result().answer == b"slow"
    child.join()
    assert kinds(ledger_of_three) == [Kind.RELEASE]


def test_a_link_to_a_ledger_leads_to_the_same_locks(tmp_path):
    url, link = f"sqlite:///{tmp_path / 'people.ledger'}", tmp_path / "link.ledger"
    open_people(url).close()
    link.symlink_to(tmp_path / "people.ledger")
    context = processes()
    began, go_on = context.Event(), context.Event()
    child = context.Process(target=release_slowly, args=(url, began, go_on))
    child.start()
    try:
        assert began.wait(60)
        with ThreadPoolExecutor(1) as pool, open_people(f"sqlite:///{link}") as ledger:
            found = pool.submit(release, ledger, question(), TENTH, lambda: b"mine", statement="pure", unit=ROW)
            with pytest.raises(TimeoutError):
                found.result(0.3)
            go_on.set()
            assert found.result().answer == b"slow"
            assert kinds(ledger) == [Kind.RELEASE]
    finally:
        child.kill()
        child.join()


def test_the_death_of_who_computes_ends_the_wait(url, ledger_of_three):
    context = processes()
    began, never = context.Event(), context.Event()
    child = context.Process(target=release_slowly, args=(url, began, never))
    child.start()
    assert began.wait(60)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(release, ledger_of_three, question(), TENTH, lambda: b"mine", statement="pure", unit=ROW)
        child.kill()
        child.join()
        assert found.result().answer == b"mine"
    assert kinds(ledger_of_three) == [Kind.RELEASE, Kind.RETRY]


def test_threads_that_ask_for_one_release_compute_it_once(ledger_of_three):
    computed = []
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait()
        return release(
            ledger_of_three, question(), TENTH, lambda: computed.append(1) or os.urandom(8), statement="pure", unit=ROW
        ).answer

    with ThreadPoolExecutor(8) as pool:
        answers = [each.result() for each in [pool.submit(ask) for _ in range(8)]]
    assert len(set(answers)) == len(computed) == 1


def test_threads_that_draw_and_raise_at_the_same_time_are_each_charged(ledger_of_three):
    computed = []

    def fail():
        computed.append(1)
        raise ZeroDivisionError

    def ask():
        try:
            release(ledger_of_three, question(), TENTH, fail, statement="pure", unit=ROW)
        except (ZeroDivisionError, BudgetError) as error:
            return type(error)

    with ThreadPoolExecutor(8) as pool:
        outcomes = [each.result() for each in [pool.submit(ask) for _ in range(8)]]
    assert outcomes.count(ZeroDivisionError) == len(computed) == 3
    assert spent_epsilon(ledger_of_three) == Fraction(3, 10)


@pytest.fixture
def ledger_of_three(url):
    with open_people(url) as opened:
        yield opened
