"""Where the number of synthetic rows comes from: it is never the true number unless that is public."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from sfumato.domain import Domain
from sfumato.errors import InputError, LossError
from sfumato.privacy.loss import Epsilon, Loss, Rho, plain
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Marginal
from sfumato.vault.mechanisms import MANY_ROWS, noises

_WIDEST = 10**7  # rows: where noise adds or takes away more, a sample of so many rows takes minutes and says nothing


@dataclass(frozen=True)
class PublicTotal:
    """The number of rows is public knowledge, declared by the owner of the table."""

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise InputError(f"a public number of rows is whole and at least 1, not {self.count}", culprit=self.count)


@dataclass(frozen=True)
class BudgetShare:
    """The number of rows is a noisy count of its own that takes ``share`` of the loss, between 0 and 1."""

    share: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.share, Fraction) or not 0 < self.share < 1:
            raise LossError(f"the share of the row count is a Fraction between 0 and 1, not {self.share}", culprit=self)


@dataclass(frozen=True)
class NoisyTotal:
    """The number of rows is the sum of the noisy tables themselves, and costs nothing beyond them.

    Graphical methods, whose first tables depend on it, add a rough count at half a percent of the loss.
    """


RowTotal: TypeAlias = PublicTotal | BudgetShare | NoisyTotal
SeparateTotal: TypeAlias = PublicTotal | BudgetShare


def refuse_wrong(domain: Domain, loss: Loss, total: RowTotal) -> None:
    """Refuse what is no loss or no source of a row count, or a loss too small to count, before anything is charged.

    Raises:
        LossError: the loss is none, or too small to count rows.
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
        counted = loss.divisible * (total.share if isinstance(total, BudgetShare) else 1)
        wide = noises(domain, [Marginal(())], counted, None)[0].variance > _WIDEST**2
    except LossError:
        wide = True
    if wide:
        raise LossError(
            f"{loss} is too small to count rows: noise alone would make or lose more than {_WIDEST:,} of them; "
            "state more, or declare the number public",
            culprit=loss,
        )


def assumed_rows(total: RowTotal) -> int:
    """Return the public number of rows, or a thousand, by which noise is judged without looking at the data."""
    return total.count if isinstance(total, PublicTotal) else MANY_ROWS


def drowned_totals(domain: Domain, loss: Loss, total: RowTotal) -> tuple[str, ...]:
    """Whether noise would drown a table at a loss, in sentences, before it is charged; it looks at no data.

    What is compared with a public number of rows, or with a thousand where it is not public, is the noise on one count
    at the whole loss, which no method is below; and of a domain that is too large to be measured as one table the noise
    on a count of a single column at this loss divided over the columns, as methods leave no more for each.
    """
    public = isinstance(total, PublicTotal)
    rows = assumed_rows(total) + (not public)
    if (most := _usual_error(domain, loss.divisible)) >= rows:
        if public:
            return (f"at this loss noise may outweigh all of {rows:,} rows; a synthetic table would say nothing",)
        return (f"at this loss noise may outweigh {most:,} rows; of fewer rows a synthetic table says nothing",)
    columns = len(domain)
    if domain.size <= MANY_ROWS or (most := _usual_error(domain, loss.divisible * Fraction(1, columns))) < rows:
        return ()
    hidden = f"all of {rows:,}" if public else f"{most:,}"
    said = f"divided over {columns} columns this loss leaves noise that may outweigh {hidden} rows in a count of each"
    return (f"{said}; describe fewer columns, or choose a larger loss",)


def _usual_error(domain: Domain, loss: Epsilon | Rho) -> int:
    """Rows by which a count is off at most, with 95 %."""
    (noise,) = noises(domain, [Marginal(())], loss, None)
    return noise.quantile(Fraction(95, 100))


@contextmanager
def dividing(loss: Loss, over: str) -> Iterator[None]:
    """Say of the whole loss that it cannot be divided, where a part of it cannot be asked for.

    Raises:
        LossError: a part of the loss is too small or too large to be asked for.
    """
    try:
        yield
    except LossError as error:
        size = "small" if loss.divisible.value < 1 else "large"
        raise LossError(f"{loss} is too {size} to be divided over {over}; choose another", culprit=loss) from error


def after_count(loss: Loss, total: RowTotal) -> Epsilon | Rho:
    """What remains of the loss after the row count was charged."""
    whole = loss.divisible
    return whole * (1 - total.share) if isinstance(total, BudgetShare) else whole


def measure_total(mechanisms: Mechanisms, loss: Loss, total: SeparateTotal) -> int:
    """The number of rows to use; what is left of the loss is ``after_count``."""
    if isinstance(total, PublicTotal):
        return total.count
    (measured,) = mechanisms.measure([Marginal(())], loss.divisible * total.share)
    return max(0, int(measured.values[0]))


def describe(total: RowTotal) -> Any:  # noqa: ANN401  (JSON)
    """The choice as JSON values, for the journal."""
    match total:
        case PublicTotal(count=count):
            return {"public": count}
        case BudgetShare(share=share):
            return {"charged": plain(share)}
        case NoisyTotal():
            return "summed"
