"""The tables that a worker has read, all of the version that the steward confirmed.

A table is read when its first question comes and kept.  Files are looked at before every question: where they
were written, moved or removed, they are read again.  Whatever was read answers only if its content is the one that
the steward confirmed, when the dataset was registered or by having it read again; otherwise the question is
refused before it is charged, by every worker alike.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

from sfumato.app.http.admission import TablePlaces
from sfumato.app.http.problems import RefusalError, unreadable
from sfumato.app.http.registry import Dataset, Read, Reading, TableVersions
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.engine.open import open_table
from sfumato.engine.port import ColumnKind, Encoded, ProtectedTable
from sfumato.engine.table_files import Stamps, stamps
from sfumato.errors import EngineError, TableError
from sfumato.ledger import Ledger
from sfumato.vault.vault import Vault

_REMEMBERED = 1.0  # seconds for which a worker trusts the confirmed version that it has looked up
_NOTHING = "\ufffd"  # the only value of a domain that tells no rows apart


@dataclass(frozen=True)
class Loaded:
    """A registered dataset, its domain and its ledger."""

    dataset: Dataset
    domain: Domain
    ledger: Ledger


@dataclass(frozen=True)
class Held:
    """A table as it was read: its content, its files, and how often the steward had had it read by then."""

    vault: Vault
    version: str
    files: Stamps
    number: int


@dataclass(frozen=True)
class Fresh:
    """A table that was just read, and its files as they stayed meanwhile.

    ``discoverable`` names the content with the columns whose values may be discovered, where there are such.
    """

    table: ProtectedTable
    encoded: Encoded
    discoverable: str | None
    files: Stamps

    @property
    def versions(self) -> tuple[str, ...]:
        """What names the content as far as it can be asked about."""
        return (self.encoded.version, *(() if self.discoverable is None else (self.discoverable,)))


class ServedTables:
    """The tables of one worker."""

    def __init__(self, versions: TableVersions, places: TablePlaces) -> None:
        self._versions = versions
        self._places = places
        self._held: dict[str, Held] = {}
        self._confirmed: dict[str, tuple[float, Reading]] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def vault(self, loaded: Loaded) -> Vault:
        """The dataset's vault, of the confirmed version.

        Raises:
            RefusalError: the table cannot be read now, or is not the one that the steward confirmed.
        """
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None or not self._fits(held, loaded.dataset):
            with self._locks[name]:
                held = self._held.get(name)  # of many who found it outdated together, one looks it up
                if held is None or not self._fits(held, loaded.dataset):
                    held = self._current(loaded)
        return held.vault

    def begin(self, loaded: Loaded, fresh: Fresh) -> None:
        """Keep the table that was read, and confirmed, when its dataset was registered."""
        name = loaded.dataset.name
        with self._locks[name]:
            held = self._holding(loaded, fresh, 1)
            self._keep(name, held, Reading(held.version, 1))

    def read_again(self, loaded: Loaded) -> tuple[Reading, bool]:
        """Read the table and confirm what it holds now; also tells whether it had changed.

        Raises:
            RefusalError: the table cannot be read, does not fit its domain, or lies where none is served by now; the
                last version stays confirmed.
        """
        name = loaded.dataset.name
        self._places.refuse(loaded.dataset.source)
        with self._locks[name]:
            before = self._versions.confirmed(name)
            try:
                fresh = read(loaded.dataset, loaded.domain)
                found = self._versions.confirm(name, whole(fresh, loaded.dataset))
            except (TableError, EngineError) as error:
                raise unreadable(error) from error
            self._keep(name, self._holding(loaded, fresh, found.number), found)
        return found, before is not None and before.version != found.version

    def _fits(self, held: Held, dataset: Dataset) -> bool:
        """Whether a table is as it was read, and of the version that was confirmed a moment ago."""
        seen, confirmed = self._confirmed.get(dataset.name, (0.0, None))
        return (
            confirmed is not None
            and held.version == confirmed.version
            and time.monotonic() - seen <= _REMEMBERED
            and stamps(dataset.source) == held.files
            and _answers(held)
        )

    def _current(self, loaded: Loaded) -> Held:
        name = loaded.dataset.name
        held, confirmed = self._held.get(name), self._versions.confirmed(name)
        number = 0 if confirmed is None else confirmed.number
        if held is None or confirmed is None or self._outdated(held, loaded.dataset, confirmed):
            if not self._places.admits(loaded.dataset.source):
                raise _unread()
            try:
                fresh = read(loaded.dataset, loaded.domain)
                if confirmed is None:
                    confirmed = self._versions.first(name, whole(fresh, loaded.dataset))
            except (TableError, EngineError) as error:
                raise _unread() from error
            held = self._holding(loaded, fresh, number)
        self._keep(name, held, confirmed)
        if held.version != confirmed.version:
            raise RefusalError(
                "table-changed",
                "The table has changed",
                409,
                "the steward has to confirm the new version by having the table read again",
            )
        return held

    def _outdated(self, held: Held, dataset: Dataset, confirmed: Reading | None) -> bool:
        """Whether reading once more may bring another version than the one that is held."""
        if stamps(dataset.source) != held.files or not _answers(held):
            return True
        return confirmed is not None and held.version != confirmed.version and held.number != confirmed.number

    def _holding(self, loaded: Loaded, fresh: Fresh, number: int) -> Held:
        version = self._versions.version_of(loaded.dataset.name, fresh.versions)
        return Held(Vault(fresh.encoded, loaded.ledger), version, fresh.files, number)

    def _keep(self, name: str, held: Held, found: Reading) -> None:
        self._held[name] = held
        self._confirmed[name] = (time.monotonic(), found)


def read(dataset: Dataset, domain: Domain) -> Fresh:
    """Read a table, with the columns whose values may be discovered.

    Raises:
        TableError: it cannot be read, does not fit the domain, or lacks one of the columns.
        EngineError: a database does not answer, or a file was written meanwhile.
    """
    files = stamps(dataset.source)
    table = open_table(dataset.source, csv=domain.csv)
    present = {column.name for column in table.schema()}
    for name in dataset.discoverable:
        if name not in present:
            raise TableError(f"the table has no column {name!r} whose values could be discovered", culprit=name)
    encoded = table.encode(domain)
    assert encoded.version  # which reads it, where it was not read yet
    discoverable = encoded.version_with(dataset.discoverable) if dataset.discoverable else None
    if stamps(dataset.source) != files:
        raise EngineError("the table was written while it was read; have it read again later")
    return Fresh(table, encoded, discoverable, files)


def whole(fresh: Fresh, dataset: Dataset) -> Read:
    """What was read, with the content of all columns, however the domain spells, bins or leaves them out.

    The table is read once more under a domain that its columns alone decide.

    Raises:
        TableError, EngineError: as for :func:`read`.
    """
    columns = sorted(column.name for column in fresh.table.schema() if column.kind is not ColumnKind.OTHER)
    bare = Categorical(name=columns[0], values=(_NOTHING,), unknown=Unknown.CATEGORY, nullable=True)
    content = fresh.table.encode(Domain((bare,))).version_with(tuple(columns))
    if stamps(dataset.source) != fresh.files:
        raise EngineError("the table was written while it was read; have it read again later")
    return Read(fresh.versions, content)


def _unread() -> RefusalError:
    reason = "ask later; a steward learns the reason by having the table read again"
    return RefusalError("data-unavailable", "The data cannot be read now", 503, reason)


def _answers(held: Held) -> bool:
    """Whether what is held, in this process, in a database or on a cluster, can still be counted."""
    try:
        return bool(held.vault.encoded.version)
    except EngineError:
        return False
