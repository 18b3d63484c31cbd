from __future__ import annotations

import numpy as np
import pytest
from scipy.stats.contingency import association

from sfumato.domain import Categorical, Domain, Unknown
from sfumato.evaluate.released import Released, Rows
from sfumato.evaluate.utility.scorecard import (
    associations,
    cramers_v,
    largest_correlation_gap,
    largest_gap,
)


def test_associations_against_numpy_and_scipy(everyone):
    codes = everyone.members.codes
    matrix = associations(Released.raw(everyone.members))
    numbers = [0, 3, 5]
    np.testing.assert_allclose(matrix[np.ix_(numbers, numbers)], np.corrcoef(codes[:, numbers].T), atol=1e-12)
    for one, two in [(1, 2), (2, 4), (0, 1)]:
        table = np.zeros((60, 60), dtype=int)
        np.add.at(table, (codes[:, one], codes[:, two]), 1)
        table = table[table.any(axis=1)][:, table.any(axis=0)]
        assert matrix[one, two] == pytest.approx(association(table, method="cramer"))


def test_a_constant_column_is_associated_with_nothing(everyone):
    codes = everyone.members.codes.copy()
    codes[:, 0] = codes[:, 2] = 3
    matrix = associations(Released.raw(Rows(everyone.domain, codes)))
    assert (np.delete(matrix[0], 0) == 0).all()
    assert (np.delete(matrix[2], 2) == 0).all()
    assert cramers_v(np.ones((1, 4)) / 4) == 0


def test_the_largest_gap_names_its_pair(everyone):
    matrix = associations(Released.raw(everyone.members))
    changed = matrix.copy()
    changed[2, 5] += 0.5
    assert largest_gap(matrix, changed, everyone.domain) == (pytest.approx(0.5), "job", "rooms")
    for same in (matrix, matrix + np.eye(len(matrix))):  # a column is never paired with itself
        gap, one, two = largest_gap(matrix, same, everyone.domain)
        assert (gap, one != two) == (0.0, True)


def test_the_largest_change_of_a_correlation_is_between_numbers(everyone):
    matrix = associations(Released.raw(everyone.members))
    names, numbers = everyone.domain.names, [0, 3, 5]
    changed = matrix.copy()
    changed[2, 5] += 0.5  # a category is in it
    changed[3, 5] = changed[5, 3] = matrix[3, 5] - 0.25
    assert largest_correlation_gap(matrix, changed, everyone.domain) == (pytest.approx(0.25), names[3], names[5])
    one = everyone.domain.project([names[0], names[1]])
    assert largest_correlation_gap(np.eye(2), np.eye(2), one) is None
    assert [isinstance(each, Categorical) for each in everyone.domain] == [
        place not in numbers for place in range(len(names))
    ]


def test_cells_for_missing_values_change_no_association():
    """Two columns that determine each other: five rows without values do not make it less."""
    domain = Domain(
        tuple(Categorical(name=name, values=("a", "b"), unknown=Unknown.CATEGORY, nullable=True) for name in "xy")
    )
    codes = np.array([[0, 0], [1, 1]] * 50 + [[2, 0], [2, 1], [0, 2], [3, 3], [1, 3]])
    assert associations(Released.raw(Rows(domain, codes)))[0, 1] == pytest.approx(1)
