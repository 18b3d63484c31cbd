"""The model of a tail: how a child goes on from the one before it, given the parent and where it stands.

It begins with what the head says already, and with what everybody knows: where a child may stand in a family of so
many, and in which order children come.  Then marginals with at least one attribute of the child are measured in
rounds, as :mod:`sfumato.synthesize.methods.aim` does, in weights of which a unit has at most ``whole``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np

from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, Coarsening, identity
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.fitting import Observation, fit
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import CellBudget, Clique, Triangulation
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.budget_allocation import BudgetSplit, fraction
from sfumato.synthesize.graphical import Graphical, Measured
from sfumato.synthesize.initial_marginals import LEAST_VARIANCE, Fit, coarsen
from sfumato.synthesize.linked.child_dates import impossible, ranks
from sfumato.synthesize.linked.child_measures import COUNTABLE, DerivedMeasures
from sfumato.synthesize.marginal_selection import (
    SizeLimits,
    affordable,
    coarsened_marginals,
    measure_marginals,
    score,
    select_child_marginals,
)
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal, Measurement

ROUNDS = ((2, Fraction(2, 5), Fraction(3, 10)), (3, Fraction(1), Fraction(1)))
"""Of each round: attributes of its candidates at most, share of the loss left, share of the cell cap."""

SCORES = Fraction(7, 100)
"""Share of a round's loss that its scores take."""

ALONE = Fraction(12, 100)
"""Share of the loss for the single attributes of a child."""

_TIED = 1e-3  # nats that two attributes say of each other, from which the head's table of both is taken over
SEEN = 10.0  # deviations of the noise on a cell that all rows of a tail must reach for anything to be read off it
_LEAST = 1e-12


@dataclass(frozen=True)
class KnownColumns:
    """The attributes of a tail that are known of a child before it is drawn, and where the head has them."""

    related: LinkedTables
    child: ChildTable
    head: Graphical

    @property
    def this(self) -> frozenset[str]:
        """The attributes of a child, which are drawn."""
        return frozenset(self.child.named("this", each.name) for each in self.child.table.attributes)

    @property
    def before(self) -> frozenset[Clique]:
        """Pairs of the same attribute of the two children before it."""
        named = self.child.named
        pairs = ((named("previous", each.name), named("before", each.name)) for each in self.child.plain)
        return frozenset(pairs) if self.child.memory > 1 else frozenset()

    @property
    def nested(self) -> bool:
        """Whether the child belongs to a row of another child table: then rows do not weigh by their family alone."""
        return self.related.above(self.child) is not None

    def in_head(self) -> dict[str, str]:
        """The head's attribute of each attribute of a tail that begins as in the head."""
        own = (each.name for each in self.related.evidence(self.child))
        first = {
            self.child.named("previous", each.name): self.child.named("first", each.name) for each in self.child.plain
        }
        return {**{name: name for name in own}, self.child.number: self.child.number, **first}

    def numbers(self) -> FloatArray:
        """Expected units of 2, 3, .. children."""
        counts: FloatArray = self.head.cells((self.child.number,))[2 - self.related.least(self.child) :]
        return counts


def fit_next_child(
    mechanisms: Mechanisms, loss: Epsilon | Rho, evidence: KnownColumns, *, limits: SizeLimits
) -> tuple[Graphical, bool]:
    """The model of a tail, at ``loss``, and whether anything could be told of later children.

    Neighbours, sensitivity and noise are those of :mod:`sfumato.vault.unit_measurables`.
    """
    table = evidence.related.tail(evidence.child)
    assert table is not None
    derived = DerivedMeasures(mechanisms, table)
    split = BudgetSplit(loss, table.whole)
    state, seen = _begin(derived, split, evidence)
    if not seen:
        return state.released(table.domain), False
    again = [evidence.child.named("this", each.name) for each in evidence.child.table.attributes]
    drawn = Drawn(evidence.this, evidence.before, again)
    return in_rounds(derived, split, state, drawn=drawn, limits=limits), True


@dataclass(frozen=True)
class Drawn:
    """What a model is to say of a row: attributes, pairs of earlier rows that are measured too, and what is measured
    again where nothing more is worth its noise.
    """

    attributes: frozenset[str]
    pairs: frozenset[Clique]
    again: Sequence[str]


def in_rounds(
    derived: DerivedMeasures,
    split: BudgetSplit,
    state: Fit,
    *,
    drawn: Drawn,
    limits: SizeLimits,
) -> Graphical:
    """The model after all that is left of the loss was spent on marginals with an attribute that is drawn."""
    table = derived.table
    interest: dict[Clique, float] = {}
    for ways, part, cell_share in ROUNDS:
        candidates = affordable(_candidates(state, drawn, interest, ways, limits), table.domain, state, limits)
        candidates = [clique for clique in candidates if derived.counted(clique) <= COUNTABLE]
        if not candidates:
            continue
        share = split.left * part
        deviation = split.deviation(float(split.left) / min(len(candidates), 2 * len(table.domain)))
        asked = coarsened_marginals(state, table.domain, candidates, deviation)
        scores = share * SCORES
        scored = score(derived, state, asked, loss=split.take(scores))
        scores_of = zip(scored.tables, scored.distances.tolist(), strict=True)
        interest |= {each.attributes: distance for each, distance in scores_of}
        present = Triangulation((factor.attributes for factor in state.model.factors), state.model.sizes)
        most = max(int(limits.cells * cell_share), present.cells)
        chosen = select_child_marginals(
            scored, split=split, share=float(share - scores), cell_budget=CellBudget(present, most)
        )
        if chosen:
            shares = [fraction(each.share) for each in chosen.values()]
            runs = {clique: each.runs for clique, each in chosen.items()}
            state = measure_marginals(derived, state, runs, loss=split.take(share - scores), shares=shares)
    if split.left > 0:  # nothing more was worth its noise
        shares = list(split.shares([float(state.model.sizes[name]) for name in drawn.again]))
        again: dict[Clique, None] = {(name,): None for name in drawn.again}
        state = measure_marginals(derived, state, again, loss=split.take(split.left), shares=shares)
    return state.released(table.domain)


def _begin(derived: DerivedMeasures, split: BudgetSplit, evidence: KnownColumns) -> tuple[Fit, bool]:
    """What is known before anything of a child with others is measured, and its single attributes."""
    child, table = evidence.child, derived.table
    alone = [child.named("this", each.name) for each in child.table.attributes]
    alone += [child.number] if evidence.nested else []
    parts = split.shares([derived.domain[name].size for name in alone])
    measured = derived.measure([Marginal((name,)) for name in alone], split.take(ALONE), shares=parts)
    if evidence.nested:
        total = float(measured[-1].values.sum())
    else:
        total = float(evidence.numbers() @ (np.array(table.rows) * np.array(table.weights)))
    seen = total > SEEN * max(each.standard_error for each in measured)
    coarsenings = _coarsenings(derived, evidence, dict(zip(alone, measured, strict=True)), seen=seen)
    regroup = partial(regrouped, evidence.head, coarsenings)
    if seen:
        observations = tuple(
            observed(name, coarsenings[name], answer) for name, answer in zip(alone, measured, strict=True)
        )
    else:  # as the first child
        observations = ()
    factors = [
        *_known(evidence, coarsenings),
        *from_head(_of_many(evidence), evidence.in_head(), regroup),
        *_barred(evidence, coarsenings),
    ]
    if not seen:
        firsts = {child.named("this", each.name): child.named("first", each.name) for each in child.plain}
        given = _of_many(evidence)
        for name, first in firsts.items():
            factors.append(Factor((name,), logarithm(regroup(given, {name: first}).values)))
    return started(coarsenings, factors, dict(zip(alone, measured, strict=True)), observations, total), seen


def started(
    coarsenings: dict[str, Coarsening],
    factors: list[Factor],
    measured: Mapping[str, Measurement],
    observations: tuple[Observation, ...],
    total: float,
) -> Fit:
    """A model of what is known and of the single attributes that were measured, of which some are observed."""
    sizes = {name: groups.size for name, groups in coarsenings.items()}
    held = {factor.attributes for factor in factors}
    factors = [*factors, *(Factor((name,), np.zeros(size)) for name, size in sizes.items() if (name,) not in held)]
    model = GraphicalModel(sizes, tuple(factors), max(total, 1.0))
    kept = tuple(
        NoisyTable.from_cells(Marginal((name,)), answer.values, answer.noise, fresh=False)
        for name, answer in measured.items()
    )
    tables = tuple(Measured((name,), answer.standard_error) for name, answer in measured.items())
    fitted = fit(observations, model) if observations else model
    return Fit(coarsenings, observations, fitted, tables, kept, {})


def _variance(measurement: Measurement) -> float:
    return max(measurement.noise.variance, LEAST_VARIANCE)


def observed(name: str, groups: Coarsening, measurement: Measurement) -> Observation:
    """Noisy weights of groups: a group of m codes carries the noise of m cells."""
    counts = groups.merge(measurement.values.astype(np.float64))
    return Observation((name,), counts, groups.merge(np.full(len(groups.groups), _variance(measurement))))


def _coarsenings(
    derived: DerivedMeasures, evidence: KnownColumns, measured: Mapping[str, Measurement], *, seen: bool
) -> dict[str, Coarsening]:
    """Groups of all attributes of the tail: those of the head, and of a child the same as of those before it."""
    child, head = evidence.child, evidence.head
    coarsenings: dict[str, Coarsening] = {}
    of_child: dict[str, Coarsening] = {}
    for each in child.plain:
        name = child.named("this", each.name)
        attribute = derived.domain[name]
        apart = None
        if child.final is not None and child.final[0] == each.name:
            apart = (np.arange(attribute.size) == child.final_code).astype(np.int64)
        of_child[each.name] = (
            coarsen(derived.domain, attribute, measured[name], apart, max_deviations=MAX_GROUP_DEVIATIONS)
            if seen
            else without_last(head.coarsenings[child.named("first", each.name)], attribute.size)
        )
    for name in derived.domain.names:
        if name == child.number:
            numbers = head.coarsenings[name]
            coarsenings[name] = renumbered(numbers.groups[2 - evidence.related.least(child) :], evidence.numbers())
        elif name == child.rows:
            coarsenings[name] = one_group(derived.domain[name].size)
        elif name in head.coarsenings:
            coarsenings[name] = head.coarsenings[name]
        else:
            coarsenings[name] = identity(derived.domain[name].size)
    for each in child.plain:
        own = of_child[each.name]
        coarsenings[child.named("this", each.name)] = coarsenings[child.named("previous", each.name)] = own
        if child.memory > 1:
            none = Coarsening(np.append(own.groups, own.size), np.append(own.weights, 1.0))
            coarsenings[child.named("before", each.name)] = none
    return coarsenings


def without_last(groups: Coarsening, size: int) -> Coarsening:
    """The groups of the first codes, as many as ``size``: without the one that there is no child."""
    return renumbered(groups.groups[:size], groups.weights[:size])


def one_group(size: int) -> Coarsening:
    """All codes one group: what a model says nothing of."""
    return Coarsening(np.zeros(size, dtype=np.int64), np.ones(size))


def renumbered(groups: np.ndarray, weights: FloatArray) -> Coarsening:
    """The same groups of fewer codes, numbered from 0."""
    return Coarsening(np.unique(groups, return_inverse=True)[1].reshape(-1), np.maximum(weights, _LEAST))


def regrouped(
    head: Graphical, coarsenings: Mapping[str, Coarsening], model: GraphicalModel, names: Mapping[str, str]
) -> Factor:
    """A table of the head's model over the groups of a tail, given the head's attribute of each."""
    table = model.probabilities(tuple(names.values())).values
    for axis, (name, of) in enumerate(names.items()):
        before, after = head.coarsenings[of], coarsenings[name]
        moved = np.zeros((before.size, after.size))
        # a tail has the numbers of children from two on, and lacks the last code of a first child, that there is none
        first = len(before.groups) - len(after.groups) if name == of else 0
        codes = np.arange(first, first + len(after.groups))
        np.add.at(moved, (before.groups[codes], after.groups), before.shares()[codes])
        table = np.moveaxis(np.tensordot(table, moved, axes=([axis], [0])), -1, axis)
    return Factor(tuple(names), table)


def _of_many(evidence: KnownColumns) -> GraphicalModel:
    """The head's model of the units of several children."""
    return with_rows(evidence.related, evidence.child, evidence.head, 2)


def with_rows(related: LinkedTables, child: ChildTable, head: Graphical, least: int) -> GraphicalModel:
    """The head's model of what has at least so many children; of everything where it says that nothing has."""
    groups = head.coarsenings[child.number]
    shares = groups.shares()
    shares[: least - related.least(child)] = 0.0
    kept = groups.merge(shares)
    if not float(kept @ head.model.probabilities((child.number,)).values) > 0:
        return head.model
    return head.model.given({child.number: logarithm(kept, none=True)})


def from_head(given: GraphicalModel, names: Mapping[str, str], regroup: partial[Factor]) -> list[Factor]:
    """What a model says of the evidence: single attributes, and pairs along a spanning tree of what they tell."""
    alone = {name: regroup(given, {name: of}) for name, of in names.items()}
    factors = [Factor(factor.attributes, logarithm(factor.values)) for factor in alone.values()]
    ties = []
    for one, other in combinations(names, 2):
        both = regroup(given, {one: names[one], other: names[other]}).values
        lift = logarithm(both) - logarithm(np.outer(both.sum(axis=1), both.sum(axis=0)))
        ties.append((float((both * lift).sum()), one, other, lift))
    root = {name: name for name in names}

    def top(name: str) -> str:
        return name if root[name] == name else top(root[name])

    for told, one, other, lift in sorted(ties, key=lambda tie: -tie[0]):
        if told > _TIED and top(one) != top(other):
            root[top(one)] = top(other)
            factors.append(Factor((one, other), lift))
    return factors


def logarithm(values: FloatArray, *, none: bool = False) -> FloatArray:
    """Logarithms; of nothing a very small one, or none at all."""
    with np.errstate(divide="ignore"):
        logarithms: FloatArray = np.log(values if none else np.maximum(values, _LEAST))
    return logarithms


def _known(evidence: KnownColumns, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """What everybody knows: weights of the places in a family of so many children, which of them is the last.

    Where a unit has several families, their rows weigh the same, and each family as much as is measured of its number.
    """
    child = evidence.child
    table = evidence.related.tail(child)
    assert table is not None
    groups, shares = coarsenings[child.number].groups, coarsenings[child.number].shares()
    last = min(child.most, PLACES + 1)
    weights = np.zeros((coarsenings[child.number].size, last - 1, 2))
    for code, further in enumerate(range(1, child.most)):
        weight = 1.0 if evidence.nested else table.weights[code] / table.whole
        for at in range(2, further + 2):
            weights[groups[code], min(at, last) - 2, int(at == further + 1)] += shares[code] * weight
    names = (child.number, f"{child.table.name}.place", f"{child.table.name}.last")
    return [Factor(names, logarithm(weights, none=True))]


def _barred(evidence: KnownColumns, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Cells that no child is in: out of order, or with a child before the one before it where there is none."""
    child, factors = evidence.child, list(_barred_dates(evidence.child, coarsenings))
    if child.final is not None:
        name = child.named("this", child.final[0])
        out = np.zeros((2, coarsenings[name].size), dtype=np.bool_)
        out[0, coarsenings[name].groups[child.final_code]] = True  # nobody follows
        factors.append(Factor((f"{child.table.name}.last", name), np.where(out, -np.inf, 0.0)))
    if (rank := ranks(child)) is not None and child.order is not None:
        names = (child.named("previous", child.order), child.named("this", child.order))
        out = impossible(rank, coarsenings[names[1]])
        factors.append(Factor(names, np.where(out, -np.inf, 0.0)))
    if child.memory > 1:
        places = coarsenings[f"{child.table.name}.place"].size
        for each in child.plain:
            name = child.named("before", each.name)
            out = np.zeros((places, coarsenings[name].size), dtype=np.bool_)
            out[0, :-1] = out[1:, -1] = True  # the second child has nobody before the first
            factors.append(Factor((f"{child.table.name}.place", name), np.where(out, -np.inf, 0.0)))
    return factors


def _barred_dates(child: ChildTable, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Gaps that cannot be: the second child has none before it, and after a missing date all are missing."""
    if not child.dated or child.order is None:
        return []
    place, previous, this = (
        f"{child.table.name}.place",
        child.named("previous", child.order),
        child.named("this", child.order),
    )
    gaps, none = len(child.gaps), len(child.gaps) + child.undated
    second = np.zeros((coarsenings[place].size, none + 1), dtype=np.bool_)
    second[0, :gaps] = second[1:, none] = True
    after = np.zeros((none + 1, coarsenings[this].size), dtype=np.bool_)
    if child.undated:
        after[gaps, :gaps] = True
    return [
        Factor((place, previous), np.where(second, -np.inf, 0.0)),
        Factor((previous, this), np.where(after, -np.inf, 0.0)),
    ]


def _candidates(
    state: Fit, drawn: Drawn, interest: Mapping[Clique, float], ways: int, limits: SizeLimits
) -> list[Clique]:
    """Marginals of two to ``ways`` attributes that were not measured, each with an attribute that is drawn.

    With two children before it, the attributes of these two with each other as well.
    """
    names = [name for name, size in state.model.sizes.items() if size > 1]
    known = {frozenset(clique): distance for clique, distance in interest.items()}
    measured = {table.attributes for table in state.measured}
    candidates: list[Clique] = []
    for size in range(2, ways + 1):
        fresh = [
            clique
            for clique in combinations(names, size)
            if clique not in measured and (drawn.attributes & set(clique) or clique in drawn.pairs)
        ]
        if known:
            fresh.sort(key=lambda clique: -sum(known.get(frozenset(pair), 0.0) for pair in combinations(clique, 2)))
            fresh = fresh[: limits.candidates]
        candidates += fresh
    return candidates
