"""How well every released row fits a target: one matrix product serves every family.

The similarity of target q to row r over some columns is onehot(q) . W_r: the columns where they agree,
a generalised cell counting 1/|set|.  (The distance is the number of columns minus that.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.evaluate.released import Released, Weights
from sfumato.evaluate.rows import Codes

_CHUNK = 1 << 22  # similarities held at once


@dataclass(frozen=True, eq=False)
class Similarity:
    """A release, ready to be compared with targets."""

    domain: Domain
    transposed: Weights  # (leaves, rows)

    @staticmethod
    def to(release: Released) -> Similarity:
        """Compare targets with the rows of ``release``."""
        return Similarity(release.domain, np.ascontiguousarray(release.weights().T))

    @property
    def rows(self) -> int:
        """Number of released rows."""
        return int(self.transposed.shape[1])

    def chunks(self, people: int) -> Iterator[slice]:
        """Slices of targets whose similarities fit in memory together."""
        step = max(1, _CHUNK // self.rows)
        return (slice(start, min(start + step, people)) for start in range(0, people, step))

    def over(self, targets: Codes, columns: range | list[int]) -> Weights:
        """Similarities over ``columns``: shape ``(targets, rows)``, exact multiples of 2^-16."""
        leaves = np.concatenate([np.arange(*self._span(column)) for column in columns])
        start = dict(zip(columns, self._starts(columns), strict=True))
        onehot = np.zeros((len(targets), len(leaves)), dtype=np.float32)
        people = np.arange(len(targets))
        for column in columns:
            onehot[people, start[column] + targets[:, column]] = 1
        whole = len(leaves) == len(self.transposed)
        return np.asarray(onehot @ (self.transposed if whole else self.transposed[leaves]), dtype=np.float32)

    def of_column(self, targets: Codes, column: int) -> Weights:
        """Similarities over one column, by lookup: shape ``(targets, rows)``."""
        return self.transposed[self._span(column)[0] + targets[:, column]]

    def leaves_of(self, column: int) -> Weights:
        """Weights of one column: shape ``(leaves of the column, rows)``."""
        return self.transposed[slice(*self._span(column))]

    def _span(self, column: int) -> tuple[int, int]:
        start = sum(self.domain.shape[:column])
        return start, start + self.domain.shape[column]

    def _starts(self, columns: range | list[int]) -> NDArray[np.intp]:
        sizes = [self.domain.shape[column] for column in columns]
        return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
