"""What is refused before anything is charged: questions that do not fit the domain, or could not be counted.

The sensitivities of :mod:`sfumato.vault.sensitivity` hold for questions that pass.  Integers are bounded so
that no sum overflows 64 bits: a sum that wraps around would move further than its sensitivity says.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.engine.cell_statements import FIXED_POINT_LIMIT, condition, fixed_bounds, numeric
from sfumato.engine.contingency import TOTAL_CELLS
from sfumato.errors import QueryError, SizeError
from sfumato.vault.questions import (
    AbsoluteErrors,
    Bins,
    Counting,
    Distance,
    Dropped,
    Groups,
    Integers,
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

_LARGEST = 1 << 62
_MOST_DROPPED = 10**6
_FINEST_PROBABILITY = 10**6
_MOST_CELLS = 1 << 26
_APART = 2.0**-48  # of the largest edge: cells so wide have edges that rounding leaves apart
_MATRIX = 2


def check(domain: Domain, question: Measurable) -> None:  # noqa: C901, PLR0912  (one case a kind of question)
    """Refuse a question that cannot be answered under ``domain``.

    Raises:
        DomainError: an attribute that the domain does not have.
        QueryError: the question does not fit the domain.
        SizeError: a sum could overflow; ask for a coarser unit.
    """
    match question:
        case Marginal(attributes=attributes, where=where, groups=groups):
            _named_once(attributes)
            coarse_cells(domain, attributes, groups)
            condition(where, domain)
        case Counting(attributes=attributes, matrix=matrix):
            _rows_of(domain, attributes, matrix, np.dtype(np.bool_))
        case Weighted(attributes=attributes, weights=weights):
            _rows_of(domain, attributes, weights, np.dtype(np.int64))
            _refuse_heavy(weights)
        case Distance():
            _check_distance(domain, question)
        case Sum(value=value, by=by, unit=unit, where=where):
            fixed_bounds(domain, value, unit)
            _named_once(by)
            cells(domain, by)
            condition(where, domain)
        case Moments(value=value, by=by, unit=unit, degree=degree, where=where):
            low, high = fixed_bounds(domain, value, unit)
            if degree not in (1, 2):
                raise QueryError("moments are of degree 1 or 2", culprit=question)
            if (high - low) ** degree > FIXED_POINT_LIMIT:
                raise SizeError(f"powers of {value!r} in units of {unit} could overflow; take a coarser unit")
            _named_once(by)
            cells(domain, by)
            condition(where, domain)
        case Dropped(most=most, where=where):
            if domain.unit.column is None:
                raise QueryError("every row is a unit of its own here, so none is dropped by a bound", culprit=question)
            if isinstance(most, bool) or not isinstance(most, int) or not 0 < most <= _MOST_DROPPED:
                raise QueryError(
                    f"of one unit at most 1 to {_MOST_DROPPED:,} dropped rows are counted, a whole number", culprit=most
                )
            condition(where, domain)
        case Units(by=by, where=where):
            _named_once(by)
            cells(domain, by)
            condition(where, domain)
        case Bins(value=value, edges=edges, by=by, where=where):
            numeric(domain, value)
            if len(edges) < 2 or not all(map(math.isfinite, edges)) or (np.diff(edges) <= 0).any():  # noqa: PLR2004
                raise QueryError("bins need at least two finite, increasing edges", culprit=edges)
            _named_once(by)
            cells(domain, by)
            condition(where, domain)
        case _:
            assert_never(question)


def check_scores(domain: Domain, scores: Scores) -> None:
    """Refuse scores that cannot be computed under ``domain``.

    Raises:
        DomainError, QueryError: as :func:`check` says, or candidates that are none or of different numbers.
        SizeError: candidates whose tables could not be counted at once.
    """
    match scores:
        case AbsoluteErrors(queries=queries, answers=answers):
            check(domain, queries)
            check_size(domain, [queries])
            _public_integers(answers, len(queries.matrix))
        case MarginalErrors(distances=distances, weights=weights, penalties=penalties):
            if not distances or not len(distances) == len(weights) == len(penalties):
                raise QueryError("every candidate needs a distance, a weight and a penalty", culprit=scores)
            for distance in distances:
                _check_distance(domain, distance)
            if min(weights) <= 0:
                raise QueryError("weights of candidates must be positive", culprit=weights)
            check_size(domain, distances)
        case RankErrors(value=value, probability=probability, edges=edges, parts=parts, where=where):
            check(domain, Bins(value, edges, (), where))
            if not 0 < probability < 1 or probability.denominator > _FINEST_PROBABILITY:
                raise QueryError("a quantile lies strictly between 0 and 1, in at most millionths", culprit=probability)
            if parts < 1 or (len(edges) - 1) * parts > _MOST_CELLS:
                raise SizeError(f"a quantile is chosen among at most {_MOST_CELLS:,} cells", culprit=parts)
            if float(np.diff(edges).min()) / parts < max(_APART * max(map(abs, edges)), sys.float_info.min):
                raise QueryError("the cells of a quantile are too narrow for doubles; ask for fewer", culprit=parts)
        case _:
            assert_never(scores)


def check_size(domain: Domain, questions: Sequence[Measurable]) -> None:
    """Refuse questions whose tables the engine could not hold at once.

    Raises:
        SizeError: as said.
    """
    size = sum({_table(question): _size(domain, question) for question in questions}.values())
    if size > TOTAL_CELLS:
        raise SizeError(
            f"these questions are about {size:,} cells, more than the {TOTAL_CELLS:,} that are counted at once; "
            "ask for fewer or smaller marginals",
            culprit=size,
        )


def coarse_cells(domain: Domain, attributes: tuple[str, ...], groups: Groups | None) -> int:
    """Cells of a coarsened marginal; every code must be in exactly one group, or the sensitivity would not be one.

    Raises:
        QueryError: it is not.
    """
    if groups is None:
        return cells(domain, attributes)
    if len(groups) != len(attributes):
        raise QueryError("groups are given for each attribute of the marginal, or None", culprit=groups)
    size = 1
    for name, group in zip(attributes, groups, strict=True):
        if group is None:
            size *= domain[name].size
        elif len(group) != domain[name].size or set(group) != set(range(max(group) + 1)):
            raise QueryError(f"the groups of {name!r} must number each of its cells 0, 1, ...", culprit=group)
        else:
            size *= max(group) + 1
    return size


def _table(question: Measurable) -> object:
    """What tells apart the tables that are counted: marginals are shared by the questions about them."""
    match question:
        case Marginal(attributes=attributes, where=where):
            return attributes, where
        case Counting(attributes=attributes) | Weighted(attributes=attributes) | Distance(attributes=attributes):
            return attributes, None
        case _:
            return question


def _size(domain: Domain, question: Measurable) -> int:
    match question:
        case Bins(by=by, edges=edges):
            return cells(domain, by) * (len(edges) - 1)
        case Moments(by=by, degree=degree):
            return cells(domain, by) * (degree + 1)
        case Sum(by=by) | Units(by=by):
            return cells(domain, by)
        case Dropped():
            return 1
        case Counting(matrix=rows) | Weighted(weights=rows):
            return int(rows.shape[-1])
        case _:
            return cells(domain, question.attributes)


def _named_once(attributes: tuple[str, ...]) -> None:
    if len(set(attributes)) != len(attributes):
        raise QueryError("an attribute is named twice in one question", culprit=attributes)


def _rows_of(
    domain: Domain, attributes: tuple[str, ...], rows: NDArray[np.bool_] | Integers, kind: np.dtype[np.generic]
) -> None:
    _named_once(attributes)
    if rows.dtype != kind or rows.ndim != _MATRIX or not len(rows):
        raise QueryError(f"queries over {', '.join(attributes)} need rows of {kind}, at least one", culprit=attributes)
    _same(cells(domain, attributes), rows.shape[1], attributes)


def _refuse_heavy(weights: Integers) -> None:
    light = max(int(weights.max()), -int(weights.min())) <= FIXED_POINT_LIMIT
    if not light or int(np.abs(weights).sum(axis=0).max()) > FIXED_POINT_LIMIT:
        raise SizeError(
            f"the weights of a cell add up to more than {FIXED_POINT_LIMIT:,}; divide them, or ask fewer sums at once"
        )


def _check_distance(domain: Domain, distance: Distance) -> None:
    _named_once(distance.attributes)
    size = coarse_cells(domain, distance.attributes, distance.groups)
    if distance.reference.ndim != 1:
        raise QueryError("a distance is to a flat table of integers", culprit=distance.attributes)
    _same(size, distance.reference.shape[0], distance.attributes)
    _public_integers(distance.reference, size)


def _public_integers(values: Integers, count: int) -> None:
    largest = _LARGEST // count
    if values.dtype != np.int64 or values.shape != (count,) or max(int(values.max()), -int(values.min())) > largest:
        raise QueryError(f"a question compares {count} counts with as many int64 within 2^62 together")


def _same(size: int, width: int, attributes: tuple[str, ...]) -> None:
    if size != width:
        raise QueryError(
            f"the question is about {width} cells, the marginal of {', '.join(attributes)} has {size}",
            culprit=attributes,
        )
