"""The multiplicative weights of MWEM: a table moved towards everything measured so far.  Knows no data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]

_SMALLEST = 1e-300
_FLAT = 1e-12
_LARGEST_EXPONENT = 150.0  # of one pass, where each query misses by the whole table


class History:
    """The queries measured so far with their noisy answers, arranged for the replay.

    The replay needs ``sum of q (m - q . weights)`` over all measured (q, m).  With fewer cells than queries
    it is cheapest from the cells-by-cells matrix ``sum of q q'``; otherwise from the queries themselves.
    """

    def __init__(self, size: int, most: int) -> None:
        self.count = 0
        self.direction = np.sin(np.arange(1.0, size + 1.0))  # of largest curvature, refined from round to round
        self._gram = np.zeros((size, size)) if size <= 2 * most else None
        self._target = np.zeros(size)  # sum of q m
        self._rows = np.zeros((0 if self._gram is not None else most, size))
        self._answers = np.zeros(most)

    def add(self, query: NDArray[np.bool_], answer: float) -> None:
        """Take in one measured query."""
        row = query.astype(np.float64)
        if self._gram is not None:
            self._gram += row[:, None] * row
            self._target += answer * row
        else:
            self._rows[self.count] = row
            self._answers[self.count] = answer
        self.count += 1

    def gradient(self, step: float, total: float) -> Callable[[Weights, Weights], object]:
        """A function that writes ``step * sum of q (m / total - q . share)`` of its first argument into its second."""
        if self._gram is not None:
            # shares sum to one, so the target can be taken into the matrix
            return (self._target[:, None] * (step / total) - step * self._gram).dot
        rows = self._rows[: self.count]
        answers, scaled = self._answers[: self.count] / total, step * rows
        return lambda share, out: (answers - rows.dot(share)).dot(scaled, out)

    def pull(self, share: Weights) -> Weights:
        """``sum of q (q . share)``: shape ``(cells,)``."""
        rows = self._rows[: self.count]
        pulled: Weights = self._gram.dot(share) if self._gram is not None else rows.dot(share).dot(rows)
        return pulled


def replay(weights: Weights, measured: History, repetitions: int) -> Weights:
    """Multiplicative weights over the whole history, ``repetitions`` times.

    The paper multiplies cell x by exp(q(x) (m - q(A)) / 2n) for one measurement (q, m).  Here one pass moves
    along all measurements at once: their exponents are summed, and instead of 1/2 the step is 1/L where
    that is smaller.  L, the largest eigenvalue of the queries' covariance under the current table, is the
    curvature of the dual objective, beyond which simultaneous moves would overshoot.  With one measurement
    (L at most 1/4) a pass is the paper's update.
    """
    ones = np.ones(weights.size)
    total = float(ones.dot(weights))
    share = np.maximum(weights / total, _SMALLEST)
    step = min(0.5, 1 / _curvature(share, measured), _LARGEST_EXPONENT / measured.count)
    gradient = measured.gradient(step, total)
    exponents = np.empty(share.size)
    for _ in range(repetitions):
        gradient(share, exponents)
        np.exp(exponents, exponents)
        share *= exponents
        share /= ones.dot(share)
    return share * total


def _curvature(share: Weights, measured: History) -> float:
    """Largest eigenvalue of the covariance of the measured queries: one power iteration on from the last."""
    moved = measured.pull(share * (measured.direction - share.dot(measured.direction)))
    largest = math.sqrt(moved.dot(moved))
    if largest < _FLAT:  # no query distinguishes cells yet
        return _FLAT
    measured.direction = moved / largest
    return largest
