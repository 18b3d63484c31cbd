"""Totals of the weight of the rows by the values of every other attribute, measured as such.

Where rows stand for several people, what is published are sums of their weights by groups.  Read off a table of counts
over groups of weights, such a sum carries the noise of all its cells, times their weights; measured by itself it
carries one noise.  Weights are cut at a limit, and taken from half of it: what a total then lacks is half the limit
times the number of rows, which other tables tell, and a row moves it by half the limit at most.

The model holds the totals by a second variable of the weight, its class: cliques that bind attributes to it hold three
classes rather than all weights, and leave room for what else is measured.
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
from sfumato.synthesize.budget_allocation import BudgetSplit
from sfumato.synthesize.initial_marginals import LEAST_VARIANCE, Fit
from sfumato.synthesize.marginal_selection import Table, coarsened_marginals
from sfumato.synthesize.structural_zeros import KIND
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Measurement, Weighted

SHARE = Fraction(1, 20)
"""Of what is left of the loss after the one-way marginals: for the totals by all other attributes together."""

GRID = 1 << 10
"""Steps of half the limit: so many a row moves a total by at most."""

_WITHIN = 0.95  # of the rows, by noisy counts, have a weight of at most the limit
_CLASSES = 3
_MOST_WEIGHTS = 1 << 23  # of the questions that are asked at once, 64 MiB; totals that need more are not measured


@dataclass(frozen=True, eq=False)
class WeightScale:
    """Weights as they are measured: ``GRID (2 min(weight, limit) / limit - 1)`` for each code, rounded."""

    weight: str
    limit: float
    steps: NDArray[np.int64]

    @staticmethod
    def from_fit(domain: Domain, fit: Fit, weight: str) -> WeightScale:
        """By noisy counts and positions of the weight alone."""
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
    """The state after measuring the totals of the weight by all other attributes, at ``SHARE`` of the loss left.

    Neighbouring tables differ in one unit (added or removed).  A row is in one group of each attribute, and moves its
    total by at most ``GRID``, whatever its weight; the attributes divide the loss as one-way marginals do.  Totals are
    over the groups of each attribute, or over runs of them that the noise allows.

    What the model is fitted to is drawn to what it said before, by how far all totals of an attribute are from that
    beside their noise: groups of few rows, and attributes that the weight does not go with, keep what they had.
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
    """The totals by runs of groups of one attribute, in steps."""
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
    """The totals by each attribute, as many attributes at a time as have so many weights together."""
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
    """The class of each group of the weight, of about as many rows each, and the mean of a class, -1 to 1."""
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
    """The totals as the model is fitted to them; None where they are as near as noise to what it says already."""
    every, size = tuple(range(len(means))), len(means)
    runs = replace(table.runs, starts=(*table.runs.starts, every), sizes=(*table.runs.sizes, size))
    variance = max(total.noise.variance / total.grid**2, LEAST_VARIANCE)
    counts = total.values.astype(np.float64)[:, None] / total.grid
    observation = Observation((*table.attributes, classes), counts, variance, runs, means)
    cells = fit.model.expected(observation.attributes)
    expected, rows = observation.predict(cells), runs.sum(cells).sum(axis=1, keepdims=True)
    difference = counts - expected
    # a group's mean weight differs from what the model has by chance, with a variance that all groups tell together
    squared = float((difference**2 - variance).sum() / (rows**2).sum())
    if not squared > 0:
        return None
    return replace(observation, counts=expected + difference * rows**2 * squared / (rows**2 * squared + variance))


def _typical(attribute: Integer | Real, position: FloatArray | float) -> FloatArray:
    """What a row of each code weighs on average: nothing where the weight is missing."""
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    values = bounds.mean(axis=1) + position * (bounds[:, 1] - bounds[:, 0]) / 2
    if attribute.typical is not None:
        values[-1] = float(attribute.typical)
    return np.append(values, np.zeros(attribute.size - attribute.declared))
