"""How much of an account is left, as a picture and in words."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.ledger import Account
from sfumato.privacy.loss import Epsilon


@dataclass(frozen=True)
class Gauge:
    """The share that is left, 0 to 1 (None: no limit), and the exact amounts in words."""

    share: float | None
    words: str


def gauge(account: Account) -> Gauge:
    """The gauge of an account."""
    if account.limit is None or account.left is None:
        return Gauge(None, "no cap of your own")
    spent = account.spent.epsilon if isinstance(account.limit, Epsilon) else account.spent.rho
    whole = account.left + (spent or 0)
    return Gauge(float(account.left / whole) if whole else 0.0, str(account))
