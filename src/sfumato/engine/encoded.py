"""The port's ``Encoded`` for all engines, over the store of an engine's encoded rows."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain, Unit, Unknown
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.arrays import KeptColumns
from sfumato.engine.contingency import (
    TOTAL_CELLS,
    CellStatements,
    CoverPlan,
    condition,
    fixed_bounds,
    increasing,
    plan_covers,
    power_bounds,
)
from sfumato.engine.dialect import Dialect
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Column, ColumnKind, Counts, Encoded, ProtectedTable, Recode, SparseTable
from sfumato.errors import QueryError, SizeError, TableError

_EVERY_ROW = 1 << 40  # more rows than any unit has


class EncodedStore(Protocol):
    """Encoded, bounded rows in an engine: columns ``c0 …``, ``v …``, ``u`` of ``relation``."""

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of the engine."""
        ...

    @property
    def relation(self) -> str:
        """The FROM clause of the rows."""
        ...

    @property
    def cover_cells(self) -> int:
        """The preferred number of cells of tables that tally several marginals together."""
        ...

    def ready(self) -> None:
        """Refuse if the rows can no longer be counted as they were encoded.

        Raises:
            EngineError: the connection is lost, or files that the engine would read again were written.
        """
        ...

    def query(self, statement: str) -> pa.Table:
        """Return the result of a SELECT over ``relation``: never rows of the table, always groups of them."""
        ...

    def tally(self, plan: CoverPlan, where: Predicate | None) -> Sequence[Counts]:
        """Return one flat table per cover of the plan, over the rows that meet ``where``."""
        ...

    def scan(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield codes in batches of at most 64 k rows, columns ``c…`` by position in the domain."""
        ...

    def fingerprint(self) -> str:
        """Return a name of the rows that does not depend on their order."""
        ...

    def dropped(self, most: int, where: Predicate | None) -> int:
        """Count the rows over the bound that meet ``where`` again, at most ``most`` per unit."""
        ...

    def unit_sizes(self, starts: Sequence[int], of: SizeOf) -> Sequence[Sequence[int]]:
        """Return pairs of a bin of :func:`sfumato.engine.bounding.unit_sizes` and its units, from the raw table."""
        ...

    def keys(self, columns: tuple[str, ...]) -> pa.Table:
        """Return distinct raw values as text with their number of units (column ``units``), each unit bounded."""
        ...

    def recode(self, recode: Recode, raw: tuple[str, ...], out: Path | None) -> pa.Table | None:
        """Return rewritten rows in random order, or write them to ``out``."""
        ...

    def written(self, out: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield text columns of a written file: one row each, or the distinct ones with column ``ROWS``."""
        ...


def refuse_missing(table: ProtectedTable, columns: Sequence[str]) -> None:
    """Refuse columns that the table does not have; read no row."""
    known = {column.name for column in table.schema()}
    for column in columns:
        if column not in known:
            raise TableError(f"the table has no column {column!r}", culprit=column)


class LaterStore:
    """A store that is made when its rows are first counted; before that, none of its facts depends on a row."""

    def __init__(self, domain: Domain, make: Callable[[], EncodedStore], ready: Callable[[], None]) -> None:
        """Take the function that makes the store.

        Args:
            domain: the domain of the rows.
            make: encodes them; it is called once, by one thread, unless it raises.
            ready: refuses rows that can no longer be encoded, before the encoding.
        """
        self.domain = domain
        self._make = make
        self._ready = ready
        self._made: EncodedStore | None = None
        self._making = threading.Lock()

    def made(self) -> EncodedStore:
        """Return the store, made at the first call."""
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def ready(self) -> None:
        """Refuse rows that can no longer be counted or encoded, like :meth:`EncodedStore.ready`."""
        self._ready() if self._made is None else self._made.ready()


class EncodedRows:
    """A :class:`sfumato.engine.port.Encoded` over a store, with some columns cached in this process."""

    def __init__(
        self,
        store: EncodedStore | LaterStore,
        table: ProtectedTable,
        columns: KeptColumns | None = None,
        *,
        derived: Mapping[str, Encoded] | None = None,
    ) -> None:
        self._store = store
        self._derived = derived or {}
        self.table = table
        self._columns = columns

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""
        return self._store.domain

    @property
    def store(self) -> EncodedStore:
        """The store of the encoded rows; a view is encoded when it is first counted."""
        return self._store.made() if isinstance(self._store, LaterStore) else self._store

    @property
    def version(self) -> str:
        """The name of the encoded rows; it is derived from the protected rows, so it must not be shown.

        Raises:
            EngineError: as for :meth:`ready`.
        """
        self.store.ready()
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        own = self.store.fingerprint()
        if not self._derived:
            return own
        parts = [own, *(table.version for _, table in sorted(self._derived.items()))]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def ready(self) -> None:
        """Refuse rows that can no longer be counted; a release calls this before it charges.

        Raises:
            EngineError: their connection is lost, or their files were written since.
        """
        self._store.ready()

    def deriving(self, tables: Mapping[str, Encoded]) -> EncodedRows:
        """Return the same rows, with tables derived from the same units, which are part of the version."""
        return EncodedRows(self._store, self.table, self._columns, derived=tables)

    def derived(self, name: str) -> Encoded:
        """Return the rows of a table derived from the same units.

        Raises:
            TableError: there is no such table.
        """
        if name not in self._derived:
            raise TableError(f"no table {name!r} was derived of these rows", culprit=name)
        return self._derived[name]

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """Return one contingency table per clique, flat in C order, from a single pass over the rows."""
        if not cliques:
            return ()
        places = [tuple(self.domain.index(name) for name in clique) for clique in cliques]
        for clique in cliques:
            _refuse_repeats(clique)
        plan = plan_covers(places, self.domain.shape, cover_cells=self.store.cover_cells)
        condition(where, self.domain)  # refuse before anything is read
        held = None if self._columns is None else self._columns.tally(plan, where)
        tables = self.store.tally(plan, where) if held is None else held
        return tuple(Exact(counts) for counts in plan.project(tables))

    def groups(self, attributes: tuple[str, ...], where: Predicate | None = None) -> Exact[SparseTable]:
        """Return the contingency table of ``attributes`` without its empty cells."""
        return Exact(self._grouped(attributes, where, by_unit=False))

    def unit_groups(self, attributes: tuple[str, ...]) -> Exact[SparseTable]:
        """Return the contingency table of ``attributes``, with the unit of each group."""
        if self.domain.unit.column is None:
            raise QueryError("every row is a unit of its own here", culprit=attributes)
        return Exact(self._grouped(attributes, None, by_unit=True))

    def _grouped(self, attributes: tuple[str, ...], where: Predicate | None, *, by_unit: bool) -> SparseTable:
        _refuse_repeats(attributes)
        if not attributes:
            raise QueryError("groups need at least one attribute", culprit=attributes)
        groups = self.store.query(self._statements(attributes, where).groups(by_unit=by_unit))
        widest = np.min_scalar_type(max(self.domain[name].size for name in attributes) - 1)
        codes = np.column_stack([groups.column(place).to_numpy().astype(widest) for place in range(len(attributes))])
        units = _numbers(groups.column("u")) if by_unit else None
        return SparseTable(attributes, codes, groups.column("total").to_numpy().astype(np.int64), units)

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: Predicate | None = None) -> Exact[Counts]:
        """Return the sum of round(clamped value / unit), half to even, over each cell of ``by``."""
        cells, bounds = self._checked_cells(by, where), fixed_bounds(self.domain, value, unit)
        held = (
            None
            if self._columns is None
            else self._columns.powers(value, by, unit=unit, degree=1, bounds=bounds, where=where)
        )
        if held is not None:
            return Exact(held @ np.array([bounds[0], 1]))
        return self._dense(self._statements(by, where).sums(value, unit), cells)

    def moments(
        self, value: str, by: tuple[str, ...], *, unit: Fraction, degree: int, where: Predicate | None = None
    ) -> Exact[Counts]:
        """Return sums of powers of the fixed-point value, counted from its minimum, over each cell of ``by``."""
        size, bounds = self._checked_cells(by, where), power_bounds(self.domain, value, unit, degree)
        held = (
            None
            if self._columns is None
            else self._columns.powers(value, by, unit=unit, degree=degree, bounds=bounds, where=where)
        )
        if held is not None:
            return Exact(held.reshape(-1))
        rows = self.store.query(self._statements(by, where).moments(value, unit, degree))
        sums = np.zeros((size, degree + 1), dtype=np.int64)
        cells = _integers(rows.column("cell"))
        for power in range(degree + 1) if len(rows) else ():
            sums[cells, power] = _integers(rows.column(f"m{power}"))
        return Exact(sums.reshape(-1))

    def units(self, by: tuple[str, ...], where: Predicate | None = None) -> Exact[Counts]:
        """Return the number of distinct units with a row in each cell of ``by``."""
        return self._dense(self._statements(by, where).units(), self._cells(by))

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: Predicate | None = None
    ) -> Exact[Counts]:
        """Return counts of clamped ``value`` between neighboring ``edges`` for each cell of ``by``."""
        cells, numbers = self._checked_cells(by, where), increasing(edges)
        numeric(self.domain, value)
        held = None if self._columns is None else self._columns.bins(value, numbers, by, where)
        if held is not None:
            return Exact(held)
        return self._dense(self._statements(by, where).bins(value, numbers), cells * (len(edges) - 1))

    def round_numbers(self, value: str, steps: Sequence[int]) -> Exact[Counts]:
        """Return the rows of each cell of ``value`` by the last of ``steps`` that divides the value."""
        size = self._checked_cells((value,), None) * (len(steps) + 1)
        numeric(self.domain, value)
        return self._dense(self._statements((value,), None).round_numbers(value, steps), size)

    def dropped(self, most: int, where: Predicate | None = None) -> Exact[Counts]:
        """Return the number of rows that the bound on rows per unit drops, at most ``most`` of one unit."""
        condition(where, self.domain)
        rows = 0 if self.domain.unit.column is None else self.store.dropped(most, where)
        return Exact(np.array([rows], dtype=np.int64))

    def unit_sizes(self, starts: tuple[int, ...], of: SizeOf) -> Exact[Counts]:
        """Return the number of units per size, before any bound on them."""
        if self.domain.unit.column is None:
            raise QueryError("every row is a unit of its own here", culprit=starts)
        sizes = np.zeros(len(starts), dtype=np.int64)
        for place, units in self.store.unit_sizes(starts, of):
            sizes[place] = units
        return Exact(sizes)

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """Return distinct values of raw columns with their number of distinct units."""
        self.refuse_keys(columns)
        order = [(column, "ascending") for column in columns]
        return Exact(self.store.keys(columns).sort_by(order))

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse columns that the table does not have."""
        _refuse_repeats(columns)
        if not columns or "units" in columns:
            raise QueryError("keys are one or more columns, none of them called 'units'", culprit=columns)
        self.refuse_missing(columns)

    def refuse_missing(self, columns: Sequence[str]) -> None:
        """Refuse columns that the table does not have; read no row."""
        refuse_missing(self.table, columns)

    def batches(self, attributes: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """Yield the encoded rows in batches of codes, with one column per attribute."""
        _refuse_repeats(attributes)
        scanned = self.store.scan([self.domain.index(name) for name in attributes])
        return Exact(batch.rename_columns(list(attributes)) for batch in scanned)

    def rows_before_drop(self) -> Exact[int]:
        """Return the number of rows before the domain drops any."""
        unit = self.domain.unit
        if not unit.per:
            return self._rows(unit)
        owned = self._rows(unit.bounded(rows=_EVERY_ROW, per=()))  # bounds by groups are of encoded rows
        return Exact(reveal(owned) - int(reveal(self.dropped(_EVERY_ROW))[0]))

    def unbounded(self) -> Exact[int]:
        """Return the number of all rows."""
        return self._rows(Unit.row())

    def held(self, column: str) -> Exact[pa.Table]:
        """Return distinct values of a raw column with their number of different units."""
        unit = self.domain.unit
        every = self._loose(unit if unit.column is None else unit.bounded(rows=_EVERY_ROW, per=()))
        return every.keys((column,))

    def _rows(self, unit: Unit) -> Exact[int]:
        """Return the number of rows under a unit."""
        return Exact(int(reveal(self._loose(unit).marginals([()])[0]).sum()))

    def _loose(self, unit: Unit) -> Encoded:
        """Return all rows under a unit: one attribute is encoded again, with a cell for each value."""
        loose = replace(next(iter(self.domain)), nullable=True, unknown=Unknown.CATEGORY)
        again = self.table.encode(Domain((loose,), unit=unit))
        self.store.ready()  # both results come from the same files
        return again

    def recoded(self, recode: Recode, raw: tuple[str, ...]) -> Exact[pa.Table]:
        """Return rewritten rows in random order."""
        return Exact(self.store.recode(self._checked(recode), raw, None))

    def write_recoded(self, recode: Recode, raw: tuple[str, ...], out: Path) -> None:
        """Write the rewritten rows to ``out``."""
        if out.suffix == ".csv":
            _refuse_unspoken([column for column in self.table.schema() if column.name in raw])
        self.store.recode(self._checked(recode), raw, out)

    def written(self, out: Path, names: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """Return the text columns of a written file, read back."""
        return Exact(self.store.written(out, names))

    def _checked(self, recode: Recode) -> Recode:
        sizes = [self.domain[name].size for name in recode.attributes]
        classes = len(recode.labels)
        fits = (
            [len(level) for level in recode.levels] == sizes
            and recode.classes.shape == (classes, len(sizes))
            and (recode.rows is None or recode.rows.shape == (classes,))
        )
        if not fits:
            raise QueryError("this recoding was made for another domain", culprit=recode)
        return recode

    def _statements(self, by: tuple[str, ...], where: Predicate | None) -> CellStatements:
        return CellStatements(self.store.relation, self.domain, self.store.dialect, by, where)

    def _cells(self, by: tuple[str, ...]) -> int:
        _refuse_repeats(by)
        cells = math.prod(self.domain[name].size for name in by)
        if cells > TOTAL_CELLS:
            raise SizeError(
                f"a table over {', '.join(by)} has {cells:,} cells, more than the {TOTAL_CELLS:,} that are "
                "counted at once; group by fewer attributes",
                culprit=by,
            )
        return cells

    def _checked_cells(self, by: tuple[str, ...], where: Predicate | None) -> int:
        """Return the number of cells of ``by``; a condition that does not fit is refused before anything is read."""
        condition(where, self.domain)
        return self._cells(by)

    def _dense(self, statement: str, cells: int) -> Exact[Counts]:
        rows = self.store.query(statement)
        counts = np.zeros(cells, dtype=np.int64)
        if len(rows):
            counts[_integers(rows.column("cell"))] = _integers(rows.column("total"))
        return Exact(counts)


def _numbers(units: pa.ChunkedArray) -> Counts:
    """Return a number for each unit, equal for equal units."""
    numbers: Counts = units.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _integers(column: pa.ChunkedArray) -> Counts:
    integers: Counts = column.cast(pa.int64()).to_numpy()
    return integers


_UNSPOKEN = ("BLOB", "BINARY", "BYTEA", "BIT", "[", "STRUCT", "ARRAY", "MAP", "UNION")  # in the names of types


def _refuse_unspoken(columns: Sequence[Column]) -> None:
    """Refuse columns whose notation in CSV differs between engines or does not exist."""
    for column in columns:
        if column.kind is ColumnKind.OTHER and any(mark in column.type.upper() for mark in _UNSPOKEN):
            raise TableError(
                f"{column.name!r} is of type {column.type}, which CSV cannot hold; write a .parquet file",
                culprit=column.name,
            )


def _refuse_repeats(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise QueryError("an attribute is named twice in one question", culprit=names)
