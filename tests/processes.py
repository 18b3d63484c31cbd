"""Processes forked from one that has imported what they need, which a fresh interpreter takes seconds of CPU for.

Tests that need a fresh program (starting from nothing, spawning workers) do not fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from pkgutil import resolve_name
from subprocess import TimeoutExpired

from uvicorn import _subprocess as uvicorn_workers

WORKERS_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # is read when its library is imported, which is why that is no preload
_PRELOAD = (
    "__main__",
    "tests.ledger.racing_processes",
    "duckdb",
    "fastapi",
    "httptools",
    "jinja2",
    "psycopg",
    "pyarrow.parquet",
    "python_multipart",
    "sfumato.query",
    "sfumato.synthesize",
    "sfumato.vault",
    "sqlglot",
    "typer",
    "uvicorn.main",
    "uvloop",
)


def processes() -> ForkServerContext:
    """Return a server that forks processes with everything already imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    return context


class Forked:
    """A program of ours in a forked process, to be dealt with like a ``subprocess.Popen``.

    Args:
        program: where the function is that runs it: ``module:name``; workers of uvicorn are forked from it.
        arguments: ``sys.argv`` of it.
        environment: all its variables.
        folder: where it runs; default: here.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path | None = None,
    ) -> None:
        terms = (program, list(arguments), dict(environment), folder or Path.cwd())
        self._process: ForkServerProcess = processes().Process(target=_run, args=terms, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Return its number, which is also the number of its group."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code if it has ended, else None."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired("forked", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and none of its workers."""
        self._process.kill()


def _run(program: str, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
    os.setsid()
    multiprocessing.current_process().daemon = False  # which may have no workers
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments
    with tempfile.TemporaryDirectory(prefix="sfumato-metrics-") as unused:
        os.environ[WORKERS_METRICS] = unused  # so that figures are kept in files; the program names its own folder
        uvicorn_workers.spawn = multiprocessing.get_context("fork")
        resolve_name(program)()
