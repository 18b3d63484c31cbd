"""What a release may still spend of the charge that it reserved."""

from __future__ import annotations

from sfumato.errors import BudgetError
from sfumato.privacy.accountant import NOTHING, Charge


class Purse:
    """A reserved charge that doors draw on, exactly and never beyond it.

    Where the reservation has a pure epsilon, that is what binds (its rho follows from it); otherwise rho
    does.  Delta binds always.
    """

    def __init__(self, reserved: Charge) -> None:
        self.reserved = reserved
        self.spent = NOTHING

    def spend(self, charge: Charge) -> None:
        """Take ``charge`` out, before the data is touched.

        Raises:
            BudgetError: it would exceed what was reserved; nothing is taken.
        """
        after = self.spent + charge
        if self.reserved.epsilon is None:
            fits = after.rho <= self.reserved.rho
        else:
            fits = after.epsilon is not None and after.epsilon <= self.reserved.epsilon
        if not fits or after.delta > self.reserved.delta:
            raise BudgetError("the method asked for more than it reserved; its losses must sum to the release's loss")
        self.spent = after
