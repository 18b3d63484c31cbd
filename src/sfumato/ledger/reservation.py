"""A release from its charge to its stored answer: one transaction charges it, and a later one stores the answer.

The charge is durable before any data is touched.  Three rules hold whenever a process dies or a database fails:

1. A charge is never lost: a process that dies before the first commit leaves neither charge nor answer.
2. No answer is free: nothing of an answer leaves the process before the commit that stores it.  If the news of a
   commit is lost, the caller gets an error, and asking again finds which of the two it was.
3. A death is retried once: a charged release without an answer was left by a process that died, and nothing of it
   was released.  It is computed again for its charge, and the journal counts this.  The next death closes it as
   failed.  If noise was drawn and the computation raised, the release is closed as failed at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeVar

from sfumato.bounded_cache import BoundedCache
from sfumato.errors import BudgetError, InputError, LedgerError, RetryKeyError, SfumatoError
from sfumato.ledger.account import Account, counted, loss_text, refuse_unit
from sfumato.ledger.attempts import Attempt, Attempts
from sfumato.ledger.audit_log import ActionKind, Actor
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import ADD_REMOVE, Event, Kind, Question
from sfumato.ledger.transaction import Stored, Transaction
from sfumato.privacy.loss import NOTHING, Charge, Loss

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between looks for an answer that another caller computes


class Admission(Protocol):
    """A further condition on a charge, checked in the transaction that charges.

    It may write to tables next to the journal.  It raises to refuse; nothing is charged then.
    """

    def __call__(self, driver: Driver, event: Event, account: Account) -> None:
        """Admit a release, or refuse it; the account is the dataset's, before the charge."""
        ...


class ReleaseLedger(Protocol):
    """The operations of a ledger that a reservation uses."""

    @property
    def attempts(self) -> Attempts:
        """See :attr:`sfumato.ledger.Ledger.attempts`."""
        ...

    @property
    def answers_kept(self) -> AnswerCache:
        """The answers that this process keeps."""
        ...

    def write(
        self,
        act: Callable[[Transaction], T],
        *,
        key: str | None = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> T:
        """See :meth:`sfumato.ledger.Ledger.write`."""
        ...


class Reservation:
    """One release: a context manager that charges it when it is entered, and takes its answer.

    One caller at a time computes a release.  Other callers who ask for it wait for its answer.

    Args:
        ledger: of the dataset.
        event: the release, as the journal records it.
        retry_key: the same for all attempts at one request; None: there is none.
        admission: a further condition; None: the budget alone decides.
        noise_drawn: whether the caller has drawn noise for the release so far.

    Attributes:
        event: see above.
        number: the release's entry in the journal; 0 before it is charged.
        answer: the stored answer; None while it is still to be computed.
        charged: whether this reservation charged the dataset.
        charged_analyst: whether this reservation charged the analyst.
    """

    def __init__(
        self,
        ledger: ReleaseLedger,
        event: Event,
        *,
        retry_key: str | None,
        admission: Admission | None,
        noise_drawn: Callable[[], bool],
    ) -> None:
        self.event = event
        self.number = 0
        self.answer: bytes | None = None
        self.charged = self.charged_analyst = False
        self._ledger = ledger
        self._retry_key = retry_key
        self._admission = admission
        self._noise_drawn = noise_drawn
        self._attempt = Attempt(ledger.attempts)
        self._computing = False

    def __enter__(self) -> Self:
        """Charge the release, or find its answer; wait if another caller computes it.

        Raises:
            BudgetError: the limit or the analyst's cap does not admit the charge; nothing was charged.
            RetryKeyError: the retry key was used for another question.
            LossError: the limit does not have the measure of the charge.
            UnitError: the ledger adds up losses of another unit, or for other owners of a table's rows.
            VersionError: the question is of another version of the data than the last declared one.
            MovedLedgerError: the ledger was moved, deleted, replaced or set back since it was opened.
            BrokenLedgerError: the answer was changed outside the program, or may have been taken away.
            LedgerError: the database failed.  It is then unknown whether the charge was made; asking the same
                question again is never charged twice.
        """
        pause = _FIRST_PAUSE
        try:
            while not self._reserve():
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            self._attempt.end()
            raise
        self._computing = self.answer is None
        return self

    def store(self, answer: bytes) -> None:
        """Store the answer, unless one is stored: only :attr:`answer` may be handed out afterwards.

        Raises:
            LedgerError: the release was closed as failed, or the database failed; nothing was stored.
        """
        self.answer = self._ledger.write(partial(self._store, answer=answer), key=self.event.key)

    def stored(self) -> bytes:
        """Return the stored answer.

        Raises:
            LedgerError: none was stored.
        """
        if self.answer is None:
            raise LedgerError("a release was left without its answer", culprit=self.number)
        return self.answer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let other callers go on; close the release as failed if noise was drawn and no answer was stored."""
        try:
            if error is None:
                self._attempt.touched = self._computing
                return
            self._attempt.touched = self._computing and (self.answer is not None or self._noise_drawn())
            if self.event.charge is not None and self._attempt.touched and self.answer is None:
                with suppress(SfumatoError):  # the caller has to see the first error
                    self._write(self._fail)
        finally:
            self._attempt.end()

    def _reserve(self) -> bool:
        """Charge the release, or find its answer; False: another caller is computing it."""
        event, answers = self.event, self._ledger.answers_kept
        kept = answers.find(event, self._retry_key)
        if kept is not None:
            self.number, self.answer = kept
            return True
        self._write(self._charge)
        if self.answer is not None:
            answers.keep(event, self._retry_key, (self.number, self.answer))
        return self.answer is not None or event.charge is None or self._attempt.holds

    def _write(self, act: Callable[[Transaction], None]) -> None:
        event = self.event
        self._ledger.write(act, key=event.key, analyst=event.analyst, retry_key=self._retry_key)

    def _charge(self, transaction: Transaction) -> None:
        """Charge the release in a transaction, or find that it was charged before.

        A release that is in the journal costs the dataset nothing, whether its answer is stored or still pending.  An
        analyst who has not asked for it before is charged to their own cap.
        """
        self.charged = self.charged_analyst = False
        event, key = self.event, self.event.key
        transaction.refuse_other_version(event.question.dataset_version)
        known = None if self._retry_key is None else transaction.release_of_retry_key
        if known is not None and known != key:
            raise RetryKeyError("this retry key was used for another question; use a new one", culprit=self._retry_key)
        stored = transaction.stored_release()
        if stored is None:
            self._release(transaction)
        elif stored.answer is not None:
            self._repeat(transaction, stored)
        elif event.charge is not None and not self._attempt.begin(stored.hash, retried=stored.retried):
            self.number = stored.number
            return
        else:
            transaction.refuse_lost(stored)
            self._go_on(transaction, stored)
        if self._retry_key is not None and known is None:
            transaction.remember(key)

    def _release(self, transaction: Transaction, *, instead: bool = False) -> None:
        """Add a new entry and a new charge, ``instead`` of a pending one, which is closed as failed."""
        event = admitted(transaction, self.event)
        if self._admission is not None:
            self._admission(transaction.driver, event, transaction.account)
        if event.charge is not None:
            if instead:
                transaction.fail(event)
            transaction.charge(event.charge, dataset=True, analyst=event.analyst is not None)
        opened = transaction.open(event)
        self.number, self.charged = opened.number, event.charge is not None
        self.charged_analyst = self.charged and event.analyst is not None
        if self.charged:
            self._attempt.begin(opened.hash, retried=False)
            self._attempt.journalled(retried=False)

    def _go_on(self, transaction: Transaction, pending: Stored) -> None:
        """Take over a release that is charged and has no answer; the journal counts it once, and then closes it."""
        if self.event.charge is None or not self._attempt.counts:
            self._repeat(transaction, pending)
        elif pending.retried:
            self._release(transaction, instead=True)
        else:
            self._repeat(transaction, pending)
            transaction.retry(self.event)
            self._attempt.journalled(retried=True)

    def _repeat(self, transaction: Transaction, stored: Stored) -> None:
        """Show a release that is in the journal; an analyst who has not asked for it is charged."""
        event = self.event
        self.number, self.answer = stored.number, stored.answer
        if event.analyst is None or transaction.was_shown:
            return
        event = _stated(transaction, event)
        if event.charge is not None:
            afford(transaction.analyst, event.charge, "your cap")
            transaction.charge(event.charge, dataset=False, analyst=True)
        transaction.append(replace(event, kind=Kind.REPEAT))
        self.charged_analyst = event.charge is not None

    def _store(self, transaction: Transaction, answer: bytes) -> bytes:
        stored = transaction.stored_release()
        if stored is None or stored.number != self.number:
            raise LedgerError("this release was closed as failed meanwhile; ask again", culprit=self.number)
        if stored.answer is not None:
            return stored.answer
        transaction.store(answer)
        return answer

    def _fail(self, transaction: Transaction) -> None:
        stored = transaction.stored_release()
        if stored is not None and stored.number == self.number and stored.answer is None:
            transaction.fail(self.event)


def admitted(transaction: Transaction, event: Event) -> Event:
    """Return a new release with what its entry states of the charge.

    Raises:
        BudgetError: the limit or the analyst's cap does not admit the charge.
        LossError: the limit does not have the measure of the charge.
        UnitError: the ledger adds up losses of another unit, or for other owners of a table's rows.
    """
    event = _stated(transaction, event)
    if event.charge is not None:
        afford(transaction.account, event.charge, "the ledger")
        if event.analyst is not None:
            afford(transaction.analyst, event.charge, "your cap")
    owners = event.details.get("owners") if isinstance(event.details, dict) else None
    if isinstance(owners, dict):
        transaction.refuse_other_owners({name: str(owner) for name, owner in owners.items()})
    return event


def _stated(transaction: Transaction, event: Event) -> Event:
    """Return the event with what its entry states of the charge, under the unit of the ledger.

    A ledger without a unit gets that of its next release.  A loss for all rows of one id holds whatever the bound on
    their number: rows beyond the bound are dropped, person by person, before anything is counted.  So a changed bound
    is no other unit; another id is one, and so are rows instead of ids.

    Raises:
        UnitError: the ledger adds up losses of another unit.
    """
    if event.charge is None:
        return replace(event, unit=None)
    assert event.unit is not None
    refuse_unit(transaction.unit, event.unit)
    return event.stating(ADD_REMOVE, counted(event.charge), fixes_unit=transaction.unit is None)


def set_cap(transaction: Transaction, analyst: str, cap: Loss | None, by: Actor | None) -> None:
    """Set or lift the cap of an analyst, and record this in the journal, and the actor in the audit log.

    Raises:
        InputError: the analyst has spent more than the cap already.
    """
    before = transaction.analyst.limit
    _set_cap(transaction, analyst, cap)
    former, new = ({"analyst": analyst, "cap": None if each is None else str(each)} for each in (before, cap))
    transaction.record(ActionKind.CAP, former, new, by)


def _set_cap(transaction: Transaction, analyst: str, cap: Loss | None) -> None:
    spent = transaction.analyst.spent
    if not Account(cap, NOTHING).admits(spent):
        raise InputError(
            f"this analyst has spent {transaction.limit.in_words(spent)} already, more than the cap", culprit=cap
        )
    transaction.cap(cap)
    text = None if cap is None else loss_text(cap)
    question = Question("ledger", "cap", {"analyst": analyst, "cap": text}, "")
    statement = f"cap of {analyst}: {'lifted' if cap is None else cap}"
    transaction.append(Event(Kind.CAP, question, None, analyst, statement, None))


def set_first_cap(transaction: Transaction, analyst: str, cap: Loss) -> None:
    """Set the cap of an analyst who has no account; of several at once, the first is set."""
    if not transaction.knows_analyst:
        _set_cap(transaction, analyst, cap)


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


_LARGEST = 1 << 14  # bytes of an answer; larger ones are read from the database again
_MOST_RETRY_KEYS = 64  # of one release and analyst
_ENTRY_BYTES = 3_000  # beside the answer

NumberedAnswer: TypeAlias = tuple[int, bytes]
"""The number of a release's entry, and its stored answer."""

_Kept = tuple[NumberedAnswer, frozenset[str]]


def _weight(_: object, kept: _Kept | None) -> int:
    assert kept is not None
    (_number, answer), retry_keys = kept
    return _ENTRY_BYTES + len(answer) + sum(200 + len(key) for key in retry_keys)


class AnswerCache:
    """Answers of one dataset by release and analyst: asking again needs no lock and no database.

    What was charged and answered stays so: entries and answers are never changed or removed.  Nothing else may be
    remembered here, least of all what is left of a budget.
    """

    def __init__(self) -> None:
        self._kept: BoundedCache[tuple[str, str | None], _Kept | None] = BoundedCache(_weight)
        self._lock = threading.Lock()  # two threads that add a retry key to one answer

    def find(self, event: Event, retry_key: str | None) -> NumberedAnswer | None:
        """Return the answer of this analyst's earlier release, under this retry key if there is one."""
        kept = self._kept.get((event.key, event.analyst), None)
        return kept[0] if kept is not None and (retry_key is None or retry_key in kept[1]) else None

    def keep(self, event: Event, retry_key: str | None, found: NumberedAnswer) -> None:
        """Keep an answer that the database stored and that this analyst was charged for."""
        if len(found[1]) > _LARGEST:
            return
        place = (event.key, event.analyst)
        with self._lock:
            found, retry_keys = self._kept.get(place, None) or (found, frozenset[str]())
            if retry_key is not None and len(retry_keys) < _MOST_RETRY_KEYS:
                retry_keys |= {retry_key}
            self._kept.put(place, (found, retry_keys))
