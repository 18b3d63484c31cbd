"""The ledger of one dataset: the journal of everything released from it, and the budget that it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, NotRequired, Self, TypedDict, Unpack

from sfumato.domain import Unit
from sfumato.errors import (
    InputError,
    LedgerError,
    LossError,
    SfumatoError,
)
from sfumato.ledger import journal, verification
from sfumato.ledger.account import Account
from sfumato.ledger.answer_cache import AnswerCache
from sfumato.ledger.attempts import Attempt, attempts_at
from sfumato.ledger.audit_log import Actor
from sfumato.ledger.data_versions import ContentDigests, NamedContent, data_versions, declare, last_version, number_of
from sfumato.ledger.entry import (
    Answered,
    DataVersion,
    Entry,
    Event,
    Kind,
    Question,
    Receipt,
    StoredAnswer,
)
from sfumato.ledger.last_written import LastWritten
from sfumato.ledger.owners import ToldOwners
from sfumato.ledger.reservation import Admission, AtOnce, Order, fail, reserve, set_cap, set_first_cap, settle
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import Transaction, Wanted, together
from sfumato.ledger.verification import Checkpoint
from sfumato.ledger.writer import Ticket, Work, Writer
from sfumato.privacy.loss import Charge, Loss
from sfumato.strict_documents import JSON

_LONGEST_NAME = 200
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between looking whether another's answer is there
_BETWEEN_CHECKPOINTS = 20  # entries or answers: about as many are read again for each look at a journal
_LARGE = 1 << 20  # bytes of answers: they are not read again for the next look


class Terms(TypedDict):
    """How a release is asked for: the keyword arguments of :meth:`Ledger.reserve`.

    Attributes:
        statement: the guarantee in words, as it will stand in the journal.
        unit: whom the charge is stated for, under adding or removing one; needed wherever something is charged.
        details: anything public worth keeping with the entry; not part of the question's identity.
        analyst: who asks, where analysts are told apart.
        retry_key: chosen by the caller, the same for all attempts at one request.
        admission: looks at more than the budget in the transaction that charges, and raises a :class:`SfumatoError`
            before anything is charged where it does not admit the release.
        at_once: computes the answer of a new release in the transaction that charges, under the terms of
            :class:`sfumato.ledger.reservation.AtOnce`; None where it cannot.
    """

    statement: str
    unit: NotRequired[Unit | None]
    details: NotRequired[JSON]
    analyst: NotRequired[str | None]
    retry_key: NotRequired[str | None]
    admission: NotRequired[Admission | None]
    at_once: NotRequired[Callable[[], bytes | None] | None]


@dataclass
class Reserved:
    """A release that is charged: its stored answer, or the right to compute one and store it.

    Attributes:
        receipt: of the reservation, with the answer as soon as one is stored.
    """

    receipt: Receipt
    _store: Callable[[Receipt, bytes], bytes]

    @property
    def answer(self) -> bytes | None:
        """The stored answer; None where it is still to be computed."""
        return self.receipt.answer

    def settle(self, answer: bytes) -> None:
        """Store an answer, unless one is stored: only what :attr:`answer` then is may be handed out."""
        self.receipt = replace(self.receipt, answer=self._store(self.receipt, answer))

    def answered(self) -> Answered:
        """The receipt with its answer.

        Raises:
            LedgerError: none was stored.
        """
        if self.receipt.answer is None:
            raise LedgerError("a release was left without its answer", culprit=self.receipt.number)
        return Answered(**vars(self.receipt))


class Ledger:
    """Journal and budget of one dataset, in a database that other datasets may share.

    Safe to use from many threads and, each with a ledger of its own, many processes.  A process that
    forks must open its ledgers after the fork.  Use :func:`open_ledger` to make one.
    """

    def __init__(self, store: Store, *, dataset: str, limit: Loss) -> None:
        self.dataset = dataset
        self.limit = limit
        self._store = store
        self._answers = AnswerCache()
        self._last = LastWritten(store, dataset)
        self._told = ToldOwners()
        self._writer = Writer(self._transact)

    def reserve(self, question: Question, charge: Charge | None, **terms: Unpack[Terms]) -> Receipt:
        """Charge for a release before any data is touched; durable when this returns.

        A release that is in the journal (same question, same charge) costs the dataset nothing: the
        receipt brings its stored answer, or none while it is pending, and then whoever holds the receipt
        may compute and settle it.  An analyst who has not asked for it before is charged to their own cap.

        Args:
            question: what is asked, in canonical form, loss included.
            charge: what it costs; None for a release without a differential privacy guarantee.
            terms: see :class:`Terms`.

        Raises:
            BudgetError: the limit or the analyst's cap does not admit the charge; nothing was spent.
            RetryKeyError: the retry key was used for another question.
            LossError: the limit does not have the measure of the charge, or no unit is stated for it.
            UnitError: the ledger adds up losses of another unit.
            MovedLedgerError: the ledger was moved, deleted, replaced or set back since it was opened.
            LedgerError: the database failed; whether the charge was made is then unknown, and asking the
                same question again is never charged twice.
        """
        order = self._order(question, charge, terms)
        return self._answers.find(order) or self._answers.kept(order, self._writer.run(_reservation(order, None)))

    def _order(
        self, question: Question, charge: Charge | None, terms: Terms, *, at_once: AtOnce | None = None
    ) -> Order:
        statement, analyst, retry_key = terms["statement"], terms.get("analyst"), terms.get("retry_key")
        unit = terms.get("unit")
        refuse_name(analyst, "an analyst")
        refuse_name(retry_key, "a retry key")
        refuse_name(question.family, "a family")
        refuse_name(question.method, "a method")
        if not statement.isprintable():
            raise InputError("the statement of a guarantee is one line of printable text", culprit=statement)
        if charge is not None and unit is None:
            raise LossError("state the unit for which the charge holds, as it will stand in the journal")
        event = Event(Kind.RELEASE, question, charge, analyst, statement, terms.get("details"), unit)
        return Order(event, retry_key, terms.get("admission"), at_once)

    def settle(self, receipt: Receipt, answer: bytes) -> bytes:
        """Store the answer of a reserved release, unless one is stored: the first wins.

        Returns:
            The stored answer, durable: the only one that may be handed out.

        Raises:
            LedgerError: the release was closed as failed; nothing was stored.
        """
        wanted = Wanted(keys=frozenset([receipt.key]))
        return self._writer.run(Work(wanted, partial(settle, receipt=receipt, answer=answer)))

    def releasing(
        self,
        question: Question,
        charge: Charge | None,
        *,
        drawn: Callable[[], bool] = lambda: True,
        **terms: Unpack[Terms],
    ) -> Releasing:
        """Reserve a release for a block, which computes and settles it if there is no stored answer.

        One at a time computes a release; whoever else asks for it waits for the answer.  Whatever the block raises
        is passed on, and the charge stands.  If noise was drawn by then, the release is closed as failed, as nobody
        knows what was made of the noise: asking again is a new release at a new charge.  If the process dies, nothing
        was let out: the next one computes the release again for its charge, once.

        Args:
            question: as for :meth:`reserve`.
            charge: as there.
            drawn: whether the block has drawn noise so far.
            terms: as there.
        """
        compute = terms.get("at_once")
        at_once = None if compute is None else AtOnce(compute, drawn)
        order, attempt = self._order(question, charge, terms, at_once=at_once), Attempt(attempts_at(self._store))
        return Releasing(order, attempt, drawn, writer=self._writer, answers=self._answers, settle=self.settle)

    def remaining(self, analyst: str | None = None) -> Account:
        """What is left of the dataset's limit, or of an analyst's cap: ``.left`` exactly, ``str()`` in words."""
        with self._store.reading() as driver:
            if analyst is not None:
                return journal.analyst_account(driver, self.dataset, analyst)
            account = journal.dataset_account(driver, self.dataset)
        if account is None:
            raise LedgerError(f"the ledger holds no dataset {self.dataset!r}", culprit=self.dataset)
        return account

    def set_cap(self, analyst: str, cap: Loss | None, *, by: Actor | None = None) -> None:
        """Set or lift (None) what an analyst may spend of this dataset; stands in the journal and the audit log.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
            InputError: the analyst has spent more already.
        """
        self._set_cap(partial(set_cap, by=by), analyst, cap)

    def set_first_cap(self, analyst: str, cap: Loss) -> None:
        """Set the cap of an analyst who has no account yet; whoever has one keeps theirs, set or not.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
        """
        self._set_cap(set_first_cap, analyst, cap)

    def _set_cap(self, act: Callable[..., None], analyst: str, cap: Loss | None) -> None:
        refuse_name(analyst, "an analyst")
        if cap is not None and type(cap) is not type(self.limit):
            measure = " and ".join(self.limit.amounts)
            raise LossError(f"the limit is {self.limit}: state a cap in the same measure, by {measure}", culprit=cap)
        self._writer.run(Work(Wanted(analysts=frozenset([analyst])), partial(act, analyst=analyst, cap=cap)))

    def declare_version(
        self, content: NamedContent | str, *, by: str, new: bool, most: int | None = None
    ) -> DataVersion:
        """Declare the content of the dataset's tables, and return its version.

        Without ``new`` nothing is written if the last version has the same content.

        Args:
            content: of all tables of the dataset, or a name of all their rows and columns.
            by: the name of who declares it.
            new: whether the next version is declared, whatever the content: that a version begins must not tell
                whether any row changed.
            most: the largest number that ``new`` may begin; None: any.

        Raises:
            VersionError: the content differs from that of the last version, and ``new`` is not set.
        """
        refuse_name(by, "who declares a version")
        last, known = self._last_version()
        found = ContentDigests.of(content, self._secret, (last, known), new=new)
        if last is not None and known == found.digest and not new:
            return last
        return self._writer.run(Work(Wanted(), partial(declare, content=found, by=by, new=new, most=most)))

    def number_of(self, content: NamedContent | str, *, new: bool) -> int:
        """Return the number of the version that :meth:`declare_version` would return; nothing is written."""
        last, known = self._last_version()
        found = ContentDigests.of(content, self._secret, (last, known), new=new)
        return number_of(found.digest, (0 if last is None else last.number, known), new=new)

    def data_version(self) -> DataVersion | None:
        """Return the last declared version of the data; None before the first."""
        return self._last_version()[0]

    def _last_version(self) -> tuple[DataVersion | None, str | None]:
        with self._store.reading() as driver:
            return last_version(driver, self.dataset)

    def data_versions(self) -> list[DataVersion]:
        """Return all declared versions of the data, in order."""
        with self._store.reading() as driver:
            return data_versions(driver, self.dataset)[::-1]

    def caps(self) -> dict[str, Account]:
        """The account of every analyst who has spent or has a cap, by name."""
        with self._store.reading() as driver:
            return journal.analyst_accounts(driver, self.dataset)

    def journal(self, *, after: int = 0) -> Iterator[Entry]:
        """Entries with numbers above ``after``, in order; all without it."""
        last = after
        while page := self.page(after=last, most=journal.PAGE):
            yield from page
            last = page[-1].number

    def page(self, *, after: int, most: int, analyst: str | None = None) -> list[Entry]:
        """The first ``most`` entries with numbers above ``after``, in order: of all, or of an analyst's."""
        with self._store.reading() as driver:
            return journal.entries(driver, self.dataset, after=after, most=most, analyst=analyst)

    def newest(self, most: int, *, before: int | None = None, analyst: str | None = None) -> list[Entry]:
        """The last ``most`` entries, in order: of all, of those with numbers below ``before``, of an analyst's."""
        with self._store.reading() as driver:
            return journal.newest(driver, self.dataset, before=before, most=most, analyst=analyst)

    def answers(self, methods: Collection[tuple[str, str]], version: str, *, analyst: str | None) -> list[StoredAnswer]:
        """Stored answers by some methods about a version of the data; charges nothing.

        Of an analyst, only what that account was charged for.
        """
        with self._store.reading() as driver:
            return journal.answers(driver, self.dataset, methods=methods, version=version, analyst=analyst)

    def told_owners(self, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
        """The last entry's number, and whose the rows of tables are by what entries above ``after`` say."""
        with self._store.reading() as driver:
            return journal.told_owners(driver, self.dataset, after=after)

    def verify(self, *, head: str | None = None) -> str:
        """Check that no entry or answer was changed, removed or inserted, and that accounts are sums of the journal.

        Args:
            head: what an earlier call returned and was kept outside: the journal must still go through it.

        Returns:
            The hash of what was written last.  Whoever keeps it elsewhere can tell later that nothing before it
            was rewritten or set back; without that, a thief of the whole database could forge a new chain, and an
            old copy of it would pass.

        Raises:
            LedgerError: names the first broken entry, or the entry of the first broken answer.
        """
        return self.verified(head=head).head

    def verified(self, *, head: str | None = None) -> Checkpoint:
        """What :meth:`verify` finds: how many entries and answers there are, and how many of an earlier version."""
        with self._store.reading() as driver:
            return verification.verify(driver, self.dataset, kept=head)

    def check(self) -> Checkpoint:
        """Check what was written since the journal was last found whole, and all accounts; remembers how far that is.

        Entries and answers before are not read again: :meth:`verify` reads all.

        Raises:
            LedgerError: names the first broken entry, or the account that is not the sum of the journal.
        """
        with self._store.reading() as driver:
            before = verification.checkpoint(driver, self.dataset)
            begun = (0, 0) if before is None else (before.number, before.answers)
            found = verification.verify(driver, self.dataset, since=before)
        new = max(found.number - begun[0], found.answers - begun[1])
        if before is None or new >= _BETWEEN_CHECKPOINTS or found.read >= _LARGE:
            with self._store.writing() as driver:
                verification.keep(driver, self.dataset, found)
        return found

    @property
    def unit(self) -> Unit | None:
        """Whom charges are stated for; None in an old ledger that nothing was released from since."""
        with self._store.reading() as driver:
            return journal.dataset_unit(driver, self.dataset)

    def _transact(self, tickets: Sequence[Ticket[Any]]) -> None:
        _ = self._secret  # which is looked up by another connection than the transaction's
        with self._store.writing() as driver:
            wanted = together(ticket.wanted for ticket in tickets)
            transaction = Transaction(driver, self.dataset, wanted, told=self._told)
            self._last.refuse_set_back(driver, transaction.founded, transaction.position, before=self._last.position)
            for ticket in tickets:
                ticket.attempt(transaction)
            transaction.close()
        self._last.position = transaction.position

    @property
    def _secret(self) -> str:
        """The secret that hides the fingerprints of the data in the journal."""
        return self._last.secret

    def refuse_set_back(self) -> None:
        """Refuse a journal that does not contain the last position that this ledger saw.

        Raises:
            MovedLedgerError: the dataset was founded anew, or an old copy of the ledger was restored.
            LedgerError: the ledger cannot be read.
        """
        self._last.look()

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Releasing:
    """A block for one release, which is reserved when the block is entered, unless that was done before with others."""

    def __init__(
        self,
        order: Order,
        attempt: Attempt,
        drawn: Callable[[], bool],
        *,
        writer: Writer,
        answers: AnswerCache,
        settle: Callable[[Receipt, bytes], bytes],
    ) -> None:
        """Take an order; see :meth:`Ledger.releasing`."""
        self.writer = writer
        self._order = order
        self._attempt = attempt
        self._drawn = drawn
        self._answers = answers
        self._settle = settle
        self._ticket: Ticket[Receipt] | None = None
        self._reserved: Reserved | None = None
        self._computing = False

    def ticket(self) -> Ticket[Receipt] | None:
        """The reservation, to be written before the block is entered; None: the answer is known already."""
        if self._answers.find(self._order) is None:
            self._ticket = Ticket(_reservation(self._order, self._attempt))
        return self._ticket

    @property
    def waits(self) -> bool:
        """Whether the block, once it is reserved, still has to compute its answer, or to wait for somebody else's."""
        ticket = self._ticket
        return ticket is not None and not ticket.failed and ticket.result().answer is None

    @property
    def holds(self) -> bool:
        """Whether others wait until the block, which is reserved, has computed its answer."""
        return self._attempt.holds

    def __enter__(self) -> Reserved:
        """Reserve it, and wait for whoever computes it at the moment."""
        try:
            receipt = self._receipt()
        except BaseException:
            self._attempt.end()
            raise
        self._computing = receipt.answer is None
        self._reserved = Reserved(receipt, self._settle)
        return self._reserved

    def _receipt(self) -> Receipt:
        order, ticket, pause = self._order, self._ticket, _FIRST_PAUSE
        while True:
            receipt = self._answers.find(order) if ticket is None else self._answers.kept(order, ticket.result())
            if receipt is None:
                work = _reservation(order, self._attempt)
                receipt = self._answers.kept(order, self.writer.run(work))
            if order.at_once is not None and order.at_once.error is not None:
                raise order.at_once.error
            if receipt.answer is not None or order.event.charge is None or self._attempt.holds:
                return receipt
            time.sleep(pause)
            ticket, pause = None, min(2 * pause, _LONGEST_PAUSE)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave it to others, answered, or closed as failed where noise was drawn for no answer."""
        order, reserved = self._order, self._reserved
        assert reserved is not None
        try:
            if error is None:
                self._attempt.touched = self._computing
                return
            self._attempt.touched = self._computing and (reserved.answer is not None or self._drawn())
            if order.event.charge is not None and self._attempt.touched and reserved.answer is None:
                closing = partial(fail, event=order.event, number=reserved.receipt.number)
                with suppress(SfumatoError):  # what was raised first is what the caller has to know
                    self.writer.run(Work(order.wanted, closing))
        finally:
            self._attempt.end()


def _reservation(order: Order, attempt: Attempt | None) -> Work[Receipt]:
    return Work(order.wanted, partial(reserve, order=order, attempt=attempt))


def reserve_together(asked: Iterable[Releasing]) -> None:
    """Reserve releases before their blocks are entered, those of one ledger in one transaction.

    Each is charged, found or refused as if it had been asked for alone; its block tells which.
    """
    tickets: dict[Writer, list[Ticket[Receipt]]] = {}
    for each in asked:
        ticket = each.ticket()
        if ticket is not None:
            tickets.setdefault(each.writer, []).append(ticket)
    for writer, party in tickets.items():
        writer.run_together(party)


def refuse_name(name: str | None, what: str) -> None:
    """Refuse what names nothing; None stands for no name.

    Raises:
        InputError: it is not 1 to 200 printable characters.
    """
    if name is None:
        return
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(f"{what} is named by 1 to {_LONGEST_NAME} printable characters", culprit=name)
