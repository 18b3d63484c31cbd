"""Versions of a dataset's content: each is declared by its owner, numbered, and entered in the journal.

A version is a public event of the whole dataset: of all its tables and all their columns.  A question carries the
number of its version and nothing finer.  So a repeated question is free within a version and is charged in the next
one, whatever changed.  The ledger also keeps a keyed digest of the last version's content.  The digest tells the
owner that the tables differ from this version; it decides nothing else.  The journal seals the digest with the number
of the version, because equal digests of two versions would tell its readers that no row changed in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sfumato.errors import VersionError
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import DataVersion, Event, Kind, Question, journalled_version
from sfumato.ledger.journal import entry_from
from sfumato.ledger.owners import ToldOwners
from sfumato.ledger.transaction import Transaction, Wanted
from sfumato.strict_documents import JSON

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


def sealed(number: int, digest: str) -> str:
    """Return a digest for the journal: equal contents of two versions have different ones."""
    return hashlib.sha256(f"{number} {digest}".encode()).hexdigest()


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


@dataclass(frozen=True)
class ContentDigests:
    """Digests of a content under a ledger's secret.

    Attributes:
        digest: of all rows and columns.
        files: of the bytes of files; empty if there are none.
    """

    digest: str
    files: str = ""

    @classmethod
    def of(
        cls, content: NamedContent | str, secret: str, last: tuple[DataVersion | None, str | None], *, new: bool
    ) -> ContentDigests:
        """Digest a content, or a name of one.

        Files with the bytes of the last version have its content, so that their rows are not read again.  If the next
        version is to be declared, they are read in any case: the time that it takes must not tell what changed.
        """
        version, known = (None, None) if new else last
        if isinstance(content, str):
            return cls(journalled_version(secret, content))
        files = journalled_version(secret, f"files {content.files}") if content.files else ""
        if version is not None and known is not None and files and sealed(version.number, files) == version.files:
            return cls(known, files)
        return cls(journalled_version(secret, content.name), files)


def declare(
    transaction: Transaction,
    content: ContentDigests,
    *,
    by: str,
    new: bool,
    most: int | None = None,
    admit: Callable[[Transaction], object] | None = None,
) -> DataVersion:
    """Enter a version in the journal: the next one, the first one, or none if the last one has the same content.

    Args:
        transaction: of the dataset.
        content: of its tables.
        by: the name of who declares it.
        new: whether the next version is declared, whatever the content.
        most: the largest number that ``new`` may begin, so that a program which others overtook begins none; None: any.
        admit: raises to refuse what the version begins for; None: nothing more is asked.

    Returns:
        The version that the content has then.

    Raises:
        VersionError: the content differs from that of the last version, and ``new`` is not set.
    """
    digest = content.digest
    new = new and (most is None or transaction.version < most)
    number = number_of(digest, (transaction.version, transaction.version_digest), new=new)
    if number == transaction.version:
        return transaction.declared or data_versions(transaction.driver, transaction.name, most=1)[0]
    if admit is not None:
        admit(transaction)
    shown, files = sealed(number, digest), sealed(number, content.files) if content.files else ""
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
    transaction = Transaction(driver, name, Wanted(), told=ToldOwners())
    found = declare(transaction, ContentDigests(digest), by=by, new=True)
    transaction.close()
    return found
