"""The tables that a worker serves: read once from their source, and then answered from a snapshot of the last version.

The worker reads a snapshot for the first question after a start or a new version, and caches its tables.  No question
reads a dataset's source.  So neither the reply nor its time depends on changes of the source.  Only an action of a
steward reads it.
"""

from __future__ import annotations

import gc
import hashlib
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.domain import Domain, Unit, parse
from sfumato.domain.linked_domain import LinkedTables
from sfumato.domain.table_schema import VERSION, Schema, SchemaTable, parse_schema
from sfumato.domain.view import BoundedView
from sfumato.engine.encoding import content_of_tables
from sfumato.engine.open import TableCopy, copy_table, held_bytes, open_table, same_place
from sfumato.engine.port import ProtectedTable, Recodable
from sfumato.engine.table_files import Stamps, stamps
from sfumato.engine.views.joined import JoinedTables, open_schema_table, open_tables, table_place
from sfumato.errors import EngineError, InputError, QueryError, TableError
from sfumato.ledger import DataVersion, Ledger
from sfumato.ledger.audit_log import Actor
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault import Vault
from sfumato_server.problems import RefusalError, log, snapshot_refusal, table_refusal
from sfumato_server.registry import Dataset
from sfumato_server.sources import ServedVersion, Snapshot, Snapshots, TablePlaces

_TABLE = "table"  # the name of the one table of a dataset that has no schema

Description: TypeAlias = Domain | Schema
OpenTables: TypeAlias = Recodable | JoinedTables


@dataclass(frozen=True)
class ServedDataset:
    """A registered dataset with its domain or schema, and its ledger."""

    dataset: Dataset
    description: Description
    ledger: Ledger

    @property
    def domain(self) -> Domain:
        """The domain of the dataset's table.

        Raises:
            QueryError: the dataset has several tables.
        """
        if isinstance(self.description, Schema):
            raise QueryError(
                "this dataset has several tables: ask it in SQL, which joins them; whole tables are released of it as "
                "synthetic ones that belong together, by the method 'related'",
                culprit=self.dataset.name,
            )
        return self.description

    @property
    def schema(self) -> Schema | None:
        """The schema of the dataset's tables; None if it has one table."""
        return self.description if isinstance(self.description, Schema) else None

    @property
    def unit(self) -> Unit:
        """The privacy unit of the dataset."""
        return unit_of(self.description)


@dataclass(frozen=True)
class SourceTables:
    """The opened source of a dataset: its tables by name, and the state of their files before they were opened."""

    dataset: Dataset
    description: Description
    tables: Mapping[str, ProtectedTable]
    files: Stamps

    @cached_property
    def content(self) -> str:
        """A digest of all rows and columns.  Commands that open the same ledger compute the same one.

        Raises:
            TableError, EngineError: a table cannot be read, or a file was changed since it was opened.
        """
        digest = self._digest()
        self._refuse_changed()
        return digest

    def _digest(self) -> str:
        contents = {name: table.content() for name, table in self.tables.items()}
        return content_of_tables(contents) if isinstance(self.description, Schema) else contents[_TABLE]

    def copy_to(self, folder: Path) -> tuple[TableCopy, ...]:
        """Copy the described columns of all tables to a folder.

        Raises:
            TableError, EngineError: as for :attr:`content`.
            OSError: the folder cannot be written.
        """
        description = self.description
        if isinstance(description, Schema):
            columns = {table.name: (_attribute_names(table), _key_columns(description, table)) for table in description}
        else:
            unit = () if description.unit.column is None else (description.unit.column,)
            columns = {_TABLE: (description.names, (*unit, *self.dataset.discoverable))}
        copies = tuple(
            copy_table(self.tables[name], name, folder, attributes=attributes, ids=ids)
            for name, (attributes, ids) in columns.items()
        )
        self._refuse_changed()
        if not self.files and self._digest() != self.content:
            raise EngineError("the table was written while it was copied; have it read again later")
        return copies

    def _refuse_changed(self) -> None:
        if source_files(self.dataset, self.description) != self.files:
            raise EngineError("the table was written while it was read; have it read again later")


def _attribute_names(table: SchemaTable) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in table.attributes)


def _key_columns(schema: Schema, table: SchemaTable) -> tuple[str, ...]:
    unit = schema.unit_column(table.name)
    return (*table.columns, *(() if unit is None else (unit,)))


def parse_description(document: Mapping[str, Any]) -> Description:
    """Return the domain or schema of a document.

    Raises:
        DomainError: the document is neither.
    """
    return parse_schema(document) if document.get("sfumato") == VERSION else parse(document)


def unit_of(description: Description) -> Unit:
    """Return the privacy unit of a domain or schema."""
    if isinstance(description, Schema):
        return Unit(description.id, schema=description.name)
    return description.unit


def source_files(dataset: Dataset, description: Description) -> Stamps:
    """Return the current state of a dataset's files; empty if its tables are in a database, or are missing."""
    if not isinstance(description, Schema):
        return stamps(dataset.source)
    try:
        return tuple(stamp for path in source_paths(description, dataset.source).values() for stamp in stamps(path))
    except (TableError, InputError):
        return ()


def source_paths(schema: Schema, source: str) -> dict[str, str]:
    """Return the address of each table of a schema, by name.

    Raises:
        TableError, InputError: a table is missing.
    """
    return {table.name: str(table_place(table, source)) for table in schema}


def shares_table_with(
    dataset: Dataset, description: Description, other_source: str, other_document: Mapping[str, Any]
) -> bool:
    """Return whether two registered datasets share the address of a table.

    Raises:
        TableError, InputError: a table of the first dataset is missing.
    """
    mine, theirs = [dataset.source], [other_source]
    if isinstance(description, Schema):
        mine += source_paths(description, dataset.source).values()
    with suppress(TableError, InputError):  # a missing table is no other table
        other = parse_description(other_document)
        theirs += source_paths(other, other_source).values() if isinstance(other, Schema) else []
    return any(same_place(one, each) for one in theirs for each in mine)


def open_source(dataset: Dataset, description: Description) -> SourceTables:
    """Open the tables of a dataset at their source.

    Raises:
        TableError: a table cannot be read, lacks a discoverable column, or is in a database and does not fit its
            description.  Tables in files are checked against it when their copies are opened.
        EngineError: a database does not answer.
    """
    files = source_files(dataset, description)
    try:
        if isinstance(description, Schema):
            tables = {table.name: open_schema_table(table, dataset.source) for table in description}
        else:
            tables = {_TABLE: open_table(dataset.source, csv=description.csv, empty=True)}
    except InputError as error:
        raise TableError(str(error), culprit=dataset.name) from error
    present = {column.name for table in tables.values() for column in table.schema()}
    for name in dataset.discoverable:
        if name not in present:
            raise TableError(f"the table has no column {name!r} whose values could be discovered", culprit=name)
    if "://" in dataset.source:  # a copy of a database's table loses its column types, so check them here
        _open(description, tables)
    return SourceTables(dataset, description, tables, files)


def open_copies(description: Description, copies: Sequence[TableCopy], folder: Path) -> OpenTables:
    """Open the copies of a dataset's tables and encode their rows.

    Raises:
        TableError: a table does not fit its description.
        EngineError: a copy was changed, or the engine fails.
    """
    by_name = {copy.name: copy for copy in copies}
    if isinstance(description, Schema):
        may_be_empty = {table.name: not table.public for table in description}
    else:
        may_be_empty = {_TABLE: True}
    tables = {name: by_name[name].open(folder, empty=empty) for name, empty in may_be_empty.items()}
    return _open(description, tables)


def _open(description: Description, tables: Mapping[str, ProtectedTable]) -> OpenTables:
    if isinstance(description, Schema):
        return open_tables(description, tables)
    return tables[_TABLE].encode(description)


def vault_of(opened: OpenTables, ledger: Ledger, number: int) -> Vault | SchemaVault:
    """Return the vault of opened tables, for the version with a number."""
    if isinstance(opened, JoinedTables):
        return SchemaVault(opened, ledger, str(number))
    return Vault(opened, ledger, str(number))


def fingerprint(files: Stamps) -> str:
    """Return a digest of the state of files; empty if there are none."""
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else ""


_VERSION_CACHE_SECONDS = 1.0  # a worker sees a new version within this time


@dataclass(frozen=True)
class CachedTable:
    """The tables of a version in memory, with that version."""

    vault: Vault | SchemaVault
    declared: ServedVersion


class ServedTables:
    """The tables of one worker."""

    def __init__(self, snapshots: Snapshots, places: TablePlaces, *, most_bytes: int = 0) -> None:
        """Create an empty cache.

        Args:
            snapshots: the source of the tables.
            places: the places from which a source may be read.
            most_bytes: bytes beyond which the least recently used tables are dropped, except the last; 0 for no limit.
        """
        self.snapshots = snapshots
        self._places = places
        self._most_bytes = most_bytes
        self._cached: OrderedDict[str, CachedTable] = OrderedDict()  # the least recently used first
        self._declared: dict[str, tuple[float, ServedVersion]] = {}  # the time of the lookup and the version
        self._damaged: dict[str, Snapshot] = {}
        self._dropping = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def vault(self, loaded: ServedDataset) -> Vault | SchemaVault:
        """Return the vault of the last declared version of a dataset.

        Raises:
            RefusalError: the dataset is paused because its version has no snapshot, or the snapshot cannot be read now.
        """
        with suppress(KeyError):  # it is not cached
            self._cached.move_to_end(loaded.dataset.name)
        return self._current(loaded).vault

    def view(self, loaded: ServedDataset, view: BoundedView) -> Vault:
        """Return the vault of a view of a dataset's last version.  Each dataset creates one view at a time.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        vault = self.vault(loaded)
        with self._locks[loaded.dataset.name]:
            return vault.for_view(view)

    def linked_vault(self, loaded: ServedDataset, linked: LinkedTables) -> Vault:
        """Return the vault of linked tables of a dataset's last version.  It is built for each call.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        vault = self.vault(loaded)
        assert isinstance(vault, SchemaVault), "a dataset of one table has no linked ones"
        with self._locks[loaded.dataset.name]:
            return vault.of_units(linked)

    def cache(self, loaded: ServedDataset, opened: OpenTables, snapshot: Snapshot) -> None:
        """Cache the tables that were opened from the snapshot of a new dataset."""
        name = loaded.dataset.name
        with self._locks[name]:
            declared = self.snapshots.declared(name)
            if declared.snapshot == snapshot:
                self._cache(name, CachedTable(vault_of(opened, loaded.ledger, declared.number), declared), declared)

    def reread(self, loaded: ServedDataset, *, by: Actor | None = None) -> tuple[DataVersion, bool]:
        """Read the source and declare the next version.

        Returns:
            The version, and whether its content differs from the last one.

        Raises:
            RefusalError: the place is not served, the source cannot be read or does not fit its description, or the
                snapshot cannot be written.  The last version stays declared.
        """
        name, description = loaded.dataset.name, loaded.description
        address = self._places.address(loaded.dataset.source)
        try:
            source = open_source(replace(loaded.dataset, source=address), description)
            content = source.content
            with self.snapshots.creating(source.copy_to, fingerprint(source.files)) as snapshot:
                opened = open_copies(description, snapshot.copies, self.snapshots.path(snapshot))
                version, changed = self.snapshots.declare(name, content, snapshot, by=by)
        except (TableError, EngineError) as error:
            raise table_refusal(error) from error
        except OSError as error:
            raise snapshot_refusal(error, self.snapshots.folder) from error
        with self._locks[name]:
            declared = ServedVersion(version.number, snapshot)
            self._cache(name, CachedTable(vault_of(opened, loaded.ledger, declared.number), declared), declared)
        return version, changed

    def source_changed(self, loaded: ServedDataset) -> bool | None:
        """Return whether files of the source were changed, added or removed since they were read.  For stewards only.

        It opens no file.  The result is None if the source is not made of files, or the dataset has no snapshot.
        """
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not snapshot.files:
            return None
        return fingerprint(source_files(loaded.dataset, loaded.description)) != snapshot.files

    def is_paused(self, loaded: ServedDataset) -> bool:
        """Return whether questions are refused until a steward rereads the source."""
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not self.snapshots.path(snapshot).is_dir():
            return True
        return self._damaged.get(loaded.dataset.name) == snapshot

    def drop(self, name: str) -> None:
        """Drop the tables of a retired dataset from the cache."""
        self._cached.pop(name, None)

    def _current(self, loaded: ServedDataset) -> CachedTable:
        """Return the tables of the last declared version, and read them if they are not cached."""
        name = loaded.dataset.name
        cached = self._cached.get(name)
        if cached is None or not self._is_current(cached, name):
            with self._locks[name]:
                cached = self._cached.get(name)  # another thread may have read it meanwhile
                if cached is None or not self._is_current(cached, name):
                    cached = self._read_current(loaded)
        return cached

    def _is_current(self, cached: CachedTable, name: str) -> bool:
        """Return whether tables are of the last version that was looked up, and can still be counted."""
        time_read, declared = self._declared.get(name, (0.0, None))
        is_fresh = time.monotonic() - time_read <= _VERSION_CACHE_SECONDS
        return cached.declared == declared and is_fresh and _is_usable(cached)

    def _read_current(self, loaded: ServedDataset) -> CachedTable:
        name = loaded.dataset.name
        cached, declared = self._cached.get(name), self.snapshots.declared(name)
        while cached is None or cached.declared != declared or not _is_usable(cached):
            try:
                opened = self._open_snapshot(loaded, declared.snapshot)
                cached = CachedTable(vault_of(opened, loaded.ledger, declared.number), declared)
            except RefusalError:
                last, declared = declared, self.snapshots.declared(name)
                if declared == last:  # otherwise the next version was declared, and this snapshot deleted
                    raise
        self._cache(name, cached, declared)
        return cached

    def _open_snapshot(self, loaded: ServedDataset, snapshot: Snapshot | None) -> OpenTables:
        if snapshot is None or not self.snapshots.is_intact(snapshot):
            if snapshot is not None and self._damaged.get(loaded.dataset.name) != snapshot:
                self._damaged[loaded.dataset.name] = snapshot
                log("snapshot spoiled", dataset=loaded.dataset.called)
            raise _paused()
        try:
            return open_copies(loaded.description, snapshot.copies, self.snapshots.path(snapshot))
        except (TableError, EngineError) as error:
            log("snapshot unread", dataset=loaded.dataset.called, error=type(error).__name__)
            raise _unread() from error

    def _cache(self, name: str, cached: CachedTable, declared: ServedVersion) -> None:
        self._cached[name] = cached
        self._declared[name] = (time.monotonic(), declared)
        if self._most_bytes:
            self._drop_beyond(self._most_bytes)

    def _drop_beyond(self, most: int) -> None:
        """Drop the least recently used tables.  Requests that use one finish with it; the next one reads it again."""
        with self._dropping:
            while len(self._cached) > 1 and held_bytes() > most:
                self._cached.popitem(last=False)
                gc.collect()


def _paused() -> RefusalError:
    reason = "nothing is answered until a steward has had its table read again; nothing was charged"
    return RefusalError("dataset-paused", "The dataset is paused", 503, reason)


def _unread() -> RefusalError:
    reason = "ask later; the log of the server tells its operator more"
    return RefusalError("data-unavailable", "The data cannot be read now", 503, reason)


def _is_usable(cached: CachedTable) -> bool:
    """Return whether cached tables, in this process or on a cluster, can still be counted."""
    try:
        if isinstance(cached.vault, SchemaVault):
            cached.vault.tables.ready()
        else:
            cached.vault.encoded.ready()
    except EngineError:
        return False
    return True
