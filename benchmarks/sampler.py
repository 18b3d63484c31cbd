"""Noise on 1e5 counts: Sfumato against OpenDP, side by side in one run.

The benchmark prints JSON and writes the table in the documentation.  Run it with ``python benchmarks/sampler.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import opendp.prelude as opendp

from sfumato.privacy import DiscreteGaussian, DiscreteLaplace
from sfumato.privacy.entropy import OsEntropy

COUNTS = 100_000
ROUNDS = 5
REPORT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "sampler.md"


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> dict[str, str | float]:
    """Alternate the two after one call of each, which fills caches, and return the medians."""
    first = seconds(ours)
    theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)]
    our_time, their_time = (float(np.median(times)) for times in zip(*pairs, strict=True))
    return {
        "noise": name,
        "sfumato_ns": 1e9 * our_time / COUNTS,
        "sfumato_first_call_ns": 1e9 * first / COUNTS,
        "opendp_ns": 1e9 * their_time / COUNTS,
        "ratio": their_time / our_time,
    }


def rows() -> list[dict[str, str | float]]:
    opendp.enable_features("contrib")
    counts = np.arange(COUNTS, dtype=np.int64)
    listed = counts.tolist()
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    entropy = OsEntropy()
    results = []
    for scale in (1, 10, 100, 20_000):
        ours: DiscreteLaplace | DiscreteGaussian = DiscreteLaplace(scale)
        peer = opendp.m.make_laplace(domain, opendp.l1_distance(T="i64"), scale=float(scale))
        results.append(compare(f"Laplace, scale {scale}", partial(ours.add, counts, entropy), partial(peer, listed)))
        ours = DiscreteGaussian(scale * scale)
        peer = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(scale))
        results.append(compare(f"Gaussian, sigma {scale}", partial(ours.add, counts, entropy), partial(peer, listed)))
    return results


def markdown(results: list[dict[str, str | float]]) -> str:
    lines = [
        "# Noise: time of one draw",
        "",
        f"CPU nanoseconds a draw, {COUNTS} counts a call, medians of {ROUNDS} alternating calls in one run",
        f"(`make bench`), against OpenDP {version('opendp')}.",
        "The first call also builds the table of its scale.",
        "",
        "| noise | Sfumato | first call | OpenDP | times faster |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in results:
        numbers = (row[key] for key in ("sfumato_ns", "sfumato_first_call_ns", "opendp_ns", "ratio"))
        lines.append(f"| {row['noise']} | " + " | ".join(f"{number:,.0f}" for number in numbers) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    table = rows()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(markdown(table), encoding="utf-8")
    print(json.dumps(table, indent=2))
