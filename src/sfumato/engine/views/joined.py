"""Several tables of one engine, each encoded once, and views of them: encoded, bounded rows like the rows of one table.

Their owner opens them: keys are checked then, and messages describe wrong keys.  Later no query to a view can fail
because of its rows, and a view without rows is a view like any other.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from sfumato.arguments import listed
from sfumato.domain import Domain
from sfumato.domain.linked_domain import LinkedTables
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit_views import TABLE, OneTableSchema, bounded_joins, one_table_schema
from sfumato.domain.view import BoundedView
from sfumato.engine.adapter import JoinEngine
from sfumato.engine.dialect import Dialect, identity, missing
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.encoding import Encoding, content_of_tables, stored_values
from sfumato.engine.open import ADAPTERS, adapter_of, open_table
from sfumato.engine.port import Column, ColumnKind, ProtectedTable, Recodable
from sfumato.engine.table_files import Content
from sfumato.engine.views.linked_sql import DerivedEncoding
from sfumato.engine.views.view_sql import ViewEncoding
from sfumato.errors import EngineError, InputError, TableError

_VIEWS = 8  # cached views per table
_SPREAD = 32  # largest range per row if each key has a bit
_KEYS = {ColumnKind.TEXT, ColumnKind.INTEGER, ColumnKind.DATE}


class JoinedTables:
    """The tables of a schema, encoded in their engine."""

    def __init__(self, schema: Schema, engine: JoinEngine) -> None:
        """Check and encode them.

        Raises:
            TableError: a table lacks a column, a key does not distinguish rows, or two columns of keys differ in type.
        """
        self.schema = schema
        self._engine = engine
        for table in schema:
            self._check_columns(table)
        integer = self._has_integer_keys()
        self._owners: dict[str, str] = {}
        above = {table.through.table.casefold() for table in schema if table.through is not None}
        relations = {}
        for table in schema:
            columns, unit = engine.columns(table.name), schema.unit_column(table.name)
            encode = partial(own_rows, table, unit, columns, engine.dialect, integer=integer)
            relations[table.name] = engine.materialize(
                encode, table.name, [*self._keys(table), *(["u"] if unit is not None else [])]
            )
            if table.name.casefold() in above:  # rows dropped by a description still own their child rows
                owner = unit if table.through is None else table.through.column
                assert owner is not None
                assert table.key is not None
                ties = partial(own_owners, table.key, owner, columns, engine.dialect, integer=integer)
                self._owners[table.name] = engine.materialize(ties, table.name, ["k"])
                self._check_key(table, "k", self._owners[table.name])
            elif table.key is not None and not table.public:
                self._check_key(table, f"k{table.columns.index(table.key)}", relations[table.name])
        for table in schema:
            self._check_spelling(table, relations)
        for table in schema:
            if table.through is not None:
                owned = owned_rows(table, relations[table.name], self._owners_of(table.through.table))
                relations[table.name] = engine.materialize_joined(owned, [*self._keys(table), "u"])
        self._relations = relations
        self._repeats = {
            (table.name, column): self._repeated(relations[table.name], f"k{place}")
            for table in schema
            if table.public
            for place, column in enumerate(table.columns)
        }
        units = {engine.columns(name)[column].kind for name, column in self._unit_columns()}
        self._whole_units = integer and units == {ColumnKind.INTEGER}

    def _unit_columns(self) -> list[tuple[str, str]]:
        """Return the tables with a column that names the unit, and that column."""
        pairs = ((table.name, self.schema.unit_column(table.name)) for table in self.schema)
        return [(name, column) for name, column in pairs if column is not None]

    def _has_integer_keys(self) -> bool:
        """Return whether the engine takes the types of all integer keys and ids unchanged."""
        named = [(table.name, column) for table in self.schema for column in table.columns] + self._unit_columns()
        columns = (self._engine.columns(name)[column] for name, column in named)
        return all(each.type in self._engine.dialect.whole_ids for each in columns if each.kind is ColumnKind.INTEGER)

    def ready(self) -> None:
        """Refuse if views can no longer be made of the tables.

        Raises:
            EngineError: their connection is lost, or their files were written since they were opened.
        """
        self._engine.ready()

    def bounded(self, view: BoundedView) -> BoundedView:
        """Return the view with its joins bounded by public numbers; read no row.

        Raises:
            QueryError: a join could make too many rows of one unit.
        """
        return replace(view, view=bounded_joins(view.view, self.schema, self._repeats))

    def encode(self, view: BoundedView) -> Recodable:
        """Return the countable rows of a view: its joins are bounded, and its rows are bounded per unit.

        Raises:
            QueryError: a join could make too many rows of one unit.
        """
        bounded, dialect = self.bounded(view), self._engine.dialect
        return self._engine.encoded(ViewEncoding(bounded, self._relations, dialect, whole_units=self._whole_units))

    def derive(self, related: LinkedTables) -> EncodedRows:
        """Return the head of linked tables, with all tables that are derived from the same units."""
        encode = partial(DerivedEncoding, related, relations=self._relations, dialect=self._engine.dialect)
        derived = {
            table.name: self._engine.encoded(encode(child, opening=opening))
            for child in related.children
            for table, opening in ((related.first_child(child), True), (related.next_child(child), False))
            if table is not None
        }
        return self._engine.encoded(encode(None, opening=False)).deriving(derived)

    def _owners_of(self, name: str) -> str:
        """Return the units by the keys of a table, found through other tables if necessary."""
        table = self.schema[name]
        own = self._owners[table.name]
        if table.through is None:
            return own
        return self._engine.materialize_joined(found_owners(own, self._owners_of(table.through.table)), ["k"])

    def _repeated(self, relation: str, key: str) -> int:
        """Return the largest number of rows of a public table with one key."""
        repeats = f"SELECT COUNT(*) AS held FROM {relation} AS t WHERE {key} IS NOT NULL GROUP BY {key}"
        ((most,),) = self._engine.rows(f"SELECT COALESCE(MAX(held), 0) FROM ({repeats}) AS counted")
        return int(most)

    def _keys(self, table: SchemaTable) -> list[str]:
        """Return the columns of keys that are stored for a table."""
        return [f"k{place}" for place in range(len(table.columns))]

    def _check_columns(self, table: SchemaTable) -> None:
        columns = self._engine.columns(table.name)
        unit = self.schema.unit_column(table.name)
        keys = dict.fromkeys([*table.columns, *([] if unit is None else [unit])])
        for name in [*keys, *(each.name for each in table.attributes)]:
            if name not in columns:
                raise TableError(f"{table.name} has no column {name!r}; it has {listed(columns)}", culprit=name)
        try:
            if table.attributes:
                Encoding(Domain(table.attributes), columns, self._engine.dialect)
        except TableError as error:  # a column with an unsuitable type for its attribute
            raise TableError(f"{table.name}: {error}", culprit=error.culprit) from None
        for name in () if isinstance(self.schema, OneTableSchema) else keys:
            if columns[name].kind not in _KEYS:
                raise TableError(
                    f"{table.name}.{name} of type {columns[name].type} cannot hold keys; store it as text or as whole "
                    "numbers",
                    culprit=name,
                )
        for column, other, key in self._ties(table):
            there = self._engine.columns(other.name)
            if key in there and there[key].kind is not columns[column].kind:
                raise TableError(
                    f"{table.name}.{column} is of type {columns[column].type} and {other.name}.{key} of type "
                    f"{there[key].type}: equal keys would not match; store both with one type",
                    culprit=column,
                )

    def _ties(self, table: SchemaTable) -> list[tuple[str, SchemaTable, str]]:
        """Return the columns of a table that hold keys or ids of another, that table, and its column of these."""
        unit = self.schema.unit_column(table.name)
        ties = [(link.column, self.schema[link.table], self.schema[link.table].key) for link in table.links]
        if unit is not None and self.schema.units is not None:
            ties.append((unit, self.schema[self.schema.units], self.schema[self.schema.units].key))
        if unit is not None and self.schema.units is None:  # one person is one unit in all tables
            ties += [(unit, other, self.schema.unit_column(other.name)) for other in self.schema]
        return [(column, other, key) for column, other, key in ties if key is not None and other.name != table.name]

    def _check_spelling(self, table: SchemaTable, relations: Mapping[str, str]) -> None:
        """Refuse text ids if one is another with a decimal; some programs write whole numbers so next to missing ones.

        A person with id 7 in one table and 7.0 in another would be two units, each protected separately.
        """
        public = {link.column for link in table.references}  # keys of public tables may be codes, such as version 1.0
        for column, other, key in self._ties(table):
            if column in public or self._engine.columns(table.name)[column].kind is not ColumnKind.TEXT:
                continue
            ends = [(table, column), (other, key)]
            for (one, its), (second, their) in (ends, ends[::-1]):
                if self._decimal_of(relations, (one, its), (second, their)):
                    raise TableError(
                        f"{one.name}.{its} has an id with '.0' at its end that {second.name}.{their} has without it: "
                        "the same id would be two; write both alike, as whole numbers",
                        culprit=its,
                    )

    def _decimal_of(
        self, relations: Mapping[str, str], one: tuple[SchemaTable, str], other: tuple[SchemaTable, str]
    ) -> bool:
        """Return whether a column of keys has a whole number of another column followed by ".0"."""
        (own, relation), (their, other_relation) = (
            (
                "u" if name == self.schema.unit_column(table.name) else f"k{table.columns.index(name)}",
                relations[table.name],
            )
            for table, name in (one, other)
        )
        number = self._engine.dialect.matches(own, "[0-9]+[.]0")
        written = f"SELECT {own} AS k FROM {relation} AS t WHERE RIGHT({own}, 2) = '.0' AND {number}"
        ((matches,),) = self._engine.rows(f"SELECT COUNT(*) FROM ({written}) AS decimals")
        if not int(matches):
            return False
        joined = f"({written}) AS decimals JOIN {other_relation} AS others ON decimals.k = CONCAT(others.{their}, '.0')"
        ((matches,),) = self._engine.rows(f"SELECT COUNT(*) FROM {joined}")
        return bool(int(matches))

    def _distinct(self, table: SchemaTable, key: str, relation: str) -> tuple[int, int]:
        """Return the number of rows with a key, and the number of keys."""
        assert table.key is not None
        if self._engine.columns(table.name)[table.key].kind is ColumnKind.INTEGER and self._has_integer_keys():
            ((rows, low, high),) = self._engine.rows(
                f"SELECT COUNT({key}), MIN({key}), MAX({key}) FROM {relation} AS t"
            )
            if rows and int(high) - int(low) < _SPREAD * int(rows):
                distinct = self._engine.dialect.distinct(key, int(low), int(high))
                if distinct is not None:
                    ((keys,),) = self._engine.rows(f"SELECT {distinct} FROM {relation} AS t")
                    return int(rows), int(keys)
        ((rows, keys),) = self._engine.rows(f"SELECT COUNT({key}), COUNT(DISTINCT {key}) FROM {relation} AS t")
        return int(rows), int(keys)

    def _check_key(self, table: SchemaTable, key: str, relation: str) -> None:
        rows, keys = self._distinct(table, key, relation)
        if int(rows) != int(keys):
            raise TableError(
                f"{table.name}.{table.key} names several rows, so the owner of a row would be ambiguous; a key names "
                f"one row: mend the table, or write another key: COLUMN under tables.{table.name}",
                culprit=table.name,
            )


def open_tables(schema: Schema, source: object) -> JoinedTables:
    """Open the tables of a schema in place; for their owner, because messages describe their keys.

    For arguments and errors see :func:`open_tables_with_content`.
    """
    return JoinedTables(schema, _join_engine(schema, source))


def open_tables_with_content(schema: Schema, source: object) -> tuple[JoinedTables, Content]:
    """Open the tables of a schema, and name the content of all their columns, both of one state of the tables.

    Args:
        schema: accepted.
        source: a folder with a file for each table, named like the table, such as ``visits.csv`` or ``visits.parquet``;
            the URL of a database with these tables, without ``?table=``; ``spark:FOLDER`` of Parquet or CSV; or a
            mapping from names to sources of :func:`open_table`.

    Raises:
        InputError: the source is none of these.
        TableError: as for :func:`open_schema_table`, or its keys are invalid.
        EngineError: a table was written while it was read.
    """
    engine = _join_engine(schema, source)
    return engine.with_content(lambda: JoinedTables(schema, engine))


def _join_engine(schema: Schema, source: object) -> JoinEngine:
    return _engine_of({table.name: open_schema_table(table, source) for table in schema}, source)


def _engine_of(tables: Mapping[str, ProtectedTable], source: object) -> JoinEngine:
    for adapter in ADAPTERS:
        if (engine := adapter.join(tables)) is not None:
            return engine
    *others, last = (adapter.joinable_sources for adapter in ADAPTERS if adapter.joinable_sources)
    raise InputError(f"several tables are opened together {', '.join(others)}, or {last}", culprit=source)


class TableViews:
    """The views of one table, which is read again for the first of them."""

    def __init__(self) -> None:
        """Read nothing."""
        self._tables: JoinedTables | None = None
        self._rows: dict[str, Recodable] = {}  # by the hash of a view, in order of use
        self._reading = threading.Lock()

    def encoded(self, rows: EncodedRows, view: BoundedView, content: Content | None) -> Recodable:
        """Return the rows of a view, which are encoded when they are first counted.  The last views are cached.

        Args:
            rows: the encoded rows of the table, which were read before.
            view: a view of the table of :func:`sfumato.domain.unit_views.one_table_schema`.
            content: the content of the table when it was encoded; None if nothing can write the table.

        Raises:
            EngineError: the table was written since it was encoded.
        """
        with self._reading:
            rows.ready()
            if self._tables is None:
                self._tables = _one_table(rows.table, rows.domain, content)
                rows.ready()  # its files did not change in the meantime
            encoded = self._rows.pop(view.hash, None) or self._tables.encode(view)
            self._rows[view.hash] = encoded
            if len(self._rows) > _VIEWS:
                del self._rows[next(iter(self._rows))]
            return encoded


def _one_table(table: ProtectedTable, domain: Domain, content: Content | None) -> JoinedTables:
    """Return a table as the only table of a schema; see :meth:`TableViews.encoded`."""
    schema = one_table_schema(domain)
    engine = _engine_of({TABLE: table}, table)
    if content is None:
        return JoinedTables(schema, engine)
    made, now = engine.with_content(lambda: JoinedTables(schema, engine))
    same = content_of_tables({TABLE: content.files}) == now.files if now.files else False
    if not same and content_of_tables({TABLE: content.name}) != now.name:
        raise EngineError("the table was written since it was encoded; open it again")
    return made


def open_schema_table(table: SchemaTable, source: object) -> ProtectedTable:
    """Open one table of a schema in place.

    Raises:
        InputError: the source is invalid for :func:`open_tables`.
        TableError: the table is missing, or cannot be read; or it is public and has no rows.  For other tables no error
            reveals whether there are rows, because one person may own them all.
    """
    return open_table(table_place(table, source), csv=table.csv, empty=not table.public)


def table_place(table: SchemaTable, source: object) -> object:
    """Return the place of one table of a schema, as for :func:`open_tables`."""
    if isinstance(source, Mapping):
        place = next((place for name, place in source.items() if str(name).casefold() == table.name.casefold()), None)
        if place is None:
            raise TableError(f"there is no table {table.name}; given are {', '.join(map(str, source))}")
        return place
    if not isinstance(source, str | Path):
        sources = ", ".join(adapter.folder for adapter in ADAPTERS if adapter.folder)
        raise InputError(f"name {sources}, or a mapping from names of tables to them", culprit=source)
    return adapter_of(str(source)).place(table, str(source))


# --- encoded rows of a table, with keys and units --------------------------------------------------------------------


def keyed(dialect: Dialect, column: Column, *, integer: bool) -> str:
    """Return a key as text that only equal keys share, or its number; NULL if it is missing.

    Args:
        dialect: the dialect of the engine.
        column: a column of keys.
        integer: true if the engine takes the types of all integer keys of the schema unchanged.
    """
    if integer and column.kind is ColumnKind.INTEGER:
        return dialect.name(column.name)
    return f"CASE WHEN NOT {missing(dialect, column)} THEN {identity(dialect, column)} END"


def own_rows(
    table: SchemaTable,
    unit: str | None,
    columns: Mapping[str, Column],
    dialect: Dialect,
    relation: str,
    *,
    integer: bool,
) -> str:
    """Return the encoded rows of one table: codes, numbers, keys, and ``u`` if a column of its own names the unit.

    Args:
        table: a table of a schema.
        unit: its column that names the unit; None: it has none.
        columns: its columns.
        dialect: the dialect of the engine.
        relation: the FROM clause of its raw rows.
        integer: see :func:`keyed`.
    """
    carried = [keyed(dialect, columns[column], integer=integer) for column in table.columns]
    carried += [keyed(dialect, columns[unit], integer=integer)] if unit is not None else []
    if table.attributes:
        domain = Domain(table.attributes, hierarchies=table.hierarchies, csv=table.csv)
        rows = Encoding(domain, columns, dialect).select(relation, carried)
    else:
        rows = f"SELECT {', '.join(f'{text} AS r{place}' for place, text in enumerate(carried))} FROM {relation}"
    names = [f"k{place}" for place in range(len(table.columns))] + (["u"] if unit is not None else [])
    cells = [*(f"c{place}" for place in range(len(table.attributes)))]
    cells += [f"v{place}" for place in stored_values(table.attributes)]
    of_row = ["0 AS u"] if not table.public and unit is None and table.through is None else []  # a row is a unit
    listed = ", ".join([*cells, *(f"r{place} AS {name}" for place, name in enumerate(names)), *of_row])
    condition = f" WHERE r{len(names) - 1} IS NOT NULL" if unit is not None else ""
    return f"SELECT {listed} FROM ({rows}) AS own_rows{condition}"


def owned_rows(table: SchemaTable, own: str, owners: str) -> str:
    """Return the encoded rows of a table whose units are in another table; rows without an owner are dropped.

    Args:
        table: such a table.
        own: its encoded rows.
        owners: the owners of the other table, from :func:`own_owners` or :func:`found_owners`.
    """
    assert table.through is not None
    key = table.columns.index(table.through.column)
    listed = [*(f"c{place}" for place in range(len(table.attributes)))]
    listed += [f"v{place}" for place in stored_values(table.attributes)]
    listed += [f"own.k{place} AS k{place}" for place in range(len(table.columns))]
    joined = f"{own} AS own JOIN {owners} AS o ON own.k{key} = o.k"
    return f"SELECT {', '.join(listed)}, o.u AS u FROM {joined} WHERE o.u IS NOT NULL"


def own_owners(
    key: str, owner: str, columns: Mapping[str, Column], dialect: Dialect, relation: str, *, integer: bool
) -> str:
    """Return each key as ``k``, and as ``u`` the unit of its row or the key of its parent row.

    All raw rows are read, so that the owner of a row depends on no value but the keys.

    Args:
        key: the column.
        owner: the column of the unit, or of the key of the parent row.
        columns: columns of the table.
        dialect: the dialect of the engine.
        relation: the FROM clause of its raw rows.
        integer: see :func:`keyed`.
    """
    texts = (
        f"{keyed(dialect, columns[column], integer=integer)} AS {name}" for column, name in ((key, "k"), (owner, "u"))
    )
    return f"SELECT k, u FROM (SELECT {', '.join(texts)} FROM {relation}) AS ties WHERE k IS NOT NULL"


def found_owners(own: str, above: str) -> str:
    """Return the owners of a table whose units are found through another table: the unit instead of the key."""
    return f"SELECT own.k AS k, o.u AS u FROM {own} AS own JOIN {above} AS o ON own.u = o.k"
