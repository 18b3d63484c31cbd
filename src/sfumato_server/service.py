"""The state that all requests of a worker share: the registry, one open ledger per dataset, and the tables.

It also sets up a new server: its database, a public sample table, and an invitation for the first steward.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
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
from sfumato_server.problems import (
    RefusalError,
    RetiredError,
    UnknownDatasetError,
    domain_refusal,
    snapshot_refusal,
    table_refusal,
)
from sfumato_server.registry import (
    Dataset,
    Key,
    Registration,
    Registry,
    Scope,
    plain_name,
    refuse_name,
    registered_name,
)
from sfumato_server.rules import Approvals, Grants, total_of
from sfumato_server.sessions import Identities, Sessions
from sfumato_server.sources import Snapshots, TablePlaces, snapshot_folder
from sfumato_server.tables import (
    Description,
    ServedDataset,
    ServedTables,
    fingerprint,
    open_copies,
    open_source,
    parse_description,
    shares_table_with,
    unit_of,
)
from sfumato_server.work import LEASE, Quotas

_INVITATION_LIFETIME = timedelta(hours=1)
_NAME_CACHE_SECONDS = 1.0  # other workers see a new name of a dataset within this time


class Service:
    """The state of one worker process.  Create it after the fork.

    Args:
        url: the database of ledgers and registry: ``sqlite:///FILE`` or ``postgresql://...``.
        lease: a background job fails if its worker is silent for this time.
        create: whether to create the database's tables if they are missing; only for a new server.
        places: where registered tables may be; the default allows any place.
        table_bytes: bytes that tables may take before the least recently used are dropped; 0 for no limit.
        snapshots: a folder in which the snapshots of this ledger get a folder of their own; None for the default.
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
        self._by_name: dict[str, tuple[float, Dataset]] = {}  # the time of the lookup and the dataset
        self._lock = threading.Lock()

    def register(
        self, name: str, *, source: str, domain: Mapping[str, Any], limit: str, more: Mapping[str, Any]
    ) -> ServedDataset:
        """Register a dataset, take the first snapshot of its tables, and open its ledger.

        Args:
            name: the name for analysts.
            source: the address of the table, or of the tables of a schema.
            domain: the accepted domain or schema, as a document.
            limit: the budget, or a budget by months (see :mod:`.rules`).
            more: ``rows`` and ``discoverable`` if they are public; ``second_budget`` to register a table that has
                another name; ``by``, the actor, by default the system's user.

        Raises:
            InputError: the limit cannot be used, or the name is taken.
            RefusalError: the place is not served, the domain or table cannot be used, the snapshot cannot be written,
                or the table has another name and ``second_budget`` is not set.
        """
        refuse_name(name)
        name = plain_name(name)
        address = self.places.address(source)
        description = _parse_accepted(domain)
        total = total_of(limit)
        if total is None:
            raise LossError("state the most that may ever be released from the dataset")
        self.registry.refuse_taken(name)
        dataset = Dataset(name, source, domain, limit, more.get("rows"), tuple(more.get("discoverable", ())))
        if isinstance(description, Schema) and (dataset.rows is not None or dataset.discoverable):
            raise InputError("public rows and columns whose values are found belong to datasets of one table")
        try:
            tables = open_source(replace(dataset, source=address), description)
            content = tables.content
            same_place = partial(shares_table_with, dataset, description)
            same_place(source, domain)  # refuses a missing table before the snapshot is taken
            with self.snapshots.creating(tables.copy_to, fingerprint(tables.files)) as snapshot:
                opened = open_copies(description, snapshot.copies, self.snapshots.path(snapshot))
                others = self.registry.register(
                    Registration(dataset, total, unit_of(description), content, snapshot, more.get("by")),
                    same_place=same_place,
                    second_budget=more.get("second_budget", False),
                )
        except (TableError, EngineError) as error:
            raise table_refusal(error) from error
        except OSError as error:
            raise snapshot_refusal(error, self.snapshots.folder) from error
        if others:
            raise _second_budget_refusal(others)
        loaded = self.loaded(name)
        self.tables.cache(loaded, opened, snapshot)
        return loaded

    def loaded(self, name: str) -> ServedDataset:
        """Return a dataset with its ledger.

        Raises:
            UnknownDatasetError: no dataset has that name.
        """
        dataset = self._dataset(name)
        with self._lock:
            loaded = self._loaded.get(dataset.name)
            if loaded is not None:
                if loaded.dataset is not dataset:  # a new lookup may show a new name, or that it was retired
                    loaded = self._loaded[dataset.name] = replace(loaded, dataset=dataset)
                return loaded
        ledger = open_ledger(self.url, dataset=dataset.name, limit=None)
        opened = ServedDataset(dataset, parse_description(dataset.domain), ledger)
        with self._lock:
            loaded = self._loaded.setdefault(dataset.name, opened)
        if loaded is not opened:  # another thread was faster
            opened.ledger.close()
        return loaded

    def _dataset(self, name: str) -> Dataset:
        """Return the registry's record of a dataset, from a short cache."""
        now = time.monotonic()
        time_read, dataset = self._by_name.get(name, (0.0, None))
        if dataset is not None and now - time_read <= _NAME_CACHE_SECONDS:
            return dataset
        dataset = self.registry.dataset(name)
        if dataset is None:
            self._by_name.pop(name, None)
            raise UnknownDatasetError("there is no dataset of that name", culprit=name)
        self._by_name[name] = (now, dataset)
        return dataset

    def current_name(self, name: str) -> str:
        """Return the name of the dataset whose ledger has a name.  It differs if the dataset was renamed."""
        return next((each.called for each in self.registry.datasets() if each.name == name), name)

    def reload(self, loaded: ServedDataset) -> ServedDataset:
        """Return a dataset as it is registered now, under its current name."""
        self._by_name.clear()
        return self.loaded(self.current_name(loaded.dataset.name))

    def rename(self, name: str, called: str, *, by: Actor | None = None) -> ServedDataset:
        """Rename a dataset; other workers follow within two seconds.

        Raises:
            UnknownDatasetError: no dataset has that name.
            TakenNameError: another dataset has or had the new name.
        """
        self.registry.rename(self.loaded(name).dataset, called, by=by)
        self._by_name.clear()
        return self.loaded(called)

    def retire(self, name: str, *, retired: bool, by: Actor | None = None) -> ServedDataset:
        """Retire a dataset, or end its retirement.  Then a steward has to reread its table.

        Raises:
            UnknownDatasetError: no dataset has that name.
        """
        self.registry.retire(self.loaded(name).dataset, retired=retired, by=by)
        self._by_name.clear()
        self.remove_unneeded()
        return self.loaded(name)

    def remove_unneeded(self) -> None:
        """Delete unused snapshots, and drop the tables of retired datasets."""
        self.snapshots.remove_unneeded()
        for dataset in self.registry.datasets():
            if dataset.retired:
                self.tables.drop(dataset.name)

    def accessible_datasets(self, key: Key) -> list[ServedDataset]:
        """Return every dataset that the key's holder may ask or read about, by name."""
        return [
            self.loaded(each.called)
            for each in self.registry.datasets()
            if key.sees_all or (self.grants.admits(each.name, key.name) and not each.retired)
        ]

    def check_access(self, name: str, key: Key) -> ServedDataset:
        """Return a dataset that the key's holder may ask or read about.

        Raises:
            UnknownDatasetError: no dataset has that name.
            RefusalError: the dataset is retired, or not granted to the key's holder.
        """
        loaded = self.loaded(name)
        if not key.sees_all:
            refuse_retired(loaded)
            self.grants.refuse(loaded.ledger, key.name)
        return loaded

    def check_query_budget(self, name: str, key: Key, loss: Loss) -> ServedDataset:
        """Return a dataset whose rules allow a question of this loss.  A new analyst gets the default cap.

        Raises:
            UnknownDatasetError: no dataset has that name.
            RefusalError: the dataset is retired or not granted, or one question may not cost that much.
        """
        loaded = self.loaded(name)
        refuse_retired(loaded)
        if key.scope is not Scope.STEWARD:
            self.grants.refuse(loaded.ledger, key.name, loss)
        return loaded

    def analyst_name(self, loaded: ServedDataset, name: str) -> str:
        """Return an analyst's name in its first spelling: that of a key, the journal or a grant."""
        known = (*self.registry.names(), *loaded.ledger.caps(), *self.grants.analysts(loaded.dataset.name))
        return registered_name(name, known)

    def vault(self, name: str, analyst: str) -> Vault:
        """Return the vault of a dataset's current version, which also charges the analyst.

        The transaction of a charge applies the dataset's rules: see :class:`.Approvals`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        vault = self.tables.vault(loaded)
        assert isinstance(vault, Vault), "a dataset of several tables is queried through views"
        return self._for_analyst(vault, loaded, analyst)

    def view(self, name: str, analyst: str, view: BoundedView) -> Vault:
        """Return the vault of a view of a dataset's tables, under the terms of :meth:`vault`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        return self._for_analyst(self.tables.view(loaded, view), loaded, analyst)

    def linked_vault(self, name: str, analyst: str, linked: LinkedTables) -> Vault:
        """Return the vault of a dataset's linked tables, under the terms of :meth:`vault`.

        Raises:
            RefusalError: the dataset is paused, or cannot be read now; nothing was charged.
        """
        loaded = self.loaded(name)
        return self._for_analyst(self.tables.linked_vault(loaded, linked), loaded, analyst)

    def _for_analyst(self, vault: Vault, loaded: ServedDataset, analyst: str) -> Vault:
        return vault.for_analyst(analyst, admission=self.approvals.admission(loaded.dataset.name, analyst))

    def refuse_set_back(self) -> None:
        """Refuse a ledger that lost entries which this worker has seen.

        Raises:
            MovedLedgerError: the ledger was replaced, or restored from an old copy.
            LedgerError: the ledger cannot be read.
        """
        for loaded in tuple(self._loaded.values()):
            loaded.ledger.refuse_set_back()

    @property
    def store(self) -> Store:
        """The database, for tables other than journals."""
        return self._store

    def close(self) -> None:
        """Close all connections."""
        for loaded in self._loaded.values():
            loaded.ledger.close()
        self._store.close()


def _parse_accepted(document: Mapping[str, Any]) -> Description:
    """Return the domain or schema of a document, which a person must have accepted.

    Raises:
        RefusalError: the document cannot be used, is a draft, or was changed after it was accepted.
    """
    try:
        description = parse_description(document)
        description.refuse_draft()
        if isinstance(description, Schema):
            check_derived(description)
        else:
            description.refuse_changed()
    except DomainError as error:
        raise domain_refusal(error) from error
    return description


def _second_budget_refusal(others: Sequence[Dataset]) -> RefusalError:
    names = ", ".join(f"{each.called!r}{' (retired)' * each.retired}" for each in others)
    remedy = "take that out of retirement" if all(each.retired for each in others) else "ask under that name"
    return RefusalError(
        "table-registered",
        "The table is registered under another name",
        409,
        f"it is {names} already. The releases under both names add up, so people are protected less than either limit "
        f"says; {remedy}, or confirm a second budget",
    )


def refuse_retired(loaded: ServedDataset) -> None:
    """Refuse to ask a retired dataset, also for stored answers.

    Raises:
        RetiredError: the dataset is retired.
    """
    if loaded.dataset.retired:
        raise RetiredError("nothing more is released of this dataset, nor shown again: it is retired")


def create_database(url: str) -> None:
    """Create the database of a new server.

    Raises:
        InputError: it exists.
    """
    with closing(Store(url)) as store:
        if store.exists():
            raise InputError("there is a ledger already; leave out --create, which begins a new one", culprit=url)
        store.prepare(create=True)


def register_sample(url: str, name: str, limit: str, folder: Path, *, snapshots: str | None = None) -> bool:
    """Write the bundled table of a million children to a file and register it, unless it is registered.

    Args:
        url: the server's database.
        name: the name of the dataset.
        limit: the budget of the dataset.
        folder: the folder of the file.
        snapshots: as for :class:`Service`.

    Returns:
        Whether the table is registered; False if the file exists with other content.
    """
    from pyarrow import parquet

    from sfumato import data

    path = folder.resolve() / f"{name}.parquet"
    with closing(Service(url, snapshots=snapshots)) as service:
        if service.registry.dataset(name) is not None:
            return True
        sample = data.child_mental_health()
        if not path.exists():
            parquet.write_table(sample, path)
        elif not _file_equals(path, sample):
            return False
        domain = data.domain("child_mental_health").describe()
        more = {"rows": int(data.child_mental_health_counts().sum())}  # published
        service.register(name, source=str(path), domain=domain, limit=limit, more=more)
    return True


def _file_equals(path: Path, table: pa.Table) -> bool:
    from pyarrow import parquet

    try:
        return bool(parquet.read_table(path).equals(table))
    except (pa.ArrowException, OSError):
        return False


def first_invitation(url: str, address: str) -> str | None:
    """Return a link with which the first steward logs in, once.  Earlier links end.

    Returns:
        None if a steward has a valid key or an open session.
    """
    with closing(Service(url)) as service:
        if service.registry.has_steward() or service.sessions.has_steward():
            return None
        return f"{address}/enter?link={service.registry.issue_link(_INVITATION_LIFETIME)}"
