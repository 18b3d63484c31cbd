"""The utility of a release, on scales from independent columns to other people of the population."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Domain, Integer, Real
from sfumato.evaluate.intervals import SampledMean, mean_of
from sfumato.evaluate.population_split import (
    PopulationSplit,
    Progress,
    no_progress,
    refuse_wrong_release,
    refuse_wrong_split,
)
from sfumato.evaluate.released import CachedMarginals, MarginalSource, Released, Shares, within
from sfumato.evaluate.utility.learners import Learning, propensity, train_on_release
from sfumato.model.row_sampling import generator

_WIDTH_CELLS = 1 << 20  # largest number of cells of the marginal behind a conjunction
_SANITY = 0.001  # relative errors are relative to at least one row in a thousand


@dataclass(frozen=True, eq=False)
class Conjunction:
    """A condition on rows: for each attribute, the cells that meet it."""

    attributes: tuple[str, ...]
    allowed: tuple[NDArray[np.bool_], ...]

    def answer(self, source: MarginalSource) -> float:
        """Return the share of people that satisfy every condition."""
        if isinstance(source, Released | CachedMarginals):
            return source.share(self.attributes, self.allowed)
        return within(source.marginal(self.attributes), self.allowed)


@dataclass(frozen=True)
class QueryErrors:
    """True shares and absolute errors of the queries, in the order they were drawn."""

    truth: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def mean_absolute(self) -> float:
        """The mean absolute error, as a share of the table."""
        return math.fsum(self.errors) / len(self.errors)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean absolute error, from the queries that were drawn."""
        count = len(self.errors)
        return float(np.std(self.errors, ddof=1)) / math.sqrt(count) if count > 1 else 0.0

    @property
    def mean_relative(self) -> float:
        """The mean error relative to the true share, or to 0.1 % of the table if that is larger."""
        pairs = zip(self.errors, self.truth, strict=True)
        return math.fsum(error / max(share, _SANITY) for error, share in pairs) / len(self.errors)


def draw_conjunctions(domain: Domain, *, count: int, generator: np.random.Generator) -> tuple[Conjunction, ...]:
    """Return random conjunctions over one to three attributes: ranges of numbers, subsets of categories.

    A range covers declared numbers only, so rows with a missing or unknown number never match.
    """
    drawn: list[Conjunction] = []
    widest = min(3, len(domain))
    while len(drawn) < count:
        width = int(generator.integers(1, widest + 1))
        picked = sorted(generator.permutation(len(domain))[:width].tolist())
        attributes = [domain.attributes[place] for place in picked]
        while math.prod(attribute.size for attribute in attributes) > _WIDTH_CELLS and len(attributes) > 1:
            attributes.pop()
        allowed = []
        for attribute in attributes:
            if isinstance(attribute, Categorical):
                chosen = generator.random(attribute.size) < generator.uniform(0.2, 0.8)
                chosen[generator.integers(attribute.size)] = True
            else:
                low, high = np.sort(generator.integers(0, attribute.declared, size=2))
                chosen = (np.arange(attribute.size) >= low) & (np.arange(attribute.size) <= high)
            allowed.append(chosen)
        drawn.append(Conjunction(tuple(attribute.name for attribute in attributes), tuple(allowed)))
    return tuple(drawn)


def query_errors(real: MarginalSource, release: MarginalSource, queries: Sequence[Conjunction]) -> QueryErrors:
    """Return the true share and the absolute error of each query."""
    truth = [query.answer(real) for query in queries]
    errors = [abs(query.answer(release) - share) for query, share in zip(queries, truth, strict=True)]
    return QueryErrors(tuple(truth), tuple(errors))


_QUERIES = 1000
_DISTINCT = 20  # minimum of released rows for the propensity score
_TRIPLES = 1000  # three-way marginals compared: all of them for up to 19 attributes


@dataclass(frozen=True, eq=False)
class Scorecard:
    """The utility of one release.

    ``learning`` and ``propensity`` are None without rows, ``learning`` also without a holdout, and ``propensity`` also
    with few rows.
    """

    marginals: tuple[SampledMean, SampledMean, SampledMean]  # U_1, U_2, U_3
    queries: QueryErrors
    pair_distance: NDArray[np.float64]  # total variation, (attributes, attributes); single ones on the diagonal
    association_difference: NDArray[np.float64]  # released minus real, (attributes, attributes)
    association_gap: tuple[float, str, str]
    correlation_gap: tuple[float, str, str] | None
    learning: Learning | None
    propensity: SampledMean | None


def scorecard(
    release: MarginalSource, split: PopulationSplit, *, target: str, seed: int, watch: Progress = no_progress
) -> Scorecard:
    """Score a release against the members of ``split``.

    Args:
        release: rows, answers or reports.
        split: the members it was made from, and real people it was not made from.
        target: the attribute that learners predict.
        seed: chooses marginals, queries and learners, so that releases are compared on the same ones.
        watch: receives the name of each step before it starts.

    Raises:
        InputError: an argument is no release, no split or no attribute name.
    """
    refuse_wrong_split(split, target=target, seed=seed)
    refuse_wrong_release(release, split.domain)
    real, seen = split.truth, CachedMarginals(release)
    watch("all pairs of columns")
    distances = _pair_distances(real, seen)
    released, true = associations(seen), associations(real)
    watch("three-way marginals and queries")
    three = _triples(real, seen, distances, seed=seed)
    queries = _random_queries(split.domain, seed)
    errors = query_errors(real, seen, queries)
    learned = distinguished = None
    if isinstance(release, Released):
        rows = release.draw(generator(seed))
        if split.has_holdout:
            watch(f"a learner of {target}")
            learned = train_on_release(rows, split.controls, target=target, seed=seed)
        if len(rows) >= _DISTINCT:
            watch("telling released from real rows")
            distinguished = propensity(split.members, rows, seed=seed)
    return Scorecard(
        marginals=(_one_way(distances), _two_way(distances), three),
        queries=errors,
        pair_distance=distances,
        association_difference=released - true,
        association_gap=largest_gap(true, released, split.domain),
        correlation_gap=largest_correlation_gap(true, released, split.domain),
        learning=learned,
        propensity=distinguished,
    )


def _random_queries(domain: Domain, seed: int) -> tuple[Conjunction, ...]:
    """Return random queries that are the same for all compared releases."""
    return draw_conjunctions(domain, count=_QUERIES, generator=generator(seed))


def _pair_distances(real: MarginalSource, release: MarginalSource) -> NDArray[np.float64]:
    names = real.domain.names
    distances = np.zeros((len(names), len(names)))
    for first, one in enumerate(names):
        distances[first, first] = marginal_distance(real, release, (one,))
        for second in range(first):
            distance = marginal_distance(real, release, (names[second], one))
            distances[first, second] = distances[second, first] = distance
    return distances


def _one_way(distances: NDArray[np.float64]) -> SampledMean:
    score = 1 - math.fsum(np.diagonal(distances)) / len(distances)
    return SampledMean(score, 0.0, len(distances), len(distances))


def _two_way(distances: NDArray[np.float64]) -> SampledMean:
    """Return U_2, or U_1 if there is a single attribute."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    return (
        SampledMean(1 - mean_of(pairs.tolist(), of=len(pairs)).value, 0.0, len(pairs), len(pairs))
        if len(pairs)
        else _one_way(distances)
    )


def _triples(
    real: MarginalSource, release: MarginalSource, distances: NDArray[np.float64], *, seed: int
) -> SampledMean:
    """Return U_3, or U_2 or U_1 if there are fewer than three attributes."""
    if len(distances) < 3:  # noqa: PLR2004
        return _two_way(distances)
    return sampled_score(real, release, ways=3, most=_TRIPLES, generator=generator(seed))


def marginal_distance(real: MarginalSource, release: MarginalSource, attributes: tuple[str, ...]) -> float:
    """Return the total variation: half the L1 distance of the two normalized marginals, 0 to 1."""
    return float(np.abs(real.marginal(attributes) - release.marginal(attributes)).sum() / 2)


def marginal_score(real: MarginalSource, release: MarginalSource, *, ways: int) -> float:
    """Return U_t = 1 - mean total variation over all marginals of ``ways`` attributes.

    NIST's k-marginal score (Synthetic Data Challenge 2018, over a public binning) is 1000 U_3.
    """
    cliques = list(combinations(real.domain.names, ways))
    return 1 - math.fsum(marginal_distance(real, release, clique) for clique in cliques) / len(cliques)


def sampled_score(
    real: MarginalSource, release: MarginalSource, *, ways: int, most: int, generator: np.random.Generator
) -> SampledMean:
    """Estimate ``marginal_score`` from a random sample of at most ``most`` marginals."""
    cliques = list(combinations(real.domain.names, ways))
    drawn = np.sort(generator.permutation(len(cliques))[:most])
    distance = mean_of([marginal_distance(real, release, cliques[place]) for place in drawn], of=len(cliques))
    return replace(distance, value=1 - distance.value)


def rescaled(score: float, *, floor: float, ceiling: float) -> float:
    """Return the position of a score between independent columns (0) and other people of the population (1).

    The result is NaN if the two ends are equal: the score sees no structure in the table.
    """
    return (score - floor) / (ceiling - floor) if ceiling != floor else float("nan")


def associations(source: MarginalSource) -> NDArray[np.float64]:
    """Return a symmetric matrix over the attributes: Pearson correlation of two numbers, otherwise Cramér's V.

    A cell of numbers or dates is represented by its middle.  Rows without a declared value in both columns are skipped,
    because a cell of missing or unknown values would change the size that Cramér's V is divided by.  A constant column
    has association 0 with every other column.
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
    """Return the largest absolute difference of two association matrices, with its pair of different columns.

    A single column is paired with itself.
    """
    gap = np.abs(real - release)
    if len(gap) > 1:
        gap[np.tril_indices(len(gap))] = -1.0  # no column with itself, and each pair once
    first, second = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return float(gap[first, second]), domain.names[first], domain.names[second]


def largest_correlation_gap(
    real: NDArray[np.float64], release: NDArray[np.float64], domain: Domain
) -> tuple[float, str, str] | None:
    """Return the largest absolute difference of a correlation, with its two numeric columns; None without a pair."""
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
