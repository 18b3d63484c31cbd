"""Anonymization: proven least loss, Mondrian and k-anonymity against peers, and ten million rows.

python benchmarks/anonymize.py [--rows 10000000] [--engines duckdb,spark] [--skip-peers]
python benchmarks/anonymize.py --kmember
python benchmarks/anonymize.py --kmember-large
python benchmarks/anonymize.py --mondrian-rows 10000000

The last three commands make one table each, which takes minutes. The first command leaves those tables unchanged.

The benchmark needs UCI Adult with the hierarchies of ARX's example under ``$SFUMATO_DATA``. Peers are installed once,
each into its own environment under ``.bench/``. All times are CPU seconds.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from functools import partial
from pathlib import Path

from _installed import keep_compiled
from _real_data import folder as real_data

ROOT = Path(__file__).resolve().parent.parent
DATA = real_data("adult")
BENCH = ROOT / ".bench"
PAGE = ROOT / "docs" / "benchmarks" / "anonymize.md"
FOUR = ("age", "gender", "race", "marital_status")
TWO = ("age", "education_num")
SPANS = (73, 15)
KEPT = "hours_per_week"
KS = (5, 10)
LIMITS = ("0", "0.02", "0.05", "1")
PEER_KS = (10, 50)
LARGE = (
    ("age", "education", "occupation", "hours_per_week"),
    ("gender", "age", "race", "marital_status", "education", "native_country", "work_class", "occupation"),
)
# the Loss Metric to reach on UCI Adult, for k = 10, 20, ... 50
BEST = {
    "age, education_num": (0.00254, 0.00645, 0.01083, 0.01500, 0.01897),
    "four, free intervals": (0.01193, 0.02699, 0.04306, 0.05851, 0.07376),
    "four, hierarchy cells": (0.02372, 0.04861, 0.06709, 0.08459, 0.10048),
}


def adult_rows():
    with (DATA / "adult.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if "?" not in row.values()]


def adult_data(rows, hierarchies):
    import numpy as np

    from sfumato.anonymize.microdata import Microdata

    places = [{leaf: code for code, leaf in enumerate(hierarchy.leaves)} for hierarchy in hierarchies]
    names = [hierarchy.attribute for hierarchy in hierarchies]
    codes = np.array([[place[row[name]] for place, name in zip(places, names, strict=True)] for row in rows])
    tuples, counts = np.unique(codes, axis=0, return_counts=True)
    return Microdata(quasi=tuple(names), codes=tuples, counts=counts)


def problem(data, hierarchies, k, limit):
    from sfumato.anonymize.criteria.criterion import KAnonymity
    from sfumato.anonymize.search.lattice import Problem, allowed_rows

    return Problem(
        data=data,
        hierarchies=hierarchies,
        criteria=(KAnonymity(k),),
        allowed=allowed_rows(limit, data.rows),
        weights=(1.0,) * len(hierarchies),
    )


def search() -> list[dict[str, object]]:
    """Compare the proven least loss with an exhaustive search, for every k and limit."""
    from sfumato.anonymize.search.lattice import Lattice
    from sfumato.anonymize.search.lattice_search import least_loss
    from sfumato.domain.hierarchy.levels import read_folder

    hierarchies = tuple(read_folder(DATA / "hierarchies").values())
    data = adult_data(adult_rows(), hierarchies)
    least_loss(Lattice(problem(data, hierarchies, 50, "0")))  # warm-up
    found = []
    for k in KS:
        # loss and suppressed rows of a vector do not depend on the limit: one pass serves all limits
        lattice = Lattice(problem(data, hierarchies, k, "1"))
        start = time.process_time()
        nodes = [lattice.evaluate(vector) for vector in itertools.product(*(range(top + 1) for top in lattice.top))]
        exhaustive = time.process_time() - start
        for limit in LIMITS:
            task = problem(data, hierarchies, k, limit)
            start = time.process_time()
            best = least_loss(Lattice(task))
            seconds = time.process_time() - start
            least = min(node.loss for node in nodes if node.suppressed <= task.allowed)
            assert best.node is not None
            assert best.certificate.proven
            assert abs(best.node.loss - least) <= 1e-9 * least
            found.append(
                {
                    "k": k,
                    "limit": limit,
                    "vector": best.node.vector,
                    "suppressed": best.node.suppressed,
                    "score": best.node.loss / data.rows / len(hierarchies),
                    "evaluated": best.certificate.evaluated,
                    "nodes": best.certificate.nodes,
                    "seconds": seconds,
                    "exhaustive_seconds": exhaustive,
                }
            )
    return found


def peer(name: str) -> Path | None:
    """Return the Python of a peer's environment, created if necessary; None if it cannot be installed."""
    folder = BENCH / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", f"import {name}"], check=False, capture_output=True).returncode:
        # anonypy does not declare that it needs pandas
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", name, "pandas"], check=False)
        if done.returncode:
            print(f"{name} cannot be installed here and is left out", file=sys.stderr)
            return None
    return python


def contest(python: Path | str, contestant: str, table: Path, k: int) -> dict[str, object]:
    command = [python, ROOT / "benchmarks" / "_anonymize_run.py", contestant, table, str(k), DATA / "hierarchies"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def mondrian(folder: Path, anonypy: Path) -> list[dict[str, object]]:
    rows = adult_rows()
    table = folder / "two.csv"
    write(table, TWO, rows)
    found = []
    for k in PEER_KS:
        for contestant in ("anonypy", "sfumato-strict", "sfumato-balanced", "sfumato-greedy"):
            run = contest(anonypy if contestant == "anonypy" else sys.executable, contestant, table, k)
            lost = sum(
                size * sum((b - a) / span for a, b, span in zip(low, high, SPANS, strict=True))
                for low, high, size in run["classes"]
            )
            assert sum(size for _, _, size in run["classes"]) == len(rows)
            assert min(size for _, _, size in run["classes"]) >= k
            found.append({"k": k, "contestant": contestant, "seconds": run["seconds"], "lm": lost / len(rows)})
    return found


def k_anonymity(folder: Path, anjana: Path) -> list[dict[str, object]]:
    from sfumato.anonymize.search.lattice import Lattice
    from sfumato.domain.hierarchy.levels import read_folder

    rows = adult_rows()
    table = folder / "four.csv"
    write(table, FOUR, rows)
    every = read_folder(DATA / "hierarchies")
    hierarchies = tuple(every[name] for name in FOUR)
    data = adult_data(rows, hierarchies)
    found = []
    for k in PEER_KS:
        lattice = Lattice(problem(data, hierarchies, k, "1"))
        for contestant, python in (("anjana", anjana), ("sfumato-optimal", sys.executable)):
            run = contest(python, contestant, table, k)
            node = lattice.evaluate(tuple(run["vector"]))
            # anjana may leave classes below k for suppression, or suppress none: its loss is that of its rows
            lost = lattice.floor(node.vector) if not run["suppressed"] else node.loss
            found.append(
                {
                    "k": k,
                    "contestant": contestant,
                    "seconds": run["seconds"],
                    "vector": run["vector"],
                    "suppressed": run["suppressed"],
                    "lm": lost / len(rows),
                }
            )
    return found


def k_member() -> list[dict[str, object]]:
    """Measure local recoding with the effort of a release, next to the losses to reach; print each line when it is
    ready.
    """
    import numpy as np

    from sfumato.anonymize.clustering.k_member_clustering import k_member_partition
    from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Space
    from sfumato.anonymize.local_recoding import EFFORT
    from sfumato_labs.mondrian import study
    from sfumato_labs.published_tables import adult, published_hierarchies, tuples

    rows = adult(str(DATA / "adult.csv")).complete()
    four = published_hierarchies(rows)
    data = tuples(rows, {hierarchy.attribute: hierarchy.leaves for hierarchy in four})
    free = [Intervals(each.leaves, np.arange(float(len(each.leaves))), len(each.leaves) - 1.0) for each in four]
    cells = [HierarchyCells(hierarchy) for hierarchy in four]
    spaces = [
        study(rows, ("age", "education_num")).space,
        *(Space.embed(data, scales, weights=[1.0] * len(scales)) for scales in (free, cells)),
    ]
    found = []
    for place, k in enumerate((10, 20, 30, 40, 50)):
        for (name, best), space in zip(BEST.items(), spaces, strict=True):
            start = time.process_time()
            parts = k_member_partition(space, k=k, effort=EFFORT, rng=np.random.default_rng(k))
            seconds = time.process_time() - start
            assert int(parts.counts().min()) >= k
            line = {"k": k, "quasi": name, "lm": parts.loss(space) / rows.people(), "to_reach": best[place]}
            found.append({**line, "seconds": seconds})
            print(found[-1], file=sys.stderr, flush=True)
    return found


def k_member_large() -> list[dict[str, object]]:
    """Measure local recoding of thousands of distinct tuples, k = 10, like a release, next to Mondrian's greedy
    cuts.
    """
    import numpy as np

    from sfumato.anonymize.clustering.k_member_clustering import k_member_partition
    from sfumato.anonymize.clustering.mondrian_cuts import Rule, greedy, partition
    from sfumato.anonymize.clustering.space import Intervals, Space
    from sfumato.anonymize.local_recoding import EFFORT
    from sfumato.anonymize.microdata import Microdata

    rows, found = adult_rows(), []
    for names in LARGE:
        columns, scales = [], []
        for name in names:
            texts = [row[name] for row in rows]
            numbers = sorted(map(int, set(texts))) if texts[0].isdigit() else None
            leaves = sorted(set(texts)) if numbers is None else [str(n) for n in range(numbers[0], numbers[-1] + 1)]
            place = {leaf: code for code, leaf in enumerate(leaves)}
            columns.append([place[text] for text in texts])
            scales.append(Intervals(tuple(leaves), np.arange(float(len(leaves))), len(leaves) - 1.0))
        tuples, counts = np.unique(np.array(columns).T, axis=0, return_counts=True)
        space = Space.embed(Microdata(quasi=names, codes=tuples, counts=counts), scales, weights=[1.0] * len(names))

        def k_member(space: Space, effort: int):
            return k_member_partition(space, k=10, effort=effort, rng=np.random.default_rng(10))

        methods = {
            "mondrian": lambda space: partition(space, cutter=greedy, rule=Rule(10)),
            "k-member, as released": lambda space: k_member(space, EFFORT),
        }
        for name, method in methods.items():
            start = time.process_time()
            parts = method(space)
            seconds = time.process_time() - start
            held = np.bincount(parts.tuples, weights=parts.rows, minlength=len(counts))
            assert (held == counts).all()
            assert int(np.bincount(parts.classes, weights=parts.rows).min()) >= 10
            line = {"quasi": ", ".join(names), "tuples": len(counts), "method": name}
            found.append({**line, "lm": parts.loss(space) / len(rows), "seconds": seconds})
            print(found[-1], file=sys.stderr, flush=True)
    return found


def mondrian_rows(rows: int) -> list[dict[str, object]]:
    """Measure Mondrian from one Parquet file to another, as a caller runs it: CPU seconds and memory of this
    process.
    """
    import resource

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import sfumato as sf
    from sfumato import anonymize
    from sfumato.domain import Categorical, Domain, Integer, Unknown, dump

    read, rng = adult_rows(), np.random.default_rng(1)
    columns, attributes = {}, []
    source = rng.integers(len(read), size=rows)
    for name in LARGE[0]:
        texts = np.array([row[name] for row in read])
        picked = np.where(rng.random(rows) < 0.1, rng.integers(len(read), size=rows), source)
        if texts[0].isdigit():
            numbers = texts.astype(np.int16)
            columns[name] = pa.array(numbers[picked])
            attributes.append(Integer(name=name, minimum=1, maximum=100, unknown=Unknown.CLAMP))
        else:
            values, codes = np.unique(texts, return_inverse=True)
            columns[name] = pa.DictionaryArray.from_arrays(codes.astype(np.int32)[picked], values.tolist())
            attributes.append(Categorical(name=name, values=tuple(values.tolist()), unknown=Unknown.DROP))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.table(columns), folder / "rows.parquet")
        del columns, source, picked
        (folder / "domain.yaml").write_text(dump(Domain(tuple(attributes))), encoding="utf-8")
        command = mondrian_command(folder)
        start = time.process_time()
        vault = sf.open(
            folder / "rows.parquet",
            domain=Domain(tuple(attributes)),
            ledger=f"sqlite:///{folder / 'rows.ledger'}",
            limit=sf.Epsilon(1),
            create=True,
        )
        release = anonymize.mondrian(vault, quasi=list(LARGE[0]), criteria=[anonymize.KAnonymity(10)])
        decided = time.process_time() - start
        release.write(folder / "out.parquet")
        facts = release.facts
        written = time.process_time() - start - decided
    assert facts["rows"] == rows
    assert facts["smallest_class"] >= 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    line = {"rows": rows, "classes": facts["classes"], "decide": decided, "write": written, "peak_gb": peak}
    line |= {"lm": sum(facts["loss_metric"].values()), "command": command}
    return [line | {"load": round(os.getloadavg()[0])}]


def mondrian_command(folder: Path) -> float:
    """Return the CPU seconds of the command on a folder's table, in its own process."""
    begun = ["--ledger", "command.ledger", "--create", "--limit", "1"]
    words = ["anonymize", "rows.parquet", "--domain", "domain.yaml", "--method", "mondrian", "--k", "10", *begun]
    words += ["--quasi", ",".join(LARGE[0]), "--out", "command.parquet"]
    program = [sys.executable, "-m", "sfumato", *words]
    process = subprocess.Popen(program, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def write(path: Path, names: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([row[name] for name in names] for row in rows)


def make(path: Path, rows: int) -> None:
    """Write repeated copies of Adult with 10 % of the cells redrawn from their column."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sfumato.domain.hierarchy.levels import read_folder

    hierarchies = read_folder(DATA / "hierarchies")
    read = adult_rows()
    columns = {name: np.array([row[name] for row in read], dtype=object) for name in hierarchies}
    kept = np.array([int(row[KEPT]) for row in read], dtype=np.int16)
    rng = np.random.default_rng(1)
    writer = None
    for start in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - start)
        source = rng.integers(len(read), size=count)
        chunk = {}
        for name, values in columns.items():
            redrawn = rng.random(count) < 0.1
            picked = np.where(redrawn, rng.integers(len(read), size=count), source)
            chunk[name] = pa.array(values[picked].tolist(), pa.string()).dictionary_encode()
        chunk["age"] = pa.array([int(value) for value in chunk["age"].to_pylist()], pa.int16())
        chunk[KEPT] = pa.array(kept[rng.integers(len(kept), size=count)])
        table = pa.table(chunk)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def scale(path: Path, engine: str) -> dict[str, object]:
    """Return the CPU seconds of each step from a Parquet file to anonymized ones, and the peak memory of all
    processes.
    """
    from scale import cpu, memory

    from sfumato.anonymize.criteria.criterion import KAnonymity
    from sfumato.anonymize.microdata import from_groups
    from sfumato.anonymize.release.anonymized import write as write_rows
    from sfumato.anonymize.release.decision import full_domain_decision
    from sfumato.anonymize.release.request import AnonymizationRequest, Quasi
    from sfumato.anonymize.search.lattice import Lattice, Problem, allowed_rows
    from sfumato.anonymize.search.lattice_search import least_loss
    from sfumato.domain import Categorical, Domain, Integer, Unknown
    from sfumato.domain.hierarchy.levels import read_folder
    from sfumato.engine.exact import reveal

    hierarchies = read_folder(DATA / "hierarchies")
    attributes = [
        Integer(name=name, minimum=1, maximum=100, unknown=Unknown.CLAMP)
        if name == "age"
        else Categorical(name=name, values=hierarchy.leaves, unknown=Unknown.DROP)
        for name, hierarchy in hierarchies.items()
    ]
    domain = Domain(tuple(attributes))
    criteria = (KAnonymity(10),)
    roots, steps = [os.getpid()], {}
    table, copy = ENGINES[engine](path)
    clock = cpu(roots)

    def lap(name: str) -> None:
        nonlocal clock
        now = cpu(roots)
        steps[name], clock = now - clock, now

    encoded = table.encode(domain)
    lap("encode")
    groups = reveal(encoded.groups(domain.names))
    lap("group_by")
    sizes = {attribute.name: attribute.size for attribute in domain}
    data = from_groups(groups, domain.names, sizes=sizes)
    quasi = tuple(Quasi(name=name, hierarchy=hierarchies[name]) for name in domain.names)
    task = Problem(
        data=data,
        hierarchies=tuple(each.aligned(domain[each.name]) for each in quasi),
        criteria=criteria,
        allowed=allowed_rows("0.02", data.rows),
        weights=(1.0,) * len(quasi),
    )
    lattice = Lattice(task)
    best = least_loss(lattice)
    lap("search")
    request = AnonymizationRequest("optimal", quasi, criteria, "0.02", {})
    plan = full_domain_decision(lattice, best.node.vector, request=request, domain=domain, certificate=best.certificate)
    lap("recount")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(encoded, plan, (), folder / "out.parquet", overwrite=False)
        lap("apply")
        write_rows(encoded, plan, (KEPT,), folder / "kept.parquet", overwrite=False)
        lap("apply_kept")
        peak = memory(roots)
        copy([f"CAST({name} AS STRING) AS {name}" for name in domain.names], folder / "copy.parquet")
        lap("plain_copy")
    return {"engine": engine, "rows": data.rows, "tuples": len(data.counts), **steps, "peak_gb": peak}


def duckdb(path: Path):
    """Return the table on DuckDB, and a function that copies columns of it by DuckDB."""
    import duckdb

    from sfumato.engine.open import open_table

    def copy(columns: list[str], out: Path) -> None:
        duckdb.execute(f"COPY (SELECT {', '.join(columns)} FROM '{path}') TO '{out}' (FORMAT parquet)")  # noqa: S608

    return open_table(path), copy


def spark(path: Path):
    """Return the table on Spark with two local cores, and a function that copies columns of it by Spark."""
    from scale import spark_session

    from sfumato.engine.spark.spark_table import SparkTable

    frame = spark_session().read.parquet(str(path))
    return SparkTable(frame, "the table"), lambda columns, out: frame.selectExpr(*columns).write.parquet(out.as_uri())


ENGINES = {"duckdb": duckdb, "spark": spark}


def part(name: str, *arguments: str) -> object:
    """Run one part in its own process."""
    command = [sys.executable, __file__, "--part", name, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, object]]) -> str:
    def cell(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([cell(row[name]) for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


INTRODUCTION = """# Anonymization

Made by `python benchmarks/anonymize.py`; all times are CPU seconds, side by side in one run.

## Proven least loss

UCI Adult, 30 162 rows, nine quasi-identifiers with the hierarchies of ARX's example. The score is the mean loss over
attributes. Every optimum equals that of an exhaustive search.
"""
MONDRIAN = """
## Mondrian

UCI Adult, age and education_num, from rows in memory to classes. anonypy cuts as `strict` does.
"""
K_MEMBER_LARGE = """
## k-member with thousands of distinct tuples

UCI Adult, 30 162 rows, free intervals, k = 10, from rows in memory to classes. Every row and every class size
is checked. The lines of k-member were measured on two cores with a load of 5 to 7. Over four columns, the mean
loss of three seeds is 0.1317. Made by `python benchmarks/anonymize.py --kmember-large`, at another time than
the rest.
"""
MONDRIAN_ROWS = """
## Mondrian of many rows

Four columns of UCI Adult with 10 % of the cells redrawn: age, education, occupation and hours per week. Free
intervals, k = 10, in Python, from one Parquet file to another. CPU seconds of the process.

`decide` opens the file, makes the classes, checks them and journals the release. `write` writes the rows in
random order and counts them in the file. `command` is `sfumato anonymize --method mondrian` of the same table,
with start and journal.
Made by `python benchmarks/anonymize.py --mondrian-rows 10000000`, at another time than the rest.
"""
GENERALISATION = """
## k-anonymity by generalization

UCI Adult, age, gender, race and marital_status, at most 2 % of the rows suppressed, from rows in memory to a recoding.
"""
K_MEMBER = """
## k-member

UCI Adult, local recoding with the effort of a release, one seed per line. The table compares the Loss Metric
with the goal, which is the smallest one known before. Made by `python benchmarks/anonymize.py --kmember`, at
another time than the rest.
"""
SCALE = """
## Many rows

Adult with 10 % of the cells redrawn, nine quasi-identifiers, k = 10, at most 2 % suppressed: from one Parquet
file to another. CPU seconds and memory include all processes of Spark.

* `encode` reads the file into codes, and `group_by` counts them.
* `search` finds the recoding of least loss, and `recount` verifies it on the tuples.
* `apply` writes all rows in random order and counts the file. `apply_kept` also keeps a column, and encodes the
  file a second time.
* `plain_copy` is the engine alone: it reads the nine columns as text and writes them to Parquet.
"""


def page(found: dict[str, object]) -> str:
    parts = [INTRODUCTION, table(found["search"])]
    sections = {
        "mondrian": MONDRIAN,
        "k_member": K_MEMBER,
        "k_member_large": K_MEMBER_LARGE,
        "mondrian_rows": MONDRIAN_ROWS,
        "k_anonymity": GENERALISATION,
        "scale": SCALE,
    }
    for name, text in sections.items():
        if found.get(name):
            parts += [text, table(found[name])]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="largest table of the last part")
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--kmember", action="store_true", help="make the table of k-member, and no other")
    parser.add_argument("--kmember-large", action="store_true", help="the same for thousands of distinct tuples")
    parser.add_argument("--mondrian-rows", type=int, help="make the table of Mondrian of so many rows, and no other")
    parser.add_argument("--part", choices=["search", "scale", "make"])
    parser.add_argument("--engine", choices=ENGINES, default="duckdb", help=argparse.SUPPRESS)
    parser.add_argument(
        "--engines", default="duckdb", help="of the last part: duckdb, or duckdb,spark (takes JAVA_HOME)"
    )
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    keep_compiled()
    options = parser.parse_args()
    if options.part == "search":
        print(json.dumps(search()))
        return
    if options.part == "scale":
        print(json.dumps(scale(options.path, options.engine)))
        return
    if options.part == "make":
        make(options.path, options.rows)
        print("null")
        return
    kept = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8")) if PAGE.exists() else {}
    alone = {
        "k_member": k_member if options.kmember else None,
        "k_member_large": k_member_large if options.kmember_large else None,
        "mondrian_rows": partial(mondrian_rows, options.mondrian_rows) if options.mondrian_rows else None,
    }
    for name, make_table in alone.items():
        if make_table is not None:
            keep(kept | {name: make_table()})
            return
    found: dict[str, object] = {"search": part("search")} | {name: kept.get(name) for name in alone}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.skip_peers:
            if (anonypy := peer("anonypy")) is not None:
                found["mondrian"] = mondrian(folder, anonypy)
            if (anjana := peer("anjana")) is not None:
                found["k_anonymity"] = k_anonymity(folder, anjana)
        found["scale"] = []
        for rows in [size for size in (100_000, 1_000_000, 10_000_000) if size <= options.rows]:
            path = folder / "rows.parquet"
            part("make", "--rows", str(rows), "--path", str(path))
            found["scale"] += [
                part("scale", "--path", str(path), "--engine", engine) for engine in options.engines.split(",")
            ]
    keep(found)


def keep(found: dict[str, object]) -> None:
    """Write the page and the figures behind it."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(found), encoding="utf-8")
    PAGE.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(page(found))


if __name__ == "__main__":
    main()
