"""Where registered tables lie: the places that a server reads, passwords of their databases, and the snapshots of rows.

A steward registers tables over the network and need not be the operator of the server.  So the operator names the
folders and hosts from which tables may come.

The ledger keeps what is registered, so an address holds no password.  The operator writes passwords into a file with
lines ``HOST:PORT:DATABASE:USER:PASSWORD``, as clients of PostgreSQL read them.  The server reads it for each opening.

A snapshot holds the rows from which a dataset is answered, as they were read when its version was declared.  It is a
folder with a copy of each table, which the user of the server alone may read.  A row of the database names the folder,
its version, and the digest of every file.  One transaction writes this row and declares the version, after the folder
is on the disk: no version is ever declared without its snapshot.  A folder that no row names belongs to an earlier
version, or to a reading that did not end, and is deleted.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sfumato.engine.open import TableCopy, adapter_of, file_path
from sfumato.engine.table_files import redacted_source
from sfumato.errors import EngineError, InputError
from sfumato.ledger import JSON, DataVersion, journal
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Address, Driver, Postgresql
from sfumato.ledger.entry import journalled_version
from sfumato.ledger.ledger import declare_within
from sfumato.ledger.store import Store
from sfumato_server.problems import RefusalError, unreadable

_POSTGRES = ("postgresql", "postgres")
_PORTS = {**dict.fromkeys(_POSTGRES, "5432"), "mysql": "3306", "mariadb": "3306"}
_ANY = "*"
_PARTS = 5
_SPLIT = re.compile(r"(?<!\\):")  # a colon after a backslash stands for itself
_SECRET = ("password", "passwd", "secret")
_OF_TABLES = ("table",)  # which no database knows


def has_password(source: str) -> bool:
    """Return whether the address of a table holds a password, before its host or among its options.

    >>> has_password("postgresql://ann@db.example/census?table=people"), has_password("people.csv")
    (False, False)
    >>> has_password("mysql://ann:pw@db.example/c?table=t"), has_password("postgresql://db/c?sslpassword=pw")
    (True, True)
    """
    place = Address.parse(file_path(source) or source) if "://" in source else None
    if place is None:
        return False
    return place.password is not None or any(word in name.lower() for name, _ in place.query for word in _SECRET)


def with_password(source: str, passwords: Path) -> str:
    """Return the address of a table with its password from a file; unchanged if the file has none.

    Raises:
        InputError: the file cannot be read, or a line of it is no such line.
    """
    place = Address.parse(source) if "://" in source else None
    if place is None or place.user is None:
        return source
    port = place.port or _PORTS.get(place.backend, "")
    asked = (place.host or "localhost", port, place.database or "", place.user)
    for *named, password in read_passwords(passwords):
        if all(pattern in (_ANY, part) for pattern, part in zip(named, asked, strict=True)):
            login, _, rest = source.partition("@")
            return f"{login}:{quote(password, safe='')}@{rest}"
    return source


def read_passwords(file: Path) -> list[list[str]]:
    """Return the lines of a file of passwords, each a host, a port, a database, a user and a password.

    Raises:
        InputError: it cannot be read, others than its owner can read it, or a line is no such line.
    """
    try:
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"others than its owner may open {file}: 'chmod 600 {file}'", culprit=file)
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the passwords in {file}", culprit=file) from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [re.sub(r"\\(.)", r"\1", part) for part in _SPLIT.split(line)]
        if len(parts) != _PARTS or parts[0] in ("", _ANY):
            raise InputError(
                f"line {number} of {file} is not HOST:PORT:DATABASE:USER:PASSWORD of a named host", culprit=file
            )
        found.append(parts)
    return found


def is_own_database(source: str, ledger: str) -> bool:
    """Return whether an address leads to the PostgreSQL database of the ledger, whichever names it uses.

    A lock that is taken through one address is seen through the other if, and only if, both lead to one database.

    Raises:
        EngineError: the source does not answer.
        InputError: its address sets what is no setting of a connection.
    """
    ours, theirs = Address.parse(ledger), Address.parse(source)
    if ours is None or theirs is None or ours.backend != "postgresql" or theirs.backend not in _POSTGRES:
        return False
    query = tuple((name, value) for name, value in theirs.query if name not in _OF_TABLES)
    database = Postgresql(Address(theirs.backend, *_login(theirs), theirs.database, query))
    key = {"key": secrets.randbits(62)}
    with ExitStack() as opened:
        try:
            other, own = (opened.enter_context(closing(each.connect())) for each in (database, Postgresql(ours)))
            own.execute("BEGIN")
            own.execute("SELECT pg_advisory_xact_lock(%(key)s)", key)
        except database.driver.Error as error:
            raise EngineError(
                f"{redacted_source(source)} or the ledger does not answer", culprit=redacted_source(source)
            ) from error
        with suppress(database.driver.Error):  # what has no such lock is another kind of database
            other.execute("BEGIN")
            return not other.execute("SELECT pg_try_advisory_xact_lock(%(key)s)", key).fetchone()[0]
    return False


def _login(place: Address) -> tuple[str | None, str | None, str | None, str | None]:
    return place.user, place.password, place.host, place.port


@dataclass(frozen=True)
class TablePlaces:
    """Where tables may lie that stewards register: in folders, on hosts of databases; anywhere where none is named.

    Attributes:
        named: folders and hosts.
        passwords: the file with passwords of databases, see :func:`read_passwords`; None for none.
        ledger: the address of the ledger, whose own database is never served.

    A host is named as in addresses, with its port where that is not the usual one; the name of an engine stands for the
    tables of its catalogue.  The adapter of each engine tells which addresses the places allow.

    >>> TablePlaces(("/srv/tables", "db.example")).admits("postgresql://db.example/census?table=people")
    True
    >>> TablePlaces(("/srv/tables",)).admits("spark:/etc/passwd")
    False
    """

    named: tuple[str, ...] = ()
    passwords: str | None = None
    ledger: str | None = None

    def address(self, source: str) -> str:
        """Return the address by which a table is opened, with the password that the operator keeps for it.

        Args:
            source: the address as it is registered.

        Raises:
            RefusalError: the table lies elsewhere, or in the ledger's own database, which does not answer, or the
                address holds a password.
        """
        if not self.admits(source):
            raise RefusalError(
                "place-refused",
                "Tables of that place are not served",
                403,
                f"the server does not serve {redacted_source(source)}: whoever runs it names folders and hosts by "
                "--tables",
            )
        if has_password(source):
            raise RefusalError(
                "password-in-address",
                "An address of a table holds no password",
                422,
                "what is registered is kept in the ledger: leave the password out, and have the operator write it into "
                "the file of 'serve --source-passwords'",
            )
        address = source if self.passwords is None else with_password(source, Path(self.passwords))
        try:
            own = self.ledger is not None and is_own_database(address, self.ledger)
        except EngineError as error:
            raise unreadable(error) from error
        if own:
            raise RefusalError(
                "place-refused",
                "Tables of that place are not served",
                403,
                f"{redacted_source(source)} is the database of the server's own ledger, whose tables are never "
                "released",
            )
        return address

    def admits(self, source: str) -> bool:
        """Return whether a table of this address may be registered."""
        if not self.named:
            return True
        try:
            return adapter_of(source).allowed(source, self)
        except InputError:  # of no engine
            return False

    def names(self, place: str) -> bool:
        """Return whether a host or a catalogue is named."""
        return place in self.named

    def hold(self, path: str) -> bool:
        """Return whether every file that a path leads to now lies in a named folder."""
        folders = [Path(each).resolve() for each in self.named]
        try:
            return all(any(file.is_relative_to(folder) for folder in folders) for file in _files(path))
        except (OSError, ValueError):  # no path, or one beyond all length
            return False


def _files(path: str) -> Sequence[Path]:
    """What a path leads to now, links followed: of a folder, all that is in it; of a pattern, what stands before its
    first sign, and all matches.
    """
    if not glob.has_magic(path):
        return (Path(path).resolve(), *(each.resolve() for each in Path(path).rglob("*")))
    if ".." in Path(path).parts:  # after a sign, it may lead anywhere later
        return (Path("/"),)
    plain = Path(path).parts
    first = next(place for place, part in enumerate(plain) if glob.has_magic(part))
    matching = glob.iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return (Path(*plain[:first]).resolve(), *(Path(each).resolve() for each in matching))


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
