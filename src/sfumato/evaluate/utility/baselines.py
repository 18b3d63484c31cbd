"""Where a utility scale begins: every column right, and nothing between the columns."""

from __future__ import annotations

import numpy as np

from sfumato.evaluate.rows import Rows


def independent(rows: Rows, generator: np.random.Generator) -> Rows:
    """The same columns, each shuffled on its own: the floor; the ceiling is other people's rows as they are."""
    shuffled = np.empty_like(rows.codes)
    for column in range(rows.codes.shape[1]):
        shuffled[:, column] = generator.permutation(rows.codes[:, column])
    return Rows(rows.domain, shuffled)
