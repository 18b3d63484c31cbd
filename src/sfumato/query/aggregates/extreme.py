"""The minimum and the maximum, as far as noise lets them be told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.query.aggregates.bins import increasing, leaves, nested_bins, outermost_bins, rank_error
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
from sfumato.vault.mechanisms import Additive


@dataclass(frozen=True)
class Extreme(NumericAggregate):
    """The innermost value that noise cannot explain away: a quantile of as few rows as the loss can tell from none."""

    largest: bool

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """MIN and MAX."""
        return (
            AggregateForm("minimum", "Minimum", "MIN", Takes.NUMBER, partial(cls, largest=False)),
            AggregateForm("maximum", "Maximum", "MAX", Takes.NUMBER, partial(cls, largest=True)),
        )

    def __str__(self) -> str:
        return f"{'max' if self.largest else 'min'}({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Counts of nested bins, level by level."""
        return nested_bins(domain, self.of, by, where)

    def estimates(self, tables: NoisyAnswers, noise: Additive, domain: Domain, confidence: Confidence) -> Estimates:
        """The value at the first rank that is more than noise; the interval reaches from it to the bound."""
        bins = leaves(domain, self.of)
        below = bins.below_edges(tables, from_top=self.largest)
        cumulative = np.pad(increasing(below[:, 1:]), [(0, 0), (1, 0)])
        variance = bins.variances(0.0) * noise.variance
        margin = confidence.interval_half_width(noise, variance)
        rank = np.full(len(below), margin[:-1].max())
        places = np.array([np.searchsorted(row, at) for row, at in zip(cumulative, rank, strict=True)])
        deviation = np.sqrt(variance[np.clip(places, 0, bins.leaves - 1)])
        value, above = (bins.values_at(cumulative, at, from_top=self.largest) for at in (rank, rank + deviation))
        low, high = bins.ends(*outermost_bins(below, margin), from_top=self.largest)
        error = np.abs(above - (high if self.largest else low)) / 2
        return Estimates(value, error, np.minimum(low, value), np.maximum(high, value))

    def expected(
        self,
        name: str,
        noise: Additive,
        domain: Domain,
        *,
        confidence: Confidence,
        rows: int | None,  # noqa: ARG002
    ) -> ExpectedError:
        """A bound on the error of the rank."""
        return rank_error(name, noise, confidence, leaves(domain, self.of), 0.0)
