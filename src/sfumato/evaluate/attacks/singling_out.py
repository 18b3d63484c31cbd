"""Singling out: can an attacker name a condition that exactly one person meets (Cohen and Nissim 2020)?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.released import Released
from sfumato.evaluate.rows import Rows

KNOWLEDGE = "nothing besides the release"
_WIDTHS = (3, 5, 8, 12)  # columns in a condition; the best number is chosen on other conditions
_TRIALS = 100  # conditions tried of each width
_SUBSETS = 20  # sets of columns tried of each width

Conditions = tuple[NDArray[np.intp], NDArray[np.bool_]]  # released rows, and (conditions, columns) used of each


def singled_out(
    release: Released, members: Rows, controls: Rows, *, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each of ``count`` conditions isolates one person among members, and among as many controls.

    A condition copies the cells of one released row in some columns, and is used only where no other
    released row has the same cells there.  Its number of columns is fitted on other conditions.
    """
    people = min(len(members), len(controls))
    tables = [table.sample(people, generator) for table in (members, controls)]
    widths = sorted({min(width, len(release.domain)) for width in _WIDTHS})
    gains = []
    for width in widths:
        trial = _conditions(release, count=_TRIALS, width=width, generator=generator)
        member, control = (_isolates(release, trial, table) for table in tables)
        gains.append(int(member.sum()) - int(control.sum()))
    final = _conditions(release, count=count, width=widths[int(np.argmax(gains))], generator=generator)
    outcomes = [_isolates(release, final, table) for table in tables]
    short = count - len(outcomes[0])  # conditions that the attacker could not find isolate nobody
    return np.pad(outcomes[0], (0, short)), np.pad(outcomes[1], (0, short))


def _conditions(release: Released, *, count: int, width: int, generator: np.random.Generator) -> Conditions:
    """Conditions on ``width`` columns, each copied from a row that no other released row equals there."""
    rows, used = [], []
    factors = generator.integers(1, 1 << 62, size=len(release.domain), dtype=np.uint64)
    hashed = release.codes.astype(np.uint64) * factors  # sums of these are equal for equal rows only, almost surely
    share = -(-count // _SUBSETS)
    for _ in range(_SUBSETS):
        columns = generator.permutation(len(release.domain))[:width]
        _, places, counts = np.unique(hashed[:, columns].sum(axis=1), return_index=True, return_counts=True)
        alone = generator.permutation(places[counts == 1])[:share]
        rows.append(alone)
        used.append(np.tile(np.isin(np.arange(len(release.domain)), columns), (len(alone), 1)))
    order = generator.permutation(sum(len(part) for part in rows))[:count]
    return np.concatenate(rows)[order], np.concatenate(used)[order]


def _isolates(release: Released, conditions: Conditions, table: Rows) -> NDArray[np.bool_]:
    return np.asarray(_matches(release, conditions, table) == 1)


def _matches(release: Released, conditions: Conditions, table: Rows) -> NDArray[np.intp]:
    """How many rows of ``table`` lie in each condition."""
    found = []
    for row, used in zip(*conditions, strict=True):
        inside = np.arange(len(table))
        for column in np.flatnonzero(used):
            leaves = release.cells[column][release.codes[row, column]] > 0
            inside = inside[leaves[table.codes[inside, column]]]
        found.append(len(inside))
    return np.array(found, dtype=np.intp)
