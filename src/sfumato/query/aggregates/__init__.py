"""The aggregates of queries, one file per subject.  :mod:`contract` defines what each has to provide."""

from typing import Final

from sfumato.query.aggregates.contract import (
    Aggregate,
    AggregateForm,
    Confidence,
    Estimates,
    ExpectedError,
    LinearTerm,
    Takes,
)
from sfumato.query.aggregates.counts import Count, Distinct
from sfumato.query.aggregates.distinct_values import DistinctValues
from sfumato.query.aggregates.filtered import Filtered
from sfumato.query.aggregates.iqr import Iqr
from sfumato.query.aggregates.quantile import Extreme, Quantile
from sfumato.query.aggregates.sums import Average, Total
from sfumato.query.aggregates.variance import Variance

AGGREGATES: Final[tuple[type[Aggregate], ...]] = (
    Count,
    Distinct,
    Total,
    Average,
    Variance,
    Quantile,
    Extreme,
    Iqr,
    DistinctValues,
    Filtered,
)
"""Every aggregate.  Names in SQL, HTTP, TypeScript, on the page and in the documentation are those of their forms."""

FORMS: Final[tuple[AggregateForm, ...]] = tuple(form for aggregate in AGGREGATES for form in aggregate.forms())
"""The forms of all aggregates."""

__all__ = [
    "AGGREGATES",
    "FORMS",
    "Aggregate",
    "AggregateForm",
    "Average",
    "Confidence",
    "Count",
    "Distinct",
    "DistinctValues",
    "Estimates",
    "ExpectedError",
    "Extreme",
    "Filtered",
    "Iqr",
    "LinearTerm",
    "Quantile",
    "Takes",
    "Total",
    "Variance",
]
