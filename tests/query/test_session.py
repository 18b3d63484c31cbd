from __future__ import annotations

import threading

import pytest

from sfumato.errors import BudgetError, LossError, QueryError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.query import Adaptive, Session, count, sql, table
from sfumato.query.question import Mean, Query, Total

QUESTIONS = [count(), table("sex"), table("age"), Query((Mean("age"),)), Query((Total("age"),))]


def test_a_session_answers_so_many_questions_and_refuses_the_next(vault):
    session = Session(vault, budget=Epsilon(1), queries=3)
    for question in QUESTIONS[:3]:
        session.ask(question)
    with pytest.raises(BudgetError, match="answered its 3"):
        session.ask(QUESTIONS[3])
    assert vault.ledger.spent().epsilon == 1
    assert session.left == 0


def test_a_repetition_is_not_counted_and_returns_the_same_number(vault):
    session = Session(vault, budget=Epsilon(1), queries=2)
    values = {session.ask(count()).value for _ in range(50)}
    assert len(values) == 1
    assert session.left == 1
    session.ask(table("sex"))
    assert {session.ask(count()).value} == values
    assert vault.ledger.spent().epsilon == 1


def test_threads_cannot_ask_more_than_agreed(fake):
    session = Session(fake, budget=Epsilon(1), queries=2)
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
    assert len(fake.reserved) == 2


def test_a_session_needs_a_question_and_divides_any_budget(fake):
    with pytest.raises(QueryError):
        Session(fake, budget=Epsilon(1), queries=0)
    assert Session(fake, budget=Rho(1), queries=4).loss == Rho("0.25")
    approximate = EpsilonDelta(1, "1e-6")
    assert Session(fake, budget=approximate, queries=4).loss == approximate.as_rho() / 4


def test_an_adaptive_session_stops_at_its_budget_to_the_last_digit(vault):
    session = Adaptive(vault, budget=Epsilon(1))
    for place in range(10):
        session.ask(QUESTIONS[place % 5], loss=Epsilon(f"0.{1000 + place}") if place else Epsilon("0.0955"))
    left = 1 - session.spent.epsilon
    assert left == 0
    with pytest.raises(BudgetError):
        session.ask(QUESTIONS[0], loss=Epsilon("1e-9"))
    session.ask(QUESTIONS[0], loss=Epsilon("0.0955"))  # asked before
    assert vault.ledger.spent().epsilon == 1
    with pytest.raises(LossError):
        Adaptive(vault, budget=Epsilon(1)).ask(count(), loss=Rho("0.01"))


def test_statements_are_asked_in_one_step(vault):
    assert sql(vault, "SELECT COUNT(*) FROM t", loss=Epsilon(1)).value.estimate == pytest.approx(4000, abs=40)
