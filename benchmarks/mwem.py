"""MWEM against smartnoise-synth: the same queries, rounds, repetitions and epsilon, CPU seconds and error of a run.

python benchmarks/mwem.py [--runs 10] [--skip-peer]

smartnoise-synth runs in its own environment (``.bench/smartnoise``, created on first use). Its ``mwem()`` is timed
alone, on a histogram in memory, with its floating-point noise. Sfumato releases like a user. A table of a million rows
in a Parquet file is opened with a ledger. The timed release counts, draws exact noise, is charged and journaled, and
draws the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import stdev

from _installed import keep_compiled

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "mwem.md"
RESULTS = TABLE.with_suffix(".json")
PEER = ROOT / ".bench" / "smartnoise"
DATA = ROOT / "src" / "sfumato" / "data"
EPSILON = 1.0
QUERIES_2D = 400
CASES = {"1-D": {"rounds": 30, "repetitions": 20}, "2-D": {"rounds": 200, "repetitions": 20}}
TARGET = 50
WANTED = {"1-D": 1.43, "2-D": 1.42}


def case(name: str, run: int) -> tuple[object, list[tuple[tuple[int, int], ...]]]:
    """Return counts, and the inclusive bounds of every query along every axis; both contestants use the same."""
    import csv

    import numpy as np

    with (DATA / "child_mental_health.csv").open(encoding="utf-8") as file:
        counts = np.array([int(row["count"]) for row in csv.DictReader(file)]).reshape(14, 4)
    if name == "1-D":
        with (DATA / "child_mental_health_queries.csv").open(encoding="utf-8") as file:
            return counts.sum(axis=1), [((int(row["low"]), int(row["high"])),) for row in csv.DictReader(file)]
    random = np.random.default_rng(run)
    every = [((a, b), (c, d)) for a in range(14) for b in range(a, 14) for c in range(4) for d in range(c, 4)]
    return counts, [every[index] for index in random.choice(len(every), QUERIES_2D, replace=False)]


class FloatMechanisms:
    """Mechanisms with the peer's kind of noise: floating point, without accounting. They compare the algorithms
    alone.
    """

    def __init__(self, domain: object, counts: object, seed: int) -> None:
        import numpy as np

        self.domain = domain
        self._counts = counts.astype(float)
        self._random = np.random.default_rng(seed)

    def prepare(self, queries):
        """Prepare the queries with their exact answers, like the peer's histogram."""
        self._queries, self._exact = queries, queries.matrix @ self._counts
        return self

    def measure(self, query, loss):
        """Measure one counting query with Laplace noise."""
        import numpy as np

        from sfumato.vault.measurables import Measurement

        answer = self._exact[query] + self._random.laplace(scale=1 / float(loss.value))
        return Measurement(self._queries, np.array([round(answer)]), None)

    def select(self, answers, loss, *, among):
        """Select by the exponential mechanism, by its equivalent with Gumbel noise."""
        exponents = abs(self._exact[among] - answers[among]) * (float(loss.value) / 2)
        return int(among[(exponents + self._random.gumbel(size=len(exponents))).argmax()])


def question(name: str, run: int):
    """Return counts, their domain and the workload."""
    import numpy as np

    from sfumato.domain import Domain, Integer, Unknown
    from sfumato.synthesize import rectangles

    counts, bounds = case(name, run)
    domain = Domain(
        tuple(
            Integer(name=f"a{axis}", minimum=0, maximum=size - 1, unknown=Unknown.DROP)
            for axis, size in enumerate(counts.shape)
        )
    )
    box = np.array(bounds)
    return counts, domain, rectangles(domain.names, box[:, :, 0], box[:, :, 1])


def algorithm(name: str, run: int) -> tuple[float, float]:
    """Return CPU seconds and mean absolute error of one run of the algorithm alone."""
    import numpy as np

    from sfumato.privacy.loss import Epsilon
    from sfumato.synthesize import PublicTotal, Schedule
    from sfumato.synthesize.methods.mwem import iterate
    from sfumato.workload.counting_queries import counting

    counts, domain, workload = question(name, run)
    mechanisms = FloatMechanisms(domain, counts.ravel(), run)
    total, queries = PublicTotal(int(counts.sum())), counting(workload, domain)
    start = time.process_time()
    found = iterate(mechanisms, Epsilon(EPSILON), total=total, queries=queries, schedule=Schedule(**CASES[name]))
    spent = time.process_time() - start
    return spent, float(np.abs(workload.answers(domain, found.last - counts.ravel())).mean())


def sfumato(name: str, run: int) -> tuple[float, float]:
    """Return CPU seconds and mean absolute error of one release of a file, by a vault with a ledger."""
    return released(name, run, rounds_alone=False)


def rounds(name: str, run: int) -> tuple[float, float]:
    """Return the figures of a release's rounds alone; an earlier release counted the table and drew such noise."""
    return released(name, run, rounds_alone=True)


def released(name: str, run: int, *, rounds_alone: bool) -> tuple[float, float]:
    """Return CPU seconds and mean absolute error of a release, or of its rounds."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import sfumato as sf
    from sfumato.domain.document import accept, dump
    from sfumato.privacy.loss import Epsilon
    from sfumato.synthesize import PublicTotal, Schedule, mwem
    from sfumato.synthesize.methods.mwem import iterate
    from sfumato.vault.interface import ReleaseRequest
    from sfumato.workload.counting_queries import counting

    counts, domain, workload = question(name, run)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cells = np.indices(counts.shape).reshape(counts.ndim, -1).repeat(counts.ravel(), axis=1)
        pq.write_table(pa.table(dict(zip(domain.names, cells, strict=True))), folder / "people.parquet")
        (folder / "people.yaml").write_text(dump(domain), encoding="utf-8")
        accept(folder / "people.yaml", by="the benchmark")
        loss = Epsilon(EPSILON)
        vault = sf.open(folder / "people.parquet", domain=folder / "people.yaml", limit=loss * 2, create=True)
        total, schedule = PublicTotal(int(counts.sum())), Schedule(**CASES[name])
        start = time.process_time()
        made = mwem(vault, loss=loss, total=total, workload=workload, schedule=schedule)
        spent = time.process_time() - start
        if rounds_alone:
            took, queries = [], counting(workload, domain)

            def again(mechanisms):
                begun = time.process_time()
                found = iterate(mechanisms, loss, total=total, queries=queries, schedule=schedule)
                took.append(time.process_time() - begun)
                return {"cells": found.last}

            weights = vault.release(ReleaseRequest("synthesize", "rounds", {}), loss, again).payload["cells"]
            return took[0], float(np.abs(workload.answers(domain, weights - counts.ravel())).mean())
    answers = workload.answers(domain, made.model.cells(domain.names).ravel() - counts.ravel())
    return spent, float(np.abs(answers).mean())


def smartnoise(name: str, run: int) -> tuple[float, float]:
    """Return CPU seconds and mean absolute error of one run."""
    import random

    import numpy as np
    from snsynth.mwem import Histogram, MWEMSynthesizer, Query

    counts, bounds = case(name, run)
    random.seed(run)
    np.random.seed(run)  # noqa: NPY002  (the peer draws from the global generator)
    real = counts.astype(float)
    histogram = Histogram(real, list(real.shape), [None] * real.ndim, np.arange(real.ndim))
    # its queries index the transposed histogram
    histogram.queries = [Query([slice(low, high + 1) for low, high in reversed(box)]) for box in bounds]
    histogram.iterations = CASES[name]["rounds"]
    histogram.meas_eps = EPSILON / 2 / histogram.iterations
    method = MWEMSynthesizer(
        EPSILON, iterations=histogram.iterations, mult_weights_iterations=CASES[name]["repetitions"]
    )
    method.histograms, method.max_iterations = [histogram], histogram.iterations
    start = time.process_time()
    ((synthetic, _, _),) = method.mwem()
    spent = time.process_time() - start
    errors = [abs(query.evaluate(synthetic) - query.evaluate(real)) for query in histogram.queries]
    return spent, float(np.mean(errors))


def contest(contestant: str, name: str, runs: int) -> dict[str, object]:
    """Make all runs of one contestant in this process, after a warm-up."""
    import warnings

    warnings.simplefilter("ignore")
    run = {"sfumato": sfumato, "rounds": rounds, "algorithm": algorithm, "smartnoise": smartnoise}[contestant]
    run("1-D", 0)
    found, beside = [], []
    for index in range(1, runs + 1):
        if contestant == "rounds":  # in turns, because both take a few milliseconds and the machine's load changes
            beside.append(algorithm(name, index)[0])
        found.append(run(name, index))
    seconds, errors = zip(*found, strict=True)
    return {
        "contestant": contestant,
        "case": name,
        "runs": runs,
        "cpu_s": sum(seconds) / runs,
        "least_s": min(seconds),
        "alone_s": min(beside, default=None),
        "mean_error": sum(errors) / runs,
        "standard_error": stdev(errors) / runs**0.5 if runs > 1 else None,
    }


def environment() -> Path:
    """Return the Python of the environment with smartnoise-synth, created on first use."""
    python = PEER / "bin" / "python"
    if not python.exists():
        venv.create(PEER, with_pip=True)
    probe = subprocess.run([python, "-c", "import snsynth"], check=False, capture_output=True)
    if probe.returncode:
        # torch first and alone: the plain requirement may otherwise resolve to a build for GPUs
        for package in ("torch", "smartnoise-synth"):
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python


def judge(runs: int, *, peer: bool) -> list[dict[str, object]]:
    """Run all contestants, one after the other, on every case. Others are compared with the algorithm alone."""
    ours = Path(sys.executable)
    pythons = {"algorithm": ours, "rounds": ours, "sfumato": ours} | ({"smartnoise": environment()} if peer else {})
    single = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    results: list[dict[str, object]] = []
    for name in CASES:
        alone = 0.0
        for contestant, python in pythons.items():
            # the slow one gets fewer of the slow runs
            times = 10 * runs if contestant != "smartnoise" or name == "1-D" else runs
            command = [python, __file__, "--contestant", contestant, "--case", name, "--runs", str(times)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=single)
            found = json.loads(done.stdout.splitlines()[-1])
            alone = found["alone_s"] or alone or float(found["least_s"])
            results.append(found | {"times_alone": float(found["least_s"]) / alone})
    return results


def table(results: list[dict[str, object]], peer: list[dict[str, object]]) -> str:
    """Return the results in Markdown. A run without the peer includes the peer's figures of an earlier run."""
    lines = [
        f"MWEM on the child mental health table at epsilon {EPSILON:g}, 20 repetitions, the same queries for all.",
        f"The first case has 60 ranges over 14 cells in 30 rounds (1-D), the second {QUERIES_2D} rectangles over",
        "56 cells in 200 rounds (2-D). CPU milliseconds are of a run on one thread: mean, least, and the",
        "least relative to the algorithm alone. The error is the mean absolute error over the queries, in people,",
        "with its standard error.",
        "",
        "* *A release* is what users call on an open file of a million rows. It includes the first count, exact",
        "  noise and selection, the charge and the journal on disk, and a million drawn rows.",
        "* *The algorithm alone* draws floating-point noise from a histogram in memory, as the peer does.",
        "* *The rounds of a release* take the histogram from an earlier release, with exact noise, selection and",
        f"  accounting. The goals are {WANTED['1-D']} and {WANTED['2-D']} times the algorithm alone.",
        "",
        "Made by `python benchmarks/mwem.py`.",
        "",
        "| case | contestant | runs | CPU ms a run | least | times the algorithm alone | mean error |",
        "|---|---|---|---|---|---|---|",
    ]
    names = {"algorithm": "Sfumato, the algorithm alone", "rounds": "Sfumato, the rounds of a release"}
    names["sfumato"] = "Sfumato, a release"
    names["smartnoise"] = "smartnoise-synth"
    lines.extend(
        f"| {r['case']} | {names[str(r['contestant'])]} | {r['runs']} | {float(r['cpu_s']) * 1000:.1f} "
        f"| {float(r['least_s']) * 1000:.1f} | {r['times_alone']:.2f} "
        f"| {r['mean_error']:.1f} ± {r['standard_error'] or 0:.1f} |"
        for r in results
    )
    lines += ["", f"Load of the machine at the end of the run: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."]
    if not any(r["contestant"] == "smartnoise" for r in results):
        lines += ["", "The peer was measured in another run:"]
        for one, other in zip(*(_of(peer, name) for name in ("algorithm", "smartnoise")), strict=True):
            ratio = float(other["cpu_s"]) / float(one["cpu_s"])
            lines.append(
                f"{one['case']}: the algorithm alone {float(one['cpu_s']) * 1000:.1f} ms, smartnoise-synth "
                f"{float(other['cpu_s']) * 1000:.1f} ms ({ratio:.0f} times; mean error {other['mean_error']:.1f} ± "
                f"{other['standard_error']:.1f})."
            )
    return "\n".join(lines) + "\n"


def _of(results: list[dict[str, object]], contestant: str) -> list[dict[str, object]]:
    return [each for each in results if each["contestant"] == contestant]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--contestant", choices=("algorithm", "rounds", "sfumato", "smartnoise"))
    parser.add_argument("--case", choices=tuple(CASES), default="1-D")
    parser.add_argument("--skip-peer", action="store_true", help="show what it did in an earlier run")
    keep_compiled()
    arguments = parser.parse_args()
    if arguments.contestant:
        print(json.dumps(contest(arguments.contestant, arguments.case, arguments.runs)))
        return
    results = judge(arguments.runs, peer=not arguments.skip_peer)
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"results": []}
    peer = kept.get("with peer", kept["results"]) if arguments.skip_peer else results
    found = {"target_ratio": TARGET, "results": results, "with peer": peer}
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(results, peer), encoding="utf-8")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(results, peer))


if __name__ == "__main__":
    main()
