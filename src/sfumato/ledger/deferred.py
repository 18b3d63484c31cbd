"""A ledger that is opened, and made where there is none, by the first release that passes through it.

A request that turns out to be wrong before it reaches the ledger then leaves no file behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

from sfumato.errors import MissingLedgerError
from sfumato.ledger.entry import Receipt
from sfumato.ledger.ledger import Ledger, Terms, open_ledger
from sfumato.ledger.question import Question
from sfumato.privacy.accountant import Charge
from sfumato.privacy.loss import Loss


@dataclass(frozen=True)
class DeferredLedger:
    """The ledger of ``dataset`` at ``url``.

    ``limit`` must be the stored one, as for :func:`open_ledger`.  Without it, an existing ledger is taken as it
    is, and a new one gets ``limit_if_new``.
    """

    url: str
    dataset: str
    limit: Loss | None
    limit_if_new: Loss | None

    def open(self) -> Ledger:
        """Open the ledger, or make it."""
        try:
            return open_ledger(self.url, dataset=self.dataset, limit=self.limit)
        except MissingLedgerError:
            if self.limit_if_new is None:
                raise
        return open_ledger(self.url, dataset=self.dataset, limit=self.limit_if_new)

    def release(
        self, question: Question, charge: Charge | None, compute: Callable[[], bytes], **terms: Unpack[Terms]
    ) -> Receipt:
        """See :meth:`Ledger.release`."""
        with self.open() as ledger:
            return ledger.release(question, charge, compute, **terms)
