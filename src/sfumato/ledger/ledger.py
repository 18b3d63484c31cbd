"""The ledger of one dataset: the journal of everything released from it, and its budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from sfumato.arguments import expect
from sfumato.domain import Unit
from sfumato.errors import InputError, LedgerError, LimitError, LossError, SfumatoError
from sfumato.ledger import journal, verification
from sfumato.ledger.account import Account, refuse_beyond_limit, refuse_unaffordable
from sfumato.ledger.audit_log import Actor
from sfumato.ledger.database import ledger_url
from sfumato.ledger.dataset_terms import (
    NOT_HELD,
    UNDECLARED,
    NamedContent,
    content_digests,
    data_versions,
    declare,
    last_version,
    number_of,
    open_dataset,
    refuse_name,
)
from sfumato.ledger.entry import DataVersion, Entry, Event, StoredAnswer, system_user
from sfumato.ledger.journal import JournalMemory
from sfumato.ledger.reservation import Admission, ComputeLocks, Reservation, admitted, compute_locks, new_answer_cache
from sfumato.ledger.store import Store, place_of
from sfumato.ledger.transaction import Transaction
from sfumato.ledger.verification import Checkpoint
from sfumato.privacy.loss import NOTHING, Charge, Loss

_BETWEEN_CHECKPOINTS = 20  # entries or answers: a check reads at most about as many again
_LARGE = 1 << 20  # bytes of answers: a check that reads more writes a checkpoint

T = TypeVar("T")


def open_ledger(
    url: str | Path, *, dataset: str, limit: Loss | None, unit: Unit | None = None, create: bool = False
) -> Ledger:
    """Open the ledger of a dataset.  Make one with ``limit`` if there is none and ``create`` is set.

    Args:
        url: the URL as for :class:`Ledger`, or the path of a SQLite file.
        dataset: see :class:`Ledger`.
        limit: see :class:`Ledger`.
        create: true to make it now; see there.
        unit: the unit that losses will be stated for, kept with the limit; None: that of the first release.

    Raises:
        MissingLedgerError: there is no such ledger, and none is to be made.
        OtherDatasetsError: the ledger keeps other datasets only, and none is to be added.
        LimitError, UnitError: the stored limit is another one; or the ledger adds up losses of another unit.
        LedgerError, InputError: the database cannot be used; or the address, the name or the limit is no good.
    """
    ledger = Ledger(ledger_url(url), dataset=dataset, limit=limit)
    ledger.open(unit=unit, create=create)
    return ledger


class Ledger:
    """Journal and budget of one dataset, in a database that other datasets may share.

    Safe to use from many threads and, each with a ledger of its own, many processes.  A process that
    forks must open its ledgers after the fork.  :func:`open_ledger` opens one at once.

    A ledger that is constructed is opened by its first use, and with ``create`` it is made by its first release.  A
    request that is wrong then leaves no file behind.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://...``.
        dataset: its name in the ledger.
        limit: the privacy budget, which also fixes the measure; None: that of the existing ledger.
        create: true if the first release makes the ledger.  There must be none then, and the database must not hold
            other datasets: a mistyped name would begin a fresh budget for the same table.  Pass ``create`` once.  A
            script that always passes it gets a new, full budget if the ledger file is lost.

    Attributes:
        version: the version of the data in requests; see :meth:`declare_later`.
    """

    def __init__(
        self,
        url: str,
        *,
        dataset: str,
        limit: Loss | None = None,
        create: bool = False,
    ) -> None:
        refuse_name(dataset, "a dataset")
        if limit is not None:
            expect(limit, Loss, "a limit is an Epsilon, Rho or EpsilonDelta")
        self.url = url
        self.dataset = dataset
        self.version = UNDECLARED
        self.cached_answers = new_answer_cache()
        self._limit = limit
        self._create = create
        self._undeclared: tuple[NamedContent | str, bool] | None = None
        self._opened: JournalMemory | None = None
        self._opening = threading.Lock()
        self._writing = threading.Lock()  # threads of a process take turns here, processes at the dataset's row

    def open(self, *, unit: Unit | None = None, create: bool = False) -> None:
        """Open the database; see :func:`open_ledger`."""
        with self._opening:
            if self._opened is not None:
                return
            store = Store(self.url)
            try:
                created = create and self._limit is not None
                self._limit = open_dataset(store, self.dataset, self._limit, unit, create=created)
            except BaseException:
                store.close()
                raise
            self._opened = JournalMemory(store, self.dataset)

    @property
    def _memory(self) -> JournalMemory:
        """The journal's last position in this program.  Opens the ledger."""
        if self._opened is None:
            self.open()
        assert self._opened is not None
        return self._opened

    @property
    def _store(self) -> Store:
        return self._memory.store

    @property
    def limit(self) -> Loss:
        """The privacy budget: the maximum that may ever be spent."""
        if self._limit is None:
            self.open()
        assert self._limit is not None
        return self._limit

    def exists(self) -> bool:
        """Return whether the ledger was made."""
        try:
            self.open()
        except NOT_HELD:
            return False
        except LimitError:
            pass  # it was made with another limit
        return True

    def refuse_missing(self, charge: Charge | None = None) -> Loss:
        """Refuse early, before the first release: no ledger, a second ledger, or too large a charge.

        Args:
            charge: the charge of the release, if it is known; the whole limit has to admit it.

        Returns:
            The limit of the ledger, or of the ledger that the release makes.

        Raises:
            LedgerError: there is none, or no limit to make one with; or the existing ledger cannot be opened.
            InputError: a ledger is to be made, but exists already.
            BudgetError: the charge is larger than the limit.
            LossError: the limit does not have the measure of the charge.
        """
        if not self._create:
            if charge is not None:
                refuse_beyond_limit(self.remaining(), charge)
            self.open()
            return self.limit
        if self.exists():
            raise InputError(
                f"there is a ledger of {self.dataset!r} at {place_of(self.url)} already; leave out --create, or name "
                "another ledger by --ledger",
                culprit=self.url,
            )
        if self._limit is None:
            raise InputError(
                "to begin a ledger, name with --limit the most that may ever be released", culprit=self.url
            )
        self._refuse_beyond(charge)
        return self._limit

    def _refuse_beyond(self, charge: Charge | None) -> None:
        """Refuse a charge that a new ledger could never take, before the ledger is made with a permanent limit."""
        if charge is not None and self._limit is not None:
            refuse_unaffordable(Account(self._limit, NOTHING), charge, "a new ledger")

    def declare_later(self, content: NamedContent | str, *, new: bool) -> Self:
        """Let the first release declare the content of the tables, and return the ledger.

        :attr:`version` is then the last version, or the next one.

        Args:
            content: see :meth:`declare_version`.
            new: see :meth:`declare_version`.

        Raises:
            VersionError: the content differs from that of the last version, and ``new`` is not set.
        """
        self.version = str(self.number_of(content, new=new) if self.exists() else 1)
        self._undeclared = content, new
        return self

    def prepare(self, first: Event) -> None:
        """Open or make the ledger for its first release, and declare the version of the tables.

        No version begins for a release that is refused.
        """
        if self._opened is None:
            self._refuse_beyond(first.charge)
            self.open(unit=first.unit, create=self._create)
        if (undeclared := self._undeclared) is not None:  # read once: another thread may declare it in the meantime
            (content, new), by = undeclared, system_user()
            self.declare_version(content, by=by, new=new, most=int(self.version), first=first)
            self._undeclared = None  # later releases are of the version that the first one declared

    def reserve(
        self,
        event: Event,
        *,
        noise_drawn: Callable[[], bool] = lambda: True,
        retry_key: str | None = None,
        admission: Admission | None = None,
    ) -> Reservation:
        """Return the reservation of a release; entering it charges for the release before any data is touched.

        Args:
            event: the release.  Its charge is None if it has no differential privacy; any other charge needs a unit.
            noise_drawn: true if the caller has drawn noise for the release.
            retry_key: chosen by the caller, the same for all attempts at one request.
            admission: a further condition in the transaction that charges; it raises a
                :class:`SfumatoError` if it does not admit the release.

        Raises:
            InputError: a name or the statement is not printable text.
            LossError: no unit is stated for the charge.
        """
        refuse_name(event.analyst, "an analyst")
        refuse_name(retry_key, "a retry key")
        refuse_name(event.question.family, "a family")
        refuse_name(event.question.method, "a method")
        if not event.statement.isprintable():
            raise InputError("the statement of a guarantee is one line of printable text", culprit=event.statement)
        if event.charge is not None and event.unit is None:
            raise LossError("state the unit for which the charge holds, as it will stand in the journal")
        return Reservation(self, event, retry_key=retry_key, admission=admission, noise_drawn=noise_drawn)

    def remaining(self, analyst: str | None = None) -> Account:
        """Return the account of the dataset or of an analyst: ``.left`` is exact, ``str()`` is the account in words.

        Raises:
            MovedLedgerError: an older copy of the ledger was restored, which has fewer charges.
        """
        self.refuse_set_back()
        with self._store.reading() as driver:
            if analyst is not None:
                return journal.analyst_account(driver, self.dataset, analyst)
            account = journal.dataset_account(driver, self.dataset)
        if account is None:
            raise LedgerError(f"the ledger holds no dataset {self.dataset!r}", culprit=self.dataset)
        return account

    def set_cap(self, analyst: str, cap: Loss | None, *, by: Actor | None = None) -> None:
        """Set or lift (None) an analyst's cap.  The journal and the audit log record it.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
            InputError: the analyst has spent more already.
        """
        self._set_cap(partial(Transaction.set_cap, cap=cap, by=by), analyst, cap)

    def set_first_cap(self, analyst: str, cap: Loss) -> None:
        """Set the cap of an analyst who has no account yet; an existing account does not change.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
        """
        self._set_cap(partial(Transaction.set_first_cap, cap=cap), analyst, cap)

    def _set_cap(self, act: Callable[[Transaction], None], analyst: str, cap: Loss | None) -> None:
        refuse_name(analyst, "an analyst")
        if cap is not None and type(cap) is not type(self.limit):
            measure = " and ".join(self.limit.amounts)
            raise LossError(f"the limit is {self.limit}: state a cap in the same measure, by {measure}", culprit=cap)
        self.write(act, analyst=analyst)

    def declare_version(
        self, content: NamedContent | str, *, by: str, new: bool, most: int | None = None, first: Event | None = None
    ) -> DataVersion:
        """Declare the content of the dataset's tables, and return its version.

        Without ``new`` nothing is written if the last version has the same content.

        Args:
            content: the content of all tables of the dataset, or a name of all their rows and columns.
            by: the name of the person who declares it.
            new: true if the next version is declared for any content: a new version must not tell whether any row
                changed.
            most: the largest number that ``new`` may begin; None: any.
            first: the release that the version begins with; no version begins if it is refused.

        Raises:
            VersionError: the content differs from that of the last version, and ``new`` is not set.
            BudgetError, LossError, UnitError: a version would begin, and the ledger does not admit its first release.
        """
        refuse_name(by, "who declares a version")
        last, known = self._last_version()
        digests = content_digests(content, self._secret, (last, known), new=new)
        if last is not None and known == digests[0] and not new:
            return last
        admit = None if first is None else partial(admitted, event=first)
        act = partial(declare, digests=digests, by=by, new=new, most=most, admit=admit)
        return self.write(act, analyst=None if first is None else first.analyst)

    def number_of(self, content: NamedContent | str, *, new: bool) -> int:
        """Return the number of the version that :meth:`declare_version` would return; nothing is written."""
        last, known = self._last_version()
        digest, _ = content_digests(content, self._secret, (last, known), new=new)
        return number_of(digest, (0 if last is None else last.number, known), new=new)

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
        """Return the account of every analyst who has spent or has a cap, by name."""
        with self._store.reading() as driver:
            return journal.analyst_accounts(driver, self.dataset)

    def journal(self, *, after: int = 0) -> Iterator[Entry]:
        """Yield the entries with numbers above ``after``, in order."""
        last = after
        while page := self.page(after=last, most=journal.PAGE):
            yield from page
            last = page[-1].number

    def page(self, *, after: int, most: int, analyst: str | None = None) -> list[Entry]:
        """Return the first ``most`` entries with numbers above ``after``, of one analyst or of all, in order."""
        with self._store.reading() as driver:
            return journal.entries(driver, self.dataset, after=after, most=most, analyst=analyst)

    def newest(self, most: int, *, before: int | None = None, analyst: str | None = None) -> list[Entry]:
        """Return the last ``most`` entries with numbers below ``before``, of one analyst or of all, in order."""
        with self._store.reading() as driver:
            return journal.newest(driver, self.dataset, before=before, most=most, analyst=analyst)

    def answers(self, methods: Collection[tuple[str, str]], version: str, *, analyst: str | None) -> list[StoredAnswer]:
        """Return stored answers by some methods about a version of the data; charge nothing.

        With ``analyst``, only answers that this analyst was charged for.
        """
        if not self.exists():
            return []
        with self._store.reading() as driver:
            return journal.answers(driver, self.dataset, methods=methods, version=version, analyst=analyst)

    def recorded_owners(self, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
        """Return the last entry's number, and the owners of tables in entries above ``after``."""
        if not self.exists():
            return 0, []
        with self._store.reading() as driver:
            return journal.recorded_owners(driver, self.dataset, after=after)

    def verify(self, *, head: str | None = None) -> str:
        """Check that no entry or answer was changed, removed or inserted, and that accounts are sums of the journal.

        Args:
            head: the result of an earlier call: the journal must still go through it.

        Returns:
            The hash of the last entry or answer.  Store it outside of the database: it proves later that nothing
            before it was rewritten or set back.  Without it, a thief of the database could forge a new chain, and an
            old copy would pass.

        Raises:
            LedgerError: names the first broken entry, or the entry of the first broken answer.
        """
        return self.verified(head=head).head

    def verified(self, *, head: str | None = None) -> Checkpoint:
        """Verify like :meth:`verify`, and return the numbers of entries and answers as well."""
        with self._store.reading() as driver:
            return verification.verify(driver, self.dataset, earlier_head=head)

    def check(self) -> Checkpoint:
        """Check all accounts, and the entries and answers since the last checkpoint; write a new checkpoint.

        It reads no earlier entries and answers: :meth:`verify` reads all.

        Raises:
            LedgerError: names the first broken entry, or the account that is not the sum of the journal.
        """
        with self._store.reading() as driver:
            before = verification.checkpoint(driver, self.dataset)
            checked = (0, 0) if before is None else (before.number, before.answers)
            reached = verification.verify(driver, self.dataset, since=before)
        new = max(reached.number - checked[0], reached.answers - checked[1])
        if before is None or new >= _BETWEEN_CHECKPOINTS or reached.read >= _LARGE:
            with self._store.writing() as driver:
                verification.store_checkpoint(driver, self.dataset, reached)
        return reached

    @property
    def unit(self) -> Unit | None:
        """The unit of all charges; None in an old ledger before its next release."""
        with self._store.reading() as driver:
            return journal.dataset_unit(driver, self.dataset)

    def write(
        self,
        act: Callable[[Transaction], T],
        *,
        key: str | None = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> T:
        """Run ``act`` in a transaction, and return its result when the transaction is durable.

        If ``act`` raises a :class:`SfumatoError`, nothing is written to the journal.  Rows that an
        :class:`Admission` wrote next to the journal stay.

        Args:
            act: see above.
            key: the key of the release that it reads.
            analyst: the analyst whose account it reads.
            retry_key: that it reads.
        """
        _ = self._secret  # read here, because another connection reads it
        with self._writing:
            with self._store.writing() as driver:
                transaction = Transaction(
                    driver, self.dataset, memory=self._memory, key=key, analyst=analyst, retry_key=retry_key
                )
                seen = self._memory.position
                self._memory.refuse_set_back(driver, transaction.founded, transaction.position, before=seen)
                refusal = None
                try:
                    result = act(transaction)
                except SfumatoError as error:
                    refusal = error  # raised after the commit, which keeps the rows of an admission
                else:
                    transaction.close()
            if refusal is not None:
                raise refusal
            self._memory.position = transaction.position
        return result

    @property
    def compute_locks(self) -> ComputeLocks:
        """The locks of this process on the releases that it computes."""
        return compute_locks(self._store)

    @property
    def _secret(self) -> str:
        """The secret that hides the fingerprints of the data in the journal."""
        return self._memory.secret

    def refuse_set_back(self) -> None:
        """Refuse a journal that does not contain the last position that this ledger saw.

        Raises:
            MovedLedgerError: the dataset was created again, or an old copy of the ledger was restored.
            LedgerError: the ledger cannot be read.
        """
        self._memory.look()

    def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            self._opened.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
