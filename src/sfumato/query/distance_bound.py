"""Bounds of answers that no noisy table holds, from how far the table is from the model: valid, and wide.

With U the upper end of the L1 distance between the table's and the model's counts of a pair and T that of the
difference of their numbers of rows, an answer that adds between a <= 0 and b >= 0 for each row differs by at most
(b - a)(U + T)/2: what the table has more of adds at most b a row, what it has less of at least a, and these numbers of
rows are at most (U + T)/2 each.  The mean of values between v and w over D rows of the model differs by at most
(w - v)(U + T)/(2 D): the sum of (value - mean of the table) over these rows is nothing in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.domain import Domain
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyDistance, NoisyTable, whole_counts
from sfumato.query.aggregates import Confidence
from sfumato.query.direct_estimate import ProjectedCounts, Term, estimate, term_weights

_OF_DISTANCE = Fraction(4, 5)  # of what the bound may miss: the rest is of the number of rows


@dataclass(frozen=True)
class DistanceBound:
    """Between ``low`` and ``high`` lies the table's answer; at most ``misplaced`` of its rows lie in other cells.

    ``pair`` names the attributes of the cells.
    """

    low: float
    high: float
    pair: tuple[str, str]
    misplaced: float

    def __str__(self) -> str:
        return (
            f"at most {100 * self.misplaced:.3g} % of the rows are in other cells of {' x '.join(self.pair)} than the "
            f"model has, so the table's answer lies between {self.low:.6g} and {self.high:.6g}"
        )


def distance_bound(
    distances: Sequence[NoisyDistance],
    tables: Sequence[NoisyTable],
    cells: FloatArray,
    *,
    terms: Sequence[Term],
    domain: Domain,
    confidence: Confidence,
) -> DistanceBound | None:
    """The bound of a signed sum of terms over a pair; None where its distance was not measured, or nobody is counted.

    ``cells`` are the model's counts over the attributes of the terms, in the domain's order: shape of their codes.
    """
    named = frozenset().union(*(term.attributes for term in terms))
    found = next((each for each in distances if set(each.attributes) == named), None)
    counted = estimate(tables, (), [_EVERYBODY], domain, _missing(confidence, 1 - _OF_DISTANCE))[0]
    if found is None or isinstance(counted, str):
        return None
    if found.reference is not None:
        reference, beside = found.reference.astype(np.float64), 0.0
    elif found.beside:
        reference, beside = cells, found.beside
    else:
        reference, beside = whole_counts(cells, round(float(cells.sum()))).astype(np.float64), 0.0
    total = round(float(reference.sum()))
    apart = found.value + _missing(confidence, 2 * _OF_DISTANCE).half_width(found.noise) + beside
    rows = counted.of_table()
    beyond = max(abs(rows.low - total), abs(rows.high - total))
    moved = (max(0.0, apart) + beyond) / 2
    view = ProjectedCounts(reference, tuple(np.arange(size) for size in reference.shape))
    value = half = 0.0
    for term in terms:
        weights = term_weights(view, term, found.attributes, domain)
        assert weights is not None  # every code is its own group
        if weights.below is None:
            value += term.sign * float((weights.above * reference).sum())
            width = max(0.0, float(weights.above.max())) - min(0.0, float(weights.above.min()))
            half += width * moved + float((weights.off * reference).sum()) + float(weights.off.max()) * moved
            continue
        below = float((weights.below * reference).sum())
        if not below > 0:
            return None
        inside = weights.above[weights.below > 0]
        value += term.sign * float((weights.above * reference).sum()) / below
        half += float(inside.max() - inside.min()) * moved / below + float(weights.off.max())
    return DistanceBound(value - half, value + half, found.attributes, min(1.0, moved / max(1.0, rows.low)))


_EVERYBODY = Term(1, None, None, False, None, "", ())


def _missing(confidence: Confidence, part: Fraction) -> Confidence:
    """What misses that part of what a certainty may miss."""
    return Confidence(max(Fraction(1, 1000), 1 - (1 - confidence.probability) * part))
