"""The first step of every graphical method: the row count, the one-way marginals, and the groups of codes.

Marginals of earlier releases are used as further observations of the model.  They are public and were charged when they
were released, so a fit uses them at no loss.  They help if they are about as precise as the new measurements.  So all
of them are used if the new loss is at most their total loss, and none otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import repeat

import numpy as np

from sfumato.domain import Categorical, Domain
from sfumato.errors import SizeError
from sfumato.model.coarsening import MAX_GROUP_DEVIATIONS, MOST_CUTS, Coarsening, Runs
from sfumato.model.count_priors import SHRINKAGE, shrunken_counts
from sfumato.model.factor import FloatArray
from sfumato.model.fitting import Observation, Patience, estimate_total, fit_model
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.model.noisy_table import NoisyTable, NoisyTotals
from sfumato.privacy.loss import Loss
from sfumato.privacy.selection import Exponential
from sfumato.synthesize import cell_positions
from sfumato.synthesize.binning import LEAST_VARIANCE, first_widths, measure_columns, variance_of
from sfumato.synthesize.budget_allocation import (
    BudgetShare,
    BudgetSplit,
    NoisyTotal,
    PublicTotal,
    RowTotal,
    dividing,
    fraction,
    rows_for_pairs,
)
from sfumato.synthesize.cell_positions import CellPosition
from sfumato.synthesize.graphical import Graphical, Measured
from sfumato.synthesize.structural_zeros import Zeros, apply_zeros, kinds
from sfumato.vault.contribution import DENSE_CELLS, Groups
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal, Measurement, StoredMarginal, check_size
from sfumato.vault.mechanisms import noises

COUNT_SHARE = Fraction(1, 200)  # a rough count for planning; the released number also uses the sums of one-way tables
_MOST_SHARE = 0.5
_SHARE_SCALE = 2.0
LEAST_SHARE = Fraction(1, 10**6)  # minimum share, because the computed share is zero at a huge loss
_LEAST_PART = Fraction(1, 10**9)  # minimum part of a loss for one step or table


@dataclass(frozen=True, eq=False)
class Fit:
    """The groups of codes, the noisy tables over them, and the model fitted to these.

    ``tables`` are all noisy tables as measured: one for each of ``measured``, one of a measured row count, and those of
    very wide columns over groups.
    ``prior_expectations`` are the model's counts of marginals before their measurement.  ``totals`` are the totals of
    the weight of the rows.  ``ordered_groups`` is the number of leading groups of an attribute that are ordered.  If
    ``shrinks`` is False, the model is fitted to noisy counts as they are.  Those of ``sparse`` marginals are replaced
    by their posterior means.
    """

    coarsenings: dict[str, Coarsening]
    observations: tuple[Observation, ...]
    model: GraphicalModel
    measured: tuple[Measured, ...]
    tables: tuple[NoisyTable, ...]
    positions: Mapping[str, CellPosition]
    prior_expectations: Mapping[Clique, FloatArray] = field(default_factory=dict)
    totals: tuple[NoisyTotals, ...] = ()
    ordered_groups: Mapping[str, int] = field(default_factory=dict)
    shrinks: bool = True
    sparse: frozenset[Clique] = frozenset()

    def groups(self, attributes: tuple[str, ...], runs: Runs | None = None) -> Groups | None:
        """Return the public coarsening of a marginal; None if every code is its own group.

        It names the groups of all attributes if the vault has to count over them (:func:`counted_over_groups`).
        """
        every = [self.coarsenings[name] for name in attributes]
        fine = math.prod(len(each.groups) for each in every) > DENSE_CELLS
        labels = tuple(
            each.labels_in(None if runs is None else runs.labels(axis), always=fine) for axis, each in enumerate(every)
        )
        return labels if any(label is not None for label in labels) else None

    def question(self, attributes: tuple[str, ...], runs: Runs | None = None) -> Marginal:
        """Return the marginal over groups, or over runs of groups."""
        return Marginal(attributes, groups=self.groups(attributes, runs))

    def with_measurements(
        self,
        measurements: Sequence[Measurement],
        runs: Mapping[Clique, Runs | None] | None = None,
        patience: Patience | None = None,
    ) -> Fit:
        """Return the fit with further measured marginals, from the current model; its total is not changed.

        Measurements of the same marginal are pooled.  For several attributes the model is fitted to shrunken counts
        (:func:`shrunken_counts`), not to noisy counts.

        Args:
            measurements: noisy marginals.
            runs: the runs of each measurement, or None for all groups.
            patience: the stopping rule of the fit.
        """
        run_list = [None if runs is None else runs[_attributes(measurement)] for measurement in measurements]
        new = [self.observe(measurement, joined) for measurement, joined in zip(measurements, run_list, strict=True)]
        known = self._with(new)
        expectations = self._expected_before(new)
        tables = [_noisy_table(m, o.counts.shape, fresh=True) for m, o in zip(measurements, new, strict=True)]
        measured = tuple(Measured(_attributes(m), m.standard_error) for m in measurements)
        return replace(
            self,
            observations=known,
            prior_expectations=expectations,
            model=fit_model([self.shrunken(o, expectations) for o in known], self.model, patience),
            measured=(*self.measured, *measured),
            tables=(*self.tables, *tables),
        )

    def with_observations(self, stored: Sequence[Observation]) -> Fit:
        """Return the fit with tables over groups from earlier releases, at no loss."""
        if not stored:
            return self
        known, expectations = self._with(stored), self._expected_before(stored)
        model = fit_model([self.shrunken(o, expectations) for o in known], self.model)
        return replace(self, observations=known, prior_expectations=expectations, model=model)

    def _expected_before(self, new_tables: Sequence[Observation]) -> dict[Clique, FloatArray]:
        """Return the model's counts of each marginal of several attributes before its measurement."""
        tables = {o.attributes for o in new_tables if len(o.attributes) > 1 and o.weights is None}
        new = tables - set(self.prior_expectations)
        return {**self.prior_expectations, **{clique: self._expected_table(clique) for clique in new}}

    def _expected_table(self, clique: Clique) -> FloatArray:
        if len(clique) <= 2 or self.model.tree.holder(clique) is not None:  # noqa: PLR2004
            return self.model.expected(clique)
        ones = [self.model.expected((name,)) / self.model.total for name in clique]
        product: FloatArray = self.model.total * reduce(np.multiply.outer, ones)
        return product

    def _with(self, new_tables: Iterable[Observation]) -> tuple[Observation, ...]:
        observations = {_cells_of(observation): observation for observation in self.observations}
        for new in new_tables:
            old = observations.get(_cells_of(new))
            observations[_cells_of(new)] = new if old is None else old.pooled_with(new)
        return tuple(observations.values())

    def shrunken(self, observation: Observation, expectations: Mapping[Clique, FloatArray]) -> Observation:
        """Return an observation with shrunken counts if it has several attributes."""
        if not self.shrinks or len(observation.attributes) < 2 or observation.weights is not None:  # noqa: PLR2004
            return observation
        deviation = np.sqrt(observation.variance)
        places = [self.ordered_groups.get(name, 0) for name in observation.attributes]
        if observation.runs is not None:
            starts = zip(observation.runs.starts, places, strict=True)
            places = [sum(start < place for start in axis_starts) for axis_starts, place in starts]
        expected = observation.predict(expectations[observation.attributes])
        part = 1.0 if observation.attributes in self.sparse else SHRINKAGE
        counts = shrunken_counts(observation.counts, expected, deviation, places, shrinkage=part)
        return replace(observation, counts=counts)

    def released(self, domain: Domain) -> Graphical:
        """Return the model for the release."""
        model = Graphical(domain, self.coarsenings, self.model, self.measured, self.tables, self.positions)
        return replace(model, totals=self.totals)

    def observe(self, measurement: Measurement, runs: Runs | None) -> Observation:
        """Return the observation of a measured marginal."""
        shape = self._shape(names := _attributes(measurement), runs)
        return Observation(names, measurement.values.astype(np.float64).reshape(shape), variance_of(measurement), runs)

    def _shape(self, attributes: tuple[str, ...], runs: Runs | None) -> tuple[int, ...]:
        return tuple(self.coarsenings[name].size for name in attributes) if runs is None else runs.shape


@dataclass(frozen=True)
class OneWayMarginals:
    """The options for measuring one-way marginals and grouping their codes.

    Attributes:
        share: share of the loss for all of them; None for a share that grows with the noise relative to the rows.
        max_group_deviations: largest noisy count of a group of neighbors, in standard deviations of its noise.
        importance: weights of the columns when the share is divided.  Default: equal weights.
        pairs: number of larger marginals that will divide the rest of the loss.  If noise would hide them, the columns
            get the whole loss. 0 skips this check.
        as_published: True for the first round of the published AIM: equal noise on all columns, no falling tails, and
            a fit to noisy counts that are neither smoothed nor shrunk.
        cuts: largest number of groups of some ordered columns.
        for_children: True if children are drawn given the rows.  Then counts of categories are shrunken.
    """

    share: Fraction | None = None
    max_group_deviations: float = MAX_GROUP_DEVIATIONS
    importance: Sequence[float] | None = None
    pairs: int = 0
    as_published: bool = False
    cuts: Mapping[str, int] = field(default_factory=dict)
    for_children: bool = False

    def share_of(self, split: BudgetSplit, domain: Domain, total: RowTotal, rows: float) -> Fraction:
        """Return the share of the loss for all columns of a table of about ``rows`` rows."""
        if self.share is not None:
            return self.share
        share = max(fraction(one_way_share(split, domain, rows)), LEAST_SHARE) * (1 - count_share(total))
        rest = split.left - cell_positions.share(domain)
        return rest if self.pairs and rows < rows_for_pairs(split, float(rest - share), self.pairs) else share

    def widths(
        self, domain: Domain, zeros: Sequence[Zeros], deviations: Sequence[float], rows: float
    ) -> list[tuple[int, ...]]:
        """Return the codes in a group of each first table of each column: see :func:`first_widths`.

        ``deviations`` are those of the noise on a code.  Columns with impossible cells or named marginals have one
        table, because their groups have further limits.
        """
        return [
            (1,)
            if self.as_published or attribute.name in self.cuts or kinds(attribute.name, zeros) is not None
            else first_widths(attribute, deviation, rows)
            for attribute, deviation in zip(domain, deviations, strict=True)
        ]


def measure_one_way(
    mechanisms: Mechanisms, split: BudgetSplit, total: RowTotal, columns: OneWayMarginals, *, zeros: Sequence[Zeros]
) -> Fit:
    """Measure all one-way marginals, merge rare and indistinguishable codes, and fit independent attributes.

    Args:
        mechanisms: measures the marginals.
        split: the loss to take shares from.
        total: where the number of rows comes from; a rough noisy count is measured unless it is public.
        columns: the division of the loss over columns, and the rule for groups of codes.
        zeros: impossible cells; codes with different impossible cells never share a group.
    """
    domain, count = mechanisms.domain, _count(mechanisms, split, total)
    row_counts = tuple(Observation((), m.values.astype(np.float64).reshape(()), variance_of(m)) for m in count)
    rows = total.count if isinstance(total, PublicTotal) else max(1.0, float(row_counts[0].counts))
    visible = [1.0] * len(domain) if columns.as_published else split.column_sizes(domain.shape, rows)
    parts = split.shares([n * size for n, size in zip(columns.importance or repeat(1), visible, strict=False)])
    share = columns.share_of(split, domain, total, rows)
    widths = columns.widths(domain, zeros, [split.deviation(float(share * part)) for part in parts], rows)
    every = measure_columns(mechanisms, split.take(share), parts, widths)
    grouped = [
        each.grouped(
            *(domain, kinds(each.attribute.name, zeros)),
            max_deviations=columns.max_group_deviations,
            cuts=columns.cuts.get(each.attribute.name, MOST_CUTS),
            shrinks=columns.for_children,
            smooths=not (columns.for_children or columns.as_published),
        )
        for each in every
    ]
    known = [*row_counts, *(each.observation for each in grouped)]
    sums = float(total.count) if isinstance(total, PublicTotal) else estimate_total(known)
    if not columns.as_published:
        grouped = [each.with_tails(attribute) for each, attribute in zip(grouped, domain, strict=True)]
    coarsenings = {name: each.coarsening for name, each in zip(domain.names, grouped, strict=True)}
    sizes = {name: groups.size for name, groups in coarsenings.items()}
    model = apply_zeros(GraphicalModel.uniform(sizes, [(name,) for name in domain.names], sums), zeros, coarsenings)
    positions = _positions(mechanisms, split, [each.single for each in every])
    measured = tuple(Measured((each.attribute.name,), each.single.standard_error) for each in every)
    tables = (
        *(_noisy_table(m, [], fresh=True) for m in count),
        *(_noisy_table(m, [-1], fresh=False) for each in every for m in each.measurements),
    )
    observations = tuple(each.observation for each in grouped)
    fitted = fit_model(observations, model)
    fit = Fit(coarsenings, observations, fitted, measured, tables, positions, shrinks=not columns.as_published)
    return replace(fit, ordered_groups=_ordered_groups(domain, coarsenings))


def _ordered_groups(domain: Domain, coarsenings: Mapping[str, Coarsening]) -> dict[str, int]:
    """Return the number of leading groups of each ordered attribute that are ordered."""
    return {
        attribute.name: int(coarsenings[attribute.name].groups[attribute.declared - 1]) + 1
        for attribute in domain
        if not isinstance(attribute, Categorical)
    }


def _positions(
    mechanisms: Mechanisms, split: BudgetSplit, measurements: Sequence[Measurement]
) -> Mapping[str, CellPosition]:
    """Measure the positions of numbers in wide cells; without such cells, measure nothing."""
    domain, positions = mechanisms.domain, {}
    if part := cell_positions.share(domain):
        counts = {name: m.values.astype(np.float64) for name, m in zip(domain.names, measurements, strict=True)}
        deviations = {name: m.standard_error for name, m in zip(domain.names, measurements, strict=True)}
        positions = cell_positions.measure(mechanisms, split.take(part), counts, deviations)
    return positions


def refuse_fine(domain: Domain, most: int) -> None:
    """Refuse attributes of more than ``most`` cells before anything is charged, because all are measured cell by cell.

    Raises:
        SizeError: an attribute is too large, or all together exceed the vault's limit.
    """
    for attribute in domain:
        if attribute.size > most:
            raise SizeError(
                f"{attribute.name} has {attribute.size:,} cells, more than the {most:,} of one marginal; group them by "
                "edges in the domain, or leave the attribute out",
                culprit=attribute.name,
            )
    check_size(domain, [Marginal((name,)) for name in domain.names])


def refuse_undividable(domain: Domain, loss: Loss) -> None:
    """Refuse a loss too small or too large to divide over the steps of a method, before anything is charged.

    Raises:
        LossError: no noise can be drawn for the loss or a part of it.
    """
    divisible = loss.divisible
    with dividing(loss, "the steps of a graphical method"):
        _ = noises(domain, [Marginal(())], divisible * _LEAST_PART, None)
        _ = Exponential.for_loss(divisible, sensitivity=1, monotone=False)


def count_share(total: RowTotal) -> Fraction:
    """Return the share of the loss that :func:`measure_one_way` takes for the row count."""
    match total:
        case PublicTotal():
            return Fraction(0)
        case BudgetShare(share=share):
            return share
        case NoisyTotal():
            return COUNT_SHARE


def one_way_share(split: BudgetSplit, domain: Domain, rows: float) -> float:
    """Return the share of the loss for one-way marginals: twice the root of their error at the whole loss.

    The error is the mean total variation that noise at the whole loss would cause in ``rows`` rows.
    """
    sizes = split.column_sizes(domain.shape, rows)
    errors = [
        size * split.mean_absolute_noise(float(part)) / (2 * rows)
        for size, part in zip(sizes, split.shares(sizes), strict=True)
    ]
    return min(_MOST_SHARE, _SHARE_SCALE * math.sqrt(sum(errors) / len(errors)))


def _count(mechanisms: Mechanisms, split: BudgetSplit, total: RowTotal) -> tuple[Measurement, ...]:
    if isinstance(total, PublicTotal):
        return ()
    return mechanisms.measure([Marginal(())], split.take(count_share(total)))


def _noisy_table(measurement: Measurement, shape: Sequence[int], *, fresh: bool) -> NoisyTable:
    """Return a measured marginal as a table of the release."""
    assert isinstance(measurement.question, Marginal)
    return NoisyTable.from_cells(
        measurement.question, measurement.values.reshape(shape), measurement.noise, fresh=fresh
    )


def _attributes(measurement: Measurement) -> tuple[str, ...]:
    assert isinstance(measurement.question, Marginal)
    return measurement.question.attributes


def _cells_of(observation: Observation) -> tuple[Clique, Runs | None, bool]:
    """Return a key that is equal for observations of the same cells."""
    return observation.attributes, observation.runs, observation.weights is not None


CLEAR = 2.0
"""Minimum distance of a stored table from independence, in expected noise, for using it at once."""

EARLY_CELL_SHARE = 0.15
"""Share of the cell cap for tables that are used before candidates are scored.  The rest is for better tables."""


@dataclass(frozen=True, eq=False)
class PriorMarginals:
    """The distinct stored marginals over the groups of a fit, and their journal entries."""

    observations: tuple[Observation, ...] = ()
    entries: tuple[int, ...] = ()

    def informative(self, fit: Fit, cap: int) -> tuple[Observation, ...]:
        """Return the joint tables that clearly differ from independence, up to a share of the cell cap."""
        joint = [each for each in self.observations if len(each.attributes) > 1]
        gains = [_distance(fit.model, each) - CLEAR * _expected_noise(each) for each in joint]
        chosen: list[Observation] = []
        present = [factor.attributes for factor in fit.model.factors]
        for gain, each in sorted(zip(gains, joint, strict=True), key=lambda pair: -pair[0]):
            cliques = [*present, *(other.attributes for other in chosen), each.attributes]
            if gain > 0 and tree_cells(cliques, fit.model.sizes) <= EARLY_CELL_SHARE * cap:
                chosen.append(each)
        return tuple(chosen)

    def within_model(self, fit: Fit, used: Sequence[Observation]) -> tuple[Observation, ...]:
        """Return the unused tables whose attributes lie within one clique of the model."""
        return tuple(
            each
            for each in self.observations
            if each not in used and fit.model.tree.holder(each.attributes) is not None
        )


def prior_marginals(domain: Domain, fit: Fit, stored: Sequence[StoredMarginal], loss: Loss) -> PriorMarginals:
    """Return the stored marginals that a release at ``loss`` uses: none if its loss is larger than theirs."""
    stored = [each for each in stored if each.attributes]
    if loss.as_rho().value > sum(each.rho for each in stored):
        return PriorMarginals()
    observations: dict[tuple[str, ...], Observation] = {}
    for each in stored:
        new = merge_into_groups(domain, fit, each)
        old = observations.get(new.attributes)
        observations[new.attributes] = new if old is None else old.pooled_with(new)
    return PriorMarginals(tuple(observations.values()), tuple(sorted({each.entry for each in stored})))


def merge_into_groups(domain: Domain, fit: Fit, stored: StoredMarginal) -> Observation:
    """Sum the cells of a stored marginal into groups; a sum of m cells carries the noise of m cells."""
    names = tuple(name for name in domain.names if name in stored.attributes)
    counts = stored.values.astype(np.float64).transpose([stored.attributes.index(name) for name in names])
    cells = np.ones(counts.shape)
    for axis, name in enumerate(names):
        merge = fit.coarsenings[name].merge
        counts, cells = (np.apply_along_axis(merge, axis, table) for table in (counts, cells))
    return Observation(names, counts, cells * max(stored.noise.variance, LEAST_VARIANCE))


def _distance(model: GraphicalModel, observation: Observation) -> float:
    return float(np.abs(model.expected(observation.attributes) - observation.counts).sum())


def _expected_noise(observation: Observation) -> float:
    deviations = np.sqrt(np.broadcast_to(observation.variance, observation.counts.shape))
    return math.sqrt(2 / math.pi) * float(deviations.sum())
