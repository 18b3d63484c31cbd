"""The mechanisms of a vault as a method sees them that works on one derived table as if it were the protected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.related_tables import DerivedTable
from sfumato.errors import QueryError
from sfumato.privacy.loss import EpsilonDelta, Loss
from sfumato.vault.derived_questions import DerivedDistance, DerivedMarginal
from sfumato.vault.interface import Mechanisms, Prepared
from sfumato.vault.questions import Counting, Distance, Marginal, Measurable, Measurement, StoredMarginal
from sfumato.vault.scores import Scores

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DerivedMechanisms:
    """Implements :class:`sfumato.vault.interface.Mechanisms` for marginals of a derived table and distances to them.

    A row of weight w counts as w equal rows, of which a unit of the table's domain has at most ``whole``.  Noise is
    scaled by the vault to what it says of the derived table, whatever this domain says.
    """

    mechanisms: Mechanisms
    table: DerivedTable

    @property
    def domain(self) -> Domain:
        """Of the derived table."""
        return self.table.domain

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.interface.Mechanisms.measure`; noisy weights in place of counts."""
        found = self.mechanisms.measure([self._of_the_table(each) for each in questions], loss, shares=shares)
        return tuple(replace(answer, question=asked) for asked, answer in zip(questions, found, strict=True))

    def _of_the_table(self, question: Measurable) -> Measurable:
        if isinstance(question, Marginal) and question.where is None:
            return DerivedMarginal(self.table, question.attributes, question.groups)
        if isinstance(question, Distance):
            return DerivedDistance(self.table, question.attributes, question.reference, question.groups)
        raise QueryError("of a derived table only marginals and distances from them are measured", culprit=question)

    def stored_marginals(self) -> tuple[StoredMarginal, ...]:
        """None: no release keeps marginals of a derived table for others."""
        return ()

    def generator(self) -> np.random.Generator:
        """See :meth:`sfumato.vault.interface.Mechanisms.generator`."""
        return self.mechanisms.generator()

    def select(self, scores: Scores, loss: Loss) -> int:
        """Not of a derived table.

        Raises:
            QueryError: always.
        """
        raise QueryError("nothing is selected by scores of a derived table", culprit=(scores, loss))

    def prepare(self, queries: Counting) -> Prepared:
        """Not of a derived table.

        Raises:
            QueryError: always.
        """
        raise QueryError("no queries are prepared of a derived table", culprit=queries)

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """Not of a derived table.

        Raises:
            QueryError: always.
        """
        raise QueryError("a derived table has no undeclared columns", culprit=(columns, loss))
