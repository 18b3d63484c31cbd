"""Interactive queries under differential privacy: aggregates, SQL, sessions, optimised batches."""

from sfumato.query.accuracy import accuracy, cost, too_small
from sfumato.query.answer import Answer, Value
from sfumato.query.ask import ask
from sfumato.query.batch import BatchAnswer, choose
from sfumato.query.batch import answer as answer_batch
from sfumato.query.batch_rows import Batch
from sfumato.query.choice import choose_quantile
from sfumato.query.consistency import whole_counts
from sfumato.query.question import Query, count, mean, median, table, total
from sfumato.query.session import Adaptive, Session
from sfumato.query.statement import sql

__all__ = [
    "Adaptive",
    "Answer",
    "Batch",
    "BatchAnswer",
    "Query",
    "Session",
    "Value",
    "accuracy",
    "answer_batch",
    "ask",
    "choose",
    "choose_quantile",
    "cost",
    "count",
    "mean",
    "median",
    "sql",
    "table",
    "too_small",
    "total",
    "whole_counts",
]
