"""Local recoding of a vault's table: ``mondrian``, ``k_member`` and ``microaggregate``.

Microaggregation uses the maximum distance to the average vector (MDAV; Domingo-Ferrer and Torra 2005).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import TypeAlias, cast

import numpy as np

from sfumato.anonymize.clustering import mondrian_cuts
from sfumato.anonymize.clustering.k_member_clustering import k_member_partition
from sfumato.anonymize.clustering.mondrian_cuts import Cutter, Region, Rule, greedy_partition
from sfumato.anonymize.clustering.space import Group, Intervals, Partition, Space
from sfumato.anonymize.clustering.unit_partition import Homes, partition_units
from sfumato.anonymize.criteria.classes import finest
from sfumato.anonymize.criteria.criterion import CRITERIA_WANTED, Criterion, KAnonymity, safe
from sfumato.anonymize.microdata import KeyClasses, Microdata, group, pack
from sfumato.anonymize.release.anonymized import Anonymized, disclose
from sfumato.anonymize.release.decision import Decision, local_decision
from sfumato.anonymize.release.request import AnonymizationRequest, Missing, Quasi, microdata, read_quasi
from sfumato.anonymize.release.unchanged_columns import NONE_UNCHANGED, Keep, UnchangedColumns
from sfumato.anonymize.search.lattice import check_criteria
from sfumato.arguments import expect, expect_all, parse_integer
from sfumato.domain import Attribute, Categorical, Integer, Real
from sfumato.domain.hierarchy.levels import Integers, Reals
from sfumato.engine.port import Recodable
from sfumato.errors import InfeasibleError, InputError
from sfumato.model.row_sampling import generator
from sfumato.vault.interface import ReleaseRequest, refuse_no_vault
from sfumato.vault.vault import Vault


def mdav_partition(values: Reals, counts: Integers, *, k: int) -> Partition:
    """Group rows that are close in squared distance, with k to 2k - 1 rows per group.

    While 3k rows remain, the row farthest from their mean takes its k - 1 nearest rows.  Then the row farthest from
    that row does the same.  If at least 2k rows remain, one more group is formed.  The rest is the last group.

    Args:
        values: numbers to group by, already standardized, shape ``(tuples, attributes)``.
        counts: rows of each tuple, shape ``(tuples,)``; their sum is at least k.
        k: minimum sum of counts in a group.
    """
    left = counts.copy()
    groups = []
    while left.sum() >= 3 * k:
        mean = left @ values / left.sum()
        far = _farthest(values, left, mean)
        groups.append(_take(values, left, values[far], k))
        groups.append(_take(values, left, values[_farthest(values, left, values[far])], k))
    if left.sum() >= 2 * k:
        mean = left @ values / left.sum()
        groups.append(_take(values, left, values[_farthest(values, left, mean)], k))
    if left.any():
        groups.append((np.flatnonzero(left), left[left > 0]))
    return Partition.from_groups(groups)


def means(values: Reals, groups: Partition) -> Reals:
    """Return the mean of every group, shape ``(groups, attributes)``.  Its rows are published with this mean."""
    weighted = values[groups.tuples] * groups.rows[:, None]
    starts = np.searchsorted(groups.classes, np.arange(groups.size))
    result: Reals = np.add.reduceat(weighted, starts, axis=0) / groups.counts()[:, None]
    return result


def _distances(values: Reals, point: Reals) -> Reals:
    result: Reals = ((values - point) ** 2).sum(axis=1)
    return result


def _farthest(values: Reals, left: Integers, point: Reals) -> int:
    return int(np.where(left > 0, _distances(values, point), -1.0).argmax())


def _take(values: Reals, left: Integers, point: Reals, k: int) -> tuple[Integers, Integers]:
    """Remove the k rows nearest to a point from ``left``."""
    order = np.argsort(np.where(left > 0, _distances(values, point), np.inf), kind="stable")
    rows = left[order]
    taken = np.clip(k - (np.cumsum(rows) - rows), 0, rows)
    used = taken > 0
    left[order[used]] -= taken[used]
    return order[used], taken[used]


def positions(space: Space) -> Reals:
    """Return numbers for the tuples: values of ordered attributes, ranks of others."""
    columns = [
        (scale.positions if isinstance(scale, Intervals) else scale.ranks.astype(np.float64))[codes][points]
        for scale, codes, points in zip(space.scales, space.codes, space.points.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def standardised(values: Reals, counts: Integers) -> Reals:
    """Divide every attribute by its standard deviation over the rows."""
    mean = counts @ values / counts.sum()
    deviation = np.sqrt(counts @ (values - mean) ** 2 / counts.sum())
    result: Reals = values / np.where(deviation > 0, deviation, 1.0)
    return result


EFFORT = 6  # trials of the local search per small tuple: enough for the best published losses on UCI Adult


@dataclass(frozen=True, kw_only=True)
class Search:
    """The effort and time limit of the local search of ``k_member``.

    Attributes:
        effort: trials for each tuple with fewer than k rows.
        seconds: stop after this time with the best classes so far.  The first classes are always completed.
    """

    effort: int = EFFORT
    seconds: float = math.inf

    def __post_init__(self) -> None:
        if parse_integer(self.effort, "the effort is a whole number of trials") < 0:
            raise InputError("the effort is 0 trials or more", culprit=self.effort)
        if not isinstance(self.seconds, int | float) or not self.seconds >= 0:
            raise InputError("the seconds to search are 0 or more", culprit=self.seconds)


UNTIL_DONE = Search()


class Cut(StrEnum):
    """A rule for Mondrian's cuts."""

    GREEDY = "greedy"
    BALANCED = "balanced"
    RELAXED = "relaxed"
    STRICT = "strict"
    IN_ORDER = "in-order"


_CUTTERS: Mapping[Cut, Cutter] = {
    Cut.GREEDY: mondrian_cuts.greedy,
    Cut.BALANCED: mondrian_cuts.balanced,
    Cut.RELAXED: mondrian_cuts.relaxed,
    Cut.STRICT: mondrian_cuts.strict,
    Cut.IN_ORDER: mondrian_cuts.in_order,
}


def mondrian(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    criteria: Sequence[Criterion],
    keep: Sequence[str | Keep] = (),
    cut: Cut = Cut.GREEDY,
) -> Anonymized:
    """Recode by cutting the space in two (LeFevre et al. 2006).  No row is suppressed; no differential privacy.

    Args:
        vault: the table.
        quasi: columns that an attacker may know.  A given hierarchy supplies the cells, otherwise cells are intervals.
        criteria: conditions on every published class, without a population.  The relaxed cut accepts no condition on
            sensitive values, because rows of a tuple are assigned to classes at random.
        keep: columns to publish unchanged.  A quasi-identifier among them is not generalized, but the criteria count
            it: rows that differ in it share no class.
        cut: rule for the position of a cut; greedy loses least.

    Raises:
        InputError: an argument is invalid; the message names it.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: the whole table as one class does not satisfy the criteria.
    """
    refuse_no_vault(vault)
    expect_all(criteria, Criterion, CRITERIA_WANTED)
    expect(cut, Cut, "the cut is one of sf.anonymize.Cut")
    unchanged = UnchangedColumns.parse(keep)
    request = AnonymizationRequest(
        "mondrian", read_quasi(quasi, vault.domain, unchanged), tuple(criteria), "0", {"cut": cut.value}
    )
    _refuse(request, sensitive_allowed=cut is not Cut.RELAXED)

    def decide() -> Decision:
        data = microdata(cast(Recodable, vault.encoded), request.quasi, request.criteria)
        check_criteria(request.criteria, data)
        space = _space(vault, data, request.quasi)
        partition = _divided(space, _blocks(data, request.quasi), _cutting(data, request, cut))
        return local_decision(data, space, partition, request=request, domain=vault.domain)

    return disclose(vault, request, unchanged, decide)


def k_member(
    vault: Vault,
    *,
    quasi: Sequence[str | Quasi],
    k: int | KAnonymity,
    keep: Sequence[str | Keep] = (),
    search: Search = UNTIL_DONE,
    watch: Callable[[str], None] | None = None,
) -> Anonymized:
    """Recode locally by k-member clustering and local search, with little loss.  It has no differential privacy.

    Args:
        vault: the table.
        quasi: columns that an attacker may know.  A given hierarchy supplies the cells, otherwise cells are intervals.
        k: minimum units of a class, or minimum rows with ``KAnonymity(k, count=CountedIn.ROWS)``.
        keep: columns to publish unchanged.  A quasi-identifier among them is not generalized, but the criteria count
            it: rows that differ in it share no class.
        search: effort and time limit of the local search.  With a time limit, each run gives other classes.  A repeated
            request returns the journaled release, but do not publish two releases of the same rows.
        watch: receives the name of each step before it starts; large tables take minutes.

    Raises:
        InputError: an argument is invalid; the message names it.
        DomainError: a hierarchy or attribute is wrong.
        InfeasibleError: the table has fewer than k rows.
    """
    refuse_no_vault(vault)
    expect(search, Search, "a search is a Search(...)")
    unchanged, criterion = UnchangedColumns.parse(keep), k if isinstance(k, KAnonymity) else KAnonymity(k)
    limited = {} if math.isinf(search.seconds) else {"seconds": search.seconds}
    request = AnonymizationRequest(
        "k-member", read_quasi(quasi, vault.domain, unchanged), (criterion,), "0", {"effort": search.effort, **limited}
    )
    _refuse(request, sensitive_allowed=False)

    def decide() -> Decision:
        data = microdata(cast(Recodable, vault.encoded), request.quasi, request.criteria)
        check_criteria(request.criteria, data)
        space = _space(vault, data, request.quasi)
        # the same table and question give the same classes, whatever is kept, so that a repeat reveals no more
        rng = generator(_seed(vault.encoded.version, request.question(NONE_UNCHANGED)))
        blocks = _blocks(data, request.quasi)
        ends = monotonic() + search.seconds

        def divide(tuples: Integers, part: Space) -> Partition:
            seconds = max(ends - monotonic(), 0.0) * len(tuples) / len(data.counts)
            return k_member_partition(part, k=criterion.k, effort=search.effort, rng=rng, seconds=seconds, watch=watch)

        partition = _divided(space, blocks, _dealing(data, request, divide))
        decision = local_decision(data, space, partition, request=request, domain=vault.domain)
        if not limited:
            return decision
        clock = {"seconds": search.seconds, "stopped": partition.stopped}
        return replace(decision, facts={**decision.facts, "search": clock})

    return disclose(vault, request, unchanged, decide)


def _seed(version: str, request: ReleaseRequest) -> int:
    """Return the seed of a search.  Its text is fixed, because another seed would give other classes."""
    fixed = f"Request(family={request.family!r}, method={request.method!r}, parameters={request.parameters!r})"
    return int.from_bytes(hashlib.sha256(f"{version} {fixed}".encode()).digest()[:8], "big")


def microaggregate(
    vault: Vault, *, quasi: Sequence[str], k: int | KAnonymity, keep: Sequence[str | Keep] = ()
) -> Anonymized:
    """Group close rows (MDAV), with k to 2k - 1 per group, and publish the means of the groups.

    The release has no differential privacy.  Distances are Euclidean, after division of every attribute by its standard
    deviation.  Missing and unknown values have no mean, so their rows are suppressed.

    Args:
        vault: the table.
        quasi: numeric columns that an attacker may know.
        k: minimum units of a group, or minimum rows with ``KAnonymity(k, count=CountedIn.ROWS)``.
        keep: columns to publish unchanged.  A quasi-identifier among them is not generalized, but the criteria count
            it: rows that differ in it share no class.

    Raises:
        InputError: an argument is invalid, or an attribute is not numeric.
        DomainError: an attribute does not exist.
        InfeasibleError: the table has fewer than k rows.
    """
    refuse_no_vault(vault)
    expect_all(quasi, str, "quasi-identifiers are a list of names")
    unchanged, criterion = UnchangedColumns.parse(keep), k if isinstance(k, KAnonymity) else KAnonymity(k)
    for name in quasi:
        if not isinstance(attribute := vault.domain[name], Integer | Real):
            held = "categories" if isinstance(attribute, Categorical) else "dates"
            raise InputError(f"{name!r} has {held}, which have no mean; use k_member", culprit=name)
    known = (_with_mean(each, vault.domain[each.name]) for each in read_quasi(quasi, vault.domain, unchanged))
    request = AnonymizationRequest("microaggregate", tuple(known), (criterion,), "0", {})

    def decide() -> Decision:
        data = microdata(cast(Recodable, vault.encoded), request.quasi, request.criteria)
        check_criteria(request.criteria, data)
        space = _space(vault, data, request.quasi)
        values = positions(space)
        standard = standardised(values, space.counts)

        def divide(tuples: Integers, part: Space) -> Partition:
            return mdav_partition(standard[tuples], part.counts, k=criterion.k)

        groups = _divided(space, _blocks(data, request.quasi), _dealing(data, request, divide))
        names = [tuple(f"{mean:g}" for mean in each) for each in means(values, groups)]
        return local_decision(data, space, groups, request=request, domain=vault.domain, names=names)

    return disclose(vault, request, unchanged, decide)


Divide: TypeAlias = Callable[[Integers, Space], Partition]
"""Forms classes from some tuples and the space of these tuples."""


def _cutting(data: Microdata, request: AnonymizationRequest, cut: Cut) -> Divide:
    """Return the division by Mondrian's cuts.  All of its classes satisfy the criteria."""
    least = max(each.least_rows for each in request.criteria)
    if cut is Cut.RELAXED:  # splits tuples at random, so only k-anonymity is accepted
        relaxed = partial(mondrian_cuts.partition, cutter=mondrian_cuts.relaxed, rule=Rule(least))
        return _dealing(data, request, lambda _, part: relaxed(part))
    every = finest(data)
    sizes_alone = all(isinstance(each, KAnonymity) for each in request.criteria)

    def publishable(tuples: Integers, rows: Integers) -> bool:
        one_class = KeyClasses(np.zeros(len(tuples), dtype=np.int64), np.zeros(1, dtype=np.int64))
        one = replace(every.part(tuples).merge(one_class), counts=rows.sum(keepdims=True))
        return bool(safe(request.criteria, one)[0])

    def divide(tuples: Integers, part: Space) -> Partition:
        rule = Rule(least, lambda region: publishable(tuples[region.tuples], region.rows))
        if not rule.allows(Region(np.arange(len(tuples)), part.counts)):
            raise _indivisible(request)
        if cut is Cut.GREEDY and sizes_alone and data.units is None:
            return greedy_partition(part, least=least)  # the same classes, computed for many regions at once
        return mondrian_cuts.partition(part, cutter=_CUTTERS[cut], rule=rule)

    return divide


def _dealing(data: Microdata, request: AnonymizationRequest, divide: Divide) -> Divide:
    """Return a division into classes of k by ``divide``, which may split the rows of a tuple over classes.

    The division raises an InfeasibleError if its tuples have fewer than k rows or units.
    """
    k, held = max(each.least_rows for each in request.criteria), data.units

    def by_rows(tuples: Integers, part: Space) -> Partition:
        if part.counts.sum() < k:
            raise _indivisible(request)
        return divide(tuples, part)

    if held is None:
        return by_rows
    _, units = np.unique(held.units, return_inverse=True)
    sole = np.bincount(units, weights=held.rows) == 1

    def by_units(tuples: Integers, part: Space) -> Partition:
        number = np.full(len(data.counts), -1)
        number[tuples] = np.arange(len(tuples))
        here = number[held.tuples] >= 0
        homes = Homes.from_pairs(number[held.tuples[here]], units[here], part.counts, sole)
        at_home = tuples[homes.weights > 0]
        return partition_units(part, homes, k=k, divide=lambda homes_alone: by_rows(at_home, homes_alone))

    return by_units


def _blocks(data: Microdata, quasi: Sequence[Quasi]) -> list[Integers]:
    """Return the blocks of tuples that may share a class: tuples with equal cells of unchanged quasi-identifiers."""
    unchanged = [place for place, each in enumerate(quasi) if each.unchanged]
    codes = [data.codes[:, place] for place in unchanged] or [np.zeros(len(data.counts), dtype=np.int64)]
    classes = group(pack(codes, [int(column.max(initial=0)) + 1 for column in codes])).classes
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(classes[order])) + 1)


def _divided(space: Space, blocks: Sequence[Integers], divide: Callable[[Integers, Space], Partition]) -> Partition:
    """Return the classes of all blocks.  ``divide`` forms the classes of one block from its tuples and its space."""
    groups: list[Group] = []
    stopped = False
    for tuples in blocks:
        partition = divide(tuples, space.part(tuples, space.counts[tuples]))
        ends = np.searchsorted(partition.classes, np.arange(1, partition.size))
        groups += zip(np.split(tuples[partition.tuples], ends), np.split(partition.rows, ends), strict=True)
        stopped = stopped or partition.stopped
    return replace(Partition.from_groups(groups), stopped=stopped)


def _indivisible(request: AnonymizationRequest) -> InfeasibleError:
    criteria = " and ".join(map(str, request.criteria))
    names = ", ".join(each.name for each in request.quasi if each.unchanged)
    if not names:
        return InfeasibleError(f"the whole table as one class does not satisfy {criteria}", culprit=request.criteria)
    return InfeasibleError(
        f"rows that have equal values of the kept {names} do not satisfy {criteria}, even as one class; keep fewer "
        "quasi-identifiers, or use the optimal search with a suppression limit",
        culprit=request.criteria,
    )


def _with_mean(quasi: Quasi, attribute: Attribute) -> Quasi:
    """Return the quasi-identifier with a policy that suppresses rows without a number."""
    return quasi if attribute.size == attribute.declared else replace(quasi, missing=Missing.SUPPRESS)


def _space(vault: Vault, data: Microdata, quasi: Sequence[Quasi]) -> Space:
    scales = [each.scale(vault.domain[each.name]) for each in quasi]
    return Space.embed(data, scales, weights=[each.weight for each in quasi])


def _refuse(request: AnonymizationRequest, *, sensitive_allowed: bool) -> None:
    if not request.criteria:
        raise InputError("name at least one criterion, such as k-anonymity", culprit=request)
    for criterion in request.criteria:
        if criterion.population is not None:
            raise InputError(
                f"{request.method} does not look at a population; use the optimal search", culprit=criterion
            )
        if criterion.sensitive is not None and not sensitive_allowed:
            raise InputError(
                f"{request.method} with this cut deals equal rows to several classes and cannot promise {criterion};"
                " use another cut",
                culprit=criterion,
            )
