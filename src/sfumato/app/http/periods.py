"""A budget by months: declared when a dataset is registered, and kept as one sum over all of them.

The limit is then written as ``0.5 a month for 12 months``, or ``rho=0.1 a month for 24 months``.
The dataset's ledger has the sum as its limit, which never changes.  In the transaction that charges, a release is also
refused where what was spent would be more than the months begun so far allow: what earlier months left stays usable.
A month begins on the day of the month, and at the time, of the registration, in UTC.  A wrong clock can allow no more
than the sum, and one that is behind only refuses more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sfumato.app.requests.fields import limit_of
from sfumato.errors import BudgetError, LossError
from sfumato.ledger.account import Account
from sfumato.privacy.loss import Charge, Epsilon, Loss, Rho, decimals

_SPELLED = re.compile(r"(?P<limit>.+) a month for (?P<months>[1-9][0-9]{0,2}) months?", re.ASCII)


@dataclass(frozen=True)
class Periods:
    """A limit a month, for a number of months.

    >>> from datetime import UTC
    >>> periods = Periods(Epsilon("0.5"), 12)
    >>> periods.total, periods.begun(datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))
    (Epsilon('6'), 2)
    """

    each: Epsilon | Rho
    months: int

    @property
    def total(self) -> Loss:
        """The most that may ever be released: the limit of the ledger."""
        return self.each * self.months

    def begun(self, since: datetime, now: datetime) -> int:
        """How many months have begun; none where the clock is before the registration."""
        whole = 12 * (now.year - since.year) + now.month - since.month
        if (now.day, now.timetz()) < (since.day, since.timetz()):
            whole -= 1
        return min(max(whole + 1, 0), self.months)

    def left(self, account: Account, since: datetime, now: datetime) -> Fraction:
        """What the months begun so far still allow, in the measure of the limit."""
        spent = self.each.amount(account.spent)
        return Fraction(0) if spent is None else max(self.begun(since, now) * self.each.value - spent, Fraction(0))

    def refuse(self, account: Account, charge: Charge, since: datetime, now: datetime) -> None:
        """Refuse a charge that the months begun so far do not allow, however much is left of the sum.

        Raises:
            BudgetError: says how much they allow still.
        """
        after = self.each.amount(account.charged(charge).spent)
        begun = self.begun(since, now)
        if after is not None and after <= begun * self.each.value:
            return
        left = decimals(self.left(account, since, now), up=False)
        (measure,) = self.each.amounts
        raise BudgetError(
            f"{begun} of the {self.months} months of the budget have begun, which leaves {measure} = {left} now, and "
            f"this release asks for {self.each.in_words(charge)}; nothing was spent",
            culprit=charge,
        )

    def __str__(self) -> str:
        return f"{self.each} a month for {self.months} months"


def read_periods(limit: str) -> Periods | None:
    """The months that a dataset's limit declares; None where it declares none.

    Raises:
        LossError: months of what is neither epsilon nor rho, the losses that add up month by month; or months that
            are spelled otherwise.

    >>> read_periods("rho=0.5 a month for 3 months").total, read_periods("1,1e-9")
    (Rho('1.5'), None)
    """
    found = _SPELLED.fullmatch(limit.strip())
    if found is None and "month" in limit:
        raise LossError(
            "a limit by months is spelled '0.5 a month for 12 months' or 'rho=0.1 a month for 24 months', of 1 to 999 "
            "months"
        )
    if found is None:
        return None
    each = limit_of(found["limit"])
    if not isinstance(each, Epsilon | Rho):
        raise LossError("a limit a month is EPSILON or rho=RHO, as months of epsilon with delta do not add up to one")
    return Periods(each, int(found["months"]))


def total_of(limit: str) -> Loss | None:
    """The most that a dataset's limit comes to, over all the months that it declares.

    Raises:
        LossError: it is no limit.
    """
    found = read_periods(limit)
    return limit_of(limit) if found is None else found.total
