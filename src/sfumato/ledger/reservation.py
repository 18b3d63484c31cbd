"""Spend first: what happens in the ledger when somebody asks, before any data is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sfumato.errors import BudgetError, InputError, LedgerError, RetryKeyError
from sfumato.ledger.account import Account, counted, loss_text, refuse_unit
from sfumato.ledger.attempts import Attempt
from sfumato.ledger.audit_log import ActionKind, Actor
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import ADD_REMOVE, Event, Kind, Question, Receipt
from sfumato.ledger.transaction import Stored, Transaction, Wanted
from sfumato.privacy.loss import NOTHING, Charge, Loss


class Admission(Protocol):
    """What else has to hold when a release is charged, looked at in the transaction that charges.

    It may write to tables beside the journal; what it raises is a refusal, before which nothing is charged.
    """

    def __call__(self, driver: Driver, event: Event, account: Account) -> None:
        """Admit a release, or refuse it; the account is the dataset's, before the charge."""
        ...


class AtOnce:
    """Computes the answer of a new release in the transaction that charges for it: one commit makes both durable.

    The charge is written before anything is computed, and nothing of the answer leaves this process before the commit:

    1. Who dies before the commit leaves neither charge nor answer.  What was drawn was seen by nobody, and asking again
       is charged, and drawn anew.  The same holds where the database refuses the commit.
    2. Who dies after it leaves both, and asking again brings the stored answer.  Where the news of a commit is lost,
       nobody is handed the answer, and asking again finds which of the two it was.
    3. What raises stays charged: the release is closed as failed if noise was drawn, and is else still to be computed.

    That a death is free must not tell anything either.  So only that is computed here whose time and memory do not
    depend on the rows, by code of the vault alone: sums over exact tables that are kept already, and noise.  It must
    not come back to the ledger, whose transaction it is in.

    Attributes:
        error: what computing raised; None where it did not.
    """

    def __init__(self, compute: Callable[[], bytes | None], drawn: Callable[[], bool]) -> None:
        """Be ready to compute.

        Args:
            compute: the answer; None where it cannot be computed here, but has to be after the commit.
            drawn: whether noise was drawn for it so far.
        """
        self._compute = compute
        self._drawn = drawn
        self.error: Exception | None = None

    def answer(self, transaction: Transaction, event: Event) -> bytes | None:
        """Compute the answer of a release that was just opened and charged, and store it; None: there is none."""
        self.error = None  # of an attempt that was not committed
        try:
            answer = self._compute()
        except Exception as error:  # noqa: BLE001  # handed to who asked, after the commit
            self.error = error
            if self._drawn():
                transaction.fail(event)
            return None
        if answer is not None:
            transaction.store(event.key, answer)
        return answer


@dataclass(frozen=True)
class Order:
    """A release that somebody asks for.

    Attributes:
        event: as it will stand in the journal.
        retry_key: marks repetitions of one request.
        admission: see :class:`Admission`; None where the budget alone decides.
        at_once: computes the answer with the charge, where it can.
    """

    event: Event
    retry_key: str | None
    admission: Admission | None = None
    at_once: AtOnce | None = None

    @property
    def wanted(self) -> Wanted:
        """What reserving looks at."""
        analyst = self.event.analyst
        return Wanted(
            keys=frozenset([self.event.key]),
            analysts=frozenset() if analyst is None else frozenset([analyst]),
            retries=frozenset() if self.retry_key is None else frozenset([(analyst or "", self.retry_key)]),
        )


def reserve(transaction: Transaction, order: Order, attempt: Attempt | None) -> Receipt:
    """Charge for a release, or find that it was charged before.

    A release that is in the journal costs the dataset nothing, whether its answer is stored or still
    pending: nothing of a pending one has been released, so whoever asks may complete it.  An analyst who
    has not asked for it before is charged to their own cap.

    Who is going to compute the answer hands in an ``attempt``, which holds the release afterwards unless it is
    answered, or somebody else is computing it: then nobody is charged, and one has to ask again later.  A pending
    release that nobody is computing was left by a process that died, and nothing of it was released: it is computed
    again for its charge once, which the journal counts.  The next death closes it as failed, and asking again is
    charged again.  An attempt of this process that drew no noise is not counted.

    Raises:
        BudgetError: the dataset's limit or the analyst's cap does not admit the charge.
        RetryKeyError: the retry key stands for another question.
        UnitError: the ledger adds up losses of another unit, or for other owners of a table's rows.
        LossError: the limit does not have the measure of the charge.
        VersionError: the question is of another version of the data than the last declared one.
        BrokenLedgerError: the answer was changed by other hands, or may have been taken away.
    """
    event, key = order.event, order.event.key
    transaction.refuse_other_version(event.question.dataset_version)
    known = None if order.retry_key is None else transaction.retried(order.retry_key, event.analyst)
    if known is not None and known != key:
        raise RetryKeyError("this retry key was used for another question; use a new one", culprit=order.retry_key)
    found = transaction.stored_release(key)
    if found is None:
        receipt = _release(transaction, order, attempt)
    elif found.answer is not None:
        receipt = _repeat(transaction, event, found)
    elif attempt is not None and event.charge is not None and not attempt.begin(found.hash, retried=found.retried):
        return Receipt(found.number, key, None, charged=False, charged_analyst=False)
    else:
        transaction.refuse_lost(found)
        receipt = _pending(transaction, order, found, attempt)
    if order.retry_key is not None and known is None:
        transaction.remember(order.retry_key, event.analyst, key)
    return receipt


def settle(transaction: Transaction, receipt: Receipt, answer: bytes) -> bytes:
    """Store the answer of a release unless it has one; returns the one that stands.

    Raises:
        LedgerError: the release was closed as failed.
    """
    found = transaction.stored_release(receipt.key)
    if found is None or found.number != receipt.number:
        raise LedgerError("this release was closed as failed meanwhile; ask again", culprit=receipt.number)
    if found.answer is not None:
        return found.answer
    transaction.store(receipt.key, answer)
    return answer


def fail(transaction: Transaction, event: Event, number: int) -> None:
    """Close a release as failed, unless it has an answer or is closed."""
    found = transaction.stored_release(event.key)
    if found is not None and found.number == number and found.answer is None:
        transaction.fail(event)


def set_cap(transaction: Transaction, analyst: str, cap: Loss | None, by: Actor | None) -> None:
    """Set or lift the cap of an analyst, and record this in the journal, and the actor in the audit log.

    Raises:
        InputError: the analyst has spent more than the cap already.
    """
    before = transaction.analyst(analyst).limit
    _set_cap(transaction, analyst, cap)
    former, new = ({"analyst": analyst, "cap": None if each is None else str(each)} for each in (before, cap))
    transaction.record(ActionKind.CAP, former, new, by)


def _set_cap(transaction: Transaction, analyst: str, cap: Loss | None) -> None:
    spent = transaction.analyst(analyst).spent
    if not Account(cap, NOTHING).admits(spent):
        raise InputError(
            f"this analyst has spent {transaction.limit.in_words(spent)} already, more than the cap", culprit=cap
        )
    transaction.cap(analyst, cap)
    text = None if cap is None else loss_text(cap)
    question = Question("ledger", "cap", {"analyst": analyst, "cap": text}, "")
    statement = f"cap of {analyst}: {'lifted' if cap is None else cap}"
    transaction.append(Event(Kind.CAP, question, None, analyst, statement, None))


def set_first_cap(transaction: Transaction, analyst: str, cap: Loss) -> None:
    """Set the cap of an analyst who has no account; of several at once, the first is set."""
    if not transaction.knows(analyst):
        _set_cap(transaction, analyst, cap)


def _release(transaction: Transaction, order: Order, attempt: Attempt | None, *, instead: bool = False) -> Receipt:
    """A new entry and a new charge, ``instead`` of a pending one, which is closed as failed."""
    event = _of_unit(transaction, order.event)
    if event.charge is not None:
        afford(transaction.account, event.charge, "the ledger")
        if event.analyst is not None:
            afford(transaction.analyst(event.analyst), event.charge, "your cap")
    owners = event.details.get("owners") if isinstance(event.details, dict) else None
    if isinstance(owners, dict):
        transaction.refuse_other_owners({name: str(owner) for name, owner in owners.items()})
    if order.admission is not None:
        order.admission(transaction.driver, event, transaction.account)
    if event.charge is not None:
        if instead:
            transaction.fail(event)
        transaction.charge(event.charge, dataset=True, analyst=event.analyst)
    opened = transaction.open(event)
    charged = event.charge is not None
    answer = order.at_once.answer(transaction, event) if charged and order.at_once is not None else None
    if attempt is not None and charged and transaction.is_pending(event.key):
        attempt.begin(opened.hash, retried=False)
        attempt.journalled(retried=False)
    return Receipt(
        opened.number, event.key, answer, charged=charged, charged_analyst=charged and event.analyst is not None
    )


def _pending(transaction: Transaction, order: Order, found: Stored, attempt: Attempt | None) -> Receipt:
    """A release that is charged and has no answer, to be computed by who asks; an ``attempt`` holds it."""
    event = order.event
    if attempt is None or event.charge is None or not attempt.counts:
        return _repeat(transaction, event, found)
    if found.retried:
        return _release(transaction, order, attempt, instead=True)
    receipt = _repeat(transaction, event, found)
    transaction.retry(event)
    attempt.journalled(retried=True)
    return receipt


def _repeat(transaction: Transaction, event: Event, found: Stored) -> Receipt:
    number, answer = found.number, found.answer
    if event.analyst is None or transaction.was_shown(event.key, event.analyst):
        return Receipt(number, event.key, answer, charged=False, charged_analyst=False)
    analyst, event = event.analyst, _of_unit(transaction, event)
    if event.charge is not None:
        afford(transaction.analyst(analyst), event.charge, "your cap")
        transaction.charge(event.charge, dataset=False, analyst=analyst)
    transaction.append(replace(event, kind=Kind.REPEAT))
    return Receipt(number, event.key, answer, charged=False, charged_analyst=event.charge is not None)


def _of_unit(transaction: Transaction, event: Event) -> Event:
    """The event with what it has to state of its charge, under the unit of the transaction.

    An old ledger gets the unit of its next release.  A loss for all rows of one id holds whatever the bound on their
    number: rows beyond it are dropped, person by person, before anything is counted.  So a changed bound converts one
    to one; another id, or rows in place of ids, does not.

    Raises:
        UnitError: the ledger adds up losses of another unit.
    """
    if event.charge is None:
        return replace(event, unit=None)
    assert event.unit is not None
    refuse_unit(transaction.unit, event.unit)
    return event.stating(ADD_REMOVE, counted(event.charge), fixes_unit=transaction.unit is None)


def refuse_never(account: Account, charge: Charge) -> None:
    """Refuse a charge that exceeds the whole limit, before any work for it.

    No stored answer has such a charge, so no repetition of a release is refused.

    Raises:
        BudgetError: the charge is larger than the limit.
        LossError: the limit does not have the measure of the charge.
    """
    if not replace(account, spent=NOTHING).admits(charge):
        afford(account, charge, "the ledger")


def afford(account: Account, charge: Charge, whose: str) -> None:
    """Refuse a charge that does not fit, in the measure in which the limit is kept.

    Raises:
        BudgetError: says what is left, and what was asked for.
    """
    if account.limit is None or account.admits(charge):
        return
    remedy = account.limit.remedy(charge)
    delta = account.left_delta
    which = "" if delta is None or charge.delta <= delta else ", of which the delta does not fit"
    raise BudgetError(
        f"{whose} has {account}, and this release asks for {account.limit.in_words(charge)}{which}; nothing was spent"
        + (f". {remedy}" if remedy else ""),
        culprit=charge,
    )
