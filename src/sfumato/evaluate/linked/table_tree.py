"""Linked tables for an evaluator: the rows of each table grouped by parent, children in order.

The reader shares no code with the synthesizer, so that it also checks the released files.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import listed
from sfumato.domain import Attribute, CsvFormat, Date, Integer, Real, Timestamp
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.engine.table_files import PARQUET_SUFFIXES, name_columns, table_files
from sfumato.errors import InputError, TableError
from sfumato.evaluate.release_files import compatible, label_codes

if TYPE_CHECKING:
    import pyarrow as pa

Places = NDArray[np.int64]


@dataclass(frozen=True)
class ChildOrder:
    """The order of the children of a parent: by a rising or falling column, or unordered."""

    by: str | None = None
    falling: bool = False


@dataclass(frozen=True)
class RowsRead:
    """The number of rows of one table that were read, and of rows that were skipped.

    Attributes:
        rows: all rows of the file.
        undeclared: skipped because a value is not declared.
        repeated: skipped because an earlier row has the same key.
        ownerless: skipped because no row that was read is their parent.
        beyond: skipped because their parent has more rows than the schema allows.
    """

    rows: int
    undeclared: int = 0
    repeated: int = 0
    ownerless: int = 0
    beyond: int = 0

    @property
    def judged(self) -> int:
        """The number of rows that are judged."""
        return self.rows - self.undeclared - self.repeated - self.ownerless - self.beyond


@dataclass(frozen=True, eq=False)
class LinkedTable:
    """The rows of one table that were not skipped.

    Attributes:
        name: of the table.
        attributes: of its rows.
        codes: one array per attribute, each of shape ``(rows,)``.
        read: numbers of read and skipped rows of the file.
        above: the table of the parents; None for the units themselves.
        owner: the row of the parent, ascending, shape ``(rows,)``; rows of one parent are in their order.
        most: largest number of children of one parent.
        order: of the children of a parent.
        days: the day that orders each row; None if rows are not ordered by date.
    """

    name: str
    attributes: tuple[Attribute, ...]
    codes: tuple[Places, ...] = field(repr=False)
    read: RowsRead
    above: str | None = None
    owner: Places = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)
    most: int = 1
    order: ChildOrder = ChildOrder()
    days: Places | None = field(default=None, repr=False)
    length: int = 0


@dataclass(frozen=True, eq=False)
class TableTree:
    """Linked tables: the units first, every other table after the table of its parents."""

    levels: tuple[LinkedTable, ...]

    def __getitem__(self, name: str) -> LinkedTable:
        return next(level for level in self.levels if level.name == name)

    @property
    def units(self) -> int:
        """The number of units."""
        return self.levels[0].length

    def edges(self) -> Iterator[tuple[LinkedTable, LinkedTable]]:
        """Yield each table of children, with the table of its parents."""
        for level in self.levels:
            if level.above is not None:
                yield self[level.above], level

    def taken(self, units: Places) -> TableTree:
        """Return the given units with all of their rows. A unit that is listed twice is returned twice."""
        places = {self.levels[0].name: units}
        levels = [_chosen(self.levels[0], units, None)]
        for parent, level in self.edges():
            chosen = places[parent.name]
            count = np.bincount(level.owner, minlength=parent.length)
            start = np.cumsum(count) - count
            each = count[chosen]
            first = np.cumsum(each) - each
            owner = np.repeat(np.arange(len(chosen)), each)
            rows = np.repeat(start[chosen] - first, each) + np.arange(len(owner))
            places[level.name] = rows
            levels.append(_chosen(level, rows, owner))
        return TableTree(tuple(levels))


def _chosen(level: LinkedTable, rows: Places, owner: Places | None) -> LinkedTable:
    return LinkedTable(
        name=level.name,
        attributes=level.attributes,
        codes=tuple(codes[rows] for codes in level.codes),
        read=level.read,
        above=level.above,
        owner=level.owner if owner is None else owner,
        most=level.most,
        order=level.order,
        days=None if level.days is None else level.days[rows],
        length=len(rows),
    )


def orders(schema: Schema, given: Mapping[str, str] | None = None) -> dict[str, ChildOrder]:
    """Return the order of the children of a parent, for every table.

    Args:
        schema: of the tables.
        given: columns by table, with ``:falling`` appended for descending order. Other tables are ordered by their
            first date, if they have one.

    Raises:
        InputError: a table or column does not exist.
    """
    dated = {
        table.name: next((each.name for each in table.attributes if isinstance(each, Date | Timestamp)), None)
        for table in schema
    }
    order_of = {name: ChildOrder(by) for name, by in dated.items()}
    for name, text in (given or {}).items():
        table = schema[name]
        by, _, way = text.partition(":")
        if way not in ("", "falling", "rising") or (by and _attribute(table, by) is None):
            raise InputError(f"{name}={text} is no order; write TABLE=COLUMN or TABLE=COLUMN:falling", culprit=text)
        order_of[table.name] = ChildOrder(by or None, falling=way == "falling")
    return order_of


def read_table_tree(
    folder: str | Path,
    schema: Schema,
    *,
    orders: Mapping[str, ChildOrder],
    tables: Sequence[str] | None = None,
    only_files: bool = False,
) -> TableTree:
    """Read the tables of a folder, one file each, as families.

    Args:
        folder: with files named after the tables, such as ``visits.csv`` or ``visits.parquet``.
        schema: the columns of the tables and the owners of their rows.
        orders: of the children of a parent, by table; a missing table is unordered.
        tables: names. Default: all private tables that are linked to the units.
        only_files: skip tables without a file.

    Raises:
        TableError: a file is missing or cannot be read, or lacks a column.
    """
    place = Path(folder)
    if not place.is_dir():
        raise TableError(f"there is no folder {place}", culprit=place)
    chosen = [
        name
        for name in linked(schema)
        if (tables is None or name in tables) and not (only_files and not table_files(place, name))
    ]
    for name in chosen:
        above = _parent_of(schema, name)
        if above is not None and schema.units is not None and above[0] not in chosen:
            raise TableError(f"{place} has {name}, and no {above[0]}, to which its rows belong", culprit=name)
    raw = {name: _RawTable.open(schema[name], place) for name in chosen}
    levels: list[LinkedTable] = []
    keys: dict[str, pa.Array] = {}
    for name in chosen:
        table, above = schema[name], _parent_of(schema, name)
        if above is None:
            level, keys[name] = _units(table, raw[name], schema)
            levels.append(level)
            continue
        parent, column = above
        if not levels:  # if no table lists the units, they are the ids that have rows
            keys[parent] = _distinct_ids([raw[each] for each in chosen])
            levels.append(LinkedTable(parent, (), (), RowsRead(len(keys[parent])), length=len(keys[parent])))
        level, keys[name] = _children(table, raw[name], (parent, column), keys[parent], orders.get(name, ChildOrder()))
        levels.append(level)
    return TableTree(tuple(levels))


def linked(schema: Schema) -> tuple[str, ...]:
    """Return the private tables that belong to the units, each after the table of its parents."""
    waiting = [table.name for table in schema if not table.public]
    names: list[str] = []
    while waiting:
        ready = [name for name in waiting if (above := _parent_of(schema, name)) is None or above[0] not in waiting]
        names += ready
        waiting = [name for name in waiting if name not in ready]
    return tuple(names)


def _parent_of(schema: Schema, name: str) -> tuple[str, str] | None:
    """Return the table of a row's parent and the column that refers to it; None for the table of the units.

    If no table lists the units, the parent has the name of the unit's id.
    """
    table = schema[name]
    if table.name == schema.units:
        return None
    if table.through is not None:
        return schema[table.through.table].name, table.through.column
    assert table.unit is not None
    return (schema.units or schema.id), table.unit


@dataclass(frozen=True, eq=False)
class _RawTable:
    """The columns of a file as text or in their stored types, and the codes of its attributes."""

    table: SchemaTable
    columns: Any  # pa.Table

    @staticmethod
    def open(table: SchemaTable, folder: Path) -> _RawTable:
        files = table_files(folder, table.name)
        if len(files) != 1:
            files_there = f"both {files[0].name} and {files[1].name}" if files else f"no {table.name}.csv or .parquet"
            raise TableError(f"{folder} has {files_there}", culprit=table.name)
        return _RawTable(table, _stored(files[0], table.csv or CsvFormat()))

    def column(self, name: str) -> pa.Array:
        """Return one column as a single array."""
        if name not in self.columns.column_names:
            raise TableError(
                f"{self.table.name} has no column {name!r}; it has {listed(self.columns.column_names)}", culprit=name
            )
        return self.columns[name].combine_chunks()

    def keys(self, name: str) -> pa.Array:
        """Return a column of keys as text. Whole numbers have one spelling, whatever their stored type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.column(name)
        if pa.types.is_floating(column.type):
            column = pc.cast(column, pa.int64(), safe=False)
        text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
        return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)

    def codes(self) -> tuple[list[Places], NDArray[np.bool_]]:
        """Return the codes of all attributes, and which rows have a declared cell in each."""
        fits = np.ones(len(self.columns), dtype=np.bool_)
        columns = []
        for attribute in self.table.attributes:
            values, places = _distinct(self.column(attribute.name))
            own = label_codes(attribute)
            codes = np.array([_code(attribute, value, self.table.csv, own) for value in values], dtype=np.int64)[places]
            fits &= codes >= 0
            columns.append(codes)
        return columns, fits


def _code(attribute: Attribute, value: object, written: CsvFormat | None, own: Mapping[str, int]) -> int:
    """Return the cell of a value; -1 if no cell is declared or the value is ambiguous."""
    leaves = compatible(attribute, _text(attribute, value, written), {}, own)
    return next(iter(leaves)) if leaves is not None and len(leaves) == 1 else -1


def _text(attribute: Attribute, value: object, written: CsvFormat | None) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    if written is not None and isinstance(attribute, Integer | Real):
        if written.thousands:
            text = text.replace(written.thousands, "")
        text = text.replace(written.decimal, ".")
    return text


def _units(table: SchemaTable, raw: _RawTable, schema: Schema) -> tuple[LinkedTable, pa.Array]:
    codes, fits = raw.codes()
    column = schema.unit_column(table.name)
    assert column is not None
    ids = raw.keys(column)
    rows, read = _first_of_each(ids, fits)
    level = LinkedTable(table.name, table.attributes, tuple(each[rows] for each in codes), read, length=len(rows))
    return level, ids.take(rows)


def _first_of_each(ids: pa.Array, fits: NDArray[np.bool_]) -> tuple[Places, RowsRead]:
    """Return the rows that have a key; the first row if several share a key."""
    named = fits & ids.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(named)
    numbers = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)[places]
    rows = np.sort(places[np.unique(numbers, return_index=True)[1]])
    undeclared = int((~fits).sum())
    unnamed = int((fits & ~named).sum())
    return rows, RowsRead(len(ids), undeclared=undeclared, repeated=len(places) - len(rows), ownerless=unnamed)


def _children(
    table: SchemaTable, raw: _RawTable, above: tuple[str, str], parents: pa.Array, order: ChildOrder
) -> tuple[LinkedTable, pa.Array]:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes, fits = raw.codes()
    own = raw.keys(table.key) if table.key is not None and table.key in raw.columns.column_names else None
    repeated = _repeated(own, fits)
    parent = pc.index_in(raw.keys(above[1]), value_set=parents, skip_nulls=True)
    owner = pc.fill_null(parent, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    by = np.zeros(len(fits)) if order.by is None else _rank(raw, order.by)
    ranked = _ranked(fits & ~repeated & (owner >= 0), owner, -by if order.falling else by)
    count = np.bincount(owner[ranked], minlength=len(parents))
    at = np.arange(len(ranked)) - np.repeat(np.cumsum(count) - count, count)
    most = table.rows or int(count.max(initial=1))
    rows = ranked[at < most]
    dated = order.by is not None and isinstance(_attribute(table, order.by), Date | Timestamp)
    level = LinkedTable(
        table.name,
        table.attributes,
        tuple(each[rows] for each in codes),
        RowsRead(
            len(fits),
            undeclared=int((~fits).sum()),
            repeated=int(repeated.sum()),
            ownerless=int((fits & ~repeated & (owner < 0)).sum()),
            beyond=len(ranked) - len(rows),
        ),
        above=above[0],
        owner=owner[rows],
        most=most,
        order=order,
        days=np.floor(by[rows]).astype(np.int64) if dated else None,
        length=len(rows),
    )
    return level, pa.nulls(len(rows), pa.string()) if own is None else own.take(rows)


def _repeated(keys: pa.Array | None, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which valid rows repeat the key of an earlier row."""
    repeated = np.zeros(len(fits), dtype=np.bool_)
    if keys is not None:
        repeated = fits.copy()
        repeated[_first_of_each(keys, fits)[0]] = False
    return repeated


def _ranked(chosen: NDArray[np.bool_], owner: Places, by: NDArray[np.float64]) -> Places:
    """Return the chosen rows by parent and then by a number. Ties are in random order, because a file has no order."""
    places = np.flatnonzero(chosen)
    luck = np.random.default_rng(0).permutation(len(chosen))
    return places[np.lexsort((luck[places], by[places], owner[places]))]


def _attribute(table: SchemaTable, name: str) -> Attribute | None:
    return next((each for each in table.attributes if each.name == name), None)


def _rank(raw: _RawTable, name: str) -> NDArray[np.float64]:
    """Return a number per row that rises with a column: the day of a date. Missing values have the largest number."""
    values, places = _distinct(raw.column(name))
    attribute = _attribute(raw.table, name)
    return np.array([_number(attribute, value, raw.table.csv) for value in values])[places]


_LAST = 1e15


def _number(attribute: Attribute | None, value: object, written: CsvFormat | None) -> float:
    if value is None or value == "":
        return _LAST
    if isinstance(attribute, Date | Timestamp) or isinstance(value, date):
        from datetime import datetime

        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            return _LAST
        return moment.toordinal() + (moment.hour * 3600 + moment.minute * 60 + moment.second) / 86400
    try:
        number = float(str(value) if attribute is None else _text(attribute, value, written) or "nan")
    except ValueError:
        return _LAST
    return number if math.isfinite(number) else _LAST


def _distinct(column: pa.Array) -> tuple[list[object], Places]:
    """Return the distinct values, and the position of each row's value among them."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _distinct_ids(raw: Sequence[_RawTable]) -> pa.Array:
    import pyarrow as pa

    named = [each.keys(each.table.unit) for each in raw if each.table.unit is not None]
    return pa.chunked_array(named or [pa.array([], pa.string())]).unique().drop_null()


def _stored(path: Path, written: CsvFormat) -> pa.Table:
    """Read a file in its stored types; every column of a CSV file is text."""
    import pyarrow as pa
    import pyarrow.csv as text
    from pyarrow import parquet

    try:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            return parquet.read_table(path)
        delimiter = written.delimiter or ("\t" if ".tsv" in path.name.lower() else ",")
        encoding = "utf8" if codecs.lookup(written.encoding).name == "utf-8" else written.encoding
        read = text.ReadOptions(encoding=encoding)
        parse = text.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            text.open_csv(stream, read_options=read, parse_options=parse) as reader,
        ):
            names = reader.schema.names
        convert = text.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        with pa.input_stream(str(path), compression="detect") as stream:
            table = text.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
            return table.rename_columns(list(name_columns(table.column_names)))
    except (OSError, ValueError, pa.ArrowException):
        raise TableError(f"cannot read {path} as CSV or Parquet", culprit=path) from None
