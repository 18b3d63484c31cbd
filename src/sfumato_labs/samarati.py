"""Lab ``samarati``: k-anonymity of UCI Adult by Samarati's search, and the cost of its lowest height.

The published program is deterministic, and the lab reproduces its vectors and losses to the last digit. So the columns
"published" and "as printed" are compared for equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from time import process_time

import numpy as np

from sfumato.anonymize.criteria.criterion import KAnonymity
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.release.decision import loss_metric
from sfumato.anonymize.search.lattice import Lattice, Node, Problem, Vector
from sfumato.anonymize.search.lattice_search import TieBreak, best_at_height, heuristic, least_loss, lowest_height
from sfumato.domain.hierarchy.levels import Hierarchy
from sfumato.errors import InputError
from sfumato_labs import charts
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Plot, Row, Table
from sfumato_labs.published_tables import adult, published_hierarchies, tuples

TITLE = "Samarati's search on UCI Adult: the lowest height is not the least loss"
KS = (10, 20, 30, 40, 50)
SUPPRESSIONS = (10, 20, 30, 40, 50)
HEURISTIC_CASES = ((10, 50), (10, 600), (50, 300))  # k, rows that may be suppressed
PUBLISHED_SECONDS = 82.0
_LARGEST_CLASSES = 8  # classes of a recoded table
PUBLISHED: Mapping[tuple[int, int], float] = {  # k, rows that may be suppressed
    (10, 10): 2.0552459640316716,
    (10, 20): 2.0552459640316716,
    (10, 30): 3.0008951661030436,
    (10, 40): 3.0008951661030436,
    (10, 50): 3.0008951661030436,
    (20, 20): 3.055013883930883,
    (30, 20): 3.055013883930883,
    (40, 20): 2.0,
    (50, 20): 2.0,
}


@dataclass(frozen=True, eq=False)
class RecodingStudy:
    """The published table and hierarchies."""

    data: Microdata
    hierarchies: tuple[Hierarchy, ...]

    def lattice(self, k: int, allowed: int) -> Lattice:
        """Return the recodings for one k and one number of rows that may be suppressed."""
        return Lattice(
            Problem(
                data=self.data,
                hierarchies=self.hierarchies,
                criteria=(KAnonymity(k),),
                allowed=allowed,
                weights=(1.0,) * len(self.hierarchies),
            )
        )


def run(options: Options) -> LabResult:
    """Return the published tables to the last digit, next to the least loss."""
    people = adult(options.data)
    rows = people.complete()
    hierarchies = _chosen(published_hierarchies(rows), options.columns)
    study = RecodingStudy(tuples(rows, {each.attribute: each.leaves for each in hierarchies}), hierarchies)
    ks, suppressions = options.k or KS, options.max_suppression or SUPPRESSIONS
    allowed = 20 if options.max_suppression is None else suppressions[0]
    as_published = options.columns is None and people.is_adult
    by_suppression = tuple(_row(study, ks[0], most, as_published=as_published) for most in suppressions)
    by_k = tuple(_row(study, k, allowed, as_published=as_published) for k in ks)
    cases = HEURISTIC_CASES if options.k is options.max_suppression is None else tuple(product(ks, suppressions))
    misleading = tuple(row for case in cases for row in _heuristic(study, *case))
    tables = {
        "by_suppression": by_suppression,
        "by_k": by_k,
        "suppression_or_not": tuple(
            _row(study, k, most, as_published=as_published) for k in ks for most in (0, allowed)
        ),
        "least_loss_of_lowest_height": tuple(
            _orders(study, k, most) for k, most in product(ks, dict.fromkeys((allowed, suppressions[-1])))
        ),
        "heuristic_by_height": misleading,
        "run_times": _run_times(study, ks[0], allowed, as_published=as_published),
        "recoded": recoded(study, ks[0], allowed),
    }
    sentence = (
        f"{rows.people()} rows without '?', quasi-identifiers {', '.join(each.attribute for each in hierarchies)}. A"
        " vector has one level for each; suppressed rows count as fully lost; lm is the Loss Metric summed over the"
        " attributes, weighted_lm their sum with the heights of the hierarchies as weights,"
        f" {', '.join(str(len(each.levels) - 1) for each in hierarchies)}."
    )
    return LabResult(
        lab="samarati",
        title=people.headed(TITLE),
        summary=people.marked(
            (_summary("by rows that may be suppressed", by_suppression), _summary("by k", by_k)),
        ),
        tables=tables,
        plots=(_plot(by_suppression),),
        notes=(
            people.note,
            sentence,
            artefact(by_suppression),
            misled(misleading),
            *((_SPEED,) if as_published else ()),
            _RECODED,
        ),
    )


def _chosen(hierarchies: tuple[Hierarchy, ...], columns: tuple[NamedColumn, ...] | None) -> tuple[Hierarchy, ...]:
    if columns is None:
        return hierarchies
    known = {each.attribute: each for each in hierarchies}
    for column in columns:
        if column.name not in known:
            raise InputError(f"--columns names {column.name!r}; there are {', '.join(known)}", culprit=column.name)
    return tuple(known[column.name] for column in columns)


_SPEED = f"The published program took {PUBLISHED_SECONDS:g} s for one search; run_times shows ours on this machine."


_RECODED = (
    "recoded: the largest classes of the table of least loss. 'sfumato anonymize TABLE --domain DOMAIN --quasi "
    "age,gender,race,marital_status --k 10 --suppression 0.001 --out FILE' writes such a table, with the same proof."
)


def recoded(study: RecodingStudy, k: int, allowed: int) -> Table:
    """Return the first classes of the recoding of least loss, the largest first, and of the lowest height."""
    lattice = study.lattice(k, allowed)
    nodes = {
        "lowest height": lowest_height(lattice, order=TieBreak.LEXICOGRAPHIC),
        "least loss": least_loss(lattice).node,
    }
    rows: list[Row] = []
    for name, node in nodes.items():
        if node is None:
            continue
        levels = [each.levels[level] for each, level in zip(study.hierarchies, node.vector, strict=True)]
        classes, published = lattice.safe_classes(node.vector)
        largest = np.argsort(-classes.counts * published, kind="stable")[:_LARGEST_CLASSES]
        for place in largest[published[largest]].tolist():
            codes = study.data.codes[classes.members[place]]
            cells = {
                each.attribute: level.labels[level.cells[code]]
                for each, level, code in zip(study.hierarchies, levels, codes.tolist(), strict=True)
            }
            rows.append({"recoding": name, **cells, "rows": int(classes.counts[place])})
    return tuple(rows)


def artefact(rows: Table) -> str:
    """Return a sentence on a looser limit, from the table."""
    worse = [
        (before, after)
        for before, after in pairwise(rows)
        if isinstance(before["lm"], float) and isinstance(after["lm"], float) and after["lm"] > before["lm"]
    ]
    if not worse:
        return "In by_suppression no looser limit makes the loss of Samarati's search larger."
    before, after = worse[0]
    return (
        f"The loss rises from {before['lm']:.4g} to {after['lm']:.4g} when {after['max_suppression']} rows may be"
        f" suppressed in place of {before['max_suppression']}: a looser limit admits a lower height, and the first"
        " vector of that height in lexicographic order happens to be a bad one. The optimum over all vectors never gets"
        " worse, and its certificate proves that nothing is better."
    )


def misled(rows: Table) -> str:
    """Return a sentence on ranking by heights, from the table."""
    meaning = "F, the sum of level times hierarchy height, ranks the vectors of one height without computing a loss. "
    wrong = [row for row in rows if row["misled"]]
    if not wrong:
        return meaning + "In heuristic_by_height it takes the vector of least loss every time."
    worst = max(wrong, key=lambda row: float(row["heuristic_lm"] or 0) - float(row["least_lm"] or 0))
    return meaning + (
        "It takes a step in a tall hierarchy for cheap, so it can prefer the top of age, which loses everything: with"
        f" {worst['max_suppression']} rows to suppress at k = {worst['k']}, its choice of height {worst['height']}"
        f" loses {worst['heuristic_lm']:.3g} where {worst['least_lm']:.3g} would do. It is misled in {len(wrong)} of"
        f" {len(rows)} rows of heuristic_by_height."
    )


def _summary(experiment: str, rows: Table) -> Row:
    def listed(column: str) -> str:
        values = [row[column] for row in rows]
        return "-" if None in values else ", ".join(f"{value:.6g}" for value in values)

    return {
        "experiment": f"Loss Metric {experiment}",
        "published": listed("published_lm"),
        "as_printed": listed("lm"),
        "honest": listed("optimum_lm"),
        "lesson": "the lowest height is not the least loss: searching all vectors finds it, with a proof",
    }


def _row(study: RecodingStudy, k: int, allowed: int, *, as_published: bool) -> Row:
    lattice = study.lattice(k, allowed)
    node = lowest_height(lattice, order=TieBreak.LEXICOGRAPHIC)
    best = least_loss(lattice).node
    names = [each.attribute for each in study.hierarchies]
    parts = None if node is None else losses(lattice, node.vector)
    heights = [len(each.levels) - 1 for each in study.hierarchies]
    return {
        "k": k,
        "max_suppression": allowed,
        "vector": _text(node),
        "suppressed": None if node is None else node.suppressed,
        "lm": None if parts is None else float(sum(parts)),
        "published_lm": PUBLISHED.get((k, allowed)) if as_published else None,
        **{f"lm_{name}": None if parts is None else parts[place] for place, name in enumerate(names)},
        "weighted_lm": None if parts is None else float(np.dot(heights, parts)),
        "optimum_vector": _text(best),
        "optimum_lm": None if best is None else float(sum(losses(lattice, best.vector))),
    }


def losses(lattice: Lattice, vector: Vector) -> tuple[float, ...]:
    """Return the LM of each attribute: ((rows - m) * loss + m) / rows with m rows suppressed."""
    problem = lattice.problem
    classes, published = lattice.safe_classes(vector)
    levels = [hierarchy.levels[level] for hierarchy, level in zip(problem.hierarchies, vector, strict=True)]
    codes = problem.data.codes[classes.members[published]]
    cells = np.stack([level.losses[level.cells[column]] for level, column in zip(levels, codes.T, strict=True)], axis=1)
    return loss_metric(classes.counts[published], cells, int(classes.counts[~published].sum()))


def _orders(study: RecodingStudy, k: int, allowed: int) -> Row:
    """Return the result of each rule for choosing among the vectors of the lowest height."""
    lattice = study.lattice(k, allowed)
    row: dict[str, str | int | float | bool | None] = {"k": k, "max_suppression": allowed}
    for order in TieBreak:
        node = lowest_height(lattice, order=order)
        name = order.value.replace("-", "_")
        row |= {
            f"{name}_vector": _text(node),
            f"{name}_lm": None if node is None else float(sum(losses(lattice, node.vector))),
        }
    return row


def _heuristic(study: RecodingStudy, k: int, allowed: int) -> Table:
    """Return, for each height, the feasible vector that F ranks first and the one of least loss."""
    lattice = study.lattice(k, allowed)
    rows: list[Row] = []
    for height in range(sum(lattice.top) + 1):
        least = best_at_height(lattice, height, ranking=None)
        first = best_at_height(lattice, height, ranking=lambda v: heuristic(lattice.top, v))
        if least is None or first is None:
            continue
        first_lm, least_lm = (float(sum(losses(lattice, node.vector))) for node in (first, least))
        rows.append(
            {
                "k": k,
                "max_suppression": allowed,
                "height": height,
                "heuristic_vector": _text(first),
                "f": heuristic(lattice.top, first.vector),
                "heuristic_lm": first_lm,
                "least_vector": _text(least),
                "least_lm": least_lm,
                "misled": first_lm > least_lm,
            }
        )
    return tuple(rows)


def _run_times(study: RecodingStudy, k: int, allowed: int, *, as_published: bool) -> Table:
    rows: list[Row] = []
    if as_published:
        rows.append({"search": "published", "seconds": PUBLISHED_SECONDS, "counted": None})
    for name in ("samarati", "optimal"):
        lattice = study.lattice(k, allowed)
        start = process_time()
        if name == "samarati":
            lowest_height(lattice, order=TieBreak.LEXICOGRAPHIC)
        else:
            least_loss(lattice)
        rows.append({"search": name, "seconds": process_time() - start, "counted": lattice.evaluated})
    return tuple(rows)


def _plot(rows: Iterable[Row]) -> Plot:
    values = charts.tall(tuple(rows), {"samarati": "lm", "optimal": "optimum_lm"}, key="search", value="loss")
    chart = charts.lines(
        values,
        ChartAxis(column="max_suppression", title="rows that may be suppressed", zero=False),
        ChartAxis(column="loss", title="Loss Metric, summed over columns"),
        series="search",
        panel=Panel(),
    )
    return Plot("loss", f"Loss by rows that may be suppressed. {artefact(tuple(rows))}", chart)


def _text(node: Node | None) -> str | None:
    return None if node is None else str(node.vector)


LABS = {
    "samarati": Lab(
        name="samarati",
        title=TITLE,
        procedure=run,
        takes=frozenset({"data", "k", "max_suppression", "columns"}),
        runs=1,
    )
}
