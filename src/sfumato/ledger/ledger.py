"""The ledger of one dataset: the journal of everything released from it, and the budget that it keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Protocol, Self, TypeVar

from sfumato.domain import Unit
from sfumato.errors import InputError, LedgerError, LossError, SfumatoError, VersionError
from sfumato.ledger import journal, verification
from sfumato.ledger.account import Account
from sfumato.ledger.audit_log import Actor
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import DataVersion, Entry, Event, Kind, Question, StoredAnswer, journalled_version, sealed
from sfumato.ledger.journal import JournalMemory, entry_from
from sfumato.ledger.reservation import (
    Admission,
    ComputeLocks,
    Reservation,
    admitted,
    compute_locks,
    new_answer_cache,
)
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import Transaction
from sfumato.ledger.verification import Checkpoint
from sfumato.privacy.loss import Loss
from sfumato.strict_documents import JSON

_LONGEST_NAME = 200
_BETWEEN_CHECKPOINTS = 20  # entries or answers: about as many are read again for each look at a journal
_LARGE = 1 << 20  # bytes of answers: they are not read again for the next look

T = TypeVar("T")


class Ledger:
    """Journal and budget of one dataset, in a database that other datasets may share.

    Safe to use from many threads and, each with a ledger of its own, many processes.  A process that
    forks must open its ledgers after the fork.  Use :func:`open_ledger` to make one.
    """

    def __init__(self, store: Store, *, dataset: str, limit: Loss) -> None:
        self.dataset = dataset
        self.limit = limit
        self._store = store
        self.cached_answers = new_answer_cache()
        self._memory = JournalMemory(store, dataset)
        self._writing = threading.Lock()  # threads of a process take turns here, processes at the dataset's row

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
            noise_drawn: whether the caller has drawn noise for the release so far.
            retry_key: chosen by the caller, the same for all attempts at one request.
            admission: looks at more than the budget in the transaction that charges, and raises a
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
        """Return what is left of the dataset's limit, or of an analyst's cap: ``.left`` exactly, ``str()`` in words.

        Raises:
            MovedLedgerError: an older copy of the ledger was restored, which knows less of what was spent.
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
        """Set or lift (None) what an analyst may spend of this dataset; stands in the journal and the audit log.

        Raises:
            LossError: the cap is not in the measure of the ledger's limit.
            InputError: the analyst has spent more already.
        """
        self._set_cap(partial(Transaction.set_cap, cap=cap, by=by), analyst, cap)

    def set_first_cap(self, analyst: str, cap: Loss) -> None:
        """Set the cap of an analyst who has no account yet; whoever has one keeps theirs, set or not.

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
            content: of all tables of the dataset, or a name of all their rows and columns.
            by: the name of who declares it.
            new: whether the next version is declared, whatever the content: that a version begins must not tell
                whether any row changed.
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

    def recorded_owners(self, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
        """The last entry's number, and whose the rows of tables are by what entries above ``after`` say."""
        with self._store.reading() as driver:
            return journal.recorded_owners(driver, self.dataset, after=after)

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

    def write(
        self,
        act: Callable[[Transaction], T],
        *,
        key: str | None = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> T:
        """Run ``act`` in a transaction, and return what it returns once that is durable.

        If ``act`` refuses by a :class:`SfumatoError`, nothing is written to the journal.  What an :class:`Admission`
        wrote next to the journal before it refused stands.

        Args:
            act: see above.
            key: of the release that it looks at.
            analyst: whose account it looks at.
            retry_key: which it looks at.
        """
        _ = self._secret  # another connection looks it up
        with self._writing:
            with self._store.writing() as driver:
                transaction = Transaction(
                    driver, self.dataset, memory=self._memory, key=key, analyst=analyst, retry_key=retry_key
                )
                seen = self._memory.position
                self._memory.refuse_set_back(driver, transaction.founded, transaction.position, before=seen)
                result = _outcome(act, transaction)
                if not isinstance(result, SfumatoError):
                    transaction.close()
            if isinstance(result, SfumatoError):
                raise result
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
            MovedLedgerError: the dataset was founded anew, or an old copy of the ledger was restored.
            LedgerError: the ledger cannot be read.
        """
        self._memory.look()

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _outcome(act: Callable[[Transaction], T], transaction: Transaction) -> T | SfumatoError:
    try:
        return act(transaction)
    except SfumatoError as error:
        return error


def refuse_name(name: str | None, what: str) -> None:
    """Refuse what names nothing; None stands for no name.

    Raises:
        InputError: it is not 1 to 200 printable characters.
    """
    if name is None:
        return
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(f"{what} is named by 1 to {_LONGEST_NAME} printable characters", culprit=name)


UNDECLARED = "0"
"""The version that questions carry as long as none is declared."""


def data_versions(driver: Driver, name: str, *, most: int | None = None) -> list[DataVersion]:
    """Return the declared versions of a dataset, the last one first; at most ``most`` of them."""
    query = "SELECT * FROM ledger_entry WHERE dataset = :dataset AND kind = 'version' ORDER BY number DESC"
    query += "" if most is None else " LIMIT :most"
    return [DataVersion.of(entry_from(row)) for row in driver.records(query, {"dataset": name, "most": most})]


def last_version(driver: Driver, name: str) -> tuple[DataVersion | None, str | None]:
    """Return the last declared version of a dataset, and the digest of its content; None twice before the first."""
    digest = driver.value("SELECT version_digest FROM ledger_dataset WHERE name = :dataset", {"dataset": name})
    return next(iter(data_versions(driver, name, most=1)), None), digest


def number_of(digest: str, last: tuple[int, str | None], *, new: bool) -> int:
    """Return the number of the version that some content has, or gets.

    A new version is counted whatever its content.  Otherwise whether a version begins would tell whether the rows of
    anybody changed.

    Args:
        digest: of the content, under the ledger's secret.
        last: number and digest of the last declared version; 0 and None before the first.
        new: whether the next version is to be declared.

    Raises:
        VersionError: the content differs from that of the last version, and ``new`` is not set.
    """
    number, known = last
    if new or number == 0:
        return number + 1
    if digest != known:
        raise VersionError(
            f"the tables differ from version {number} of the data, the last declared one; put them back, or declare "
            "the next version by --new-version (new_version=True in Python), in which every question is charged again",
            culprit=number,
        )
    return number


class NamedContent(Protocol):
    """What tables hold, as an engine names it."""

    @property
    def files(self) -> str:
        """A name of the bytes of all their files; empty if they are not made of files."""
        ...

    @property
    def name(self) -> str:
        """A name of all rows and columns, for which the tables may be read once more."""
        ...


def content_digests(
    content: NamedContent | str, secret: str, last: tuple[DataVersion | None, str | None], *, new: bool
) -> tuple[str, str]:
    """Digest a content, or a name of one, under a ledger's secret.

    Files with the bytes of the last version have its content, so that their rows are not read again.  If the next
    version is to be declared, they are read in any case: the time that it takes must not tell what changed.

    Returns:
        The digest of all rows and columns, and that of the bytes of files, which is empty if there are no files.
    """
    version, last_digest = (None, None) if new else last
    if isinstance(content, str):
        return journalled_version(secret, content), ""
    files = journalled_version(secret, f"files {content.files}") if content.files else ""
    if version is not None and last_digest is not None and files and sealed(version.number, files) == version.files:
        return last_digest, files
    return journalled_version(secret, content.name), files


def declare(
    transaction: Transaction,
    digests: tuple[str, str],
    *,
    by: str,
    new: bool,
    most: int | None = None,
    admit: Callable[[Transaction], object] | None = None,
) -> DataVersion:
    """Enter a version in the journal: the next one, the first one, or none if the last one has the same content.

    Args:
        transaction: of the dataset.
        digests: of its tables, as :func:`content_digests` returns them.
        by: the name of who declares it.
        new: whether the next version is declared, whatever the content.
        most: the largest number that ``new`` may begin, so that a program which others overtook begins none; None: any.
        admit: raises to refuse what the version begins for; None: nothing more is asked.

    Returns:
        The version that the content has then.

    Raises:
        VersionError: the content differs from that of the last version, and ``new`` is not set.
    """
    digest, digest_of_files = digests
    new = new and (most is None or transaction.version < most)
    number = number_of(digest, (transaction.version, transaction.version_digest), new=new)
    if number == transaction.version:
        return transaction.declared or data_versions(transaction.driver, transaction.name, most=1)[0]
    if admit is not None:
        admit(transaction)
    shown, files = sealed(number, digest), sealed(number, digest_of_files) if digest_of_files else ""
    of_files: dict[str, JSON] = {"files": files} if files else {}
    question = Question("ledger", "version", {"number": number, "digest": shown, "by": by, **of_files}, "")
    statement = f"version {number} of the data, declared by {by}"
    transaction.append(Event(Kind.VERSION, question, None, None, statement, None))
    transaction.version, transaction.version_digest = number, digest
    transaction.declared = DataVersion(number, transaction.time, by, shown, files)
    return transaction.declared


def declare_within(driver: Driver, name: str, digest: str, *, by: str) -> DataVersion:
    """Enter the next version, whatever its content, as a part of a larger transaction.

    Args:
        driver: in a transaction that writes.
        name: of the dataset.
        digest: of the content, under the ledger's secret.
        by: as for :func:`declare`.

    Returns:
        The version.
    """
    transaction = Transaction(driver, name)
    version = declare(transaction, (digest, ""), by=by, new=True)
    transaction.close()
    return version
