"""Datasets and keys of a server, in the database of its ledgers, and the rules for their names.

The database has only the SHA-256 of a key, which is enough to recognize 256 random bits.  Spellings of a name that
differ only in case, blanks or compatible characters are one name.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sfumato.domain import Unit
from sfumato.engine.table_files import redacted_source
from sfumato.errors import InputError
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Driver
from sfumato.ledger.dataset_terms import create_or_check
from sfumato.ledger.entry import digest as json_digest
from sfumato.ledger.entry import journalled_version
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Loss
from sfumato_server.problems import TakenNameError
from sfumato_server.sources import Snapshot, declare_snapshot
from sfumato_server.work import LEASE, Jobs

_MAX_NAME = 200  # characters


def registered_name(name: str, known: Iterable[str]) -> str:
    r"""Return the registered spelling of a name; for a new name, its normal form (NFKC) without outer blanks.

    Two spellings mean one person if they differ only in compatible forms, case or outer blanks.

    >>> registered_name(" Ann ", ["bob", "ANN"]), registered_name("Zoe\u0308 ", [])
    ('ANN', 'Zo\xeb')
    """
    normal, names = unicodedata.normalize("NFKC", name).strip(), tuple(known)
    return name if name in names else next((each for each in names if _folded(each) == _folded(normal)), normal)


def _folded(name: str) -> str:
    """Return a form that is equal for all spellings of a name; case folding may leave characters to normalize."""
    normal = unicodedata.normalize("NFKC", name).strip()
    return unicodedata.normalize("NFKC", normal.casefold()).casefold()


def plain_name(name: str) -> str:
    r"""Return a dataset's name in Unicode's compatible form, which is unique among datasets.

    >>> plain_name("\N{LATIN SMALL LIGATURE FI}sh")
    'fish'
    """
    return unicodedata.normalize("NFKC", name)


def refuse_holder(name: str) -> None:
    """Refuse a text that cannot name a person.

    Raises:
        InputError: the text is not 1 to 200 printable characters, or only blanks.
    """
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise InputError(f"a key is named by 1 to {_MAX_NAME} printable characters", culprit=name)


def refuse_name(name: str) -> None:
    """Refuse a text that cannot name a dataset.

    Raises:
        InputError: the text has other characters than letters, digits and _, or is too long.
    """
    if not name.isidentifier() or len(name) > _MAX_NAME:
        raise InputError("a dataset is named like a variable: letters, digits and _", culprit=name)


PREFIX = "sfumato"
SECRET_BYTES = 32
_USE_INTERVAL = timedelta(minutes=10)  # between two records of the use of a key
_PROBE_SIZE = 4096  # characters: more than the free space of a page, so that a full disk is noticed


class Scope(StrEnum):
    """The scope of a key: the actions that it allows."""

    STEWARD = "steward"
    ANALYST = "analyst"
    OFFICER = "officer"  # reads journals and sign-off pages of all datasets, and nothing else
    MONITOR = "monitor"  # reads metrics of the server, and nothing else
    INVITATION = "link"  # starts one session of a steward, and nothing else


@dataclass(frozen=True)
class Dataset:
    """A registered dataset, with its public facts.

    Attributes:
        name: the name of its ledger, which never changes; terms, grants and versions refer to it.
        source: the address of its table, or of the tables of a schema.
        domain: its domain or schema, as a document.
        limit: its budget, as the steward wrote it.
        rows: the public number of rows; None if it is not public.
        discoverable: columns whose values are not public, and may be released.
        called: the name for analysts.
        retired: whether releases of it are refused.
        registered: the time in UTC, when the months of its budget start; empty before the registration.
    """

    name: str
    source: str
    domain: Mapping[str, Any]
    limit: str
    rows: int | None
    discoverable: tuple[str, ...]
    called: str = ""
    retired: bool = False
    registered: str = ""


@dataclass(frozen=True)
class Registration:
    """A dataset to register.

    Attributes:
        dataset: the dataset.
        limit: the limit of its ledger.
        unit: the unit of its ledger.
        content: a digest of all columns of all its tables.
        snapshot: the copies of its tables.
        by: the actor; None for the system's user.
    """

    dataset: Dataset
    limit: Loss
    unit: Unit
    content: str
    snapshot: Snapshot
    by: Actor | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for the audit log, without a password of the table's address."""
        dataset = self.dataset
        return {
            "source": redacted_source(dataset.source),
            "limit": dataset.limit,
            "unit": str(self.unit),
            "rows": dataset.rows,
            "discoverable": list(dataset.discoverable),
            "domain": json_digest(json.loads(json.dumps(dataset.domain))),
        }


@dataclass(frozen=True)
class Key:
    """A key without its secret, or the key of a session, with the session's id."""

    id: str
    name: str
    scope: Scope
    issued: datetime
    expires: datetime
    revoked: bool
    used: datetime | None = None  # the last use, to ten minutes; None if no use was recorded
    session: str | None = None

    @property
    def valid(self) -> bool:
        """True if the key can be used now."""
        return not self.revoked and datetime.now(UTC) < self.expires

    @property
    def sees_all(self) -> bool:
        """True if the key reads the journals of all datasets and analysts."""
        return self.scope in {Scope.STEWARD, Scope.OFFICER}

    @property
    def actor(self) -> Actor:
        """The actor that the audit log names."""
        return Actor(self.name, f"key {self.id}" if self.session is None else f"session {self.session} of {self.id}")


class Registry:
    """The datasets, keys and jobs of a server, in a prepared store."""

    def __init__(self, store: Store, *, lease: timedelta = LEASE) -> None:
        self._store = store
        self.jobs = Jobs(store, lease=lease)

    def check_database(self) -> None:
        """Read from the database over a new connection, and write to it.

        Raises:
            LedgerError: the database does not answer, has no free connection, or cannot be written.
        """
        self._store.alive()
        probe = {"id": secrets.token_hex(8), "written": _now().ljust(_PROBE_SIZE)}
        with self._store.writing() as driver:
            driver.run("DELETE FROM service_probe")
            driver.insert("service_probe", [probe])

    def register(
        self, new: Registration, *, same_place: Callable[[str, Mapping[str, Any]], bool], second_budget: bool
    ) -> tuple[Dataset, ...]:
        """Register a dataset with its ledger, unit and first version, in one transaction.

        Registrations run one at a time.  If stewards register one table under several names at once, one succeeds.

        Returns:
            Datasets of the same table, unless ``second_budget`` is set; then nothing was registered.

        Raises:
            TakenNameError: another dataset has or had the name.
            InputError: the name cannot be used.
            LimitError, UnitError: a ledger of that name has another limit or unit.
        """
        dataset = new.dataset
        refuse_name(dataset.name)
        row = {
            "name": dataset.name,
            "source": dataset.source,
            "domain": json.dumps(dataset.domain),
            "limit_text": dataset.limit,
            "rows": dataset.rows,
            "discoverable": json.dumps(dataset.discoverable),
            "registered": _now(),
        }
        with self._store.founding() as driver:
            registered = [_as_dataset(row) for row in driver.records("SELECT * FROM service_dataset")]
            _refuse_taken(driver, dataset.name)
            same_table = {each.name for each in registered if same_place(each.source, each.domain)}
            same_table |= same_content(driver, new.content)
            if same_table and not second_budget:
                others = (each for each in registered if each.name in same_table)
                return tuple(sorted(others, key=lambda each: each.called))
            create_or_check(driver, dataset.name, new.limit, new.unit)
            driver.insert("service_dataset", [row])
            driver.insert("service_name", [{"name": dataset.name, "dataset": dataset.name}])
            declare_snapshot(driver, dataset.name, new.content, new.snapshot, by=new.by)
            record(driver, Change(ActionKind.DATASET, dataset.name, None, new.facts), new.by)
        return ()

    def datasets(self) -> tuple[Dataset, ...]:
        """Return all datasets by name."""
        with self._store.reading() as driver:
            rows = driver.records("SELECT * FROM service_dataset ORDER BY COALESCE(called, name)")
        return tuple(_as_dataset(row) for row in rows)

    def dataset(self, called: str) -> Dataset | None:
        """Return the dataset with a name; None if there is none.  Compatible forms of a name are equal."""
        if not called.isidentifier():  # PostgreSQL refuses some characters, such as NUL
            return None
        query = "SELECT * FROM service_dataset WHERE COALESCE(called, name) = :called"
        with self._store.reading() as driver:
            for name in dict.fromkeys((called, plain_name(called))):
                row = driver.record(query, {"called": name})
                if row is not None:
                    return _as_dataset(row)
        return None

    def refuse_taken(self, name: str) -> None:
        """Refuse a name that a dataset has or had.  This spares the reading of a table.

        Raises:
            TakenNameError: a dataset has or had the name, or a compatible form of it.
        """
        with self._store.reading() as driver:
            _refuse_taken(driver, name)

    def rename(self, dataset: Dataset, called: str, *, by: Actor | None = None) -> None:
        """Rename a dataset.  Its ledger, terms and versions stay, and no other dataset gets its former names.

        Raises:
            TakenNameError: another dataset has or had the name.
            InputError: the name cannot be used.
        """
        refuse_name(called)
        name = plain_name(called)
        with self._store.founding() as driver:
            _refuse_taken(driver, name, except_for=dataset.name)
            if driver.value("SELECT COUNT(*) FROM service_name WHERE name = :name", {"name": name}) == 0:
                driver.insert("service_name", [{"name": name, "dataset": dataset.name}])
            change = "UPDATE service_dataset SET called = :called WHERE name = :name"
            former = _stored(driver, dataset.name).called
            driver.run(change, {"called": name, "name": dataset.name})
            record(driver, Change(ActionKind.NAME, dataset.name, former, name), by)

    def retire(self, dataset: Dataset, *, retired: bool, by: Actor | None = None) -> None:
        """Retire a dataset, or end its retirement.  Releases under way are refused when they are charged."""
        change = "UPDATE service_dataset SET retired = :at WHERE name = :name"
        with self._store.founding() as driver:
            former = _stored(driver, dataset.name).retired
            driver.run(change, {"at": _now() if retired else None, "name": dataset.name})
            states = ({"retired": each} for each in (former, retired))
            record(driver, Change(ActionKind.RETIREMENT, dataset.name, *states), by)

    def issue(self, name: str, scope: Scope, lifetime: timedelta, *, by: Actor | None = None) -> tuple[Key, str]:
        """Issue a key, and return it with its secret, which is not stored.

        A holder with an earlier key keeps its spelling of the name.

        Raises:
            InputError: the name is not 1 to 200 printable characters, or the lifetime is not positive.
        """
        refuse_holder(name)
        if not timedelta(0) < lifetime <= timedelta(days=3660):
            raise InputError("a key expires within ten years, and not at once", culprit=lifetime)
        name = registered_name(name, self.names())
        with self._store.writing() as driver:
            key, secret = _insert_key(driver, name, scope, lifetime)
            record(driver, Change(_action_kind(key), key.id, None, _facts(key)), by)
        return key, secret

    def rotate(self, key_id: str, *, overlap: timedelta, by: Actor | None = None) -> tuple[Key, str] | None:
        """Issue a key in exchange for a valid one, with the same lifetime.  Both work until ``overlap`` is over.

        Returns:
            The new key and its secret; None if no valid key has that id.
        """
        if not key_id.isalnum():  # see `dataset`
            return None
        with self._store.founding() as driver:
            row = driver.record("SELECT * FROM service_key WHERE id = :id AND scope <> 'link'", {"id": key_id})
            former = None if row is None else _as_key(row)
            if former is None or not former.valid:
                return None
            key, secret = _insert_key(driver, former.name, former.scope, former.expires - former.issued)
            last = min(former.expires, datetime.now(UTC) + overlap)
            end = "UPDATE service_key SET expires = :last WHERE id = :id"
            driver.run(end, {"id": key_id, "last": last.isoformat()})
            ending = replace(former, expires=last)
            record(driver, Change(ActionKind.KEY, key.id, None, {**_facts(key), "instead_of": key_id}), by)
            record(driver, Change(ActionKind.KEY, key_id, _facts(former), _facts(ending)), by)
        return key, secret

    def record_use(self, key: Key) -> None:
        """Record that a key is used now, unless this was done a short time ago."""
        now = datetime.now(UTC)
        if key.used is not None and now - key.used < _USE_INTERVAL:
            return
        with self._store.writing() as driver:
            driver.run("UPDATE service_key SET used = :now WHERE id = :id", {"id": key.id, "now": now.isoformat()})

    def issue_link(self, lifetime: timedelta) -> str:
        """Issue an invitation, with which a steward logs in once, and return its secret.  Earlier invitations end."""
        end = "UPDATE service_key SET revoked = :now WHERE scope = :link AND revoked IS NULL"
        with self._store.writing() as driver:
            driver.run(end, {"now": _now(), "link": Scope.INVITATION.value})
            key, secret = _insert_key(driver, "steward", Scope.INVITATION, lifetime)
            record(driver, Change(ActionKind.LINK, key.id, None, _facts(key)))
        return secret

    def has_steward(self) -> bool:
        """Return whether a valid key of a steward exists."""
        return any(each.valid and each.scope is Scope.STEWARD for each in self.all_keys())

    def key(self, secret: str) -> Key | None:
        """Return the key of a secret, valid or not; None if there is none."""
        with self._store.reading() as driver:
            row = driver.record("SELECT * FROM service_key WHERE hash = :hash", {"hash": secret_hash(secret)})
        return None if row is None else _as_key(row)

    def all_keys(self) -> tuple[Key, ...]:
        """Return all keys except invitations, newest first."""
        query = "SELECT * FROM service_key WHERE scope <> :link ORDER BY issued DESC"
        with self._store.reading() as driver:
            rows = driver.records(query, {"link": Scope.INVITATION.value})
        return tuple(_as_key(row) for row in rows)

    def names(self) -> tuple[str, ...]:
        """Return the names of all holders of keys and of all identities, in order."""
        with self._store.reading() as driver:
            rows = driver.rows("SELECT name FROM service_key UNION SELECT name FROM service_identity ORDER BY name")
        return tuple(name for (name,) in rows)

    def revoke(self, key_id: str, *, by: Actor | None = None) -> bool:
        """Revoke a key; return False if it does not exist or was revoked before."""
        if not key_id.isalnum():  # see `dataset`
            return False
        end = "UPDATE service_key SET revoked = :now WHERE id = :id AND revoked IS NULL"
        with self._store.writing() as driver:
            if not driver.run(end, {"id": key_id, "now": _now()}):
                return False
            key = _as_key(driver.records("SELECT * FROM service_key WHERE id = :id", {"id": key_id})[0])
            record(driver, Change(_action_kind(key), key_id, _facts(key), None), by)
        return True


def same_content(driver: Driver, content: str) -> set[str]:
    """Return the names of datasets whose last declared version has this content."""
    query = """
    SELECT dataset.name, ledger.secret, ledger.version_digest FROM service_dataset AS dataset
    JOIN ledger_dataset AS ledger ON ledger.name = dataset.name"""
    return {name for name, secret, digest in driver.rows(query) if digest == journalled_version(secret, content)}


def _refuse_taken(driver: Driver, name: str, *, except_for: str | None = None) -> None:
    """Refuse a name that a dataset has or had, because journals may contain it.

    Raises:
        TakenNameError: a dataset has or had the name, or a compatible form of it.
    """
    for known, dataset in driver.rows("SELECT name, dataset FROM service_name"):
        if plain_name(known) == plain_name(name) and dataset != except_for:
            raise TakenNameError(f"there is or was a dataset {name!r} already; choose another name", culprit=name)


def secret_hash(secret: str) -> str:
    """Return the hash that is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _insert_key(driver: Driver, name: str, scope: Scope, lifetime: timedelta) -> tuple[Key, str]:
    secret = f"{PREFIX}_{scope.value}_{secrets.token_urlsafe(SECRET_BYTES)}"
    issued = datetime.now(UTC)
    key = Key(secrets.token_hex(6), name, scope, issued, issued + lifetime, revoked=False)
    row = {
        "id": key.id,
        "hash": secret_hash(secret),
        "name": name,
        "scope": scope.value,
        "issued": issued.isoformat(),
        "expires": key.expires.isoformat(),
    }
    driver.insert("service_key", [row])
    return key, secret


def _action_kind(key: Key) -> ActionKind:
    return ActionKind.LINK if key.scope is Scope.INVITATION else ActionKind.KEY


def _facts(key: Key) -> dict[str, Any]:
    """Return the facts of a key for the audit log."""
    return {"holder": key.name, "scope": key.scope.value, "expires": key.expires.isoformat()}


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _stored(driver: Driver, name: str) -> Dataset:
    return _as_dataset(driver.records("SELECT * FROM service_dataset WHERE name = :name", {"name": name})[0])


def _as_dataset(row: Mapping[str, Any]) -> Dataset:
    return Dataset(
        name=row["name"],
        source=row["source"],
        domain=json.loads(row["domain"]),
        limit=row["limit_text"],
        rows=row["rows"],
        discoverable=tuple(json.loads(row["discoverable"])),
        called=row["called"] or row["name"],
        retired=row["retired"] is not None,
        registered=row["registered"],
    )


def _as_key(row: Mapping[str, Any]) -> Key:
    issued, expires = (datetime.fromisoformat(row[name]) for name in ("issued", "expires"))
    used = None if row["used"] is None else datetime.fromisoformat(row["used"])
    return Key(row["id"], row["name"], Scope(row["scope"]), issued, expires, row["revoked"] is not None, used)
