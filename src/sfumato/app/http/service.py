"""What all requests of a worker share: the registry, a ledger a dataset, and tables that are loaded once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sfumato.app.http.problems import RefusalError, UnknownDatasetError, unreadable, unusable
from sfumato.app.http.tables import Loaded, ServedTables, read, whole
from sfumato.app.requests.fields import limit_of
from sfumato.engine.table_files import same_place
from sfumato.errors import DomainError, EngineError, LossError, TableError
from sfumato.ledger import open_ledger
from sfumato.ledger.jobs import LEASE
from sfumato.ledger.registry import Dataset, Registration, Registry, refuse_name
from sfumato.ledger.store import Store
from sfumato.ledger.table_versions import Readings
from sfumato.vault.vault import Vault


class Service:
    """State of one worker process.  Open it after the fork.

    Args:
        url: of the database that holds ledgers and registry: ``sqlite:///FILE`` or ``postgresql://...``.
        lease: how long the worker of a background job may be silent before the job has failed.
        create: whether to make the database's tables where there are none; a server that starts again must not.
    """

    def __init__(self, url: str, *, lease: timedelta = LEASE, create: bool = False) -> None:
        self.url = url
        self._store = Store(url)
        self._store.prepare(create=create)
        self.registry = Registry(self._store, lease=lease)
        self.tables = ServedTables(Readings(self._store))
        self._loaded: dict[str, Loaded] = {}
        self._lock = threading.Lock()

    def register(
        self, name: str, *, source: str, domain: Mapping[str, Any], limit: str, more: Mapping[str, Any]
    ) -> Loaded:
        """Register a dataset, after reading its table once, and open its ledger.

        Args:
            name: what analysts call it.
            source: where the table lies.
            domain: its accepted domain, as a document.
            limit: the most that may ever be released from it.
            more: ``rows`` and ``discoverable``, where they are public; ``second_budget`` to register a table that
                is registered under another name.

        Raises:
            InputError: the limit cannot be used.
            RefusalError: the domain cannot be used, the table cannot be read or does not fit it, the name is taken,
                or the table is registered under another name and nobody confirmed that it is to have a second budget.
        """
        from sfumato.domain import parse

        refuse_name(name)
        try:
            described = parse(domain)
            described.refuse_draft()
        except DomainError as error:
            raise unusable(error) from error
        most = limit_of(limit)
        if most is None:
            raise LossError("state the most that may ever be released from the dataset")
        if self.registry.dataset(name) is not None:
            raise RefusalError("dataset-exists", "The name is taken", 409, f"{name!r} is registered; choose a new name")
        dataset = Dataset(name, source, domain, limit, more.get("rows"), tuple(more.get("discoverable", ())))
        try:
            fresh = read(dataset, described)
            content = whole(fresh, dataset)
        except (TableError, EngineError) as error:
            raise unreadable(error) from error
        others = self.registry.register(
            Registration(dataset, most, described.unit, content),
            same_place=lambda known: same_place(known, source),
            second_budget=more.get("second_budget", False),
        )
        if others:
            names = ", ".join(map(repr, others))
            raise RefusalError(
                "table-registered",
                "The table is registered under another name",
                409,
                f"it is {names} already, and what is released under both names adds up, so that people are protected "
                "less than either limit says; ask under that name, or confirm that there is to be a second budget",
            )
        loaded = self.loaded(name)
        self.tables.begin(loaded, fresh)
        return loaded

    def loaded(self, name: str) -> Loaded:
        """A dataset without its table.

        Raises:
            UnknownDatasetError: there is none of that name.
        """
        from sfumato.domain import parse

        with self._lock:
            if name in self._loaded:
                return self._loaded[name]
        dataset = self.registry.dataset(name)
        if dataset is None:
            raise UnknownDatasetError("there is no dataset of that name", culprit=name)
        domain = parse(dataset.domain)
        opened = Loaded(dataset, domain, open_ledger(self.url, dataset=name, limit=None))
        with self._lock:
            kept = self._loaded.setdefault(name, opened)
        if kept is not opened:  # another thread was faster
            opened.ledger.close()
        return kept

    def held(self, name: str) -> tuple[Loaded, Vault] | None:
        """A dataset with its vault, where everything is in this process: nothing has to be opened, read or asked."""
        loaded = self._loaded.get(name)
        vault = None if loaded is None else self.tables.held(loaded)
        return None if loaded is None or vault is None else (loaded, vault)

    def all(self) -> list[Loaded]:
        """Every dataset by name, without its table."""
        return [self.loaded(each.name) for each in self.registry.datasets()]

    def vault(self, name: str, analyst: str) -> Vault:
        """The dataset's vault, of the version that its steward confirmed, which charges the analyst as well.

        Raises:
            RefusalError: the table cannot be read now, or has changed; nothing was charged.
        """
        return self.tables.vault(self.loaded(name)).asked_by(analyst)

    def close(self) -> None:
        """Close all connections."""
        for loaded in self._loaded.values():
            loaded.ledger.close()
        self._store.close()
