"""Rows that are already codes in memory: the engine of simulations, labs and tests."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer
from sfumato.domain import predicate as p
from sfumato.engine.condition import holds
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Groups
from sfumato.engine.statements import fixed_bounds
from sfumato.engine.tally import totals
from sfumato.errors import QueryError, TableError

_BATCH_ROWS = 1 << 16


class ArrayTable:
    """An encoded table held as one array of codes, shape ``(rows, attributes)``.

    ``weights`` are the number of people behind each row (one where not given), so that a table known by
    its counts need not be unrolled.  ``values`` hold clamped numbers, NaN for missing, for sums and bins.
    Rows carry no ids: whoever declares a unit of several rows has bounded them, and cannot ask for units.

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
        self._codes = codes
        self._weights = np.ones(len(codes), dtype=np.int64) if weights is None else weights.astype(np.int64)
        self._values = {name: np.asarray(numbers, dtype=np.float64) for name, numbers in (values or {}).items()}
        if any(numbers.shape != codes.shape[:1] for numbers in self._values.values()):
            raise TableError("values must be one number a row", culprit=tuple(self._values))

    @property
    def domain(self) -> Domain:
        """The domain it was encoded with."""
        return self._domain

    @cached_property
    def version(self) -> str:
        """Digest of the domain and of the sorted rows, with their weights and values."""
        numbers = [self._values[name] for name in sorted(self._values)]
        order = np.lexsort([*numbers, self._weights, *self._codes.T])
        digest = hashlib.sha256(f"{self._domain.hash} {sorted(self._values)}".encode())
        for column in (np.ascontiguousarray(self._codes, dtype=np.int64), self._weights, *numbers):
            digest.update(column[order].tobytes())
        return digest.hexdigest()

    def version_with(self, columns: tuple[str, ...]) -> str:
        """See :meth:`sfumato.engine.port.Encoded.version_with`: all columns are in the version already."""
        return hashlib.sha256(f"{self.version} {list(columns)}".encode()).hexdigest()

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: p.Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """See :meth:`sfumato.engine.port.Encoded.marginals`."""
        weights = self._kept(where)
        return tuple(Exact(self._count(clique, weights)) for clique in cliques)

    def groups(self, attributes: tuple[str, ...], where: p.Predicate | None = None) -> Exact[Groups]:
        """See :meth:`sfumato.engine.port.Encoded.groups`."""
        return Exact(self._groups(attributes, self._kept(where)))

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.sums`."""
        steps, present = self._fixed(value, unit)
        return Exact(self._count(by, self._kept(where) * present * steps))

    def moments(
        self, value: str, by: tuple[str, ...], unit: Fraction, degree: int, where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.moments`."""
        steps, present = self._fixed(value, unit)
        steps = steps - fixed_bounds(self._domain, value, unit)[0]
        weights = self._kept(where) * present
        return Exact(np.stack([self._count(by, weights * steps**power) for power in range(degree + 1)], -1).reshape(-1))

    def units(self, by: tuple[str, ...], where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.units`; every row is a unit of its own here."""
        self._refuse_ids()
        return Exact(self._count(by, self._kept(where)))

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.bins`."""
        numbers = self._numbers(value)
        inside = (numbers >= edges[0]) & (numbers <= edges[-1])
        bins = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(edges) - 2)
        cell = self._cells(by) * (len(edges) - 1) + bins
        return Exact(totals(cell[inside], self._size(by) * (len(edges) - 1), self._kept(where)[inside]))

    def dropped(self, most: int, where: p.Predicate | None = None) -> Exact[Counts]:  # noqa: ARG002
        """See :meth:`sfumato.engine.port.Encoded.dropped`; whoever bounded the rows left the others out before."""
        self._refuse_ids()
        return Exact(np.zeros(1, dtype=np.int64))

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """See :meth:`sfumato.engine.port.Encoded.keys`: the labels of the cells that occur."""
        self.refuse_keys(columns)
        found = self._groups(columns, self._weights)
        labels = {
            name: pa.array([self._domain[name].labels()[code] for code in found.codes[:, position]], pa.string())
            for position, name in enumerate(columns)
        }
        return Exact(pa.table(labels | {"units": pa.array(found.counts, pa.int64())}))

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """See :meth:`sfumato.engine.port.Encoded.refuse_keys`: the columns are the attributes."""
        self._refuse_ids()
        if not columns or len(set(columns)) != len(columns) or "units" in columns:
            raise QueryError("keys are one or more different columns, none of them called 'units'", culprit=columns)
        self._index(columns)

    def batches(self, attributes: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """See :meth:`sfumato.engine.port.Encoded.batches`; weighted rows come once for each person."""
        rows = np.repeat(self._codes[:, self._index(attributes)], self._weights, axis=0)
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
        cell = np.zeros(len(self._codes), dtype=np.int64)
        for name in attributes:
            cell = cell * self._domain[name].size + self._codes[:, self._domain.index(name)]
        return cell

    def _count(self, clique: tuple[str, ...], weights: Counts) -> Counts:
        return totals(self._cells(clique), self._size(clique), weights)

    def _groups(self, attributes: tuple[str, ...], weights: Counts) -> Groups:
        kept = weights > 0
        codes, inverse = np.unique(self._codes[kept][:, self._index(attributes)], axis=0, return_inverse=True)
        return Groups(attributes, codes.astype(np.uint32), totals(inverse.ravel(), len(codes), weights[kept]))

    def _numbers(self, value: str) -> NDArray[np.float64]:
        """Clamped numbers, NaN for missing; an integer attribute without edges is its own code."""
        if value in self._values:
            return self._values[value]
        attribute = self._domain[value]
        if not isinstance(attribute, Integer) or attribute.edges is not None:
            raise TableError(f"this table holds codes of {value!r}, but not its numbers", culprit=value)
        codes = self._codes[:, self._domain.index(value)].astype(np.float64)
        return np.where(codes < attribute.declared, codes + attribute.minimum, np.nan)

    def _fixed(self, value: str, unit: Fraction) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Numbers in units, rounded half to even, never past the rounded bounds; and whether there is one."""
        numbers = self._numbers(value)
        present = ~np.isnan(numbers)
        steps = np.rint(np.where(present, numbers, 0.0) / float(unit)).clip(*fixed_bounds(self._domain, value, unit))
        return steps.astype(np.int64), present

    def _refuse_ids(self) -> None:
        if self._domain.unit.column is not None:
            raise TableError("rows in memory carry no ids, so their units cannot be counted", culprit=self._domain.unit)

    def _kept(self, where: p.Predicate | None) -> Counts:
        if where is None:
            return self._weights
        return self._weights * holds(where, self._domain, lambda name: self._codes[:, self._domain.index(name)])
