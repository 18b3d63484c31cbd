"""Tables that are kept change nothing but the time that an answer takes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import Epsilon
from sfumato.vault import mechanisms
from sfumato.vault.measurables import Distance, Marginal
from sfumato.vault.mechanisms import ExactTables, cube_question
from sfumato.vault.unit_measurables import Units
from sfumato.vault.value_measurables import Bins, Moments, Sum
from sfumato.vault.vault import Vault

DOMAIN = Domain(
    (
        Integer(name="age", minimum=-3, maximum=20, unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY),
        Real(name="income", edges=(0.0, 0.5, 10.0), unknown=Unknown.CLAMP, nullable=True),
        Integer(name="band", minimum=0, maximum=50, edges=(0, 18), unknown=Unknown.CLAMP),
    )
)


def rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "age": pa.array(random.integers(-6, 24, count), mask=random.random(count) < 0.1),
            "sex": random.choice(np.array(["F", "M", "X"]), count),
            "income": pa.array(np.round(random.gamma(1, 3, count), 1), mask=random.random(count) < 0.1),
            "band": random.integers(0, 51, count),
            "id": random.integers(0, count // 2, count),
        }
    )


ENCODED = open_table(rows(500, 1)).encode(DOMAIN)
BY_ID = open_table(rows(500, 1)).encode(replace(DOMAIN, unit=Unit("id", rows=9)))

_names = st.lists(st.sampled_from(DOMAIN.names), unique=True, max_size=3).map(tuple)
_among = st.sampled_from(DOMAIN.names).flatmap(
    lambda name: st.frozensets(st.integers(0, DOMAIN[name].size - 1)).map(lambda codes: Among(name, codes))
)
_where = st.none() | st.recursive(
    _among,
    lambda part: (
        st.lists(part, max_size=2).map(lambda parts: All(tuple(parts)))
        | st.lists(part, max_size=2).map(lambda parts: Any(tuple(parts)))
        | part.map(Not)
    ),
    max_leaves=3,
)
_values = st.sampled_from(("age", "income", "band"))
_questions = (
    st.builds(Marginal, _names, _where)
    | st.builds(Sum, _values, _names, st.sampled_from((Fraction(1), Fraction(3, 2))), _where)
    | st.builds(Moments, _values, _names, st.just(Fraction(1, 2)), st.sampled_from((1, 2)), _where)
    | st.builds(Units, _names, _where)
    | st.builds(Bins, _values, st.sampled_from(((0.0, 1.0, 2.0), (-3.0, 0.5, 20.0, 60.0))), _names, _where)
)


def counted(encoded, question):
    """The engine's own answer."""
    match question:
        case Marginal(attributes=attributes, where=where):
            (exact,) = encoded.marginals([attributes], where)
        case Sum():
            exact = encoded.sums(question.value, question.by, question.unit, question.where)
        case Moments():
            exact = encoded.moments(
                question.value, question.by, unit=question.unit, degree=question.degree, where=question.where
            )
        case Units():
            exact = encoded.units(question.by, question.where)
        case Bins():
            exact = encoded.bins(question.value, question.edges, question.by, question.where)
    return reveal(exact).tolist()


@pytest.mark.parametrize("encoded", [ENCODED, BY_ID], ids=["rows", "ids"])
@pytest.mark.parametrize("largest", [0, 30, 1 << 18])
@given(asked=st.lists(st.lists(_questions, max_size=3), max_size=4))
@settings(max_examples=25, deadline=None)
def test_tables_are_those_that_the_engine_counts_in_whatever_order_they_are_asked(encoded, largest, asked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanisms, "CUBE_CELLS", largest)
        kept = ExactTables(encoded)
        for questions in asked:
            found = kept.tables(questions)
            for question in questions:
                assert found[question].tolist() == counted(encoded, question)


def test_questions_about_the_same_attributes_are_counted_once():
    passes = []

    class Watched:
        domain = DOMAIN

        def marginals(self, cliques, where=None):
            passes.append((tuple(cliques), where))
            return ENCODED.marginals(cliques, where)

    kept = ExactTables(Watched())
    adults = Among("age", frozenset(range(10, 24)))
    kept.tables([Marginal(("sex",), adults)])
    for question in (
        Marginal(("age",)),
        Marginal(("sex", "age")),
        Marginal((), Not(adults)),
        Sum("age", ("sex",), Fraction(1)),
        Moments("age", (), Fraction(1), 1, Among("sex", frozenset({0}))),
        Bins("age", (0.0, 5.0, 20.0), ("sex",)),
    ):
        assert kept.tables([question])[question].tolist() == counted(ENCODED, question)
    assert passes == [((("age", "sex"),), None)]


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(mechanisms, "_CACHE_BYTES", 3_000)
    kept = ExactTables(ENCODED)
    questions = [Marginal(("age", "sex")), Marginal(("income",)), Marginal(("band", "sex")), Marginal(("age",))]
    for question in questions * 3:
        assert kept.tables([question])[question].tolist() == counted(ENCODED, question)
        assert 8 * len(counted(ENCODED, question)) < kept.held_bytes <= 3_000
    assert not kept.contains(Marginal(("age", "sex")))


@given(_questions)
def test_the_table_that_is_read_follows_from_the_domain_and_the_question_alone(question):
    source = cube_question(DOMAIN, question)
    assert source == cube_question(open_table(rows(50, 7)).encode(DOMAIN).domain, question)
    if not isinstance(question, Units):
        assert source.where is None


ASKED = [
    [Marginal(("sex",), Among("age", frozenset({5, 6})))],
    [Moments("age", ("sex",), Fraction(1), 1), Bins("age", (0.0, 5.0, 20.0), ())],
    [Marginal((), Among("sex", frozenset({1})))],
    [Marginal(("sex",), Among("age", frozenset({5, 6})))],
    [Sum("income", (), Fraction(1), Among("sex", frozenset({1})))],
]


def journal(folder, largest, monkeypatch):
    """Everything that leaves: noisy values at fixed coins, the journal, and what is spent."""
    monkeypatch.setattr(mechanisms, "CUBE_CELLS", largest)
    with open_ledger(f"sqlite:///{folder}/{largest}.ledger", dataset="people", limit=Epsilon(9), create=True) as ledger:
        monkeypatch.setattr("sfumato.vault.vault._ENTROPY", SimulatedEntropy(4))
        vault = Vault(ENCODED, ledger, UNDECLARED)
        said = [[each.values.tolist() for each in vault.measure(questions, Epsilon(1))] for questions in ASKED]
        lines = [(each.question.parameters, each.charge, each.event.statement) for each in ledger.journal()]
        return said, lines, ledger.remaining().spent


def test_answers_journal_and_charge_are_the_same_with_and_without_kept_tables(tmp_path, monkeypatch):
    with_tables = journal(tmp_path, 1 << 18, monkeypatch)
    assert with_tables == journal(tmp_path, 0, monkeypatch)
    assert with_tables[2].epsilon == 4, "the repetition is free"


def test_rows_that_changed_are_counted_anew_under_a_new_version(tmp_path):
    path = tmp_path / "people.csv"
    question, counts, versions = Marginal(("sex",)), [], []
    for count in (200, 300):
        from pyarrow import csv

        csv.write_csv(rows(count, 3), path)
        encoded = open_table(path).encode(DOMAIN)
        kept = ExactTables(encoded)
        assert kept.tables([question])[question].tolist() == counted(encoded, question)
        counts.append(kept.tables([question])[question].sum())
        versions.append(encoded.version)
    assert counts == [200, 300]
    assert versions[0] != versions[1]


def test_a_pair_of_too_many_cells_is_counted_over_its_groups():
    random, rows = np.random.default_rng(3), 400
    numbers = {"x": random.integers(0, 3000, rows), "y": random.integers(0, 2000, rows)}
    domain = Domain(
        tuple(
            Integer(name=name, minimum=0, maximum=most - 1, unknown=Unknown.DROP)
            for name, most in (("x", 3000), ("y", 2000))
        )
    )
    groups = tuple(number // 1000 for number in range(3000)), tuple(number % 2 for number in range(2000))
    where = Among("y", frozenset(range(700)))
    held = numbers["y"] < 700
    for encoded in (
        open_table(pa.table(numbers)).encode(domain),
        ArrayTable(domain, np.column_stack([numbers["x"], numbers["y"]])),
    ):
        exactly = ExactTables(encoded)
        for condition, kept in ((None, np.ones(rows, dtype=bool)), (where, held)):
            question = Marginal(("x", "y"), condition, groups)
            (counts,) = exactly.answers([question])
            expected = np.zeros((3, 2), dtype=np.int64)
            np.add.at(expected, (numbers["x"][kept] // 1000, numbers["y"][kept] % 2), 1)
            assert counts.tolist() == expected.ravel().tolist()
            assert question.table().size(domain) == 6
            assert question.sensitivity(domain) == (1, 1)
        reference = np.arange(6)
        (distance,) = exactly.answers([Distance(("x", "y"), reference, groups)])
        unconditional = exactly.answers([Marginal(("x", "y"), None, groups)])[0]
        assert distance.tolist() == [np.abs(unconditional - reference).sum()]
        assert 2 * 8 * (3000 + 2000) < exactly.held_bytes < 90_000  # two tables with their groups
