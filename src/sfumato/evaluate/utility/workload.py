"""Errors of an answered workload, as lab reports state them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import TableError


@dataclass(frozen=True)
class WorkloadError:
    """Absolute errors over the queries of a workload, and their mean square."""

    maximum: float
    minimum: float
    mean: float
    mean_squared: float


def workload_error(truth: NDArray[np.number], answers: NDArray[np.number]) -> WorkloadError:
    """Errors of ``answers`` against ``truth``, both of shape ``(queries,)`` and in the unit of the queries.

    >>> workload_error(np.array([1, 2]), np.array([1, 5]))
    WorkloadError(maximum=3.0, minimum=0.0, mean=1.5, mean_squared=4.5)

    Raises:
        TableError: the shapes differ, or there is no query.
    """
    if truth.shape != answers.shape or not truth.size:
        raise TableError("a workload and its answers need the same, positive number of queries", culprit=None)
    errors = np.abs(np.asarray(answers, dtype=np.float64) - truth)
    return WorkloadError(float(errors.max()), float(errors.min()), float(errors.mean()), float((errors**2).mean()))
