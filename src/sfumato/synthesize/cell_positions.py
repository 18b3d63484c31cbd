"""Measure the mean positions of numbers within wide cells, and draw numbers at these positions.

Numbers drawn evenly from wide cells give wrong totals.  Incomes are often round numbers, where many cells begin, and
the density falls within cells of a tail.  The noisy counts of neighboring cells suggest the slope of the density in
each cell.  Two measured sums correct it: the distances of values from the middle of their cells, over the cells of
nearly all rows, and over the few wider cells (such as the open end of incomes).  A row is in one of the two sums, so
both together cost as much as one.

Numbers are drawn with randomness for post-processing, which may be seeded.  No guarantee depends on it.  The noise on
the sums is drawn in ``privacy``.

Round numbers are more frequent than others.  Rows by the last step (5, 10, 50, ...) that divides their number are
counted for each column of integers, over all wide cells together.  Numbers are drawn with these frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.errors import SizeError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import IntegerArray, Measurement
from sfumato.vault.value_measurables import Positions, RoundNumbers

SHARE = Fraction(1, 100)
"""Share of the loss for the positions of all attributes with wide cells together, if there are any."""

ROUND_SHARE = Fraction(1, 500)
"""Share of the loss for the round numbers of all attributes of integers with wide cells together."""

_STEPS = 1 << 12  # minimum steps that one row adds: enough for any precision
_FINE = 1 << 8  # steps of the widest cells of nearly all people
_NEARLY_ALL = 0.95  # share of the people; wider cells than theirs are summed separately
_LARGEST = 1 << 27  # steps from zero to a bound
_MOST = 0.9  # largest mean position, in halves of a cell
_LEAST_DEVIATION = 1e-6  # of a count; at a huge loss it is a float zero, and an empty cell has no logarithm
_ANYWHERE = 1 / 3  # prior variance of a mean position: uniform on [-1, 1]


@dataclass(frozen=True)
class Rounding:
    """The relative frequency of a number by the last step that divides it.

    ``steps`` are multiples of those before.  ``weights`` has one more entry, for numbers that no step divides.
    """

    steps: tuple[int, ...]
    weights: tuple[float, ...]

    def of(self, numbers: IntegerArray) -> FloatArray:
        """Return the weights of numbers."""
        last = np.full(numbers.shape, len(self.steps))
        for place, step in enumerate(self.steps):
            last[numbers % step == 0] = place
        weights: FloatArray = np.array(self.weights)[last]
        return weights


@dataclass(frozen=True)
class CellPosition:
    """The positions of the numbers of an attribute within its declared cells.

    Attributes:
        cells: mean positions, -1 at the lower and 1 at the upper end of a cell.
        rounding: frequencies of round numbers; None if all numbers of a cell are alike.
    """

    cells: tuple[float, ...]
    rounding: Rounding | None = None

    @staticmethod
    def of_all(mean: float, deviation: float, declared: int) -> CellPosition:
        """Return one shrunken position for all cells (James and Stein 1961), for models in an older format."""
        shrinkage = 1 - (deviation / mean) ** 2 if abs(mean) > deviation else 0.0
        return CellPosition((float(np.clip(shrinkage * mean, -_MOST, _MOST)),) * declared)


POSITIONS, _ROUNDINGS = "positions of cells", "round numbers"  # keys of a stored model


def positions_payload(positions: Mapping[str, CellPosition]) -> dict[str, Any]:
    """Return positions as JSON values; :func:`restore_positions` reads them."""
    rounded = {name: each.rounding for name, each in positions.items() if each.rounding is not None}
    roundings = {name: [list(each.steps), list(each.weights)] for name, each in rounded.items()}
    cells = {POSITIONS: {name: list(position.cells) for name, position in positions.items()}}
    return cells | ({_ROUNDINGS: roundings} if roundings else {})


def restore_positions(domain: Domain, payload: Mapping[str, Any]) -> dict[str, CellPosition]:
    """Restore the positions of a stored payload, which is not trusted.

    Models in an older format have one mean and its noise for all cells.

    Raises:
        DomainError, QueryError, SizeError: a position or a rounding is not one of an attribute of the domain.
    """
    older, held, roundings = payload.get("positions", {}), payload.get(POSITIONS, {}), payload.get(_ROUNDINGS, {})
    positions = {name: CellPosition.of_all(mean, noise, domain[name].declared) for name, (mean, noise) in older.items()}
    for name, cells in held.items():
        rounding = _restored_rounding(domain, name, *roundings[name]) if name in roundings else None
        positions[name] = CellPosition(tuple(cells), rounding)
    for name, position in positions.items():
        sound = all(type(mean) in (int, float) and -1 <= mean <= 1 for mean in position.cells)
        if not sound or len(position.cells) != numeric(domain, name).declared:
            raise SizeError("the model has positions that are not those of the cells of a number", culprit=name)
    if not set(roundings) <= set(held):
        raise SizeError("the model has round numbers without positions", culprit=roundings)
    return positions


def _restored_rounding(domain: Domain, name: str, steps: Sequence[int], weights: Sequence[float]) -> Rounding:
    RoundNumbers(name, tuple(steps)).check(domain)
    sound = all(type(weight) in (int, float) and _LEAST <= weight <= 1 for weight in weights)
    if not sound or len(weights) != len(steps) + 1:
        raise SizeError("the model has round numbers whose weights are not those of their steps", culprit=name)
    return Rounding(tuple(steps), tuple(map(float, weights)))


def attributes_with_wide_cells(domain: Domain) -> list[Integer | Real]:
    """Return the attributes with a cell of more than one number."""
    return [attribute for attribute in domain if isinstance(attribute, Integer | Real) and _has_wide_cell(attribute)]


def share(domain: Domain) -> Fraction:
    """Return the share of the loss for positions and round numbers: zero if every number has its own cell."""
    positions = SHARE if attributes_with_wide_cells(domain) else Fraction(0)
    return positions + (ROUND_SHARE if round_number_queries(domain) else Fraction(0))


def round_number_queries(domain: Domain) -> list[RoundNumbers]:
    """Return the queries of round numbers: one for each attribute of integers with a cell of ten numbers or more.

    Attributes with a cell of more than a billion numbers have none, because their cells are too large to list.
    """
    queries = []
    for attribute in attributes_with_wide_cells(domain):
        if isinstance(attribute, Integer):
            low, high = _bounds(attribute)[: attribute.declared - (attribute.typical is not None)].T
            widest = int((high - low).max()) + 1
            if widest <= _WIDEST and (steps := candidate_steps(widest)):
                queries.append(RoundNumbers(attribute.name, steps))
    return queries


def measure(
    mechanisms: Mechanisms, loss: Epsilon | Rho, counts: Mapping[str, FloatArray], deviations: Mapping[str, float]
) -> dict[str, CellPosition]:
    """Measure mean positions and round numbers within the cells of every attribute with wide cells, at ``loss``.

    ``counts`` are public: noisy counts of the cells of each attribute, with the ``deviations`` of their noise.
    """
    attributes = attributes_with_wide_cells(mechanisms.domain)
    queries = [position_query(attribute, counts[attribute.name]) for attribute in attributes]
    rounds = round_number_queries(mechanisms.domain)
    part = ROUND_SHARE / share(mechanisms.domain) if rounds else Fraction(0)
    shares = [*[(1 - part) / len(queries)] * len(queries), *[part / max(1, len(rounds))] * len(rounds)]
    measured = mechanisms.measure([*queries, *rounds], loss, shares=shares)
    positions = {
        attribute.name: position(mechanisms.domain, attribute, answer, counts[query.value], deviations[query.value])
        for attribute, query, answer in zip(attributes, queries, measured, strict=False)
    }
    for query, answer in zip(rounds, measured[len(queries) :], strict=True):
        rounding = _rounding(mechanisms.domain, query, answer, counts[query.value])
        positions[query.value] = replace(positions[query.value], rounding=rounding)
    return positions


def _rounding(domain: Domain, query: RoundNumbers, measured: Measurement, counts: FloatArray) -> Rounding | None:
    attribute = domain[query.value]
    assert isinstance(attribute, Integer)
    bounds = _bounds(attribute).astype(np.int64)
    rows = np.where(query.wide_cells(domain), np.maximum(counts[: attribute.declared], 0.0), 0.0)
    return fit_rounding(bounds, rows, query.steps, measured.values.astype(np.float64), measured.standard_error)


def position_query(attribute: Integer | Real, counts: FloatArray) -> Positions:
    """Return the query of an attribute's positions.

    A row counts in proportion to half the width of its cell, so that the answer is the error of a total.  Cells that
    are wider than the cells of nearly all people are a separate part.  Each part is scaled to its widest cell, because
    the noise is scaled to the largest row.
    """
    bounds = _bounds(attribute)
    widths = bounds[:, 1] - bounds[:, 0]
    if attribute.typical is not None:
        widths[-1] = 0.0  # the value of an open cell is declared
    held = np.where(widths > 0, np.maximum(counts[: attribute.declared], 0.0), 0.0)
    order = np.argsort(widths, kind="stable")
    below = np.cumsum(held[order])
    nearly_all = int(np.searchsorted(below, _NEARLY_ALL * below[-1]))
    cap = float(widths[order[nearly_all]]) if below[-1] > 0 else float(widths.max())
    unit = _unit(attribute, cap)
    steps = np.diff(np.array(Positions(attribute.name, unit, ()).steps(Domain((attribute,)))), axis=1)[:, 0]
    if attribute.typical is not None:
        steps[-1] = 0
    outer = widths > cap
    inner_most, outer_most = (int(steps[part].max(initial=0)) for part in (~outer, outer))
    most = max(_STEPS, inner_most, outer_most)
    scales = [most // max(part, 1) for part in (inner_most, outer_most)]
    weights = [scales[far] if step else 0 for far, step in zip(outer.astype(int).tolist(), steps.tolist(), strict=True)]
    parts = tuple(outer.astype(int).tolist()) if outer.any() else None
    return Positions(attribute.name, unit, tuple(weights), parts)


def mean_positions(attribute: Integer | Real, counts: FloatArray, deviation: float) -> FloatArray:
    """Estimate mean positions from noisy counts: shape ``(declared,)``, zero for an open cell or a single number.

    The logarithm of the density is linear between the middles of neighboring cells.  Its step is shrunk by its signal
    to noise ratio, and the nearer neighbor has more weight.  Single numbers among wider cells (no income, the top of a
    scale) do not count as neighbors.
    """
    bounds = _bounds(attribute)
    widths = bounds[:, 1] - bounds[:, 0] + isinstance(attribute, Integer)
    several = bounds[:, 1] > bounds[:, 0]
    if attribute.typical is not None:
        several[-1] = False
    held = np.maximum(counts[: attribute.declared], max(deviation, _LEAST_DEVIATION))
    step = np.diff(np.log(held / np.where(widths > 0, widths, 1.0)))
    noise = deviation**2 * (1 / held[1:] ** 2 + 1 / held[:-1] ** 2)
    shrinkage = np.maximum(0.0, 1 - noise / np.maximum(step**2, 1e-12))
    apart = np.diff(bounds.mean(axis=1))
    near = np.where(several[1:] & several[:-1], 1 / apart, 0.0)
    slope = near * shrinkage * step / apart
    sums, weights = (np.append(each, 0.0) + np.insert(each, 0, 0.0) for each in (slope, near))
    slopes = np.where(weights > 0, sums / np.where(weights > 0, weights, 1.0), 0.0)
    means: FloatArray = np.where(several, np.clip(_mean(slopes * widths / 2), -_MOST, _MOST), 0.0)
    return means


def _bounds(attribute: Integer | Real) -> FloatArray:
    return np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)


def _unit(attribute: Integer | Real, cap: float) -> Fraction:
    """Return a power of ten that divides the widest counted cells into about a hundred steps; 1 for small integers."""
    least = max(cap / _FINE, max(abs(attribute.minimum), abs(attribute.maximum)) / _LARGEST)
    if isinstance(attribute, Integer) and least <= 1:
        return Fraction(1)
    return Fraction(10) ** math.ceil(math.log10(least))


def position(
    domain: Domain, attribute: Integer | Real, measured: Measurement, counts: FloatArray, deviation: float
) -> CellPosition:
    """Return the posterior mean of positions: the estimate from counts, corrected in each part by the measured sum."""
    query = measured.question
    assert isinstance(query, Positions)
    steps = np.diff(np.array(query.steps(domain)), axis=1)[:, 0]
    weights = np.array(query.weights) * steps * np.maximum(counts[: len(steps)], 0.0)
    parts = np.zeros(len(steps), dtype=np.int64) if query.parts is None else np.array(query.parts)
    means = mean_positions(attribute, counts, deviation)
    suggested = means.copy()
    for part, answer in enumerate(measured.values.tolist()):
        within_part = np.where(parts == part, weights, 0.0)
        total_weight = float(within_part.sum())
        if not total_weight > 0:
            continue  # the part seems to be empty
        shrinkage = _ANYWHERE / (_ANYWHERE + (measured.standard_error / total_weight) ** 2)
        means += np.where(within_part > 0, shrinkage * (answer - float(suggested @ within_part)) / total_weight, 0.0)
    return CellPosition(tuple(np.clip(means, -_MOST, _MOST).tolist()))


def _has_wide_cell(attribute: Integer | Real) -> bool:
    """Return True if a cell, other than an open one, has more than one number."""
    closed = attribute.declared - (attribute.typical is not None)
    if isinstance(attribute, Real):
        return closed > 0
    return attribute.edges is not None and any(low < high for low, high in map(attribute.bounds, range(closed)))


# --- drawing

_SLOPES = np.sinh(np.linspace(-4, 4, 4001))  # slopes of the log density over half a cell


def _mean(slopes: FloatArray) -> FloatArray:
    """Return the mean on [-1, 1] under a density proportional to exp(slope x): coth(slope) - 1 / slope."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means: FloatArray = np.where(np.abs(slopes) < 1e-3, slopes / 3, 1 / np.tanh(slopes) - 1 / slopes)  # noqa: PLR2004
    return means


_MEANS = _mean(_SLOPES)


def exponential_positions(means: FloatArray, random: np.random.Generator) -> FloatArray:
    """Draw numbers on [0, 1] with the given means on [-1, 1], from exponential densities of largest entropy."""
    slopes = np.interp(means, _MEANS, _SLOPES)
    flat = np.abs(slopes) < 1e-6  # noqa: PLR2004
    slopes = np.where(flat, 1.0, slopes)
    even = random.random(len(slopes))
    numbers: FloatArray = np.where(flat, even, np.log1p(even * np.expm1(2 * slopes)) / (2 * slopes))
    return numbers.clip(0.0, 1.0)


def sample_within_cells(
    attribute: Integer | Real,
    codes: Sequence[int] | NDArray[np.integer],
    position: CellPosition,
    random: np.random.Generator,
) -> FloatArray:
    """Draw numbers from declared cells at the mean positions; integers for integer attributes."""
    cells, means = np.asarray(codes, dtype=np.int64), np.array(position.cells)
    if position.rounding is None or not isinstance(attribute, Integer):
        return _sample_smoothly(attribute, cells, means, random)
    bounds, drawn = _bounds(attribute).astype(np.int64), np.empty(len(cells))
    listed = (np.diff(bounds)[:, 0] < _WIDEST)[cells]  # an open cell may be wider
    drawn[listed] = draw_rounded(bounds, cells[listed], means, position.rounding, random)
    drawn[~listed] = _sample_smoothly(attribute, cells[~listed], means, random)
    return drawn


def _sample_smoothly(
    attribute: Integer | Real, cells: IntegerArray, means: FloatArray, random: np.random.Generator
) -> FloatArray:
    low, high = _bounds(attribute)[cells].T
    if isinstance(attribute, Real):
        reals: FloatArray = low + (high - low) * exponential_positions(means[cells], random)
        return reals
    numbers = high - low + 1
    integers: FloatArray = low + np.minimum(
        np.floor(numbers * exponential_positions(means[cells] * (numbers - 1) / numbers, random)), high - low
    )
    return integers


# --- round numbers

_MOST_STEPS = 24
_CLEAR = 3.0  # deviations of noise from which an excess of rows counts
_ENOUGH = 4.0  # deviations of noise that cells with a multiple of a step need in rows
_FITS = 30
_LEAST = 1e-9  # least weight, relative to the largest
_STEEPEST, _HALVINGS = 60.0, 40  # search for the slope of a cell
_MOST_NUMBERS = 1 << 16  # numbers of all cells that are listed one by one
_LEAST_NUMBERS = 64  # of one cell
_MOST_BETWEEN = 10**5  # numbers of a gap between two listed ones
_WIDEST = 10**9  # numbers of a cell: ten thousand gaps


def candidate_steps(widest: int) -> tuple[int, ...]:
    """Return the steps that a cell of ``widest`` integers contains at least twice.

    >>> candidate_steps(100)
    (5, 10, 50)
    """
    steps = (5 * 10 ** (place // 2) if place % 2 == 0 else 10 ** (place // 2 + 1) for place in range(_MOST_STEPS))
    return tuple(step for step in steps if 2 * step <= widest)


def fit_rounding(
    bounds: IntegerArray, rows: FloatArray, steps: tuple[int, ...], counts: FloatArray, deviation: float
) -> Rounding | None:
    """Estimate the weights of steps from noisy counts; None if noise may explain them.

    Args:
        bounds: first and last number of each cell, shape ``(cells, 2)``.
        rows: noisy number of rows of each cell; zero if its numbers do not matter.
        steps: the counted steps.
        counts: noisy rows by the last step, then rows that no step divides: shape ``(steps + 1,)``.
        deviation: standard deviation of the noise on a count.
    """
    numbers = _numbers_by_step(bounds, steps)

    def expected(weights: FloatArray) -> FloatArray:
        held = numbers * weights
        sums = held.sum(axis=1)
        each: FloatArray = (rows / np.where(sums > 0, sums, 1.0)) @ held
        return each

    weights = np.ones(len(steps) + 1)
    even = expected(weights)
    excess = counts - even
    clear = (np.abs(excess) > _CLEAR * deviation) & (rows @ (numbers > 0) > _ENOUGH * deviation)
    if not clear.any():
        return None
    shrinkage = 1 - (deviation / np.where(clear, excess, 1.0)) ** 2
    target = np.maximum(even + np.where(clear, shrinkage * excess, 0.0), 0.0)
    target *= even.sum() / max(target.sum(), 1.0)
    for _ in range(_FITS):  # iterative proportional fitting
        now = expected(weights)
        weights *= np.where(now > 0, target / np.where(now > 0, now, 1.0), 1.0)
        weights = np.maximum(weights / weights.max(), _LEAST)
    return Rounding(steps, tuple(weights.tolist()))


def _numbers_by_step(bounds: IntegerArray, steps: tuple[int, ...]) -> FloatArray:
    """Return how many numbers of each cell have each last step, shape ``(cells, steps + 1)``; the last have none."""
    low, high = bounds.T
    multiples = [high - low + 1, *(high // step - (low - 1) // step for step in steps)]
    none, *exact = (np.subtract(*pair) for pair in zip(multiples, [*multiples[1:], 0], strict=True))
    return np.stack([*exact, none], axis=1).astype(np.float64)


def draw_rounded(
    bounds: IntegerArray, codes: IntegerArray, means: FloatArray, rounding: Rounding, random: np.random.Generator
) -> IntegerArray:
    """Draw a number from the cell of each row.

    The density of a cell is the weights of its numbers times an exponential function, with the given mean.

    Args:
        bounds: first and last number of each cell, shape ``(cells, 2)``.
        codes: cells of the rows.
        means: mean positions of the cells, -1 at the first number and 1 at the last.
        rounding: the weights of numbers.
        random: the source of randomness.
    """
    drawn = np.empty(len(codes), dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    most = max(_LEAST_NUMBERS, _MOST_NUMBERS // max(1, len(present)))
    for cell, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        low, high = bounds[cell].tolist()
        if low == high:
            drawn[rows] = low
        else:
            numbers = _Cell.list_numbers(low, high, rounding, most)
            drawn[rows] = numbers.draw(float(means[cell]), len(rows), random)
    return drawn


@dataclass(frozen=True, eq=False)
class _Cell:
    """The numbers of a cell: multiples of a power of ten one by one, and gaps with the numbers between them.

    Attributes:
        low: the first number.
        high: the last number.
        multiples: the multiples.
        gaps: first and last number of each gap that lies at least in part in the cell: shape ``(2, gaps)``.
        weights: weights of the multiples and gaps.
        within: weights of the numbers of a whole gap.
    """

    low: int
    high: int
    multiples: IntegerArray
    gaps: IntegerArray
    weights: FloatArray
    within: FloatArray

    @staticmethod
    def list_numbers(low: int, high: int, rounding: Rounding, most: int) -> _Cell:
        """Return the numbers from ``low`` to ``high`` with their weights, and about ``most`` multiples."""
        power = 1
        while (high - low) // power > most and power < _MOST_BETWEEN:
            power *= 10
        multiples = np.arange(-(-low // power), high // power + 1) * power
        starts = np.arange(low // power, high // power + 1) * power if power > 1 else multiples[:0]
        gaps = np.stack([starts + 1, starts + power - 1])
        within = rounding.of(np.arange(1, power))  # steps below the power divide it, so all gaps have equal weights
        parts = np.maximum(np.minimum(gaps[1], high) - np.maximum(gaps[0], low) + 1, 0) / max(1, power - 1)
        weights = np.concatenate([rounding.of(multiples), within.sum() * parts])
        return _Cell(low, high, multiples, gaps, weights, within)

    def draw(self, mean: float, rows: int, random: np.random.Generator) -> IntegerArray:
        """Draw numbers with the given mean position."""
        first, last = np.maximum(self.gaps[0], self.low), np.minimum(self.gaps[1], self.high)
        places = 2 * (np.concatenate([self.multiples, (first + last) / 2]) - self.low) / (self.high - self.low) - 1
        chosen = _choose(_tilted(self.weights, places, mean), rows, random)
        numbers = np.concatenate([self.multiples, self.gaps[0]])[chosen]
        gap = np.flatnonzero(chosen >= len(self.multiples))
        if len(gap):
            numbers[gap] += _choose(self.within, len(gap), random)
            cut = gap[(numbers[gap] < self.low) | (numbers[gap] > self.high)]  # from a gap across an end of the cell
            which = chosen[cut] - len(self.multiples)
            numbers[cut] = random.integers(first[which], last[which], endpoint=True)
        return numbers


def _tilted(weights: FloatArray, places: FloatArray, mean: float) -> FloatArray:
    """Return weights times an exponential function of the places, so that they have the given mean."""
    low, high, tilted = -_STEEPEST, _STEEPEST, weights
    for _ in range(_HALVINGS):
        slope = (low + high) / 2
        tilted = weights * np.exp(slope * places - abs(slope))
        if tilted @ places < mean * tilted.sum():
            low = slope
        else:
            high = slope
    return tilted


def _choose(weights: FloatArray, rows: int, random: np.random.Generator) -> IntegerArray:
    sums = np.cumsum(weights)
    chosen = np.searchsorted(sums, random.random(rows) * sums[-1], side="right")
    chosen_below: IntegerArray = np.minimum(chosen, len(weights) - 1)
    return chosen_below
