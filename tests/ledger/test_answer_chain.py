"""Stored answers are links of the chain of hashes: one that was changed, swapped or taken away is found and refused."""

# ruff: noqa: S608 - statements are what is changed

from __future__ import annotations

import pytest
from tests.ledger.asking import ROW, TENTH, ask, behind_its_back, question, release, spent_epsilon, unfreeze

from sfumato.errors import BrokenLedgerError, LedgerError
from sfumato.ledger import Kind, journal, open_ledger
from sfumato.ledger.entry import answer_hash
from sfumato.ledger.store import Store

HAVING = (
    "UPDATE ledger_answer SET body = (SELECT body FROM ledger_answer WHERE number = {other}) WHERE number = {number}"
)
LESS = "UPDATE ledger_dataset SET answers = answers - 1"
CLOSED_UP = (
    "UPDATE ledger_answer SET place = -place WHERE place > 3",
    "UPDATE ledger_answer SET place = -place - 1 WHERE place < 0",
)


@pytest.fixture
def answered(url, ledger):
    """Six releases: answered with their charge (1, 2, 6), later and out of order (4, 3), and not at all (5)."""
    store(ledger, 1)
    store(ledger, 2, analyst="ann")
    receipts = {number: ask(ledger, number) for number in (3, 4, 5)}
    for number in (4, 3):
        receipts[number].store(body(number))
    store(ledger, 6)
    assert ask(ledger, 2, analyst="bob").charged_analyst
    assert [row["number"] for row in rows(url)] == [1, 2, 4, 3, 6]
    ledger.verify()
    unfreeze(url)
    return url


def body(number):
    return b"answer %d" % number


def store(ledger, number, **terms):
    return release(ledger, question(number), TENTH, lambda: body(number), statement="pure", unit=ROW, **terms)


def rows(url):
    store = Store(url)
    with store.reading() as driver:
        found = list(journal.answers_after(driver, "people", 0))
    store.close()
    return found


def again(url, number):
    """Return the answer of a program that starts later and computes nothing."""
    with open_ledger(url, dataset="people", limit=None) as other:
        before = spent_epsilon(other), len(list(other.journal()))
        try:
            return release(other, question(number), TENTH, pytest.fail, statement="pure", unit=ROW).answer
        finally:
            assert before == (spent_epsilon(other), len(list(other.journal())))


@pytest.mark.parametrize("page", [1, 200])
def test_answers_of_all_kinds_are_whole_and_repeated(answered, ledger, monkeypatch, page):
    monkeypatch.setattr(journal, "ANSWERS_PAGE", page)
    for number in (1, 2, 3, 4, 6):
        assert again(answered, number) == body(number)
    whole = ledger.verified()
    assert (whole.number, whole.answers, whole.bound_later) == (7, 5, {})
    completed = release(ledger, question(5), TENTH, lambda: body(5), statement="pure", unit=ROW)
    assert (completed.answer, completed.charged) == (body(5), False)
    assert ledger.verify(head=whole.head) == rows(answered)[-1]["hash"] != whole.head


@pytest.mark.parametrize(
    ("changes", "where", "asked"),
    [
        ([HAVING.format(number=2, other=1)], "at the stored answer to entry 2", 2),
        ([HAVING.format(number=6, other=1)], "at the stored answer to entry 6", 6),
        (["UPDATE ledger_answer SET time = 'x' WHERE number = 4"], "at the stored answer to entry 4", 4),
        (["UPDATE ledger_answer SET found = 'x' WHERE number = 3"], "at the stored answer to entry 3", 3),
        (
            [f"UPDATE ledger_answer SET number = {number} WHERE number = {was}" for was, number in ((1, 5), (2, 1))],
            "at the stored answer to entry 5",
            1,
        ),
        (
            [f"UPDATE ledger_answer SET number = {number} WHERE number = {was}" for was, number in ((1, 5), (2, 1))],
            "at the stored answer to entry 5",
            2,
        ),
        (["DELETE FROM ledger_answer WHERE number = 2"], "after entry 2: a stored answer is missing", 2),
        (["DELETE FROM ledger_answer WHERE number = 4"], "after entry 5: a stored answer is missing", 4),
        (["DELETE FROM ledger_answer WHERE number = 6"], "after entry 6: a stored answer is missing", 6),
        (["DELETE FROM ledger_answer WHERE number = 6", LESS], "at entry 7", 6),
        (["DELETE FROM ledger_answer WHERE number = 4", *CLOSED_UP, LESS], "at the stored answer to entry 3", 4),
        (["DELETE FROM ledger_answer"], "after entry 1: a stored answer is missing", 3),
        (["DELETE FROM ledger_answer", "UPDATE ledger_dataset SET answers = 0"], "at entry 2", 3),
        (["UPDATE ledger_answer SET place = 0 WHERE number = 1"], "an answer has no place in it", 1),
        (["UPDATE ledger_answer SET entries = 6 WHERE number = 3"], "at", 3),
        (["UPDATE ledger_dataset SET head = 'x'"], "entries are missing", 5),
    ],
)
def test_a_changed_answer_is_found_and_never_handed_out_or_drawn_again(answered, ledger, changes, where, asked):
    behind_its_back(answered, *changes)
    with pytest.raises(LedgerError, match=f"the journal of 'people' is broken:? ?.*{where}"):
        ledger.verify()
    with pytest.raises(BrokenLedgerError):
        again(answered, asked)


def test_the_sentence_of_a_refusal_says_what_to_do(answered):
    behind_its_back(answered, HAVING.format(number=3, other=1), "DELETE FROM ledger_answer WHERE number = 6")
    with pytest.raises(
        BrokenLedgerError, match=r"answer to entry 3 does not fit .* nothing was charged; run 'sfumato led"
    ):
        again(answered, 3)
    with pytest.raises(BrokenLedgerError, match=r"entry 6, perhaps its answer, .* once more, and nothing was charged"):
        again(answered, 6)


def test_an_answer_that_was_made_to_fit_itself_does_not_fit_what_follows(answered, ledger):
    for number in (2, 4, 6):  # an entry follows, an answer, the last entry
        row = next(row for row in rows(answered) if row["number"] == number)
        told = (row["previous"], row["place"], row["number"], row["time"])
        forged = answer_hash(*told, bound=None, body=body(1))
        behind_its_back(
            answered,
            HAVING.format(number=number, other=1),
            f"UPDATE ledger_answer SET hash = '{forged}' WHERE number = {number}",
        )
        with pytest.raises(BrokenLedgerError):
            again(answered, number)
    with pytest.raises(BrokenLedgerError):
        ledger.verify()


def test_a_release_without_guarantee_is_not_made_again_either(url, ledger):
    for number in (1, 2):
        release(ledger, question(number), None, lambda: b"table", statement="2-anonymous", unit=ROW)
    unfreeze(url)
    behind_its_back(url, "DELETE FROM ledger_answer WHERE number = 1")
    with open_ledger(url, dataset="people", limit=None) as other, pytest.raises(BrokenLedgerError):
        release(other, question(1), None, pytest.fail, statement="2-anonymous", unit=ROW)


def test_answers_that_are_read_to_be_used_again_are_refused_as_well(answered, ledger):
    methods = [("query", "count")]
    assert len(ledger.answers(methods, "0", analyst=None)) == 5
    behind_its_back(answered, HAVING.format(number=2, other=1))
    with pytest.raises(BrokenLedgerError, match="answer to entry 2"):
        ledger.answers(methods, "0", analyst=None)


def test_an_answer_that_was_cut_off_at_the_end_is_found_by_a_hash_that_was_kept(answered, ledger):
    store(ledger, 5)
    kept, last = ledger.verify(), rows(answered)[-1]
    behind_its_back(
        answered,
        f"DELETE FROM ledger_answer WHERE place = {last['place']}",
        f"UPDATE ledger_dataset SET answers = answers - 1, head = '{last['previous']}'",
    )
    with pytest.raises(LedgerError, match="no longer holds"):
        ask(ledger, 7)
    with open_ledger(answered, dataset="people", limit=None) as other:
        other.verify()
        with pytest.raises(LedgerError, match="does not contain the kept hash"):
            other.verify(head=kept)


def test_a_look_at_the_end_finds_what_was_changed_since_the_last(answered, ledger):
    assert (ledger.check().number, ledger.check().answers) == (7, 5)
    store(ledger, 5)
    assert (ledger.check().answers, ledger.check().head) == (6, ledger.verify())
    behind_its_back(answered, HAVING.format(number=1, other=2))
    assert ledger.check().answers == 6  # verified answers are not read again
    behind_its_back(answered, HAVING.format(number=5, other=2))
    with pytest.raises(BrokenLedgerError, match="at the stored answer to entry 5"):
        ledger.check()


def test_what_is_left_of_one_that_died_is_computed_once_more_among_later_answers(answered, ledger):
    for _ in range(2):
        with open_ledger(answered, dataset="people", limit=None) as other:
            found = release(other, question(5), TENTH, lambda: body(5), statement="pure", unit=ROW)
            assert (found.answer, found.charged) == (body(5), False)
    assert [entry.kind for entry in ledger.journal()].count(Kind.RETRY) <= 1
    assert ledger.verified().answers == 6


@pytest.mark.parametrize("place", ["sqlite", "postgresql"])
def test_answers_of_an_earlier_version_are_bound_as_they_are_found(request, place):
    name = "saved" if place == "sqlite" else "saved_in_postgres"
    url = request.getfixturevalue(name)("fifth_revision")
    with open_ledger(url, dataset="old", limit=None) as ledger:
        whole = ledger.verified()
        assert (whole.answers, list(whole.bound_later.values())) == (1, [1])
        unfreeze(url)
        behind_its_back(url, "UPDATE ledger_answer SET body = body || body")
        with pytest.raises(BrokenLedgerError, match="at the stored answer to entry 3"):
            ledger.verify()
        *_, entry = ledger.journal()
        with pytest.raises(BrokenLedgerError, match="the stored answer to entry 3"):
            ledger.answers([("query", "count")], entry.question.dataset_version, analyst=None)
