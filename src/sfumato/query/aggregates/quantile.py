"""Quantiles, the minimum and the maximum, from nested noisy bins."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.errors import QueryError
from sfumato.privacy.loss import plain
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.bins import (
    HAIR,
    increasing,
    leaves,
    nested_bins,
    outermost_bins,
    possible_bins,
    rank_error,
)
from sfumato.query.aggregates.contract import (
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    NoisyAnswers,
    NumericAggregate,
    Takes,
)
from sfumato.vault.measurables import Measurable


@dataclass(frozen=True)
class Quantile(NumericAggregate):
    """The smallest value that at least a share ``probability`` of the values does not exceed."""

    probability: Fraction

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return MEDIAN and QUANTILE."""
        return (
            AggregateForm("median", "Median", "MEDIAN", Takes.NUMBER, partial(cls, probability=Fraction(1, 2))),
            AggregateForm("quantile", "Quantile", "QUANTILE", Takes.NUMBER, cls, ("probability",)),
        )

    def __post_init__(self) -> None:
        if not isinstance(self.probability, Fraction):
            raise QueryError("the probability of a quantile is a fraction, such as Fraction(1, 2)", culprit=self.of)
        if not 0 < self.probability < 1:
            raise QueryError("a quantile lies strictly between 0 and 1; MIN and MAX are its ends", culprit=self)

    def __str__(self) -> str:
        return f"median({self.of})" if self.probability * 2 == 1 else f"quantile({self.of}, {plain(self.probability)})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return counts of nested bins, level by level."""
        return nested_bins(domain, self.of, by, where)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the value at the rank, and the bins that remain possible given the noise."""
        bins, share = leaves(domain, self.of), float(self.probability)
        below = bins.below_edges(tables)
        cumulative = np.pad(increasing(below[:, 1:]), [(0, 0), (1, 0)])
        variance = bins.variances(share) * noise.variance
        rank = share * np.maximum(cumulative[:, -1], 0)
        places = np.array([np.searchsorted(row, at) for row, at in zip(cumulative, rank, strict=True)])
        deviation = np.sqrt(variance[np.clip(places, 0, bins.leaves - 1)])
        value, below_rank, above_rank = (
            bins.values_at(cumulative, rank + move) for move in (0 * rank, -deviation, deviation)
        )
        gap = below - share * below[:, -1:]
        low, high = bins.ends(*possible_bins(gap, confidence.interval_half_width(noise, variance)))
        return Estimates(value, np.abs(above_rank - below_rank) / 2, np.minimum(low, value), np.maximum(high, value))

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound on the error of the rank."""
        return rank_error(name, noise, confidence, leaves(domain, self.of), float(self.probability))


@dataclass(frozen=True)
class Extreme(NumericAggregate):
    """The innermost value that noise alone cannot explain.

    It is a quantile at the smallest number of rows that the loss can distinguish from zero.
    """

    largest: bool

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return MIN and MAX."""
        return (
            AggregateForm("minimum", "Minimum", "MIN", Takes.NUMBER, partial(cls, largest=False)),
            AggregateForm("maximum", "Maximum", "MAX", Takes.NUMBER, partial(cls, largest=True)),
        )

    def __str__(self) -> str:
        return f"{'max' if self.largest else 'min'}({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return counts of nested bins, level by level."""
        return nested_bins(domain, self.of, by, where)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the value at the first rank above the noise; the interval reaches from it to the bound."""
        bins = leaves(domain, self.of)
        below = bins.below_edges(tables, from_top=self.largest)
        cumulative = np.pad(increasing(below[:, 1:]), [(0, 0), (1, 0)])
        variance = bins.variances(0.0) * noise.variance
        margin = confidence.interval_half_width(noise, variance)
        rank = np.full(len(below), max(margin[:-1].max(), 1 - HAIR))  # the first row, if there is no noise
        places = np.array([np.searchsorted(row, at) for row, at in zip(cumulative, rank, strict=True)])
        deviation = np.sqrt(variance[np.clip(places, 0, bins.leaves - 1)])
        value, above = (bins.values_at(cumulative, at, from_top=self.largest) for at in (rank, rank + deviation))
        low, high = bins.ends(*outermost_bins(below, margin), from_top=self.largest)
        error = np.abs(above - (high if self.largest else low)) / 2
        return Estimates(value, error, np.minimum(low, value), np.maximum(high, value))

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound on the error of the rank."""
        return rank_error(name, noise, confidence, leaves(domain, self.of), 0.0)
