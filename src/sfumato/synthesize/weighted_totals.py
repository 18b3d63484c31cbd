"""Measure totals of the weight of the rows by the values of every other attribute.

If rows represent several people, sums of their weights are published.  A sum over a table of counts by weights has the
noise of all its cells, multiplied by their weights.  A measured total has only one noise.  Weights are clipped at a
limit and centered at half of it, so a row changes a total by at most half the limit.  Other tables give the number of
rows.

The model includes the totals by a second variable of the weight, its class.  Cliques with it have three classes instead
of all weights, and leave room for other tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.fitting import Observation
from sfumato.model.noisy_table import NoisyTotals
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.binning import LEAST_VARIANCE
from sfumato.synthesize.budget_allocation import BudgetSplit
from sfumato.synthesize.initial_marginals import Fit
from sfumato.synthesize.marginal_selection import Table, coarsened_marginals
from sfumato.synthesize.structural_zeros import KIND
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Measurement, Weighted

SHARE = Fraction(1, 20)
"""Share of the remaining loss after the one-way marginals, for the totals by all other attributes together."""

GRID = 1 << 10
"""Steps of half the limit: the largest change of a total by one row."""

_WITHIN = 0.95  # share of the rows, by noisy counts, whose weight is at most the limit
_CLASSES = 3
_MOST_WEIGHTS = 1 << 23  # weights of the queries of one batch, 64 MiB; totals that need more are not measured


@dataclass(frozen=True, eq=False)
class WeightScale:
    """The measured weights: ``GRID (2 min(weight, limit) / limit - 1)`` for each code, rounded."""

    weight: str
    limit: float
    steps: NDArray[np.int64]

    @staticmethod
    def from_fit(domain: Domain, fit: Fit, weight: str) -> WeightScale:
        """Return the scale by noisy counts and positions of the weight."""
        released = fit.released(domain)
        attribute = numeric(domain, weight)
        position = released.positions.get(weight)
        values = _typical(attribute, 0.0 if position is None else np.array(position.cells))
        order = np.argsort(values, kind="stable")
        rows = np.cumsum(np.maximum(released.cells((weight,)), 0.0)[order])
        limit = float(values[order[min(int(np.searchsorted(rows, _WITHIN * rows[-1])), len(order) - 1)]])
        limit = limit if limit > 0 else float(values.max())  # hardly any row seems to have a weight
        return WeightScale(weight, limit, np.rint(GRID * (2 * np.minimum(values, limit) / limit - 1)).astype(np.int64))


def measure_totals(mechanisms: Mechanisms, fit: Fit, weight: str, split: BudgetSplit) -> Fit:
    """Measure the totals of the weight by all other attributes, at ``SHARE`` of the remaining loss.  Return the new
    fit.

    Neighboring tables differ in one unit (added or removed).  A row is in one group of each attribute, and changes its
    total by at most ``GRID``; the attributes divide the loss as one-way marginals do.  Totals are over the groups of
    each attribute, or over runs of them that the noise allows.

    The observed totals are shrunken toward the model's by the signal of all totals of an attribute.
    """
    domain = mechanisms.domain
    scale, share = WeightScale.from_fit(domain, fit, weight), split.left * SHARE
    names = [name for name in domain.names if name != weight]
    tables = coarsened_marginals(
        fit, domain, [(name,) for name in names], split.deviation(float(share) / max(1, len(names)))
    )
    weights = [table.cells * domain.project((*table.attributes, weight)).size for table in tables]
    tables = [table for table, many in zip(tables, weights, strict=True) if many <= _MOST_WEIGHTS]
    if not tables:
        return fit
    shares = split.shares([float(table.cells) for table in tables])
    totals = _measured(mechanisms, fit, tables, scale, loss=split.take(share), shares=shares)
    fit = replace(fit, totals=totals)
    classes, means = _classes(fit, scale)
    name, size = KIND + KIND + weight, int(classes.max()) + 1
    link = Factor((weight, name), np.where(classes[:, None] == np.arange(size), 0.0, -np.inf))
    held = replace(fit, model=replace(fit.model, sizes={**fit.model.sizes, name: size}).times(link))
    seen = [
        observation
        for table, total in zip(tables, totals, strict=True)
        if (observation := _likely(held, table, total, name, means)) is not None
    ]
    return held.with_observations(seen) if seen else fit


def weighted_query(fit: Fit, table: Table, scale: WeightScale) -> Weighted:
    """Return the query for the totals by runs of groups of one attribute, in steps."""
    (name,) = table.attributes
    inside = table.runs.labels(0)[fit.coarsenings[name].groups] == np.arange(table.cells)[:, None]
    weights = inside[:, :, None] * scale.steps  # (totals, codes, codes of the weight)
    return Weighted((name, scale.weight), weights.reshape(table.cells, -1).astype(np.int64))


def _measured(
    mechanisms: Mechanisms,
    fit: Fit,
    tables: Sequence[Table],
    scale: WeightScale,
    *,
    loss: Epsilon | Rho,
    shares: Sequence[Fraction],
) -> tuple[NoisyTotals, ...]:
    """Measure the totals by each attribute, in batches of bounded size."""
    totals: list[NoisyTotals] = []
    total = sum(shares, Fraction(0))
    while len(totals) < len(tables):
        batch: list[Weighted] = []
        for table in tables[len(totals) :]:
            batch.append(weighted_query(fit, table, scale))
            if sum(each.weights.size for each in batch) > _MOST_WEIGHTS // 2:
                break
        held = shares[len(totals) : len(totals) + len(batch)]
        part = sum(held, Fraction(0))
        answers = mechanisms.measure(batch, loss * (part / total), shares=[share / part for share in held])
        chosen = tables[len(totals) : len(totals) + len(batch)]
        totals += [_noisy_totals(fit, table, answer, scale) for table, answer in zip(chosen, answers, strict=True)]
    return tuple(totals)


def _noisy_totals(fit: Fit, table: Table, answer: Measurement, scale: WeightScale) -> NoisyTotals:
    (name,) = table.attributes
    groups = fit.coarsenings[name].labels_in(table.runs.labels(0))
    return NoisyTotals(
        weight=scale.weight,
        attribute=name,
        groups=groups,
        values=answer.values,
        noise=answer.noise,
        limit=scale.limit,
        grid=GRID,
    )


def _classes(fit: Fit, scale: WeightScale) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the class of each group of the weight, with about equal numbers of rows, and the means of classes."""
    groups = fit.coarsenings[scale.weight]
    values = groups.merge(groups.shares() * scale.steps / GRID)
    rows = np.maximum(fit.model.expected((scale.weight,)), np.finfo(float).tiny)
    order = np.argsort(values, kind="stable")
    middles = (np.cumsum(rows[order]) - rows[order] / 2) / rows.sum()
    classes = np.empty(len(rows), dtype=np.int64)
    classes[order] = np.minimum((middles * _CLASSES).astype(np.int64), _CLASSES - 1)
    classes = np.unique(classes, return_inverse=True)[1]
    means: FloatArray = np.bincount(classes, weights=rows * values) / np.bincount(classes, weights=rows)
    return classes, means


def _likely(fit: Fit, table: Table, total: NoisyTotals, classes: str, means: FloatArray) -> Observation | None:
    """Return shrunken totals to fit the model to; None if they differ from the model's by no more than noise."""
    every, size = tuple(range(len(means))), len(means)
    runs = replace(table.runs, starts=(*table.runs.starts, every), sizes=(*table.runs.sizes, size))
    variance = max(total.noise.variance / total.grid**2, LEAST_VARIANCE)
    counts = total.values.astype(np.float64)[:, None] / total.grid
    observation = Observation((*table.attributes, classes), counts, variance, runs, means)
    cells = fit.model.expected(observation.attributes)
    expected, rows = observation.predict(cells), runs.sum(cells).sum(axis=1, keepdims=True)
    difference = counts - expected
    # a group's mean weight differs from the model's by chance; all groups together estimate the variance
    squared = float((difference**2 - variance).sum() / (rows**2).sum())
    if not squared > 0:
        return None
    return replace(observation, counts=expected + difference * rows**2 * squared / (rows**2 * squared + variance))


def _typical(attribute: Integer | Real, position: FloatArray | float) -> FloatArray:
    """Return the mean weight of a row of each code: zero for a missing weight."""
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    values = bounds.mean(axis=1) + position * (bounds[:, 1] - bounds[:, 0]) / 2
    if attribute.typical is not None:
        values[-1] = float(attribute.typical)
    return np.append(values, np.zeros(attribute.size - attribute.declared))
