"""What all requests of a worker share: the registry, a ledger a dataset, and tables that are loaded once.

And what a new server begins with: its database, a public sample table, and a link for its first steward.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from sfumato.domain.linked_domain import LinkedTables
from sfumato.domain.table_schema import Schema
from sfumato.domain.view import BoundedView
from sfumato.errors import DomainError, EngineError, InputError, LossError, TableError
from sfumato.ledger import open_ledger
from sfumato.ledger.audit_log import Actor
from sfumato.ledger.store import Store
from sfumato.privacy.loss import Loss
from sfumato.query.statements.derived_columns import check_derived
from sfumato.vault.vault import Vault
from sfumato_server.problems import RefusalError, RetiredError, UnknownDatasetError, unreadable, unusable, unwritable
from sfumato_server.registry import (
    Dataset,
    Key,
    Registration,
    Registry,
    Scope,
    plain_name,
    refuse_name,
    spelled,
)
from sfumato_server.rules import Approvals, Grants, total_of
from sfumato_server.sessions import Identities, Sessions
from sfumato_server.sources import Snapshots, TablePlaces, snapshot_folder
from sfumato_server.tables import (
    ServedDataset,
    ServedTables,
    described,
    fingerprint,
    open_copies,
    open_source,
    shares_table_with,
    unit_of,
)
from sfumato_server.work import LEASE, Quotas

_LINK = timedelta(hours=1)
_REMEMBERED = 1.0  # seconds for which a worker trusts what a dataset is called


class Service:
    """State of one worker process.  Open it after the fork.

    Args:
        url: of the database that holds ledgers and registry: ``sqlite:///FILE`` or ``postgresql://...``.
        lease: how long the worker of a background job may be silent before the job has failed.
        create: whether to make the database's tables where there are none; a server that starts again must not.
        places: where tables may lie that are registered; anywhere without.
        table_bytes: that tables may hold before those asked longest ago are forgotten; 0 for any number.
        snapshots: a folder in which the snapshots of this ledger get a folder of their own; None for the usual place.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: timedelta = LEASE,
        create: bool = False,
        places: TablePlaces | None = None,
        table_bytes: int = 0,
        snapshots: str | None = None,
    ) -> None:
        self.url = url
        self.quotas = Quotas()
        self._store = Store(url)
        self._store.prepare(create=create)
        self.registry = Registry(self._store, lease=lease)
        self.sessions = Sessions(self._store)
        self.identities = Identities(self._store)
        self.grants = Grants(self._store)
        self.approvals = Approvals(self._store)
        self.places = replace(TablePlaces() if places is None else places, ledger=url)
        self.snapshots = Snapshots(self._store, snapshot_folder(self._store, snapshots))
        self.tables = ServedTables(self.snapshots, self.places, most_bytes=table_bytes)
        self._loaded: dict[str, ServedDataset] = {}
        self._called: dict[str, tuple[float, Dataset]] = {}
        self._lock = threading.Lock()

    def register(
        self,
        name: str,
        *,
        source: str,
        domain: Mapping[str, Any],
        limit: str,
        more: Mapping[str, Any],
    ) -> ServedDataset:
        """Register a dataset, declare the version of its table that is read for it, and open its ledger.

        Args:
            name: what analysts call it.
            source: where the table lies.
            domain: its accepted domain, as a document; or a schema of several tables, which ``source`` holds.
            limit: the most that may ever be released from it, or in each of some months (see :mod:`.rules`).
            more: ``rows`` and ``discoverable``, where they are public; ``second_budget`` to register a table that
                is registered under another name; ``by``, who registers it, the system's user by default.

        Raises:
            InputError: the limit cannot be used, or the name is taken.
            RefusalError: the table lies where none is served, the domain cannot be used, the table cannot be read or
                does not fit it, its snapshot cannot be written, or it is registered under another name and nobody
                confirmed that it is to have a second budget.
        """
        refuse_name(name)
        name = plain_name(name)
        address = self.places.address(source)
        try:
            found = described(domain)
            found.refuse_draft()
            if isinstance(found, Schema):
                check_derived(found)
            else:
                found.refuse_changed()
        except DomainError as error:
            raise unusable(error) from error
        most = total_of(limit)
        if most is None:
            raise LossError("state the most that may ever be released from the dataset")
        self.registry.refuse_taken(name)
        dataset = Dataset(name, source, domain, limit, more.get("rows"), tuple(more.get("discoverable", ())))
        if isinstance(found, Schema) and (dataset.rows is not None or dataset.discoverable):
            raise InputError("public rows and columns whose values are found belong to datasets of one table")
        try:
            read = open_source(replace(dataset, source=address), found)
            content = read.content
            lies = partial(shares_table_with, dataset, found)
            lies(source, domain)  # while it is still there
            with self.snapshots.taking(read.copied, fingerprint(read.files)) as snapshot:
                opened = open_copies(found, snapshot.copies, self.snapshots.place(snapshot))
                others = self.registry.register(
                    Registration(dataset, most, unit_of(found), content, snapshot, more.get("by")),
                    same_place=lies,
                    second_budget=more.get("second_budget", False),
                )
        except (TableError, EngineError) as error:
            raise unreadable(error) from error
        except OSError as error:
            raise unwritable(error, self.snapshots.folder) from error
        if others:
            names = ", ".join(f"{each.called!r}{' (retired)' * each.retired}" for each in others)
            asked = "take that out of retirement" if all(each.retired for each in others) else "ask under that name"
            raise RefusalError(
                "table-registered",
                "The table is registered under another name",
                409,
                f"it is {names} already, and what is released under both names adds up, so that people are protected "
                f"less than either limit says; {asked}, or confirm that there is to be a second budget",
            )
        loaded = self.loaded(name)
        self.tables.begin(loaded, opened, snapshot)
        return loaded

    def loaded(self, name: str) -> ServedDataset:
        """A dataset without its table.

        Raises:
            UnknownDatasetError: there is none of that name.
        """
        dataset = self._dataset(name)
        with self._lock:
            kept = self._loaded.get(dataset.name)
            if kept is not None:
                if kept.dataset is not dataset:  # it was looked up again, and may have been renamed, or retired
                    kept = self._loaded[dataset.name] = replace(kept, dataset=dataset)
                return kept
        ledger = open_ledger(self.url, dataset=dataset.name, limit=None)
        opened = ServedDataset(dataset, described(dataset.domain), ledger)
        with self._lock:
            kept = self._loaded.setdefault(dataset.name, opened)
        if kept is not opened:  # another thread was faster
            opened.ledger.close()
        return kept

    def _dataset(self, name: str) -> Dataset:
        """What is called so, as it was looked up a moment ago."""
        now = time.monotonic()
        seen, known = self._called.get(name, (0.0, None))
        if known is not None and now - seen <= _REMEMBERED:
            return known
        found = self.registry.dataset(name)
        if found is None:
            self._called.pop(name, None)
            raise UnknownDatasetError("there is no dataset of that name", culprit=name)
        self._called[name] = (now, found)
        return found

    def called(self, name: str) -> str:
        """What the dataset with that ledger is called now."""
        return next((each.called for each in self.registry.datasets() if each.name == name), name)

    def again(self, loaded: ServedDataset) -> ServedDataset:
        """A dataset whatever it is called by now."""
        self._called.clear()
        return self.loaded(self.called(loaded.dataset.name))

    def rename(self, name: str, called: str, *, by: Actor | None = None) -> ServedDataset:
        """Call a dataset otherwise; other workers follow within two seconds.

        Raises:
            UnknownDatasetError: there is none of that name.
            TakenNameError: another dataset has or had the new one.
        """
        self.registry.rename(self.loaded(name).dataset, called, by=by)
        self._called.clear()
        return self.loaded(called)

    def retire(self, name: str, *, retired: bool, by: Actor | None = None) -> ServedDataset:
        """Release nothing more of a dataset, or go on once a steward has had its table read again.

        Raises:
            UnknownDatasetError: there is none of that name.
        """
        self.registry.retire(self.loaded(name).dataset, retired=retired, by=by)
        self._called.clear()
        self.tidy()
        return self.loaded(name)

    def tidy(self) -> None:
        """Delete unused snapshots, and forget the tables of retired datasets."""
        self.snapshots.remove_unneeded()
        for dataset in self.registry.datasets():
            if dataset.retired:
                self.tables.forget(dataset.name)

    def all_open_to(self, key: Key) -> list[ServedDataset]:
        """Every dataset that a key's holder may ask, by name, without its table."""
        every = key.scope is Scope.STEWARD
        return [
            self.loaded(each.called)
            for each in self.registry.datasets()
            if every or (self.grants.admits(each.name, key.name) and not each.retired)
        ]

    def check_access(self, name: str, key: Key) -> ServedDataset:
        """A dataset, without its table, for whoever may ask it.

        Raises:
            UnknownDatasetError: there is none of that name.
            RefusalError: it is not granted to the key's holder.
        """
        loaded = self.loaded(name)
        if key.scope is not Scope.STEWARD:
            refuse_retired(loaded)
            self.grants.refuse(loaded.ledger, key.name)
        return loaded

    def admit(self, name: str, key: Key, loss: Loss) -> ServedDataset:
        """A dataset, for a question of that loss.

        Raises:
            UnknownDatasetError, RefusalError: as for :meth:`check_access`, or one question may not cost that much.
        """
        loaded = self.loaded(name)
        self.admit_to(loaded, key, loss)
        return loaded

    def admit_to(self, loaded: ServedDataset, key: Key, loss: Loss) -> None:
        """The same for a dataset that was just looked up.

        Raises:
            RefusalError: as there.
        """
        refuse_retired(loaded)
        if key.scope is not Scope.STEWARD:
            self.grants.refuse(loaded.ledger, key.name, loss)

    def analyst(self, loaded: ServedDataset, name: str) -> str:
        """The name of an analyst as it was spelled first: in a key, in the journal, or in a grant."""
        known = (*self.registry.names(), *loaded.ledger.caps(), *self.grants.named(loaded.dataset.name))
        return spelled(name, known)

    def vault(self, name: str, analyst: str) -> Vault:
        """The dataset's vault, of the last declared version, which charges the analyst as well.

        What it charges for is admitted in the transaction that charges: see :class:`Approvals`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        found = self.tables.vault(loaded)
        assert isinstance(found, Vault), "a dataset of several tables is asked by views"
        return self._asked_by(found, loaded, analyst)

    def view(self, name: str, analyst: str, view: BoundedView) -> Vault:
        """The vault of a view of a dataset's tables, under the terms of :meth:`vault`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        return self._asked_by(self.tables.view(loaded, view), loaded, analyst)

    def units(self, name: str, analyst: str, related: LinkedTables) -> Vault:
        """The vault of whole units of a dataset's tables, under the terms of :meth:`vault`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        return self._asked_by(self.tables.units(loaded, related), loaded, analyst)

    def _asked_by(self, vault: Vault, loaded: ServedDataset, analyst: str) -> Vault:
        return vault.asked_by(analyst, admission=self.approvals.admission(loaded.dataset.name, analyst))

    def refuse_set_back(self) -> None:
        """Refuse a ledger that lost entries which this worker saw in a journal.

        Raises:
            MovedLedgerError: it was founded anew, or an old copy of it was restored.
            LedgerError: it cannot be read.
        """
        for loaded in tuple(self._loaded.values()):
            loaded.ledger.refuse_set_back()

    @property
    def store(self) -> Store:
        """The database, for what is kept beside journals."""
        return self._store

    def close(self) -> None:
        """Close all connections."""
        for loaded in self._loaded.values():
            loaded.ledger.close()
        self._store.close()


def refuse_retired(loaded: ServedDataset) -> None:
    """Refuse to ask a dataset that is retired, also for what was answered before.

    Raises:
        RetiredError: it is.
    """
    if loaded.dataset.retired:
        raise RetiredError("nothing more is released of this dataset, nor shown again: it is retired")


def begin(url: str) -> None:
    """Make the database of a new server.

    Raises:
        InputError: there is one already.
    """
    with closing(Store(url)) as store:
        if store.exists():
            raise InputError("there is a ledger already; leave out --create, which begins a new one", culprit=url)
        store.prepare(create=True)


def register_sample(url: str, name: str, limit: str, folder: Path, *, snapshots: str | None = None) -> bool:
    """Write the bundled table of a million children to a file, and register it, unless that was done before.

    Args:
        url: of the server's database.
        name: of the dataset.
        limit: of the dataset.
        folder: where the file is written.
        snapshots: as for :class:`Service`.

    Returns:
        Whether it is registered now: it is not where the file of that name holds something else.
    """
    from pyarrow import parquet

    from sfumato import data

    path = folder.resolve() / f"{name}.parquet"
    with closing(Service(url, snapshots=snapshots)) as service:
        if service.registry.dataset(name) is not None:
            return True
        bundled = data.child_mental_health()
        if not path.exists():
            parquet.write_table(bundled, path)
        elif not _holds(path, bundled):
            return False
        described = data.domain("child_mental_health")
        more = {"rows": int(data.child_mental_health_counts().sum())}  # published
        service.register(name, source=str(path), domain=described.describe(), limit=limit, more=more)
    return True


def _holds(path: Path, table: pa.Table) -> bool:
    from pyarrow import parquet

    try:
        return bool(parquet.read_table(path).equals(table))
    except (pa.ArrowException, OSError):
        return False


def first_invitation(url: str, address: str) -> str | None:
    """A link that opens the page for a steward, once, while there is none; links that were printed before end.

    None where somebody holds a valid key of a steward, or is in a steward's session.
    """
    with closing(Service(url)) as service:
        if service.registry.has_steward() or service.sessions.has_steward():
            return None
        return f"{address}/enter?link={service.registry.issue_link(_LINK)}"
