"""Choosing a quantile on a fine grid without counting all of its cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.engine.port import Counts
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.selection import Exponential
from sfumato.vault.questions import Bins, RankErrors
from sfumato.vault.tallies import Tallies


def choose_cell(tallies: Tallies, asked: RankErrors, mechanism: Exponential, entropy: Entropy) -> int:
    """A cell of the grid with probability proportional to exp(epsilon score / (2 sensitivity)), exactly.

    No cell of a bin misses the quantile by less than the bin does.  So a bin stands for its cells with the weight
    of the best that they could be, until it is drawn; then its cells are counted, and one of them, drawn uniformly,
    is kept with the ratio of its own weight to that.  Each round accepts every cell in proportion to its own
    weight, whatever bins were counted in the rounds before, so what is accepted first has the exact distribution.
    """
    (counts,) = tallies.answers([Bins(asked.value, asked.edges, (), asked.where)])
    below = np.concatenate([[0], np.cumsum(counts)])
    missed = _missed(below, int(below[-1]), asked.probability)
    if asked.parts == 1:
        return mechanism.choose(-missed, entropy)
    closed = np.arange(len(counts))
    opened: dict[int, Counts] = {}
    while True:
        scores = -np.concatenate([missed[closed], *opened.values()])
        sizes = np.concatenate([np.full(len(closed), asked.parts), np.ones(len(scores) - len(closed), dtype=np.int64)])
        group, place = mechanism.choose_among(scores, sizes, entropy)
        if group >= len(closed):
            which, cell = divmod(group - len(closed), asked.parts)
            return list(opened)[which] * asked.parts + cell
        bin_ = int(closed[group])
        opened[bin_] = _cells(tallies, asked, bin_, below)
        closed = np.delete(closed, group)
        if mechanism.keeps(int(opened[bin_][place] - missed[bin_]), entropy):
            return bin_ * asked.parts + place


def _cells(tallies: Tallies, asked: RankErrors, bin_: int, below: Counts) -> Counts:
    """By how much each cell of a bin misses the quantile."""
    start, end = asked.edges[bin_], asked.edges[bin_ + 1]
    edges = (*_divided(start, end, asked.parts)[:-1].tolist(), end)
    counts = tallies.looked_at(Bins(asked.value, edges, (), asked.where))
    within = below[bin_] + np.concatenate([[0], np.cumsum(counts)])
    within[-1] = below[bin_ + 1]  # rows at the right end are in the next bin
    return _missed(within, int(below[-1]), asked.probability)


def _divided(start: float, end: float, parts: int) -> NDArray[np.float64]:
    """Edges of ``parts`` cells of one width between two edges."""
    edges: NDArray[np.float64] = start + np.arange(parts + 1, dtype=np.float64) * ((end - start) / parts)
    return edges


def _missed(below: Counts, rows: int, probability: Fraction) -> Counts:
    """max(0, f(x), -f(y)) of each cell, from the rows below its edges: see :class:`RankErrors`."""
    above = below * probability.denominator - rows * probability.numerator  # (b - a) B - a (N - B)
    missed: Counts = np.maximum(0, np.maximum(above[:-1], -above[1:]))
    return missed
