"""Cost of a condition beyond the same question without one: CPU, ledger and memory.

python benchmarks/conditions.py [--rows 100000] [--questions 300]

Questions go to a vault with a ledger in SQLite, and to a server over one connection. No question is repeated. CPU is
that of this process for the vault, and that of the server's processes for the server. A figure is the median of the
vault's questions, and the mean of the server's. Memory is the resident memory of this process.
"""

# ruff: noqa: S608 - statements are what is asked

from __future__ import annotations

import argparse
import gc
import http.client
import itertools
import json
import os
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

import sfumato as sf
from server import cpu, serve_tables
from sfumato.bounded_cache import held_bytes
from sfumato.domain import Date, Domain, Grain, Integer, Unknown

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "conditions.md"
GROWTH = 10_000
FIRST = date(1900, 1, 1)
DAYS = 47_482
LOSSES = (f"0.1{number:07d}" for number in itertools.count(1))
COLUMNS = {"ten_thousand": 10**4, "hundred_thousand": 10**5, "million": 10**6, "billion": 10**9}


def integer(name: str, cells: int) -> Integer:
    """Return a column of integers from 0."""
    return Integer(name=name, minimum=0, maximum=cells - 1, unknown=Unknown.CLAMP)


DOMAIN = Domain(
    (
        Date(name="d", first=FIRST, last=date(2029, 12, 31), by=Grain.DAY, unknown=Unknown.DROP),
        integer("b", 50),
        *(integer(name, cells) for name, cells in COLUMNS.items()),
    )
)


def table(rows: int) -> pa.Table:
    """Return evenly distributed values of every column."""
    random = np.random.default_rng(1)
    days = [FIRST + timedelta(days=int(day)) for day in random.integers(0, DAYS, rows)]
    numbers = {name: random.integers(0, cells, rows) for name, cells in {"b": 50, **COLUMNS}.items()}
    return pa.table({"d": pa.array(days), **numbers})


def between(name: str, number: int) -> str:
    """Return a range of a column, a different one for each number."""
    if name == "d":
        low, high = (FIRST + timedelta(days=start + number) for start in (7_500, 37_651))
        return f"d >= '{low}' AND d < '{high}'"
    cells = COLUMNS[name]
    return f"{name} >= {7 + number * cells // 20_000} AND {name} < {cells // 2 + number * cells // 20_000}"


def listed(count: int, number: int) -> str:
    """Return a list of values of the column of a hundred thousand cells."""
    values = np.random.default_rng(number).choice(10**5, count, replace=False)
    return f"hundred_thousand IN ({', '.join(map(str, values))})"


def ledger_bytes(path: Path) -> int:
    """Return the size of a ledger's file including its log."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def resident() -> float:
    """Return the resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Asked:
    """A vault with measurements of the cost of its questions."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.path = folder / "vault.ledger"
        limit = sf.Epsilon(10**9)
        self.vault = sf.open(table(rows), domain=DOMAIN, ledger=f"sqlite:///{self.path}", limit=limit, create=True)

    def ask(self, statement: str) -> float:
        """Return the CPU milliseconds of one question."""
        loss, before = sf.Epsilon(next(LOSSES)), time.process_time()
        sf.query.sql(self.vault, statement, loss=loss)
        return 1e3 * (time.process_time() - before)

    def costs(self, statement: Callable[[int], str], questions: int) -> tuple[float, float]:
        """Return CPU milliseconds and ledger bytes of a question, after a first one that reads the columns."""
        self.ask(statement(0))
        before = ledger_bytes(self.path)
        spent = [self.ask(statement(number)) for number in range(1, questions + 1)]
        return statistics.median(spent), (ledger_bytes(self.path) - before) / questions

    def growth(self) -> list[tuple[int, float, float]]:
        """Return questions, MB in memory and MB in caches, during many different questions."""
        found, names = [], ("ten_thousand", "hundred_thousand", "d")
        for number in range(GROWTH + 1):
            if not number % 2_000:
                gc.collect()
                found.append((number, resident(), held_bytes() / 1e6))
            self.ask(f"SELECT COUNT(*) FROM t WHERE {between(names[number % 3], number // 3)}")
        return found


def over_http(folder: Path, rows: int, questions: int) -> Iterator[tuple[str, float, float]]:
    """Yield the figures of a server: name, CPU milliseconds and ledger bytes of a question."""
    path = folder / "server.ledger"
    process, port, secret = serve_tables(folder, f"sqlite:///{path}", 1, {"t": (table(rows), DOMAIN)})
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(statement: str) -> None:
        body = json.dumps({"sql": statement, "loss": {"epsilon": next(LOSSES)}})
        head = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/datasets/t/query", body, head)
        reply = connection.getresponse()
        said = reply.read()
        assert reply.status == 200, said

    def costs(statement: Callable[[int], str]) -> tuple[float, float]:
        for number in range(20):
            ask(statement(number))
        size, before = ledger_bytes(path), cpu(process.pid)
        for number in range(20, 20 + questions):
            ask(statement(number))
        return 1e3 * (cpu(process.pid) - before) / questions, (ledger_bytes(path) - size) / questions

    try:
        for name, statement in asked().items():
            yield name, *costs(statement)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def asked() -> dict[str, Callable[[int], str]]:
    """Return statements by their subject."""
    count, groups = "SELECT COUNT(*) FROM t", "SELECT b, COUNT(*) FROM t"
    found: dict[str, Callable[[int], str]] = {"count": lambda _: count}
    for name in ("d", "ten_thousand", "hundred_thousand", "million"):
        found[f"count, range of {cells(name):,} cells"] = lambda number, name=name: (
            f"{count} WHERE {between(name, number)}"
        )
    found["groups"] = lambda _: f"{groups} GROUP BY b"
    for name in ("d", "million"):
        found[f"groups, range of {cells(name):,} cells"] = lambda number, name=name: (
            f"{groups} WHERE {between(name, number)} GROUP BY b"
        )
    return found


def cells(name: str) -> int:
    """Return the number of cells of a column."""
    return DOMAIN[name].size


def large() -> dict[str, tuple[Callable[[int], str], int]]:
    """Return long statements and columns of very many cells, and the number of repetitions of each."""
    ranges = " OR ".join(f"million BETWEEN {27 * place} AND {27 * place + 9}" for place in range(27_000))
    named = ("COUNT(*)", "SUM(b)", "AVG(ten_thousand)", "SUM(hundred_thousand)")
    many = ", ".join(f"{named[place % 4]} AS c{place}" for place in range(200))
    return {
        **{
            f"`IN` of {count:,} values, 100,000 cells": (
                lambda n, c=count: f"SELECT COUNT(*) FROM t WHERE {listed(c, n)}",
                5,
            )
            for count in (100, 1_000, 10_000)
        },
        f"{len(ranges):,} characters, 27,000 ranges": (
            lambda n: f"SELECT COUNT(*) FROM t WHERE {ranges} OR million = {n}",
            2,
        ),
        "200 aggregates": (lambda n: f"SELECT {many} FROM t WHERE million > {n}", 5),
        **{
            f"{name} of 1,000,000,000 cells": (lambda n, name=name: f"SELECT {name}(billion) FROM t WHERE b <> {n}", 10)
            for name in ("SUM", "AVG", "MEDIAN")
        },
    }


def beyond(found: dict[str, tuple[float, ...]]) -> str:
    """Return the largest extra CPU time of a range over the same query without one."""
    more = [
        [with_range - without for with_range, without in zip(figures, found[name.partition(",")[0]], strict=True)]
        for name, figures in found.items()
        if "range" in name
    ]
    time, size = (max(each[place] for each in more for place in places) for places in ((0, 2), (1, 3)))
    return (
        f"A range costs at most {time:.1f} CPU ms and {max(0, size):,.0f} bytes more. "
        "Where its cells and the groups are more than 2^18 together,\n"
        "no exact table is kept, and the rows are counted for each question."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=300)
    told = parser.parse_args()
    lines = [
        "What a condition costs: CPU of one question, and bytes that it adds to a ledger in SQLite. The table has",
        f"{told.rows:,} rows, and each line is of {told.questions} different questions. Made by",
        "`python benchmarks/conditions.py`, which says how.",
        "",
        "| question | vault, CPU ms | vault, ledger bytes | server, CPU ms | server, ledger bytes |",
        "|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        held = Asked(Path(folder), told.rows)
        by_server = {name: figures for name, *figures in over_http(Path(folder), told.rows, told.questions)}
        found: dict[str, tuple[float, ...]] = {}
        for name, statement in asked().items():
            figures = found[name] = (*held.costs(statement, told.questions), *by_server[name])
            lines.append(f"| {name} | {figures[0]:.2f} | {figures[1]:,.0f} | {figures[2]:.2f} | {figures[3]:,.0f} |")
            print(lines[-1], flush=True)
        lines += ["", beyond(found)]
        lines += ["", "| question | CPU ms | ledger bytes | MB of memory more |", "|---|---:|---:|---:|"]
        for name, (statement, times) in large().items():
            before = resident()
            spent, kept = held.costs(statement, times)
            lines.append(f"| {name} | {spent:,.0f} | {kept:,.0f} | {max(0, resident() - before):.0f} |")
            print(lines[-1], flush=True)
        lines += ["", "| different questions | memory, MB | in caches, MB |", "|---:|---:|---:|"]
        for number, memory, caches in held.growth():
            lines.append(f"| {number:,} | {memory:.0f} | {caches:.0f} |")
            print(lines[-1], flush=True)
    lines += ["", f"Load of the machine during the run: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
