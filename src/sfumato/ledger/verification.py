"""Verification of journals and their answers, from the beginning or from a checkpoint; backups.

A checkpoint is a verified position of a journal, with the sums up to it.  It is stored next to the journal, so it saves
time and proves nothing: an attacker who can write the one can write the other.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from sfumato.domain import Unit
from sfumato.errors import BrokenLedgerError, InputError, LedgerError, SfumatoError
from sfumato.ledger.account import charge_from, charge_text, limit_units, loss_from, on_grid, spent_units, unit_from
from sfumato.ledger.audit_log import action_hashes, verify_actions
from sfumato.ledger.database import Driver, file_address
from sfumato.ledger.entry import DataVersion, Entry, Event, Kind, entry_hash, genesis, sealed
from sfumato.ledger.journal import (
    UNBOUND,
    StoredRow,
    account_of,
    analyst_rows,
    answers_after,
    dataset_row,
    datasets,
    entry_from,
    follows,
    spent_of,
    stored,
)
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Charge
from sfumato.strict_documents import JSON, canonical

AUDIT_LOG = "(audit log)"
"""The name of the audit log among the names of datasets."""


@dataclass
class Checkpoint:
    """A verified position of a journal.

    Attributes:
        number: the number of the last entry.
        answers: the number of answers up to it.
        head: the hash of the last entry or answer.
        unit_is_fixed: true if an entry up to it, or the creation of the dataset, states the unit.
        sums: the sums of the entries.
        checked: the time at which all entries were last read, in ISO 8601; None if they never were.
        bound_later: the answers that an early ledger stored without a hash, by the time at which they were bound.  Only
            a check of the whole journal counts them.
        read: the bytes of answers that the check read.
    """

    number: int
    answers: int
    head: str
    unit_is_fixed: bool
    sums: _Sums
    checked: str | None = None
    bound_later: dict[str, int] = field(default_factory=dict)
    read: int = 0


@dataclass
class _Sums:
    """The sums of a journal, added up like the accounts."""

    _dataset: Charge = NOTHING
    _analysts: dict[str, Charge] = field(default_factory=dict)
    _caps: dict[str, JSON] = field(default_factory=dict)
    _version: tuple[int, str | None] = (0, None)

    @classmethod
    def from_json(cls, text: str) -> _Sums:
        """Read the result of :meth:`to_json`."""
        fields = json.loads(text)
        analysts = {analyst: charge_from(*amounts) for analyst, amounts in fields["analysts"].items()}
        number, digest = fields["version"]
        return cls(charge_from(*fields["dataset"]), analysts, fields["caps"], (number, digest))

    def to_json(self) -> str:
        """Return the sums as a line of JSON."""
        analysts: JSON = {analyst: charge_text(charge) for analyst, charge in self._analysts.items()}
        sums = {"dataset": charge_text(self._dataset), "analysts": analysts, "caps": self._caps}
        return canonical(sums | {"version": list(self._version)})

    def add(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            LedgerError: it declares a version whose number does not follow the last one.
        """
        event = entry.event
        if event.kind is Kind.VERSION:
            declared = DataVersion.from_entry(entry)
            if declared.number != self._version[0] + 1:
                raise BrokenLedgerError(f"the journal is broken at entry {entry.number}: its version", culprit=entry)
            self._version = declared.number, declared.digest
        if event.kind is Kind.CAP and event.analyst is not None:
            self._caps[event.analyst] = event.question.parameters["cap"]
        if event.charge is None:
            return
        if event.kind is Kind.RELEASE:
            self._dataset = _added(self._dataset, event)
        if event.analyst is not None and event.kind in (Kind.RELEASE, Kind.REPEAT):
            self._analysts[event.analyst] = _added(self._analysts.get(event.analyst, NOTHING), event)

    def compare(self, row: StoredRow, analysts: Sequence[StoredRow]) -> None:
        """Refuse accounts that differ from these sums and caps, or whose integers differ from their amounts.

        Raises:
            LedgerError: names the account.
        """
        name, limit = row["name"], loss_from(row["limit_loss"])
        if self._dataset != spent_of(row) or _units(row, "spent") != spent_units(limit, self._dataset):
            raise LedgerError(f"the account of {name!r} is not the sum of its journal", culprit=name)
        if _units(row, "limit") != limit_units(limit):
            raise LedgerError(f"the limit of {name!r} is not the one that its journal began with", culprit=name)
        number, known = row["version"], row["version_digest"]
        if (number, None if known is None else sealed(number, known)) != self._version:
            raise LedgerError(f"the version of {name!r} is not the last one of its journal", culprit=name)
        for each in analysts:
            analyst, account = each["name"], account_of(each)
            spent = self._analysts.get(analyst, NOTHING)
            if account.spent != spent or _units(each, "spent") != spent_units(limit, spent):
                raise LedgerError(f"the account of analyst {analyst!r} is not the sum of the journal", culprit=analyst)
            most = (None, None) if account.limit is None else limit_units(account.limit)
            if each["cap_loss"] != self._caps.get(analyst) or _units(each, "cap") != most:
                raise LedgerError(f"the cap of analyst {analyst!r} is not the last of the journal", culprit=analyst)
        held = {each["name"] for each in analysts}
        capped = {analyst for analyst, cap in self._caps.items() if cap is not None}
        if missing := sorted((self._analysts.keys() | capped) - held):
            raise LedgerError(f"the journal names analysts without an account: {missing}", culprit=missing)


def _units(row: StoredRow, what: str) -> tuple[object, object]:
    """Return the integers in the database's check of an account."""
    return row[f"{what}_units"], row[f"{what}_delta_units"]


def _added(spent: Charge, event: Event) -> Charge:
    """Return the sum after a charge, as accounts were added up when the charge was entered."""
    assert event.charge is not None
    return spent + event.charge if event.grid_charge is None else on_grid(spent) + event.grid_charge


def verify(
    driver: Driver, name: str, *, earlier_head: str | None = None, since: Checkpoint | None = None
) -> Checkpoint:
    """Check journal and answers, optionally after a checkpoint, and that accounts are the sums of the journal.

    Args:
        driver: a driver in a transaction that reads.
        name: the name of the dataset.
        earlier_head: an earlier head, which the journal must still contain; needs a whole check.
        since: a checkpoint; earlier entries are not read.

    Raises:
        LedgerError: an entry or answer is missing, was changed, or does not follow the one before; or an account
            differs from the journal; or the journal lacks ``earlier_head``.
    """
    row = dataset_row(driver, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    unit = None if row["unit"] is None else unit_from(row["unit"])
    reached = _beginning(driver, row, unit) if since is None else since
    passed = earlier_head in (None, reached.head)
    for entry in _checked(driver, name, reached, row["answers"]):
        passed = passed or reached.head == earlier_head
        if entry is None:
            continue
        reached.sums.add(entry)
        if entry.event.fixes_unit and (reached.unit_is_fixed or entry.unit != unit):
            raise LedgerError(
                f"the journal of {name!r} is broken at entry {entry.number}: its unit", culprit=entry.number
            )
        reached.unit_is_fixed = reached.unit_is_fixed or entry.event.fixes_unit
    if reached.number == row["entries"] and reached.answers < row["answers"]:
        raise _broken(name, f"after entry {reached.number}: a stored answer is missing", reached.number)
    if (reached.number, reached.answers, reached.head) != (row["entries"], row["answers"], row["head"]):
        raise LedgerError(
            f"the journal of {name!r} is broken after entry {reached.number}: entries are missing",
            culprit=reached.number,
        )
    if reached.unit_is_fixed != (unit is not None):
        raise LedgerError(f"the unit of {name!r} is not the one of its journal", culprit=name)
    reached.sums.compare(row, analyst_rows(driver, name))
    if not passed:
        raise LedgerError(
            f"the journal of {name!r} does not contain the kept hash: it is an older copy of the ledger, "
            "or was written anew, so that released answers and their charges are missing",
            culprit=earlier_head,
        )
    if since is None:
        reached.checked = datetime.now(UTC).isoformat()
    return reached


def checkpoint(driver: Driver, name: str) -> Checkpoint | None:
    """Return the last checkpoint of a dataset; None if there is none, or it cannot be read."""
    row = driver.record("SELECT * FROM ledger_checkpoint WHERE dataset = :dataset", {"dataset": name})
    if row is None:
        return None
    with suppress(ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, SfumatoError):
        sums = _Sums.from_json(row["sums"])
        fixed = bool(row["unit_is_fixed"])
        return Checkpoint(row["number"], row["answers"], row["hash"], fixed, sums, row["checked"])
    return None


def store_checkpoint(driver: Driver, name: str, reached: Checkpoint) -> None:
    """Replace the checkpoint of a dataset, in a transaction that writes."""
    driver.run("DELETE FROM ledger_checkpoint WHERE dataset = :dataset", {"dataset": name})
    row = {"dataset": name, "number": reached.number, "hash": reached.head, "unit_is_fixed": int(reached.unit_is_fixed)}
    row |= {"sums": reached.sums.to_json(), "checked": reached.checked, "answers": reached.answers}
    driver.insert("ledger_checkpoint", [row])


def hashes(driver: Driver, name: str, candidates: Collection[str]) -> set[str]:
    """Return the candidates that are the hash of an entry, an answer, or the creation of a dataset."""
    row = dataset_row(driver, name)
    assert row is not None
    query = """
    SELECT 1 FROM ledger_entry WHERE dataset = :dataset AND hash = :hash
    UNION ALL SELECT 1 FROM ledger_answer WHERE dataset = :dataset AND hash = :hash"""
    held = {each for each in candidates if driver.rows(query, {"dataset": name, "hash": each})}
    unit = None if row["unit"] is None else unit_from(row["unit"])
    return held | {_beginning(driver, row, unit).head}


def _beginning(driver: Driver, row: StoredRow, unit: Unit | None) -> Checkpoint:
    """Return the place before the first entry."""
    first = stored(driver, row["name"], after=0, most=1)
    bound = first[0]["previous"] if first else row["head"]
    founded = genesis(row["name"], row["limit_loss"], row["opened"], unit)
    if unit is not None and bound == founded:
        return Checkpoint(0, 0, founded, unit_is_fixed=True, sums=_Sums())
    unbound = genesis(row["name"], row["limit_loss"], row["opened"], None)
    return Checkpoint(0, 0, unbound, unit_is_fixed=False, sums=_Sums())


def _checked(driver: Driver, name: str, at: Checkpoint, most: int) -> Iterator[Entry | None]:
    """Move a checkpoint over entries and ``most`` answers in their order; yield None for an answer."""
    if driver.rows(UNBOUND, {"dataset": name}):
        raise BrokenLedgerError(f"the journal of {name!r} is broken: an answer has no place in it", culprit=name)
    stored_answers = answers_after(driver, name, at.answers)
    answer = next(stored_answers, None)
    for row in chain(_rows_after(driver, name, at.number), (None,)):
        while answer is not None and answer["entries"] == at.number:
            _take_answer(name, at, answer)
            yield None
            answer = next(stored_answers, None)
        if row is not None:
            if row["previous"] != at.head and (most if answer is None else answer["place"] - 1) > at.answers:
                raise _broken(name, f"after entry {at.number}: a stored answer is missing", at.number)
            yield _take_entry(name, at, row)
    if answer is not None:
        raise _broken(name, f"at the stored answer to entry {answer['number']}", answer["number"])


def _rows_after(driver: Driver, name: str, number: int) -> Iterator[StoredRow]:
    while page := stored(driver, name, after=number):
        yield from page
        number = page[-1]["number"]


def _take_entry(name: str, at: Checkpoint, row: StoredRow) -> Entry:
    """Move a checkpoint over the next entry, and return the entry."""
    number, entry = at.number + 1, _readable(row)
    if (
        entry is None
        or entry.number != number
        or entry.previous != at.head
        or entry.hash != entry_hash(at.head, number, entry.time, entry.event)
        or (row["key"], row["family"], row["method"]) != (entry.event.key, entry.family, entry.method)
    ):
        raise _broken(name, f"at entry {number}", number)
    at.number, at.head = number, entry.hash
    return entry


def _take_answer(name: str, at: Checkpoint, row: StoredRow) -> None:
    """Move a checkpoint over the next answer."""
    if row["place"] > at.answers + 1:
        raise _broken(name, f"after entry {at.number}: a stored answer is missing", at.number)
    if not follows(row, at.answers + 1, at.head):
        raise _broken(name, f"at the stored answer to entry {row['number']}", row["number"])
    at.answers, at.head, at.read = row["place"], row["hash"], at.read + len(row["body"])
    if row["found"] is not None:
        at.bound_later[row["found"]] = at.bound_later.get(row["found"], 0) + 1


def _broken(name: str, where: str, number: int) -> LedgerError:
    return BrokenLedgerError(f"the journal of {name!r} is broken {where}", culprit=number)


def _readable(row: StoredRow) -> Entry | None:
    try:
        return entry_from(row)
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, SfumatoError):
        return None


def back_up(url: str, copy: Path) -> dict[str, str]:
    """Copy a ledger by SQLite's backup, which includes the write-ahead log.

    Returns:
        The last hashes in the copy, as :func:`verify_heads` returns them.

    Raises:
        InputError: the copy exists already, or the ledger is not in SQLite.
        LedgerError: there is no ledger, or it is not whole.
    """
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError(
                "a ledger in PostgreSQL is copied by pg_dump; run 'sfumato ledger heads' before it, and hold what you "
                "restore to the hashes that it prints",
                culprit=url,
            )
        store.prepare(create=False)
        _refuse_existing(copy)
        _copy(store.file, copy)
    try:
        return verify_heads(file_address(copy))
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def restore(copy: Path, url: str, *, earlier_heads: Sequence[str]) -> dict[str, str]:
    """Restore a lost ledger from a copy.

    Args:
        copy: the file of :func:`back_up`.
        url: the URL of the lost ledger; there may be no file.
        earlier_heads: hashes that the copy's journals must go through, each one of them.

    Returns:
        The last hashes, as :func:`verify_heads` returns them.

    Raises:
        InputError: there is a file at the address, or it is not in SQLite.
        LedgerError: the copy is not a whole ledger, or lacks one of ``earlier_heads``.
    """
    if not copy.is_file():
        raise InputError(f"there is no copy {copy}", culprit=copy)
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError(
                "a ledger in PostgreSQL is restored by pg_restore; then run 'sfumato ledger heads' with every --head "
                "that was kept",
                culprit=url,
            )
        for suffix in ("", "-wal", "-journal"):
            _refuse_existing(store.file.with_name(store.file.name + suffix))
        last_hashes = verify_heads(file_address(copy), earlier_heads=earlier_heads)
        _copy(copy, store.file)
    return last_hashes


def verify_heads(url: str, *, earlier_heads: Sequence[str] = ()) -> dict[str, str]:
    """Verify every journal of a ledger and its audit log, and find each of ``earlier_heads`` in one of them.

    Args:
        url: the URL of the ledger, or of a copy.
        earlier_heads: the hashes.

    Returns:
        The last hash of each dataset, and under :data:`AUDIT_LOG` that of the audit log, if it has an action.

    Raises:
        LedgerError: one is broken, or no journal goes through a hash.
    """
    missing = set(earlier_heads)
    with closing(Store(url)) as store:
        place = store.file or store.place
        store.prepare(create=False)
        with store.reading() as driver:
            last_hashes = {name: verify(driver, name).head for name in datasets(driver)}
            for name in last_hashes:
                missing -= hashes(driver, name, missing)
            log = verify_actions(driver)
            missing -= action_hashes(driver, missing)
            if log.number:
                last_hashes[AUDIT_LOG] = log.hash
    if missing:
        raise LedgerError(
            f"no journal in {place} contains the hash {min(missing)}: the copy is older, or of another ledger",
            culprit=url,
        )
    return last_hashes


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise InputError(f"{file} exists; move it away, or name another file", culprit=file)


def _copy(source: Path, target: Path) -> None:
    """Copy page by page into a file next to the target, sync it, and link it in one step."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as origin,
            closing(sqlite3.connect(draft)) as made,
        ):
            origin.backup(made)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        os.link(draft, target)  # unlike a rename, this refuses to replace a file
    except FileExistsError:
        raise InputError(f"{target} exists; move it away, or name another file", culprit=target) from None
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"{source} cannot be copied to {target}; check the disk and the folder", culprit=target
        ) from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
