"""Throughput of the server under full durability, against the same server returning a constant.

    python benchmarks/server.py [--seconds 8]

Sixteen connections ask different counts, each charged, journalled and stored before its reply leaves: of the bundled
census (15 attributes; no statement is sent twice, so that each is parsed), and of a million children (2 attributes; 56
statements, each at 900 losses).  The constant goes through the same process, middleware, key and parsing of the body,
and skips the statement, the ledger and the table.  Both are asked in turns on one server, so that what else the machine
does weighs on both alike.
"""

# ruff: noqa: S608 - statements are what is sent

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "server.md"
CONNECTIONS = 16
ROUNDS = 3
TARGET = 0.6


def application():
    """The server with one endpoint more, which returns a constant."""
    from sfumato.app.http import asgi
    from sfumato.app.http.access import Anyone
    from sfumato.app.requests.queries import AskRequest

    app = asgi.application()
    constant = {"groups": [], "columns": ["count(*)"], "confidence": 0.95, "rows": [], "remarks": []}

    @app.post("/constant")
    def nothing(form: AskRequest, _: Anyone) -> dict:  # noqa: ARG001
        return constant

    return app


async def ask(port: int, secret: str, path: str, bodies, seconds: float) -> int:
    """Replies in so many seconds over sixteen connections."""
    end, done = time.perf_counter() + seconds, 0

    async def connection() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            body = next(bodies)
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            header = await reader.readuntil(b"\r\n\r\n")
            assert header.startswith(b"HTTP/1.1 200"), header
            length = next(line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            done += 1
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return done


def of_children():
    """Different counts: 56 statements, each at 900 losses; 50 400 before any is asked again."""
    for number in itertools.count():
        sql = f"SELECT COUNT(*) FROM children WHERE age >= {number % 14} AND satisfaction >= {number // 14 % 4}"
        yield json.dumps({"sql": sql, "loss": {"epsilon": f"0.{100 + number // 56 % 900}"}}).encode()


def of_census():
    """Different counts, each of a statement of its own: 14 400 before any is asked again."""
    for number in itertools.count():
        low, high, education = 20 + number % 30, 55 + number // 30 % 30, 1 + number // 900 % 16
        where = f"age BETWEEN {low} AND {high} AND education_num >= {education} AND gender IN ('Male')"
        yield json.dumps({"sql": f"SELECT COUNT(*) FROM census WHERE {where}", "loss": {"epsilon": "0.1"}}).encode()


QUESTIONS = {"census": of_census, "children": of_children}
TABLES = {"census": "census", "children": "child_mental_health"}
NAMES = {"census": "bundled census", "children": "a million children"}


def serve(folder: Path, workers: int):
    """A server over a SQLite file in ``folder``, its port and a key."""
    from pyarrow import parquet

    from sfumato import data
    from sfumato.app.http.asgi import LEDGER
    from sfumato.app.http.service import Service
    from sfumato.ledger.registry import Scope

    url = f"sqlite:///{folder / 's.ledger'}"
    with closing(Service(url, create=True)) as service:
        for name in QUESTIONS:
            parquet.write_table(getattr(data, TABLES[name])(), folder / f"{name}.parquet")
            described = data.domain(TABLES[name]).describe()
            source = str(folder / f"{name}.parquet")
            service.register(name, source=source, domain=described, limit="1000000", more={})
        _, secret = service.registry.issue("bench", Scope.ANALYST, timedelta(hours=1))
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = os.environ | {LEDGER: url, "PYTHONPATH": str(ROOT)}
    served = f"run('benchmarks.server:application', host='127.0.0.1', port={port}, workers={workers})"
    command = [sys.executable, "-c", f"from sfumato.app.http.processes import run; {served}"]
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None
            time.sleep(0.1)
        else:
            return process, port, secret


def measure(seconds: float, workers: int, table: str) -> dict:
    """Replies a second of both, in alternating rounds, and their ratio."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench" if (ROOT / ".bench").exists() else None) as name:
        process, port, secret = serve(Path(name), workers)
        try:
            real, fixed = QUESTIONS[table](), QUESTIONS[table]()
            path = f"/v1/datasets/{table}/query"
            asyncio.run(ask(port, secret, path, real, 2))  # every worker reads its table
            asyncio.run(ask(port, secret, "/constant", fixed, 1))
            counted = {path: 0, "/constant": 0}
            for _ in range(ROUNDS):
                counted[path] += asyncio.run(ask(port, secret, path, real, seconds))
                counted["/constant"] += asyncio.run(ask(port, secret, "/constant", fixed, seconds))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        from sfumato.ledger import open_ledger

        with open_ledger(f"sqlite:///{Path(name) / 's.ledger'}", dataset=table, limit=None) as ledger:
            ledger.verify()
            journalled = sum(1 for _ in ledger.journal())
    span = seconds * ROUNDS
    return {
        "table": table,
        "workers": workers,
        "queries": counted[path] / span,
        "constants": counted["/constant"] / span,
        "ratio": counted[path] / counted["/constant"],
        "journalled": journalled,
    }


def _line(row: dict) -> str:
    figures = f"{row['queries']:.0f} | {row['constants']:.0f} | {row['ratio']:.2f}"
    return f"| {NAMES[row['table']]} | {row['workers']} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    seconds = parser.parse_args().seconds
    rows = [measure(seconds, workers, table) for table in QUESTIONS for workers in (1, 2)]
    lines = [
        f"Replies a second at {CONNECTIONS} connections: different counts, each charged, journalled and stored in",
        "SQLite with full sync before its reply leaves, against the same server returning a constant after the same",
        f"checks. Rounds of {seconds:g} s in turns, in one run; the target is a ratio of {TARGET}. The bundled census",
        "has 15 attributes, and no statement is sent twice, so that each is parsed. The million children have two, and",
        "56 statements are sent at 900 losses each, so that parsing is remembered. Of both the exact table of the",
        "attributes asked about is kept inside the vault after the first question, so that no other reads a row.",
        "Made by `python benchmarks/server.py`.",
        "",
        "| table | workers | questions/s | constants/s | ratio |",
        "|---|---:|---:|---:|---:|",
        *map(_line, rows),
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    TABLE.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
