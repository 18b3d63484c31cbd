"""Raw rows of real people, as codes: what an evaluation compares releases with and attacks them for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.engine.exact import reveal
from sfumato.errors import TableError

Codes = NDArray[np.intp]

_LARGEST = 1 << 62  # of a key, before keys are numbered anew


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of real people: ``codes`` has shape ``(rows, attributes)``, in the order of the domain.

    Raises:
        TableError: the shape does not fit the domain, or a code is out of range or no whole number.
    """

    domain: Domain
    codes: Codes = field(repr=False)

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.domain):  # noqa: PLR2004
            raise TableError(f"codes need one column for each of the {len(self.domain)} attributes", culprit=self)
        if codes.size and codes.dtype.kind not in "iu":
            raise TableError("codes are whole numbers", culprit=self)
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= np.array(self.domain.shape)).any()):
            raise TableError("a code is outside its attribute's cells", culprit=self)
        object.__setattr__(self, "codes", np.asfortranarray(codes, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, chosen: NDArray[np.intp]) -> Rows:
        """The rows at positions ``chosen``, in that order."""
        return Rows(self.domain, self.codes[chosen])

    def sample(self, count: int, generator: np.random.Generator) -> Rows:
        """``count`` rows (all, where there are fewer), without replacement, in random order."""
        return self.take(generator.permutation(len(self))[:count])


def keys(codes: Codes, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """A number for each row, the same for equal rows and for no others: shape ``(rows,)``, from 0, without gaps.

    Args:
        codes: of shape ``(rows, columns)``, not below zero.
        shape: a number above all codes of each column.

    >>> keys(np.array([[0, 2], [1, 0], [0, 2]]), (2, 3)).tolist()
    [0, 1, 0]
    """
    found, cells = np.zeros(len(codes), dtype=np.intp), 1
    for column, size in enumerate(shape):
        if cells * size >= _LARGEST:
            values, found = np.unique(found, return_inverse=True)
            cells = len(values)
        found = found * size + codes[:, column]
        cells *= size
    return np.unique(found, return_inverse=True)[1].astype(np.intp)


def open_rows(path: str | Path, domain: Domain) -> Rows:
    """The rows of a table in any form the engine reads, encoded and bounded by ``domain``.

    Raises:
        TableError: the table cannot be read or does not fit the domain.
    """
    from sfumato.engine.open import open_table

    batches = reveal(open_table(path, csv=domain.csv).encode(domain).batches(domain.names))
    parts = [np.column_stack([column.to_numpy() for column in batch.columns]) for batch in batches]
    if not parts:
        raise TableError("the table has no rows that fit the domain", culprit=str(path))
    return Rows(domain, np.concatenate(parts))
