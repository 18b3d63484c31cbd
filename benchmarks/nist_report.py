"""Sfumato in NIST's complete SDNist report, with peers and both baselines, in one run.

python benchmarks/nist_report.py [--contestants sfumato-batched,dpmm-mst] [--epsilons 1 10] [--minutes 60]
    [--releases 5]

The benchmark needs the real data (``SFUMATO_DATA``) and an environment for NIST's package, created under ``.bench`` on
first use. The command makes Sfumato's releases from the file, with their own ledger. The peers see the same public
cells and get ``--minutes`` of CPU each. Their numbers are drawn evenly from wide cells. The package normally downloads
its target. The target is an excerpt in the data folder, so it is copied from there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from _installed import keep_compiled
from _real_data import folder as real_data
from census import PEERS, RUN, python_for
from kmarginal import LISTED

if TYPE_CHECKING:
    from sfumato.domain import Domain

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "nist_report.md"
RESULTS = TABLE.with_suffix(".json")
DELTA = "1e-9"
UNSURE = ("pMSE", "slope off by")  # which differ much between releases
CONTESTANTS = ("sfumato-batched", "sfumato-mst", "mbi-mst", "mbi-aim", "dpmm-mst", "dpmm-aim")
ELSEWHERE = ("25-", "48-")
"""Areas of Massachusetts and Texas, which the dictionary lists for two other excerpts."""

HUNDREDS = (0, 1, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000)
NUMBERS = {
    "AGEP": (0, 99, None),
    "NOC": (0, 19, None),
    "NPF": (2, 20, None),
    "PINCP": (-9000, 1_341_000, (-9000, 0, 1, *range(10_000, 100_000, 10_000), 100_000, 150_000, 250_000, 500_000)),
    "POVPIP": (0, 501, (*range(0, 501, 25), 501)),
    "PWGTP": (1, 9999, HUNDREDS[1:]),
    "WGTP": (0, 9999, HUNDREDS),
}
INTRODUCTION = """\
All metrics of NIST's SDNist report (package version {version}) for releases of the national 2019 excerpts:
{rows} people, {columns} columns. The 271 industry codes are left out, and so is the density, which follows from
the area. Bins are public and the same for all. Delta is {delta}.

The floor shuffles each column on its own. The ceiling draws the same number of rows with replacement from the
table, so it matches most people exactly and is no release. Made by `python benchmarks/nist_report.py`. Figures are
means of the stated number of releases; pMSE and slopes have their standard errors. Sfumato's releases use its command
with a ledger.

Higher is better:

* k-marginal: NIST's score, 1000 is perfect, one of its columns is always the area
* the share of rows whose sample would err as much
* the score of the worst area

Lower is better:

* mean divergence of a column, mean and largest change of Kendall's correlation, mean change of Pearson's
  correlation
* pMSE of a classifier that separates real from synthetic rows
* the largest error of the slope of income on education over NIST's groups of people
* rows that contradict themselves by NIST's list, whose rules no method was given
* exact matches: unique people who are also in the release

`batched` is ahead of both versions of MST in the k-marginal score, in correlations and in consistent rows. In the
divergence of single columns it is ahead at epsilon 1, and behind `sfumato-mst` at epsilon 10. Its pMSE is the best at
epsilon 10. At epsilon 1 that of `mbi-mst` is better, by two standard errors. The releases of `batched` are of commit
`4bac93d2`, those of `sfumato-mst` of `2da814dd`.

Slopes are no gain. At epsilon 1 those of `sfumato-mst` are better; at epsilon 10, one release of `mbi-mst` is. The
slopes of single groups were read in releases of commit `2da814dd` alone. There the largest error of `batched` was
mostly that of about 400 Native American women. MST does not measure income by race, so the slope of each group is about
that of all people. That slope was .04 off with `batched` at epsilon 1, and .07 with `sfumato-mst`. The mean error over
the nine groups was .074 and .053 at epsilon 1, and .043 and .052 at epsilon 10.

"""


def domain() -> Domain:
    """Return the columns and their public cells: those of the data dictionary, and the bins stated above."""
    from sfumato.domain import Categorical, Domain, Integer, Unknown

    meaning = json.loads((real_data("nist") / "data_dictionary.json").read_text(encoding="utf-8"))
    listed = [
        Categorical(
            name=name,
            values=tuple(value for value in meaning[name]["values"] if not value.startswith(ELSEWHERE)),
            unknown=Unknown.DROP,
        )
        for name in LISTED
    ]
    numbers = [
        Integer(
            name=name,
            minimum=low,
            maximum=high,
            edges=edges,
            unknown=Unknown.CATEGORY if "N" in meaning[name]["values"] else Unknown.CLAMP,
        )
        for name, (low, high, edges) in NUMBERS.items()
    ]
    return Domain((*listed, *numbers))


def lay_out(root: Path) -> None:
    """Write the target to the place that the package expects: the excerpts, and the schema from its data dictionary."""
    source = real_data("nist")
    meaning = json.loads((source / "data_dictionary.json").read_text(encoding="utf-8"))
    table = (source / "national2019.csv").read_bytes()
    header = table.splitlines()[0].decode("ascii").split(",")
    schema = {}
    for name in header:
        values = meaning[name].get("values", {})
        lacks = "N" in values or name == "INDP"
        kind = "object" if lacks or name == "PUMA" else "float64" if name == "DENSITY" else "int64"
        schema[name] = {"dtype": kind} | ({"has_null": True, "null_value": "N"} if lacks else {})
        if "min" in values and name not in ("NOC", "NPF"):
            schema[name] |= {"min": values["min"], "max": values["max"]}
        else:
            schema[name] |= {"values": list(values)}
    (root / "national").mkdir(parents=True)
    (root / "national" / "national2019.csv").write_bytes(table)
    (root / "national" / "national2019.json").write_text(json.dumps({"schema": schema}), encoding="utf-8")
    named = {"PUMA": {code: {"name": name} for code, name in meaning["PUMA"]["values"].items()}}
    (root / "mappings.json").write_text(json.dumps(named), encoding="utf-8")
    (root / "data_dictionary.json").write_text(json.dumps(meaning), encoding="utf-8")
    (root / "config.json").write_text("{}", encoding="utf-8")


def by_command(method: str, epsilon: float, described: Path, release: Path) -> float:
    """Write a release by ``sfumato synthesize`` with its own ledger, and return its CPU seconds."""
    made = release.with_suffix(".parquet")
    ledger = release.with_suffix(".db")
    told = ("--epsilon", epsilon, "--delta", DELTA, "--method", method, "--ledger", ledger, "--out", made)
    told = (*told, "--create", "--limit", f"{epsilon},{DELTA}")
    table = real_data("nist") / "national2019.csv"
    command = [sys.executable, "-m", "sfumato", "synthesize", table, "--domain", described, *told]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    table = pq.read_table(made).to_pydict()
    write(release, {name: ["N" if value is None else value for value in values] for name, values in table.items()})
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def by_peer(contestant: str, epsilon: float, source: Path, release: Path, *, minutes: float, seed: int) -> float:
    """Write the release of a peer from the codes, and return its CPU seconds.

    Raises:
        subprocess.CalledProcessError: the peer failed, or exceeded its time.
    """
    made = release.with_suffix(".npy")
    told = (contestant, source, made, epsilon, DELTA, seed, int(60 * minutes))
    single = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [str(part) for part in (python_for(contestant), "-W", "ignore", RUN, *told)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=single)
    write(release, decoded(domain(), np.load(made)))
    return float(json.loads(done.stdout.splitlines()[-1])["cpu_s"])


def decoded(described: Domain, codes: np.ndarray) -> dict[str, list[object]]:
    """Return the rows for the given codes, with numbers drawn evenly from their cells."""
    from sfumato.domain import Integer

    random = np.random.default_rng(0)
    columns: dict[str, list[object]] = {}
    for attribute, found in zip(described, codes.T, strict=True):
        if isinstance(attribute, Integer):
            low, high = np.array([attribute.bounds(code) for code in range(attribute.declared)]).T
            known = np.minimum(found, attribute.declared - 1)
            drawn = random.integers(low[known], high[known] + 1)
            columns[attribute.name] = np.where(found < attribute.declared, drawn.astype(str), "N").tolist()
        else:
            columns[attribute.name] = np.array(attribute.labels())[found].tolist()
    return columns


def write(path: Path, columns: dict[str, list[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def beside(release: Path, ceiling: Path) -> None:
    """Write the two baselines."""
    random = np.random.default_rng(0)
    with (real_data("nist") / "national2019.csv").open(encoding="utf-8") as file:
        people = list(csv.DictReader(file))
    drawn = random.integers(0, len(people), len(people))
    names = domain().names
    write(ceiling, {name: [people[index][name] for index in drawn] for name in names})
    write(release, {name: [people[index][name] for index in random.permutation(len(people))] for name in names})


def main() -> None:
    from sfumato.domain.document import dump
    from sfumato.evaluate.release_files import read_release

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--releases", type=int, default=1, help="of each line, besides those of earlier runs")
    keep_compiled()
    asked = parser.parse_args()
    PEERS["sdnist"] = "sdnist"
    judge = python_for("sdnist")
    lines = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lay_out(folder / "target")
        described = folder / "domain.yaml"
        described.write_text(dump(domain()), encoding="utf-8")
        accept = [
            sys.executable,
            "-m",
            "sfumato",
            "domain",
            "accept",
            str(described),
            "--by",
            "the benchmark",
            "--confirm=values,bounds,points,bins",
        ]
        subprocess.run(accept, check=True, capture_output=True)
        codes = read_release(real_data("nist") / "national2019.csv", domain()).codes
        ordered = np.array([name in NUMBERS for name in domain().names])
        np.savez(folder / "codes.npz", codes=codes, sizes=np.array(domain().shape), ordered=ordered)

        def judged(name: str, release: Path, cpu: float | None) -> None:
            command = [
                judge,
                "-W",
                "ignore",
                Path(__file__).with_name("_nist_report_run.py"),
                folder / "target",
                release,
            ]
            report = folder / f"report-{len(list(folder.iterdir()))}"
            done = subprocess.run(
                [str(part) for part in (*command, report)], check=True, stdout=subprocess.PIPE, text=True
            )
            found = json.loads(done.stdout.splitlines()[-1]) | {"CPU s": cpu}
            lines.setdefault(name, []).append(found)
            save(lines, judge, len(codes))

        if not lines:
            beside(folder / "floor.csv", folder / "ceiling.csv")
            judged("columns shuffled apart (floor)", folder / "floor.csv", None)
            judged("a sample of the table (ceiling)", folder / "ceiling.csv", None)
        for epsilon, number in product(asked.epsilons, range(asked.releases)):
            for contestant in asked.contestants.split(","):
                name, release = f"{contestant}, epsilon {epsilon:g}", folder / f"{contestant}-{epsilon:g}-{number}.csv"
                package, _, method = contestant.partition("-")
                try:
                    if package == "sfumato":
                        cpu = by_command(method, epsilon, described, release)
                    else:
                        told = {"minutes": asked.minutes, "seed": len(lines.get(name, ()))}
                        cpu = by_peer(contestant, epsilon, folder / "codes.npz", release, **told)
                    judged(name, release, cpu)
                except subprocess.CalledProcessError as error:
                    last = str(error.stderr or "").strip().splitlines() or [f"not within {asked.minutes:g} minutes"]
                    lines.setdefault(name, []).append({"failed": last[-1][:200]})
                    save(lines, judge, len(codes))


def save(lines: dict[str, list[dict[str, object]]], judge: Path, rows: int) -> None:
    """Write the results up to this point, as figures and as a table."""
    ask = "import importlib.metadata as m; print(m.version('sdnist'))"
    version = subprocess.run([judge, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    text = INTRODUCTION.format(version=version, rows=rows, columns=len(domain()), delta=DELTA)
    names = list(dict.fromkeys(name for runs in lines.values() for run in runs for name in run if name != "failed"))
    text += f"| release | {' | '.join(names)} | releases |\n|{'---|' * (len(names) + 2)}\n"
    for release, runs in lines.items():
        made = [run for run in runs if "failed" not in run]
        said = [shown([run[name] for run in made], unsure=name in UNSURE) for name in names if made]
        text += f"| {release} | {' | '.join(str(cell) for cell in said or [runs[0]['failed']])} | {len(made)} |\n"
    RESULTS.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(text, encoding="utf-8")


def shown(figures: list[object], *, unsure: bool) -> str:
    """Return the mean of the figures of several releases, with its standard error if asked for."""
    if figures[0] is None:
        return "-"
    mean = float(np.mean(figures))
    rounded = f"{mean:.4f}" if abs(mean) < 1 else f"{mean:.1f}" if mean != int(mean) else str(int(mean))
    if not unsure or len(figures) == 1:
        return rounded
    return f"{rounded} ± {np.std(figures, ddof=1) / len(figures) ** 0.5:.4f}"


if __name__ == "__main__":
    main()
