"""Distances of a release from the real table: in every marginal, and in the association of pairs of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Domain, Integer, Real
from sfumato.evaluate.released import MarginalSource, Shares


def marginal_distance(real: MarginalSource, release: MarginalSource, attributes: tuple[str, ...]) -> float:
    """Return total variation: half the L1 distance of the two normalized marginals, 0 to 1."""
    return float(np.abs(real.marginal(attributes) - release.marginal(attributes)).sum() / 2)


@dataclass(frozen=True)
class SampledMean:
    """A mean over ``taken`` of ``all`` things, and its standard error: zero if all were taken.

    >>> mean_of([0.0, 1.0], of=2)
    SampledMean(value=0.5, error=0.0, taken=2, all=2)
    """

    value: float
    error: float
    taken: int
    all: int


def mean_of(values: Sequence[float], *, of: int) -> SampledMean:
    """Return the mean of ``values``, drawn without replacement from ``of`` of them."""
    taken = len(values)
    error = 0.0
    if 1 < taken < of:
        error = float(np.std(values, ddof=1)) * math.sqrt((1 - taken / of) / taken)
    return SampledMean(math.fsum(values) / taken, error, taken, of)


def marginal_score(real: MarginalSource, release: MarginalSource, *, ways: int) -> float:
    """U_t = 1 - mean total variation over all marginals of ``ways`` attributes, over the domain's cells.

    NIST's k-marginal score (Synthetic Data Challenge 2018, over a public binning) is 1000 U_3.
    """
    cliques = list(combinations(real.domain.names, ways))
    return 1 - math.fsum(marginal_distance(real, release, clique) for clique in cliques) / len(cliques)


def sampled_score(
    real: MarginalSource, release: MarginalSource, *, ways: int, most: int, generator: np.random.Generator
) -> SampledMean:
    """``marginal_score`` from at most ``most`` marginals, drawn where there are more."""
    cliques = list(combinations(real.domain.names, ways))
    drawn = np.sort(generator.permutation(len(cliques))[:most])
    distance = mean_of([marginal_distance(real, release, cliques[place]) for place in drawn], of=len(cliques))
    return replace(distance, value=1 - distance.value)


def rescaled(score: float, *, floor: float, ceiling: float) -> float:
    """Return where a score lies between independent columns (0) and other people of the same population (1).

    NaN where the two ends coincide: the table has no structure that the score could see.
    """
    return (score - floor) / (ceiling - floor) if ceiling != floor else float("nan")


def associations(source: MarginalSource) -> NDArray[np.float64]:
    """Return a symmetric matrix over the attributes: Pearson correlation of two numbers, otherwise Cramér's V.

    Numbers and dates stand for the middle of their cell.  Rows without a declared value of both are left out: a cell
    for missing or unknown values is no category, and would change the size that Cramér's V is divided by.  A constant
    column has association 0 with every other.
    """
    attributes = source.domain.attributes
    matrix = np.eye(len(attributes))
    for first, second in combinations(range(len(attributes)), 2):
        one, two = attributes[first], attributes[second]
        table = source.marginal((one.name, two.name))[: one.declared, : two.declared]
        if isinstance(one, Categorical) or isinstance(two, Categorical):
            value = cramers_v(table)
        else:
            value = _pearson(table, _middles(one), _middles(two))
        matrix[first, second] = matrix[second, first] = value
    return matrix


def largest_gap(real: NDArray[np.float64], release: NDArray[np.float64], domain: Domain) -> tuple[float, str, str]:
    """Return the largest absolute difference of two association matrices, and the pair where it lies."""
    gap = np.abs(real - release)
    first, second = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return float(gap[first, second]), domain.names[first], domain.names[second]


def largest_correlation_gap(
    real: NDArray[np.float64], release: NDArray[np.float64], domain: Domain
) -> tuple[float, str, str] | None:
    """Largest absolute difference of a correlation of two columns of numbers, and the pair; None for fewer than two."""
    numbers = [place for place, attribute in enumerate(domain) if not isinstance(attribute, Categorical)]
    if len(numbers) < 2:  # noqa: PLR2004  (no pair)
        return None
    within = np.ix_(numbers, numbers)
    return largest_gap(real[within], release[within], domain.project([domain.names[place] for place in numbers]))


def cramers_v(table: Shares) -> float:
    """Return Cramér's V of a two-way table of shares: 0 independent, 1 determined (Cramér 1946, section 21.9).

    >>> cramers_v(np.array([[0.5, 0.0], [0.0, 0.5]])), cramers_v(np.full((2, 2), 0.25))
    (1.0, 0.0)
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape, default=0) < 2:  # noqa: PLR2004 (a constant column)
        return 0.0
    table = table / table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float(np.sqrt(((table - expected) ** 2 / expected).sum() / (min(table.shape) - 1)))


def _pearson(table: Shares, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> float:
    total = table.sum()
    if total <= 0:
        return 0.0
    table = table / total
    x = rows - table.sum(axis=1) @ rows
    y = columns - table.sum(axis=0) @ columns
    spread = np.sqrt((table.sum(axis=1) @ x**2) * (table.sum(axis=0) @ y**2))
    return float(x @ table @ y / spread) if spread > 0 else 0.0


def _middles(attribute: Attribute) -> NDArray[np.float64]:
    assert not isinstance(attribute, Categorical)
    if isinstance(attribute, Integer | Real):
        return np.array([sum(attribute.bounds(code)) / 2 for code in range(attribute.declared)], dtype=np.float64)
    return np.array([sum(attribute.span(code)) / 2 for code in range(attribute.declared)], dtype=np.float64)
