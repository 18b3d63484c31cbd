"""The interface of fitted models, the simplest model (independent tables), and the conversion of codes to rows.

A declared cell becomes a value.  A categorical cell becomes its declared value; a bin of numbers becomes a number drawn
uniformly from it.  A missing value becomes null.  The cell of unknown values becomes the text ``(other)`` in a text
column, which is its public label.  In other columns it becomes null, because no number or boolean means "not declared".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Date, Dated, Domain, Integer, Numeric, Real, Timestamp
from sfumato.domain.attribute import null_code, unknown_code
from sfumato.domain.calendar import DAY
from sfumato.errors import InputError, QueryError, SizeError
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.noisy_table import NoisyDistance, NoisyTable, restore_tables, tables_payload
from sfumato.model.row_sampling import CodeArray
from sfumato.synthesize.cell_positions import CellPosition, sample_within_cells
from sfumato.workload.counting_queries import Workload


class Model(Protocol):
    """A distribution over the cells of a domain, fitted to noisy measurements.  It is public, so sampling it is
    free.
    """

    @property
    def domain(self) -> Domain:
        """The attributes covered."""
        ...

    @property
    def total(self) -> int:
        """Number of rows of a sample."""
        ...

    @property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The noisy tables that the model was fitted to; empty if queries were measured instead of tables."""
        ...

    @property
    def distances(self) -> tuple[NoisyDistance, ...]:
        """The measured distances of pairs of the model from the table."""
        ...

    @property
    def positions(self) -> Mapping[str, CellPosition]:
        """The measured positions of numbers within their cells."""
        ...

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Return expected counts of a marginal, flat in C order."""
        ...

    def answers(self, workload: Workload) -> FloatArray:
        """Return expected answers to a workload: shape ``(queries,)``."""
        ...

    def sample(self, random: np.random.Generator, rows: int | None = None) -> CodeArray:
        """Return ``rows`` rows of codes in random order: shape ``(rows, attributes)``.  Default: ``total`` rows."""
        ...

    def blocks(self, random: np.random.Generator, rows: int | None = None) -> Iterator[CodeArray]:
        """Return the same rows, one block at a time."""
        ...


@dataclass(frozen=True, eq=False)
class Product:
    """Non-negative tables over disjoint attributes, each summing to about ``total`` rows.

    Attributes:
        domain: the attributes of all tables, in the order of the protected table.
        parts: the tables, which are independent of each other.
        total: number of rows that ``sample`` draws.
        tables: the noisy tables, if tables of cells were measured.
    """

    domain: Domain
    parts: tuple[Factor, ...]
    total: int
    tables: tuple[NoisyTable, ...] = ()
    positions: Mapping[str, CellPosition] = field(default_factory=dict)  # none are measured
    distances: tuple[NoisyDistance, ...] = ()  # none are measured

    @staticmethod
    def from_parts(
        domain: Domain, parts: tuple[Factor, ...], total: int, *, tables: tuple[NoisyTable, ...] = ()
    ) -> Product:
        """Return a model of those attributes of ``domain`` that the parts cover."""
        covered = {name for part in parts for name in part.attributes}
        return Product(domain.project(name for name in domain.names if name in covered), parts, total, tables)

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Return expected counts of a marginal, flat in C order.

        Raises:
            QueryError: no part covers an attribute.
        """
        if missing := [name for name in attributes if name not in self.domain]:
            raise QueryError(f"the release does not cover {', '.join(missing)}", culprit=missing)
        joined = Factor((), np.array(1.0))
        for index, part in enumerate(self.parts):
            marginal = part.project([name for name in part.attributes if name in attributes])
            share = (1.0 if index else self.total) / max(part.total, np.finfo(float).tiny)
            joined = joined * Factor(marginal.attributes, marginal.values * share)
        return joined.project(attributes).values.ravel()

    def answers(self, workload: Workload) -> FloatArray:
        """Return expected answers to a workload: shape ``(queries,)``."""
        return workload.answers(self.domain, self.cells(workload.attributes(self.domain)))

    def sample(self, random: np.random.Generator, rows: int | None = None) -> CodeArray:
        """Draw ``rows`` rows, by default ``total``, in random order: shape ``(rows, attributes)``.

        Counts of cells are rounded together, not drawn one by one, so each cell is within one row of its table.
        """
        size = self.total if rows is None else rows
        codes = np.empty((size, len(self.domain)), dtype=np.int32)
        for part in self.parts:
            counts = round_to_total(part.values.ravel(), size, random)
            cells = random.permutation(np.repeat(np.arange(counts.size), counts))
            for name, column in zip(part.attributes, np.unravel_index(cells, part.values.shape), strict=True):
                codes[:, self.domain.index(name)] = column
        return codes

    def blocks(self, random: np.random.Generator, rows: int | None = None) -> Iterator[CodeArray]:
        """Yield the rows of :meth:`sample` in one block, because the counts of all rows are rounded together."""
        yield self.sample(random, rows)

    def payload(self) -> dict[str, Any]:
        """Return the payload for the ledger; :meth:`restore` reads it."""
        parts = {f"part {index}": part.values for index, part in enumerate(self.parts)}
        named = {"attributes": [list(part.attributes) for part in self.parts], "total": self.total}
        return parts | named | tables_payload(self.tables)

    @staticmethod
    def restore(domain: Domain, payload: dict[str, Any]) -> Product:
        """Restore a stored model over the domain of the protected table."""
        parts = tuple(
            Factor(tuple(names), payload[f"part {index}"]) for index, names in enumerate(payload["attributes"])
        )
        return Product.from_parts(domain, parts, int(payload["total"]), tables=restore_tables(domain, payload))


OTHER = "(other)"
MOST_VALUES = 1 << 30  # codes, 4 GiB


def refuse_large(rows: int, attributes: int) -> None:
    """Refuse a sample that would not fit in memory.

    Raises:
        InputError: the number of rows is invalid.
        SizeError: the number of rows is too large.
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise InputError(f"a sample has a whole number of rows from 0, not {rows}", culprit=rows)
    if int(rows) * attributes > MOST_VALUES:
        raise SizeError(
            f"{rows:,} rows of {attributes} attributes are more than the {MOST_VALUES:,} values that are sampled at "
            "once; ask for fewer rows",
            culprit=rows,
        )


def round_to_total(weights: FloatArray, total: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return integer counts that sum to ``total``, each within one of its weight scaled to that sum, without bias.

    This is systematic sampling (Madow 1949): one uniform offset decides every remainder.  So the sum of any run of
    neighboring cells is also within one.

    >>> random = np.random.default_rng(1)
    >>> counts = round_to_total(np.array([0.5, 2.0, 1.5]), 4, random)
    >>> int(counts.sum()), int(counts[1])
    (4, 2)
    """
    ends = np.cumsum(weights)
    if ends[-1] <= 0:
        weights = np.ones_like(weights)
        ends = np.cumsum(weights)
    ends = ends / ends[-1] * total
    nearest = np.rint(ends)
    ends = np.where(np.abs(ends - nearest) < 1e-6, nearest, ends)  # noqa: PLR2004  (sums of floats miss whole numbers)
    steps = np.floor(ends + random.uniform())
    steps[-1] = total
    counts: NDArray[np.int64] = np.diff(steps, prepend=0).astype(np.int64)
    return counts


BLOCK = 1 << 18
"""Rows that are converted to Arrow columns, and written, at a time: a column of numbers takes 2 MB."""


def filled(blocks: Iterable[CodeArray], rows: int, domain: Domain, kind: type[np.integer[Any]]) -> CodeArray:
    """Return blocks of codes as one array of an integer type, shape ``(rows, attributes)``."""
    codes = np.empty((max(rows, 0), len(domain)), dtype=kind, order="F")
    start = 0
    for block in blocks:
        codes[start : start + len(block)] = block
        start += len(block)
    return codes


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Rows of codes as typed Arrow columns, made in blocks, and the same on each call.

    Attributes:
        domain: domain of the codes.
        codes: shape ``(rows, attributes)``, in the smallest type that holds them.
        random: generator of values within a cell; each call uses a copy.
        metadata: metadata of the schema.
        positions: measured positions of numbers in their cells.
    """

    domain: Domain
    codes: CodeArray
    random: np.random.Generator
    metadata: Mapping[bytes, bytes]
    positions: Mapping[str, CellPosition] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """The number of rows of all blocks."""
        return len(self.codes)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of each block."""
        return self.domain.names

    def __iter__(self) -> Iterator[pa.Table]:
        random = deepcopy(self.random)
        for start in range(0, max(len(self.codes), 1), BLOCK):
            block = to_arrow(self.domain, self.codes[start : start + BLOCK], random, positions=self.positions)
            yield block.replace_schema_metadata(dict(self.metadata))


def to_arrow(
    domain: Domain,
    codes: CodeArray,
    random: np.random.Generator,
    *,
    positions: Mapping[str, CellPosition] | None = None,
) -> pa.Table:
    """Return rows of codes, shape ``(rows, attributes)``, as typed Arrow columns.

    Numbers are drawn evenly from their cells, or as the measured ``positions`` say.  A date is the first day of its
    cell, and a time stamp the first moment.  The release measures nothing finer than the cells.  Random days and hours
    would suggest knowledge of weekends and nights that it does not have.
    """
    held = positions or {}
    return pa.table(
        {
            attribute.name: _column(attribute, codes[:, index], random, held.get(attribute.name))
            for index, attribute in enumerate(domain)
        }
    )


def _column(
    attribute: Attribute, codes: CodeArray, random: np.random.Generator, position: CellPosition | None
) -> pa.Array:
    declared = codes < attribute.declared
    inside = np.where(declared, codes, 0)
    if isinstance(attribute, Integer | Real) and attribute.typical is not None:
        return _opened(attribute, _column(replace(attribute, typical=None), codes, random, position), codes)
    measured = position is not None and (any(position.cells) or position.rounding is not None)
    if position is not None and measured and isinstance(attribute, Integer | Real):
        drawn = sample_within_cells(attribute, inside, position, random)
        if isinstance(attribute, Real):
            return _reals(attribute, inside, drawn, ~declared)
        return pa.array(drawn, pa.int64(), mask=~declared)
    match attribute:
        case Categorical():
            return _categorical(attribute, codes)
        case Integer(minimum=minimum, edges=None):
            return pa.array(minimum + inside.astype(np.int64), pa.int64(), mask=~declared)
        case Integer():
            low, high = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.int64).T
            return pa.array(random.integers(low[inside], high[inside], endpoint=True), pa.int64(), mask=~declared)
        case Real():
            low, high = _real_bounds(attribute)
            return _reals(attribute, inside, random.uniform(low[inside], high[inside]), ~declared)
        case Date() | Timestamp():
            kind = pa.date32() if isinstance(attribute, Date) else pa.timestamp("s")
            codes, places = np.unique(inside, return_inverse=True)
            starts = pa.array([attribute.bounds(code)[0] for code in codes.tolist()], kind)
            return starts.take(pa.array(places, mask=~declared))


def _reals(attribute: Real, inside: NDArray[Any], drawn: FloatArray, missing: NDArray[np.bool_]) -> pa.Array:
    """Return numbers in cells.  A number that rounds up to the upper edge is moved back, because the edge is in the
    next cell.
    """
    low, high = _real_bounds(attribute)
    closed = np.array([attribute.is_closed(code) for code in range(attribute.declared)])
    last = np.where(closed, high, np.nextafter(high, low))
    return pa.array(np.minimum(drawn, last[inside]), pa.float64(), mask=missing)


def _real_bounds(attribute: Real) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper edges of the declared cells; both edges of a point are the point."""
    low, high = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64).T
    return low, high


def _opened(attribute: Integer | Real, drawn: pa.Array, codes: CodeArray) -> pa.Array:
    """Return the column with the typical value in rows of the last cell."""
    typical = pa.scalar(attribute.typical, drawn.type)
    return pc.if_else(pa.array(codes == attribute.declared - 1), typical, drawn)


def _categorical(attribute: Categorical, codes: CodeArray) -> pa.Array:
    values: list[str | int | bool | None] = [*attribute.values, *([None] * (attribute.size - attribute.declared))]
    other = unknown_code(attribute)
    if other is not None and isinstance(attribute.values[0], str):
        values[other] = OTHER
    return pa.array(values).take(pa.array(codes))


def codes_of(attribute: Attribute, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the cells of the rows of a synthetic column from :func:`to_arrow`, shape ``(rows,)``.

    The cells are distinguished as in :func:`read_back`.

    Raises:
        InputError: the column has another type, or contains an undeclared value.
    """
    missing, other = null_code(attribute), unknown_code(attribute)
    nothing = missing if missing is not None else other
    values = column.combine_chunks()
    empty = np.asarray(values.is_null())
    if isinstance(attribute, Categorical):
        declared = _categorical(attribute, np.arange(attribute.size, dtype=np.int32))
        text = other is not None and pa.types.is_string(declared.type)
        declared_values = declared if text else declared.slice(0, attribute.declared)
        numbers = np.arange(attribute.size)[: len(declared_values)]
        if values.type != declared.type:
            raise _odd(attribute)
        places = np.asarray(
            pc.fill_null(pc.index_in(values, value_set=declared_values.drop_null()), -1), dtype=np.int64
        )
        codes = numbers[np.asarray(declared_values.is_valid())][places]
        wrong = (places < 0) & ~empty
    else:
        numbers, starts, (least, most) = _in_order(attribute, values)
        codes = np.clip(np.searchsorted(starts, numbers, side="right") - 1, 0, attribute.declared - 1)
        wrong = ~((numbers >= least) & (numbers <= most)) & ~empty  # NaN fails both comparisons
    if wrong.any() or (empty.any() and nothing is None):
        raise _odd(attribute)
    return np.where(empty, -1 if nothing is None else nothing, codes)


def read_back(attribute: Attribute, codes: NDArray[Any]) -> NDArray[Any]:
    """Return codes as a file distinguishes them: without a text for unknown values, null is a missing value."""
    missing, other = null_code(attribute), unknown_code(attribute)
    text = isinstance(attribute, Categorical) and isinstance(attribute.values[0], str)
    if missing is None or other is None or text:
        return codes
    return np.where(codes == other, missing, codes)


def _in_order(attribute: Numeric | Dated, values: pa.Array) -> tuple[NDArray[Any], NDArray[Any], tuple[float, float]]:
    """Return the numbers of a column, the first number of each cell, and the least and greatest declared numbers.

    Dates are converted to the unit of the spans of cells, for any unit of time in the file.
    """
    codes = range(attribute.declared)
    if isinstance(attribute, Integer | Real):
        if values.type not in (pa.int64(), pa.float64()):
            raise _odd(attribute)
        numbers = np.asarray(pc.fill_null(values, attribute.minimum), dtype=np.float64)
        starts = np.array([attribute.bounds(code)[0] for code in codes], dtype=np.float64)
        return numbers, starts, (attribute.minimum, attribute.maximum)
    days = isinstance(attribute, Date)
    if not (pa.types.is_date32(values.type) if days else pa.types.is_timestamp(values.type)):
        raise _odd(attribute)
    integers = values.cast(pa.int32() if days else pa.timestamp("s"), safe=False).cast(pa.int64())
    since = date(1970, 1, 1).toordinal() * (1 if days else DAY)
    spans = np.array([attribute.span(code) for code in codes])
    moments = np.asarray(pc.fill_null(integers, 0), dtype=np.int64) + since
    return moments, spans[:, 0], (int(spans[0, 0]), int(spans[-1, 1]) - 1)


def _odd(attribute: Attribute) -> InputError:
    return InputError(f"the column {attribute.name} holds what its domain does not declare", culprit=attribute.name)
