"""The errors that Sfumato raises on purpose.

    SfumatoError
    ├── InputError              an argument is wrong: nothing was touched, nothing spent
    │   ├── DomainError         the description of the data is wrong, incomplete or still a draft
    │   ├── TableError          the table cannot be read, or does not fit its description
    │   ├── LossError           a privacy parameter that is not a finite positive number
    │   ├── QueryError          a query outside the closed language of queries
    │   ├── RetryKeyError       a retry key that belongs to another query
    │   ├── SizeError           the computation would not fit in memory
    │   ├── MissingExtraError   it needs an optional part of the installation
    │   └── ReportError         local reports that are corrupt, or belong to another spec
    ├── BudgetError             the ledger refuses the charge: nothing was touched, nothing spent
    ├── LedgerError             the journal cannot be read, written or trusted
    │   ├── MissingLedgerError  there is none yet, and no limit was given to create one
    │   ├── NoLedgerError       the file is no ledger
    │   ├── OtherDatasetsError  the ledger has other datasets, and no limit was given to add one
    │   ├── LimitError          the ledger has another limit than the given one
    │   ├── UnitError           the ledger adds up losses of another unit than the stated one
    │   ├── VersionError        the tables, or the query, are of another version than the last declared one
    │   ├── BrokenLedgerError   another program changed or damaged the ledger
    │   └── MovedLedgerError    the ledger was moved, deleted, replaced or set back while it was open
    ├── EngineError             the engine failed on its side (connection lost, permission missing)
    └── InfeasibleError         no release can meet the request

The server and its client have further subclasses in ``app``.

A message is one sentence: what is wrong, where, and what to do.  It never contains a value of the protected table.  The
attribute ``culprit`` is the object at fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction

_NUMBER = r"[0-9.]+(?:e-?[0-9]+)?"
_DELTA = re.compile(  # as losses are written; a label of a table may have the word delta
    rf"((?:(?:\bepsilon|\brho)(?: =)? {_NUMBER}(?: left of rho = {_NUMBER})?(?:,| and| at) delta(?: =)? "
    r"|\bwith a delta of |--delta )[0-9.]+e-)0"
)
_NO_FRACTION = 1e15  # from here on, a double has no digit after its point
_ROUNDED = 1e-6  # of a step: the error of a double, which moves no end of an interval


class SfumatoError(Exception):
    """The root of the tree.  ``exit_code`` is the exit status of the command line for it."""

    exit_code = 1

    def __init__(self, message: str, *, culprit: object = None) -> None:
        super().__init__(message)
        self.culprit = culprit


class InputError(SfumatoError):
    """An argument is wrong; nothing was touched and nothing was spent."""

    exit_code = 2


class DomainError(InputError):
    """The description of the data is wrong, incomplete, or still a draft."""


class TableError(InputError):
    """The table cannot be read or does not fit its description."""


class LossError(InputError):
    """A privacy parameter that is not a finite positive number, or two that cannot be combined."""


class QueryError(InputError):
    """A query outside the closed language of queries.

    Attributes:
        statements: working statements similar to the refused one, the nearest first.  The message has them, too.
    """

    def __init__(self, message: str, *, culprit: object = None, statements: Sequence[str] = ()) -> None:
        super().__init__(message, culprit=culprit)
        self.statements = tuple(statements)


class RetryKeyError(InputError):
    """A retry key that belongs to another query."""


class SizeError(InputError):
    """The computation would not fit in memory; the message has its size and an alternative."""


class MissingExtraError(InputError):
    """The request needs an optional part of the installation; the message has the command that installs it."""


class BudgetError(SfumatoError):
    """The ledger refuses the charge; nothing was touched and nothing was spent."""

    exit_code = 3


class LedgerError(SfumatoError):
    """The journal cannot be read, written or trusted."""


class MissingLedgerError(LedgerError):
    """There is no ledger of that name yet, and no limit was given to create one."""

    exit_code = 2


class NoLedgerError(LedgerError):
    """The path is no ledger, but a folder or another file."""

    exit_code = 2


class OtherDatasetsError(LedgerError):
    """The ledger has other datasets than the named one, and no limit was given for another budget."""

    exit_code = 2


class LimitError(LedgerError):
    """The ledger has another limit than the given one; a limit never changes."""

    exit_code = 2


class UnitError(LedgerError):
    """The ledger adds up losses of another unit; a loss per row does not bound a loss per person."""

    exit_code = 2


class VersionError(LedgerError):
    """The tables or the query are of another version than the last declared one; nothing was charged."""

    exit_code = 2


class MovedLedgerError(LedgerError):
    """The ledger was moved, deleted, replaced or set back while it was open; nothing was charged."""


class BrokenLedgerError(LedgerError):
    """Another program changed the journal, or an answer stored with it; nothing was released."""


class EngineError(SfumatoError):
    """The engine failed on its side."""


class InfeasibleError(SfumatoError):
    """No release can meet the request; the message names the nearest possible request."""


class ReportError(InputError):
    """Local reports that are corrupt, or were made under another spec."""


def pluralize(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural unless the number is one.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(0, "class")
    ('1 row', '2,000 rows', '0 classes')
    """
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def budget_percent(share: Fraction | float, *, up: bool) -> str:
    """Return a share of a budget in percent, rounded up or down; below 10 % and above 90 % with one decimal.

    >>> budget_percent(0.7604, up=True), budget_percent(0.2396, up=False), budget_percent(0.25, up=True)
    ('77 %', '23 %', '25 %')
    """
    exact = share if isinstance(share, Fraction) else Fraction(share).limit_denominator(10**9)
    tenths = 1 if Fraction(1, 10) <= exact <= Fraction(9, 10) else 10
    rounded = Fraction((math.ceil if up else math.floor)(100 * tenths * exact), tenths)
    return f"{float(rounded):g} %"


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.918), percent(0.02), percent(0.0001), percent(0.0)
    ('91.8 %', '2 %', 'below 0.1 %', '0 %')
    """
    if 0 < share < 0.0005:  # noqa: PLR2004  (it would round to zero)
        return "below 0.1 %"
    return f"{round(100 * share, 1):g} %"


def digits(number: float, comma: str = "") -> str:
    """Return a number to six digits, and all digits before the point of a larger one.

    >>> digits(0.1234567), digits(1013184.2), digits(1013184.2, ",")
    ('0.123457', '1013184', '1,013,184')
    """
    large = 1e6 <= abs(number) < _NO_FRACTION  # noqa: PLR2004
    return f"{number:{comma}.0f}" if large else f"{number:{comma}.6g}"


def interval_digits(estimate: float, low: float, high: float, comma: str = "") -> tuple[str, str, str]:
    """Return an estimate and the ends of its interval to two digits of half the interval.  The ends round outward.

    >>> interval_digits(38.584, 38.5592, 38.6088)
    ('38.584', '38.559', '38.609')
    >>> interval_digits(41.3051, 17, 90), interval_digits(32561.4, 32281, 32841, ",")
    (('41', '17', '90'), ('32,560', '32,280', '32,850'))
    >>> interval_digits(37, 37, 37)
    ('37', '37', '37')
    >>> interval_digits(-0.3, -20, 20), interval_digits(2e15, 1.2345678e15, 3.4567891e15)
    (('0', '-20', '20'), ('2e+15', '1.23456e+15', '3.45679e+15'))
    """
    half = (high - low) / 2
    if half <= 0 and abs(estimate) < _NO_FRACTION:
        return digits(estimate, comma), digits(low, comma), digits(high, comma)
    if not half < _NO_FRACTION or abs(estimate) >= _NO_FRACTION:  # also NaN
        return digits(estimate, comma), _end_digits(low, ROUND_FLOOR, comma), _end_digits(high, ROUND_CEILING, comma)
    places = 1 - math.floor(math.log10(half))  # after the point
    up, down = 10.0 ** max(places, 0), 10.0 ** max(-places, 0)  # a negative power of ten has no exact double
    ends = math.floor(low * up / down + _ROUNDED) * down / up, math.ceil(high * up / down - _ROUNDED) * down / up
    numbers = [each + 0.0 for each in (round(estimate, places), *ends)]  # -0.0 becomes 0.0
    decimals = 0 if all(each == round(each) for each in numbers) else max(places, 0)
    first, second, third = (f"{each:{comma}.{decimals}f}" for each in numbers)
    return first, second, third


def _end_digits(number: float, rounding: str, comma: str) -> str:
    """Return an end of an interval to six digits, rounded as stated."""
    if not math.isfinite(number):
        return digits(number, comma)
    return digits(float(Context(prec=6, rounding=rounding).create_decimal_from_float(number)), comma)


def short_deltas(text: str) -> str:
    """Return a text for people with each delta of a loss as they write it.  Ledger, files and JSON have Python's form.

    >>> short_deltas("epsilon = 1, delta = 1e-09; add --delta 2.5e-07")
    'epsilon = 1, delta = 1e-9; add --delta 2.5e-7'
    >>> short_deltas("rho 0.1, delta 1e-09 for SELECT COUNT(*) FROM t WHERE wave = 'delta 1e-07'")
    "rho 0.1, delta 1e-9 for SELECT COUNT(*) FROM t WHERE wave = 'delta 1e-07'"
    """
    return _DELTA.sub(r"\1", text)
