"""Privacy losses as exact numbers.

A loss is always stated for a *unit* (see :class:`sfumato.domain.Unit`) under the add/remove relation.
Numbers are kept as fractions: a string or an integer is taken as written, a float is read as the
shortest decimal that prints it, so ``0.1`` is one tenth.
"""

from __future__ import annotations

import operator
import re
import sys
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from sfumato.errors import LossError

Number: TypeAlias = int | float | str | Decimal | Fraction

_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # no "1_0", no digits of other scripts
_DIGITS = 1000
_SHOWN = 40
_DECIMALS = 6
_SHORT = 20  # characters of a fraction that a sentence may hold
_SMALL = -6  # exponent from which on numbers are written as 1e-7
_LARGEST = Fraction(10) ** 300  # of a loss: as a double it can be planned with, and an epsilon can be squared
_LARGEST_EPSILON = Fraction(10) ** 150


def exact(value: Number, *, name: str = "number") -> Fraction:
    """Read ``value`` as an exact fraction.

    Raises:
        LossError: not a number, NaN, infinite, or spelled with more than 1000 digits.

    >>> exact(0.1), exact("1/3"), exact("1e-6")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 1000000))
    """
    try:
        match value:
            case bool():
                number = None
            case float():
                number = Fraction(repr(float(value)))
            case str():
                number = _spelled(value)
            case Decimal():
                number = Fraction(value) if _short(value) else None
            case Fraction():
                number = value
            case _:
                number = Fraction(operator.index(value))
    except (TypeError, ValueError, OverflowError, ZeroDivisionError, InvalidOperation):
        number = None
    if number is None:
        raise LossError(f"{name} must be a finite number, not {_brief(value)!r}", culprit=value)
    return number


def _brief(value: object) -> str:
    """The beginning of what was handed over; Python does not spell integers of thousands of digits."""
    try:
        return str(value)[:_SHOWN]
    except ValueError:
        return "a number of thousands of digits"


@lru_cache(maxsize=1024)  # a server reads the same losses and edges again and again
def _spelled(text: str) -> Fraction | None:
    if "/" in text:
        return Fraction(text.strip()) if len(text) <= _DIGITS else None
    if not _PLAIN.fullmatch(text.strip()):
        return None
    decimal = Decimal(text)
    return Fraction(decimal) if _short(decimal) else None


def _short(number: Decimal) -> bool:
    """Whether the number is written out in reasonable space: "1e999999999" would fill the memory."""
    return number.is_finite() and abs(number.adjusted()) <= _DIGITS and len(number.as_tuple().digits) <= _DIGITS


def _positive(value: Number, name: str, *, most: Fraction) -> Fraction:
    number = exact(value, name=name)
    if number <= 0:
        raise LossError(f"{name} must be greater than zero, not {_brief(value)}", culprit=value)
    if not 1 / most <= number <= most:
        bound = f"{Decimal(most.numerator).adjusted()}"
        raise LossError(f"{name} must lie between 1e-{bound} and 1e{bound}, not {_brief(value)}", culprit=value)
    return number


@dataclass(frozen=True, order=True)
class Epsilon:
    """Pure differential privacy (Dwork, McSherry, Nissim, Smith 2006).

    >>> Epsilon("0.5") + Epsilon(0.1)
    Epsilon('0.6')
    >>> Epsilon(1) / 3
    Epsilon('1/3')
    """

    value: Fraction

    def __init__(self, value: Number) -> None:
        object.__setattr__(self, "value", _positive(value, "epsilon", most=_LARGEST_EPSILON))

    def __add__(self, other: Epsilon) -> Epsilon:
        return Epsilon(self.value + other.value)

    def __mul__(self, share: int | Fraction) -> Epsilon:
        return Epsilon(self.value * share)

    def __truediv__(self, parts: int | Fraction) -> Epsilon:
        return Epsilon(self.value / parts)

    def __repr__(self) -> str:
        return f"Epsilon({plain(self.value)!r})"

    def __str__(self) -> str:
        return f"epsilon = {plain(self.value)}"


@dataclass(frozen=True, order=True)
class Rho:
    """Zero-concentrated differential privacy (Bun and Steinke 2016).

    >>> Rho("0.25") * 2
    Rho('0.5')
    """

    value: Fraction

    def __init__(self, value: Number) -> None:
        object.__setattr__(self, "value", _positive(value, "rho", most=_LARGEST))

    def __add__(self, other: Rho) -> Rho:
        return Rho(self.value + other.value)

    def __mul__(self, share: int | Fraction) -> Rho:
        return Rho(self.value * share)

    def __truediv__(self, parts: int | Fraction) -> Rho:
        return Rho(self.value / parts)

    def __repr__(self) -> str:
        return f"Rho({plain(self.value)!r})"

    def __str__(self) -> str:
        return f"rho = {plain(self.value)}"


@dataclass(frozen=True)
class EpsilonDelta:
    """Approximate differential privacy, kept as zCDP inside and converted once, at the edge.

    >>> EpsilonDelta(1, "1e-9")
    EpsilonDelta('1', '1e-09')
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number) -> None:
        object.__setattr__(self, "epsilon", _positive(epsilon, "epsilon", most=_LARGEST_EPSILON))
        object.__setattr__(self, "delta", _positive(delta, "delta", most=_LARGEST))
        if self.delta >= 1:
            raise LossError(f"delta must be below one, not {delta}", culprit=delta)

    def __repr__(self) -> str:
        return f"EpsilonDelta({plain(self.epsilon)!r}, {plain(self.delta)!r})"

    def __str__(self) -> str:
        return f"epsilon = {plain(self.epsilon)}, delta = {plain(self.delta)}"


Loss: TypeAlias = Epsilon | Rho | EpsilonDelta


@lru_cache(maxsize=4096)
def plain(number: Fraction) -> str:
    """The shortest exact spelling: a decimal where there is one, otherwise ``numerator/denominator``.

    >>> plain(Fraction(1, 8)), plain(Fraction(1, 3)), plain(Fraction(4))
    ('0.125', '1/3', '4')
    """
    if number.denominator == 1 and abs(number) < 10**15:
        return str(number.numerator)
    if abs(number) <= sys.float_info.max and Fraction(repr(float(number))) == number:
        return repr(float(number))
    return f"{number.numerator}/{number.denominator}"


def decimals(number: Fraction, *, up: bool) -> str:
    """A spelling for people: exact where it is a decimal, otherwise rounded, with the fraction where that is short.

    Round down what is left and up what is spent, so that nobody counts on more than there is.

    >>> decimals(Fraction(1, 8), up=True), decimals(Fraction(311, 75), up=False), decimals(Fraction(1, 3), up=True)
    ('0.125', '4.14666 (311/75)', '0.333334 (1/3)')
    """
    spelled = plain(number)
    if "/" not in spelled:
        return spelled
    digits = Context(prec=_DECIMALS, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = digits.divide(Decimal(number.numerator), Decimal(number.denominator))
    text = f"{rounded:e}" if rounded.adjusted() < _SMALL else f"{rounded:f}"
    return f"{text} ({spelled})" if len(spelled) <= _SHORT else text
