"""How far one unit can move an answer: the only numbers that noise is scaled to.

For a unit of m rows an answer moves by at most the sum of m one-row moves.  In L1 the sum of m moves of
length s has length at most m s; the squared L2 length of the sum is at most m^2 times that of one move.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import assert_never

import numpy as np

from sfumato.domain import Categorical, Domain
from sfumato.errors import QueryError
from sfumato.privacy.loss import exact
from sfumato.vault.questions import (
    AbsoluteErrors,
    Bins,
    Counting,
    Distance,
    Groups,
    Marginal,
    MarginalErrors,
    Measurable,
    Moments,
    Scores,
    Sum,
    Units,
    Weighted,
    cells,
)


def sensitivity(domain: Domain, question: Measurable) -> tuple[int, int]:
    """L1 and squared L2 sensitivity of a question for the domain's unit, add/remove.

    Raises:
        DomainError: the question names an attribute that the domain does not have.
        QueryError: the question does not fit the domain.
    """
    rows = domain.unit.rows
    match question:
        case Marginal(attributes=attributes, groups=groups):
            _coarse_cells(domain, attributes, groups)
            one = one_squared = 1
        case Counting(attributes=attributes, matrix=matrix):
            _fits(domain, attributes, matrix.shape[1])
            one = one_squared = int(matrix.sum(axis=0, dtype=np.int64).max(initial=1))
        case Distance():
            _fits_coarse(domain, question)
            one = one_squared = 1
        case Sum(value=value, unit=unit):
            attribute = domain[value]
            if isinstance(attribute, Categorical):
                raise QueryError(f"{value!r} is categorical and has no sum", culprit=question)
            # rounding a clamped value to units never takes it past the next whole unit
            one = max(1, *(math.ceil(abs(exact(bound)) / unit) for bound in (attribute.minimum, attribute.maximum)))
            one_squared = one**2
        case Moments():
            one = _moments(domain, question)
            one_squared = one**2
        case Weighted(attributes=attributes, weights=weights):
            _fits(domain, attributes, weights.shape[1])
            one = max(1, int(np.abs(weights).sum(axis=0).max(initial=0)))
            one_squared = max(1, int((weights**2).sum(axis=0).max(initial=0)))
        case Units(by=by):
            most = min(rows, cells(domain, by))  # one unit is counted once a cell, in at most so many cells
            return most, most
        case Bins(value=value, by=by):
            cells(domain, (value, *by))
            one = one_squared = 1
        case _:
            assert_never(question)
    return rows * one, rows**2 * one_squared


def steps(domain: Domain, value: str, unit: Fraction) -> int:
    """Number of units between what the attribute's minimum and its maximum round to, at least one.

    Raises:
        QueryError: the attribute is categorical.
    """
    attribute = domain[value]
    if isinstance(attribute, Categorical):
        raise QueryError(f"{value!r} is categorical and has no mean", culprit=value)
    return max(1, round(Fraction(attribute.maximum) / unit) - round(Fraction(attribute.minimum) / unit))


def _moments(domain: Domain, question: Moments) -> int:
    if question.degree not in (1, 2) or question.unit <= 0:
        raise QueryError("moments are of degree 1 or 2, in a unit above zero", culprit=question)
    cells(domain, question.by)
    most = steps(domain, question.value, question.unit)
    return most if question.degree == 1 else most**2


def selection_sensitivity(domain: Domain, scores: Scores) -> Fraction:
    """How far one unit can move any one score."""
    match scores:
        case AbsoluteErrors(queries=queries):
            _fits(domain, queries.attributes, queries.matrix.shape[1])
            return Fraction(domain.unit.rows)
        case MarginalErrors(distances=distances, weights=weights):
            for distance in distances:
                _fits_coarse(domain, distance)
            if min(weights) <= 0:
                raise QueryError("weights of candidates must be positive", culprit=weights)
            return domain.unit.rows * max(weights)
        case _:
            assert_never(scores)


def _fits(domain: Domain, attributes: tuple[str, ...], width: int) -> None:
    _same(cells(domain, attributes), width, attributes)


def _fits_coarse(domain: Domain, distance: Distance) -> None:
    size = _coarse_cells(domain, distance.attributes, distance.groups)
    _same(size, distance.reference.shape[0], distance.attributes)


def _same(size: int, width: int, attributes: tuple[str, ...]) -> None:
    if size != width:
        raise QueryError(
            f"the question is about {width} cells, the marginal of {', '.join(attributes)} has {size}",
            culprit=attributes,
        )


def _coarse_cells(domain: Domain, attributes: tuple[str, ...], groups: Groups | None) -> int:
    """Cells of a coarsened marginal; every code must be in exactly one group, or the sensitivity would not be one."""
    if groups is None:
        return cells(domain, attributes)
    size = 1
    for name, group in zip(attributes, groups, strict=True):
        if group is None:
            size *= domain[name].size
        elif len(group) != domain[name].size or set(group) != set(range(max(group) + 1)):
            raise QueryError(f"the groups of {name!r} must number each of its cells 0, 1, ...", culprit=group)
        else:
            size *= max(group) + 1
    return size
