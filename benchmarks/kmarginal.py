"""NIST's k-marginal score of ``batched`` on the national 2019 excerpts, between its two baselines.

python benchmarks/kmarginal.py [--epsilons 1 10]

The benchmark needs the real data (``SFUMATO_DATA``). Columns and bins are public: the data dictionary's, without
weights, density and the 271 industry codes.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path

from _real_data import folder as real_data

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "benchmarks" / "kmarginal.md"
RESULTS = TABLE.with_suffix(".json")
DELTA = "1e-9"
LISTED = [
    "PUMA",
    "MSP",
    "HISP",
    "RAC1P",
    "HOUSING_TYPE",
    "OWN_RENT",
    "INDP_CAT",
    "EDU",
    "PINCP_DECILE",
    "DVET",
    "DREM",
    "DPHY",
    "DEYE",
    "DEAR",
    "SEX",
]
NUMBERS = {
    "AGEP": (0, 99, tuple(range(0, 100, 5))),
    "NOC": (0, 19, None),
    "NPF": (2, 20, None),
    "PINCP": (-9000, 1_341_000, (-9000, 0, 1, *range(10_000, 100_000, 10_000), 100_000, 150_000, 250_000, 500_000)),
    "POVPIP": (0, 501, (*range(0, 501, 50), 501)),
}
INTRODUCTION = """\
NIST's k-marginal score (1000 is perfect) of `batched` on {rows} people of the national 2019 excerpts, {columns} columns
in public bins, all {triples} triples of columns; delta is {delta}. The floor shuffles every column on its own; the
ceiling is a sample of the same size, with replacement, of the table itself. Made by `python benchmarks/kmarginal.py`.

| release | k-marginal score | from floor (0) to ceiling (1) | CPU s |
|---|---|---|---|
"""


def people():
    """Return the excerpts as codes."""
    from sfumato.domain import Categorical, Domain, Integer, Unknown
    from sfumato.evaluate.release_files import read_release
    from sfumato.evaluate.released import Rows

    folder = real_data("nist")
    meaning = json.loads((folder / "data_dictionary.json").read_text(encoding="utf-8"))
    listed = [
        Categorical(name=name, values=tuple(meaning[name]["values"]), unknown=Unknown.CATEGORY) for name in LISTED
    ]
    numbers = [
        Integer(name=name, minimum=low, maximum=high, edges=edges, unknown=Unknown.CATEGORY)
        for name, (low, high, edges) in NUMBERS.items()
    ]
    domain = Domain((*listed, *numbers))
    return Rows(domain, read_release(folder / "national2019.csv", domain).codes)


def main() -> None:
    import numpy as np

    from sfumato.evaluate.frontier import batched
    from sfumato.evaluate.population_split import independent
    from sfumato.evaluate.released import Released
    from sfumato.evaluate.utility.scorecard import marginal_score, rescaled
    from sfumato.privacy.loss import EpsilonDelta

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=Fraction, nargs="+", default=[Fraction(1), Fraction(10)])
    asked = parser.parse_args()
    rows = people()
    luck = np.random.default_rng(0)
    real = Released.raw(rows)
    scores, seconds = {}, {}
    scores["independent columns (floor)"] = marginal_score(real, Released.raw(independent(rows, luck)), ways=3)
    again = Released.raw(rows.take(luck.integers(0, len(rows), len(rows))))
    scores["sample of the table (ceiling)"] = marginal_score(real, again, ways=3)
    floor, ceiling = scores.values()
    for epsilon in asked.epsilons:
        start = time.process_time()
        release = batched(rows, loss=EpsilonDelta(epsilon, DELTA), ways=3)
        seconds[f"batched, epsilon {epsilon}"] = time.process_time() - start
        scores[f"batched, epsilon {epsilon}"] = marginal_score(real, release, ways=3)
    triples = len(rows.domain) * (len(rows.domain) - 1) * (len(rows.domain) - 2) // 6
    text = INTRODUCTION.format(rows=len(rows), columns=len(rows.domain), triples=triples, delta=DELTA)
    for name, score in scores.items():
        spent = f"{seconds[name]:.1f}" if name in seconds else "-"
        text += f"| {name} | {1000 * score:.0f} | {rescaled(score, floor=floor, ceiling=ceiling):.2f} | {spent} |\n"
    RESULTS.write_text(json.dumps({"scores": scores, "cpu seconds": seconds}, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
