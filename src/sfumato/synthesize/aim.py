"""AIM: measure the marginals that the model gets most wrong, and fit again; in batches, and as published.

After McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data".  ``aim`` works in batches: instead of one marginal a round chosen by the
exponential mechanism, each round scores all candidates in one noisy vector and measures many of them.
Two rounds do: pairs first, then triples of attributes.

``annealed`` is the method as published, for comparison: one marginal a round, chosen by the exponential mechanism, at
an annealed loss.  The candidates are the downward closure of the workload, weighted by what they share with it; a tenth
of a round's loss chooses, the rest measures; noise is halved where the model did not move.  Three things differ.  The
first round counts rows and divides its loss over the one-way marginals by their sizes, and merges their rare codes, as
everywhere here.  Marginals of more than three attributes are no candidates, and the largest tables are left out where
the vault could not count all candidates together.  Distances of triples that no clique holds are taken to a sample of
the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from sfumato.domain import Domain, Role
from sfumato.errors import QueryError
from sfumato.model.junction_tree import Clique, Room, Triangulation
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.synthesize import cell_positions, pair_bounds, row_count, weighted_totals
from sfumato.synthesize.budget_allocation import Allowance, Division, fraction, proportions
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.initial_marginals import (
    FittedState,
    SingleColumns,
    begin,
    count_share,
    one_way_share,
    refuse_fine,
    refuse_undividable,
)
from sfumato.synthesize.marginal_selection import (
    UNSCORED,
    Limits,
    MeasuredMarginal,
    affordable,
    as_limits,
    comparable,
    confirm,
    drawn,
    grow,
    learn,
    offered,
    possible,
    reference,
    relevant,
    score,
    wanted,
)
from sfumato.synthesize.reuse import reusable
from sfumato.synthesize.row_count import PublicTotal, RowTotal, assumed_rows
from sfumato.synthesize.structural_zeros import Zeros, describe_zeros, refuse_impossible
from sfumato.synthesize.synthetic import Synthetic, rows_for, settle
from sfumato.vault.interface import Mechanisms, Request, VaultInterface, refuse_no_vault
from sfumato.vault.questions import Distance
from sfumato.vault.reach import reach_of
from sfumato.vault.scores import MarginalErrors
from sfumato.workload.counting_queries import Marginals

ROUNDS = ((2, Fraction(2, 5), Fraction(3, 10)), (3, Fraction(1), Fraction(1)))
"""Of each round: attributes of its candidates at most, share of the loss left, share of the cell cap."""

SCORES = Fraction(7, 100)
"""Share of a round's loss that its scores take."""


def aim(
    vault: VaultInterface,
    *,
    loss: Loss,
    total: RowTotal,
    workload: Marginals,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> Synthetic:
    """Release a graphical model of the whole table, fitted to adaptively chosen marginals, and rows.

    Args:
        vault: the protected table.
        loss: the whole cost.  Noise is discrete Gaussian under rho and (epsilon, delta), which is far more
            accurate for many marginals than the discrete Laplace noise of pure epsilon.
        total: where the number of rows comes from; ``NoisyTotal`` adds a rough count at half a percent of the loss.
        workload: the marginals that the rows should preserve.
        limits: how large inference may get.
        zeros: cells that are impossible by their meaning.

    Raises:
        QueryError: the workload or a table of zeros does not fit the domain.
        DomainError: an attribute that the domain does not have.
        SizeError: the structural zeros alone exceed the limits.
        InfeasibleError: the structural zeros leave no cell possible.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    limits = as_limits(limits)
    refuse_loss(vault, loss, total)
    request = as_request(vault.domain, "aim", total=total, workload=workload, limits=limits, zeros=zeros)
    settled = vault.release(
        request, loss, lambda mechanisms: adapt(mechanisms, loss, total, workload, limits=limits, zeros=zeros).payload()
    )
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def adapt(
    mechanisms: Mechanisms, loss: Loss, total: RowTotal, workload: Marginals, *, limits: Limits, zeros: Sequence[Zeros]
) -> Graphical:
    """The method itself, through ``mechanisms``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(loss.divisible)
    division = Division(allowance.whole, reach_of(mechanisms.domain).rows)
    # read before noise is drawn, so that a ledger that fails costs nothing
    stored = mechanisms.stored_marginals() if limits.earlier else ()
    kept = allowance.take(pair_bounds.PART) if limits.bounds else None
    importance = limits.importance(mechanisms.domain.names)
    state = begin(mechanisms, allowance, total, SingleColumns(importance=importance), zeros=zeros)
    known = reusable(mechanisms.domain, state, stored, loss)
    early = known.early(state, limits.cells)
    state = state.recall(early)
    if (weight := mechanisms.domain.in_role(Role.WEIGHT)) is not None:
        state = weighted_totals.learn(mechanisms, state, weight, division, allowance)
    cliques = wanted(workload, mechanisms.domain)
    interest: dict[Clique, float] = {}
    taken: dict[Clique, MeasuredMarginal] = {}
    pairs_only = max(map(len, cliques)) <= ROUNDS[0][0]  # the second round has no larger tables: it repeats the first
    for ways, part, room in ROUNDS:
        candidates = _candidates(mechanisms, state, cliques, interest, ways=ways, limits=limits)
        share = allowance.left * part
        many = min(len(candidates) + (len(taken) if pairs_only else 0), 2 * len(mechanisms.domain))
        deviation = division.deviation(float(allowance.left if pairs_only else share) / max(1, many))
        before = {clique: table.again(state.model.expected(clique), deviation) for clique, table in taken.items()}
        if not pairs_only:  # beside larger tables a pair is worth it only where finer cells would tell more
            before = {clique: table for clique, table in before.items() if table.runs != taken[clique].runs}
        if not candidates and not before:
            continue
        asked = possible(state, zeros, offered(state, mechanisms.domain, candidates, deviation))
        scores = share * SCORES if candidates else Fraction(0)
        scored = score(mechanisms, state, asked, loss=allowance.take(scores)) if candidates else UNSCORED
        distances = zip(scored.tables, scored.distances.tolist(), strict=True)
        interest |= {table.attributes: distance for table, distance in distances}
        chosen = grow(
            scored,
            np.array([candidates[table.attributes] for table in scored.tables]),
            division=division,
            share=float(share - scores),
            room=_room(state, int(limits.cells * room)),
            taken=before,
        )
        if chosen:
            taken |= {clique: table.after(taken.get(clique)) for clique, table in chosen.items()}
            shares = proportions([table.share for table in chosen.values()])
            runs = {clique: table.runs for clique, table in chosen.items()}
            state = learn(mechanisms, state, runs, loss=allowance.take(share - scores), shares=shares)
    if allowance.left > 0:
        state = confirm(mechanisms, state, division, allowance.take(allowance.left))
    state = state.recall(known.late(state, early))
    model = replace(state.released(mechanisms.domain), reused=known.entries)
    return model if kept is None else replace(model, distances=pair_bounds.measure(mechanisms, model, kept))


def refuse_loss(vault: VaultInterface, loss: Loss, total: RowTotal) -> None:
    """Refuse what is no vault, and a loss that cannot be divided as a graphical method divides it.

    Raises:
        InputError: no vault, or no source of a row count.
        LossError: no loss, or one too small or too large.
    """
    refuse_no_vault(vault)
    row_count.refuse_wrong(vault.domain, loss, total)
    refuse_undividable(vault.domain, loss)


def as_request(
    domain: Domain, method: str, *, total: RowTotal, workload: Marginals, limits: Limits, zeros: Sequence[Zeros]
) -> Request:
    """The journal's question for a workload of marginals; what can be refused of it is refused here."""
    if not isinstance(workload, Marginals):
        raise QueryError(
            "this method takes a workload of marginals; ranges and other queries are for auto, mwem and matrix",
            culprit=workload,
        )
    refuse_fine(domain, limits.marginal)
    refuse_impossible(zeros, domain, limits.cells)
    parameters = {
        "workload": {"ways": workload.ways, "cliques": [list(clique) for clique in workload.cliques]},
        "total": row_count.describe(total),
        "limits": limits.described(),
        "zeros": describe_zeros(zeros),
    }
    return Request("synthesize", method, parameters, rows_for(domain, workload))


def expected_error(domain: Domain, loss: Loss, total: RowTotal, workload: Marginals) -> float | None:
    """Root mean squared noise on a cell of the workload, if each of its marginals were measured; reads no data.

    The row count, the scores and the one-way marginals take their shares first; what the last take depends on
    the noisy row count, and is the most that it can be where the count is not public.  None for a workload of
    more than three attributes at a time, which the method measures by their triples only.

    What is left out: the method measures fewer marginals, where it expects its model to be nearer than the
    noise, and inference may not hold all of them; how wrong the model then is depends on the data.
    """
    division = Division(loss.divisible, reach_of(domain).rows)
    most = max(ways for ways, _, _ in ROUNDS)
    cliques = wanted(workload, domain)
    if max(map(len, cliques)) > most:
        return None
    counted = float(1 - count_share(total))
    rows = total.count if isinstance(total, PublicTotal) else 1.0
    alone = max(map(len, cliques)) == 1  # they get what the others would have taken
    one_way = counted * (1.0 if alone else one_way_share(division, domain, rows))
    left = (counted - float(cell_positions.share(domain)) - one_way) * float(1 - SCORES)
    codes = dict(zip(domain.names, domain.shape, strict=True))
    squares, cells = 0.0, 0.0
    for share, found in ((one_way, [c for c in cliques if len(c) == 1]), (left, [c for c in cliques if len(c) > 1])):
        sizes = np.array([math.prod(codes[name] for name in clique) for clique in found], dtype=np.float64)
        parts = division.shares(sizes.tolist()) if found else ()
        deviations = np.array([division.deviation(share * float(part)) for part in parts])
        squares += float((sizes * deviations**2).sum())
        cells += float(sizes.sum())
    return math.sqrt(squares / cells)


def least_rows(domain: Domain, loss: Loss, total: RowTotal) -> float:
    """Return the rows that noise alone makes up in a single column, on average over columns; reads no data.

    Noise drowns a table of fewer rows before any pair is measured.
    """
    division = Division(loss.divisible, reach_of(domain).rows)
    one_way = float(1 - count_share(total)) * one_way_share(division, domain, assumed_rows(total))
    shares = division.shares(domain.shape)
    made_up = [
        size * division.absolute(one_way * float(part)) / 2 for size, part in zip(domain.shape, shares, strict=True)
    ]
    return sum(made_up) / len(made_up)


def _candidates(
    mechanisms: Mechanisms,
    state: FittedState,
    cliques: Sequence[Clique],
    interest: dict[Clique, float],
    *,
    ways: int,
    limits: Limits,
) -> dict[Clique, float]:
    """Marginals of two to ``ways`` attributes that were not measured, with their weights.

    Weights are relative to the largest of their number of attributes: the published ones would give a triple
    half as much again as a pair, and triples, whose noise is larger, the room of the pairs.

    Where there are more than the limit, those of the largest known distances are kept; a triple's is the sum of
    its pairs'.
    """
    known = {frozenset(clique): distance for clique, distance in interest.items()}
    measured = {table.attributes for table in state.measured}
    found: dict[Clique, float] = {}
    for size in range(2, ways + 1):
        weights = relevant(cliques, size)
        fresh = [clique for clique in weights if clique not in measured]
        small = affordable(fresh, mechanisms.domain, state, limits)
        small.sort(key=lambda clique: -sum(known.get(frozenset(pair), 0.0) for pair in combinations(clique, 2)))
        kept = small[: limits.candidates] if known else small
        most = max(weights.values(), default=1)
        found |= {clique: weights[clique] / most for clique in kept}
    return found


def _room(state: FittedState, cap: int) -> Room:
    """The room of a junction tree of at most ``cap`` cells, or those that it has.

    Attributes that only zeros bind are not tied: what is impossible tells little of how the others go together.
    """
    present = Triangulation((factor.attributes for factor in state.model.factors), state.model.sizes)
    tied = tuple(observation.attributes for observation in state.observations)
    return Room(present, max(cap, present.cells), tied)


_ROUNDS_AN_ATTRIBUTE = 16
SELECTION = Fraction(1, 10)
"""Share of a round's loss that choosing takes; the rest measures."""

_COMPARED = 1 << 26  # cells of all candidates together, half of what the vault counts at once


def annealed(
    vault: VaultInterface,
    *,
    loss: Loss,
    total: RowTotal,
    workload: Marginals,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> Synthetic:
    """Release a graphical model fitted to marginals chosen one at a time, and rows.

    Args and errors are those of :func:`sfumato.synthesize.aim.aim`.
    """
    limits = as_limits(limits)
    limits.refuse_for("annealed")
    refuse_loss(vault, loss, total)
    request = as_request(vault.domain, "annealed", total=total, workload=workload, limits=limits, zeros=zeros)
    settled = vault.release(
        request,
        loss,
        lambda mechanisms: anneal(mechanisms, loss, total, workload, limits=limits, zeros=zeros).payload(),
    )
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def anneal(
    mechanisms: Mechanisms,
    loss: Loss,
    total: RowTotal,
    workload: Marginals,
    *,
    limits: Limits,
    zeros: Sequence[Zeros] = (),
) -> Graphical:
    """The method itself, through ``mechanisms``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(loss.divisible)
    division = Division(allowance.whole, reach_of(mechanisms.domain).rows)
    rounds = _ROUNDS_AN_ATTRIBUTE * len(mechanisms.domain)
    one_way = Fraction(len(mechanisms.domain), rounds) * (1 - SELECTION) * (1 - count_share(total))
    halved = 2 if isinstance(allowance.whole, Epsilon) else 4  # times the loss that halves the noise
    state = begin(mechanisms, allowance, total, SingleColumns(share=one_way), zeros=zeros)
    candidates = closure(mechanisms, state, workload, limits)
    random = mechanisms.generator()
    step = Fraction(1, rounds)
    while allowance.left > 0:
        if allowance.left < 2 * step:  # less than two rounds are left: one takes it all
            step = allowance.left
        measuring = step * (1 - SELECTION)
        within = _within(state, candidates, int(limits.cells * (1 - allowance.left + step)))
        if not within:
            return confirm(mechanisms, state, division, allowance.take(allowance.left)).released(mechanisms.domain)
        errors = selection_scores(state, within, division.absolute(float(measuring)), random)
        chosen = errors.distances[mechanisms.select(errors, allowance.take(step * SELECTION))].attributes
        before = state.model.expected(chosen)
        state = state.learn(mechanisms.measure([state.question(chosen)], allowance.take(measuring)))
        moved = float(np.abs(state.model.expected(chosen) - before).sum())
        if moved <= division.absolute(float(measuring)) * before.size:
            step = halved * step  # the noise hid what was left to learn: halve it
    return state.released(mechanisms.domain)


def closure(mechanisms: Mechanisms, state: FittedState, workload: Marginals, limits: Limits) -> dict[Clique, int]:
    """Marginals of one to three attributes inside those of the workload, with their weights."""
    cliques = wanted(workload, mechanisms.domain)
    weights = relevant(cliques, 1) | relevant(cliques, 2) | relevant(cliques, 3)
    kept = comparable(affordable(list(weights), mechanisms.domain, state, limits), mechanisms.domain, _COMPARED)
    return {clique: weights[clique] for clique in kept}


def _within(state: FittedState, candidates: dict[Clique, int], most: int) -> dict[Clique, int]:
    """Candidates that the junction tree has room for; one-way marginals always have."""
    present = Triangulation((factor.attributes for factor in state.model.factors), state.model.sizes)
    return {
        clique: weight
        for clique, weight in candidates.items()
        if len(clique) == 1 or state.model.tree.holder(clique) is not None or present.fits(clique, most)
    }


def selection_scores(
    state: FittedState, candidates: dict[Clique, int], noise: float, random: np.random.Generator
) -> MarginalErrors:
    """Scores weight x (distance - expected noise), as the selection mechanism takes them."""
    sampled = drawn(state.model, random) if any(len(clique) > 2 for clique in candidates) else {}  # noqa: PLR2004
    distances = tuple(
        Distance(clique, reference(state.model, clique, sampled), state.groups(clique)) for clique in candidates
    )
    return MarginalErrors(
        distances,
        tuple(map(Fraction, candidates.values())),
        tuple(fraction(noise * distance.reference.size) for distance in distances),
    )
