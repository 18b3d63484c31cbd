"""Worker processes of uvicorn behind one address, none of which outlives its parent, and what their operator sees.

Logs are one JSON object a line on standard error; figures have no labels that could name a person or a question.
Neither ever holds a value of a table, a question or an answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_PARTING = 40  # seconds that requests under way get when the server is to end: more than a ledger waits for a lock
_SILENCE = 15  # seconds for which a worker may not answer its parent, which then kills it

_LOGGER = logging.getLogger("sfumato.http")
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names the folder by which several workers add up their figures
REQUESTS = Counter("sfumato_requests_total", "Requests by status class.", ["status"])
SECONDS = Histogram("sfumato_work_seconds", "Seconds of work on a request.", ["work"])


class _Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # a class that depends on what is installed
    """HTTP whose replies leave at once.

    A reply in two writes otherwise waits for a delayed acknowledgement, 40 ms: asyncio sees to that for sockets
    that say they are TCP, which the one that uvicorn shares among several workers does not.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


def run(application: str, *, host: str, port: int, workers: int) -> None:
    """Serve until a signal ends it, and what is under way then, within a minute.

    Args:
        application: where the function is that makes the application in each worker: ``module:name``.
        host: address to listen on.
        port: port to listen on.
        workers: processes.
    """
    uvicorn.run(
        application,
        factory=True,
        http=_Prompt,
        host=host,
        port=port,
        workers=workers,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_PARTING,  # without it, a client who never finishes a request keeps it from ending
        timeout_worker_healthcheck=_SILENCE,  # of 5 seconds, a busy machine takes more to start a worker
    )


def end_with_parent() -> None:
    """Tell this process to end once the process that started it as a worker is gone; a process of its own stays."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


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
