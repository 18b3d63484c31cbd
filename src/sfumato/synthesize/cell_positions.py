"""Where numbers lie within their cells: measured once for each attribute of wide cells, followed when rows are drawn.

Rows that are drawn evenly from wide cells miss totals: incomes crowd at round numbers, where many cells begin, and
tails fall within a cell as well.  One number tells by how much: the sum over all rows of how far a value lies above the
middle of its cell, in which a row counts for at most half the width of its cell.

Rows are drawn about that noisy, charged number with randomness of post-processing, which may be seeded: no guarantee
rests on it, and the noise on the number itself is drawn in ``privacy``.
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
from sfumato.vault.questions import Measurement
from sfumato.vault.value_questions import Positions

SHARE = Fraction(1, 100)
"""Share of the loss for the positions of all attributes of wide cells together; nothing where there are none."""

_STEPS = 1 << 10  # of what one row adds at most: enough for any precision, few enough for the noise of any loss
_FINE = 1 << 8  # steps of the widest cells that count in full
_WIDE = 0.95  # of the people lie in cells that count in full; wider ones count as much as the widest of these
_LARGEST = 1 << 28  # steps from zero to a bound
_MOST = 0.9  # of half a cell: how far positions are moved at most


@dataclass(frozen=True)
class Position:
    """Mean position within cells, -1 at their lower and 1 at their upper ends, and the deviation of its noise."""

    mean: float
    deviation: float

    @property
    def followed(self) -> float:
        """How far rows are moved: what is left when the noise is taken off (James and Stein 1961, positive part)."""
        if not abs(self.mean) > self.deviation:
            return 0.0
        kept = 1 - (self.deviation / self.mean) ** 2
        return float(np.clip(kept * self.mean, -_MOST, _MOST))


def wide(domain: Domain) -> list[Integer | Real]:
    """The attributes with a cell of more than one number."""
    return [attribute for attribute in domain if isinstance(attribute, Integer | Real) and _holds_several(attribute)]


def share(domain: Domain) -> Fraction:
    """Share of the loss that positions take: none where every number has a cell of its own."""
    return SHARE if wide(domain) else Fraction(0)


def measure(mechanisms: Mechanisms, loss: Epsilon | Rho, counts: Mapping[str, FloatArray]) -> dict[str, Position]:
    """Mean positions within the cells of every attribute of wide ones, together at ``loss``.

    ``counts`` are public: noisy counts of the cells of each attribute.
    """
    questions = [question(attribute, counts[attribute.name]) for attribute in wide(mechanisms.domain)]
    measured = mechanisms.measure(questions, loss)
    return {
        asked.value: _position(mechanisms.domain, asked, answer, counts[asked.value])
        for asked, answer in zip(questions, measured, strict=True)
    }


def question(attribute: Integer | Real, counts: FloatArray) -> Positions:
    """What is asked of an attribute.

    A row counts in proportion to half the width of its cell, so that the answer is the error of a total; in the few
    cells that are wider than those of nearly all people, as in the widest of these, since the noise is made for the
    row that counts most.
    """
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    widths = bounds[:, 1] - bounds[:, 0]
    if attribute.typical is not None:
        widths[-1] = 0.0  # what is drawn from an open cell is declared
    held = np.where(widths > 0, np.maximum(counts[: attribute.declared], 0.0), 0.0)
    order = np.argsort(widths, kind="stable")
    below = np.cumsum(held[order])
    cap = float(widths[order[int(np.searchsorted(below, _WIDE * below[-1]))]]) if below[-1] > 0 else widths.max()
    unit = _unit(attribute, cap)
    asked = Positions(attribute.name, unit, (0,) * attribute.declared)
    steps = np.diff(np.array(asked.steps(Domain((attribute,)))), axis=1)[:, 0]
    most = min(int(steps.max()), max(1, math.ceil(cap / float(unit))))
    if attribute.typical is not None:
        steps[-1] = 0
    weights = [_STEPS * min(step, most) // (most * step) if step else 0 for step in map(int, steps)]
    return Positions(attribute.name, unit, tuple(weights))


def _unit(attribute: Integer | Real, cap: float) -> Fraction:
    """A power of ten that divides the widest cells that count into about a hundred steps; one for small integers."""
    least = max(cap / _FINE, max(abs(attribute.minimum), abs(attribute.maximum)) / _LARGEST)
    if isinstance(attribute, Integer) and least <= 1:
        return Fraction(1)
    return Fraction(10) ** math.ceil(math.log10(least))


def _position(domain: Domain, asked: Positions, measured: Measurement, counts: FloatArray) -> Position:
    steps = np.diff(np.array(asked.steps(domain)), axis=1)[:, 0]
    whole = float(np.maximum(counts[: len(steps)], 0.0) @ (np.array(asked.weights) * steps))
    if not whole > 0:
        return Position(0.0, 1.0)  # nobody seems to be in such a cell: nothing is known
    return Position(float(measured.values[0]) / whole, measured.standard_error / whole)


def _holds_several(attribute: Integer | Real) -> bool:
    """Whether a cell, other than an open one, has more than one number."""
    closed = attribute.declared - (attribute.typical is not None)
    if isinstance(attribute, Real):
        return closed > 0
    return attribute.edges is not None and any(low < high for low, high in map(attribute.bounds, range(closed)))


# --- drawing

_SLOPES = np.sinh(np.linspace(-4, 4, 4001))  # of the logarithm of the density from the middle of a cell to its end


def _mean(slopes: FloatArray) -> FloatArray:
    """Mean on [-1, 1] under a density in proportion to exp(slope x): coth(slope) - 1 / slope."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means: FloatArray = np.where(np.abs(slopes) < 1e-3, slopes / 3, 1 / np.tanh(slopes) - 1 / slopes)  # noqa: PLR2004
    return means


_MEANS = _mean(_SLOPES)


def drawn(means: FloatArray, random: np.random.Generator) -> FloatArray:
    """Numbers on [0, 1] with the given means on [-1, 1], from exponential densities: those of largest entropy."""
    slopes = np.interp(means, _MEANS, _SLOPES)
    flat = np.abs(slopes) < 1e-6  # noqa: PLR2004
    slopes = np.where(flat, 1.0, slopes)
    even = random.random(len(slopes))
    found: FloatArray = np.where(flat, even, np.log1p(even * np.expm1(2 * slopes)) / (2 * slopes))
    return found.clip(0.0, 1.0)


def within(
    attribute: Integer | Real, codes: Sequence[int] | NDArray[np.integer], mean: float, random: np.random.Generator
) -> FloatArray:
    """Numbers from declared cells, at a mean position within them; of integer attributes whole ones."""
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    low, high = bounds[np.asarray(codes)].T
    if isinstance(attribute, Real):
        reals: FloatArray = low + (high - low) * drawn(np.full(len(low), mean), random)
        return reals
    numbers = high - low + 1
    found: FloatArray = low + np.minimum(np.floor(numbers * drawn(mean * (numbers - 1) / numbers, random)), high - low)
    return found
