"""Several tables about the same people under one ledger: every release of any view of them is charged to one budget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfumato.arguments import expect
from sfumato.domain import Unit
from sfumato.domain.linked_domain import LinkedTables
from sfumato.domain.table_schema import Schema, SchemaTable, load_schema
from sfumato.domain.view import BoundedView
from sfumato.engine.port import Encoded
from sfumato.engine.views.joined import JoinedTables, open_tables_with_content
from sfumato.errors import LedgerError, QueryError
from sfumato.ledger import Account
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.ledger.journal import refuse_other_owners
from sfumato.notebook_html import html_table
from sfumato.privacy.loss import Loss
from sfumato.vault.vault import Journal, Vault, budget_terms
from sfumato.vault.vault_opening import DATASET, declared, default_ledger_url

_KEPT = 8  # encoded views


@dataclass(frozen=True)
class SchemaVault:
    """The protected tables of a schema, with a vault for each view, one journal and one unit."""

    tables: JoinedTables
    ledger: Journal
    version: str  # the number of the data's version in the ledger
    analyst: str | None = None
    _views: OrderedDict[str, Encoded] = field(default_factory=OrderedDict, repr=False, compare=False)
    _owners_read: list[int] = field(default_factory=lambda: [0], repr=False, compare=False)

    @property
    def schema(self) -> Schema:
        """The public description of the tables."""
        return self.tables.schema

    @property
    def remaining(self) -> Account:
        """The budget of all tables together.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        own = None if self.analyst is None else self.ledger.remaining(self.analyst)
        return self.ledger.remaining() if own is None or own.limit is None else own

    def for_view(self, view: BoundedView) -> Vault:
        """Return the vault of a view.  Its releases are charged to the single budget of the schema.

        The rows of the last views are cached.

        Raises:
            QueryError: the view has other units or other tables than the schema, or its joins could make too many rows
                of one unit.
            UnitError: earlier releases record other owners of rows.
            EngineError: the tables can no longer be read.
        """
        unit = view.unit
        if (unit.column, unit.schema) != (self.schema.id, self.schema.name):
            raise QueryError(f"this view bounds {unit.column}, not the {self.schema.id} of {self.schema.name}")
        if any(table not in self.schema.tables for table in view.view.tables):
            raise QueryError(
                "this view is of tables that the schema describes otherwise; make it of those of the schema"
            )
        view = self.tables.bounded(view)
        self.refuse_other_owners()
        encoded = self._views.get(view.hash)
        if encoded is None:
            encoded = self.tables.encode(view)
            self._views[view.hash] = encoded
            if len(self._views) > _KEPT:
                self._views.popitem(last=False)
        self._views.move_to_end(view.hash)
        return self._vault(encoded, view.view.tables, view)

    def of_units(self, related: LinkedTables) -> Vault:
        """Return the vault of units: one row each, with the tables derived from them.

        Its releases are charged to the single budget of the schema.

        Raises:
            QueryError: the linked tables have other units, or this schema describes one of them differently; its other
                tables do not matter.
            EngineError: the tables can no longer be read.
        """
        theirs, ours = ((each.id, each.name, each.units) for each in (related.schema, self.schema))
        if theirs != ours:
            raise QueryError(f"these related tables are not of the {self.schema.id} of {self.schema.name}")
        named = {self.schema.units, *(child.table.name for child in related.children)}
        if any(table not in self.schema.tables for table in related.schema if table.name in named):
            raise QueryError(
                "the schema of this vault describes a linked table differently; link the tables of this schema"
            )
        self.refuse_other_owners()
        return self._vault(self.tables.derive(related), self.schema)

    def _vault(self, encoded: Encoded, of: Iterable[SchemaTable], view: BoundedView | None = None) -> Vault:
        accepted = self.schema.accepted_by
        owners = tuple(sorted(self.schema.owners(of).items()))
        return Vault(
            encoded, self.ledger, self.version, analyst=self.analyst, view=view, owners=owners, acceptance=accepted
        )

    def refuse_other_owners(self) -> None:
        """Refuse this schema if earlier releases record other owners of a table's rows.

        Entries are read once.  The transaction that charges looks again: see :mod:`sfumato.ledger.journal`.

        Raises:
            UnitError: an owner differs.
            LedgerError: the ledger cannot be read.
        """
        last, recorded = self.ledger.recorded_owners(after=self._owners_read[0])
        refuse_other_owners(self.schema.owners(self.schema), recorded)
        self._owners_read[0] = last

    def for_analyst(self, analyst: str) -> SchemaVault:
        """Return the same tables for an analyst: each release is also charged to the analyst's cap."""
        return replace(self, analyst=analyst)

    def __repr__(self) -> str:
        tables = ", ".join(table.name for table in self.schema)
        return f"<SchemaVault of {tables}; unit: one {self.schema.id} of {self.schema.name}>"

    def _repr_html_(self) -> str:
        return self.schema._repr_html_() + html_table((), budget_terms(lambda: self.remaining).items(), labels=1)


def open_schema(  # noqa: PLR0913  (keywords, each of which is one line of a call)
    tables: object,
    *,
    schema: Schema | str | Path,
    ledger: str | Path | None = None,
    limit: Loss | None = None,
    dataset: str = DATASET,
    create: bool = False,
    new_version: bool = False,
) -> SchemaVault:
    """Open the tables of a schema for release, under one ledger.

    Args:
        tables: a folder of CSV or Parquet files called by the tables' names, or a mapping from these names to files and
            frames.
        schema: the accepted description, or the path of its YAML file.
        ledger: path or database URL of the journal.  By default, the schema's file with the ending ``.ledger``.
        limit: the privacy budget of all tables together, for one unit.
        dataset: name of the journal, if one ledger has several.
        create: true to make the ledger, with ``limit``, if there is none.
        new_version: true if the tables are declared as the next version, which charges every request again.
            Without it, tables that differ from the last version are refused.

    Raises:
        DomainError: the description is wrong, or a draft that nobody accepted.
        TableError: a table cannot be read, does not fit its description, or its keys are none.
        LedgerError: there is no ledger and none is to be made; or it cannot be opened, has another limit, or adds up
            losses of another unit, such as that of a single table.
        VersionError: the tables differ from the last version, and ``new_version`` is not set.
        UnitError: earlier releases record other owners of a table's rows.
    """
    from sfumato.ledger import open_ledger  # imported here, because error estimates need no database

    expect(schema, Schema | str | Path, "a schema is a Schema or the path of its file")
    place = schema if isinstance(schema, str | Path) else None
    described = schema if isinstance(schema, Schema) else load_schema(schema)
    described.refuse_draft()
    opened, content = open_tables_with_content(described, tables)
    if ledger is None:
        if place is None:
            raise LedgerError("name a ledger: a schema that is not a file has no ledger next to it", culprit=described)
        ledger = default_ledger_url(place)
    unit = Unit(described.id, schema=described.name)
    journal = open_ledger(ledger, dataset=dataset, limit=limit, unit=unit, create=create)
    vault = SchemaVault(opened, journal, UNDECLARED)
    vault.refuse_other_owners()  # before the tables are declared as a version
    return replace(vault, version=declared(journal, content, new=new_version))
