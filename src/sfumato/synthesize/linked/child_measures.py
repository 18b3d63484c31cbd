"""The mechanisms of a vault as a method sees them that works on one derived table as if it were the protected one."""

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
"""Cells of one marginal as it is counted, at most, and of several that are counted at once: 128 MiB."""


def refuse_uncountable(table: DerivedTable) -> None:
    """Refuse attributes that could not be counted one by one, before anything is charged.

    Raises:
        SizeError: there is one.
    """
    for attribute in table.domain:
        if (cells := _counted(table, (attribute.name,))) > COUNTABLE:
            raise SizeError(
                f"{attribute.name} has {attribute.size:,} cells, which are counted by the number of rows of a unit: "
                f"{cells:,} are more than {COUNTABLE:,}; group them by edges, or keep fewer rows",
                culprit=attribute.name,
            )


def _counted(table: DerivedTable, attributes: tuple[str, ...]) -> int:
    return DerivedMarginal(table, attributes).size(table.domain)


@dataclass(frozen=True)
class DerivedMeasures:
    """Implements :class:`sfumato.vault.interface.Measures` for marginals of a derived table and distances to them.

    A row of weight w counts as w equal rows, of which a unit of the table's domain has at most ``whole``.  Noise is
    scaled by the vault to what it says of the derived table, whatever this domain says.
    """

    mechanisms: Measures
    table: DerivedTable

    @property
    def domain(self) -> Domain:
        """Of the derived table."""
        return self.table.domain

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.interface.Measures.measure`; noisy weights in place of counts.

        So many questions are put at a time as the vault can count at once, each with its part of the loss.
        """
        if not questions:
            return ()
        parts = [Fraction(1, len(questions))] * len(questions) if shares is None else shares
        measured: list[Measurement] = []
        for batch in self._batches(questions):
            asked = [self._of_the_table(each) for each in batch]
            held = parts[len(measured) : len(measured) + len(batch)]
            part = sum(held, Fraction(0))
            whole = len(batch) == len(questions)
            own = shares if whole else [each / part for each in held]
            measured += self.mechanisms.measure(asked, loss if whole else loss.divisible * part, shares=own)
        return tuple(replace(answer, question=asked) for asked, answer in zip(questions, measured, strict=True))

    def counted(self, attributes: tuple[str, ...]) -> int:
        """Cells of a marginal as the vault counts it: by how many rows a unit has as well."""
        return _counted(self.table, attributes)

    def _batches(self, questions: Sequence[Measurable]) -> Iterator[list[Measurable]]:
        batch: list[Measurable] = []
        cells = 0
        for question in questions:
            size = self.counted(self._of_the_table(question).attributes)
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
        """See :meth:`sfumato.vault.interface.Measures.generator`."""
        return self.mechanisms.generator()
