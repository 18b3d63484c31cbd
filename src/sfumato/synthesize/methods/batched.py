"""The batched method: measure the marginals that the model gets most wrong, many at a time, and fit again.

The method has the loop of AIM (McKenna, Mullins, Sheldon and Miklau 2022): fit a model, score the candidates by their
distance from it, measure, and fit again.  AIM chooses one marginal per round by the exponential mechanism.  Here a
round scores all candidates in one noisy vector and measures many of them.  There are two rounds: pairs first, then
triples of attributes.  Marginals that the workload names are always measured.  Pairs that the junction tree has no room
for are measured in the last round, and sampled rows are tuned to them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Unpack

import numpy as np

from sfumato.domain import Domain, Role
from sfumato.model.junction_tree import CellBudget, Clique, Triangulation
from sfumato.model.row_sampling import sample_model
from sfumato.privacy.loss import Loss, plain
from sfumato.synthesize import cell_positions, weighted_totals
from sfumato.synthesize.budget_allocation import (
    BudgetSplit,
    PublicTotal,
    RowTotal,
    assumed_rows,
    describe_total,
    fraction,
    refuse_wrong_total,
)
from sfumato.synthesize.graphical import EstimatedTable, Graphical
from sfumato.synthesize.initial_marginals import (
    Fit,
    OneWayMarginals,
    count_share,
    measure_one_way,
    one_way_share,
    prior_marginals,
    refuse_fine,
    refuse_undividable,
)
from sfumato.synthesize.marginal_selection import (
    UNSCORED,
    MeasuredMarginal,
    SizeLimits,
    coarsened_marginals,
    measure_selected,
    reference,
    remeasure,
    score,
    select_marginals,
    size_limits,
    small_enough,
    with_structural_zeros,
    with_visible_cells,
)
from sfumato.synthesize.stated_errors import PAIR_SHARE, measure_pair_distances
from sfumato.synthesize.structural_zeros import Zeros, refuse_impossible, without_implied
from sfumato.synthesize.synthesis_method import Option, PlannedRelease, RankedMethod, SynthesisMethod, Task
from sfumato.synthesize.synthetic import Synthetic, derived_columns, describe_zeros, rows_for
from sfumato.vault.contribution import contribution
from sfumato.vault.interface import (
    Mechanisms,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.workload.counting_queries import Marginals
from sfumato.workload.named_marginals import (
    TargetMarginals,
    column_weights,
    fit_together,
    most_cuts,
    named_marginals,
    workload_cliques,
)

ROUNDS = ((2, Fraction(2, 5), Fraction(3, 10)), (3, Fraction(1), Fraction(1)))
"""For each round: largest number of attributes of its candidates, share of the remaining loss, share of the cell
cap.
"""

SCORES = Fraction(7, 100)
"""Share of a round's loss for its scores."""


OUTSIDE = 2
"""Largest number of attributes of a marginal that the last round measures although the junction tree has no room.

The rows are tuned to these marginals.
"""

DENSE = 8.0
"""Mean number of people per cell of a named marginal, in deviations of noise, from which it is measured first."""

LEAST_NAMED = 1e-3
"""Least part of the remaining loss that named marginals take at first."""


@states_loss
def batched(
    vault: VaultInterface,
    *,
    total: RowTotal,
    workload: Marginals,
    limits: SizeLimits | None = None,
    zeros: Sequence[Zeros] = (),
    **stated: Unpack[StatedLoss],
) -> Synthetic:
    """Release a graphical model of the whole table, fitted to adaptively chosen marginals, and rows.

    Args:
        vault: the protected table.
        total: where the number of rows comes from; ``NoisyTotal`` adds a rough count at half a percent of the loss.
        workload: the marginals that the rows should preserve.
        limits: limits on the size of inference.
        zeros: combinations that are impossible by their meaning.
        **stated: the whole loss: ``loss``, or ``epsilon`` with or without ``delta``.  Noise is discrete Gaussian under
            rho and (epsilon, delta), which is far more accurate for many marginals than the discrete Laplace noise of
            pure epsilon.

    Raises:
        QueryError: the workload or a table of zeros does not fit the domain.
        DomainError: an attribute is not in the domain.
        SizeError: the structural zeros alone exceed the limits.
        InfeasibleError: the structural zeros leave no cell possible.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    task = Task(loss=loss, total=total, workload=workload, limits=size_limits(limits), zeros=zeros)
    return BATCHED.release(vault, task)


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    loss, total, limits, zeros = task.loss, task.total, task.limits, task.zeros
    refuse_undividable(domain, loss)
    workload = task.marginals()
    most_cuts(domain, named_marginals(workload, domain), cells=limits.cells, marginal=limits.marginal)  # may refuse
    return PlannedRelease(
        request=replace(marginals_request(domain, "batched", task), former_method="aim"),
        run=lambda mechanisms: run_batched(mechanisms, loss, total, workload, limits=limits, zeros=zeros),
        model=Graphical,
    )


def _estimate(domain: Domain, task: Task) -> RankedMethod | None:
    if not models_whole_table(domain, task):
        return None
    noise = expected_error(domain, task.loss, task.total, task.marginals())
    return RankedMethod(
        synthesizer=BATCHED,
        task=task,
        error=math.inf if noise is None else noise,
        rows_needed=least_rows(domain, task.loss, task.total),
        reason="noise on single columns, and on every marginal of the workload if it measures all of them",
        left_out="it measures marginals of at most three attributes, and its model answers the others"
        if noise is None
        else "its model answers marginals that it seems to know better than noise would, or has no room for",
    )


def run_batched(
    mechanisms: Mechanisms,
    loss: Loss,
    total: RowTotal,
    workload: Marginals,
    *,
    limits: SizeLimits,
    zeros: Sequence[Zeros],
) -> Graphical:
    """Run the method through ``mechanisms``, in exact shares of ``loss``."""
    split = BudgetSplit(loss.divisible, contribution(mechanisms.domain).rows)
    # read before noise is drawn, so that a failure of the ledger costs nothing
    stored = mechanisms.stored_marginals() if limits.prior_marginals else ()
    pair_loss = split.take(PAIR_SHARE) if limits.distance_bounds else None
    targets = TargetMarginals.of_workload(workload, mechanisms.domain)
    columns = OneWayMarginals(
        importance=_importance(mechanisms.domain, workload, limits),
        pairs=least_pairs(mechanisms.domain, workload),
        cuts=most_cuts(mechanisms.domain, targets.named, cells=limits.cells, marginal=limits.marginal),
        for_children=bool(limits.leading),
    )
    fit = measure_one_way(mechanisms, split, total, columns, zeros=zeros)
    prior = prior_marginals(mechanisms.domain, fit, stored, loss)
    used = prior.informative(fit, limits.cells)
    fit = fit.with_observations(used)
    outside: tuple[EstimatedTable, ...] = ()
    if (weight := mechanisms.domain.in_role(Role.WEIGHT)) is not None:
        fit = weighted_totals.measure_totals(mechanisms, fit, weight, split)
    if split.left > 0:
        fit, outside = _in_rounds(mechanisms, fit, targets, zeros, split=split, limits=limits)
    if split.left > 0:
        fit = remeasure(mechanisms, fit, split, split.take(split.left))
    fit = fit.with_observations(prior.within_model(fit, used))
    model = replace(fit.released(mechanisms.domain).with_tables(outside), reused=prior.entries)
    return (
        model if pair_loss is None else replace(model, distances=measure_pair_distances(mechanisms, model, pair_loss))
    )


def least_pairs(domain: Domain, workload: Marginals) -> int:
    """Return the minimum number of measured marginals of several columns: the named ones, a tree, or all.

    Totals of weights are measured from the remaining loss.  So with weights the result is 0, and columns never take the
    whole loss.
    """
    if domain.in_role(Role.WEIGHT):
        return 0
    if named := named_marginals(workload, domain):
        return min(len(named), len(domain) - 1)
    if (ways := workload.all_ways(domain)) > 1 and math.comb(len(domain), ways) >= len(domain):
        return len(domain) - 1  # without a list of all marginals
    several = sum(len(clique) > 1 for clique in workload_cliques(workload, domain))
    return min(several, len(domain) - 1)


def _importance(domain: Domain, workload: Marginals, limits: SizeLimits) -> tuple[float, ...]:
    """Return the weight of each column's error: that of its named marginal times that of a leading column."""
    weights = zip(column_weights(workload, domain), limits.importance(domain.names), strict=True)
    return tuple(weight * leading for weight, leading in weights)


def _measure_named(
    mechanisms: Mechanisms, fit: Fit, targets: TargetMarginals, named: Collection[Clique], split: BudgetSplit
) -> tuple[Fit, dict[Clique, MeasuredMarginal]]:
    """Measure named marginals, and return the fit and their shares of the loss.

    They get the part of the remaining loss that they would get next to as many other marginals as a round may measure,
    times the first round's share.  Later rounds measure them again, until all marginals have the shares of their
    weights.  Without other marginals they take all of it.
    """
    if not named:
        return fit, {}
    pairs = [(clique, weight) for clique, weight in targets.pairs.items() if clique not in targets.named]
    many = min(len(pairs), 2 * len(mechanisms.domain))
    deviation = split.deviation(float(split.left) / (len(targets.named) + many))
    tables = coarsened_marginals(fit, mechanisms.domain, named, deviation)
    visible = max(1.0, fit.model.total / deviation)  # noise hides further cells, which take no larger share
    groups = fit.model.sizes
    others = [weight * min(visible, math.prod(groups[name] for name in clique)) for clique, weight in pairs]
    rest = many / max(1, len(others)) * sum(map(split.allocation_weight, others))
    sizes = [targets.named[table.attributes] * min(float(table.cells), visible) for table in tables]
    parts = [split.allocation_weight(size) for size in sizes]
    part = max(LEAST_NAMED, float(ROUNDS[0][1]) * sum(parts) / (sum(parts) + rest))
    share = split.left * (fraction(part) if many else 1)
    taken = {
        table.attributes: MeasuredMarginal(table.runs, size, float(share) * part / sum(parts))
        for table, size, part in zip(tables, sizes, parts, strict=True)
    }
    fit = _with_expectations(mechanisms, fit, named)
    return measure_selected(mechanisms, fit, taken, split.take(share))[0], taken


def _with_expectations(mechanisms: Mechanisms, fit: Fit, named: Collection[Clique]) -> Fit:
    """Return the fit with the model's counts of larger named marginals, towards which their noisy counts are shrunk."""
    wide = frozenset(filter(_is_wide, named))
    sampled = sample_model(fit.model, mechanisms.generator()) if wide else {}
    shapes = {clique: [fit.model.sizes[name] for name in clique] for clique in wide}
    counts = {clique: reference(fit.model, clique, sampled).reshape(shape) for clique, shape in shapes.items()}
    expected = {clique: table.astype(np.float64) for clique, table in counts.items()}
    return replace(fit, prior_expectations={**fit.prior_expectations, **expected}, sparse=fit.sparse | wide)


def _is_wide(clique: Clique) -> bool:
    return len(clique) > 2  # noqa: PLR2004


def _named_by_round(fit: Fit, targets: TargetMarginals, split: BudgetSplit) -> tuple[list[Clique], list[Clique]]:
    """Return the named marginals to measure before the first round and before the second.

    The first are pairs, and larger marginals whose cells have :data:`DENSE` deviations of people on average.  A sparser
    marginal needs the measured pairs, towards which its noisy counts are shrunk.
    """
    deviation = split.deviation(float(split.left) / (len(targets.named) + 2 * len(fit.coarsenings)))
    sizes = fit.model.sizes
    first = [
        clique
        for clique in targets.named
        if not _is_wide(clique)
        or fit.model.total >= DENSE * deviation * math.prod(sizes[name] for name in clique)
        or not targets.pairs.keys() - targets.named.keys()
    ]
    return first, sorted(targets.named.keys() - set(first))


def _in_rounds(
    mechanisms: Mechanisms,
    fit: Fit,
    targets: TargetMarginals,
    zeros: Sequence[Zeros],
    *,
    split: BudgetSplit,
    limits: SizeLimits,
) -> tuple[Fit, tuple[EstimatedTable, ...]]:
    """Measure in the rounds of :data:`ROUNDS`; return the fit, and the pairs for which its junction tree has no room.

    The second round charges no pair for cells in which the model has few people, because shrinkage removes their noise.
    """
    outside: tuple[EstimatedTable, ...] = ()
    interest: dict[Clique, float] = {}
    taken: dict[Clique, MeasuredMarginal] = {}
    pairs_only = targets.most <= ROUNDS[0][0]  # no larger tables: the second round repeats the first
    for (ways, part, cell_share), named in zip(ROUNDS, _named_by_round(fit, targets, split), strict=True):
        fit, measured = _measure_named(mechanisms, fit, targets, named, split)
        taken |= measured
        if not split.left:
            break
        candidates = _candidates(mechanisms, fit, targets, interest, ways=ways, limits=limits)
        candidates = without_implied(candidates, [each.attributes for each in fit.measured], zeros, fit.model.sizes)
        share = split.left * part
        many = min(len(candidates) + (len(taken) if pairs_only else 0), 2 * len(mechanisms.domain))
        deviation = split.deviation(float(split.left if pairs_only else share) / max(1, many))
        tables = with_structural_zeros(fit, zeros, coarsened_marginals(fit, mechanisms.domain, candidates, deviation))
        tables = with_visible_cells(fit, deviation, tables) if interest else tables
        scores = share * SCORES if candidates else Fraction(0)
        scored = score(mechanisms, fit, tables, loss=split.take(scores)) if candidates else UNSCORED
        interest |= {table.attributes: scored.distances[place] for place, table in enumerate(scored.tables)}
        chosen = select_marginals(
            scored,
            np.array([candidates[table.attributes] for table in scored.tables]),
            split=split,
            share=float(share - scores),
            cell_budget=_cell_budget(fit, targets.named, limits.cells, cell_share),
            taken=_repeated(fit, taken, deviation, always=taken if pairs_only else targets.named),
        )
        taken |= {clique: table.added_to(taken.get(clique)) for clique, table in chosen.items()}
        if chosen:
            fit, outside = measure_selected(mechanisms, fit, chosen, split.take(share - scores))
    return fit, outside


def _repeated(
    fit: Fit, taken: Mapping[Clique, MeasuredMarginal], deviation: float, *, always: Collection[Clique]
) -> dict[Clique, MeasuredMarginal]:
    """Return the measured tables that may be measured again: those of ``always``, and tables over finer cells."""
    tables = {clique: table.remeasured(fit.model.expected(clique), deviation) for clique, table in taken.items()}
    return {clique: table for clique, table in tables.items() if clique in always or table.runs != taken[clique].runs}


def expected_error(domain: Domain, loss: Loss, total: RowTotal, workload: Marginals) -> float | None:
    """Return the root mean squared noise on a cell of the workload, if all its marginals are measured; read no data.

    The row count, the scores and the one-way marginals take their shares first.  The share of one-way marginals depends
    on the row count, and is largest if the count is not public.  The result is None for a workload of all marginals of
    more than three attributes, because the method measures these only if they are named.

    The figure excludes the error of marginals that the method does not measure, because the model is closer than noise
    or has no room.  That error depends on the data.
    """
    split = BudgetSplit(loss.divisible, contribution(domain).rows)
    most = max(ways for ways, _, _ in ROUNDS)
    cliques = workload_cliques(workload, domain)
    named = named_marginals(workload, domain)
    if any(len(clique) > most and clique not in named for clique in cliques):
        return None
    after_count = float(1 - count_share(total))
    rows = total.count if isinstance(total, PublicTotal) else 1.0
    alone = max(map(len, cliques)) == 1  # they get the loss that larger tables would have taken
    one_way = after_count * (1.0 if alone else one_way_share(split, domain, rows))
    left = (after_count - float(cell_positions.share(domain)) - one_way) * float(1 - SCORES)
    codes = dict(zip(domain.names, domain.shape, strict=True))
    squares, cells = 0.0, 0.0
    for share, group in ((one_way, [c for c in cliques if len(c) == 1]), (left, [c for c in cliques if len(c) > 1])):
        sizes = np.array([math.prod(codes[name] for name in clique) for clique in group], dtype=np.float64)
        weighted = [named.get(clique, 1.0) * size for clique, size in zip(group, sizes.tolist(), strict=True)]
        parts = split.shares(weighted) if group else ()
        deviations = np.array([split.deviation(share * float(part)) for part in parts])
        squares += float((sizes * deviations**2).sum())
        cells += float(sizes.sum())
    return math.sqrt(squares / cells)


def _candidates(
    mechanisms: Mechanisms,
    fit: Fit,
    targets: TargetMarginals,
    interest: dict[Clique, float],
    *,
    ways: int,
    limits: SizeLimits,
) -> dict[Clique, float]:
    """Return the marginals of two to ``ways`` attributes that were not measured, with their weights.

    Weights are relative to the largest of the same number of attributes.  The published weights would prefer triples,
    whose noise is larger, to pairs.  At most ``limits.candidates`` of each size, with the largest known distances, are
    candidates.  The distance of a triple is the sum of its pairs' distances.
    """
    codes = dict(zip(mechanisms.domain.names, mechanisms.domain.shape, strict=True))
    candidates: dict[Clique, float] = {}
    for others in (targets.others[size] for size in range(2, ways + 1) if size in targets.others):
        fresh = others.without({table.attributes for table in fit.measured})
        cells = fresh.cells(codes), fresh.cells(fit.model.sizes)
        small = fresh.at(small_enough(*cells, limits, over_groups=fresh.places.shape[1] == 2))  # noqa: PLR2004
        if interest:
            small = small.at(np.argsort(-small.pair_sums(interest), kind="stable")[: limits.candidates])
        candidates |= small.by_name()
    return candidates


def _cell_budget(fit: Fit, named: Collection[Clique], cells: int, share: Fraction) -> CellBudget:
    """Return the budget of a junction tree of at most a share of the cells, or of its size with named marginals."""
    cliques = [*(factor.attributes for factor in fit.model.factors), *named]
    present = Triangulation(cliques, fit.model.sizes)
    return CellBudget(present, max(int(cells * share), present.cells), OUTSIDE if share == 1 else 0)


def refuse_loss(vault: VaultInterface, loss: Loss, total: RowTotal) -> None:
    """Refuse an invalid vault, and a loss that a graphical method cannot divide.

    Raises:
        InputError: the vault or the source of a row count is invalid.
        LossError: the loss is invalid, too small or too large.
    """
    refuse_no_vault(vault)
    refuse_wrong_total(vault.domain, loss, total)
    refuse_undividable(vault.domain, loss)


def models_whole_table(domain: Domain, task: Task) -> bool:
    """Return True if a task needs a model of the whole table.

    It needs one for marginals with structural zeros or weights, or if the marginals cover all attributes or overlap.
    A joint histogram is no alternative for overlapping marginals.  Five pairs with a common attribute have six
    attributes, and the noise of the joint cells, summed over the cells of a pair, would hide it.
    """
    if not isinstance(task.workload, Marginals):
        return False
    if not fit_together(domain, task.workload, cells=task.limits.cells, marginal=task.limits.marginal):
        return False
    named = [name for clique in task.workload.marginal_attributes(domain) for name in clique]
    chosen = bool(task.zeros) or bool(task.workload.weights)  # both are for models only
    return chosen or set(named) == set(domain.names) or len(set(named)) < len(named)


def without_batched_limits(task: Task) -> Task:
    """Return the task without the options that only ``batched`` supports: earlier marginals and bounds of pairs."""
    return replace(task, limits=replace(task.limits, prior_marginals=True, distance_bounds=False))


def marginals_request(domain: Domain, method: str, task: Task) -> ReleaseRequest:
    """Return the journal's question for a workload of marginals.

    Raises:
        QueryError: the workload has other queries, or zeros do not fit the domain.
        SizeError: the domain is too fine, or the zeros alone exceed the limits.
    """
    workload = task.marginals()
    refuse_fine(domain, task.limits.marginal)
    refuse_impossible(task.zeros, domain, task.limits.cells)
    parameters = {
        "workload": _describe_workload(workload),
        "total": describe_total(task.total),
        "limits": task.limits.describe(),
        "zeros": describe_zeros(task.zeros),
    }
    words = f"{rows_for(domain, workload, domain.names)}{derived_columns(task.zeros)}"
    return ReleaseRequest("synthesize", method, parameters, words)


def _describe_workload(workload: Marginals) -> dict[str, object]:
    """Return the workload for the journal.  Weights are left out if all are equal, so that old keys stay equal."""
    described: dict[str, object] = {"ways": workload.ways, "cliques": [list(clique) for clique in workload.cliques]}
    return described | ({"weights": [plain(weight) for weight in workload.weights]} if workload.weights else {})


def least_rows(domain: Domain, loss: Loss, total: RowTotal) -> float:
    """Return the rows that noise alone adds in a single column, on average over columns; read no data.

    Noise hides a table of fewer rows before any pair is measured.
    """
    split = BudgetSplit(loss.divisible, contribution(domain).rows)
    one_way = float(1 - count_share(total)) * one_way_share(split, domain, assumed_rows(total))
    sizes = split.column_sizes(domain.shape, assumed_rows(total))
    made_up = [
        size * split.mean_absolute_noise(one_way * float(part)) / 2
        for size, part in zip(sizes, split.shares(sizes), strict=True)
    ]
    return sum(made_up) / len(made_up)


BATCHED = SynthesisMethod(
    name="batched",
    summary="the marginals that its model gets most wrong, in two rounds, for tables of many columns",
    options=frozenset({Option.MARGINALS, Option.WAY, Option.ZEROS, Option.NO_REUSE, Option.BOUND_PAIRS}),
    plan=_plan,
    estimate=_estimate,
    weighs=True,
    most_columns=max(ways for ways, _, _ in ROUNDS),
)
