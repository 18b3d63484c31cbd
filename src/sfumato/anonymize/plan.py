"""What a method decided: how rows are rewritten, the recoding to save, and the facts to publish with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymize.asked import Asked
from sfumato.anonymize.classes import finest
from sfumato.anonymize.criteria import Criterion, safe
from sfumato.anonymize.hierarchy import Level
from sfumato.anonymize.lattice import Lattice
from sfumato.anonymize.loss import (
    average_class_size,
    certainty_penalty,
    discernibility,
    global_certainty_penalty,
    loss_metric,
    non_uniform_entropy,
    precision,
    weighted,
)
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.optimal_search import Certificate
from sfumato.anonymize.packing import Keys, group, pack
from sfumato.anonymize.partition import Partition
from sfumato.anonymize.problem import Vector
from sfumato.anonymize.quasi import Quasi, suppressed_codes
from sfumato.anonymize.recoding import FullDomain, Local, Recoding
from sfumato.anonymize.recount import Count, count, refuse_unsafe
from sfumato.anonymize.rewrite import of_full_domain, of_partition
from sfumato.anonymize.space import Scale, Space
from sfumato.anonymize.spelling import spell
from sfumato.domain import Domain
from sfumato.engine.port import Recode

Integers = NDArray[np.int64]
Losses = NDArray[np.float64]

LEFT_OUT = "(left out)"  # the cell of codes that are suppressed by policy
NOWHERE = -1  # their rank


@dataclass(frozen=True, eq=False)
class Plan:
    """A verified decision: ``counted`` is what the engine's rewriting will publish, and satisfies the criteria."""

    recode: Recode
    recoding: Recoding
    facts: Mapping[str, Any]
    counted: Count

    def payload(self) -> dict[str, Any]:
        """What the journal keeps."""
        return {"recoding": self.recoding.describe(), "facts": dict(self.facts)}


def of_vector(
    lattice: Lattice, vector: Vector, *, asked: Asked, domain: Domain, certificate: Certificate | None
) -> Plan:
    """The plan of a full-domain recoding.

    Raises:
        InfeasibleError: counted again, a class does not satisfy the criteria.
    """
    problem = lattice.problem
    classes, kept = lattice.kept(vector)
    published = kept & (classes.counts > 0)
    levels = [hierarchy.levels[level] for hierarchy, level in zip(problem.hierarchies, vector, strict=True)]
    codes = problem.data.codes[classes.members[published]]
    cells = np.stack([level.cells[column] for level, column in zip(levels, codes.T, strict=True)], axis=1)
    labels = [domain[name].labels() for name in problem.data.quasi]
    recoding = FullDomain(
        quasi=problem.data.quasi,
        criteria=_spelled(problem.criteria),
        leaves=tuple(labels),
        cells=tuple(_cells(level, each, domain) for level, each in zip(levels, asked.quasi, strict=True)),
        labels=tuple((*level.labels, LEFT_OUT) for level in levels),
        losses=tuple(np.append(level.losses, 1.0) for level in levels),
        kept=cells,
    )
    recode = of_full_domain(recoding, labels)
    losses = np.stack([level.losses[column] for level, column in zip(levels, cells.T, strict=True)], axis=1)
    facts = _facts(classes.counts[published], losses, problem.data, asked)
    sizes = [hierarchy.domain_size for hierarchy in problem.hierarchies]
    facts |= _penalty(classes.counts[published], losses, sizes, facts["suppressed"])
    facts["levels"] = dict(zip(problem.data.quasi, vector, strict=True))
    facts["precision"] = precision(vector, problem.heights, rows=problem.data.rows, suppressed=facts["suppressed"])
    facts["non_uniform_entropy"] = _entropy(problem.data, levels, _listed(problem.data, recode) >= 0)
    if certificate is not None:
        facts["certificate"] = asdict(certificate) | {"proven": certificate.proven}
    return _verified(problem.data, recode, recoding, facts, problem.criteria)


def of_recoding(data: Microdata, recode: Recode, recoding: Recoding, losses: Losses, asked: Asked) -> Plan:
    """The plan of a saved recoding on other rows: classes that are not safe among them are left out.

    ``losses`` are those of each listed class of ``recode``, shape ``(classes, quasi)``.
    """
    place = _listed(data, recode)
    held = np.flatnonzero(place >= 0)
    names = group(pack(*_label_codes(recode.labels)))
    grouping = group(Keys(names.classes[place[held]], max(len(names.members), 1)))
    classes = finest(data).part(held).merge(grouping)
    good = safe(asked.criteria, classes) & (classes.counts > 0)
    number = np.full(len(names.members), -1)
    number[names.classes[place[held][grouping.members]]] = np.arange(len(classes))
    numbers = number[names.classes]
    listed = numbers >= 0
    listed[listed] = good[numbers[listed]]
    kept = replace(recode, classes=recode.classes[listed], labels=recode.labels.filter(pa.array(listed)))
    per_class = np.zeros((len(good), losses.shape[1]))
    per_class[numbers[listed]] = losses[listed]
    facts = _facts(classes.counts[good], per_class[good], data, asked)
    return _verified(data, kept, recoding, facts, asked.criteria)


def of_classes(
    data: Microdata,
    space: Space,
    partition: Partition,
    *,
    asked: Asked,
    domain: Domain,
    names: Sequence[tuple[str, ...]] | None = None,
) -> Plan:
    """The plan of a local recoding, its classes published with ``names``, or with the labels of their cells.

    Raises:
        InfeasibleError: counted again, a class does not satisfy the criteria.
    """
    low, high = partition.boxes(space)
    described = [space.describe(*ends) for ends in zip(low, high, strict=True)]
    named = tuple(labels for labels, _, _ in described) if names is None else tuple(names)
    labels = tuple(domain[name].labels() for name in data.quasi)
    losses = space.losses(low, high)
    recoding = Local(
        quasi=data.quasi,
        criteria=_spelled(asked.criteria),
        leaves=labels,
        ranks=tuple(_ranks(scale, each, domain) for scale, each in zip(space.scales, asked.quasi, strict=True)),
        low=np.stack([least for _, least, _ in described]),
        high=np.stack([greatest for _, _, greatest in described]),
        names=named,
        losses=losses,
    )
    facts = _facts(partition.counts(), losses, data, asked)
    facts |= _penalty(partition.counts(), losses, [scale.domain_size for scale in space.scales], facts["suppressed"])
    recode = of_partition(data, partition, named, [len(each) for each in labels])
    return _verified(data, recode, recoding, facts, asked.criteria)


def _listed(data: Microdata, recode: Recode) -> Integers:
    """For each tuple the listed class that its rows go to, -1 for none."""
    here = [level[column] for level, column in zip(recode.levels, data.codes.T, strict=True)]
    both = [np.concatenate(columns).astype(np.int64) for columns in zip(here, recode.classes.T, strict=True)]
    keys = group(pack(both, [int(column.max(initial=0)) + 1 for column in both])).classes
    listed = np.full(int(keys.max(initial=0)) + 1, -1)
    listed[keys[len(data.counts) :]] = np.arange(len(recode.classes))
    result: Integers = listed[keys[: len(data.counts)]]
    return result


def _label_codes(labels: pa.Table) -> tuple[list[Integers], list[int]]:
    """Each column as codes of its distinct labels, and how many there are."""
    encoded = [column.combine_chunks().dictionary_encode() for column in labels.columns]
    codes = [column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in encoded]
    return codes, [max(len(column.dictionary), 1) for column in encoded]


def _entropy(data: Microdata, levels: Sequence[Level], published: NDArray[np.bool_]) -> float:
    """Non-uniform entropy in bits; rows excluded for a missing value are left out of it."""
    bits = 0.0
    everybody = int(data.counts.sum())
    for level, codes in zip(levels, data.codes.T, strict=True):
        leaves = np.bincount(codes, weights=data.counts, minlength=len(level.cells)).astype(np.int64)
        shown = np.bincount(codes[published], weights=data.counts[published], minlength=len(leaves)).astype(np.int64)
        cells = np.bincount(level.cells, weights=leaves).astype(np.int64)[level.cells]
        bits += non_uniform_entropy(leaves, cells, shown)
        bits += non_uniform_entropy(leaves, np.full(len(leaves), everybody), leaves - shown)
    return bits


def _cells(level: Level, quasi: Quasi, domain: Domain) -> Integers:
    """Cells of a level; codes that are suppressed by policy get a cell of their own, which no class keeps."""
    cells = level.cells.copy()
    cells[list(suppressed_codes(quasi, domain[quasi.name]))] = level.size
    return cells


def _ranks(scale: Scale, quasi: Quasi, domain: Domain) -> Integers:
    """Ranks of codes; those that are suppressed by policy get one that lies in no box."""
    ranks = scale.ranks.copy()
    ranks[list(suppressed_codes(quasi, domain[quasi.name]))] = NOWHERE
    return ranks


def _verified(
    data: Microdata, recode: Recode, recoding: Recoding, facts: dict[str, Any], criteria: Sequence[Criterion]
) -> Plan:
    assert data.source is not None
    counted = count(data.source, recode)
    refuse_unsafe(counted, criteria, data.declared)
    return Plan(recode, recoding, facts, counted)


def _facts(counts: Integers, losses: Losses, data: Microdata, asked: Asked) -> dict[str, Any]:
    suppressed = data.rows - int(counts.sum())
    metric = loss_metric(counts, losses, suppressed)
    k = max(criterion.least_rows for criterion in asked.criteria)
    return {
        "rows": data.rows,
        "suppressed": suppressed,
        "left_out": data.left_out,
        "over_bound": data.over_bound,
        "classes": len(counts),
        "smallest_class": int(counts.min(initial=data.rows)),
        "loss_metric": dict(zip(data.quasi, metric, strict=True)),
        "loss_metric_sum": float(sum(metric)),
        "loss_metric_weighted": weighted(metric, [each.weight for each in asked.quasi]),
        "discernibility": discernibility(counts, suppressed),
        "average_class_size": average_class_size(counts, k),
    }


def _penalty(counts: Integers, losses: Losses, sizes: Sequence[int | None], suppressed: int) -> dict[str, float]:
    penalties = certainty_penalty(losses, sizes)
    return {"global_certainty_penalty": global_certainty_penalty(counts, penalties, suppressed)}


def _spelled(criteria: Sequence[Criterion]) -> tuple[str, ...]:
    return tuple(spell(criterion) for criterion in criteria)
