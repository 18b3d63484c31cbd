"""Making released counts look like counts: on request, and always said.

It is post-processing of what was released and costs nothing.  It is not done unasked, because it biases: raw
counts are right on average, and counts forced above zero are too large where there is nobody.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import QueryError
from sfumato.query.answer import Answer, Value
from sfumato.query.question import Count, Distinct

REMARK = (
    "counts were made non-negative integers that sum to their rounded noisy total; intervals are of the noisy counts"
)


def whole_counts(answer: Answer) -> Answer:
    """The answer with its counts turned into non-negative integers that keep their sum.

    The nearest non-negative counts of that sum in Euclidean distance, then the largest remainders rounded up.

    Raises:
        QueryError: a column that is no count.
    """
    expect(answer, Answer, "counts of an Answer are made whole")
    for name, aggregate in zip(answer.columns, answer.query.aggregates, strict=True):
        if not isinstance(aggregate, Count | Distinct):
            raise QueryError(f"{name!r} is no count, and cannot be made a whole number", culprit=aggregate)
    columns = [
        to_counts(np.array([row[place].estimate for row in answer.values])) for place in range(len(answer.columns))
    ]
    values = tuple(
        tuple(
            Value(float(column[group]), value.standard_error, value.low, value.high)
            for column, value in zip(columns, row, strict=True)
        )
        for group, row in enumerate(answer.values)
    )
    return replace(answer, values=values, remarks=(*answer.remarks, REMARK))


def to_counts(noisy: NDArray[np.float64]) -> NDArray[np.int64]:
    """Non-negative integers near ``noisy`` that sum to its rounded sum, or to zero where that is negative.

    >>> to_counts(np.array([3.2, -1.0, 2.1])).tolist()
    [3, 0, 1]
    """
    total = max(0, round(float(noisy.sum())))
    projected = onto_simplex(noisy, float(total))
    floors = np.floor(projected).astype(np.int64)
    missing = total - int(floors.sum())
    largest = np.argsort(-(projected - floors), kind="stable")[:missing]
    floors[largest] += 1
    return floors


def onto_simplex(point: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest non-negative vector of that sum (Duchi, Shalev-Shwartz, Singer and Chandra 2008, Figure 1)."""
    falling = np.sort(point)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(point) + 1)
    last = np.flatnonzero(falling - excess >= 0)
    shift = excess[last[-1]] if len(last) else excess[0]
    nearest: NDArray[np.float64] = np.maximum(point - shift, 0)
    return nearest
