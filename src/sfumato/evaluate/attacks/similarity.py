"""How well every released row fits a target: the number of columns where they agree.

The similarity of target q to row r over some columns counts 1 for a cell that is q's own, and 1/|set| for a
generalised cell whose set holds q's.  (The distance is the number of columns minus that.)

Attacks are tried on equally many members and controls, one half to fit and one half to test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.intervals import FEWEST_TESTED
from sfumato.evaluate.released import Codes, Released, Rows, Weights

_CHUNK = 1 << 19  # similarities held at once: few enough for a processor's cache


@dataclass(frozen=True, eq=False)
class Similarity:
    """A release, ready to be compared with targets: one narrow array of codes a column.

    ``cells[j]`` is None where the cells of column j are its leaves, otherwise their weights, shape
    ``(distinct cells, leaves)`` in multiples of 2^-16.
    """

    domain: Domain
    codes: tuple[NDArray[np.unsignedinteger], ...]  # (rows,) each
    cells: tuple[Weights | None, ...]

    @staticmethod
    def to(release: Released) -> Similarity:
        """Compare targets with the rows of ``release``."""
        codes = [column.astype(np.min_scalar_type(int(column.max()))) for column in release.codes.T]
        cells = [None if plain else release.rounded(column) for column, plain in enumerate(release.plain)]
        return Similarity(release.domain, tuple(codes), tuple(cells))

    @property
    def rows(self) -> int:
        """Number of released rows."""
        return len(self.codes[0])

    def chunks(self, people: int) -> Iterator[slice]:
        """Slices of targets whose similarities fit in the cache together."""
        step = max(1, _CHUNK // self.rows)
        return (slice(start, min(start + step, people)) for start in range(0, people, step))

    def over(self, targets: Codes, columns: Sequence[int]) -> Weights:
        """Similarities over ``columns``: shape ``(targets, rows)``, exact multiples of 2^-16."""
        plain = [column for column in columns if self.cells[column] is None]
        agree = np.zeros((len(targets), self.rows), dtype=np.min_scalar_type(len(plain)))
        for column in plain:
            agree += self.codes[column] == targets[:, [column]]
        close = agree.astype(np.float32)
        for column in columns:
            if self.cells[column] is not None:
                close += self.of_column(targets, column)
        return close

    def of_column(self, targets: Codes, column: int) -> Weights:
        """Similarities over one column: shape ``(targets, rows)``."""
        cells = self.cells[column]
        if cells is None:
            return np.asarray(self.codes[column] == targets[:, [column]], dtype=np.float32)
        return np.take(cells.T[targets[:, column]], self.codes[column], axis=1)

    def votes(self, chosen: NDArray[np.bool_], column: int) -> NDArray[np.float64]:
        """Weight of each leaf of a column among the ``chosen`` rows, (targets, rows): shape ``(targets, leaves)``."""
        cells = self.cells[column]
        distinct = self.domain.shape[column] if cells is None else len(cells)
        counts = np.array(
            [np.bincount(self.codes[column][np.flatnonzero(rows)], minlength=distinct) for rows in chosen],
            dtype=np.float64,
        )
        return counts if cells is None else np.asarray(counts @ cells.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Targets:
    """Codes of the people attacked, each of shape ``(people, attributes)``."""

    members: Codes
    controls: Codes

    @property
    def stacked(self) -> Codes:
        """Members, then controls."""
        return np.concatenate([self.members, self.controls])

    def __len__(self) -> int:
        return len(self.members)


def draw_targets(
    members: Rows, controls: Rows, *, count: int, generator: np.random.Generator
) -> tuple[Targets, Targets]:
    """``count`` members and as many controls (fewer where there are fewer), as a fitting and a testing half.

    Raises:
        TableError: too few rows for an interval.
    """
    each = min(count, len(members), len(controls))
    if each < 2 * FEWEST_TESTED:
        raise TableError(f"too few rows for an interval: attacks need {2 * FEWEST_TESTED} of each kind", culprit=each)
    chosen = [table.sample(each, generator).codes for table in (members, controls)]
    half = each // 2
    return Targets(chosen[0][:half], chosen[1][:half]), Targets(chosen[0][half : 2 * half], chosen[1][half : 2 * half])
