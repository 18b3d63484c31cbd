"""What a release may still spend of the charge that it reserved."""

from __future__ import annotations

from fractions import Fraction

from sfumato.errors import BudgetError
from sfumato.privacy.accountant import Charge, total


class Purse:
    """A reserved charge that doors draw on, exactly and never beyond it.

    Where the reservation has a pure epsilon, that binds, and the rho that follows from it (epsilon^2 / 2) needs
    no looking at; a reservation of less rho than that holds the method to both.  Without a pure epsilon rho
    binds.  Delta binds always.
    """

    def __init__(self, reserved: Charge) -> None:
        self.reserved = reserved
        self._rho_binds = reserved.epsilon is None or reserved.rho < reserved.epsilon**2 / 2
        self._charges: list[Charge] = []
        self._epsilon = self._rho = self._delta = Fraction(0)

    @property
    def spent(self) -> Charge:
        """Everything taken out so far."""
        return total(self._charges)

    def spend(self, charge: Charge) -> None:
        """Take ``charge`` out, before the data is touched.

        Raises:
            BudgetError: it would exceed what was reserved; nothing is taken.
        """
        epsilon, rho, delta = self._epsilon, self._rho, self._delta  # what does not bind is not added up: it takes time
        fits = True
        if self.reserved.epsilon is not None:
            epsilon += charge.epsilon or 0
            fits = charge.epsilon is not None and epsilon <= self.reserved.epsilon
        if self._rho_binds:
            rho += charge.rho
            fits = fits and rho <= self.reserved.rho
        if charge.delta:
            delta += charge.delta
            fits = fits and delta <= self.reserved.delta
        if not fits:
            raise BudgetError("the method asked for more than it reserved; its losses must sum to the release's loss")
        self._charges.append(charge)
        self._epsilon, self._rho, self._delta = epsilon, rho, delta
