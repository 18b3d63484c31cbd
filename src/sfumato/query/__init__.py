"""Interactive queries under differential privacy: aggregates, SQL, sessions, optimized batches.

Sessions, batches, regressions and intervals of releases are loaded at their first use: a single query needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING
from typing import Any as Anything

from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.query.aggregates import (
    Average,
    Count,
    Distinct,
    DistinctValues,
    Extreme,
    Filtered,
    Iqr,
    Quantile,
    Total,
    Variance,
)
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.query.answer import Answer, non_negative_integers
from sfumato.query.ask import ask, sql, view
from sfumato.query.plan import accuracy, cost, low_signal_warnings
from sfumato.query.quantile_selection import choose_quantile
from sfumato.query.question import Query, count, mean, median, table, total

if TYPE_CHECKING:
    from sfumato.query.regression import Coefficient, Regression, linear_regression
    from sfumato.query.release_interval import ReleaseInterval, Share, interval
    from sfumato.query.row_bound import SuggestedBound, suggest_bound
    from sfumato.query.session import Adaptive, BatchAnswer, Session, answer_batch, strategies
    from sfumato.workload import Explicit, all_ranges, cells_of, prefixes, ranges, rectangles

_LATER = {
    "sfumato.query.row_bound": ("SuggestedBound", "suggest_bound"),
    "sfumato.query.regression": ("Coefficient", "Regression", "linear_regression"),
    "sfumato.query.release_interval": ("ReleaseInterval", "Share", "interval"),
    "sfumato.query.session": ("Adaptive", "BatchAnswer", "Session", "answer_batch", "strategies"),
    "sfumato.workload": ("Explicit", "all_ranges", "cells_of", "prefixes", "ranges", "rectangles"),
}

__all__ = [
    "Adaptive",
    "All",
    "Among",
    "Answer",
    "Any",
    "Average",
    "BatchAnswer",
    "Coefficient",
    "Count",
    "Distinct",
    "DistinctValues",
    "Explicit",
    "Extreme",
    "Filtered",
    "Iqr",
    "NoisyValue",
    "Not",
    "Quantile",
    "Query",
    "Regression",
    "ReleaseInterval",
    "Session",
    "Share",
    "SuggestedBound",
    "Total",
    "Variance",
    "accuracy",
    "all_ranges",
    "answer_batch",
    "ask",
    "cells_of",
    "choose_quantile",
    "cost",
    "count",
    "interval",
    "linear_regression",
    "low_signal_warnings",
    "mean",
    "median",
    "non_negative_integers",
    "prefixes",
    "ranges",
    "rectangles",
    "sql",
    "strategies",
    "suggest_bound",
    "table",
    "total",
    "view",
]


def __getattr__(name: str) -> Anything:  # noqa: ANN401  (PEP 562)
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'sfumato.query' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
