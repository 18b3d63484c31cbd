"""AIM as published: one marginal a round, chosen by the exponential mechanism, at an annealed loss.

McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for differentially
private synthetic data", Algorithm 4, with one-way marginals merged as everywhere here.  Slower than
:func:`sfumato.synthesize.aim.aim`, which measures in two batches: for comparison.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.model.simulation import generator
from sfumato.privacy.loss import Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.aim import describe
from sfumato.synthesize.beginning import State, begin, count_share
from sfumato.synthesize.division import Allowance, Division, fraction
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.growth import Limits, affordable, drawn, reference, relevant, wanted
from sfumato.synthesize.synthetic import Keeper, Synthetic, settle
from sfumato.synthesize.total import Total
from sfumato.synthesize.workload import Marginals
from sfumato.vault.doors import Doors
from sfumato.vault.questions import Distance, MarginalErrors
from sfumato.vault.vault import Request

ROUNDS_AN_ATTRIBUTE = 16
SELECTION = Fraction(1, 10)
"""Share of a round's loss that choosing takes; the rest measures."""


def annealed(
    vault: Keeper, *, loss: Loss, total: Total, workload: Marginals, limits: Limits | None = None
) -> Synthetic:
    """Release a graphical model fitted to marginals chosen one at a time, and rows.

    Args and errors are those of :func:`sfumato.synthesize.aim.aim`.
    """
    limits = limits or Limits()
    request = Request("synthesize", "annealed", describe(vault, total, workload, limits, ()))
    settled = vault.release(request, loss, lambda doors: anneal(doors, loss, total, workload, limits=limits).payload())
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def anneal(doors: Doors, loss: Loss, total: Total, workload: Marginals, *, limits: Limits) -> Graphical:
    """The method itself, through ``doors``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(totals.divisible(loss))
    division = Division(allowance.whole, doors.domain.unit.rows)
    rounds = ROUNDS_AN_ATTRIBUTE * len(doors.domain)
    one_way = Fraction(len(doors.domain), rounds) * (1 - count_share(total))
    state = begin(doors, allowance, total, share=one_way, zeros=())
    candidates = _candidates(doors, state, workload, limits)
    random = generator()
    step = Fraction(1, rounds)
    while allowance.left > 0:
        if allowance.left < 2 * step:  # less than two rounds are left: one takes it all
            step = allowance.left
        measuring = step * (1 - SELECTION)
        most = int(limits.cells * (1 - allowance.left + step))
        errors = _errors(state, _within(state, candidates, most), division.absolute(float(measuring)), random)
        chosen = errors.distances[doors.select(errors, allowance.take(step * SELECTION))].attributes
        before = state.model.expected(chosen)
        state = state.learn(doors.measure([state.question(chosen)], allowance.take(measuring)))
        moved = float(np.abs(state.model.expected(chosen) - before).sum())
        if moved <= division.absolute(float(measuring)) * before.size:
            step = 4 * step  # the noise hid what was left to learn: halve it
    return Graphical(doors.domain, state.coarsenings, state.model, state.measured)


def _candidates(doors: Doors, state: State, workload: Marginals, limits: Limits) -> dict[Clique, float]:
    """Marginals of one to three attributes inside those of the workload, with their weights."""
    cliques = wanted(workload, doors.domain)
    found: dict[Clique, float] = {}
    for ways in (1, 2, 3):
        weights = relevant(cliques, ways)
        kept = affordable(list(weights), doors.domain, state, limits)[: limits.candidates]
        found |= {clique: weights[clique] * ways / 3 for clique in kept}
    return found


def _within(state: State, candidates: dict[Clique, float], most: int) -> dict[Clique, float]:
    """Candidates that the junction tree has room for; one-way marginals always have."""
    present = [factor.attributes for factor in state.model.factors]
    return {
        clique: weight
        for clique, weight in candidates.items()
        if len(clique) == 1
        or state.model.tree.holder(clique) is not None
        or tree_cells([*present, clique], state.model.sizes) <= most
    }


def _errors(state: State, candidates: dict[Clique, float], noise: float, random: np.random.Generator) -> MarginalErrors:
    """Scores weight x (distance - expected noise), as the selection door takes them."""
    sampled = drawn(state.model, random) if any(len(clique) > 2 for clique in candidates) else {}  # noqa: PLR2004
    distances = tuple(
        Distance(clique, reference(state.model, clique, sampled), state.groups(clique)) for clique in candidates
    )
    return MarginalErrors(
        distances,
        tuple(fraction(weight) for weight in candidates.values()),
        tuple(fraction(noise * distance.reference.size) for distance in distances),
    )
