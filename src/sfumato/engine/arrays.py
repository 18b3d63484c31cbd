"""Encoded rows as arrays in this process.

``KeptColumns`` are columns of a table of DuckDB, read from it once and cached within a memory limit.  The choice of
cached columns follows from the number of rows and from earlier queries.  ``ArrayTable`` is a whole table of codes: the
engine of simulations, labs and tests.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer, Real
from sfumato.domain import predicate as p
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate, condition_mask, named
from sfumato.domain.unit import SizeOf
from sfumato.engine.contingency import CoverCounts, CoverPlan, even_width, fixed_bounds, totals
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Encoded, SparseTable
from sfumato.errors import QueryError, TableError

_Codes = NDArray[np.unsignedinteger[Any]]
Steps = tuple[NDArray[np.int32], NDArray[np.bool_] | None]  # units from the minimum; rows with a value, None: all

KEPT_BYTES = 1 << 28
_SLICE = 1 << 15  # rows at a time, so that intermediate results stay in the caches

_Array = TypeVar("_Array")


class KeptColumns:
    """A counter over columns in memory.  Every method returns None if the columns that it needs do not fit.

    Args:
        domain: the domain of the codes.
        rows: the number of rows.
        read: fills an array with a column of codes (``c…``) or of numbers (``v…``, NaN for none), by its name, always
            in the same order of rows.
    """

    def __init__(self, domain: Domain, rows: int, read: Callable[[str, NDArray[Any]], None]) -> None:
        self._domain = domain
        self._rows = rows
        self._read = read
        self._arrays: dict[object, Any] = {}
        self._bytes = 0
        self._lock = threading.RLock()  # so that two threads read a column only once
        _ALL.add(self)

    @staticmethod
    def bytes_in_all() -> int:
        """Return the bytes held by the columns of all tables of this process."""
        return sum(each._bytes for each in tuple(_ALL))  # noqa: SLF001  (its own)

    def tally(self, plan: CoverPlan, where: Predicate | None) -> Sequence[Counts] | None:
        """Return one flat table per cover of the plan."""
        used = {axis for cover in plan.covers for axis in cover}
        if any(self._codes(axis) is None for axis in used | {self._domain.index(name) for name in named(where)}):
            return None
        mask = self._where(where)
        nothing = np.empty(0, dtype=np.uint8)
        columns = [self._of(axis, mask) if axis in used else nothing for axis in range(len(plan.shape))]
        tally = CoverCounts(plan)
        tally.add(columns, self._rows if mask is None else int(np.count_nonzero(mask)))
        return tally.tables

    def powers(
        self,
        value: str,
        by: tuple[str, ...],
        *,
        unit: Fraction,
        degree: int,
        bounds: tuple[int, int],
        where: Predicate | None,
    ) -> Counts | None:
        """Return sums of k^0 .. k^degree over each cell of ``by``, shape ``(cells, degree + 1)``.

        k is the value in units, rounded half to even and clipped to ``bounds``, minus the lower bound.
        """
        steps = self._steps(value, unit, bounds) if self._held({*by} | named(where)) else None
        if steps is None:
            return None
        rounded, present = steps
        mask = _both(present, self._where(where))
        if mask is not None:
            rounded = rounded[mask]
        if not by:
            sums = [int(np.sum(_power(rounded, power), dtype=np.int64)) for power in range(1, degree + 1)]
            return np.array([[len(rounded), *sums]], dtype=np.int64)
        cells, size = self._cells(by, mask)
        return np.stack(
            [totals(cells, size, _power(rounded, power) if power else None) for power in range(degree + 1)], -1
        )

    def bins(self, value: str, edges: Sequence[float], by: tuple[str, ...], where: Predicate | None) -> Counts | None:
        """Return the number of rows of each cell of ``by`` and bin of ``value``, flat."""
        binned = self._binned(value, tuple(edges)) if self._held({*by} | named(where)) else None
        if binned is None:
            return None
        mask = self._where(where)
        if mask is not None:
            binned = binned[mask]
        cells, size = self._cells(by, mask)
        bins = len(edges)  # the last is for numbers outside the edges
        key = cells.astype(np.int32) * bins + binned if by else binned
        counts: Counts = totals(key, size * bins).reshape(size, bins)[:, :-1].reshape(-1)
        return counts

    def _held(self, names: set[str]) -> bool:
        return all(self._codes(self._domain.index(name)) is not None for name in names)

    def _codes(self, place: int) -> _Codes | None:
        kind = np.min_scalar_type(self._domain.attributes[place].size - 1)
        name = f"c{place}"
        codes: _Codes | None = self._once(name, kind.itemsize * self._rows, partial(self._column, name, kind))
        return codes

    def _column(self, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
        column = np.empty(self._rows, dtype=kind)
        self._read(name, column)
        return column

    def _of(self, place: int, mask: NDArray[np.bool_] | None) -> _Codes:
        codes = self._codes(place)
        assert codes is not None
        return codes if mask is None else codes[mask]

    def _where(self, where: Predicate | None) -> NDArray[np.bool_] | None:
        if where is None:
            return None
        mask = condition_mask(where, self._domain, lambda name: self._of(self._domain.index(name), None))
        return np.broadcast_to(mask, (self._rows,))

    def _cells(self, by: tuple[str, ...], mask: NDArray[np.bool_] | None) -> tuple[NDArray[np.integer[Any]], int]:
        """Return the mixed-radix number of each row's cell, which fits 32 bits, and the number of cells."""
        cells: NDArray[np.integer[Any]] | None = None
        size = 1
        for name in by:
            codes, own = self._of(self._domain.index(name), mask), self._domain[name].size
            cells = (
                codes if cells is None else cells.astype(np.int32, copy=False) * np.int32(own) + codes.astype(np.int32)
            )
            size *= own
        return np.empty(0, dtype=np.int32) if cells is None else cells, size

    def _numbers(self, place: int) -> NDArray[np.float64] | None:
        """Return the clamped numbers of an attribute, NaN for none."""
        attribute = self._domain.attributes[place]
        if not isinstance(attribute, Integer) or attribute.edges is not None:
            name, kind = f"v{place}", np.dtype(np.float64)
            return self._once(name, kind.itemsize * self._rows, partial(self._column, name, kind))
        codes = self._codes(place)
        if codes is None:
            return None
        numbers = codes.astype(np.float64)  # one per row, not per cell
        numbers += attribute.minimum
        if attribute.size > attribute.declared:
            numbers[codes >= attribute.declared] = np.nan
        return numbers

    def _steps(self, value: str, unit: Fraction, bounds: tuple[int, int]) -> Steps | None:
        place = self._domain.index(value)

        def make() -> Steps | None:
            numbers = self._numbers(place)
            return None if numbers is None else _fixed(numbers, unit, bounds)

        steps: Steps | None = self._once(("steps", place, unit), 5 * self._rows, make)
        return steps

    def _binned(self, value: str, edges: tuple[float, ...]) -> NDArray[np.integer[Any]] | None:
        place, last = self._domain.index(value), len(edges) - 1
        kind = np.min_scalar_type(last)

        key = ("bins", place, edges)
        if key in self._arrays:
            bin_numbers: NDArray[np.integer[Any]] | None = self._arrays[key]
            return bin_numbers
        numbers, bounds = self._numbers(place), numeric(self._domain, value)
        if numbers is None:
            return None
        if edges[0] > bounds.minimum or edges[-1] < bounds.maximum:  # rarely repeated, so not cached
            inside = np.flatnonzero((numbers >= edges[0]) & (numbers <= edges[-1]))
            looked = np.full(self._rows, last, dtype=kind)
            looked[inside] = _bin(numbers[inside], np.array(edges))
            return looked
        return self._once(key, kind.itemsize * self._rows, partial(_bin, numbers, np.array(edges)))

    def _once(self, key: object, size: int, make: Callable[[], _Array | None]) -> _Array | None:
        """Return the array cached under ``key``, made on first use; None if ``size`` more bytes would not fit."""
        array: _Array | None = self._arrays.get(key)
        if array is not None:
            return array
        with self._lock:
            array = self._arrays.get(key)
            if array is None and self._bytes + size <= KEPT_BYTES:
                array = make()
                if array is not None:
                    self._arrays[key] = array
                    self._bytes += size
            return array


_ALL: WeakSet[KeptColumns] = WeakSet()


def _fixed(numbers: NDArray[np.float64], unit: Fraction, bounds: tuple[int, int]) -> Steps:
    rounded = np.empty(len(numbers), dtype=np.int32)
    present = np.empty(len(numbers), dtype=np.bool_)
    for start in range(0, len(numbers), _SLICE):
        rows = slice(start, start + _SLICE)
        scaled = numbers[rows] * float(unit.denominator)
        scaled /= float(unit.numerator)
        np.rint(scaled, out=scaled)
        np.clip(scaled, *bounds, out=scaled)
        scaled -= bounds[0]
        there = np.logical_not(np.isnan(scaled), out=present[rows])
        scaled[~there] = 0
        rounded[rows] = scaled
    return rounded, None if present.all() else present


def _bin(numbers: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.unsignedinteger[Any]]:
    """Return the index of each number's bin, the last closed on both sides; the number of bins for a number in none."""
    bins = len(edges) - 1
    bin_numbers = np.empty(len(numbers), dtype=np.min_scalar_type(bins))
    width = even_width(edges.tolist())
    for start in range(0, len(numbers), _SLICE):
        rows = slice(start, start + _SLICE)
        bin_numbers[rows] = searched(numbers[rows], edges) if width is None else divided(numbers[rows], edges, width)
    return bin_numbers


def searched(numbers: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of every number by a search among the edges; for no number, the number of bins."""
    bins = len(edges) - 1
    places = np.full(len(numbers), bins, dtype=np.int64)
    inside = np.flatnonzero((numbers >= edges[0]) & (numbers <= edges[-1]))
    places[inside] = np.minimum(np.searchsorted(edges, numbers[inside], side="right") - 1, bins - 1)
    return places


def divided(numbers: NDArray[np.float64], edges: NDArray[np.float64], width: float) -> NDArray[np.int64]:
    """Return bins of one width by division.

    Numbers in the last bin, or so near an edge that rounding matters, are searched for.
    """
    bins = len(edges) - 1
    with np.errstate(over="ignore", invalid="ignore"):  # overflows go to the search
        # rounding moves edge, difference and quotient by up to half a unit in the last place each
        doubt = 8 * np.finfo(np.float64).eps * (np.abs(edges).max() / width + bins)
        place = (numbers - edges[0]) / width
        floors = np.floor(place)
        place -= floors
    clear = (place > doubt) & (place < 1 - doubt) & (floors >= 0) & (floors < bins - 1)  # never for NaN
    unclear = np.flatnonzero(~clear)
    floors[unclear] = 0
    quotients: NDArray[np.int64] = floors.astype(np.int64)
    quotients[unclear] = searched(numbers[unclear], edges)
    return quotients


def _power(steps: NDArray[np.int32], power: int) -> NDArray[np.int32] | NDArray[np.int64]:
    return steps if power == 1 else np.power(steps, power, dtype=np.int64)


def _both(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


_BATCH_ROWS = 1 << 16


def middle_values(domain: Domain, codes: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
    """Return numbers for rows of known cells: the middle of the cell, or NaN for a cell without numbers."""
    middles = {}
    for place, attribute in enumerate(domain):
        if isinstance(attribute, Integer | Real):
            numbers = np.full(attribute.size, np.nan)
            numbers[: attribute.declared] = [sum(attribute.bounds(code)) / 2 for code in range(attribute.declared)]
            if attribute.typical is not None:
                numbers[attribute.declared - 1] = attribute.typical
            middles[attribute.name] = (
                np.floor(numbers[codes[:, place]]) if isinstance(attribute, Integer) else numbers[codes[:, place]]
            )
    return middles


class ArrayTable:
    """An encoded table held as one array of codes, shape ``(rows, attributes)``.

    ``weights`` are the number of people behind each row (default: one), so that a table known by its counts need not be
    unrolled.  ``values`` hold clamped numbers, NaN for missing, for sums and bins.  Rows carry no ids: the caller
    bounds rows for a unit of several rows, and cannot count units.

    Raises:
        TableError: codes, weights or values that do not fit the domain or each other.
    """

    def __init__(
        self,
        domain: Domain,
        codes: NDArray[np.integer],
        *,
        weights: Counts | None = None,
        values: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> None:
        if codes.ndim != 2 or codes.shape[1] != len(domain):  # noqa: PLR2004
            raise TableError(f"codes must have one column for each of {len(domain)} attributes", culprit=codes.shape)
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= domain.shape).any()):
            raise TableError("a code lies outside its attribute's cells", culprit=domain.names)
        if weights is not None and (
            weights.shape != codes.shape[:1] or weights.dtype.kind not in "iu" or (weights < 0).any()
        ):
            raise TableError("weights must be one whole number of people a row, none negative", culprit=weights.shape)
        self._domain = domain
        self.codes = codes
        self._weights = np.ones(len(codes), dtype=np.int64) if weights is None else weights.astype(np.int64)
        self._values = {name: np.asarray(numbers, dtype=np.float64) for name, numbers in (values or {}).items()}
        if any(numbers.shape != codes.shape[:1] for numbers in self._values.values()):
            raise TableError("values must be one number a row", culprit=tuple(self._values))

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""
        return self._domain

    @cached_property
    def version(self) -> str:
        """The digest of the domain and of the sorted rows, with their weights and values."""
        numbers = [self._values[name] for name in sorted(self._values)]
        order = np.lexsort([*numbers, self._weights, *self.codes.T])
        digest = hashlib.sha256(f"{self._domain.hash} {sorted(self._values)}".encode())
        for column in (np.ascontiguousarray(self.codes, dtype=np.int64), self._weights, *numbers):
            digest.update(column[order].tobytes())
        return digest.hexdigest()

    def ready(self) -> None:
        """Refuse nothing, because the rows are in memory."""

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: p.Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """See :meth:`sfumato.engine.port.Encoded.marginals`."""
        weights = self._arrays(where)
        return tuple(Exact(self._count(clique, weights)) for clique in cliques)

    def groups(self, attributes: tuple[str, ...], where: p.Predicate | None = None) -> Exact[SparseTable]:
        """See :meth:`sfumato.engine.port.Encoded.groups`."""
        return Exact(self._groups(attributes, self._arrays(where)))

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.sums`."""
        steps, present = self._fixed(value, unit)
        return Exact(self._count(by, self._arrays(where) * present * steps))

    def moments(
        self, value: str, by: tuple[str, ...], *, unit: Fraction, degree: int, where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.moments`."""
        steps, present = self._fixed(value, unit)
        steps = steps - fixed_bounds(self._domain, value, unit)[0]
        weights = self._arrays(where) * present
        return Exact(np.stack([self._count(by, weights * steps**power) for power in range(degree + 1)], -1).reshape(-1))

    def units(self, by: tuple[str, ...], where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.units`; every row is a unit of its own here."""
        self._refuse_ids()
        return Exact(self._count(by, self._arrays(where)))

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.bins`."""
        numbers = self._numbers(value)
        inside = (numbers >= edges[0]) & (numbers <= edges[-1])
        bins = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(edges) - 2)
        cell = self._cells(by) * (len(edges) - 1) + bins
        return Exact(totals(cell[inside], self._size(by) * (len(edges) - 1), self._arrays(where)[inside]))

    def round_numbers(self, value: str, steps: Sequence[int]) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.round_numbers`."""
        numbers, width = self._numbers(value), len(steps) + 1
        last = np.full(len(numbers), width - 1)
        for place, step in enumerate(steps):
            last[numbers % step == 0] = place
        key, present = self._cells((value,)) * width + last, ~np.isnan(numbers)
        return Exact(totals(key[present], self._size((value,)) * width, self._arrays(None)[present]))

    def dropped(self, most: int, where: p.Predicate | None = None) -> Exact[Counts]:  # noqa: ARG002
        """See :meth:`sfumato.engine.port.Encoded.dropped`; rows over the bound are not in the table."""
        self._refuse_ids()
        return Exact(np.zeros(1, dtype=np.int64))

    def unit_sizes(self, starts: tuple[int, ...], of: SizeOf) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.unit_sizes`; refused, because rows have no ids here."""
        del of
        raise TableError("rows in memory carry no ids, so their units have no size", culprit=starts)

    def derived(self, name: str) -> Encoded:
        """See :meth:`sfumato.engine.port.Encoded.derived`: no table is derived from rows without ids."""
        raise TableError(f"no table {name!r} was derived of these rows", culprit=name)

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """See :meth:`sfumato.engine.port.Encoded.keys`: the labels of the cells that occur."""
        self.refuse_keys(columns)
        groups = self._groups(columns, self._weights)
        labels = {
            name: pa.array([self._domain[name].labels()[code] for code in groups.codes[:, position]], pa.string())
            for position, name in enumerate(columns)
        }
        return Exact(pa.table(labels | {"units": pa.array(groups.counts, pa.int64())}))

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """See :meth:`sfumato.engine.port.Encoded.refuse_keys`: the columns are the attributes."""
        self._refuse_ids()
        if not columns or len(set(columns)) != len(columns) or "units" in columns:
            raise QueryError("keys are one or more different columns, none of them called 'units'", culprit=columns)
        self._index(columns)

    def batches(self, attributes: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """See :meth:`sfumato.engine.port.Encoded.batches`; weighted rows occur once for each person."""
        rows = np.repeat(self.codes[:, self._index(attributes)], self._weights, axis=0)
        chunks = (rows[start : start + _BATCH_ROWS] for start in range(0, len(rows), _BATCH_ROWS))
        return Exact(
            pa.record_batch([pa.array(column) for column in np.ascontiguousarray(chunk.T)], names=list(attributes))
            for chunk in chunks
        )

    def _index(self, attributes: tuple[str, ...]) -> list[int]:
        return [self._domain.index(name) for name in attributes]

    def _size(self, attributes: tuple[str, ...]) -> int:
        return math.prod(self._domain[name].size for name in attributes)

    def _cells(self, attributes: tuple[str, ...]) -> NDArray[np.int64]:
        cell = np.zeros(len(self.codes), dtype=np.int64)
        for name in attributes:
            cell = cell * self._domain[name].size + self.codes[:, self._domain.index(name)]
        return cell

    def _count(self, clique: tuple[str, ...], weights: Counts) -> Counts:
        return totals(self._cells(clique), self._size(clique), weights)

    def _groups(self, attributes: tuple[str, ...], weights: Counts) -> SparseTable:
        present = weights > 0
        codes, inverse = np.unique(self.codes[present][:, self._index(attributes)], axis=0, return_inverse=True)
        return SparseTable(attributes, codes.astype(np.uint64), totals(inverse.ravel(), len(codes), weights[present]))

    def _numbers(self, value: str) -> NDArray[np.float64]:
        """Return clamped numbers, NaN for missing; an integer attribute without edges is its own code."""
        if value in self._values:
            return self._values[value]
        attribute = self._domain[value]
        if not isinstance(attribute, Integer) or attribute.edges is not None:
            raise TableError(f"this table holds codes of {value!r}, but not its numbers", culprit=value)
        codes = self.codes[:, self._domain.index(value)].astype(np.float64)
        return np.where(codes < attribute.declared, codes + attribute.minimum, np.nan)

    def _fixed(self, value: str, unit: Fraction) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return numbers in units, rounded half to even within the rounded bounds, and a mask of present numbers."""
        numbers = self._numbers(value)
        present = ~np.isnan(numbers)
        steps = np.rint(np.where(present, numbers, 0.0) / float(unit)).clip(*fixed_bounds(self._domain, value, unit))
        return steps.astype(np.int64), present

    def _refuse_ids(self) -> None:
        if self._domain.unit.column is not None:
            raise TableError("rows in memory carry no ids, so their units cannot be counted", culprit=self._domain.unit)

    def _arrays(self, where: p.Predicate | None) -> Counts:
        if where is None:
            return self._weights
        return self._weights * condition_mask(where, self._domain, lambda name: self.codes[:, self._domain.index(name)])
