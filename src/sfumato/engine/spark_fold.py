"""Adding up states over a Spark DataFrame: how reports of many devices become one estimate.

The reports are no protected table: each was randomised where it was made.  What is folded only has to
have states that can be merged in any order, such as the sums of a frequency oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pickle import PicklingError
from typing import Any

import pyarrow as pa

from sfumato.engine.spark_failures import translating
from sfumato.errors import InputError

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

    Raises:
        InputError: no DataFrame of a classic session, or one without columns; functions that cannot be pickled.
        TableError: a file of reports is not what its name says.
        EngineError: Spark failed, a function raised an error on an executor, or the session is gone.
    """
    _refuse_other(frame)
    with translating(frame.sparkSession, "the frame of reports"):
        if not frame.columns:
            raise InputError("a frame without columns holds no reports; select the column of theirs")
        try:
            states = frame.mapInArrow(partial(_absorbed, absorb), "state binary")
            tasks = max(1, round(frame.rdd.getNumPartitions() ** 0.5))
            merged = states.repartition(tasks).mapInArrow(partial(_merged, merge), "state binary")
            found = merged.collect()
        except PicklingError:
            raise InputError("functions that executors run have to be picklable, with all that they refer to") from None
    return merge([bytes(row.state) for row in found])


def _refuse_other(frame: object) -> None:
    kind = type(frame)
    if kind.__name__ != "DataFrame" or not kind.__module__.startswith("pyspark.sql.classic."):
        raise InputError(
            f"reports are folded on a DataFrame of a classic Spark session, not on {kind.__module__}.{kind.__name__}",
            culprit=frame,
        )


def _absorbed(absorb: Absorb, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _sent(absorb(batches))


def _merged(merge: Merge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    states = [state for batch in batches for state in batch.column(0).to_pylist()]
    if states:
        yield _sent(merge(states))


def _sent(state: bytes) -> pa.RecordBatch:
    return pa.record_batch({"state": pa.array([state], pa.binary())})
