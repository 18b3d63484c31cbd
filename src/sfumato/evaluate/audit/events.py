"""Search, on one half of the outputs, for the event that tells two inputs apart best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.audit.bounds import Measure, lower_bounds
from sfumato.evaluate.audit.scores import Score, Scores, scores_for
from sfumato.evaluate.audit.subject import Outputs

_THRESHOLDS = 256  # thresholds tried of each score
_ATOMS = 32  # most frequent values tried as events of their own


class Side(StrEnum):
    """How an event compares a score with its threshold."""

    AT_MOST = "<="
    ABOVE = ">"
    EQUAL = "="


@dataclass(frozen=True, eq=False)
class Event:
    """A set of outputs, said to be likelier on the first input, or on the second where ``reverse``."""

    name: str
    score: Score
    side: Side
    threshold: float
    reverse: bool

    def holds(self, drawn: Outputs) -> NDArray[np.bool_]:
        """Which outputs are in the event."""
        return _compare(self.score(drawn), self.side, self.threshold)

    def __str__(self) -> str:
        order = "second input against first" if self.reverse else "first input against second"
        return f"{self.name} {self.side} {self.threshold:.6g}, {order}"


def best_event(first: Outputs, second: Outputs, measure: Measure, *, error: float) -> tuple[Event, float]:
    """The event with the largest lower bound on these outputs, and that bound.

    Having been chosen on them, the bound proves nothing here: it has to be taken again on other outputs.
    """
    best, largest = None, -np.inf
    for name, score in scores_for(first, second).items():
        one, two = score(first), score(second)
        for side, thresholds in _candidates(one, two):
            held = [_count(scores, side, thresholds) for scores in (one, two)]
            for reverse in (False, True):
                more, less = (held[1], held[0]) if reverse else (held[0], held[1])
                bounds = lower_bounds(measure, more, less, len(first), error=error)
                place = int(np.argmax(bounds))
                if best is None or bounds[place] > largest:
                    largest = float(bounds[place])
                    best = Event(name, score, side, float(thresholds[place]), reverse)
    assert best is not None  # there is always the likelihood ratio
    return best, largest


def _candidates(one: Scores, two: Scores) -> Iterator[tuple[Side, Scores]]:
    values, counts = np.unique(np.concatenate([one, two]), return_counts=True)
    spaced = values[np.unique(np.linspace(0, len(values) - 1, _THRESHOLDS).astype(np.intp))]
    yield Side.AT_MOST, spaced
    yield Side.ABOVE, spaced
    yield Side.EQUAL, values[np.argsort(counts)[-_ATOMS:]]


def _count(scores: Scores, side: Side, thresholds: Scores) -> NDArray[np.intp]:
    ordered = np.sort(scores)
    upto = np.searchsorted(ordered, thresholds, side="right")
    match side:
        case Side.AT_MOST:
            return upto
        case Side.ABOVE:
            return np.asarray(len(scores) - upto, dtype=np.intp)
        case Side.EQUAL:
            return np.asarray(upto - np.searchsorted(ordered, thresholds, side="left"), dtype=np.intp)


def _compare(scores: Scores, side: Side, threshold: float) -> NDArray[np.bool_]:
    match side:
        case Side.AT_MOST:
            return np.asarray(scores <= threshold)
        case Side.ABOVE:
            return np.asarray(scores > threshold)
        case Side.EQUAL:
            return np.asarray(scores == threshold)
