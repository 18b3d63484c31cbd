"""How far one unit can move an answer: the only numbers that noise is scaled to.

For a unit of m rows an answer moves by at most the sum of m one-row moves.  In L1 the sum of m moves of
length s has length at most m s; the squared L2 length of the sum is at most m^2 times that of one move.
"""

from __future__ import annotations

from fractions import Fraction
from typing import assert_never

import numpy as np

from sfumato.domain import Domain
from sfumato.engine.cell_statements import fixed_bounds
from sfumato.vault.checks import check, check_scores
from sfumato.vault.questions import (
    AbsoluteErrors,
    Bins,
    Counting,
    Distance,
    Dropped,
    Marginal,
    MarginalErrors,
    Measurable,
    Moments,
    RankErrors,
    Scores,
    Sum,
    Units,
    Weighted,
    cells,
)


def sensitivity(domain: Domain, question: Measurable) -> tuple[int, int]:
    """L1 and squared L2 sensitivity of a question for the domain's unit, add/remove.

    Raises:
        DomainError, QueryError, SizeError: the question cannot be answered, see :func:`sfumato.vault.checks.check`.
    """
    check(domain, question)
    rows = domain.unit.rows
    match question:
        case Marginal() | Distance() | Bins():
            one = one_squared = 1
        case Counting(matrix=matrix) if len(matrix) == 1:
            one = one_squared = 1
        case Counting(matrix=matrix):
            one = one_squared = int(matrix.sum(axis=0, dtype=np.int64).max(initial=1))
        case Sum(value=value, unit=unit):
            one = max(1, *map(abs, fixed_bounds(domain, value, unit)))
            one_squared = one**2
        case Moments(value=value, unit=unit, degree=degree):
            one = steps(domain, value, unit) ** degree
            one_squared = one**2
        case Weighted(weights=weights):
            one = max(1, int(np.abs(weights).sum(axis=0).max()))
            one_squared = max(1, int((weights**2).sum(axis=0).max()))
        case Dropped(most=most):
            return most, most**2
        case Units(by=by):
            most = min(rows, cells(domain, by))  # one unit is counted once a cell, in at most so many cells
            return most, most
        case _:
            assert_never(question)
    return rows * one, rows**2 * one_squared


def steps(domain: Domain, value: str, unit: Fraction) -> int:
    """Number of units between what the attribute's minimum and its maximum round to, at least one.

    Raises:
        QueryError: the attribute is categorical, or the unit not positive.
        SizeError: a sum could overflow.
    """
    low, high = fixed_bounds(domain, value, unit)
    return max(1, high - low)


def selection_sensitivity(domain: Domain, scores: Scores) -> int | Fraction:
    """How far one unit can move any one score.

    Raises:
        DomainError, QueryError, SizeError: they cannot be computed, see :func:`sfumato.vault.checks.check_scores`.
    """
    check_scores(domain, scores)
    match scores:
        case AbsoluteErrors():
            return domain.unit.rows
        case MarginalErrors(weights=weights):
            return domain.unit.rows * max(weights)
        case RankErrors(probability=probability):
            return domain.unit.rows * max(probability.numerator, probability.denominator - probability.numerator)
        case _:
            assert_never(scores)
