"""Throughput of the server under full durability, against the same server returning a constant.

python benchmarks/server.py [--seconds 8] [--postgres]

Sixteen connections ask different counts. Each is charged, journaled and stored before its reply leaves. There are three
kinds: counts of the bundled census (15 attributes; no statement is repeated, so each is parsed), counts of a million
children (2 attributes; 56 statements, each at 900 losses), and one average of the census, at a new loss each time. The
constant goes through the same process, middleware, key and parsing of the body, and skips the statement, the ledger and
the table.

Both are asked in turns on one server, so that other load on the machine affects both alike. CPU is that of the server's
processes, without a database server. With ``--postgres``, the ledger is in the database in SFUMATO_TEST_POSTGRES, in a
schema that is dropped at the end.
"""

# ruff: noqa: S608 - statements are what is sent

import argparse
import asyncio
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "server.md"
CONNECTIONS = 16
ROUNDS = 3
TARGET = 100  # questions per second on SQLite, at no more than 6 CPU ms each


def application():
    """Return the server with one more path that answers the same requests with a constant."""
    from starlette.responses import JSONResponse

    from sfumato.app.api.questions import AskRequest
    from sfumato_server import application as served
    from sfumato_server.access import Anyone

    app = served.application()
    reply = {"groups": [], "columns": ["count(*)"], "confidence": 0.95, "rows": [], "remarks": []}

    @app.post("/constant")
    def constant(form: AskRequest, key: Anyone):  # noqa: ARG001 - the request is read and its key looked up
        return JSONResponse(reply)

    return app


async def ask(port: int, secret: str, path: str, bodies, seconds: float) -> int:
    """Count the replies in the given number of seconds over sixteen connections."""
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
    """Yield different counts: 56 statements, each at 900 losses; they repeat after 50 400."""
    for number in itertools.count():
        sql = f"SELECT COUNT(*) FROM children WHERE age >= {number % 14} AND satisfaction >= {number // 14 % 4}"
        yield json.dumps({"sql": sql, "loss": {"epsilon": f"0.{100 + number // 56 % 900}"}}).encode()


def of_census():
    """Yield different counts, each with its own statement; they repeat after 14 400."""
    for number in itertools.count():
        low, high, education = 20 + number % 30, 55 + number // 30 % 30, 1 + number // 900 % 16
        where = f"age BETWEEN {low} AND {high} AND education_num >= {education} AND gender IN ('Male')"
        yield json.dumps({"sql": f"SELECT COUNT(*) FROM census WHERE {where}", "loss": {"epsilon": "0.1"}}).encode()


def of_average():
    """Yield one average at a new loss each time, so that each noise has its own scale."""
    for number in itertools.count():
        yield json.dumps({"sql": "SELECT AVG(age) FROM census", "loss": {"epsilon": f"0.1{number:06d}"}}).encode()


QUESTIONS = {"census": of_census, "children": of_children, "average": of_average}
DATASETS = {"census": "census", "children": "children", "average": "census"}
TABLES = {"census": "census", "children": "child_mental_health"}
NAMES = {"census": "bundled census", "children": "a million children", "average": "bundled census, average"}


@contextmanager
def schema_of_postgres() -> Iterator[str]:
    """Provide the address of an empty schema."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url

    address = make_url(os.environ["SFUMATO_TEST_POSTGRES"]).set(drivername="postgresql+psycopg")
    name, engine = f"bench_{secrets.token_hex(4)}", create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    inside = address.set(drivername="postgresql").update_query_dict({"options": f"-csearch_path={name}"})
    yield inside.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))


def cpu(group: int) -> float:
    """Return the CPU seconds of a group of processes."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def serve(folder: Path, url: str, workers: int):
    """Serve the bundled tables; return the process, its port and a key."""
    from sfumato import data

    return serve_tables(
        folder, url, workers, {name: (getattr(data, each)(), data.domain(each)) for name, each in TABLES.items()}
    )


def serve_tables(folder: Path, url: str, workers: int, tables: dict):
    """Serve tables with their domains by name over a database, in ``folder``; return the process, its port and a
    key.
    """
    from pyarrow import parquet

    from sfumato_server.application import LEDGER
    from sfumato_server.registry import Scope
    from sfumato_server.service import Service

    with closing(Service(url, create=True)) as service:
        for name, (table, domain) in tables.items():
            source = str(folder / f"{name}.parquet")
            parquet.write_table(table, source)
            service.register(name, source=source, domain=domain.describe(), limit="1000000", more={})
        _, secret = service.registry.issue("bench", Scope.ANALYST, timedelta(hours=1))
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = os.environ | {LEDGER: url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    said = f"host='127.0.0.1', port={port}, workers={workers}, proxies=(), tls=None"
    served = f"run('benchmarks.server:application', {said})"
    command = [sys.executable, "-c", f"from sfumato_server.application import run; {served}"]
    process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None
            time.sleep(0.1)
        else:
            return process, port, secret


def measure(url: str, folder: Path, seconds: float, *, workers: int, table: str) -> dict:
    """Measure replies per second and the server's CPU for both in alternating rounds, and their ratio."""
    process, port, secret = serve(folder, url, workers)
    path, bodies = f"/v1/datasets/{DATASETS[table]}/query", QUESTIONS[table]()
    counted, spent = {path: 0, "/constant": 0}, {path: 0.0, "/constant": 0.0}
    try:
        asyncio.run(ask(port, secret, path, bodies, 2))  # every worker reads its table
        asyncio.run(ask(port, secret, "/constant", bodies, 1))
        for _ in range(ROUNDS):
            for each in counted:
                before = cpu(process.pid)
                counted[each] += asyncio.run(ask(port, secret, each, bodies, seconds))
                spent[each] += cpu(process.pid) - before
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    from sfumato.ledger import open_ledger

    with open_ledger(url, dataset=DATASETS[table], limit=None) as ledger:
        ledger.verify()
        journalled = sum(1 for _ in ledger.journal())
    span = seconds * ROUNDS
    return {
        "table": table,
        "database": "SQLite" if url.startswith("sqlite") else "PostgreSQL",
        "workers": workers,
        "queries": counted[path] / span,
        "constants": counted["/constant"] / span,
        "ratio": counted[path] / counted["/constant"],
        "query_cpu_ms": 1000 * spent[path] / counted[path],
        "constant_cpu_ms": 1000 * spent["/constant"] / counted["/constant"],
        "journalled": journalled,
    }


def measured(seconds: float, *, workers: int, table: str, postgres: bool) -> dict:
    """Return a row of the table, measured over a temporary database."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench" if (ROOT / ".bench").exists() else None) as name:
        folder = Path(name)
        if not postgres:
            return measure(f"sqlite:///{folder / 's.ledger'}", folder, seconds, workers=workers, table=table)
        with schema_of_postgres() as url:
            return measure(url, folder, seconds, workers=workers, table=table)


def _line(row: dict) -> str:
    figures = f"{row['queries']:.0f} | {row['constants']:.0f} | {row['ratio']:.2f}"
    spent = f"{row['query_cpu_ms']:.2f} | {row['constant_cpu_ms']:.2f}"
    return f"| {NAMES[row['table']]} | {row['database']} | {row['workers']} | {figures} | {spent} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--postgres", action="store_true")
    from _installed import keep_compiled  # imported here, because workers import this file as a module of a package

    keep_compiled()
    given = parser.parse_args()
    load = os.getloadavg()[0]
    seconds, databases = given.seconds, (False, True) if given.postgres else (False,)
    rows = [
        measured(seconds, workers=workers, table=table, postgres=postgres)
        for table in QUESTIONS
        for postgres in databases
        for workers in (1, 2)
    ]
    lines = [
        f"Replies per second at {CONNECTIONS} connections, in rounds of {seconds:g} s. Each count is charged,",
        "journaled and durable before its reply leaves. The constant is the same server without statement, ledger",
        "and table, after the same checks. CPU is that of the server's processes, without a database server. The",
        f"goals are {TARGET} questions per second on SQLite, and at most 6 CPU ms each for the census.",
        "",
        "The bundled census has 15 columns, and no statement is sent twice, so each is parsed. The million",
        "children have two columns, and 56 statements are sent at 900 losses each. After the first question, the",
        "vault has the exact table of the columns, so no other question reads a row. Each question takes two",
        "commits, one for its charge and one for its answer. *Average* asks AVG(age) of the census, each time at",
        "a new loss.",
        f"Made by `python benchmarks/server.py` on {os.cpu_count()} cores.",
        f"Their load was {load:.0f} when it began and {os.getloadavg()[0]:.0f} at its end.",
        "",
        "| table | database | workers | questions/s | constants/s | ratio | CPU ms a question | CPU ms a constant |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *map(_line, rows),
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    TABLE.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
