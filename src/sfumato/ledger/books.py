"""The books of one dataset, held locked for the length of one transaction.

The dataset row is locked first, analyst rows after it, so two transactions never wait for each other in
a circle.  Accounts are read once, changed in memory, and written back by :meth:`Books.close`; entries are
written as they come.  Everything that can be refused is refused before the first write.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, insert, select

from sfumato.errors import LedgerError
from sfumato.ledger import schema
from sfumato.ledger import statements as sql
from sfumato.ledger.account import Account
from sfumato.ledger.amounts import (
    charge_from,
    charge_text,
    limit_units,
    loss_from,
    loss_text,
    spent_units,
)
from sfumato.ledger.entry import Event, entry_hash, genesis
from sfumato.ledger.question import canonical
from sfumato.privacy.accountant import NOTHING, Charge, Limit
from sfumato.privacy.loss import Loss


def spent_in(row: RowMapping) -> Charge:
    """The exact amounts of a dataset's or an analyst's row."""
    return charge_from(row["epsilon"], row["rho"], row["delta"])


def now() -> str:
    """The time of an entry."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Books:
    """One dataset's accounts and journal under lock.  Create it first thing in a write transaction."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        row = connection.execute(sql.LOCK_DATASET, {"of_dataset": name}).mappings().one_or_none()
        if row is None:
            raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
        self.limit: Limit = loss_from(row["limit_loss"])
        self.account = Account(self.limit, spent_in(row))
        self._secret: str = row["secret"]
        self._entries: int = row["entries"]
        self._head: str = row["head"]
        self._opened_at = self._entries
        self._analysts: dict[str, Account] = {}
        self._touched: set[str] = set()
        self._new: set[str] = set()

    def version(self, fingerprint: str) -> str:
        """What the journal calls a version of the data: the same for the same, but nobody else can recompute it.

        A bare fingerprint would confirm a guess of the whole table to whoever sees a hash of the journal.
        """
        return hmac.digest(bytes.fromhex(self._secret), fingerprint.encode(), "sha256").hex()

    def analyst(self, name: str) -> Account:
        """The account of an analyst, locked; a new one is empty and has no cap."""
        if name not in self._analysts:
            which = {"of_dataset": self._name, "of_analyst": name}
            row = self._connection.execute(sql.LOCK_ANALYST, which).mappings().one_or_none()
            if row is None:
                self._analysts[name] = Account(None, NOTHING)
                self._new.add(name)
            else:
                cap = None if row["cap_loss"] is None else loss_from(row["cap_loss"])
                self._analysts[name] = Account(cap, spent_in(row))
        return self._analysts[name]

    def release(self, key: str) -> tuple[int, bytes | None] | None:
        """Number and stored answer of the release of that key; the answer is None while it is pending."""
        which = {"of_dataset": self._name, "of_key": key}
        row = self._connection.execute(sql.FIND_RELEASE, which).one_or_none()
        return None if row is None else (row.number, row.body)

    def was_shown(self, key: str, analyst: str) -> bool:
        """Whether the analyst has paid for the release of that key already."""
        which = {"of_dataset": self._name, "of_key": key, "of_analyst": analyst}
        return self._connection.execute(sql.FIND_SHOWN, which).one_or_none() is not None

    def retried(self, retry_key: str, analyst: str | None) -> str | None:
        """Key of the release that this retry key stands for; each analyst has retry keys of their own."""
        which = {"of_dataset": self._name, "of_analyst": analyst or "", "of_retry_key": retry_key}
        return self._connection.execute(sql.FIND_RETRY, which).scalar_one_or_none()

    def remember(self, retry_key: str, analyst: str | None, key: str) -> None:
        """Bind a retry key to a release."""
        row = {"dataset": self._name, "analyst": analyst or "", "retry_key": retry_key, "key": key}
        self._connection.execute(sql.INSERT_RETRY, row)

    def charge(self, charge: Charge, *, dataset: bool, analyst: str | None) -> None:
        """Charge the dataset, an analyst, or both.

        Raises:
            LossError: the sums have become too long to write down; nothing was charged.
        """
        account = self.account.charged(charge) if dataset else self.account
        if analyst is not None:
            self._analysts[analyst] = self.analyst(analyst).charged(charge)
            self._touched.add(analyst)
        self.account = account

    def cap(self, name: str, cap: Loss | None) -> None:
        """Set or lift the cap of an analyst."""
        self._analysts[name] = replace(self.analyst(name), limit=cap)
        self._touched.add(name)

    def append(self, event: Event) -> int:
        """Add an entry to the journal; returns its number."""
        number, time, previous = self._entries + 1, now(), self._head
        self._head = entry_hash(previous, number, time, event)
        self._entries = number
        amounts = (None, None, None) if event.charge is None else charge_text(event.charge)
        row = {
            "dataset": self._name,
            "number": number,
            "time": time,
            "kind": event.kind.value,
            "family": event.question.family,
            "method": event.question.method,
            "key": event.key,
            "question": event.question.to_json,
            **dict(zip(("epsilon", "rho", "delta"), amounts, strict=True)),
            "analyst": event.analyst,
            "statement": event.statement,
            "details": canonical(event.details),
            "previous": previous,
            "hash": self._head,
        }
        self._connection.execute(sql.INSERT_ENTRY, row)
        return number

    def store(self, number: int, body: bytes) -> bytes:
        """Store the answer of an entry unless it has one; returns the one that stands."""
        which = {"of_dataset": self._name, "of_number": number}
        stored: bytes | None = self._connection.execute(sql.FIND_ANSWER, which).scalar_one_or_none()
        if stored is not None:
            return stored
        row = {"dataset": self._name, "number": number, "time": now(), "body": body}
        self._connection.execute(sql.INSERT_ANSWER, row)
        return body

    def close(self) -> None:
        """Write the accounts back; the database checks them against their limits once more."""
        if self._entries == self._opened_at:
            return
        row = {**_spent_columns(self.limit, self.account.spent), "entries": self._entries, "head": self._head}
        self._connection.execute(sql.UPDATE_DATASET, {**row, "of_dataset": self._name})
        for name in sorted(self._touched):
            row = self._analyst_row(name)
            if name in self._new:
                self._connection.execute(sql.INSERT_ANALYST, {**row, "dataset": self._name, "name": name})
            else:
                self._connection.execute(sql.UPDATE_ANALYST, {**row, "of_dataset": self._name, "of_analyst": name})

    def _analyst_row(self, name: str) -> dict[str, object]:
        account = self._analysts[name]
        units: tuple[int | None, int | None] = (None, None) if account.limit is None else limit_units(account.limit)
        return {
            "cap_loss": None if account.limit is None else loss_text(account.limit),
            "cap_units": units[0],
            "cap_delta_units": units[1],
            **_spent_columns(self.limit, account.spent),
        }


def _spent_columns(limit: Limit, spent: Charge) -> dict[str, object]:
    epsilon, rho, delta = charge_text(spent)
    units, delta_units = spent_units(limit, spent)
    return {
        "epsilon": epsilon,
        "rho": rho,
        "delta": delta,
        "spent_units": units,
        "spent_delta_units": delta_units,
    }


def enrol(connection: Connection, name: str, limit: Limit) -> None:
    """Open the books of a new dataset; one that is there already is left as it is."""
    present = select(schema.dataset.c.name).where(schema.dataset.c.name == name)
    if connection.execute(present).one_or_none() is not None:
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
        **_spent_columns(limit, NOTHING),
        "entries": 0,
        "head": genesis(name, text, opened),
    }
    connection.execute(insert(schema.dataset).values(row))
