"""The decision of a method: the rewrite of the rows, the recoding to save, and the facts to publish.

Losses are functions of classes and their cells.  ``counts`` are rows of the published classes, shape ``(classes,)``.
``cells`` is the loss of each cell, shape ``(classes, attributes)``.  ``suppressed`` is the number of suppressed rows,
which count as fully lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymize.clustering.space import Partition, Scale, Space
from sfumato.anonymize.criteria.classes import finest
from sfumato.anonymize.criteria.criterion import Criterion, safe
from sfumato.anonymize.microdata import Keys, Microdata, group, pack
from sfumato.anonymize.release.recoding import FullDomainRecoding, LocalRecoding, Recoding, of_partition
from sfumato.anonymize.release.recount import Recount, count, refuse_unsafe
from sfumato.anonymize.release.request import AnonymizationRequest, Quasi, suppressed_codes
from sfumato.anonymize.search.lattice import Lattice, Vector
from sfumato.anonymize.search.lattice_search import Certificate
from sfumato.domain import Domain
from sfumato.domain.hierarchy.levels import Integers, Level, Reals
from sfumato.engine.port import Recode


def loss_metric(counts: Integers, cells: Reals, suppressed: int) -> tuple[float, ...]:
    """Return the LM of each attribute: the mean loss of its cells over all rows (Iyengar 2002).

    The cell loss of a category is (leaves covered - 1) / (leaves - 1).  That of an interval is (width - 1) / (domain
    width - 1) in integer units.  It is 0 for an original value, and 1 for the top and for every cell of a suppressed
    row.  The table's LM is the sum over attributes.

    >>> loss_metric(np.array([3, 1]), np.array([[0.0, 0.5], [1.0, 0.5]]), 1)
    (0.4, 0.6)
    """
    rows = int(counts.sum()) + suppressed
    result = []
    for column in cells.T:
        # rows of equal loss are multiplied instead of summed one by one, for fewer roundings
        distinct, place = np.unique(column, return_inverse=True)
        lost = np.bincount(place, weights=counts) * distinct
        result.append((float(lost.sum()) + suppressed) / rows)
    return tuple(result)


def interval_loss_metric(counts: Integers, widths: Integers, spans: Sequence[int]) -> tuple[float, ...]:
    """Return the LM of each attribute if cells are intervals of integers and no row is suppressed.

    ``widths`` are greatest minus least value, shape ``(classes, attributes)``; ``spans`` are the same for the domain.
    Sums stay integers until the one division, so there is only one rounding.
    """
    rows = int(counts.sum())
    return tuple(int(counts @ column) / (span * rows) for column, span in zip(widths.T, spans, strict=True))


def weighted(losses: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted sum of the attributes' losses, divided by the mean weight.

    >>> weighted((0.5, 0.25), (3.0, 1.0))
    0.875
    """
    mean = sum(weights) / len(weights)
    return float(sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / mean)


def certainty_penalty(cells: Reals, domain_sizes: Sequence[int | None]) -> Reals:
    """Return the NCP of each cell (Xu et al. 2006): the share of the domain that it covers, 0 for an original value.

    For categories it is leaves / all leaves, slightly more than the Loss Metric's (leaves - 1) / (all leaves - 1).  For
    intervals (None in ``domain_sizes``) the two are equal.
    """
    result = cells.copy()
    for attribute, size in enumerate(domain_sizes):
        if size is not None:
            column = cells[:, attribute]
            result[:, attribute] = np.where(column > 0, (column * (size - 1) + 1) / size, 0.0)
    return result


def global_certainty_penalty(counts: Integers, penalties: Reals, suppressed: int) -> float:
    """Return the GCP (Ghinita et al. 2007): the mean NCP over all rows and attributes, in 0..1."""
    rows = int(counts.sum()) + suppressed
    attributes = penalties.shape[1]
    return float((counts @ penalties.sum(axis=1) + suppressed * attributes) / (rows * attributes))


def discernibility(counts: Integers, suppressed: int) -> int:
    """Sum the class sizes of all rows; a suppressed row counts as the table's size (Bayardo, Agrawal 2005).

    >>> discernibility(np.array([3, 1]), 1)
    15
    """
    rows = int(counts.sum()) + suppressed
    return int((counts * counts).sum()) + suppressed * rows


def average_class_size(counts: Integers, k: int) -> float:
    """Return the published rows per class, in units of k; 1 is the best possible value (LeFevre et al. 2006)."""
    return float(counts.sum() / max(len(counts), 1) / k)


def precision(vector: Sequence[int], heights: Sequence[int], *, rows: int, suppressed: int) -> float:
    """Return Prec: 1 minus the mean share of the hierarchy that a cell is raised (Sweeney 2002).

    >>> precision((1, 0), (4, 1), rows=10, suppressed=0)
    0.875
    """
    climbed = sum(level / height if height else 0.0 for level, height in zip(vector, heights, strict=True))
    lost = (rows - suppressed) * climbed + suppressed * len(heights)
    return 1 - lost / (rows * len(heights))


def non_uniform_entropy(leaf_counts: Integers, cell_counts: Integers, rows: Integers) -> float:
    """Sum -log2(rows with the leaf / rows with any leaf of its cell), in bits (De Waal, Willenborg 1999).

    Args:
        leaf_counts: rows of the table with the original value.
        cell_counts: rows of the table with any value that the published cell covers; all rows for a suppressed one.
        rows: number of rows with this combination.  All three have the same shape.
    """
    used = rows > 0
    return float(rows[used] @ np.log2(cell_counts[used] / leaf_counts[used]))


LEFT_OUT = "(left out)"  # the cell of codes that a policy suppresses
NOWHERE = -1  # the rank of such codes


@dataclass(frozen=True, eq=False)
class Decision:
    """A verified decision: all classes of ``recount`` are safe, and the engine publishes exactly these classes."""

    recode: Recode
    recoding: Recoding
    facts: Mapping[str, Any]
    recount: Recount

    def payload(self) -> dict[str, Any]:
        """Return the payload for the journal."""
        return {"recoding": self.recoding.describe(), "facts": dict(self.facts)}


def full_domain_decision(
    lattice: Lattice, vector: Vector, *, request: AnonymizationRequest, domain: Domain, certificate: Certificate | None
) -> Decision:
    """Return a full-domain decision after its verification.

    Raises:
        InfeasibleError: in the recount, a class does not satisfy the criteria.
    """
    problem = lattice.problem
    classes, is_safe = lattice.safe_classes(vector)
    published = is_safe & (classes.counts > 0)
    levels = [hierarchy.levels[level] for hierarchy, level in zip(problem.hierarchies, vector, strict=True)]
    codes = problem.data.codes[classes.members[published]]
    cells = np.stack([level.cells[column] for level, column in zip(levels, codes.T, strict=True)], axis=1)
    labels = [domain[name].labels() for name in problem.data.quasi]
    recoding = FullDomainRecoding(
        quasi=problem.data.quasi,
        criteria=_criteria_texts(problem.criteria),
        leaves=tuple(labels),
        cells=tuple(_cells(level, each, domain) for level, each in zip(levels, request.quasi, strict=True)),
        labels=tuple((*level.labels, LEFT_OUT) for level in levels),
        losses=tuple(np.append(level.losses, 1.0) for level in levels),
        published=cells,
    )
    recode = recoding.recode(labels)
    losses = np.stack([level.losses[column] for level, column in zip(levels, cells.T, strict=True)], axis=1)
    facts = _facts(classes.counts[published], losses, problem.data, request)
    sizes = [hierarchy.domain_size for hierarchy in problem.hierarchies]
    facts |= _penalty(classes.counts[published], losses, sizes, facts["suppressed"])
    facts["levels"] = dict(zip(problem.data.quasi, vector, strict=True))
    facts["precision"] = precision(vector, problem.heights, rows=problem.data.rows, suppressed=facts["suppressed"])
    facts["non_uniform_entropy"] = _entropy(problem.data, levels, _listed(problem.data, recode) >= 0)
    if certificate is not None:
        facts["certificate"] = asdict(certificate) | {"proven": certificate.proven}
    return _verified(problem.data, recode, recoding, facts, request.criteria)


def applied_decision(
    data: Microdata, recode: Recode, recoding: Recoding, losses: Reals, request: AnonymizationRequest
) -> Decision:
    """Return a decision for other rows by a saved recoding, without classes that are not safe among them.

    ``losses`` has the losses of each listed class of ``recode``, shape ``(classes, quasi)``.
    """
    place = _listed(data, recode)
    held = np.flatnonzero(place >= 0)
    names = group(pack(*_label_codes(recode.labels)))
    grouping = group(Keys(names.classes[place[held]], max(len(names.members), 1)))
    classes = finest(data).part(held).merge(grouping)
    good = safe(request.criteria, classes) & (classes.counts > 0)
    number = np.full(len(names.members), -1)
    number[names.classes[place[held][grouping.members]]] = np.arange(len(classes))
    numbers = number[names.classes]
    listed = numbers >= 0
    listed[listed] = good[numbers[listed]]
    safe_only = replace(recode, classes=recode.classes[listed], labels=recode.labels.filter(pa.array(listed)))
    per_class = np.zeros((len(good), losses.shape[1]))
    per_class[numbers[listed]] = losses[listed]
    facts = _facts(classes.counts[good], per_class[good], data, request)
    return _verified(data, safe_only, recoding, facts, request.criteria)


def local_decision(
    data: Microdata,
    space: Space,
    partition: Partition,
    *,
    request: AnonymizationRequest,
    domain: Domain,
    names: Sequence[tuple[str, ...]] | None = None,
) -> Decision:
    """Return a local decision after its verification.  Classes get ``names``.  Default: the labels of their cells.

    Raises:
        InfeasibleError: in the recount, a class does not satisfy the criteria.
    """
    low, high = partition.boxes(space)
    described = [space.describe(*ends) for ends in zip(low, high, strict=True)]
    named = tuple(labels for labels, _, _ in described) if names is None else tuple(names)
    labels = tuple(domain[name].labels() for name in data.quasi)
    losses = space.losses(low, high)
    recoding = LocalRecoding(
        quasi=data.quasi,
        criteria=_criteria_texts(request.criteria),
        leaves=labels,
        ranks=tuple(_ranks(scale, each, domain) for scale, each in zip(space.scales, request.quasi, strict=True)),
        low=np.stack([least for _, least, _ in described]),
        high=np.stack([greatest for _, _, greatest in described]),
        names=named,
        losses=losses,
    )
    facts = _facts(partition.counts(), losses, data, request)
    facts |= _penalty(partition.counts(), losses, [scale.domain_size for scale in space.scales], facts["suppressed"])
    recode = of_partition(data, partition, named, [len(each) for each in labels])
    return _verified(data, recode, recoding, facts, request.criteria)


def _listed(data: Microdata, recode: Recode) -> Integers:
    """Return the listed class of each tuple's rows; -1 for none."""
    here = [level[column] for level, column in zip(recode.levels, data.codes.T, strict=True)]
    both = [np.concatenate(columns).astype(np.int64) for columns in zip(here, recode.classes.T, strict=True)]
    keys = group(pack(both, [int(column.max(initial=0)) + 1 for column in both])).classes
    listed = np.full(int(keys.max(initial=0)) + 1, -1)
    listed[keys[len(data.counts) :]] = np.arange(len(recode.classes))
    result: Integers = listed[keys[: len(data.counts)]]
    return result


def _label_codes(labels: pa.Table) -> tuple[list[Integers], list[int]]:
    """Return each column as codes of its distinct labels, and the number of labels."""
    encoded = [column.combine_chunks().dictionary_encode() for column in labels.columns]
    codes = [column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in encoded]
    return codes, [max(len(column.dictionary), 1) for column in encoded]


def _entropy(data: Microdata, levels: Sequence[Level], published: NDArray[np.bool_]) -> float:
    """Return the non-uniform entropy in bits, without rows that are excluded for a missing value."""
    bits = 0.0
    everybody = int(data.counts.sum())
    for level, codes in zip(levels, data.codes.T, strict=True):
        leaves = np.bincount(codes, weights=data.counts, minlength=len(level.cells)).astype(np.int64)
        rows = np.bincount(codes[published], weights=data.counts[published], minlength=len(leaves)).astype(np.int64)
        cells = np.bincount(level.cells, weights=leaves).astype(np.int64)[level.cells]
        bits += non_uniform_entropy(leaves, cells, rows)
        bits += non_uniform_entropy(leaves, np.full(len(leaves), everybody), leaves - rows)
    return bits


def _cells(level: Level, quasi: Quasi, domain: Domain) -> Integers:
    """Return the cells of a level.  Codes that a policy suppresses get a separate cell that belongs to no class."""
    cells = level.cells.copy()
    cells[list(suppressed_codes(quasi, domain[quasi.name]))] = level.size
    return cells


def _ranks(scale: Scale, quasi: Quasi, domain: Domain) -> Integers:
    """Return the ranks of codes.  Codes that a policy suppresses get a rank outside every box."""
    ranks = scale.ranks.copy()
    ranks[list(suppressed_codes(quasi, domain[quasi.name]))] = NOWHERE
    return ranks


def _verified(
    data: Microdata, recode: Recode, recoding: Recoding, facts: dict[str, Any], criteria: Sequence[Criterion]
) -> Decision:
    assert data.source is not None
    recount = count(data.source, recode)
    refuse_unsafe(recount, criteria, data.declared)
    if recount.units is not None:
        facts |= {"smallest_class": int(recount.units.min(initial=data.holders))}
    return Decision(recode, recoding, facts, recount)


def _facts(counts: Integers, losses: Reals, data: Microdata, request: AnonymizationRequest) -> dict[str, Any]:
    suppressed = data.rows - int(counts.sum())
    metric = loss_metric(counts, losses, suppressed)
    k = max(criterion.least_rows for criterion in request.criteria)
    return {
        "rows": data.rows,
        "suppressed": suppressed,
        "left_out": data.left_out,
        "over_bound": data.over_bound,
        "classes": len(counts),
        "smallest_class": int(counts.min(initial=data.rows)),
        "loss_metric": dict(zip(data.quasi, metric, strict=True)),
        "loss_metric_sum": float(sum(metric)),
        "loss_metric_weighted": weighted(metric, [each.weight for each in request.quasi]),
        "discernibility": discernibility(counts, suppressed),
        "average_class_size": average_class_size(counts, k),
    }


def _penalty(counts: Integers, losses: Reals, sizes: Sequence[int | None], suppressed: int) -> dict[str, float]:
    penalties = certainty_penalty(losses, sizes)
    return {"global_certainty_penalty": global_certainty_penalty(counts, penalties, suppressed)}


def _criteria_texts(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    return tuple(criterion.spell() for criterion in criteria)
