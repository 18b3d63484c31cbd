"""Snapshots: the rows from which datasets are answered, as they were read when their versions were declared.

A snapshot is a folder with a copy of each table, which the user of the server alone may read.  A row of the database
names the folder, its version, and the digest of every file.  One transaction writes this row and declares the version,
after the folder is on the disk: no version is ever declared without its snapshot.  A folder that no row names belongs
to an earlier version, or to a reading that did not end, and is deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.engine.table_copy import TableCopy
from sfumato.ledger import JSON, DataVersion, journal
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.data_versions import declare_within
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import journalled_version
from sfumato.ledger.store import Store

_NAME = re.compile(r"[0-9a-f]{32}")
_LOCK = "lock"
_ONLY_OWNER, _ONLY_OWNERS_FILE = 0o700, 0o600
_DECLARED = """
    SELECT held.version, held.version_digest, kept.folder, kept.copies, kept.files FROM ledger_dataset AS held
    LEFT JOIN service_snapshot AS kept ON kept.dataset = held.name AND kept.version = CAST(held.version AS TEXT)
    WHERE held.name = :dataset"""
_NEEDED = """
    SELECT kept.folder FROM service_snapshot AS kept
    JOIN ledger_dataset AS held ON held.name = kept.dataset AND CAST(held.version AS TEXT) = kept.version
    JOIN service_dataset AS named ON named.name = kept.dataset WHERE named.retired IS NULL"""


@dataclass(frozen=True)
class Snapshot:
    """The rows of a dataset on the disk.

    Attributes:
        folder: its name in the folder of all snapshots.
        copies: one of each table.
        files: a digest of the state of the source's files when it was read; empty if the source is not made of files.
    """

    folder: str
    copies: tuple[TableCopy, ...]
    files: str


@dataclass(frozen=True)
class ServedVersion:
    """The last declared version of a dataset, and its snapshot, if there is one."""

    number: int
    snapshot: Snapshot | None


class Snapshots:
    """The snapshots of a server.

    Args:
        store: the database, which is prepared.
        folder: of this database's snapshots alone; it is made with the first snapshot.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self.folder = folder

    def declared(self, dataset: str) -> ServedVersion:
        """Return the last declared version of a dataset; its number is 0 before the first."""
        with self._store.reading() as driver:
            row = driver.record(_DECLARED, {"dataset": dataset})
        if row is None:
            return ServedVersion(0, None)
        return ServedVersion(row["version"], None if row["folder"] is None else _as_snapshot(row))

    def place(self, snapshot: Snapshot) -> Path:
        """Return the folder of a snapshot."""
        return self.folder / snapshot.folder

    def is_whole(self, snapshot: Snapshot) -> bool:
        """Return whether every file of a snapshot is as it was written."""
        place = self.place(snapshot)
        return all(each.is_whole(place) for each in snapshot.copies)

    def declare(self, dataset: str, content: str, snapshot: Snapshot, *, by: Actor | None) -> tuple[DataVersion, bool]:
        """Declare the version of a snapshot, as :func:`enter` does, and record this in the audit log.

        Returns:
            The version, and whether its content differs from that of the last one.
        """
        with self._store.founding() as driver:
            former = driver.record(_DECLARED, {"dataset": dataset})
            version = enter(driver, dataset, content, snapshot, by=by)
            row = driver.record(_DECLARED, {"dataset": dataset})
            before: JSON = None if former is None else {"version": former["version"], "snapshot": former["folder"]}
            after: JSON = {"version": version.number, "snapshot": snapshot.folder}
            record(driver, Change(ActionKind.TABLE, dataset, before, after), by)
        changed = former is None or row is None or former["version_digest"] != row["version_digest"]
        return version, changed

    @contextmanager
    def taking(self, copied: Callable[[Path], tuple[TableCopy, ...]], files: str) -> Iterator[Snapshot]:
        """Take a snapshot; the caller enters it within the block, or it is deleted.

        Args:
            copied: copies all tables to a folder.
            files: as :class:`Snapshot` has them.

        Raises:
            OSError: it cannot be written.
        """
        self.folder.mkdir(mode=_ONLY_OWNER, parents=True, exist_ok=True)
        self.folder.chmod(_ONLY_OWNER)
        with self._locked(fcntl.LOCK_SH):
            place = self.folder / secrets.token_hex(16)
            place.mkdir(mode=_ONLY_OWNER)
            try:
                copies = copied(place)
                _make_durable(place)
                yield Snapshot(place.name, copies, files)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
        self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Delete all but the snapshots of last versions, unless another process is taking a snapshot."""
        if not self.folder.is_dir():
            return
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                with self._store.reading() as driver:
                    needed = {folder for (folder,) in driver.rows(_NEEDED)}
                for place in self.folder.iterdir():
                    if _NAME.fullmatch(place.name) and place.name not in needed:
                        shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            return

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold a lock against all processes of this machine."""
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, _ONLY_OWNERS_FILE)
        with os.fdopen(lock, "w") as file:
            fcntl.flock(file, how)
            yield


def enter(driver: Driver, dataset: str, content: str, snapshot: Snapshot, *, by: Actor | None) -> DataVersion:
    """Declare the version of a snapshot, in a transaction that overlaps no other of its kind.

    Args:
        driver: in that transaction.
        dataset: the name of its ledger.
        content: names all columns of all tables.
        snapshot: of them.
        by: who declares it; None for the system's user.

    Returns:
        The version, which is a new one whatever the content.
    """
    digest = journalled_version(journal.secret(driver, dataset), content)
    version = declare_within(driver, dataset, digest, by=(by or Actor.of_machine()).name)
    row = {
        "dataset": dataset,
        "version": str(version.number),  # not its content: whether a dataset is paused must not tell if rows changed
        "folder": snapshot.folder,
        "copies": json.dumps([each.describe() for each in snapshot.copies]),
        "files": snapshot.files,
    }
    driver.run("DELETE FROM service_snapshot WHERE dataset = :dataset", {"dataset": dataset})
    driver.insert("service_snapshot", [row])
    return version


def snapshot_folder(store: Store, named: str | None = None) -> Path:
    """Return the folder of a ledger's snapshots: next to a SQLite file, or in the state folder of the server's user.

    Args:
        store: the ledger's database.
        named: a folder in which this ledger gets one of its own; None for the default.
    """
    file = store.file
    if named is None and file is not None:
        whole = file.resolve()
        return whole.with_name(f"{whole.name}.snapshots")
    service = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]  # which systemd sets
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    usual = Path(service, "snapshots") if service else Path(home, "sfumato", "snapshots")
    at = store.address
    ledger = repr((at.host, at.port, at.database, at.query)) if file is None else str(file.resolve())
    return (usual if named is None else Path(named)).absolute() / hashlib.sha256(ledger.encode()).hexdigest()[:16]


def _make_durable(place: Path) -> None:
    """Make a snapshot readable by its owner only, and flush the names of its files to the disk."""
    folders = [place, *(each for each in place.rglob("*") if each.is_dir())]
    for file in place.rglob("*"):
        file.chmod(_ONLY_OWNER if file.is_dir() else _ONLY_OWNERS_FILE)
    for folder in (*folders, place.parent):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _as_snapshot(row: Mapping[str, Any]) -> Snapshot:
    return Snapshot(row["folder"], tuple(map(TableCopy.read, json.loads(row["copies"]))), row["files"])
