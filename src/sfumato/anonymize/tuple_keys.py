"""Code tuples as single 64-bit keys, and groups of equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

KEY_BITS = 62
DENSE = 4  # a table of all possible keys is used up to this many entries a tuple


@dataclass(frozen=True)
class Keys:
    """One key a tuple: equal keys, equal tuples; every key is below ``bound``, and keys order like tuples."""

    values: Integers  # (tuples,)
    bound: int


@dataclass(frozen=True, eq=False)
class Grouping:
    """Equal keys: ``classes[tuple]`` numbers the class, ``members[class]`` is one tuple of it; ordered by key."""

    classes: Integers  # (tuples,)
    members: Integers  # (classes,)

    def sums(self, values: Integers) -> Integers:
        """Sum of ``values`` (tuples first) over each class, as integers."""
        if values.ndim == 1:
            # float64 sums of counts are exact below 2^53
            return np.bincount(self.classes, weights=values, minlength=len(self.members)).astype(np.int64)
        result = np.zeros((len(self.members), *values.shape[1:]), dtype=np.int64)
        np.add.at(result, self.classes, values)
        return result


def pack(columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> Keys:
    """Mixed-radix keys of code columns, the first column most significant.

    Where 62 bits do not hold a key, the columns packed so far are replaced by their rank, which needs no
    more bits than there are tuples.

    >>> pack([np.array([1, 0]), np.array([2, 2])], [2, 3]).values.tolist()
    [5, 2]
    """
    keys = np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
    bound = 1
    for column, size in zip(columns, sizes, strict=True):
        if (bound * max(size, 1)).bit_length() > KEY_BITS:
            distinct, keys = np.unique(keys, return_inverse=True)
            bound = len(distinct)
        if size > 1:
            keys *= size
            keys += column
            bound *= size
    return Keys(keys, bound)


def group(keys: Keys) -> Grouping:
    """Number the distinct keys in ascending order."""
    tuples = len(keys.values)
    if keys.bound <= DENSE * tuples:
        member = np.full(keys.bound, -1, dtype=np.int64)
        member[keys.values] = np.arange(tuples)
        used = np.flatnonzero(member >= 0)
        number = np.empty(keys.bound, dtype=np.int64)
        number[used] = np.arange(len(used))
        return Grouping(number[keys.values], member[used])
    # Engines return groups in order, so that keys often are already.
    sorted_already = bool(np.all(keys.values[1:] >= keys.values[:-1]))
    order = np.arange(tuples) if sorted_already else np.argsort(keys.values)
    ordered = keys.values[order]
    first = np.ones(tuples, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    classes = np.empty(tuples, dtype=np.int64)
    classes[order] = np.cumsum(first) - 1
    return Grouping(classes, order[first])
