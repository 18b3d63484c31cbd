"""Reading a ledger without locking it: accounts, entries, whether they hang together, and copies that are whole."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.domain import Unit
from sfumato.errors import InputError, LedgerError, SfumatoError
from sfumato.ledger.account import Account, charge_from, counted, limit_units, loss_from, spent_units, unit_from
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import Entry, Event, Kind, Question, StoredAnswer, entry_hash, genesis
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Charge
from sfumato.strict_documents import JSON, canonical

_PAGE = 1000

StoredRow: TypeAlias = dict[str, Any]


def dataset_account(driver: Driver, name: str) -> Account | None:
    """The dataset's limit and what was spent of it; None where the ledger does not hold it."""
    row = _dataset_row(driver, name)
    return None if row is None else Account(loss_from(row["limit_loss"]), _spent(row))


def datasets(driver: Driver) -> list[str]:
    """The names of all datasets that the ledger holds, in order."""
    return [name for (name,) in driver.rows("SELECT name FROM ledger_dataset ORDER BY name")]


def analyst_accounts(driver: Driver, name: str) -> dict[str, Account]:
    """The account of each analyst who has spent or has a cap, by name."""
    return {row["name"]: _analyst_account(row) for row in _analyst_rows(driver, name)}


def analyst_account(driver: Driver, name: str, analyst: str) -> Account:
    """The account of one analyst; empty and without a cap where there is none yet."""
    query = "SELECT * FROM ledger_analyst WHERE dataset = :dataset AND name = :analyst"
    row = driver.record(query, {"dataset": name, "analyst": analyst})
    return Account(None, NOTHING) if row is None else _analyst_account(row)


def dataset_unit(driver: Driver, name: str) -> Unit | None:
    """Whom the charges of a dataset are stated for; None in an old ledger that nothing was released from since."""
    text = driver.value("SELECT unit FROM ledger_dataset WHERE name = :name", {"name": name})
    return None if text is None else unit_from(text)


def secret(driver: Driver, name: str) -> str:
    """What hides the fingerprints of a dataset in its journal.

    Raises:
        LedgerError: the ledger does not hold the dataset.
    """
    row = _dataset_row(driver, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    found: str = row["secret"]
    return found


def entries(driver: Driver, name: str, *, after: int) -> list[Entry]:
    """The next page of the journal: up to a thousand entries with numbers above ``after``, in order."""
    return [_entry(row) for row in _stored(driver, name, after=after)]


def answers(
    driver: Driver, name: str, *, methods: Collection[tuple[str, str]], version: str, analyst: str | None
) -> list[StoredAnswer]:
    """Stored answers by some methods, each a family and its method, about one version of the data, in order.

    Args:
        driver: in a transaction that reads.
        name: of the dataset.
        methods: whose answers.
        version: of the data, as the journal calls it.
        analyst: whose account was charged for each; None for answers to anybody.
    """
    beginning = f'{{"dataset_version":{canonical(version)},'  # of a question as it is spelled in the journal
    values: dict[str, Any] = {"dataset": name, "release": Kind.RELEASE.value, "repeat": Kind.REPEAT.value}
    values |= {"beginning": beginning, "length": len(beginning), "analyst": analyst}
    either = []
    for place, (family, method) in enumerate(methods):
        either.append(f"(entry.family = :family_{place} AND entry.method = :method_{place})")
        values |= {f"family_{place}": family, f"method_{place}": method}
    query = f"""
    SELECT entry.question, entry.number, answer.body FROM ledger_entry AS entry
    JOIN ledger_answer AS answer ON answer.dataset = entry.dataset AND answer.number = entry.number
    WHERE entry.dataset = :dataset AND entry.kind = :release AND ({" OR ".join(either) or "1 = 0"})
    AND substr(entry.question, 1, :length) = :beginning"""  # noqa: S608  (values never stand in it)
    if analyst is not None:
        query += """
    AND EXISTS (SELECT 1 FROM ledger_entry AS shown WHERE shown.dataset = :dataset AND shown.key = entry.key
        AND shown.analyst = :analyst AND shown.kind IN (:release, :repeat))"""
    rows = driver.rows(f"{query} ORDER BY entry.number", values)
    return [StoredAnswer(Question.from_json(question), number, body) for question, number, body in rows]


def verify(driver: Driver, name: str, *, kept: str | None) -> str:
    """Check the whole journal; returns the hash of its last entry.

    Args:
        driver: in a transaction that reads.
        name: of the dataset.
        kept: a hash that this function returned earlier, which the journal then still goes through.

    Raises:
        LedgerError: names the first entry that is missing, was changed, or does not follow the one before;
            or says which account does not agree with the journal, or that it lacks what it had.
    """
    row = _dataset_row(driver, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    unit = None if row["unit"] is None else unit_from(row["unit"])
    head, fixed = _beginning(driver, row, unit)
    count, sums, passed = 0, _Sums(), kept in (None, head)
    for entry in _checked(driver, name, head):
        count, head = entry.number, entry.hash
        passed = passed or head == kept
        sums.add(entry)
        if entry.event.fixes_unit and (fixed or entry.unit != unit):
            raise LedgerError(f"the journal of {name!r} is broken at entry {count}: its unit", culprit=count)
        fixed = fixed or entry.event.fixes_unit
    if (count, head) != (row["entries"], row["head"]):
        raise LedgerError(f"the journal of {name!r} is broken after entry {count}: entries are missing", culprit=count)
    if fixed != (unit is not None):
        raise LedgerError(f"the unit of {name!r} is not the one of its journal", culprit=name)
    sums.compare(row, _analyst_rows(driver, name))
    if not passed:
        raise LedgerError(
            f"the journal of {name!r} does not go through the hash that was kept: it is an older copy of the ledger, "
            "or was written anew, so that released answers and their charges are missing",
            culprit=kept,
        )
    return head


class _Sums:
    """What the entries of a journal come to, added up as the accounts were."""

    def __init__(self) -> None:
        self._dataset = NOTHING
        self._analysts: dict[str, Charge] = {}
        self._caps: dict[str, JSON] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        event = entry.event
        if event.kind is Kind.CAP and event.analyst is not None:
            self._caps[event.analyst] = event.question.parameters["cap"]
        if event.charge is None:
            return
        if event.kind is Kind.RELEASE:
            self._dataset = _added(self._dataset, event)
        if event.analyst is not None and event.kind in (Kind.RELEASE, Kind.REPEAT):
            self._analysts[event.analyst] = _added(self._analysts.get(event.analyst, NOTHING), event)

    def compare(self, row: StoredRow, analysts: Sequence[StoredRow]) -> None:
        """Refuse accounts that are not these sums, under these caps, or whose integers are others than their amounts.

        Raises:
            LedgerError: names the account.
        """
        name, limit = row["name"], loss_from(row["limit_loss"])
        if self._dataset != _spent(row) or _units(row, "spent") != spent_units(limit, self._dataset):
            raise LedgerError(f"the account of {name!r} is not the sum of its journal", culprit=name)
        if _units(row, "limit") != limit_units(limit):
            raise LedgerError(f"the limit of {name!r} is not the one that its journal began with", culprit=name)
        for each in analysts:
            analyst, account = each["name"], _analyst_account(each)
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
    """The integers by which the database itself checks an account."""
    return row[f"{what}_units"], row[f"{what}_delta_units"]


def _added(spent: Charge, event: Event) -> Charge:
    """The sum of an account after a charge, as the account was added up when the charge was entered."""
    assert event.charge is not None
    return spent + event.charge if event.counted is None else counted(spent) + event.counted


def hashes(driver: Driver, name: str, wanted: Collection[str]) -> set[str]:
    """Those of some hashes that entries of a journal have, or its beginning has."""
    row = _dataset_row(driver, name)
    assert row is not None
    query = "SELECT 1 FROM ledger_entry WHERE dataset = :dataset AND hash = :hash"
    held = {each for each in wanted if driver.rows(query, {"dataset": name, "hash": each})}
    unit = None if row["unit"] is None else unit_from(row["unit"])
    return held | {_beginning(driver, row, unit)[0]}


def _beginning(driver: Driver, row: StoredRow, unit: Unit | None) -> tuple[str, bool]:
    """What the first entry is bound to, and whether the dataset was founded with its unit."""
    first = _stored(driver, row["name"], after=0, most=1)
    bound = first[0]["previous"] if first else row["head"]
    founded = genesis(row["name"], row["limit_loss"], row["opened"], unit)
    if unit is not None and bound == founded:
        return founded, True
    return genesis(row["name"], row["limit_loss"], row["opened"], None), False


def _checked(driver: Driver, name: str, head: str) -> Iterator[Entry]:
    number = 0
    while page := _stored(driver, name, after=number):
        for row in page:
            number += 1
            entry = _readable(row)
            if (
                entry is None
                or entry.number != number
                or entry.previous != head
                or entry.hash != entry_hash(head, number, entry.time, entry.event)
                or (row["key"], row["family"], row["method"]) != (entry.event.key, entry.family, entry.method)
            ):
                raise LedgerError(f"the journal of {name!r} is broken at entry {number}", culprit=number)
            head = entry.hash
            yield entry


def _stored(driver: Driver, name: str, *, after: int, most: int | None = None) -> list[StoredRow]:
    query = "SELECT * FROM ledger_entry WHERE dataset = :dataset AND number > :after ORDER BY number LIMIT :most"
    return driver.records(query, {"dataset": name, "after": after, "most": most or _PAGE})


def _readable(row: StoredRow) -> Entry | None:
    try:
        return _entry(row)
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, SfumatoError):
        return None


def _entry(row: StoredRow) -> Entry:
    amounts = row["epsilon"], row["rho"], row["delta"]
    charge = None if amounts == (None, None, None) else charge_from(*amounts)
    event = Event(
        Kind(row["kind"]),
        Question.from_json(row["question"]),
        charge,
        row["analyst"],
        row["statement"],
        json.loads(row["details"]),
        **_stated(row["stated"]),
    )
    return Entry(row["number"], row["time"], event, row["previous"], row["hash"])


def _stated(text: str | None) -> dict[str, Any]:
    """What :attr:`Event.stated` says, as the fields of an event."""
    if text is None:
        return {}
    said = json.loads(text)
    unit, charge = said.get("unit"), said.get("counted")
    return {
        "unit": None if unit is None else unit_from(unit),
        "neighbours": said.get("neighbours"),
        "counted": None if charge is None else charge_from(*charge),
        "fixes_unit": said.get("fixes_unit", False),
    }


def _spent(row: StoredRow) -> Charge:
    return charge_from(row["epsilon"], row["rho"], row["delta"])


def _analyst_account(row: StoredRow) -> Account:
    return Account(None if row["cap_loss"] is None else loss_from(row["cap_loss"]), _spent(row))


def _analyst_rows(driver: Driver, name: str) -> Sequence[StoredRow]:
    return driver.records("SELECT * FROM ledger_analyst WHERE dataset = :dataset ORDER BY name", {"dataset": name})


def _dataset_row(driver: Driver, name: str) -> StoredRow | None:
    return driver.record("SELECT * FROM ledger_dataset WHERE name = :name", {"name": name})


def back_up(url: str, copy: Path) -> dict[str, str]:
    """Copy a ledger by SQLite's own means, which take in what its write-ahead log holds.

    Returns:
        The last hash of each dataset in the copy.

    Raises:
        InputError: the copy exists already, or the ledger is not in SQLite.
        LedgerError: there is no ledger, or it is not whole.
    """
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError(
                "a ledger in PostgreSQL is copied by PostgreSQL's own means, such as pg_dump",
                culprit=url,
            )
        store.prepare(create=False)
        _refuse_existing(copy)
        _copy(store.file, copy)
    try:
        return heads(copy)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def restore(copy: Path, url: str, *, kept: Sequence[str]) -> dict[str, str]:
    """Put a copy in the place of a ledger that is gone.

    Args:
        copy: what :func:`back_up` made.
        url: where the ledger was; nothing may lie there.
        kept: hashes that the copy's journals must go through, each one of them.

    Returns:
        The last hash of each dataset.

    Raises:
        InputError: there is a file at the address, or it is not in SQLite.
        LedgerError: the copy is not a whole ledger, or lacks a hash that was kept.
    """
    if not copy.is_file():
        raise InputError(f"there is no copy {copy}", culprit=copy)
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError("a ledger in PostgreSQL is restored by the means of PostgreSQL", culprit=url)
        for suffix in ("", "-wal", "-journal"):
            _refuse_existing(store.file.with_name(store.file.name + suffix))
        found = heads(copy, kept=kept)
        _copy(copy, store.file)
    return found


def heads(file: Path, *, kept: Sequence[str] = ()) -> dict[str, str]:
    """Verify every journal of a file, and that each hash that was kept is in one of them.

    Raises:
        LedgerError: one is broken, or no journal goes through a hash.
    """
    missing = set(kept)
    with closing(Store(f"sqlite:///{file}")) as store:
        store.prepare(create=False)
        with store.reading() as driver:
            found = {name: verify(driver, name, kept=None) for name in datasets(driver)}
            for name in found:
                missing -= hashes(driver, name, missing)
    if missing:
        raise LedgerError(
            f"no journal in {file} goes through the hash {min(missing)}: the copy is older, or of another ledger",
            culprit=file,
        )
    return found


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise InputError(f"{file} exists; move it away, or name another file", culprit=file)


def _copy(source: Path, target: Path) -> None:
    """Copy page by page into a file beside the target, make it durable, and give it the name in one step."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as origin,
            closing(sqlite3.connect(draft)) as made,
        ):
            origin.backup(made)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        os.link(draft, target)  # unlike a rename, this refuses to replace a file that came meanwhile
    except FileExistsError:
        raise InputError(f"{target} exists; move it away, or name another file", culprit=target) from None
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"{source} cannot be copied to {target}; check the disk and the folder", culprit=target
        ) from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
