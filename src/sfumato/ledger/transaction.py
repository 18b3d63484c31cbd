"""A transaction on the journal and accounts of one dataset, under locks.

The dataset's row is locked first and the analyst's row after it, so two transactions never wait for each other in a
circle.  A transaction reads one release, one analyst and one retry key at its start, changes them in memory, and writes
them back by :meth:`Transaction.close`.
"""

# ruff: noqa: S608  (statements hold constant names, never values)

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from sfumato.errors import InputError, LedgerError, VersionError
from sfumato.ledger.account import (
    Account,
    charge_from,
    charge_text,
    limit_units,
    loss_from,
    loss_text,
    spent_units,
    unit_from,
    unit_text,
)
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Driver, changed
from sfumato.ledger.entry import DataVersion, Event, Kind, Question, answer_hash, entry_hash
from sfumato.ledger.journal import (
    FOLLOWERS,
    LINK,
    ChainPosition,
    JournalMemory,
    recorded_owners,
    refuse_lost,
    refuse_other_owners,
    unchanged,
)
from sfumato.privacy.loss import NOTHING, Charge, Loss

T = TypeVar("T")

LOCK_DATASET = """
    SELECT secret, limit_loss, unit, version, version_digest, epsilon, rho, delta, entries, answers, head
    FROM ledger_dataset WHERE name = :of_dataset FOR UPDATE"""
_BODY = 7  # index of the body in the columns of LINK
_SPENT = ("epsilon", "rho", "delta", "spent_units", "spent_delta_units")
_KEPT = ("entries", "answers", "head", "unit", "version", "version_digest")
UPDATE_DATASET = f"""
    UPDATE ledger_dataset SET {changed((*_SPENT, *_KEPT))} WHERE name = :of_dataset"""
UPDATE_HEAD = f"UPDATE ledger_dataset SET {changed(('answers', 'head'))} WHERE name = :of_dataset"
UPDATE_ANALYST = f"""
    UPDATE ledger_analyst SET {changed(("cap_loss", "cap_units", "cap_delta_units", *_SPENT))}
    WHERE dataset = :of_dataset AND name = :of_analyst"""

LOCK_ANALYST = """
    SELECT cap_loss, epsilon, rho, delta FROM ledger_analyst
    WHERE dataset = :of_dataset AND name = :of_analyst FOR UPDATE"""
# The sign before the number changes nothing, but keeps SQLite from reading the whole journal in that order.
FIND_ENTRIES = f"""
    SELECT entry.kind, entry.number, entry.hash, entry.analyst, {LINK}
    FROM ledger_entry AS entry
    LEFT JOIN ledger_answer AS answer ON answer.dataset = entry.dataset AND answer.number = entry.number{FOLLOWERS}
    WHERE entry.dataset = :of_dataset AND entry.key = :of_key
    AND (entry.kind <> :of_kind OR entry.analyst = :of_analyst)
    ORDER BY +entry.number"""
FIND_RETRY = """
    SELECT key FROM ledger_retry WHERE dataset = :of_dataset AND analyst = :of_analyst AND retry_key = :of_retry_key"""


@dataclass(frozen=True)
class Stored:
    """A release in the journal that was not closed as failed.

    Attributes:
        number: the number of its entry.
        hash: the hash of its entry.
        answer: None while it is pending.
        retried: true if it was computed again after a process that computed it had died.
        link: the row that binds an answer which was stored before this transaction; None for any other.
    """

    number: int
    hash: str
    answer: bytes | None
    retried: bool
    link: tuple[Any, ...] | None = None


def now() -> str:
    """Return the time of an entry."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Transaction:
    """The accounts and the journal of one dataset under lock.  Create it first thing in a write transaction.

    Args:
        driver: a driver in a transaction that writes.
        name: the name of the dataset.
        memory: the journal's last position in this program, if there is one.
        key: the key of the release to read, if any.
        analyst: the analyst whose account is read, if any.
        retry_key: the retry key to read, if any.

    Attributes:
        name: the name of the dataset.
        founded: the secret of the dataset.  No other dataset has it, even under the same name.
        unit: the unit of all charges; None in an old ledger before its next release.
        version: the number of the last declared version of the data; 0 before the first.
        version_digest: the digest of its content under the ledger's secret; None before the first.
        declared: the last version that this transaction declares; None if it declares none.
        entries: the number of entries in the journal.
        answers: the number of stored answers.
        head: the hash of the last entry or answer.
        time: the time of all new entries.
        analyst: the account of the analyst, locked; a new one is empty and has no cap.
    """

    def __init__(
        self,
        driver: Driver,
        name: str,
        *,
        memory: JournalMemory | None = None,
        key: str | None = None,
        analyst: str | None = None,
        retry_key: str | None = None,
    ) -> None:
        self._driver = driver
        self._memory = memory
        self.name = name
        rows = driver.rows(LOCK_DATASET, {"of_dataset": name})
        self.time = now()  # under the lock, so that times are in the order of the journal
        if not rows:
            raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
        self.founded, limit, unit, version, digest, *spent, self.entries, self.answers, self.head = rows[0]
        self.version: int = version
        self.version_digest: str | None = digest
        self.declared: DataVersion | None = None
        self._start = self.entries, self.head
        self.limit: Loss = loss_from(limit)
        self.unit = None if unit is None else unit_from(unit)
        self.account = Account(self.limit, charge_from(*spent))
        self._analyst, self._retry_key = analyst, retry_key
        self._lock_analyst()
        self._read_release(key)
        self._release_of_retry_key = self._read_retry_key()
        self._new_entries: list[dict[str, Any]] = []
        self._new_answers: list[dict[str, Any]] = []
        self._new_retries: list[dict[str, Any]] = []
        self._new_actions: list[tuple[Change, Actor | None]] = []

    def _lock_analyst(self) -> None:
        rows = []
        if self._analyst is not None:
            rows = self._driver.rows(LOCK_ANALYST, {"of_dataset": self.name, "of_analyst": self._analyst})
        self.analyst = Account(None, NOTHING)
        for cap, *spent in rows:
            self.analyst = Account(None if cap is None else loss_from(cap), charge_from(*spent))
        self._has_row, self._is_changed = bool(rows), False

    def _read_release(self, key: str | None) -> None:
        """Read the latest release of a key, and the analysts who were charged for it."""
        self._release: Stored | None = None
        self._charged_analysts: set[str] = set()
        if key is None:
            return
        values = {"of_dataset": self.name, "of_key": key, "of_kind": Kind.REPEAT.value, "of_analyst": self._analyst}
        for kind, number, hash_, analyst, *link in self._driver.rows(FIND_ENTRIES, values):
            match kind:
                case Kind.RELEASE:
                    answered = link[0] is not None
                    body, bound = (link[_BODY], tuple(link)) if answered else (None, None)
                    self._release = Stored(number, hash_, body, retried=False, link=bound)
                case Kind.RETRY:
                    assert self._release is not None
                    self._release = replace(self._release, retried=True)
                case Kind.FAILED:
                    self._forget_release()
            if analyst is not None and kind in (Kind.RELEASE, Kind.REPEAT):
                self._charged_analysts.add(analyst)

    def _forget_release(self) -> None:
        self._release = None
        self._charged_analysts.clear()

    def _read_retry_key(self) -> str | None:
        if self._retry_key is None:
            return None
        values = {"of_dataset": self.name, "of_analyst": self._analyst or "", "of_retry_key": self._retry_key}
        key: str | None = self._driver.value(FIND_RETRY, values)
        return key

    @property
    def position(self) -> ChainPosition:
        """The end of the journal."""
        return self.entries, self.answers, self.head

    @property
    def driver(self) -> Driver:
        """The connection, to read tables next to the journal."""
        return self._driver

    def refuse_other_version(self, version: str) -> None:
        """Refuse a question about another version of the data than the last declared one.

        Raises:
            VersionError: the versions differ.
        """
        if version != str(self.version):
            raise VersionError(
                f"version {self.version} of the data was declared, and this question is about version {version}; open "
                "the tables again, and ask about what they hold now; nothing was charged",
                culprit=version,
            )

    def refuse_other_owners(self, owners: Mapping[str, str]) -> None:
        """Refuse owners of tables that differ from those in the journal or in this transaction.

        Raises:
            UnitError: the owner of a table differs.
        """
        new = [json.loads(entry["details"]).get("owners", {}) for entry in self._new_entries]
        if self._memory is None:
            _, recorded = recorded_owners(self._driver, self.name)
        else:
            recorded = self._memory.owners(self._driver)
        refuse_other_owners(owners, [*recorded, *new])

    @property
    def knows_analyst(self) -> bool:
        """True if the analyst has an account, or gets one in this transaction."""
        return self._has_row or self._is_changed

    def stored_release(self) -> Stored | None:
        """Return the release, answered or pending; None if there is none, or if it failed.

        Raises:
            BrokenLedgerError: another program changed its answer.
        """
        release = self._release
        if release is not None and release.link is not None:
            unchanged(release.link, self._start[1])
        return release

    def refuse_lost(self, pending: Stored) -> None:
        """Refuse to take a release for unanswered if its answer may have been removed.

        Raises:
            BrokenLedgerError: the chain of hashes does not go on from its entry.
        """
        entries, head = self._start
        if pending.number <= entries:
            refuse_lost(self._driver, self.name, pending.number, head)

    @property
    def was_shown(self) -> bool:
        """True if the analyst was charged for the release already."""
        return self._analyst in self._charged_analysts

    @property
    def release_of_retry_key(self) -> str | None:
        """The key of the release that the analyst's retry key refers to."""
        return self._release_of_retry_key

    def remember(self, key: str) -> None:
        """Bind the retry key to a release."""
        self._release_of_retry_key = key
        row = {"dataset": self.name, "analyst": self._analyst or "", "retry_key": self._retry_key, "key": key}
        self._new_retries.append(row)

    def charge(self, charge: Charge, *, dataset: bool, analyst: bool) -> None:
        """Charge the dataset, the analyst, or both."""
        account = self.account.charged(charge) if dataset else self.account
        if analyst:
            self.analyst, self._is_changed = self.analyst.charged(charge), True
        self.account = account

    def set_cap(self, cap: Loss | None, *, by: Actor | None) -> None:
        """Set or lift the cap of the analyst.  Record this in the journal, and the actor in the audit log.

        Raises:
            InputError: the analyst has spent more than the cap already.
        """
        before = self.analyst.limit
        self._enter_cap(cap)
        former, new = ({"analyst": self._analyst, "cap": None if each is None else str(each)} for each in (before, cap))
        self._new_actions.append((Change(ActionKind.CAP, self.name, former, new), by))  # written after all other locks

    def set_first_cap(self, cap: Loss) -> None:
        """Set the cap of an analyst who has no account.  If several are set at the same time, the first applies."""
        if not self.knows_analyst:
            self._enter_cap(cap)

    def _enter_cap(self, cap: Loss | None) -> None:
        spent = self.analyst.spent
        if not Account(cap, NOTHING).admits(spent):
            raise InputError(
                f"this analyst has spent {self.limit.in_words(spent)} already, more than the cap", culprit=cap
            )
        self.analyst, self._is_changed = replace(self.analyst, limit=cap), True
        text = None if cap is None else loss_text(cap)
        question = Question("ledger", "cap", {"analyst": self._analyst, "cap": text}, "")
        statement = f"cap of {self._analyst}: {'lifted' if cap is None else cap}"
        self.append(Event(Kind.CAP, question, None, self._analyst, statement, None))

    def append(self, event: Event) -> int:
        """Add an entry to the journal, and return its number."""
        number: int = self.entries + 1
        time, previous = self.time, self.head
        self.head = entry_hash(previous, number, time, event)
        self.entries = number
        epsilon, rho, delta = (None, None, None) if event.charge is None else json.loads(event.charge_text)
        self._new_entries.append(
            {
                "dataset": self.name,
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
                "details": event.details_text,
                "previous": previous,
                "hash": self.head,
                "stated": event.stated_text,
            }
        )
        if event.fixes_unit:
            self.unit = event.unit
        if event.analyst is not None and event.kind is not Kind.CAP:
            self._charged_analysts.add(event.analyst)
        return number

    def open(self, event: Event) -> Stored:
        """Add a new release to the journal, pending."""
        stored = Stored(self.append(event), self.head, None, retried=False)
        self._release = stored
        return stored

    def retry(self, event: Event) -> None:
        """Record that a pending release is computed once more."""
        pending = self._release
        assert pending is not None
        self._about(pending, event, Kind.RETRY)
        self._release = replace(pending, retried=True)

    def fail(self, event: Event) -> None:
        """Close a pending release: it stays charged and is never answered."""
        pending = self._release
        assert pending is not None
        self._about(pending, event, Kind.FAILED)
        self._forget_release()

    def _about(self, pending: Stored, event: Event, kind: Kind) -> None:
        """Add an entry that charges nobody, about a pending release."""
        about = replace(event, kind=kind, analyst=None, details={"release": pending.number})
        self.append(replace(about, grid_charge=None, fixes_unit=False))

    def store(self, body: bytes) -> None:
        """Store the answer of the pending release."""
        pending = self._release
        assert pending is not None
        self._release = replace(pending, answer=body)
        place, previous = self.answers + 1, self.head
        self.head = answer_hash(previous, place, pending.number, self.time, bound=None, body=body)
        self.answers = place
        row = {"dataset": self.name, "number": pending.number, "time": self.time, "place": place, "found": None}
        row |= {"entries": self.entries, "previous": previous, "hash": self.head, "body": body}
        self._new_answers.append(row)

    def close(self) -> None:
        """Write all changes; the database checks the accounts against their limits once more."""
        self._driver.insert("ledger_entry", self._new_entries)
        self._driver.insert("ledger_answer", self._new_answers)
        self._driver.insert("ledger_retry", self._new_retries)
        now = {"answers": self.answers, "head": self.head}
        if not self._new_entries:
            if self._new_answers:
                self._driver.run(UPDATE_HEAD, {**now, "of_dataset": self.name})
            return
        row = {**spent_columns(self.limit, self.account.spent), **now, "entries": self.entries}
        row["unit"] = None if self.unit is None else unit_text(self.unit)
        row |= {"version": self.version, "version_digest": self.version_digest}
        self._driver.run(UPDATE_DATASET, {**row, "of_dataset": self.name})
        if self._is_changed:
            row = self._analyst_row()
            if self._has_row:
                self._driver.run(UPDATE_ANALYST, row | {"of_dataset": self.name, "of_analyst": self._analyst})
            else:
                self._driver.insert("ledger_analyst", [row | {"dataset": self.name, "name": self._analyst}])
        for change, by in self._new_actions:
            record(self._driver, change, by)

    def _analyst_row(self) -> dict[str, Any]:
        account = self.analyst
        units: tuple[int | None, int | None] = (None, None) if account.limit is None else limit_units(account.limit)
        return {
            "cap_loss": None if account.limit is None else loss_text(account.limit),
            "cap_units": units[0],
            "cap_delta_units": units[1],
            **spent_columns(self.limit, account.spent),
        }


def spent_columns(limit: Loss, spent: Charge) -> dict[str, Any]:
    """Return the columns of a dataset's or an analyst's row that hold the spent loss."""
    epsilon, rho, delta = charge_text(spent)
    units, delta_units = spent_units(limit, spent)
    return {
        "epsilon": epsilon,
        "rho": rho,
        "delta": delta,
        "spent_units": units,
        "spent_delta_units": delta_units,
    }
