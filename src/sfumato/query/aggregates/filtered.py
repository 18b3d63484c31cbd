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

    It asks for the tables of ``of`` with both conditions, and so has their sensitivity.
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
        """Whether the aggregate is a count."""
        return self.of.is_count

    def check(self, domain: Domain) -> None:
        """Refuse what the aggregate refuses."""
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
        """Return the error of the aggregate, for so many rows that meet the condition."""
        return self.of.expected(name, noise, domain, confidence=confidence, rows=rows)

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the figure of the aggregate."""
        return self.of.rows_hidden_by(noise, domain, confidence)

    def largest_interval(self, domain: Domain) -> float:
        """Return the figure of the aggregate."""
        return self.of.largest_interval(domain)

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """Say which rows are counted."""
        return (f"{self} is of rows where {describe_condition(self.where, domain)}", *self.of.notes(domain))
