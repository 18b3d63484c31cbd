"""AIM as published: one marginal a round, chosen by the exponential mechanism, at an annealed loss.

McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for differentially
private synthetic data": the candidates are the downward closure of the workload, weighted by what they share
with it; a tenth of a round's loss chooses, the rest measures; noise is halved where the model did not move.

Three things differ.  The first round counts rows and divides its loss over the one-way marginals by their
sizes, and merges their rare codes, as everywhere here.  Marginals of more than three attributes are no candidates, and
the largest tables are left out where the vault could not count all candidates together.  Distances of
triples that no clique holds are taken to a sample of the model.  Slower than :func:`sfumato.synthesize.aim.aim`,
which measures in two batches: for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.model.simulation import generator
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.aim import as_request
from sfumato.synthesize.beginning import State, begin, count_share
from sfumato.synthesize.division import Allowance, Division, fraction
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.growth import (
    Limits,
    affordable,
    as_limits,
    comparable,
    confirm,
    drawn,
    reference,
    relevant,
    wanted,
)
from sfumato.synthesize.synthetic import Synthetic, settle
from sfumato.synthesize.total import Total
from sfumato.synthesize.workload import Marginals
from sfumato.synthesize.zeros import Zeros
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import Keeper
from sfumato.vault.questions import Distance, MarginalErrors

ROUNDS_AN_ATTRIBUTE = 16
SELECTION = Fraction(1, 10)
"""Share of a round's loss that choosing takes; the rest measures."""

_COMPARED = 1 << 26  # cells of all candidates together, half of what the vault counts at once


def annealed(
    vault: Keeper,
    *,
    loss: Loss,
    total: Total,
    workload: Marginals,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> Synthetic:
    """Release a graphical model fitted to marginals chosen one at a time, and rows.

    Args and errors are those of :func:`sfumato.synthesize.aim.aim`.
    """
    limits = as_limits(limits)
    request = as_request(vault, "annealed", loss, total, workload, limits=limits, zeros=zeros)
    settled = vault.release(
        request, loss, lambda doors: anneal(doors, loss, total, workload, limits=limits, zeros=zeros).payload()
    )
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def anneal(
    doors: Doors, loss: Loss, total: Total, workload: Marginals, *, limits: Limits, zeros: Sequence[Zeros] = ()
) -> Graphical:
    """The method itself, through ``doors``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(totals.divisible(loss))
    division = Division(allowance.whole, doors.domain.unit.rows)
    rounds = ROUNDS_AN_ATTRIBUTE * len(doors.domain)
    one_way = Fraction(len(doors.domain), rounds) * (1 - SELECTION) * (1 - count_share(total))
    halved = 2 if isinstance(allowance.whole, Epsilon) else 4  # times the loss that halves the noise
    state = begin(doors, allowance, total, share=one_way, zeros=zeros)
    candidates = _candidates(doors, state, workload, limits)
    random = generator()
    step = Fraction(1, rounds)
    while allowance.left > 0:
        if allowance.left < 2 * step:  # less than two rounds are left: one takes it all
            step = allowance.left
        measuring = step * (1 - SELECTION)
        within = _within(state, candidates, int(limits.cells * (1 - allowance.left + step)))
        if not within:
            return confirm(doors, state, division, allowance.take(allowance.left)).released(doors.domain)
        errors = _errors(state, within, division.absolute(float(measuring)), random)
        chosen = errors.distances[doors.select(errors, allowance.take(step * SELECTION))].attributes
        before = state.model.expected(chosen)
        state = state.learn(doors.measure([state.question(chosen)], allowance.take(measuring)))
        moved = float(np.abs(state.model.expected(chosen) - before).sum())
        if moved <= division.absolute(float(measuring)) * before.size:
            step = halved * step  # the noise hid what was left to learn: halve it
    return state.released(doors.domain)


def _candidates(doors: Doors, state: State, workload: Marginals, limits: Limits) -> dict[Clique, int]:
    """Marginals of one to three attributes inside those of the workload, with their weights."""
    cliques = wanted(workload, doors.domain)
    weights = relevant(cliques, 1) | relevant(cliques, 2) | relevant(cliques, 3)
    kept = comparable(affordable(list(weights), doors.domain, state, limits), doors.domain, _COMPARED)
    return {clique: weights[clique] for clique in kept}


def _within(state: State, candidates: dict[Clique, int], most: int) -> dict[Clique, int]:
    """Candidates that the junction tree has room for; one-way marginals always have."""
    present = [factor.attributes for factor in state.model.factors]
    return {
        clique: weight
        for clique, weight in candidates.items()
        if len(clique) == 1
        or state.model.tree.holder(clique) is not None
        or tree_cells([*present, clique], state.model.sizes) <= most
    }


def _errors(state: State, candidates: dict[Clique, int], noise: float, random: np.random.Generator) -> MarginalErrors:
    """Scores weight x (distance - expected noise), as the selection door takes them."""
    sampled = drawn(state.model, random) if any(len(clique) > 2 for clique in candidates) else {}  # noqa: PLR2004
    distances = tuple(
        Distance(clique, reference(state.model, clique, sampled), state.groups(clique)) for clique in candidates
    )
    return MarginalErrors(
        distances,
        tuple(map(Fraction, candidates.values())),
        tuple(fraction(noise * distance.reference.size) for distance in distances),
    )
