"""Processes are killed at random while they ask: nothing is lost, nothing is free, no cap is passed."""

from __future__ import annotations

import time
from collections import defaultdict
from fractions import Fraction

import pytest
from tests.ledger.asking import ROW, question, release, spent_epsilon
from tests.ledger.racing_processes import (
    ANALYSTS,
    answer,
    answer_before_it_is_stored,
    answer_on_credit,
    chance,
    deliver_forever,
    price,
)
from tests.processes import processes

from sfumato.ledger import Kind, open_ledger
from sfumato.privacy.loss import Epsilon

CHILDREN = 3
CAPPED = ANALYSTS[:2]


class Child:
    """A process that delivers answers, and the answers that arrived from it in full."""

    def __init__(self, *task, what=deliver_forever):
        context = processes()
        self.pipe, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=what, args=(*task, sender))
        self.process.start()
        sender.close()

    def kill(self):
        assert self.pipe.poll(120)  # it is at work
        time.sleep(chance.uniform(0, 0.05))
        self.process.kill()
        self.process.join()
        arrived = []
        try:
            while True:
                arrived.append(self.pipe.recv())
        except (EOFError, OSError):  # the end, or a message that the kill cut in two
            self.pipe.close()
        assert arrived
        return arrived


def kill_loop(url, kills, how, *, enough=lambda _delivered: False):
    """Everything that was delivered while children died, from a budget that runs out meanwhile.

    Ends before all kills were made when ``enough`` says so of what was delivered.
    """
    limit = Epsilon(Fraction(kills, 40))
    with open_ledger(url, dataset="people", limit=limit, create=True) as ledger:
        for analyst in CAPPED:
            ledger.set_cap(analyst, limit / 2)
    delivered, children = [], [Child(url, 0, how) for _ in range(CHILDREN)]
    for _ in range(kills - CHILDREN):
        if enough(delivered):
            break
        victim = chance.randrange(CHILDREN)
        delivered += children[victim].kill()
        children[victim] = Child(url, max(number for number, _, _ in delivered), how)
    for child in children:
        delivered += child.kill()
    return delivered


def faults(url, delivered):
    """Return the faults of the journal, given the delivered answers."""
    with open_ledger(url, dataset="people", limit=None) as ledger:
        ledger.verify()
        entries = [entry for entry in ledger.journal() if entry.kind is not Kind.CAP]
        failed = {entry.event.details["release"] for entry in entries if entry.kind is Kind.FAILED}
        released = [entry for entry in entries if entry.kind is Kind.RELEASE]
        standing = [entry for entry in released if entry.number not in failed]
        charged, spent = sum((entry.charge.epsilon for entry in released), Fraction(0)), spent_epsilon(ledger)
        shown = {(entry.question.parameters["number"], entry.analyst) for entry in entries}
        answers, caps = defaultdict(set), ledger.caps()
        for number, _, body in delivered:
            answers[number].add(body)
        retried = {entry.question.parameters["number"] for entry in entries if entry.kind is Kind.RETRY}
        stored = {
            number: stored_answer(ledger, number, free=number not in retried)
            for number in (entry.question.parameters["number"] for entry in standing)
        }
        checks = {
            "delivered but not in the journal": all((n, analyst) in shown for n, analyst, _ in delivered),
            "released twice": len({entry.question for entry in standing}) == len(standing),
            "the sum of the journal is not what was spent": charged == spent,
            "the limit is passed": charged <= ledger.limit.value,
            "a cap is passed": all(caps[analyst].spent.epsilon <= caps[analyst].limit.value for analyst in CAPPED),
            "two answers to one question": all(answers[n] <= {body} for n, body in stored.items()),
        }
        ledger.verify()
    return {fault for fault, fine in checks.items() if not fine}


def on_credit(delivered):
    """Return whether many answers were delivered without a charge, apart from the few that other clients paid for."""
    return sum(body == number.to_bytes(16, "big") for number, _, body in delivered) > 30


def contradictory(delivered):
    """Return whether two answers to one question were delivered."""
    return len({(number, body) for number, _, body in delivered}) > len({number for number, _, _ in delivered})


def stored_answer(ledger, number, *, free):
    """The stored answer; a release that is pending after one death is completed, and must be free."""
    found = release(ledger, question(number), price(number), lambda: b"completed", statement="pure", unit=ROW)
    assert not (free and found.charged)
    return found.answer


def test_killed_writers_lose_nothing_and_get_nothing_free(url):
    delivered = kill_loop(url, 15, answer)
    assert len(delivered) >= 15
    assert faults(url, delivered) == set()


@pytest.mark.slow
def test_many_killed_writers_lose_nothing_and_get_nothing_free(url):
    assert faults(url, kill_loop(url, 500, answer)) == set()


def test_the_loop_catches_a_mutant_that_answers_on_credit(url):
    delivered = kill_loop(url, 40, answer_on_credit, enough=on_credit)
    assert "delivered but not in the journal" in faults(url, delivered)


def test_the_loop_catches_a_mutant_that_hands_out_before_it_stores(url):
    delivered = kill_loop(url, 40, answer_before_it_is_stored, enough=contradictory)
    assert faults(url, delivered) == {"two answers to one question"}
