"""The places of registered tables, the passwords of their databases, and the snapshots of their rows.

A steward registers tables over the network and need not be the operator of the server.  So the operator names the
folders and hosts from which tables may come.

The ledger stores what is registered, so an address must not have a password.  The operator writes passwords into a file
with lines ``HOST:PORT:DATABASE:USER:PASSWORD``, as clients of PostgreSQL do.  The server reads it for each opening.

A snapshot holds the rows of a dataset's version.  It is a folder with a copy of each table, which only the user of the
server may read.  A row of the database has the folder, its version, and the digest of every file.

One transaction writes this row and declares the version, after the folder is on the disk.  So no version is declared
without its snapshot.  A folder without such a row is of an earlier version or of a failed reading, and is deleted.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sfumato.engine.open import TableCopy, adapter_of, file_path
from sfumato.engine.table_files import redacted_source
from sfumato.errors import EngineError, InputError
from sfumato.ledger import JSON, DataVersion, journal
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Address, Driver, Postgresql
from sfumato.ledger.dataset_terms import declare_within
from sfumato.ledger.entry import journalled_version
from sfumato.ledger.store import Store
from sfumato_server.problems import RefusalError, table_refusal

_POSTGRES = ("postgresql", "postgres")
_PORTS = {**dict.fromkeys(_POSTGRES, "5432"), "mysql": "3306", "mariadb": "3306"}
_ANY = "*"
_PASSWORD_FIELDS = 5
_SEPARATOR = re.compile(r"(?<!\\):")  # a backslash escapes a colon
_SECRET_OPTIONS = ("password", "passwd", "secret")
_TABLE_OPTIONS = ("table",)  # options of an address that no database knows


def has_password(source: str) -> bool:
    """Return whether the address of a table has a password, before its host or among its options.

    >>> has_password("postgresql://ann@db.example/census?table=people"), has_password("people.csv")
    (False, False)
    >>> has_password("mysql://ann:pw@db.example/c?table=t"), has_password("postgresql://db/c?sslpassword=pw")
    (True, True)
    """
    address = Address.parse(file_path(source) or source) if "://" in source else None
    if address is None:
        return False
    options = [name.lower() for name, _ in address.query]
    return address.password is not None or any(word in name for name in options for word in _SECRET_OPTIONS)


def with_password(source: str, passwords: Path) -> str:
    """Return the address of a table with its password from a file; unchanged if the file has none.

    Raises:
        InputError: the file cannot be read, or has an invalid line.
    """
    address = Address.parse(source) if "://" in source else None
    if address is None or address.user is None:
        return source
    port = address.port or _PORTS.get(address.backend, "")
    login_parts = (address.host or "localhost", port, address.database or "", address.user)
    for *patterns, password in read_passwords(passwords):
        if all(pattern in (_ANY, part) for pattern, part in zip(patterns, login_parts, strict=True)):
            login, _, rest = source.partition("@")
            return f"{login}:{quote(password, safe='')}@{rest}"
    return source


def read_passwords(file: Path) -> list[list[str]]:
    """Return the lines of a file of passwords, each as host, port, database, user and password.

    Raises:
        InputError: the file cannot be read, other users can read it, or a line is invalid.
    """
    try:
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"others than its owner may open {file}: 'chmod 600 {file}'", culprit=file)
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the passwords in {file}", culprit=file) from None
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [re.sub(r"\\(.)", r"\1", part) for part in _SEPARATOR.split(line)]
        if len(parts) != _PASSWORD_FIELDS or parts[0] in ("", _ANY):
            raise InputError(
                f"line {number} of {file} is not HOST:PORT:DATABASE:USER:PASSWORD of a named host", culprit=file
            )
        entries.append(parts)
    return entries


def is_own_database(source: str, ledger: str) -> bool:
    """Return whether an address leads to the PostgreSQL database of the ledger, even by another name of the host.

    It takes a lock through one address.  The lock exists at the other address only if both lead to one database.

    Raises:
        EngineError: the source does not answer.
        InputError: the address has an unknown option.
    """
    ours, theirs = Address.parse(ledger), Address.parse(source)
    if ours is None or theirs is None or ours.backend != "postgresql" or theirs.backend not in _POSTGRES:
        return False
    query = tuple((name, value) for name, value in theirs.query if name not in _TABLE_OPTIONS)
    database = Postgresql(replace(theirs, query=query))
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
        with suppress(database.driver.Error):  # a database without such locks is not PostgreSQL
            other.execute("BEGIN")
            return not other.execute("SELECT pg_try_advisory_xact_lock(%(key)s)", key).fetchone()[0]
    return False


@dataclass(frozen=True)
class TablePlaces:
    """The folders and database hosts whose tables stewards may register; without any, all tables may be registered.

    Attributes:
        named: folders and hosts.
        passwords: a file with passwords of databases, see :func:`read_passwords`; None if there is none.
        ledger: the address of the ledger, whose database is never served.

    A host has its port if that is not the default one.  The name of an engine allows the tables of its catalog.  The
    adapter of each engine decides which addresses are allowed.

    >>> TablePlaces(("/srv/tables", "db.example")).admits("postgresql://db.example/census?table=people")
    True
    >>> TablePlaces(("/srv/tables",)).admits("spark:/etc/passwd")
    False
    """

    named: tuple[str, ...] = ()
    passwords: str | None = None
    ledger: str | None = None

    def address(self, source: str) -> str:
        """Return the address to open a table, with the password from the operator's file.

        Args:
            source: the registered address.

        Raises:
            RefusalError: the place is not served, the address has a password, or it leads to the ledger's own database,
                or that database does not answer.
        """
        if not self.admits(source):
            raise RefusalError(
                "place-refused",
                "Tables of that place are not served",
                403,
                f"the server does not serve {redacted_source(source)}: its operator names folders and hosts with "
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
            is_ledger = self.ledger is not None and is_own_database(address, self.ledger)
        except EngineError as error:
            raise table_refusal(error) from error
        if is_ledger:
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
        except InputError:  # no engine reads such an address
            return False

    def names(self, place: str) -> bool:
        """Return whether a host or catalog is allowed."""
        return place in self.named

    def hold(self, path: str) -> bool:
        """Return whether every file of a path is in an allowed folder, after links are followed."""
        folders = [Path(each).resolve() for each in self.named]
        try:
            return all(any(file.is_relative_to(folder) for folder in folders) for file in _files(path))
        except (OSError, ValueError):  # not a path, or too long
            return False


def _files(path: str) -> Sequence[Path]:
    """Return the files of a path, after links are followed.

    For a folder these are all files in it.  For a pattern they are its matches and the folder before its first
    wildcard.
    """
    if not glob.has_magic(path):
        return (Path(path).resolve(), *(each.resolve() for each in Path(path).rglob("*")))
    parts = Path(path).parts
    if ".." in parts:  # behind a wildcard it may lead anywhere later
        return (Path("/"),)
    first = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    matching = glob.iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return (Path(*parts[:first]).resolve(), *(Path(each).resolve() for each in matching))


_NAME = re.compile(r"[0-9a-f]{32}")
_LOCK = "lock"
_ONLY_OWNER, _ONLY_OWNERS_FILE = 0o700, 0o600
_DECLARED = """
    SELECT ledger.version, ledger.version_digest, snapshot.folder, snapshot.copies, snapshot.files
    FROM ledger_dataset AS ledger LEFT JOIN service_snapshot AS snapshot
    ON snapshot.dataset = ledger.name AND snapshot.version = CAST(ledger.version AS TEXT)
    WHERE ledger.name = :dataset"""
_NEEDED = """
    SELECT snapshot.folder FROM service_snapshot AS snapshot JOIN ledger_dataset AS ledger
    ON ledger.name = snapshot.dataset AND CAST(ledger.version AS TEXT) = snapshot.version
    JOIN service_dataset AS dataset ON dataset.name = snapshot.dataset WHERE dataset.retired IS NULL"""


@dataclass(frozen=True)
class Snapshot:
    """The rows of a dataset on disk.

    Attributes:
        folder: the name of its folder.
        copies: one for each table.
        files: a digest of the state of the source's files when they were read; empty if the source has no files.
    """

    folder: str
    copies: tuple[TableCopy, ...]
    files: str


@dataclass(frozen=True)
class ServedVersion:
    """The last declared version of a dataset, and its snapshot; None if it has none."""

    number: int
    snapshot: Snapshot | None


class Snapshots:
    """The snapshots of a server.

    Args:
        store: the database, which is prepared.
        folder: the folder of this database's snapshots only; the first snapshot creates it.
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

    def path(self, snapshot: Snapshot) -> Path:
        """Return the folder of a snapshot."""
        return self.folder / snapshot.folder

    def is_intact(self, snapshot: Snapshot) -> bool:
        """Return whether no file of a snapshot was changed or deleted."""
        path = self.path(snapshot)
        return all(copy.is_whole(path) for copy in snapshot.copies)

    def declare(self, dataset: str, content: str, snapshot: Snapshot, *, by: Actor | None) -> tuple[DataVersion, bool]:
        """Declare the version of a snapshot, as :func:`declare_snapshot` does, and record this in the audit log.

        Returns:
            The version, and whether its content differs from that of the last one.
        """
        with self._store.founding() as driver:
            former = driver.record(_DECLARED, {"dataset": dataset})
            version = declare_snapshot(driver, dataset, content, snapshot, by=by)
            row = driver.record(_DECLARED, {"dataset": dataset})
            before: JSON = None if former is None else {"version": former["version"], "snapshot": former["folder"]}
            after: JSON = {"version": version.number, "snapshot": snapshot.folder}
            record(driver, Change(ActionKind.TABLE, dataset, before, after), by)
        changed = former is None or row is None or former["version_digest"] != row["version_digest"]
        return version, changed

    @contextmanager
    def creating(self, copy_to: Callable[[Path], tuple[TableCopy, ...]], files: str) -> Iterator[Snapshot]:
        """Create a snapshot.  The block has to declare it; if the block fails, the snapshot is deleted.

        Args:
            copy_to: copies all tables to a folder.
            files: see :class:`Snapshot`.

        Raises:
            OSError: the snapshot cannot be written.
        """
        self.folder.mkdir(mode=_ONLY_OWNER, parents=True, exist_ok=True)
        self.folder.chmod(_ONLY_OWNER)
        with self._locked(fcntl.LOCK_SH):
            path = self.folder / secrets.token_hex(16)
            path.mkdir(mode=_ONLY_OWNER)
            try:
                copies = copy_to(path)
                _make_durable(path)
                yield Snapshot(path.name, copies, files)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
        self.remove_unneeded()

    def remove_unneeded(self) -> None:
        """Delete all snapshots of earlier versions; do nothing while another process creates a snapshot."""
        if not self.folder.is_dir():
            return
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                with self._store.reading() as driver:
                    needed = {folder for (folder,) in driver.rows(_NEEDED)}
                for path in self.folder.iterdir():
                    if _NAME.fullmatch(path.name) and path.name not in needed:
                        shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            return

    @contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        """Hold a lock against all processes of this machine."""
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, _ONLY_OWNERS_FILE)
        with os.fdopen(lock, "w") as file:
            fcntl.flock(file, mode)
            yield


def declare_snapshot(
    driver: Driver, dataset: str, content: str, snapshot: Snapshot, *, by: Actor | None
) -> DataVersion:
    """Declare the version of a snapshot, within a transaction that runs alone.

    Args:
        driver: the connection of that transaction.
        dataset: the name of the dataset's ledger.
        content: a digest of all columns of all tables.
        snapshot: their copies.
        by: the actor; None for the system's user.

    Returns:
        The version, which is a new one even if the content is the same.
    """
    digest = journalled_version(journal.secret(driver, dataset), content)
    version = declare_within(driver, dataset, digest, by=(by or Actor.of_machine()).name)
    row = {
        "dataset": dataset,
        "version": str(version.number),  # not its digest: a paused dataset must not reveal whether rows changed
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
        named: a folder in which this ledger gets a folder of its own; None for the default.
    """
    file = store.file
    if named is None and file is not None:
        resolved = file.resolve()
        return resolved.with_name(f"{resolved.name}.snapshots")
    service = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]  # systemd sets it
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    default = Path(service, "snapshots") if service else Path(home, "sfumato", "snapshots")
    url = store.address
    ledger = repr((url.host, url.port, url.database, url.query)) if file is None else str(file.resolve())
    return (default if named is None else Path(named)).absolute() / hashlib.sha256(ledger.encode()).hexdigest()[:16]


def _make_durable(path: Path) -> None:
    """Make a snapshot readable by its owner only, and flush the names of its files to the disk."""
    folders = [path, *(each for each in path.rglob("*") if each.is_dir())]
    for file in path.rglob("*"):
        file.chmod(_ONLY_OWNER if file.is_dir() else _ONLY_OWNERS_FILE)
    for folder in (*folders, path.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _as_snapshot(row: Mapping[str, Any]) -> Snapshot:
    return Snapshot(row["folder"], tuple(map(TableCopy.read, json.loads(row["copies"]))), row["files"])
