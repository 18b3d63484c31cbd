"""Noise that was drawn and not answered is charged, every time: averaging over failures gains nothing."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.processes import processes
from tests.vault.tables import table

from sfumato.errors import BudgetError, EngineError, InputError, TableError
from sfumato.ledger import Kind, open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta
from sfumato.vault.interface import ReleaseRequest
from sfumato.vault.measurables import Counting, Marginal
from sfumato.vault.scores import AbsoluteErrors
from sfumato.vault.vault import Vault

LOSS = Epsilon("0.25")
ROWS = [(0, 0)] * 30 + [(1, 1)] * 12
SCORES = AbsoluteErrors(Counting(("a",), np.eye(2, dtype=bool)), np.zeros(2, dtype=np.int64))
THRESHOLD = EpsilonDelta("0.25", "1e-6")
CALLS = {
    "measure": (LOSS, lambda mechanisms: mechanisms.measure([Marginal(())], LOSS)),
    "select": (LOSS, lambda mechanisms: mechanisms.select(SCORES, LOSS)),
    "threshold": (
        Charge(Fraction(1, 4), Fraction(1, 32), Fraction(1, 10**6)),
        lambda mechanisms: mechanisms.threshold(("a",), THRESHOLD),
    ),
}


@pytest.fixture
def vault(tmp_path: Path):
    with open_ledger(
        f"sqlite:///{tmp_path / 'tiny.ledger'}", dataset="tiny", limit=EpsilonDelta(6, "1e-3"), create=True
    ) as ledger:
        yield Vault(table(ROWS), ledger, UNDECLARED)


def kinds(vault):
    vault.ledger.verify()
    return [entry.kind for entry in vault.ledger.journal()]


def failing(vault, loss, run):
    with pytest.raises(ZeroDivisionError):
        vault.release(ReleaseRequest("test", "failing", {}), loss, run)


@pytest.mark.parametrize("name", CALLS)
def test_what_raises_after_a_call_is_charged_at_each_attempt(vault, name) -> None:
    loss, call = CALLS[name]
    noted = []

    def run(mechanisms):
        noted.append(call(mechanisms))
        raise ZeroDivisionError

    for times in range(1, 4):
        failing(vault, loss, run)
        assert vault.ledger.remaining().spent.epsilon == Fraction(times, 4)
    assert kinds(vault) == [Kind.RELEASE, Kind.FAILED] * 3
    assert len(noted) == 3


@pytest.mark.parametrize("name", CALLS)
def test_what_raises_within_a_call_before_noise_is_drawn_may_be_tried_again(vault, name, monkeypatch) -> None:
    loss, call = CALLS[name]
    with monkeypatch.context() as broken:
        for read in ("marginals", "keys"):
            broken.setattr(f"sfumato.engine.arrays.ArrayTable.{read}", lambda *_: 1 / 0)
        for _ in range(3):
            failing(vault, loss, lambda mechanisms: {"x": [call(mechanisms)]})
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 4)

    def run(mechanisms):
        call(mechanisms)
        return {"done": 1}

    assert vault.release(ReleaseRequest("test", "failing", {}), loss, run).payload == {"done": 1}
    assert kinds(vault) == [Kind.RELEASE]


@pytest.mark.parametrize("error", [EngineError("no memory for 4,000 rows"), TableError("line 7 is no record")])
def test_a_failure_of_the_engine_after_the_charge_tells_no_reason(vault, error, monkeypatch) -> None:
    def fails(*_):
        raise error

    def ask():
        return vault.measure([Marginal(("a",))], LOSS)

    with monkeypatch.context() as broken:
        broken.setattr("sfumato.engine.arrays.ArrayTable.marginals", fails)
        with pytest.raises(EngineError, match="the engine failed while it computed this release") as caught:
            ask()
    assert str(error) not in str(caught.value)
    assert caught.value.__cause__ is error
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 4)
    ask()
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 4)  # no noise was drawn before


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_mechanisms_that_are_kept_draw_nothing_after_their_release(vault, name, fails) -> None:
    loss, call = CALLS[name]
    kept = []

    def run(mechanisms):
        kept.append(mechanisms)
        return {"nothing": np.zeros(1)} if not fails else 1 / 0

    for _ in range(3):
        if fails:
            failing(vault, loss, run)
        else:
            vault.release(ReleaseRequest("test", "kept", {}), loss, run)
    for mechanisms in kept:
        with pytest.raises(InputError, match="this release is over"):
            call(mechanisms)
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 4)
    assert kinds(vault) == [Kind.RELEASE]


def test_a_thread_that_outlives_its_release_draws_nothing(vault) -> None:
    go_on, done, drawn = threading.Event(), threading.Event(), []

    def run(mechanisms):
        def late():
            go_on.wait(60)
            try:
                drawn.append(mechanisms.measure([Marginal(())], LOSS))
            except InputError as error:
                drawn.append(error)
            done.set()

        threading.Thread(target=late).start()
        raise ZeroDivisionError

    failing(vault, LOSS, run)
    go_on.set()
    assert done.wait(60)
    assert isinstance(drawn[0], InputError)


def test_a_forked_child_draws_no_noise_of_its_parents_release(vault) -> None:
    """Otherwise a run has its children measure, and fails: untouched, and free to be tried again."""

    def run(mechanisms):
        child = os.fork()
        if child == 0:
            left = 4
            try:
                mechanisms.measure([Marginal(())], LOSS)
                left = 0
            except InputError:
                left = 3
            finally:
                os._exit(left)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        raise ZeroDivisionError

    failing(vault, LOSS, run)
    assert kinds(vault) == [Kind.RELEASE]


def test_averaging_over_failures_ends_with_the_budget(vault) -> None:
    noted = []

    def run(mechanisms):
        noted.append(mechanisms.measure([Marginal(())], LOSS)[0].values[0])
        raise ZeroDivisionError

    limit = vault.ledger.remaining().left
    paid = limit // Fraction(1, 32)  # rho is epsilon^2 / 2
    for _ in range(paid):
        failing(vault, LOSS, run)
    for _ in range(100):
        with pytest.raises(BudgetError):
            vault.release(ReleaseRequest("test", "failing", {}), LOSS, run)
    assert len(noted) == paid


def test_a_run_that_asks_something_else_at_each_attempt_is_charged_each_time(vault) -> None:
    for attributes in ((), ("a",), ("b",)):
        failing(
            vault,
            LOSS,
            lambda mechanisms, asked=attributes: {"x": mechanisms.measure([Marginal(asked)], LOSS), "y": 1 / 0},
        )
    assert vault.ledger.remaining().spent.epsilon == Fraction(3, 4)


def test_an_answer_that_cannot_be_stored_is_charged_and_closed(vault) -> None:
    def run(mechanisms):
        mechanisms.measure([Marginal(())], LOSS)
        return {"no JSON": object()}

    for times in range(1, 3):
        with pytest.raises(TypeError):
            vault.release(ReleaseRequest("test", "unstorable", {}), LOSS, run)
        assert vault.ledger.remaining().spent.epsilon == Fraction(times, 4)


def test_a_run_interrupted_by_its_user_is_closed(vault) -> None:
    def run(mechanisms):
        mechanisms.measure([Marginal(())], LOSS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vault.release(ReleaseRequest("test", "interrupted", {}), LOSS, run)
    assert kinds(vault) == [Kind.RELEASE, Kind.FAILED]


def test_threads_with_one_request_draw_once(vault) -> None:
    drawn = []

    def run(mechanisms):
        drawn.append(mechanisms.measure([Marginal(())], LOSS)[0].values)
        return {"count": drawn[-1]}

    def release(_):
        return vault.release(ReleaseRequest("test", "same", {}), LOSS, run).payload["count"][0]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(release, range(16)))) == len(drawn) == 1


def test_without_a_guarantee_nothing_is_charged_so_that_nothing_is_closed(vault) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            vault.disclose(ReleaseRequest("test", "disclosed", {}), lambda _: {"x": 1 / 0}, statement="k = 5")
    vault.disclose(ReleaseRequest("test", "disclosed", {}), lambda _: {"x": 1}, statement="k = 5")
    assert kinds(vault) == [Kind.RELEASE]


def draw_and_die(url, attributes):
    """Measure something, and be killed with what was measured."""
    with open_ledger(url, dataset="tiny", limit=Epsilon(1), create=True) as ledger:

        def run(mechanisms):
            mechanisms.measure([Marginal(attributes)], LOSS / 2)
            mechanisms.measure([Marginal(())], LOSS / 2)
            os.kill(os.getpid(), 9)

        Vault(table(ROWS), ledger, UNDECLARED).release(ReleaseRequest("test", "killed", {}), LOSS, run)


def test_after_a_kill_the_next_process_may_spend_all_that_was_reserved_once(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'tiny.ledger'}"

    child = processes().Process(target=draw_and_die, args=(url, ("a",)))
    child.start()
    child.join()
    assert child.exitcode == -9
    with open_ledger(url, dataset="tiny", limit=Epsilon(1), create=True) as ledger:
        vault = Vault(table(ROWS), ledger, UNDECLARED)
        request = ReleaseRequest("test", "killed", {})
        payload = vault.release(
            request, LOSS, lambda mechanisms: {"n": mechanisms.measure([Marginal(("b",))], LOSS)[0].values}
        )
        assert payload.payload["n"].shape == (2,)
        assert kinds(vault) == [Kind.RELEASE, Kind.RETRY]
        assert ledger.remaining().spent.epsilon == LOSS.value


def test_the_retry_of_a_killed_process_may_spend_no_more_than_it(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'tiny.ledger'}"
    child = processes().Process(target=draw_and_die, args=(url, ("a",)))
    child.start()
    child.join()
    with open_ledger(url, dataset="tiny", limit=Epsilon(1), create=True) as ledger:
        vault = Vault(table(ROWS), ledger, UNDECLARED)

        def greedy(mechanisms):
            mechanisms.measure([Marginal(("b",))], LOSS)
            mechanisms.measure([Marginal(())], Epsilon("1e-9"))

        with pytest.raises(BudgetError, match="reserved"):
            vault.release(ReleaseRequest("test", "killed", {}), LOSS, greedy)
        assert kinds(vault) == [Kind.RELEASE, Kind.RETRY, Kind.FAILED]


def counted(vault, name="counted"):
    """A release that counts the rows."""

    def run(mechanisms):
        return {"0": mechanisms.measure([Marginal(())], LOSS)[0].values}

    return vault.release(ReleaseRequest("test", name, {}), LOSS, run).payload["0"]


def test_what_is_measured_off_a_kept_table_and_raises_is_charged_each_time(vault, monkeypatch) -> None:
    counted(vault)
    monkeypatch.setattr("sfumato.vault.vault.encode", lambda _: 1 / 0)
    for times in range(2, 5):
        with pytest.raises(ZeroDivisionError):
            counted(vault, "other")
        assert vault.ledger.remaining().spent.epsilon == Fraction(times, 4)
    assert kinds(vault) == [Kind.RELEASE] + [Kind.RELEASE, Kind.FAILED] * 3


def test_what_questions_measure_is_spent_of_what_their_release_reserved(vault) -> None:
    with pytest.raises(BudgetError, match="more than it reserved"):
        vault.release(
            ReleaseRequest("test", "dearer", {}),
            Epsilon("0.125"),
            lambda mechanisms: mechanisms.measure([Marginal(())], LOSS),
        )
