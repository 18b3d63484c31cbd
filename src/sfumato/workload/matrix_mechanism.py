"""The matrix mechanism: a choice of noisy counts for a workload, without looking at the data.

A workload W of counting queries over n cells is answered as W A^+ (A x + noise).  The rows of the strategy A are the
measured counts.  The expected total squared error of all queries is the variance of the noise on a row times tr[(A^T
A)^-1 W^T W].  The variance grows with the square of a sensitivity of A: under pure epsilon its L1 sensitivity, under
rho its L2 sensitivity.

Strategies are optimized here for L1; under rho they are as valid, not optimal, so :func:`plan` compares them by the
variance that they really get.  The optimizer starts from seeded points: strategies are public, and no noise is drawn
here.  Source: Li, Miklau, Hay, McGregor and Rastogi 2015; p-identity strategies and products of them: McKenna, Miklau,
Hay and Machanavajjhala 2018 (HDMM), Section 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.domain import Domain
from sfumato.errors import SizeError
from sfumato.model.factor import FloatArray
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import Loss
from sfumato.vault.measurables import Marginal, Measurable, Weighted
from sfumato.vault.mechanisms import noises
from sfumato.workload.counting_queries import Workload, refuse_no_workload

IDENTITY = "identity"
MOST_CELLS = 4096  # cells of an attribute, because a strategy over n cells takes n^3 steps
_SEED = 20180711  # starting points of the optimizer: any fixed number, so that equal workloads get equal strategies
_STARTS = 2
_STEPS = 200
_PRECISION = 10  # bits of the weights: an integer weight of 1024 stands for one


@dataclass(frozen=True, eq=False)
class Strategy:
    """Integer rows to measure over the cells of one attribute or a product of several.

    Attributes:
        name: the name of its construction.
        factors: for each attribute its integer rows, shape ``(rows, cells)``; the strategy is their Kronecker product.
    """

    name: str
    factors: tuple[NDArray[np.int64], ...]

    def matrix(self) -> NDArray[np.int64]:
        """Return the rows over all cells, flat in C order."""
        rows: NDArray[np.int64] = reduce(np.kron, self.factors)
        return rows

    def error_of(self, gram: FloatArray) -> float:
        """Return tr[(A^T A)^-1 W^T W] for noise of variance one on each row; ``gram`` is W^T W over all cells."""
        inverse = reduce(np.kron, [np.linalg.inv(factor.T.astype(np.float64) @ factor) for factor in self.factors])
        return float(np.sum(inverse * gram))

    def estimate(self, answers: FloatArray) -> FloatArray:
        """Return least-squares cells from noisy answers to all rows: shape ``(cells,)``."""
        table = answers.reshape([len(factor) for factor in self.factors])
        for axis, factor in enumerate(self.factors):
            inverse = np.linalg.pinv(factor.astype(np.float64))
            table = np.moveaxis(np.tensordot(inverse, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1)


@dataclass(frozen=True, eq=False)
class StrategyOption:
    """A possible strategy for a workload at a loss.

    Attributes:
        strategy: the rows to measure.
        attributes: the attributes of the cells.
        variance: the variance of the noise on each row of the strategy.
        error: root mean squared error to expect of a query, in rows, by least squares.
    """

    strategy: Strategy
    attributes: tuple[str, ...]
    variance: float
    error: float

    @property
    def weighted(self) -> Weighted:
        """The rows as a measurement for the vault."""
        return Weighted(self.attributes, self.strategy.matrix())

    @property
    def question(self) -> Measurable:
        """The measurement; single cells are the marginal that any query of these cells shares."""
        return Marginal(self.attributes) if self.strategy.name == IDENTITY else self.weighted

    def standard_errors(self, rows: NDArray[np.bool_]) -> FloatArray:
        """Return the standard errors of the answers to 0/1 ``rows``, shape ``(rows,)``.

        Each is the square root of variance * w (A^T A)^-1 w^T.
        """
        wide = rows.astype(np.float64)
        if self.strategy.name == IDENTITY:
            single: FloatArray = np.sqrt(self.variance * wide.sum(axis=1))
            return single
        matrix = self.strategy.matrix().astype(np.float64)
        spread = np.sum(wide * np.linalg.solve(matrix.T @ matrix, wide.T).T, axis=1)
        errors: FloatArray = np.sqrt(self.variance * spread)
        return errors


def plan(domain: Domain, loss: Loss, workload: Workload, strategies: Sequence[Strategy]) -> tuple[StrategyOption, ...]:
    """Return the strategies by expected error over a workload, the best first; read no data and spend nothing.

    Args:
        domain: the public description.
        loss: the total loss of the measurement.
        workload: the queries.
        strategies: strategies over the cells of the workload, see :func:`jointly` and :func:`by_attribute`.  A strategy
            whose weights are too large to be counted is omitted; single cells never are.
    """
    names = workload.attributes(domain)
    gram = _gram(workload.matrix(domain))
    queries = workload.length(domain)
    options = []
    for strategy in strategies:
        alone = strategy.name == IDENTITY
        option = StrategyOption(strategy, names, 0.0, 0.0)
        try:
            (noise,) = noises(domain, [option.question], loss, None)
        except SizeError:
            if alone:
                raise
            continue
        trace = float(np.trace(gram)) if alone else strategy.error_of(gram)
        options.append(StrategyOption(strategy, names, noise.variance, math.sqrt(noise.variance * trace / queries)))
    return tuple(sorted(options, key=lambda option: option.error))


def jointly(domain: Domain, workload: Workload, most: int) -> list[Strategy]:
    """Return strategies over all cells of a workload together: single cells, p-identity, for one attribute also
    intervals.

    Raises:
        SizeError: there are more than ``most`` cells.
    """
    names, size = _sized(domain, workload)
    if size > most:
        raise SizeError(
            f"optimizing measurements over {size} cells takes too long; name fewer attributes, or use mst or batched",
            culprit=size,
        )
    gram = _gram(workload.matrix(domain))
    return [identity((size,)), p_identity(gram)] + ([hierarchical(gram)] if len(names) == 1 else [])


def by_attribute(domain: Domain, workload: Workload) -> list[Strategy]:
    """Return strategies that are optimized for each attribute on its own, and single cells.

    Raises:
        SizeError: there are too many cells to solve for.
    """
    names, size = _sized(domain, workload)
    if size > MOST_CELLS:
        raise SizeError(
            f"a batch over {size:,} cells is too large to optimize; group cells, or ask single queries", culprit=size
        )
    rows, shape = workload.matrix(domain), domain.project(names).shape
    if len(shape) == 1:
        gram = _gram(rows)
        return [identity(shape), *([hierarchical(gram), p_identity(gram)] if size > 1 else [])]
    grams = [_gram_along(rows.reshape(-1, *shape), axis) for axis in range(len(shape))]
    along = [p_identity(gram) if len(gram) > 1 else identity([len(gram)]) for gram in grams]
    return [identity(shape), product(along)]


def _sized(domain: Domain, workload: Workload) -> tuple[tuple[str, ...], int]:
    refuse_no_workload(workload)
    names = workload.attributes(domain)
    return names, domain.project(names).size


def _gram(rows: NDArray[np.bool_]) -> FloatArray:
    """Return W^T W, shape ``(cells, cells)``."""
    wide = rows.astype(np.float64)
    gram: FloatArray = wide.T @ wide
    return gram


def _gram_along(table: NDArray[np.bool_], axis: int) -> FloatArray:
    """Return the gram of the queries' support along one attribute.

    ``table`` has shape ``(queries, cells of each attribute ...)``.
    """
    others = tuple(other + 1 for other in range(table.ndim - 1) if other != axis)
    return _gram(np.asarray(table.any(axis=others)))


def identity(shape: Sequence[int]) -> Strategy:
    """Return the strategy of single cells."""
    return Strategy(IDENTITY, tuple(np.eye(size, dtype=np.int64) for size in shape))


def hierarchical(gram: FloatArray) -> Strategy:
    """Return nested intervals of one attribute down to single cells, with the best branching under L1 noise."""
    size = len(gram)
    refuse_large(size)
    options = [_tree(size, branching) for branching in range(2, min(size, 17) + 1)] or [_tree(size, 2)]
    best = min(options, key=lambda rows: np.abs(rows).sum(axis=0).max() ** 2 * _trace(rows, gram))
    return Strategy("hierarchical", (best,))


def p_identity(gram: FloatArray) -> Strategy:
    """Return weighted cells and about n/16 further weighted rows, optimized for the workload and noise scaled to L1.

    The strategy is [I; T] scaled so that every column sums to one, with T >= 0 found by a quasi-Newton search from
    fixed starting points.  It is rounded down to integers so that no column sums to more.
    """
    size = len(gram)
    refuse_large(size)
    return _p_identity(np.ascontiguousarray(gram, dtype=np.float64).tobytes(), size)


@cached()
def _p_identity(stored: bytes, size: int) -> Strategy:
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    gram = np.frombuffer(stored).reshape(size, size)
    extra = max(1, round(size / 16))
    random = generator(_SEED)
    scale = float(np.trace(gram)) or 1.0

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = _p_identity_error(flat.reshape(extra, size), gram)
        return value / scale, gradient.reshape(-1) / scale

    with threadpool_limits(1):  # threads slow down linear algebra on matrices of this size
        results = [
            minimize(
                objective,
                random.random(extra * size),
                jac=True,
                method="L-BFGS-B",
                bounds=[(0, None)] * (extra * size),
                options={"maxiter": _STEPS},
            )
            for _ in range(_STARTS)
        ]
    best = min(results, key=lambda result: float(result.fun)).x.reshape(extra, size)
    return Strategy("p-identity", (_integers(best),))


def product(strategies: Sequence[Strategy]) -> Strategy:
    """Return one strategy over all attributes together: every row of each with every row of the others."""
    names = list(dict.fromkeys(strategy.name for strategy in strategies))
    return Strategy(" x ".join(names), tuple(factor for strategy in strategies for factor in strategy.factors))


def refuse_large(size: int) -> None:
    """Refuse to optimize over more cells than is possible in reasonable time.

    Raises:
        SizeError: there are too many cells.
    """
    if size > MOST_CELLS:
        raise SizeError(
            f"an optimized strategy over {size:,} cells takes too long; group them into at most {MOST_CELLS:,}",
            culprit=size,
        )


def _trace(rows: NDArray[np.int64], gram: FloatArray) -> float:
    matrix = rows.astype(np.float64)
    return float(np.trace(np.linalg.solve(matrix.T @ matrix, gram)))


def _tree(size: int, branching: int) -> NDArray[np.int64]:
    """Return intervals of branching^k cells for k = 0, 1, ..; there are at least two of the widest."""
    levels = [np.eye(size, dtype=np.int64)]
    width = branching
    while width < size:
        starts = np.arange(0, size, width)
        cells = np.arange(size)
        levels.append(((starts[:, None] <= cells) & (cells < starts[:, None] + width)).astype(np.int64))
        width *= branching
    return np.concatenate(levels)


def _p_identity_error(extra: FloatArray, gram: FloatArray) -> tuple[float, FloatArray]:
    """Return the error of [I; T] diag(1 / s), s = 1 + column sums of T, and its gradient in T.

    (A^T A)^-1 = S (I + T^T T)^-1 S with S = diag(s), so the error is tr[(I + T^T T)^-1 S G S].
    """
    size = extra.shape[1]
    sums = 1 + extra.sum(axis=0)
    inverse = np.linalg.inv(np.eye(size) + extra.T @ extra)
    scaled = gram * np.outer(sums, sums)
    through = inverse @ scaled @ inverse
    by_sums = 2 * (gram * inverse) @ sums
    return float(np.sum(inverse * scaled)), -2 * extra @ through + by_sums


def _integers(extra: FloatArray) -> NDArray[np.int64]:
    one = 1 << _PRECISION
    sums = 1 + extra.sum(axis=0)
    cells = np.diag(np.maximum(one / sums, 1.0))  # a cell without weight would make the matrix singular
    rows = np.floor(np.concatenate([cells, extra / sums * one])).astype(np.int64)
    nonzero_rows: NDArray[np.int64] = rows[rows.any(axis=1)]
    return nonzero_rows
