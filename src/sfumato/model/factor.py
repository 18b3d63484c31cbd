"""A table of numbers over a few attributes: the one noun of inference.

Factors multiply, add up and marginalise; axes are matched by attribute name, never by position.

Many marginals of one table, and their transpose, many small tables summed into one, walk the same chains of
subsets.  A marginal is reached from the full table by dropping the largest attribute that is not wanted, then the next;
chains share their beginnings, so a table of a million cells is read a few times however many of its marginals are
asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factor:
    """One number a cell: ``values`` has one axis an attribute, in the order of ``attributes``.

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
        """A factor with the same number in every cell."""
        return Factor(tuple(attributes), np.full([sizes[name] for name in attributes], value, dtype=np.float64))

    @property
    def total(self) -> float:
        """Sum of all cells."""
        return float(self.values.sum())

    def project(self, attributes: Sequence[str]) -> Factor:
        """Sum over all other attributes; axes in the order given."""
        return Factor(tuple(attributes), self._ordered(attributes, self.values.sum(axis=self._others(attributes))))

    def expand(self, attributes: Sequence[str]) -> FloatArray:
        """The values as a view that broadcasts against a table over ``attributes``, a superset of its own."""
        kept = [name for name in attributes if name in self.attributes]
        moved = self.values.transpose([self.attributes.index(name) for name in kept])
        return moved[tuple(slice(None) if name in self.attributes else None for name in attributes)]

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

    def _ordered(self, attributes: Sequence[str], values: FloatArray) -> FloatArray:
        kept = [name for name in self.attributes if name in attributes]
        return values.transpose([kept.index(name) for name in attributes])


def project_all(factor: Factor, targets: Sequence[Sequence[str]]) -> list[FloatArray]:
    """The marginals of a factor over each target, axes in the target's order.

    >>> import numpy as np
    >>> joint = Factor(("a", "b"), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    >>> [table.tolist() for table in project_all(joint, [("a",), ("b",), ()])]
    [[6.0, 15.0], [5.0, 7.0, 9.0], 21.0]
    """
    sizes = dict(zip(factor.attributes, factor.values.shape, strict=True))
    known: dict[frozenset[str], Factor] = {frozenset(factor.attributes): factor}
    for target in targets:
        wanted = frozenset(target)
        current = factor
        for name in _dropped(sizes, wanted):
            rest = tuple(other for other in current.attributes if other != name)
            key = frozenset(rest)
            if key not in known:
                known[key] = Factor(rest, current.values.sum(axis=current.attributes.index(name)))
            current = known[key]
        known[wanted] = current
    return [known[frozenset(target)].project(target).values for target in targets]


def sum_all(factors: Iterable[Factor], sizes: Mapping[str, int]) -> FloatArray:
    """The sum of factors over subsets of the attributes of ``sizes``, one axis an attribute of it."""
    names = tuple(sizes)
    pending: dict[frozenset[str], FloatArray] = {}
    for factor in factors:
        _add(pending, tuple(name for name in names if name in factor.attributes), factor)
    for count in range(len(names)):
        for key in [key for key in pending if len(key) == count]:
            held = tuple(name for name in names if name in key)
            grown = key | {_dropped(sizes, key)[-1]}
            _add(pending, tuple(name for name in names if name in grown), Factor(held, pending.pop(key)), sizes)
    return pending.get(frozenset(names), np.zeros(tuple(sizes.values())))


def _add(
    pending: dict[frozenset[str], FloatArray],
    attributes: tuple[str, ...],
    factor: Factor,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Add a factor to the pending table over ``attributes``; ``sizes`` where those are more than its own."""
    key = frozenset(attributes)
    values = factor.expand(attributes)
    if key in pending:
        pending[key] += values
    elif sizes is None:
        pending[key] = np.array(values)
    else:
        pending[key] = np.broadcast_to(values, [sizes[name] for name in attributes]).copy()


def _dropped(sizes: Mapping[str, int], wanted: frozenset[str]) -> list[str]:
    return sorted((name for name in sizes if name not in wanted), key=lambda name: (-sizes[name], name))


def project_to_total(values: NDArray[np.int64] | FloatArray, total: float) -> FloatArray:
    """The nearest non-negative table that sums to ``total``, in least squares (Held, Wolfe and Crowder 1974;
    Duchi, Shalev-Shwartz, Singer and Chandra 2008, Figure 1).

    Everything is shifted by one number and what falls below zero is clipped.

    >>> project_to_total(np.array([5, -3, 1]), 4).tolist()
    [4.0, 0.0, 0.0]
    >>> project_to_total(np.array([5, -3, 1]), 5).tolist()
    [4.5, 0.0, 0.5]
    """
    ordered = np.sort(values)[::-1].astype(np.float64)
    shifts = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    last = int(np.flatnonzero(ordered > shifts)[-1]) if total > 0 else 0
    return np.maximum(values - shifts[last], 0.0) if total > 0 else np.zeros(ordered.size)
