"""The ledger of one dataset: the journal of everything released from it, and the budget that it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NotRequired, Self, TypedDict, Unpack

from sfumato.arguments import expect
from sfumato.domain import Unit
from sfumato.errors import (
    InputError,
    LedgerError,
    LossError,
    MissingLedgerError,
    MovedLedgerError,
    OtherDatasetsError,
    SfumatoError,
)
from sfumato.ledger import reading
from sfumato.ledger.account import Account
from sfumato.ledger.answer_cache import Repeats
from sfumato.ledger.attempts import Attempt, attempts_at
from sfumato.ledger.create import enrol, journalled_version, refuse_other_terms
from sfumato.ledger.entry import Answered, Entry, Event, Kind, Receipt
from sfumato.ledger.loss_codec import unit_text
from sfumato.ledger.question import JSON, Question
from sfumato.ledger.reservation import Order, fail, reserve, set_cap, settle
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import Books, Wanted, together
from sfumato.ledger.writer import Ticket, Work, Writer
from sfumato.privacy.accountant import Charge, Limit
from sfumato.privacy.loss import Loss

_LONGEST_NAME = 200
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between looking whether another's answer is there
_LISTED = 10  # datasets that a message names


class Terms(TypedDict):
    """How a release is asked for: the keyword arguments of :meth:`Ledger.reserve`."""

    statement: str
    unit: NotRequired[Unit | None]
    details: NotRequired[JSON]
    analyst: NotRequired[str | None]
    retry_key: NotRequired[str | None]


class Ledger:
    """Journal and budget of one dataset, in a database that other datasets may share.

    Safe to use from many threads and, each with a ledger of its own, many processes.  A process that
    forks must open its ledgers after the fork.  Use :func:`open_ledger` to make one.
    """

    def __init__(self, store: Store, *, dataset: str, limit: Limit) -> None:
        self.dataset = dataset
        self.limit = limit
        self._store = store
        self._repeats = Repeats()
        self._kept_secret: str | None = None
        self._seen: tuple[int, str] | None = None  # entries and head after the last commit
        self._writer = Writer(self._transact)

    def reserve(
        self,
        question: Question,
        charge: Charge | None,
        *,
        statement: str,
        unit: Unit | None = None,
        details: JSON = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> Receipt:
        """Charge for a release before any data is touched; durable when this returns.

        A release that is in the journal (same question, same charge) costs the dataset nothing: the
        receipt brings its stored answer, or none while it is pending, and then whoever holds the receipt
        may compute and settle it.  An analyst who has not asked for it before pays from their own cap.

        Args:
            question: what is asked, in canonical form, loss included.
            charge: what it costs; None for a release without a differential privacy guarantee.
            statement: the guarantee in words, as it will stand in the journal.
            unit: whom the charge is stated for, under adding or removing one; needed wherever something is charged.
            details: anything public worth keeping with the entry; not part of the question's identity.
            analyst: who asks, where analysts are told apart.
            retry_key: chosen by the caller, the same for all attempts at one request.

        Raises:
            BudgetError: the limit or the analyst's cap does not admit the charge; nothing was spent.
            RetryKeyError: the retry key was used for another question.
            LossError: the limit does not have the measure of the charge, or no unit is stated for it.
            UnitError: the ledger adds up losses of another unit.
            MovedLedgerError: the ledger was moved, deleted, replaced or set back since it was opened.
            LedgerError: the database failed; whether the charge was made is then unknown, and asking the
                same question again never pays twice.
        """
        terms = Terms(statement=statement, unit=unit, details=details, analyst=analyst, retry_key=retry_key)
        return self._reserve(self._order(question, charge, terms), None)

    def _order(self, question: Question, charge: Charge | None, terms: Terms) -> Order:
        statement, analyst, retry_key = terms["statement"], terms.get("analyst"), terms.get("retry_key")
        unit = terms.get("unit")
        _named(analyst, "an analyst")
        _named(retry_key, "a retry key")
        _named(question.family, "a family")
        _named(question.method, "a method")
        if not statement.isprintable():
            raise InputError("the statement of a guarantee is one line of printable text", culprit=statement)
        if charge is not None and unit is None:
            raise LossError("state the unit for which the charge holds, as it will stand in the journal")
        question = question.of_version(journalled_version(self._secret, question.dataset_version))
        return Order(Event(Kind.RELEASE, question, charge, analyst, statement, terms.get("details"), unit), retry_key)

    def _reserve(self, order: Order, attempt: Attempt | None) -> Receipt:
        known = self._repeats.find(order)
        if known is not None:
            return known
        receipt = self._writer.run(Work(order.wanted, partial(reserve, order=order, attempt=attempt)))
        if receipt.answer is not None:
            self._repeats.keep(order, receipt.number, receipt.answer)
        return receipt

    def settle(self, receipt: Receipt, answer: bytes) -> bytes:
        """Store the answer of a reserved release, unless one is stored: the first wins.

        Returns:
            The stored answer, durable: the only one that may be handed out.

        Raises:
            LedgerError: the release was closed as failed; nothing was stored.
        """
        wanted = Wanted(keys=frozenset([receipt.key]))
        return self._writer.run(Work(wanted, partial(settle, receipt=receipt, answer=answer)))

    def release(
        self,
        question: Question,
        charge: Charge | None,
        compute: Callable[[], bytes],
        *,
        drawn: Callable[[], bool] = lambda: True,
        **terms: Unpack[Terms],
    ) -> Answered:
        """Reserve, compute if there is no stored answer, settle.

        One at a time computes a release; whoever else asks for it waits for the answer.  Whatever ``compute`` raises
        is passed on, and the charge stands.  If noise was drawn by then, the release is closed as failed, as nobody
        knows what was made of the noise: asking again is a new release at a new charge.  If the process dies, nothing
        was let out: the next one computes the release again for its charge, once.

        Args:
            question: as for :meth:`reserve`.
            charge: as there.
            compute: gives the answer.
            drawn: whether ``compute`` has drawn noise so far.
            terms: as there.

        Returns:
            A receipt with the stored answer.
        """
        order = self._order(question, charge, terms)
        with Attempt(attempts_at(self._store.file, self._store.engine)) as attempt:
            pause = _FIRST_PAUSE
            while True:
                receipt = self._reserve(order, attempt)
                if receipt.answer is not None or charge is None or attempt.holds:
                    break
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            if receipt.answer is None:
                receipt = replace(receipt, answer=self._computed(order, receipt, compute, attempt, drawn))
        assert receipt.answer is not None
        return Answered(**vars(receipt))

    def _computed(
        self,
        order: Order,
        receipt: Receipt,
        compute: Callable[[], bytes],
        attempt: Attempt,
        drawn: Callable[[], bool],
    ) -> bytes:
        try:
            answer = self.settle(receipt, compute())
        except BaseException:
            attempt.touched = drawn()
            if order.event.charge is not None and attempt.touched:
                closing = partial(fail, event=order.event, number=receipt.number)
                with suppress(SfumatoError):  # what was raised first is what the caller has to know
                    self._writer.run(Work(order.wanted, closing))
            raise
        attempt.touched = True
        return answer

    def spent(self) -> Charge:
        """Everything charged to the dataset, exactly."""
        return self.remaining().spent

    def remaining(self, analyst: str | None = None) -> Account:
        """What is left of the dataset's limit, or of an analyst's cap: ``.left`` exactly, ``str()`` in words."""
        with self._store.reading() as connection:
            if analyst is not None:
                return reading.analyst_account(connection, self.dataset, analyst)
            account = reading.dataset_account(connection, self.dataset)
        if account is None:
            raise LedgerError(f"the ledger holds no dataset {self.dataset!r}", culprit=self.dataset)
        return account

    def set_cap(self, analyst: str, cap: Loss | None) -> None:
        """Set or lift (None) what an analyst may spend of this dataset; stands in the journal.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
            InputError: the analyst has spent more already.
        """
        _named(analyst, "an analyst")
        if cap is not None and type(cap) is not type(self.limit):
            raise LossError(f"a cap under the limit {self.limit} is stated in the same measure", culprit=cap)
        self._writer.run(Work(Wanted(analysts=frozenset([analyst])), partial(set_cap, analyst=analyst, cap=cap)))

    def caps(self) -> dict[str, Account]:
        """The account of every analyst who has spent or has a cap, by name."""
        with self._store.reading() as connection:
            return reading.analyst_accounts(connection, self.dataset)

    def journal(self, *, after: int = 0) -> Iterator[Entry]:
        """Entries with numbers above ``after``, in order; all without it."""
        last = after
        while True:
            with self._store.reading() as connection:
                page = reading.entries(connection, self.dataset, after=last)
            if not page:
                return
            yield from page
            last = page[-1].number

    def verify(self, *, head: str | None = None) -> str:
        """Check that no entry was changed, removed or inserted and that all accounts are the sums of the journal.

        Args:
            head: what an earlier call returned and was kept outside: the journal must still go through it.

        Returns:
            The hash of the last entry.  Whoever keeps it elsewhere can tell later that nothing before it
            was rewritten or set back; without that, a thief of the whole database could forge a new chain, and an
            old copy of it would pass.

        Raises:
            LedgerError: names the first broken entry.
        """
        with self._store.reading() as connection:
            return reading.verify(connection, self.dataset, kept=head)

    @property
    def unit(self) -> Unit | None:
        """Whom charges are stated for; None in an old ledger that nothing was released from since."""
        with self._store.reading() as connection:
            return reading.dataset_unit(connection, self.dataset)

    def _transact(self, tickets: Sequence[Ticket[Any]]) -> None:
        founded = self._secret
        with self._store.committing() as driver:
            books = Books(driver, self.dataset, together(ticket.wanted for ticket in tickets))
            if books.founded != founded or not self._follows(books):
                raise self._set_back()
            for ticket in tickets:
                ticket.attempt(books)
            books.close()
        self._seen = (books.entries, books.head)

    def _follows(self, books: Books) -> bool:
        """Whether the journal still holds what was there at the last commit."""
        if self._seen is None:
            return True
        entries, head = self._seen
        return books.entries > entries or (books.entries, books.head) == (entries, head)

    def _set_back(self) -> MovedLedgerError:
        return MovedLedgerError(
            f"the ledger {self._store.place} no longer holds what was released of {self.dataset!r} while it was open: "
            "it was founded anew, or an old copy was restored; bring the database back, or start again knowingly",
            culprit=self.dataset,
        )

    @property
    def _secret(self) -> str:
        """What hides the fingerprints of the data in the journal; it never changes, so that two may read it."""
        if self._kept_secret is None:
            with self._store.reading() as connection:
                self._kept_secret = reading.secret(connection, self.dataset)
        return self._kept_secret

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ledger(
    url: str, *, dataset: str, limit: Loss | None, unit: Unit | None = None, create: bool = False
) -> Ledger:
    """Open the ledger of a dataset, and make it where there is none if that is asked for.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://...``; old tables are migrated as needed.
        dataset: its name in the ledger.
        limit: the most that may ever be spent, which also fixes the measure; None: that of the existing ledger.
        unit: whom losses will be stated for, kept with the limit; None: that of the first release.
        create: whether to make a ledger with this limit where there is none.  A program that runs again and again
            had better not say so: where a ledger was lost, it would begin another budget.

    Raises:
        MissingLedgerError: there is no such ledger, and none is to be made.
        OtherDatasetsError: the ledger keeps other datasets only, and none is to be added.
        LimitError: the stored limit is another one.
        UnitError: the ledger adds up losses of another unit.
        LedgerError: the database cannot be used.
        InputError: the address, the name or the limit is no good.
    """
    _named(dataset, "a dataset")
    if limit is not None:
        expect(limit, Loss, "a limit is an Epsilon, Rho or EpsilonDelta")
    store = Store(url)
    try:
        stored = _stored_limit(store, dataset, limit, unit, create=create and limit is not None)
        return Ledger(store, dataset=dataset, limit=stored)
    except BaseException:
        store.close()
        raise


def held(url: str, dataset: str) -> bool:
    """Whether there is a ledger of the dataset."""
    try:
        open_ledger(url, dataset=dataset, limit=None).close()
    except (MissingLedgerError, OtherDatasetsError):
        return False
    return True


def _stored_limit(store: Store, dataset: str, limit: Loss | None, unit: Unit | None, *, create: bool) -> Limit:
    store.prepare(create=create)
    with store.reading() as connection:
        account = reading.dataset_account(connection, dataset)
    if account is None and create and limit is not None:
        with store.founding() as connection:
            enrol(connection, dataset, limit, unit)
            account = reading.dataset_account(connection, dataset)
        store.checkpoint()  # so that a copy of the file alone is a ledger at least
    if account is None or account.limit is None:
        raise _not_held(store, dataset)
    with store.reading() as connection:
        kept = reading.dataset_unit(connection, dataset)
    refuse_other_terms(dataset, account.limit, None if kept is None else unit_text(kept), limit=limit, unit=unit)
    return account.limit


def _not_held(store: Store, dataset: str) -> LedgerError:
    with store.reading() as connection:
        held = reading.datasets(connection)
    if not held:
        return MissingLedgerError(
            f"the ledger {store.place} holds no dataset yet; begin one by 'sfumato ledger create' or with --create "
            "where something is released (create=True in Python), and a limit",
            culprit=dataset,
        )
    listed = ", ".join(map(repr, held[:_LISTED])) + (f" and {len(held) - _LISTED} more" if held[_LISTED:] else "")
    return OtherDatasetsError(
        f"the ledger {store.place} holds no dataset {dataset!r}, only {listed}; "
        "name one of these, or begin another budget: --create with --limit, or create=True in Python with a limit",
        culprit=dataset,
    )


def _named(name: str | None, what: str) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(f"{what} is named by 1 to {_LONGEST_NAME} printable characters", culprit=name)
