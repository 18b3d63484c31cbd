"""Estimates from noisy tables: signed sums of counts, sums and ratios, with the variance of their noise.

Every number is a sum over the cells of all tables that have the attributes of the query.  The weights do not depend on
the noisy counts, so the variance is known.  Ratios use the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import All, Predicate, holds_at_cells, named
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyTable
from sfumato.query.aggregates import Confidence
from sfumato.query.aggregates.contract import NoisyValue

_LEAST_DENOMINATOR = 5.0
"""Standard deviations of its noise that a denominator must reach: below, a ratio is not nearly linear in the noise."""

_PAIR = 2
_TINY = 1e-9


@dataclass(frozen=True)
class Term:
    """A sum of ``of``, or of ones, over the rows that meet ``where``.

    A ratio is divided by the rows that meet ``among``.  ``sign`` is its sign in a difference.
    """

    sign: int
    where: Predicate | None
    of: str | None
    ratio: bool
    among: Predicate | None
    words: str
    notes: tuple[str, ...]

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes of its conditions and values."""
        return named(self.where) | named(self.among) | (frozenset() if self.of is None else {self.of})


@dataclass(frozen=True, eq=False)
class ProjectedCounts:
    """Counts over the attributes of a query: one axis per attribute, over groups of its codes.

    Each cell carries noise of ``variance``, independent of all others.  An interval is ``spread`` of its standard
    deviations and one step of its integers.
    """

    counts: FloatArray
    groups: tuple[NDArray[np.int64], ...]
    variance: float = 0.0
    spread: float = 0.0


def _view(table: NoisyTable, names: tuple[str, ...], domain: Domain, confidence: Confidence) -> ProjectedCounts:
    """Return a noisy table, summed over all attributes that the query does not name."""
    others = tuple(axis for axis, name in enumerate(table.attributes) if name not in names)
    held = [name for name in table.attributes if name in names]
    summed = table.values.sum(axis=others).astype(np.float64).transpose([held.index(name) for name in names])
    cells = math.prod(table.values.shape[axis] for axis in others)
    groups = tuple(table.group_numbers(name, domain) for name in names)
    return ProjectedCounts(summed, groups, cells * table.noise.variance, confidence.standard_deviations(table.noise))


@dataclass(frozen=True, eq=False)
class TermWeights:
    """A term over the cells of one view: the contribution of a row to both sums, and the possible error of its value.

    Attributes:
        above: the contribution to a sum, or to the numerator of a ratio.
        below: the contribution to the denominator; None for a sum.
        less: the largest possible overestimate of the value.
        more: the largest possible underestimate of the value.
    """

    above: FloatArray
    below: FloatArray | None
    less: FloatArray
    more: FloatArray

    @property
    def off(self) -> FloatArray:
        """The largest possible error of a value, to either side."""
        return np.maximum(self.less, self.more)

    def at(self, side: int) -> TermWeights:
        """Return the weights with values at the lower ends (-1), middles (0) or upper ends (1) of their groups."""
        return replace(self, above=self.above + (self.more if side > 0 else side * self.less))


@dataclass(frozen=True)
class DirectEstimate:
    """An estimate with the standard errors and the ends of the intervals of the table and of a population."""

    value: float
    errors: tuple[float, float]
    lows: tuple[float, float]
    highs: tuple[float, float]
    widened: float

    def of_table(self) -> NoisyValue:
        """Return the interval of the table's own answer."""
        return self._around(0)

    def of_population(self) -> NoisyValue:
        """Return the interval of the answer of a population that the rows are drawn from."""
        return self._around(1)

    def _around(self, which: int) -> NoisyValue:
        return NoisyValue(self.value, self.errors[which], self.lows[which], self.highs[which])


def estimate(
    tables: Sequence[NoisyTable], names: tuple[str, ...], terms: Sequence[Term], domain: Domain, confidence: Confidence
) -> tuple[DirectEstimate | str, list[NoisyTable]]:
    """Return the signed sum of the terms and its tables, or the reason why it has no interval."""
    used: list[NoisyTable] = []
    views: list[ProjectedCounts] = []
    weights: list[list[TermWeights]] = []  # one list per view, with one entry per term
    for table in _tables_for(tables, names, domain):
        view = _view(table, names, domain, confidence)
        held = [each for term in terms if (each := term_weights(view, term, names, domain)) is not None]
        if len(held) == len(terms):
            used, views, weights = [*used, table], [*views, view], [*weights, held]
    if not tables:
        return "the release keeps no noisy tables: its method measures other queries, or its version kept none", []
    if not views:
        return (
            "no table measured for this release holds what is asked about, on groups that the question does not cut",
            [],
        )
    rows = _rows(tables, domain, confidence)
    middle = _combined(views, weights, terms, rows, 0)
    if isinstance(middle, str):
        return middle, []
    ends = [middle, middle]
    if any(each.off.any() for held in weights for each in held):
        found_ends = (_combined(views, weights, terms, rows, side) for side in (-1, 1))
        ends = [end for end in found_ends if not isinstance(end, str)]
    spread = max(view.spread for view in views)
    lows, highs = (
        tuple(
            middle.value + side * max(0.0, side * (end.value - middle.value) + spread * error + end.step)
            for error in end.errors
        )
        for side, end in zip((-1, 1), ends, strict=True)
    )
    widened = max(0.0, (ends[1].value - ends[0].value) / 2)
    return DirectEstimate(middle.value, middle.errors, (lows[0], lows[1]), (highs[0], highs[1]), widened), used


@dataclass(frozen=True)
class _Combined:
    """The signed sum of terms, its standard errors for the table and for a population, and the effect of one row."""

    value: float
    errors: tuple[float, float]
    step: float


def _combined(
    views: Sequence[ProjectedCounts],
    weights: Sequence[Sequence[TermWeights]],
    terms: Sequence[Term],
    rows: float,
    side: int,
) -> _Combined | str:
    """Return the signed sum of the terms, or the reason why it has no interval.

    Values are at the middles of their groups, or at the ends that lower (``side`` -1) or raise (1) the sum.  If the
    values of a group may lie anywhere between its ends, the answer may lie between the sums of all lower and all upper
    ends.  Each is a sum or ratio with its own weights and noise.  An interval from the lower end of the one to the
    upper end of the other holds the answer wherever it lies (Imbens and Manski 2004).
    """
    answers: list[_Answer] = []
    for place, term in enumerate(terms):
        answer = _answer(views, [each[place].at(side * term.sign) for each in weights])
        if isinstance(answer, str):
            return answer
        answers.append(answer)
    signs = [term.sign for term in terms]
    slopes, row_effects = (
        [sum(sign * each for sign, each in zip(signs, parts, strict=True)) for parts in zip(*kinds, strict=True)]
        for kinds in ([answer.slopes for answer in answers], [answer.row_effects for answer in answers])
    )
    noise = sum(view.variance * float((slope**2).sum()) for view, slope in zip(views, slopes, strict=True))
    squares = [(move**2 * view.counts).sum() for view, move in zip(views, row_effects, strict=True)]
    moved = sum(sign * answer.moved for sign, answer in zip(signs, answers, strict=True))
    sampling = max(0.0, float(answers[0].shares @ squares) - moved**2 / max(1.0, rows))
    steps = [float(np.abs(slope).max()) for slope, view in zip(slopes, views, strict=True) if view.variance]
    value = sum(sign * answer.value for sign, answer in zip(signs, answers, strict=True))
    # the step is the largest change by one row of noise: sums of small noise have no values between
    return _Combined(value, (math.sqrt(noise), math.sqrt(noise + sampling)), max(steps, default=0.0))


def _rows(tables: Sequence[NoisyTable], domain: Domain, confidence: Confidence) -> float:
    """Return the number of rows by all tables, weighted by inverse variance."""
    views = [_view(table, (), domain, confidence) for table in tables]
    inverse = np.array([1 / max(view.variance, _TINY) for view in views])
    return float(inverse @ [float(view.counts) for view in views] / inverse.sum())


def _tables_for(tables: Sequence[NoisyTable], names: tuple[str, ...], domain: Domain) -> list[NoisyTable]:
    """Return the tables that may answer a query about ``names``, chosen without a look at the query's cells.

    The groups of an attribute follow from the noise of its first tables.  Given the groups, that noise has another
    distribution.  So first tables are never combined with later tables, whether or not these can be used with the
    groups.  An attribute with no value or two declared values has no groups.
    """
    holding = [table for table in tables if set(names) <= set(table.attributes)]
    if all(isinstance(domain[name], Categorical) and domain[name].size <= _PAIR for name in names):
        return holding
    first = [table for table in holding if not table.fresh]
    return first or holding


@dataclass(frozen=True, eq=False)
class _Answer:
    """An estimate of one term.

    Attributes:
        value: the answer.
        slopes: for each view, the derivative of the answer by each of its cells.
        row_effects: for each view, the change of the exact answer per additional row in a cell.
        shares: the weights of the views in the answer.
        moved: the sum of ``row_effects`` over all rows.
    """

    value: float
    slopes: tuple[FloatArray, ...]
    row_effects: tuple[FloatArray, ...]
    shares: FloatArray
    moved: float


def _answer(views: Sequence[ProjectedCounts], weights: Sequence[TermWeights]) -> _Answer | str:
    """Return one term from all views, weighted by inverse variance; or the reason why a ratio has no interval.

    Numerator and denominator are sums over the same noisy cells.  A ratio has the derivatives of (above - ratio x
    below) / denominator: the delta method.
    """
    scale = [each.above if each.below is None else each.below for each in weights]
    variances = [float((cells**2).sum()) * view.variance for cells, view in zip(scale, views, strict=True)]
    inverse = 1 / np.maximum(variances, _TINY)
    shares: FloatArray = inverse / inverse.sum()

    def summed(parts: Sequence[FloatArray]) -> float:
        return float(shares @ [float((part * view.counts).sum()) for part, view in zip(parts, views, strict=True)])

    above = summed([each.above for each in weights])
    below, ratio = 1.0, 0.0
    under = [each.below for each in weights if each.below is not None]
    if under:
        below, deviation = summed(under), math.sqrt(float(shares**2 @ variances))
        if below <= 0 or below < _LEAST_DENOMINATOR * deviation:
            return (
                f"too few rows stand in the denominator for an interval: {below:.4g}, with a standard error of "
                f"{deviation:.4g}"
            )
        ratio = above / below
    row_effects = tuple((each.above - (0.0 if each.below is None else ratio * each.below)) / below for each in weights)
    return _Answer(
        value=above / below,
        slopes=tuple(share * move for share, move in zip(shares, row_effects, strict=True)),
        row_effects=row_effects,
        shares=shares,
        moved=above / below - ratio,
    )


def term_weights(view: ProjectedCounts, term: Term, names: tuple[str, ...], domain: Domain) -> TermWeights | None:
    """Return the term on the groups of a view; None if it is not constant on them."""
    above = _on_groups(_condition_mask(term.where, names, domain), view)
    below = _on_groups(_condition_mask(term.among, names, domain), view) if term.ratio else None
    if above is None or (term.ratio and below is None):
        return None
    if term.of is None:
        return TermWeights(above, below, np.zeros_like(above), np.zeros_like(above))
    axis = names.index(term.of)
    shape = [-1 if place == axis else 1 for place in range(len(names))]
    low, middle, high = (
        above * ends.reshape(shape) for ends in _ends(numeric(domain, term.of), view.groups[axis], above.shape[axis])
    )
    return TermWeights(middle, below, middle - low, high - middle)


def _condition_mask(where: Predicate | None, names: tuple[str, ...], domain: Domain) -> NDArray[np.bool_]:
    return holds_at_cells(All(()) if where is None else where, names, domain)


def _on_groups(meets: NDArray[np.bool_], view: ProjectedCounts) -> FloatArray | None:
    """Return ones at the groups that meet a condition, zeros elsewhere; None if it holds for a part of a group."""
    every = some = meets
    for axis, groups in enumerate(view.groups):
        if meets.shape[axis] > 1:
            order = np.argsort(groups, kind="stable")
            starts = np.searchsorted(groups[order], np.arange(view.counts.shape[axis]))
            every = np.logical_and.reduceat(every.take(order, axis=axis), starts, axis=axis)
            some = np.logical_or.reduceat(some.take(order, axis=axis), starts, axis=axis)
    if not np.array_equal(every, some):
        return None
    return np.broadcast_to(every, view.counts.shape).astype(np.float64)


def _ends(attribute: Integer | Real, groups: NDArray[np.int64], size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the least, a middle and the greatest value of each group of codes; zeros if it has none.

    The middle of an open cell is its typical value.  In a group with other cells, that value is the end of the open
    cell.
    """
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    own, last = groups[: attribute.declared], attribute.declared - 1
    low, high, end = np.full(size, np.inf), np.full(size, -np.inf), np.full(size, -np.inf)
    np.minimum.at(low, own, bounds[:, 0])
    np.maximum.at(high, own, bounds[:, 1])
    if attribute.typical is not None:
        bounds[last, 1] = attribute.typical
    np.maximum.at(end, own, bounds[:, 1])
    valued = low <= high
    low, high, end = (np.where(valued, each, 0.0) for each in (low, high, end))
    middle = (low + end) / 2
    if attribute.typical is not None and (own == own[last]).sum() == 1:
        middle[own[last]] = attribute.typical
    return low, middle, high
