"""Measurements of a derived table, for methods that treat it like a protected table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.linked_domain import DerivedTable
from sfumato.errors import QueryError, SizeError
from sfumato.privacy.loss import Loss
from sfumato.vault.interface import Measures
from sfumato.vault.measurables import Distance, Marginal, Measurable, Measurement
from sfumato.vault.unit_measurables import DerivedDistance, DerivedMarginal

COUNTABLE = 1 << 24
"""Largest number of cells of one marginal in the vault, and of several that are counted at once: 128 MiB."""


def refuse_uncountable(table: DerivedTable) -> None:
    """Refuse attributes that are too large for one-way marginals, before anything is charged.

    Raises:
        SizeError: an attribute is too large.
    """
    for attribute in table.domain:
        if (cells := DerivedMarginal(table, (attribute.name,)).size(table.domain)) > COUNTABLE:
            raise SizeError(
                f"{attribute.name} has {attribute.size:,} cells, which are counted by the number of rows of a unit: "
                f"{cells:,} are more than {COUNTABLE:,}; group them by edges, or keep fewer rows",
                culprit=attribute.name,
            )


@dataclass(frozen=True)
class DerivedMeasures:
    """Implements :class:`sfumato.vault.interface.Measures` for marginals of a derived table and distances to them.

    A row of weight w counts as w equal rows; a unit has at most ``unit_weight`` of these.  The vault scales the noise
    to its own description of the derived table, not to this domain.
    """

    mechanisms: Measures
    table: DerivedTable

    @property
    def domain(self) -> Domain:
        """Return the domain of the derived table."""
        return self.table.domain

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """Measure noisy weights; see :meth:`sfumato.vault.interface.Measures.measure`.

        Batches have at most as many cells as the vault counts at once, each at its part of the loss.
        """
        if not questions:
            return ()
        parts = [Fraction(1, len(questions))] * len(questions) if shares is None else shares
        measured: list[Measurement] = []
        for batch in self._batches(questions):
            derived = [self._of_the_table(each) for each in batch]
            held = parts[len(measured) : len(measured) + len(batch)]
            part = sum(held, Fraction(0))
            one_batch = len(batch) == len(questions)
            own_shares = shares if one_batch else [each / part for each in held]
            own_loss = loss if one_batch else loss.divisible * part
            measured += self.mechanisms.measure(derived, own_loss, shares=own_shares)
        return tuple(replace(answer, question=each) for each, answer in zip(questions, measured, strict=True))

    def counted_cells(self, question: Measurable) -> int:
        """Return the number of cells that the vault counts for a question.

        Unless it counts over groups, it counts by the number of rows of a unit as well.
        """
        return self._of_the_table(question).table().size(self.domain)

    def _batches(self, questions: Sequence[Measurable]) -> Iterator[list[Measurable]]:
        batch: list[Measurable] = []
        cells = 0
        for question in questions:
            size = self.counted_cells(question)
            if batch and cells + size > COUNTABLE:
                yield batch
                batch, cells = [], 0
            batch.append(question)
            cells += size
        yield batch

    def _of_the_table(self, question: Measurable) -> DerivedMarginal | DerivedDistance:
        if isinstance(question, Marginal) and question.where is None:
            return DerivedMarginal(self.table, question.attributes, question.groups)
        if isinstance(question, Distance):
            return DerivedDistance(self.table, question.attributes, question.reference, question.groups)
        raise QueryError("of a derived table only marginals and distances from them are measured", culprit=question)

    def generator(self) -> np.random.Generator:
        """Return the generator of :meth:`sfumato.vault.interface.Measures.generator`."""
        return self.mechanisms.generator()
