"""The journal of everything released, and the budget that it keeps, in SQLite or PostgreSQL.

The ledger itself is loaded when it is first named: what is said of a loss or an entry needs no database's library.
"""

from typing import TYPE_CHECKING, Any

from sfumato.ledger.account import Account
from sfumato.ledger.entry import DataVersion, Entry, Event, Kind, Question, StoredAnswer
from sfumato.strict_documents import JSON

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger
    from sfumato.ledger.opening import DeferredLedger, open_ledger

__all__ = [
    "JSON",
    "Account",
    "DataVersion",
    "DeferredLedger",
    "Entry",
    "Event",
    "Kind",
    "Ledger",
    "Question",
    "StoredAnswer",
    "open_ledger",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name in ("DeferredLedger", "Ledger", "open_ledger"):
        from sfumato.ledger import opening

        return getattr(opening, name)
    raise AttributeError(f"module 'sfumato.ledger' has no attribute {name!r}")
