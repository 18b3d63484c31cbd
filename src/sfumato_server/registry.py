"""Datasets and keys of a server, in the database of its ledgers, and the rules for their names.

No secret is kept: of a key only the SHA-256 is stored, which is enough to recognize 256 random bits.  A name of a
dataset or a key stands for one thing only, however it is written.
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
from sfumato.ledger.entry import digest as digest_of
from sfumato.ledger.entry import journalled_version
from sfumato.ledger.opening import create_or_check
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Loss
from sfumato_server.problems import TakenNameError
from sfumato_server.sources import Snapshot, enter
from sfumato_server.work import LEASE, Jobs

_LONGEST = 200


def spelled(name: str, known: Iterable[str]) -> str:
    r"""Return the known spelling of a name, or else the name without outer blanks and in Unicode's compatible form.

    Two spellings mean one person if they differ only in compatible forms, case or outer blanks.

    >>> spelled(" Ann ", ["bob", "ANN"]), spelled("Zoe\u0308 ", [])
    ('ANN', 'Zo\xeb')
    """
    plain, names = unicodedata.normalize("NFKC", name).strip(), tuple(known)
    return name if name in names else next((each for each in names if _folded(each) == _folded(plain)), plain)


def _folded(name: str) -> str:
    """Return a form that is equal for all spellings of a name; case folding may leave characters to normalize."""
    plain = unicodedata.normalize("NFKC", name).strip()
    return unicodedata.normalize("NFKC", plain.casefold()).casefold()


def plain_name(name: str) -> str:
    r"""Return a dataset's name in Unicode's compatible form, which is unique among datasets.

    >>> plain_name("\N{LATIN SMALL LIGATURE FI}sh")
    'fish'
    """
    return unicodedata.normalize("NFKC", name)


def refuse_holder(name: str) -> None:
    """Refuse a text that cannot name a person.

    Raises:
        InputError: it is not 1 to 200 printable characters, not all of them blanks.
    """
    if not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InputError(f"a key is named by 1 to {_LONGEST} printable characters", culprit=name)


def refuse_name(name: str) -> None:
    """Refuse a text that cannot name a dataset.

    Raises:
        InputError: it is not letters, digits and _, or too long.
    """
    if not name.isidentifier() or len(name) > _LONGEST:
        raise InputError("a dataset is named like a variable: letters, digits and _", culprit=name)


PREFIX = "sfumato"
SECRET_BYTES = 32
_BETWEEN_USES = timedelta(minutes=10)
_PROBE = 4096  # characters that are written to see whether the database takes any: it needs a page of its own


class Scope(StrEnum):
    """What a key may do."""

    STEWARD = "steward"
    ANALYST = "analyst"
    MONITOR = "monitor"  # reads figures of the server, and nothing else
    INVITATION = "link"  # opens the page for a steward once, and nothing else


@dataclass(frozen=True)
class Dataset:
    """A registered table: where it lies, its public domain as a document, and what is public besides.

    Attributes:
        name: of its ledger, which never changes; terms, grants and versions go by it.
        called: what analysts call it.
        retired: whether nothing more is released of it.
        registered: when, in UTC: the months of its budget begin then; empty before it is.
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
        content: a name of all columns of all its tables.
        snapshot: the copies of its tables.
        by: who registers it; the system's user by default.
    """

    dataset: Dataset
    limit: Loss
    unit: Unit
    content: str
    snapshot: Snapshot
    by: Actor | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for the audit log, without a password of the table's address."""
        found = self.dataset
        return {
            "source": redacted_source(found.source),
            "limit": found.limit,
            "unit": str(self.unit),
            "rows": found.rows,
            "discoverable": list(found.discoverable),
            "domain": digest_of(json.loads(json.dumps(found.domain))),
        }


@dataclass(frozen=True)
class Key:
    """A key without its secret; or what a session opens, with the id of that ``session``."""

    id: str
    name: str
    scope: Scope
    issued: datetime
    expires: datetime
    revoked: bool
    used: datetime | None = None  # to ten minutes; None where it was not used, or before that was written down
    session: str | None = None

    @property
    def valid(self) -> bool:
        """Whether it opens anything now."""
        return not self.revoked and datetime.now(UTC) < self.expires

    @property
    def actor(self) -> Actor:
        """Who acts with it."""
        return Actor(self.name, f"key {self.id}" if self.session is None else f"session {self.session} of {self.id}")


class Registry:
    """Datasets, keys and jobs of a server, over a store that is prepared."""

    def __init__(self, store: Store, *, lease: timedelta = LEASE) -> None:
        self._store = store
        self.jobs = Jobs(store, lease=lease)

    def alive(self) -> None:
        """Ask the database anything, over a connection of its own, and write to it, as a question would.

        Raises:
            LedgerError: it does not answer, has no connection left, or takes nothing.
        """
        self._store.alive()
        probe = {"id": secrets.token_hex(8), "written": _now().ljust(_PROBE)}
        with self._store.writing() as driver:
            driver.run("DELETE FROM service_probe")
            driver.insert("service_probe", [probe])

    def register(
        self, new: Registration, *, same_place: Callable[[str, Mapping[str, Any]], bool], second_budget: bool
    ) -> tuple[Dataset, ...]:
        """Register a dataset with its ledger, its unit and its first version, all at once or not at all.

        Nobody else registers meanwhile, so that of several who register one table under different names at the same
        time, one does, and the others are told.

        Returns:
            Datasets that are of the same table; then nothing was done, unless it is to have a ``second_budget``.

        Raises:
            TakenNameError: another dataset has or had the name.
            InputError: it is no name.
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
            alike = {each.name for each in registered if same_place(each.source, each.domain)}
            alike |= same_content(driver, new.content)
            if alike and not second_budget:
                return tuple(sorted((each for each in registered if each.name in alike), key=lambda each: each.called))
            create_or_check(driver, dataset.name, new.limit, new.unit)
            driver.insert("service_dataset", [row])
            driver.insert("service_name", [{"name": dataset.name, "dataset": dataset.name}])
            enter(driver, dataset.name, new.content, new.snapshot, by=new.by)
            record(driver, Change(ActionKind.DATASET, dataset.name, None, new.facts), new.by)
        return ()

    def datasets(self) -> tuple[Dataset, ...]:
        """All datasets by name."""
        with self._store.reading() as driver:
            rows = driver.records("SELECT * FROM service_dataset ORDER BY COALESCE(called, name)")
        return tuple(_as_dataset(row) for row in rows)

    def dataset(self, called: str) -> Dataset | None:
        """The dataset that is called so now; compatible forms of a name are one."""
        if not called.isidentifier():  # there is none, and PostgreSQL refuses to look for some characters
            return None
        query = "SELECT * FROM service_dataset WHERE COALESCE(called, name) = :called"
        with self._store.reading() as driver:
            for name in dict.fromkeys((called, plain_name(called))):
                row = driver.record(query, {"called": name})
                if row is not None:
                    return _as_dataset(row)
        return None

    def refuse_taken(self, name: str) -> None:
        """Refuse a name that a dataset has or had, before a table is read for it.

        Raises:
            TakenNameError: one has or had it, or a compatible form of it.
        """
        with self._store.reading() as driver:
            _refuse_taken(driver, name)

    def rename(self, dataset: Dataset, called: str, *, by: Actor | None = None) -> None:
        """Call a dataset otherwise; its ledger, terms and versions stay, and no other gets a name that it had.

        Raises:
            TakenNameError: another dataset has or had the name.
            InputError: it is no name.
        """
        refuse_name(called)
        name = plain_name(called)
        with self._store.founding() as driver:
            _refuse_taken(driver, name, of_other_than=dataset.name)
            if driver.value("SELECT COUNT(*) FROM service_name WHERE name = :name", {"name": name}) == 0:
                driver.insert("service_name", [{"name": name, "dataset": dataset.name}])
            change = "UPDATE service_dataset SET called = :called WHERE name = :name"
            former = _stored(driver, dataset.name).called
            driver.run(change, {"called": name, "name": dataset.name})
            record(driver, Change(ActionKind.NAME, dataset.name, former, name), by)

    def retire(self, dataset: Dataset, *, retired: bool, by: Actor | None = None) -> None:
        """Release nothing more of a dataset, or go on; what is under way is refused when it is charged."""
        change = "UPDATE service_dataset SET retired = :at WHERE name = :name"
        with self._store.founding() as driver:
            former = _stored(driver, dataset.name).retired
            driver.run(change, {"at": _now() if retired else None, "name": dataset.name})
            states = ({"retired": each} for each in (former, retired))
            record(driver, Change(ActionKind.RETIREMENT, dataset.name, *states), by)

    def issue(self, name: str, scope: Scope, lifetime: timedelta, *, by: Actor | None = None) -> tuple[Key, str]:
        """A new key and its secret, which is shown once and cannot be shown again.

        A holder who has or had a key under another spelling of the name keeps that spelling.

        Raises:
            InputError: a name that is not 1 to 200 printable characters, or a lifetime that is not positive.
        """
        refuse_holder(name)
        if not timedelta(0) < lifetime <= timedelta(days=3660):
            raise InputError("a key expires within ten years, and not at once", culprit=lifetime)
        name = spelled(name, self.names())
        with self._store.writing() as driver:
            key, secret = _insert_key(driver, name, scope, lifetime)
            record(driver, Change(_kind_of(key), key.id, None, _facts(key)), by)
        return key, secret

    def rotate(self, key_id: str, *, overlap: timedelta, by: Actor | None = None) -> tuple[Key, str] | None:
        """A new key in the place of one that is valid, for as long as that was issued for; both work for an overlap.

        Returns:
            The new key and its secret; None where there is no valid key of that id.
        """
        if not key_id.isalnum():  # see dataset
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

    def used(self, key: Key) -> None:
        """Write down that a key is used now, unless that was done a moment ago."""
        now = datetime.now(UTC)
        if key.used is not None and now - key.used < _BETWEEN_USES:
            return
        with self._store.writing() as driver:
            driver.run("UPDATE service_key SET used = :now WHERE id = :id", {"id": key.id, "now": now.isoformat()})

    def issue_link(self, lifetime: timedelta) -> str:
        """The secret of a link that opens the page for a steward, once; earlier ones end."""
        end = "UPDATE service_key SET revoked = :now WHERE scope = :link AND revoked IS NULL"
        with self._store.writing() as driver:
            driver.run(end, {"now": _now(), "link": Scope.INVITATION.value})
            key, secret = _insert_key(driver, "steward", Scope.INVITATION, lifetime)
            record(driver, Change(ActionKind.LINK, key.id, None, _facts(key)))
        return secret

    def has_steward(self) -> bool:
        """Whether somebody holds a steward's key that is valid now."""
        return any(each.valid and each.scope is Scope.STEWARD for each in self.all_keys())

    def key(self, secret: str) -> Key | None:
        """The key of a secret, valid or not; None where there is none."""
        with self._store.reading() as driver:
            row = driver.record("SELECT * FROM service_key WHERE hash = :hash", {"hash": digest(secret)})
        return None if row is None else _as_key(row)

    def all_keys(self) -> tuple[Key, ...]:
        """All keys but links, newest first."""
        query = "SELECT * FROM service_key WHERE scope <> :link ORDER BY issued DESC"
        with self._store.reading() as driver:
            rows = driver.records(query, {"link": Scope.INVITATION.value})
        return tuple(_as_key(row) for row in rows)

    def names(self) -> tuple[str, ...]:
        """Who holds or held a key, or was vouched for by a provider of identities, by name."""
        with self._store.reading() as driver:
            rows = driver.rows("SELECT name FROM service_key UNION SELECT name FROM service_identity ORDER BY name")
        return tuple(name for (name,) in rows)

    def revoke(self, key_id: str, *, by: Actor | None = None) -> bool:
        """End a key; tells whether this call did: of several at once, one."""
        if not key_id.isalnum():  # see dataset
            return False
        end = "UPDATE service_key SET revoked = :now WHERE id = :id AND revoked IS NULL"
        with self._store.writing() as driver:
            if not driver.run(end, {"id": key_id, "now": _now()}):
                return False
            key = _as_key(driver.records("SELECT * FROM service_key WHERE id = :id", {"id": key_id})[0])
            record(driver, Change(_kind_of(key), key_id, _facts(key), None), by)
        return True


def same_content(driver: Driver, content: str) -> set[str]:
    """Return the names of datasets whose last declared version has this content."""
    joined = """
    SELECT named.name, held.secret, held.version_digest FROM service_dataset AS named
    JOIN ledger_dataset AS held ON held.name = named.name"""
    return {name for name, secret, digest in driver.rows(joined) if digest == journalled_version(secret, content)}


def _refuse_taken(driver: Driver, name: str, *, of_other_than: str | None = None) -> None:
    """Refuse a name that a dataset has or had, whose journal it may still name somewhere.

    Raises:
        TakenNameError: one has or had it, or a compatible form of it.
    """
    for known, dataset in driver.rows("SELECT name, dataset FROM service_name"):
        if plain_name(known) == plain_name(name) and dataset != of_other_than:
            raise TakenNameError(f"there is or was a dataset {name!r} already; choose another name", culprit=name)


def digest(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _insert_key(driver: Driver, name: str, scope: Scope, lifetime: timedelta) -> tuple[Key, str]:
    secret = f"{PREFIX}_{scope.value}_{secrets.token_urlsafe(SECRET_BYTES)}"
    issued = datetime.now(UTC)
    key = Key(secrets.token_hex(6), name, scope, issued, issued + lifetime, revoked=False)
    row = {
        "id": key.id,
        "hash": digest(secret),
        "name": name,
        "scope": scope.value,
        "issued": issued.isoformat(),
        "expires": key.expires.isoformat(),
    }
    driver.insert("service_key", [row])
    return key, secret


def _kind_of(key: Key) -> ActionKind:
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
