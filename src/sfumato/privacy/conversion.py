"""Conversion of zCDP to (epsilon, delta) and back, rounded towards more loss.

A rho-zCDP release is (epsilon, delta)-DP for every alpha > 1 with ``delta = exp((alpha - 1) (alpha rho - epsilon)) /
(alpha - 1) * (1 - 1/alpha)^alpha`` (Canonne, Kamath and Steinke 2020, Proposition 12 with Corollary 13).  Solved for
epsilon, with x = alpha - 1:

    epsilon = (1 + x) rho + ln(x / (1 + x)) + ln(1 / ((1 + x) delta)) / x

*Any* x gives a true statement, so the search for x uses floating point, where an error costs tightness only (the
optimum is flat: a relative error h of x costs h^2).

The statement itself is then evaluated in decimal arithmetic with 50 digits, every operation rounded in the safe
direction.  The context rounds addition, multiplication and division correctly.  The standard library rounds ln and exp
correctly to nearest, so that the next number up (down) is a bound above (below).  (Python's minus sign would round;
``copy_negate`` does not.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from sfumato.bounded_cache import cached

_UP = Context(prec=50, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9)
_DOWN = Context(prec=50, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9)
_RHO_DIGITS = 12
_EPSILON_DIGITS = 15
CONVERTED = Fraction(99, 100)  # share of delta; a hundredth less costs about 0.1 % of rho at delta = 1e-9
_WIDEST = 700.0  # its exponential is still a double


@cached(4_000)
def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the smallest known epsilon for which rho-zCDP implies (epsilon, delta)-DP, rounded up to 15 digits.

    Args:
        rho: at least zero.
        delta: strictly between zero and one.

    >>> float(epsilon_of(Fraction(1, 2), Fraction(1, 10**6)))
    5.22153444453017
    """
    if not rho:
        return Fraction(0)
    target = _log(1 / delta)
    rate = _float(rho)
    # d epsilon / d x = 0 at rho x^2 + ln(1 + x) = ln(1 / delta); the left side grows with x.

    def falling(log_x: float) -> float:
        x = math.exp(log_x)
        return target - _softplus(log_x) - rate * x * x

    x = _x_of_log(_root(falling, target))
    alpha_up, alpha_down = _UP.add(1, x), _DOWN.add(1, x)
    ratio = _ln_up(_UP.divide(x, alpha_down))
    tail = _ln_down(_DOWN.multiply(alpha_down, _decimal(delta, _DOWN))).copy_negate()
    epsilon = _UP.add(_UP.multiply(alpha_up, _decimal(rho, _UP)), _UP.add(ratio, _UP.divide(tail, x)))
    return max(Fraction(0), Fraction(_rounded(epsilon, _EPSILON_DIGITS, ROUND_CEILING)))


@cached(4_000)
def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction | None:
    """Return the largest rho, rounded down to twelve digits, with ``epsilon_of(rho, delta) <= epsilon``.

    None if both are so small (some 1e-300) that floating point finds no alpha.

    >>> float(rho_within(Fraction(1), Fraction(1, 10**9)))
    0.0149730576735
    """
    target = _log(1 / delta)
    target_epsilon = _float(epsilon)

    def shortfall(log_x: float) -> float:
        # With rho = ln(1 / ((1 + x) delta)) / x^2 the formula is (1 + 2x) rho + ln(x / (1 + x)).
        x = math.exp(log_x)
        return (1 + 2 * x) / x * ((target - _softplus(log_x)) / x) - _softplus(-log_x) - target_epsilon

    x = _x_of_log(_root(shortfall, target))
    alpha_up = _UP.add(1, x)
    ratio = _ln_up(_UP.divide(x, _DOWN.add(1, x)))
    weight = _DOWN.multiply(_DOWN.add(1, x), _decimal(delta, _DOWN))
    tail = _UP.divide(_ln_down(weight).copy_negate(), x)
    left = _DOWN.subtract(_decimal(epsilon, _DOWN), _UP.add(ratio, tail))
    rho = _rounded(_DOWN.divide(left, alpha_up), _RHO_DIGITS, ROUND_FLOOR)
    if rho <= 0:
        return None
    while epsilon_of(Fraction(rho), delta) > epsilon:
        rho = _rounded(rho - Decimal((0, (1,), rho.adjusted() - _RHO_DIGITS + 1)), _RHO_DIGITS, ROUND_FLOOR)
    return Fraction(rho)


def _root(falling: Callable[[float], float], widest: float) -> float:
    """Return the zero of a falling function of ln x, by bisection, between -60 and ``widest``."""
    low, high = -60.0, min(widest, _WIDEST)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low


def _x_of_log(log_x: float) -> Decimal:
    return Decimal(repr(math.exp(log_x)))


def _softplus(value: float) -> float:
    """Return ln(1 + exp(value))."""
    return value + math.log1p(math.exp(-value)) if value > 0 else math.log1p(math.exp(value))


def _float(number: Fraction) -> float:
    """Return the nearest double, or infinity if there is none."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _log(number: Fraction) -> float:
    return math.log(number.numerator) - math.log(number.denominator)


def _decimal(number: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _ln_up(number: Decimal) -> Decimal:
    return _UP.next_plus(_UP.ln(number))


def _ln_down(number: Decimal) -> Decimal:
    return _DOWN.next_minus(_DOWN.ln(number))


def _rounded(number: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding, Emin=-(10**9), Emax=10**9).plus(number)
