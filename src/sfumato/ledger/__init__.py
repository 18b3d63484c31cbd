"""The journal of everything released and its budget, in SQLite or PostgreSQL.

Entries are appended and never changed.  Entries and stored answers are one chain of hashes.  A ledger fixes its
measure, budget and unit when it is created, and adds charges on one grid, rounded up.  :mod:`reservation` has the rules
of a release: one transaction charges it, a second one stores its answer.  :mod:`audit_log` has the actions of data
owners in a chain of its own.

The ledger is loaded at its first use, because losses and entries need no library of a database.
"""

from typing import TYPE_CHECKING, Any

from sfumato.ledger.account import Account
from sfumato.ledger.entry import DataVersion, Entry, Event, Kind, Question, StoredAnswer
from sfumato.strict_documents import JSON

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger, open_ledger

__all__ = [
    "JSON",
    "Account",
    "DataVersion",
    "Entry",
    "Event",
    "Kind",
    "Ledger",
    "Question",
    "StoredAnswer",
    "open_ledger",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name in ("Ledger", "open_ledger"):
        from sfumato.ledger import ledger

        return getattr(ledger, name)
    raise AttributeError(f"module 'sfumato.ledger' has no attribute {name!r}")
