"""Questions for the tests of the ledger, and changes to its database without the ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from typing import Any

from sfumato.domain import Unit
from sfumato.ledger import Event, Kind, Question
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.reservation import Reservation
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Charge, Epsilon

ROW = Unit.row()
TENTH = Epsilon("0.1").charge
FROZEN = ("ledger_entry", "ledger_answer", "ledger_retry", "ledger_dataset", "service_action", "service_action_head")


def question(number: int = 0, version: int = 0) -> Question:
    return Question("query", "count", {"number": number}, str(version))


class UnansweredError(Exception):
    """Leaves a reservation without an answer."""


def ask(ledger: Ledger, number: int = 0, charge: Charge | None = TENTH, **terms: Any) -> Reservation:
    return reserve(ledger, question(number), charge, **{"statement": "pure", "unit": ROW} | terms)


def reserve(ledger: Ledger, asked: Question, charge: Charge | None, **terms: Any) -> Reservation:
    """Charge for a release, and leave it as it is, before any noise is drawn for it."""
    with suppress(UnansweredError), reservation(ledger, asked, charge, noise_drawn=lambda: False, **terms) as reserved:
        if reserved.answer is None:
            raise UnansweredError
    return reserved


def answered(ledger: Ledger, number: int = 0, *, answer: bytes = b"x", **terms: Any) -> Reservation:
    return release(ledger, question(number), TENTH, lambda: answer, statement="pure", unit=ROW, **terms)


def release(
    ledger: Ledger, asked: Question, charge: Charge | None, compute: Callable[[], bytes], **terms: Any
) -> Reservation:
    """Charge for a release, compute it if there is no stored answer, and store it, as the vault does."""
    with reservation(ledger, asked, charge, **terms) as reserved:
        if reserved.answer is None:
            reserved.store(compute())
    return reserved


def reservation(
    ledger: Ledger,
    asked: Question,
    charge: Charge | None,
    *,
    statement: str,
    unit: Unit | None = None,
    analyst: str | None = None,
    details: Any = None,
    **terms: Any,
) -> Any:
    event = Event(Kind.RELEASE, asked, charge, analyst, statement, details, unit)
    return ledger.reserve(event, **terms)


def spent_epsilon(ledger: Ledger) -> Fraction | None:
    return ledger.remaining().spent.epsilon


def behind_its_back(url: str, *statements: str) -> None:
    """Run SQL on the ledger's database, with nothing in the way."""
    with closing(Store(url)) as store, store.writing() as connection:
        for statement in statements:
            connection.run(statement)


def unfreeze(url: str) -> None:
    """Take away the triggers that keep the journal append-only."""
    if not url.startswith("sqlite"):
        behind_its_back(url, *(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in FROZEN))
        return
    with closing(Store(url)) as store, store.reading() as connection:
        triggers = connection.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    behind_its_back(url, *(f"DROP TRIGGER {name}" for (name,) in triggers))
