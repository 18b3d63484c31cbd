"""Train on synthetic, test on real: predict who earns more than 50K in Adult from a release of the training file.

python benchmarks/tstr.py [--epsilons 0.1,1,10] [--seeds 3]

Each method releases the training file (32 561 rows, domain of the package). Gradient boosting (scikit-learn, 60 trees)
is trained on the synthetic rows and tested on the test file, which is not part of any release.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean

from _real_data import folder as real_data

import sfumato as sf
from sfumato import data, synthesize
from sfumato.domain import Domain, dump
from sfumato.domain.attribute import Role
from sfumato.evaluate.released import Rows, open_rows
from sfumato.evaluate.utility.learners import train_on_release
from sfumato.privacy.loss import EpsilonDelta

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "tstr.md"
DATA = real_data("adult")
TARGET = "class"
DELTA = "1e-9"
AIMED = "batched, workload of triples with the class"


def released(method: str, epsilon: str) -> Rows:
    """Return a release of the training file through a vault with its own ledger, read back from its Parquet file."""
    loss, total = EpsilonDelta(epsilon, DELTA), synthesize.NoisyTotal()
    domain = towards(data.domain("adult")) if method == AIMED else data.domain("adult")
    with tempfile.TemporaryDirectory() as folder:
        declared, made = Path(folder) / "adult.yaml", Path(folder) / "synthetic.parquet"
        declared.write_text(dump(domain), encoding="utf-8")
        vault = sf.open(
            DATA / "adult.csv", domain=declared, ledger=f"sqlite:///{folder}/ledger", limit=loss, create=True
        )
        if method.startswith("batched"):
            workload = synthesize.all_marginals(2 if method == AIMED else 3)  # two columns and the target
            release = synthesize.batched(vault, loss=loss, total=total, workload=workload)
        elif method == "mst":
            release = synthesize.mst(vault, loss=loss, total=total)
        else:
            cliques = [(name,) for name in domain.names]
            release = synthesize.marginals(vault, loss=loss, total=total, cliques=cliques)
        release.rows.to_parquet(str(made))
        return open_rows(made, domain)


def towards(domain: Domain) -> Domain:
    """Return the domain with the target, which then is in every marginal of a workload."""
    attributes = (replace(each, role=Role.TARGET) if each.name == TARGET else each for each in domain)
    return replace(domain, attributes=tuple(attributes))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epsilons", default="0.1,1,10")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    domain = data.domain("adult")
    train, test = (open_rows(DATA / name, domain) for name in ("adult.csv", "adult_test.csv"))
    real = train_on_release(train, test, target=TARGET, seed=0).score
    print("real", real, flush=True)
    lines = [
        f"Area under the ROC curve on Adult's test file (16 281 rows). Gradient boosting for `{TARGET}` is trained",
        f"on synthetic rows of the training file. The rows are released through a vault at delta {DELTA} and read",
        f"from their file. Figures are the mean and least of {options.seeds} releases. CPU seconds include opening",
        f"the table and writing the rows. Trained on the real rows: {real:.3f}. Made by `python",
        "benchmarks/tstr.py`.",
        "",
        "| method | epsilon | mean AUC | least AUC | CPU s |",
        "|---|---|---|---|---|",
    ]
    for epsilon in options.epsilons.split(","):
        for method in ("batched", AIMED, "mst", "independent columns"):
            scores, seconds = [], []
            for seed in range(options.seeds):
                start = time.process_time()
                made = released(method, epsilon)
                seconds.append(time.process_time() - start)
                scores.append(train_on_release(made, test, target=TARGET, seed=seed).score)
            print(epsilon, method, scores, flush=True)
            lines.append(f"| {method} | {epsilon} | {mean(scores):.3f} | {min(scores):.3f} | {mean(seconds):.1f} |")
            TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
