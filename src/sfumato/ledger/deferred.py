"""A ledger that is opened, and made where there is none, by the first release that passes through it.

A request that turns out to be wrong before it reaches the ledger then leaves no file behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

from sfumato.domain import Unit
from sfumato.errors import InputError, MissingLedgerError
from sfumato.ledger.account import Account
from sfumato.ledger.entry import Receipt
from sfumato.ledger.ledger import Ledger, Terms, held, open_ledger
from sfumato.ledger.question import Question
from sfumato.ledger.reservation import afford
from sfumato.privacy.accountant import NOTHING, Charge
from sfumato.privacy.loss import Loss


@dataclass(frozen=True)
class DeferredLedger:
    """The ledger of ``dataset`` at ``url``.

    ``limit`` must be the stored one, as for :func:`open_ledger`.  Without it, an existing ledger is taken as it
    is, and a new one gets ``limit_if_new``.  None is made unless ``create`` says so, and then there must be none:
    whoever goes on saying so would begin a fresh budget on the day on which the ledger is lost.  A ledger that keeps
    other datasets only is not new either: a name that was mistyped would be a fresh budget for the same table.
    """

    url: str
    dataset: str
    limit: Loss | None
    limit_if_new: Loss | None
    create: bool = False

    def open(self, unit: Unit | None = None) -> Ledger:
        """Open the ledger, or make it for losses of a unit."""
        try:
            return open_ledger(self.url, dataset=self.dataset, limit=self.limit, unit=unit, create=self.create)
        except MissingLedgerError:
            if self.limit_if_new is None or not self.create:
                raise
        return open_ledger(self.url, dataset=self.dataset, limit=self.limit_if_new, unit=unit, create=True)

    def refuse_missing(self) -> None:
        """Refuse now what the release would refuse after a long search: no ledger, or one where none is to be.

        Raises:
            LedgerError: there is none, or no limit to make one with; or the one that is there cannot be opened.
            InputError: one is to be made, and is there already.
        """
        if not self.create:
            open_ledger(self.url, dataset=self.dataset, limit=self.limit).close()
        elif held(self.url, self.dataset):
            raise InputError(
                f"there is a ledger of {self.dataset!r} already; leave out --create, which begins a new one",
                culprit=self.url,
            )
        elif self.limit is None and self.limit_if_new is None:
            raise InputError(
                "to begin a ledger, name with --limit the most that may ever be released", culprit=self.url
            )

    def _refuse_beyond(self, charge: Charge | None) -> None:
        """Refuse what a new ledger could never take, before it is made with a limit that stays."""
        if charge is not None and self.limit is not None:
            afford(Account(self.limit, NOTHING), charge, "a new ledger")

    def release(
        self,
        question: Question,
        charge: Charge | None,
        compute: Callable[[], bytes],
        *,
        drawn: Callable[[], bool] = lambda: True,
        **terms: Unpack[Terms],
    ) -> Receipt:
        """See :meth:`Ledger.release`."""
        self._refuse_beyond(charge)
        with self.open(terms.get("unit")) as ledger:
            return ledger.release(question, charge, compute, drawn=drawn, **terms)
