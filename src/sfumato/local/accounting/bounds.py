"""Integer proofs about ``e^epsilon``: no floating-point number ever vouches for a privacy loss."""

from __future__ import annotations

import math
from fractions import Fraction

from sfumato.errors import LossError
from sfumato.privacy.enclosure import exp_enclosure
from sfumato.privacy.loss import Number, exact, plain

DENOMINATOR = 1 << 64
"""Every probability of a randomizer is an integer numerator over this."""

CEILING = Fraction(32)
"""No randomizer claims more: at epsilon = 32 a report lies once in 10^13, which protects nobody, and above it
the rarest outcome has too few of the 2^64 steps left to be represented to six digits."""

FLOOR = Fraction(1, 10**9)
"""No randomizer claims less: even at this epsilon, 10^18 reports leave an estimate as uncertain as none."""

_BITS = 384
_DECIMALS = 10**12
_SHOWN = 20


def claimed(epsilon: Number) -> Fraction:
    """Read the epsilon that a local spec claims.

    Raises:
        LossError: not a finite number from 1e-9 to 32; see :data:`FLOOR` and :data:`CEILING` for why.

    >>> claimed(0.5)
    Fraction(1, 2)
    """
    value = exact(epsilon, name="epsilon")
    if value <= 0:
        raise LossError(f"epsilon must be greater than zero, not {plain(value)}", culprit=epsilon)
    if value < FLOOR:
        raise LossError(
            f"epsilon must be at least {plain(FLOOR)}, not {str(epsilon)[:_SHOWN]}: below that a report says nothing",
            culprit=epsilon,
        )
    if value > CEILING:
        raise LossError(
            f"epsilon must be at most {CEILING}, not {plain(value)}: above that a local report is the value itself",
            culprit=epsilon,
        )
    return value


def exp_below(epsilon: Fraction) -> Fraction:
    """A rational lower bound on ``e^epsilon``, correct to about 100 digits.

    >>> float(exp_below(Fraction(1)))
    2.718281828459045
    """
    _, high = exp_enclosure(epsilon, _BITS)
    return Fraction(1 << _BITS, high)


def proven(ratio: Fraction) -> Fraction:
    """The least epsilon of twelve decimals for which integers show ``ratio <= e^epsilon``.

    >>> proven(Fraction(3)), proven(Fraction(1))
    (Fraction(1098612288669, 1000000000000), Fraction(0, 1))
    """
    if ratio <= 1:
        return Fraction(0)
    guess = math.log1p(float(ratio - 1)) if ratio < 2 else math.log(ratio.numerator) - math.log(ratio.denominator)  # noqa: PLR2004
    steps = max(0, math.floor(guess * _DECIMALS) - 1)
    while exp_below(Fraction(steps, _DECIMALS)) < ratio:
        steps += 1
    return Fraction(steps, _DECIMALS)
