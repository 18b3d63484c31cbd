"""An aggregate of the rows that meet a condition of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from sfumato.domain import Domain
from sfumato.domain.predicate import All, Predicate, describe_condition
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    Aggregate,
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    NoisyAnswers,
)
from sfumato.query.statements.three_valued_logic import normal
from sfumato.vault.measurables import Measurable


@dataclass(frozen=True)
class Filtered(Aggregate):
    """An aggregate with FILTER: ``of`` counts the rows that also meet ``where``.

    Its tables are the tables of ``of`` under both conditions, so it has their sensitivity.
    """

    of: Aggregate
    where: Predicate
    written: str = field(default="...", compare=False)

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return no form: only a statement of SQL has FILTER."""
        return ()

    def __str__(self) -> str:
        return f"{self.of} filter (where {self.written})"

    @property
    def is_count(self) -> bool:  # type: ignore[override]
        """True if the aggregate is a count."""
        return self.of.is_count

    def check(self, domain: Domain) -> None:
        """Refuse the aggregate or the condition if it does not fit the domain."""
        self.of.check(domain)

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return the tables of the aggregate with both conditions."""
        both = self.where if where is None else All((where, self.where))
        return self.of.measurables(by, normal(both, domain), domain)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Return the estimates of the aggregate."""
        return self.of.estimates(tables, noise, domain, confidence)

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return the error of the aggregate, given ``rows`` rows that meet the condition."""
        return self.of.expected(name, noise, domain, confidence=confidence, rows=rows)

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows that the aggregate itself states."""
        return self.of.rows_hidden_by(noise, domain, confidence)

    def largest_interval(self, domain: Domain) -> float:
        """Return the width that the aggregate itself states."""
        return self.of.largest_interval(domain)

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """Describe the rows that are counted."""
        return (f"{self} is of rows where {describe_condition(self.where, domain)}", *self.of.notes(domain))
