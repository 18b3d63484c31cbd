"""Answers of 700,000 groups over HTTP, and the waiting time of other requests meanwhile.

python benchmarks/large_answers.py [--before SRC]

A server of one worker answers the counts of all pairs of 1,000 and 700 cells: once, again, and for ten keys at the same
time.  Meanwhile another key asks for counts, one after the other, each at a new loss.  With ``--before``, the server of
another source tree does the same in the same run, for four keys, because each takes a gigabyte there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks" / "large_answers.md"
SIDES = {"a": 1000, "b": 700}
STATEMENT = "SELECT a, b, COUNT(*) FROM grid GROUP BY a, b"
PATH = "/v1/datasets/grid/query"
COUNTS = 100  # counts of the bystander before and after each crowd
ROUNDS = 3
KEYS = 10
KINDS = {"JSON": "*/*", "Arrow": "application/vnd.apache.arrow.stream", "Parquet": "application/vnd.apache.parquet"}
PREPARE = """
import sys
from contextlib import closing
from datetime import timedelta
from sfumato_server.registry import Scope
from sfumato_server.service import Service
url, source, domain, keys = sys.argv[1], sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])
with closing(Service(url, create=True)) as service:
    service.register("grid", source=source, domain=domain, limit="1000000", more={})
    for number in range(keys):
        print(service.registry.issue(f"key {number}", Scope.ANALYST, timedelta(hours=1))[1])
"""
SERVE = """
import sys
from sfumato_server.application import run
application = "sfumato_server.application:application"
run(application, host="127.0.0.1", port=int(sys.argv[1]), workers=1, proxies=(), tls=None)
"""
READ = """
import selectors, socket, sys
port, *requests = int(sys.argv[1]), *sys.stdin.buffer.read().split(b"\\0")
waiting = selectors.DefaultSelector()
for each in requests:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(each)
    waiting.register(connection, selectors.EVENT_READ, [])
part = bytearray(1 << 18)
while waiting.get_map():
    for key, _ in waiting.select():
        size = key.fileobj.recv_into(part)
        assert key.data or part.startswith(b"HTTP/1.1 200"), bytes(part[:500])
        key.data.append(size)
        if not size:
            waiting.unregister(key.fileobj)
"""


def request(key: str, body: bytes, accept: str) -> bytes:
    """Return a question as a complete request whose connection ends with the reply."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n"
    kinds = f"Accept: {accept}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{kinds}".encode() + body


class Server:
    """A server of a source tree; ``keys`` belong to analysts."""

    def __init__(self, source: Path, folder: Path) -> None:
        import numpy as np
        import pyarrow as pa
        from pyarrow import parquet

        random = np.random.default_rng(1)
        table = pa.table({name: random.integers(0, size, 100_000) for name, size in SIDES.items()})
        parquet.write_table(table, folder / "grid.parquet")
        kinds = {
            name: {"type": "integer", "minimum": 0, "maximum": size - 1, "unknown": "clamp"}
            for name, size in SIDES.items()
        }
        domain = {"sfumato": 1, "unit": "row", "attributes": kinds}
        url = f"sqlite:///{folder}/s.ledger"
        environment = os.environ | {"PYTHONPATH": str(source), "SFUMATO_LEDGER": url}
        arguments = [url, str(folder / "grid.parquet"), repr(domain), str((KEYS + 1) * len(KINDS) + 1)]
        made = subprocess.run(
            [sys.executable, "-c", PREPARE, *arguments], env=environment, check=True, capture_output=True, text=True
        )
        self.bystander, *keys = made.stdout.split()
        self.keys = iter(keys)  # each key asks at most its quota
        with closing(socket.socket()) as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(self.port)], env=environment, stderr=subprocess.DEVNULL
        )
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self.process.poll() is None
                time.sleep(0.1)
            else:
                break
        self.body = json.dumps({"sql": STATEMENT, "loss": {"epsilon": "1"}}).encode()
        self.counted = 0

    def cpu(self) -> float:
        """Return the CPU seconds of the server."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name: str) -> float:
        """Return its memory in MB (VmRSS), or the peak since the last reset (VmHWM)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

    def once(self, key: str, accept: str) -> dict:
        """Measure the cost of one question."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        before, held, start, size = self.cpu(), self.memory("VmRSS"), time.perf_counter(), 0
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(request(key, self.body, accept))
            while part := connection.recv(1 << 20):
                size += len(part)
        seconds = time.perf_counter() - start
        peak = self.memory("VmHWM")
        return {"cpu": self.cpu() - before, "peak": peak - held, "mb": size / 1e6, "seconds": seconds}

    def count(self, connection: http.client.HTTPConnection) -> float:
        """Return the seconds of one count of the bystander, at a new loss."""
        self.counted += 1
        body = {"sql": "SELECT COUNT(*) FROM grid WHERE a >= 500", "loss": {"epsilon": f"0.1{self.counted:06d}"}}
        headers = {"Authorization": f"Bearer {self.bystander}", "Content-Type": "application/json"}
        start = time.perf_counter()
        connection.request("POST", PATH, json.dumps(body), headers)
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200, reply.status
        return time.perf_counter() - start

    def crowd(self, keys: int, accept: str) -> dict:
        """Return the bystander's seconds without other requests, and while many keys ask at the same time."""
        quiet, busy, seconds, peak = [], [], 0.0, 0.0
        asking = [next(self.keys) for _ in range(keys)]
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            for _ in range(ROUNDS):
                quiet += [self.count(connection) for _ in range(COUNTS)]
                Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
                start, held = time.perf_counter(), self.memory("VmRSS")
                reader = subprocess.Popen([sys.executable, "-c", READ, str(self.port)], stdin=subprocess.PIPE)
                assert reader.stdin is not None
                reader.stdin.write(b"\0".join(request(key, self.body, accept) for key in asking))
                reader.stdin.close()
                while reader.poll() is None:
                    busy.append(self.count(connection))
                assert reader.returncode == 0
                seconds, peak = seconds + time.perf_counter() - start, max(peak, self.memory("VmHWM") - held)
                quiet += [self.count(connection) for _ in range(COUNTS)]
        return {
            "keys": keys,
            "quiet": statistics.median(quiet),
            "busy": statistics.median(busy),
            "worst": max(busy),
            "ratio": statistics.median(busy) / statistics.median(quiet),
            "seconds": seconds / ROUNDS,
            "peak": peak,
        }


def measured(name: str, source: Path, kinds: dict[str, str], keys: int) -> tuple[list[str], list[str]]:
    """Return the rows of both tables."""
    alone, crowds = [], []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(source, Path(folder))
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
                server.count(connection)
            for kind, accept in kinds.items():
                key = next(server.keys)
                first, again = server.once(key, accept), server.once(key, accept)
                figures = f"{first['cpu']:.2f} | {again['cpu']:.2f} | {max(first['peak'], again['peak']):.0f}"
                alone.append(f"| {name} | {kind} | {figures} | {first['mb']:.1f} | {again['seconds']:.2f} |")
            for kind, accept in kinds.items():
                found = server.crowd(keys, accept)
                waits = f"{1000 * found['quiet']:.1f} | {1000 * found['busy']:.1f} | {1000 * found['worst']:.0f}"
                ends = f"{found['ratio']:.1f} | {found['seconds']:.1f} | {found['peak']:.0f}"
                crowds.append(f"| {name} | {kind} | {found['keys']} | {waits} | {ends} |")
        finally:
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
    return alone, crowds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    given, load = parser.parse_args(), os.getloadavg()[0]
    found = [measured("now", ROOT / "src", KINDS, KEYS)]
    if given.before is not None:
        found.append(measured("before", given.before, {"JSON": KINDS["JSON"]}, 4))
    text = (
        "CPU seconds of a server of one worker for 700,000 groups: the first reply, and the same question once more. "
        "Peak MB is the additional memory, and seconds is the time until the repeated reply was read. "
        "The second table has the milliseconds that another analyst waits for a charged count: on a quiet server, and "
        "while the stated number of keys request the large answer. It shows both medians, the longest wait, the ratio, "
        "and the seconds until all large replies were read. *Before* is an earlier version of the code. "
        f"Made by `python benchmarks/large_answers.py --before SRC` on {os.cpu_count()} cores. "
        f"Their load was {load:.0f} when it began and {os.getloadavg()[0]:.0f} at its end."
    )
    lines = [
        fill(text, 120),
        "",
        "| code | kind | CPU s | CPU s again | peak MB | reply MB | seconds |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(row for alone, _ in found for row in alone),
        "",
        "| code | kind | keys | quiet ms | busy ms | longest ms | ratio | all read after s | peak MB |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(row for _, crowds in found for row in crowds),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
