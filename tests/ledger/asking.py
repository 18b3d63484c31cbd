"""What the tests of the ledger ask, and how they reach behind its back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from typing import Any

from sfumato.domain import Unit
from sfumato.ledger import Question, Receipt
from sfumato.ledger.entry import Answered
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Charge, Epsilon

ROW = Unit.row()
TENTH = Epsilon("0.1").charge
FROZEN = ("ledger_entry", "ledger_answer", "ledger_retry", "ledger_dataset", "service_action", "service_action_head")


def question(number: int = 0, version: int = 0) -> Question:
    return Question("query", "count", {"number": number}, str(version))


def ask(ledger: Ledger, number: int = 0, charge: Charge | None = TENTH, **terms: str | None) -> Receipt:
    return ledger.reserve(question(number), charge, statement="pure", unit=ROW, **terms)


def release(
    ledger: Ledger, asked: Question, charge: Charge | None, compute: Callable[[], bytes], **terms: Any
) -> Answered:
    """Reserve, compute if there is no stored answer, settle: what the vault does, around one function."""
    with ledger.releasing(asked, charge, **terms) as reserved:
        if reserved.answer is None:
            reserved.settle(compute())
    return reserved.answered()


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
