"""Exact answers inside the vault, from tables that are counted in one pass for many questions and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias, assert_never

import numpy as np

from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.vault.cubes import Cubes, Table
from sfumato.vault.questions import (
    Bins,
    Counting,
    Distance,
    Dropped,
    Marginal,
    Measurable,
    Moments,
    Sum,
    Units,
    Weighted,
    coarsen,
)
from sfumato.vault.sensitivity import steps

Kept: TypeAlias = Marginal | Counting | Weighted | Distance | Sum | Moments | Units | Bins


class Tallies:
    """Exact answers of one encoded table.  Only a session of the vault holds one."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._cubes = Cubes(encoded)

    def __repr__(self) -> str:
        return "<exact tallies, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact tallies cannot be pickled or copied out of the vault")

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Exact answers, in order."""
        finest = _finest(questions)
        kept = [_table(question) for question in questions if not isinstance(question, Dropped)]
        tables = self._cubes.tables({finest.get(table, table) for table in kept})
        return [self._read(question, finest, tables) for question in questions]

    def looked_at(self, question: Bins) -> Counts:
        """Exact bins whose edges follow from exact answers, so nothing of them is kept."""
        return reveal(self.encoded.bins(question.value, question.edges, question.by, question.where))

    def _read(self, question: Measurable, finest: Mapping[Table, Bins], tables: Mapping[Table, Counts]) -> Counts:
        if isinstance(question, Dropped):  # of rows that were never encoded
            return reveal(self.encoded.dropped(question.most, question.where))
        if isinstance(question, Bins):
            return _coarser(question, finest[question], tables[finest[question]])
        return self._answer(question, tables[_table(question)])

    def _answer(self, question: Kept, table: Counts) -> Counts:
        match question:
            case Marginal(attributes=attributes, groups=groups):
                return coarsen(table, self._shape(attributes), groups)
            case Counting(matrix=matrix):
                # float64 dot products are exact below 2^53, and far faster than integer ones
                sums: Counts = (matrix.astype(np.float64) @ table.astype(np.float64)).astype(np.int64)
                return sums
            case Distance(attributes=attributes, reference=reference, groups=groups):
                distance: Counts = np.abs(coarsen(table, self._shape(attributes), groups) - reference).sum(
                    keepdims=True
                )
                return distance
            case Moments(value=value, unit=unit, degree=degree):
                return _terms(table.reshape(-1, degree + 1), steps(self.encoded.domain, value, unit))
            case Weighted(weights=weights):
                weighted: Counts = weights @ table
                return weighted
            case Sum() | Units() | Bins():
                return table
            case _:
                assert_never(question)

    def _shape(self, attributes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.encoded.domain[name].size for name in attributes)


def _table(question: Kept) -> Table:
    """The table that a question is about."""
    match question:
        case Marginal(attributes=attributes, where=where):
            return Marginal(attributes, where)
        case Counting(attributes=attributes) | Weighted(attributes=attributes) | Distance(attributes=attributes):
            return Marginal(attributes)
        case _:
            return question


def _terms(powers: Counts, most: int) -> Counts:
    """Sums of the terms of (k + (most - k))^degree from the sums of powers of k: see :class:`Moments`."""
    if powers.shape[1] == 2:  # noqa: PLR2004  (degree 1)
        rows, first = powers.T
        return np.stack([most * rows - first, first], axis=-1).reshape(-1)
    rows, first, second = powers.T
    terms = [most**2 * rows - 2 * most * first + second, 2 * (most * first - second), second]
    return np.stack(terms, axis=-1).reshape(-1)


def _finest(questions: Sequence[Measurable]) -> dict[Table, Bins]:
    """For each question about bins the one with the most edges among those asked that holds all of its own."""
    asked = sorted(
        {question for question in questions if isinstance(question, Bins)}, key=lambda bins: -len(bins.edges)
    )
    return {bins: next(other for other in asked if _holds(other, bins)) for bins in asked}


def _holds(fine: Bins, coarse: Bins) -> bool:
    if (fine.value, fine.by, fine.where) != (coarse.value, coarse.by, coarse.where):
        return False
    step, rest = divmod(len(fine.edges) - 1, len(coarse.edges) - 1)
    if not rest and fine.edges[::step] == coarse.edges:  # the levels of a ladder
        return True
    return (fine.edges[0], fine.edges[-1]) == (coarse.edges[0], coarse.edges[-1]) and {*coarse.edges} <= {*fine.edges}


def _coarser(asked: Bins, fine: Bins, counts: Counts) -> Counts:
    """Sums of fine bins, for each cell of ``by``."""
    starts = np.searchsorted(fine.edges, asked.edges[:-1])
    return np.add.reduceat(counts.reshape(-1, len(fine.edges) - 1), starts, axis=1).reshape(-1)
