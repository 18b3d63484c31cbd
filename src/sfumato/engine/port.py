"""The contract of an engine: counts and integer sums of cells, keys, and rows in batches or recoded.

An engine is one folder with a :class:`sfumato.engine.adapter.EngineAdapter`.  Its tables implement
:class:`ProtectedTable` and :class:`Encoded`; the conformance suite in ``tests/engine`` runs over every engine.

Codes follow :mod:`sfumato.domain.attribute`: declared cells, then the missing cell, then the undeclared cell.  A row
with a dropped value is in no tally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.domain.unit import SizeOf
from sfumato.engine.exact import Exact
from sfumato.engine.table_files import Content

if TYPE_CHECKING:
    import pyarrow as pa

Counts = NDArray[np.int64]

ROWS = "rows of the class"
"""Name of the column that says how many rows a row stands for."""


class ColumnKind(StrEnum):
    """The kind of the values of a column, in the detail that a domain needs."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    REAL = "real"
    DATE = "date"
    TIMESTAMP = "timestamp"
    OTHER = "other"


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, its kind, the engine's name of its type, and the form of its numbers in text.

    If ``moments`` is set, time stamps are points in time instead of clock times.  The ``header`` is the name in the
    table, which may be blank or repeated, or None if it is ``name``.
    """

    name: str
    kind: ColumnKind
    type: str
    decimal: str = "."
    thousands: str = ""
    moments: bool = False
    header: str | None = None


TILES = 32
"""Parts of equally many rows that a column of numbers is profiled in."""


@dataclass(frozen=True)
class DateProfile:
    """The dates in a column that mostly has dates.

    Attributes:
        kind: ``DATE``, or ``TIMESTAMP`` if they have a time of the day.
        others: the number of values that are no dates.
        formats: the formats of dates besides ISO 8601, the most frequent first.
        ambiguous: the formats in which no day is above 12, so that days and months cannot be distinguished.
    """

    kind: ColumnKind
    others: int
    formats: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """The facts from which a draft of a domain is made.  They are exact, for the table's owner only.

    ``values`` are the distinct non-null values in order, or None if there are more than the limit.  ``numbers``
    describes the numbers of a text column with more values: nearly all are numbers, and a few are codes, such as "N"
    for "not applicable".  ``tiles`` are the smallest numbers of TILES parts of equally many rows, in order, if a column
    holds more different numbers than the limit, or further apart.  A number that fills a part occurs twice.

    ``repeats`` are for a column whose values may name people: pairs of a number of rows, and of the number of values
    with that many rows, in order.  ``dates`` describe a column that mostly holds dates, but not all in the form of ISO
    8601. ``codes`` are values that mean missing ones.  All other parts describe the column without them.  ``counts``
    are the rows of each of ``values``.  ``sample`` are some values of a text column with more values than the limit.
    """

    column: Column
    held: int
    distinct: int
    missing: int
    minimum: object
    maximum: object
    values: tuple[object, ...] | None
    numbers: Profile | None = None
    tiles: tuple[int | float, ...] = ()
    repeats: tuple[tuple[int, int], ...] = ()
    dates: DateProfile | None = None
    codes: tuple[str | int | float, ...] = ()
    counts: tuple[int, ...] = ()
    sample: tuple[str, ...] = ()


@dataclass(frozen=True)
class SparseTable:
    """A sparse contingency table: distinct code tuples with their counts.

    ``codes`` has shape ``(groups, attributes)`` and an unsigned dtype; ``counts`` has shape ``(groups,)``.  Groups come
    in lexicographic order of their codes.  With ``units``, shape ``(groups,)``, each group has one unit: equal numbers
    are equal units.
    """

    attributes: tuple[str, ...]
    codes: NDArray[np.unsignedinteger]
    counts: Counts
    units: Counts | None = None


@dataclass(frozen=True, eq=False)
class Recode:
    """A rewriting of rows: code, coarser code, class, labels.

    Full-domain recoding coarsens each attribute by ``levels`` and lists the published classes once.  Local recoding
    leaves the codes unchanged and lists every tuple of codes.  A tuple is listed several times if its rows go to
    several classes; ``rows`` is the number of rows for each.

    Attributes:
        attributes: the quasi-identifiers.
        levels: for each attribute the coarser code of each of its codes, shape ``(size,)``.
        classes: coarser codes of the classes, shape ``(classes, attributes)``.
        labels: the text for each class: ``classes`` rows, one text column per attribute.
        rows: the number of rows for each class, shape ``(classes,)``, dealt at random; None: all of them.
        suppressed: the label of a row that is in no class; None drops such rows.
    """

    attributes: tuple[str, ...]
    levels: tuple[NDArray[np.unsignedinteger], ...]
    classes: NDArray[np.unsignedinteger]
    labels: pa.Table
    rows: Counts | None = None
    suppressed: str | None = None

    def turns(self) -> tuple[Counts, Counts]:
        """Return the first and last turn of each class among the rows of its tuple, counted from 1."""
        if self.rows is None:
            return np.ones(len(self.classes), np.int64), np.ones(len(self.classes), np.int64)
        _, tuples = np.unique(self.classes, axis=0, return_inverse=True)
        order = np.argsort(tuples, kind="stable")
        taken = np.cumsum(self.rows[order])
        starts = np.flatnonzero(np.diff(tuples[order], prepend=-1))
        before = np.repeat(taken[starts] - self.rows[order][starts], np.diff(np.append(starts, len(order))))
        last = np.empty_like(taken)
        last[order] = taken - before
        return last - self.rows + 1, last


@runtime_checkable
class ProtectedTable(Protocol):
    """A protected table in its engine.

    Its owner opens it.  Opening refuses a table without rows, and the message says so.  Among several tables about the
    same people only a table that lists all of them is refused for that.
    """

    def schema(self) -> tuple[Column, ...]:
        """The columns in order; read no row."""
        ...

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Return facts for a draft domain.  Not private: for the owner of the table only."""
        ...

    def values(self, name: str) -> pa.ChunkedArray:
        """Return one column unchanged, in the order of the rows.  It is not private.

        It is for the owner of the table only, whose local randomizer perturbs every value.

        Raises:
            TableError: there is no such column.
        """
        ...

    def distinct_texts(self, name: str, among: Sequence[str] = ()) -> tuple[str, ...]:
        """Return at most 500 distinct values of a column as text; with ``among`` only these.

        They are not private: they show the owner of the table which columns hold the same keys.

        Raises:
            TableError: there is no such column.
        """
        ...

    def write_columns(self, attributes: Sequence[str], ids: Sequence[str], out: Path) -> None:
        """Write columns to a Parquet file (on Spark a directory of them), which encodes to the same cells as the table.

        It is not private: it is for a copy that is protected like the table.

        Args:
            attributes: columns that are read as values.
            ids: columns whose values are only compared, such as ids, keys, and columns whose values are discovered.
            out: the file, which ends in ``.parquet``; no file remains after a failure.

        Raises:
            TableError: there is no such column, or a column is of a type that Parquet does not hold.
            OSError: the file cannot be written.
        """
        ...

    def content(self) -> str:
        """Name all current rows and columns, hexadecimal.

        The name is the same for the same rows and columns in any order and any layout of files.
        """
        ...

    def encode_with_content(self, domain: Domain) -> tuple[Recodable, Content]:
        """Encode, and name the content, both of one state of the table.

        Raises:
            TableError: as for :meth:`encode`.
            EngineError: the table was written while it was read.
        """
        ...

    def encode(self, domain: Domain) -> Recodable:
        """Read the table once, and return its encoded rows.

        They are codes in the smallest unsigned integers and numbers clamped to their declared bounds.  At most
        ``domain.unit.rows`` rows per unit stay; all rows of a missing id are dropped.  The rows of a unit that stay are
        drawn by a keyed hash of id, row and repetition.  The draw is as good as uniform, independent of other units and
        of the order of rows, and the same at every reading.  So a retried task or a second opening has the same rows.

        Raises:
            TableError: a column is missing, has no mapping to its attribute, or the table cannot be read.
        """
        ...


class Encoded(Protocol):
    """An encoded, bounded table that can be counted."""

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""
        ...

    @property
    def version(self) -> str:
        """The name of the encoded rows: the same rows under the same domain give the same name, hexadecimal."""
        ...

    def ready(self) -> None:
        """Refuse rows that can no longer be counted as they were encoded.

        Raises:
            EngineError: their connection is lost, or their files were written since.
        """
        ...

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """Return one contingency table per clique, flat in C order, from a single pass over the rows.

        The empty clique counts the rows.
        """
        ...

    def groups(self, attributes: tuple[str, ...], where: Predicate | None = None) -> Exact[SparseTable]:
        """Return the contingency table of ``attributes`` without its empty cells, for domains too large to be dense."""
        ...

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: Predicate | None = None) -> Exact[Counts]:
        """Return the sum of round(clamped value / unit) over each cell of ``by``, flat in C order.

        ``value`` names an integer or real attribute.  Rows whose value is missing or undeclared add nothing.
        """
        ...

    def moments(
        self, value: str, by: tuple[str, ...], *, unit: Fraction, degree: int, where: Predicate | None = None
    ) -> Exact[Counts]:
        """Return sums of k^0 .. k^degree over each cell of ``by``, flat in C order.

        The shape is ``(cells of by * (degree + 1),)``.  k is round(clamped value / unit) minus the rounded minimum of
        the attribute, so it is never negative.  Rows whose value is missing or undeclared are in none of the sums.
        """
        ...

    def units(self, by: tuple[str, ...], where: Predicate | None = None) -> Exact[Counts]:
        """Return the number of distinct units with a row in each cell of ``by``, flat in C order."""
        ...

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: Predicate | None = None
    ) -> Exact[Counts]:
        """Return the counts of clamped ``value`` between ``edges`` for each cell of ``by``, flat in C order.

        Bins are closed on the left, the last on both sides: shape ``(cells of by * (edges - 1),)``.
        """
        ...

    def round_numbers(self, value: str, steps: Sequence[int]) -> Exact[Counts]:
        """Return the counts of rows by the last of ``steps`` that divides the clamped ``value``, in each of its cells.

        Rows that no step divides are counted last: shape ``(cells of value * (steps + 1),)``, flat in C order.
        """
        ...

    def dropped(self, most: int, where: Predicate | None = None) -> Exact[Counts]:
        """Return the number of rows over the bound that meet ``where``, at most ``most`` per unit: shape ``(1,)``.

        The engine re-reads the table.
        """
        ...

    def unit_sizes(self, starts: tuple[int, ...], of: SizeOf) -> Exact[Counts]:
        """Return the number of units per size, before any bound on them: shape ``(starts,)``.

        There is a bin per start, the last one open.  The engine re-reads the table.
        """
        ...

    def derived(self, name: str) -> Encoded:
        """Return the rows of a table derived from the same units, by its name.

        Raises:
            TableError: there is no such table.
        """
        ...

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """Return the distinct values of raw columns as text, with column ``units``, the number of their distinct units.

        The columns need not be in the domain.  A unit counts for at most ``domain.unit.rows`` values, chosen by a keyed
        hash.  Rows with a missing key are dropped.  The engine re-reads the table.  The result may be released only
        behind a stability threshold.
        """
        ...

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse columns that :meth:`keys` could not use; read no row.

        Raises:
            QueryError: no columns, a repeated column, or a column named ``units``.
            TableError: a column that the table does not have.
        """
        ...

    def batches(self, attributes: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """Yield the encoded rows in batches of at most 64 k, with one column of codes per attribute.

        Their order has no meaning, but is the same at every call.
        """
        ...


class Recodable(Encoded, Protocol):
    """An encoded table whose raw rows can be rewritten: the result of encoding a table on an engine.

    For ``anonymize`` alone: rewritten rows carry no differential privacy.
    """

    def rows_before_drop(self) -> Exact[int]:
        """Return the number of rows before the domain drops any, at most ``domain.unit.rows`` per unit.

        The engine re-reads the table.
        """
        ...

    def unbounded(self) -> Exact[int]:
        """Return the number of all rows, also of rows that the domain drops, over a bound or without an id.

        The engine re-reads the table.
        """
        ...

    def unit_groups(self, attributes: tuple[str, ...]) -> Exact[SparseTable]:
        """Return the contingency table of ``attributes``, with the unit of each group.

        Raises:
            QueryError: every row is a unit of its own.
        """
        ...

    def held(self, column: str) -> Exact[pa.Table]:
        """Return distinct values of a raw column as text, with column ``units``: the number of different units of each.

        No bound on the rows per unit applies.  The engine re-reads the table.

        Raises:
            TableError: a column that the table does not have.
        """
        ...

    def refuse_missing(self, columns: Sequence[str]) -> None:
        """Refuse columns that the table does not have; read no row.

        Raises:
            TableError: a column that the table does not have.
        """
        ...

    def recoded(self, recode: Recode, raw: tuple[str, ...]) -> Exact[pa.Table]:
        """Return the rewritten rows in random order: the columns of ``recode.labels``, then the ``raw`` columns.

        The engine re-reads the table.
        """
        ...

    def write_recoded(self, recode: Recode, raw: tuple[str, ...], out: Path) -> None:
        """Write the rows of :meth:`recoded` to ``out``, a .csv or .parquet file (on Spark a directory of them).

        If possible, the engine does not hold them in memory.  No file remains after a failure.
        """
        ...

    def written(self, out: Path, names: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """Return the text columns ``names`` of a file written by :meth:`write_recoded`.

        The result has one row each, or the distinct ones with column ``ROWS`` if the engine counted them.
        """
        ...
