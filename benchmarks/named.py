"""Named marginals: what naming keeps, and what it costs the rest.

python benchmarks/named.py [--seeds 3] [--peer PYTHON]

Every release is made by the command, with a ledger of its own. The tables are Adult (``SFUMATO_DATA``, 32 561 rows,
domain of the package) and 32 000 rows of 20 fair bits with ``y`` as the parity of three of them, 5 % flipped.
``--peer`` is the interpreter of an environment with ``mbi`` 2.0, for MST as published.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pandas as pd
from _real_data import folder as real_data

from sfumato import data
from sfumato.domain import Categorical, Domain, Unknown, dump
from sfumato.evaluate.released import open_rows

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "named.md"
RUN = Path(__file__).with_name("_census_run.py")
FIVE = (
    ("age", "marital_status"),
    ("education", "occupation"),
    ("age", "gender"),
    ("relationship", "class"),
    ("hours_per_week", "work_class"),
)
WIDE = ("education", "marital_status", "occupation", "relationship")
IMPOSSIBLE = (("education", "education_num"), ("relationship", "gender"), ("marital_status", "relationship"))
ADULT = {
    "nothing (all pairs)": (),
    "age by marital status, weight 4": ("--way", "2", "--marginals", "age,marital_status@4"),
    "four columns": ("--way", "2", "--marginals", ",".join(WIDE)),
    "four columns, weight 4": ("--way", "2", "--marginals", ",".join(WIDE) + "@4"),
    "five pairs": tuple(text for pair in FIVE for text in ("--marginals", ",".join(pair))),
    "five pairs and no others": ("--way", "1", *(text for p in FIVE for text in ("--marginals", ",".join(p)))),
}
PARITY = ("f0", "f1", "f2", "y")
BITS = {
    "nothing (all pairs)": ("--way", "2"),
    "nothing (all triples)": ("--way", "3"),
    "four columns": ("--method", "batched", "--marginals", ",".join(PARITY)),
    "four columns, beside all pairs": ("--way", "2", "--marginals", ",".join(PARITY)),
    "four columns and the pairs of y": (
        *("--marginals", ",".join(PARITY)),
        *(text for place in range(3, 20) for text in ("--marginals", f"f{place},y")),
    ),
}
INTRODUCTION = """\
`batched` with named marginals, made by the command at epsilon 1 and delta 1e-9. Figures are total variation distances,
as means of {seeds} releases with standard errors. CPU seconds are of the whole command. Made by
`python benchmarks/named.py`.

The floors are not private: columns that are shuffled independently, and a bootstrap of the rows. mbi-mst is MST as
published, around private-pgm's inference, in one release per table. It takes no names.

## Adult

32,561 rows of 15 columns. *Impossible* is the share of rows in a cell of education and its number, of relationship and
gender, or of marital status and relationship that the table leaves empty. The four columns are {wide}.

| named | all pairs | worst pair | five pairs | age by marital status | four columns | impossible | CPU s |
|---|---|---|---|---|---|---|---|
"""
PARITY_TEXT = """
The loss of a named marginal is missing elsewhere. The line *nothing* has the figures without names. `--way 1` measures
the named marginals and single columns only, so that all other columns are independent.

## The parity of three bits

32,000 rows of 20 fair bits, and `y` is the parity of three of them, with 5 % flipped. Gradient boosting is trained on
the synthetic rows to predict `y`, and tested on 20,000 other rows. Trained on the real rows it is right for
{real:.3f}, and chance is .5.

| named | accuracy | CPU s |
|---|---|---|
"""


def release(folder: Path, name: str, arguments: tuple[str, ...]) -> tuple[Path, float]:
    """Release ``table.csv`` of a folder by the command; return the rows and the CPU seconds."""
    made = folder / f"{name}.parquet"
    command = [str(Path(sys.executable).with_name("sfumato")), "synthesize", "table.csv", "--domain", "table.yaml"]
    command += ["--epsilon", "1", "--delta", "1e-9", "--create", "--limit", "1,1e-9", "--ledger", f"{name}.ledger"]
    before = seconds()
    subprocess.run([*command, "--out", str(made), *arguments], cwd=folder, check=True, capture_output=True)
    return made, seconds() - before


def seconds() -> float:
    """Return the CPU seconds of all processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peer_rows(python: str, domain: Domain, codes: np.ndarray, folder: Path, seed: int) -> tuple[np.ndarray, float]:
    """Return the codes of a release of mbi-mst, and its CPU seconds."""
    ordered = np.array([not isinstance(attribute, Categorical) for attribute in domain])
    np.savez(folder / "in.npz", codes=codes, sizes=np.array(domain.shape), ordered=ordered)
    command = [python, str(RUN), "mbi-mst", str(folder / "in.npz"), str(folder / "out.npy"), "1", "1e-9", str(seed)]
    printed = subprocess.run([*command, "3600"], check=True, capture_output=True, text=True).stdout
    return np.load(folder / "out.npy"), float(json.loads(printed)["cpu_s"])


class Adult:
    """The figures of a release of Adult."""

    def __init__(self, domain: Domain, codes: np.ndarray) -> None:
        self.domain = domain
        self.pairs = list(combinations(domain.names, 2))
        self.ruled = tuple(name for name in domain.names if any(name in pair for pair in IMPOSSIBLE))
        self.true = {names: self.shares(codes, names) for names in [*self.pairs, *FIVE, WIDE, *IMPOSSIBLE]}

    def shares(self, codes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        """Return the share of the rows in each cell of a marginal."""
        shape = [self.domain[name].size for name in names]
        cells = np.ravel_multi_index([codes[:, self.domain.index(name)] for name in names], shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape) / len(codes)

    def figures(self, codes: np.ndarray) -> list[float]:
        """Return the distances of :data:`INTRODUCTION` in the order of its columns."""
        off = {
            names: float(np.abs(self.shares(codes, names) - self.true[names]).sum()) / 2
            for names in [*self.pairs, *FIVE, WIDE]
        }
        impossible = np.zeros(len(codes), dtype=bool)
        for pair in IMPOSSIBLE:
            one, other = (codes[:, self.domain.index(name)] for name in pair)
            impossible |= self.true[pair][one, other] == 0
        pairs = [off[pair] for pair in self.pairs]
        return [mean(pairs), max(pairs), mean(off[pair] for pair in FIVE), off[FIVE[0]], off[WIDE], impossible.mean()]


def accuracy(rows: pd.DataFrame, tested: pd.DataFrame) -> float:
    """Return the share of tested rows whose ``y`` a learner predicts."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    names = [name for name in tested.columns if name != "y"]
    learner = HistGradientBoostingClassifier(random_state=0).fit(rows[names], rows["y"])
    return float(learner.score(tested[names], tested["y"]))


def bits(rows: int, seed: int) -> pd.DataFrame:
    """Return fair bits, and the parity of three of them."""
    random = np.random.default_rng(seed)
    fair = random.integers(0, 2, (rows, 20))
    parity = (fair[:, :3].sum(axis=1) + (random.random(rows) < 0.05)) % 2
    return pd.DataFrame(np.c_[fair, parity], columns=[*(f"f{place}" for place in range(20)), "y"])


def line(name: str, runs: list[list[float]], digits: int) -> str:
    """Return a line of a table: means and standard errors, and the CPU seconds last."""
    *columns, cpu = zip(*runs, strict=True)
    errors = [f" ± {stdev(column) / len(runs) ** 0.5:.{digits}f}" if len(runs) > 1 else "" for column in columns]
    cells = [f"{mean(column):.{digits}f}{error}" for column, error in zip(columns, errors, strict=True)]
    text = f"| {name} | " + " | ".join([*cells, f"{mean(cpu):.1f}" if any(cpu) else "-"]) + " |"
    print(text, flush=True)
    return text


def adult(seeds: int, peer: str, folder: Path) -> list[str]:
    """Return the lines of Adult."""
    domain = data.domain("adult")
    (folder / "table.csv").write_bytes((real_data("adult") / "adult.csv").read_bytes())
    (folder / "table.yaml").write_text(dump(domain), encoding="utf-8")
    real = open_rows(folder / "table.csv", domain).codes
    judge = Adult(domain, real)
    random = np.random.default_rng(0)
    shuffled = [np.stack([random.permutation(column) for column in real.T], axis=1) for _ in range(seeds)]
    drawn = [real[random.integers(0, len(real), len(real))] for _ in range(seeds)]
    lines = [
        line("bootstrap of the rows (floor)", [[*judge.figures(codes), 0.0] for codes in drawn], 3),
        line("shuffled columns (floor)", [[*judge.figures(codes), 0.0] for codes in shuffled], 3),
    ]
    if peer:
        codes, cpu = peer_rows(peer, domain, real, folder, 0)
        lines.append(line("mbi-mst", [[*judge.figures(codes), cpu]], 3))
    for name, arguments in ADULT.items():
        runs = []
        for seed in range(seeds):
            path, cpu = release(folder, f"a{len(lines)}-{seed}", arguments)
            runs.append([*judge.figures(open_rows(path, domain).codes), cpu])
        lines.append(line(name, runs, 3))
    return lines


def parity(seeds: int, peer: str, folder: Path) -> tuple[float, list[str]]:
    """Return the accuracy of the real rows, and the lines of the parity."""
    table, tested = bits(32_000, 1), bits(20_000, 2)
    domain = Domain(tuple(Categorical(name=name, values=(0, 1), unknown=Unknown.DROP) for name in table))
    table.to_csv(folder / "table.csv", index=False)
    (folder / "table.yaml").write_text(dump(domain), encoding="utf-8")
    lines = []
    if peer:
        codes, cpu = peer_rows(peer, domain, table.to_numpy(), folder, 0)
        lines.append(line("mbi-mst", [[accuracy(pd.DataFrame(codes, columns=table.columns), tested), cpu]], 3))
    for name, arguments in BITS.items():
        runs = []
        for seed in range(seeds):
            path, cpu = release(folder, f"b{len(lines)}-{seed}", arguments)
            runs.append([accuracy(pd.read_parquet(path).astype(int), tested), cpu])
        lines.append(line(name, runs, 3))
    return accuracy(table, tested), lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peer", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        lines = adult(options.seeds, options.peer, Path(one))
        real, bit_lines = parity(options.seeds, options.peer, Path(other))
    first = INTRODUCTION.format(seeds=options.seeds, wide=", ".join(WIDE).replace("_", " "))
    text = first + "\n".join(lines) + "\n" + PARITY_TEXT.format(real=real) + "\n".join(bit_lines) + "\n"
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
