"""The journal of everything released, and the budget that it keeps, in SQLite or PostgreSQL."""

from sfumato.ledger.account import Account
from sfumato.ledger.entry import Answered, Entry, Kind, Receipt
from sfumato.ledger.ledger import Ledger, open_ledger
from sfumato.ledger.question import JSON, Question

__all__ = ["JSON", "Account", "Answered", "Entry", "Kind", "Ledger", "Question", "Receipt", "open_ledger"]
