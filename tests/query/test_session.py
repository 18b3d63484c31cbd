from __future__ import annotations

import threading
from fractions import Fraction

import pytest

from sfumato.errors import BudgetError, LossError, QueryError
from sfumato.ledger.account import Account
from sfumato.privacy.loss import NOTHING, Epsilon, EpsilonDelta, Rho
from sfumato.query import Adaptive, Session, ask, count, mean, sql, table, total
from sfumato.query.aggregates import Average, Total
from sfumato.query.question import Query

QUESTIONS = [count(), table("sex"), table("age"), Query((Average("age"),)), Query((Total("age"),))]


def test_a_session_answers_so_many_questions_and_refuses_the_next(vault):
    session = Session(vault, budget=Epsilon(1), queries=3)
    for question in QUESTIONS[:3]:
        session.ask(question)
    with pytest.raises(BudgetError, match="answered its 3"):
        session.ask(QUESTIONS[3])
    assert vault.ledger.remaining().spent.epsilon == 1
    assert session.left == 0


def test_a_repetition_is_not_counted_and_returns_the_same_number(vault):
    session = Session(vault, budget=Epsilon(1), queries=2)
    values = {session.ask(count()).value for _ in range(50)}
    assert len(values) == 1
    assert session.left == 1
    session.ask(table("sex"))
    assert {session.ask(count()).value} == values
    assert vault.ledger.remaining().spent.epsilon == 1


def test_threads_cannot_ask_more_than_agreed(simulated):
    session = Session(simulated, budget=Epsilon(1), queries=2)
    refused = []

    def run(question):
        try:
            session.ask(question)
        except BudgetError:
            refused.append(question)

    threads = [threading.Thread(target=run, args=(question,)) for question in QUESTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert len(simulated.reserved) == 2


def test_a_session_needs_a_question_and_divides_any_budget(simulated):
    with pytest.raises(QueryError):
        Session(simulated, budget=Epsilon(1), queries=0)
    assert Session(simulated, budget=Rho(1), queries=4).loss == Rho("0.25")
    approximate = EpsilonDelta(1, "1e-6")
    assert Session(simulated, budget=approximate, queries=4).loss == approximate.as_rho() / 4


def test_an_adaptive_session_stops_at_its_budget_to_the_last_digit(vault):
    session = Adaptive(vault, budget=Epsilon(1))
    for place in range(10):
        session.ask(QUESTIONS[place % 5], loss=Epsilon(f"0.{1000 + place}") if place else Epsilon("0.0955"))
    left = 1 - session.spent.epsilon
    assert left == 0
    with pytest.raises(BudgetError):
        session.ask(QUESTIONS[0], loss=Epsilon("1e-9"))
    session.ask(QUESTIONS[0], loss=Epsilon("0.0955"))  # asked before
    assert vault.ledger.remaining().spent.epsilon == 1
    with pytest.raises(LossError):
        Adaptive(vault, budget=Epsilon(1)).ask(count(), loss=Rho("0.01"))


def test_statements_are_asked_in_one_step(vault):
    assert sql(vault, "SELECT COUNT(*) FROM t", loss=Epsilon(1)).value.estimate == pytest.approx(4000, abs=40)


@pytest.mark.parametrize(
    ("budget", "loss", "left"), [(Epsilon(1), Epsilon("0.3"), Epsilon("0.7")), (Rho(1), Epsilon(1), Rho("0.5"))]
)
def test_an_adaptive_session_says_what_is_left_in_the_measure_of_its_budget(simulated, budget, loss, left):
    session = Adaptive(simulated, budget=budget)
    assert session.left == budget.value
    session.ask(count(), loss=loss)
    session.ask(count(), loss=loss)
    assert session.left == left.value


def test_an_adaptive_session_of_an_approximate_budget_counts_in_rho(simulated):
    session = Adaptive(simulated, budget=EpsilonDelta(1, "1e-6"))
    before = session.left
    session.ask(count(), loss=Rho("0.01"))
    assert before - session.left == Rho("0.01").value


def test_a_statement_is_asked_as_the_question_it_means(vault):
    narrow = sql(vault, "SELECT AVG(age) FROM t", loss=Epsilon("0.5"), confidence="0.5", retry_key="first")
    assert narrow.value == ask(vault, mean("age"), loss=Epsilon("0.5"), confidence="0.5", retry_key="first").value
    assert sql(vault, "SELECT SUM(age) FROM t", loss=Epsilon("0.5")).value == (
        ask(vault, total("age"), loss=Epsilon("0.5")).value
    )
    wide = ask(vault, mean("age"), loss=Epsilon("0.5"))
    assert wide.value.high - wide.value.low > narrow.value.high - narrow.value.low


def test_rows_of_an_answer_can_be_counted_and_picked(vault):
    answer = ask(vault, table("sex"), loss=Epsilon(1))
    assert answer.rows[0]["sex"] == answer.keys[0][0]
    assert len(answer.rows) == len(answer.keys)


@pytest.mark.parametrize("budget", [Epsilon(1), Epsilon("0.37"), Rho("0.5"), EpsilonDelta(1, "1e-6")])
@pytest.mark.parametrize("queries", [1, 3, 29, 97, 101, 1009, 7919])
def test_all_parts_of_a_budget_fit_into_it_as_accounts_add_up(simulated, budget, queries):
    session = Session(simulated, budget=budget, queries=queries)
    account = Account(budget, NOTHING)
    for _ in range(queries):
        assert account.admits(session.loss.charge)
        account = account.charged(session.loss.charge)
    whole = budget.as_rho() if isinstance(budget, EpsilonDelta) else budget
    assert session.loss.value * queries > whole.value * Fraction(999_999, 1_000_000)
