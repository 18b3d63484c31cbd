"""Membership: was this person in the released table?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.released import Weights

Scores = NDArray[np.float64]

KNOWLEDGE = "the whole row of the target"
_BANDWIDTH = 3.0  # one column of agreement multiplies a row's part in the density by e^3


@dataclass(frozen=True, eq=False)
class Roc:
    """True and false positive rates over all thresholds, on the testing half."""

    false_positive: Scores
    true_positive: Scores


def membership_scores(close: Weights) -> tuple[Scores, Scores]:
    """Two scores of each target: its nearest released row, and the density of rows around it.

    ``close`` are similarities over all columns, shape ``(targets, rows)``.
    """
    nearest = close.max(axis=1).astype(np.float64)
    weight = np.subtract(close, nearest[:, None], dtype=np.float32)
    np.multiply(weight, _BANDWIDTH, out=weight)
    np.exp(weight, out=weight)
    return nearest, np.log(weight.sum(axis=1, dtype=np.float64)) + _BANDWIDTH * nearest


def guess_members(fit: tuple[Scores, ...], test: tuple[Scores, ...]) -> tuple[NDArray[np.bool_], Scores]:
    """Guesses on the testing half by the score and threshold that were best on the fitting half.

    Scores are for members, then as many controls.  Returned are the guesses and the score chosen.
    """
    best, chosen, threshold = -1.0, 0, np.inf
    for number, scores in enumerate(fit):
        gain, at = _best_threshold(scores)
        if gain > best:
            best, chosen, threshold = gain, number, at
    return test[chosen] >= threshold, test[chosen]


def roc(scores: Scores) -> Roc:
    """The curve of scores for members, then as many controls."""
    half = len(scores) // 2
    thresholds = np.unique(scores)[::-1]
    members, controls = np.sort(scores[:half]), np.sort(scores[half:])
    above = [1 - np.searchsorted(kind, thresholds, side="left") / half for kind in (controls, members)]
    return Roc(np.concatenate([[0.0], above[0]]), np.concatenate([[0.0], above[1]]))


def _best_threshold(scores: Scores) -> tuple[float, float]:
    curve = roc(scores)
    gains = curve.true_positive - curve.false_positive
    place = int(np.argmax(gains))
    thresholds = np.concatenate([[np.inf], np.unique(scores)[::-1]])
    return float(gains[place]), float(thresholds[place])
