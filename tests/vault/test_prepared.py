"""Prepared queries: what unprepared ones give, each spent before it is counted, and within one release."""

from __future__ import annotations

import multiprocessing
import pickle

import numpy as np
import pyarrow as pa
import pytest
from tests.vault.prepared import QueryByQuery

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.open import open_table
from sfumato.errors import BudgetError, InputError, QueryError, SfumatoError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import PublicTotal, Schedule
from sfumato.synthesize.methods.mwem import iterate
from sfumato.vault.interface import ReleaseRequest
from sfumato.vault.measurables import Counting
from sfumato.vault.mechanisms import TableMechanisms
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault

SIZE = 12
CODES = np.random.default_rng(3).integers(0, SIZE, 900)
MATRIX = np.random.default_rng(4).random((25, SIZE)) < 0.4
QUERIES = Counting(("cell",), MATRIX)
EXACT = MATRIX @ np.bincount(CODES, minlength=SIZE)
EVERY = np.arange(len(MATRIX))


def domain(rows: int = 1) -> Domain:
    cell = Integer(name="cell", minimum=0, maximum=SIZE - 1, unknown=Unknown.DROP)
    return Domain((cell,), unit=Unit("id", rows=rows) if rows > 1 else Unit())


def simulated(rows: int = 1, seed: int = 5) -> SimulatedVault:
    return SimulatedVault(ArrayTable(domain(rows), CODES[:, None]), seed=seed)


@pytest.fixture
def vault(tmp_path):
    table = open_table(pa.table({"cell": CODES})).encode(domain())
    with open_ledger(f"sqlite:///{tmp_path}/p.ledger", dataset="d", limit=Epsilon(9), create=True) as ledger:
        yield Vault(table, ledger, UNDECLARED)


def steps(prepared, part):
    """Choices and measurements as a method makes them, each after what came out before."""
    found, among, answers = [], EVERY, np.full(len(MATRIX), 300)
    for _ in range(12):
        chosen = prepared.select(answers, part, among=among)
        value = int(prepared.measure(chosen, part).values[0])
        answers, among = answers + (value - 300) // 7, among[among != chosen]
        found.append((chosen, value))
    return found


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("loss", [Epsilon(6), Rho(2), EpsilonDelta(4, "1e-9")])
def test_prepared_queries_are_chosen_and_answered_as_unprepared_ones_are(loss, rows):
    part = loss.divisible / 24
    prepared = simulated(rows).mechanisms(loss).prepare(QUERIES)
    assert steps(prepared, part) == steps(QueryByQuery(simulated(rows).mechanisms(loss), QUERIES), part)


@pytest.mark.parametrize("loss", [Epsilon(1), Rho("0.1")])
def test_mwem_ends_where_it_ends_query_by_query(loss):
    class Plain:
        def __init__(self, mechanisms):
            self.domain, self._mechanisms = mechanisms.domain, mechanisms

        def prepare(self, queries):
            return QueryByQuery(self._mechanisms, queries)

    terms = {"total": PublicTotal(900), "queries": QUERIES, "schedule": Schedule(rounds=9, repetitions=5)}
    ours = iterate(simulated().mechanisms(loss), loss, **terms)
    plain = iterate(Plain(simulated().mechanisms(loss)), loss, **terms)
    np.testing.assert_array_equal(ours.last, plain.last)
    np.testing.assert_array_equal(ours.average, plain.average)


def test_every_use_spends_and_measures_with_noise_of_its_own(vault):
    def run(mechanisms):
        prepared = mechanisms.prepare(QUERIES)
        values = [int(prepared.measure(7, Epsilon("0.01")).values[0]) for _ in range(50)]
        with pytest.raises(BudgetError):
            prepared.measure(7, Epsilon("0.51"))
        with pytest.raises(BudgetError):
            prepared.select(np.zeros(len(MATRIX), dtype=np.int64), Epsilon("0.51"), among=EVERY)
        values.append(int(prepared.measure(7, Epsilon("0.5")).values[0]))
        with pytest.raises(BudgetError):
            prepared.measure(7, Epsilon("0.000001"))
        return {"values": np.array(values)}

    values = vault.release(ReleaseRequest("vault", "measure", {"of": "prepared"}), Epsilon(1), run).payload["values"]
    assert len(set(values[:50].tolist())) > 30  # of scale 100: two are equal with a probability below 1 %
    assert vault.ledger.remaining().spent.epsilon == 1


class Counted(TableMechanisms):
    """Mechanisms that say when rows are counted."""

    def __init__(self, mechanisms, seen):
        self.__dict__.update(mechanisms.__dict__)
        inner = self._exactly

        class Watching:
            encoded = inner.encoded

            def answers(self, questions):
                seen.append(len(questions))
                return inner.answers(questions)

        self._exactly = Watching()


def test_nothing_is_counted_before_a_loss_is_spent_and_then_once():
    seen = []
    prepared = Counted(simulated().mechanisms(Epsilon(1)), seen).prepare(QUERIES)
    assert not seen
    with pytest.raises(BudgetError):
        prepared.measure(0, Epsilon(2))
    with pytest.raises(BudgetError):
        prepared.select(EXACT, Epsilon(2), among=EVERY)
    assert not seen
    prepared.measure(0, Epsilon("0.1"))
    prepared.select(EXACT, Epsilon("0.1"), among=EVERY)
    assert seen == [1]


@pytest.mark.parametrize(
    "use",
    [
        lambda prepared, loss: prepared.measure(25, loss),
        lambda prepared, loss: prepared.measure(-1, loss),
        lambda prepared, loss: prepared.measure(EVERY, loss),
        lambda prepared, loss: prepared.select(EXACT[1:], loss, among=EVERY),
        lambda prepared, loss: prepared.select(EXACT.astype(float), loss, among=EVERY),
        lambda prepared, loss: prepared.select(EXACT, loss, among=EVERY[:0]),
        lambda prepared, loss: prepared.select(EXACT, loss, among=np.array([0, 25])),
        lambda prepared, loss: prepared.select(EXACT, loss, among=np.array([0, -1])),
        lambda prepared, loss: prepared.select(EXACT, loss, among=MATRIX[:, 0]),
        lambda prepared, _: prepared.measure(0, None),
    ],
)
def test_what_was_not_prepared_is_refused_and_nothing_is_spent(use):
    mechanisms = simulated().mechanisms(Epsilon(1))
    with pytest.raises(SfumatoError):
        use(mechanisms.prepare(QUERIES), Epsilon("0.1"))
    mechanisms.prepare(QUERIES).measure(0, Epsilon(1))  # all of it is left


def test_queries_that_do_not_fit_the_domain_are_not_prepared():
    with pytest.raises(QueryError):
        simulated().mechanisms(Epsilon(1)).prepare(Counting(("cell",), MATRIX[:, 1:]))


def kept(vault):
    """Prepared queries of a release that is over and left most of its loss."""
    taken = []

    def run(mechanisms):
        taken.append(mechanisms.prepare(QUERIES))
        return {"value": taken[0].measure(3, Epsilon("0.1")).values}

    vault.release(ReleaseRequest("vault", "measure", {"of": "kept"}), Epsilon(1), run)
    return taken[0]


def test_what_is_kept_of_a_release_answers_nothing_more_and_nobody_else(vault):
    prepared = kept(vault)
    assert "exact" not in repr(prepared)
    for use in (
        lambda: prepared.measure(3, Epsilon("0.1")),
        lambda: prepared.select(EXACT, Epsilon("0.1"), among=EVERY),
    ):
        with pytest.raises(InputError, match="over"):
            use()
    with pytest.raises(TypeError):
        pickle.dumps(prepared)
    others = vault.for_analyst("ann")

    def run(mechanisms):
        with pytest.raises(InputError, match="over"):
            prepared.measure(3, Epsilon("0.1"))
        return {"value": mechanisms.prepare(QUERIES).measure(3, Epsilon("0.1")).values}

    others.release(ReleaseRequest("vault", "measure", {"of": "others"}), Epsilon(1), run)


def test_a_forked_child_draws_nothing_of_what_its_parent_prepared(vault):
    def run(mechanisms):
        prepared = mechanisms.prepare(QUERIES)
        first = prepared.measure(3, Epsilon("0.1")).values
        context = multiprocessing.get_context("fork")
        told = context.Queue()
        child = context.Process(target=lambda: told.put(tried(prepared)))
        child.start()
        assert told.get(timeout=60).startswith("a forked child cannot draw noise for its parent's release")
        child.join()
        return {"value": first}

    vault.release(ReleaseRequest("vault", "measure", {"of": "forked"}), Epsilon(1), run)


def tried(prepared):
    try:
        return str(prepared.measure(3, Epsilon("0.1")).values)
    except SfumatoError as error:
        return str(error)
