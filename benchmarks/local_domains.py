"""Frequencies over large domains by local hashing: one estimate by the server, and the same integers value by value.

The benchmark writes the table in the documentation.  The value-by-value time is measured on a few values and
multiplied, because all values would take hours.  Run it with ``python benchmarks/local_domains.py``.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from sfumato.local import Client, Frequency, Server
from sfumato.local.randomizers.two_valued import TwoValued

REPORT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "local_domains.md"
PEOPLE = 1_000_000
LINES = ((1 << 12, 1), (1 << 16, 1), (100_000, 1), (1 << 20, 1), (1 << 20, 2), (1 << 20, 4))
TRIED = 20


def measured(size: int, epsilon: int) -> str:
    spec = Frequency.design(size, epsilon=epsilon)
    values = np.random.default_rng(0).zipf(1.3, PEOPLE) % size
    reports = Client(spec).randomize_batch(values)
    begin = time.process_time()
    server = Server(spec)
    server.update(reports)
    estimate = server.estimate()
    fast = time.process_time() - begin
    assert isinstance(spec.randomizer, TwoValued)
    hashed = spec.randomizer.design
    function, bucket = np.divmod(reports.data.astype(np.int64), hashed.buckets)
    tried = np.random.default_rng(1).choice(size, TRIED, replace=False)
    begin = time.process_time()
    slow = [int(np.count_nonzero(hashed.hash(np.asarray(value), function) == bucket)) for value in tried]
    each = (time.process_time() - begin) / TRIED
    p, q = spec.randomizer.p, spec.randomizer.q
    expected = (np.array(slow) / PEOPLE - q) / (p - q)
    assert np.allclose(estimate.values[tried], expected, rtol=0, atol=1e-12)
    return f"| {size:,} | {epsilon} | {spec.method.value} | {hashed.buckets} | {fast:.2f} | {each * size:,.0f} |"


def main() -> None:
    lines = [
        "# Frequencies over large domains",
        "",
        f"CPU seconds on one core of `Server.update` and `estimate` for {PEOPLE:,} reports under the spec of `auto`.",
        f"*Value by value* adds up the reports that support each value, timed on {TRIED} values and multiplied; the",
        "estimates of these values are compared and equal. Made by `python benchmarks/local_domains.py`.",
        "",
        "| values | epsilon | method | buckets | estimate | value by value |",
        "|---:|---:|---|---:|---:|---:|",
        *(measured(size, epsilon) for size, epsilon in LINES),
    ]
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
