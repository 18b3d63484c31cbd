"""Figures for a monitoring system, without labels that could name a person or a question."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names the folder by which several workers add up their figures
REQUESTS = Counter("sfumato_requests_total", "Requests by status class.", ["status"])
SECONDS = Histogram("sfumato_work_seconds", "Seconds of work on a request.", ["work"])


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
