"""What all requests of a worker share: the registry, a ledger a dataset, and tables that are loaded once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfumato.app.losses import limit_of
from sfumato.domain import Domain
from sfumato.errors import InputError, LossError
from sfumato.ledger import Ledger, open_ledger
from sfumato.ledger.registry import Dataset, Registry
from sfumato.ledger.store import Store
from sfumato.vault.vault import Vault


class UnknownDatasetError(InputError):
    """No dataset of that name is registered."""


@dataclass(frozen=True)
class Loaded:
    """A registered dataset, its domain and its ledger."""

    dataset: Dataset
    domain: Domain
    ledger: Ledger


class Service:
    """State of one worker process.  Open it after the fork.

    Args:
        url: of the database that holds ledgers and registry: ``sqlite:///FILE`` or ``postgresql://...``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = Store(url)
        self.registry = Registry(self._store)
        self._loaded: dict[str, Loaded] = {}
        self._vaults: dict[str, Vault] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def register(
        self, name: str, *, source: str, domain: Mapping[str, Any], limit: str, more: Mapping[str, Any]
    ) -> Loaded:
        """Register a dataset, after reading its table once, and open its ledger.

        Raises:
            InputError: the table cannot be read, does not fit the domain, or the name is taken.
        """
        from sfumato.domain import parse
        from sfumato.engine.open import open_table

        described = parse(domain)
        described.refuse_draft()
        most = limit_of(limit)
        if most is None:
            raise LossError("state the most that may ever be released from the dataset")
        if self.registry.dataset(name) is not None:
            raise InputError(f"there is a dataset {name!r} already; choose another name")
        encoded = open_table(source).encode(described)
        dataset = Dataset(name, source, domain, limit, more.get("rows"), tuple(more.get("discoverable", ())))
        with open_ledger(self.url, dataset=name, limit=most):
            self.registry.add_dataset(dataset)
        loaded = self.loaded(name)
        with self._lock:
            self._vaults.setdefault(name, Vault(encoded, loaded.ledger))
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
        ledger = open_ledger(self.url, dataset=name, limit=None)
        with self._lock:
            return self._loaded.setdefault(name, Loaded(dataset, parse(dataset.domain), ledger))

    def vault(self, name: str, analyst: str) -> Vault:
        """The dataset's vault, which charges the analyst as well; its table is read at most once a worker."""
        from sfumato.engine.open import open_table

        loaded = self.loaded(name)
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._vaults:
                self._vaults[name] = Vault(open_table(loaded.dataset.source).encode(loaded.domain), loaded.ledger)
        return self._vaults[name].asked_by(analyst)

    def close(self) -> None:
        """Close all connections."""
        for loaded in self._loaded.values():
            loaded.ledger.close()
        self._store.close()
