"""Releases without rows of people: answered workloads and locally perturbed reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.released import Released, Shares


@dataclass(frozen=True, eq=False)
class Answered:
    """Noisy counts of some marginals, and nothing else.

    What was not asked is not known: a marginal is projected from an answered one that contains it;
    otherwise it is the product of the largest answered pieces, and uniform where nothing was answered.
    """

    domain: Domain
    answers: Mapping[tuple[str, ...], NDArray[np.float64]]

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Estimated shares from the answers alone, projected to the simplex."""
        left, pieces = set(attributes), []
        while left:
            best = max(self.answers, key=lambda clique: len(left & set(clique)), default=())
            known = tuple(name for name in attributes if name in left and name in best)
            if not known:
                break
            pieces.append((known, self._projected(known)))
            left -= set(known)
        pieces += [((name,), np.full(self.domain[name].size, 1 / self.domain[name].size)) for name in sorted(left)]
        order = [name for names, _ in pieces for name in names]
        table = pieces[0][1]
        for _, piece in pieces[1:]:
            table = np.multiply.outer(table, piece)
        return np.transpose(table, [order.index(name) for name in attributes])

    def _projected(self, names: tuple[str, ...]) -> Shares:
        """All answers that contain ``names``, averaged: each as much as it has fewer noisy cells to sum."""
        total = np.zeros([self.domain[name].size for name in names])
        for clique, answer in self.answers.items():
            if set(names) <= set(clique):
                gone = tuple(axis for axis, name in enumerate(clique) if name not in names)
                shape = [self.domain[name].size for name in clique]
                kept = [name for name in clique if name in names]
                summed = np.asarray(answer, dtype=np.float64).reshape(shape).sum(axis=gone)
                weight = 1 / math.prod(shape[axis] for axis in gone)
                total += weight * np.transpose(summed, [kept.index(name) for name in names])
        return onto_simplex(total.ravel()).reshape(total.shape)


@dataclass(frozen=True, eq=False)
class Perturbed:
    """One report a person and attribute, each passed through a known channel.

    ``channels[j]`` has shape ``(leaves, leaves)``: entry (v, y) is the probability to report y for v.
    """

    reports: Released
    channels: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        shapes = [channel.shape for channel in self.channels]
        if shapes != [(size, size) for size in self.reports.domain.shape]:
            raise TableError("every attribute needs a square channel over its cells", culprit=self.reports.domain)

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        return self.reports.domain

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Shares of reports, through the inverse of each channel, projected to the simplex."""
        table = self.reports.marginal(attributes)
        for axis, name in enumerate(attributes):
            channel = self.channels[self.domain.index(name)]
            solved = np.linalg.solve(channel.T, np.moveaxis(table, axis, 0).reshape(len(channel), -1))
            moved = solved.reshape(len(channel), *np.delete(table.shape, axis))
            table = np.asarray(np.moveaxis(moved, 0, axis), dtype=np.float64)
        return onto_simplex(table.ravel()).reshape(table.shape)


def onto_simplex(values: NDArray[np.float64]) -> Shares:
    """Shares nearest to ``values`` after scaling them to sum one (Duchi, Shalev-Shwartz, Singer, Chandra 2008).

    >>> onto_simplex(np.array([3.0, 2.0, -1.0])).tolist()
    [0.625, 0.375, 0.0]
    >>> onto_simplex(np.array([-1.0, -1.0])).tolist()
    [0.5, 0.5]
    """
    total = float(values.sum())
    scaled = values / total if total > 0 else np.full(values.shape, 1 / math.prod(values.shape))
    descending = np.sort(scaled)[::-1]
    excess = np.cumsum(descending) - 1
    kept = np.nonzero(descending - excess / np.arange(1, len(scaled) + 1) > 0)[0][-1]
    return np.asarray(np.maximum(scaled - excess[kept] / (kept + 1), 0.0), dtype=np.float64)
