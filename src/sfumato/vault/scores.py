"""Scores of selections: each kind has its check, sensitivity, canonical form and choice."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.engine.port import Counts
from sfumato.errors import QueryError, SizeError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import plain
from sfumato.privacy.selection import Exponential
from sfumato.vault.contribution import contribution
from sfumato.vault.measurables import (
    Counting,
    Distance,
    IntegerArray,
    Measurable,
    check_size,
    digest,
    public_integers,
    where_json,
)
from sfumato.vault.value_measurables import Bins, edges_json

_FINEST_PROBABILITY = 10**6
_MOST_CELLS = 1 << 26
_APART = 2.0**-48  # part of the largest edge: rounding keeps the edges of cells this wide distinct


class Exactly(Protocol):
    """Exact answers, which only mechanisms may see."""

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Return exact answers, in order."""
        ...

    def uncached_bins(self, question: Bins) -> Counts:
        """Return exact bins without caching them, because their edges follow from exact answers."""
        ...


class Scores(ABC):
    """Scores of candidates: the mechanism selects one with nearly the largest score."""

    def sensitivity(self, domain: Domain) -> int | Fraction:
        """Return the largest change of any one score by one unit.

        Raises:
            DomainError, QueryError, SizeError: see :meth:`check`.
        """
        self.check(domain)
        return self._sensitivity(domain)

    @abstractmethod
    def check(self, domain: Domain) -> None:
        """Refuse scores that cannot be computed under ``domain``.

        Raises:
            DomainError, QueryError: a question that does not fit the domain, no candidates or of different numbers.
            SizeError: candidates whose tables could not be counted at once.
        """

    @abstractmethod
    def _sensitivity(self, domain: Domain) -> int | Fraction:
        """Return the sensitivity of scores that pass the check."""

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return the scores as JSON values; equal scores have equal JSON."""

    @abstractmethod
    def choose(self, exactly: Exactly, mechanism: Exponential, entropy: Entropy) -> int:
        """Draw a candidate i with probability proportional to exp(epsilon score_i / (2 sensitivity)), exactly."""


@dataclass(frozen=True, eq=False)
class AbsoluteErrors(Scores):
    """Scores |q(table) - answers[q]| of counting queries: where a synthetic table is most wrong.

    ``answers`` are public integers, shape ``(queries,)``.  One row moves each score by at most 1; scores
    may rise and fall together, so the general (not the monotone) exponential mechanism applies.
    """

    queries: Counting
    answers: IntegerArray

    def check(self, domain: Domain) -> None:
        """See :class:`Scores`."""
        self.queries.check(domain)
        check_size(domain, [self.queries])
        public_integers(self.answers, len(self.queries.matrix))

    def _sensitivity(self, domain: Domain) -> int:
        return contribution(domain).rows

    def canonical(self) -> dict[str, Any]:
        """See :class:`Scores`."""
        return {"kind": "absolute-errors", "of": self.queries.canonical(), "answers": digest(self.answers)}

    def choose(self, exactly: Exactly, mechanism: Exponential, entropy: Entropy) -> int:
        """See :class:`Scores`."""
        (exact,) = exactly.answers([self.queries])
        return mechanism.choose(np.abs(exact - self.answers), entropy)


@dataclass(frozen=True, eq=False)
class MarginalErrors(Scores):
    """Scores weight * (L1 distance to the reference - penalty) of candidate marginals.

    Weights and penalties are public.  One row moves a score by at most its weight: sensitivity max(weights).
    """

    distances: tuple[Distance, ...]
    weights: tuple[Fraction, ...]
    penalties: tuple[Fraction, ...]

    def check(self, domain: Domain) -> None:
        """See :class:`Scores`."""
        if not self.distances or not len(self.distances) == len(self.weights) == len(self.penalties):
            raise QueryError("every candidate needs a distance, a weight and a penalty", culprit=self)
        for distance in self.distances:
            distance.check(domain)
        if min(self.weights) <= 0:
            raise QueryError("weights of candidates must be positive", culprit=self.weights)
        check_size(domain, self.distances)

    def _sensitivity(self, domain: Domain) -> Fraction:
        return max(self.weights) * contribution(domain).rows

    def canonical(self) -> dict[str, Any]:
        """See :class:`Scores`."""
        return {
            "kind": "marginal-errors",
            "of": [distance.canonical() for distance in self.distances],
            "weights": [plain(weight) for weight in self.weights],
            "penalties": [plain(penalty) for penalty in self.penalties],
        }

    def choose(self, exactly: Exactly, mechanism: Exponential, entropy: Entropy) -> int:
        """See :class:`Scores`."""
        distances = exactly.answers(self.distances)
        scores = [
            weight * (int(distance[0]) - penalty)
            for distance, weight, penalty in zip(distances, self.weights, self.penalties, strict=True)
        ]
        return mechanism.choose(scores, entropy)


@dataclass(frozen=True)
class RankErrors(Scores):
    """Scores of the cells of a fine grid over a value: minus the rows between a cell and a quantile.

    The grid divides each bin between neighboring ``edges`` into ``parts`` cells of one width, a cell holding its
    left end only (the last one of all both).  With the quantile a / b, B rows below a number and N in all, a number
    misses it by f = (b - a) B - a (N - B), which never falls; a cell [x, y) has the score -max(0, f(x), -f(y)).
    One row moves f, and so each score, by at most max(a, b - a).
    """

    value: str
    probability: Fraction
    edges: tuple[float, ...]
    parts: int
    where: Predicate | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`Scores`."""
        probability, edges, parts = self.probability, self.edges, self.parts
        self._bins.check(domain)
        if not 0 < probability < 1 or probability.denominator > _FINEST_PROBABILITY:
            raise QueryError("a quantile lies strictly between 0 and 1, in at most millionths", culprit=probability)
        if parts < 1 or (len(edges) - 1) * parts > _MOST_CELLS:
            raise SizeError(f"a quantile is chosen among at most {_MOST_CELLS:,} cells", culprit=parts)
        if float(np.diff(edges).min()) / parts < max(_APART * max(map(abs, edges)), sys.float_info.min):
            raise QueryError("the cells of a quantile are too narrow for doubles; ask for fewer", culprit=parts)

    def _sensitivity(self, domain: Domain) -> int:
        one = max(self.probability.numerator, self.probability.denominator - self.probability.numerator)
        return one * max(1, contribution(domain, where=self.where).rows)

    def canonical(self) -> dict[str, Any]:
        """See :class:`Scores`."""
        own = {"value": self.value, "probability": str(self.probability), "where": where_json(self.where)}
        return {"kind": "rank-errors", **own, "edges": edges_json(self.edges), "parts": self.parts}

    def choose(self, exactly: Exactly, mechanism: Exponential, entropy: Entropy) -> int:
        """Draw a cell of the grid, without counting all of its cells.

        No cell of a bin misses the quantile by less than the bin does.  So a bin is drawn with the largest weight that
        its cells could have.  Then its cells are counted, and one of them, drawn uniformly, is accepted with the
        ratio of its own weight to that.  Each round accepts every cell in proportion to its own weight, for any set
        of counted bins.  So the first accepted cell has the exact distribution.
        """
        (counts,) = exactly.answers([self._bins])
        below = np.concatenate([[0], np.cumsum(counts)])
        missed = self.errors(below, int(below[-1]))
        if self.parts == 1:
            return mechanism.choose(-missed, entropy)
        closed = np.arange(len(counts))
        opened: dict[int, Counts] = {}
        while True:
            scores = -np.concatenate([missed[closed], *opened.values()])
            alone = np.ones(len(scores) - len(closed), dtype=np.int64)
            sizes = np.concatenate([np.full(len(closed), self.parts), alone])
            group, place = mechanism.choose_among(scores, sizes, entropy)
            if group >= len(closed):
                which, cell = divmod(group - len(closed), self.parts)
                return list(opened)[which] * self.parts + cell
            bin_ = int(closed[group])
            opened[bin_] = self.cell_errors(exactly, bin_, below)
            closed = np.delete(closed, group)
            if mechanism.keeps(int(opened[bin_][place] - missed[bin_]), entropy):
                return bin_ * self.parts + place

    @property
    def _bins(self) -> Bins:
        return Bins(self.value, self.edges, (), self.where)

    def cell_errors(self, exactly: Exactly, bin_: int, below: Counts) -> Counts:
        """Return the error of each cell of a bin."""
        counts = exactly.uncached_bins(Bins(self.value, self.edges_of(bin_), (), self.where))
        within = below[bin_] + np.concatenate([[0], np.cumsum(counts)])
        within[-1] = below[bin_ + 1]  # rows at the right end are in the next bin
        return self.errors(within, int(below[-1]))

    def edges_of(self, bin_: int) -> tuple[float, ...]:
        """Return the edges of the cells of a bin."""
        start, end = self.edges[bin_], self.edges[bin_ + 1]
        inner = start + np.arange(self.parts, dtype=np.float64) * ((end - start) / self.parts)
        return (*inner.tolist(), end)

    def errors(self, below: Counts, rows: int) -> Counts:
        """Return max(0, f(x), -f(y)) for each cell, from the rows below its edges."""
        above = below * self.probability.denominator - rows * self.probability.numerator  # (b - a) B - a (N - B)
        missed: Counts = np.maximum(0, np.maximum(above[:-1], -above[1:]))
        return missed
