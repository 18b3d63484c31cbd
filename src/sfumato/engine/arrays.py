"""Rows that are already codes in memory: the engine of simulations, labs and tests."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.domain import predicate as p
from sfumato.engine.exact import Exact
from sfumato.engine.port import Counts, Groups
from sfumato.errors import TableError

_BATCH_ROWS = 1 << 16


class ArrayTable:
    """An encoded table held as one array of codes, shape ``(rows, attributes)``.

    ``weights`` are the number of people behind each row (one where not given), so that a table known by
    its counts need not be unrolled.  ``values`` hold clamped numbers, NaN for missing, for sums and bins.
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
        self._domain = domain
        self._codes = codes
        self._weights = np.ones(len(codes), dtype=np.int64) if weights is None else weights
        self._values = values or {}

    @property
    def domain(self) -> Domain:
        """The domain it was encoded with."""
        return self._domain

    @property
    def version(self) -> str:
        """Digest of the domain and of the sorted rows."""
        order = np.lexsort(self._codes.T[::-1])
        digest = hashlib.sha256(self._domain.hash.encode())
        digest.update(np.ascontiguousarray(self._codes[order], dtype=np.int64).tobytes())
        digest.update(self._weights[order].tobytes())
        return digest.hexdigest()

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: p.Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """See :meth:`sfumato.engine.port.Encoded.marginals`."""
        weights = self._kept(where)
        return tuple(Exact(self._count(clique, weights)) for clique in cliques)

    def groups(self, attributes: tuple[str, ...], where: p.Predicate | None = None) -> Exact[Groups]:
        """See :meth:`sfumato.engine.port.Encoded.groups`."""
        kept = np.flatnonzero(self._kept(where))
        columns = [self._domain.index(name) for name in attributes]
        codes, inverse = np.unique(self._codes[np.ix_(kept, columns)], axis=0, return_inverse=True)
        counts = np.zeros(len(codes), dtype=np.int64)
        np.add.at(counts, inverse.ravel(), self._weights[kept])
        return Exact(Groups(attributes, codes.astype(np.uint32), counts))

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.sums`."""
        numbers = self._values[value]
        present = ~np.isnan(numbers)
        scaled = np.zeros(len(numbers), dtype=np.int64)
        scaled[present] = np.rint(numbers[present] / float(unit)).astype(np.int64)
        return Exact(self._count(by, self._kept(where) * scaled))

    def moments(
        self, value: str, by: tuple[str, ...], unit: Fraction, degree: int, where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.moments`."""
        attribute = self._domain[value]
        assert not isinstance(attribute, Categorical)
        numbers = self._values[value]
        present = ~np.isnan(numbers)
        steps = np.zeros(len(numbers), dtype=np.int64)
        steps[present] = np.rint(numbers[present] / float(unit)).astype(np.int64)
        steps -= round(Fraction(attribute.minimum) / unit)
        weights = self._kept(where) * present
        return Exact(np.stack([self._count(by, weights * steps**power) for power in range(degree + 1)], -1).reshape(-1))

    def units(self, by: tuple[str, ...], where: p.Predicate | None = None) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.units`; every row is a unit of its own here."""
        return Exact(self._count(by, self._kept(where)))

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: p.Predicate | None = None
    ) -> Exact[Counts]:
        """See :meth:`sfumato.engine.port.Encoded.bins`."""
        numbers = self._values[value]
        inside = (numbers >= edges[0]) & (numbers <= edges[-1])
        bins = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(edges) - 2)
        cell = self._cells(by) * (len(edges) - 1) + bins
        size = self._size(by) * (len(edges) - 1)
        weights = (self._kept(where) * inside).astype(np.float64)
        return Exact(np.bincount(np.where(inside, cell, 0), weights, minlength=size).astype(np.int64))

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """See :meth:`sfumato.engine.port.Encoded.keys`: the labels of the declared cells that occur."""
        groups = np.unique(self._codes[:, [self._domain.index(name) for name in columns]], axis=0)
        counts = [int(self._weights[(self._codes[:, self._index(columns)] == row).all(axis=1)].sum()) for row in groups]
        labels = {
            name: pa.array([self._domain[name].labels()[code] for code in groups[:, position]], pa.string())
            for position, name in enumerate(columns)
        }
        return Exact(pa.table(labels | {"units": pa.array(counts, pa.int64())}))

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
        # float64 sums of integers are exact below 2^53
        return np.bincount(self._cells(clique), weights.astype(np.float64), self._size(clique)).astype(np.int64)

    def _kept(self, where: p.Predicate | None) -> Counts:
        return self._weights if where is None else self._weights * self._holds(where)

    def _holds(self, where: p.Predicate) -> NDArray[np.bool_]:
        match where:
            case p.Among(attribute=name, codes=codes):
                return np.isin(self._codes[:, self._domain.index(name)], list(codes))
            case p.All(parts=parts):
                return np.logical_and.reduce([self._holds(part) for part in parts] or [np.ones(len(self._codes), bool)])
            case p.Any(parts=parts):
                return np.logical_or.reduce([self._holds(part) for part in parts] or [np.zeros(len(self._codes), bool)])
            case p.Not(part=part):
                return ~self._holds(part)
