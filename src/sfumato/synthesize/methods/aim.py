"""AIM as published: one marginal per round, chosen by the exponential mechanism, at an annealed loss.

The method is Algorithm 2 of McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", with 16 rounds per attribute and a tenth of each round's loss for selection.

1. All columns are measured with equal noise, at 9/160 of the loss (Algorithm 3).
2. The candidates are the marginals inside those of the workload, weighted by the attributes that they share with it.
   A candidate fits if the junction tree stays below the cap times the share of the loss that is spent after the round.
3. The exponential mechanism selects by weight x (distance - expected noise), and the selected marginal is measured.
4. If the measurement moved the model by less than the expected noise, the noise of later rounds is halved (Algorithm
   4).  If at most two rounds remain, one takes the rest.

Six things differ from the paper.  The number of rows is counted first unless it is public.  All columns are measured,
even if the workload has only some of them.  Codes are merged if noise hides their counts, so that cells are groups.
Candidates have at most ``MOST_WAYS`` attributes, and the largest tables are left out if the vault cannot count all
candidates together.  Distances of larger marginals outside all cliques are computed on a sample of the model.  The
mean positions of numbers in wide cells are measured.

Under pure epsilon, the noise is discrete Laplace.  The losses of selections and measurements add up to the whole loss,
exactly, under epsilon and under rho.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Unpack

import numpy as np

from sfumato.domain import Domain
from sfumato.model.junction_tree import Clique, Triangulation
from sfumato.model.row_sampling import sample_model
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.synthesize.budget_allocation import BudgetSplit, RowTotal, fraction
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.initial_marginals import (
    Fit,
    OneWayMarginals,
    count_share,
    measure_one_way,
    refuse_undividable,
)
from sfumato.synthesize.marginal_selection import (
    SizeLimits,
    affordable,
    comparable,
    reference,
    remeasure,
    size_limits,
)
from sfumato.synthesize.methods.batched import least_rows, marginals_request, models_whole_table, without_batched_limits
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.synthesize.synthesis_method import Option, PlannedRelease, RankedMethod, SynthesisMethod, Task
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.contribution import contribution
from sfumato.vault.interface import Mechanisms, StatedLoss, VaultInterface, stated_loss, states_loss
from sfumato.vault.measurables import Distance
from sfumato.vault.scores import MarginalErrors
from sfumato.workload.counting_queries import Marginals
from sfumato.workload.named_marginals import relevant, workload_cliques

_ROUNDS_AN_ATTRIBUTE = 16
RECORDED = "aim-2022"
"""The name of the method in the journal: an entry ``aim`` is by the two-round method, which had this name."""

SELECTION = Fraction(1, 10)
"""Share of a round's loss for selection; the rest measures."""

MOST_WAYS = 6
"""Largest number of attributes of a candidate."""

_COMPARED = 1 << 26  # cells of all candidates together, half of the vault's limit


@states_loss
def aim(
    vault: VaultInterface,
    *,
    total: RowTotal,
    workload: Marginals,
    limits: SizeLimits | None = None,
    zeros: Sequence[Zeros] = (),
    **stated: Unpack[StatedLoss],
) -> Synthetic:
    """Release a graphical model fitted to marginals chosen one at a time, and rows.

    :func:`sfumato.synthesize.methods.batched.batched` describes the arguments and errors.
    """
    loss = stated_loss(stated)
    task = Task(loss=loss, total=total, workload=workload, limits=size_limits(limits), zeros=zeros)
    return AIM.release(vault, task)


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    loss, total, limits, zeros = task.loss, task.total, task.limits, task.zeros
    limits.refuse_for("aim")
    refuse_undividable(domain, loss)
    workload = task.marginals()
    return PlannedRelease(
        request=replace(marginals_request(domain, RECORDED, task), former_method="annealed", displaced_method="aim"),
        run=lambda mechanisms: run_aim(mechanisms, loss, total, workload, limits=limits, zeros=zeros),
        model=Graphical,
    )


def _estimate(domain: Domain, task: Task) -> RankedMethod | None:
    if not models_whole_table(domain, task):
        return None
    return RankedMethod(
        synthesizer=AIM,
        task=without_batched_limits(task),
        error=math.inf,
        rows_needed=least_rows(domain, task.loss, task.total),
        reason="noise on single columns",
        left_out="it measures one marginal after another until its loss is used up",
    )


def run_aim(
    mechanisms: Mechanisms,
    loss: Loss,
    total: RowTotal,
    workload: Marginals,
    *,
    limits: SizeLimits,
    zeros: Sequence[Zeros] = (),
) -> Graphical:
    """Run AIM as published through ``mechanisms``, in exact shares of ``loss``."""
    split = BudgetSplit(loss.divisible, contribution(mechanisms.domain).rows)
    rounds = _ROUNDS_AN_ATTRIBUTE * len(mechanisms.domain)
    one_way = Fraction(len(mechanisms.domain), rounds) * (1 - SELECTION) * (1 - count_share(total))
    halved = 2 if isinstance(split.loss, Epsilon) else 4  # factor of the loss that halves the noise
    columns = OneWayMarginals(share=one_way, as_published=True)
    fit = measure_one_way(mechanisms, split, total, columns, zeros=zeros)
    candidates = closure(mechanisms, fit, workload, limits)
    random = mechanisms.generator()
    step = Fraction(1, rounds)
    while split.left > 0:
        if split.left <= 2 * step:  # two rounds or less remain: one takes the rest
            step = split.left
        measuring = step * (1 - SELECTION)
        within = _within(fit, candidates, int(limits.cells * (1 - split.left + step)))
        if not within:
            return remeasure(mechanisms, fit, split, split.take(split.left)).released(mechanisms.domain)
        errors = selection_scores(fit, within, split.mean_absolute_noise(float(measuring)), random)
        chosen = errors.distances[mechanisms.select(errors, split.take(step * SELECTION))].attributes
        before = fit.model.expected(chosen)
        fit = fit.with_measurements(mechanisms.measure([fit.question(chosen)], split.take(measuring)))
        moved = float(np.abs(fit.model.expected(chosen) - before).sum())
        if moved <= split.mean_absolute_noise(float(measuring)) * before.size:
            step = halved * step  # noise hid the remaining structure: halve it
    return fit.released(mechanisms.domain)


def closure(mechanisms: Mechanisms, fit: Fit, workload: Marginals, limits: SizeLimits) -> dict[Clique, int]:
    """Return the marginals of at most ``MOST_WAYS`` attributes inside those of the workload, with their weights."""
    cliques = workload_cliques(workload, mechanisms.domain)
    ways = range(1, min(MOST_WAYS, max(map(len, cliques))) + 1)
    weights = {clique: weight for size in ways for clique, weight in relevant(cliques, size).items()}
    small = comparable(affordable(list(weights), fit, limits), mechanisms.domain, _COMPARED)
    return {clique: weights[clique] for clique in small}


def _within(fit: Fit, candidates: dict[Clique, int], most: int) -> dict[Clique, int]:
    """Return the candidates that fit into the junction tree, and all one-way marginals."""
    present = Triangulation((factor.attributes for factor in fit.model.factors), fit.model.sizes)
    return {
        clique: weight
        for clique, weight in candidates.items()
        if len(clique) == 1 or fit.model.tree.holder(clique) is not None or present.fits(clique, most)
    }


def selection_scores(
    fit: Fit, candidates: dict[Clique, int], noise: float, random: np.random.Generator
) -> MarginalErrors:
    """Return the scores weight x (distance - expected noise) for the selection mechanism."""
    sampled = sample_model(fit.model, random) if any(len(clique) > 2 for clique in candidates) else {}  # noqa: PLR2004
    distances = tuple(
        Distance(clique, reference(fit.model, clique, sampled), fit.groups(clique)) for clique in candidates
    )
    return MarginalErrors(
        distances,
        tuple(map(Fraction, candidates.values())),
        tuple(fraction(noise * distance.reference.size) for distance in distances),
    )


AIM = SynthesisMethod(
    name="aim",
    summary="one marginal a round, as published by McKenna et al. (2022), to compare methods",
    options=frozenset({Option.MARGINALS, Option.WAY, Option.ZEROS}),
    plan=_plan,
    estimate=_estimate,
    noise_of="batched",
    most_columns=MOST_WAYS,
)
