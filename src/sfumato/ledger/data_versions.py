"""Versions of a dataset's content: each is declared by its owner, numbered, and entered in the journal.

A version is a public event of the whole dataset: of all its tables and all their columns.  A question carries the
number of its version and nothing finer.  So a repeated question is free within a version and is charged in the next
one, whatever changed.  The journal also keeps a keyed digest of the content.  The digest tells the owner that the
tables differ from the last version; it decides nothing else.
"""

from __future__ import annotations

from sfumato.errors import VersionError
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import DataVersion, Event, Kind, Question
from sfumato.ledger.journal import entry_from
from sfumato.ledger.owners import ToldOwners
from sfumato.ledger.transaction import Transaction, Wanted

UNDECLARED = "0"
"""The version that questions carry as long as none is declared."""


def data_versions(driver: Driver, name: str, *, most: int | None = None) -> list[DataVersion]:
    """Return the declared versions of a dataset, the last one first; at most ``most`` of them."""
    query = "SELECT * FROM ledger_entry WHERE dataset = :dataset AND kind = 'version' ORDER BY number DESC"
    query += "" if most is None else " LIMIT :most"
    return [DataVersion.of(entry_from(row)) for row in driver.records(query, {"dataset": name, "most": most})]


def number_of(digest: str, last: tuple[int, str | None], *, new: bool) -> int:
    """Return the number of the version that has some content.

    Args:
        digest: of the content, under the ledger's secret.
        last: number and digest of the last declared version; 0 and None before the first.
        new: whether it may be another content than the last one.

    Raises:
        VersionError: it is another content, and ``new`` is not set.
    """
    number, known = last
    if digest == known:
        return number
    if number and not new:
        raise VersionError(
            f"the tables differ from version {number} of the data, the last declared one; put them back, or declare "
            "the next version by --new-version (new_version=True in Python), in which every question is charged again",
            culprit=number,
        )
    return number + 1


def declare(transaction: Transaction, digest: str, *, by: str, new: bool) -> DataVersion:
    """Enter a version in the journal, unless the last one has the same content.

    Args:
        transaction: of the dataset.
        digest: of the content, under the ledger's secret.
        by: the name of who declares it.
        new: whether it may be another content than the last one.

    Returns:
        The version that the content has then.

    Raises:
        VersionError: it is another content, and ``new`` is not set.
    """
    number = number_of(digest, (transaction.version, transaction.version_digest), new=new)
    if number == transaction.version:
        return transaction.declared or data_versions(transaction.driver, transaction.name, most=1)[0]
    question = Question("ledger", "version", {"number": number, "digest": digest, "by": by}, "")
    statement = f"version {number} of the data, declared by {by}"
    transaction.append(Event(Kind.VERSION, question, None, None, statement, None))
    transaction.version, transaction.version_digest = number, digest
    transaction.declared = DataVersion(number, transaction.time, by, digest)
    return transaction.declared


def declare_within(driver: Driver, name: str, digest: str, *, by: str) -> DataVersion:
    """Enter a version, unless the last one has the same content, as a part of a larger transaction.

    Args:
        driver: in a transaction that writes.
        name: of the dataset.
        digest: as for :func:`declare`.
        by: as there.

    Returns:
        The version that the content has then.
    """
    transaction = Transaction(driver, name, Wanted(), told=ToldOwners())
    found = declare(transaction, digest, by=by, new=True)
    transaction.close()
    return found
