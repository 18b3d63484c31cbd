"""Stored answers as links of the journal's chain of hashes, and what is refused where one was changed or is gone.

Entries and answers of a dataset are one chain, in the order in which they were written.  Each has the hash of whatever
came before it, entry or answer, and the dataset's row has that of the last one.  An answer that is made with its charge
follows its entry at once; one that is stored later follows whatever was entered meanwhile.  It says how many entries
there were then, and counts the answers in its ``place``, so that the order can be told from the rows.

Answers of ledgers that knew no such chain follow one another behind the last entry, as they were found when the tables
were brought up to date, and say when that was: nobody can tell whether they were changed before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sfumato.errors import BrokenLedgerError
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import answer_hash

UNBOUND = "SELECT 1 FROM ledger_answer WHERE dataset = :dataset AND place < 1 LIMIT 1"
PAGE = 200  # answers that are read at a time, with their bodies
LINK = """answer.number, answer.place, answer.entries, answer.time, answer.found, answer.previous, answer.hash,
    answer.body, following.entries, following.previous, succeeding.previous"""
FOLLOWERS = """
    LEFT JOIN ledger_answer AS following
    ON following.dataset = answer.dataset AND following.place = answer.place + 1
    LEFT JOIN ledger_entry AS succeeding
    ON succeeding.dataset = answer.dataset AND succeeding.number = answer.entries + 1"""


def unchanged(link: tuple[Any, ...], head: str) -> bytes:
    """The body of an answer that is to be handed out, unless the chain does not go through it.

    Args:
        link: its row and what is bound to it: the columns of :data:`LINK`.
        head: of the dataset.

    Raises:
        BrokenLedgerError: it, or what follows it, was changed.
    """
    number, place, entries, time, found, previous, hash_, body, next_entries, next_previous, entry_previous = link
    bound = next_previous if next_entries == entries else head if entry_previous is None else entry_previous
    if hash_ != bound or hash_ != _hash((previous, place, number, time, found, body)):
        raise BrokenLedgerError(
            f"the stored answer to entry {number} does not fit the ledger's chain of hashes any more: it, or what was "
            "written after it, was changed by other hands; it is not handed out and nothing was charged; run 'sfumato "
            "ledger verify', and restore the ledger from a copy",
            culprit=number,
        )
    assert isinstance(body, bytes)
    return body


def refuse_lost(driver: Driver, name: str, number: int, head: str) -> None:
    """Refuse to take a release for unanswered where something is missing that was written since it was charged.

    Raises:
        BrokenLedgerError: the chain does not go on from its entry to the head.
    """
    query = """
    SELECT number, previous, hash FROM ledger_entry WHERE dataset = :dataset AND number >= :number ORDER BY number"""
    (_, _, reached), *entries = driver.rows(query, {"dataset": name, "number": number})
    answers = list(_places_since(driver, name, number))  # the next one stands last
    for at, (_, previous, hash_) in enumerate([*entries, (None, head, head)], start=number):
        while answers and answers[-1][0] == at:
            _, bound, made = answers.pop()
            reached = made if bound == reached else None
        reached = hash_ if previous == reached else None
    if answers or reached != head:
        raise BrokenLedgerError(
            f"something is missing from the ledger that was written after entry {number}, perhaps its answer, so that "
            "it is not computed once more, and nothing was charged; run 'sfumato ledger verify', and restore the "
            "ledger from a copy",
            culprit=number,
        )


def _places_since(driver: Driver, name: str, number: int) -> Iterator[tuple[int, str, str]]:
    """Of each answer stored since an entry, the last first: how many entries there were then, and its two hashes."""
    query = """
    SELECT place, entries, previous, hash FROM ledger_answer WHERE dataset = :dataset AND place < :place
    ORDER BY place DESC LIMIT :most"""
    place = 1 << 62
    while page := driver.rows(query, {"dataset": name, "place": place, "most": PAGE}):
        for _, entries, previous, hash_ in page:
            if entries < number:
                return
            yield entries, previous, hash_
        place = page[-1][0]


def answers_after(driver: Driver, name: str, place: int) -> Iterator[dict[str, Any]]:
    """The rows of answers behind a place of the chain, in their order, page by page."""
    query = """
    SELECT * FROM ledger_answer WHERE dataset = :dataset AND place > :place ORDER BY place LIMIT :most"""
    while page := driver.records(query, {"dataset": name, "place": place, "most": PAGE}):
        yield from page
        place = page[-1]["place"]


def follows(row: dict[str, Any], place: int, previous: str) -> bool:
    """Whether an answer is the one of a place, and bound to what comes before it there."""
    number, time, found, body = row["number"], row["time"], row["found"], row["body"]
    bound = (row["place"], row["previous"]) == (place, previous)
    return bound and row["hash"] == _hash((previous, place, number, time, found, body))


def _hash(told: tuple[Any, ...]) -> str | None:
    """The hash that a stored answer has to have; None where somebody else wrote its row."""
    previous, place, number, time, found, body = told
    spelled = isinstance(previous, str) and isinstance(time, str) and isinstance(body, bytes)
    return answer_hash(previous, place, number, time, found=found, body=body) if spelled else None
