"""How a loss is divided over the steps of a method and over the tables of one step.

Dividing a loss reads no data beyond what was already released: sizes of tables, weights, noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from sfumato.errors import BudgetError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, Rho

_PARTS = 10**12  # shares are whole parts of this, so that they add up exactly


@dataclass
class BudgetSplit:
    """A loss that is taken in exact shares, and the noise that a share allows, for a unit of ``rows`` rows.

    Under rho a share s gives discrete Gaussian noise of standard deviation rows / sqrt(2 rho s); under
    epsilon discrete Laplace noise of rows sqrt(2) / (epsilon s).

    Attributes:
        loss: the whole loss.
        rows: rows of one unit, at most.
        left: the share that no step has taken yet.
    """

    loss: Epsilon | Rho
    rows: int
    left: Fraction = field(default=Fraction(1), init=False)

    def take(self, share: Fraction) -> Epsilon | Rho:
        """Return the loss of a share of the whole, which is then taken.

        Raises:
            BudgetError: less than ``share`` is left.
        """
        if not 0 < share <= self.left:
            raise BudgetError(f"a step asks for {float(share):.3g} of the loss where {float(self.left):.3g} is left")
        self.left -= share
        return self.loss * share

    def deviation(self, share: float) -> float:
        """Standard deviation of the noise on one cell, to plan with."""
        value = float(self.loss.value) * share
        return self.rows * (math.sqrt(2) / value if isinstance(self.loss, Epsilon) else math.sqrt(1 / (2 * value)))

    def absolute(self, share: float) -> float:
        """Mean absolute value of the noise on one cell."""
        return self.deviation(share) * (math.sqrt(1 / 2) if isinstance(self.loss, Epsilon) else math.sqrt(2 / math.pi))

    def spread(self, sizes: float) -> float:
        """The part that a table of weight times cells ``sizes`` asks for: shares are in proportion to it.

        The sum of weight_i cells_i deviation(share_i) is least (Lagrange) for shares in proportion to
        (weight x cells)^(2/3) under rho and to its square root under epsilon.
        """
        return float(sizes**self._power)

    def shares(self, sizes: Sequence[float]) -> tuple[Fraction, ...]:
        """Shares of a loss over tables of weights times cells ``sizes``; they sum to at most one."""
        return proportions([self.spread(size) for size in sizes])

    def topped_up(self, sizes: Sequence[float], spent: Sequence[float], share: float) -> FloatArray:
        """How a further ``share`` of the loss is divided over tables of weights times cells ``sizes``.

        ``spent`` are the shares that they had before.  Together with them the loss lies on the tables as ``shares``
        would divide it; tables that have had more than that get nothing.

        >>> BudgetSplit(Rho("1"), 1).topped_up([8.0, 8.0, 27.0], [0.0, 0.0, 0.5], 0.4).tolist()
        [0.2, 0.2, 0.0]
        """
        parts, held = np.array([self.spread(size) for size in sizes]), np.asarray(spent)
        order = np.argsort(held / parts)  # those with the least of what they ask for are topped up first
        levels = (share + np.cumsum(held[order])) / np.cumsum(parts[order])
        level = levels[np.flatnonzero(levels > (held / parts)[order])[-1]]
        more: FloatArray = np.maximum(0.0, level * parts - held)
        return more

    def error(self, parts: FloatArray, share: float) -> FloatArray:
        """Expected weighted L1 error of tables whose ``spread`` sums to ``parts``, measured together at ``share``."""
        errors: FloatArray = self.absolute(share) * parts ** (1 / self._power)
        return errors

    @property
    def _power(self) -> float:
        return 1 / 2 if isinstance(self.loss, Epsilon) else 2 / 3


def proportions(parts: Sequence[float]) -> tuple[Fraction, ...]:
    """Exact shares in proportion to ``parts``; they sum to at most one."""
    whole = sum(parts)
    return tuple(Fraction(max(1, math.floor(part / whole * (_PARTS - len(parts)))), _PARTS) for part in parts)


def fraction(share: float) -> Fraction:
    """A share as an exact number, rounded down."""
    return Fraction(math.floor(share * _PARTS), _PARTS)
