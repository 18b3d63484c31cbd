"""The contract of every database under a ledger."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.ledger.asking import (
    ROW,
    TENTH,
    answered,
    ask,
    behind_its_back,
    question,
    release,
    reserve,
    spent_epsilon,
    unfreeze,
)

from sfumato.errors import BudgetError, InputError, LedgerError, LossError, RetryKeyError
from sfumato.ledger import Kind, open_ledger
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho


def test_ten_tenths_fit_into_one_exactly(ledger):
    for number in range(10):
        assert ask(ledger, number).charged
    assert ledger.remaining().left == 0
    with pytest.raises(BudgetError):
        ask(ledger, 10, Epsilon("1e-30").charge)


def test_three_thirds_fit_into_one_exactly(ledger):
    for number in range(3):
        ask(ledger, number, Epsilon("1/3").charge)
    assert spent_epsilon(ledger) == 1


def test_a_refusal_costs_nothing_and_says_what_is_left(ledger):
    ask(ledger, 0, Epsilon("0.95").charge)
    before = ledger.verify()
    with pytest.raises(BudgetError, match=r"epsilon = 0\.05 left of epsilon = 1.*asks for epsilon = 0\.1") as caught:
        ask(ledger, 1, analyst="ann")
    assert "ann" not in str(caught.value)
    assert ledger.verify() == before
    assert ledger.caps() == {}
    assert ask(ledger, 2, Epsilon("0.05").charge).charged


def test_a_charge_without_the_measure_of_the_limit_is_refused(ledger):
    with pytest.raises(LossError, match="pure epsilon"):
        ask(ledger, 0, Rho("0.1").charge)
    assert list(ledger.journal()) == []


def test_a_rho_ledger_adds_up_rho(url):
    with open_ledger(url, dataset="people", limit=Rho("0.01"), create=True) as ledger:
        ask(ledger, 0, Rho("0.005").charge)
        ask(ledger, 1, TENTH)  # 0.1 ^ 2 / 2
        assert ledger.remaining().spent.rho == Fraction(1, 100)
        with pytest.raises(BudgetError, match=r"rho = 0 left of rho = 0\.01"):
            ask(ledger, 2, Rho("1e-12").charge)


def test_an_approximate_ledger_adds_up_rho_and_delta(url):
    limit = EpsilonDelta(1, "1e-6")
    with open_ledger(url, dataset="people", limit=limit, create=True) as ledger:
        half = limit.charge.rho / 2
        ask(ledger, 0, Rho(half).charge)
        ask(ledger, 1, Rho(half).charge)
        with pytest.raises(BudgetError):
            ask(ledger, 2, Rho(half / 1000).charge)


def test_a_refusal_for_its_delta_says_so(url):
    with open_ledger(url, dataset="people", limit=EpsilonDelta(9, "1e-6"), create=True) as ledger:
        threshold = Charge(Fraction(1), Fraction(1, 2), Fraction(1, 10**8))
        ask(ledger, 0, threshold)
        with pytest.raises(BudgetError, match="of which the delta does not fit") as caught:
            ask(ledger, 1, threshold)
        assert "delta = 0 left of 1e-08 for thresholds" in str(caught.value)
        with pytest.raises(BudgetError) as caught:
            ask(ledger, 1, Rho(1).charge)
        assert "does not fit" not in str(caught.value)


def test_the_whole_of_an_approximate_limit_fits_once(url):
    limit = EpsilonDelta("0.5", "1e-9")
    with open_ledger(url, dataset="people", limit=limit, create=True) as ledger:
        assert ask(ledger, 0, limit.charge).charged
        assert ledger.remaining().left == 0


def test_a_repeat_is_free_and_gets_the_stored_answer(ledger):
    first = release(ledger, question(), TENTH, lambda: b"first", statement="pure", unit=ROW)
    again = release(ledger, question(), TENTH, lambda: b"again", statement="pure", unit=ROW)
    assert (first.answer, first.charged) == (b"first", True)
    assert (again.answer, again.charged, again.number) == (b"first", False, first.number)
    assert spent_epsilon(ledger) == Fraction(1, 10)
    assert len(list(ledger.journal())) == 1


def test_the_same_question_at_another_loss_is_another_release(ledger):
    release(ledger, question(), TENTH, lambda: b"coarse", statement="pure", unit=ROW)
    fine = release(ledger, question(), Epsilon("0.2").charge, lambda: b"fine", statement="pure", unit=ROW)
    assert (fine.answer, fine.charged) == (b"fine", True)


def test_a_pending_release_is_joined_and_the_first_answer_stands(ledger):
    first, second = ask(ledger), ask(ledger)
    assert (first.charged, second.charged) == (True, False)
    assert first.number == second.number
    assert second.answer is None
    second.store(b"second")
    first.store(b"first")
    assert (first.answer, second.answer) == (b"second", b"second")
    assert ask(ledger).answer == b"second"


def test_an_empty_answer_is_an_answer(ledger):
    assert answered(ledger, answer=b"").answer == b""
    assert answered(ledger, answer=b"late").answer == b""


def test_a_failure_before_the_draw_stays_charged_and_is_completed_for_free(ledger):
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            release(ledger, question(), TENTH, fail, noise_drawn=lambda: False, statement="pure", unit=ROW)
    assert spent_epsilon(ledger) == Fraction(1, 10)
    completed = release(ledger, question(), TENTH, lambda: b"now", statement="pure", unit=ROW)
    assert (completed.answer, completed.charged) == (b"now", False)
    assert spent_epsilon(ledger) == Fraction(1, 10)
    assert [entry.kind for entry in ledger.journal()] == [Kind.RELEASE]


def test_a_computation_that_fails_after_it_drew_is_closed_and_charged_again(ledger):
    for times in range(1, 4):
        with pytest.raises(ZeroDivisionError):
            release(ledger, question(), TENTH, fail, statement="pure", unit=ROW)
        assert spent_epsilon(ledger) == Fraction(times, 10)
    answered = release(ledger, question(), TENTH, lambda: b"now", statement="pure", unit=ROW)
    assert (answered.answer, answered.charged) == (b"now", True)
    assert release(ledger, question(), TENTH, lambda: b"later", statement="pure", unit=ROW).answer == b"now"
    assert [entry.kind for entry in ledger.journal()] == [Kind.RELEASE, Kind.FAILED] * 3 + [Kind.RELEASE]
    assert spent_epsilon(ledger) == Fraction(4, 10)
    ledger.verify()


def test_an_analyst_pays_again_for_what_failed_and_what_was_never_shown(ledger):
    with pytest.raises(ZeroDivisionError):
        release(ledger, question(), TENTH, fail, statement="pure", unit=ROW, analyst="ann")
    release(ledger, question(), TENTH, lambda: b"now", statement="pure", unit=ROW, analyst="bob")
    shown = release(ledger, question(), TENTH, fail, statement="pure", unit=ROW, analyst="ann")
    assert (shown.answer, shown.charged, shown.charged_analyst) == (b"now", False, True)
    assert {name: account.spent.epsilon for name, account in ledger.caps().items()} == {
        "ann": Fraction(2, 10),
        "bob": Fraction(1, 10),
    }
    ledger.verify()


def test_what_was_closed_as_failed_takes_no_answer(ledger):
    receipt = ask(ledger)
    with pytest.raises(ZeroDivisionError):
        release(ledger, question(), TENTH, fail, statement="pure", unit=ROW)
    for _ in range(2):
        with pytest.raises(LedgerError, match="closed as failed"):
            receipt.store(b"late")
        release(ledger, question(), TENTH, lambda: b"now", statement="pure", unit=ROW)


def fail():
    raise ZeroDivisionError


def test_a_release_without_guarantee_is_in_the_journal_and_costs_nothing(ledger):
    ask(ledger, 0, Epsilon(1).charge)
    statement = "10-anonymous, no DP guarantee"
    first = release(ledger, question(1), None, lambda: b"k", statement=statement, unit=ROW, details={"k": 10})
    again = release(ledger, question(1), None, lambda: b"other", statement=statement, unit=ROW)
    assert (first.answer, again.answer, first.charged) == (b"k", b"k", False)
    entry = list(ledger.journal())[-1]
    assert (entry.charge, entry.statement, entry.event.details) == (None, statement, {"k": 10})
    ledger.verify()


def test_a_retry_key_returns_what_it_returned(ledger):
    first = release(ledger, question(), TENTH, lambda: b"x", statement="pure", unit=ROW, analyst="ann", retry_key="r1")
    again = ask(ledger, analyst="ann", retry_key="r1")
    assert (again.number, again.answer, again.charged) == (first.number, b"x", False)


def test_the_journal_can_be_read_from_any_entry(ledger):
    for number in range(3):
        ask(ledger, number, None)
    assert [[entry.number for entry in ledger.journal(after=after)] for after in (0, 2, 3)] == [[1, 2, 3], [3], []]


def test_a_retry_key_serves_one_question_only(ledger):
    ask(ledger, 0, retry_key="r1")
    with pytest.raises(RetryKeyError, match="another question"):
        ask(ledger, 1, retry_key="r1")
    assert spent_epsilon(ledger) == Fraction(1, 10)


def test_analysts_do_not_share_retry_keys(ledger):
    ask(ledger, 0, analyst="ann", retry_key="r1")
    assert ask(ledger, 1, analyst="bob", retry_key="r1").charged
    assert ask(ledger, 2, retry_key="r1").charged


def test_a_refused_request_does_not_use_up_its_retry_key(ledger):
    with pytest.raises(BudgetError):
        ask(ledger, 0, Epsilon(2).charge, retry_key="r1")
    assert ask(ledger, 1, retry_key="r1").charged


def test_a_cap_holds_an_analyst_and_nobody_else(ledger):
    ledger.set_cap("ann", Epsilon("0.1"))
    ask(ledger, 0, analyst="ann")
    with pytest.raises(BudgetError, match=r"your cap has epsilon = 0 left of epsilon = 0\.1"):
        ask(ledger, 1, analyst="ann")
    assert spent_epsilon(ledger) == Fraction(1, 10)
    assert ask(ledger, 1, analyst="bob").charged
    assert ask(ledger, 2).charged


def test_a_new_analyst_pays_their_own_cap_for_a_stored_answer(ledger):
    ledger.set_cap("bob", Epsilon("0.1"))
    answered(ledger, 0, analyst="ann")
    answered(ledger, 1, analyst="ann")
    shown = ask(ledger, 0, analyst="bob")
    assert (shown.answer, shown.charged, shown.charged_analyst) == (b"x", False, True)
    with pytest.raises(BudgetError, match="your cap"):
        ask(ledger, 1, analyst="bob")
    again = ask(ledger, 0, analyst="bob")
    assert (again.answer, again.charged_analyst) == (b"x", False)
    assert spent_epsilon(ledger) == Fraction(1, 5)
    assert ledger.caps()["bob"].spent == TENTH
    assert [entry.kind for entry in ledger.journal()] == [Kind.CAP, Kind.RELEASE, Kind.RELEASE, Kind.REPEAT]
    ledger.verify()


def test_a_cap_is_raised_and_lifted_and_recorded_in_the_journal(ledger):
    ledger.set_cap("ann", Epsilon("0.1"))
    ask(ledger, 0, analyst="ann")
    ledger.set_cap("ann", Epsilon("0.2"))
    ask(ledger, 1, analyst="ann")
    ledger.set_cap("ann", None)
    ask(ledger, 2, analyst="ann")
    assert [entry.statement for entry in ledger.journal() if entry.kind is Kind.CAP] == [
        "cap of ann: epsilon = 0.1",
        "cap of ann: epsilon = 0.2",
        "cap of ann: lifted",
    ]
    assert ledger.remaining("ann").left is None
    ledger.verify()


def test_a_cap_below_what_was_spent_is_refused(ledger):
    ask(ledger, 0, analyst="ann")
    with pytest.raises(InputError, match=r"spent epsilon = 0\.1 already"):
        ledger.set_cap("ann", Epsilon("0.05"))
    assert ledger.remaining("ann").limit is None


def test_a_cap_is_in_the_measure_of_the_limit(ledger):
    with pytest.raises(LossError, match="state a cap in the same measure, by epsilon"):
        ledger.set_cap("ann", Rho("0.1"))


def test_the_journal_says_everything(ledger):
    ask(ledger, 4, analyst="ann")
    (entry,) = ledger.journal()
    assert (entry.number, entry.family, entry.method) == (1, "query", "count")
    assert entry.question.parameters == question(4).parameters
    assert (entry.charge, entry.statement, entry.analyst) == (TENTH, "pure", "ann")
    assert entry.time.endswith("+00:00")
    assert ledger.verify() == entry.hash


def test_a_journal_of_many_pages_is_read_in_order(ledger, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.journal.PAGE", 3)
    for number in range(8):
        ask(ledger, number, None)
    assert [entry.question.parameters["number"] for entry in ledger.journal()] == list(range(8))
    ledger.verify()


def test_datasets_share_a_database_and_nothing_else(url, ledger):
    with open_ledger(url, dataset="cars", limit=Epsilon("0.1"), create=True) as other:
        answered(ledger, answer=b"people")
        mine = ask(other)
        assert (mine.answer, mine.charged) == (None, True)
        assert spent_epsilon(ledger) == spent_epsilon(other) == Fraction(1, 10)
        assert len(list(other.journal())) == 1


def test_a_limit_never_changes(url, ledger):
    for limit in (Epsilon(2), Epsilon("0.5"), Rho(1)):
        with pytest.raises(LedgerError, match=r"has the limit epsilon = 1, not .*never changes"):
            open_ledger(url, dataset="people", limit=limit, create=True)
    with open_ledger(url, dataset="people", limit=None) as again:
        assert again.limit == Epsilon(1)


@pytest.mark.parametrize("limit", [1, "1", 0.5, Fraction(1)])
def test_a_limit_without_a_measure_is_refused_and_makes_nothing(limit, tmp_path):
    with pytest.raises(InputError, match="a limit is an Epsilon, Rho or EpsilonDelta, not"):
        open_ledger(f"sqlite:///{tmp_path / 'new.ledger'}", dataset="people", limit=limit, create=True)
    assert not list(tmp_path.iterdir())


def test_an_unknown_dataset_is_opened_with_a_limit_only(url, ledger):
    with pytest.raises(LedgerError, match="no dataset 'cars'"):
        open_ledger(url, dataset="cars", limit=None)


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 201])
def test_names_are_short_and_printable(url, ledger, name):
    with pytest.raises(InputError, match="printable"):
        open_ledger(url, dataset=name, limit=Epsilon(1), create=True)
    with pytest.raises(InputError, match="printable"):
        ask(ledger, 0, analyst=name)
    with pytest.raises(InputError, match="printable"):
        ask(ledger, 0, retry_key=name)
    with pytest.raises(InputError, match="printable"):
        ledger.set_cap(name, None)


def test_text_that_no_database_stores_is_refused(ledger):
    for statement in ("a\0b", "a\ud800b"):
        with pytest.raises(InputError, match="statement"):
            reserve(ledger, question(), TENTH, statement=statement, unit=ROW)
    reserve(ledger, question(), TENTH, statement="ρ ≤ ½", unit=ROW, details={"null": "\0", "half": "\ud800"})
    ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger_entry",
        "DELETE FROM ledger_answer",
        "DELETE FROM ledger_retry",
        "DELETE FROM ledger_dataset",
        "UPDATE ledger_entry SET statement = 'better'",
        "UPDATE ledger_answer SET number = 2",
        "UPDATE ledger_retry SET key = 'x'",
        "UPDATE ledger_dataset SET opened = 'x'",
        "UPDATE ledger_dataset SET limit_loss = '{}'",
        "UPDATE ledger_dataset SET limit_units = limit_units * 2",
        "UPDATE ledger_dataset SET spent_units = 0",
        "UPDATE ledger_dataset SET spent_units = limit_units + 1",
        "UPDATE ledger_dataset SET entries = 0",
        "UPDATE ledger_analyst SET spent_units = cap_units + 1",
    ],
)
def test_the_database_itself_keeps_journal_and_accounts(url, ledger, statement):
    ledger.set_cap("ann", Epsilon("0.5"))
    answered(ledger, analyst="ann", retry_key="r")
    with pytest.raises(LedgerError):
        behind_its_back(url, statement)
    ledger.verify()


@pytest.mark.parametrize(
    ("tampering", "complaint"),
    [
        ("UPDATE ledger_entry SET epsilon = '1/100' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET statement = 'better' WHERE number = 3", "broken at entry 3"),
        ("UPDATE ledger_entry SET analyst = 'bob' WHERE number = 1", "broken at entry 1"),
        ("UPDATE ledger_entry SET key = 'x' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET rho = NULL WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET question = 'x' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET kind = 'x' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET method = 'x' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET details = '[]' WHERE number = 2", "broken at entry 2"),
        ("UPDATE ledger_entry SET time = '2000-01-01' WHERE number = 2", "broken at entry 2"),
        ("DELETE FROM ledger_entry WHERE number = 2", "broken at entry 2"),
        ("DELETE FROM ledger_entry WHERE number = 3", "broken after entry 2"),
        ('UPDATE ledger_dataset SET limit_loss = \'{"epsilon":"2"}\'', "broken at entry 1"),
        ("UPDATE ledger_dataset SET opened = 'x'", "broken at entry 1"),
        ("UPDATE ledger_dataset SET epsilon = '1/100'", "account of 'people' is not the sum"),
        ("UPDATE ledger_dataset SET spent_units = 1", "account of 'people' is not the sum"),
        ("UPDATE ledger_analyst SET epsilon = '0'", "account of analyst 'ann' is not the sum"),
        ("DELETE FROM ledger_analyst", "analysts without an account"),
    ],
)
def test_tampering_is_found_and_named(url, ledger, tampering, complaint):
    for number in range(3):
        ask(ledger, number, analyst="ann")
    ledger.verify()
    unfreeze(url)
    behind_its_back(url, tampering)
    with pytest.raises(LedgerError, match=complaint):
        ledger.verify()


def test_the_database_refuses_what_the_code_would_let_through(ledger, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.reservation.refuse_unaffordable", lambda *_: None)
    ask(ledger, 0, Epsilon(1).charge)
    with pytest.raises(LedgerError, match="break its rules"):
        ask(ledger, 1, Epsilon("1e-12").charge)
    ledger.set_cap("ann", Epsilon("0.1"))
    with pytest.raises(LedgerError, match="break its rules"):
        ask(ledger, 0, Epsilon(1).charge, analyst="ann")
    assert spent_epsilon(ledger) == 1
    ledger.verify()
