"""Wrong arguments of an evaluation are refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato import evaluate
from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import DomainError, InputError, TableError
from sfumato.evaluate.evaluation_result import ClaimedRelease
from sfumato.evaluate.released import Released, Rows, parse_claim
from sfumato.privacy.loss import Epsilon, Rho

ODD = (None, 5, 10**400, -1, 1.5, float("nan"), True, "", "x", b"x", [], [None], {}, {1: 2}, np.ones(1), ...)
NO_TEXT = tuple(odd for odd in ODD if not isinstance(odd, str))
NO_SEED = tuple(odd for odd in ODD if odd is not ODD[1] and odd is not ODD[2])
AGE = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.DROP),))
NOTHING = evaluate.Claim()
ENTRY = ClaimedRelease("half", "sample", NOTHING)


@pytest.fixture(scope="module")
def few(people) -> evaluate.PopulationSplit:
    rows = people.population(900, seed=1)
    return evaluate.split_population(rows.take(np.arange(300)), rows.take(np.arange(300, 900)), seed=2)


@pytest.fixture(scope="module")
def half(few) -> Released:
    return Released.raw(few.members.take(np.arange(150)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ages.csv").write_text("age,older\n1,x\n2,y\n")
    return tmp_path / "ages.csv"


def nothing(count: int) -> np.ndarray:
    return np.zeros(count)


@pytest.mark.parametrize("odd", NO_TEXT, ids=repr)
def test_files_have_paths_a_domain_and_an_attribute(odd, file) -> None:
    for refused in (
        lambda: evaluate.read_release(odd, AGE),
        lambda: evaluate.read_hierarchy(odd, AGE["age"]),
        lambda: evaluate.read_hierarchy(file, odd),
        lambda: evaluate.read_release(file, odd),
        lambda: evaluate.open_population_split(str(file), None, odd, seed=0),
        lambda: evaluate.open_population_split(odd, None, AGE, seed=0),
    ):
        with pytest.raises(InputError):
            refused()


def test_hierarchies_of_a_release_are_those_that_were_read(file) -> None:
    assert len(evaluate.read_release(file, AGE, hierarchies={"age": {"x": frozenset({1})}})) == 2
    for odd in ODD[1:]:
        if odd != {}:
            with pytest.raises(InputError):
                evaluate.read_release(file, AGE, hierarchies=odd)
        for labels in (odd, {"x": odd}) if odd != {} else ():
            with pytest.raises(InputError):
                evaluate.read_release(file, AGE, hierarchies={"age": labels})
    for leaves in (frozenset(), frozenset({10}), frozenset({"x"})):
        with pytest.raises(InputError, match="leaves that the domain does not have"):
            evaluate.read_release(file, AGE, hierarchies={"age": {"x": leaves}})


def test_files_that_no_tool_should_write_are_refused(tmp_path) -> None:
    for text, says in (
        ("age,age\n1,2\n", "age twice"),
        ("age\n" + "{" * 5000 + "}" * 5000 + "\n", "no value"),
        ("age\n1e999\n", "no value"),
        ('age\n"[1e999, inf)"\n', "no value"),
        ("age\n", "no rows"),
    ):
        (tmp_path / "odd.csv").write_text(text)
        with pytest.raises(TableError, match=says):
            evaluate.read_release(tmp_path / "odd.csv", AGE)
    for values, says in ((pa.array([b"\xff"]), "no value"), (pa.array([1 << 60], pa.duration("s")), "cannot be read")):
        pq.write_table(pa.table({"age": values}), tmp_path / "odd.parquet")
        with pytest.raises(TableError, match=says):
            evaluate.read_release(tmp_path / "odd.parquet", AGE)
    pq.write_table(pa.table({}), tmp_path / "odd.parquet")
    with pytest.raises(TableError, match="no columns"):
        evaluate.read_hierarchy(tmp_path / "odd.parquet", AGE["age"])
    pq.write_table(pa.table({"age": [1, 2], "older": [5, 5]}), tmp_path / "odd.parquet")
    assert evaluate.read_hierarchy(tmp_path / "odd.parquet", AGE["age"]) == {"5": frozenset({1, 2})}


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_claims_are_of_a_loss_and_a_class_size(odd) -> None:
    if odd is None:
        assert evaluate.Claim(odd, odd) == NOTHING
        return
    with pytest.raises(InputError, match="a claim has a loss"):
        evaluate.Claim(odd)
    if odd is ODD[1]:
        assert evaluate.Claim(class_size=np.int64(odd)) == evaluate.Claim(class_size=odd)
        return
    with pytest.raises(InputError, match="class"):
        evaluate.Claim(class_size=odd)


def test_claims_are_said_once_and_in_numbers_that_can_be() -> None:
    for text in ("k=" + "9" * 5000, "epsilon=1,epsilon=2", "k=0", "rho=nan", "epsilon"):
        with pytest.raises(InputError) as refused:
            parse_claim(text)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_people_and_quasi_identifiers(odd, few) -> None:
    for refused in (
        lambda: evaluate.split_population(odd, few.members, seed=0),
        lambda: evaluate.split_population(few.members, odd, seed=0),
        lambda: evaluate.grid([odd] if not isinstance(odd, str) else odd),
    ):
        with pytest.raises(InputError):
            refused()
    with pytest.raises(TableError):
        Rows(AGE, [[odd]] if odd not in (5, 0) else [[1.5]])


@pytest.mark.parametrize("odd", NO_SEED, ids=repr)
def test_seeds_are_whole_numbers_from_0(odd, few, half, file) -> None:
    for refused in (
        lambda: evaluate.open_population_split(str(file), None, AGE, seed=odd),
        lambda: evaluate.split_population(few.members, few.controls, seed=odd),
        lambda: evaluate.attack(half, few.members, few.controls, claim=NOTHING, seed=odd),
        lambda: evaluate.scorecard(half, few, target="rich", seed=odd),
        lambda: evaluate.judge(half, few, entry=ENTRY, target="rich", seed=odd),
        lambda: evaluate.frontier([], few, target="rich", seed=odd),
    ):
        with pytest.raises(InputError, match="a seed is a whole number"):
            refused()
    with pytest.raises(InputError, match="at most"):
        evaluate.scorecard(half, few, target="rich", seed=1 << 32)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_releases_people_entries_and_targets(odd, few, half) -> None:
    made = evaluate.Candidate("odd", "sample", NOTHING, lambda _: odd)
    for refused in (
        lambda: evaluate.attack(odd, few.members, few.controls, claim=NOTHING, seed=0),
        lambda: evaluate.attack(half, odd, few.controls, claim=NOTHING, seed=0),
        lambda: evaluate.attack(half, few.members, odd, claim=NOTHING, seed=0),
        lambda: evaluate.attack(half, few.members, few.controls, claim=odd, seed=0),
        lambda: evaluate.scorecard(odd, few, target="rich", seed=0),
        lambda: evaluate.scorecard(half, odd, target="rich", seed=0),
        lambda: evaluate.scorecard(half, few, target=odd, seed=0),
        lambda: evaluate.judge(odd, few, entry=ENTRY, target="rich", seed=0),
        lambda: evaluate.judge(half, few, entry=odd, target="rich", seed=0),
        lambda: evaluate.frontier([], odd, target="rich", seed=0),
        lambda: evaluate.frontier([], few, target=odd, seed=0),
        lambda: evaluate.frontier([odd], few, target="rich", seed=0),
        lambda: evaluate.Candidate("odd", "sample", odd, made.make),
        lambda: evaluate.Candidate("odd", "sample", NOTHING, odd),
    ):
        with pytest.raises(InputError):
            refused()


def test_a_release_of_another_domain_is_refused(few, half) -> None:
    other = Released.raw(Rows(AGE, np.zeros((100, 1), dtype=int)))
    for refused in (
        lambda: evaluate.attack(other, few.members, few.controls, claim=NOTHING, seed=0),
        lambda: evaluate.scorecard(other, few, target="rich", seed=0),
    ):
        with pytest.raises(TableError, match="different domains"):
            refused()
    with pytest.raises(DomainError, match="height"):
        evaluate.scorecard(half, few, target="height", seed=0)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_audits(odd) -> None:
    good = evaluate.Subject("nothing", Rho(1), nothing, nothing)
    assert evaluate.audit_all([good], draws=np.int64(40))[0].passed
    for refused in (
        lambda: evaluate.subject_of(odd, (0, 1), name="odd", claim=Epsilon(1)),
        lambda: evaluate.subject_of(abs, odd, name="odd", claim=Epsilon(1)),
        lambda: evaluate.subject_of(abs, (0, 1), name=5 if isinstance(odd, str) else odd, claim=Epsilon(1)),
        lambda: evaluate.subject_of(abs, (0, 1), name="odd", claim=odd),
        lambda: evaluate.Subject("odd", Rho(1), odd, nothing),
        lambda: evaluate.Subject("odd", Rho(1), nothing, nothing, mu="x" if odd in (None, 5, 1.5) else odd),
        lambda: evaluate.audit_all([odd], draws=40),
        lambda: evaluate.audit_all([good], draws=odd),
        lambda: evaluate.audit_all([good], draws=40, error=odd),
    ):
        with pytest.raises(InputError):
            refused()


def test_what_is_audited_returns_numbers_and_does_not_fail() -> None:
    for function, says in (
        (lambda _: 10**400, "returns a number"),
        (lambda _: "x", "returns a number"),
        (lambda value: 1 / value, "failed with ZeroDivisionError"),
        (lambda _: float("nan"), "NaN"),
        (lambda _: float("inf"), "infinite"),
    ):
        subject = evaluate.subject_of(function, (0, 1), name="odd", claim=Epsilon(1))
        with pytest.raises(InputError, match=says):
            evaluate.audit_all([subject], draws=40)
    with pytest.raises(InputError, match="returns numbers"):
        evaluate.audit_all([evaluate.Subject("odd", Rho(1), lambda _: "x", nothing)], draws=40)
