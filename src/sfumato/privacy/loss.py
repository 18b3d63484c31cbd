"""Privacy losses as exact numbers, their charges, and accounting as a fold over all charges.

A loss is always stated for a *unit* (see :class:`sfumato.domain.Unit`) under the add/remove relation. Numbers are
stored as fractions: a string or an integer is taken literally, a float is read as the shortest decimal that prints it,
so ``0.1`` is one tenth.

Every charge carries the exact amounts that the three measures need.  Pure epsilon adds (sequential composition).  Rho
adds (Bun and Steinke 2016, Lemma 1.7; with adaptively chosen losses: Whitehouse, Ramdas, Rogers and Wu 2023, Theorem
1).  Delta adds.  A pure-epsilon event also has a rho, epsilon^2/2, and may be charged to any ledger.  A Gaussian event
has no pure epsilon, so a ledger that promises one refuses it.

An (epsilon, delta) limit is stored as two limits, fixed when the ledger is opened: a rho, which converts to epsilon at
99 % of delta, and the other 1 % of delta for mechanisms that spend delta (stability thresholds).  Any choice of events
in any order is delta'-approximately rho-zCDP with both within their limits (Whitehouse et al., as above), which is
(epsilon, delta)-DP.  A share that depended on earlier spending would not be covered.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property, reduce
from typing import TypeAlias

from sfumato.bounded_cache import cached
from sfumato.errors import LossError
from sfumato.privacy.conversion import CONVERTED, epsilon_of, rho_within

Number: TypeAlias = int | float | str | Decimal | Fraction

_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # no "1_0", no digits of other scripts
_DIGITS = 1000
_QUOTED = 40
_DECIMALS = 6
_SHORT = 20  # characters of a fraction in a sentence
_SMALL = -6  # exponent from which on numbers are written as 1e-7
_LARGEST = Fraction(10) ** 300  # largest loss: it is a double, and an epsilon can be squared
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
            case str() if value.isascii() and value.isdigit() and len(value) <= _DIGITS:
                number = Fraction(int(value))
            case str():
                number = _parse_text(value)
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
    """Return the beginning of the argument; Python does not print integers of thousands of digits."""
    try:
        return str(value)[:_QUOTED]
    except ValueError:
        return "a number of thousands of digits"


@cached(lambda key, _: 500 + 2 * len(key[0]))  # a server reads the same losses and edges again and again
def _parse_text(text: str) -> Fraction | None:
    if "/" in text:
        return Fraction(text.strip()) if len(text) <= _DIGITS else None
    if not _PLAIN.fullmatch(text.strip()) or not _short(decimal := Decimal(text)):
        return None
    return Fraction(decimal)


def _short(number: Decimal) -> bool:
    """Return whether a number has a short decimal form: "1e999999999" would fill the memory."""
    return number.is_finite() and abs(number.adjusted()) <= _DIGITS and len(number.as_tuple().digits) <= _DIGITS


def _positive(value: Number, name: str, *, most: Fraction) -> Fraction:
    number = exact(value, name=name)
    if number <= 0:
        raise LossError(f"{name} must be greater than zero, not {_brief(value)}", culprit=value)
    if not 1 / most <= number <= most:
        bound = f"{Decimal(most.numerator).adjusted()}"
        raise LossError(f"{name} must lie between 1e-{bound} and 1e{bound}, not {_brief(value)}", culprit=value)
    return number


@cached(4_000)
def plain(number: Fraction) -> str:
    """Return the shortest exact text: a decimal if there is one, otherwise ``numerator/denominator``.

    >>> plain(Fraction(1, 8)), plain(Fraction(1, 3)), plain(Fraction(4))
    ('0.125', '1/3', '4')
    """
    if number.denominator == 1 and abs(number) < 10**15:
        return str(number.numerator)
    if abs(number) <= sys.float_info.max and Fraction(repr(float(number))) == number:
        return repr(float(number))
    return f"{number.numerator}/{number.denominator}"


def decimals(number: Fraction, *, up: bool) -> str:
    """Return a text for people: exact for a decimal, otherwise rounded, with the fraction if that is short.

    Round a remaining amount down and a spent amount up, so that readers never expect more than there is.

    >>> decimals(Fraction(1, 8), up=True), decimals(Fraction(311, 75), up=False), decimals(Fraction(1, 3), up=True)
    ('0.125', '4.14666 (311/75)', '0.333334 (1/3)')
    """
    exact_text = plain(number)
    if "/" not in exact_text:
        return exact_text
    digits = Context(prec=_DECIMALS, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = digits.divide(Decimal(number.numerator), Decimal(number.denominator))
    text = f"{rounded:e}" if rounded.adjusted() < _SMALL else f"{rounded:f}"
    return f"{text} ({exact_text})" if len(exact_text) <= _SHORT else text


@dataclass(frozen=True)
class Charge:
    """The privacy loss charged for one event; ``epsilon`` is None if no finite pure epsilon holds.

    The event is delta-approximately rho-zCDP and, if ``epsilon`` is given, (epsilon, delta)-DP.

    >>> Epsilon("0.1").charge + Epsilon("0.2").charge
    Charge(epsilon=Fraction(3, 10), rho=Fraction(1, 40), delta=Fraction(0, 1))
    """

    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        pure = self.epsilon
        if self.rho.numerator < 0 or self.delta.numerator < 0 or (pure is not None and pure.numerator < 0):
            raise LossError("a charge is never negative: what is spent is never refunded", culprit=self)

    def __add__(self, other: Charge) -> Charge:
        both = None if self.epsilon is None or other.epsilon is None else self.epsilon + other.epsilon
        return Charge(both, self.rho + other.rho, self.delta + other.delta if other.delta else self.delta)

    @property
    def charge(self) -> Charge:
        """The charge itself, so that a charge can be used like a loss."""
        return self

    @property
    def amounts(self) -> dict[str, Fraction | None]:
        """The exact numbers by name."""
        return {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}

    @property
    def promise(self) -> str:
        """The guarantee of an event of this charge, in words."""
        if self.epsilon is not None:
            return f"differential privacy with epsilon = {plain(self.epsilon)}, delta = {plain(self.delta)}"
        kind = f"{plain(self.delta)}-approximate " if self.delta else ""
        return f"{kind}zero-concentrated differential privacy with rho = {plain(self.rho)}"


NOTHING = Charge(Fraction(0), Fraction(0), Fraction(0))


def total(charges: Iterable[Charge]) -> Charge:
    """Return the sum of all charges."""
    return reduce(Charge.__add__, charges, NOTHING)


class Loss(ABC):
    """A privacy loss: of one event, or the limit for all events of a ledger (a privacy budget)."""

    @abstractmethod
    def as_rho(self) -> Rho:
        """Return the zCDP that the loss implies."""

    @property
    @abstractmethod
    def charge(self) -> Charge:
        """The charge of an event of this loss in every measure."""

    @property
    @abstractmethod
    def amounts(self) -> dict[str, Fraction]:
        """The exact numbers by name."""

    @property
    def divisible(self) -> Epsilon | Rho:
        """The loss in the measure in which a method divides it: pure epsilon unchanged, anything else as rho."""
        return self.as_rho()

    @property
    def most(self) -> Fraction:
        """The limit in the measure in which it adds up, epsilon or rho."""
        return self.as_rho().value

    @property
    def spendable_delta(self) -> Fraction | None:
        """The delta that thresholds may spend under this limit; None if it has no delta."""
        return None

    def amount(self, charge: Charge) -> Fraction | None:
        """Return a charge in the measure in which this limit adds up; None if it is not finite there."""
        return charge.rho

    @abstractmethod
    def admits(self, spent: Charge, charge: Charge) -> bool:
        """Return whether ``charge`` still fits on top of ``spent`` under this limit, decided exactly.

        Raises:
            LossError: the limit promises a measure that the charge does not have at any size.
        """

    def remedy(self, charge: Charge) -> str:  # noqa: ARG002
        """Return how to lower a charge against this limit at the same epsilon, in words; empty if there is no way."""
        return ""

    def in_words(self, charge: Charge) -> str:
        """Return a charge in the measure in which this limit adds up.

        >>> Epsilon(1).in_words(Epsilon("0.1").charge)
        'epsilon = 0.1'
        """
        delta = f" and delta = {decimals(charge.delta, up=True)}" if charge.delta else ""
        return f"rho = {decimals(charge.rho, up=True)}{delta}"

    def guarantee(self, spent: Charge) -> str:
        """Return ``spent`` in the measure of this limit, in words, rounded upward."""
        return self.in_words(spent)

    @property
    def promise(self) -> str:
        """The guarantee of an event of this loss, in words."""
        return f"differential privacy with {self}"

    @abstractmethod
    def advantage_bound(self) -> float:
        """The largest difference that any attack on one person can have between members and others."""

    def right_guesses(self) -> float:
        """Return the largest chance to guess a person's presence, which has even odds before: (1 + advantage) / 2."""
        return (1 + self.advantage_bound()) / 2


@dataclass(frozen=True, order=True)
class Epsilon(Loss):
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

    def as_rho(self) -> Rho:
        """Return half the square of epsilon (Bun and Steinke 2016, Proposition 1.4)."""
        return Rho(self.value**2 / 2)

    @cached_property
    def charge(self) -> Charge:
        """Epsilon, and the rho that it implies."""
        return Charge(self.value, self.value**2 / 2, Fraction(0))

    @property
    def amounts(self) -> dict[str, Fraction]:
        """Epsilon alone."""
        return {"epsilon": self.value}

    @property
    def divisible(self) -> Epsilon:
        """The loss itself."""
        return self

    @property
    def most(self) -> Fraction:
        """Epsilon itself."""
        return self.value

    def amount(self, charge: Charge) -> Fraction | None:
        """Return the pure epsilon of a charge."""
        return charge.epsilon

    def admits(self, spent: Charge, charge: Charge) -> bool:
        """Return whether the pure epsilons add up to at most this epsilon."""
        if charge.epsilon is None or charge.delta:
            raise LossError(
                "this ledger promises pure epsilon and can never take a delta or a rho; leave them out, or begin "
                f"another ledger with the limit {plain(self.value)},1e-9, which takes pure epsilon as well",
                culprit=charge,
            )
        return spent.epsilon is not None and spent.epsilon + charge.epsilon <= self.value

    def in_words(self, charge: Charge) -> str:
        """Return the pure epsilon of a charge."""
        return "epsilon = " + ("infinite" if charge.epsilon is None else decimals(charge.epsilon, up=True))

    def advantage_bound(self) -> float:
        """The bound (e^epsilon - 1)/(e^epsilon + 1) (Humphries et al. 2023, Theorem 3.1).

        >>> round(Epsilon(1).advantage_bound(), 4)
        0.4621
        """
        return math.tanh(float(self.value) / 2)


@dataclass(frozen=True, order=True)
class Rho(Loss):
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

    def as_rho(self) -> Rho:
        """Return the loss itself."""
        return self

    @cached_property
    def charge(self) -> Charge:
        """The rho, which implies no pure epsilon."""
        return Charge(None, self.value, Fraction(0))

    @property
    def amounts(self) -> dict[str, Fraction]:
        """Rho alone."""
        return {"rho": self.value}

    def admits(self, spent: Charge, charge: Charge) -> bool:
        """Return whether the rhos add up to at most this rho."""
        if charge.delta:
            raise LossError("this ledger promises rho-zCDP and cannot take a delta", culprit=charge)
        return spent.rho + charge.rho <= self.value

    @property
    def promise(self) -> str:
        """The words for zero-concentrated differential privacy."""
        return f"zero-concentrated differential privacy with {self}"

    def advantage_bound(self) -> float:
        """Return the total variation under KL <= rho: the smaller of Pinsker's and of Bretagnolle and Huber's bound."""
        return min(math.sqrt(float(self.value) / 2), math.sqrt(-math.expm1(-float(self.value))))


@dataclass(frozen=True)
class EpsilonDelta(Loss):
    """Approximate differential privacy, stored as zCDP and converted once, at the edge.

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

    def as_rho(self) -> Rho:
        """Return the rho that represents it: its conversion at 99 % of delta stays within epsilon.

        Raises:
            LossError: epsilon and delta are so small (some 1e-300) that floating point finds no conversion.
        """
        rho = rho_within(self.epsilon, self.delta * CONVERTED)
        if rho is None:
            raise LossError(f"{self} is too small to be kept as zCDP", culprit=self)
        return Rho(rho)

    @cached_property
    def charge(self) -> Charge:
        """The charge of the zCDP that represents it."""
        return Charge(None, self.as_rho().value, Fraction(0))

    @property
    def amounts(self) -> dict[str, Fraction]:
        """The epsilon and the delta."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    @property
    def spendable_delta(self) -> Fraction:
        """The part of delta that no conversion uses."""
        return self.delta * (1 - CONVERTED)

    def admits(self, spent: Charge, charge: Charge) -> bool:
        """Return whether the rhos and the deltas each stay within their part of this limit."""
        return spent.rho + charge.rho <= self.as_rho().value and spent.delta + charge.delta <= self.spendable_delta

    def guarantee(self, spent: Charge) -> str:
        """Return the epsilon of the spent rho at this delta, or the sum of pure epsilons if that is less."""
        if not spent.rho:
            return f"epsilon = 0, delta = {plain(spent.delta)}"
        converted = epsilon_of(spent.rho, self.delta * CONVERTED)
        if spent.epsilon is not None and spent.epsilon < converted and spent.delta <= self.delta:
            return (
                f"epsilon = {decimals(spent.epsilon, up=True)}, delta = {plain(spent.delta)} by adding up; "
                f"of the limit rho = {decimals(spent.rho, up=True)}, which by itself would be "
                f"epsilon = {_six_digits(converted)}, delta = {plain(self.delta)}"
            )
        return f"epsilon = {_six_digits(converted)}, delta = {plain(self.delta)}"

    def remedy(self, charge: Charge) -> str:
        """Return a sentence that a delta makes a pure epsilon cheaper, with both rhos; empty for other charges.

        >>> EpsilonDelta(1, "1e-9").remedy(Epsilon(2).charge)
        'Epsilon = 2 without a delta counts as rho = 2; with a delta of 1e-09 it asks for rho = 0.0561005 (375 %)'
        """
        if not (pure := charge.epsilon) or charge.delta:
            return ""
        cheaper = EpsilonDelta(pure, self.delta).as_rho()
        sentence = f"Epsilon = {decimals(pure, up=True)} without a delta counts as {self.in_words(charge)}; "
        sentence += f"with a delta of {plain(self.delta)} it asks for rho = {_six_digits(cheaper.value)}"
        return f"{sentence} ({math.ceil(100 * cheaper.value / self.most):,} %)" if cheaper.value < charge.rho else ""

    @property
    def promise(self) -> str:
        """The words for approximate differential privacy, and the zCDP that represents it."""
        return f"differential privacy with {self} (as zCDP with rho = {float(self.as_rho().value):.6g})"

    def advantage_bound(self) -> float:
        """The bound (e^epsilon - 1 + 2 delta)/(e^epsilon + 1) (Humphries et al. 2023, Theorem 3.1)."""
        half = math.tanh(float(self.epsilon) / 2)
        return min(1.0, half + float(self.delta) * (1 - half))


def _six_digits(number: Fraction) -> str:
    """Round upward to six digits."""
    up = Context(prec=_DECIMALS, rounding=ROUND_CEILING)
    return f"{up.divide(Decimal(number.numerator), Decimal(number.denominator)).normalize(up):f}"
