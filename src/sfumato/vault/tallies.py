"""Exact answers inside the vault: one pass over the rows for many questions, kept while they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import numpy as np

from sfumato.domain.predicate import Predicate
from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.vault.questions import Bins, Counting, Distance, Marginal, Measurable, Sum, Units, coarsen

_KEPT_CELLS = 1 << 24  # 128 MiB of counts: an adaptive method asks about the same marginals again and again

_Key: TypeAlias = tuple[tuple[str, ...], Predicate | None]


class Tallies:
    """Exact answers of one encoded table.  Only a session of the vault holds one."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._kept: dict[_Key, Counts] = {}

    def __repr__(self) -> str:
        return "<exact tallies, sealed>"

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Exact answers, in order; all marginals that are missing are counted in one pass a filter."""
        tables = self._tables({key for question in questions if (key := _key(question)) is not None})
        return [self._answer(question, tables) for question in questions]

    def _tables(self, keys: set[_Key]) -> dict[_Key, Counts]:
        found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = [key for key in keys if key not in found]
        for where in {where for _, where in missing}:
            cliques = [attributes for attributes, condition in missing if condition == where]
            for clique, sealed in zip(cliques, self.encoded.marginals(cliques, where), strict=True):
                found[clique, where] = reveal(sealed)
        if sum(counts.size for counts in self._kept.values()) + sum(found[key].size for key in missing) <= _KEPT_CELLS:
            self._kept.update((key, found[key]) for key in missing)
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
            case Sum(value=value, by=by, unit=unit, where=where):
                return reveal(self.encoded.sums(value, by, unit, where))
            case Units(by=by, where=where):
                return reveal(self.encoded.units(by, where))
            case Bins(value=value, edges=edges, by=by, where=where):
                return reveal(self.encoded.bins(value, edges, by, where))
            case _:
                assert_never(question)

    def _shape(self, attributes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.encoded.domain[name].size for name in attributes)


def _key(question: Measurable) -> _Key | None:
    match question:
        case Marginal(attributes=attributes, where=where):
            return attributes, where
        case Counting(attributes=attributes) | Distance(attributes=attributes):
            return attributes, None
        case _:
            return None
