"""The model of a tail: the distribution of a child given the previous child, the parent and its place.

It starts from the model of the head and from public rules: the places of children and their order.  Then marginals with
at least one attribute of the child are measured in rounds, as in :mod:`sfumato.synthesize.methods.batched`.
Measurements are weighted; the rows of a unit weigh at most ``unit_weight`` together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np

from sfumato.domain.linked_domain import PLACES, ChildTable, DerivedTable, LinkedTables
from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, Coarsening, identity
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.fitting import Observation, fit_model
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import CellBudget, Clique, Triangulation
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.binning import coarsen, merged_column
from sfumato.synthesize.budget_allocation import BudgetSplit, fraction
from sfumato.synthesize.graphical import Graphical, Measured
from sfumato.synthesize.initial_marginals import LEAST_SHARE, Fit, one_way_share
from sfumato.synthesize.linked.child_dates import out_of_order_groups, ranks
from sfumato.synthesize.linked.child_measures import COUNTABLE, DerivedMeasures
from sfumato.synthesize.marginal_selection import (
    SizeLimits,
    affordable,
    coarsened_marginals,
    measure_marginals,
    score,
    select_child_marginals,
)
from sfumato.vault.contribution import DENSE_CELLS
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal, Measurement

ROUNDS = ((2, Fraction(2, 5), Fraction(3, 10)), (3, Fraction(1), Fraction(1)))
"""For each round: largest number of attributes of its candidates, share of the remaining loss, share of the cell
cap.
"""

_PAIRS_ALONE = ((2, Fraction(1), Fraction(1)),)
"""The only round if noise would hide the scores of three attributes."""

SCORES = Fraction(7, 100)
"""Share of a round's loss that its scores take."""

_MOST_NOISE = 0.1  # of a score of three attributes, as a share of the rows; above it only pairs are scored

_TIED = 1e-3  # minimum mutual information, in nats, of two attributes whose table is taken from the head
SEEN = 10.0  # minimum total of a tail, in deviations of the noise on a cell; below it noise hides the tail
_LEAST = 1e-12

_PREVIOUS_DEVIATION = 0.2  # deviation of an expected count of the previous child, as a share of the count


@dataclass(frozen=True)
class KnownColumns:
    """The attributes of a tail that are known before a child is drawn, and the model of the head that contains them."""

    linked: LinkedTables
    child: ChildTable
    source: Graphical

    @property
    def this(self) -> frozenset[str]:
        """Return the attributes of a child, which are drawn."""
        return frozenset(self.child.named("this", each.name) for each in self.child.table.attributes)

    @property
    def before(self) -> frozenset[Clique]:
        """Return the pairs of the same attribute of the two previous children."""
        named = self.child.named
        pairs = ((named("previous", each.name), named("before", each.name)) for each in self.child.plain)
        return frozenset(pairs) if self.child.memory > 1 else frozenset()

    @property
    def nested(self) -> bool:
        """Return True if children belong to rows of another child table; their weights then depend on the unit."""
        return self.linked.parent_of(self.child) is not None

    def in_source(self) -> dict[str, str]:
        """Return the head's attribute for each known attribute of a tail."""
        own = (each.name for each in self.linked.known_attributes(self.child))
        first = {
            self.child.named("previous", each.name): self.child.named("first", each.name) for each in self.child.plain
        }
        return {**{name: name for name in own}, self.child.number: self.child.number, **first}

    def numbers(self) -> FloatArray:
        """Return the expected number of units with 2, 3, ... children."""
        counts: FloatArray = self.source.cells((self.child.number,))[2 - self.linked.least_children(self.child) :]
        return counts


def fit_next_child(
    mechanisms: Mechanisms, loss: Epsilon | Rho, known: KnownColumns, *, limits: SizeLimits
) -> tuple[Graphical, bool]:
    """Fit the model of a tail at ``loss``.  The flag is False if noise hides all next children.

    :mod:`sfumato.vault.unit_measurables` defines neighbors, sensitivity and noise.
    """
    table = known.linked.next_child(known.child)
    assert table is not None
    derived = DerivedMeasures(mechanisms, table)
    split = BudgetSplit(loss, table.unit_weight)
    fit, seen = _measure_alone(derived, split, known)
    if not seen:
        return fit.released(table.domain), False
    again = [known.child.named("this", each.name) for each in known.child.table.attributes]
    drawn = Drawn(known.this, known.before, again, tuple(_previous_by_place(known, fit)))
    return in_rounds(derived, split, fit, drawn=drawn, limits=limits), True


@dataclass(frozen=True)
class Drawn:
    """The attributes that a model draws.

    Attributes:
        attributes: the drawn attributes.
        pairs: pairs of known attributes that are measured too.
        again: attributes to measure again if noise outweighs the gain of every marginal.
        expected: tables that follow from noisy ones.  The model starts from them if only pairs are scored.
    """

    attributes: frozenset[str]
    pairs: frozenset[Clique]
    again: Sequence[str]
    expected: tuple[Observation, ...] = ()


def in_rounds(
    derived: DerivedMeasures,
    split: BudgetSplit,
    fit: Fit,
    *,
    drawn: Drawn,
    limits: SizeLimits,
) -> Graphical:
    """Spend the rest of the loss on marginals with a drawn attribute, and return the fitted model."""
    table = derived.table
    interest: dict[Clique, float] = {}
    rounds = _rounds(derived, split, fit, drawn=drawn, limits=limits)
    if rounds is _PAIRS_ALONE and drawn.expected:
        fit = replace(fit, model=fit_model((*fit.observations, *drawn.expected), fit.model))
    for ways, part, cell_share in rounds:
        candidates = _affordable(derived, fit, _candidates(fit, drawn, interest, ways, limits), limits)
        if not candidates:
            continue
        share = split.left * part
        deviation = split.deviation(float(split.left) / min(len(candidates), 2 * len(table.domain)))
        tables = coarsened_marginals(fit, table.domain, candidates, deviation)
        scores = share * SCORES
        scored = score(derived, fit, tables, loss=split.take(scores))
        scores_of = zip(scored.tables, scored.distances.tolist(), strict=True)
        interest |= {each.attributes: distance for each, distance in scores_of}
        present = Triangulation((factor.attributes for factor in fit.model.factors), fit.model.sizes)
        most = max(int(limits.cells * cell_share), present.cells)
        chosen = select_child_marginals(
            scored, split=split, share=float(share - scores), cell_budget=CellBudget(present, most)
        )
        if chosen:
            shares = [fraction(each.share) for each in chosen.values()]
            runs = {clique: each.runs for clique, each in chosen.items()}
            fit = measure_marginals(derived, fit, runs, loss=split.take(share - scores), shares=shares)
    if split.left > 0:  # noise outweighs the gain of every other marginal
        shares = list(split.shares([float(fit.model.sizes[name]) for name in drawn.again]))
        again: dict[Clique, None] = {(name,): None for name in drawn.again}
        fit = measure_marginals(derived, fit, again, loss=split.take(split.left), shares=shares)
    return fit.released(table.domain)


def _affordable(derived: DerivedMeasures, fit: Fit, candidates: Sequence[Clique], limits: SizeLimits) -> list[Clique]:
    """Return the candidates that are small enough to model and to count.

    The vault counts a large pair over groups, and any other marginal by the number of rows of a unit as well.
    """
    return [
        clique
        for clique in affordable(candidates, fit, limits, pairs=True)
        if derived.domain.project(clique).size > DENSE_CELLS or derived.counted_cells(Marginal(clique)) <= COUNTABLE
    ]


def _rounds(
    derived: DerivedMeasures, split: BudgetSplit, fit: Fit, *, drawn: Drawn, limits: SizeLimits
) -> tuple[tuple[int, Fraction, Fraction], ...]:
    """Return the rounds, by the noise that scores of the last round would have, and the noisy number of rows."""
    ways = ROUNDS[-1][0]
    candidates = _affordable(derived, fit, _candidates(fit, drawn, {}, ways, limits), limits)
    many = min(len(candidates), (ways - 1) * limits.candidates)
    noise = split.deviation(float(split.left * (1 - ROUNDS[0][1]) * SCORES) / max(1, many))
    return ROUNDS if noise <= _MOST_NOISE * fit.model.total else _PAIRS_ALONE


def _measure_alone(derived: DerivedMeasures, split: BudgetSplit, known: KnownColumns) -> tuple[Fit, bool]:
    """Measure the attributes of a child one by one.  Return the first fit, and False if noise hides all rows."""
    child, table = known.child, derived.table
    alone = [child.named("this", each.name) for each in child.table.attributes]
    alone += [child.number] if known.nested else []
    total = expected_weight(table, known.source, child.number, known.numbers())
    measured = measure_columns(derived, split, alone, total)
    if known.nested:
        total = float(measured[-1].values.sum())
    seen = total > SEEN * max(each.standard_error for each in measured)
    coarsenings = _coarsenings(derived, known, dict(zip(alone, measured, strict=True)), seen=seen)
    regroup = partial(regrouped, known.source, coarsenings)
    if seen:
        observations = tuple(
            merged_column(coarsenings[name], answer, derived.domain[name], shrinks=True)
            for name, answer in zip(alone, measured, strict=True)
        )
    else:  # next children are drawn like first ones
        observations = ()
    factors = [
        *_known_factors(known, coarsenings),
        *factors_from_source(_of_many(known), known.in_source(), regroup),
        *_structural_zeros(known, coarsenings),
    ]
    if not seen:
        firsts = {child.named("this", each.name): child.named("first", each.name) for each in child.plain}
        given = _of_many(known)
        for name, first in firsts.items():
            factors.append(Factor((name,), logarithm(regroup(given, {name: first}).values)))
    return started(coarsenings, factors, dict(zip(alone, measured, strict=True)), observations, total), seen


def _previous_by_place(known: KnownColumns, fit: Fit) -> Iterator[Observation]:
    """Yield the columns of the previous child at each place of a child, at no loss.

    They follow from the head's model, the places in ``fit`` and its noisy columns, so no row is read.  The child before
    a second one is the first one.  The child before a later one is among the children whose columns were measured,
    except the last of a unit.
    """
    child, source = known.child, _of_many(known)
    place = f"{child.table.name}.place"
    places = fit.model.expected((place,))
    columns = {observation.attributes: observation for observation in fit.observations}
    for each in child.plain:
        column, name = columns[child.named("this", each.name),], child.named("previous", each.name)
        first = regrouped(known.source, fit.coarsenings, source, {name: child.named("first", each.name)}).values
        later = np.where(first > 0, np.maximum(column.counts, _LEAST), 0.0)  # no child follows a final value
        shares = np.stack([row / max(row.sum(), _LEAST) for row in (first, *[later] * (len(places) - 1))])
        counts = places[:, None] * shares
        variance = column.variance + (_PREVIOUS_DEVIATION * counts) ** 2
        yield Observation((place, name), counts, variance)


def expected_weight(table: DerivedTable, source: Graphical, number: str, counts: FloatArray) -> float:
    """Return the total weight of a derived table that its source expects, before the table is measured.

    ``counts`` are the source's counts of the numbers of children that make rows.
    """
    if table.number == number:
        return float(counts @ (np.array(table.rows) * np.array(table.weights)))
    return float(source.model.total * counts.sum() / source.cells((number,)).sum())


def measure_columns(
    derived: DerivedMeasures, split: BudgetSplit, names: Sequence[str], rows: float
) -> tuple[Measurement, ...]:
    """Measure single attributes at the share of the loss that a table of about ``rows`` rows needs for them."""
    domain, rows = derived.domain.project(tuple(names)), max(1.0, rows)
    share = max(fraction(one_way_share(split, domain, rows)), LEAST_SHARE)
    parts = split.shares(split.column_sizes(domain.shape, rows))
    return derived.measure([Marginal((name,)) for name in names], split.take(share), shares=parts)


def started(
    coarsenings: dict[str, Coarsening],
    factors: list[Factor],
    measured: Mapping[str, Measurement],
    observations: tuple[Observation, ...],
    total: float,
) -> Fit:
    """Return the fit of known factors to the one-way observations."""
    sizes = {name: groups.size for name, groups in coarsenings.items()}
    held = {factor.attributes for factor in factors}
    factors = [*factors, *(Factor((name,), np.zeros(size)) for name, size in sizes.items() if (name,) not in held)]
    model = GraphicalModel(sizes, tuple(factors), max(total, 1.0))
    noisy_tables = tuple(
        NoisyTable.from_cells(Marginal((name,)), answer.values, answer.noise, fresh=False)
        for name, answer in measured.items()
    )
    tables = tuple(Measured((name,), answer.standard_error) for name, answer in measured.items())
    fitted = fit_model(observations, model) if observations else model
    return Fit(coarsenings, observations, fitted, tables, noisy_tables, {})


def _coarsenings(
    derived: DerivedMeasures, known: KnownColumns, measured: Mapping[str, Measurement], *, seen: bool
) -> dict[str, Coarsening]:
    """Return the groups of all attributes of the tail.  A child has the same groups as the previous children."""
    child, source = known.child, known.source
    coarsenings: dict[str, Coarsening] = {}
    of_child: dict[str, Coarsening] = {}
    for each in child.plain:
        name = child.named("this", each.name)
        attribute = derived.domain[name]
        strata = None
        if child.final is not None and child.final[0] == each.name:
            strata = (np.arange(attribute.size) == child.final_code).astype(np.int64)
        of_child[each.name] = (
            coarsen(derived.domain, attribute, measured[name], strata, max_deviations=MAX_GROUP_DEVIATIONS)
            if seen
            else without_last(source.coarsenings[child.named("first", each.name)], attribute.size)
        )
    for name in derived.domain.names:
        if name == child.number:
            numbers = source.coarsenings[name]
            coarsenings[name] = renumbered(numbers.groups[2 - known.linked.least_children(child) :], known.numbers())
        elif name == child.rows:
            coarsenings[name] = one_group(derived.domain[name].size)
        elif name in source.coarsenings:
            coarsenings[name] = source.coarsenings[name]
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
    """Return the groups of the first ``size`` codes, without the code for no child."""
    return renumbered(groups.groups[:size], groups.weights[:size])


def one_group(size: int) -> Coarsening:
    """Return one group of all codes, for an attribute that the model does not use."""
    return Coarsening(np.zeros(size, dtype=np.int64), np.ones(size))


def renumbered(groups: np.ndarray, weights: FloatArray) -> Coarsening:
    """Assign numbers from 0 to the groups, and keep weights positive."""
    return Coarsening(np.unique(groups, return_inverse=True)[1].reshape(-1), np.maximum(weights, _LEAST))


def regrouped(
    source: Graphical, coarsenings: Mapping[str, Coarsening], model: GraphicalModel, names: Mapping[str, str]
) -> Factor:
    """Return a table of the head's model over the groups of a tail, given the head's attribute of each."""
    table = model.probabilities(tuple(names.values())).values
    for axis, (name, of) in enumerate(names.items()):
        before, after = source.coarsenings[of], coarsenings[name]
        moved = np.zeros((before.size, after.size))
        # a tail has the numbers of children from two on, and lacks the first child's last code ("no child")
        first = len(before.groups) - len(after.groups) if name == of else 0
        codes = np.arange(first, first + len(after.groups))
        np.add.at(moved, (before.groups[codes], after.groups), before.shares()[codes])
        table = np.moveaxis(np.tensordot(table, moved, axes=([axis], [0])), -1, axis)
    return Factor(tuple(names), table)


def _of_many(known: KnownColumns) -> GraphicalModel:
    """Return the head's model of units with several children."""
    return given_children(known.linked, known.child, known.source, 2)


def given_children(linked: LinkedTables, child: ChildTable, source: Graphical, least: int) -> GraphicalModel:
    """Condition the head's model on at least ``least`` children; return it unchanged if that is impossible."""
    groups = source.coarsenings[child.number]
    shares = groups.shares()
    shares[: least - linked.least_children(child)] = 0.0
    shares_of_groups = groups.merge(shares)
    if not float(shares_of_groups @ source.model.probabilities((child.number,)).values) > 0:
        return source.model
    return source.model.given({child.number: logarithm(shares_of_groups, none=True)})


def factors_from_source(given: GraphicalModel, names: Mapping[str, str], regroup: partial[Factor]) -> list[Factor]:
    """Return factors of known attributes, and of their pairs along a maximum spanning tree of mutual information."""
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

    for information, one, other, lift in sorted(ties, key=lambda tie: -tie[0]):
        if information > _TIED and top(one) != top(other):
            root[top(one)] = top(other)
            factors.append(Factor((one, other), lift))
    return factors


def logarithm(values: FloatArray, *, none: bool = False) -> FloatArray:
    """Return logarithms; zero becomes a very small number, or minus infinity with ``none``."""
    with np.errstate(divide="ignore"):
        logarithms: FloatArray = np.log(values if none else np.maximum(values, _LEAST))
    return logarithms


def _known_factors(known: KnownColumns, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Return public factors: the weights of places by the number of children, and which child is the last.

    In nested tables all rows of a unit weigh the same.
    """
    child = known.child
    table = known.linked.next_child(child)
    assert table is not None
    groups, shares = coarsenings[child.number].groups, coarsenings[child.number].shares()
    last = min(child.most, PLACES + 1)
    weights = np.zeros((coarsenings[child.number].size, last - 1, 2))
    for code, further in enumerate(range(1, child.most)):
        weight = 1.0 if known.nested else table.weights[code] / table.unit_weight
        for at in range(2, further + 2):
            weights[groups[code], min(at, last) - 2, int(at == further + 1)] += shares[code] * weight
    names = (child.number, f"{child.table.name}.place", f"{child.table.name}.last")
    return [Factor(names, logarithm(weights, none=True))]


def _structural_zeros(known: KnownColumns, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Return the structural zeros of a child: out of order, after a final value, or with impossible previous
    children.
    """
    child, factors = known.child, list(_date_zeros(known.child, coarsenings))
    if child.final is not None:
        name = child.named("this", child.final[0])
        out = np.zeros((2, coarsenings[name].size), dtype=np.bool_)
        out[0, coarsenings[name].groups[child.final_code]] = True  # no child follows
        factors.append(Factor((f"{child.table.name}.last", name), np.where(out, -np.inf, 0.0)))
    if (rank := ranks(child)) is not None and child.order is not None:
        names = (child.named("previous", child.order), child.named("this", child.order))
        out = out_of_order_groups(rank, coarsenings[names[1]])
        factors.append(Factor(names, np.where(out, -np.inf, 0.0)))
    if child.memory > 1:
        places = coarsenings[f"{child.table.name}.place"].size
        for each in child.plain:
            name = child.named("before", each.name)
            out = np.zeros((places, coarsenings[name].size), dtype=np.bool_)
            out[0, :-1] = out[1:, -1] = True  # no child comes before the first
            factors.append(Factor((f"{child.table.name}.place", name), np.where(out, -np.inf, 0.0)))
    return factors


def _date_zeros(child: ChildTable, coarsenings: Mapping[str, Coarsening]) -> list[Factor]:
    """Return the structural zeros of gaps: the second child has no previous gap, and missing dates stay missing."""
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
    fit: Fit, drawn: Drawn, interest: Mapping[Clique, float], ways: int, limits: SizeLimits
) -> list[Clique]:
    """Return the unmeasured marginals of two to ``ways`` attributes with a drawn attribute.

    With a memory of two, the pairs of the two previous children are candidates too.
    """
    names = [name for name, size in fit.model.sizes.items() if size > 1]
    known = {frozenset(clique): distance for clique, distance in interest.items()}
    measured = {table.attributes for table in fit.measured}
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
