"""How few people are likely to lie over the outermost cells of an ordered attribute: post-processing of noisy counts.

Bounds are declared wide: incomes to a million, ages to 120.  In the cells next to a bound hardly anybody is, so that
noise outweighs their counts; people who are spread over them evenly end up far too near the bound, and the total of the
column grows.  What is known of such cells is where they begin, how dense the cells before them are, and that fewer and
fewer people come towards the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.model.coarsening import RARE, Coarsening
from sfumato.model.factor import FloatArray

STRAY = 4.5
"""Standard deviations below which cells beyond a rare group are noise as well: of so many cells, one passes three."""

_SCALES = 48
_STEEPEST, _FLATTEST = 0.02, 2.0  # lengths of decay: of the first cell's width, and of all widths
_WEIGHTS = (0.0, 0.25, 0.5, 1.0)  # of the tail: exponential, and ever heavier
_MISFIT = 3.0  # standard deviations of a sum of squares above which no falling tail explains the counts
_LEAST = 0.5  # standard deviations that are taken for the count of cells before a tail where it came out smaller


@dataclass(frozen=True, eq=False)
class FallingTail:
    """Curves that a tail may follow, shape ``(curves, cells)`` from the inside outwards, and how likely each is."""

    curves: FloatArray
    likely: FloatArray

    @cached_property
    def counts(self) -> FloatArray:
        """Expected counts, shape ``(cells,)``."""
        return self.likely @ self.curves

    def variance(self, among: NDArray[np.bool_]) -> float:
        """How uncertain the sum of the cells ``among`` is."""
        sums = self.curves[:, among].sum(axis=1)
        return float(self.likely @ (sums - self.likely @ sums) ** 2)


def falling_tail(counts: FloatArray, widths: FloatArray, variance: float, *, density: float) -> FallingTail | None:
    """The tails that fall from ``density`` on, weighted by how well they explain noisy counts.

    Tails are generalised Pareto curves (Pickands 1975) that begin at the density of the cells before them: forty-eight
    lengths, equally likely on a logarithmic scale, by four shapes from the exponential to one of infinite mean.  Under
    noise of ``variance`` a cell their weights are likelihoods, so that counts that noise could have made stay near none
    and a tail that stands out of the noise is followed.  No cell is negative and none is denser than the one before.

    Args:
        counts: noisy counts from the inside outwards, shape ``(cells,)``.
        widths: of the cells in the attribute's own unit, positive, shape ``(cells,)``.
        variance: of the noise on a cell.
        density: people a unit just before the tail, positive.

    Returns:
        None where no such tail explains the counts: their misfit is three deviations above what noise makes.

    >>> import numpy as np
    >>> tail = falling_tail(np.array([9.0, 2.0, -3.0, 4.0]), np.ones(4), 25.0, density=20.0)
    >>> bool((np.diff(tail.counts) < 0).all() and tail.counts[-1] < 1)
    True
    """
    ends = np.concatenate(([0.0], np.cumsum(widths)))
    lengths = np.geomspace(_STEEPEST * widths[0], _FLATTEST * ends[-1], _SCALES)[:, None]
    curves = density * np.concatenate([_held(ends / lengths, weight) * lengths for weight in _WEIGHTS])
    misfits = ((curves - counts) ** 2).sum(axis=1) / variance
    if misfits.min() > len(counts) + _MISFIT * np.sqrt(2 * len(counts)):
        return None
    likely = np.exp((misfits.min() - misfits) / 2)
    return FallingTail(curves, likely / likely.sum())


def with_falling_tails(
    coarsening: Coarsening, counts: FloatArray, variance: float, widths: FloatArray
) -> tuple[Coarsening, dict[int, tuple[float, float]]]:
    """Share out the rare groups at both ends of an ordered attribute as tails, and estimate what they hold.

    Args:
        coarsening: groups of neighbours among the first ``len(widths)`` codes.
        counts: noisy counts of all codes, shape ``(codes,)``.
        variance: of the noise on a code.
        widths: of the ordered codes; single numbers among wider cells have none, and are in no tail.

    Returns:
        The same groups with the weights of the tails, and of each group in a tail its expected count with the
        variance of that.
    """
    ordered, spread = len(widths), np.flatnonzero(widths > 0)
    groups, weights = coarsening.groups, coarsening.weights.copy()
    estimates: dict[int, tuple[float, float]] = {}
    for outwards in (spread, spread[::-1]):
        start = _start(groups[outwards], counts[outwards], variance)
        codes = outwards[start:]
        if start == 0 or not len(codes):
            continue
        before = groups == groups[outwards[start - 1]]
        held = max(float(counts[before].sum()), _LEAST * np.sqrt(variance * before.sum()))
        tail = falling_tail(
            counts[codes], widths[codes], variance, density=held / float(widths[before[:ordered]].sum())
        )
        if tail is None:
            continue
        weights[codes] = tail.counts
        for group in dict.fromkeys(groups[codes].tolist()):
            among = groups[codes] == group
            estimates[group] = (float(tail.counts[among].sum()), tail.variance(among))
    return replace(coarsening, weights=weights), estimates


def _start(groups: NDArray[np.int64], counts: FloatArray, variance: float) -> int:
    """Where the tail begins: after the outermost group that stands out of the noise."""
    firsts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    sums = np.add.reduceat(counts, firsts)
    clear = sums / np.sqrt(variance * np.diff(firsts, append=len(groups)))
    kept = len(firsts)
    while kept and (clear[kept - 1] < RARE or (clear[kept - 1] < STRAY and kept > 1 and clear[kept - 2] < RARE)):
        kept -= 1
    return int(firsts[kept]) if kept < len(firsts) else len(groups)


def _held(ends: FloatArray, weight: float) -> FloatArray:
    """What a curve of density one at zero and length one holds between neighbouring ends."""
    beyond = np.exp(-ends) if weight == 0 else (1 + weight * ends) ** (-1 / weight)
    return -np.diff(beyond)
