from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import TableError
from sfumato.evaluate.attacks import row_attacks
from sfumato.evaluate.attacks import suite as singling_out
from sfumato.evaluate.attacks.row_attacks import (
    Similarity,
    downcode,
    membership_scores,
    nearby,
)
from sfumato.evaluate.attacks.suite import RowsInCells, lone_rows, matches
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
    """Return ages in decades for all rows, so that cells are not minimal for their class."""
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
        downcode(Released.raw(rows), people.population(49, seed=0), quasi=("age",), generator=np.random.default_rng(0))


@pytest.mark.parametrize("recoded", [Released.raw, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
@pytest.mark.parametrize("kept", [1 << 20, 1])
def test_people_in_a_condition_are_counted_as_one_by_one(people, recoded, kept, monkeypatch):
    monkeypatch.setattr(singling_out, "_CACHED_BYTES", kept)
    release, table = recoded(people.population(300, seed=0)), people.population(500, seed=1)
    random = np.random.default_rng(2)
    rows, used = random.integers(0, 300, 60), random.random((60, len(table.domain))) < 0.5
    used[:, 0] |= ~used.any(axis=1)
    found = matches((rows, used), RowsInCells.from_tables(release, table))
    for row, columns, count in zip(rows, used, found, strict=True):
        inside = [
            all(release.cells[c][release.codes[row, c], person[c]] > 0 for c in np.flatnonzero(columns))
            for person in table.codes
        ]
        assert count == sum(inside)
    assert found.max() > 1


@pytest.mark.parametrize("rows", [90, 3000])
@pytest.mark.parametrize("count", [1, 4, 10_000])
def test_lone_rows_are_those_of_numpy_each_as_often_as_any(rows, count):
    """Many agree in their lowest bits; all are sorted, or only some looked at, as many are wanted or few."""
    random = np.random.default_rng(3)
    values = random.integers(0, rows, rows, dtype=np.uint64) * np.uint64(1 << 15)
    _, first, counts = np.unique(values, return_index=True, return_counts=True)
    lone = first[counts == 1]
    drawn = np.zeros(rows)
    for _ in range(400):
        found = lone_rows(values, count, random)
        assert len(set(found.tolist())) == len(found) == min(count, len(lone))
        drawn[found] += 1
    assert not np.delete(drawn, lone).any()
    mean = 400 * min(count, len(lone)) / len(lone)
    chi_square = ((drawn[lone] - mean) ** 2 / mean).sum()
    assert chi_square < len(lone) + 8 * math.sqrt(2 * len(lone)) + 32


def test_no_row_is_alone_where_every_one_has_its_twin():
    values = np.repeat(np.arange(40, dtype=np.uint64), 2)
    assert lone_rows(values, 5, np.random.default_rng(0)).tolist() == []


@pytest.mark.parametrize("recoded", [Released.raw, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
def test_membership_is_scored_by_the_nearest_row_and_the_density_of_rows_around(people, recoded):
    release, targets = recoded(people.population(90, seed=0)), people.population(40, seed=1).codes
    similarity = Similarity.to(release)
    close = similarity.compare(targets, range(len(release.domain)))
    nearest, density = membership_scores(close)
    assert nearest.tolist() == [max(row) for row in close.tolist()]
    slow = [math.log(math.fsum(math.exp(3 * value) for value in row)) for row in close.tolist()]
    np.testing.assert_allclose(density, slow, rtol=1e-6)


@pytest.mark.parametrize("recoded", [Released.raw, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
def test_the_rows_nearest_on_all_other_columns_vote(people, recoded):
    release, targets = recoded(people.population(90, seed=0)), people.population(40, seed=1).codes
    similarity, columns = Similarity.to(release), range(len(release.domain))
    close = similarity.compare(targets, columns)
    for column in columns:
        others = similarity.compare(targets, [other for other in columns if other != column])
        nearest = others == others.max(axis=1, keepdims=True)
        slow = nearest @ release.rounded(column)[release.codes[:, column]]
        found = similarity.votes(close, nearby(close), targets, column)
        np.testing.assert_allclose(found, slow, rtol=1e-5, atol=1e-5)


def test_halves_of_more_columns_than_a_byte_counts_add_up():
    domain = Domain(tuple(Integer(name=f"n{j}", minimum=0, maximum=1, unknown=Unknown.DROP) for j in range(300)))
    rows = np.zeros((3, 300), dtype=np.intp)
    similarity = Similarity.to(Released.raw(Rows(domain, rows)))
    halves = [similarity.compare(rows[:1], columns) for columns in (range(150), range(150, 300))]
    assert (halves[0] + halves[1]).tolist() == [[300, 300, 300]]


def test_blocks_of_many_rows_are_compared_as_few_rows_are(people, monkeypatch):
    release, targets = Released.raw(people.population(90, seed=0)), people.population(9, seed=1).codes
    similarity, columns = Similarity.to(release), range(len(release.domain))
    whole = similarity.compare(targets, columns)
    monkeypatch.setattr(row_attacks, "_BLOCK", 60)
    np.testing.assert_array_equal(similarity.compare(targets, columns), whole)


@pytest.mark.parametrize("recoded", [Released.raw, globally_recoded, lambda rows: locally_recoded(rows, [0, 1], 3)])
def test_a_similarity_is_the_sum_of_the_cells_that_hold_the_target(people, recoded):
    release, targets = recoded(people.population(90, seed=0)), people.population(40, seed=1).codes
    similarity = Similarity.to(release)
    for columns in (*([column] for column in range(len(release.domain))), [1, 2], range(len(release.domain))):
        slow = [
            [sum(release.cells[c][row[c], target[c]] for c in columns) for row in release.codes] for target in targets
        ]
        np.testing.assert_allclose(similarity.compare(targets, columns), slow, atol=2**-15)


def test_a_value_far_above_all_released_ones_is_not_taken_for_one_of_them():
    domain = Domain((Integer(name="n", minimum=0, maximum=999, unknown=Unknown.DROP),))
    similarity = Similarity.to(Released.raw(Rows(domain, np.array([[3], [4], [250]]))))
    targets = np.array([[3], [3 + 256], [250 + 512], [999]])
    wanted = [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(similarity.compare(targets, [0]), wanted)
