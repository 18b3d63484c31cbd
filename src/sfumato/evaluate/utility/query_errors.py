"""Errors of answers: random conjunctions "A in S and B in T", and workloads as lab reports state them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.evaluate.released import KeptMarginals, MarginalSource, Released, within

_WIDTH_CELLS = 1 << 20  # conjunctions are drawn over marginals of at most so many cells
_SANITY = 0.001  # relative errors are taken to at least one row in a thousand


@dataclass(frozen=True, eq=False)
class Conjunction:
    """A share of rows: for each attribute, which of its cells are asked for."""

    attributes: tuple[str, ...]
    allowed: tuple[NDArray[np.bool_], ...]

    def answer(self, source: MarginalSource) -> float:
        """The share of people that satisfy every condition."""
        if isinstance(source, Released | KeptMarginals):
            return source.share(self.attributes, self.allowed)
        return within(source.marginal(self.attributes), self.allowed)


@dataclass(frozen=True)
class QueryErrors:
    """True shares and absolute errors of the queries, in the order they were drawn."""

    truth: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def mean_absolute(self) -> float:
        """Mean absolute error, as a share of the table."""
        return math.fsum(self.errors) / len(self.errors)

    @property
    def standard_error(self) -> float:
        """Of the mean absolute error, from the queries that were drawn."""
        count = len(self.errors)
        return float(np.std(self.errors, ddof=1)) / math.sqrt(count) if count > 1 else 0.0

    @property
    def mean_relative(self) -> float:
        """Mean error relative to the true share, or to 0.1 % of the table where that is larger."""
        pairs = zip(self.errors, self.truth, strict=True)
        return math.fsum(error / max(share, _SANITY) for error, share in pairs) / len(self.errors)


def draw_conjunctions(domain: Domain, *, count: int, generator: np.random.Generator) -> tuple[Conjunction, ...]:
    """Random conjunctions over one to three attributes: ranges of numbers, subsets of categories.

    A range holds numbers only: rows whose number is missing or unknown are in none.
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
    """Truth and absolute error of each query."""
    truth = [query.answer(real) for query in queries]
    errors = [abs(query.answer(release) - share) for query, share in zip(queries, truth, strict=True)]
    return QueryErrors(tuple(truth), tuple(errors))
