"""One transaction on the journal and accounts of one dataset, which are held locked for its length.

The dataset row is locked first, analyst rows after it in the order of their names, so two transactions never wait
for each other in a circle.  What a group of writers needs is read at the start, in a few statements that are built
once (building one costs more than running it), changed in memory, and written back by :meth:`Transaction.close`.
"""

# ruff: noqa: S608  (names of our own stand in statements, values never)

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sfumato.bounded_cache import cached
from sfumato.errors import LedgerError, VersionError
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
from sfumato.ledger.entry import DataVersion, Event, Kind, answer_hash, entry_hash
from sfumato.ledger.journal import FOLLOWERS, LINK, JournalEnd, ToldOwners, refuse_lost, refuse_other_owners, unchanged
from sfumato.privacy.loss import NOTHING, Charge, Loss
from sfumato.strict_documents import JSON

LOCK_DATASET = """
    SELECT secret, limit_loss, unit, version, version_digest, epsilon, rho, delta, entries, answers, head
    FROM ledger_dataset WHERE name = :of_dataset FOR UPDATE"""
_BODY = 7  # of the columns of LINK
_SPENT = ("epsilon", "rho", "delta", "spent_units", "spent_delta_units")
_KEPT = ("entries", "answers", "head", "unit", "version", "version_digest")
UPDATE_DATASET = f"""
    UPDATE ledger_dataset SET {changed((*_SPENT, *_KEPT))} WHERE name = :of_dataset"""
UPDATE_HEAD = f"UPDATE ledger_dataset SET {changed(('answers', 'head'))} WHERE name = :of_dataset"
UPDATE_ANALYST = f"""
    UPDATE ledger_analyst SET {changed(("cap_loss", "cap_units", "cap_delta_units", *_SPENT))}
    WHERE dataset = :of_dataset AND name = :of_analyst"""

# What follows looks for several things at once.  A statement is built for 1, 2, 4, 8, ... of them, and the last one
# is named again to fill the places that are left.


@cached()
def lock_analysts(width: int) -> str:
    """Accounts of analysts, locked in the order of their names."""
    return f"""
    SELECT name, cap_loss, epsilon, rho, delta FROM ledger_analyst
    WHERE dataset = :of_dataset AND name IN ({_places("analyst", width)}) ORDER BY name FOR UPDATE"""


@cached()
def find_entries(width: int) -> str:
    """Releases of some keys, their answers, what became of them, and which of some analysts each was shown to.

    The sign before the number it is ordered by changes nothing, but keeps SQLite from reading the whole journal in
    that order, where it is to look the keys up.
    """
    return f"""
    SELECT entry.key, entry.kind, entry.number, entry.hash, entry.analyst, {LINK}
    FROM ledger_entry AS entry
    LEFT JOIN ledger_answer AS answer ON answer.dataset = entry.dataset AND answer.number = entry.number{FOLLOWERS}
    WHERE entry.dataset = :of_dataset AND entry.key IN ({_places("key", width)})
    AND (entry.kind <> :of_kind OR entry.analyst IN ({_places("analyst", width)}))
    ORDER BY +entry.number"""


@cached()
def find_retries(width: int) -> str:
    """What retry keys stand for, by analyst."""
    return f"""
    SELECT analyst, retry_key, key FROM ledger_retry WHERE dataset = :of_dataset
    AND analyst IN ({_places("analyst", width)}) AND retry_key IN ({_places("retry_key", width)})"""


def width_for(*things: Collection[object]) -> int:
    """The width of a statement that has places for all of each.

    >>> width_for("a", "abc"), width_for("a"), width_for("")
    (4, 1, 1)
    """
    return 1 << max(max(map(len, things)) - 1, 0).bit_length()


def filled(name: str, things: Collection[Any], width: int) -> Mapping[str, Any]:
    """Values for the places; for no things, an empty text, which is no name of anything.

    >>> filled("key", ["a", "b", "c"], 4)
    {'key_0': 'a', 'key_1': 'b', 'key_2': 'c', 'key_3': 'c'}
    """
    ordered = sorted(things) or [""]
    return {f"{name}_{place}": ordered[min(place, len(ordered) - 1)] for place in range(width)}


def _places(name: str, width: int) -> str:
    return ", ".join(f":{name}_{place}" for place in range(width))


@dataclass(frozen=True)
class Wanted:
    """What a piece of work will look at: keys of releases, analysts, retry keys by analyst."""

    keys: frozenset[str] = frozenset()
    analysts: frozenset[str] = frozenset()
    retries: frozenset[tuple[str, str]] = frozenset()


def together(parts: Iterable[Wanted]) -> Wanted:
    """What several pieces of work will look at."""
    each = list(parts)
    return Wanted(
        keys=frozenset().union(*(part.keys for part in each)),
        analysts=frozenset().union(*(part.analysts for part in each)),
        retries=frozenset().union(*(part.retries for part in each)),
    )


@dataclass(frozen=True)
class Stored:
    """A release in the journal that was not closed as failed.

    Attributes:
        number: of its entry.
        hash: of its entry.
        answer: None while it is pending.
        retried: whether it was computed again after a process that computed it had died.
        link: what binds an answer that was stored before this transaction; None of any other.
    """

    number: int
    hash: str
    answer: bytes | None
    retried: bool
    link: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Found:
    """What was there, with an entry for each thing that was wanted: looking for another one is an error.

    Attributes:
        analysts: accounts by name, locked; a new one is empty and has no cap.
        known: the analysts who have an account already.
        releases: the latest by key; None: there is none, or it failed.
        shown: keys of these releases that an analyst was charged for, with the analyst.
        retries: key of the release that a retry key stands for, by analyst and retry key, or None.
    """

    analysts: dict[str, Account]
    known: frozenset[str]
    releases: dict[str, Stored | None]
    shown: set[tuple[str, str]]
    retries: dict[tuple[str, str], str | None]


def fetch(driver: Driver, dataset: str, wanted: Wanted) -> Found:
    """Fetch what is wanted; the dataset's row is locked already."""
    analysts = _analysts(driver, dataset, wanted.analysts)
    releases, shown = _entries(driver, dataset, wanted)
    return Found(
        analysts=dict.fromkeys(wanted.analysts, Account(None, NOTHING)) | analysts,
        known=frozenset(analysts),
        releases=dict.fromkeys(wanted.keys) | releases,
        shown=shown,
        retries=dict.fromkeys(wanted.retries) | _retries(driver, dataset, wanted.retries),
    )


def _analysts(driver: Driver, dataset: str, names: frozenset[str]) -> dict[str, Account]:
    if not names:
        return {}
    width = width_for(names)
    values = {"of_dataset": dataset, **filled("analyst", names, width)}
    return {
        name: Account(None if cap is None else loss_from(cap), charge_from(*spent))
        for name, cap, *spent in driver.rows(lock_analysts(width), values)
    }


def _entries(driver: Driver, dataset: str, wanted: Wanted) -> tuple[dict[str, Stored], set[tuple[str, str]]]:
    if not wanted.keys:
        return {}, set()
    width = width_for(wanted.keys, wanted.analysts)
    values = {
        "of_dataset": dataset,
        "of_kind": Kind.REPEAT.value,
        **filled("key", wanted.keys, width),
        **filled("analyst", wanted.analysts, width),
    }
    releases: dict[str, Stored] = {}
    shown: set[tuple[str, str]] = set()
    for key, kind, number, hash_, analyst, *link in driver.rows(find_entries(width), values):
        match kind:
            case Kind.RELEASE:
                answered = link[0] is not None
                body, bound = (link[_BODY], tuple(link)) if answered else (None, None)
                releases[key] = Stored(number, hash_, body, retried=False, link=bound)
            case Kind.RETRY:
                releases[key] = replace(releases[key], retried=True)
            case Kind.FAILED:
                del releases[key]
                shown = {(other, who) for other, who in shown if other != key}
        if analyst is not None and kind in (Kind.RELEASE, Kind.REPEAT):
            shown.add((key, analyst))
    return releases, shown


def _retries(driver: Driver, dataset: str, retries: frozenset[tuple[str, str]]) -> dict[tuple[str, str], str]:
    if not retries:
        return {}
    width = width_for(retries)
    analysts, retry_keys = ({pair[place] for pair in retries} for place in (0, 1))
    values = {
        "of_dataset": dataset,
        **filled("analyst", analysts, width),
        **filled("retry_key", retry_keys, width),
    }
    return {(analyst, retry_key): key for analyst, retry_key, key in driver.rows(find_retries(width), values)}


def now() -> str:
    """The time of an entry."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Transaction:
    """One dataset's accounts and journal under lock.  Create it first thing in a write transaction.

    Only what is ``wanted`` can be looked at.

    Attributes:
        name: of the dataset.
        founded: what no other founding of a dataset has, whatever its name.
        unit: whom charges are stated for; None in an old ledger that has not been released from since.
        version: the number of the last declared version of the data; 0 before the first.
        version_digest: the digest of its content under the ledger's secret; None before the first.
        declared: the last version that this transaction declares; None if it declares none.
        entries: how many there are in the journal.
        answers: how many are stored.
        head: the hash of whatever was written last, entry or answer.
        time: of all that is entered.
    """

    def __init__(self, driver: Driver, name: str, wanted: Wanted, *, told: ToldOwners) -> None:
        self._driver = driver
        self._told = told
        self.name = name
        rows = driver.rows(LOCK_DATASET, {"of_dataset": name})
        self.time = now()  # under the lock: whoever waited for it is later than those before, as in the journal
        if not rows:
            raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
        self.founded, limit, unit, version, digest, *spent, self.entries, self.answers, self.head = rows[0]
        self.version: int = version
        self.version_digest: str | None = digest
        self.declared: DataVersion | None = None
        self._begun = self.entries, self.head
        self.limit: Loss = loss_from(limit)
        self.unit = None if unit is None else unit_from(unit)
        self.account = Account(self.limit, charge_from(*spent))
        self._found = fetch(driver, name, wanted)
        self._touched: set[str] = set()
        self._new_entries: list[dict[str, Any]] = []
        self._new_answers: list[dict[str, Any]] = []
        self._new_retries: list[dict[str, Any]] = []
        self._new_actions: list[tuple[Change, Actor | None]] = []

    @property
    def position(self) -> JournalEnd:
        """Where the journal ends now."""
        return JournalEnd(self.entries, self.answers, self.head)

    @property
    def driver(self) -> Driver:
        """The connection, for what is looked at beside the journal."""
        return self._driver

    def refuse_other_version(self, version: str) -> None:
        """Refuse a question about another version of the data than the last declared one.

        Raises:
            VersionError: it is.
        """
        if version != str(self.version):
            raise VersionError(
                f"version {self.version} of the data was declared, and this question is about version {version}; open "
                "the tables again, and ask about what they hold now; nothing was charged",
                culprit=version,
            )

    def refuse_other_owners(self, owners: Mapping[str, str]) -> None:
        """Refuse owners of tables' rows other than releases were charged for, here or in this transaction.

        Raises:
            UnitError: there are such.
        """
        new = [json.loads(entry["details"]).get("owners", {}) for entry in self._new_entries]
        refuse_other_owners(owners, [*self._told.read(self._driver, self.name), *new])

    def knows(self, name: str) -> bool:
        """Whether an analyst has an account, or gets one in this transaction."""
        return name in self._found.known or name in self._touched

    def analyst(self, name: str) -> Account:
        """The account of an analyst, locked; a new one is empty and has no cap."""
        return self._found.analysts[name]

    def stored_release(self, key: str) -> Stored | None:
        """The release of that key, answered or pending; None where there is none that did not fail.

        Raises:
            BrokenLedgerError: its answer was changed by other hands.
        """
        found = self._found.releases[key]
        if found is not None and found.link is not None:
            unchanged(found.link, self._begun[1])
        return found

    def refuse_lost(self, pending: Stored) -> None:
        """Refuse to take a release for unanswered whose answer may have been taken away.

        Raises:
            BrokenLedgerError: the chain of hashes does not go on from its entry.
        """
        entries, head = self._begun
        if pending.number <= entries:
            refuse_lost(self._driver, self.name, pending.number, head)

    def was_shown(self, key: str, analyst: str) -> bool:
        """Whether the analyst was charged for the release of that key already."""
        return (key, analyst) in self._found.shown

    def retried(self, retry_key: str, analyst: str | None) -> str | None:
        """Key of the release that this retry key stands for; each analyst has retry keys of their own."""
        return self._found.retries[analyst or "", retry_key]

    def remember(self, retry_key: str, analyst: str | None, key: str) -> None:
        """Bind a retry key to a release."""
        self._found.retries[analyst or "", retry_key] = key
        self._new_retries.append({"dataset": self.name, "analyst": analyst or "", "retry_key": retry_key, "key": key})

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

    def record(self, kind: ActionKind, before: JSON, after: JSON, by: Actor | None) -> None:
        """Enter a change of the dataset in the audit log when the transaction closes, after all other locks."""
        self._new_actions.append((Change(kind, self.name, before, after), by))

    def append(self, event: Event) -> int:
        """Add an entry to the journal; returns its number."""
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
        place, previous = self.answers + 1, self.head
        self.head = answer_hash(previous, place, pending.number, self.time, found=None, body=body)
        self.answers = place
        row = {"dataset": self.name, "number": pending.number, "time": self.time, "place": place, "found": None}
        row |= {"entries": self.entries, "previous": previous, "hash": self.head, "body": body}
        self._new_answers.append(row)

    def close(self) -> None:
        """Write everything down; the database checks the accounts against their limits once more."""
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
        self._driver.write(UPDATE_DATASET, [{**row, "of_dataset": self.name}])
        touched, known = sorted(self._touched), self._found.known
        new = [self._analyst_row(name) | {"dataset": self.name, "name": name} for name in touched if name not in known]
        old = [
            self._analyst_row(name) | {"of_dataset": self.name, "of_analyst": name} for name in touched if name in known
        ]
        self._driver.insert("ledger_analyst", new)
        self._driver.write(UPDATE_ANALYST, old)
        for change, by in self._new_actions:
            record(self._driver, change, by)

    def _analyst_row(self, name: str) -> dict[str, Any]:
        account = self._found.analysts[name]
        units: tuple[int | None, int | None] = (None, None) if account.limit is None else limit_units(account.limit)
        return {
            "cap_loss": None if account.limit is None else loss_text(account.limit),
            "cap_units": units[0],
            "cap_delta_units": units[1],
            **spent_columns(self.limit, account.spent),
        }


def spent_columns(limit: Loss, spent: Charge) -> dict[str, Any]:
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
