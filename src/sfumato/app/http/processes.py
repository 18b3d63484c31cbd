"""Worker processes of uvicorn behind one address, none of which outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from multiprocessing import parent_process

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_PARTING = 40  # seconds that requests under way get when the server is to end: more than a ledger waits for a lock
_SILENCE = 15  # seconds for which a worker may not answer its parent, which then kills it


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
