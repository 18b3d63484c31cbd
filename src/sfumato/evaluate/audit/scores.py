"""Numbers that tell outputs on neighbouring inputs apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.audit.subject import Outputs

Scores: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[Outputs], Scores]

_COORDINATES = 16  # coordinates scored on their own; all enter the sum and the likelihood ratio
_BINS = 16  # cells of a coordinate's histogram: few, so that it cannot learn the first half by heart
_ZERO = 4096.0  # exponent given to zero: above that of every double


def scores_for(first: Outputs, second: Outputs) -> dict[str, Score]:
    """Scores by name; the likelihood ratio is fitted on the outputs given."""
    coordinates = range(min(first.shape[1], _COORDINATES))
    found: dict[str, Score] = {}
    for place in coordinates:
        found[f"coordinate {place}"] = lambda drawn, place=place: drawn[:, place]  # type: ignore[misc]
        if not _whole(first[:, place], second[:, place]):
            found[f"lowest bit of coordinate {place}"] = lambda drawn, place=place: (
                lowest_bit(  # type: ignore[misc]
                    drawn[:, place]
                )
                - (drawn[:, place] < 0)
            )  # below zero, rounding a shifted sum costs one bit more
    if first.shape[1] > 1:
        found["sum of coordinates"] = lambda drawn: drawn.sum(axis=1)
    found["likelihood ratio"] = likelihood_ratio(first, second)
    return found


def lowest_bit(values: Scores) -> Scores:
    """Exponent of the least significant bit set in each double (Mironov 2012); 4096 for zero.

    >>> lowest_bit(np.array([1.0, 0.75, 6.0, 0.0])).tolist()
    [0.0, -2.0, 1.0, 4096.0]
    """
    fraction, exponent = np.frexp(values)
    mantissa = np.abs(fraction * (1 << 53)).astype(np.int64)
    lowest = (mantissa & -mantissa).astype(np.float64)
    place = np.frexp(np.maximum(lowest, 1.0))[1] - 1
    return np.where(values == 0, _ZERO, exponent - 53.0 + place)


def likelihood_ratio(first: Outputs, second: Outputs) -> Score:
    """Sum over coordinates of the log ratio of two smoothed histograms with cells of equal mass."""
    edges, logs = [], []
    for one, two in zip(first.T, second.T, strict=True):
        inner = np.unique(np.quantile(np.concatenate([one, two]), np.linspace(0, 1, _BINS + 1)[1:-1]))
        counts = [
            np.bincount(np.searchsorted(inner, side, side="left"), minlength=len(inner) + 1) for side in (one, two)
        ]
        smooth = [(count + 1) / (count.sum() + len(count)) for count in counts]
        edges.append(inner)
        logs.append(np.log(smooth[0]) - np.log(smooth[1]))

    def score(drawn: Outputs) -> Scores:
        total = np.zeros(len(drawn))
        for column, inner, log in zip(drawn.T, edges, logs, strict=True):
            total += log[np.searchsorted(inner, column, side="left")]
        return total

    return score


def _whole(first: Scores, second: Scores) -> bool:
    return bool((first == np.rint(first)).all() and (second == np.rint(second)).all())
