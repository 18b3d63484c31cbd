"""Whatever is asked, well formed or not: it is refused and nothing is spent, or it is charged and answered."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.query.conftest import DOMAIN, rows

from sfumato.domain import Domain, Real, Unit, Unknown
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.domain.unit_views import one_table_schema
from sfumato.engine.open import open_table
from sfumato.errors import BudgetError, DomainError, LossError, QueryError, SfumatoError, SizeError, TableError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import NOTHING, Epsilon, EpsilonDelta, Rho
from sfumato.query import Adaptive, Session, accuracy, answer_batch, ask, choose_quantile, cost, count, sql
from sfumato.query.aggregates import FORMS, Average, Count, Distinct, Quantile, Takes, Total
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.sql_condition import read_condition
from sfumato.query.statements.table_statement import parse_tables
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault
from sfumato.workload import Explicit

PEOPLE = Domain(DOMAIN.attributes, unit=Unit("id", rows=2))
DISCOVER = Query((Distinct(),), data_dependent_groups=("city",))


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Without end to the budget, so that only the question can be refused."""
    path = tmp_path_factory.mktemp("refusals") / "people.ledger"
    with open_ledger(f"sqlite:///{path}", dataset="people", limit=EpsilonDelta(10**9, "0.5"), create=True) as ledger:
        yield Vault(open_table(rows(300)).encode(PEOPLE), ledger, UNDECLARED)


def rarely(junk, sound):
    """Return a strategy with one part in eight invalid, so that many questions have a single fault and some none."""
    return st.integers(0, 7).flatmap(lambda which: junk if which == 0 else sound)


names = rarely(st.sampled_from(["nobody", "", "units", "id", "SEX", "\ud800", 3]), st.sampled_from(DOMAIN.names))
numbers = rarely(names, st.sampled_from(["age", "band", "income"]))
probabilities = rarely(st.sampled_from([Fraction(0), Fraction(1), Fraction(7, 2)]), st.just(Fraction(1, 3)))
codes = rarely(
    st.sampled_from([frozenset({99999}), frozenset({-1}), [0]]),
    st.frozensets(st.integers(0, 3), max_size=3),
)
conditions = st.none() | st.recursive(
    rarely(st.just("sex = 'F'"), st.builds(Among, names, codes)),
    lambda part: st.builds(lambda *parts: All(parts), part, part) | st.builds(Not, part) | st.builds(Any, st.just(())),
    max_leaves=4,
)


def forms_with(form):
    """Return a form with drawn arguments; a wrong number is refused when the aggregate is made."""
    attribute = {Takes.NOTHING: (), Takes.ATTRIBUTE: (st.none() | names,), Takes.NUMBER: (numbers,)}[form.takes]
    return st.tuples(st.just(form.make), st.tuples(*attribute, *(probabilities for _ in form.parameters)))


aggregates = rarely(
    st.sampled_from(["count(*)", None, Count]),
    st.one_of([forms_with(form) for form in FORMS]),
)
losses = rarely(
    st.sampled_from([None, 1.0, "1", Epsilon("1e-40")]), st.sampled_from([Epsilon(1), Rho(1), EpsilonDelta(1, "1e-6")])
)
confidences = rarely(
    st.sampled_from([0, 1, -1, 2, "nan", "many", None, 1 - Fraction(1, 10**400)]),
    st.sampled_from(["0.95", Fraction(2, 3)]),
)
asked = st.fixed_dictionaries(
    {
        "aggregates": rarely(st.just(()), st.lists(aggregates, min_size=1, max_size=2).map(tuple)),
        "by": rarely(st.just(["sex"]), st.lists(names, max_size=2).map(tuple)),
        "where": conditions,
        "data_dependent_groups": rarely(st.lists(names | st.just("city"), max_size=2).map(tuple), st.just(())),
        "names": rarely(st.just(("one", "two", "three")), st.just(())),
    }
)


def built(parts):
    found = [each[0](*each[1]) if isinstance(each, tuple) else each for each in parts["aggregates"]]
    return Query(**{**parts, "aggregates": tuple(found)})


@given(parts=asked, loss=losses, confidence=confidences)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_question_is_refused_for_nothing_or_charged_and_answered(people, parts, loss, confidence):
    before, entries = people.ledger.remaining().spent, len(list(people.ledger.journal()))
    try:
        answer = ask(people, built(parts), loss=loss, confidence=confidence)
    except SfumatoError:
        assert people.ledger.remaining().spent == before
        assert len(list(people.ledger.journal())) == entries
    else:
        assert all(len(values) == len(parts["aggregates"]) for values in answer.values)
        assert all(value.low <= value.estimate <= value.high for values in answer.values for value in values)


@given(
    attributes=st.lists(names, max_size=2).map(tuple),
    shape=st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 4, 5, 16])),
    kind=st.sampled_from([bool, bool, np.int64]),
    loss=losses,
)
@settings(max_examples=100, deadline=None)
def test_a_batch_is_refused_for_nothing_or_charged_and_answered(people, attributes, shape, kind, loss):
    before = people.ledger.remaining().spent
    try:
        found = answer_batch(people, Explicit(attributes, np.ones(shape, dtype=kind)), loss=loss)
    except SfumatoError:
        assert people.ledger.remaining().spent == before
    else:
        assert len(found.answers) == shape[0]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (("town",), TableError),
        (("city", "city"), QueryError),
        (("units",), QueryError),
        (("city", "nobody"), TableError),
    ],
)
def test_missing_columns_are_reported_before_the_charge(people, columns, error):
    before = people.ledger.remaining().spent
    loss = EpsilonDelta(1, "1e-6")
    with pytest.raises(error):
        ask(people, Query((Distinct(),), data_dependent_groups=columns), loss=loss)
    with pytest.raises(error):
        people.threshold(columns, loss)
    assert people.ledger.remaining().spent == before


def test_statements_that_parse_but_cannot_be_asked_are_free(people):
    before = people.ledger.remaining().spent
    for text in (
        "SELECT town, COUNT(DISTINCT id) FROM t GROUP BY town",
        "SELECT QUANTILE(age, 1) FROM t",
        "SELECT AVG(sex) FROM t",
        "SELECT COUNT(*) FROM t WHERE income < 17",
    ):
        with pytest.raises(SfumatoError):
            ask(people, parse(text, PEOPLE, groupable_undeclared=("town",)), loss=EpsilonDelta(1, "1e-6"))
    assert people.ledger.remaining().spent == before


BOUNDS = [(-1.7e308, 1.7e308), (0.0, 1.7e308), (0.0, 5e-324), (-5e-324, 1e-300), (1.0, 1.0000000000000002)]
OF_NUMBERS = [
    form.make("x", *(Fraction(1, 2) for _ in form.parameters)) for form in FORMS if form.takes is not Takes.NOTHING
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("aggregate", OF_NUMBERS, ids=str)
def test_numbers_near_the_ends_of_doubles_are_answered_or_refused_for_nothing(bounds, aggregate):
    domain = Domain((Real(name="x", edges=bounds, unknown=Unknown.CLAMP),))
    encoded = open_table(pa.table({"x": list(bounds)})).encode(domain)
    for asked in (
        lambda vault: ask(vault, Query((aggregate,)), loss=Epsilon(1)),
        lambda vault: choose_quantile(vault, Quantile("x", Fraction(1, 3)), loss=Epsilon(1)),
    ):
        vault = SimulatedVault(encoded, seed=1)
        try:
            asked(vault)
        except (QueryError, SizeError):
            assert not vault.reserved
        else:
            assert len(vault.reserved) == 1


def test_conditions_that_an_engine_might_fail_over_are_refused():
    deep = Among("sex", frozenset({0}))
    for _ in range(5000):
        deep = All((Any((deep, Among("age", frozenset({1})))), Among("band", frozenset({0}))))
    with pytest.raises(QueryError, match="nested"):
        Query((Count(),), where=deep)
    with pytest.raises(QueryError, match="parts"):
        Query((Count(),), where=Any((Among("sex", frozenset({0})),) * 5000))
    with pytest.raises(QueryError, match="cell"):
        count(Among("sex", frozenset({77}))).check(DOMAIN)


@pytest.mark.parametrize("codes", [{"F"}, None, 3, [0, 0.5], "01", [Fraction(1)]], ids=str)
def test_a_condition_on_what_are_no_codes_is_refused(codes):
    with pytest.raises(QueryError, match="as integers"):
        Among("sex", codes)


@pytest.mark.parametrize("confidence", [0, 1, 2, -1, "nan", 1 - Fraction(1, 10**13), 1 - Fraction(1, 10**400)])
def test_a_confidence_that_has_no_interval_is_refused_by_preview_and_answer_alike(people, confidence):
    for refused in (
        lambda: ask(people, count(), loss=Epsilon(1), confidence=confidence),
        lambda: accuracy(PEOPLE, count(), Epsilon(1), confidence=confidence),
        lambda: cost(PEOPLE, count(), 10, confidence=confidence),
    ):
        with pytest.raises(LossError):
            refused()


def test_columns_that_the_table_does_not_have_cost_an_adaptive_session_nothing(people):
    session, before = Adaptive(people, budget=EpsilonDelta(2, "1e-3")), people.ledger.remaining().spent
    for columns, error in [(("nope",), TableError), (("city", "city"), QueryError)]:
        with pytest.raises(error):
            session.ask(Query((Distinct(),), data_dependent_groups=columns), loss=EpsilonDelta("0.5", "1e-6"))
    assert session.spent == NOTHING
    assert people.ledger.remaining().spent == before


def test_what_a_session_refuses_is_neither_counted_nor_spent(vault):
    ask(vault, Query((Total("age"),)), loss=Epsilon(2))
    before = vault.ledger.remaining().spent
    session, adaptive = Session(vault, budget=Epsilon(3), queries=2), Adaptive(vault, budget=Epsilon(3))
    for query, error in [
        (Query((Average("sex"),)), QueryError),
        (Query((Count(),), by=("nobody",)), DomainError),
        (DISCOVER, LossError),
        (count(), BudgetError),  # the ledger has only one left
    ]:
        with pytest.raises(error):
            session.ask(query)
        with pytest.raises(error):
            adaptive.ask(query, loss=Epsilon(2))
    assert session.left == 2
    assert adaptive.spent == NOTHING
    assert vault.ledger.remaining().spent == before


@pytest.mark.parametrize("wrong", [1, 0.1, "1", None])
def test_an_invalid_loss_is_refused_in_every_place_that_takes_one(vault, wrong):
    for refused in (
        lambda: Session(vault, budget=wrong, queries=2),
        lambda: Adaptive(vault, budget=wrong),
        lambda: Adaptive(vault, budget=Epsilon(1)).ask(count(), loss=wrong),
        lambda: sql(vault, "SELECT COUNT(*) FROM t", loss=wrong),
    ):
        with pytest.raises(LossError, match="state a"):
            refused()
    assert vault.ledger.remaining().spent == NOTHING


def test_what_is_no_statement_or_number_of_queries_is_refused(vault):
    for text in (None, b"SELECT COUNT(*) FROM t", 3, ["SELECT"]):
        with pytest.raises(QueryError, match="text"):
            sql(vault, text, loss=Epsilon(1))
    with pytest.raises(QueryError, match="a list"):
        sql(vault, "SELECT COUNT(*) FROM t", loss=Epsilon(1), groupable_undeclared="city")
    for queries in (2.5, "2", None, -1):
        with pytest.raises(QueryError, match="whole number"):
            Session(vault, budget=Epsilon(1), queries=queries)


def test_a_session_beyond_the_limit_of_the_ledger_is_refused_at_its_start(vault):
    with pytest.raises(BudgetError, match="more than epsilon = 3"):
        Session(vault, budget=Epsilon("3.1"), queries=2)
    with pytest.raises(BudgetError, match="more than epsilon = 3"):
        Adaptive(vault, budget=Epsilon("3.1"))
    with pytest.raises(LossError):
        Session(vault, budget=Rho("0.1"), queries=2)
    assert Session(vault, budget=Epsilon(3), queries=2).left == 2


def test_values_found_in_different_columns_are_different_questions_of_a_session():
    loss = EpsilonDelta(1, "1e-6")
    simulated = SimulatedVault(open_table(rows(300)).encode(PEOPLE), seed=1)
    session = Adaptive(simulated, budget=EpsilonDelta(20, "0.01"))
    session.ask(DISCOVER, loss=loss)
    once = session.spent
    assert once == simulated.spent
    session.ask(Query((Distinct(),), data_dependent_groups=("sex",)), loss=loss)
    assert session.spent == once + once == simulated.spent


WORDS = [
    "SELECT",
    "COUNT(*)",
    "FROM",
    "people",
    "WHERE",
    "GROUP BY",
    "city",
    "age",
    ">",
    "40",
    "'a'",
    "(",
    ")",
    ",",
    ";",
    "--",
]
WORDS += [
    "*",
    "AND",
    "NOT",
    "NULL",
    "WITH",
    "AS",
    "UNION",
    "VALUES",
    "DELETE",
    "CASE",
    "END",
    ".",
    "/*",
    "\0",
    '"',
    "TOP 3",
]


@settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(words=st.lists(st.sampled_from(WORDS), max_size=8))
@example(words=[])
@example(words=[";"])
@example(words=["--"])
@example(words=["SELECT COUNT(*) FROM people", ";", "SELECT COUNT(*) FROM people"])
def test_texts_that_are_no_statement_are_refused_in_one_sentence(words):
    """They are neither an error of the reader of SQL nor one of ours, as a statement, a condition and in a schema."""
    text = " ".join(words)
    for read in (parse, read_condition):
        with suppress(QueryError):
            read(text, PEOPLE)
    with suppress(QueryError):
        parse_tables(text, one_table_schema(PEOPLE))
