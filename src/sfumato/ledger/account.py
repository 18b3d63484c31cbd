"""Accounts: limits and spent losses, as exact amounts, as text, and as integers.

:attr:`Account.guarantee` states the guarantee of all releases of an account together.  The database checks each
account by the integers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module

from sfumato.bounded_cache import cached
from sfumato.domain import Unit
from sfumato.domain.document import parse_unit
from sfumato.errors import BudgetError, InputError, LedgerError, LossError, UnitError
from sfumato.notebook_html import html_table
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, EpsilonDelta, Loss, Rho, decimals
from sfumato.strict_documents import canonical

PICO = 10**12
ATTO = 10**18
# Accounts add up multiples of 1 / GRID.  Decimals of 18 places and their shares by up to a hundred are exact on it.
GRID = 10**18 * math.lcm(*range(1, 101))
MOST = 2**63 - 1  # the largest integer that both databases hold
_LISTED = 5  # entries in a sentence


@dataclass(frozen=True)
class Account:
    """A spent loss under a maximum: a dataset's limit, or an analyst's cap (None: no cap).

    ``exact`` holds the numbers of the entries whose releases have no differential privacy.  They spend nothing of the
    limit, but they void the guarantee of all releases together.

    >>> account = Account(Epsilon(1), Charge(Fraction(1, 4), Fraction(1, 32), Fraction(0)))
    >>> account.left, str(account), account.guarantee
    (Fraction(3, 4), 'epsilon = 0.75 left of epsilon = 1', 'epsilon = 0.25')
    >>> Account(account.limit, account.spent, exact=(3,)).guarantee
    'none: 1 release has no differential privacy (entry 3); the others together: epsilon = 0.25'
    """

    limit: Loss | None
    spent: Charge
    exact: tuple[int, ...] = ()

    def admits(self, charge: Charge) -> bool:
        """Return whether the charge still fits, decided exactly.

        Raises:
            LossError: the limit does not have the measure of the charge.
        """
        return self.limit is None or self.limit.admits(self.spent, charge)

    def charged(self, charge: Charge) -> Account:
        """Return the account after the charge, which is added on the grid of :func:`on_grid`."""
        return replace(self, spent=on_grid(self.spent) + on_grid(charge))

    @property
    def left(self) -> Fraction | None:
        """The largest charge that still fits: epsilon under an epsilon limit, otherwise rho; None without a limit."""
        if self.limit is None:
            return None
        spent = self.limit.amount(self.spent)
        return Fraction(0) if spent is None else max(self.limit.most - spent, Fraction(0))

    @property
    def share_left(self) -> Fraction | None:
        """The share of the limit that is left, in its own measure; None without a limit.

        >>> Account(Epsilon(1), Charge(Fraction(1, 4), Fraction(1, 32), Fraction(0))).share_left
        Fraction(3, 4)
        """
        if self.limit is None or self.left is None:
            return None
        return self.left / self.limit.most if self.limit.most else Fraction(0)

    @property
    def left_delta(self) -> Fraction | None:
        """The delta that mechanisms may still spend; None if the limit has no delta."""
        if self.limit is None or self.limit.spendable_delta is None:
            return None
        return max(self.limit.spendable_delta - self.spent.delta, Fraction(0))

    @property
    def guarantee(self) -> str:
        """The guarantee of all releases of the account together, in words; losses are rounded up."""
        return f"none: {self.why_none}" if self.exact else self._protected

    @property
    def why_none(self) -> str:
        """The releases without differential privacy, and the guarantee of the others together; empty without any."""
        others = "" if self.spent == NOTHING else f"; the others together: {self._protected}"
        return f"{self.without_privacy}{others}" if self.exact else ""

    @property
    def _protected(self) -> str:
        return self.spent.promise if self.limit is None else self.limit.guarantee(self.spent)

    @property
    def without_privacy(self) -> str:
        """The releases without differential privacy, with the numbers of their entries."""
        number, listed = len(self.exact), ", ".join(map(str, self.exact[:_LISTED]))
        entries = f"entry {listed}" if number == 1 else f"entries {listed}"
        more = f" and {number - _LISTED:,} more" if number > _LISTED else ""
        return f"{number:,} release{' has' if number == 1 else 's have'} no differential privacy ({entries}{more})"

    def _repr_html_(self) -> str:
        table = html_table((), [("Guarantee", self.guarantee), ("Left", str(self))], labels=1)
        left = self.share_left
        if left is None:
            return table
        drawing = import_module("sfumato.report.drawing")  # by name, because pages import the ledger
        bar = drawing.budget_bar(drawing.BudgetShares(float(1 - left), 0.0, 0.0, float(left)))
        return f'<div style="max-width:380px">{bar}</div>{table}'

    def __str__(self) -> str:
        left = self._left_in_words
        return f"{left}; {self.without_privacy}" if self.exact else left

    @property
    def _left_in_words(self) -> str:
        if self.left is None or self.limit is None:
            return "no cap"
        delta = self.limit.spendable_delta
        if self.left_delta is None or delta is None:
            (measure,) = self.limit.amounts
            return f"{measure} = {decimals(self.left, up=False)} left of {self.limit}"
        return (
            f"rho = {decimals(self.left, up=False)} left of {self.limit.as_rho()} "
            f"and delta = {decimals(self.left_delta, up=False)} left of {decimals(delta, up=False)} for thresholds, "
            f"as {self.limit} is kept"
        )


def loss_text(loss: Loss) -> str:
    """Return a loss as canonical JSON with exact fractions.

    >>> loss_text(Epsilon("0.1")), loss_text(EpsilonDelta(1, "1e-9"))
    ('{"epsilon":"1/10"}', '{"delta":"1/1000000000","epsilon":"1"}')
    """
    return canonical({name: str(amount) for name, amount in loss.amounts.items()})


@contextmanager
def refuse_damaged(what: str) -> Iterator[None]:
    """Raise a :class:`LedgerError` if a stored value cannot be read, because another program changed it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, LossError, InputError) as error:
        raise LedgerError(
            f"the ledger holds {what} that cannot be read, so it was changed or damaged; restore it from a copy"
        ) from error


def loss_from(text: str) -> Loss:
    """Read the result of :func:`loss_text`.

    Raises:
        LedgerError: another program wrote it.
    """
    with refuse_damaged("a limit or a cap"):
        match json.loads(text):
            case {"epsilon": epsilon, "delta": delta}:
                return EpsilonDelta(epsilon, delta)
            case {"rho": rho}:
                return Rho(rho)
            case fields:
                return Epsilon(fields["epsilon"])


def charge_text(charge: Charge) -> list[str | None]:
    """Return epsilon (None if there is no pure epsilon), rho and delta as exact fractions."""
    return [None if charge.epsilon is None else str(charge.epsilon), str(charge.rho), str(charge.delta)]


@cached(8_000)  # without it, verifying a journal takes 31 % more CPU time (240 entries)
def charge_from(epsilon: str | None, rho: str, delta: str) -> Charge:
    """Read the result of :func:`charge_text`.

    Raises:
        LedgerError: another program wrote it.
    """
    with refuse_damaged("an amount"):
        return Charge(None if epsilon is None else Fraction(epsilon), Fraction(rho), Fraction(delta))


def on_grid(charge: Charge) -> Charge:
    """Return a charge with each amount rounded up to the grid on which accounts add up.

    Sums of exact amounts could take ever more digits.  An analyst who chooses a new denominator for each question
    would make the account unusable for all others.

    >>> on_grid(Charge(Fraction(1, 3), Fraction(1, 18), Fraction(0)))
    Charge(epsilon=Fraction(1, 3), rho=Fraction(1, 18), delta=Fraction(0, 1))
    >>> odd = Fraction(1, 10**27 + 7)
    >>> 0 < on_grid(Charge(None, odd, Fraction(0))).rho - odd < Fraction(1, GRID)
    True
    """
    pure, rho, delta = None if charge.epsilon is None else _up(charge.epsilon), _up(charge.rho), _up(charge.delta)
    if pure is charge.epsilon and rho is charge.rho and delta is charge.delta:
        return charge
    return Charge(pure, rho, delta)


def _up(amount: Fraction) -> Fraction:
    return amount if GRID % amount.denominator == 0 else Fraction(math.ceil(amount * GRID), GRID)


def unit_text(unit: Unit) -> str:
    """Return a unit as canonical JSON: its kind, its id column, and its bounds on rows, in all and by groups.

    >>> unit_text(Unit("patient", rows=3))
    '{"id":"patient","kind":"id","rows":3}'
    """
    if unit.column is None:
        return canonical({"kind": "row"})
    per = {bound.name: bound.describe() for bound in unit.per}
    of = {} if unit.schema is None else {"schema": unit.schema}
    return canonical({"kind": "id", "id": unit.column, "rows": unit.rows, **({"per": per} if per else {}), **of})


@cached()  # without it, verifying a journal takes 14 % more CPU time (240 entries)
def unit_from(text: str) -> Unit:
    """Read the result of :func:`unit_text`.

    Raises:
        LedgerError: another program wrote it.
    """
    with refuse_damaged("a unit"):
        fields = json.loads(text)
        return parse_unit("row" if fields["kind"] == "row" else fields)


def refuse_unit(recorded: Unit | None, stated: Unit | None) -> None:
    """Refuse to add up losses of different units.

    Raises:
        UnitError: one is the row and the other an id, or they are different ids, or of different tables or schemas.
    """
    if (
        recorded is not None
        and stated is not None
        and (recorded.column, recorded.schema) != (stated.column, stated.schema)
    ):
        raise UnitError(
            f"the ledger adds up losses for {recorded}, and not for {stated}; name the same unit, or a ledger of "
            "its own",
            culprit=stated,
        )


def refuse_beyond_limit(account: Account, charge: Charge) -> None:
    """Refuse a charge that exceeds the whole limit, before any work for it.

    No stored answer has such a charge, so no repetition of a release is refused.

    Raises:
        BudgetError: the charge is larger than the limit.
        LossError: the limit does not have the measure of the charge.
    """
    if not replace(account, spent=NOTHING).admits(charge):
        refuse_unaffordable(account, charge, "the ledger")


def refuse_unaffordable(account: Account, charge: Charge, whose: str) -> None:
    """Refuse a charge that does not fit, in the measure of the limit.

    Raises:
        BudgetError: the charge does not fit; the message has the rest of the budget.
    """
    if account.limit is None or account.admits(charge):
        return
    limit, remedy, delta = account.limit, account.limit.remedy(charge), account.left_delta
    which = "" if delta is None or charge.delta <= delta else ", of which the delta does not fit"
    shares = _shares_in_words(account, charge, "your cap" if whose == "your cap" else "the budget")
    raise BudgetError(
        f"{shares}{whose} has {account}, and this release asks for {limit.in_words(charge)}{which}; nothing was spent"
        + (f". {remedy}" if remedy else ""),
        culprit=charge,
    )


def _shares_in_words(account: Account, charge: Charge, what: str) -> str:
    """Return the beginning of a sentence: the share of the limit that a charge needs, and the share that is left.

    It is empty if the charge does not fit for another reason, such as its delta.

    >>> _shares_in_words(Account(Epsilon(2), Epsilon(1).charge), Epsilon(5).charge, "the budget")
    'this release needs 250 % of the budget, and 50 % is left: '
    """
    limit, left = account.limit, account.share_left
    needed = None if limit is None else limit.amount(charge)
    if limit is None or left is None or needed is None or not limit.most or needed <= left * limit.most:
        return ""
    needs, rest = math.ceil(100 * needed / limit.most), math.floor(100 * left)
    return f"this release needs {needs:,} % of {what}, and {rest} % is left: "


def spent_units(limit: Loss, spent: Charge) -> tuple[int, int]:
    """Return a spent loss in the measure of ``limit`` in units of 1e-12, and its delta in units of 1e-18.

    Both are rounded down, so that the database's check never refuses what fits exactly; ``admits`` decides.

    >>> spent_units(Epsilon(1), Charge(Fraction(1, 3), Fraction(1, 18), Fraction(0)))
    (333333333333, 0)
    """
    amount = limit.amount(spent)
    if amount is None:
        return MOST, 0
    return _floor(amount, PICO), _floor(spent.delta, ATTO)


def _floor(amount: Fraction, times: int) -> int:
    """Return a multiple of an amount, rounded down.  Products of fractions are slower, because they reduce."""
    return min(amount.numerator * times // amount.denominator, MOST)


def limit_units(limit: Loss) -> tuple[int, int]:
    """Return the largest values that :func:`spent_units` may have, rounded up."""
    return min(math.ceil(limit.most * PICO), MOST), math.ceil((limit.spendable_delta or 0) * ATTO)
