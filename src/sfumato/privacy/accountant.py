"""Accounting as a fold: what was charged adds up, and a filter says whether one more charge fits.

Every charge carries the exact amounts that the three measures need.  Pure epsilon adds (sequential
composition); rho adds (Bun and Steinke 2016, Lemma 1.7; with adaptively chosen losses: Whitehouse,
Ramdas, Rogers and Wu 2023, Theorem 1); delta adds.  A pure-epsilon event also has a rho, epsilon^2/2,
and may be charged to any ledger; a Gaussian event has no pure epsilon and is refused by a ledger that
promises one.

An (epsilon, delta) limit is kept as two limits, fixed when the ledger is opened: a rho, which converts to
epsilon at 99 % of delta, and the other 1 % of delta for what mechanisms spend as delta (stability
thresholds).  Whatever is chosen, in whatever order, is delta'-approximately rho-zCDP with both within
their limits (Whitehouse et al., as above), which is (epsilon, delta)-DP.  A share that depended on what
was spent would not be covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TypeAlias

from sfumato.errors import LossError
from sfumato.privacy.conversion import CONVERTED, as_rho, epsilon_of
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, decimals, plain

__all__ = ["Charge", "Limit", "admits", "charge_for", "guarantee", "spendable_delta", "total"]

Limit: TypeAlias = Loss

_SHOWN_DIGITS = 6


@dataclass(frozen=True)
class Charge:
    """What one event costs: ``epsilon`` is None where no finite pure epsilon holds.

    The event is delta-approximately rho-zCDP and, where ``epsilon`` is given, (epsilon, delta)-DP.

    >>> charge_for(Epsilon("0.1")) + charge_for(Epsilon("0.2"))
    Charge(epsilon=Fraction(3, 10), rho=Fraction(1, 40), delta=Fraction(0, 1))
    """

    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        amounts = (self.rho, self.delta) if self.epsilon is None else (self.epsilon, self.rho, self.delta)
        if any(amount.numerator < 0 for amount in amounts):
            raise LossError("a charge is never negative: what is spent is never refunded", culprit=self)

    def __add__(self, other: Charge) -> Charge:
        both = None if self.epsilon is None or other.epsilon is None else self.epsilon + other.epsilon
        return Charge(both, self.rho + other.rho, self.delta + other.delta)


NOTHING = Charge(Fraction(0), Fraction(0), Fraction(0))


@lru_cache(maxsize=1024)
def charge_for(loss: Loss) -> Charge:
    """The charge of an event of the given loss; (epsilon, delta) is taken as the zCDP that it admits.

    >>> charge_for(Rho("0.5"))
    Charge(epsilon=None, rho=Fraction(1, 2), delta=Fraction(0, 1))
    """
    match loss:
        case Epsilon(value=value):
            return Charge(value, value**2 / 2, Fraction(0))
        case Rho(value=value):
            return Charge(None, value, Fraction(0))
        case EpsilonDelta():
            return Charge(None, as_rho(loss).value, Fraction(0))


def spendable_delta(limit: EpsilonDelta) -> Fraction:
    """What thresholds may spend as delta under a limit: the part of its delta that no conversion uses."""
    return limit.delta * (1 - CONVERTED)


def total(charges: Iterable[Charge]) -> Charge:
    """Everything charged so far."""
    return reduce(Charge.__add__, charges, NOTHING)


def admits(limit: Limit, spent: Charge, charge: Charge) -> bool:
    """Whether ``charge`` still fits on top of ``spent`` under ``limit``, decided exactly.

    Raises:
        LossError: the limit promises a measure that the charge does not have at any size.
    """
    after = spent + charge
    match limit:
        case Epsilon(value=most):
            if charge.epsilon is None or charge.delta:
                raise LossError(
                    "this ledger promises pure epsilon and cannot take Gaussian noise or a delta; "
                    "use a pure mechanism or open a ledger with a (epsilon, delta) limit",
                    culprit=charge,
                )
            return after.epsilon is not None and after.epsilon <= most
        case Rho(value=most):
            if charge.delta:
                raise LossError("this ledger promises rho-zCDP and cannot take a delta", culprit=charge)
            return after.rho <= most
        case EpsilonDelta():
            return after.rho <= as_rho(limit).value and after.delta <= spendable_delta(limit)


def guarantee(spent: Charge, limit: Limit) -> str:
    """What ``spent`` amounts to in the measure of ``limit``, in words, rounded upward."""
    match limit:
        case Epsilon():
            return "epsilon = " + (decimals(spent.epsilon, up=True) if spent.epsilon is not None else "infinite")
        case Rho():
            return f"rho = {decimals(spent.rho, up=True)}"
        case EpsilonDelta(delta=delta):
            if not spent.rho:
                return f"epsilon = 0, delta = {plain(spent.delta)}"
            converted = epsilon_of(spent.rho, delta * CONVERTED)
            if spent.epsilon is not None and spent.epsilon < converted and spent.delta <= delta:
                return (
                    f"epsilon = {decimals(spent.epsilon, up=True)}, delta = {plain(spent.delta)} by adding up; "
                    f"of the limit rho = {decimals(spent.rho, up=True)}, which by itself would be "
                    f"epsilon = {_shown(converted)}, delta = {plain(delta)}"
                )
            return f"epsilon = {_shown(converted)}, delta = {plain(delta)}"


def _shown(number: Fraction) -> str:
    """Six digits, rounded upward."""
    up = Context(prec=_SHOWN_DIGITS, rounding=ROUND_CEILING)
    return f"{up.divide(Decimal(number.numerator), Decimal(number.denominator)).normalize(up):f}"
