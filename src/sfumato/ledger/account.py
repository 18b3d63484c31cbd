"""An account: the most that may be spent, and what was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from sfumato.ledger.loss_codec import counted
from sfumato.privacy.accountant import Charge, Limit, admits, spendable_delta
from sfumato.privacy.conversion import as_rho
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, decimals


@dataclass(frozen=True)
class Account:
    """What was spent, and the most that may be: a dataset's limit, or an analyst's cap (None: no cap).

    >>> account = Account(Epsilon(1), Charge(Fraction(1, 4), Fraction(1, 32), Fraction(0)))
    >>> account.left, str(account)
    (Fraction(3, 4), 'epsilon = 0.75 left of epsilon = 1')
    """

    limit: Loss | None
    spent: Charge

    def admits(self, charge: Charge) -> bool:
        """Whether the charge still fits, decided exactly.

        Raises:
            LossError: the limit does not have the measure of the charge.
        """
        return self.limit is None or admits(self.limit, self.spent, charge)

    def charged(self, charge: Charge) -> Account:
        """The account after the charge, which is counted on the grid of :func:`~sfumato.ledger.loss_codec.counted`."""
        return replace(self, spent=counted(self.spent) + counted(charge))

    @property
    def left(self) -> Fraction | None:
        """What one more charge may cost: epsilon under an epsilon limit, otherwise rho; None without a limit."""
        match self.limit:
            case None:
                return None
            case Epsilon(value=value):
                left = value - (value if self.spent.epsilon is None else self.spent.epsilon)
            case Rho(value=value):
                left = value - self.spent.rho
            case EpsilonDelta():
                left = as_rho(self.limit).value - self.spent.rho
        return max(left, Fraction(0))

    @property
    def left_delta(self) -> Fraction | None:
        """What mechanisms may still spend as delta; None where the limit has no delta."""
        if not isinstance(self.limit, EpsilonDelta):
            return None
        return max(spendable_delta(self.limit) - self.spent.delta, Fraction(0))

    def __str__(self) -> str:
        if self.left is None or self.limit is None:
            return "no cap"
        if self.left_delta is None:
            measure = "epsilon" if isinstance(self.limit, Epsilon) else "rho"
            return f"{measure} = {decimals(self.left, up=False)} left of {self.limit}"
        assert isinstance(self.limit, EpsilonDelta)
        most, delta = as_rho(self.limit), spendable_delta(self.limit)
        return (
            f"rho = {decimals(self.left, up=False)} left of {most} "
            f"and delta = {decimals(self.left_delta, up=False)} left of {decimals(delta, up=False)} for thresholds, "
            f"as {self.limit} is kept"
        )


def in_words(limit: Limit, charge: Charge) -> str:
    """A charge in the measure in which ``limit`` adds up.

    >>> in_words(Epsilon(1), Charge(Fraction(1, 10), Fraction(1, 200), Fraction(0)))
    'epsilon = 0.1'
    """
    match limit:
        case Epsilon():
            return "epsilon = " + ("infinite" if charge.epsilon is None else decimals(charge.epsilon, up=True))
        case _:
            delta = f" and delta = {decimals(charge.delta, up=True)}" if charge.delta else ""
            return f"rho = {decimals(charge.rho, up=True)}{delta}"
