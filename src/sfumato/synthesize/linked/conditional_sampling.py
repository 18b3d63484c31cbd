"""Draw codes of some attributes of a graphical model, given the codes of all others, row by row and exactly.

Potentials are sliced at the evidence of a row, so that only the attributes to draw remain.  These are eliminated one by
one, and drawn in the opposite order.  Rows with the same evidence for a table share it.  The first eliminated
attributes depend on little evidence; only the last depend on all of it.

Tables are products of numbers up to one.  Potentials fitted to noise may cancel and make a product underflow.  Such
rows are redrawn with sums of logarithms.

The randomness here is for post-processing of a public model; no guarantee depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.model.factor import Factor, FloatArray
from sfumato.model.junction_tree import Clique
from sfumato.model.row_sampling import CodeArray

_CELLS = 1 << 21  # cells of the tables summed at a time: 16 MiB
_HELD = 1 << 23  # cells of the largest table of the rows drawn at a time
_MERGED = 1 << 14  # largest number of cells of a table that merges several factors
_LEAST = 1e-300  # relative to the likeliest cells; below it the evidence of a row is contradictory
_SURE = 1e-30  # a product of numbers up to one, above which underflow does not matter
_GOLDEN = (math.sqrt(5) - 1) / 2

RowIndices = NDArray[np.int64]


@dataclass(frozen=True)
class _Table:
    """The potentials over ``free`` attributes, one table for each combination of evidence.

    ``values`` has shape ``(combinations, cells of each of free ...)``, with a largest cell of one for each combination;
    ``place`` is the combination of each row.
    """

    free: tuple[str, ...]
    values: FloatArray
    place: RowIndices

    @property
    def many(self) -> int:
        """Return the number of combinations."""
        return len(self.values)


class ConditionalSampler:
    """A sampler of the attributes ``drawn``, given codes of all others that share a potential with one of them."""

    def __init__(self, factors: Sequence[Factor], sizes: Mapping[str, int], drawn: Sequence[str]) -> None:
        self._sizes = sizes
        self._drawn = tuple(drawn)
        held: dict[Clique, list[Factor]] = {}
        for factor in factors:
            free = tuple(name for name in self._drawn if name in factor.attributes)
            if free:
                held.setdefault(free, []).append(factor)
        self._potentials = [
            (given, free, _sum_factors((*given, *free), sizes, group))
            for free, mine in held.items()
            for given, group in _alike(mine, free, sizes)
        ]
        self._cells = self._widest()

    def draw(
        self, evidence: Mapping[str, CodeArray], rows: int, random: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Draw a code of each attribute for each row: arrays of shape ``(rows,)``.

        Rows with the same conditional distribution are spread over it evenly.
        """
        columns = {name: np.empty(rows, dtype=np.int64) for name in self._drawn}
        for part in _parts(rows, self._cells, _HELD):
            given = {name: codes[part] for name, codes in evidence.items()}
            for name, codes in self._of_some(given, part.stop - part.start, random).items():
                columns[name][part] = codes
        return columns

    def _of_some(
        self, evidence: Mapping[str, CodeArray], rows: int, random: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Draw codes of rows in one batch; the caller limits its size."""
        unsure = np.zeros(rows, dtype=np.bool_)
        codes_of = self._by_products(evidence, unsure, random)
        again = np.flatnonzero(unsure)
        for part in _parts(len(again), self._cells):
            given = {name: codes[again[part]] for name, codes in evidence.items()}
            for name, codes in self._by_logarithms(given, len(again[part]), random).items():
                codes_of[name][again[part]] = codes
        return codes_of

    def _by_products(
        self, evidence: Mapping[str, CodeArray], unsure: NDArray[np.bool_], random: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Draw codes of each row; rows whose products may have underflowed are marked in ``unsure``."""
        rows = len(unsure)
        tables = [self._looked_up(given, free, values, evidence, rows) for given, free, values in self._potentials]
        waiting, steps = list(self._drawn), []
        while waiting:
            name = min(waiting, key=lambda each: self._cost(each, tables, rows))
            waiting.remove(name)
            mine = [table for table in tables if name in table.free]
            tables = [table for table in tables if name not in table.free]
            steps.append((name, mine))
            if mine and (rest := self._summed(name, mine, unsure)) is not None:
                tables.append(rest)
        codes_of: dict[str, NDArray[np.int64]] = {}
        for name, mine in reversed(steps):
            codes_of[name] = self._chosen(name, mine, codes_of, unsure, random)
        return codes_of

    def _by_logarithms(
        self, evidence: Mapping[str, CodeArray], rows: int, random: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Draw codes of each row from its own tables of logarithms."""
        tables = [(free, _values_at(given, values, evidence, rows)) for given, free, values in self._potentials]
        waiting, steps = list(self._drawn), []
        while waiting:
            name = min(waiting, key=lambda each: self._cells_of(each, [free for free, _ in tables]))
            waiting.remove(name)
            mine = [table for table in tables if name in table[0]]
            tables = [table for table in tables if name not in table[0]]
            rest = tuple(each for each in self._drawn if each != name and any(each in free for free, _ in mine))
            joined = np.zeros((rows, *(self._sizes[each] for each in (*rest, name))))
            for free, values in mine:
                axes = [0, *(1 + free.index(each) for each in (*rest, name) if each in free)]
                wide = [self._sizes[each] if each in free else 1 for each in (*rest, name)]
                joined += np.transpose(values, axes).reshape(-1, *wide)
            steps.append((name, rest, joined))
            if rest:
                tables.append((rest, np.logaddexp.reduce(joined, axis=-1)))
        codes_of: dict[str, NDArray[np.int64]] = {}
        own = np.arange(rows)
        for name, rest, joined in reversed(steps):
            held = joined[(own, *(codes_of[each] for each in rest))]
            most = held.max(axis=1, keepdims=True)
            below = np.cumsum(np.exp(held - np.where(np.isfinite(most), most, 0.0)), axis=1)
            codes_of[name] = (below <= random.random((rows, 1)) * below[:, -1:]).sum(axis=1)
            np.minimum(codes_of[name], self._sizes[name] - 1, out=codes_of[name])  # rounding
        return codes_of

    def _widest(self) -> int:
        """Return the cells of the largest table that is summed for a row if no rows share one."""
        tables, waiting, most = [free for _, free, _ in self._potentials], list(self._drawn), 1
        while waiting:
            name = min(waiting, key=lambda each: self._cells_of(each, tables))
            waiting.remove(name)
            most = max(most, self._cells_of(name, tables))
            joined = {each for free in tables if name in free for each in free}
            tables = [*(free for free in tables if name not in free), tuple(joined - {name})]
        return most

    def _cells_of(self, name: str, tables: Sequence[Sequence[str]]) -> int:
        """Return the cells of the table that the elimination of an attribute sums for a row."""
        return math.prod(self._sizes[each] for each in {name}.union(*(free for free in tables if name in free)))

    def _looked_up(
        self,
        given: tuple[str, ...],
        free: tuple[str, ...],
        values: FloatArray,
        evidence: Mapping[str, CodeArray],
        rows: int,
    ) -> _Table:
        flat, place = _flat(given, values, evidence, rows)
        seen, place = _numbered(place, len(flat))
        held = flat[seen]
        most = held.max(axis=tuple(range(1, held.ndim)), keepdims=True)
        return _Table(free, np.exp(held - np.where(np.isfinite(most), most, 0.0)), place)

    def _cost(self, name: str, tables: Sequence[_Table], rows: int) -> float:
        """Return the cells of the table that the elimination of an attribute sums."""
        mine = [table for table in tables if name in table.free]
        others = {each for table in mine for each in table.free}
        combinations = min(float(rows), math.prod(float(table.many) for table in mine))
        return combinations * math.prod(self._sizes[each] for each in others)

    def _summed(self, name: str, mine: Sequence[_Table], unsure: NDArray[np.bool_]) -> _Table | None:
        """Sum an attribute out of its tables; return None if they have no other attribute.

        The tables are multiplied in two groups that share no other attribute, and the groups as matrices.  A cell that
        underflows relative to the likeliest cell of the same evidence becomes impossible.
        """
        free = tuple(each for each in self._drawn if any(each in table.free for table in mine))
        rest = tuple(each for each in free if each != name)
        if not rest:
            return None
        left, right = (self._joined(group, name, unsure) for group in _apart(mine, name))
        columns, place = _combined([left, right])
        shape = [self._sizes[each] for each in (*left.free[:-1], *right.free[:-1])]
        sums = np.empty((len(columns[0]), math.prod(shape)))
        little = np.empty(len(sums), dtype=np.bool_)
        one, other = (each.values.reshape(each.many, -1, self._sizes[name]) for each in (left, right))
        for part in _parts(len(sums), one[0].size + other[0].size + sums.shape[1]):
            product = _product(one, other, columns[0][part], columns[1][part])
            little[part] = _scaled(product.reshape(-1, sums.shape[1]), out=sums[part])
        unsure |= little[place]
        axes = tuple(each for each in (*left.free, *right.free) if each != name)
        turned = np.transpose(sums.reshape(-1, *shape), [0, *(1 + axes.index(each) for each in rest)])
        return _Table(rest, np.ascontiguousarray(turned), place)

    def _joined(self, tables: Sequence[_Table], name: str, unsure: NDArray[np.bool_]) -> _Table:
        """Multiply tables into one whose last free attribute is ``name``."""
        others = (each for each in self._drawn if each != name and any(each in table.free for table in tables))
        free = (*others, name)
        columns, place = _combined(tables)
        values = np.ones((len(columns[0]), *(self._sizes[each] for each in free)))
        for table, column in zip(tables, columns, strict=True):
            axes = [0, *(1 + table.free.index(each) for each in free if each in table.free)]
            wide = [self._sizes[each] if each in table.free else 1 for each in free]
            values *= np.transpose(table.values, axes).reshape(-1, *wide)[column]
        if len(tables) > 1:
            flat = values.reshape(len(values), -1)
            unsure |= _scaled(flat, out=flat)[place]
        return _Table(free, values, place)

    def _chosen(
        self,
        name: str,
        mine: Sequence[_Table],
        drawn_codes: Mapping[str, NDArray[np.int64]],
        unsure: NDArray[np.bool_],
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draw codes of an attribute, given the codes of the attributes eliminated after it."""
        size, rows = self._sizes[name], len(unsure)
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
                    place += drawn_codes[each]
            pieces.append((flat, place))
            seen, keys = _numbered(keys * len(flat) + place, cells * len(flat))
            cells = len(seen)
        first = np.empty(cells, dtype=np.int64)
        first[keys] = np.arange(rows)
        below = np.empty((cells, size))
        for part in _parts(cells, size):
            total = np.ones((part.stop - part.start, size))
            for flat, place in pieces:
                total *= flat[place[first[part]]]
            np.cumsum(total, axis=1, out=below[part])
        if all(len(table.free) == 1 for table in mine):  # no attribute was drawn yet
            unsure |= (below[:, -1] <= _SURE)[keys]
        elif ((below[:, -1] <= _LEAST)[keys] & ~unsure).any():
            unsure[:] = True  # all rows: to repeat only these rows would bias the draw
        return _spread(below, keys, random)


def _alike(factors: Sequence[Factor], free: Clique, sizes: Mapping[str, int]) -> Iterator[tuple[Clique, list[Factor]]]:
    """Group factors over the same free attributes into tables; yield the given attributes and factors of each.

    A table is looked up once for each row, so factors share a table while it stays small.
    """
    groups: list[tuple[list[str], list[Factor]]] = []
    for factor in sorted(factors, key=lambda each: -each.values.size):
        given = [name for name in factor.attributes if name not in free]
        for names, members in groups:
            more = [name for name in given if name not in names]
            if not more or math.prod(sizes[name] for name in (*names, *more, *free)) <= _MERGED:
                names.extend(more)
                members.append(factor)
                break
        else:
            groups.append((given, [factor]))
    for names, members in groups:
        yield tuple(names), members


def _flat(
    given: Sequence[str], values: FloatArray, evidence: Mapping[str, CodeArray], rows: int
) -> tuple[FloatArray, RowIndices]:
    """Flatten the given attributes of a table into its first axis, and return the place of each row along it."""
    sizes = values.shape[: len(given)]
    place = np.zeros(rows, dtype=np.int64)
    for name, size in zip(given, sizes, strict=True):
        place *= size
        place += evidence[name]
    return values.reshape(math.prod(sizes), *values.shape[len(given) :]), place


def _values_at(given: Sequence[str], values: FloatArray, evidence: Mapping[str, CodeArray], rows: int) -> FloatArray:
    """Return the potentials of each row, of shape ``(rows, cells of each attribute that is not given ...)``."""
    flat, place = _flat(given, values, evidence, rows)
    return flat[place]


def _sum_factors(attributes: Clique, sizes: Mapping[str, int], factors: Sequence[Factor]) -> FloatArray:
    """Sum factors over some of the attributes into one table."""
    total = np.zeros([sizes[name] for name in attributes])
    for factor in factors:
        total += factor.expand(attributes)
    return total


def _apart(tables: Sequence[_Table], name: str) -> tuple[list[_Table], list[_Table]]:
    """Split tables into two groups of similar size that share no free attribute but ``name``.

    Tables of that attribute alone join the group with more combinations.
    """
    groups: list[tuple[set[str], list[_Table]]] = []
    alone = [table for table in tables if len(table.free) == 1]
    for table in tables:
        others = set(table.free) - {name}
        if not others:
            continue
        met = [group for group in groups if group[0] & others]
        groups = [group for group in groups if not group[0] & others]
        groups.append(
            (others.union(*(names for names, _ in met)), [*(each for _, held in met for each in held), table])
        )
    groups.sort(key=lambda group: max(table.many for table in group[1]))
    if len(groups) == 1 and alone:
        return groups[0][1], alone
    if len(groups) == 1:  # the other group is a table of ones
        size = tables[0].values.shape[1 + tables[0].free.index(name)]
        return groups[0][1], [_Table((name,), np.ones((1, size)), np.zeros_like(tables[0].place))]
    *some, last = [held for _, held in groups]
    return [*last, *alone], [table for held in some for table in held]


def _combined(tables: Sequence[_Table]) -> tuple[list[RowIndices], RowIndices]:
    """Return the combinations of several tables that occur, and the combination of each row."""
    place, columns = tables[0].place, [np.arange(tables[0].many)]
    for table in tables[1:]:
        seen, place = _numbered(place * table.many + table.place, len(columns[0]) * table.many)
        columns = [*(column[seen // table.many] for column in columns), seen % table.many]
    return columns, place


def _scaled(values: FloatArray, *, out: FloatArray) -> NDArray[np.bool_]:
    """Divide rows of numbers by the largest of each row; return True for rows whose largest number is too small."""
    most = values.max(axis=1, keepdims=True)
    np.multiply(values, np.divide(1.0, most, out=np.zeros_like(most), where=most > _LEAST), out=out)
    little: NDArray[np.bool_] = most[:, 0] <= _SURE
    return little


def _product(one: FloatArray, other: FloatArray, left: RowIndices, right: RowIndices) -> FloatArray:
    """Multiply the tables of two groups, and sum over their last axis."""
    if len(other) == 1:
        held = one[left]
        products: FloatArray = held.reshape(-1, held.shape[-1]) @ other[0].T
        return products.reshape(len(held), held.shape[1], -1)
    product: FloatArray = np.matmul(one[left], np.swapaxes(other[right], 1, 2))
    return product


def _spread(below: FloatArray, keys: RowIndices, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw a cell for each row by running sums, spread evenly over the rows of one distribution."""
    rows = len(keys)
    order = random.permutation(rows)
    order = order[np.argsort(keys[order], kind="stable")]
    uniform = np.empty(rows)
    uniform[order] = (random.random() + np.arange(rows) * _GOLDEN) % 1.0
    cells = np.empty(rows, dtype=np.int64)
    for part in _parts(rows, below.shape[1]):
        held = below[keys[part]]
        upto = uniform[part] * held[:, -1]
        cells[part] = (held <= upto[:, None]).sum(axis=1)
    np.minimum(cells, below.shape[1] - 1, out=cells)
    return cells


def _numbered(keys: RowIndices, cells: int) -> tuple[RowIndices, RowIndices]:
    """Return the distinct keys in order, and for each row the number of its key."""
    if cells <= 4 * len(keys):
        held = np.zeros(cells, dtype=np.bool_)
        held[keys] = True
        seen = np.flatnonzero(held)
        number = np.cumsum(held) - 1
        return seen, number[keys]
    seen, numbers = np.unique(keys, return_inverse=True)
    return seen, numbers.reshape(-1)


def _parts(rows: int, cells: int, most: int = _CELLS) -> Iterator[slice]:
    step = max(1, most // max(cells, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
