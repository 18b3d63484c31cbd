"""Budgets in words for people: the share that is left, the largest loss that fits, and what a refusal leaves to do."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Context
from fractions import Fraction
from typing import Any

from sfumato.app.api.questions import LossFields, limit_of
from sfumato.errors import BudgetError, LossError, SfumatoError, budget_percent, short_deltas
from sfumato.ledger import Account
from sfumato.privacy.conversion import CONVERTED, epsilon_of
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, decimals, plain
from sfumato.query.aggregates import ExpectedError
from sfumato_server.problems import ApprovalNeededError, BudgetUsedUpError, RetiredError
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import parse_monthly_budget
from sfumato_server.service import Service
from sfumato_server.tables import ServedDataset

_DIGITS = 3
_FACTORS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
_MANY = 3
_LEAST_SHARE = Fraction(1, 1000)


def loss_words(loss: Loss) -> str:
    """Return a loss as its parameters with their values.

    >>> loss_words(EpsilonDelta("0.5", "1e-9"))
    'epsilon 0.5, delta 1e-9'
    """
    return ", ".join(f"{name} {number_text(amount)}" for name, amount in loss.amounts.items())


def number_text(amount: Fraction) -> str:
    """Return an amount as a form takes it.

    >>> number_text(Fraction(1, 10**9))
    '1e-9'
    """
    return plain(amount).replace("e-0", "e-")


def set_delta(limit: Loss) -> str:
    """Return the delta that a budget sets for each question of a form; empty if it sets none."""
    return number_text(limit.delta) if isinstance(limit, EpsilonDelta) else ""


def left_words(account: Account) -> str:
    """Return the rest of a budget as a share, for an epsilon alone also as an amount, and releases without privacy.

    >>> left_words(Account(Epsilon(2), Epsilon("0.5").charge))
    '75 % left of epsilon 2 (epsilon 1.5)'
    >>> left_words(Account(EpsilonDelta(2, "1e-9"), EpsilonDelta(1, "1e-9").charge))
    '73 % left of epsilon 2, delta 1e-9'
    >>> left_words(Account(Epsilon(1), Epsilon(1).charge))
    'nothing left of epsilon 1'
    >>> left_words(Account(Epsilon(2), Epsilon(1).charge, exact=(3,)))
    '50 % left of epsilon 2 (epsilon 1); 1 release has no differential privacy (entry 3)'
    """
    words = _share_words(account)
    return f"{words}; {account.without_privacy}" if account.exact else words


def _share_words(account: Account) -> str:
    limit, share = account.limit, account.share_left
    if limit is None or share is None:
        return "no cap"
    total = loss_words(limit)
    if not share:
        return f"nothing left of {total}"
    amount = largest_loss(account) if isinstance(limit, Epsilon) and share < 1 else None
    percentage = "less than 0.1 %" if share < _LEAST_SHARE else budget_percent(share, up=False)
    return f"{percentage} left of {total}" + (f" ({loss_words(amount)})" if amount else "")


@dataclass(frozen=True)
class Gauge:
    """A budget for a page.

    Attributes:
        share: the share that is left, 0 to 1; None without a limit.
        words: the share and the limit.
        exact: the amounts as the ledger adds them up.
        guarantee: the guarantee of all releases of the account together.
        most: the largest epsilon that fits; empty if there is none, or if the limit is a rho.
    """

    share: float | None
    words: str
    exact: str
    guarantee: str
    most: str


def gauge(account: Account) -> Gauge:
    """Return the gauge of an account."""
    share, largest = account.share_left, largest_loss(account)
    most = None if largest is None else largest.amounts.get("epsilon")
    return Gauge(
        share=None if share is None else float(share),
        words=left_words(account),
        exact=str(account),
        guarantee=account.guarantee if account.spent.rho or account.exact else "nothing was released yet",
        most="" if most is None else number_text(most),
    )


def largest_loss(account: Account) -> Loss | None:
    """Return the largest loss with the parameters of a limit that still fits.

    Returns:
        None without a limit, or if nothing fits.

    >>> largest_loss(Account(EpsilonDelta(2, "1e-9"), EpsilonDelta(1, "1e-9").charge))
    EpsilonDelta('1.69', '1e-09')
    """
    return None if account.limit is None or not account.left else loss_within(account.limit, account.left)


def loss_within(limit: Loss, amount: Fraction) -> Loss | None:
    """Return the largest loss with the parameters of a limit that takes at most an amount of it.

    An epsilon with a delta has three digits, rounded down.

    Returns:
        None if the amount is too small for an epsilon with this delta.

    >>> loss_within(EpsilonDelta(2, "1e-9"), EpsilonDelta(2, "1e-9").most / 4)
    EpsilonDelta('0.966', '1e-09')
    """
    if not isinstance(limit, EpsilonDelta):
        return type(limit.divisible)(amount)
    digits = Context(prec=_DIGITS)
    epsilon = digits.create_decimal_from_float(float(epsilon_of(amount, limit.delta * CONVERTED)))
    try:
        while EpsilonDelta(epsilon, limit.delta).most > amount:
            epsilon = digits.next_minus(epsilon)
    except LossError:
        return None
    return EpsilonDelta(epsilon, limit.delta)


@dataclass(frozen=True)
class Accounts:
    """The accounts that a release of an analyst has to fit.

    Attributes:
        dataset: the account of the dataset.
        own: the account of the analyst; one who has not asked yet has the default cap of the dataset.
        months: the account of the months that have begun; None without a budget by months.
    """

    dataset: Account
    own: Account
    months: Account | None

    @staticmethod
    def for_key(service: Service, loaded: ServedDataset, key: Key) -> Accounts:
        """Read the accounts for the holder of a key."""
        account, own = loaded.ledger.remaining(), loaded.ledger.remaining(key.name)
        default_cap = limit_of(service.grants.terms(loaded.dataset.name).default_cap)
        if default_cap is not None and key.scope is not Scope.STEWARD and own.limit is None:
            own = replace(own, limit=default_cap)
        monthly = parse_monthly_budget(loaded.dataset.limit)
        if monthly is None:
            return Accounts(account, own, None)
        number = monthly.months_begun(datetime.fromisoformat(loaded.dataset.registered), datetime.now(UTC))
        return Accounts(account, own, replace(account, limit=monthly.monthly * number) if number else None)

    @property
    def tightest(self) -> Account:
        """The account with the least left."""
        known = [each for each in (self.dataset, self.own, self.months) if each is not None and each.left is not None]
        return min(known, key=lambda each: each.left or 0)


def cost_words(cost: str, spending: Spending) -> str:
    """Return the cost of an answer for a page.

    Args:
        cost: the cost as the answer states it.
        spending: the loss of the question, and the tightest account before it.

    >>> account = Account(EpsilonDelta(2, "1e-9"), EpsilonDelta(1, "1e-9").charge)
    >>> cost_words("rho 0.0037", Spending(EpsilonDelta("0.5", "1e-9"), account, ("", "", {})))
    'Cost: epsilon 0.5, delta 1e-9, which was 9.7 % of what was left to you.'
    """
    if cost.startswith("nothing: "):
        return "Cost: nothing. You got this answer before, so it is free."
    stated, share = f"Cost: {loss_words(spending.loss)}", spending.share
    if cost.startswith("nothing"):
        return f"{stated} of your cap, and nothing of the dataset's budget, because it was asked before."
    return f"{stated}, which was {budget_percent(share, up=True)} of what was left to you." if share else f"{stated}."


def refused_loss(error: Exception, fields: LossFields, accounts: Accounts) -> dict[str, str]:
    """Return the detail of a refusal if a budget refused the loss of a form; empty otherwise.

    A steward also sees the spending of each analyst.
    """
    if not isinstance(error, BudgetError) or isinstance(error, ApprovalNeededError | RetiredError):
        return {}
    words = refusal_words(fields.loss(), accounts)
    if words is not None and isinstance(error, BudgetUsedUpError):
        spent = ", ".join(f"{name} {amount}" for name, amount in error.spent_by.items()) or "nothing by an analyst"
        words += f" Spent so far: {spent}."
    return {} if words is None else {"detail": words}


def refusal_words(loss: Loss, accounts: Accounts) -> str | None:
    """Return why a budget refuses a loss, and what the analyst can do next.

    Returns:
        None if the loss fits, or if it does not fit for another reason than its size.

    >>> account = Account(Epsilon(2), Epsilon("0.5").charge)
    >>> refusal_words(Epsilon(3), Accounts(account, Account(None, account.spent), None))
    "It needs 150 % of the dataset's budget (epsilon 2), of which 75 % is left. Ask with at most epsilon 1.5."
    """
    cap, month = ", or ask a steward for a larger cap", ", or wait for the next month"
    never = ". New questions are refused for ever, because no budget grows"
    budgets: tuple[tuple[Account | None, str, str, str], ...] = (
        (accounts.own, "your cap", cap, cap),
        (accounts.months, "the budget up to this month", month, month),
        (accounts.dataset, "the dataset's budget", "", never),
    )
    for account, whose, if_some_fits, if_nothing_fits in budgets:
        needed = None if account is None or account.limit is None else account.limit.amount(loss.charge)
        if account is None or account.limit is None or account.left is None or needed is None or needed <= account.left:
            continue
        fits = largest_loss(account)
        times = needed / account.limit.most
        needs = f"{math.ceil(times):,} times" if times > _MANY else f"{budget_percent(times, up=True)} of"
        rest = budget_percent(account.left / account.limit.most, up=False) if account.left else "nothing"
        needs = f"It needs {needs} {whose} ({loss_words(account.limit)}), of which {rest} is left"
        if fits is None:
            return f"{needs}. You can repeat your earlier questions for free{if_nothing_fits}."
        return f"{needs}. Ask with at most {loss_words(fits)}{if_some_fits}."
    return None


@dataclass(frozen=True)
class Step:
    """The effect of one loss on an answer.

    Attributes:
        loss: the loss in words, without its delta.
        half_width: the half-width of the widest interval of the answer.
        bar: this half-width as a share of the largest one, 0 to 1.
        share: the share of the budget's rest that the loss takes, above 1 if it is too much; None if unknown.
        chosen: whether it is the loss of the form.
    """

    loss: str
    half_width: float
    bar: float
    share: float | None
    chosen: bool


def steps(loss: Loss, expected: Callable[[Loss], Iterable[ExpectedError]], own: Account) -> list[Step]:
    """Return the effects of a quarter, half, one, two and four times a loss, at the same delta if it has one."""
    widths: dict[Fraction, float] = {}
    for factor in _FACTORS:
        try:
            widths[factor] = max((each.half_width for each in expected(_times(loss, factor))), default=0.0)
        except SfumatoError:  # the loss is out of range
            continue
    most = max(widths.values(), default=0.0)
    return [
        Step(
            loss_words(_times(loss, factor)).partition(",")[0],
            width,
            width / most if most else 0.0,
            share_of(_times(loss, factor), own),
            factor == 1,
        )
        for factor, width in widths.items()
    ]


def _times(loss: Loss, factor: Fraction) -> Loss:
    """Return a multiple of a loss, at the same delta if it has one."""
    return (
        EpsilonDelta(loss.epsilon * factor, loss.delta) if isinstance(loss, EpsilonDelta) else loss.divisible * factor
    )


def share_of(loss: Loss, account: Account) -> float | None:
    """Return the share of the rest of a budget that a loss takes, above 1 if it is too much.

    Returns:
        None without a limit, or if the loss is not finite in the measure of the limit.

    >>> share_of(Epsilon("0.5"), Account(Epsilon(3), Epsilon(1).charge))
    0.25
    """
    needed = None if account.limit is None else account.limit.amount(loss.charge)
    if needed is None or account.left is None:
        return None
    share = float(needed / account.left) if account.left else math.inf
    if not loss.charge.delta or account.left_delta is None:
        return share
    return max(share, float(loss.charge.delta / account.left_delta) if account.left_delta else math.inf)


SHARE_TO_CONFIRM = 0.1
"""The largest share of the rest of a budget that a release takes without a confirmation."""
_DIGEST = 16  # hexadecimal digits; a person who changes a form cannot search for two equal ones by hand


@dataclass(frozen=True)
class Spending:
    """A loss that a form would charge to an account.

    The confirmation of an expensive release is for one loss, one rest of the budget and one request.  The ledger
    refuses a release that exceeds the rest.

    Attributes:
        loss: the loss.
        account: the account that has less left.
        request: the dataset, the analyst, and the fields of the form that say what is released.
    """

    loss: Loss
    account: Account
    request: tuple[str, str, Mapping[str, Any]]

    @property
    def share(self) -> float | None:
        """The share of the rest that the loss takes; None if it is unknown."""
        return share_of(self.loss, self.account)

    @property
    def statement(self) -> str:
        """The loss, the rest and a digest of the request, as the form sends them back when a person confirms them."""
        request = json.dumps(self.request, sort_keys=True, default=str)
        digest = hashlib.sha256(request.encode()).hexdigest()[:_DIGEST]
        return short_deltas(f"{self.loss} of {decimals(self.account.left or Fraction(0), up=False)} for {digest}")

    def is_confirmed(self, confirmed: str) -> bool:
        """Return whether the loss is small enough to need no confirmation, or is confirmed by a statement."""
        share = self.share
        return share is None or not SHARE_TO_CONFIRM < share <= 1 or confirmed == self.statement
