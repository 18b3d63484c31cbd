"""The interquartile range."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    NoisyAnswers,
    NumericAggregate,
    Takes,
)
from sfumato.query.aggregates.quantile import Quantile
from sfumato.vault.measurables import Measurable


@dataclass(frozen=True)
class Iqr(NumericAggregate):
    """The distance from the first to the third quartile of the clamped values.

    Both quartiles come from the same noisy bins, so the privacy loss is that of one quantile.  Each quartile lies in
    its interval with confidence (1 + c) / 2, so both do with confidence c (union bound).

    >>> str(Iqr("age"))
    'iqr(age)'
    """

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return IQR."""
        return (AggregateForm("iqr", "Interquartile range", "IQR", Takes.NUMBER, cls),)

    def __str__(self) -> str:
        return f"iqr({self.of})"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return the counts of nested bins, level by level."""
        return self._quartiles[0].measurables(by, where, domain)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the distance between the quartiles; its interval joins the farthest and the nearest of their ends."""
        first, third = (each.estimates(tables, noise, domain, confidence.for_each(2)) for each in self._quartiles)
        return Estimates(
            np.maximum(third.value - first.value, 0),
            first.error + third.error,
            np.maximum(third.low - first.high, 0),
            third.high - first.low,
        )

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound on the sum of the errors of both ranks."""
        first, third = (
            each.expected(name, noise, domain, confidence=confidence.for_each(2), rows=rows) for each in self._quartiles
        )
        standard_error = first.standard_error + third.standard_error
        return ExpectedError(name, standard_error, first.half_width + third.half_width, first.measure)

    @property
    def _quartiles(self) -> tuple[Quantile, Quantile]:
        return Quantile(self.of, Fraction(1, 4)), Quantile(self.of, Fraction(3, 4))
