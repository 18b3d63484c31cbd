"""Relations of four and five columns around a target: can a release find them if nobody names them?

python benchmarks/target.py [--tables "parity of 3,german"] [--epsilons 1,10] [--seeds 0-4] [--methods batched,search]

Each run joins the results of earlier calls.  Two searches are added to ``batched`` here and are not part of Sfumato.
So a simulated vault runs all methods, and runs with equal seeds are compared.  Real tables need ``SFUMATO_DATA``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations, product
from pathlib import Path
from statistics import mean, stdev
from unittest.mock import patch

import numpy as np
from ablation import errors, load
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, roc_auc_score

from sfumato.domain import Categorical, Domain, Role, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import EpsilonDelta
from sfumato.synthesize import NoisyTotal, SizeLimits, aim, all_marginals, batched, marginal_selection
from sfumato.synthesize.budget_allocation import fraction
from sfumato.vault.measurables import Distance
from sfumato.vault.scores import MarginalErrors
from sfumato.vault.simulated import SimulatedVault

METHOD = sys.modules["sfumato.synthesize.methods.batched"]
TABLE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "target.md"
RESULTS = TABLE.with_suffix(".json")
DELTA = "1e-9"
PARITIES = {"parity of 3": (3, 9), "parity of 4": (4, 10), "parity of 3, 20 columns": (3, 20)}
TARGETS = {"german": "credit", "oregon": "WRKLYR", "adult": "class", "nist 7600": "OWN_RENT"}
SHARE = Fraction(1, 50)  # of the loss that remains before the second round: for the choice of one set
MOST_SETS = 1200
MOST_CELLS = 1 << 26  # over the codes, all sets of one choice together
RARE = 20  # rows of a class below which the learner does not train on it
METHODS = {
    "real rows": "real rows (floor)",
    "batched": "`batched`, `--way 2`",
    "grown": "the same, sets grown from scores",
    "search": "the same, one set of all",
    "named": "`batched`, the set is named",
    "aim": "`aim`, `--way 2`",
    "aim, --way": "`aim`, `--way` of the parity",
}


class Search:
    """Candidates of four and five columns with the target, for the second round of ``batched``.

    ``grown`` adds the sets whose pairs have the largest scores.  ``search`` chooses one of all sets by the exponential
    mechanism, by its distance from the model less the noise of measuring it.  The second round scores the candidates
    with its pairs and triples, and measures those with a gain.
    """

    def __init__(self, kind):
        self.kind, self.rounds, self.sets = kind, 0, []
        self.measure_named, self.candidates = METHOD._measure_named, METHOD._candidates  # noqa: SLF001

    def before_round(self, mechanisms, fit, targets, named, split):
        """Measure named marginals as before, and list or choose sets before the second round."""
        fit, taken = self.measure_named(mechanisms, fit, targets, named, split)
        self.rounds += 1
        if self.rounds == len(METHOD.ROUNDS) and split.left:
            deviation = split.deviation(float(split.left) / (2 * len(mechanisms.domain)))
            self.sets = self.dense(mechanisms.domain, fit, deviation)
            if self.kind == "search" and self.sets:
                self.sets = [self.chosen(mechanisms, fit, split, deviation)]
        return fit, taken

    def dense(self, domain, fit, deviation):
        """Return the sets whose cells hold a deviation of noise on average, as tables."""
        target = domain.in_role(Role.TARGET)
        others = [name for name in domain.names if name != target]
        sets = [
            tuple(sorted((*chosen, target), key=domain.index))
            for size in (3, 4)
            for chosen in combinations(others, size)
        ]
        small = METHOD.affordable(sets, fit, SizeLimits())
        tables = marginal_selection.coarsened_marginals(fit, domain, small, deviation)
        return [table for table in tables if table.cells * deviation <= fit.model.total]

    def chosen(self, mechanisms, fit, split, deviation):
        """Choose one set by the exponential mechanism, among as many small ones as may be counted at once."""
        tables = sorted(self.sets, key=lambda table: table.cells)[:MOST_SETS]
        counted = accumulate(mechanisms.domain.project(table.attributes).size for table in tables)
        tables = [table for table, cells in zip(tables, counted, strict=True) if cells <= MOST_CELLS]
        sampled = marginal_selection.sample_model(fit.model, mechanisms.generator())
        distances = [
            Distance(
                table.attributes,
                marginal_selection.reference(fit.model, table.attributes, sampled, table.runs),
                fit.groups(table.attributes, table.runs),
            )
            for table in tables
        ]
        noise = deviation * (2 / np.pi) ** 0.5
        penalties = tuple(fraction(noise * table.cells) for table in tables)
        scores = MarginalErrors(tuple(distances), (Fraction(1),) * len(tables), penalties)
        return tables[mechanisms.select(scores, split.take(split.left * SHARE))]

    def with_sets(self, mechanisms, fit, targets, interest, *, ways, limits):
        """Return the candidates of a round, in the second one with the sets."""
        candidates = self.candidates(mechanisms, fit, targets, interest, ways=ways, limits=limits)
        known = {frozenset(pair): distance for pair, distance in interest.items()}

        def pairs_off(table):
            return sum(known.get(frozenset(pair), 0.0) for pair in combinations(table.attributes, 2))

        largest = sorted(self.sets, key=pairs_off, reverse=True)[: limits.candidates]
        return candidates | {table.attributes: 1.0 for table in largest}


def parity(order, columns, seed):
    """Return 20,000 rows of fair bits and the parity of the first ``order``, 5 % flipped."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2, (20_000, columns))
    flipped = random.random(len(bits)) < 0.05
    return np.c_[bits, (bits[:, :order].sum(axis=1) + flipped) % 2].astype(np.int64)


def tables(name):
    """Return the domain of a table with its target, its training rows, and its test rows."""
    if name in PARITIES:
        order, columns = PARITIES[name]
        names, target = [*(f"f{place}" for place in range(columns)), "y"], "y"
        domain = Domain(tuple(Categorical(name=each, values=(0, 1), unknown=Unknown.DROP) for each in names))
        train, test = parity(order, columns, 1), parity(order, columns, 2)
    else:
        target = TARGETS[name]
        domain, codes = load(name)
        codes = codes[np.isin(codes[:, domain.index(target)], common(codes[:, domain.index(target)], 2))]
        codes = codes[np.random.default_rng(7).permutation(len(codes))]
        cut = len(codes) * (7 if name == "german" else 8) // 10
        train, test = codes[:cut], codes[cut:]
    aimed = (replace(each, role=Role.TARGET) if each.name == target else each for each in domain)
    return replace(domain, attributes=tuple(aimed)), train, test


def common(values, most):
    """Return the most frequent values."""
    found, counts = np.unique(values, return_counts=True)
    return found[np.argsort(-counts)[:most]]


def released(method, name, domain, train, *, epsilon, seed):
    """Return a release by a method, and its CPU seconds."""
    order = PARITIES.get(name, (3, 0))[0]
    workload = all_marginals(2)  # each pair with the target
    if method == "named":
        workload = all_marginals(2, named=[(*domain.names[:order], "y")])
    elif method == "aim, --way":
        workload = all_marginals(order)
    with ExitStack() as stack:
        if method in ("grown", "search"):
            search = Search(method)
            stack.enter_context(patch.object(METHOD, "_measure_named", search.before_round))
            stack.enter_context(patch.object(METHOD, "_candidates", search.with_sets))
        start = time.process_time()
        vault = SimulatedVault(ArrayTable(domain, train), seed=1000 + seed)
        release = (aim if method.startswith("aim") else batched)(
            vault, loss=EpsilonDelta(str(epsilon), DELTA), total=NoisyTotal(), workload=workload
        )
        return release.model, time.process_time() - start


def learned(train, test, target, seed):
    """Return accuracy, area under the ROC curve and macro F1 of gradient boosting, trained on codes."""
    labels, truth = train[:, target], test[:, target]
    kinds, counts = np.unique(labels, return_counts=True)
    rows = np.isin(labels, kinds[(counts >= RARE) & np.isin(kinds, truth)])
    if len(np.unique(labels[rows])) < 2:
        return {"accuracy": float((truth == common(labels, 1)).mean()), "auc": 0.5, "f1": 0.0}
    given, asked = np.delete(train, target, axis=1)[rows], np.delete(test, target, axis=1)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=seed).fit(given, labels[rows])
    answers = model.predict(asked)
    area = roc_auc_score(truth == model.classes_[1], model.predict_proba(asked)[:, 1])
    return {
        "accuracy": float((answers == truth).mean()),
        "auc": float(area),
        "f1": f1_score(truth, answers, average="macro"),
    }


def run(method, name, table, *, epsilon, seed):
    """Return the figures of one release."""
    domain, train, test = table
    target = domain.index(domain.in_role(Role.TARGET))
    if method == "real rows":
        return learned(train, test, target, seed) | {"pairs": 0.0, "worst": 0.0, "sets": 0, "cpu": 0.0}
    model, cpu = released(method, name, domain, train, epsilon=epsilon, seed=seed)
    rows = model.sample(np.random.default_rng(seed), len(train))
    off = errors(model, domain, train)
    sets = sum(len(each.attributes) > 3 for each in model.measured)
    scores = learned(rows, test, target, seed)
    return scores | {"pairs": off["pairs"], "worst": off["worst"], "sets": sets, "cpu": cpu}


INTRODUCTION = """\
Can a release keep a relation of four or five columns around a target, if nobody names these columns? All releases are
at delta {delta}, and the target has `role: target`. Two of the methods are experiments outside Sfumato.
So a simulated vault runs all of them through the Python API, and runs with equal seeds are compared. Figures are
means with standard errors. Made by `python benchmarks/target.py`.

Gradient boosting is trained on the synthetic rows to predict the target, and tested on real rows that no release has
seen. *Pairs* is the mean total variation distance of all pairs of columns of the fitted model.

* *sets grown from scores*: `batched`, whose second round also scores up to 400 sets of four and five columns with the
  target. They are those whose pairs have the largest scores.
* *one set of all*: `batched`, with one more set in its second round. The exponential mechanism chooses it among the
  {sets:,} smallest sets of four and five columns with the target, at 2 % of the loss that remains. Its score is the
  distance of a set from the model, less the noise of measuring it.

In both, the second round measures a set only if its noisy distance exceeds the error that its noise adds. A candidate
has at most one cell for each deviation of noise in people.

## The parity of three and of four bits

The tables have 20,000 rows of fair bits, and `y` is the parity of the first three or four, with 5 % flipped. There are
six other bits, or 17. Chance is .5.

"""

WHY = """
Growing sets from scores cannot find a parity. If one of its columns is left out, the others and `y` are independent
fair bits. So every set that lacks a column has the distance 0 from a model of independent columns, and its score is
noise only. Growing finds the parities beside six other columns because all sets are among its 400 candidates there.
Beside 17 there are 5,985 sets, and any 400 of them are as good as others.

A choice among all sets can find it. At a loss epsilon, the exponential mechanism chooses one of *k* sets. With
probability 1 - b, its score is at most 2 ln(k / b) / epsilon rows below the largest. The distance of a parity is about
90 % of the rows.

`aim` needs no change for this. Its candidates are all marginals inside the workload, up to six columns. So
`--method aim --way 3` with `role: target` scores all sets of four columns with the target. Its time grows with their
number.

Tran et al. (2026, arXiv 2606.08259) use private evolution for tables. Their abstract states an accuracy up to 10 %
above that of AIM, 28 times faster. Their tables of figures were not at hand, so no further figure is compared.

## Tables with a target

The lines of the two searches show the change of each figure next to `batched` with the same seed. A good change is
positive for the learner and negative for pairs. *Sets* is the mean number of measured sets of four and five columns.

"""

TABLES_END = """
Neither search is part of `batched`. One set of all finds parities, and gains nothing on these tables. Sets grown from
scores help the learner of German credit at epsilon 10. At epsilon 1 they cost pairs of Oregon and of Adult.

{names}

Seven tenths of German credit and four fifths of the others are released, and the rest tests the learner. If noise
hides the pairs, `batched` measures single columns only and searches nothing.
"""
NAMES = {
    "german": "German credit, 1,000 rows, target `credit`",
    "oregon": "20,000 Oregon households with their first persons, target `WRKLYR` (work last year)",
    "adult": "Adult, 48,842 rows, target `class`",
    "nist 7600": "NIST national2019, cut to 7,600 rows, target `OWN_RENT`",
}


def spread(values, digits=3):
    """Return a mean with its standard error."""
    error = f" ± {stdev(values) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def change(runs, base, field, digits=4):
    """Return the mean change of a figure between runs with equal seeds, with its standard error."""
    values = [run[field] - base[seed][field] for seed, run in runs.items() if seed in base]
    return f"{mean(values):+.{digits}f} ± {stdev(values) / len(values) ** 0.5:.{digits}f}"


def parity_lines(chosen):
    """Return the lines of the parities."""
    for (name, epsilon), method in product(CELLS, METHODS):
        runs = list(chosen(name, epsilon, method).values())
        if runs and name in PARITIES:
            accuracy = [run["accuracy"] for run in runs]
            floor = method == "real rows"
            yield (
                name,
                "-" if floor else f"{epsilon:g}",
                METHODS[method],
                spread(accuracy),
                f"{min(accuracy):.3f}",
                "-" if floor else spread([run["pairs"] for run in runs], 4),
                "-" if floor else f"{mean(run['cpu'] for run in runs):.1f}",
                str(len(runs)),
            )


def table_lines(chosen):
    """Return the lines of the real tables: floors, figures of ``batched``, and changes by the searches."""
    for (name, epsilon), method in product(CELLS, ("real rows", "batched", "grown", "search")):
        runs, base = chosen(name, epsilon, method), chosen(name, epsilon, "batched")
        if name in PARITIES or not runs or not chosen(name, 1.0, "search"):
            continue
        first = next(iter(runs.values()))
        if method == "real rows":
            figures = [*(f"{first[field]:.3f}" for field in FIELDS[:3]), "-", "-", "-", "-"]
        else:
            figures = [
                spread([run[field] for run in runs.values()], 4) if method == "batched" else change(runs, base, field)
                for field in FIELDS
            ]
            figures += [f"{mean(run[field] for run in runs.values()):.1f}" for field in ("sets", "cpu")]
        label = SHORT.get(method, METHODS[method])
        yield (name, "-" if method == "real rows" else f"{epsilon:g}", label, *figures, str(len(runs)))


SHORT = {"grown": "change: grown", "search": "change: one of all"}
FIELDS = ("auc", "accuracy", "f1", "pairs", "worst")
CELLS = tuple(product([*PARITIES, *TARGETS], (1.0, 0.1, 10.0)))


def report(results):
    """Return the results in Markdown."""

    def chosen(name, epsilon, method):
        key = {"method": method, "table": name, "epsilon": epsilon}
        return {each["seed"]: each for each in results if {field: each[field] for field in key} == key}

    names = "\n".join(f"* {name}: {text}" for name, text in NAMES.items() if chosen(name, 1.0, "search"))
    parity_header = ("table", "epsilon", "method", "accuracy", "least", "pairs", "CPU s", "seeds")
    header = ("table", "epsilon", "method", "AUC", "accuracy", "F1", "pairs", "worst pair", "sets", "CPU s", "seeds")
    return "".join(
        [
            INTRODUCTION.format(delta=DELTA, sets=MOST_SETS),
            markdown(parity_header, parity_lines(chosen)),
            WHY,
            markdown(header, table_lines(chosen)),
            TABLES_END.format(names=names),
        ]
    )


def markdown(header, rows):
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:], ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=";".join([*PARITIES, *TARGETS]), help="separated by semicolons")
    parser.add_argument("--epsilons", default="1,10")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    for name in filter(None, given.tables.split(";")):
        table = tables(name)
        seeds, epsilons = range(int(first), int(last or first) + 1), map(float, given.epsilons.split(","))
        for seed, epsilon, method in product(seeds, epsilons, given.methods.split(";")):
            key = {"method": method, "table": name, "epsilon": epsilon, "seed": seed}
            results = [each for each in results if {field: each[field] for field in key} != key]
            results.append(key | run(method, name, table, epsilon=epsilon, seed=seed))
            text = ",\n".join(json.dumps(each) for each in results)
            RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    TABLE.write_text(report(results), encoding="utf-8")


if __name__ == "__main__":
    main()
