"""A real server: ``sfumato serve`` in processes of its own, over a real database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sqlalchemy.engine import URL
from tests.processes import Forked

from sfumato.app.http_client import HttpClient
from sfumato.ledger import Ledger, open_ledger
from sfumato.ledger.store import Store
from sfumato.query.ask import ask
from sfumato_server.access import COOKIE
from sfumato_server.application import LEDGER
from sfumato_server.registry import Registry, Scope
from sfumato_server.sessions import Sessions

DOMAIN = {
    "sfumato": 1,
    "unit": "row",
    "attributes": {
        "age": {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"},
        "sex": {"type": "categorical", "values": ["F", "M"], "nullable": True, "unknown": "category"},
        "income": {"type": "real", "edges": [0, 1000, 5000], "unknown": "clamp"},
    },
}
ROWS = 1000
PATIENCE = 240  # seconds for a server to come up: on a machine that does much else it takes more than a minute
ROOT = Path(__file__).parents[3]


def write_people(path: Path, seed: int = 2) -> Path:
    random = np.random.default_rng(seed)
    ages = random.integers(0, 99, ROWS)  # nobody is 99
    ages[0], ages[ages == 98] = 98, 97
    ages[0] = 98  # one person is 98
    sexes = random.choice(np.array(["F", "M", None], dtype=object), ROWS)
    parquet.write_table(pa.table({"age": ages, "sex": sexes.tolist(), "income": random.random(ROWS) * 5000}), path)
    return path


VISITS = {**DOMAIN, "unit": {"id": "person", "rows": 1}}


def write_visits(path: Path) -> Path:
    """Three rows of each of 300 people, of whom the domain ``VISITS`` keeps one."""
    people = np.repeat(np.arange(300), 3)
    parquet.write_table(
        pa.table({"person": people, "age": people % 90, "sex": ["F"] * 900, "income": [1.0] * 900}), path
    )
    return path


def with_source_passwords(address: URL, folder: Path) -> tuple[str, Path]:
    """An address of a database without its password, and a file that has it for ``serve --source-passwords``."""
    file = folder / "source-passwords"
    file.write_text(f"{address.host}:{address.port}:*:{address.username}:{address.password}\n", encoding="utf-8")
    file.chmod(0o600)
    kind, named = address.drivername.partition("+")[0], (address.username, None, address.host, address.port)
    return URL.create(kind, *named, address.database, address.query).render_as_string(), file


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(database: str, people: Path) -> Iterator[Server]:
    """Two workers with one dataset of ten epsilon, the table ``people``."""
    started = Server(database, workers=2).start()
    try:
        with started.client("stew", Scope.STEWARD) as steward:
            steward.register("people", source=str(people), domain=DOMAIN, limit="10")
        yield started
    finally:
        started.stop()


@dataclass
class Server:
    """``sfumato serve`` on a port of its own; ``url`` is of its database, ``folder`` of its sample, if it has one."""

    url: str
    workers: int
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | Forked | None = None
    clients: list[HttpClient] = field(default_factory=list)
    folder: Path | None = None
    mutant: str | None = None  # the application of tests.server.mutants that runs in its place
    more: tuple[str, ...] = ()  # options of the command
    log: Path | None = None  # where a fresh one writes its log
    fresh: bool = False  # begun as users begin it, and its workers as it does, not forked

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        with closing(Store(self.url)) as store:
            store.prepare(create=True)
        # a session of its own, so that a kill takes the workers as well and nothing else
        self.process = self._fresh() if self.fresh else self._forked()
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port)):
                    pass
                if httpx.get(f"{self.address}/readyz", trust_env=False, verify=False).is_success:  # noqa: S501
                    return self
            except (ConnectionError, httpx.TransportError):
                time.sleep(0.02)
        self.kill()
        raise AssertionError("the server did not come up")

    def _forked(self) -> Forked:
        program = "sfumato.app.cli.main:run" if self.mutant is None else "uvicorn.main:main"
        return Forked(program, ["server", *self._arguments], environment=self._environment, folder=self.folder)

    def _fresh(self) -> subprocess.Popen[bytes]:
        with Path(os.devnull if self.log is None else self.log).open("wb") as written:
            return subprocess.Popen(
                [Path(sys.executable).parent / ("sfumato" if self.mutant is None else "uvicorn"), *self._arguments],
                env=self._environment,
                start_new_session=True,
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=written,
            )

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {LEDGER: self.url, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    @property
    def _arguments(self) -> list[str]:
        where = ["--port", str(self.port), "--workers", str(self.workers)]
        if self.mutant is not None:
            return [f"tests.server.mutants:{self.mutant}", "--factory", *where]
        return ["serve", "--sample" if self.folder else "--no-sample", "--ledger", self.url, *where, *self.more]

    def kill(self) -> None:
        """Kill -9 of every process of the server."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self.process is not None:
            self.kill()

    def key(self, name: str, scope: Scope, lifetime: timedelta = timedelta(days=1)) -> str:
        """A key as a steward would issue it; by the database, as there is no first steward yet."""
        with closing(Store(self.url)) as store:
            return Registry(store).issue(name, scope, lifetime)[1]

    def link(self) -> str:
        """Return a steward's link, even if there is already a steward."""
        with closing(Store(self.url)) as store:
            return f"{self.address}/enter?link={Registry(store).issue_link(timedelta(hours=1))}"

    def session(self, name: str, scope: Scope, lifetime: timedelta = timedelta(days=1)) -> dict[str, str]:
        """Return the cookie of a person who logged in with a key."""
        with closing(Store(self.url)) as store:
            registry = Registry(store)
            holder = registry.key(registry.issue(name, scope, lifetime)[1])
            assert holder is not None
            return {COOKIE: Sessions(store).start(holder)}

    def client(self, name: str, scope: Scope = Scope.ANALYST) -> HttpClient:
        self.clients.append(HttpClient(self.address, self.key(name, scope), timeout=30))
        return self.clients[-1]

    def ledger(self, dataset: str) -> Ledger:
        return open_ledger(self.url, dataset=dataset, limit=None)


def answer_of(form, vault, read):
    """Answer what was read of a request, from a vault, as the server does once it has admitted the request."""
    query, view = read
    assert view is None
    return form.post_processed(ask(vault, query, loss=form.loss.loss(), confidence=form.confidence))
