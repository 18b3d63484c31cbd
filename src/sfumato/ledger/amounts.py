"""Exact amounts as text, and as the integers that the database checks for itself."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import LossError
from sfumato.ledger.question import canonical
from sfumato.privacy.accountant import Charge, Limit, concentrated, spendable_delta
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho

PICO = 10**12
ATTO = 10**18
MOST = 2**63 - 1  # the largest integer that both databases hold
_LONGEST = 10**1000  # Python refuses to print integers of more than 4300 digits


def loss_text(loss: Loss) -> str:
    """A loss as canonical JSON with exact fractions.

    >>> loss_text(Epsilon("0.1")), loss_text(EpsilonDelta(1, "1e-9"))
    ('{"epsilon":"1/10"}', '{"delta":"1/1000000000","epsilon":"1"}')
    """
    match loss:
        case Epsilon(value=value):
            return canonical({"epsilon": str(value)})
        case Rho(value=value):
            return canonical({"rho": str(value)})
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return canonical({"epsilon": str(epsilon), "delta": str(delta)})


@lru_cache(maxsize=256)
def loss_from(text: str) -> Loss:
    """Read what :func:`loss_text` wrote."""
    match json.loads(text):
        case {"epsilon": epsilon, "delta": delta}:
            return EpsilonDelta(epsilon, delta)
        case {"rho": rho}:
            return Rho(rho)
        case fields:
            return Epsilon(fields["epsilon"])


def charge_text(charge: Charge) -> list[str | None]:
    """Epsilon (None where there is no pure epsilon), rho and delta as exact fractions."""
    return [None if charge.epsilon is None else str(charge.epsilon), str(charge.rho), str(charge.delta)]


def charge_from(epsilon: str | None, rho: str, delta: str) -> Charge:
    """Read what :func:`charge_text` wrote."""
    return Charge(None if epsilon is None else _fraction(epsilon), _fraction(rho), _fraction(delta))


@lru_cache(maxsize=1024)  # what one transaction writes, the next one reads
def _fraction(text: str) -> Fraction:
    return Fraction(text)


def add(spent: Charge, charge: Charge) -> Charge:
    """Their sum, as long as it can be written down.

    Raises:
        LossError: fractions with ever new denominators have added up to more than a thousand digits.
    """
    after = spent + charge
    parts = (after.epsilon or Fraction(0), after.rho, after.delta)
    if any(part.denominator > _LONGEST for part in parts):
        raise LossError("the sum of all losses has more than a thousand digits; state the loss as a short decimal")
    return after


def spent_units(limit: Limit, spent: Charge) -> tuple[int, int]:
    """What the measure of ``limit`` counts, in 1e-12, and delta, in 1e-18, rounded down.

    Rounded down, so that the database's check never refuses what fits exactly; ``admits`` decides.

    >>> spent_units(Epsilon(1), Charge(Fraction(1, 3), Fraction(1, 18), Fraction(0)))
    (333333333333, 0)
    """
    amount = spent.epsilon if isinstance(limit, Epsilon) else spent.rho
    if amount is None:
        return MOST, 0
    return min(math.floor(amount * PICO), MOST), min(math.floor(spent.delta * ATTO), MOST)


def limit_units(limit: Limit) -> tuple[int, int]:
    """The most that :func:`spent_units` may come to, rounded up."""
    match limit:
        case Epsilon(value=value) | Rho(value=value):
            return min(math.ceil(value * PICO), MOST), 0
        case EpsilonDelta():
            rho, delta = concentrated(limit).value, spendable_delta(limit)
            return min(math.ceil(rho * PICO), MOST), math.ceil(delta * ATTO)
