"""Ways into the product: Python, the server and the command line, each as something that does the steps of a session.

The output of a step is returned as text, including refusals.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pyarrow.parquet as pq
import yaml
from tests.replay.databases import OTHER_OWNERS
from tests.replay.listening import KilledError
from tests.replay.sessions import ANALYSTS, LIMITS, OF_DRUGS, Session, Step, limit_text

import sfumato as sf
from sfumato import query
from sfumato.app.api.questions import loss_of
from sfumato.app.cli.main import run
from sfumato.domain import parse
from sfumato.domain.table_schema import parse_schema
from sfumato.errors import SfumatoError
from sfumato.privacy.loss import Loss
from sfumato.query.row_bound import suggest_bound
from sfumato.query.statements.select_statement import parse as read_statement
from sfumato.synthesize import NoisyTotal, PublicTotal, Schedule, all_marginals, histogram, mst, mwem, synthesize_linked
from sfumato.synthesize.linked import ModelSizes
from sfumato.vault.interface import Mechanisms, Payload, ReleaseRequest
from sfumato.vault.measurables import Marginal
from sfumato_server.application import create
from sfumato_server.registry import Scope
from sfumato_server.service import Service

_PAUSE = 0.005  # seconds between two looks at a background release
_SMALL = ModelSizes(head_cells=200, tail_cells=200, calibration=1)


class Way(ABC):
    """A way into the product, on one side of a session's history.

    Args:
        session: what is done.
        side: ``left`` or ``right``.
        folder: for the ledger, the tables and what is written.
    """

    def __init__(self, session: Session, side: str, folder: Path) -> None:
        self.session, self.side, self.folder = session, side, folder
        self.version = 0
        self.linked = session.history.linked
        self.document = json.loads(json.dumps(session.history.document))

    @abstractmethod
    def begin(self) -> str:
        """Open the first version, with a new ledger."""

    @abstractmethod
    def do(self, step: Step) -> str:
        """Do a step, and return all that it shows."""

    @abstractmethod
    def end(self) -> None:
        """Close everything."""

    def write_tables(self) -> Path:
        """Write the tables of the version to files, as their owner would."""
        place = self.folder / "tables"
        place.mkdir(exist_ok=True)
        for name, table in self.session.history.frames(self.side, self.version).items():
            pq.write_table(table, place / f"{name}.parquet")
        return place if self.linked else place / "people.parquet"


class PythonWay(Way):
    """A program that opens frames, and asks in the names of analysts."""

    vault: Any

    def begin(self) -> str:
        return self._open(create=True)

    def _open(self, *, schema: Mapping[str, Any] | None = None, **more: Any) -> str:
        tables = self.tables()
        stated = {
            "ledger": f"sqlite:///{self.folder}/python.ledger",
            "limit": _loss(LIMITS[self.session.measure]),
            **more,
        }
        if self.linked:
            described = parse_schema(deepcopy(self.document if schema is None else schema))
            self.vault = sf.open_schema(tables, schema=described, **stated)
        else:
            self.vault = sf.open(tables["people"], domain=parse(self.document), **stated)
        return repr(self.vault)

    def tables(self) -> Any:
        """The tables of the version, as the program names them."""
        return self.session.history.frames(self.side, self.version)

    def do(self, step: Step) -> str:
        try:
            return self._do(step)
        except SfumatoError as error:
            return f"{type(error).__name__}: {error} {error.culprit!r}"
        except _BrokenError as error:
            return repr(error)
        except KilledError:
            self.vault.ledger.close()
            return self._open()  # in the next process

    def _do(self, step: Step) -> str:
        match step.does:
            case "open":
                self.vault.ledger.close()
                return self._open()
            case "new version":
                self.version = 1
                self.vault.ledger.close()
                return self._open(new_version=True)
            case "cap":
                self.vault.ledger.set_cap(step.given["analyst"], _loss(step.given["loss"]))
                return repr(self.vault.ledger.caps())
            case "look":
                vault = self.vault if step.by is None else self.vault.for_analyst(step.by)
                return f"{vault!r} {vault.remaining} {[*map(repr, self.vault.ledger.journal())]}"
            case "verify":
                return str(self.vault.ledger.verify())
            case "ask with other owners":
                return self._asked_with_other_owners(step)
            case _:
                return _released(self.vault.for_analyst(step.by), step)

    def _asked_with_other_owners(self, step: Step) -> str:
        """Ask by the schema, and then by another schema of the same tables with other owners of the visits."""
        asked = [replace(step, does="ask", given={**step.given, "sql": sql}) for sql in OF_DRUGS]
        own = self.vault
        said = _released(own.for_analyst(step.by), asked[0])
        try:
            self._open(schema=OTHER_OWNERS)
            return said + _released(self.vault.for_analyst(step.by), asked[1])
        finally:
            self.vault = own

    def end(self) -> None:
        self.vault.ledger.close()


class _BrokenError(Exception):
    """A method that breaks after it has drawn noise."""


def _released(vault: Any, step: Step) -> str:
    return _RELEASES[step.does](vault, step.given, _loss(step.given["loss"]))


def _asked(vault: Any, given: Mapping[str, Any], loss: Loss) -> str:
    if "truncation" in given:
        asked = replace(read_statement(given["sql"], vault.domain), truncation=given["truncation"])
        return str(query.ask(vault, asked, loss=loss).to_json())
    groupable_undeclared = (given["discover"],) if "discover" in given else ()
    found = query.sql(vault, given["sql"], loss=loss, groupable_undeclared=groupable_undeclared)
    return f"{found!r} {found.to_json()}"


def _batch(vault: Any, _: Mapping[str, Any], loss: Loss) -> str:
    answer = query.answer_batch(vault, all_marginals(1), loss=loss)
    return f"{answer.statement()} {answer.answers.tolist()}"


def _broken(vault: Any, _: Mapping[str, Any], loss: Loss) -> str:
    def breaking(mechanisms: Mechanisms) -> Payload:
        mechanisms.measure([Marginal(())], loss)
        raise _BrokenError

    return str(vault.release(ReleaseRequest("test", "broken", {}), loss, breaking))


def _rows(vault: Any, given: Mapping[str, Any], loss: Loss) -> str:
    release = _synthesized(vault, given["method"], loss)
    return f"{release.statement()} {release.rows.to_arrow().to_pydict()}"


def _tables(vault: Any, _: Mapping[str, Any], loss: Loss) -> str:
    release = synthesize_linked(vault, loss=loss, settings=_SMALL)
    rows = {name: table.to_pydict() for name, table in release.tables.items()}
    return f"{release.statement()} {rows}"


_RELEASES: Mapping[str, Callable[[Any, Mapping[str, Any], Loss], str]] = {
    "ask": _asked,
    "batch": _batch,
    "fail": _broken,
    "preview": lambda vault, given, loss: str(
        query.accuracy(vault.domain, read_statement(given["sql"], vault.domain), loss=loss, confidence=0.95)
    ),
    "quantile": lambda vault, _, loss: str(
        query.choose_quantile(vault, query.median("income").aggregates[0], loss=loss).statement()
    ),
    "regress": lambda vault, _, loss: str(query.linear_regression(vault, "age", ["income"], loss=loss).statement()),
    "sizes": lambda vault, _, loss: str(suggest_bound(vault, loss=loss, cells=3).statement()),
    "synthesize": _rows,
    "synthesize tables": _tables,
}


def _synthesized(vault: Any, method: str, loss: Loss) -> Any:
    match method:
        case "histogram":
            return histogram(vault, loss=loss, total=NoisyTotal(), attributes=("age", "sex"))
        case "mst":
            return mst(vault, loss=loss, total=NoisyTotal())
        case "mwem":
            asked, schedule = all_marginals(1), Schedule(rounds=2, repetitions=2)
            return mwem(vault, loss=loss, total=PublicTotal(9), workload=asked, schedule=schedule)
    raise ValueError(method)


def _loss(stated: Mapping[str, str]) -> Loss:
    return loss_of(stated.get("epsilon"), stated.get("delta"), stated.get("rho"))


_DATASET = "/v1/datasets/people"


class HttpWay(Way):
    """A server in this process, with a steward and analysts who hold keys."""

    def begin(self) -> str:
        self.service = Service(f"sqlite:///{self.folder}/server.ledger", create=True)
        issue = self.service.registry.issue
        holders = [("stew", Scope.STEWARD), *((name, Scope.ANALYST) for name in ANALYSTS)]
        self.keys = {name: issue(name, scope, timedelta(days=1))[1] for name, scope in holders}
        self.app = create(self.service)
        form = {"name": "people", "source": str(self.write_tables()), "domain": self.document}
        form |= {"limit": limit_text(self.session)} | ({} if self.linked else {"discoverable": ["town"]})
        return self._send("stew", "POST", "/v1/datasets", form)

    def do(self, step: Step) -> str:
        given, by = step.given, step.by or "stew"
        match step.does:
            case "open":
                return self._restarted(by)
            case "new version":
                return self._read_again()
            case "cap" | "terms":
                return self._send("stew", "PUT", f"{_DATASET}/{step.does.removesuffix('s')}s", given)
            case "approve":
                return self._approved()
            case "look":
                paths = ["/v1/datasets", f"{_DATASET}/budget", *([f"{_DATASET}/journal"] if step.by is None else [])]
                return "\n".join(self._send(by, "GET", path) for path in paths)
            case "verify":
                return self._send("stew", "GET", f"{_DATASET}/verify")
            case "ask" | "preview":
                form = {name: given[name] for name in ("sql", "loss", "truncation") if name in given}
                return self._send(by, "POST", f"{_DATASET}/{'query' if step.does == 'ask' else 'cost'}", form)
            case _:
                tables = {"method": "related", "loss": given["loss"]}
                rows = {"method": "histogram", "attributes": ["age", "sex"], "loss": given["loss"]}
                return self._released(by, tables if self.linked else rows)

    def _restarted(self, by: str) -> str:
        self.service.close()
        self.service = Service(f"sqlite:///{self.folder}/server.ledger")
        self.app = create(self.service)
        return self._send(by, "GET", "/v1/datasets")

    def _read_again(self) -> str:
        """Ask as an analyst before and after the steward declares the rewritten table."""
        self.version = 1
        self.write_tables()
        seen = self._send("ana", "GET", _DATASET)
        self._send("stew", "POST", f"{_DATASET}/reading")  # whose reply is for stewards alone
        return seen

    def _approved(self) -> str:
        """List pending requests as a steward, and approve the first."""
        said = self._send("stew", "GET", "/v1/approvals")
        waiting = next((each["id"] for each in _body(said)["approvals"]), None)
        return said if waiting is None else said + self._send("stew", "POST", f"/v1/approvals/{waiting}")

    def _released(self, by: str, form: Mapping[str, Any]) -> str:
        said = self._send(by, "POST", f"{_DATASET}/releases", form)
        if not said.startswith("202"):
            return said
        job = _body(said)["job"]
        while True:
            said = self._send(by, "GET", f"/v1/releases/{job}")
            if _body(said)["state"] in ("done", "failed"):
                return said + self._send(by, "GET", f"/v1/releases/{job}/rows")
            time.sleep(_PAUSE)

    def _send(self, by: str, method: str, path: str, form: Any = None) -> str:
        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            headers = {"Authorization": f"Bearer {self.keys[by]}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
                return await client.request(method, path, json=form)

        reply = asyncio.run(sent())
        headers = {name: value for name, value in reply.headers.items() if name != "x-request-id"}
        return f"{reply.status_code}\n{headers}\n{reply.text}\n"

    def end(self) -> None:
        self.service.close()


def _body(said: str) -> Any:
    return json.loads(said.splitlines()[-1])


class CommandWay(Way):
    """The command line, in this process."""

    new: tuple[str, ...] = ()  # declares the next version

    def begin(self) -> str:
        self.write_tables()
        self.described = "schema" if self.linked else "domain"
        (self.folder / f"{self.described}.yaml").write_text(yaml.safe_dump(self.document, sort_keys=False))
        return self._run("ledger", "create", "people.ledger", "--limit", limit_text(self.session))

    def do(self, step: Step) -> str:
        loss = _options(step.given.get("loss", {}))
        table = "tables" if self.linked else "tables/people.parquet"
        by = [] if step.by is None else ["--analyst", step.by]
        released = [f"--{self.described}", f"{self.described}.yaml", "--ledger", "people.ledger", *by, *loss, *self.new]
        match step.does:
            case "open" | "look":
                return self._run("ledger", "show", "people.ledger", "--json", "--all")
            case "verify":
                return self._run("ledger", "verify", "people.ledger")
            case "cap":
                return self._run("ledger", "cap", "people.ledger", step.given["analyst"], *loss)
            case "new version":
                self.version, self.new = 1, ("--new-version",)
                self.write_tables()
                return ""
            case "preview":
                stated = [f"--{self.described}", f"{self.described}.yaml", *loss]
                return self._run("query", table, step.given["sql"], *stated, "--accuracy")
            case "ask":
                more = _options({name: step.given[name] for name in ("discover", "truncation") if name in step.given})
                return self._declaring("query", table, step.given["sql"], *released, *more, "--json")
            case "synthesize":
                method = step.given["method"]
                more = {"histogram": ["--marginals", "age,sex"], "mwem": ["--rounds", "2"], "mst": []}[method]
                out = ["--out", "rows.csv", "--save", "model", "--overwrite"]
                return self._declaring("synthesize", table, "--method", method, *more, *released, *out)
            case "synthesize tables":
                return self._declaring("synthesize", table, *released, "--out", "made", "--overwrite")
        raise ValueError(step.does)

    def _declaring(self, *arguments: str) -> str:
        """A command that declares the next version, which its owner does again as long as it is refused."""
        said = self._run(*arguments)
        if said.startswith("0\n"):
            self.new = ()
        return said

    def _run(self, *arguments: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        with (
            chdir(self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
            patch.object(sys, "argv", ["sfumato", *arguments]),
        ):
            try:
                run()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        return f"{code}\n{out.getvalue()}\n{err.getvalue()}"

    def end(self) -> None:
        pass


def _options(stated: Mapping[str, Any]) -> list[str]:
    return [part for name, value in stated.items() for part in (f"--{name}", str(value))]


WAYS: dict[str, type[Way]] = {"python": PythonWay, "http": HttpWay, "commands": CommandWay}
