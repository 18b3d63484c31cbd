"""What Spark says when it fails, as one sentence of ours; and its warnings that mean nothing here, unsaid."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sfumato.errors import EngineError, TableError

# Of a worker's traceback only the type of the error is taken: what follows it may quote a row.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?:\w+\.)*(\w+)")
_MEANINGS = (
    (
        ("MALFORMED_RECORD", "MALFORMED_CSV", "TextParsingException"),
        TableError,
        "{} has a record that is no CSV record of the header's columns",
    ),
    (
        ("FileNotFoundException", "FILE_NOT_EXIST"),
        EngineError,
        "{} lost a file since it was opened; open it again",
    ),
    (
        ("No module named 'sfumato'", "PYTHON_VERSION_MISMATCH"),
        EngineError,
        "for {} Spark's executors need this version of sfumato and of Python; name that Python by PYSPARK_PYTHON",
    ),
    (("AccessControlException", "Permission denied"), EngineError, "no permission to read {}"),
    (
        ("OutOfMemoryError", "No space left on device", "Python worker exited unexpectedly"),
        EngineError,
        "Spark ran out of memory or of disk over {}, or a Python worker of its own died",
    ),
)


@contextmanager
def translating(spark: Any, title: str) -> Iterator[None]:  # noqa: ANN401 - a SparkSession, imported lazily
    """Spark's errors become ours, without their data values.

    Args:
        spark: the session that works.
        title: what it works on, as a message names it.

    Raises:
        TableError: what is read is not what its name says.
        EngineError: Spark failed, was stopped, or is no longer there.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    lost = EngineError(f"the connection to Spark was lost; open {title} again", culprit=title)
    if stopped(spark):
        raise lost
    try:
        with quiet():
            yield
    except (Py4JNetworkError, ConnectionError):
        raise lost from None
    except (PySparkException, Py4JError) as error:
        raise _translated(error, title) from None


def stopped(spark: Any) -> bool:  # noqa: ANN401 - a SparkSession, imported lazily
    """Whether the session has been stopped."""
    return spark.sparkContext._jsc is None  # noqa: SLF001 - there is no public question for it


@contextmanager
def quiet() -> Iterator[None]:
    """Without Spark 4's warning of pandas 3 where it moves Arrow data, which never becomes a pandas frame here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
        yield


def _translated(error: Exception, title: str) -> TableError | EngineError:
    """Spark's messages quote data; of them only what went wrong is taken over."""
    text = str(error)
    for marks, kind, meaning in _MEANINGS:
        if any(mark in text for mark in marks):
            return kind(meaning.format(title), culprit=title)
    raised = _RAISED.search(text)
    what = raised[1] if raised else type(error).__name__
    return EngineError(f"Spark failed over {title}: {what}", culprit=title)
