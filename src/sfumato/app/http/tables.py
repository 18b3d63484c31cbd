"""The tables that a worker serves: the rows of each dataset's last declared version, read from its snapshot.

A snapshot is read when the first question comes after a start or a new version, and its tables are kept.  No question
looks at the source of a dataset: its reply, and the time that it takes, are the same whether the source changed or not.
Only an action of a steward reads the source.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace

from sfumato.app.http.admission import TablePlaces
from sfumato.app.http.problems import RefusalError, unreadable, unwritable
from sfumato.app.http.processes import log
from sfumato.app.http.snapshots import ServedVersion, Snapshot, Snapshots
from sfumato.app.http.table_reading import (
    Loaded,
    Opened,
    files_of,
    fingerprint,
    open_copies,
    open_source,
    vault_of,
)
from sfumato.domain.related_tables import RelatedTables
from sfumato.domain.view import BoundedView
from sfumato.engine.table_memory import held_bytes
from sfumato.errors import EngineError, TableError
from sfumato.ledger import DataVersion
from sfumato.ledger.audit_log import Actor
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault import Vault

_REMEMBERED = 1.0  # seconds for which a worker trusts the declared version that it has looked up


@dataclass(frozen=True)
class Held:
    """Tables of a declared version, as they were read from its snapshot."""

    vault: Vault | SchemaVault
    declared: ServedVersion


class ServedTables:
    """The tables of one worker."""

    def __init__(self, snapshots: Snapshots, places: TablePlaces, *, most_bytes: int = 0) -> None:
        """Keep tables of some places.

        Args:
            snapshots: from which they are read.
            places: where tables may lie.
            most_bytes: beyond which those that were asked longest ago are forgotten, but for the last; 0: any number.
        """
        self.snapshots = snapshots
        self._places = places
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, Held] = OrderedDict()  # asked longest ago first
        self._declared: dict[str, tuple[float, ServedVersion]] = {}
        self._spoiled: dict[str, Snapshot] = {}  # which could not be opened
        self._forgetting = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def vault(self, loaded: Loaded) -> Vault | SchemaVault:
        """The dataset's vault, of the last declared version.

        Raises:
            RefusalError: the dataset is paused, as its version has no snapshot, or the snapshot cannot be read now.
        """
        with suppress(KeyError):  # it is not held
            self._held.move_to_end(loaded.dataset.name)
        return self._answering(loaded).vault

    def view(self, loaded: Loaded, view: BoundedView) -> Vault:
        """The vault of a view of a dataset's tables, of the last declared version; one view is made at a time.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no views"
        with self._locks[loaded.dataset.name]:
            return found.over(view)

    def units(self, loaded: Loaded, related: RelatedTables) -> Vault:
        """The vault of whole units of a dataset's tables, of the last declared version; counted anew each time.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no related ones"
        with self._locks[loaded.dataset.name]:
            return found.of_units(related)

    def begin(self, loaded: Loaded, opened: Opened, snapshot: Snapshot) -> None:
        """Keep the tables that were opened from the snapshot with which their dataset was registered."""
        name = loaded.dataset.name
        with self._locks[name]:
            declared = self.snapshots.declared(name)
            if declared.snapshot == snapshot:
                self._keep(name, Held(vault_of(opened, loaded.ledger, declared.number), declared), declared)

    def read_again(self, loaded: Loaded, *, by: Actor | None = None) -> tuple[DataVersion, bool]:
        """Read the source and declare the next version; return it, and whether its content differs from the last one.

        Raises:
            RefusalError: the source cannot be read, does not fit its description, or lies where none is served by now,
                or the snapshot cannot be written; the last version stays declared.
        """
        name, found = loaded.dataset.name, loaded.described
        address = self._places.address(loaded.dataset.source)
        try:
            source = open_source(replace(loaded.dataset, source=address), found)
            content = source.content
            with self.snapshots.taking(source.copied, fingerprint(source.files)) as snapshot:
                opened = open_copies(found, snapshot.copies, self.snapshots.place(snapshot))
                version, changed = self.snapshots.declare(name, content, snapshot, by=by)
        except (TableError, EngineError) as error:
            raise unreadable(error) from error
        except OSError as error:
            raise unwritable(error, self.snapshots.folder) from error
        with self._locks[name]:
            declared = ServedVersion(version.number, snapshot)
            self._keep(name, Held(vault_of(opened, loaded.ledger, declared.number), declared), declared)
        return version, changed

    def written(self, loaded: Loaded) -> bool | None:
        """Whether files of the source were written, added or removed since they were read; for stewards alone.

        None of a source that is not made of files, and of a dataset without a snapshot.  No file is opened for it.
        """
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not snapshot.files:
            return None
        return fingerprint(files_of(loaded.dataset, loaded.described)) != snapshot.files

    def paused(self, loaded: Loaded) -> bool:
        """Whether questions are refused until a steward has the source read again."""
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not self.snapshots.place(snapshot).is_dir():
            return True
        return self._spoiled.get(loaded.dataset.name) == snapshot

    def forget(self, name: str) -> None:
        """Forget the tables of a retired dataset."""
        self._held.pop(name, None)

    def _answering(self, loaded: Loaded) -> Held:
        """Return the tables of the last declared version, reading them if they are not held."""
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None or not self._fits(held, name):
            with self._locks[name]:
                held = self._held.get(name)  # of many who found it outdated together, one looks it up
                if held is None or not self._fits(held, name):
                    held = self._current(loaded)
        return held

    def _fits(self, held: Held, name: str) -> bool:
        """Return whether tables are of the version that was just looked up, and can still be counted."""
        seen, declared = self._declared.get(name, (0.0, None))
        return held.declared == declared and time.monotonic() - seen <= _REMEMBERED and _answers(held)

    def _current(self, loaded: Loaded) -> Held:
        name = loaded.dataset.name
        held, declared = self._held.get(name), self.snapshots.declared(name)
        while held is None or held.declared != declared or not _answers(held):
            try:
                held = Held(vault_of(self._opened(loaded, declared.snapshot), loaded.ledger, declared.number), declared)
            except RefusalError:
                last, declared = declared, self.snapshots.declared(name)
                if declared == last:  # otherwise the next version was declared, and this snapshot deleted
                    raise
        self._keep(name, held, declared)
        return held

    def _opened(self, loaded: Loaded, snapshot: Snapshot | None) -> Opened:
        if snapshot is None or not self.snapshots.is_whole(snapshot):
            if snapshot is not None and self._spoiled.get(loaded.dataset.name) != snapshot:
                self._spoiled[loaded.dataset.name] = snapshot
                log("snapshot spoiled", dataset=loaded.dataset.called)
            raise _paused()
        try:
            return open_copies(loaded.described, snapshot.copies, self.snapshots.place(snapshot))
        except (TableError, EngineError) as error:
            log("snapshot unread", dataset=loaded.dataset.called, error=type(error).__name__)
            raise _unread() from error

    def _keep(self, name: str, held: Held, declared: ServedVersion) -> None:
        self._held[name] = held
        self._declared[name] = (time.monotonic(), declared)
        if self._most_bytes:
            self._forget_beyond(self._most_bytes)

    def _forget_beyond(self, most: int) -> None:
        """Forget tables that were asked longest ago; they are read from their snapshot again when they are asked for.
        Whoever is asking one goes on with it.
        """
        with self._forgetting:
            while len(self._held) > 1 and held_bytes() > most:
                self._held.popitem(last=False)
                gc.collect()


def _paused() -> RefusalError:
    reason = "nothing is answered until a steward has had its table read again; nothing was charged"
    return RefusalError("dataset-paused", "The dataset is paused", 503, reason)


def _unread() -> RefusalError:
    reason = "ask later; the log of the server tells its operator more"
    return RefusalError("data-unavailable", "The data cannot be read now", 503, reason)


def _answers(held: Held) -> bool:
    """Return whether held tables, in this process or on a cluster, can still be counted."""
    try:
        if isinstance(held.vault, SchemaVault):
            held.vault.tables.ready()
        else:
            held.vault.encoded.ready()
    except EngineError:
        return False
    return True
