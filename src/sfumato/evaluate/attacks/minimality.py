"""Undo local recoding that is as fine as it can be: a minimal cell says what it covers (Cohen 2022).

A recoding that cuts classes as small as possible writes, for each class, the smallest interval or set that
covers its rows.  So both ends of an interval are values of somebody in the class, and in a set no larger than
the class every value is.  An attacker who knows the method takes these values back: he downcodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical
from sfumato.errors import TableError
from sfumato.evaluate.intervals import Share
from sfumato.evaluate.released import Released
from sfumato.evaluate.rows import Rows


@dataclass(frozen=True)
class Downcoding:
    """Generalised cells that were undone: by reading minimality, and by guessing within the cell."""

    minimality: Share
    guessing: Share


def downcode(release: Released, truth: Rows, *, quasi: tuple[str, ...], generator: np.random.Generator) -> Downcoding:
    """Write a leaf into every generalised cell of the quasi-identifiers, and count those that are right.

    Classes are the released rows that agree on ``quasi``.  Leaves are right as far as the multiset written
    into a class agrees with the true one, so the order of rows inside a class is not asked for.

    Args:
        release: rows by local recoding, row n made from row n of ``truth``.
        truth: the original rows, to judge by.
        quasi: the quasi-identifiers.
        generator: guesses leaves that minimality does not tell.

    Raises:
        TableError: the two tables have different numbers of rows.
    """
    if len(release) != len(truth):
        raise TableError("downcoding compares a recoded table with its original, row by row", culprit=None)
    columns = [release.domain.index(name) for name in quasi]
    _, classes = np.unique(release.codes[:, columns], axis=0, return_inverse=True)
    order = np.argsort(classes.ravel(), kind="stable")
    starts = np.flatnonzero(np.diff(classes.ravel()[order], prepend=-1))
    read = guessed = cells = 0
    for members in np.split(order, starts[1:]):
        for column in columns:
            leaves = np.flatnonzero(release.cells[column][release.codes[members[0], column]])
            if len(leaves) > 1:
                real = truth.codes[members, column]
                ordered = not isinstance(release.domain.attributes[column], Categorical)
                certain = _certain(leaves, len(members), ordered=ordered)
                filled = np.concatenate([certain, generator.choice(leaves, size=len(members) - len(certain))])
                read += _overlap(filled, real)
                guessed += _overlap(generator.choice(leaves, size=len(members)), real)
                cells += len(members)
    return Downcoding(Share(read, cells), Share(guessed, cells))


def _certain(leaves: NDArray[np.intp], members: int, *, ordered: bool) -> NDArray[np.intp]:
    """Leaves that a minimal cell proves to be in the class."""
    if ordered:
        return leaves[[0, -1]][:members]
    return leaves if len(leaves) <= members else leaves[:0]


def _overlap(one: NDArray[np.intp], two: NDArray[np.intp]) -> int:
    size = int(max(one.max(), two.max())) + 1
    return int(np.minimum(np.bincount(one, minlength=size), np.bincount(two, minlength=size)).sum())
