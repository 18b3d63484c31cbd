"""Worker processes of uvicorn behind one address, none of which outlives its parent, and what their operator sees.

A worker that dies is replaced, and the log has the reason.

Logs are one JSON object a line on standard error; figures have no labels that could name a person or a question.
Neither ever holds a value of a table, a question or an answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import parent_process
from pathlib import Path

import uvicorn
import uvicorn.config
from prometheus_client import multiprocess
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from sfumato.app.http.problems import REPLACED, SHARED, log, to_standard_error

_PARTING = 40  # seconds that requests under way get when the server is to end: more than a ledger waits for a lock
_SILENCE = 15  # seconds for which a worker may not answer its parent, which then kills it

_REPLACES = "SFUMATO_REPLACES"  # is set for a worker that takes the place of one that died
ARRIVAL = "SFUMATO_ARRIVAL"  # names the seconds within which a request has to arrive


_BY_HTTPTOOLS = AutoHTTPProtocol.__module__.endswith(".httptools_impl")


class _Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # a class that depends on what is installed
    """HTTP whose replies leave at once, and whose clients may not take for ever.

    A reply in two writes otherwise waits for a delayed acknowledgement, 40 ms: asyncio sees to that for sockets
    that say they are TCP, which the one that uvicorn shares among several workers does not.

    A request has to arrive whole within the time of :func:`_arrival`, counted from the connection or from the reply
    before, however many bytes come meanwhile; a reply that nobody reads is given up after as long.  Of connections
    whose requests have not arrived, a worker keeps so many, the youngest.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _BY_HTTPTOOLS:  # which refuses a body of two lengths in its own words: RequestGuard does
            self.parser.set_dangerous_leniencies(lenient_chunked_length=True)
        self._awaited: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(_arrival(), self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._awaited, self._unread)
        _AWAITED.pop(self, None)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Begin to wait for a request, or stop, as one is being answered."""
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            _cancel(self._awaited)
            self._awaited = None
            _AWAITED.pop(self, None)
        elif self._awaited is None and not self.transport.is_closing():
            self._awaited = self.loop.call_later(_arrival(), self.transport.abort)
            _AWAITED[self] = None
            if len(_AWAITED) > _MOST_AWAITED:
                oldest = next(iter(_AWAITED))
                del _AWAITED[oldest]
                oldest.transport.abort()


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


@cache
def _arrival() -> float:
    """Seconds within which a request has to arrive."""
    return float(os.environ.get(ARRIVAL, "30"))


_AWAITED: dict[_Prompt, None] = {}  # connections whose requests have not arrived, oldest first
_MOST_AWAITED = 512


def run(
    application: str, *, host: str, port: int, workers: int, proxies: Sequence[str], tls: tuple[Path, Path] | None
) -> None:
    """Serve until a signal ends it, and what is under way then, within a minute.

    Args:
        application: where the function is that makes the application in each worker: ``module:name``.
        host: address to listen on.
        port: port to listen on.
        workers: processes.
        proxies: addresses and networks whose word on who asks, and by which scheme, is taken.
        tls: a certificate and its key; None for plain HTTP.
    """
    config = uvicorn.Config(
        application,
        factory=True,
        http=_Prompt,
        host=host,
        port=port,
        workers=workers,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else str(tls[1]),
        timeout_graceful_shutdown=_PARTING,  # without it, a client who never finishes a request keeps it from ending
        timeout_worker_healthcheck=_SILENCE,  # of 5 seconds, a busy machine takes more to start a worker
    )
    if workers > 1:
        to_standard_error()
        _Supervisor(config, sockets=[config.bind_socket()]).run()
        return
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(uvicorn.config.STARTUP_FAILURE)


class _Supervisor(Multiprocess):
    """The parent of workers, which replaces one that dies and logs why it died."""

    def keep_subprocess_alive(self) -> None:
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if worker.is_alive(timeout=_SILENCE):
                continue
            silent = worker.process.is_alive()
            worker.kill()
            worker.join()
            log("worker died", worker=worker.pid, reason=_death(worker.exitcode, silent=silent))
            if SHARED in os.environ:
                multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            if worker.exitcode == uvicorn.config.STARTUP_FAILURE:  # the next one would fail in the same way
                self.should_exit.set()
                return
            os.environ[_REPLACES] = "1"
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
            del os.environ[_REPLACES]


def _death(code: int | None, *, silent: bool) -> str:
    """Return why a worker died, in words.

    >>> _death(-9, silent=False)
    'killed by signal 9 (Killed); the system kills so when memory runs out'
    >>> _death(1, silent=False)
    'ended by itself with exit code 1'
    """
    if silent:
        return f"killed by its parent, because it did not answer for {_SILENCE} seconds"
    if code is None or code >= 0:
        return f"ended by itself with exit code {code}"
    named = f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"{named}; the system kills so when memory runs out" if -code == signal.SIGKILL else named


def end_with_parent() -> None:
    """Tell this process to end once the process that started it as a worker is gone; a process of its own stays."""
    if os.environ.pop(_REPLACES, None):
        REPLACED.inc()
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()
