"""What can be asked through the vault's doors: a closed set of questions, each with a known sensitivity.

Sensitivities are for adding or removing one *row*; the vault multiplies by the rows of a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate

Integers = NDArray[np.int64]
Groups = tuple[tuple[int, ...] | None, ...]
"""A public coarsening: for every attribute the group (0, 1, ...) of each of its codes, or None to keep all codes."""


@dataclass(frozen=True)
class Marginal:
    """All cells of the contingency table of ``attributes``, flat in C order; no attributes: the row count.

    With ``groups`` the cells are those of the coarser table, so that a merged cell carries the noise of one cell.
    One row is in one cell: L1 and squared L2 sensitivity 1.
    """

    attributes: tuple[str, ...]
    where: Predicate | None = None
    groups: Groups | None = None


@dataclass(frozen=True, eq=False)
class Counting:
    """0/1 queries over the cells of one marginal: ``answers = matrix @ cells``.

    ``matrix`` is boolean, shape ``(queries, cells)``.  A row in cell c moves the queries that hold at c:
    L1 and squared L2 sensitivity are both the largest column sum.
    """

    attributes: tuple[str, ...]
    matrix: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Distance:
    """L1 distance between a marginal and a public integer table ``reference``, shape ``(cells,)``.

    With ``groups`` both are tables over the coarser cells.
    One row moves one cell by one, so the distance by at most one: sensitivity 1.
    """

    attributes: tuple[str, ...]
    reference: Integers
    groups: Groups | None = None


@dataclass(frozen=True)
class Sum:
    """Sum of round(clamped value / unit) over each cell of ``by``, flat in C order.

    One row adds at most the larger absolute bound: sensitivity round(max(|minimum|, |maximum|) / unit).
    """

    value: str
    by: tuple[str, ...]
    unit: Fraction
    where: Predicate | None = None


@dataclass(frozen=True)
class Moments:
    """What each cell of ``by`` needs for a mean (``degree`` 1) or a variance (2) of a value.

    With k = round(clamped value / unit) counted from the minimum and K its largest, each row with a value
    adds the terms of (k + (K - k))^degree: (K - k, k), or ((K - k)^2, 2 k (K - k), k^2).  They are never
    negative and sum to K^degree, so that is the L1 sensitivity of all of a cell's sums together, and its
    square the squared L2 sensitivity.  ``degree + 1`` integers a cell, flat in C order.
    """

    value: str
    by: tuple[str, ...]
    unit: Fraction
    degree: int
    where: Predicate | None = None


@dataclass(frozen=True, eq=False)
class Weighted:
    """Sums of the cells of one marginal with public integer weights: ``answers = weights @ cells``.

    ``weights`` are int64, shape ``(queries, cells)``.  A row in cell c moves the answers by column c: the
    L1 sensitivity is the largest column sum of absolute values, the squared L2 sensitivity of squares.
    """

    attributes: tuple[str, ...]
    weights: Integers


@dataclass(frozen=True)
class Units:
    """Distinct units with a row in each cell of ``by``: L1 sensitivity is the rows of a unit, at most the cells."""

    by: tuple[str, ...]
    where: Predicate | None = None


@dataclass(frozen=True)
class Bins:
    """Counts of a clamped value between neighbouring ``edges`` for each cell of ``by``, flat in C order.

    One row is in one bin of one cell: sensitivity 1.
    """

    value: str
    edges: tuple[float, ...]
    by: tuple[str, ...]
    where: Predicate | None = None


@dataclass(frozen=True)
class Dropped:
    """How many rows the bound on rows of a unit leaves out, of those that meet ``where``: at most ``most`` of one unit.

    Which rows of a unit are left out depends on that unit's rows alone, so adding or removing one unit adds or removes
    its own: from none up to ``most``, which is the sensitivity.  With ``most`` 1 it counts the units of which a row is
    left out.  Numbers beyond ``most`` are cut off, so the exact answer is the least that were left out.
    """

    most: int
    where: Predicate | None = None


Measurable = Marginal | Counting | Weighted | Distance | Sum | Moments | Units | Bins | Dropped


def beyond_bounds(questions: Sequence[Measurable]) -> tuple[str, ...] | None:
    """What is read of the table beside its encoded rows, as :class:`sfumato.vault.vault.Request` takes it."""
    return () if any(isinstance(question, Dropped) for question in questions) else None


@dataclass(frozen=True, eq=False)
class AbsoluteErrors:
    """Scores |q(table) - answers[q]| of counting queries: where a synthetic table is most wrong.

    ``answers`` are public integers, shape ``(queries,)``.  One row moves each score by at most 1; scores
    may rise and fall together, so the general (not the monotone) exponential mechanism applies.
    """

    queries: Counting
    answers: Integers


@dataclass(frozen=True, eq=False)
class MarginalErrors:
    """Scores weight * (L1 distance to the reference - penalty) of candidate marginals.

    Weights and penalties are public.  One row moves a score by at most its weight: sensitivity max(weights).
    """

    distances: tuple[Distance, ...]
    weights: tuple[Fraction, ...]
    penalties: tuple[Fraction, ...]


@dataclass(frozen=True)
class RankErrors:
    """Scores of the cells of a fine grid over a value: minus the rows by which a cell misses a quantile.

    The grid divides each bin between neighbouring ``edges`` into ``parts`` cells of one width, a cell holding its
    left end only (the last one of all both).  With the quantile a / b, B rows below a number and N in all, a number
    misses it by f = (b - a) B - a (N - B), which never falls; a cell [x, y) has the score -max(0, f(x), -f(y)).
    One row moves f, and so each score, by at most max(a, b - a).
    """

    value: str
    probability: Fraction
    edges: tuple[float, ...]
    parts: int
    where: Predicate | None = None


Scores = AbsoluteErrors | MarginalErrors | RankErrors


class Noise(Protocol):
    """The noise on a measurement, as the analyst may know it."""

    @property
    def variance(self) -> float:
        """Variance of the noise on one cell."""
        ...


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy integers for one question, with the noise they carry: public, free to reuse.

    ``values`` has one int64 a cell (Marginal, Sum, Units, Bins), several (Moments), one a query (Counting,
    Weighted), or one (Distance, Dropped).
    """

    question: Measurable
    values: Integers
    noise: Noise

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise on one cell."""
        return math.sqrt(self.noise.variance)


def cells(domain: Domain, attributes: tuple[str, ...]) -> int:
    """Number of cells of a marginal."""
    return math.prod(domain[name].size for name in attributes)


def coarsen(table: Integers, shape: tuple[int, ...], groups: Groups | None) -> Integers:
    """Sum a flat contingency table of ``shape`` over its groups: flat in C order over the coarser cells.

    >>> coarsen(np.array([1, 2, 3, 4, 5, 6]), (2, 3), (None, (0, 1, 1))).tolist()
    [1, 5, 4, 11]
    """
    coarse = table.reshape(shape)
    for axis, group in enumerate(groups or ()):
        if group is not None:
            order = np.argsort(group, kind="stable")
            starts = np.flatnonzero(np.diff(np.asarray(group)[order], prepend=-1))
            coarse = np.add.reduceat(coarse.take(order, axis=axis), starts, axis=axis)
    return coarse.reshape(-1)
