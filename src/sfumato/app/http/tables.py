"""The tables that a worker has read, all of the version that the steward confirmed.

A table is read when its first question comes and kept.  Files are looked at before every question: where they
were written, moved or removed, they are read again.  Whatever was read answers only if its content is the one that
the steward confirmed, when the dataset was registered or by having it read again; otherwise the question is
refused before it is charged, by every worker alike.
"""

from __future__ import annotations

import gc
import hashlib
import threading
import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass

from sfumato.app.http.admission import TablePlaces
from sfumato.app.http.problems import RefusalError, unreadable
from sfumato.app.http.registry import Reading, TableVersions
from sfumato.app.http.table_reading import Fresh, FreshTables, Loaded, files_of, read, whole
from sfumato.domain.related_tables import RelatedTables
from sfumato.domain.view import BoundedView
from sfumato.engine.table_files import Stamps
from sfumato.engine.table_memory import held_bytes
from sfumato.errors import EngineError, TableError
from sfumato.ledger.audit_log import Actor
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault import Vault

_REMEMBERED = 1.0  # seconds for which a worker trusts the confirmed version that it has looked up


@dataclass(frozen=True)
class Held:
    """Tables as they were read: their content, their files, and how often the steward had had them read by then."""

    vault: Vault | SchemaVault
    version: str
    files: Stamps
    number: int


class ServedTables:
    """The tables of one worker."""

    def __init__(self, versions: TableVersions, places: TablePlaces, *, most_bytes: int = 0) -> None:
        """Keep tables of some places.

        Args:
            versions: which the stewards confirmed.
            places: where tables may lie.
            most_bytes: beyond which those that were asked longest ago are forgotten, but for the last; 0: any number.
        """
        self._versions = versions
        self._places = places
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, Held] = OrderedDict()  # asked longest ago first
        self._confirmed: dict[str, tuple[float, Reading]] = {}
        self._forgetting = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def vault(self, loaded: Loaded) -> Vault | SchemaVault:
        """The dataset's vault, of the confirmed version.

        Raises:
            RefusalError: the table cannot be read now, or is not the one that the steward confirmed.
        """
        with suppress(KeyError):  # it is not held
            self._held.move_to_end(loaded.dataset.name)
        return self._answering(loaded).vault

    def at_hand(self, loaded: Loaded) -> Vault | SchemaVault | None:
        """The same where nothing is read for it; None where it may take long, or is refused."""
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None or not (self._fits(held, loaded) or self._is_confirmed(held, loaded)):
            return None
        with suppress(KeyError):  # it was forgotten this moment
            self._held.move_to_end(name)
        return held.vault

    def _is_confirmed(self, held: Held, loaded: Loaded) -> bool:
        """Whether a table is of the version that is confirmed by now, unless somebody is at finding out."""
        name = loaded.dataset.name
        if not self._locks[name].acquire(blocking=False):
            return False
        try:
            found = self._versions.confirmed(name)
            if found is None or held.version != found.version or self._outdated(held, loaded, found):
                return False
            self._keep(name, held, found)
            return True
        finally:
            self._locks[name].release()

    def view(self, loaded: Loaded, view: BoundedView) -> Vault:
        """The vault of a view of a dataset's tables, of the confirmed version; one view is made at a time.

        Raises:
            RefusalError: a table cannot be read now, or is not the one that the steward confirmed.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no views"
        with self._locks[loaded.dataset.name]:
            return found.over(view)

    def units(self, loaded: Loaded, related: RelatedTables) -> Vault:
        """The vault of whole units of a dataset's tables, of the confirmed version; counted anew each time.

        Raises:
            RefusalError: a table cannot be read now, or is not the one that the steward confirmed.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no related ones"
        with self._locks[loaded.dataset.name]:
            return found.of_units(related)

    def begin(self, loaded: Loaded, fresh: Fresh | FreshTables) -> None:
        """Keep the table that was read, and confirmed, when its dataset was registered."""
        name = loaded.dataset.name
        with self._locks[name]:
            held = self._holding(loaded, fresh, 1)
            self._keep(name, held, Reading(held.version, 1))

    def read_again(self, loaded: Loaded, *, by: Actor | None = None) -> tuple[Reading, bool]:
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
                fresh = read(loaded.dataset, loaded.described)
                found = self._versions.confirm(name, whole(fresh, loaded.dataset, loaded.described), by)
            except (TableError, EngineError) as error:
                raise unreadable(error) from error
            self._keep(name, self._holding(loaded, fresh, found.number), found)
        return found, before is not None and before.version != found.version

    def changed(self, loaded: Loaded, seen: str | None = None) -> str | None:
        """What names the content of a table that was read, and is not the one that its steward confirmed; else None.

        A table that this worker has not read yet is read for it only where its files are not those that were ``seen``
        when a worker had read what is confirmed, as :meth:`files` names them.
        """
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None and seen in (None, _fingerprint(files_of(loaded.dataset, loaded.described))):
            return None
        if held is not None and self._fits(held, loaded):
            return None
        try:
            self._answering(loaded)
        except RefusalError as error:
            changed = self._held.get(name) if error.kind == "table-changed" else None
            return None if changed is None else changed.version
        finally:
            if held is None:
                with suppress(KeyError):  # which nobody asked: what is forgotten first stays so
                    self._held.move_to_end(name, last=False)
        return None

    def files(self, loaded: Loaded) -> str | None:
        """What names the files of a table that was read, where it is the one that is confirmed; None of any other."""
        held = self._held.get(loaded.dataset.name)
        return None if held is None or not self._fits(held, loaded) else _fingerprint(held.files)

    def _answering(self, loaded: Loaded) -> Held:
        """A table of the confirmed version, read where it is not held."""
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None or not self._fits(held, loaded):
            with self._locks[name]:
                held = self._held.get(name)  # of many who found it outdated together, one looks it up
                if held is None or not self._fits(held, loaded):
                    held = self._current(loaded)
        return held

    def _fits(self, held: Held, loaded: Loaded) -> bool:
        """Whether a table is as it was read, and of the version that was confirmed a moment ago."""
        seen, confirmed = self._confirmed.get(loaded.dataset.name, (0.0, None))
        return (
            confirmed is not None
            and held.version == confirmed.version
            and time.monotonic() - seen <= _REMEMBERED
            and files_of(loaded.dataset, loaded.described) == held.files
            and _answers(held)
        )

    def _current(self, loaded: Loaded) -> Held:
        name = loaded.dataset.name
        held, confirmed = self._held.get(name), self._versions.confirmed(name)
        number = 0 if confirmed is None else confirmed.number
        if held is None or confirmed is None or self._outdated(held, loaded, confirmed):
            if not self._places.admits(loaded.dataset.source):
                raise _unread()
            try:
                fresh = read(loaded.dataset, loaded.described)
                if confirmed is None:
                    confirmed = self._versions.first(name, whole(fresh, loaded.dataset, loaded.described))
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

    def _outdated(self, held: Held, loaded: Loaded, confirmed: Reading | None) -> bool:
        """Whether reading once more may bring another version than the one that is held."""
        if files_of(loaded.dataset, loaded.described) != held.files or not _answers(held):
            return True
        return confirmed is not None and held.version != confirmed.version and held.number != confirmed.number

    def _holding(self, loaded: Loaded, fresh: Fresh | FreshTables, number: int) -> Held:
        version = self._versions.version_of(loaded.dataset.name, fresh.versions)
        return Held(fresh.vault(loaded.ledger), version, fresh.files, number)

    def _keep(self, name: str, held: Held, found: Reading) -> None:
        self._held[name] = held
        self._confirmed[name] = (time.monotonic(), found)
        if self._most_bytes:
            self._forget_beyond(self._most_bytes)

    def _forget_beyond(self, most: int) -> None:
        """Forget tables that were asked longest ago; they are read again when they are asked for, and held to the
        version that was confirmed.  Whoever is asking one goes on with it.
        """
        with self._forgetting:
            while len(self._held) > 1 and held_bytes() > most:
                self._held.popitem(last=False)
                gc.collect()


def _fingerprint(files: Stamps) -> str | None:
    """A name for the state of files; None where a table is not made of files on this machine."""
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else None


def _unread() -> RefusalError:
    reason = "ask later; a steward learns the reason by having the table read again"
    return RefusalError("data-unavailable", "The data cannot be read now", 503, reason)


def _answers(held: Held) -> bool:
    """Whether what is held, in this process, in a database or on a cluster, can still be counted."""
    try:
        if isinstance(held.vault, SchemaVault):
            held.vault.tables.ready()
            return True
        return bool(held.vault.encoded.version)
    except EngineError:
        return False
