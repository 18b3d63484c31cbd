"""Measure the mean positions of numbers within wide cells, and draw numbers at these positions.

Numbers drawn evenly from wide cells give wrong totals.  Incomes are often round numbers, where many cells begin, and
the density falls within cells of a tail.  The noisy counts of neighboring cells suggest the slope of the density in
each cell.  Two measured sums correct it: the distances of values from the middle of their cells, over the cells of
nearly all rows, and over the few wider cells (such as the open end of incomes).  A row is in one of the two sums, so
both together cost as much as one.

Numbers are drawn with randomness for post-processing, which may be seeded.  No guarantee depends on it.  The noise on
the sums is drawn in ``privacy``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain, Integer, Real
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Measurement
from sfumato.vault.value_measurables import Positions

SHARE = Fraction(1, 100)
"""Share of the loss for the positions of all attributes with wide cells together, if there are any."""

_STEPS = 1 << 12  # minimum steps that one row adds: enough for any precision
_FINE = 1 << 8  # steps of the widest cells of nearly all people
_NEARLY_ALL = 0.95  # share of the people; wider cells than theirs are summed separately
_LARGEST = 1 << 27  # steps from zero to a bound
_MOST = 0.9  # largest mean position, in halves of a cell
_ANYWHERE = 1 / 3  # prior variance of a mean position: uniform on [-1, 1]


@dataclass(frozen=True)
class CellPosition:
    """The mean positions of the declared cells of an attribute, -1 at their lower and 1 at their upper ends."""

    cells: tuple[float, ...]

    @staticmethod
    def of_all(mean: float, deviation: float, declared: int) -> CellPosition:
        """Return one shrunken position for all cells (James and Stein 1961), for models in an older format."""
        shrinkage = 1 - (deviation / mean) ** 2 if abs(mean) > deviation else 0.0
        return CellPosition((float(np.clip(shrinkage * mean, -_MOST, _MOST)),) * declared)


def attributes_with_wide_cells(domain: Domain) -> list[Integer | Real]:
    """Return the attributes with a cell of more than one number."""
    return [attribute for attribute in domain if isinstance(attribute, Integer | Real) and _has_wide_cell(attribute)]


def share(domain: Domain) -> Fraction:
    """Return the share of the loss for positions: zero if every number has its own cell."""
    return SHARE if attributes_with_wide_cells(domain) else Fraction(0)


def measure(
    mechanisms: Mechanisms, loss: Epsilon | Rho, counts: Mapping[str, FloatArray], deviations: Mapping[str, float]
) -> dict[str, CellPosition]:
    """Measure the mean positions within the cells of every attribute with wide cells, together at ``loss``.

    ``counts`` are public: noisy counts of the cells of each attribute, with the ``deviations`` of their noise.
    """
    attributes = attributes_with_wide_cells(mechanisms.domain)
    queries = [position_query(attribute, counts[attribute.name]) for attribute in attributes]
    measured = mechanisms.measure(queries, loss)
    return {
        attribute.name: position(mechanisms.domain, attribute, answer, counts[query.value], deviations[query.value])
        for attribute, query, answer in zip(attributes, queries, measured, strict=True)
    }


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
    held = np.maximum(counts[: attribute.declared], deviation)
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
    low, high = _bounds(attribute)[np.asarray(codes)].T
    means = np.array(position.cells)[np.asarray(codes)]
    if isinstance(attribute, Real):
        reals: FloatArray = low + (high - low) * exponential_positions(means, random)
        return reals
    numbers = high - low + 1
    integers: FloatArray = low + np.minimum(
        np.floor(numbers * exponential_positions(means * (numbers - 1) / numbers, random)), high - low
    )
    return integers
