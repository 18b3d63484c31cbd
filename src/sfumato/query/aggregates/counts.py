"""Counts of rows and of privacy units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.domain.attribute import null_code
from sfumato.domain.predicate import All, Among, CodeRanges, Not, Predicate
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    Aggregate,
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    LinearTerm,
    NoisyAnswers,
    Takes,
)
from sfumato.query.statements.three_valued_logic import normal
from sfumato.vault.measurables import Marginal, Measurable
from sfumato.vault.unit_measurables import Units


class _CountingAggregate(Aggregate):
    """A noisy count, which is its own estimate."""

    is_count = True

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the counts themselves."""
        return confidence.counts(tables[0], noise)

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return the noise itself."""
        return ExpectedError(name, math.sqrt(noise.variance), float(confidence.half_width(noise)), "units")


@dataclass(frozen=True)
class Count(_CountingAggregate):
    """The number of rows, or of rows with a value of ``of``."""

    of: str | None = None

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return COUNT."""
        return (AggregateForm("count", "Count", "COUNT", Takes.ATTRIBUTE, cls),)

    def __str__(self) -> str:
        return f"count({self.of or '*'})"

    def check(self, domain: Domain) -> None:
        """Refuse an attribute that the domain does not have."""
        if self.of is not None:
            domain.index(self.of)

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return one marginal; numbers out of bounds and undeclared values count as values."""
        code = None if self.of is None else null_code(domain[self.of])
        if self.of is None or code is None:
            return (Marginal(by, where),)
        there = Among(self.of, CodeRanges.between(0, domain[self.of].size - 1) - CodeRanges.between(code, code))
        return (Marginal(by, normal(there if where is None else All((where, there)), domain)),)

    def on_released_tables(self, domain: Domain) -> LinearTerm:
        """Return the sum of the cells with a value."""
        code = None if self.of is None else null_code(domain[self.of])
        return LinearTerm(valued=None if self.of is None or code is None else Not(Among(self.of, [code])))


@dataclass(frozen=True)
class Distinct(_CountingAggregate):
    """The number of distinct privacy units with a row."""

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return COUNT(DISTINCT unit)."""
        return (AggregateForm("distinct", "Distinct units", "COUNT", Takes.NOTHING, cls),)

    def __str__(self) -> str:
        return "count(distinct unit)"

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return one table of units."""
        return (Units(by, where),)
