"""AIM: measure the marginals that the model gets most wrong, and fit again.

After McKenna, Mullins, Sheldon and Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", in batches: instead of one marginal a round chosen by the
exponential mechanism, each round scores all candidates in one noisy vector and measures many of them.
Two rounds do: pairs first, then triples of attributes.  ``annealed`` is the method as published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import combinations

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import QueryError
from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.model.simulation import generator
from sfumato.privacy.loss import Loss
from sfumato.synthesize import total as totals
from sfumato.synthesize.beginning import State, begin, count_share, one_way_share, refuse_fine, refuse_undividable
from sfumato.synthesize.division import Allowance, Division
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.growth import (
    Limits,
    Scored,
    affordable,
    as_limits,
    confirm,
    grow,
    learn,
    relevant,
    score,
    wanted,
)
from sfumato.synthesize.synthetic import Synthetic, settle
from sfumato.synthesize.total import Public, Total
from sfumato.synthesize.words import rows_for
from sfumato.synthesize.workload import Marginals
from sfumato.synthesize.zeros import Zeros, describe_zeros, refuse_impossible
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import Keeper, refuse_no_vault
from sfumato.vault.vault import Request

ROUNDS = ((2, Fraction(2, 5), Fraction(3, 10)), (3, Fraction(1), Fraction(1)))
"""Of each round: attributes of its candidates at most, share of the loss left, share of the cell cap."""

SCORES = Fraction(7, 100)
"""Share of a round's loss that its scores take."""


def aim(
    vault: Keeper,
    *,
    loss: Loss,
    total: Total,
    workload: Marginals,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> Synthetic:
    """Release a graphical model of the whole table, fitted to adaptively chosen marginals, and rows.

    Args:
        vault: the protected table.
        loss: the whole cost.  Noise is discrete Gaussian under rho and (epsilon, delta), which is far more
            accurate for many marginals than the discrete Laplace noise of pure epsilon.
        total: where the number of rows comes from; ``Summed`` adds a rough count at half a percent of the loss.
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
    request = as_request(vault, "aim", loss, total, workload, limits=limits, zeros=zeros)
    settled = vault.release(
        request, loss, lambda doors: adapt(doors, loss, total, workload, limits=limits, zeros=zeros).payload()
    )
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def adapt(
    doors: Doors, loss: Loss, total: Total, workload: Marginals, *, limits: Limits, zeros: Sequence[Zeros]
) -> Graphical:
    """The method itself, through ``doors``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(totals.divisible(loss))
    division = Division(allowance.whole, doors.domain.unit.rows)
    random = generator()
    state = begin(doors, allowance, total, share=None, zeros=zeros)
    cliques = wanted(workload, doors.domain)
    interest: dict[Clique, float] = {}
    for ways, part, room in ROUNDS:
        candidates = _candidates(doors, state, cliques, interest, ways=ways, limits=limits)
        if not candidates:
            continue
        share = allowance.left * part
        scored = score(doors, state, list(candidates), allowance.take(share * SCORES), random)
        interest |= dict(zip(scored.cliques, scored.distances.tolist(), strict=True))
        chosen, shares = _grow(state, scored, candidates, division, share * (1 - SCORES), int(limits.cells * room))
        if chosen:
            state = learn(doors, state, chosen, allowance.take(share * (1 - SCORES)), shares)
    if allowance.left > 0:
        state = confirm(doors, state, division, allowance.take(allowance.left))
    return state.released(doors.domain)


def as_request(
    vault: Keeper,
    method: str,
    loss: Loss,
    total: Total,
    workload: Marginals,
    *,
    limits: Limits,
    zeros: Sequence[Zeros],
) -> Request:
    """The journal's question for a workload of marginals; what can be refused is refused here."""
    refuse_no_vault(vault)
    totals.refuse_wrong(vault.domain, loss, total)
    if not isinstance(workload, Marginals):
        raise QueryError(
            "this method takes a workload of marginals; ranges and other queries are for auto, mwem and matrix",
            culprit=workload,
        )
    refuse_undividable(vault.domain, loss)
    refuse_fine(vault.domain, limits.marginal)
    refuse_impossible(zeros, vault.domain, limits.cells)
    parameters = {
        "workload": {"ways": workload.ways, "cliques": [list(clique) for clique in workload.cliques]},
        "total": totals.describe(total),
        "limits": asdict(limits),
        "zeros": describe_zeros(zeros),
    }
    return Request("synthesize", method, parameters, rows_for(vault.domain, workload))


def expected_error(domain: Domain, loss: Loss, total: Total, workload: Marginals) -> float | None:
    """Root mean squared noise on a cell of the workload, if each of its marginals were measured; reads no data.

    The row count, the scores and the one-way marginals take their shares first; what the last take depends on
    the noisy row count, and is the most that it can be where the count is not public.  None for a workload of
    more than three attributes at a time, which the method measures by their triples only.

    What is left out: the method measures fewer marginals, where it expects its model to be nearer than the
    noise, and inference may not hold all of them; how wrong the model then is depends on the data.
    """
    division = Division(totals.divisible(loss), domain.unit.rows)
    most = max(ways for ways, _, _ in ROUNDS)
    cliques = wanted(workload, domain)
    if max(map(len, cliques)) > most:
        return None
    counted = float(1 - count_share(total))
    rows = total.count if isinstance(total, Public) else 1.0
    alone = max(map(len, cliques)) == 1  # they get what the others would have taken
    one_way = counted * (1.0 if alone else one_way_share(division, domain, rows))
    left = (counted - one_way) * float(1 - SCORES)
    codes = dict(zip(domain.names, domain.shape, strict=True))
    squares, cells = 0.0, 0.0
    for share, found in ((one_way, [c for c in cliques if len(c) == 1]), (left, [c for c in cliques if len(c) > 1])):
        sizes = np.array([math.prod(codes[name] for name in clique) for clique in found], dtype=np.float64)
        parts = division.shares(sizes.tolist()) if found else ()
        deviations = np.array([division.deviation(share * float(part)) for part in parts])
        squares += float((sizes * deviations**2).sum())
        cells += float(sizes.sum())
    return math.sqrt(squares / cells)


def _candidates(
    doors: Doors,
    state: State,
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
        small = affordable(fresh, doors.domain, state, limits)
        small.sort(key=lambda clique: -sum(known.get(frozenset(pair), 0.0) for pair in combinations(clique, 2)))
        kept = small[: limits.candidates] if known else small
        most = max(weights.values(), default=1)
        found |= {clique: weights[clique] / most for clique in kept}
    return found


def _grow(
    state: State, scored: Scored, weights: dict[Clique, float], division: Division, share: Fraction, cap: int
) -> tuple[list[Clique], tuple[Fraction, ...]]:
    present = [factor.attributes for factor in state.model.factors]
    most = max(cap, tree_cells(present, state.model.sizes))
    return grow(
        scored,
        np.array([weights[clique] for clique in scored.cliques]),
        division=division,
        share=float(share),
        fits=lambda more: tree_cells([*present, *more], state.model.sizes) <= most,
    )
