"""The privacy of whole runs, by enumerating everything that can come out of the mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.vault.prepared import QueryByQuery

from sfumato.domain import Domain, Integer, Unknown
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import BudgetShare, PublicTotal, Schedule
from sfumato.synthesize.methods.histogram import tabulate
from sfumato.synthesize.methods.mwem import iterate
from sfumato.vault.measurables import Counting, Measurement
from sfumato.vault.mechanisms import noises
from sfumato.vault.scores import Scores

DOMAIN = Domain((Integer(name="cell", minimum=0, maximum=2, unknown=Unknown.DROP),))
QUERIES = Counting(("cell",), np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool))
# over 12 supposed rows, one more in the first cell moves the first score up and the two others down
TABLE = np.array([5, 0, 0])
NEIGHBOURS = [np.array([6, 0, 0]), np.array([4, 0, 0]), np.array([5, 1, 0])]
TOTAL = PublicTotal(12)
EPSILON = Epsilon(1)
WINDOW = range(-2, 13, 2)


class Scripted:
    """Mechanisms that give scripted replies and add up how likely several tables were to give them (as logarithms)."""

    def __init__(self, script, tables, *, generosity=1.0):
        self.domain = DOMAIN
        self._script = iter(script)
        self._tables = tables
        self._generosity = generosity  # above one, the mechanisms are more accurate than their loss allows
        self.logs = np.zeros(len(tables))

    def measure(self, questions, loss, *, shares=None):
        found = []
        for question, noise in zip(questions, noises(DOMAIN, questions, loss, shares), strict=True):
            values = np.array([next(self._script) for _ in range(_length(question))])
            for index, table in enumerate(self._tables):
                distance = np.abs(values - _answer(question, table)).sum()
                scale = float(noise.scale) / self._generosity
                # the discrete Laplace pmf is (1 - q) / (1 + q) q^|k| with q = exp(-1 / scale)
                self.logs[index] += values.size * math.log(math.tanh(0.5 / scale)) - distance / scale
            found.append(Measurement(question, values, noise))
        return tuple(found)

    def prepare(self, queries):
        return QueryByQuery(self, queries)

    def select(self, scores: Scores, loss):
        chosen = next(self._script) % len(scores.answers)
        for index, table in enumerate(self._tables):
            exponents = np.abs(scores.queries.matrix @ table - scores.answers) * float(loss.value) / 2
            exponents *= self._generosity
            self.logs[index] += exponents[chosen] - np.logaddexp.reduce(exponents)
        return chosen


def _length(question):
    if isinstance(question, Counting):
        return len(question.matrix)
    return 3 if question.attributes else 1


def _answer(question, table):
    if isinstance(question, Counting):
        return question.matrix @ table
    return table if question.attributes else np.array([table.sum()])


def worst_ratio(run, script_space, **options):
    """Return the largest log ratio of likelihoods of one transcript under the table and a neighbor."""
    worst = 0.0
    for script in product(*script_space):
        mechanisms = Scripted(script, [TABLE, *NEIGHBOURS], **options)
        run(mechanisms)
        worst = max(worst, np.abs(mechanisms.logs[1:] - mechanisms.logs[0]).max())
    return worst


def run_mwem(mechanisms):
    iterate(mechanisms, EPSILON, total=TOTAL, queries=QUERIES, schedule=Schedule(rounds=2, repetitions=2))


def run_mwem_charged(mechanisms):
    iterate(
        mechanisms,
        EPSILON,
        total=BudgetShare(Fraction(1, 4)),
        queries=QUERIES,
        schedule=Schedule(rounds=1, repetitions=2),
    )


def run_histogram(mechanisms):
    tabulate(mechanisms, EPSILON, BudgetShare(Fraction(1, 4)), [("cell",)])


MWEM_SPACE = (range(3), WINDOW, range(2), WINDOW)
CASES = [
    (run_mwem, MWEM_SPACE),
    (run_mwem_charged, (WINDOW, range(3), WINDOW)),
    (run_histogram, (WINDOW, *([WINDOW] * 3))),
]


@pytest.mark.parametrize(("run", "space"), CASES)
def test_no_transcript_tells_neighbours_apart_by_more_than_epsilon(run, space):
    worst = worst_ratio(run, space)
    assert worst <= float(EPSILON.value) + 1e-9
    assert worst > 0.5 * float(EPSILON.value)  # the bound is approached, so the enumeration sees the data


@pytest.mark.parametrize(("run", "space"), CASES)
def test_the_enumeration_catches_noise_that_is_too_small(run, space):
    assert worst_ratio(run, space, generosity=1 / 0.7) > float(EPSILON.value) + 1e-9


def test_what_comes_out_depends_on_the_mechanisms_alone():
    script = (2, 4, 0, 1)
    first, second = (
        iterate(
            Scripted(script, [table]), EPSILON, total=TOTAL, queries=QUERIES, schedule=Schedule(rounds=2, repetitions=2)
        )
        for table in (TABLE, np.array([900, 50, 3]))
    )
    np.testing.assert_array_equal(first.last, second.last)
    np.testing.assert_array_equal(first.average, second.average)
