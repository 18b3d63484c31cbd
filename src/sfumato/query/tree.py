"""Cumulative counts from noisy counts of nested bins.

Every level divides the bins of the level above into ``BRANCHES``.  Any prefix is then a sum of a few bins
of every level instead of thousands of the finest, and least squares over the tree make the levels agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Integer, Real

Floats = NDArray[np.float64]

BRANCHES = 16
LEAVES = BRANCHES**3


@dataclass(frozen=True)
class Ladder:
    """Edges of the levels, finest first.  Leaf i holds the values from ``edges[0][i]`` up to the next edge."""

    edges: tuple[tuple[float, ...], ...]

    @property
    def leaves(self) -> int:
        """Number of bins of the finest level."""
        return len(self.edges[0]) - 1


@lru_cache(maxsize=256)
def ladder(attribute: Integer | Real) -> Ladder:
    """Bins of one width: single integers where there are at most 4096 of them, otherwise 4096 bins or fewer."""
    if isinstance(attribute, Integer):
        values = attribute.maximum - attribute.minimum + 1
        width: float = -(-values // LEAVES)
        needed = -(-values // int(width))
    else:
        needed = LEAVES
        width = (attribute.maximum - attribute.minimum) / LEAVES
        while attribute.minimum + LEAVES * width < attribute.maximum:  # rounding may not lose the largest values
            width = math.nextafter(width, math.inf)
    heights = max(1, math.ceil(math.log(needed, BRANCHES) - 1e-9))
    step = BRANCHES ** (heights - 1)
    total = -(-needed // step) * step
    finest = tuple(float(attribute.minimum + place * width) for place in range(total + 1))
    return Ladder(tuple(finest[:: BRANCHES**height] for height in range(heights)))


def consistent(levels: Sequence[Floats]) -> Floats:
    """Least-squares leaves from noisy counts of all levels, finest first, of equal variance.

    Source: Hay, Rastogi, Miklau, Suciu 2010, Theorem 3, for the trees under each bin of the coarsest level.

    Args:
        levels: noisy counts, shape ``(groups, bins of the level)``.

    Returns:
        Shape ``(groups, leaves)``.
    """
    branches = BRANCHES
    up = [levels[0]]
    for height in range(1, len(levels)):
        below = up[-1].reshape(len(up[-1]), -1, branches).sum(axis=2)
        power, lower = float(branches ** (height + 1)), float(branches**height)
        own = (power - lower) / (power - 1)
        up.append(own * levels[height] + (1 - own) * below)
    down = up[-1]
    for level in reversed(up[:-1]):
        family = level.reshape(len(level), -1, branches)
        family = family + ((down - family.sum(axis=2)) / branches)[:, :, None]
        down = family.reshape(len(level), -1)
    leaves: Floats = down
    return leaves


def increasing(cumulative: Floats) -> Floats:
    """Cumulative counts that never fall: midway between the running maximum and the running minimum from the right."""
    rising = np.maximum.accumulate(cumulative, axis=-1)
    falling = np.minimum.accumulate(cumulative[..., ::-1], axis=-1)[..., ::-1]
    return (rising + falling) / 2


def rank_variance(places: NDArray[np.int64], probability: Floats, leaves: int, levels: int) -> Floats:
    """Upper bound, in variances of one bin, on the variance of (count below ``places``) - probability * (count of all).

    It is the variance of the estimate that adds the fewest bins from the coarsest level down and takes the
    total from the coarsest; least squares over the same counts do at least as well (Gauss and Markov).
    """
    top = leaves // BRANCHES ** (levels - 1)
    step = BRANCHES ** (levels - 1)
    whole, rest = np.divmod(places, step)
    variance: Floats = (1 - probability) ** 2 * whole + probability**2 * (top - whole)
    for height in range(levels - 2, -1, -1):
        bins, rest = np.divmod(rest, BRANCHES**height)
        variance = variance + np.minimum(bins, BRANCHES - bins + 1)
    return variance
