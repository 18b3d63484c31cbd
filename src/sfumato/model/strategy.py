"""Which noisy counts to buy for a workload: the matrix mechanism, without looking at the data.

A workload W of counting queries over n cells is answered as W A^+ (A x + noise), where the rows of the
strategy A are what is really measured.  The expected total squared error of all queries is the variance of
the noise on a row times tr[(A^T A)^-1 W^T W].  The variance grows with the square of a sensitivity of A: under pure
epsilon its L1 sensitivity, under rho its L2 sensitivity.  Strategies are optimised here for L1; under rho
they are as valid, not optimal, and whoever compares them has to do it by the variance that they really get
(as :func:`sfumato.synthesize.matrix.plan` does).  Source: Li, Miklau, Hay, McGregor and Rastogi 2015;
p-identity strategies and products of them: McKenna, Miklau, Hay and Machanavajjhala 2018 (HDMM), Section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.model.simulation import generator

Floats = NDArray[np.float64]

MOST_CELLS = 4096  # of an attribute, as a strategy over n cells takes n^3 steps
_SEED = 20180711  # starting points of the optimiser: any fixed number, so that equal workloads get equal strategies
_STARTS = 2
_STEPS = 200
_PRECISION = 10  # bits of the weights: an integer weight of 1024 stands for one


@dataclass(frozen=True, eq=False)
class Strategy:
    """Integer rows to measure over the cells of one attribute or a product of several.

    Attributes:
        name: how it was made.
        factors: for each attribute its integer rows, shape ``(rows, cells)``; the strategy is their Kronecker product.
    """

    name: str
    factors: tuple[NDArray[np.int64], ...]

    @property
    def sensitivity(self) -> int:
        """Largest column sum of absolute values."""
        return int(np.prod([np.abs(factor).sum(axis=0).max() for factor in self.factors], dtype=np.int64))

    @property
    def squared_sensitivity(self) -> int:
        """Largest column sum of squares."""
        return int(np.prod([(factor**2).sum(axis=0).max() for factor in self.factors], dtype=np.int64))

    def matrix(self) -> NDArray[np.int64]:
        """The rows over all cells, flat in C order."""
        rows: NDArray[np.int64] = reduce(np.kron, self.factors)
        return rows

    def squared_error(self, grams: Sequence[Floats]) -> float:
        """tr[(A^T A)^-1 W^T W] for noise of variance one on each row.

        Args:
            grams: for each factor W_i^T W_i, shape ``(cells, cells)``, where the workload is their product.
        """
        return float(np.prod([_trace(factor, gram) for factor, gram in zip(self.factors, grams, strict=True)]))

    def error_of(self, gram: Floats) -> float:
        """The same for a workload that is no product: ``gram`` is W^T W over all cells."""
        inverse = reduce(np.kron, [np.linalg.inv(factor.T.astype(np.float64) @ factor) for factor in self.factors])
        return float(np.sum(inverse * gram))

    def estimate(self, answers: Floats) -> Floats:
        """Least-squares cells from noisy answers to all rows: shape ``(cells,)``."""
        table = answers.reshape([len(factor) for factor in self.factors])
        for axis, factor in enumerate(self.factors):
            inverse = np.linalg.pinv(factor.astype(np.float64))
            table = np.moveaxis(np.tensordot(inverse, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1)


def identity(shape: Sequence[int]) -> Strategy:
    """Every cell on its own."""
    return Strategy("identity", tuple(np.eye(size, dtype=np.int64) for size in shape))


def hierarchical(gram: Floats) -> Strategy:
    """Nested intervals of one attribute, down to single cells, with the branching of least error under L1 noise."""
    size = len(gram)
    refuse_large(size)
    options = [_tree(size, branching) for branching in range(2, min(size, 17) + 1)] or [_tree(size, 2)]
    best = min(options, key=lambda rows: np.abs(rows).sum(axis=0).max() ** 2 * _trace(rows, gram))
    return Strategy("hierarchical", (best,))


def p_identity(gram: Floats) -> Strategy:
    """Weighted cells and about n/16 further weighted rows, optimised for the workload and noise scaled to L1.

    The strategy is [I; T] scaled so that every column sums to one, with T >= 0 found by a quasi-Newton
    search from fixed starting points, rounded down to integers so that no column sums to more.
    """
    size = len(gram)
    refuse_large(size)
    return _p_identity(np.ascontiguousarray(gram, dtype=np.float64).tobytes(), size)


@lru_cache(maxsize=64)
def _p_identity(stored: bytes, size: int) -> Strategy:
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    gram = np.frombuffer(stored).reshape(size, size)
    extra = max(1, round(size / 16))
    random = generator(_SEED)
    scale = float(np.trace(gram)) or 1.0

    def objective(flat: Floats) -> tuple[float, Floats]:
        value, gradient = _p_identity_error(flat.reshape(extra, size), gram)
        return value / scale, gradient.reshape(-1) / scale

    with threadpool_limits(1):  # threads of linear algebra cost more than they save on matrices of this size
        found = [
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
    best = min(found, key=lambda result: float(result.fun)).x.reshape(extra, size)
    return Strategy("p-identity", (_integers(best),))


def product(strategies: Sequence[Strategy]) -> Strategy:
    """One strategy over all attributes together: every row of each with every row of the others."""
    names = list(dict.fromkeys(strategy.name for strategy in strategies))
    return Strategy(" x ".join(names), tuple(factor for strategy in strategies for factor in strategy.factors))


def refuse_large(size: int) -> None:
    """Refuse to optimise over more cells than that takes in reasonable time.

    Raises:
        SizeError: there are more.
    """
    if size > MOST_CELLS:
        raise SizeError(
            f"an optimised strategy over {size:,} cells takes too long; group them into at most {MOST_CELLS:,}",
            culprit=size,
        )


def _trace(rows: NDArray[np.int64], gram: Floats) -> float:
    matrix = rows.astype(np.float64)
    return float(np.trace(np.linalg.solve(matrix.T @ matrix, gram)))


def _tree(size: int, branching: int) -> NDArray[np.int64]:
    """Intervals of branching^k cells for k = 0, 1, .., the widest of which are at least two."""
    levels = [np.eye(size, dtype=np.int64)]
    width = branching
    while width < size:
        starts = np.arange(0, size, width)
        cells = np.arange(size)
        levels.append(((starts[:, None] <= cells) & (cells < starts[:, None] + width)).astype(np.int64))
        width *= branching
    return np.concatenate(levels)


def _p_identity_error(extra: Floats, gram: Floats) -> tuple[float, Floats]:
    """The error of [I; T] diag(1 / s), s = 1 + column sums of T, and its gradient in T.

    (A^T A)^-1 = S (I + T^T T)^-1 S with S = diag(s), so the error is tr[(I + T^T T)^-1 S G S].
    """
    size = extra.shape[1]
    sums = 1 + extra.sum(axis=0)
    inverse = np.linalg.inv(np.eye(size) + extra.T @ extra)
    scaled = gram * np.outer(sums, sums)
    through = inverse @ scaled @ inverse
    by_sums = 2 * (gram * inverse) @ sums
    return float(np.sum(inverse * scaled)), -2 * extra @ through + by_sums


def _integers(extra: Floats) -> NDArray[np.int64]:
    one = 1 << _PRECISION
    sums = 1 + extra.sum(axis=0)
    cells = np.diag(np.maximum(one / sums, 1.0))  # without any weight on a cell nothing could be inverted
    rows = np.floor(np.concatenate([cells, extra / sums * one])).astype(np.int64)
    kept: NDArray[np.int64] = rows[rows.any(axis=1)]
    return kept
