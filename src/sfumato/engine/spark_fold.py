"""Adding up states over a Spark DataFrame: how reports of many devices become one estimate.

The reports are no protected table: each was randomised where it was made.  What is folded only has to
have states that can be merged in any order, such as the sums of a frequency oracle.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

Absorb = Callable[[Iterator[pa.RecordBatch]], bytes]
Merge = Callable[[list[bytes]], bytes]


def fold(frame: Any, absorb: Absorb, merge: Merge) -> bytes:  # noqa: ANN401 - a pyspark DataFrame, imported lazily
    """The state of all rows.

    Args:
        frame: a Spark DataFrame.
        absorb: makes a state of the rows of one partition; has to be picklable and, as tasks are retried,
            a function of the rows alone.
        merge: makes one state of several, in whatever order and grouping; has to be picklable.

    Returns:
        The merged state; the driver sees one state for each of about the square root of all partitions.
    """
    with quiet():
        states = frame.mapInArrow(partial(_absorbed, absorb), "state binary")
        tasks = max(1, round(frame.rdd.getNumPartitions() ** 0.5))
        merged = states.repartition(tasks).mapInArrow(partial(_merged, merge), "state binary")
        return merge([bytes(row.state) for row in merged.collect()])


@contextmanager
def quiet() -> Iterator[None]:
    """Without Spark 4's warning of pandas 3 where it moves Arrow data, which never becomes a pandas frame here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
        yield


def _absorbed(absorb: Absorb, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _sent(absorb(batches))


def _merged(merge: Merge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    states = [state for batch in batches for state in batch.column(0).to_pylist()]
    if states:
        yield _sent(merge(states))


def _sent(state: bytes) -> pa.RecordBatch:
    return pa.record_batch({"state": pa.array([state], pa.binary())})
