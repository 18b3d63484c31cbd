"""Interactive queries under differential privacy: aggregates, SQL, sessions, optimised batches."""

from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.query.accuracy import accuracy, cost, drowned_queries
from sfumato.query.aggregate import Average, Count, Distinct, Total, Variance
from sfumato.query.answer import Answer, NoisyValue, non_negative_integers
from sfumato.query.ask import ask, choose_quantile, sql
from sfumato.query.hierarchical_histogram import Extreme, Quantile
from sfumato.query.question import Query, count, mean, median, table, total
from sfumato.query.regression import Coefficient, Regression, linear_regression
from sfumato.query.release_interval import ReleaseInterval, Share, interval
from sfumato.query.session import Adaptive, BatchAnswer, Session, answer_batch, strategies
from sfumato.workload import Explicit, all_ranges, cells_of, prefixes, ranges, rectangles

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
    "Explicit",
    "Extreme",
    "NoisyValue",
    "Not",
    "Quantile",
    "Query",
    "Regression",
    "ReleaseInterval",
    "Session",
    "Share",
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
    "drowned_queries",
    "interval",
    "linear_regression",
    "mean",
    "median",
    "non_negative_integers",
    "prefixes",
    "ranges",
    "rectangles",
    "sql",
    "strategies",
    "table",
    "total",
]
