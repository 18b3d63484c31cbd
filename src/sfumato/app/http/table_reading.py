"""Reading what is registered: a table with its domain, or the tables of a schema, and what names their content."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from sfumato.app.http.registry import Dataset, Read
from sfumato.domain import Domain, Unit, parse
from sfumato.domain.table_schema import VERSION, Schema, parse_schema
from sfumato.engine.encoding import any_attribute
from sfumato.engine.joined import JoinedTables, open_schema_table, open_tables, table_place
from sfumato.engine.open import open_table, same_place
from sfumato.engine.port import ColumnKind, Encoded, ProtectedTable
from sfumato.engine.table_files import Stamps, stamps
from sfumato.errors import EngineError, InputError, QueryError, TableError
from sfumato.ledger import Ledger
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault import Vault

_AND = " "

Described: TypeAlias = Domain | Schema


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

    @property
    def content(self) -> str:
        """What names all columns, however the domain spells, bins or leaves them out."""
        return _content(self.table)

    def vault(self, ledger: Ledger) -> Vault:
        """What answers questions of it."""
        return Vault(self.encoded, ledger)


@dataclass(frozen=True)
class FreshTables:
    """The tables of a schema that were just read; ``versions`` has the content of each."""

    tables: JoinedTables
    versions: tuple[str, ...]
    files: Stamps

    @property
    def content(self) -> str:
        """What names all columns of all tables, in whatever order a schema has them."""
        return _AND.join(sorted(self.versions))

    def vault(self, ledger: Ledger) -> SchemaVault:
        """What answers questions of views of them."""
        return SchemaVault(self.tables, ledger)


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


def read(dataset: Dataset, found: Described) -> Fresh | FreshTables:
    """Read a table, with the columns whose values may be discovered, or all tables of a schema.

    Raises:
        TableError: one cannot be read, does not fit what describes it, or lacks one of the columns.
        EngineError: a database does not answer, or a file was written meanwhile.
    """
    files = files_of(dataset, found)
    if isinstance(found, Schema):
        try:
            tables = open_tables(found, dataset.source)
        except InputError as error:
            raise TableError(str(error), culprit=dataset.name) from error
        versions = tuple(_content(open_schema_table(found, each, dataset.source)) for each in found)
        fresh: Fresh | FreshTables = FreshTables(tables, versions, files)
    else:
        fresh = _read_table(dataset, found, files)
    _refuse_written(dataset, found, files)
    return fresh


def whole(fresh: Fresh | FreshTables, dataset: Dataset, found: Described) -> Read:
    """What was read, with the content of all columns.

    Raises:
        TableError, EngineError: as for :func:`read`.
    """
    content = fresh.content
    _refuse_written(dataset, found, fresh.files)
    return Read(fresh.versions, content)


def _read_table(dataset: Dataset, domain: Domain, files: Stamps) -> Fresh:
    table = open_table(dataset.source, csv=domain.csv)
    present = {column.name for column in table.schema()}
    for name in dataset.discoverable:
        if name not in present:
            raise TableError(f"the table has no column {name!r} whose values could be discovered", culprit=name)
    encoded = table.encode(domain)
    assert encoded.version  # which reads it, where it was not read yet
    discoverable = encoded.version_with(dataset.discoverable) if dataset.discoverable else None
    return Fresh(table, encoded, discoverable, files)


def _content(table: ProtectedTable) -> str:
    """What names all columns of a table, which is read under a domain that its columns alone decide."""
    columns = {column.name: column for column in table.schema() if column.kind is not ColumnKind.OTHER}
    names = sorted(columns)
    return table.encode(Domain((any_attribute(columns[names[0]]),))).version_with(tuple(names))


def _refuse_written(dataset: Dataset, found: Described, files: Stamps) -> None:
    if files_of(dataset, found) != files:
        raise EngineError("the table was written while it was read; have it read again later")
