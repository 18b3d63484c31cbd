"""A column with more cells than 32 bits can number: no row makes an engine fail, and all rows are counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.exact import reveal

STEP = Fraction(1 << 24)


@pytest.mark.parametrize(("low", "high"), [(0, 1 << 31), (0, 1 << 32), (1 - (1 << 53), (1 << 53) - 1)])
def test_the_largest_value_is_encoded_and_counted(table, rows, low, high):
    whole = Integer(name="whole", minimum=low, maximum=high, unknown=Unknown.CLAMP)
    encoded = table.encode(Domain((whole,)))
    last = Among("whole", frozenset({whole.declared - 1}))
    kept = [max(low, min(high, row["whole"])) for row in rows if row["whole"] is not None]
    assert kept.count(high) > 0
    assert reveal(encoded.marginals([()], last)[0]).tolist() == [kept.count(high)]
    assert reveal(encoded.sums("whole", (), STEP)).tolist() == [sum(round(number / STEP) for number in kept)]


def test_rows_in_memory_keep_such_codes_apart():
    whole = Integer(name="whole", minimum=0, maximum=1 << 33, unknown=Unknown.CLAMP)
    codes = np.array([[5], [5 + (1 << 32)]])
    found = reveal(ArrayTable(Domain((whole,)), codes).groups(("whole",)))
    assert found.codes.ravel().tolist() == codes.ravel().tolist()
