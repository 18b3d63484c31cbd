"""What whoever runs the server sees: log lines and figures, never a value of a table, a question or an answer.

Logs are one JSON object a line on standard error; figures have no labels that could name a person or a question.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess

_LOGGER = logging.getLogger("sfumato.http")
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names the folder by which several workers add up their figures
REQUESTS = Counter("sfumato_requests_total", "Requests by status class.", ["status"])
SECONDS = Histogram("sfumato_work_seconds", "Seconds of work on a request.", ["work"])


def log(event: str, **facts: str | float | None) -> None:
    """Write a line."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _LOGGER.info(json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def to_standard_error() -> None:
    """Show the lines of this process."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False


@contextmanager
def timed(work: str) -> Iterator[None]:
    """Measure a piece of work."""
    start = time.perf_counter()
    try:
        yield
    finally:
        SECONDS.labels(work).observe(time.perf_counter() - start)


def exposition() -> bytes:
    """The text format, summed over all workers where they share a folder."""
    if SHARED not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
