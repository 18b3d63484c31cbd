"""Divide a loss over the steps and tables of a method, and choose the source of the number of synthetic rows.

The division reads sizes of tables, weights and noisy counts, which are public.  The number of rows is measured with
noise unless it is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import BudgetError, InputError, LossError, pluralize
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, Loss, Rho, plain
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal
from sfumato.vault.mechanisms import MANY_ROWS, noises

_PARTS = 10**12  # shares are integer multiples of one part, so that they add up exactly
PAIR_CELLS = 20.0
"""Cells of two standard deviations of noise that the rows must fill, before measured pairs are better than columns.

On Adult, NIST and German at nine sizes and losses, columns alone had less error in their pairs up to 16 cells, and more
error from 50 cells.
"""


@dataclass
class BudgetSplit:
    """A loss that is spent in exact shares, and the noise at a share, for a unit of ``rows`` rows.

    Under rho, a share s gives discrete Gaussian noise of standard deviation rows / sqrt(2 rho s).  Under epsilon, it
    gives discrete Laplace noise of standard deviation rows sqrt(2) / (epsilon s).

    Attributes:
        loss: the whole loss.
        rows: largest number of rows of one unit.
        left: the unspent share.
    """

    loss: Epsilon | Rho
    rows: int
    left: Fraction = field(default=Fraction(1), init=False)

    def take(self, share: Fraction) -> Epsilon | Rho:
        """Spend a share of the whole loss, and return its loss.

        Raises:
            BudgetError: less than ``share`` is left.
        """
        if not 0 < share <= self.left:
            raise BudgetError(f"a step asks for {float(share):.3g} of the loss where {float(self.left):.3g} is left")
        self.left -= share
        return self.loss * share

    def deviation(self, share: float) -> float:
        """Return the standard deviation of the noise on one cell at a share."""
        value = float(self.loss.value) * share
        return self.rows * (math.sqrt(2) / value if isinstance(self.loss, Epsilon) else math.sqrt(1 / (2 * value)))

    def mean_absolute_noise(self, share: float) -> float:
        """Return the mean absolute value of the noise on one cell at a share."""
        return self.deviation(share) * (math.sqrt(1 / 2) if isinstance(self.loss, Epsilon) else math.sqrt(2 / math.pi))

    def allocation_weight(self, sizes: float) -> float:
        """Return the allocation weight of a table; ``sizes`` is its weight times its cells.  Shares are proportional to
        it.

        Shares proportional to (weight x cells)^(2/3) under rho, and to its square root under epsilon, minimize the sum
        of weight_i cells_i deviation(share_i) (by Lagrange multipliers).
        """
        return float(sizes**self._power)

    def shares(self, sizes: Sequence[float]) -> tuple[Fraction, ...]:
        """Return the shares of a loss over tables of weights times cells ``sizes``; they sum to at most one."""
        return proportions([self.allocation_weight(size) for size in sizes])

    def column_sizes(self, sizes: Sequence[int], rows: float) -> list[float]:
        """Return the cells of columns that noise does not hide in about ``rows`` rows, of their ``sizes`` cells each.

        Noise at an equal share hides further cells.  Neighbors and rare values are merged then, so that a column of
        many more cells has no larger error, and needs no larger share of the loss.
        """
        most = max(1.0, rows / self.deviation(1 / len(sizes)))
        return [min(float(size), most) for size in sizes]

    def top_up(self, sizes: Sequence[float], spent: Sequence[float], share: float) -> FloatArray:
        """Divide a further ``share`` of the loss over tables of weights times cells ``sizes``.

        ``spent`` are the earlier shares of the tables.  The sums of both are divided like :meth:`shares`, except that
        tables that already have more get nothing.

        >>> BudgetSplit(Rho("1"), 1).top_up([8.0, 8.0, 27.0], [0.0, 0.0, 0.5], 0.4).tolist()
        [0.2, 0.2, 0.0]
        """
        parts, held = np.array([self.allocation_weight(size) for size in sizes]), np.asarray(spent)
        order = np.argsort(held / parts)  # tables with the smallest relative share first
        levels = (share + np.cumsum(held[order])) / np.cumsum(parts[order])
        level = levels[np.flatnonzero(levels > (held / parts)[order])[-1]]
        more: FloatArray = np.maximum(0.0, level * parts - held)
        return more

    def error(self, parts: FloatArray, share: float) -> FloatArray:
        """Return the expected weighted L1 error of tables whose allocation weights sum to ``parts``, at ``share``."""
        errors: FloatArray = self.mean_absolute_noise(share) * parts ** (1 / self._power)
        return errors

    @property
    def _power(self) -> float:
        return 1 / 2 if isinstance(self.loss, Epsilon) else 2 / 3


def proportions(parts: Sequence[float]) -> tuple[Fraction, ...]:
    """Return exact shares proportional to ``parts``; they sum to at most one."""
    total = sum(parts)
    return tuple(Fraction(max(1, math.floor(part / total * (_PARTS - len(parts)))), _PARTS) for part in parts)


def fraction(share: float) -> Fraction:
    """Return a share as an exact number, rounded down."""
    return Fraction(math.floor(share * _PARTS), _PARTS)


def rows_for_pairs(split: BudgetSplit, share: float, pairs: int) -> float:
    """Return the rows of a table below which noise hides ``pairs`` marginals that divide a share of the loss."""
    return 2 * PAIR_CELLS * split.deviation(share / pairs)


_WIDEST = 10**7  # rows; more noise would give a useless sample that takes minutes


@dataclass(frozen=True)
class PublicTotal:
    """A public number of rows, declared by the owner of the table."""

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise InputError(f"a public number of rows is whole and at least 1, not {self.count}", culprit=self.count)


@dataclass(frozen=True)
class BudgetShare:
    """A separate noisy count of rows that takes ``share`` of the loss, between 0 and 1."""

    share: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.share, Fraction) or not 0 < self.share < 1:
            raise LossError(f"the share of the row count is a Fraction between 0 and 1, not {self.share}", culprit=self)


@dataclass(frozen=True)
class NoisyTotal:
    """A number of rows that is the sum of the noisy tables, at no further cost.

    Graphical methods need it for their first tables, and add a rough count at half a percent of the loss.
    """


RowTotal: TypeAlias = PublicTotal | BudgetShare | NoisyTotal
SeparateTotal: TypeAlias = PublicTotal | BudgetShare


def refuse_wrong_total(domain: Domain, loss: Loss, total: RowTotal) -> None:
    """Refuse an invalid loss or source of a row count, and a loss too small to count rows, before any charge.

    Raises:
        LossError: the loss has the wrong type, or is too small to count rows.
        InputError: the total is no source of a row count.
    """
    if not isinstance(loss, Loss):
        raise LossError("a loss is Epsilon(...), EpsilonDelta(..., ...) or Rho(...), not a bare number", culprit=loss)
    if not isinstance(total, PublicTotal | BudgetShare | NoisyTotal):
        raise InputError(
            "the row count comes from NoisyTotal(), BudgetShare(share) or PublicTotal(count)", culprit=total
        )
    if isinstance(total, PublicTotal):
        return
    try:
        count_loss = loss.divisible * (total.share if isinstance(total, BudgetShare) else 1)
        wide = noises(domain, [Marginal(())], count_loss, None)[0].variance > _WIDEST**2
    except LossError:
        wide = True
    if wide:
        raise LossError(
            f"{loss} is too small to count rows: noise alone would make or lose more than {_WIDEST:,} of them; "
            "state more, or declare the number public",
            culprit=loss,
        )


def assumed_rows(total: RowTotal) -> int:
    """Return the public number of rows, or a thousand, for comparisons with noise."""
    return total.count if isinstance(total, PublicTotal) else MANY_ROWS


def drowned_totals(domain: Domain, loss: Loss, total: RowTotal) -> tuple[str, ...]:
    """Return warnings, in sentences, if noise would hide a table at a loss; no data is read.

    The noise on one count at the whole loss is compared with the public number of rows, or with a thousand.  No method
    has less noise.  If the domain is too large for one table, the noise on a count of one column is compared too, at
    the loss divided over the columns.
    """
    public = isinstance(total, PublicTotal)
    rows = assumed_rows(total) + (not public)
    if (most := _usual_error(domain, loss.divisible)) >= rows:
        if public:
            every = pluralize(rows, "row")
            return (f"at this loss noise may outweigh all of {every}; a synthetic table would be all noise",)
        return (f"at this loss noise may outweigh {most:,} rows; a synthetic table of fewer rows is all noise",)
    columns = len(domain)
    if domain.size <= MANY_ROWS or (most := _usual_error(domain, loss.divisible * Fraction(1, columns))) < rows:
        return ()
    hidden = f"all of {rows:,}" if public else f"{most:,}"
    divided = (
        f"divided over {columns} columns this loss leaves noise that may outweigh {hidden} rows in a count of each"
    )
    return (f"{divided}; describe fewer columns, or choose a larger loss",)


def _usual_error(domain: Domain, loss: Epsilon | Rho) -> int:
    """Return the 95 % quantile of the error of a count."""
    (noise,) = noises(domain, [Marginal(())], loss, None)
    return noise.quantile(Fraction(95, 100))


@contextmanager
def dividing(loss: Loss, steps: str) -> Iterator[None]:
    """Turn errors about a part of a loss into errors about the whole loss.

    Raises:
        LossError: a part of the loss is too small or too large for its noise.
    """
    try:
        yield
    except LossError as error:
        size = "small" if loss.divisible.value < 1 else "large"
        raise LossError(f"{loss} is too {size} to be divided over {steps}; choose another", culprit=loss) from error


def after_count(loss: Loss, total: RowTotal) -> Epsilon | Rho:
    """Return the loss that remains after the row count."""
    divisible = loss.divisible
    return divisible * (1 - total.share) if isinstance(total, BudgetShare) else divisible


def measure_total(mechanisms: Mechanisms, loss: Loss, total: SeparateTotal) -> int:
    """Measure the number of rows; ``after_count`` is the remaining loss."""
    if isinstance(total, PublicTotal):
        return total.count
    (measured,) = mechanisms.measure([Marginal(())], loss.divisible * total.share)
    return max(0, int(measured.values[0]))


def describe_total(total: RowTotal) -> Any:  # noqa: ANN401  (JSON)
    """Return the source of the row count as JSON values, for the journal."""
    match total:
        case PublicTotal(count=count):
            return {"public": count}
        case BudgetShare(share=share):
            return {"charged": plain(share)}
        case NoisyTotal():
            return "summed"
