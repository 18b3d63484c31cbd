"""The optimal search over 15 to 24 quasi-identifiers, by the command: the loss, and the proven share of it.

Each table is written as CSV, its domain is drafted and accepted, its hierarchies are drafted, and ``sfumato anonymize``
runs for the given seconds. The last table has hierarchies of pairs, pairs of pairs and so on, which no draft makes; its
numbers are in 64 bins first. The benchmark needs UCI Adult, German credit, NIST's excerpts of the American Community
Survey and San Francisco's fire calls under ``$SFUMATO_DATA``. Run it with ``python benchmarks/wide_lattice.py
[--seconds 60]``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _real_data import folder as real_data

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "benchmarks" / "wide_lattice.md"
BINS = 64
TABLES = (  # name, file, columns, rows
    ("German credit", "german/german.csv", 21, None),
    ("NIST", "nist/national2019.csv", 16, None),
    ("NIST", "nist/national2019.csv", 24, None),
    ("Adult", "adult/adult.csv", 15, None),
    ("fire calls, the first", "fire/fire.csv.gz", 16, 30_000),
    ("fire calls, all", "fire/fire.csv.gz", 16, None),
)
ADULT = ("Adult, two values a cell", "adult/adult.csv", 15, None)
Rows = list[list[str]]


def read(file: str, columns: int, most: int | None) -> Rows:
    """Return the header and the rows."""
    path = real_data(file.split("/", maxsplit=1)[0]) / Path(file).name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        rows = [row[:columns] for row in csv.reader(lines)]
    return rows if most is None else rows[: most + 1]


def sfumato(folder: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "sfumato", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr
    )


def write(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def drafted(folder: Path, rows: Rows) -> None:
    """Write the table into a folder, with a drafted domain and drafted hierarchies."""
    write(folder / "table.csv", rows)
    sfumato(folder, "domain", "draft", "table.csv", "--out", "table.yaml")
    sfumato(folder, "domain", "accept", "table.yaml", "--by", "benchmark", "--confirm", "values,bounds,bins")
    sfumato(folder, "hierarchy", "draft", "table.yaml", *rows[0], "--out", "hierarchies")


def in_pairs(folder: Path, rows: Rows) -> None:
    """Write codes as texts of three digits, and hierarchies in which each cell has two of the level below."""
    header, *body = rows
    columns = [list(coded(column)) for column in zip(*body, strict=True)]
    write(folder / "table.csv", [header, *([text(code) for code in codes] for codes in zip(*columns, strict=True))])
    attributes = {}
    (folder / "hierarchies").mkdir()
    for name, codes in zip(header, columns, strict=True):
        values = [text(code) for code in range(max(codes) + 1)]
        attributes[name] = {"type": "categorical", "values": values, "nullable": False, "unknown": "category"}
        levels = (len(values) - 1).bit_length()
        cells = [
            [value, *(f"{level}:{place >> level}" for level in range(1, levels)), "*"]
            for place, value in enumerate(values)
        ]
        write(folder / "hierarchies" / f"{name}.csv", [[f"level_{level}" for level in range(levels + 1)], *cells])
    domain = {"sfumato": 1, "draft": True, "unit": "row", "attributes": attributes}
    (folder / "table.yaml").write_text(json.dumps(domain), encoding="utf-8")
    sfumato(folder, "domain", "accept", "table.yaml", "--by", "benchmark", "--confirm", "values,bounds,bins")


def text(code: int) -> str:
    return f"c{code:03}"


def coded(column: Sequence[str]) -> Iterator[int]:
    """Yield numbers in bins from 0, or texts as positions in their order."""
    if all(each.isdigit() for each in column):
        width = -(-(max(map(int, column)) + 1) // BINS)
        yield from (int(each) // width for each in column)
    else:
        places = {each: place for place, each in enumerate(sorted(set(column)))}
        yield from (places[each] for each in column)


def release(folder: Path, header: list[str], seconds: float) -> tuple[dict[str, Any], float, float]:
    """Return the command's report on its release, its CPU seconds, and its peak memory in MB."""
    words = ["--k", "10", "--suppression", "0.02", "--hierarchies", "hierarchies", "--seconds", f"{seconds:g}"]
    words += ["--quasi", ",".join(header), "--out", "out.csv", "--create", "--limit", "1", "--json"]
    with (folder / "said.json").open("w") as said:
        command = subprocess.Popen(
            [sys.executable, "-m", "sfumato", "anonymize", "table.csv", *words], cwd=folder, stdout=said
        )
        _, status, used = os.wait4(command.pid, 0)
    if status:
        sys.exit(f"the command failed on {folder}")
    found = json.loads((folder / "said.json").read_text(encoding="utf-8"))
    return found, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def line(table: tuple[str, str, int, int | None], seconds: float) -> str:
    name, file, columns, most = table
    rows = read(file, columns, most)
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        (in_pairs if table is ADULT else drafted)(folder, rows)
        said, spent, memory = release(folder, rows[0], seconds)
    certificate = said["facts"]["certificate"]
    cells = (len(rows) - 1) * columns
    share = 100 * certificate["bound"] / certificate["loss"]
    proven = "all" if certificate["proven"] else f"{share:.0f} %"
    figures = (
        f"{spent:.0f} | {certificate['loss'] / cells:.4f} | {proven} | {certificate['evaluated']:,} | {memory:.0f}"
    )
    return f"| {name} {len(rows) - 1:,} | {columns} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    lines = []
    for table in (*TABLES, ADULT):
        lines.append(line(table, seconds))
        print(lines[-1], flush=True)
    head = [
        "# Optimal recoding of many attributes",
        "",
        f"One release per line by `sfumato anonymize --seconds {seconds:g}`: k = 10, at most 2 % of the rows",
        "suppressed, every column a quasi-identifier. Loss is a mean over cells. CPU seconds and peak MB include",
        "the whole command. Domains and hierarchies are as drafted. In the last line, numbers are in 64 bins, and",
        "each cell of a hierarchy has two of the level below.",
        "",
        f"{os.cpu_count()} processors, load {os.getloadavg()[2]:.1f}: on a busy machine, CPU seconds are fewer",
        "than the seconds allowed. Made by `python benchmarks/wide_lattice.py`.",
        "",
        "| table and rows | columns | CPU seconds | loss | share proven | recodings counted | MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    REPORT.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
