"""Reading what is registered: a table with its domain, or the tables of a schema, their content, and their copies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.app.http.registry import Dataset
from sfumato.domain import Domain, Unit, parse
from sfumato.domain.table_schema import VERSION, Schema, SchemaTable, parse_schema
from sfumato.engine.content import content_of_tables
from sfumato.engine.joined import JoinedTables, open_schema_table, open_tables, table_place
from sfumato.engine.open import open_table, same_place
from sfumato.engine.port import ProtectedTable, Recodable
from sfumato.engine.table_copy import TableCopy, copy_table
from sfumato.engine.table_files import Stamps, stamps
from sfumato.errors import EngineError, InputError, QueryError, TableError
from sfumato.ledger import Ledger
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault import Vault

_TABLE = "table"  # the name of the one table of a dataset that has no schema

Described: TypeAlias = Domain | Schema
Opened: TypeAlias = Recodable | JoinedTables


@dataclass(frozen=True)
class Loaded:
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


def lies_at(dataset: Dataset, found: Described, known: str, document: Mapping[str, Any]) -> bool:
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
