"""Processes that ask a ledger at the same time, and may be killed while they do."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from tests.ledger.asking import ROW, TENTH, answered, question, release, reservation

from sfumato.errors import BudgetError, SfumatoError, VersionError
from sfumato.ledger import open_ledger
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.loss import Charge, Epsilon

ANALYSTS = ("ann", "bob", "cyd")
_PATIENCE = 300  # sixteen processes that start at once on a busy machine take more than a minute
chance = random.SystemRandom()


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except SfumatoError as error:
        return error


def ask_once(url: str, number: int, everybody: Barrier, results: Connection) -> None:
    """Open the ledger when all others do, release when all others do, and report what came of it."""
    try:
        everybody.wait(_PATIENCE)
        with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
            everybody.wait(_PATIENCE)
            results.send(type(outcome(lambda: answered(ledger, number))).__name__)
    except Exception as error:  # noqa: BLE001  # whatever it is, the test is to say it
        everybody.abort()  # nobody need wait for one who does not come
        results.send(f"{type(error).__name__}: {error}")
    results.close()


def release_first(url: str, content: str, everybody: Barrier, results: Connection) -> None:
    """Begin the ledger with the first release when all others do, and report what came of it."""
    late = Ledger(url, dataset="people", limit=Epsilon(1), create=True).declare_later(content, new=True)

    def first() -> None:
        with reservation(late, question(0, 1), TENTH, statement="pure", unit=ROW) as reserved:
            if reserved.answer is None:
                reserved.store(content.encode())

    everybody.wait(_PATIENCE)
    results.send((content, type(outcome(first)).__name__))
    results.close()


def declare_once(url: str, content: str, everybody: Barrier, results: Connection) -> None:
    """Declare a version when all others do, and report its number, or what came of it."""
    try:
        with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
            everybody.wait(_PATIENCE)
            found = outcome(lambda: ledger.declare_version(content, by="ann", new=False).number)
            results.send((content, found if isinstance(found, int) else type(found).__name__))
    except Exception as error:  # noqa: BLE001  # whatever it is, the test is to say it
        everybody.abort()
        results.send((content, f"{type(error).__name__}: {error}"))
    results.close()


def declare_and_release(url: str, delivered: Connection) -> None:
    """Declare the next version and release something of it, again and again, until killed."""
    charge = Epsilon("0.000001").charge
    with open_ledger(url, dataset="people", limit=None) as ledger:
        for turn in itertools.count():
            with suppress(VersionError):
                version = ledger.declare_version(secrets.token_hex(8), by="ann", new=True).number
                for number in (turn, turn, turn + 1):
                    asked = question(number, version)
                    found = release(ledger, asked, charge, compute, statement="pure", unit=ROW)
                    delivered.send((version, number, found.answer))


def declare_and_die(url: str, content: str) -> None:
    """Declare the next version, and die before anything is charged for it."""
    with open_ledger(url, dataset="people", limit=None) as ledger:
        ledger.declare_version(content, by="ann", new=True)
        os.kill(os.getpid(), signal.SIGKILL)


def price(number: int) -> Charge:
    """Return the charge of each question: 0.005 on average."""
    return Epsilon(f"0.00{number % 9 + 1}").charge


def compute() -> bytes:
    """Sixteen bytes that no second computation would give again, after as long as a count of rows takes.

    Kills, and others who ask for the same release, then come between its charge and its end.
    """
    time.sleep(chance.uniform(0, 0.02))
    return secrets.token_bytes(16)


def answer(ledger: Ledger, number: int, analyst: str) -> bytes:
    """The stored answer."""
    found = release(ledger, question(number), price(number), compute, statement="pure", unit=ROW, analyst=analyst)
    return found.stored()


def answer_before_it_is_stored(ledger: Ledger, number: int, analyst: str) -> bytes:
    """A mutant: hands out an answer that is not stored yet, as a kill here shows for certain."""
    known: list[bytes] = []

    def computed() -> bytes:
        known.append(compute())
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        terms = {"statement": "pure", "unit": ROW, "analyst": analyst, "noise_drawn": lambda: False}
        return release(ledger, question(number), price(number), computed, **terms).stored()
    return known[0]


def answer_on_credit(ledger: Ledger, number: int, analyst: str) -> bytes:
    """A mutant: charges every other question later, which a kill turns into never."""
    return answer(ledger, number, analyst) if secrets.randbits(1) else number.to_bytes(16, "big")


def deliver_forever(url: str, first: int, how: Callable[[Ledger, int, str], bytes], delivered: Connection) -> None:
    """Ask one question after the other, old ones in between, and deliver each answer to the parent, until killed.

    An old question is answered sooner than a new one, so that who is behind catches up, and several ask for each new
    release at about the same time.
    """
    with open_ledger(url, dataset="people", limit=None) as ledger:
        for newest in itertools.count(first):
            for number in (newest, chance.randrange(newest + 1)):
                analyst = chance.choice(ANALYSTS)
                with suppress(BudgetError):
                    delivered.send((number, analyst, how(ledger, number, analyst)))
