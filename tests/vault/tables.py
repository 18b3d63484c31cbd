"""Tiny neighbouring tables."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.engine.arrays import ArrayTable

TINY = Domain(
    (
        Integer(name="a", minimum=0, maximum=1, unknown=Unknown.CLAMP),
        Integer(name="b", minimum=-2, maximum=1, edges=(-2, 0), unknown=Unknown.CLAMP),
    )
)
ROWS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def table(rows: list[tuple[int, int]], unit: Unit | None = None) -> ArrayTable:
    """Rows of codes; ``b`` takes the extreme of its bin, where a sum moves most."""
    domain = TINY if unit is None else Domain(TINY.attributes, unit=unit)
    codes = np.array(rows, dtype=np.int64).reshape(-1, 2)
    values = {"a": codes[:, 0].astype(float), "b": np.where(codes[:, 1] == 0, -2.0, 1.0)}
    return ArrayTable(domain, codes, values=values)


def neighbours(most_rows: int, unit_rows: int = 1) -> list[tuple[ArrayTable, ArrayTable]]:
    """All pairs of tables of up to ``most_rows`` rows, the second with one more unit of 1 .. ``unit_rows`` rows."""
    unit = Unit("person", rows=unit_rows) if unit_rows > 1 else None
    return [
        (table(list(rows), unit), table([*rows, *extra], unit))
        for size in range(most_rows + 1)
        for rows in combinations_with_replacement(ROWS, size)
        for more in range(1, unit_rows + 1)
        for extra in combinations_with_replacement(ROWS, more)
    ]
