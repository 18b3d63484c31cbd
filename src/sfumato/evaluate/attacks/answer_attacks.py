"""Attacks that read answers, not rows.

The module has four attacks. Tracing finds a person in published marginals (Homer et al. 2008). Averaging and
differencing repeat questions to a query interface. Linear programming recovers secrets from random subset queries.
Reconstruction rebuilds the rows of a small area from its published tables, as was done with the census of 2010
(Garfinkel, Abowd, Martindale 2018, "Understanding database reconstruction attacks on public data").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InfeasibleError, SizeError
from sfumato.evaluate.intervals import Proportion
from sfumato.evaluate.released import CodeMatrix, MarginalSource, Released, Rows

TRACING_KNOWLEDGE = "the whole row of the target, and rows of other people of the population"


def tracing_scores(published: MarginalSource, reference: Rows, targets: CodeMatrix) -> NDArray[np.float64]:
    """Return how much more each target's cells weigh in the published marginals than in the reference.

    The statistic sums (published - reference)/reference over the target's cells in all one- and two-way marginals. It
    is the inner product of Dwork, Smith, Steinke, Ullman and Vadhan (2015), whitened.
    """
    domain = published.domain
    known = Released.raw(reference)
    scores = np.zeros(len(targets))
    floor = 1 / len(reference)
    pairs = combinations(domain.names, 2) if len(domain) > 1 else iter(())
    for attributes in [*((name,) for name in domain.names), *pairs]:
        expected = known.marginal(attributes)
        gain = (published.marginal(attributes) - expected) / np.maximum(expected, floor)
        scores += gain[tuple(targets[:, domain.index(name)] for name in attributes)]
    return scores


def homer_distance(
    means: NDArray[np.float64], reference: NDArray[np.float64], people: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return Homer's statistic sum_j |y_j - reference_j| - |y_j - mean_j|: large where y is nearer the published means.

    Args:
        means: published shares of each yes/no attribute, shape ``(attributes,)``.
        reference: shares in the population, shape ``(attributes,)``.
        people: the rows tested, shape ``(people, attributes)``.
    """
    far = np.abs(people - reference) - np.abs(people - means)
    return np.asarray(far.sum(axis=1), dtype=np.float64)


SubsetCounter: TypeAlias = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Returns how many people of each subset have the secret: subsets ``(queries, people)``, answers ``(queries,)``."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Guessed secrets, boolean ``(people,)``."""

    guesses: NDArray[np.bool_]

    def against(self, truth: NDArray[np.bool_]) -> Proportion:
        """Return how many guesses are right."""
        return Proportion(int((self.guesses == truth).sum()), len(truth))


def averaging(count_subsets: SubsetCounter, *, people: int, repeats: int) -> Reconstruction:
    """Query one person at a time, ``repeats`` times, and average. Independent noise cancels."""
    alone = np.eye(people, dtype=np.bool_)
    answers = np.stack([count_subsets(alone) for _ in range(repeats)])
    return Reconstruction(answers.mean(axis=0) > 1 / 2)


def differencing(count_subsets: SubsetCounter, *, people: int, repeats: int) -> Reconstruction:
    """Query all people, then all but one. The subsets are large, so a minimum size does not stop this attack."""
    everybody = np.ones((1, people), dtype=np.bool_)
    all_but_one = ~np.eye(people, dtype=np.bool_)
    gaps = [count_subsets(everybody) - count_subsets(all_but_one) for _ in range(repeats)]
    return Reconstruction(np.mean(gaps, axis=0) > 1 / 2)


MOST_PEOPLE = 200  # people; with more, the linear program takes minutes


def linear_reconstruction(
    count_subsets: SubsetCounter, *, people: int, queries: int, generator: np.random.Generator
) -> Reconstruction:
    """Return the fractional secrets with the least total error over random subsets, rounded (Dinur and Nissim 2003).

    This is the L1 decoder of Dwork, McSherry and Talwar 2007: minimize sum |A x - answers| over 0 <= x <= 1. If the
    noise per answer is far below sqrt(people), a few times ``people`` queries recover nearly every secret.

    Args:
        count_subsets: the query interface, called once.
        people: number of secrets, at most 200.
        queries: number of random subsets.
        generator: draws the subsets.

    Raises:
        SizeError: more than 200 people.
    """
    if people > MOST_PEOPLE:
        raise SizeError(f"linear reconstruction is for at most {MOST_PEOPLE} people, not {people}", culprit=people)
    from scipy.optimize import linprog

    subsets = generator.random((queries, people)) < 1 / 2
    answers = np.asarray(count_subsets(subsets), dtype=np.float64)
    matrix, slack = subsets.astype(np.float64), np.eye(queries)
    lower = np.zeros(people + queries)
    upper = np.concatenate([np.ones(people), np.full(queries, np.inf)])
    solved = linprog(
        np.concatenate([np.zeros(people), np.ones(queries)]),
        A_ub=np.block([[matrix, -slack], [-matrix, -slack]]),  # |A x - answers| <= slack
        b_ub=np.concatenate([answers, -answers]),
        bounds=list(zip(lower, upper, strict=True)),
        method="highs",
    )
    assert solved.x is not None  # a feasible point is any x between 0 and 1 with non-negative errors
    return Reconstruction(np.asarray(solved.x[:people] > 1 / 2))


MOST_CELLS = 20_000  # cells of the full contingency table
_SECONDS = 60


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Counts of every cell of the full contingency table, flat in C order."""

    domain: Domain
    counts: NDArray[np.int64]

    def against(self, truth: Rows) -> Proportion:
        """Return how many people were rebuilt: the overlap of the two multisets of rows."""
        flat = np.ravel_multi_index(tuple(truth.codes.T), self.domain.shape)
        real = np.bincount(flat, minlength=self.domain.size)
        return Proportion(int(np.minimum(self.counts, real).sum()), len(truth))


def rebuild(domain: Domain, tables: Mapping[tuple[str, ...], NDArray[np.number]]) -> Rebuilt:
    """Return non-negative integer counts with the least total absolute error against the published marginals.

    Args:
        domain: public; its full contingency table has at most 20 000 cells.
        tables: published counts of some marginals, exact or noisy, in the shape of their attributes.

    Raises:
        SizeError: the full table is larger.
        InfeasibleError: the solver found no counts in its time.
    """
    if domain.size > MOST_CELLS:
        raise SizeError(f"reconstruction is for at most {MOST_CELLS} cells, not {domain.size}", culprit=domain.names)
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    published = np.concatenate([np.asarray(table, dtype=np.float64).ravel() for table in tables.values()])
    cells, answers = domain.size, len(published)
    place = _places(domain, tuple(tables))  # (tables, cells): which answer each cell adds to
    cell = np.tile(np.arange(cells), len(tables))
    slack = np.arange(answers)
    above = np.concatenate([place.ravel(), slack]), np.concatenate([cell, cells + slack])
    signs = np.concatenate([np.ones(place.size), -np.ones(answers)])
    both = csr_matrix(  # |A counts - published| <= slack, first from above, then from below
        (
            np.concatenate([signs, np.concatenate([-np.ones(place.size), -np.ones(answers)])]),
            (np.concatenate([above[0], answers + above[0]]), np.tile(above[1], 2)),
        ),
        shape=(2 * answers, cells + answers),
    )
    solved = milp(
        np.concatenate([np.zeros(cells), np.ones(answers)]),
        constraints=LinearConstraint(both, ub=np.concatenate([published, -published])),
        integrality=np.concatenate([np.ones(cells), np.zeros(answers)]),
        bounds=Bounds(0, np.inf),
        options={"time_limit": _SECONDS},
    )
    if solved.x is None:
        raise InfeasibleError(
            f"no reconstruction within {_SECONDS} seconds; publish fewer tables", culprit=tuple(tables)
        )
    return Rebuilt(domain, np.rint(solved.x[:cells]).astype(np.int64))


def _places(domain: Domain, cliques: tuple[tuple[str, ...], ...]) -> NDArray[np.intp]:
    """Return the number of the answer that each cell of the full table adds to: shape ``(cliques, cells)``."""
    full = np.indices(domain.shape).reshape(len(domain), -1)
    places, start = [], 0
    for names in cliques:
        shape = tuple(domain[name].size for name in names)
        places.append(start + np.ravel_multi_index(tuple(full[domain.index(name)] for name in names), shape))
        start += math.prod(shape)
    return np.array(places, dtype=np.intp)
