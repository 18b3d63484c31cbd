"""A ledger that is made by the first release that fits it."""

import pytest
from tests.ledger.asking import ROW, TENTH, question, reservation, spent_epsilon
from tests.ledger.racing_processes import release_first
from tests.processes import processes

from sfumato.errors import BudgetError, InputError, LimitError, VersionError
from sfumato.ledger import Event, Kind, Ledger, open_ledger
from sfumato.privacy.loss import Epsilon, EpsilonDelta


def deferred(folder, limit):
    return Ledger(f"sqlite:///{folder / 'new.ledger'}", dataset="people", limit=limit, create=True)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (Epsilon("0.2"), r"has epsilon = 0.2 left of epsilon = 0.2, and this release asks for epsilon = 0.3"),
        (Epsilon("0.2"), r"^this release needs 150 % of the budget, and 100 % is left: a new ledger has"),
        (EpsilonDelta(1, "1e-6"), r"left of rho = 0.02\d+ .* as epsilon = 1, delta = 1e-06 is kept, .* rho = 0.045"),
    ],
)
def test_what_a_new_ledger_cannot_take_is_refused_in_its_measure_and_makes_none(limit, says, tmp_path):
    asked = reservation(deferred(tmp_path, limit), question(), Epsilon("0.3").charge, statement="x", unit=ROW)
    with pytest.raises(BudgetError, match=says), asked:
        pytest.fail("nothing may be computed")
    assert not list(tmp_path.iterdir())


def test_what_fits_makes_it(tmp_path):
    made = deferred(tmp_path, Epsilon("0.3"))
    with reservation(made, question(), Epsilon("0.3").charge, statement="x", unit=ROW) as reserved:
        reserved.store(b"a")
    assert reserved.charged
    with made as ledger:
        assert ledger.limit == Epsilon("0.3")
        assert len(list(ledger.journal())) == 1


def test_of_two_programs_that_begin_with_different_tables_one_releases(tmp_path):
    for turn in range(4):
        url, context, told = f"sqlite:///{tmp_path / f'{turn}.ledger'}", processes(), []
        barrier = context.Barrier(2)
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        children = [
            context.Process(target=release_first, args=(url, content, barrier, sender))
            for content, (_, sender) in zip(("mine", "theirs"), pipes, strict=True)
        ]
        for child in children:
            child.start()
        told = dict(receiver.recv() for receiver, _ in pipes)
        for child in children:
            child.join()
        assert sorted(told.values()) == ["NoneType", "VersionError"]
        with open_ledger(url, dataset="people", limit=None) as ledger:
            ledger.verify()
            assert [entry.kind for entry in ledger.journal()] == [Kind.VERSION, Kind.RELEASE]
            assert spent_epsilon(ledger) == TENTH.epsilon


def test_a_program_that_another_one_overtakes_begins_no_version(tmp_path, monkeypatch):
    """The other one declares its tables after this one looked for the last version."""
    mine = deferred(tmp_path, Epsilon(1)).declare_later("mine", new=True)
    look = Ledger._last_version  # noqa: SLF001  (where the other one comes in between)

    def overtaken(ledger):
        found = look(ledger)
        monkeypatch.setattr(Ledger, "_last_version", look)
        with open_ledger(mine.url, dataset="people", limit=None) as other:
            other.declare_version("theirs", by="bob", new=False)
        return found

    monkeypatch.setattr(Ledger, "_last_version", overtaken)
    with (
        pytest.raises(VersionError, match="differ from version 1"),
        reservation(mine, question(0, 1), TENTH, statement="pure", unit=ROW),
    ):
        pytest.fail("nothing may be computed")
    with open_ledger(mine.url, dataset="people", limit=None) as ledger:
        assert [version.number for version in ledger.data_versions()] == [1]


def test_a_second_ledger_is_refused_whatever_limit_it_would_have(tmp_path):
    deferred(tmp_path, Epsilon(1)).open(create=True)
    second = deferred(tmp_path, Epsilon(2))
    with pytest.raises(InputError, match="leave out --create"):
        second.refuse_missing(TENTH)
    with pytest.raises(LimitError), reservation(second, question(), TENTH, statement="pure", unit=ROW):
        pytest.fail("nothing may be computed")


def test_of_two_threads_that_begin_a_ledger_one_declares_the_tables(tmp_path):
    """The other thread declares them when this one has found that they are to be declared."""

    class Overtaken(Ledger):
        looks = 0

        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            if name == "_undeclared":
                Overtaken.looks += 1
                if Overtaken.looks == 1:
                    self.prepare(first)
            return found

    url = f"sqlite:///{tmp_path / 'new.ledger'}"
    first = Event(Kind.RELEASE, question(0, 1), TENTH, None, "pure", None, ROW)
    with Overtaken(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
        ledger.declare_later("mine", new=True)
        ledger.prepare(first)
        assert [version.number for version in ledger.data_versions()] == [1]
