"""The application of the server, its settings, and the worker processes that run it behind one address.

No worker outlives its parent.  The parent replaces a worker that dies and logs the reason.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
import uvicorn.config
from fastapi import FastAPI
from prometheus_client import multiprocess
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from sfumato.app.outbound import outbound
from sfumato.errors import InputError
from sfumato_server import datasets, monitoring, problems, release_jobs, stewards
from sfumato_server.access import CrossOrigin, KeyLookup, RateLimiter, RequestGuard
from sfumato_server.monitoring import StewardAlerts
from sfumato_server.openid import OpenIdSettings, Provider
from sfumato_server.problems import REPLACED, SHARED, log, log_to_standard_error
from sfumato_server.service import Service
from sfumato_server.sources import TablePlaces
from sfumato_server.work import KeyLimits, Quotas

_SETTINGS = "SFUMATO_SETTINGS"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """The settings of all workers.

    Attributes:
        tables: folders and hosts whose tables may be registered; empty: any table.
        a_minute: requests per minute and key in a worker; 0 for no limit.
        address: the server's address, without a slash at the end.
        base_url: the same, if browsers reach the server only there, maybe through a proxy.
        openid: the settings of the identity provider, as a document; None if people enter by keys only.
        origins: origins of other sites whose pages may send requests with a key to ``/v1``.
        webhook: the address that gets notices; None to write them to the log only.
        table_bytes: bytes that the tables of a worker may take; 0 for no limit.
        snapshots: a folder for snapshots; None for the default.
        source_passwords: a file with passwords of databases whose tables are registered.
        webhook_ca_file, webhook_proxy: arguments of :func:`sfumato.app.outbound.outbound` for the webhook.
        answer_cells, large_questions, reply_bytes: see :class:`.work.KeyLimits`.
    """

    tables: tuple[str, ...] = ()
    a_minute: int = 0
    address: str = ""
    base_url: str | None = None
    openid: dict[str, Any] | None = None
    origins: tuple[str, ...] = ()
    webhook: str | None = None
    table_bytes: int = 0
    snapshots: str | None = None
    source_passwords: str | None = None
    webhook_ca_file: str | None = None
    webhook_proxy: str | None = None
    answer_cells: int = KeyLimits.cells
    large_questions: int = KeyLimits.large_questions
    reply_bytes: int = KeyLimits.bytes_a_minute

    @classmethod
    def from_environment(cls) -> Settings:
        """Read the settings that the parent process left for its workers."""
        values = json.loads(os.environ.get(_SETTINGS, "{}"))
        return cls(**values | {name: tuple(values.get(name, ())) for name in ("tables", "origins")})

    def to_environment(self) -> None:
        """Leave the settings for worker processes that this process starts."""
        os.environ[_SETTINGS] = json.dumps(asdict(self))

    @property
    def places(self) -> TablePlaces:
        """The places from which tables may be registered."""
        return TablePlaces(self.tables, self.source_passwords)

    @property
    def limits(self) -> KeyLimits:
        """The limits of each key."""
        return KeyLimits(self.answer_cells, self.large_questions, self.reply_bytes)

    @property
    def provider(self) -> OpenIdSettings | None:
        """The settings of the identity provider; None if there is none."""
        return None if self.openid is None else OpenIdSettings(**self.openid)


def refuse_base(address: str) -> str:
    """Return the public address of a server, without a slash at its end.

    Raises:
        InputError: the address is not that of a host, or has a path.
    """
    parts = urlsplit(address)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InputError("a server is reached at http(s)://HOST[:PORT], not below a path", culprit=address)
    return f"{parts.scheme}://{parts.netloc}"


def refuse_origin(origin: str) -> str:
    """Return the origin of a page, exactly as browsers send it.

    >>> refuse_origin("https://app.example")
    'https://app.example'

    Raises:
        InputError: browsers never send an origin in this form, so it would match none.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    normal = f"{parts.scheme}://{parts.hostname}{'' if port in (None, default_port) else f':{port}'}"
    if default_port is None or not parts.hostname or normal != origin or not _HOST.fullmatch(parts.hostname):
        raise InputError(
            "an origin is http(s)://HOST[:PORT], in lower case, without a path or the usual port", culprit=origin
        )
    return origin


_SHUTDOWN_SECONDS = 40  # for requests under way when the server ends: longer than a ledger waits for a lock
_HEALTHCHECK_SECONDS = 15  # the parent kills a worker that does not answer for this long; 5 are too few when busy

_REPLACES = "SFUMATO_REPLACES"  # is set for a worker that replaces a dead one
ARRIVAL = "SFUMATO_ARRIVAL"  # the time limit for a request to arrive, in seconds


_BY_HTTPTOOLS = AutoHTTPProtocol.__module__.endswith(".httptools_impl")


class _BoundedHttpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # a class that depends on what is installed
    """HTTP with time limits for slow clients, which sends each reply at once.

    The workers share a socket, and asyncio does not set its TCP_NODELAY.  Without it, a reply in two writes waits for
    a delayed acknowledgement: 40 ms.

    A request has to arrive in full within the time of :func:`_arrival_seconds`.  The time starts with the connection or
    with the last reply, however many bytes come meanwhile.  A reply that the client does not read is dropped after the
    same time.  A worker holds a limited number of connections without a full request, and drops the oldest first.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _BY_HTTPTOOLS:  # httptools would refuse a body with two lengths; RequestGuard does
            self.parser.set_dangerous_leniencies(lenient_chunked_length=True)
        self._request_timer: asyncio.TimerHandle | None = None
        self._reply_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reply_timer = self.loop.call_later(_arrival_seconds(), self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._reply_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._request_timer, self._reply_timer)
        _WAITING.pop(self, None)
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        """Start the timer for a request, or stop it while a request is being answered."""
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            _cancel(self._request_timer)
            self._request_timer = None
            _WAITING.pop(self, None)
        elif self._request_timer is None and not self.transport.is_closing():
            self._request_timer = self.loop.call_later(_arrival_seconds(), self.transport.abort)
            _WAITING[self] = None
            if len(_WAITING) > _MAX_WAITING:
                oldest = next(iter(_WAITING))
                del _WAITING[oldest]
                oldest.transport.abort()


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


@cache
def _arrival_seconds() -> float:
    """Return the time limit for a request to arrive, in seconds."""
    return float(os.environ.get(ARRIVAL, "30"))


_WAITING: dict[_BoundedHttpProtocol, None] = {}  # connections without a full request, oldest first
_MAX_WAITING = 512


def run(
    application: str, *, host: str, port: int, workers: int, proxies: Sequence[str], tls: tuple[Path, Path] | None
) -> None:
    """Serve until a signal ends the process.  Requests under way get up to a minute to finish.

    Args:
        application: the function that creates the application in each worker, as ``module:name``.
        host: address to listen on.
        port: port to listen on.
        workers: number of processes.
        proxies: addresses and networks of proxies whose X-Forwarded headers are trusted.
        tls: a certificate and its key; None for plain HTTP.
    """
    config = uvicorn.Config(
        application,
        factory=True,
        http=_BoundedHttpProtocol,
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
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,  # ends also while a client never finishes its request
        timeout_worker_healthcheck=_HEALTHCHECK_SECONDS,
    )
    if workers > 1:
        log_to_standard_error()
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
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if worker.is_alive(timeout=_HEALTHCHECK_SECONDS):
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
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()
            del os.environ[_REPLACES]


def _death(code: int | None, *, silent: bool) -> str:
    """Return why a worker died, in words.

    >>> _death(-9, silent=False)
    'killed by signal 9 (Killed); the system kills so when memory runs out'
    >>> _death(1, silent=False)
    'ended by itself with exit code 1'
    """
    if silent:
        return f"killed by its parent, because it did not answer for {_HEALTHCHECK_SECONDS} seconds"
    if code is None or code >= 0:
        return f"ended by itself with exit code {code}"
    reason = f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"{reason}; the system kills so when memory runs out" if -code == signal.SIGKILL else reason


def end_with_parent() -> None:
    """End this worker process when its parent ends.  A process without a parent worker pool stays."""
    if os.environ.pop(_REPLACES, None):
        REPLACED.inc()
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


LEDGER = "SFUMATO_LEDGER"
_GC_THRESHOLD = 50_000  # new objects between two garbage collections
_LOGINS_PER_MINUTE = 300  # attempts with a key or link per client address; a sixth of them in one burst


def application() -> FastAPI:
    """Create the application in a worker, over the database that the environment names."""
    log_to_standard_error()
    end_with_parent()
    settings = Settings.from_environment()
    service = Service(
        os.environ[LEDGER],
        places=settings.places,
        table_bytes=settings.table_bytes,
        snapshots=settings.snapshots,
    )
    service.quotas = Quotas(settings.limits)
    client_options = outbound(settings.webhook_ca_file, settings.webhook_proxy)
    alerts = StewardAlerts(service, webhook=settings.webhook, client_options=client_options)
    app = create(service, settings, alerts=alerts)
    gc.collect()
    gc.freeze()  # without this, a question spent a sixth of its time on scanning the objects of the start
    gc.set_threshold(_GC_THRESHOLD)
    return app


def create(service: Service, settings: Settings | None = None, *, alerts: StewardAlerts | None = None) -> FastAPI:
    """Create the application over a service.  It sends the alerts, if any, while it runs."""
    from importlib.metadata import version

    from sfumato_server.ui import pages

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if alerts is not None:
            alerts.start()
        yield
        if alerts is not None:
            alerts.stop()
        service.close()

    app = FastAPI(title="Sfumato", version=version("sfumato"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.key_lookup = KeyLookup(service)
    app.state.readiness = monitoring.Readiness(service)
    settings = Settings() if settings is None else settings
    openid = settings.provider
    app.state.rate_limiter = RateLimiter(settings.a_minute)
    app.state.base_url = settings.base_url
    app.state.provider = None if openid is None else Provider(openid, callback=f"{settings.address}{pages.BACK}")
    app.state.login_limiter = RateLimiter(_LOGINS_PER_MINUTE)
    problems.add_error_handlers(app)
    for router in (datasets.router, stewards.router, release_jobs.router, monitoring.router):
        app.include_router(router)
    pages.mount(app)
    problems.document_problems(app)
    if settings.origins:
        app.add_middleware(CrossOrigin, origins=settings.origins)
    app.add_middleware(RequestGuard)
    return app
