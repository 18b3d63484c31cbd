"""Tables that a worker serves: read once from their source, and answered from the snapshot of their last version.

The worker reads a snapshot when the first question comes after a start or a new version, and keeps its tables.  No
question looks at the source of a dataset: its reply, and the time that it takes, are the same whether the source
changed or not.  Only an action of a steward reads the source, as a table with its domain or the tables of a schema.
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
from sfumato_server.problems import RefusalError, log, unreadable, unwritable
from sfumato_server.registry import Dataset
from sfumato_server.sources import ServedVersion, Snapshot, Snapshots, TablePlaces

_TABLE = "table"  # the name of the one table of a dataset that has no schema

Described: TypeAlias = Domain | Schema
Opened: TypeAlias = Recodable | JoinedTables


@dataclass(frozen=True)
class ServedDataset:
    """A registered dataset, what describes it, and its ledger."""

    dataset: Dataset
    described: Described
    ledger: Ledger

    @property
    def domain(self) -> Domain:
        """The domain of its table.

        Raises:
            QueryError: it has several tables.
        """
        if isinstance(self.described, Schema):
            raise QueryError(
                "this dataset has several tables: ask it in SQL, which joins them; whole tables are released of it as "
                "synthetic ones that belong together, by the method 'related'",
                culprit=self.dataset.name,
            )
        return self.described

    @property
    def schema(self) -> Schema | None:
        """The schema of its tables, where it has several."""
        return self.described if isinstance(self.described, Schema) else None

    @property
    def unit(self) -> Unit:
        """Whom losses are stated for."""
        return unit_of(self.described)


@dataclass(frozen=True)
class SourceTables:
    """The tables of a dataset where they lie, open, by name; ``files`` are their files as they were before."""

    dataset: Dataset
    described: Described
    tables: Mapping[str, ProtectedTable]
    files: Stamps

    @cached_property
    def content(self) -> str:
        """A name of all rows and columns of all tables, as commands that open the same ledger name them.

        Raises:
            TableError, EngineError: a table cannot be read, or its files were written since they were opened.
        """
        found = self._named()
        self._refuse_written()
        return found

    def _named(self) -> str:
        contents = {name: table.content() for name, table in self.tables.items()}
        return content_of_tables(contents) if isinstance(self.described, Schema) else contents[_TABLE]

    def copied(self, folder: Path) -> tuple[TableCopy, ...]:
        """Copy the described columns of all tables to a folder.

        Raises:
            TableError, EngineError: as for :attr:`content`.
            OSError: the folder cannot be written.
        """
        found = self.described
        if isinstance(found, Schema):
            terms = {table.name: (_names(table), _ties(found, table)) for table in found}
        else:
            unit = () if found.unit.column is None else (found.unit.column,)
            terms = {_TABLE: (found.names, (*unit, *self.dataset.discoverable))}
        copies = tuple(
            copy_table(self.tables[name], name, folder, attributes=attributes, ids=ids)
            for name, (attributes, ids) in terms.items()
        )
        self._refuse_written()
        if not self.files and self._named() != self.content:
            raise EngineError("the table was written while it was copied; have it read again later")
        return copies

    def _refuse_written(self) -> None:
        if files_of(self.dataset, self.described) != self.files:
            raise EngineError("the table was written while it was read; have it read again later")


def _names(table: SchemaTable) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in table.attributes)


def _ties(schema: Schema, table: SchemaTable) -> tuple[str, ...]:
    unit = schema.unit_column(table.name)
    return (*table.columns, *(() if unit is None else (unit,)))


def described(document: Mapping[str, Any]) -> Described:
    """The domain or the schema that a document is.

    Raises:
        DomainError: it is neither.
    """
    return parse_schema(document) if document.get("sfumato") == VERSION else parse(document)


def unit_of(found: Described) -> Unit:
    """Whom losses are stated for."""
    return Unit(found.id, schema=found.name) if isinstance(found, Schema) else found.unit


def files_of(dataset: Dataset, found: Described) -> Stamps:
    """The files that it is read from, as they are now; none where they lie in a database, or are not there."""
    if not isinstance(found, Schema):
        return stamps(dataset.source)
    try:
        return tuple(stamp for each in places(found, dataset.source).values() for stamp in stamps(each))
    except (TableError, InputError):
        return ()


def places(schema: Schema, source: str) -> dict[str, str]:
    """Where each table of a schema lies, by its name.

    Raises:
        TableError, InputError: one is not there.
    """
    return {table.name: str(table_place(table, source)) for table in schema}


def shares_table_with(dataset: Dataset, found: Described, known: str, document: Mapping[str, Any]) -> bool:
    """Whether a table of it lies where another dataset, registered as ``known`` with a ``document``, has one.

    Raises:
        TableError, InputError: a table of its own is not there.
    """
    mine, theirs = [dataset.source], [known]
    if isinstance(found, Schema):
        mine += places(found, dataset.source).values()
    with suppress(TableError, InputError):  # what is gone is where nothing else is
        other = described(document)
        theirs += places(other, known).values() if isinstance(other, Schema) else []
    return any(same_place(one, each) for one in theirs for each in mine)


def open_source(dataset: Dataset, found: Described) -> SourceTables:
    """Open the tables of a dataset where they lie.

    Raises:
        TableError: one cannot be read, lacks a column whose values may be discovered, or lies in a database and does
            not fit what describes it.  Whether tables of files fit, their copies show.
        EngineError: a database does not answer.
    """
    files = files_of(dataset, found)
    try:
        if isinstance(found, Schema):
            tables = {table.name: open_schema_table(found, table, dataset.source) for table in found}
        else:
            tables = {_TABLE: open_table(dataset.source, csv=found.csv)}
    except InputError as error:
        raise TableError(str(error), culprit=dataset.name) from error
    present = {column.name for table in tables.values() for column in table.schema()}
    for name in dataset.discoverable:
        if name not in present:
            raise TableError(f"the table has no column {name!r} whose values could be discovered", culprit=name)
    if "://" in dataset.source:  # whose types its copy does not keep
        _open(found, tables)
    return SourceTables(dataset, found, tables, files)


def open_copies(found: Described, copies: Sequence[TableCopy], folder: Path) -> Opened:
    """Open the copies of a dataset's tables and encode their rows.

    Raises:
        TableError: a table does not fit what describes it.
        EngineError: a copy is not as it was written, or the engine fails.
    """
    by_name = {each.name: each for each in copies}
    if isinstance(found, Schema):
        empty = {table.name: not table.public and table.name != found.units for table in found}
    else:
        empty = {_TABLE: False}
    return _open(found, {name: by_name[name].open(folder, empty=may_be) for name, may_be in empty.items()})


def _open(found: Described, tables: Mapping[str, ProtectedTable]) -> Opened:
    return open_tables(found, tables) if isinstance(found, Schema) else tables[_TABLE].encode(found)


def vault_of(opened: Opened, ledger: Ledger, number: int) -> Vault | SchemaVault:
    """Return the vault of opened rows, of the version with this number."""
    if isinstance(opened, JoinedTables):
        return SchemaVault(opened, ledger, str(number))
    return Vault(opened, ledger, str(number))


def fingerprint(files: Stamps) -> str:
    """Return a digest of the state of files; empty if a table is not made of files on this machine."""
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else ""


_REMEMBERED = 1.0  # seconds for which a worker trusts the declared version that it has looked up


@dataclass(frozen=True)
class CachedTable:
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
        self._held: OrderedDict[str, CachedTable] = OrderedDict()  # asked longest ago first
        self._declared: dict[str, tuple[float, ServedVersion]] = {}
        self._spoiled: dict[str, Snapshot] = {}  # which could not be opened
        self._forgetting = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def vault(self, loaded: ServedDataset) -> Vault | SchemaVault:
        """The dataset's vault, of the last declared version.

        Raises:
            RefusalError: the dataset is paused, as its version has no snapshot, or the snapshot cannot be read now.
        """
        with suppress(KeyError):  # it is not held
            self._held.move_to_end(loaded.dataset.name)
        return self._answering(loaded).vault

    def view(self, loaded: ServedDataset, view: BoundedView) -> Vault:
        """The vault of a view of a dataset's tables, of the last declared version; one view is made at a time.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no views"
        with self._locks[loaded.dataset.name]:
            return found.over(view)

    def units(self, loaded: ServedDataset, related: LinkedTables) -> Vault:
        """The vault of whole units of a dataset's tables, of the last declared version; counted anew each time.

        Raises:
            RefusalError: as for :meth:`vault`.
        """
        found = self.vault(loaded)
        assert isinstance(found, SchemaVault), "a dataset of one table has no related ones"
        with self._locks[loaded.dataset.name]:
            return found.of_units(related)

    def begin(self, loaded: ServedDataset, opened: Opened, snapshot: Snapshot) -> None:
        """Keep the tables that were opened from the snapshot with which their dataset was registered."""
        name = loaded.dataset.name
        with self._locks[name]:
            declared = self.snapshots.declared(name)
            if declared.snapshot == snapshot:
                self._keep(name, CachedTable(vault_of(opened, loaded.ledger, declared.number), declared), declared)

    def read_again(self, loaded: ServedDataset, *, by: Actor | None = None) -> tuple[DataVersion, bool]:
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
            self._keep(name, CachedTable(vault_of(opened, loaded.ledger, declared.number), declared), declared)
        return version, changed

    def written(self, loaded: ServedDataset) -> bool | None:
        """Whether files of the source were written, added or removed since they were read; for stewards alone.

        None of a source that is not made of files, and of a dataset without a snapshot.  No file is opened for it.
        """
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not snapshot.files:
            return None
        return fingerprint(files_of(loaded.dataset, loaded.described)) != snapshot.files

    def paused(self, loaded: ServedDataset) -> bool:
        """Whether questions are refused until a steward has the source read again."""
        snapshot = self.snapshots.declared(loaded.dataset.name).snapshot
        if snapshot is None or not self.snapshots.place(snapshot).is_dir():
            return True
        return self._spoiled.get(loaded.dataset.name) == snapshot

    def forget(self, name: str) -> None:
        """Forget the tables of a retired dataset."""
        self._held.pop(name, None)

    def _answering(self, loaded: ServedDataset) -> CachedTable:
        """Return the tables of the last declared version, reading them if they are not held."""
        name = loaded.dataset.name
        held = self._held.get(name)
        if held is None or not self._fits(held, name):
            with self._locks[name]:
                held = self._held.get(name)  # of many who found it outdated together, one looks it up
                if held is None or not self._fits(held, name):
                    held = self._current(loaded)
        return held

    def _fits(self, held: CachedTable, name: str) -> bool:
        """Return whether tables are of the version that was just looked up, and can still be counted."""
        seen, declared = self._declared.get(name, (0.0, None))
        return held.declared == declared and time.monotonic() - seen <= _REMEMBERED and _answers(held)

    def _current(self, loaded: ServedDataset) -> CachedTable:
        name = loaded.dataset.name
        held, declared = self._held.get(name), self.snapshots.declared(name)
        while held is None or held.declared != declared or not _answers(held):
            try:
                held = CachedTable(
                    vault_of(self._opened(loaded, declared.snapshot), loaded.ledger, declared.number), declared
                )
            except RefusalError:
                last, declared = declared, self.snapshots.declared(name)
                if declared == last:  # otherwise the next version was declared, and this snapshot deleted
                    raise
        self._keep(name, held, declared)
        return held

    def _opened(self, loaded: ServedDataset, snapshot: Snapshot | None) -> Opened:
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

    def _keep(self, name: str, held: CachedTable, declared: ServedVersion) -> None:
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


def _answers(held: CachedTable) -> bool:
    """Return whether held tables, in this process or on a cluster, can still be counted."""
    try:
        if isinstance(held.vault, SchemaVault):
            held.vault.tables.ready()
        else:
            held.vault.encoded.ready()
    except EngineError:
        return False
    return True
