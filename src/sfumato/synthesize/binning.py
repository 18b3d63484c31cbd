"""Bins of a column by noisy counts: the groups of its codes in a model, and bin edges for a domain.

Most columns of a model are measured in one table, over single codes.  A number or date of so many cells that their
noise outweighs the rows is also measured over nested groups of neighbors.  The number of cells, the loss and the rows
decide on the groups, and the tables of a column share its loss equally.

Edges taken from the data reveal single values, and edges declared in advance may leave cells empty.
:func:`private_edges` splits a range again if its noisy count is large (after Zhang, Xiao and Xie 2016, "PrivTree").
The depth is fixed, and each level is charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, parse_integer
from sfumato.domain import Categorical, Domain, Integer, Real
from sfumato.domain.attribute import Attribute
from sfumato.errors import QueryError
from sfumato.model.coarsening import MOST_CUTS, Coarsening, merge_neighbours, merge_pieces, merge_rare
from sfumato.model.count_priors import (
    NestedCounts,
    Pieces,
    nested_widths,
    posterior_means,
    shrunken_column,
    with_falling_tails,
)
from sfumato.model.factor import FloatArray
from sfumato.model.fitting import Observation
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.vault.interface import (
    Mechanisms,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.measurables import Marginal, Measurement
from sfumato.vault.value_measurables import Bins

LEAST_VARIANCE = 1e-6  # minimum variance of a cell: at a huge loss the noise variance is a float zero
_SUREST = 1e-2  # minimum variance of an expected tail, relative to the noise; a fit with more certain cells fails

WIDE = 1000
"""Cells above which an ordered column may be measured over groups as well."""

MOST_NOISE = 0.02
"""Noise of all cells of a column, relative to the rows, above which the column is measured over groups as well."""

LEVELS = 5
BRANCHES = 4
_CLEAR = 3.0  # standard deviations of a bin's noise that its count must exceed to be split


@states_loss
def private_edges(
    vault: VaultInterface, attribute: str, *, bins: int, **stated: Unpack[StatedLoss]
) -> tuple[float, ...]:
    """Release the edges of about ``bins`` bins with about the same number of rows each, at ``loss``.

    Adding or removing one row changes one bin of each level by one: each level has sensitivity one and takes an equal
    part of the loss.  For a real attribute the first and the last edge are the declared bounds.  For an integer
    attribute the edges are the first values of bins, and the last bin ends at the declared maximum.

    A number that many rows share gets its own bin if five levels of quarters can isolate it.  To use the edges, put
    them into the domain and open the vault again with the same ledger.

    Raises:
        QueryError: the attribute is not numeric, or ``bins`` is below two.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    expect(loss, Loss, "state a loss: Epsilon, Rho or EpsilonDelta")
    bins = parse_integer(bins, "the number of bins is whole")
    numeric = vault.domain[attribute]
    if bins < 2 or not isinstance(numeric, Integer | Real) or numeric.minimum == numeric.maximum:  # noqa: PLR2004
        raise QueryError(f"{attribute!r} needs to be a number with a range, and bins at least two", culprit=attribute)
    request = ReleaseRequest(
        "synthesize", "private-edges", {"attribute": attribute, "bins": bins}, f"edges of {bins} bins of {attribute}"
    )
    stored = vault.release(
        request, loss, lambda mechanisms: {"edges": np.array(split(mechanisms, attribute, loss, bins=bins))}
    )
    return _declarable(numeric, stored.payload["edges"].tolist())


def _declarable(numeric: Integer | Real, edges: list[float]) -> tuple[float, ...]:
    """Return the edges in the form of the domain.  For an integer attribute these are first values, without the end.

    >>> from sfumato.domain import Unknown
    >>> age = Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP)
    >>> _declarable(age, [0.0, 18.5625, 18.75, 99.0])
    (0, 19)
    """
    if isinstance(numeric, Real):
        return tuple(edges)
    return tuple(sorted({math.ceil(edge) for edge in edges[:-1]}))


def split(mechanisms: Mechanisms, attribute: str, loss: Loss, *, bins: int) -> list[float]:
    """Measure levels of counts through ``mechanisms``, and merge neighboring bins to about equal counts."""
    divisible = loss.divisible
    edges = _bounds(mechanisms.domain, attribute)
    counts: FloatArray = np.array([np.inf])
    deviation = 0.0
    for _ in range(LEVELS):
        heavy = counts > max(_CLEAR * deviation, _share(counts, bins))
        edges = _refined(edges, heavy)
        (measured,) = mechanisms.measure([Bins(attribute, tuple(edges), ())], divisible / LEVELS)
        counts, deviation = measured.values.astype(np.float64), measured.standard_error
    return _merged(edges, np.maximum(counts, 0.0), bins)


def _bounds(domain: Domain, attribute: str) -> list[float]:
    numeric = domain[attribute]
    assert isinstance(numeric, Integer | Real)
    return [float(numeric.minimum), float(numeric.maximum)]


def _share(counts: FloatArray, bins: int) -> float:
    """Return half the target count of a bin, above which a bin is split."""
    finite = counts[np.isfinite(counts)]
    return float(np.maximum(finite, 0.0).sum()) / (2 * bins)


def _refined(edges: list[float], heavy: NDArray[np.bool_]) -> list[float]:
    refined = [edges[0]]
    for low, high, again in zip(edges[:-1], edges[1:], heavy, strict=True):
        inner = np.linspace(low, high, BRANCHES + 1)[1:].tolist() if again else [high]
        refined += [edge for edge in inner if edge > refined[-1]]
    return refined


def _merged(edges: list[float], counts: FloatArray, bins: int) -> list[float]:
    """Merge neighboring bins until each has about an equal share of the remaining rows."""
    left = float(counts.sum())
    merged, rows = [edges[0]], 0.0
    for edge, count in zip(edges[1:-1], counts[:-1], strict=True):
        rows += float(count)
        if len(merged) < bins and rows >= left / (bins - len(merged) + 1) > 0:
            merged.append(edge)
            left, rows = left - rows, 0.0
    return [*merged, edges[-1]]


def first_widths(attribute: Attribute, deviation: float, rows: float) -> tuple[int, ...]:
    """Return the codes in a group of each first table of a column, coarsest first; the last table is of single codes.

    Args:
        attribute: the attribute of the column.
        deviation: standard deviation of the noise on a code if there were no other table.
        rows: public number of rows, or a noisy one.
    """
    wide = attribute.size > WIDE and math.sqrt(attribute.size) * deviation > MOST_NOISE * rows
    if not wide or isinstance(attribute, Categorical) or (isinstance(attribute, Real) and attribute.points):
        return (1,)
    return nested_widths(attribute.declared)


@dataclass(frozen=True, eq=False)
class FirstTables:
    """The first noisy tables of a column.

    Attributes:
        attribute: the attribute of the column.
        widths: codes in a group of each table, coarsest first.
        measurements: the tables; the last is of single codes.
    """

    attribute: Attribute
    widths: tuple[int, ...]
    measurements: tuple[Measurement, ...]

    @property
    def single(self) -> Measurement:
        """The table of single codes."""
        return self.measurements[-1]

    def grouped(
        self,
        domain: Domain,
        strata: NDArray[np.int64] | None,
        *,
        max_deviations: float,
        cuts: int = MOST_CUTS,
        shrinks: bool = False,
        smooths: bool = False,
    ) -> GroupedColumn:
        """Return the groups of the codes and their noisy counts: :func:`coarsen` has the arguments.

        ``smooths`` is True if ordered groups that noise does not tell apart share one line of counts, and rare
        categories have weights by the posterior means of their counts.
        """
        if len(self.widths) > 1:
            return _group_nested(self, max_deviations)
        groups = coarsen(domain, self.attribute, self.single, strata, max_deviations=max_deviations, cuts=cuts)
        codes, counts = np.ones(self.attribute.size, dtype=np.int64), self.single.values.astype(np.float64)
        pieces = Pieces(codes, counts, np.full(len(codes), variance_of(self.single)))
        observed = merged_column(groups, self.single, self.attribute, shrinks=shrinks)
        if not smooths or math.isinf(max_deviations):
            return GroupedColumn(pieces, groups, observed)
        if isinstance(self.attribute, Categorical):
            even, deviation = np.full(len(counts), max(0.0, counts.mean())), math.sqrt(variance_of(self.single))
            groups = groups.weighted(np.maximum(posterior_means(counts, even, deviation)[0], 0.0))
        else:
            wider = coarsen(domain, self.attribute, self.single, strata, max_deviations=math.inf, cuts=cuts)
            groups, held = groups.smoothed(wider, counts)
            observed = replace(observed, counts=held)
        return GroupedColumn(pieces, groups, observed)


@dataclass(frozen=True, eq=False)
class GroupedColumn:
    """The groups of a column, and their noisy counts.

    Attributes:
        pieces: runs of codes with one noisy count each.  With one first table, every piece is a single code.
        merged: the groups of the pieces.
        observation: a noisy count of each group.
    """

    pieces: Pieces
    merged: Coarsening
    observation: Observation

    @property
    def coarsening(self) -> Coarsening:
        """The groups of the codes; the weight of a piece is spread evenly over its codes."""
        widths = self.pieces.widths
        return Coarsening(np.repeat(self.merged.groups, widths), np.repeat(self.merged.weights / widths, widths))

    def with_tails(self, attribute: Attribute) -> GroupedColumn:
        """Spread rare groups at the ends of a number as falling tails, and observe their expected counts."""
        if not isinstance(attribute, Integer | Real):
            return self
        variance = float(np.median(self.pieces.variances))
        starts = np.cumsum(self.pieces.widths) - self.pieces.widths
        cells = np.add.reduceat(_cell_widths(attribute), starts[starts < attribute.declared])
        shared, estimates = with_falling_tails(self.merged, self.pieces.counts, variance, cells)
        held, variances = self.observation.counts.copy(), np.array(self.observation.variance)
        for group, (expected, spread) in estimates.items():
            held[group], variances[group] = expected, max(spread, _SUREST * variance)
        return replace(self, merged=shared, observation=Observation((attribute.name,), held, variances))


def _group_nested(tables: FirstTables, max_deviations: float) -> GroupedColumn:
    """Return the groups of a column with several first tables, and their counts by all of these."""
    extra = tables.attribute.size - tables.attribute.declared
    values = [each.values.astype(np.float64) for each in tables.measurements]
    variances = [variance_of(each) for each in tables.measurements]
    ranks = [counts[: len(counts) - extra] for counts in values]
    pieces = NestedCounts.of_tables(tables.widths, ranks, variances).pieces()
    runs = merge_pieces(pieces.counts, pieces.variances, pieces.widths.astype(float), max_deviations=max_deviations)
    weights = 1 / np.array(variances)
    others = weights @ np.array([counts[len(counts) - extra :] for counts in values]) / weights.sum()
    every = Pieces(
        np.concatenate([pieces.widths, np.ones(extra, dtype=np.int64)]),
        np.concatenate([pieces.counts, others]),
        np.concatenate([pieces.variances, np.full(extra, 1 / weights.sum())]),
    )
    groups = np.concatenate([runs, runs[-1] + 1 + np.arange(extra)])
    merged = Coarsening(groups, every.widths.astype(np.float64))
    observed = Observation((tables.attribute.name,), merged.merge(every.counts), merged.merge(every.variances))
    return GroupedColumn(every, merged, observed)


def measure_columns(
    mechanisms: Mechanisms, loss: Epsilon | Rho, shares: Sequence[Fraction], widths: Sequence[tuple[int, ...]]
) -> list[FirstTables]:
    """Measure the first tables of all columns, together at ``loss``.

    The tables of a column divide its share equally.
    """
    domain = mechanisms.domain
    questions = [[_grouped(each, width) for width in of] for each, of in zip(domain, widths, strict=True)]
    parts = [[share / len(of)] * len(of) for share, of in zip(shares, widths, strict=True)]
    measured = iter(mechanisms.measure([*chain(*questions)], loss, shares=[*chain(*parts)]))
    return [FirstTables(each, of, tuple(next(measured) for _ in of)) for each, of in zip(domain, widths, strict=True)]


def _grouped(attribute: Attribute, width: int) -> Marginal:
    """Return the question of a column over groups of ``width`` neighbors; missing and unknown values stay apart."""
    if width == 1:
        return Marginal((attribute.name,))
    groups = np.arange(attribute.declared) // width
    others = groups[-1] + 1 + np.arange(attribute.size - attribute.declared)
    return Marginal((attribute.name,), groups=((*groups.tolist(), *others.tolist()),))


def coarsen(
    domain: Domain,
    attribute: Attribute,
    measurement: Measurement,
    strata: NDArray[np.int64] | None,
    *,
    max_deviations: float,
    cuts: int = MOST_CUTS,
) -> Coarsening:
    """Group the codes of an attribute: neighbors if its values have an order, otherwise rare codes.

    Rare codes are merged along the hierarchy that the domain declares.
    """
    counts = measurement.values.astype(np.float64)
    if isinstance(attribute, Real) and attribute.points:
        strata = _points_apart(attribute, strata)
    if isinstance(attribute, Categorical):
        hierarchy = domain.hierarchy(attribute.name)
        levels = () if hierarchy is None else tuple(level.cells for level in hierarchy.levels[1:-1])
        return merge_rare(counts, variance_of(measurement), strata=strata, levels=levels)
    cells, variance = attribute.declared, variance_of(measurement)
    return merge_neighbours(counts, variance, cells, max_deviations=max_deviations, strata=strata, cuts=cuts)


def _points_apart(attribute: Real, strata: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return numbers of codes that are equal only for equal ``strata`` and differ at every point."""
    before = np.zeros(attribute.size, dtype=np.int64) if strata is None else strata
    own = np.zeros(attribute.size, dtype=np.int64)
    points = [code for code in range(attribute.declared) if attribute.is_point(code)]
    own[points] = 1 + np.arange(len(points))
    return before * (len(points) + 1) + own


def merged_column(groups: Coarsening, measurement: Measurement, attribute: Attribute, *, shrinks: bool) -> Observation:
    """Sum noisy counts over groups; m codes carry the noise of m cells.  Single categories may shrink."""
    counts, codes = groups.merge(measurement.values.astype(np.float64)), groups.merge(np.ones(attribute.size))
    if shrinks and isinstance(attribute, Categorical):
        counts[codes == 1] = shrunken_column(counts[codes == 1], variance_of(measurement))
    return Observation((attribute.name,), counts, codes * variance_of(measurement))


def _cell_widths(attribute: Integer | Real) -> NDArray[np.float64]:
    """Return the widths of the declared cells: 0 for points.  An open cell has its typical value in the middle."""
    if isinstance(attribute, Real):
        widths = np.diff([attribute.bounds(code) for code in range(attribute.declared)])[:, 0]
    elif attribute.edges is None:
        return np.ones(attribute.declared)
    else:
        widths = np.diff(attribute.edges, append=attribute.maximum + 1).astype(np.float64)
    if attribute.typical is not None:
        low, _high = attribute.bounds(attribute.declared - 1)
        widths[-1] = max(2 * (attribute.typical - low), isinstance(attribute, Integer), widths[-1] * 1e-6)
    return widths


def variance_of(measurement: Measurement) -> float:
    """Return the variance of the noise on a count."""
    return max(measurement.noise.variance, LEAST_VARIANCE)
