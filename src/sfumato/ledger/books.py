"""The books of one dataset, held locked for the length of one transaction.

The dataset row is locked first, analyst rows after it in the order of their names, so two transactions never wait
for each other in a circle.  What a group of writers needs is read at the start, changed in memory, and written
back by :meth:`Books.close`, in a few statements for the whole group.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sfumato.errors import LedgerError
from sfumato.ledger import statements as sql
from sfumato.ledger.account import Account
from sfumato.ledger.amounts import (
    charge_from,
    charge_text,
    limit_units,
    loss_from,
    loss_text,
    spent_units,
    unit_from,
    unit_text,
)
from sfumato.ledger.driver import Driver
from sfumato.ledger.entry import Event, Kind, entry_hash
from sfumato.ledger.found import Stored, Wanted, fetch
from sfumato.ledger.question import canonical
from sfumato.privacy.accountant import Charge, Limit
from sfumato.privacy.loss import Loss


def now() -> str:
    """The time of an entry."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Books:
    """One dataset's accounts and journal under lock.  Create it first thing in a write transaction.

    Only what is ``wanted`` can be looked at.

    Attributes:
        founded: what no other founding of a dataset has, whatever its name.
        unit: whom charges are stated for; None in an old ledger that has not been released from since.
        entries: how many there are in the journal.
        head: the hash of the last of them.
    """

    def __init__(self, driver: Driver, name: str, wanted: Wanted) -> None:
        self._driver = driver
        self._name = name
        rows = driver.rows(sql.LOCK_DATASET, {"of_dataset": name})
        if not rows:
            raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
        self.founded, limit, unit, *spent, self.entries, self.head = rows[0]
        self.limit: Limit = loss_from(limit)
        self.unit = None if unit is None else unit_from(unit)
        self.account = Account(self.limit, charge_from(*spent))
        self._found = fetch(driver, name, wanted)
        self._touched: set[str] = set()
        self._new_entries: list[dict[str, Any]] = []
        self._new_answers: list[dict[str, Any]] = []
        self._new_retries: list[dict[str, Any]] = []

    def analyst(self, name: str) -> Account:
        """The account of an analyst, locked; a new one is empty and has no cap."""
        return self._found.analysts[name]

    def release(self, key: str) -> Stored | None:
        """The release of that key, answered or pending; None where there is none that did not fail."""
        return self._found.releases[key]

    def was_shown(self, key: str, analyst: str) -> bool:
        """Whether the analyst has paid for the release of that key already."""
        return (key, analyst) in self._found.shown

    def retried(self, retry_key: str, analyst: str | None) -> str | None:
        """Key of the release that this retry key stands for; each analyst has retry keys of their own."""
        return self._found.retries[analyst or "", retry_key]

    def remember(self, retry_key: str, analyst: str | None, key: str) -> None:
        """Bind a retry key to a release."""
        self._found.retries[analyst or "", retry_key] = key
        self._new_retries.append({"dataset": self._name, "analyst": analyst or "", "retry_key": retry_key, "key": key})

    def charge(self, charge: Charge, *, dataset: bool, analyst: str | None) -> None:
        """Charge the dataset, an analyst, or both."""
        account = self.account.charged(charge) if dataset else self.account
        if analyst is not None:
            self._found.analysts[analyst] = self.analyst(analyst).charged(charge)
            self._touched.add(analyst)
        self.account = account

    def cap(self, name: str, cap: Loss | None) -> None:
        """Set or lift the cap of an analyst."""
        self._found.analysts[name] = replace(self.analyst(name), limit=cap)
        self._touched.add(name)

    def append(self, event: Event) -> int:
        """Add an entry to the journal; returns its number."""
        number: int = self.entries + 1
        time, previous = now(), self.head
        self.head = entry_hash(previous, number, time, event)
        self.entries = number
        epsilon, rho, delta = (None, None, None) if event.charge is None else charge_text(event.charge)
        self._new_entries.append(
            {
                "dataset": self._name,
                "number": number,
                "time": time,
                "kind": event.kind.value,
                "family": event.question.family,
                "method": event.question.method,
                "key": event.key,
                "question": event.question.to_json,
                "epsilon": epsilon,
                "rho": rho,
                "delta": delta,
                "analyst": event.analyst,
                "statement": event.statement,
                "details": canonical(event.details),
                "previous": previous,
                "hash": self.head,
                "stated": canonical(event.stated) if event.stated else None,
            }
        )
        if event.fixes_unit:
            self.unit = event.unit
        if event.analyst is not None and event.kind is not Kind.CAP:
            self._found.shown.add((event.key, event.analyst))
        return number

    def open(self, event: Event) -> Stored:
        """Add a new release to the journal, pending."""
        stored = Stored(self.append(event), self.head, None, retried=False)
        self._found.releases[event.key] = stored
        return stored

    def retry(self, event: Event) -> None:
        """Write down that a pending release is computed once more."""
        pending = self._found.releases[event.key]
        assert pending is not None
        self._about(pending, event, Kind.RETRY)
        self._found.releases[event.key] = replace(pending, retried=True)

    def fail(self, event: Event) -> None:
        """Close a pending release: it stays charged and is never answered."""
        pending = self._found.releases[event.key]
        assert pending is not None
        self._about(pending, event, Kind.FAILED)
        self._found.releases[event.key] = None
        self._found.shown.difference_update([pair for pair in self._found.shown if pair[0] == event.key])

    def _about(self, pending: Stored, event: Event, kind: Kind) -> None:
        """Add an entry that charges nobody, about a pending release."""
        said = replace(event, kind=kind, analyst=None, details={"release": pending.number})
        self.append(replace(said, counted=None, fixes_unit=False))

    def store(self, key: str, body: bytes) -> None:
        """Store the answer of the pending release of that key."""
        pending = self._found.releases[key]
        assert pending is not None
        self._found.releases[key] = replace(pending, answer=body)
        self._new_answers.append({"dataset": self._name, "number": pending.number, "time": now(), "body": body})

    def close(self) -> None:
        """Write everything down; the database checks the accounts against their limits once more."""
        self._driver.write(sql.INSERT_ENTRY, self._new_entries)
        self._driver.write(sql.INSERT_ANSWER, self._new_answers)
        self._driver.write(sql.INSERT_RETRY, self._new_retries)
        if not self._new_entries:
            return
        row = {**spent_columns(self.limit, self.account.spent), "entries": self.entries, "head": self.head}
        row["unit"] = None if self.unit is None else unit_text(self.unit)
        self._driver.write(sql.UPDATE_DATASET, [{**row, "of_dataset": self._name}])
        touched, known = sorted(self._touched), self._found.known
        new = [self._analyst_row(name) | {"dataset": self._name, "name": name} for name in touched if name not in known]
        old = [
            self._analyst_row(name) | {"of_dataset": self._name, "of_analyst": name}
            for name in touched
            if name in known
        ]
        self._driver.write(sql.INSERT_ANALYST, new)
        self._driver.write(sql.UPDATE_ANALYST, old)

    def _analyst_row(self, name: str) -> dict[str, Any]:
        account = self._found.analysts[name]
        units: tuple[int | None, int | None] = (None, None) if account.limit is None else limit_units(account.limit)
        return {
            "cap_loss": None if account.limit is None else loss_text(account.limit),
            "cap_units": units[0],
            "cap_delta_units": units[1],
            **spent_columns(self.limit, account.spent),
        }


def spent_columns(limit: Limit, spent: Charge) -> dict[str, Any]:
    """The columns of a dataset's or an analyst's row that say what was spent."""
    epsilon, rho, delta = charge_text(spent)
    units, delta_units = spent_units(limit, spent)
    return {
        "epsilon": epsilon,
        "rho": rho,
        "delta": delta,
        "spent_units": units,
        "spent_delta_units": delta_units,
    }
