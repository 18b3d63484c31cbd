"""Microaggregation by maximum distance to the average vector (MDAV; Domingo-Ferrer and Torra 2005)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.partition import Partition
from sfumato.anonymize.space import Intervals, Space

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


def partition(values: Reals, counts: Integers, *, k: int) -> Partition:
    """Groups of k to 2k - 1 rows that are close in squared distance.

    While 3k rows are left, the row farthest from their mean takes its k - 1 nearest, then the row farthest
    from that one does; of 2k or more, one more group is taken; the rest is the last group.

    Args:
        values: numbers to group by, standardised as wanted, shape ``(tuples, attributes)``.
        counts: rows of each tuple, shape ``(tuples,)``; their sum is at least k.
        k: least rows of a group.
    """
    left = counts.copy()
    groups = []
    while left.sum() >= 3 * k:
        mean = left @ values / left.sum()
        far = _farthest(values, left, mean)
        groups.append(_take(values, left, values[far], k))
        groups.append(_take(values, left, values[_farthest(values, left, values[far])], k))
    if left.sum() >= 2 * k:
        mean = left @ values / left.sum()
        groups.append(_take(values, left, values[_farthest(values, left, mean)], k))
    if left.any():
        groups.append((np.flatnonzero(left), left[left > 0]))
    return Partition.of(groups)


def means(values: Reals, groups: Partition) -> Reals:
    """Mean of every group: what its rows are published with, shape ``(groups, attributes)``."""
    weighted = values[groups.tuples] * groups.rows[:, None]
    starts = np.searchsorted(groups.classes, np.arange(groups.size))
    result: Reals = np.add.reduceat(weighted, starts, axis=0) / groups.counts()[:, None]
    return result


def squared_error(values: Reals, groups: Partition) -> float:
    """Sum of squared distances of all rows to the mean of their group."""
    gaps = values[groups.tuples] - means(values, groups)[groups.classes]
    return float(groups.rows @ (gaps**2).sum(axis=1))


def _distances(values: Reals, point: Reals) -> Reals:
    result: Reals = ((values - point) ** 2).sum(axis=1)
    return result


def _farthest(values: Reals, left: Integers, point: Reals) -> int:
    return int(np.where(left > 0, _distances(values, point), -1.0).argmax())


def _take(values: Reals, left: Integers, point: Reals, k: int) -> tuple[Integers, Integers]:
    """Remove the k rows nearest to a point from ``left``."""
    order = np.argsort(np.where(left > 0, _distances(values, point), np.inf), kind="stable")
    rows = left[order]
    taken = np.clip(k - (np.cumsum(rows) - rows), 0, rows)
    used = taken > 0
    left[order[used]] -= taken[used]
    return order[used], taken[used]


def positions(space: Space) -> Reals:
    """Numbers of the tuples: values of ordered attributes, ranks of others."""
    columns = [
        (scale.positions if isinstance(scale, Intervals) else scale.ranks.astype(np.float64))[codes][points]
        for scale, codes, points in zip(space.scales, space.codes, space.points.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def standardised(values: Reals, counts: Integers) -> Reals:
    """Every attribute divided by its standard deviation over the rows."""
    mean = counts @ values / counts.sum()
    deviation = np.sqrt(counts @ (values - mean) ** 2 / counts.sum())
    result: Reals = values / np.where(deviation > 0, deviation, 1.0)
    return result
