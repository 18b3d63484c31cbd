"""The application of the server, its settings, and the worker processes behind one address that run it.

No worker outlives its parent.  The parent replaces a worker that dies, and the log has the reason.
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
from sfumato_server.problems import REPLACED, SHARED, describe_itself, log, to_standard_error
from sfumato_server.service import Service
from sfumato_server.sources import TablePlaces
from sfumato_server.work import KeyLimits, Quotas

_SETTINGS = "SFUMATO_SETTINGS"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """What holds for all workers.

    Attributes:
        tables: folders and hosts whose tables may be registered; anything where none is named.
        a_minute: requests that a worker takes of one key in a minute; 0 for any number.
        address: of the server, without a slash at its end.
        base_url: the same, where people reach it under that address alone, maybe by a proxy.
        table_bytes: that the tables of a worker may hold; 0 for any number.
        answer_cells, large_questions, reply_bytes: the limits of a key, see :class:`.quotas.KeyLimits`.
        snapshots: a folder for snapshots; None for the usual place.
        source_passwords: a file of passwords of databases whose tables are registered.
        webhook: where notices are sent; None for the log alone.
        webhook_ca_file, webhook_proxy: how it is reached, as :func:`sfumato.app.outbound.outbound` takes them.
        openid: the provider of identities, as a document; None where people enter by keys alone.
        origins: of other sites' pages that may send requests with a key to ``/v1``.
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
    large_questions: int = KeyLimits.at_once
    reply_bytes: int = KeyLimits.bytes_a_minute

    @classmethod
    def of_environment(cls) -> Settings:
        """What the process that started this worker settled."""
        found = json.loads(os.environ.get(_SETTINGS, "{}"))
        return cls(**found | {name: tuple(found.get(name, ())) for name in ("tables", "origins")})

    def to_environment(self) -> None:
        """Settle them for processes that this one starts."""
        os.environ[_SETTINGS] = json.dumps(asdict(self))

    @property
    def places(self) -> TablePlaces:
        """Where tables may lie."""
        return TablePlaces(self.tables, self.source_passwords)

    @property
    def limits(self) -> KeyLimits:
        """The quotas of each key."""
        return KeyLimits(self.answer_cells, self.large_questions, self.reply_bytes)

    @property
    def provider(self) -> OpenIdSettings | None:
        """The provider of identities."""
        return None if self.openid is None else OpenIdSettings(**self.openid)


def refuse_base(address: str) -> str:
    """The address under which people reach a server, without a slash at its end.

    Raises:
        InputError: it is not one of a whole host.
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
    """The origin of a page, exactly as browsers send it.

    >>> refuse_origin("https://app.example")
    'https://app.example'

    Raises:
        InputError: no browser sends it so, and it would never be equal to one.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    sent = f"{parts.scheme}://{parts.hostname}{'' if port in (None, usual) else f':{port}'}"
    if usual is None or not parts.hostname or sent != origin or not _HOST.fullmatch(parts.hostname):
        raise InputError(
            "an origin is http(s)://HOST[:PORT], in lower case, without a path or the usual port", culprit=origin
        )
    return origin


_PARTING = 40  # seconds that requests under way get when the server is to end: more than a ledger waits for a lock
_SILENCE = 15  # seconds for which a worker may not answer its parent, which then kills it

_REPLACES = "SFUMATO_REPLACES"  # is set for a worker that takes the place of one that died
ARRIVAL = "SFUMATO_ARRIVAL"  # names the seconds within which a request has to arrive


_BY_HTTPTOOLS = AutoHTTPProtocol.__module__.endswith(".httptools_impl")


class _BoundedHttpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # a class that depends on what is installed
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


_AWAITED: dict[_BoundedHttpProtocol, None] = {}  # connections whose requests have not arrived, oldest first
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


LEDGER = "SFUMATO_LEDGER"
_PATIENCE = 50_000  # new objects that wait to be looked through together
_ENTRANCES = 300  # keys and links a minute that one address may try, a sixth of them at once


def application() -> FastAPI:
    """The application over the database that the environment names: what each worker calls."""
    to_standard_error()
    end_with_parent()
    settings = Settings.of_environment()
    service = Service(
        os.environ[LEDGER],
        places=settings.places,
        table_bytes=settings.table_bytes,
        snapshots=settings.snapshots,
    )
    service.quotas = Quotas(settings.limits)
    reached = outbound(settings.webhook_ca_file, settings.webhook_proxy)
    made = create(service, settings, notices=StewardAlerts(service, webhook=settings.webhook, reached=reached))
    gc.collect()
    gc.freeze()  # what a worker begins with stays: looking through it for what nobody needs any more took a sixth
    gc.set_threshold(_PATIENCE)  # of the time of a question
    return made


def create(service: Service, settings: Settings | None = None, *, notices: StewardAlerts | None = None) -> FastAPI:
    """The application over a service, which tells notices while it runs."""
    from importlib.metadata import version

    from sfumato_server.ui import pages

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if notices is not None:
            notices.watch()
        yield
        if notices is not None:
            notices.end()
        service.close()

    app = FastAPI(title="Sfumato", version=version("sfumato"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.key_lookup = KeyLookup(service)
    app.state.readiness = monitoring.Readiness(service)
    settings = Settings() if settings is None else settings
    provider = settings.provider
    app.state.pace = RateLimiter(settings.a_minute)
    app.state.base_url = settings.base_url
    app.state.provider = None if provider is None else Provider(provider, back=f"{settings.address}{pages.BACK}")
    app.state.entrance = RateLimiter(_ENTRANCES)
    problems.install(app)
    for router in (datasets.router, stewards.router, release_jobs.router, monitoring.router):
        app.include_router(router)
    pages.mount(app)

    describe_itself(app)
    if settings.origins:
        app.add_middleware(CrossOrigin, origins=settings.origins)
    app.add_middleware(RequestGuard)
    return app
