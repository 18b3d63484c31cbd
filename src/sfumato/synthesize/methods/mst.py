"""MST: a spanning tree of the strongest dependences, two attributes at a time.

The method follows McKenna, Miklau and Sheldon (2021), "Winning the NIST contest: a scalable and general approach to
differentially private synthetic data".  It measures all one-way marginals.  Then the exponential mechanism chooses
attributes - 1 pairs one by one, so that they form a spanning tree, and these pairs are measured.  Inference on a tree
takes almost no memory, so this method suits very wide tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Unpack

import numpy as np

from sfumato.domain import Domain, Role
from sfumato.errors import QueryError
from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.privacy.loss import Loss
from sfumato.synthesize.budget_allocation import BudgetSplit, RowTotal, describe_total
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import (
    Fit,
    OneWayMarginals,
    count_share,
    measure_one_way,
    refuse_fine,
    refuse_undividable,
)
from sfumato.synthesize.marginal_selection import (
    SizeLimits,
    affordable,
    comparable,
    measure_marginals,
    reference,
    remeasure,
    size_limits,
)
from sfumato.synthesize.methods.batched import least_rows, models_whole_table, without_batched_limits
from sfumato.synthesize.structural_zeros import Zeros, refuse_impossible
from sfumato.synthesize.synthesis_method import Option, PlannedRelease, RankedMethod, SynthesisMethod, Task
from sfumato.synthesize.synthetic import Synthetic, derived_columns, describe_zeros, rows_of
from sfumato.vault.contribution import contribution
from sfumato.vault.interface import Mechanisms, ReleaseRequest, StatedLoss, VaultInterface, stated_loss, states_loss
from sfumato.vault.measurables import Distance
from sfumato.vault.scores import MarginalErrors
from sfumato.workload.counting_queries import all_marginals

THIRD = Fraction(1, 3)

_PAIRS = all_marginals(2)  # MST chooses its pairs independently of the workload

UNBOUNDED = float("inf")
"""No limit on the count of a group of neighbors.

A tree measures a fixed number of pairs at any noise, so finer groups cost more than they gain
(docs/benchmarks/census.md).
"""

_COMPARED = 1 << 23  # cells of all pairs together: 64 MiB of exact counts that the vault caches between choices


@states_loss
def mst(
    vault: VaultInterface,
    *,
    total: RowTotal,
    limits: SizeLimits | None = None,
    zeros: Sequence[Zeros] = (),
    **stated: Unpack[StatedLoss],
) -> Synthetic:
    """Release a tree-shaped model of the whole table, and rows.

    A third of the loss (with the row count) goes to the one-way marginals, a third to choosing the pairs and a third to
    measuring them.  Pairs beyond the limits are left out, largest tables first.  An attribute without any remaining
    pair stays independent, so the result may be a forest.  Tables of structural zeros are added to the tree.

    Args:
        vault: the protected table.
        total: where the number of rows comes from; ``NoisyTotal`` adds a rough count at half a percent of the loss.
        limits: limits on the size of a pair, and of all pairs together with the tables of zeros.
        zeros: combinations that are impossible by their meaning.
        **stated: the whole loss: ``loss``, or ``epsilon`` with or without ``delta``.

    Raises:
        LossError, InputError: the loss or the source of a row count is invalid.
        QueryError: an attribute has a role, or ``batched`` would refuse the zeros.
        DomainError, SizeError, InfeasibleError: ``batched`` would refuse the zeros.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    task = Task(loss=loss, total=total, workload=_PAIRS, limits=size_limits(limits), zeros=zeros)
    return MST.release(vault, task)


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    limits, zeros = task.limits, task.zeros
    limits.refuse_for("mst")
    for role in Role:
        if name := domain.in_role(role):
            raise QueryError(
                f"mst takes no account of {name!r} as the {role}: its pairs follow from the tree; use batched, or "
                "leave the role out of the domain",
                culprit=name,
            )
    refuse_undividable(domain, task.loss)
    refuse_fine(domain, limits.marginal)
    refuse_impossible(zeros, domain, limits.cells)
    parameters = {"total": describe_total(task.total), "limits": limits.describe(), "zeros": describe_zeros(zeros)}
    return PlannedRelease(
        request=ReleaseRequest(
            "synthesize", "mst", parameters, f"{rows_of(domain, domain.names)}{derived_columns(zeros)}"
        ),
        run=lambda mechanisms: run_mst(mechanisms, task.loss, task.total, limits=limits, zeros=zeros),
        model=Graphical,
    )


def _estimate(domain: Domain, task: Task) -> RankedMethod | None:
    if not models_whole_table(domain, task):
        return None
    return RankedMethod(
        synthesizer=MST,
        task=without_batched_limits(task),
        error=math.inf,
        rows_needed=least_rows(domain, task.loss, task.total),
        reason="noise on single columns",
        left_out="it measures one pair fewer than there are attributes, and its tree answers all others",
    )


def run_mst(
    mechanisms: Mechanisms, loss: Loss, total: RowTotal, *, limits: SizeLimits, zeros: Sequence[Zeros] = ()
) -> Graphical:
    """Run MST through ``mechanisms``, in exact shares of ``loss``."""
    split = BudgetSplit(loss.divisible, contribution(mechanisms.domain).rows)
    rest = 1 - count_share(total)
    fit = measure_one_way(
        mechanisms, split, total, OneWayMarginals(rest * THIRD, max_group_deviations=UNBOUNDED), zeros=zeros
    )
    edges = _spanning_tree(mechanisms, fit, split, rest * THIRD, limits)
    if edges:
        shares = split.shares([float(_volume(fit, edge)) for edge in edges])
        fit = measure_marginals(mechanisms, fit, dict.fromkeys(edges), loss=split.take(split.left), shares=shares)
    else:
        fit = remeasure(mechanisms, fit, split, split.take(split.left))
    return fit.released(mechanisms.domain)


def _spanning_tree(
    mechanisms: Mechanisms, fit: Fit, split: BudgetSplit, share: Fraction, limits: SizeLimits
) -> list[Clique]:
    """Select at most attributes - 1 pairs without a cycle, by their distances from independence.

    Each selection takes an equal part of ``share``.
    """
    names = mechanisms.domain.names
    held = [factor.attributes for factor in fit.model.factors if len(factor.attributes) > 1]  # of structural zeros
    component = {name: index for index, name in enumerate(names)}  # components of the chosen pairs
    linked = reduce(_joined, held, {name: index for index, name in enumerate(fit.model.sizes)})  # and of the zeros
    scores = _distances(fit, _candidates(mechanisms, fit, limits))
    edges: list[Clique] = []
    while open_pairs := _pairs_that_fit(
        fit, held, [pair for pair in scores if component[pair[0]] != component[pair[1]]], linked, limits.cells
    ):
        one = Fraction(1)
        errors = MarginalErrors(
            tuple(scores[pair] for pair in open_pairs), (one,) * len(open_pairs), (Fraction(0),) * len(open_pairs)
        )
        chosen = open_pairs[mechanisms.select(errors, split.take(share / (len(names) - 1)))]
        edges.append(chosen)
        held.append(chosen)
        component, linked = _joined(component, chosen), _joined(linked, chosen)
    return edges


def _pairs_that_fit(
    fit: Fit, held: Sequence[Clique], pairs: Sequence[Clique], linked: dict[str, int], most: int
) -> list[Clique]:
    """Return the pairs that, each alone, keep the junction tree within ``most`` cells.

    A pair that closes no cycle becomes a separate clique.  For any other pair the tree is built.
    """
    used = _cells(fit, held)
    return [
        pair
        for pair in pairs
        if (used + _volume(fit, pair) if linked[pair[0]] != linked[pair[1]] else _cells(fit, [*held, pair])) <= most
    ]


def _joined(component: dict[str, int], clique: Clique) -> dict[str, int]:
    into, joined = component[clique[0]], {component[name] for name in clique}
    return {name: into if index in joined else index for name, index in component.items()}


def _cells(fit: Fit, cliques: Sequence[Clique]) -> int:
    return tree_cells(cliques, {name: fit.model.sizes[name] for clique in cliques for name in clique})


def _candidates(mechanisms: Mechanisms, fit: Fit, limits: SizeLimits) -> list[Clique]:
    pairs = affordable(list(combinations(mechanisms.domain.names, 2)), fit, limits)
    return comparable(pairs, mechanisms.domain, _COMPARED)


def _distances(fit: Fit, pairs: Sequence[Clique]) -> dict[Clique, Distance]:
    return {pair: Distance(pair, reference(fit.model, pair, {}), fit.groups(pair)) for pair in pairs}


def _volume(fit: Fit, clique: Sequence[str]) -> int:
    return int(np.prod([fit.model.sizes[name] for name in clique]))


MST = SynthesisMethod(
    name="mst",
    summary="a spanning tree of the strongest pairs of columns, for very wide tables",
    options=frozenset({Option.ZEROS}),
    plan=_plan,
    estimate=_estimate,
    noise_of="batched",
)
