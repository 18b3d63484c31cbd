"""The last position in a journal that a program saw: a journal that lacks it was set back under the program."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import MovedLedgerError
from sfumato.ledger import journal
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.store import Store

_FIND_HASH = """
    SELECT hash FROM ledger_entry WHERE dataset = :dataset AND number = :entries
    UNION ALL SELECT hash FROM ledger_answer WHERE dataset = :dataset AND place = :answers"""


@dataclass(frozen=True)
class JournalEnd:
    """The end of a journal at one time.

    Attributes:
        entries: how many there are.
        answers: how many are stored.
        head: the hash of what was written last.
    """

    entries: int
    answers: int
    head: str


class LastWritten:
    """The last position in a dataset's journal that a program saw.

    Args:
        store: which holds the journal.
        dataset: its name.
    """

    def __init__(self, store: Store, dataset: str) -> None:
        self._store = store
        self._dataset = dataset
        self._founded: str | None = None
        self.position: JournalEnd | None = None

    @property
    def secret(self) -> str:
        """The dataset's secret from its creation, which never changes, so that two threads may read it."""
        if self._founded is None:
            with self._store.reading() as driver:
                self._founded = journal.secret(driver, self._dataset)
        return self._founded

    def look(self) -> None:
        """Check that the journal still contains the last position, and remember its current one.

        Raises:
            MovedLedgerError: it does not.
        """
        before = self.position  # before the reading begins, so that what is read is not older
        _ = self.secret
        with self._store.reading() as driver:
            row = journal.dataset_row(driver, self._dataset) or {"secret": "", "entries": 0, "answers": 0, "head": ""}
            now = JournalEnd(row["entries"], row["answers"], row["head"])
            self.refuse_set_back(driver, row["secret"], now, before=before)
        if self.position is before:
            self.position = now

    def refuse_set_back(self, driver: Driver, founded: str, now: JournalEnd, *, before: JournalEnd | None) -> None:
        """Refuse a journal that does not contain a position that was seen before.

        Args:
            driver: which reads it.
            founded: the secret of its dataset.
            now: where it ends.
            before: the position; None if none was seen.

        Raises:
            MovedLedgerError: it does not, or its dataset was founded anew.
        """
        if founded == self.secret and (before is None or self._goes_through(driver, now, before)):
            return
        raise MovedLedgerError(
            f"the ledger {self._store.place} no longer holds what was released of {self._dataset!r} while it was open: "
            "it was founded anew, or an old copy was restored; bring the database back, or start again knowingly",
            culprit=self._dataset,
        )

    def _goes_through(self, driver: Driver, now: JournalEnd, before: JournalEnd) -> bool:
        if now.entries < before.entries or now.answers < before.answers:
            return False
        if (now.entries, now.answers) == (before.entries, before.answers):
            return now.head == before.head
        if before.entries == 0:
            return True
        values = {"dataset": self._dataset, "entries": before.entries, "answers": before.answers}
        return any(found == before.head for (found,) in driver.rows(_FIND_HASH, values))
