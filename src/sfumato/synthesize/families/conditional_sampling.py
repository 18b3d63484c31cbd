"""Codes of some attributes of a graphical model, given the codes of all others, row by row and exactly.

Potentials are looked at where a row's evidence says, so that only the attributes to be drawn are left.  These are
eliminated one by one, and drawn in the opposite order.  Rows that agree in what a table depends on share it: the first
attributes to be eliminated depend on few others, and only the last on all.

All randomness here is of post-processing of a public model; no guarantee rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.model.factor import Factor, FloatArray
from sfumato.model.row_sampling import CodeArray

_CELLS = 1 << 21  # of the tables that are summed at a time: 16 MiB
_GOLDEN = (math.sqrt(5) - 1) / 2

RowIndices = NDArray[np.int64]


@dataclass(frozen=True)
class _Table:
    """Log potentials over ``free`` attributes, one table for each of several combinations of evidence.

    ``values`` has shape ``(combinations, cells of each of free ...)``; ``place`` is the combination of each row.
    """

    free: tuple[str, ...]
    values: FloatArray
    place: RowIndices

    @property
    def many(self) -> int:
        """Combinations."""
        return len(self.values)


class ConditionalSampler:
    """Draws the attributes ``drawn``, given codes of all others that share a potential with one of them."""

    def __init__(self, factors: Sequence[Factor], sizes: Mapping[str, int], drawn: Sequence[str]) -> None:
        self._sizes = sizes
        self._drawn = tuple(drawn)
        merged: dict[tuple[str, ...], FloatArray] = {}
        for factor in factors:
            free = tuple(name for name in self._drawn if name in factor.attributes)
            if not free:
                continue
            given = tuple(name for name in factor.attributes if name not in free)
            axes = [factor.attributes.index(name) for name in (*given, *free)]
            values = np.transpose(factor.values, axes)
            key = (*given, "", *free)
            merged[key] = merged[key] + values if key in merged else values
        self._potentials = [(key[: key.index("")], key[key.index("") + 1 :], values) for key, values in merged.items()]

    def draw(
        self, evidence: Mapping[str, CodeArray], rows: int, random: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """A code of each attribute to be drawn for each row: arrays of shape ``(rows,)``.

        Rows of the same conditional distribution are spread over it evenly.
        """
        tables = [self._looked_up(given, free, values, evidence, rows) for given, free, values in self._potentials]
        waiting, steps = list(self._drawn), []
        while waiting:
            name = min(waiting, key=lambda each: self._work(each, tables, rows))
            waiting.remove(name)
            mine = [table for table in tables if name in table.free]
            tables = [table for table in tables if name not in table.free]
            steps.append((name, mine))
            if mine and (rest := self._summed(name, mine)) is not None:
                tables.append(rest)
        found: dict[str, NDArray[np.int64]] = {}
        for name, mine in reversed(steps):
            found[name] = self._chosen(name, mine, found, rows, random)
        return found

    def _looked_up(
        self,
        given: tuple[str, ...],
        free: tuple[str, ...],
        values: FloatArray,
        evidence: Mapping[str, CodeArray],
        rows: int,
    ) -> _Table:
        sizes = [self._sizes[name] for name in given]
        flat = values.reshape(math.prod(sizes), *values.shape[len(given) :])
        place = np.zeros(rows, dtype=np.int64)
        for name, size in zip(given, sizes, strict=True):
            place *= size
            place += evidence[name]
        seen, place = _numbered(place, len(flat))
        return _Table(free, flat[seen], place)

    def _work(self, name: str, tables: Sequence[_Table], rows: int) -> float:
        """Cells of the table that eliminating an attribute sums."""
        mine = [table for table in tables if name in table.free]
        others = {each for table in mine for each in table.free}
        combinations = min(float(rows), math.prod(float(table.many) for table in mine))
        return combinations * math.prod(self._sizes[each] for each in others)

    def _summed(self, name: str, mine: Sequence[_Table]) -> _Table | None:
        """What is left of the tables of an attribute once it is summed out; None where no other attribute is."""
        free = tuple(each for each in self._drawn if any(each in table.free for table in mine))
        rest = tuple(each for each in free if each != name)
        if not rest:
            return None
        place, columns = mine[0].place, [np.arange(mine[0].many)]
        for table in mine[1:]:
            seen, place = _numbered(place * table.many + table.place, len(columns[0]) * table.many)
            columns = [*(column[seen // table.many] for column in columns), seen % table.many]
        shape = [self._sizes[each] for each in free]
        combinations = len(columns[0])
        sums = np.empty((combinations, *(self._sizes[each] for each in rest)))
        axis = free.index(name) + 1
        for part in _parts(combinations, math.prod(shape)):
            total = np.zeros((part.stop - part.start, *shape))
            for table, column in zip(mine, columns, strict=True):
                wide = [self._sizes[each] if each in table.free else 1 for each in free]
                total += table.values[column[part]].reshape(-1, *wide)
            most = total.max(axis=axis, keepdims=True)
            np.copyto(most, 0.0, where=~np.isfinite(most))
            total -= most
            np.exp(total, out=total)
            with np.errstate(divide="ignore"):
                sums[part] = np.log(total.sum(axis=axis)) + most.squeeze(axis)
        return _Table(rest, sums, place)

    def _chosen(
        self,
        name: str,
        mine: Sequence[_Table],
        found: Mapping[str, NDArray[np.int64]],
        rows: int,
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Codes of an attribute, given those of the attributes eliminated after it."""
        size = self._sizes[name]
        if not mine:
            return random.integers(size, size=rows)
        keys: RowIndices = np.zeros(rows, dtype=np.int64)
        cells = 1
        pieces = []
        for table in mine:
            flat = np.moveaxis(table.values, table.free.index(name) + 1, -1).reshape(-1, size)
            place = table.place.copy()
            for each in table.free:
                if each != name:
                    place *= self._sizes[each]
                    place += found[each]
            pieces.append((flat, place))
            seen, keys = _numbered(keys * len(flat) + place, cells * len(flat))
            cells = len(seen)
        first = np.empty(cells, dtype=np.int64)
        first[keys] = np.arange(rows)
        below = np.empty((cells, size))
        for part in _parts(cells, size):
            total = np.zeros((part.stop - part.start, size))
            for flat, place in pieces:
                total += flat[place[first[part]]]
            most = total.max(axis=1, keepdims=True)
            np.copyto(most, 0.0, where=~np.isfinite(most))
            total -= most
            np.exp(total, out=total)
            np.cumsum(total, axis=1, out=below[part])
        return _spread(below, keys, random)


def _spread(below: FloatArray, keys: RowIndices, random: np.random.Generator) -> NDArray[np.int64]:
    """Of each row a cell of its distribution, given running sums: evenly over the rows of one distribution."""
    rows = len(keys)
    order = random.permutation(rows)
    order = order[np.argsort(keys[order], kind="stable")]
    uniform = np.empty(rows)
    uniform[order] = (random.random() + np.arange(rows) * _GOLDEN) % 1.0
    found = np.empty(rows, dtype=np.int64)
    for part in _parts(rows, below.shape[1]):
        held = below[keys[part]]
        upto = uniform[part] * held[:, -1]
        found[part] = (held <= upto[:, None]).sum(axis=1)
    np.minimum(found, below.shape[1] - 1, out=found)
    return found


def _numbered(keys: RowIndices, cells: int) -> tuple[RowIndices, RowIndices]:
    """The different keys in order, and the number of each row's."""
    if cells <= 4 * len(keys):
        held = np.zeros(cells, dtype=np.bool_)
        held[keys] = True
        seen = np.flatnonzero(held)
        number = np.cumsum(held) - 1
        return seen, number[keys]
    seen, numbers = np.unique(keys, return_inverse=True)
    return seen, numbers.reshape(-1)


def _parts(rows: int, cells: int) -> Iterator[slice]:
    step = max(1, _CELLS // max(cells, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
