"""A table of numbers over a few attributes, on which inference works.

Factors multiply, add and marginalize.  Axes are matched by attribute name, never by position.

:func:`project_all` computes many marginals of one table, and :func:`sum_all` sums many small tables into one.  Both go
one attribute at a time and share the intermediate tables.  So a table of a million cells is read only a few times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.errors import SizeError

FloatArray = NDArray[np.float64]

_SMALL = 1 << 12  # cells of a table to which factors are added one by one


@dataclass(frozen=True, eq=False)
class Factor:
    """A number for each cell: ``values`` has one axis for each attribute, in the order of ``attributes``.

    >>> import numpy as np
    >>> joint = Factor(("a", "b"), np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> joint.project(("b",)).values.tolist(), joint.project(("b", "a")).values.tolist()
    ([4.0, 6.0], [[1.0, 3.0], [2.0, 4.0]])
    """

    attributes: tuple[str, ...]
    values: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != len(self.attributes):
            raise SizeError(
                f"a factor over {len(self.attributes)} attributes needs as many axes, not {self.values.ndim}",
                culprit=self.attributes,
            )

    @staticmethod
    def full(attributes: Sequence[str], sizes: Mapping[str, int], value: float) -> Factor:
        """Return a factor with the same number in every cell."""
        return Factor(tuple(attributes), np.full([sizes[name] for name in attributes], value, dtype=np.float64))

    @property
    def total(self) -> float:
        """Return the sum of all cells."""
        return float(self.values.sum())

    def project(self, attributes: Sequence[str]) -> Factor:
        """Sum over all other attributes; axes in the order given."""
        return Factor(tuple(attributes), self._transposed(attributes, self.values.sum(axis=self._others(attributes))))

    def expand(self, attributes: Sequence[str]) -> FloatArray:
        """Return a view that broadcasts against a table over ``attributes``, a superset of its own."""
        if tuple(attributes) == self.attributes:
            return self.values
        axes, index = _expansion(self.attributes, tuple(attributes))
        return self.values.transpose(axes)[index]

    def __mul__(self, other: Factor) -> Factor:
        union = self._union(other)
        return Factor(union, self.expand(union) * other.expand(union))

    def __add__(self, other: Factor) -> Factor:
        union = self._union(other)
        return Factor(union, self.expand(union) + other.expand(union))

    def _union(self, other: Factor) -> tuple[str, ...]:
        return (*self.attributes, *(name for name in other.attributes if name not in self.attributes))

    def _others(self, attributes: Sequence[str]) -> tuple[int, ...]:
        return tuple(axis for axis, name in enumerate(self.attributes) if name not in attributes)

    def _transposed(self, attributes: Sequence[str], values: FloatArray) -> FloatArray:
        present = [name for name in self.attributes if name in attributes]
        return values.transpose([present.index(name) for name in attributes])


def project_all(factor: Factor, targets: Sequence[Sequence[str]]) -> list[FloatArray]:
    """Return the marginals of a factor over each target, axes in the target's order.

    >>> import numpy as np
    >>> joint = Factor(("a", "b"), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    >>> [table.tolist() for table in project_all(joint, [("a",), ("b",), ()])]
    [[6.0, 15.0], [5.0, 7.0, 9.0], 21.0]
    """
    sums, ends = _summation(factor.attributes, factor.values.shape, tuple(map(tuple, targets)))
    tables = [factor.values]
    for source, axis in sums:
        tables.append(np.add.reduce(tables[source], axis=axis))
    return [tables[place].transpose(axes) for place, axes in ends]


@cached(lambda _, plan: 500 + 200 * (len(plan[0]) + len(plan[1])))  # for wide tables
def _summation(
    attributes: tuple[str, ...], shape: tuple[int, ...], targets: tuple[tuple[str, ...], ...]
) -> tuple[list[tuple[int, int]], list[tuple[int, tuple[int, ...]]]]:
    """Return the sums that :func:`project_all` makes, and the table and the order of its axes for each target.

    A sum is the place of an earlier table and its axis to sum.
    """
    sizes = dict(zip(attributes, shape, strict=True))
    known = {frozenset(attributes): (0, attributes)}
    sums: list[tuple[int, int]] = []
    ends = []
    for target in targets:
        place, current = 0, attributes
        for name in _dropped(sizes, frozenset(target)):
            rest = tuple(other for other in current if other != name)
            if frozenset(rest) not in known:
                sums.append((place, current.index(name)))
                known[frozenset(rest)] = (len(sums), rest)
            place, current = known[frozenset(rest)]
        ends.append((place, tuple(map(current.index, target))))
    return sums, ends


@cached(1_000)
def _expansion(own: tuple[str, ...], attributes: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[slice | None, ...]]:
    """Return the axes and the index that expand a table over its ``own`` attributes, for :meth:`Factor.expand`."""
    axes = tuple(own.index(name) for name in attributes if name in own)
    return axes, tuple(slice(None) if name in own else None for name in attributes)


def sum_all(factors: Iterable[Factor], sizes: Mapping[str, int]) -> FloatArray:
    """Sum factors over subsets of the attributes of ``sizes``; the result has an axis for each of these."""
    names, shape = tuple(sizes), tuple(sizes.values())
    if math.prod(shape) <= _SMALL:
        table = np.zeros(shape)
        for factor in factors:
            table += factor.expand(names)
        return table
    pending: dict[frozenset[str], FloatArray] = {}
    for factor in factors:
        _add(pending, tuple(name for name in names if name in factor.attributes), factor)
    for count in range(len(names)):
        for key in [key for key in pending if len(key) == count]:
            held = tuple(name for name in names if name in key)
            grown = key | {_dropped(sizes, key)[-1]}
            _add(pending, tuple(name for name in names if name in grown), Factor(held, pending.pop(key)), sizes)
    return pending.get(frozenset(names), np.zeros(shape))


def _add(
    pending: dict[frozenset[str], FloatArray],
    attributes: tuple[str, ...],
    factor: Factor,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Add a factor to the pending table over ``attributes``; ``sizes`` is needed if these are more than its own."""
    key = frozenset(attributes)
    values = factor.expand(attributes)
    if key in pending:
        pending[key] += values
    elif sizes is None:
        pending[key] = np.array(values)
    else:
        pending[key] = np.broadcast_to(values, [sizes[name] for name in attributes]).copy()


def _dropped(sizes: Mapping[str, int], target: frozenset[str]) -> list[str]:
    return sorted((name for name in sizes if name not in target), key=lambda name: (-sizes[name], name))


def project_to_total(values: NDArray[np.int64] | FloatArray, total: float) -> FloatArray:
    """Return the nearest non-negative table of sum ``total`` in least squares.

    All cells are shifted by one number and clipped at zero (Held, Wolfe and Crowder 1974; Duchi, Shalev-Shwartz, Singer
    and Chandra 2008, Figure 1).

    >>> project_to_total(np.array([5, -3, 1]), 4).tolist()
    [4.0, 0.0, 0.0]
    >>> project_to_total(np.array([5, -3, 1]), 5).tolist()
    [4.5, 0.0, 0.5]
    """
    descending = np.sort(values)[::-1].astype(np.float64)
    shifts = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    last = int(np.flatnonzero(descending > shifts)[-1]) if total > 0 else 0
    return np.maximum(values - shifts[last], 0.0) if total > 0 else np.zeros(descending.size)


def to_counts(noisy: FloatArray) -> NDArray[np.int64]:
    """Return non-negative integers near ``noisy`` that sum to its rounded sum, or to zero if that is negative.

    >>> to_counts(np.array([3.2, -1.0, 2.1])).tolist()
    [3, 0, 1]
    """
    total = max(0, round(float(noisy.sum())))
    projected = project_to_total(noisy, float(total))
    floors = np.floor(projected).astype(np.int64)
    missing = total - int(floors.sum())
    largest = np.argsort(-(projected - floors), kind="stable")[:missing]
    floors[largest] += 1
    return floors
