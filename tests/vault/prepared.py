"""Prepared questions of the mechanisms of a test: equal to their query-by-query choices and measurements."""

from __future__ import annotations

import numpy as np

from sfumato.vault.measurables import Counting
from sfumato.vault.scores import AbsoluteErrors


class QueryByQuery:
    """Prepared queries in the terms of ``select`` and ``measure``, each a question of its own."""

    def __init__(self, mechanisms, queries):
        self._mechanisms = mechanisms
        self._queries = queries

    def _part(self, places):
        return Counting(self._queries.attributes, self._queries.matrix[places])

    def select(self, answers, loss, *, among):
        return int(among[self._mechanisms.select(AbsoluteErrors(self._part(among), answers[among]), loss)])

    def measure(self, query, loss):
        (found,) = self._mechanisms.measure([self._part(np.array([query]))], loss)
        return found
