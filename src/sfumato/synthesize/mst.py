"""MST: a spanning tree of the strongest dependences, two attributes at a time.

McKenna, Miklau and Sheldon (2021), "Winning the NIST contest: a scalable and general approach to
differentially private synthetic data": all one-way marginals, then attributes - 1 pairs chosen one by one
by the exponential mechanism so that they form a spanning tree, then those pairs.  Inference on a tree
takes next to no memory, so this is the method for very wide tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from sfumato.domain import Domain
from sfumato.model.junction_tree import Clique
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.synthesize import total as totals
from sfumato.synthesize.beginning import State, begin, count_share
from sfumato.synthesize.division import Allowance, Division
from sfumato.synthesize.graphical import Graphical, expected_errors
from sfumato.synthesize.growth import reference
from sfumato.synthesize.synthetic import Keeper, Synthetic, settle
from sfumato.synthesize.total import Total
from sfumato.vault.doors import Doors
from sfumato.vault.questions import Distance, MarginalErrors
from sfumato.vault.vault import Request

THIRD = Fraction(1, 3)


def mst(vault: Keeper, *, loss: Loss, total: Total) -> Synthetic:
    """Release a tree-shaped model of the whole table, and rows.

    A third of the loss (with the row count) goes to the one-way marginals, a third to choosing the pairs
    and a third to measuring them.

    Args:
        vault: the protected table.
        loss: the whole cost.
        total: where the number of rows comes from; ``Summed`` adds a rough count at half a percent of the loss.

    Raises:
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    request = Request("synthesize", "mst", {"total": totals.describe(total)})
    settled = vault.release(request, loss, lambda doors: span(doors, loss, total).payload())
    model = Graphical.restore(vault.domain, settled.payload)
    return settle(settled, model, expected_errors(model.measured))


def span(doors: Doors, loss: Loss, total: Total) -> Graphical:
    """The method itself, through ``doors``: everything is asked for in exact shares of ``loss``."""
    allowance = Allowance(totals.divisible(loss))
    single = len(doors.domain) == 1
    counted = count_share(total)
    state = begin(doors, allowance, total, share=1 - counted if single else THIRD * (1 - counted), zeros=())
    if not single:
        edges = _spanning_tree(doors, state, allowance.take(THIRD * (1 - counted)))
        division = Division(allowance.whole, doors.domain.unit.rows)
        shares = division.shares([float(_volume(state, edge)) for edge in edges])
        questions = [state.question(edge) for edge in edges]
        state = state.learn(doors.measure(questions, allowance.take(allowance.left), shares=shares))
    return Graphical(doors.domain, state.coarsenings, state.model, state.measured)


def _spanning_tree(doors: Doors, state: State, loss: Epsilon | Rho) -> list[Clique]:
    """Attributes - 1 pairs without a cycle, each chosen with nearly the largest distance from independence."""
    component = {name: index for index, name in enumerate(doors.domain.names)}
    scores = _distances(doors.domain, state)
    edges: list[Clique] = []
    for _ in range(len(component) - 1):
        open_pairs = [pair for pair in scores if component[pair[0]] != component[pair[1]]]
        one = Fraction(1)
        asked = MarginalErrors(
            tuple(scores[pair] for pair in open_pairs), (one,) * len(open_pairs), (Fraction(0),) * len(open_pairs)
        )
        chosen = open_pairs[doors.select(asked, loss / (len(component) - 1))]
        edges.append(chosen)
        joined, into = component[chosen[1]], component[chosen[0]]
        component = {name: into if found == joined else found for name, found in component.items()}
    return edges


def _distances(domain: Domain, state: State) -> dict[Clique, Distance]:
    return {
        pair: Distance(pair, reference(state.model, pair, {}), state.groups(pair))
        for pair in combinations(domain.names, 2)
    }


def _volume(state: State, clique: Sequence[str]) -> int:
    return int(np.prod([state.model.sizes[name] for name in clique]))
