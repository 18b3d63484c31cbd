"""The fixed terms of a dataset: its limit, secret and unit, and the declared versions of its data.

The limit, the secret and the unit never change.  A version names the content of the tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from sfumato.domain import Unit
from sfumato.errors import InputError, LedgerError, LimitError, MissingLedgerError, OtherDatasetsError, VersionError
from sfumato.ledger import journal
from sfumato.ledger.account import limit_units, loss_from, loss_text, refuse_unit, unit_from, unit_text
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import DataVersion, Event, Kind, Question, genesis, journalled_version, sealed
from sfumato.ledger.journal import entry_from
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import Transaction, now, spent_columns
from sfumato.privacy.loss import NOTHING, Loss
from sfumato.strict_documents import JSON

_LISTED = 10  # datasets in a message
_LONGEST_NAME = 200

NOT_HELD = (MissingLedgerError, OtherDatasetsError)
"""The errors of a dataset that was not made."""

UNDECLARED = "0"
"""The version that questions carry as long as none is declared."""


def refuse_name(name: str | None, what: str) -> None:
    """Refuse a name that is empty, too long or not printable; None is no name.

    Raises:
        InputError: it is not 1 to 200 printable characters.
    """
    if name is None:
        return
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(f"{what} is named by 1 to {_LONGEST_NAME} printable characters", culprit=name)


def open_dataset(store: Store, dataset: str, limit: Loss | None, unit: Unit | None, *, create: bool) -> Loss:
    """Open the dataset of a store, make it if there is none and ``create`` is set, and return its limit.

    Raises:
        MissingLedgerError, OtherDatasetsError: there is no such dataset, and none is to be made.
        LimitError, UnitError: the dataset has another limit or unit.
    """
    store.prepare(create=create)
    with store.reading() as driver:
        account = journal.dataset_account(driver, dataset)
    if account is None and create and limit is not None:
        with store.founding() as driver:
            insert_dataset(driver, dataset, limit, unit)
            account = journal.dataset_account(driver, dataset)
        store.checkpoint()  # so that even a copy of the file alone is a ledger
    if account is None or account.limit is None:
        raise _not_held(store, dataset)
    with store.reading() as driver:
        recorded_unit = journal.dataset_unit(driver, dataset)
    refuse_other_terms(
        dataset, account.limit, None if recorded_unit is None else unit_text(recorded_unit), limit=limit, unit=unit
    )
    return account.limit


def _not_held(store: Store, dataset: str) -> LedgerError:
    with store.reading() as driver:
        held = journal.datasets(driver)
    if not held:
        return MissingLedgerError(
            f"the ledger {store.place} holds no dataset yet; begin one by 'sfumato ledger create' or with --create "
            "where something is released (create=True in Python), and a limit",
            culprit=dataset,
        )
    listed = ", ".join(map(repr, held[:_LISTED])) + (f" and {len(held) - _LISTED} more" if held[_LISTED:] else "")
    return OtherDatasetsError(
        f"the ledger {store.place} holds no dataset {dataset!r}, only {listed}; "
        "name one of these, or begin another budget where something is released: --create with --limit, or "
        "create=True in Python with a limit",
        culprit=dataset,
    )


def insert_dataset(driver: Driver, name: str, limit: Loss, unit: Unit | None) -> None:
    """Enter a new dataset; an existing one stays unchanged."""
    if driver.rows("SELECT 1 FROM ledger_dataset WHERE name = :name", {"name": name}):
        return
    opened, text = now(), loss_text(limit)
    units, delta_units = limit_units(limit)
    row = {
        "name": name,
        "opened": opened,
        "secret": secrets.token_hex(32),
        "limit_loss": text,
        "limit_units": units,
        "limit_delta_units": delta_units,
        **spent_columns(limit, NOTHING),
        "entries": 0,
        "head": genesis(name, text, opened, unit),
        "unit": None if unit is None else unit_text(unit),
        "version": 0,
        "version_digest": None,
    }
    driver.insert("ledger_dataset", [row])


def create_or_check(driver: Driver, name: str, limit: Loss, unit: Unit | None) -> Loss:
    """Enter a dataset, or check the limit and unit of an existing one; return the limit.

    Raises:
        LimitError: it has another limit.
        UnitError: it adds up losses of another unit.
    """
    insert_dataset(driver, name, limit, unit)
    ((recorded_limit, recorded_unit),) = driver.rows(
        "SELECT limit_loss, unit FROM ledger_dataset WHERE name = :name", {"name": name}
    )
    refuse_other_terms(name, loss_from(recorded_limit), recorded_unit, limit=limit, unit=unit)
    return limit


def refuse_other_terms(
    name: str, recorded_limit: Loss, recorded_unit: str | None, *, limit: Loss | None, unit: Unit | None
) -> None:
    """Refuse a limit or unit that differs from the recorded one.

    Raises:
        LimitError, UnitError: which it is.
    """
    if limit is not None and limit != recorded_limit:
        raise LimitError(
            f"the ledger of {name!r} has the limit {recorded_limit}, not {limit}; a limit never changes: leave it out, "
            f"or state {recorded_limit}",
            culprit=limit,
        )
    refuse_unit(None if recorded_unit is None else unit_from(recorded_unit), unit)


def data_versions(driver: Driver, name: str, *, most: int | None = None) -> list[DataVersion]:
    """Return the declared versions of a dataset, the last one first; at most ``most`` of them."""
    query = "SELECT * FROM ledger_entry WHERE dataset = :dataset AND kind = 'version' ORDER BY number DESC"
    query += "" if most is None else " LIMIT :most"
    return [DataVersion.from_entry(entry_from(row)) for row in driver.records(query, {"dataset": name, "most": most})]


def last_version(driver: Driver, name: str) -> tuple[DataVersion | None, str | None]:
    """Return the last declared version of a dataset, and the digest of its content; None twice before the first."""
    digest = driver.value("SELECT version_digest FROM ledger_dataset WHERE name = :dataset", {"dataset": name})
    return next(iter(data_versions(driver, name, most=1)), None), digest


def number_of(digest: str, last: tuple[int, str | None], *, new: bool) -> int:
    """Return the number of the version that some content has, or gets.

    A new version is counted for any content.  Otherwise a new version would tell whether any row changed.

    Args:
        digest: the digest of the content, under the ledger's secret.
        last: number and digest of the last declared version; 0 and None before the first.
        new: true to declare the next version.

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
    """The content of tables, as an engine names it."""

    @property
    def files(self) -> str:
        """A name of the bytes of all their files; empty if they are not made of files."""
        ...

    @property
    def name(self) -> str:
        """A name of all rows and columns, which may need a second reading of the tables."""
        ...


def content_digests(
    content: NamedContent | str, secret: str, last: tuple[DataVersion | None, str | None], *, new: bool
) -> tuple[str, str]:
    """Digest a content, or a name of one, under a ledger's secret.

    Files with the bytes of the last version have its content, so their rows need no second reading.  If the next
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
        transaction: a transaction of the dataset.
        digests: the digests of its tables from :func:`content_digests`.
        by: the name of the person who declares it.
        new: true to declare the next version for any content.
        most: the largest number of a new version, so that a program that was overtaken declares none; None: any.
        admit: raises an error to refuse the release that needs the version; None: no further check.

    Returns:
        The version of the content.

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
    sealed_digest, files = sealed(number, digest), sealed(number, digest_of_files) if digest_of_files else ""
    of_files: dict[str, JSON] = {"files": files} if files else {}
    question = Question("ledger", "version", {"number": number, "digest": sealed_digest, "by": by, **of_files}, "")
    statement = f"version {number} of the data, declared by {by}"
    transaction.append(Event(Kind.VERSION, question, None, None, statement, None))
    transaction.version, transaction.version_digest = number, digest
    transaction.declared = DataVersion(number, transaction.time, by, sealed_digest, files)
    return transaction.declared


def declare_within(driver: Driver, name: str, digest: str, *, by: str) -> DataVersion:
    """Enter the next version for any content, as a part of a larger transaction.

    Args:
        driver: a driver in a transaction that writes.
        name: the name of the dataset.
        digest: the digest of the content, under the ledger's secret.
        by: see :func:`declare`.

    Returns:
        The version.
    """
    transaction = Transaction(driver, name)
    version = declare(transaction, (digest, ""), by=by, new=True)
    transaction.close()
    return version
