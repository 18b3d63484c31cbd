"""Exact answers inside the vault: one pass over the rows for many questions, kept while they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias, assert_never

import numpy as np

from sfumato.domain.predicate import Predicate
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.vault.questions import (
    Bins,
    Counting,
    Distance,
    Marginal,
    Measurable,
    Moments,
    Sum,
    Units,
    Weighted,
    coarsen,
)
from sfumato.vault.sensitivity import steps

_KEPT_CELLS = 1 << 24  # 128 MiB of counts: an adaptive method asks about the same marginals again and again

_Key: TypeAlias = tuple[tuple[str, ...], Predicate | None]


class Tallies:
    """Exact answers of one encoded table.  Only a session of the vault holds one."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._kept: dict[_Key | Measurable, Counts] = {}

    def __repr__(self) -> str:
        return "<exact tallies, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact tallies cannot be pickled or copied out of the vault")

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Exact answers, in order; all marginals that are missing are counted in one pass a filter."""
        tables = self._tables({key for question in questions if (key := _key(question)) is not None})
        finest = _finest(questions)
        binned = {question: self._answer(question, tables) for question in set(finest.values())}
        return [
            _coarser(question, finest[question], binned[finest[question]])
            if isinstance(question, Bins)
            else self._answer(question, tables)
            for question in questions
        ]

    def _keep(self, found: Mapping[_Key | Measurable, Counts]) -> None:
        # list() takes a copy in one step, as another thread may add to what is kept
        if sum(counts.size for counts in [*list(self._kept.values()), *found.values()]) <= _KEPT_CELLS:
            self._kept.update(found)

    def _once(self, question: Sum | Moments | Units | Bins) -> Counts:
        kept = self._kept.get(question)
        if kept is None:
            kept = reveal(self._count(question))
            self._keep({question: kept})
        return kept

    def _count(self, question: Sum | Moments | Units | Bins) -> Exact[Counts]:
        match question:
            case Sum(value=value, by=by, unit=unit, where=where):
                return self.encoded.sums(value, by, unit, where)
            case Moments(value=value, by=by, unit=unit, degree=degree, where=where):
                return self.encoded.moments(value, by, unit, degree, where)
            case Units(by=by, where=where):
                return self.encoded.units(by, where)
            case Bins(value=value, edges=edges, by=by, where=where):
                return self.encoded.bins(value, edges, by, where)

    def _tables(self, keys: set[_Key]) -> dict[_Key, Counts]:
        found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = [key for key in keys if key not in found]
        if not missing:
            return found
        for where in {where for _, where in missing}:
            cliques = [attributes for attributes, condition in missing if condition == where]
            for clique, sealed in zip(cliques, self.encoded.marginals(cliques, where), strict=True):
                found[clique, where] = reveal(sealed)
        self._keep({key: found[key] for key in missing})
        return found

    def _answer(self, question: Measurable, tables: dict[_Key, Counts]) -> Counts:
        match question:
            case Marginal(attributes=attributes, where=where, groups=groups):
                return coarsen(tables[attributes, where], self._shape(attributes), groups)
            case Counting(attributes=attributes, matrix=matrix):
                # float64 dot products are exact below 2^53, and far faster than integer ones
                sums: Counts = (matrix.astype(np.float64) @ tables[attributes, None].astype(np.float64)).astype(
                    np.int64
                )
                return sums
            case Distance(attributes=attributes, reference=reference, groups=groups):
                table = coarsen(tables[attributes, None], self._shape(attributes), groups)
                distance: Counts = np.abs(table - reference).sum(keepdims=True)
                return distance
            case Moments(value=value, unit=unit, degree=degree):
                powers = self._once(question).reshape(-1, degree + 1)
                return _terms(powers, steps(self.encoded.domain, value, unit))
            case Weighted(attributes=attributes, weights=weights):
                weighted: Counts = weights @ tables[attributes, None]
                return weighted
            case Sum() | Units() | Bins():
                return self._once(question)
            case _:
                assert_never(question)

    def _shape(self, attributes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.encoded.domain[name].size for name in attributes)


def _key(question: Measurable) -> _Key | None:
    match question:
        case Marginal(attributes=attributes, where=where):
            return attributes, where
        case Counting(attributes=attributes) | Weighted(attributes=attributes) | Distance(attributes=attributes):
            return attributes, None
        case _:
            return None


def _terms(powers: Counts, most: int) -> Counts:
    """Sums of the terms of (k + (most - k))^degree from the sums of powers of k: see :class:`Moments`."""
    if powers.shape[1] == 2:  # noqa: PLR2004  (degree 1)
        rows, first = powers.T
        return np.stack([most * rows - first, first], axis=-1).reshape(-1)
    rows, first, second = powers.T
    terms = [most**2 * rows - 2 * most * first + second, 2 * (most * first - second), second]
    return np.stack(terms, axis=-1).reshape(-1)


def _finest(questions: Sequence[Measurable]) -> dict[Bins, Bins]:
    """For each question about bins the one with the most edges among those asked that holds all of its own."""
    asked = sorted(
        {question for question in questions if isinstance(question, Bins)}, key=lambda bins: -len(bins.edges)
    )
    return {bins: next(other for other in asked if _holds(other, bins)) for bins in asked}


def _holds(fine: Bins, coarse: Bins) -> bool:
    same = (fine.value, fine.by, fine.where) == (coarse.value, coarse.by, coarse.where)
    ends = (fine.edges[0], fine.edges[-1]) == (coarse.edges[0], coarse.edges[-1])
    return same and ends and set(coarse.edges) <= set(fine.edges)


def _coarser(asked: Bins, fine: Bins, counts: Counts) -> Counts:
    """Sums of fine bins, for each cell of ``by``."""
    starts = np.searchsorted(fine.edges, asked.edges[:-1])
    return np.add.reduceat(counts.reshape(-1, len(fine.edges) - 1), starts, axis=1).reshape(-1)
