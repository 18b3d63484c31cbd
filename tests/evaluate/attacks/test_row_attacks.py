from __future__ import annotations

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import TableError
from sfumato.evaluate.attacks.row_attacks import Similarity, alone, downcode, matches
from sfumato.evaluate.released import Released, Rows, spread


def locally_recoded(rows: Rows, columns: list[int], k: int) -> Released:
    """Classes of k rows, each written as the smallest interval or set that covers it."""
    order = np.lexsort(rows.codes[:, columns].T)
    codes = rows.codes.copy()
    cells = [np.eye(size, dtype=np.float32) for size in rows.domain.shape]
    for column in columns:
        sets, size = [], rows.domain.shape[column]
        for number, start in enumerate(range(0, len(rows), k)):
            members = order[start : start + k]
            mask = np.zeros(size, dtype=bool)
            if column in (1, 2):
                mask[rows.codes[members, column]] = True
            else:
                mask[rows.codes[members, column].min() : rows.codes[members, column].max() + 1] = True
            sets.append(mask)
            codes[members, column] = number
        cells[column] = spread(np.array(sets))
    return Released(rows.domain, codes, tuple(cells))


def globally_recoded(rows: Rows) -> Released:
    """Ages in decades for everybody: cells are not minimal for their class."""
    decades = np.arange(60)[None, :] // 10 == np.arange(6)[:, None]
    codes = rows.codes.copy()
    codes[:, 0] //= 10
    cells = [np.eye(size, dtype=np.float32) for size in rows.domain.shape]
    return Released(rows.domain, codes, (spread(decades), *cells[1:]))


def test_minimal_cells_are_undone_far_beyond_guessing(people):
    rows = people.population(300, seed=0)
    found = downcode(locally_recoded(rows, [0, 1], 3), rows, quasi=("age", "town"), generator=np.random.default_rng(0))
    assert found.minimality.value > found.guessing.value + 0.2
    assert found.minimality.value > 0.7


def test_cells_that_were_fixed_beforehand_are_not(people):
    rows = people.population(2000, seed=0)
    found = downcode(globally_recoded(rows), rows, quasi=("age",), generator=np.random.default_rng(0))
    assert found.minimality.value == pytest.approx(found.guessing.value, abs=0.03)


def test_the_original_must_be_the_one_that_was_recoded(people):
    rows = people.population(50, seed=0)
    with pytest.raises(TableError, match="row by row"):
        downcode(Released.of(rows), people.population(49, seed=0), quasi=("age",), generator=np.random.default_rng(0))


@pytest.mark.parametrize("recoded", [Released.of, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
def test_people_in_a_condition_are_counted_as_one_by_one(people, recoded):
    release, table = recoded(people.population(300, seed=0)), people.population(500, seed=1)
    random = np.random.default_rng(2)
    rows, used = random.integers(0, 300, 60), random.random((60, len(table.domain))) < 0.5
    used[:, 0] |= ~used.any(axis=1)
    found = matches(release, (rows, used), table)
    for row, columns, count in zip(rows, used, found, strict=True):
        inside = [
            all(release.cells[c][release.codes[row, c], person[c]] > 0 for c in np.flatnonzero(columns))
            for person in table.codes
        ]
        assert count == sum(inside)
    assert found.max() > 1


def test_rows_that_no_other_equals_are_those_of_numpy():
    values = np.random.default_rng(3).integers(0, 400, 300, dtype=np.uint64)
    _, places, counts = np.unique(values, return_index=True, return_counts=True)
    assert alone(values).tolist() == places[counts == 1].tolist()


@pytest.mark.parametrize("recoded", [Released.of, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
def test_a_similarity_is_the_sum_of_the_cells_that_hold_the_target(people, recoded):
    release, targets = recoded(people.population(90, seed=0)), people.population(40, seed=1).codes
    similarity = Similarity.to(release)
    for columns in ([0], [1, 2], range(len(release.domain))):
        slow = [
            [sum(release.cells[c][row[c], target[c]] for c in columns) for row in release.codes] for target in targets
        ]
        np.testing.assert_allclose(similarity.over(targets, columns), slow, atol=2**-15)
    for column in range(len(release.domain)):
        slow = release.cells[column][release.codes[:, column]][:, targets[:, column]].T
        np.testing.assert_allclose(similarity.of_column(targets, column), slow, atol=2**-15)


def test_a_value_far_above_all_released_ones_is_not_taken_for_one_of_them():
    domain = Domain((Integer(name="n", minimum=0, maximum=999, unknown=Unknown.DROP),))
    similarity = Similarity.to(Released.of(Rows(domain, np.array([[3], [4], [250]]))))
    targets = np.array([[3], [3 + 256], [250 + 512], [999]])
    wanted = [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(similarity.over(targets, [0]), wanted)
    np.testing.assert_array_equal(similarity.of_column(targets, 0), wanted)
