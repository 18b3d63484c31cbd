"""The number of distinct values of a declared column, from its noisy histogram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.domain import Categorical, Date, Domain, Grain, Integer
from sfumato.domain.attribute import EXTRA
from sfumato.domain.predicate import Predicate
from sfumato.errors import QueryError
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates.contract import (
    Aggregate,
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    NoisyAnswers,
)
from sfumato.vault.measurables import Marginal, Measurable

MOST_CELLS = 10_000


@dataclass(frozen=True)
class DistinctValues(Aggregate):
    """The number of declared values of a column that at least one row has.

    The noisy histogram of the column shows which cells hold rows.  A cell is certainly not empty if its count exceeds
    the noise of all cells.  It is certainly empty if one row with that noise would count more.  The interval reaches
    from the number of certainly non-empty cells to the number of cells that are not certainly empty.

    Attributes:
        of: the column, or a level such as ``chapter(diag)``; a missing value is no value.
    """

    of: str

    @classmethod
    def forms(cls) -> tuple[AggregateForm, ...]:
        """Return no form: COUNT(DISTINCT column) is read from statements of SQL."""
        return ()

    def __str__(self) -> str:
        return f"count(distinct {self.of})"

    def check(self, domain: Domain) -> None:
        """Refuse a column with cells of several values, or with too many cells."""
        grouping = domain.grouping(self.of)
        attribute = domain[grouping.attribute]
        values = isinstance(attribute, Categorical) or (isinstance(attribute, Integer) and attribute.edges is None)
        values = values or (isinstance(attribute, Date) and attribute.by is Grain.DAY)
        if grouping.groups is None and not values:
            raise QueryError(
                f"the cells of {self.of!r} hold several values each, so distinct ones cannot be counted; count rows by "
                f"them: SELECT {self.of}, COUNT(*) ... GROUP BY {self.of}",
                culprit=self.of,
            )
        if len(grouping.labels) > MOST_CELLS:
            raise QueryError(
                f"{self.of!r} has {len(grouping.labels):,} cells, and distinct values are counted of at most "
                f"{MOST_CELLS:,}; declare fewer cells, or count a level of its hierarchy",
                culprit=self.of,
            )

    def measurables(self, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> tuple[Measurable, ...]:
        """Return the histogram of the column, by groups.

        Raises:
            QueryError: the groups are cells of the same column.
        """
        grouping = domain.grouping(self.of)
        if grouping.attribute in by:
            raise QueryError(f"distinct values of {self.of!r} are not counted by groups of itself", culprit=self.of)
        groups = None if grouping.groups is None else (*(None for _ in by), grouping.groups)
        return (Marginal((*by, grouping.attribute), where, groups),)

    def estimates(self, tables: NoisyAnswers, noise: Noise, domain: Domain, confidence: Confidence) -> Estimates:
        """Count the cells above the noise of one cell; bound the count by the certainly and the possibly non-empty
        cells.
        """
        labels = domain.grouping(self.of).labels
        valued = np.array([label not in EXTRA for label in labels])
        noisy = tables[0].reshape(-1, len(labels))[:, valued]
        all_cells, one = confidence.half_width(noise, noisy.shape[1]), confidence.half_width(noise)
        low, value = ((noisy > margin).sum(axis=1).astype(np.float64) for margin in (all_cells, one))
        high = (noisy >= 1 - all_cells).sum(axis=1).astype(np.float64)
        return Estimates(value, (high - low) / 2, low, np.maximum(high, low))

    def expected(
        self, name: str, noise: Noise, domain: Domain, *, confidence: Confidence, rows: int | None
    ) -> ExpectedError:
        """Return a bound for all tables: with any noise each cell may hold a single row."""
        half = len(domain.grouping(self.of).labels) / 2 if noise.variance else 0.0
        return ExpectedError(name, half, half, "units")

    def rows_hidden_by(self, noise: Noise, domain: Domain, confidence: Confidence) -> float:
        """Return the number of rows of one cell that noise can hide."""
        return confidence.half_width(noise, len(domain.grouping(self.of).labels))

    def notes(self, domain: Domain) -> tuple[str, ...]:
        """Describe how the number is counted."""
        return (
            f"{self} counts cells of the noisy histogram; cells with few rows may be missed, and its interval says so",
        )
